//! The fence of dialects: MS-SMB2 3.3.5.7, 2.2.2, 2.2.9.

use crate::client::*;
use crate::nodes::*;
use frevo_wire::command::tree_connect::TreeConnectFlags as Flags;

/// The maximum that is just below a dialect.
const FENCED: [(Dialect, Dialect); 4] = [
    (Dialect::SMB_3_1_1, Dialect::SMB_3_0_2),
    (Dialect::SMB_3_0_2, Dialect::SMB_3_0),
    (Dialect::SMB_3_0, Dialect::SMB_2_1),
    (Dialect::SMB_2_1, Dialect::SMB_2_0_2),
];

/// The body of the refusal, in the form of a dialect.
fn refusal(dialect: Dialect, max: Dialect) -> Vec<u8> {
    let max = max.0.to_le_bytes();
    match dialect {
        // StructureSize 9, ErrorContextCount 1, ByteCount 10; ErrorDataLength 2, ErrorId 0, the dialect.
        Dialect::SMB_3_1_1 => {
            [&[9, 0, 1, 0, 10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0][..], &max].concat()
        }
        // ErrorContextCount 0, ByteCount 2.
        _ => [&[9, 0, 0, 0, 2, 0, 0, 0][..], &max].concat(),
    }
}

#[test]
fn a_dialect_above_the_maximum_is_refused_with_the_maximum() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        for (dialect, max) in FENCED {
            let ask = |share: &str| Asking::of(dialect, share, Flags::EMPTY);
            node.embedded.set_cluster_dialect(Some(max));
            let refused = (Status::SMB_BAD_CLUSTER_DIALECT, refusal(dialect, max));
            for share in ["lasting", "plain", "moving", "LASTING"] {
                assert_eq!(ask(share).answer(&node).await, refused, "{dialect:?} {share}");
            }
            // The fence is for shares of the cluster alone.
            for share in ["own", "IPC$"] {
                assert_eq!(ask(share).status(&node).await, Status::SUCCESS, "{dialect:?} {share}");
            }
            // The maximum itself is let in, and everything when it is raised.
            let below = Asking::of(max, "plain", Flags::EMPTY);
            assert_eq!(below.status(&node).await, Status::SUCCESS, "{max:?}");
            node.embedded.set_cluster_dialect(Some(dialect));
            assert_eq!(ask("plain").status(&node).await, Status::SUCCESS, "{dialect:?}");
            node.embedded.set_cluster_dialect(Some(max));
            assert_eq!(ask("plain").answer(&node).await, refused, "{dialect:?}");
            node.embedded.set_cluster_dialect(None);
            assert_eq!(ask("plain").status(&node).await, Status::SUCCESS, "{dialect:?}");
        }
    });
}

/// A client that was let in by another node, which knew before this one that the maximum was raised.
#[test]
fn a_client_that_was_let_in_before_is_let_in() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        for (dialect, max) in FENCED {
            node.embedded.set_cluster_dialect(Some(max));
            let ask = Asking::of(dialect, "plain", Flags::CLUSTER_RECONNECT);
            // MS-SMB2 2.2.9: before 3.1.1 the field is reserved, and ignored.
            let wanted = match dialect {
                Dialect::SMB_3_1_1 => Status::SUCCESS,
                _ => Status::SMB_BAD_CLUSTER_DIALECT,
            };
            assert_eq!(ask.status(&node).await, wanted, "{dialect:?}");
        }
    });
}

/// The flag CLUSTER_RECONNECT opens the fence of dialects, and nothing else: rights, encryption, limits and the
/// owner of a share are asked as without it, and nobody learns a name by it.
#[test]
fn a_client_that_lies_in_cluster_reconnect_gains_nothing() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        node.embedded.set_cluster_dialect(Some(Dialect::SMB_3_0_2));
        let lie = |share: &str| Asking::of(Dialect::SMB_3_1_1, share, Flags::CLUSTER_RECONNECT);
        let honest = |share: &str| Asking::of(Dialect::SMB_3_1_1, share, Flags::EMPTY);
        let bob = |asking: Asking| Asking { user: "bob", ..asking };
        // A share that is another user's, and one that is none, look alike with the flag and without it.
        let absent = (Status::BAD_NETWORK_NAME, NO_DATA.to_vec());
        for share in ["anns", "nobodys"] {
            assert_eq!(bob(lie(share)).answer(&node).await, absent, "{share}");
            assert_eq!(bob(honest(share)).answer(&node).await, absent, "{share}");
        }
        // A share that demands encryption gets it.
        let mut plain = lie("sealed");
        plain.offer.ciphers.clear();
        assert_eq!(plain.status(&node).await, Status::ACCESS_DENIED);
        // A share has as many users as it allows.
        let mut held = node.connect();
        held.negotiate(&Offer { dialects: vec![Dialect::SMB_3_0_2], ..Offer::default() }).await;
        let logon = held.log_on("bob").await;
        let theirs = held.mount(&logon, "single").await;
        assert_eq!(lie("single").status(&node).await, Status::REQUEST_NOT_ACCEPTED);
        // The handle of another client is as safe from it as from everybody.
        let file = held.open_file(&theirs, &Want::file("f").sharing(ALONE)).await;
        held.write(&theirs, file, 0, b"theirs").await;
        let (mut liar, logon) = node.logged_on("ann").await;
        let reply = liar.ask(lie("plain").draft().session(logon.id), logon.via()).await;
        let mount = Mount::new(&logon, reply.ok().header.tree_id().unwrap());
        liar.create(&mount, &Want::existing("f")).await.expect(Status::SHARING_VIOLATION);
        assert_eq!(held.read(&theirs, file, 0, 100).await, b"theirs");
        // A share that another node owns is not served here.
        node.embedded.stop_shares(&["lasting"]).await.unwrap();
        assert!(lie("lasting").at(&node).await.is_none());
    });
}
