//! R4: opens may not use up the descriptors of the process. A binary of its own: the
//! numbers of descriptors are the process's.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::SocketAddr;
use std::time::Duration;

use client::*;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_server::internal::ledger::Kind;
use frevo_server::internal::limits::DESCRIPTORS_KEPT_MIN;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::dtyp::Guid;
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
        let mut refused = 0;
        while refused < 3 {
            let folder = ann.open_file(&anns, &Want::existing("folder")).await;
            let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
            let list = list_draft(folder, FileInfoClass::NAMES, single, "entry*");
            let reply = ann.on(&anns, list).await;
            if reply.status() != Status::SUCCESS {
                reply.expect(Status::INSUFFICIENT_RESOURCES);
                refused += 1;
            }
        }
        let listings = world.server.ledger.account("ann").count(Kind::Open) - refused;
        assert!((FOR_OPENS / 4..FOR_OPENS * 3 / 8).contains(&listings), "{listings}");
        let (mut newcomer, theirs) = arrive(address, 24, "bob").await;
        newcomer.open_file(&theirs, &Want::file("y")).await;
        world.embedded.stop_within(Duration::from_secs(1));
        serving.await.unwrap().unwrap();
    });
}
