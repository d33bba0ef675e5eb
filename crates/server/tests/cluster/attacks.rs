//! Attempts of a client to get at the files of others while a share moves.

use std::time::Duration;

use crate::asking::*;
use crate::client::*;
use crate::nodes::*;
use files::{read_draft, write_draft};
use frevo_wire::create_context::CreateContext;

/// A handle that another account forged from a FileId, a CreateGuid and a LeaseKey that it has seen, at the new owner.
#[test]
fn a_handle_of_another_account_is_not_taken_up_at_the_next_node() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let second = cluster.node();
        second.embedded.start_shares(&BOTH).await.unwrap();
        // A share that is started is not served to anybody.
        assert_eq!(second.mount_status("lasting").await, Some(Status::SERVER_UNAVAILABLE));
        second.embedded.serve_shares(&BOTH, Some(Duration::from_secs(5))).await.unwrap();
        let (mut bob, bobs) = back(&second, CLIENT, "bob", "lasting").await;
        bob.create(&bobs, &reconnect(file)).await.expect(Status::ACCESS_DENIED);
        let by_guid = FileId { persistent: file.persistent ^ 1, ..file };
        bob.create(&bobs, &reconnect(by_guid)).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let volatile = FileId { volatile: file.persistent, ..file };
        bob.create(&bobs, &reconnect(volatile)).await.expect(Status::ACCESS_DENIED);
        let old = batch(Want::existing("f"), &[CreateContext::DurableReconnect(file)]);
        let refused = bob.create(&bobs, &old).await;
        assert_ne!(refused.status(), Status::SUCCESS);
        // A replay of the CREATE makes a new one, which has to wait for the handle's client.
        let replay = leased(Want::file("f").sharing(ALONE), 1, RWH, &[dh2q(guid(3), true)]);
        let replayed = bob.on(&bobs, replay.draft().flags(HeaderFlags::REPLAY_OPERATION)).await;
        assert_ne!(replayed.status(), Status::SUCCESS);
        // The other share of the cluster, and one of the server's own, have the same files and give
        // other rights.
        for share in ["plain", "own"] {
            let elsewhere = bob.mount(&bobs.logon, share).await;
            let refused = bob.create(&elsewhere, &reconnect(file)).await;
            assert_ne!(refused.status(), Status::SUCCESS, "{share}");
        }
        let (mut ann, anns) = back(&second, CLIENT, "ann", "plain").await;
        let refused = ann.create(&anns, &reconnect(file)).await;
        refused.expect(Status::OBJECT_NAME_NOT_FOUND);
        taken_up(&second, file).await;
    });
}

/// FileIds and TreeIds of the former owner mean nothing at the next one, nor at the former one when it
/// has the share again.
#[test]
fn numbers_of_an_earlier_ownership_mean_nothing() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut bob, bobs) = back(&first, guid(0x32), "bob", "own").await;
        let theirs = bob.mount(&bobs.logon, "plain").await;
        let held = bob.open_file(&theirs, &Want::file("g")).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        bob.expect_disconnect().await;
        first.is_left().await;
        first.embedded.start_shares(&BOTH).await.unwrap();
        first.embedded.serve_shares(&BOTH, None).await.unwrap();
        let (mut bob, bobs) = back(&first, guid(0x32), "bob", "plain").await;
        bob.on(&bobs, read_draft(held, 0, 4)).await.expect(Status::FILE_CLOSED);
        let second = cluster.node();
        let (mut bob, logon) = second.logged_on("bob").await;
        let forged = Mount::new(&logon, theirs.tree);
        let refused = bob.on(&forged, write_draft(held, 0, b"late")).await;
        refused.expect(Status::NETWORK_NAME_DELETED);
        assert_eq!(cluster.content("g"), Some(Vec::new()));
    });
}

/// A channel cannot be bound to a session of another node, and a session there is not ended by its
/// number here.
#[test]
fn sessions_do_not_cross_nodes() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut ann, anns) = back(&first, CLIENT, "ann", "own").await;
        let second = cluster.node();
        let mut peer = second.connect();
        peer.guid = CLIENT;
        peer.negotiate(&Offer::default()).await;
        let bound = peer.try_log_on(Setup::binding("ann", &anns.logon)).await;
        bound.err().unwrap().expect(Status::USER_SESSION_DELETED);
        let mut peer = second.connect();
        peer.guid = CLIENT;
        peer.negotiate(&Offer::default()).await;
        let setup = Setup { previous: anns.logon.id, ..Setup::of("ann") };
        peer.try_log_on(setup).await.unwrap();
        ann.expect_alive_in(&anns).await;
    });
}

/// A client that comes again and again while a share is not served makes the server keep nothing.
#[test]
fn a_share_that_is_not_served_costs_nothing() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (peer, mount, _) = opened(&node).await;
        drop((peer, mount));
        lost(&node, 1).await;
        let before = node.server.ledger.bytes();
        cluster.pause();
        for _ in 0..50 {
            assert_eq!(node.mount_status("lasting").await, None);
        }
        node.is_left().await;
        assert_eq!(node.server.durables.counts(), (1, 1));
        assert_eq!(node.server.ledger.bytes(), before);
    });
}
