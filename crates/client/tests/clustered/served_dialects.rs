//! A cluster of Frevo's own nodes and its client: an older dialect while nodes are upgraded, the race of
//! nodes that have heard of the new one with those that have not, and owners that nodes name.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::nodes;

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use frevo_client::{Cause, Credentials, Dialect, Options, ServerName, Share};
use frevo_proto::Dialect as Wire;
use nodes::{CLUSTER, Nodes, SHARES, with_nodes_of};

/// The nodes know the largest dialect of the cluster from now on.
fn tell(nodes: &Nodes, numbers: impl IntoIterator<Item = usize>, max: Wire) {
    for number in numbers {
        nodes.all[number].embedded.set_cluster_dialect(Some(max));
    }
}

/// All nodes know the owner of a share.
fn tell_owner(nodes: &Nodes, share: &str, owner: usize) {
    let there = SocketAddr::from((Ipv4Addr::new(192, 0, 2, owner as u8), 445));
    for (number, node) in nodes.all.iter().enumerate() {
        let addresses = if number == owner { vec![] } else { vec![there] };
        node.embedded.set_share_owner(&[share], &addresses);
    }
}

fn dialect(share: &Share) -> Dialect {
    share.session().info().unwrap().dialect
}

fn with_cluster(count: usize, test: impl AsyncFnOnce(&Arc<Nodes>)) {
    with_nodes_of(count, |share| share.clustered(true), test);
}

/// From 3.0.2 to 3.1.1, with a file open all the time. The file stays with the older dialect, and what begins
/// later has the newer one.
#[test]
fn a_client_goes_on_while_the_dialect_is_raised() {
    with_cluster(2, async |nodes| {
        tell(nodes, 0..2, Wire::SMB_3_0_2);
        nodes.take(0, "lasting").await;
        let share = nodes.share("lasting").await;
        assert_eq!(dialect(&share), Dialect::Smb302);
        let file = share.create("file").await.unwrap();
        file.write_all_at(b"a", 0).await.unwrap();
        nodes.fail_over("lasting", 0, 1).await;
        file.write_all_at(b"b", 1).await.unwrap();
        assert_eq!(dialect(&share), Dialect::Smb302);
        nodes.revive(0);
        tell(nodes, 0..2, Wire::SMB_3_1_1);
        nodes.hand_over("lasting", 1, 0).await;
        file.write_all_at(b"c", 2).await.unwrap();
        assert_eq!(dialect(&share), Dialect::Smb302, "the file is open");
        file.close().await.unwrap();
        let other = nodes.share("lasting").await;
        assert_eq!(dialect(&other), Dialect::Smb311);
        nodes.hand_over("lasting", 0, 1).await;
        assert_eq!(share.read("file").await.unwrap(), b"abc");
        assert_eq!(dialect(&share), Dialect::Smb311, "no file was open when it moved");
    });
}

/// The race of a raise: one node has heard of it, the others have not. A client that was let in with the newer
/// dialect is let in with it everywhere.
#[test]
fn a_client_never_falls_below_the_dialect_that_it_was_let_in_with() {
    with_cluster(3, async |nodes| {
        for round in 0..20 {
            tell(nodes, 0..3, Wire::SMB_3_0_2);
            nodes.revive(0);
            nodes.take(0, "lasting").await;
            tell(nodes, [0], Wire::SMB_3_1_1);
            let share = nodes.share("lasting").await;
            assert_eq!(dialect(&share), Dialect::Smb311, "{round}");
            let file = share.create(&format!("file{round}")).await.unwrap();
            nodes.hand_over("lasting", 0, 1).await;
            file.write_all_at(b"a", 0).await.unwrap();
            assert_eq!(dialect(&share), Dialect::Smb311, "{round}: a node that has not heard");
            nodes.fail_over("lasting", 1, 2).await;
            nodes.revive(1);
            file.write_all_at(b"b", 1).await.unwrap();
            assert_eq!(dialect(&share), Dialect::Smb311, "{round}: another one");
            let again = share.session().share("lasting").await.unwrap();
            assert_eq!(dialect(&again), Dialect::Smb311, "{round}: the same client");
            file.close().await.unwrap();
            share.log_off().await;
            nodes.all[2].embedded.lose_share("lasting").unwrap();
        }
    });
}

/// Shares of the node alone have no part in it, and demands of the user hold.
#[test]
fn the_dialect_of_a_cluster_is_that_of_its_shares() {
    with_cluster(1, async |nodes| {
        tell(nodes, [0], Wire::SMB_3_0);
        for share in SHARES.into_iter().chain(["plain"]) {
            nodes.take(0, share).await;
        }
        let session = nodes.session(Options::new(), CLUSTER).await;
        let plain = session.share("plain").await.unwrap();
        let [one, two] = [SHARES[0], SHARES[1]].map(|name| session.share(name));
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        assert_eq!(dialect(&plain), Dialect::Smb311);
        assert_eq!([dialect(&one), dialect(&two)], [Dialect::Smb300; 2]);
        assert!(!one.session().is_same(two.session()));
        one.write("a", "x").await.unwrap();
        assert_eq!(plain.read("a").await.unwrap(), b"x");
        assert!(one.session().info().unwrap().signed);
        let client = nodes.client(Options::new().oldest(Dialect::Smb302));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new(CLUSTER), user).await.unwrap();
        let error = session.share(SHARES[0]).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::ClusterDialect(Dialect::Smb300)), "{error}");
    });
}

/// A share that moves is followed to the node that the others name, without asking all of them.
#[test]
fn a_client_goes_to_the_owner_that_a_node_names() {
    // On a busy machine a node does not answer in time, and the next one is asked beside it.
    assert!((0..20).any(|_| asks_one_node_for_the_owner()), "all nodes are asked each time");
}

/// Moves a share four times. Returns true if the client found it each time by asking one other node.
fn asks_one_node_for_the_owner() -> bool {
    let is_direct = Cell::new(true);
    with_cluster(4, async |nodes| {
        nodes.take(0, "lasting").await;
        tell_owner(nodes, "lasting", 0);
        let share = nodes.share("lasting").await;
        let file = share.create("file").await.unwrap();
        let mut at = 0;
        for (step, next) in [3, 1, 2, 0].into_iter().enumerate() {
            let before = nodes.dialed();
            nodes.hand_over("lasting", at, next).await;
            tell_owner(nodes, "lasting", next);
            file.write_all_at(&[step as u8], step as u64).await.unwrap();
            let dialed: Vec<_> =
                nodes.dialed().iter().zip(before).map(|(now, before)| now - before).collect();
            // One node is asked, which names the owner; without that each of them would be.
            if dialed[next] != 1 || dialed.iter().sum::<usize>() > 2 {
                is_direct.set(false);
            }
            at = next;
        }
        file.close().await.unwrap();
        assert_eq!(std::fs::read(nodes.path("file")).unwrap(), [0, 1, 2, 3]);
    });
    is_direct.get()
}
