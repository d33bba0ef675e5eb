//! L4: breaks whose channel is dead or slow. MS-SMB2 3.3.4.7.

use crate::client::logon::Setup;
use crate::client::*;
use crate::*;

/// A lease of Ann's, who has two channels, and a CREATE of Bob's that has broken it.
async fn broken(world: &World) -> ([(Peer, Mount); 2], (Peer, Mount), u64) {
    let (mut first, mine) = world.session("ann", &Offer::default()).await;
    let mut second = world.connect();
    second.guid = first.guid;
    second.negotiate(&Offer::default()).await;
    let bound = second.try_log_on(Setup::binding("ann", &mine.logon)).await.expect("bound");
    let also_mine = mine.on(&bound);
    let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
    first.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await.ok();
    let waiting = start(&mut bob, &theirs, Want::file("f").draft()).await;
    bob.interim().await;
    ([(first, mine), (second, also_mine)], (bob, theirs), waiting)
}

/// The first channel takes nothing: the second hears of the break within a second, and the first
/// is not given up for that.
#[test]
fn a_break_goes_to_another_channel_soon() {
    in_frozen_world(settings(), async |world| {
        let ([(mut first, mine), (mut second, also_mine)], (mut bob, _theirs), waiting) =
            broken(world).await;
        let began = Instant::now();
        let told = lease_notification(&mut second).await;
        assert_eq!(told.new_lease_state, rh());
        assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
        // The break was also sent over the first channel, where the client acknowledges it. Then no
        // further break is sent.
        assert_eq!(lease_notification(&mut first).await, told);
        first.on(&mine, lease_ack(key(1), rh())).await.ok();
        bob.final_reply(waiting).await.ok();
        second.expect_silence(Duration::from_secs(10)).await;
        second.on(&also_mine, Draft::echo()).await.ok();
        first.on(&mine, Draft::echo()).await.ok();
    });
}

/// A channel that takes nothing for longer is dead; the session goes on over the other.
#[test]
fn a_channel_that_never_takes_a_break_ends() {
    in_frozen_world(settings(), async |world| {
        let ([(mut first, _), (mut second, also_mine)], (mut bob, _theirs), waiting) =
            broken(world).await;
        lease_notification(&mut second).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        // The break arrives, then the first channel ends. The second channel can still acknowledge.
        lease_notification(&mut first).await;
        first.expect_disconnect().await;
        second.on(&also_mine, lease_ack(key(1), rh())).await.ok();
        bob.final_reply(waiting).await.ok();
    });
}
