//! Object ids, MS-FSA 2.1.5.10.1, .2, .13, .35 and .36.

use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;

use super::calls::*;
use crate::client::*;

const GET: CtlCode = CtlCode::GET_OBJECT_ID;
const MAKE: CtlCode = CtlCode::CREATE_OR_GET_OBJECT_ID;
const SET: CtlCode = CtlCode::SET_OBJECT_ID;
const EXTEND: CtlCode = CtlCode::SET_OBJECT_ID_EXTENDED;
const DELETE: CtlCode = CtlCode::DELETE_OBJECT_ID;

#[test]
fn object_ids_are_set_once_extended_and_deleted() {
    in_world(async |world| {
        promote_ann(world);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for want in [Want::file("f"), Want::directory("d"), Want::file("f:stream")] {
            let file = peer.open_file(&mount, &want).await;
            let none = Status::OBJECTID_NOT_FOUND;
            ask(&mut peer, &mount, GET, file, &[], 64).await.expect(none);
            ask(&mut peer, &mount, EXTEND, file, &[9; 48], 0).await.expect(none);
            ask(&mut peer, &mount, DELETE, file, &[], 0).await.ok();
            for wrong in [0, 63, 65] {
                let reply = ask(&mut peer, &mount, SET, file, &vec![7; wrong], 0).await;
                reply.expect(Status::INVALID_PARAMETER);
            }
            ask(&mut peer, &mount, SET, file, &[7; 64], 0).await.ok();
            let there = Status::OBJECT_NAME_COLLISION;
            ask(&mut peer, &mount, SET, file, &[8; 64], 0).await.expect(there);
            for wrong in [0, 47, 49, 64] {
                let reply = ask(&mut peer, &mount, EXTEND, file, &vec![9; wrong], 0).await;
                reply.expect(Status::INVALID_PARAMETER);
            }
            ask(&mut peer, &mount, EXTEND, file, &[9; 48], 0).await.ok();
            let id = [vec![7; 16], vec![9; 48]].concat();
            ask(&mut peer, &mount, GET, file, &[], 63).await.expect(Status::INVALID_PARAMETER);
            for code in [GET, MAKE] {
                assert_eq!(output(ask(&mut peer, &mount, code, file, &[], 64).await.ok()), id);
            }
            ask(&mut peer, &mount, DELETE, file, &[], 0).await.ok();
            ask(&mut peer, &mount, GET, file, &[], 64).await.expect(none);
            peer.close(&mount, file).await;
        }
    });
}

#[test]
fn who_may_not_restore_sets_no_object_id() {
    in_world(async |world| {
        promote_ann(world);
        let (mut bob, mount) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&mount, &Want::file("f")).await;
        ask(&mut bob, &mount, SET, file, &[7; 64], 0).await.expect(Status::ACCESS_DENIED);
        ask(&mut bob, &mount, GET, file, &[], 64).await.expect(Status::OBJECTID_NOT_FOUND);
        // Bob cannot choose an object ID, but can have the server make one. A handle with only the
        // right to read attributes then returns the same ID.
        let made = output(ask(&mut bob, &mount, MAKE, file, &[], 64).await.ok());
        bob.close(&mount, file).await;
        let look = Want::existing("f").access(AccessMask::READ_ATTRIBUTES);
        let file = bob.open_file(&mount, &look).await;
        assert_eq!(output(ask(&mut bob, &mount, GET, file, &[], 64).await.ok()), made);
        ask(&mut bob, &mount, DELETE, file, &[], 0).await.expect(Status::ACCESS_DENIED);
    });
}

#[test]
fn read_only_shares_show_object_ids_and_make_none() {
    in_world(async |world| {
        world.file("f", "x");
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let readonly = peer.mount(&data.logon, "readonly").await;
        let look = Want::existing("f").access(AccessMask::READ_ATTRIBUTES);
        let shown = peer.open_file(&readonly, &look).await;
        let protected = Status::MEDIA_WRITE_PROTECTED;
        ask(&mut peer, &readonly, MAKE, shown, &[], 64).await.expect(protected);
        let file = peer.open_file(&data, &look).await;
        let made = output(ask(&mut peer, &data, MAKE, file, &[], 64).await.ok());
        for code in [MAKE, GET] {
            let told = ask(&mut peer, &readonly, code, shown, &[], 64).await;
            assert_eq!(output(told.ok()), made);
        }
    });
}

/// Where nothing can be kept there are no object ids: one made up would be that of
/// another file some day. The quota index is such a file on any volume.
#[test]
fn what_keeps_no_object_id_has_none() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let index = Want::existing("$Extend\\$Quota:$Q:$INDEX_ALLOCATION");
        let file = peer.open_file(&mount, &index.access(AccessMask::READ_DATA)).await;
        for (code, room) in [(GET, 64), (GET, 63), (MAKE, 64)] {
            let reply = ask(&mut peer, &mount, code, file, &[], room).await;
            reply.expect(Status::VOLUME_NOT_UPGRADED);
        }
    });
}

/// MS-FSA 2.1.5.10.1: what was set without an origin gets one when it is asked for.
#[test]
fn an_id_without_origin_gets_one() {
    in_world(async |world| {
        promote_ann(world);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let set = [vec![7; 16], vec![0; 32], vec![9; 16]].concat();
        ask(&mut peer, &mount, SET, file, &set, 0).await.ok();
        assert_eq!(output(ask(&mut peer, &mount, GET, file, &[], 64).await.ok()), set);
        let made = output(ask(&mut peer, &mount, MAKE, file, &[], 64).await.ok());
        assert_eq!((&made[..16], &made[32..48]), (&[7; 16][..], &[7; 16][..]));
        assert_ne!(made[16..32], [0; 16], "the volume");
        assert_eq!(made[48..], [0; 16], "no domain");
        assert_eq!(output(ask(&mut peer, &mount, GET, file, &[], 64).await.ok()), made);
    });
}
