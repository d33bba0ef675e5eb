//! Leases of two accounts that send one ClientGuid and one LeaseKey: by chance, by
//! malice, or since several users share a machine. MS-SMB2 3.3.1.11.

use frevo_wire::dtyp::Guid;

use crate::client::files::read_draft;
use crate::client::*;
use crate::*;

const CLIENT: Guid = Guid([0x31; 16]);

async fn session(world: &World, user: &str) -> (Peer, Mount) {
    let mut peer = world.connect();
    peer.guid = CLIENT;
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    let mount = peer.mount(&logon, "data").await;
    (peer, mount)
}

/// The holder gives its caches back before the other account sees the file, and loses the rest
/// when that account writes.
#[test]
fn x6_another_account_with_the_same_names_is_another_client() {
    in_frozen_world(settings(), async |world| {
        let (mut ann, anns) = session(world, "ann").await;
        let got = ann.on(&anns, with_lease(&Want::file("f"), key(1), rwh())).await;
        assert_eq!(lease(&got).lease.lease_state, rwh());
        let file = files::file_id(&got);
        let (mut bob, bobs) = session(world, "bob").await;
        let wanted = with_lease(&Want::file("f"), key(1), rwh());
        let waiting = start(&mut bob, &bobs, wanted).await;
        bob.interim().await;
        let told = lease_notification(&mut ann).await;
        assert_eq!((told.lease_key, told.new_lease_state), (key(1), rh()));
        // The lease is ann's, so bob's acknowledgment of the same key is refused.
        bob.on(&bobs, lease_ack(key(1), rh())).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        ann.on(&anns, write_draft(file, 0, b"cached")).await.ok();
        ann.on(&anns, lease_ack(key(1), rh())).await.ok();
        let reply = bob.final_reply(waiting).await;
        let theirs = files::file_id(&reply);
        assert_eq!(lease(&reply).lease.lease_state, rh());
        let seen = bob.on(&bobs, read_draft(theirs, 0, 100)).await;
        assert_eq!(files::data(seen.ok()), b"cached");
        bob.on(&bobs, write_draft(theirs, 0, b"after!")).await.ok();
        let told = lease_notification(&mut ann).await;
        assert_eq!((told.lease_key, told.new_lease_state), (key(1), NONE));
        // Bob wrote the data, so bob's own lease must not break.
        bob.expect_silence(Duration::from_secs(1)).await;
    });
}

/// A key that another account has on another file shuts nobody out.
#[test]
fn x6_a_key_is_not_taken_by_another_account() {
    in_world(async |world| {
        let (mut bob, bobs) = session(world, "bob").await;
        bob.on(&bobs, with_lease(&Want::file("squat"), key(1), rwh())).await.ok();
        let (mut ann, anns) = session(world, "ann").await;
        let got = ann.on(&anns, with_lease(&Want::file("f"), key(1), rwh())).await;
        assert_eq!(lease(&got).lease.lease_state, rwh());
        bob.on(&bobs, with_lease(&Want::file("f"), key(1), rwh()))
            .await
            .expect(Status::INVALID_PARAMETER);
    });
}

/// A machine with several users has one connection for them. It may acknowledge the
/// break of one user's lease in the session of another one.
#[test]
fn the_users_of_one_machine_acknowledge_for_each_other() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, anns) = session(world, "ann").await;
        let logon = peer.log_on("bob").await;
        let bobs = peer.mount(&logon, "data").await;
        peer.on(&anns, with_lease(&Want::file("f"), key(1), rwh())).await.ok();
        let (mut other, theirs) = world.session("ann", &Offer::default()).await;
        let waiting = start(&mut other, &theirs, Want::file("f").draft()).await;
        other.interim().await;
        let told = lease_notification(&mut peer).await;
        assert_eq!(told.new_lease_state, rh());
        peer.on(&bobs, lease_ack(key(1), rh())).await.ok();
        other.final_reply(waiting).await.ok();
        peer.on(&bobs, lease_ack(key(1), rh())).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        peer.on(&anns, lease_ack(key(1), rh())).await.expect(Status::UNSUCCESSFUL);
    });
}

/// The lease on a directory is its account's too: what the other account changes in it,
/// with the directory's key as its ParentLeaseKey, breaks it.
#[test]
fn x6_a_parent_key_hides_no_change_of_another_account() {
    in_frozen_world(settings(), async |world| {
        std::fs::create_dir(world.path("d")).unwrap();
        let (mut ann, anns) = session(world, "ann").await;
        ann.on(&anns, with_lease(&Want::directory("d"), key(1), rh())).await.ok();
        let (mut bob, bobs) = session(world, "bob").await;
        let wanted = with_parent(&Want::file("d\\new"), key(2), rwh(), Some(key(1)));
        bob.on(&bobs, wanted).await.ok();
        let told = lease_notification(&mut ann).await;
        assert_eq!((told.lease_key, told.new_lease_state), (key(1), NONE));
    });
}

/// Sessions of one account with one ClientGuid are one client: they share a lease. Its break
/// comes once, over one of them, and either acknowledges it, also when the other is gone.
#[test]
fn x6_sessions_of_one_account_share_a_lease_and_its_break_comes_once() {
    in_frozen_world(settings(), async |world| {
        for is_told_one_gone in [false, true] {
            let (mut one, ones) = session(world, "ann").await;
            // "ann" and "ANN" are the same account, so both sessions share one lease.
            let (mut two, twos) = session(world, "ANN").await;
            let wanted = || with_lease(&Want::file("f"), key(1), rwh());
            assert_eq!(lease(&one.on(&ones, wanted()).await).lease.lease_state, rwh());
            assert_eq!(lease(&two.on(&twos, wanted()).await).lease.lease_state, rwh());
            let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
            let waiting = start(&mut bob, &bobs, Want::file("f").draft()).await;
            bob.interim().await;
            let told = lease_notification(&mut one).await;
            assert_eq!((told.lease_key, told.new_lease_state), (key(1), rh()));
            two.expect_silence(Duration::from_secs(1)).await;
            let mut one = (!is_told_one_gone).then_some(one);
            two.expect_silence(Duration::from_secs(1)).await;
            two.on(&twos, lease_ack(key(1), rh())).await.ok();
            let reply = bob.final_reply(waiting).await;
            // The remaining read lease belongs to both sessions, so bob's write breaks it once, not
            // twice.
            bob.on(&bobs, write_draft(files::file_id(&reply), 0, b"changed")).await.ok();
            let holder = one.as_mut().unwrap_or(&mut two);
            assert_eq!(lease_notification(holder).await.new_lease_state, NONE);
            two.expect_silence(Duration::from_secs(1)).await;
        }
    });
}
