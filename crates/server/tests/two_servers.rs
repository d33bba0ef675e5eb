//! Two servers in one process, with accounts, shares, limits and settings of their own:
//! neither notices the other. A binary of its own: the memory for buffers is the process's.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::world::password;
use client::*;
use frevo_net::buffer::budget;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_server::audit::Kind;
use frevo_server::share::Share;
use frevo_server::{Limits, Reload, Server, UserList, vfs};
use frevo_wire::dtyp::Guid;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::timeout;

const MIB: usize = 1 << 20;

/// A server that listens, and where.
struct Running {
    server: Server,
    address: std::net::SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn of(server: Server) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let own = server.clone();
        let serving = tokio::task::spawn_local(async move { own.serve(listener).await });
        Self { server, address, serving }
    }

    async fn peer(&self, number: u8) -> Peer {
        let stream = Stream::connect(self.address).await.unwrap();
        let mut peer = Peer::new(stream, Guid([number; 16]));
        peer.negotiate(&Offer::default()).await;
        peer
    }

    /// The status of a logon as a user whose password is the tests' usual one.
    async fn log_on(&self, number: u8, user: &str) -> Result<(Peer, Rc<Logon>), Status> {
        let mut peer = self.peer(number).await;
        let logon = peer.try_log_on(Setup::of(user)).await;
        logon.map(|logon| (peer, logon)).map_err(|reply| reply.status())
    }

    async fn stop(self) {
        self.server.stop();
        timeout(Duration::from_secs(20), self.serving).await.unwrap().unwrap().unwrap();
    }
}

fn users(name: &str) -> Arc<UserList> {
    Arc::new(UserList::new().user(name, &password(name)))
}

/// One test, because each server adds its part to the limit of the process.
#[test]
fn servers_of_one_process() {
    two_servers_have_nothing_in_common();
    a_server_serves_once_and_its_shares_can_change();
}

fn two_servers_have_nothing_in_common() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let limits = |sessions| Limits {
            memory: 64 * MIB,
            sessions_per_user: Some(sessions),
            ..Limits::default()
        };
        let (parts, mut events) = Server::builder()
            .settings(Settings { server_name: String::from("ONE"), ..settings() })
            .share("first", vfs::memory(1 << 20))
            .accounts(users("ann"))
            .limits(limits(1))
            .cores(1)
            .events(100);
        let one = Running::of(parts.build().unwrap());
        let two = Server::builder()
            .settings(settings())
            .share("second", vfs::memory(1 << 20))
            .accounts(users("bob"))
            .limits(limits(100))
            .cores(1)
            .build();
        let two = Running::of(two.unwrap());
        assert_eq!(budget::limit(), 128 * MIB, "each adds its part");

        // The accounts are separate: ann exists on the first server only, bob on the second.
        let (mut ann, anns) = one.log_on(1, "ann").await.unwrap();
        let (mut bob, bobs) = two.log_on(2, "bob").await.unwrap();
        assert_eq!(one.log_on(3, "bob").await.err(), Some(Status::LOGON_FAILURE));
        assert_eq!(two.log_on(4, "ann").await.err(), Some(Status::LOGON_FAILURE));
        // The shares are separate, and the same file name on each server is another file.
        let first = ann.mount(&anns, "first").await;
        let second = bob.mount(&bobs, "second").await;
        assert!(ann.try_mount(&anns, "second").await.is_err());
        assert!(bob.try_mount(&bobs, "first").await.is_err());
        ann.open_file(&first, &Want::file("same")).await;
        bob.open_file(&second, &Want::file("same")).await;
        assert_eq!((one.server.metrics().files, two.server.metrics().files), (1, 1));
        // The limits are separate: the first server allows one session for each account, the second
        // one more.
        assert!(one.log_on(5, "ann").await.is_err(), "one session per account");
        assert!(two.log_on(6, "bob").await.is_ok());
        // Only the first server is reloaded, so only it knows the new account.
        one.server.reload(Reload::new().limits(limits(100)).accounts(users("carl")));
        assert!(one.log_on(7, "carl").await.is_ok());
        assert!(two.log_on(8, "carl").await.is_err());
        bob.expect_alive().await;
        // Each server reports only its own events, so the first one's events must not have bob's
        // logon.
        let mut users = Vec::new();
        // Two are awaited, and then no third one comes.
        let patience = |users: &[String]| match users.len() {
            0..2 => Duration::from_secs(20),
            _ => Duration::from_millis(200),
        };
        while let Ok(Some((_, event))) = timeout(patience(&users), events.next()).await {
            if event.kind() == Kind::Logon && event.outcome() == Status::SUCCESS {
                users.extend(event.user().map(str::to_owned));
            }
        }
        assert_eq!(users, ["ann", "carl"]);
        // The first server stops, but the second one still serves its client.
        one.stop().await;
        bob.expect_alive().await;
        bob.open_file(&second, &Want::file("after")).await;
        two.stop().await;
    });
    assert_eq!(budget::limit(), usize::MAX, "the parts went with their servers");
}

fn a_server_serves_once_and_its_shares_can_change() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let parts = Server::builder().settings(settings()).accounts(users("ann")).cores(1);
        let one = Running::of(parts.build().unwrap());
        let (mut ann, anns) = one.log_on(1, "ann").await.unwrap();
        assert!(ann.try_mount(&anns, "late").await.is_err());
        let late = Share::disk("late", vfs::memory(1 << 20));
        one.server.reload(Reload::new().shares([late]));
        ann.mount(&anns, "late").await;
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let again = one.server.serve(listener).await.unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
        one.stop().await;
    });
}
