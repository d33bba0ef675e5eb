//! Memory of waiting requests goes back to the system after their client has left. Alone in its process,
//! whose memory is measured.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use client::files::{Mount, Want, lock_draft};
use client::*;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_server::internal::state::Kind;
use frevo_wire::command::lock::LockFlags;
use frevo_wire::dtyp::Guid;
use tokio::time::{Instant, sleep};

/// Connections, and LOCKs that wait on each.
const CONNECTIONS: u8 = 12;
const LOCKS: usize = 500;
/// Bytes that the server may keep.
const KEPT: usize = 16 << 20;

/// The resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

async fn connect(port: u16, number: u8) -> (Peer, Mount) {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let mut peer = Peer::new(Stream::connect(address).await.unwrap(), Guid([number; 16]));
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on("ann").await;
    let mount = peer.mount(&logon, "data").await;
    (peer, mount)
}

/// Waits until the process has at most so many bytes.
async fn shrunk(most: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while resident() > most {
        assert!(Instant::now() < until, "{} KiB, {} are allowed", resident() >> 10, most >> 10);
        sleep(Duration::from_millis(100)).await;
    }
}

/// 16,000 LOCKs that waited left 63 MiB for good: pools of buffers freed them after the last look.
#[test]
fn r2_waiting_locks_leave_no_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = World::new(settings());
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = world.listen(listener);
        drop(connect(port, 200).await);
        let before = resident();
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let (mut peer, mount) = connect(port, number).await;
            let file = peer.open_file(&mount, &Want::file("f")).await;
            let draft = || lock_draft(file, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]);
            if number == 0 {
                peer.on(&mount, draft()).await.ok();
            }
            for _ in 0..LOCKS {
                peer.send(vec![mount.put(draft())], mount.via()).await;
                peer.interim().await;
            }
            clients.push(peer);
        }
        let waiting = world.server.ledger.count(Kind::Waiting);
        assert_eq!(waiting, usize::from(CONNECTIONS) * LOCKS);
        let during = resident();
        assert!(during > before + 2 * KEPT, "{} KiB show nothing", (during - before) >> 10);
        drop(clients);
        shrunk(before + KEPT).await;
        println!("{} KiB, {} before, {} during", resident() >> 10, before >> 10, during >> 10);
        world.embedded.stop_within(Duration::from_secs(5));
        serving.await.unwrap().unwrap();
    });
}
