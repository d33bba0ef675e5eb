//! FSCTL_VALIDATE_NEGOTIATE_INFO, and the frame of every IOCTL.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::validate_negotiate::{Request, Response};
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::dtyp::Guid;

use super::calls::*;
use crate::client::*;

const CODE: CtlCode = CtlCode::VALIDATE_NEGOTIATE_INFO;

fn bytes(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// The request that matches the client's NEGOTIATE.
fn truth(peer: &Peer, offer: &Offer) -> Request {
    Request {
        capabilities: offer.capabilities,
        guid: peer.guid,
        security_mode: offer.security_mode,
        dialects: offer.dialects.clone(),
    }
}

fn offers() -> [Offer; 3] {
    [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_0_2].map(Offer::only)
}

#[test]
fn i4_the_truth_is_confirmed() {
    in_world(async |world| {
        for offer in offers() {
            let (mut peer, mount) = world.session("ann", &offer).await;
            let input = bytes(&truth(&peer, &offer));
            let reply = ask(&mut peer, &mount, CODE, FileId::ALL_ONES, &input, 24).await;
            let told = Response::parse(&output(reply.ok())).unwrap();
            assert_eq!(told.dialect, offer.dialects[0]);
            assert_eq!(told.guid, peer.server_guid);
            assert_eq!(told.capabilities, peer.server_capabilities);
            assert_eq!(told.security_mode, peer.server_mode);
        }
    });
}

#[test]
fn i4_any_lie_ends_the_connection() {
    in_world(async |world| {
        let offer = Offer::only(Dialect::SMB_3_0_2);
        type Lie = fn(&mut Request);
        let lies: [Lie; 8] = [
            |r| r.guid = Guid([9; 16]),
            |r| r.capabilities = GlobalCapabilities(r.capabilities.0 ^ 1),
            |r| r.capabilities = GlobalCapabilities(r.capabilities.0 ^ 0x8000_0000),
            |r| r.security_mode = SecurityMode(r.security_mode.0 ^ 2),
            |r| r.dialects.clear(),
            |r| r.dialects.push(Dialect::SMB_3_1_1),
            |r| r.dialects = vec![Dialect::SMB_3_0],
            |r| r.dialects.insert(0, Dialect::SMB_2_0_2),
        ];
        for lie in lies {
            let (mut peer, mount) = world.session("ann", &offer).await;
            let mut request = truth(&peer, &offer);
            lie(&mut request);
            let draft = ioctl_draft(CODE, FileId::ALL_ONES, &bytes(&request), 24);
            peer.send(vec![mount.put(draft)], mount.via()).await;
            peer.expect_disconnect().await;
        }
    });
}

#[test]
fn i4_no_room_for_the_answer_and_3_1_1_end_the_connection() {
    in_world(async |world| {
        let offer = Offer::only(Dialect::SMB_3_0);
        let (mut peer, mount) = world.session("ann", &offer).await;
        let input = bytes(&truth(&peer, &offer));
        let draft = ioctl_draft(CODE, FileId::ALL_ONES, &input, 23);
        peer.send(vec![mount.put(draft)], mount.via()).await;
        peer.expect_disconnect().await;
        let offer = Offer::default();
        let (mut peer, mount) = world.session("ann", &offer).await;
        let input = bytes(&truth(&peer, &offer));
        let draft = ioctl_draft(CODE, FileId::ALL_ONES, &input, 24);
        peer.send(vec![mount.put(draft)], mount.via()).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p13_sizes_that_lie_are_invalid() {
    in_world(async |world| {
        let offer = Offer::only(Dialect::SMB_3_0_2);
        let (mut peer, mount) = world.session("ann", &offer).await;
        let whole = bytes(&truth(&peer, &offer));
        let invalid = Status::INVALID_PARAMETER;
        for cut in 0..whole.len() {
            let cut = &whole[..cut];
            ask(&mut peer, &mount, CODE, FileId::ALL_ONES, cut, 24).await.expect(invalid);
        }
        for count in [2_u16, 0x8000, u16::MAX] {
            let mut lie = whole.clone();
            lie[22..24].copy_from_slice(&count.to_le_bytes());
            ask(&mut peer, &mount, CODE, FileId::ALL_ONES, &lie, 24).await.expect(invalid);
        }
    });
}

/// P13: offsets and counts of the request itself.
#[test]
fn p13_every_length_of_the_frame_is_checked() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let draft = ioctl_draft(CtlCode::GET_COMPRESSION, file, &[0; 64], 2);
        peer.on(&mount, draft.clone()).await.ok();
        let lies: &[(usize, &[u32])] = &[
            (INPUT_OFFSET, &[1, 64, 112, 119, 121, 124, 128, 184, 0x7FFF_FFFF, u32::MAX]),
            (INPUT_COUNT, &[65, 72, 0x8000_0000, u32::MAX]),
            (MAX_INPUT, &[1024 * 1024 + 1, u32::MAX]),
            (MAX_OUTPUT, &[1024 * 1024 + 1, u32::MAX, 65_537]),
            (OUTPUT_COUNT, &[65_537, u32::MAX]),
        ];
        for (at, values) in lies {
            for value in *values {
                let draft = draft.clone().patch(*at, &value.to_le_bytes());
                let status = peer.on(&mount, draft).await.status();
                assert_eq!(status, Status::INVALID_PARAMETER, "{value:#x} at {at}");
            }
        }
        // The OutputOffset of a request has no meaning, so any value is accepted.
        for offset in [1_u32, 64, 0x7FFF_FFFF] {
            let draft = draft.clone().patch(OUTPUT_OFFSET, &offset.to_le_bytes());
            peer.on(&mount, draft).await.ok();
        }
        for flags in [0_u32, 2, 3, u32::MAX] {
            let draft = draft.clone().patch(FLAGS, &flags.to_le_bytes());
            peer.on(&mount, draft).await.expect(Status::NOT_SUPPORTED);
        }
        let paid = draft.clone().patch(MAX_OUTPUT, &(128 * 1024_u32).to_le_bytes()).charge(2);
        peer.on(&mount, paid).await.ok();
        for length in 1..draft.body.len() {
            let mut cut = draft.clone();
            cut.body.truncate(length);
            peer.on(&mount, cut).await.expect(Status::INVALID_PARAMETER);
        }
        peer.on(&mount, ioctl_draft(CtlCode::GET_COMPRESSION, FileId::ALL_ONES, &[], 2))
            .await
            .expect(Status::FILE_CLOSED);
    });
}

/// P9: in a compound the answers share what was negotiated.
#[test]
fn p9_the_room_of_a_compound_is_shared() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let object_id =
            || mount.put(ioctl_draft(CtlCode::CREATE_OR_GET_OBJECT_ID, file, &[], 65_536));
        let replies = peer.ask_all(vec![object_id(), object_id(), object_id()], mount.via()).await;
        for reply in &replies {
            assert_eq!(output(reply.ok()).len(), 64);
        }
    });
}
