//! A request that waits for breaks looks at the leases again when all have ended: MS-FSA
//! 2.1.4.12.

use crate::client::files::rename_draft;
use crate::client::*;
use crate::*;

/// Two clients have leases that a rename must take handles from. The first gives them back and
/// asks for them again while the second has not answered: it gets what the rename does not wait for,
/// so that the rename needs no second answer of it.
#[test]
fn what_a_rename_waits_for_is_not_granted_again() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let (mut three, his) = world.session("bob", &Offer::default()).await;
        one.on(&mine, with_lease(&Want::file("f"), key(1), rh())).await.ok();
        two.on(&theirs, with_lease(&Want::existing("f"), key(2), rh())).await.ok();
        let file = three.open_file(&his, &Want::existing("f")).await;
        let rename = rename_draft(FileInfoClass::RENAME, file, "g", false);
        let waiting = start(&mut three, &his, rename).await;
        for (peer, byte) in [(&mut one, 1), (&mut two, 2)] {
            let told = lease_notification(peer).await;
            assert_eq!((told.lease_key, told.new_lease_state), (key(byte), R));
        }

        one.on(&mine, lease_ack(key(1), R)).await.ok();
        let again = one.on(&mine, with_lease(&Want::existing("f"), key(1), rh())).await;
        assert_eq!(lease(&again).lease.lease_state, R, "the rename waits for the rest");
        three.expect_silence(Duration::from_secs(1)).await;
        two.on(&theirs, lease_ack(key(2), R)).await.ok();

        three.final_reply(waiting).await.ok();
        assert!(world.path("g").exists() && !world.path("f").exists());
        one.expect_silence(Duration::from_secs(1)).await;
        let again = one.on(&mine, with_lease(&Want::existing("g"), key(1), rh())).await;
        assert_eq!(lease(&again).lease.lease_state, rh(), "nobody waits any more");
    });
}
