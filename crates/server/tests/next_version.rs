//! A server that stands for the next version, whose records have a form that this version does not read. Alone
//! in its process, which stands for that version as a whole.
#![cfg(feature = "test-hooks")]
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "durable/asking.rs"]
mod asking;
#[path = "client/mod.rs"]
mod client;
#[path = "cluster/nodes.rs"]
mod nodes;

use std::time::Duration;

use frevo_store::state::{RecordForm, be_the_next_version};
use nodes::{BOTH, Cluster, cluster, comes, opened, taken_up};

const OF_BOTH: RecordForm = RecordForm(5);

/// The number of the form of each record.
fn forms(cluster: &Cluster) -> Vec<u8> {
    cluster.store.records().into_iter().map(|(_, bytes)| bytes[3]).collect()
}

/// Records are in the form that all servers read, and are written again when one comes that reads less. The
/// next server takes the handles up, whichever form they have.
#[test]
fn records_go_with_the_servers_that_may_have_the_share() {
    be_the_next_version();
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        assert_eq!(forms(cluster), *b"6", "no other server is known");
        first.embedded.set_record_form(OF_BOTH);
        assert!(comes(|| forms(cluster) == *b"5").await, "{:?}", forms(cluster));
        first.embedded.drain_shares(&BOTH, Duration::from_secs(5)).await.unwrap();
        first.embedded.leave_shares(&BOTH, &[]).await.unwrap();
        drop((peer, mount));
        assert_eq!(forms(cluster), *b"5");

        let second = cluster.node();
        second.embedded.set_record_form(OF_BOTH);
        assert_eq!(second.embedded.start_shares(&BOTH).await, Ok(1));
        second.embedded.serve_shares(&BOTH, None).await.unwrap();
        let (mut peer, mount, file) = taken_up(&second, file).await;
        assert_eq!(forms(cluster), *b"5");
        second.embedded.set_record_form(RecordForm::newest());
        assert_eq!(forms(cluster), *b"5", "a record is written anew when it changes");
        let lock = client::files::lock_draft(file, &[(8, 4, client::world::EXCLUSIVE)]);
        peer.on(&mount, lock).await.ok();
        assert!(comes(|| forms(cluster) == *b"6").await, "{:?}", forms(cluster));
        second.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));

        let third = cluster.node();
        assert_eq!(third.embedded.start_shares(&BOTH).await, Ok(1));
        third.embedded.serve_shares(&BOTH, None).await.unwrap();
        let (mut peer, mount, file) = taken_up(&third, file).await;
        peer.close(&mount, file).await;
        assert!(cluster.records().is_empty());
    });
}
