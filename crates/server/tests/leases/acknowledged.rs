//! X6: clients that may give a lease back, and the states that they may keep. MS-SMB2
//! 3.3.5.22.2.

use crate::client::*;
use crate::*;

/// A lease of Ann's that a CREATE of Bob's has broken: who has it, who waits, and for
/// what.
async fn broken(world: &World) -> ((Peer, Mount), (Peer, Mount), u64) {
    let (mut one, mine) = world.session("ann", &Offer::default()).await;
    let (mut two, theirs) = world.session("bob", &Offer::default()).await;
    one.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await.ok();
    let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
    two.interim().await;
    let told = lease_notification(&mut one).await;
    assert_eq!(told.new_lease_state, rh());
    ((one, mine), (two, theirs), waiting)
}

/// No other client can give it back, whatever ClientGuid it names: caches that are still used
/// would count as given up.
#[test]
fn x6_nobody_else_acknowledges() {
    in_frozen_world(settings(), async |world| {
        let ((mut one, mine), (mut two, theirs), waiting) = broken(world).await;
        let unknown = Status::OBJECT_NAME_NOT_FOUND;
        // The lease belongs to a client, so no other client can acknowledge its break, not even
        // with the same user.
        for user in ["ann", "bob"] {
            let (mut other, there) = world.session(user, &Offer::default()).await;
            other.on(&there, lease_ack(key(1), rh())).await.expect(unknown);
        }
        // A ClientGuid is no secret, so it is not enough. With another user the acknowledgment is
        // refused.
        let mut thief = world.connect();
        thief.guid = one.guid;
        thief.negotiate(&Offer::default()).await;
        let logon = thief.log_on("bob").await;
        let there = thief.mount(&logon, "data").await;
        for state in [rh(), R, NONE] {
            thief.on(&there, lease_ack(key(1), state)).await.expect(unknown);
        }
        // A lease key with one changed bit is refused, because it names another lease.
        for at in [0, 15] {
            let mut near = key(1);
            near.0[at] ^= 1;
            one.on(&mine, lease_ack(near, rh())).await.expect(unknown);
        }
        two.expect_silence(Duration::from_secs(1)).await;
        // The same user may acknowledge from another session or another channel of the same client.
        let mut own = world.connect();
        own.guid = one.guid;
        own.negotiate(&Offer::default()).await;
        let logon = own.log_on("ann").await;
        let again = own.mount(&logon, "data").await;
        own.on(&again, lease_ack(key(1), rh())).await.ok();
        two.final_reply(waiting).await.ok();
        two.on(&theirs, Draft::echo()).await.ok();
    });
}

/// A lease that is not breaking is not given back; a client keeps no more than the break left
/// it, and may keep less.
#[test]
fn x6_an_acknowledgment_is_of_what_was_told() {
    for kept in [rwh(), R | LeaseState::WRITE, LeaseState::WRITE, LeaseState(0x0F), LeaseState(8)] {
        in_frozen_world(settings(), async |world| {
            let ((mut one, mine), (mut two, _theirs), waiting) = broken(world).await;
            let refused = one.on(&mine, lease_ack(key(1), kept)).await;
            refused.expect(Status::REQUEST_NOT_ACCEPTED);
            two.expect_silence(Duration::from_secs(1)).await;
            one.on(&mine, lease_ack(key(1), rh())).await.ok();
            two.final_reply(waiting).await.ok();
            let late = one.on(&mine, lease_ack(key(1), rh())).await;
            late.expect(Status::UNSUCCESSFUL);
        });
    }
    for kept in [rh(), R, NONE] {
        in_frozen_world(settings(), async |world| {
            let ((mut one, mine), (mut two, _theirs), waiting) = broken(world).await;
            one.on(&mine, lease_ack(key(1), kept)).await.ok();
            two.final_reply(waiting).await.ok();
            let again = one.on(&mine, with_lease(&Want::existing("f"), key(1), NONE)).await;
            assert_eq!(lease(&again).lease.lease_state, kept);
        });
    }
}

/// An acknowledgment bears no epoch (MS-SMB2 2.2.24.2); what a CREATE says of it later
/// on is not believed either: it is counted here.
#[test]
fn x6_a_stale_epoch_is_ignored() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let first = one.on(&mine, with_lease(&Want::file("f"), key(1), R)).await;
        let began = lease(&first).epoch;
        for epoch in [0_u16, 1, began.wrapping_sub(1), began.wrapping_add(100), u16::MAX] {
            let asked = Lease { lease_key: key(1), lease_state: R, flags: LeaseFlags::EMPTY };
            let v2 = LeaseV2 { lease: asked, parent_lease_key: LeaseKey::default(), epoch };
            let contexts = CreateContexts::from_requests(&[CreateContext::LeaseV2(v2)]);
            let contexts = contexts.as_bytes().to_vec();
            let want = Want { contexts, ..Want::existing("f") };
            let again = one.on(&mine, with_oplock(&want, OplockLevel::LEASE)).await;
            assert_eq!(lease(&again).epoch, began, "said {epoch}");
        }
        // The open changes the lease, which raises its epoch by one.
        let more = one.on(&mine, with_lease(&Want::existing("f"), key(1), rh())).await;
        assert_eq!(lease(&more).epoch, began.wrapping_add(1));
    });
}
