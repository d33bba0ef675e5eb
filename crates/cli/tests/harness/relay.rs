//! A relay between the program and a server that can cut connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The fate of a connection.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    Carried,
    /// Closed as soon as it is made.
    Refused,
    /// Cut when the client has sent so many bytes.
    CutAfter(usize),
    /// Cut a moment after the client has sent so many bytes. The last answers do not reach it.
    UnansweredAfter(usize),
    /// Left alone when the client has sent so many bytes: no more of it gets through.
    HeldAfter(usize),
}

/// A relay in front of a server, which counts connections and cuts some.
pub struct Relay {
    pub address: String,
    made: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
}

impl Relay {
    pub fn new(server: &str, fate: impl Fn(usize) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let made = Arc::new(AtomicUsize::new(0));
        let held = Arc::new(AtomicUsize::new(0));
        let (server, count, holds) = (server.to_owned(), Arc::clone(&made), Arc::clone(&held));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                match fate(count.fetch_add(1, Ordering::SeqCst)) {
                    Fate::Refused => drop(client.shutdown(Shutdown::Both)),
                    Fate::Carried => carry(client, &server, usize::MAX, None),
                    Fate::CutAfter(bytes) => carry(client, &server, bytes, None),
                    Fate::UnansweredAfter(bytes) => carry_unanswered(client, &server, bytes),
                    Fate::HeldAfter(bytes) => {
                        carry(client, &server, bytes, Some(Arc::clone(&holds)));
                    }
                }
            }
        });
        Self { address, made, held }
    }

    pub fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// Connections that are held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

/// Carries bytes both ways, until the client has sent `most`: then it is cut, or held.
fn carry(client: TcpStream, server: &str, most: usize, held: Option<Arc<AtomicUsize>>) {
    // While the server is down, the relay closes the client's connection.
    let Ok(server) = TcpStream::connect(server) else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || pass(from_server, to_client, usize::MAX, None));
    thread::spawn(move || pass(client, server, most, held));
}

/// Carries bytes both ways, until the client has sent `most`: from then on the server's are lost, and the
/// connection is cut when it has done what it was asked for.
fn carry_unanswered(mut client: TcpStream, server: &str, most: usize) {
    let Ok(mut server) = TcpStream::connect(server) else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut to_client, mut from_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let is_lost = Arc::clone(&is_over);
    thread::spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut buffer) {
            if !is_lost.load(Ordering::SeqCst) && to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        let (mut left, mut buffer) = (most, vec![0; 16 << 10]);
        while left > 0 {
            let Ok(count @ 1..) = client.read(&mut buffer) else { break };
            left = left.saturating_sub(count);
            is_over.store(left == 0, Ordering::SeqCst);
            if server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        thread::sleep(Duration::from_millis(100));
        for stream in [&client, &server] {
            // The connection may have ended already, so an error is ignored.
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
}

fn pass(mut from: TcpStream, mut to: TcpStream, most: usize, held: Option<Arc<AtomicUsize>>) {
    let mut left = most;
    let mut buffer = vec![0; 16 << 10];
    while left > 0 {
        let Ok(count @ 1..) = from.read(&mut buffer) else { break };
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        left = left.saturating_sub(count);
    }
    if let Some(held) = held.filter(|_| left == 0) {
        held.fetch_add(1, Ordering::SeqCst);
        loop {
            thread::park();
        }
    }
    for stream in [&from, &to] {
        // The connection may have ended already, so an error is ignored.
        let _ = stream.shutdown(Shutdown::Both);
    }
}
