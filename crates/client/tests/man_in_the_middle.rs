//! A server, or somebody on the way, that means harm: the client ends with an
//! error, in time, and never with wrong data or unprotected.
#![allow(missing_docs, reason = "tests")]

#[path = "evil/frames.rs"]
mod frames;
mod world;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frames::{framed, put};
use frevo_client::dial::Dialing;
use frevo_client::options::Encryption;
use frevo_client::{Cause, Client, Credentials, Dial, Options, Result, ServerName, Session};
use frevo_net::frame_reader::FrameReader;
use frevo_net::memory;
use frevo_net::transport::Stream;
use world::{World, in_world};

/// What is done to the server's frames; the number counts those of all
/// connections.
type Tamper = dyn Fn(usize, Vec<u8>) -> Vec<Vec<u8>> + Send + Sync;

/// Somebody between the client and the server.
struct Between {
    server: Arc<dyn Dial>,
    tamper: Arc<Tamper>,
    seen: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Between")
    }
}

impl Dial for Between {
    fn dial<'a>(&'a self, server: &'a ServerName, address: Option<IpAddr>) -> Dialing<'a> {
        Box::pin(async move {
            let there = Arc::new(self.server.dial(server, address).await?);
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let (ours, theirs) = memory::pair(1 << 20, [at(1), at(2)]);
            let here = Arc::new(Stream::Memory(theirs));
            let (tamper, seen) = (Arc::clone(&self.tamper), Arc::clone(&self.seen));
            tokio::spawn(carry(Arc::clone(&here), Arc::clone(&there), |frame| vec![frame]));
            tokio::spawn(carry(there, here, move |frame| {
                tamper(seen.fetch_add(1, Ordering::SeqCst), frame)
            }));
            Ok(Stream::Memory(ours))
        })
    }
}

/// Frames from one to the other.
async fn carry(from: Arc<Stream>, to: Arc<Stream>, change: impl Fn(Vec<u8>) -> Vec<Vec<u8>>) {
    let mut reader = FrameReader::new(frevo_net::limits::FRAME_BYTES_MAX);
    while let Ok(Some(frame)) = reader.next(&from).await {
        for frame in change(frame.to_vec()) {
            if put(&to, &framed(&frame)).await.is_err() {
                return from.abort();
            }
        }
    }
    to.abort();
}

fn client(world: &World, options: Options, tamper: Arc<Tamper>) -> (Client, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let server = Arc::clone(&world.wire) as Arc<dyn Dial>;
    let between = Between { server, tamper, seen: Arc::clone(&seen) };
    let options = Options { recover_for: Duration::from_millis(200), ..options };
    (Client::over(options, Arc::new(between)), seen)
}

async fn log_on(client: &Client) -> Result<Session> {
    client.log_on(ServerName::new("frevo"), Credentials::password("ann", "secret")).await
}

/// Reads a file whose content is known, through whatever is in the way.
async fn read(client: &Client) -> Result<Vec<u8>> {
    log_on(client).await?.share("data").await?.read("known").await
}

const KNOWN: &[u8] = b"what was written, and nothing else";

/// Every byte of every answer matters: with one bit of it changed the client
/// fails, or did not need it, and what it reads is never another content.
#[test]
fn a_changed_bit_never_changes_what_is_read() {
    in_world(async |world| {
        std::fs::write(world.path("known"), KNOWN).unwrap();
        for encryption in [Encryption::AsServerAsks, Encryption::Required] {
            let options = Options { encryption, ..Options::default() };
            let honest: Arc<Tamper> = Arc::new(|_, frame| vec![frame]);
            let (one, seen) = client(world, options.clone(), honest);
            assert_eq!(read(&one).await.unwrap(), KNOWN);
            let frames = seen.load(Ordering::SeqCst);
            assert!(frames > 4, "{frames}");
            let mut failed = 0;
            for target in 0..frames {
                for place in [0_usize, 4, 9, 13, 17, 24, 41, 60, 64, 70, 77, 83, 90, 112, 130] {
                    let tamper: Arc<Tamper> = Arc::new(move |at, mut frame| {
                        if at == target && place < frame.len() {
                            frame[place] ^= 0x10;
                        }
                        vec![frame]
                    });
                    let (one, _) = client(world, options.clone(), tamper);
                    let read = tokio::time::timeout(Duration::from_secs(20), read(&one)).await;
                    match read.expect("it ends") {
                        // Found out, and the connection was made anew.
                        Ok(data) => assert_eq!(data, KNOWN, "frame {target}, byte {place}"),
                        Err(_) => failed += 1,
                    }
                }
            }
            assert!(failed > frames, "changes are noticed: {failed}");
        }
    });
}

/// Answers in plain where they should be sealed, given twice, to nobody, or
/// endless: none of it is taken.
#[test]
fn what_the_server_would_not_send_is_refused() {
    in_world(async |world| {
        std::fs::write(world.path("known"), KNOWN).unwrap();
        let cases: [(&str, Arc<Tamper>); 4] = [
            ("twice", Arc::new(|_, frame| vec![frame.clone(), frame])),
            ("noise", Arc::new(|at, frame| vec![if at == 0 { vec![0xA5; 200] } else { frame }])),
            ("nothing", Arc::new(|at, frame| vec![if at == 3 { Vec::new() } else { frame }])),
            (
                "somebody else's answer",
                Arc::new(|at, mut frame| {
                    if at == 4 && frame.starts_with(&[0xFE]) {
                        frame[24..32].copy_from_slice(&77_u64.to_le_bytes());
                    }
                    vec![frame]
                }),
            ),
        ];
        for (name, tamper) in cases {
            let (one, _) = client(world, Options::default(), tamper);
            let read = tokio::time::timeout(Duration::from_secs(20), read(&one)).await;
            match read.expect(name) {
                Ok(data) => assert_eq!(data, KNOWN, "{name}"),
                Err(error) => assert!(
                    matches!(
                        error.cause(),
                        Cause::Protocol(_)
                            | Cause::Security(_)
                            | Cause::Transport(_)
                            | Cause::Logon(_)
                            | Cause::Unknown
                    ),
                    "{name}: {error}"
                ),
            }
        }
    });
}

/// MS-SMB2 3.2.5.2: a dialect or a cipher that was taken out of the offer on the
/// way is found out by the pre-authentication hash, at the latest.
#[test]
fn protection_is_not_bargained_away() {
    in_world(async |world| {
        // The response says 3.0.2 in the place of 3.1.1.
        let lower: Arc<Tamper> = Arc::new(|at, mut frame| {
            if at == 0 {
                frame[68..70].copy_from_slice(&0x0302_u16.to_le_bytes());
            }
            vec![frame]
        });
        let (one, _) = client(world, Options::default(), lower);
        let refused = read(&one).await.unwrap_err();
        assert!(matches!(refused.cause(), Cause::Security(_) | Cause::Protocol(_)), "{refused}");
    });
}
