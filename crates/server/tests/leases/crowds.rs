//! Files with more leases than anybody needs. Others must not wait for them.

use crate::client::files::rename_draft;
use crate::client::*;
use crate::*;

/// Leases of one file: more than a core notifies at once.
const LEASES: usize = BREAKS_PASSED_ON + 100;

/// Each break had a task that waited for its acknowledgment, and each acknowledgment woke all of them: with
/// 13,000 leases of one file it held its core for 260 ms. Now one task waits for all.
#[test]
fn r5_breaks_of_one_file_have_one_timer() {
    in_world(async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        for holder in 1..=LEASES {
            let key = LeaseKey((holder as u128).to_le_bytes());
            let want = Want::file("f").access(AccessMask::READ_ATTRIBUTES);
            one.on(&mine, with_lease(&want, key, rh())).await.ok();
        }
        let file = two.open_file(&theirs, &Want::existing("f")).await;
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let (before, carried_out) = (tasks(), world.server.blocking_pool.carried_out());
        let rename = rename_draft(FileInfoClass::RENAME, file, "g", false);
        let waiting = start(&mut two, &theirs, rename).await;
        let mut told = std::collections::BTreeSet::new();
        for _ in 0..LEASES {
            told.insert(lease_notification(&mut one).await.lease_key.0);
        }
        assert_eq!(told.len(), LEASES, "each is told once");
        assert!(world.server.blocking_pool.carried_out() > carried_out, "the rest on a thread");
        assert_eq!(tasks(), before + 1, "one timer");
        for key in told {
            one.on(&mine, lease_ack(LeaseKey(key), R)).await.ok();
        }
        two.final_reply(waiting).await.ok();
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    });
}
