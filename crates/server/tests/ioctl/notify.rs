//! CHANGE_NOTIFY.

use frevo_server::internal::limits::{NOTIFIES_PER_SESSION, WAITING_PER_CONNECTION};
use std::time::Duration;

use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter, Request};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::notify::NotifyEntries;

use super::calls::*;
use crate::client::files::{close_draft, file_id, write_draft};
use crate::client::logon::Setup;
use crate::client::peer::async_id;
use crate::client::*;

fn draft(flags: ChangeNotifyFlags, filter: CompletionFilter, file: FileId, room: u32) -> Draft {
    let request =
        Request { flags, output_buffer_length: room, file_id: file, completion_filter: filter };
    Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w))
}

const ALL: CompletionFilter = CompletionFilter(0xFFF);

fn notify_draft(file: FileId, room: u32) -> Draft {
    draft(ChangeNotifyFlags::EMPTY, ALL, file, room)
}

/// Sends a request that waits.
async fn watch(peer: &mut Peer, mount: &Mount, draft: Draft) -> u64 {
    let id = peer.send(vec![mount.put(draft)], mount.via()).await[0];
    peer.interim().await;
    id
}

fn changes(reply: &Reply) -> Vec<(u32, String)> {
    let output = change_notify::Response::parse(&reply.message).unwrap().output;
    let told = NotifyEntries::new(output).map(|entry| entry.unwrap());
    told.map(|entry| (entry.action.0, entry.name.decode().unwrap())).collect()
}

fn pairs(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
    expected.iter().map(|(action, name)| (*action, (*name).to_owned())).collect()
}

/// MS-SMB2 2.2.35: a request with Flags 0 tells of the directory's own entries alone.
#[test]
fn changes_are_told_while_a_request_waits_and_kept_while_none_does() {
    in_world(async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let names = CompletionFilter::FILE_NAME | CompletionFilter::DIR_NAME;
        let lists = Want::directory("d").access(AccessMask::FILE_GENERIC_READ);
        let directory = ann.open_file(&mount, &lists).await;
        let ask = || draft(ChangeNotifyFlags::EMPTY, names, directory, 4096);
        let id = watch(&mut ann, &mount, ask()).await;
        let file = bob.open_file(&bobs, &Want::file("d\\new")).await;
        assert_eq!(changes(ann.final_reply(id).await.ok()), pairs(&[(1, "new")]));
        // No CHANGE_NOTIFY waits now, so the server keeps these changes for the next one.
        bob.write(&bobs, file, 0, b"not watched for").await;
        let rename = |to: &str| files::rename_draft(FileInfoClass::RENAME, file, to, false);
        bob.on(&bobs, rename("d\\newer")).await.ok();
        bob.on(&bobs, rename("away")).await.ok();
        bob.open_file(&bobs, &Want::directory("d\\e")).await;
        bob.open_file(&bobs, &Want::file("d\\e\\below")).await;
        let gone = Want::file("d\\gone").options(CreateOptions::DELETE_ON_CLOSE);
        let gone = bob.open_file(&bobs, &gone).await;
        bob.close(&bobs, gone).await;
        let reply = ann.on(&mount, ask()).await;
        let expected = [(4, "new"), (5, "newer"), (2, "newer"), (1, "e"), (1, "gone"), (2, "gone")];
        assert_eq!(changes(reply.ok()), pairs(&expected));
    });
}

#[test]
fn a_tree_is_watched_to_its_leaves() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.open_file(&mount, &Want::directory("d")).await;
        peer.open_file(&mount, &Want::directory("d\\e")).await;
        let file = peer.open_file(&mount, &Want::file("d\\e\\f")).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let tree = draft(ChangeNotifyFlags::WATCH_TREE, ALL, root, 4096);
        let id = watch(&mut peer, &mount, tree).await;
        peer.send(vec![mount.put(write_draft(file, 0, b"content"))], mount.via()).await;
        let reply = peer.final_reply(id).await;
        assert_eq!(changes(reply.ok()), pairs(&[(3, "d\\e\\f")]));
    });
}

#[test]
fn what_does_not_fit_is_to_be_looked_for() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        // The first request's buffer size limits the changes that are kept for later requests.
        let id = watch(&mut peer, &mount, notify_draft(root, 4096)).await;
        cancel(&peer, &mount, id, None).await;
        peer.final_reply(id).await.expect(Status::CANCELLED);
        for (room, status) in
            [(0, Status::NOTIFY_ENUM_DIR), (13, Status::NOTIFY_ENUM_DIR), (14, Status::SUCCESS)]
        {
            let id = watch(&mut peer, &mount, notify_draft(root, room)).await;
            let made = Want::file("f").disposition(CreateDisposition::CREATE);
            let made = made.options(CreateOptions::DELETE_ON_CLOSE).draft();
            let made = peer.send(vec![mount.put(made)], mount.via()).await[0];
            let (mut file, mut told) = (None, None);
            while file.is_none() || told.is_none() {
                let reply = peer.reply().await;
                if reply.header.message_id == made {
                    file = Some(file_id(reply.ok()));
                } else {
                    assert_eq!(reply.header.message_id, id);
                    told = Some(reply);
                }
            }
            let reply = told.unwrap();
            reply.expect(status);
            assert_eq!(changes(&reply).len(), usize::from(status == Status::SUCCESS));
            peer.close(&mount, file.unwrap()).await;
            // The removal did not fit into the small buffer, so the next request reports it.
            let reply = peer.on(&mount, notify_draft(root, 4096)).await;
            assert_eq!(changes(reply.ok()), pairs(&[(2, "f")]));
        }
    });
}

#[test]
fn a_directory_that_is_to_go_ends_its_watches() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let id = watch(&mut peer, &mount, notify_draft(directory, 4096)).await;
        let other = peer.open_file(&mount, &Want::existing("d")).await;
        let delete = mount.put(set_draft(FileInfoClass::DISPOSITION, other, &[1]));
        peer.send(vec![delete], mount.via()).await;
        peer.final_reply(id).await.expect(Status::DELETE_PENDING);
    });
}

/// F1: names of one share mean nothing in another, nor does what is beside it.
#[test]
fn only_what_is_below_is_told() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let tree = draft(ChangeNotifyFlags::WATCH_TREE, ALL, directory, 4096);
        watch(&mut peer, &mount, tree).await;
        peer.open_file(&mount, &Want::directory("dd")).await;
        peer.open_file(&mount, &Want::file("dd\\f")).await;
        peer.open_file(&mount, &Want::file("f")).await;
        peer.expect_silence(Duration::from_millis(50)).await;
    });
}

#[test]
fn a_watch_ends_with_its_directory() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let id = peer.send(vec![mount.put(notify_draft(root, 4096))], mount.via()).await[0];
        peer.interim().await;
        let closing = peer.send(vec![mount.put(close_draft(root))], mount.via()).await[0];
        let replies = peer.collect(&[closing, id]).await;
        replies[0].ok();
        replies[1].expect(Status::NOTIFY_CLEANUP);
    });
}

#[test]
fn a_watch_can_be_cancelled() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let id = peer.send(vec![mount.put(notify_draft(root, 4096))], mount.via()).await[0];
        let interim = peer.interim().await;
        cancel(&peer, &mount, id, Some(async_id(&interim))).await;
        peer.final_reply(id).await.expect(Status::CANCELLED);
        // After the watch is cancelled, its directory is still open and can be closed.
        peer.close(&mount, root).await;
    });
}

#[test]
fn x3_watching_needs_the_right_to_list() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let looks = Want::directory("d").access(AccessMask::READ_ATTRIBUTES);
        let blind = peer.open_file(&mount, &looks).await;
        peer.on(&mount, notify_draft(blind, 4096)).await.expect(Status::ACCESS_DENIED);
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.on(&mount, notify_draft(file, 4096)).await.expect(Status::INVALID_PARAMETER);
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let pipe = peer.open_file(&ipc, &Want::existing("srvsvc")).await;
        peer.on(&ipc, notify_draft(pipe, 4096)).await.expect(Status::INVALID_PARAMETER);
    });
}

#[test]
fn rooms_that_were_not_negotiated_or_paid_are_invalid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        for room in [65_537, 1024 * 1024 + 1, u32::MAX] {
            peer.on(&mount, notify_draft(root, room)).await.expect(Status::INVALID_PARAMETER);
        }
        let whole = notify_draft(root, 4096);
        for length in 1..whole.body.len() {
            let mut cut = whole.clone();
            cut.body.truncate(length);
            peer.on(&mount, cut).await.expect(Status::INVALID_PARAMETER);
        }
    });
}

#[test]
fn watches_of_a_session_are_bounded() {
    in_world(async |world| {
        let (mut one, mount) = world.session("ann", &Offer::default()).await;
        let root = one.open_file(&mount, &Want::existing("")).await;
        let mut channels = vec![(one, mount.clone())];
        // A connection allows fewer waiting requests than a session allows watches, so the session
        // gets several channels.
        for _ in 0..NOTIFIES_PER_SESSION / WAITING_PER_CONNECTION {
            let mut more = world.connect();
            more.guid = channels[0].0.guid;
            more.negotiate(&Offer::default()).await;
            let bound = more.try_log_on(Setup::binding("ann", &mount.logon)).await.expect("bound");
            channels.push((more, mount.on(&bound)));
        }
        let mut ids = vec![Vec::new(); channels.len()];
        for n in 0..NOTIFIES_PER_SESSION {
            let at = n / WAITING_PER_CONNECTION;
            let (peer, mount) = &mut channels[at];
            ids[at].push(peer.send(vec![mount.put(notify_draft(root, 0))], mount.via()).await[0]);
            peer.interim().await;
        }
        let (last, there) = channels.last_mut().unwrap();
        last.on(there, notify_draft(root, 0)).await.expect(Status::INSUFFICIENT_RESOURCES);
        let close = last.send(vec![there.put(close_draft(root))], there.via()).await;
        ids.last_mut().unwrap().extend(close);
        for ((peer, _), ids) in channels.iter_mut().zip(ids) {
            for reply in peer.collect(&ids).await {
                let closed = reply.header.command == Command::CLOSE;
                reply.expect(if closed { Status::SUCCESS } else { Status::NOTIFY_CLEANUP });
            }
        }
    });
}
