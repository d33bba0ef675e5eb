//! A relay that delays everything, as a longer distance does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Relays connections to a server until the process ends.
pub(crate) struct Relay {
    pub(crate) port: u16,
}

impl Relay {
    /// Starts a relay to `server` that adds `latency` to each round trip.
    pub(crate) fn start(server: String, latency: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || -> Result<()> {
            for near in listener.incoming() {
                let (near, far) = (near?, TcpStream::connect(&server)?);
                near.set_nodelay(true)?;
                far.set_nodelay(true)?;
                delayed(near.try_clone()?, far.try_clone()?, latency / 2);
                delayed(far, near, latency / 2);
            }
            Ok(())
        });
        Ok(Self { port })
    }
}

/// Relays one direction: one thread receives bytes with their time, another sends them when due.
fn delayed(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (taken_in, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if taken_in.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (when, bytes) in due {
            std::thread::sleep(when.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_arrives_later_on_every_connection() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = echo.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in echo.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 4];
                stream.read_exact(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
            }
        });
        let latency = Duration::from_millis(20);
        let relay = Relay::start(address, latency).unwrap();
        for said in [*b"once", *b"more"] {
            let mut stream = TcpStream::connect(("127.0.0.1", relay.port)).unwrap();
            let start = Instant::now();
            stream.write_all(&said).unwrap();
            let mut heard = [0; 4];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(heard, said);
            assert!(start.elapsed() >= latency);
        }
    }
}
