//! FileId.Persistent and SessionId over the servers of a cluster.

use std::collections::BTreeSet;

use crate::asking::*;
use crate::client::*;
use crate::nodes::*;

#[test]
fn two_servers_never_give_the_same_number() {
    cluster(async |cluster| {
        let (mut files, mut sessions) = (BTreeSet::new(), BTreeSet::new());
        let mut count = 0;
        for _ in 0..3 {
            let node = cluster.owner().await;
            for at in 0..5_u8 {
                let (mut peer, mount) = back(&node, guid(0x40 + at), "ann", "lasting").await;
                assert!(sessions.insert(mount.logon.id));
                for name in ["a", "b", "c"] {
                    let file = peer.open_file(&mount, &Want::file(name)).await;
                    assert!(files.insert(file.persistent));
                    assert_eq!(file.persistent >> 32, mount.logon.id >> 32, "one start of a node");
                    count += 1;
                }
            }
            node.embedded.stop_shares(&BOTH).await.unwrap();
        }
        assert_eq!((files.len(), sessions.len()), (count, 15));
    });
}

/// A server of a cluster without a number refuses what needs one; shares of its own need none.
#[test]
fn a_server_without_numbers_makes_no_handles() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount) = back(&node, CLIENT, "ann", "lasting").await;
        let own = peer.mount(&mount.logon, "own").await;
        node.numbers.set_empty(true);
        let refused = peer.create(&mount, &Want::file("f")).await;
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        assert_eq!(cluster.content("f"), None);
        peer.open_file(&own, &Want::file("g")).await;
        let mut other = node.connect();
        other.negotiate(&Offer::default()).await;
        let refused = other.try_log_on(Setup::of("bob")).await.err().unwrap();
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        node.numbers.set_empty(false);
        peer.open_file(&mount, &Want::file("f")).await;
    });
}
