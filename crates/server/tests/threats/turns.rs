//! R9: one account with many connections, through the whole server. Answers are counted, not
//! milliseconds: the thread counts its work instead of time (`frevo_net::turns::simulate`), so that each
//! run is like the last one.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use frevo_net::transport::Stream;
use frevo_net::{memory, turns, watchdog};
use frevo_server::ambient::Host;
use frevo_server::share::Share;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::vfs::{Existence, KindWanted, OpenHow};
use frevo_store::{Name, Vfs};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::dtyp::{FileTime, Guid};
use frevo_wire::fscc::FileInfoClass;

use crate::client::files::{close_draft, file_id, read_draft};
use crate::client::queries::list_draft;
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;

/// Connections of the account that lists.
const CONNECTIONS: usize = 64;
/// Names of the folder that it lists: some slices of work.
const NAMES: usize = 1_000;
/// Files that the other account opens, reads and closes, one request after the other.
const ROUNDS: usize = 20;

fn full_folder() -> Arc<dyn Vfs> {
    let vfs = MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(1 << 57)));
    let make = OpenHow { existence: Existence::MustNotExist, ..OpenHow::LOOK };
    let folder = OpenHow { kind: KindWanted::Directory, ..make };
    vfs.open(&Name::from_stored("many".into()), &folder).unwrap();
    for number in 0..NAMES {
        vfs.open(&Name::from_stored(format!("many\\file-{number}")), &make).unwrap();
    }
    Arc::new(vfs)
}

/// A client that has logged on. Each poll of its connection is measured, as on a core.
async fn arrive(world: &World, user: &str, number: u8) -> (Peer, Mount) {
    let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let (ours, theirs) = memory::pair(1 << 20, [at(50_000), at(445)]);
    let mut connection = Box::pin(world.embedded.serve_connection(theirs).unwrap());
    world.keep(tokio::task::spawn_local(poll_fn(move |cx| {
        watchdog::measured(|| connection.as_mut().poll(cx)).0
    })));
    let mut peer = Peer::new(Stream::Memory(ours), Guid([number; 16]));
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    let mount = peer.mount(&logon, "data").await;
    (peer, mount)
}

/// Lists again and again. Nothing is found.
async fn list(mut peer: Peer, mount: Mount, folder: FileId, answers: Rc<Cell<usize>>) {
    loop {
        let (class, flags) = (FileInfoClass::DIRECTORY, QueryDirectoryFlags::RESTART_SCANS);
        peer.on(&mount, list_draft(folder, class, flags, "*zzz*")).await;
        answers.set(answers.get() + 1);
    }
}

/// Returns how many answers ann's connections get while each of bob's requests is answered, where turns are
/// given or not.
fn answers_meanwhile(gives_turns: bool) -> Vec<usize> {
    let counted = Rc::new(Cell::new(Vec::new()));
    let share = Share::disk("data", full_folder());
    let server = serving(settings(), [share], Arc::new(Users), Arc::new(Host));
    let world = World::of(server, tempfile::tempdir().unwrap());
    let counts = Rc::clone(&counted);
    turns::simulate(true);
    in_own_world(true, &world, async |world| {
        if gives_turns {
            // This task gives other tasks a turn, as a core does after each poll.
            tokio::task::spawn_local(async {
                let never: std::convert::Infallible = poll_fn(|cx| turns::poll_give(cx)).await;
                match never {}
            });
        }
        let mut attackers = Vec::new();
        for number in 1..=CONNECTIONS {
            let (mut peer, mount) = arrive(world, "ann", number as u8).await;
            let folder = peer.open_file(&mount, &Want::directory("many")).await;
            attackers.push((peer, mount, folder));
        }
        let (mut bob, mount) = arrive(world, "bob", 0xBB).await;
        let file = bob.open_file(&mount, &Want::file("probe")).await;
        bob.write(&mount, file, 0, &[7; 4096]).await;
        let answers = Rc::new(Cell::new(0));
        let listing = attackers.into_iter().map(|(peer, mount, folder)| {
            tokio::task::spawn_local(list(peer, mount, folder, Rc::clone(&answers)))
        });
        let listing: Vec<_> = listing.collect();
        while answers.get() < CONNECTIONS {
            tokio::task::yield_now().await;
        }
        let mut counts_of_bob = Vec::new();
        for _ in 0..ROUNDS {
            answers.set(0);
            let opened = bob.create(&mount, &Want::existing("probe")).await;
            let file = file_id(opened.ok());
            counts_of_bob.push(answers.get());
            for draft in [read_draft(file, 0, 4096), close_draft(file)] {
                answers.set(0);
                bob.on(&mount, draft).await.ok();
                counts_of_bob.push(answers.get());
            }
        }
        listing.iter().for_each(tokio::task::JoinHandle::abort);
        counts.set(counts_of_bob);
    });
    turns::simulate(false);
    counted.take()
}

/// Tests that a request of another account waits for few slices of the attacker, however many connections
/// that has. Listings that began together end together, so that all requests count, not each. Without
/// turns each request waits for all connections.
#[test]
fn r9_one_account_lists_on_many_connections_and_others_wait_for_few_slices() {
    let with: usize = answers_meanwhile(true).iter().sum();
    let without: usize = answers_meanwhile(false).iter().sum();
    let requests = 3 * ROUNDS;
    println!("{requests} requests: {with} answers with turns, {without} without");
    assert!(with <= 4 * requests, "{with} answers while {requests} requests wait");
    assert!(without >= CONNECTIONS / 4 * requests, "{without} answers: the attack is too weak");
}
