//! Resilient Opens: MS-SMB2 3.3.5.15.9, 3.3.6.4, 3.3.7.1, 3.3.5.9.7.

use std::time::Duration;

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use files::{lock_draft, write_draft};
use frevo_wire::command::create::{self, CreateOptions, ShareAccess};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::dtyp::AccessMask;

const ALONE: ShareAccess = ShareAccess::EMPTY;

/// The handle, its lock and its share mode are there after the connection was
/// lost, and nobody but its owner gets it.
#[test]
fn a_resilient_open_waits_for_its_client() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let guid = peer.guid;
        let file = peer.open_file(&mount, &Want::file("f").sharing(ALONE)).await;
        peer.write(&mount, file, 0, b"before").await;
        peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
        assert_eq!(make_resilient(&mut peer, &mount, file, 60_000).await, Status::SUCCESS);
        // The Open is still in use by its session, so neither another user nor the same user can
        // take it over.
        let (mut thief, theirs) = world.session("bob", &Offer::default()).await;
        let steal = with(Want::existing("f"), &[dhnc(file)]);
        let (mut twin, own) = back(world, guid, "ann", "data").await;
        thief.create(&theirs, &steal).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        twin.create(&own, &steal).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        drop(peer);
        lost(world, 1).await;
        thief.create(&theirs, &steal).await.expect(Status::ACCESS_DENIED);
        thief.create(&theirs, &Want::existing("f")).await.expect(Status::SHARING_VIOLATION);
        let unknown = FileId { persistent: file.persistent ^ 1, ..file };
        let want = with(Want::existing("f"), &[dhnc(unknown)]);
        twin.create(&own, &want).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        // Only the persistent half of the FileId identifies the Open, so the reconnect succeeds
        // with another volatile half.
        let named = FileId { volatile: 0, ..file };
        let reply = twin.create(&own, &with(Want::existing("f"), &[dhnc(named)])).await;
        reply.ok();
        let again = files::file_id(&reply);
        assert_eq!(again.persistent, file.persistent);
        assert_eq!(world.server.durables.counts(), (1, 0));
        twin.write(&own, again, 0, b"after!").await;
        let second = lock_draft(again, &[(0, 4, EXCLUSIVE)]);
        twin.on(&own, second).await.expect(Status::LOCK_NOT_GRANTED);
        assert_eq!(world.content("f"), b"after!");
        twin.create(&own, &steal).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        twin.close(&own, again).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

/// MS-SMB2 3.3.6.4: its time over, it is closed, and what goes with that happens.
#[test]
fn the_scavenger_closes_what_nobody_takes_up() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let guid = peer.guid;
        let options = CreateOptions::DELETE_ON_CLOSE;
        let doomed = peer.open_file(&mount, &Want::file("doomed").options(options)).await;
        let later = peer.open_file(&mount, &Want::file("later").sharing(ALONE)).await;
        make_resilient(&mut peer, &mount, later, 20_000).await;
        make_resilient(&mut peer, &mount, doomed, 10_000).await;
        drop(peer);
        lost(world, 2).await;
        tokio::time::sleep(Duration::from_millis(9_900)).await;
        assert!(world.path("doomed").exists());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!world.path("doomed").exists(), "delete on close is kept");
        assert_eq!(world.server.durables.counts(), (1, 1));
        let (mut peer, mount) = back(world, guid, "ann", "data").await;
        let gone = with(Want::existing("doomed"), &[dhnc(doomed)]);
        peer.create(&mount, &gone).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        peer.create(&mount, &with(Want::existing("later"), &[dhnc(later)])).await.ok();
        // The Open was reconnected in time, so the scavenger, which closes forgotten Opens, must
        // not close it when the old timeout ends.
        tokio::time::sleep(Duration::from_secs(25)).await;
        peer.write(&mount, later, 0, b"x").await;
        // The client disconnects again, so the full timeout of 20 seconds begins again.
        drop(peer);
        lost(world, 1).await;
        tokio::time::sleep(Duration::from_secs(19)).await;
        assert_eq!(world.server.durables.counts(), (1, 1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

/// A reconnect in the moment of the time-out: of the two one has the Open, and
/// its lock is released exactly when that was the scavenger.
#[test]
fn l5_a_reconnect_and_the_scavenger_never_both_have_it() {
    for late in [-2_i64, -1, 0, 1, 2] {
        in_frozen_world(settings(), async |world| {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let guid = peer.guid;
            let file = peer.open_file(&mount, &Want::file("f")).await;
            peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
            make_resilient(&mut peer, &mount, file, 5_000).await;
            let (mut twin, own) = back(world, guid, "ann", "data").await;
            drop(peer);
            lost(world, 1).await;
            let wait = u64::try_from(5_000 + late).unwrap();
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let reply = twin.create(&own, &with(Want::existing("f"), &[dhnc(file)])).await;
            let (opens, waiting) = world.server.durables.counts();
            assert_eq!(waiting, 0);
            let other = twin.open_file(&own, &Want::existing("f")).await;
            let lock = twin.on(&own, lock_draft(other, &[(0, 4, EXCLUSIVE)])).await;
            match reply.status() {
                Status::SUCCESS => {
                    assert_eq!(opens, 1);
                    lock.expect(Status::LOCK_NOT_GRANTED);
                    twin.close(&own, file).await;
                }
                status => {
                    assert_eq!(status, Status::OBJECT_NAME_NOT_FOUND);
                    assert_eq!(opens, 0);
                    lock.ok();
                }
            }
        });
    }
}

/// A time in which nobody could be back is lengthened to one in which some can.
#[test]
fn a_short_time_is_a_second() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let guid = peer.guid;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        assert_eq!(make_resilient(&mut peer, &mount, file, 5).await, Status::SUCCESS);
        let (mut twin, own) = back(world, guid, "ann", "data").await;
        drop(peer);
        lost(world, 1).await;
        tokio::time::sleep(Duration::from_millis(950)).await;
        twin.create(&own, &with(Want::existing("f"), &[dhnc(file)])).await.ok();
        drop(twin);
        lost(world, 1).await;
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

#[test]
fn what_may_be_asked_for() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let long = make_resilient(&mut peer, &mount, file, 301_000).await;
        assert_eq!(long, Status::INVALID_PARAMETER);
        let seconds = make_resilient(&mut peer, &mount, file, 300_999).await;
        assert_eq!(seconds, Status::SUCCESS, "whole seconds are compared");
        for allowed in [299_000, 300_000] {
            assert_eq!(make_resilient(&mut peer, &mount, file, allowed).await, Status::SUCCESS);
        }
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        let refused = make_resilient(&mut peer, &mount, folder, 1_000).await;
        assert_eq!(refused, Status::INVALID_PARAMETER);
        peer.close(&mount, file).await;
        let (mut old, theirs) = world.session("ann", &Offer::only(Dialect::SMB_2_0_2)).await;
        let file = old.open_file(&theirs, &Want::existing("f")).await;
        let refused = make_resilient(&mut old, &theirs, file, 1_000).await;
        assert_eq!(refused, Status::INVALID_DEVICE_REQUEST);
    });
}

/// MS-SMB2 3.3.5.6 and 3.3.5.8: a logoff leaves it waiting, the end of its tree
/// connect closes it. 3.3.5.5.3: neither does a session that takes over.
#[test]
fn what_ends_a_session_and_what_ends_a_tree() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let guid = peer.guid;
        let file = peer.open_file(&mount, &Want::file("f").sharing(ALONE)).await;
        make_resilient(&mut peer, &mount, file, 60_000).await;
        let logoff = Draft::empty(Command::LOGOFF);
        peer.on(&mount, logoff).await.ok();
        assert_eq!(world.server.durables.counts(), (1, 1));
        let (mut peer, mount) = back(world, guid, "ann", "data").await;
        peer.create(&mount, &with(Want::existing("f"), &[dhnc(file)])).await.ok();
        let mut next = world.connect();
        next.guid = guid;
        next.negotiate(&Offer::default()).await;
        let setup = Setup { previous: mount.logon.id, ..Setup::of("ann") };
        let logon = next.try_log_on(setup).await.expect("logs on");
        assert_eq!(world.server.durables.counts(), (1, 1));
        let mount = next.mount(&logon, "data").await;
        next.create(&mount, &with(Want::existing("f"), &[dhnc(file)])).await.ok();
        let end = Draft::empty(Command::TREE_DISCONNECT);
        next.on(&mount, end).await.ok();
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

/// After a reconnect the new ChannelSequence counts; what the old one left
/// running is waited for by a replay alone.
#[test]
fn the_channel_sequence_goes_on_from_the_reconnect() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let guid = peer.guid;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        make_resilient(&mut peer, &mount, file, 60_000).await;
        let at = |sequence: u16, draft: Draft| {
            let mut draft = draft;
            draft.header.status = Status(u32::from(sequence));
            draft
        };
        peer.on(&mount, at(7, write_draft(file, 0, b"7"))).await.ok();
        let stale = at(6, write_draft(file, 0, b"6"));
        peer.on(&mount, stale).await.expect(Status::FILE_NOT_AVAILABLE);
        drop(peer);
        lost(world, 1).await;
        let (mut peer, mount) = back(world, guid, "ann", "data").await;
        let reconnect = at(2, with(Want::existing("f"), &[dhnc(file)]).draft());
        peer.on(&mount, reconnect).await.ok();
        let stale = at(1, write_draft(file, 0, b"1"));
        peer.on(&mount, stale).await.expect(Status::FILE_NOT_AVAILABLE);
        peer.on(&mount, at(2, write_draft(file, 0, b"2"))).await.ok();
        let replay = at(2, write_draft(file, 0, b"3")).flags(HeaderFlags::REPLAY_OPERATION);
        peer.on(&mount, replay).await.ok();
        peer.close(&mount, file).await;
        assert_eq!(world.content("f"), b"3");
    });
}

/// S3: a server that starts later never gives a FileId that an earlier one gave.
#[test]
fn s3_file_ids_never_come_twice() {
    use std::collections::HashSet;
    let mut seen = HashSet::new();
    let mut last = 0;
    for _ in 0..3 {
        let world = World::new(settings());
        for _ in 0..10_000 {
            let id = world.server.new_file_id();
            assert!(id.volatile > last, "the volatile half only grows");
            last = id.volatile;
            assert!(seen.insert(id.persistent), "the persistent half does not repeat");
            assert!(id.persistent != 0 && id.persistent != u64::MAX);
        }
        // Each server must start at a later time. Real restarts take long enough, but this loop
        // does not, so it pauses.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The contexts of a reconnect are answered from the file as it is.
#[test]
fn a_reconnect_answers_with_the_file_as_it_is() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let guid = peer.guid;
        let want = Want::file("f").access(AccessMask::READ_DATA | AccessMask::WRITE_DATA);
        let file = peer.open_file(&mount, &want).await;
        make_resilient(&mut peer, &mount, file, 60_000).await;
        drop(peer);
        lost(world, 1).await;
        world.file("f", b"12345");
        let (mut peer, mount) = back(world, guid, "ann", "data").await;
        let reply = peer.create(&mount, &with(Want::existing("f"), &[dhnc(file)])).await;
        let response = create::Response::parse(&reply.message).unwrap();
        assert_eq!(response.end_of_file, 5);
        assert_eq!(response.create_action, create::CreateAction::OPENED);
        assert!(response.contexts.is_empty());
        // A reconnect cannot gain rights, so the Open still has no right to delete.
        let forbidden = peer.on(&mount, files::delete_draft(file)).await;
        forbidden.expect(Status::ACCESS_DENIED);
        peer.close(&mount, file).await;
    });
}

/// MS-SMB2 3.3.5.14: where an Open outlives its connection a lock that comes
/// again is not taken twice, without channels (2.1) too.
#[test]
fn a_lock_that_comes_again_is_carried_out_once() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::only(Dialect::SMB_2_1)).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let numbered = |number: u8| {
            // Byte 68 has the LockSequenceIndex (1) in its upper half and the LockSequenceNumber in
            // its lower half.
            lock_draft(file, &[(0, 4, EXCLUSIVE)]).patch(68, &[0x10 | number])
        };
        peer.on(&mount, numbered(1)).await.ok();
        peer.on(&mount, numbered(1)).await.expect(Status::LOCK_NOT_GRANTED);
        let unlock = LockFlags::UNLOCK;
        peer.on(&mount, lock_draft(file, &[(0, 4, unlock)])).await.ok();
        assert_eq!(make_resilient(&mut peer, &mount, file, 60_000).await, Status::SUCCESS);
        peer.on(&mount, numbered(2)).await.ok();
        peer.on(&mount, numbered(2)).await.ok();
        peer.on(&mount, numbered(3)).await.expect(Status::LOCK_NOT_GRANTED);
        peer.close(&mount, file).await;
    });
}
