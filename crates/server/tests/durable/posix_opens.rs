//! Persistent Opens of the POSIX extensions, which programs on a mount have.

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use crate::persistent::runs;
use files::{lock_draft, write_draft};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::create_context::CreateContext;
use frevo_wire::dtyp::Guid;

const RWH: u32 = 7;
/// FilePosixInformation, which POSIX Opens alone have.
const LEVEL: u8 = 100;

async fn posix_back(world: &World, guid: Guid) -> (Peer, Mount) {
    let mut peer = world.connect();
    peer.guid = guid;
    peer.negotiate(&Offer { posix: true, ..Offer::default() }).await;
    let logon = peer.log_on("ann").await;
    let mount = peer.mount(&logon, "lasting").await;
    (peer, mount)
}

fn asked(want: Want, durability: CreateContext<'static>) -> Want {
    leased(want, 1, RWH, &[durability, CreateContext::Posix { mode: 0o644 }])
}

/// The handle is found again by its exact name, also one that Windows could not write, with its lock.
#[test]
fn a_posix_open_is_kept_over_a_crash() {
    for (name, other) in [("a", "A"), ("folder/b:c?", "folder/b")] {
        runs(async |start, store| {
            let world = start();
            let client = guid(0x31);
            let (mut peer, mount) = posix_back(&world, client).await;
            let posix = [CreateContext::Posix { mode: 0o755 }];
            let folder = peer.open_file(&mount, &with(Want::directory("folder"), &posix)).await;
            peer.close(&mount, folder).await;
            let beside = peer.open_file(&mount, &with(Want::file(other), &posix)).await;
            peer.close(&mount, beside).await;
            let reply = peer.create(&mount, &asked(Want::file(name), dh2q(guid(3), true))).await;
            assert!(durable_v2(reply.ok()).is_some_and(|(_, is_persistent)| is_persistent));
            let file = files::file_id(&reply);
            peer.write(&mount, file, 0, b"acknowledged").await;
            peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
            assert_eq!(store.records().len(), 1);
            world.crash();

            let world = start();
            assert_eq!(world.server.durables.counts(), (1, 1), "{name}");
            let (mut peer, mount) = posix_back(&world, client).await;
            let want = asked(Want::existing(name), dh2c(file, guid(3), true));
            let again = peer.open_file(&mount, &want).await;
            assert_eq!(peer.read(&mount, again, 0, 64).await, b"acknowledged");
            let lock = lock_draft(again, &[(0, 4, EXCLUSIVE)]);
            peer.on(&mount, lock).await.expect(Status::LOCK_NOT_GRANTED);
            peer.on(&mount, write_draft(again, 0, b"!")).await.ok();
            peer.on(&mount, query_info_draft(again, InfoType::FILE, LEVEL, 0)).await.ok();
            peer.close(&mount, again).await;
            assert!(store.records().is_empty());
            world.crash();
        });
    }
}
