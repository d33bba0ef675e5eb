//! CHANGE_NOTIFY.

use frevo_server::limits::NOTIFIES_PER_SESSION;
use frevo_wire::command::change_notify::{ChangeNotifyFlags, CompletionFilter, Request};
use frevo_wire::dtyp::AccessMask;

use super::calls::*;
use crate::client::peer::async_id;
use crate::client::*;

pub fn notify_draft(file: FileId, room: u32) -> Draft {
    let request = Request {
        flags: ChangeNotifyFlags::EMPTY,
        output_buffer_length: room,
        file_id: file,
        completion_filter: CompletionFilter(0xFFF),
    };
    Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w))
}

#[test]
fn a_watch_ends_with_its_directory() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let id = peer.send(vec![mount.put(notify_draft(root, 4096))], mount.via()).await[0];
        peer.interim().await;
        peer.close(&mount, root).await;
        peer.final_reply(id).await.expect(Status::NOTIFY_CLEANUP);
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
        // The directory is as it was.
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
        let mut ids = Vec::new();
        for _ in 0..NOTIFIES_PER_SESSION {
            ids.push(one.send(vec![mount.put(notify_draft(root, 0))], mount.via()).await[0]);
            one.interim().await;
        }
        one.on(&mount, notify_draft(root, 0)).await.expect(Status::INSUFFICIENT_RESOURCES);
        one.close(&mount, root).await;
        for id in ids {
            one.final_reply(id).await.expect(Status::NOTIFY_CLEANUP);
        }
    });
}
