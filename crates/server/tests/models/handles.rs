//! Opens that outlive their connection, and leases that break: reconnect, close, acknowledgment, the
//! loss of a channel and the end of the time that a client has, in all orders.

use std::rc::Rc;

use frevo_wire::command::create::{self, ShareAccess};
use frevo_wire::command::oplock_break::{self, LeaseBreak, LeaseKey, LeaseState};
use frevo_wire::dtyp::Guid;

use super::exploring::{Model, explore, thread};
use crate::asking::{dh2c, dh2q, guid, leased};
use crate::client::files::{close_draft, file_id, read_draft, write_draft};
use crate::client::*;

const OWN: Guid = Guid([1; 16]);
const OTHER: Guid = Guid([2; 16]);
const RWH: u32 = 7;
const READ: u32 = 1;

fn acknowledged(state: u32) -> Draft {
    let ack = LeaseBreak { lease_key: LeaseKey([9; 16]), lease_state: LeaseState(state) };
    Draft::new(Command::OPLOCK_BREAK).with(|w| oplock_break::Request::Lease(ack).encode(w))
}

/// Sends a request and waits for its answer, past breaks.
async fn told(peer: &mut Peer, mount: &Mount, draft: Draft) -> Reply {
    let id = peer.send(vec![mount.put(draft)], mount.via()).await[0];
    peer.final_reply(id).await
}

/// Opens the file as another client, and closes it again. Answered in any case.
async fn intrude(mut peer: Peer, mount: Mount) {
    let reply = peer.on(&mount, Want::file("f").draft()).await;
    reply.ok();
    peer.close(&mount, file_id(&reply)).await;
}

/// A client with a durable handle and a lease, and another client.
async fn scene(model: &Model) -> ((Peer, Mount, FileId), (Peer, Mount)) {
    let (mut one, mine) = model.session(OWN, "data").await;
    let want = leased(Want::file("f"), 9, RWH, &[dh2q(guid(3), false)]);
    let file = one.open_file(&mine, &want).await;
    let other = model.session(OTHER, "data").await;
    ((one, mine, file), other)
}

/// A handle is reconnected in a new session while another client opens the file, and the old
/// connection ends late. The handle comes back whole or not at all.
#[test]
fn a_reconnect_meets_with_an_intruder() {
    explore(async |model| {
        let ((one, _, file), (two, theirs)) = scene(model).await;
        let (mut back, mount) = model.session(OWN, "data").await;
        model.begins();
        let lost = thread(async move { drop(one) });
        let intruder = thread(intrude(two, theirs));
        let reconnect = thread(async move {
            let want = leased(Want::existing("f"), 9, RWH, &[dh2c(file, guid(3), false)]);
            let reply = told(&mut back, &mount, want.draft()).await;
            if reply.status() != Status::SUCCESS {
                return reply.expect(Status::OBJECT_NAME_NOT_FOUND).status();
            }
            let again = file_id(&reply);
            assert_eq!(again.persistent, file.persistent);
            // The handle is closed, which also ends its pending break.
            told(&mut back, &mount, write_draft(again, 0, b"back")).await.ok();
            told(&mut back, &mount, close_draft(again)).await.ok();
            Status::SUCCESS
        });
        lost.await.unwrap();
        intruder.await.unwrap();
        reconnect.await.unwrap();
    });
}

/// The time of a handle is over when its client comes back and another one opens the file.
#[test]
fn a_reconnect_meets_with_the_scavenger() {
    explore(async |model| {
        let ((one, _, file), (two, theirs)) = scene(model).await;
        let (mut back, mount) = model.session(OWN, "data").await;
        drop(one);
        while model.server.durables.counts().1 == 0 {
            shuttle::future::yield_now().await;
        }
        model.begins();
        let server = std::sync::Arc::clone(&model.server);
        let scavenger = thread(async move {
            let expired = server.durables.give_up(|_| true);
            let count = expired.len();
            expired.iter().for_each(|open| server.close_open(open));
            count
        });
        let intruder = thread(intrude(two, theirs));
        let want = leased(Want::existing("f"), 9, RWH, &[dh2c(file, guid(3), false)]);
        let reply = told(&mut back, &mount, want.draft()).await;
        let is_back = reply.status() == Status::SUCCESS;
        if is_back {
            told(&mut back, &mount, close_draft(file_id(&reply))).await.ok();
        } else {
            reply.expect(Status::OBJECT_NAME_NOT_FOUND);
        }
        let expired = scavenger.await.unwrap();
        assert!(!(is_back && expired == 1), "one handle went to two");
        intruder.await.unwrap();
        drop(back);
    });
}

/// A break meets with a CLOSE, an acknowledgment, I/O and the loss of one of two channels: the client
/// that opens the file is let in.
#[test]
fn a_break_meets_with_everything() {
    explore(async |model| {
        let ((one, mine, file), (two, theirs)) = scene(model).await;
        let (mut second, there) = model.channel(OWN, &mine).await;
        model.begins();
        let intruder = thread(intrude(two, theirs));
        let lost = thread(async move {
            let mut one = one;
            let read = mine.put(read_draft(file, 0, 4));
            let _ = one.send(vec![read], mine.via()).await;
            drop(one);
        });
        let holder = thread(async move {
            // The acknowledgment may arrive before its break is sent, and is then refused, which
            // must do no harm.
            let ack = there.put(acknowledged(READ));
            second.send(vec![ack], there.via()).await;
            second.send(vec![there.put(write_draft(file, 0, b"w"))], there.via()).await;
            told(&mut second, &there, close_draft(file)).await.ok();
        });
        lost.await.unwrap();
        holder.await.unwrap();
        intruder.await.unwrap();
    });
}

/// Two clients open a file that a third holds alone, which closes it: both come in, one after the
/// other's break.
#[test]
fn two_intruders_meet_with_a_close() {
    explore(async |model| {
        let ((mut one, mine, file), (two, theirs)) = scene(model).await;
        let (three, third) = model.session(Guid([4; 16]), "data").await;
        model.begins();
        let intruders = [thread(intrude(two, theirs)), thread(intrude(three, third))];
        told(&mut one, &mine, close_draft(file)).await.ok();
        for intruder in intruders {
            intruder.await.unwrap();
        }
    });
}

/// A CREATE with a CreateGuid, and its replay over another channel while the first one runs: one
/// Open, which both name.
#[test]
fn a_create_meets_with_its_replay() {
    explore(async |model| {
        let (mut one, mine) = model.session(OWN, "data").await;
        let (mut two, there) = model.channel(OWN, &mine).await;
        model.begins();
        let alone = Want::file("f").sharing(ShareAccess::EMPTY);
        let alone = alone.disposition(create::CreateDisposition::CREATE);
        let want = Rc::new(leased(alone, 9, RWH, &[dh2q(guid(3), false)]));
        let first = thread({
            let want = Rc::clone(&want);
            async move {
                let reply = one.on(&mine, want.draft()).await;
                (one, reply)
            }
        });
        let opened = loop {
            let mut draft = want.draft().flags(HeaderFlags::REPLAY_OPERATION);
            draft.header.status = Status(1);
            let reply = two.on(&there, draft).await;
            match reply.status() {
                Status::FILE_NOT_AVAILABLE => shuttle::future::yield_now().await,
                Status::SUCCESS => break file_id(&reply),
                status => panic!("a replay is answered {status}"),
            }
        };
        let (one, reply) = first.await.unwrap();
        match reply.status() {
            Status::SUCCESS => assert_eq!(file_id(&reply), opened),
            // The replay arrived before its CREATE and opened the file, so the CREATE is a
            // duplicate.
            status => assert_eq!(status, Status::DUPLICATE_OBJECTID),
        }
        two.close(&there, opened).await;
        drop(one);
    });
}
