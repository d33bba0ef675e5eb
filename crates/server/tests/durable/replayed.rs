//! S2: requests of a channel that has been lost, and requests that come again.
//! MS-SMB2 3.3.5.2.10, 3.3.5.9.10, 3.3.5.14.

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use crate::persistent::slow;
use files::{close_draft, flush_draft, lock_draft, read_draft, set_draft, write_draft};
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::fscc::FileInfoClass;

/// A request of the channel that has this number.
fn at(sequence: u16, mut draft: Draft) -> Draft {
    draft.header.status = Status(u32::from(sequence));
    draft
}

fn control(file: FileId) -> Draft {
    let range = [0_i64.to_le_bytes(), 1_i64.to_le_bytes()].concat();
    let code = CtlCode::SET_ZERO_DATA;
    Draft::new(Command::IOCTL).with(|w| ioctl::Request::fsctl(code, file, &range, 0).encode(w))
}

/// A stale request that would change something is refused, and has changed nothing; one that
/// only reads is answered.
#[test]
fn s2_stale_requests_change_nothing() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let end = |bytes: u64| set_draft(FileInfoClass::END_OF_FILE, file, &bytes.to_le_bytes());
        peer.on(&mount, at(5, write_draft(file, 0, b"fresh"))).await.ok();
        for sequence in [4, 0, 5_u16.wrapping_sub(0x7FFF)] {
            for draft in [write_draft(file, 0, b"stale"), end(1), control(file)] {
                for flags in [HeaderFlags::EMPTY, HeaderFlags::REPLAY_OPERATION] {
                    let draft = at(sequence, draft.clone().flags(flags));
                    let what = draft.header.command;
                    let reply = peer.on(&mount, draft).await;
                    assert_eq!(reply.status(), Status::FILE_NOT_AVAILABLE, "{what} {sequence}");
                }
            }
            assert_eq!(world.content("f"), b"fresh");
            for draft in [
                read_draft(file, 0, 5),
                query_draft(FileInfoClass::STANDARD, file),
                flush_draft(file),
            ] {
                peer.on(&mount, at(sequence, draft)).await.ok();
            }
            let lock = lock_draft(file, &[(0, 1, EXCLUSIVE)]);
            peer.on(&mount, at(sequence, lock)).await.ok();
            let unlock = LockFlags::UNLOCK;
            peer.on(&mount, at(sequence, lock_draft(file, &[(0, 1, unlock)]))).await.ok();
        }
        // The later write must stay. When the channel sequence has wrapped around, requests with
        // the old sequence (1) are refused.
        for sequence in [6, 0x7000, 0xE000, 2] {
            peer.on(&mount, at(sequence, write_draft(file, 0, b"later"))).await.ok();
        }
        peer.on(&mount, at(1, end(1))).await.expect(Status::FILE_NOT_AVAILABLE);
        peer.on(&mount, at(1, close_draft(file))).await.ok();
        assert_eq!(world.content("f"), b"later");
    });
}

/// A CREATE that comes again, over whichever channel and however often, is the one
/// Open; nothing is made twice.
#[test]
fn s2_a_create_that_comes_again_is_one_open() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut channel = world.connect();
        channel.guid = peer.guid;
        channel.negotiate(&Offer::default()).await;
        let bound = channel.try_log_on(Setup::binding("ann", &mount.logon)).await.unwrap();
        let there = mount.on(&bound);
        let want = Want::file("f").disposition(CreateDisposition::CREATE);
        let want = with(want.sharing(Default::default()), &[dh2q(guid(7), false)]);
        let replay = || want.draft().flags(HeaderFlags::REPLAY_OPERATION);
        let first = peer.create(&mount, &want).await;
        let file = files::file_id(first.ok());
        for _ in 0..5 {
            for (peer, mount) in [(&mut peer, &mount), (&mut channel, &there)] {
                let reply = peer.on(mount, replay()).await;
                assert_eq!(files::file_id(reply.ok()), file);
            }
        }
        let session = world.server.session(mount.logon.id).unwrap();
        assert_eq!(session.open_count(), 1);
        assert_eq!(world.server.durables.counts().0, 1);
        channel.close(&there, file).await;
        assert_eq!(session.open_count(), 0);
    });
}

/// A LOCK that waits comes again on another channel, before the server knows that the first one is
/// lost: it does not wait for its own lock.
#[test]
fn s2_a_waiting_lock_that_comes_again_is_granted_with_the_first() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut channel = world.connect();
        channel.guid = peer.guid;
        channel.negotiate(&Offer::default()).await;
        let bound = channel.try_log_on(Setup::binding("ann", &mount.logon)).await.unwrap();
        let there = mount.on(&bound);
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
        let other = bob.open_file(&theirs, &Want::file("f")).await;
        bob.on(&theirs, lock_draft(other, &[(0, 4, EXCLUSIVE)])).await.ok();
        let waits = LockFlags::EXCLUSIVE_LOCK;
        let lock = || lock_draft(file, &[(0, 4, waits)]).patch(68, &[0x11]);
        let first = peer.send(vec![mount.put(lock())], mount.via()).await[0];
        peer.interim().await;
        let again = there.put(lock().flags(HeaderFlags::REPLAY_OPERATION));
        let second = channel.send(vec![again], there.via()).await[0];
        channel.interim().await;
        let free = LockFlags::UNLOCK;
        bob.on(&theirs, lock_draft(other, &[(0, 4, free)])).await.ok();
        peer.final_reply(first).await.ok();
        channel.final_reply(second).await.ok();
        // The LOCK and its repetition made a single lock, so one UNLOCK frees the range for bob.
        channel.on(&there, lock_draft(file, &[(0, 4, free)])).await.ok();
        bob.on(&theirs, lock_draft(other, &[(0, 4, EXCLUSIVE)])).await.ok();
    });
}

/// A LOCK that comes again with its number is carried out once, unlocks too.
#[test]
fn s2_a_lock_that_comes_again_is_carried_out_once() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        assert_eq!(make_resilient(&mut peer, &mount, file, 60_000).await, Status::SUCCESS);
        let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
        let other = bob.open_file(&theirs, &Want::file("f")).await;
        // Byte 68 has the LockSequenceIndex (1) in its upper half and the LockSequenceNumber in its
        // lower half.
        let numbered = |draft: Draft, number: u8| draft.patch(68, &[0x10 | number]);
        let lock = || lock_draft(file, &[(0, 4, EXCLUSIVE)]);
        let unlock = || lock_draft(file, &[(0, 4, LockFlags::UNLOCK)]);
        let taken = lock_draft(other, &[(0, 4, EXCLUSIVE)]);
        for round in 0..3_u8 {
            for _ in 0..3 {
                peer.on(&mount, numbered(lock(), round * 2 + 1)).await.ok();
                let refused = bob.on(&theirs, taken.clone()).await;
                refused.expect(Status::LOCK_NOT_GRANTED);
            }
            for _ in 0..3 {
                peer.on(&mount, numbered(unlock(), round * 2 + 2)).await.ok();
            }
            // Bob has locked the range after the UNLOCK. The repeated UNLOCK must not free bob's
            // lock.
            bob.on(&theirs, taken.clone()).await.ok();
            peer.on(&mount, numbered(unlock(), round * 2 + 2)).await.ok();
            peer.on(&mount, lock()).await.expect(Status::LOCK_NOT_GRANTED);
            let free = lock_draft(other, &[(0, 4, LockFlags::UNLOCK)]);
            bob.on(&theirs, free).await.ok();
        }
    });
}

/// A LOCK that arrives after its repetition, by a channel that its client has given up, is not
/// carried out: its client would never unlock what it takes, and has locked anew what it releases.
#[test]
fn s2_a_lock_that_comes_late_is_refused() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let numbered = |sequence, flags, number: u8| {
            at(sequence, lock_draft(file, &[(0, 4, flags)]).patch(68, &[0x10 | number]))
        };
        let (lock, unlock) = (EXCLUSIVE, LockFlags::UNLOCK);
        // The client repeats its LOCK on another channel, and the repetition arrives before the
        // original.
        peer.on(&mount, numbered(1, lock, 1)).await.ok();
        // The original of the LOCK that was replayed arrives late. It succeeds like its replay, but
        // takes no second lock, as the next requests show.
        peer.on(&mount, numbered(0, lock, 1)).await.ok();
        peer.on(&mount, numbered(1, unlock, 2)).await.ok();
        peer.on(&mount, numbered(0, lock, 1)).await.expect(Status::FILE_NOT_AVAILABLE);
        peer.on(&mount, numbered(1, lock, 3)).await.ok();
        for (flags, number) in [(lock, 1), (unlock, 2)] {
            let late = peer.on(&mount, numbered(0, flags, number)).await;
            late.expect(Status::FILE_NOT_AVAILABLE);
        }
        let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
        let other = bob.open_file(&theirs, &Want::file("f")).await;
        let taken = lock_draft(other, &[(0, 4, EXCLUSIVE)]);
        bob.on(&theirs, taken.clone()).await.expect(Status::LOCK_NOT_GRANTED);
        // This UNLOCK was not repeated, only overtaken by other requests on a channel that still
        // exists, so it is carried out.
        peer.on(&mount, numbered(0, unlock, 4)).await.ok();
        bob.on(&theirs, taken).await.ok();
        // This repetition of a LOCK is refused. The original, which arrives later, must not be
        // granted although the range is free then.
        peer.on(&mount, numbered(2, lock, 5)).await.expect(Status::LOCK_NOT_GRANTED);
        bob.on(&theirs, lock_draft(other, &[(0, 4, unlock)])).await.ok();
        peer.on(&mount, numbered(1, lock, 5)).await.expect(Status::FILE_NOT_AVAILABLE);
    });
}

/// The first LOCK ends with its channel before it is on record; its repetition was answered, or is
/// answered later. Either way the client has the lock.
#[test]
fn s2_a_lock_stays_once_its_repetition_is_answered() {
    in_world(async |world| {
        let (store, (mut peer, mount), file) = slow(world).await;
        let mut channel = world.connect();
        channel.guid = peer.guid;
        channel.negotiate(&Offer::default()).await;
        let bound = channel.try_log_on(Setup::binding("ann", &mount.logon)).await.unwrap();
        let there = mount.on(&bound);
        let draft =
            |flags, number: u8| lock_draft(file, &[(0, 4, flags)]).patch(68, &[0x10 | number]);
        for (round, is_answered_first) in [(1, true), (3, false), (5, true)] {
            store.becomes_slow();
            let first = peer.send(vec![mount.put(draft(EXCLUSIVE, round))], mount.via()).await[0];
            let Route::Async { async_id } = peer.interim().await.header.route else { panic!() };
            let again = draft(EXCLUSIVE, round).flags(HeaderFlags::REPLAY_OPERATION);
            let second = channel.send(vec![there.put(again)], there.via()).await[0];
            channel.interim().await;
            if is_answered_first {
                store.ends_last();
                channel.final_reply(second).await.ok();
            }
            let cancel = Peer::cancel(first, Some(async_id), mount.logon.id);
            peer.send_frame(&draft::pack(&[cancel], mount.via())).await;
            peer.final_reply(first).await.expect(Status::CANCELLED);
            store.is_done();
            if !is_answered_first {
                channel.final_reply(second).await.ok();
            }
            channel.on(&there, draft(LockFlags::UNLOCK, round + 1)).await.ok();
        }
        channel.close(&there, file).await;
    });
}
