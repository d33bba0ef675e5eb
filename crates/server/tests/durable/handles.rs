//! Durable Opens of both versions: MS-SMB2 3.3.5.9.6, .7, .10, .12, 3.3.4.6,
//! 3.3.4.7, 3.3.6.2.

use std::time::Duration;

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use files::lock_draft;
use frevo_server::internal::limits::BREAK_TIMEOUT;
use frevo_wire::command::create::{OplockLevel, ShareAccess};
use frevo_wire::create_context::{CreateContext, DurableHandleFlags, DurableRequestV2};

const DHNQ: CreateContext<'static> = CreateContext::DurableRequest;
const ALONE: ShareAccess = ShareAccess::EMPTY;
/// Read, handle and write caching.
const RWH: u32 = 7;
const RH: u32 = 3;

/// Version 1 goes with a batch oplock or a lease on the handle, else it is not
/// granted, and never on a directory.
#[test]
fn version_one_goes_with_a_handle_that_may_be_kept() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let rows = [
            (batch(Want::file("f"), &[DHNQ]), true),
            (leased(Want::file("f"), 1, RWH, &[DHNQ]), true),
            (leased(Want::file("f"), 1, 3, &[DHNQ]), true),
            (leased(Want::file("f"), 1, 5, &[DHNQ]), false),
            (with(Want::file("f"), &[DHNQ]), false),
            (Want { oplock: OplockLevel::EXCLUSIVE, ..batch(Want::file("f"), &[DHNQ]) }, false),
            (batch(Want::file("f"), &[]), false),
            (leased(Want::directory("d"), 2, 3, &[DHNQ]), false),
        ];
        for (row, (want, expected)) in rows.iter().enumerate() {
            let reply = peer.create(&mount, want).await;
            reply.ok();
            assert_eq!(is_durable(&reply), *expected, "row {row}");
            peer.close(&mount, files::file_id(&reply)).await;
        }
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

/// The time that is granted: what was asked for, no more than 300 seconds.
#[test]
fn version_two_says_for_how_long() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for (asked, granted) in [
            (0, 180_000),
            (5_000, 5_000),
            (299_999, 299_999),
            (300_000, 300_000),
            (300_001, 300_000),
            (u32::MAX, 300_000),
        ] {
            let request = DurableRequestV2 {
                timeout: asked,
                flags: DurableHandleFlags::PERSISTENT,
                create_guid: guid(3),
            };
            let contexts = [CreateContext::DurableRequestV2(request)];
            let reply = peer.create(&mount, &leased(Want::file("f"), 1, RWH, &contexts)).await;
            // The share is not continuously available, so the client gets a durable handle, but no
            // persistent one.
            assert_eq!(durable_v2(&reply), Some((Duration::from_millis(granted), false)));
            peer.close(&mount, files::file_id(&reply)).await;
        }
        let reply = peer.create(&mount, &with(Want::file("f"), &[dh2q(guid(3), false)])).await;
        assert_eq!(durable_v2(&reply), None);
        peer.close(&mount, files::file_id(&reply)).await;
    });
}

/// Both versions, with both kinds of promise: lock, lease and rights are there
/// again; another user, another CreateGuid, another key get nothing.
#[test]
fn durable_opens_are_taken_up_with_all_they_had() {
    for second in [false, true] {
        for lease in [false, true] {
            in_world(async |world| {
                let (mut peer, mount) = world.session("ann", &Offer::default()).await;
                let client = peer.guid;
                let ask = |contexts: &[CreateContext<'_>]| {
                    let want = Want::file("f").sharing(ALONE);
                    if lease { leased(want, 1, RWH, contexts) } else { batch(want, contexts) }
                };
                let request = if second { dh2q(guid(3), false) } else { DHNQ };
                let reply = peer.create(&mount, &ask(&[request])).await;
                let (file, had) = (files::file_id(&reply), caches(&reply));
                assert!(is_durable(&reply) || durable_v2(&reply).is_some());
                peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
                drop(peer);
                lost(world, 1).await;
                let reconnect = |create: u8| {
                    if second { dh2c(file, guid(create), false) } else { dhnc(file) }
                };
                let (mut thief, theirs) = back(world, client, "bob", "data").await;
                let stolen = thief.create(&theirs, &ask(&[reconnect(3)])).await;
                stolen.expect(Status::ACCESS_DENIED);
                let (mut peer, mount) = back(world, client, "ann", "data").await;
                if second {
                    let wrong = peer.create(&mount, &ask(&[reconnect(4)])).await;
                    wrong.expect(Status::OBJECT_NAME_NOT_FOUND);
                }
                if lease {
                    let key = leased(Want::existing("f"), 9, RWH, &[reconnect(3)]);
                    peer.create(&mount, &key).await.expect(Status::OBJECT_NAME_NOT_FOUND);
                    let name = leased(Want::existing("g"), 1, RWH, &[reconnect(3)]);
                    peer.create(&mount, &name).await.expect(Status::INVALID_PARAMETER);
                    let (mut far, there) = back(world, guid(0x66), "ann", "data").await;
                    let elsewhere = far.create(&there, &ask(&[reconnect(3)])).await;
                    elsewhere.expect(Status::OBJECT_NAME_NOT_FOUND);
                }
                let reply = peer.create(&mount, &ask(&[reconnect(3)])).await;
                reply.ok();
                assert_eq!(caches(&reply), had, "second {second}, lease {lease}");
                let file = files::file_id(&reply);
                let taken = peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await;
                taken.expect(Status::LOCK_NOT_GRANTED);
                peer.write(&mount, file, 0, b"mine").await;
                peer.close(&mount, file).await;
                assert_eq!(world.server.durables.counts(), (0, 0));
            });
        }
    }
}

/// Byte ranges of a client that is away shall not stand in the way of those who share the file:
/// a lease that lets them open it keeps an Open without ranges only.
#[test]
fn ranges_under_a_shared_lease_are_not_kept() {
    for (state, locks, is_kept) in [(RH, true, false), (RH, false, true), (RWH, true, true)] {
        in_world(async |world| {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let client = peer.guid;
            let want = leased(Want::file("f"), 1, state, &[dh2q(guid(3), false)]);
            let reply = peer.create(&mount, &want).await;
            let file = files::file_id(&reply);
            assert!(durable_v2(&reply).is_some());
            if locks {
                peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
            }
            drop(peer);
            lost(world, usize::from(is_kept)).await;
            let (mut peer, mount) = back(world, client, "ann", "data").await;
            let again = leased(Want::existing("f"), 1, state, &[dh2c(file, guid(3), false)]);
            let reply = peer.create(&mount, &again).await;
            reply.expect(if is_kept { Status::SUCCESS } else { Status::OBJECT_NAME_NOT_FOUND });
        });
    }
}

/// A client whose new connection is faster than the end of its old one gets its
/// Open, also one of version 1 by DH2C with the CreateGuid that it has, none.
#[test]
fn a_reconnect_that_comes_before_the_end_of_the_old_connection_waits_for_it() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let client = peer.guid;
        let ask = |contexts: &[CreateContext<'_>]| leased(Want::file("f"), 1, RWH, contexts);
        let file = peer.open_file(&mount, &ask(&[DHNQ])).await;
        for reconnect in [dhnc(file), dh2c(file, guid(0), false)] {
            let (mut next, own) = back(world, client, "ann", "data").await;
            let draft = ask(&[reconnect]).draft();
            let id = next.send(vec![own.put(draft)], own.via()).await[0];
            next.expect_silence(Duration::from_millis(100)).await;
            drop(std::mem::replace(&mut peer, next));
            let reply = peer.final_reply(id).await;
            reply.ok();
            assert_eq!(files::file_id(&reply).persistent, file.persistent);
            assert_eq!(world.server.durables.counts(), (1, 0));
        }
        // The old session still exists, so another session cannot take its handle over.
        let (mut next, own) = back(world, client, "ann", "data").await;
        let late = next.create(&own, &ask(&[dhnc(file)])).await;
        late.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}

/// MS-SMB2 3.3.4.6, 3.3.4.7: another client that wants the file gets it, for the absent client
/// cannot give back its caches; then nothing is left to take up.
#[test]
fn others_get_the_file_of_a_client_that_is_away() {
    for lease in [false, true] {
        in_world(async |world| {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let client = peer.guid;
            let want = Want::file("f").sharing(ALONE);
            let ask = |contexts: &[CreateContext<'_>]| {
                let want = want.clone();
                if lease { leased(want, 1, RWH, contexts) } else { batch(want, contexts) }
            };
            let file = peer.open_file(&mount, &ask(&[dh2q(guid(3), false)])).await;
            drop(peer);
            lost(world, 1).await;
            let (mut other, theirs) = world.session("bob", &Offer::default()).await;
            let began = std::time::Instant::now();
            let taken = other.open_file(&theirs, &want).await;
            assert!(began.elapsed() < BREAK_TIMEOUT / 2, "nobody is waited for");
            assert_eq!(world.server.durables.counts(), (0, 0));
            let (mut peer, mount) = back(world, client, "ann", "data").await;
            let late = peer.create(&mount, &ask(&[dh2c(file, guid(3), false)])).await;
            late.expect(Status::OBJECT_NAME_NOT_FOUND);
            other.close(&theirs, taken).await;
        });
    }
}

/// A durable Open whose promise was broken before the connection was lost is
/// not kept (MS-SMB2 3.3.7.1).
#[test]
fn what_was_broken_before_is_not_kept() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = batch(Want::file("f"), &[DHNQ]);
        let reply = peer.create(&mount, &want).await;
        assert!(is_durable(&reply));
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let plain = Want::existing("f");
        let open = other.create(&theirs, &plain);
        let gone = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(peer);
        };
        let (reply, ()) = tokio::join!(open, gone);
        reply.ok();
        assert_eq!(world.server.durables.counts(), (0, 0));
        other.close(&theirs, files::file_id(&reply)).await;
    });
}

/// MS-SMB2 3.3.6.2: after 120 seconds version 1 is over.
#[test]
fn the_time_of_version_one() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.open_file(&mount, &batch(Want::file("f"), &[DHNQ])).await;
        drop(peer);
        lost(world, 1).await;
        tokio::time::sleep(Duration::from_secs(119)).await;
        assert_eq!(world.server.durables.counts(), (1, 1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
        assert!(world.path("f").exists());
    });
}
