//! A server that another one replaces: clients go on, newcomers are not refused.

mod harness;

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use frevo_client::{Client, Credentials, LockKind, OpenOptions, ServerName};
use harness::world::World;
use harness::{PATIENCE, Sandbox};

const BLOCK: usize = 64 << 10;
/// A byte behind all that is copied.
const LOCKED: u64 = 1 << 40;

/// The bytes of one block of the copy.
fn block(at: usize) -> Vec<u8> {
    (0..BLOCK).map(|byte| (at.wrapping_mul(31) ^ byte) as u8).collect()
}

/// Counters that the threads of a test share.
#[derive(Default)]
struct Shared {
    blocks: AtomicUsize,
    connected: AtomicUsize,
    is_over: AtomicBool,
}

impl Shared {
    /// Waits until `more` has happened since now.
    fn wait(&self, counter: &AtomicUsize, more: usize) {
        let (from, began) = (counter.load(Ordering::SeqCst), Instant::now());
        while counter.load(Ordering::SeqCst) < from + more {
            assert!(began.elapsed() < PATIENCE * 3, "nothing goes on");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes blocks behind a lock, reads each again, and returns how many.
async fn copy(address: &str, shared: &Shared) -> usize {
    let (host, port) = address.rsplit_once(':').unwrap();
    let server = ServerName::new(host).at_port(port.parse().unwrap());
    let session = Client::default().connect(server, Credentials::new("ann", "secret")).await;
    let share = session.unwrap().share("share").await.unwrap();
    let file = OpenOptions::new().read(true).write(true).create(true).open(&share, "copy").await;
    let file = file.unwrap();
    // The lock keeps the file from being opened a second time, so writing can continue only with
    // the durable handle.
    file.lock(LOCKED, 1, LockKind::Exclusive).await.unwrap();
    let mut at = 0;
    while !shared.is_over.load(Ordering::SeqCst) {
        let offset = (at * BLOCK) as u64;
        file.write_all_at(&block(at), offset).await.unwrap();
        let mut back = vec![0; BLOCK];
        file.read_exact_at(&mut back, offset).await.unwrap();
        assert!(back == block(at), "block {at}");
        at += 1;
        shared.blocks.fetch_add(1, Ordering::SeqCst);
        // The pause keeps the file from growing too large for the test.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    file.unlock(LOCKED, 1).await.unwrap();
    file.close().await.unwrap();
    share.log_off().await;
    at
}

/// Connects all the time. A connection that was made may be closed by the server that stops.
fn newcomers(address: &str, shared: &Shared) {
    while !shared.is_over.load(Ordering::SeqCst) {
        let mut stream = TcpStream::connect(address).expect("a newcomer is refused");
        shared.connected.fetch_add(1, Ordering::SeqCst);
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        // The read waits a moment for the server; its result does not matter.
        let _ = stream.read(&mut [0]);
    }
}

#[test]
fn a_copy_goes_on_over_three_upgrades_and_nobody_is_refused() {
    let mut world = World::new();
    let shared = Arc::new(Shared::default());
    let copying = thread::spawn({
        let (address, shared) = (world.address.clone(), Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        move || runtime.block_on(copy(&address, &shared))
    });
    let connecting = thread::spawn({
        let (address, shared) = (world.address.clone(), Arc::clone(&shared));
        move || newcomers(&address, &shared)
    });
    let address = world.address.clone();
    for upgrade in 0..3 {
        shared.wait(&shared.blocks, 5);
        shared.wait(&shared.connected, 5);
        let old = world.replace();
        assert_eq!(old.code, 0, "{old:?}");
        assert!(
            old.err.contains("durable handles are left to the next start"),
            "{upgrade}: {old:?}"
        );
        assert_eq!(world.address, address);
    }
    shared.wait(&shared.blocks, 5);
    shared.wait(&shared.connected, 5);
    shared.is_over.store(true, Ordering::SeqCst);
    let blocks = copying.join().unwrap();
    connecting.join().unwrap();
    let all: Vec<u8> = (0..blocks).flat_map(block).collect();
    assert!(fs::read(world.there("copy")).unwrap() == all, "{blocks} blocks");
    let last = world.stop();
    assert!(last.err.contains("took up durable handles"), "{last:?}");
}

#[test]
fn a_server_that_could_not_start_ends_nobody() {
    let place = Sandbox::new();
    place.folder("photos");
    place.file("password", "pw\n", 0o600);
    let flags = ["--listen", "127.0.0.1:0", "--user", "ann", "--password-file", "password"];
    let server = place.serve(&[&["photos"], &flags[..]].concat());
    let pid = server.pid().to_string();
    let replace =
        |flags: &[&str]| place.run(&[&["serve", "photos", "--replace", &pid], flags].concat());
    let wrong = ["--listen", "127.0.0.1:0", "--user", "ann", "--password-file", "absent"];
    assert_ne!(replace(&wrong).code, 0);
    // The sockets of the old server do not fit the new address, and the port is taken, so the
    // replacement fails.
    let elsewhere = server.address.replace("127.0.0.1", "0.0.0.0");
    let taken = ["--listen", &elsewhere, "--user", "ann", "--password-file", "password"];
    replace(&taken).fails(1, &["in use"]);
    place.run(&["serve", "photos", "--replace", "0"]).fails(1, &["that is no PID"]);
    place.run(&["serve", "photos", "--replace", "1"]).fails(1, &["cannot replace the server"]);
    TcpStream::connect(&server.address).unwrap();
    assert_eq!(server.stop().code, 0);
}
