//! R4: opens may not use up the descriptors of the process. A binary of its own: the
//! numbers of descriptors are the process's.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use client::*;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_server::internal::limits::DESCRIPTORS_KEPT_MIN;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use tokio::task::LocalSet;

async fn arrive(address: SocketAddr, number: u8, user: &str) -> (Peer, Mount) {
    let stream = Stream::connect(address).await.unwrap();
    let mut peer = Peer::new(stream, Guid([number; 16]));
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    let mount = peer.mount(&logon, "data").await;
    (peer, mount)
}

/// The numbers of descriptors are the process's: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Opens of one kind, until one is refused: their number.
async fn open_as_many(peer: &mut Peer, mount: &Mount, wanted: impl Fn(usize) -> Want) -> usize {
    for count in 0..1_000 {
        let reply = peer.create(mount, &wanted(count)).await;
        if reply.status() != Status::SUCCESS {
            reply.expect(Status::TOO_MANY_OPENED_FILES);
            return count;
        }
    }
    panic!("nothing is kept back");
}

/// Opens files until one is refused.
async fn open_all(peer: &mut Peer, mount: &Mount, of: &str) -> Vec<FileId> {
    let mut files = Vec::new();
    loop {
        let reply = peer.create(mount, &Want::file(&format!("{of}{}", files.len()))).await;
        if reply.status() != Status::SUCCESS {
            reply.expect(Status::TOO_MANY_OPENED_FILES);
            return files;
        }
        files.push(files::file_id(&reply));
        assert!(files.len() < 1_000, "nothing is kept back");
    }
}

#[test]
fn r4_opens_leave_descriptors_for_newcomers() {
    const FOR_OPENS: usize = 400;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let world = World::new(settings());
        world.server.descriptors.set_limit(FOR_OPENS + DESCRIPTORS_KEPT_MIN);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = world.listen(listener);

        // One account (ann) may use at most three quarters of the descriptors.
        let (mut ann, anns) = arrive(address, 1, "ann").await;
        let files = open_all(&mut ann, &anns, "ann").await;
        assert!(files.len() > FOR_OPENS / 2 && files.len() <= FOR_OPENS * 3 / 4, "{}", files.len());
        assert!(!world.path(&format!("ann{}", files.len())).exists(), "made and not opened");
        // Ann's account cannot open more files, but another account can use the last quarter.
        let (mut bob, bobs) = arrive(address, 2, "bob").await;
        let theirs = open_all(&mut bob, &bobs, "bob").await;
        assert!(theirs.len() > FOR_OPENS / 8, "{}", theirs.len());
        // All descriptors for Opens are in use. A new client can still log on, but cannot open a
        // file.
        let mut newcomers = Vec::new();
        for number in 3..23 {
            let (mut peer, mount) = arrive(address, number, "bob").await;
            peer.expect_alive().await;
            peer.create(&mount, &Want::file("x")).await.expect(Status::TOO_MANY_OPENED_FILES);
            newcomers.push(peer);
        }
        drop(newcomers);
        for file in files {
            ann.close(&anns, file).await;
        }
        let again = bob.open_file(&bobs, &Want::file("x")).await;
        bob.close(&bobs, again).await;
        for file in theirs {
            bob.close(&bobs, file).await;
        }
        // An Open of a directory uses one more descriptor as soon as its listing begins.
        std::fs::create_dir(world.path("folder")).unwrap();
        (0..9).for_each(|n| std::fs::write(world.path(&format!("folder/entry{n}")), "").unwrap());
        let mut listings = 0;
        loop {
            let reply = ann.create(&anns, &Want::existing("folder")).await;
            if reply.status() != Status::SUCCESS {
                reply.expect(Status::TOO_MANY_OPENED_FILES);
                break;
            }
            let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
            let folder = files::file_id(&reply);
            let reply =
                ann.on(&anns, list_draft(folder, FileInfoClass::NAMES, single, "entry*")).await;
            if reply.status() != Status::SUCCESS {
                reply.expect(Status::INSUFFICIENT_RESOURCES);
                break;
            }
            listings += 1;
        }
        assert!((FOR_OPENS / 4..FOR_OPENS * 3 / 8).contains(&listings), "{listings}");
        let (mut newcomer, theirs) = arrive(address, 24, "bob").await;
        newcomer.open_file(&theirs, &Want::file("y")).await;
        world.embedded.stop_within(Duration::from_secs(1));
        serving.await.unwrap().unwrap();
    });
}

/// The wish for the n-th object of a kind.
type Wanted = fn(usize) -> Want;

/// An account's handles of folders and of attributes alone took all descriptors: no further client
/// was answered. Every kind of object counts.
#[test]
fn r4_every_object_with_a_descriptor_counts() {
    const FOR_OPENS: usize = 400;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let kinds: [(&str, Wanted); 5] = [
        ("folders", |_| Want::existing("folder")),
        ("folders that are made", |count| Want::directory(&format!("made{count}"))),
        ("attributes", |_| Want::existing("file").access(AccessMask::READ_ATTRIBUTES)),
        ("data", |_| Want::existing("file").access(AccessMask::READ_DATA)),
        ("streams", |count| Want::file(&format!("file:stream{}", count % 9))),
    ];
    for (kind, wanted) in kinds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let world = World::new(settings());
            std::fs::create_dir(world.path("folder")).unwrap();
            std::fs::write(world.path("file"), "").unwrap();
            world.server.descriptors.set_limit(FOR_OPENS + DESCRIPTORS_KEPT_MIN);
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let serving = world.listen(listener);
            let (mut ann, anns) = arrive(address, 1, "ann").await;
            let count = open_as_many(&mut ann, &anns, wanted).await;
            assert!((FOR_OPENS / 4..=FOR_OPENS * 3 / 4).contains(&count), "{kind}: {count}");
            // Ann's account is at its limit, but another account can still open as many of these
            // objects, and another client can connect.
            let (mut bob, bobs) = arrive(address, 2, "bob").await;
            let count = open_as_many(&mut bob, &bobs, wanted).await;
            assert!(count >= FOR_OPENS / 16, "{kind}: {count}");
            let (mut newcomer, _) = arrive(address, 3, "bob").await;
            newcomer.expect_alive().await;
            world.embedded.stop_within(Duration::from_secs(1));
            serving.await.unwrap().unwrap();
        });
    }
}

/// One account's connections left no descriptor to the opens of others.
#[test]
fn r4_connections_of_one_account_leave_opens_to_others() {
    const FOR_OPENS: usize = 400;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let world = World::new(settings());
        world.server.descriptors.set_limit(FOR_OPENS + DESCRIPTORS_KEPT_MIN);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = world.listen(listener);
        let mut anns = Vec::new();
        let refused = loop {
            let stream = Stream::connect(address).await.unwrap();
            let mut peer = Peer::new(stream, Guid([1; 16]));
            peer.negotiate(&Offer::default()).await;
            match peer.try_log_on(Setup::of("ann")).await {
                Ok(_) => anns.push(peer),
                Err(reply) => break reply,
            }
            assert!(anns.len() < FOR_OPENS, "nothing is kept back");
        };
        refused.expect(Status::REQUEST_NOT_ACCEPTED);
        // Client and server share this process, so each connection takes two descriptors of its
        // limit.
        assert!(anns.len() > FOR_OPENS / 4 && anns.len() <= FOR_OPENS * 3 / 8, "{}", anns.len());
        let (mut bob, bobs) = arrive(address, 2, "bob").await;
        for count in 0..20 {
            bob.open_file(&bobs, &Want::file(&format!("bob{count}"))).await;
        }
        world.embedded.stop_within(Duration::from_secs(1));
        serving.await.unwrap().unwrap();
    });
}
