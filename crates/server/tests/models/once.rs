//! Requests whose channel is lost, and their repetitions on another one: each is carried out once.

use frevo_wire::codec::Writer;
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::command::ioctl::operation::{OperationId, Outcome, Progress};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::lock::{self, LockElement, LockFlags, LockSequence};
use frevo_wire::create_context::CreateContext;
use frevo_wire::dtyp::Guid;

use super::exploring::{Model, explore, thread};
use crate::asking::with;
use crate::client::files::{PREVIOUS, close_draft, write_draft};
use crate::client::world::EXCLUSIVE;
use crate::client::*;

const GUID: Guid = Guid([0x5A; 16]);

/// Two channels of a session with an open file.
async fn scene(model: &Model) -> ((Peer, Mount), (Peer, Mount), FileId) {
    let (mut one, mine) = model.session(GUID, "data").await;
    let file = one.open_file(&mine, &Want::file("f")).await;
    one.write(&mine, file, 0, b"old").await;
    let (two, there) = model.channel(GUID, &mine).await;
    ((one, mine), (two, there), file)
}

/// Sent after the loss of a channel.
fn later(mut draft: Draft) -> Draft {
    draft.header.status = Status(1);
    draft
}

fn again(draft: Draft) -> Draft {
    later(draft).flags(HeaderFlags::REPLAY_OPERATION)
}

/// Repeats a request until the first attempt is over.
async fn repeated(peer: &mut Peer, mount: &Mount, draft: Draft) -> Reply {
    loop {
        let reply = peer.on(mount, again(draft.clone())).await;
        if reply.status() != Status::FILE_NOT_AVAILABLE {
            return reply;
        }
        shuttle::future::yield_now().await;
    }
}

/// MS-SMB2 3.3.5.2.10: a WRITE whose channel is lost does not come after what was written later.
#[test]
fn a_late_write_does_not_come_after_a_later_one() {
    explore(async |model| {
        let ((mut one, mine), (mut two, there), file) = scene(model).await;
        model.begins();
        let late = thread(async move {
            let reply = one.on(&mine, write_draft(file, 0, b"one")).await;
            let status = reply.status();
            assert!(matches!(status, Status::SUCCESS | Status::FILE_NOT_AVAILABLE), "{status:?}");
            one
        });
        repeated(&mut two, &there, write_draft(file, 0, b"one")).await.ok();
        two.on(&there, later(write_draft(file, 0, b"two"))).await.ok();
        let one = late.await.unwrap();
        assert_eq!(model.content("f").as_deref(), Some(&b"two"[..]));
        two.close(&there, file).await;
        drop(one);
    });
}

fn numbered_lock(file: FileId, number: u8, flags: LockFlags) -> Draft {
    let locks = vec![LockElement { offset: 0, length: 4, flags }];
    let lock_sequence = LockSequence::new(number, 1);
    Draft::new(Command::LOCK)
        .with(|w| lock::Request { lock_sequence, file_id: file, locks }.encode(w))
}

/// MS-SMB2 3.3.5.14: a LOCK and its repetition lock once, and what is unlocked then stays unlocked.
fn lock_and_repeat(flags: LockFlags) {
    explore(async move |model| {
        let ((mut one, mine), (mut two, there), file) = scene(model).await;
        let (mut other, theirs) = model.session(Guid([2; 16]), "data").await;
        let their = other.open_file(&theirs, &Want::file("f")).await;
        model.begins();
        let late = thread(async move {
            let reply = one.on(&mine, numbered_lock(file, 1, flags)).await;
            let status = reply.status();
            assert!(matches!(status, Status::SUCCESS | Status::FILE_NOT_AVAILABLE), "{status:?}");
            one
        });
        let lock = numbered_lock(file, 1, flags);
        repeated(&mut two, &there, lock).await.ok();
        // A lock conflicts even with a lock of its own Open. If the repeated LOCK had taken a
        // second lock, one UNLOCK would not free the range.
        two.on(&there, later(numbered_lock(file, 2, LockFlags::UNLOCK))).await.ok();
        let one = late.await.unwrap();
        other.on(&theirs, numbered_lock(their, 1, EXCLUSIVE)).await.ok();
        two.close(&there, file).await;
        other.close(&theirs, their).await;
        drop(one);
    });
}

#[test]
fn a_lock_meets_with_its_repetition() {
    lock_and_repeat(EXCLUSIVE);
}

#[test]
fn a_lock_that_may_wait_meets_with_its_repetition() {
    lock_and_repeat(LockFlags::EXCLUSIVE_LOCK);
}

/// An UNLOCK and its repetition unlock once: a lock that is taken afterwards stays.
#[test]
fn an_unlock_meets_with_its_repetition() {
    explore(async |model| {
        let ((mut one, mine), (mut two, there), file) = scene(model).await;
        one.on(&mine, numbered_lock(file, 1, EXCLUSIVE)).await.ok();
        model.begins();
        let late = thread(async move {
            let reply = one.on(&mine, numbered_lock(file, 2, LockFlags::UNLOCK)).await;
            let status = reply.status();
            assert!(matches!(status, Status::SUCCESS | Status::FILE_NOT_AVAILABLE), "{status:?}");
            one
        });
        repeated(&mut two, &there, numbered_lock(file, 2, LockFlags::UNLOCK)).await.ok();
        two.on(&there, later(numbered_lock(file, 3, EXCLUSIVE))).await.ok();
        let one = late.await.unwrap();
        two.on(&there, later(numbered_lock(file, 4, LockFlags::UNLOCK))).await.ok();
        two.close(&there, file).await;
        drop(one);
    });
}

/// A numbered operation meets with the question about it: what the client is told is so, and stays
/// so.
#[test]
fn an_operation_meets_with_the_question_about_it() {
    explore(async |model| {
        let ((mut one, mine), (mut two, there), file) = scene(model).await;
        model.begins();
        let id = OperationId { slot: 0, sequence: 1 };
        let late = thread(async move {
            let want = Want::directory("d").disposition(CreateDisposition::CREATE);
            let make = with(want, &[CreateContext::Operation(id)]).draft();
            let drafts = vec![mine.put(make), mine.put(close_draft(PREVIOUS)).related()];
            let replies = one.ask_all(drafts, mine.via()).await;
            (one, replies[0].status())
        });
        let told = loop {
            let mut input = Vec::new();
            id.encode(&mut Writer::new(&mut input));
            let code = CtlCode::FREVO_QUERY_OPERATION;
            let ask = Draft::new(Command::IOCTL)
                .with(|w| ioctl::Request::fsctl(code, FileId::ALL_ONES, &input, 64).encode(w));
            let reply = two.on(&there, later(ask)).await;
            reply.ok();
            let response = ioctl::Response::parse(&reply.message).unwrap();
            let outcome = Outcome::parse(response.output).unwrap();
            if outcome.progress != Progress::RUNNING {
                break outcome;
            }
            shuttle::future::yield_now().await;
        };
        let is_there = model.has("d");
        let (one, status) = late.await.unwrap();
        match told.progress {
            Progress::DONE => {
                assert_eq!((told.status, status), (Status::SUCCESS, Status::SUCCESS));
                assert!(is_there);
            }
            Progress::NOT_BEGUN => {
                assert!(!is_there && !model.has("d"), "made after the client was told");
                assert_eq!(status, Status::DUPLICATE_OBJECTID);
            }
            other => panic!("{other:?}"),
        }
        two.close(&there, file).await;
        drop(one);
    });
}
