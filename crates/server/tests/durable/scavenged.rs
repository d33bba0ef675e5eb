//! L5: what has a time has it from when the waiting began, and of a client that comes
//! back and the scavenger one has the Open.

use std::time::Duration;

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use files::lock_draft;
use frevo_wire::create_context::CreateContext;
use tokio::time::Instant;

/// However long a lease has been held, its holder has 35 seconds from the break on;
/// and a durable Open its time from when its connection was lost.
#[test]
fn l5_times_are_counted_from_the_break_and_from_the_loss() {
    for held in [0, 34, 36, 3_600] {
        in_frozen_world(settings(), async |world| {
            let (mut one, mine) = world.session("ann", &Offer::default()).await;
            let (mut two, theirs) = world.session("bob", &Offer::default()).await;
            one.create(&mine, &leased(Want::file("f"), 1, 7, &[])).await.ok();
            tokio::time::sleep(Duration::from_secs(held)).await;
            let began = Instant::now();
            let open = theirs.put(Want::file("f").draft());
            let waiting = two.send(vec![open], theirs.via()).await[0];
            // The holder of the lease does not acknowledge the break, so the other client waits
            // until the break times out.
            one.reply().await;
            two.final_reply(waiting).await.ok();
            assert_eq!(began.elapsed().as_secs(), 35, "held for {held} s");
        });
        in_frozen_world(settings(), async |world| {
            let (mut one, mine) = world.session("ann", &Offer::default()).await;
            let contexts = [CreateContext::DurableRequest];
            one.create(&mine, &batch(Want::file("f"), &contexts)).await.ok();
            tokio::time::sleep(Duration::from_secs(held)).await;
            drop(one);
            lost(world, 1).await;
            tokio::time::sleep(Duration::from_secs(119)).await;
            assert_eq!(world.server.durables.counts(), (1, 1), "held for {held} s");
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(world.server.durables.counts(), (0, 0), "held for {held} s");
        });
    }
}

/// A thousand Opens whose time is over at the same moment, while their client comes
/// back for each: some it gets, with their locks; the others are closed, and their
/// locks are free. There is no third outcome, and none is had twice.
#[test]
fn l5_of_a_reconnect_and_the_scavenger_one_has_the_open() {
    const OPENS: usize = 400;
    let (mut taken, mut scavenged) = (0, 0);
    for late in [-8_i64, -4, 0, 4, 8] {
        in_world(async |world| {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let client = peer.guid;
            let mut files = Vec::new();
            for number in 0..OPENS {
                let file = peer.open_file(&mount, &Want::file(&format!("f{number}"))).await;
                peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
                assert_eq!(make_resilient(&mut peer, &mount, file, 1_000).await, Status::SUCCESS);
                files.push(file);
            }
            let (mut twin, own) = back(world, client, "ann", "data").await;
            drop(peer);
            lost(world, OPENS).await;
            // The clients reconnect when the timeout is just ending, so some of them come too late.
            let wait = u64::try_from(1_000 - 60 + late).unwrap();
            tokio::time::sleep(Duration::from_millis(wait)).await;
            for (number, file) in files.into_iter().enumerate() {
                let name = format!("f{number}");
                let reply = twin.create(&own, &with(Want::existing(&name), &[dhnc(file)])).await;
                let again = twin.create(&own, &with(Want::existing(&name), &[dhnc(file)])).await;
                again.expect(Status::OBJECT_NAME_NOT_FOUND);
                let other = twin.open_file(&own, &Want::existing(&name)).await;
                let lock = twin.on(&own, lock_draft(other, &[(0, 4, EXCLUSIVE)])).await;
                if reply.status() == Status::SUCCESS {
                    taken += 1;
                    lock.expect(Status::LOCK_NOT_GRANTED);
                    let own_file = files::file_id(&reply);
                    twin.write(&own, own_file, 0, b"kept").await;
                    twin.close(&own, own_file).await;
                    // The reconnected Open is closed, so its lock is free again.
                    twin.on(&own, lock_draft(other, &[(0, 4, EXCLUSIVE)])).await.ok();
                } else {
                    scavenged += 1;
                    reply.expect(Status::OBJECT_NAME_NOT_FOUND);
                    lock.ok();
                }
                twin.close(&own, other).await;
            }
            assert_eq!(world.server.durables.counts(), (0, 0));
        });
    }
    assert!(taken > 0 && scavenged > 0, "{taken} taken up, {scavenged} scavenged");
}
