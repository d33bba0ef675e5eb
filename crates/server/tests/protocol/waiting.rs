//! Requests that wait: MS-SMB2 3.3.4.2, 3.3.5.14, 3.3.5.16.

use std::time::Duration;

use crate::client::draft::pack;
use crate::client::files::{PREVIOUS, close_draft, file_id, lock_draft, read_draft};
use crate::client::peer::async_id;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use frevo_server::internal::limits::{LOCKS_PER_SESSION, WAITING_PER_CONNECTION};
use frevo_store::limits::LOCKS_PER_OPEN;
use frevo_wire::command::lock::LockFlags;

const WAITS: LockFlags = LockFlags::EXCLUSIVE_LOCK;
const SHARED: LockFlags = LockFlags(LockFlags::SHARED_LOCK.0 | LockFlags::FAIL_IMMEDIATELY.0);

/// A client that holds byte 0 of `f`, and another handle that wants it.
struct Contest {
    peer: Peer,
    mount: Mount,
    holder: FileId,
    waiter: FileId,
}

impl Contest {
    async fn new(world: &World) -> Self {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let holder = peer.open_file(&mount, &Want::file("f")).await;
        let waiter = peer.open_file(&mount, &Want::file("f")).await;
        peer.on(&mount, lock_draft(holder, &[(0, 1, EXCLUSIVE)])).await.ok();
        Self { peer, mount, holder, waiter }
    }

    /// Asks for byte 0 and gets told to wait: MessageId and AsyncId.
    async fn wait(&mut self) -> (u64, u64) {
        let lock = self.mount.put(lock_draft(self.waiter, &[(0, 1, WAITS)]));
        let id = self.peer.send(vec![lock], self.mount.via()).await[0];
        let interim = self.peer.interim().await;
        assert_eq!(interim.header.message_id, id);
        assert_ne!(async_id(&interim), 0);
        (id, async_id(&interim))
    }

    async fn cancel(&mut self, id: u64, async_id: Option<u64>) {
        let cancel = Peer::cancel(id, async_id, self.mount.logon.id);
        self.peer.send_frame(&pack(&[cancel], self.mount.via())).await;
    }
}

#[test]
fn a_lock_is_granted_when_the_other_goes() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        let (id, async_id) = c.wait().await;
        c.peer.expect_silence(Duration::from_millis(30)).await;
        let unlock = c.mount.put(lock_draft(c.holder, &[(0, 1, LockFlags::UNLOCK)]));
        let unlocked = c.peer.send(vec![unlock], c.mount.via()).await[0];
        let replies = c.peer.collect(&[id, unlocked]).await;
        replies.iter().for_each(|reply| _ = reply.ok());
        assert_eq!(peer::async_id(&replies[0]), async_id);
        assert!(replies[0].is_signed());
        // The waiting LOCK was granted after the UNLOCK, so the former holder cannot lock the
        // range.
        c.peer
            .on(&c.mount, lock_draft(c.holder, &[(0, 1, EXCLUSIVE)]))
            .await
            .expect(Status::LOCK_NOT_GRANTED);
    });
}

#[test]
fn a_lock_is_granted_when_the_other_closes_or_goes_away() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        let (id, _) = c.wait().await;
        let close = c.mount.put(close_draft(c.holder));
        let closed = c.peer.send(vec![close], c.mount.via()).await[0];
        let replies = c.peer.collect(&[id, closed]).await;
        replies.iter().for_each(|reply| _ = reply.ok());
        // The client that holds the lock is cut off, so the waiting client gets it.
        let (mut other, mount) = world.session("bob", &Offer::default()).await;
        let file = other.open_file(&mount, &Want::existing("f")).await;
        let lock = mount.put(lock_draft(file, &[(0, 1, WAITS)]));
        let id = other.send(vec![lock], mount.via()).await[0];
        other.interim().await;
        drop(c);
        other.final_reply(id).await.ok();
    });
}

/// LOCKS_PER_SESSION bounds what a session's Opens have locked together, and what
/// is unlocked or closed counts no more.
#[test]
fn the_locks_of_a_session_are_bounded() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // 32 requests fill an Open with locks, so that each request has an ordinary size.
        let many = vec![(0, 1, SHARED); LOCKS_PER_OPEN / 32];
        let mut files = Vec::new();
        for number in 0..LOCKS_PER_SESSION / LOCKS_PER_OPEN {
            let file = peer.open_file(&mount, &Want::file(&number.to_string())).await;
            for _ in 0..32 {
                peer.on(&mount, lock_draft(file, &many)).await.ok();
            }
            files.push(file);
        }
        let one_more = peer.open_file(&mount, &Want::file("one more")).await;
        let lock = || lock_draft(one_more, &[(0, 1, SHARED)]);
        let refused = peer.on(&mount, lock()).await;
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        let (mut other, theirs) = world.session("ann", &Offer::default()).await;
        let file = other.open_file(&theirs, &Want::file("one more")).await;
        other.on(&theirs, lock_draft(file, &[(0, 1, SHARED)])).await.ok();

        let unlock = lock_draft(files[0], &[(0, 1, LockFlags::UNLOCK)]);
        peer.on(&mount, unlock).await.ok();
        peer.on(&mount, lock()).await.ok();
        peer.on(&mount, lock()).await.expect(Status::INSUFFICIENT_RESOURCES);
        peer.close(&mount, files[1]).await;
        for _ in 0..31 {
            peer.on(&mount, lock_draft(one_more, &many)).await.ok();
        }
        peer.on(&mount, lock_draft(one_more, &many[1..])).await.ok();
        let again = peer.on(&mount, lock_draft(files[2], &[(0, 1, SHARED)])).await;
        again.expect(Status::INSUFFICIENT_RESOURCES);
    });
}

#[test]
fn cancel_by_async_id_and_by_message_id() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        for by_message in [false, true] {
            let (id, async_id) = c.wait().await;
            // A CANCEL with an unknown id must not cancel the waiting request.
            c.cancel(id, Some(async_id + 100)).await;
            c.cancel(id + 100, None).await;
            c.peer.expect_silence(Duration::from_millis(30)).await;
            c.cancel(id, (!by_message).then_some(async_id)).await;
            let end = c.peer.final_reply(id).await;
            end.expect(Status::CANCELLED);
            assert_eq!(peer::async_id(&end), async_id);
            // A CANCEL that comes after the final response gets no answer.
            c.cancel(id, Some(async_id)).await;
            c.peer.expect_silence(Duration::from_millis(30)).await;
        }
        // The LOCK was cancelled, so it must not be granted when the holder closes. Then another
        // Open can lock the range.
        c.peer.close(&c.mount, c.holder).await;
        let third = c.peer.open_file(&c.mount, &Want::file("f")).await;
        c.peer.on(&c.mount, lock_draft(third, &[(0, 1, EXCLUSIVE)])).await.ok();
    });
}

#[test]
fn closing_the_handle_ends_its_wait() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        let (id, _) = c.wait().await;
        let close = c.mount.put(close_draft(c.waiter));
        let closed = c.peer.send(vec![close], c.mount.via()).await[0];
        let replies = c.peer.collect(&[id, closed]).await;
        replies[0].expect(Status::RANGE_NOT_LOCKED);
        replies[1].ok();
    });
}

#[test]
fn logoff_and_tree_disconnect_end_waits() {
    in_world(async |world| {
        for command in [Command::LOGOFF, Command::TREE_DISCONNECT] {
            let mut c = Contest::new(world).await;
            let (id, _) = c.wait().await;
            let end = c.mount.put(Draft::empty(command));
            let ended = c.peer.send(vec![end], c.mount.via()).await[0];
            let replies = c.peer.collect(&[id, ended]).await;
            replies[0].expect(Status::RANGE_NOT_LOCKED);
            replies[1].ok();
        }
    });
}

/// Only the last of a compound may wait, and what came before it is answered
/// meanwhile: the client may need it to let go of what is waited for.
#[test]
fn the_last_of_a_compound_may_wait() {
    in_world(async |world| {
        for sealed in [false, true] {
            let mut c = Contest::new(world).await;
            if sealed {
                c.mount = c.mount.sealed();
            }
            let flag = HeaderFlags::RELATED_OPERATIONS;
            let drafts = vec![
                c.mount.put(Want::existing("f").draft()),
                c.mount.put(lock_draft(PREVIOUS, &[(0, 1, WAITS)])).flags(flag),
            ];
            let ids = c.peer.send(drafts, c.mount.via()).await;
            let first = c.peer.reply().await;
            assert_eq!(first.header.message_id, ids[0]);
            let file = file_id(first.ok());
            let interim = c.peer.interim().await;
            assert_eq!(interim.header.message_id, ids[1]);
            assert_eq!((first.sealed, interim.sealed), (sealed, sealed));
            c.peer.on(&c.mount, read_draft(file, 0, 0)).await.ok();
            let close = c.mount.put(close_draft(c.holder));
            let closed = c.peer.send(vec![close], c.mount.via()).await[0];
            let replies = c.peer.collect(&[ids[1], closed]).await;
            replies.iter().for_each(|reply| _ = reply.ok());
        }
    });
}

/// Windows: what would wait in the middle of a compound fails.
#[test]
fn in_the_middle_of_a_compound_nothing_waits() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        let drafts = vec![
            c.mount.put(lock_draft(c.waiter, &[(0, 1, WAITS)])),
            c.mount.put(read_draft(c.waiter, 0, 0)),
        ];
        let replies = c.peer.ask_all(drafts, c.mount.via()).await;
        replies[0].expect(Status::INTERNAL_ERROR);
        replies[1].ok();
        // The range is free, so the LOCK need not wait and succeeds even within a compound.
        let drafts = vec![
            c.mount.put(lock_draft(c.waiter, &[(5, 1, WAITS)])),
            c.mount.put(read_draft(c.waiter, 0, 0)),
        ];
        for reply in c.peer.ask_all(drafts, c.mount.via()).await {
            reply.ok();
        }
    });
}

#[test]
fn waiting_requests_are_limited() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        c.peer.asks = 2048;
        let mut ids = Vec::new();
        for _ in 0..WAITING_PER_CONNECTION {
            ids.push(c.wait().await);
        }
        let lock = lock_draft(c.waiter, &[(0, 1, WAITS)]);
        c.peer.on(&c.mount, lock).await.expect(Status::INSUFFICIENT_RESOURCES);
        // One of the waiting requests ends, so there is room for another one. All others go on
        // waiting.
        let (id, async_id) = ids.pop().unwrap();
        c.cancel(id, Some(async_id)).await;
        c.peer.final_reply(id).await.expect(Status::CANCELLED);
        c.wait().await;
    });
}

/// A wait that is given up leaves nothing in the file's list.
#[test]
fn cancelled_waits_leave_nothing_behind() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        for _ in 0..100 {
            let (id, async_id) = c.wait().await;
            c.cancel(id, Some(async_id)).await;
            c.peer.final_reply(id).await.expect(Status::CANCELLED);
        }
        let session = world.server.session(c.mount.logon.id).unwrap();
        let open = session.open(c.holder).unwrap();
        assert_eq!(open.file().unwrap().cell.lock().ranges.waiting_count(), 0);
    });
}

/// The connection goes while requests wait.
#[test]
fn a_lost_connection_ends_its_waits() {
    in_world(async |world| {
        for _ in 0..5 {
            let mut c = Contest::new(world).await;
            c.wait().await;
            c.peer.stream.abort();
            drop(c);
        }
    });
}

#[test]
fn locks_and_their_flags() {
    in_world(async |world| {
        let mut c = Contest::new(world).await;
        let shared = LockFlags::SHARED_LOCK;
        let now = LockFlags::FAIL_IMMEDIATELY;
        let unlock = LockFlags::UNLOCK;
        for (locks, status) in [
            (&[][..], Status::INVALID_PARAMETER),
            (&[(9, 1, LockFlags::EMPTY)], Status::INVALID_PARAMETER),
            (&[(9, 1, now)], Status::INVALID_PARAMETER),
            (&[(9, 1, LockFlags(0x80))], Status::INVALID_PARAMETER),
            (&[(9, 1, LockFlags(0xFFFF_FFFF))], Status::INVALID_PARAMETER),
            (&[(9, 1, shared | WAITS)], Status::INVALID_PARAMETER),
            (&[(9, 1, unlock | now)], Status::INVALID_PARAMETER),
            // A request with several locks must not wait, so it is refused without
            // FAIL_IMMEDIATELY.
            (&[(9, 1, WAITS), (11, 1, WAITS)], Status::INVALID_PARAMETER),
            (&[(9, 1, WAITS | now), (11, 1, unlock)], Status::INVALID_PARAMETER),
            (&[(u64::MAX, 2, EXCLUSIVE)], Status::INVALID_LOCK_RANGE),
            (&[(9, 1, unlock)], Status::RANGE_NOT_LOCKED),
            (&[(0, 1, EXCLUSIVE)], Status::LOCK_NOT_GRANTED),
            (&[(0, 1, shared | now)], Status::LOCK_NOT_GRANTED),
            // The second lock fails, so the first one is released again, as the next rows show.
            (&[(9, 1, EXCLUSIVE), (0, 1, EXCLUSIVE)], Status::LOCK_NOT_GRANTED),
            (&[(9, 1, EXCLUSIVE), (11, 1, shared | now)], Status::SUCCESS),
            (&[(9, 1, unlock), (11, 1, unlock)], Status::SUCCESS),
        ] {
            let reply = c.peer.on(&c.mount, lock_draft(c.waiter, locks)).await;
            assert_eq!(reply.status(), status, "{locks:?}");
        }
        // Another Open has locked the range, so READ and WRITE of this Open fail in it.
        let read = read_draft(c.waiter, 0, 1);
        c.peer.on(&c.mount, read).await.expect(Status::FILE_LOCK_CONFLICT);
        let write = files::write_draft(c.waiter, 0, b"x");
        c.peer.on(&c.mount, write).await.expect(Status::FILE_LOCK_CONFLICT);
        c.peer.write(&c.mount, c.holder, 0, b"xy").await;
        c.peer.write(&c.mount, c.waiter, 1, b"z").await;
        // LockCount is 2, but the message has one lock, so it is refused.
        let lie = lock_draft(c.waiter, &[(9, 1, EXCLUSIVE)]).patch(66, &[2, 0]);
        c.peer.on(&c.mount, lie).await.expect(Status::INVALID_PARAMETER);
    });
}
