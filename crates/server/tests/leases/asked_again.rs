//! A request that waits for breaks looks at the leases again when all have ended: MS-FSA
//! 2.1.4.12.

use crate::client::files::rename_draft;
use crate::client::*;
use crate::*;

/// Two clients have leases that a rename must take handles from. The first gives them back and
/// asks for them again while the second has not answered: that is a new lease, of whose break
/// the client was not notified, and the rename must not wait for it without a notification.
#[test]
fn what_is_promised_while_another_gives_back_is_broken_too() {
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
        assert_eq!(lease(&again).lease.lease_state, rh(), "the client may have it again");
        three.expect_silence(Duration::from_secs(1)).await;
        two.on(&theirs, lease_ack(key(2), R)).await.ok();

        let told = lease_notification(&mut one).await;
        assert_eq!((told.current_lease_state, told.new_lease_state), (rh(), R));
        one.on(&mine, lease_ack(key(1), R)).await.ok();
        three.final_reply(waiting).await.ok();
        assert!(world.path("g").exists() && !world.path("f").exists());
    });
}
