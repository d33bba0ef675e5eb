//! The grace of a share that has come from another server: clients that had files open come first.

use std::time::Duration;

use crate::asking::*;
use crate::client::*;
use crate::nodes::*;
use files::write_draft;
use frevo_server::internal::limits::{BLOCKING_GRACE_WAITS, BLOCKING_REQUESTS_PER_USER};

/// A share with a handle, at its second owner. The first has vanished.
async fn moved(cluster: &Cluster, grace: Option<Duration>) -> (Node, FileId) {
    let first = cluster.owner().await;
    let (peer, mount, file) = opened(&first).await;
    first.embedded.stop_shares(&BOTH).await.unwrap();
    drop((peer, mount));
    let second = cluster.node();
    assert_eq!(second.embedded.start_shares(&BOTH).await, Ok(1));
    second.embedded.serve_shares(&BOTH, grace).await.unwrap();
    (second, file)
}

/// A request for a file whose handle waits for its client waits, too: for the client, which has the file
/// alone.
#[test]
fn clients_with_handles_come_first() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut peer, mount) = back(&first, CLIENT, "ann", "lasting").await;
        let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(3), true)]);
        let file = peer.open_file(&mount, &want).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let node = cluster.node();
        node.embedded.start_shares(&BOTH).await.unwrap();
        node.embedded.serve_shares(&BOTH, Some(Duration::from_secs(10))).await.unwrap();
        // A client of another account, on another machine.
        let (mut other, theirs) = back(&node, guid(0x32), "bob", "lasting").await;
        let began = tokio::time::Instant::now();
        let ids = other.send(vec![theirs.put(Want::existing("f").draft())], theirs.via()).await;
        other.interim().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (mut peer, mount) = back(&node, CLIENT, "ann", "lasting").await;
        let again = with(Want::existing("f"), &[dh2c(file, guid(3), true)]);
        let file = files::file_id(peer.create(&mount, &again).await.ok());
        other.final_reply(ids[0]).await.expect(Status::SHARING_VIOLATION);
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
        peer.on(&mount, write_draft(file, 0, b"mine")).await.ok();
        peer.close(&mount, file).await;
        other.open_file(&theirs, &Want::existing("f")).await;
    });
}

/// Files that nobody had open are served at once.
#[test]
fn other_files_are_not_waited_for() {
    cluster(async |cluster| {
        let (node, _) = moved(cluster, Some(Duration::from_secs(10))).await;
        let (mut other, theirs) = back(&node, guid(0x32), "bob", "lasting").await;
        let began = tokio::time::Instant::now();
        other.open_file(&theirs, &Want::file("g")).await;
        assert!(began.elapsed() < Duration::from_secs(1));
    });
}

/// After the grace, and without one, a handle that waits for its client keeps others out as MS-SMB2
/// 3.3.5.9 says: here its caches can be broken, so the break is waited for.
#[test]
fn after_the_grace_others_are_refused() {
    for grace in [None, Some(Duration::from_secs(10))] {
        cluster(async |cluster| {
            let first = cluster.owner().await;
            let (mut peer, mount) = back(&first, CLIENT, "ann", "lasting").await;
            // Without a lease or an oplock nothing can be broken.
            let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(3), true)]);
            let file = peer.open_file(&mount, &want).await;
            first.embedded.stop_shares(&BOTH).await.unwrap();
            drop((peer, mount));
            let node = cluster.node();
            node.embedded.start_shares(&BOTH).await.unwrap();
            node.embedded.serve_shares(&BOTH, grace).await.unwrap();
            let (mut other, theirs) = back(&node, guid(0x32), "bob", "lasting").await;
            let began = tokio::time::Instant::now();
            let refused = other.create(&theirs, &Want::existing("f")).await;
            refused.expect(Status::FILE_NOT_AVAILABLE);
            let waited = began.elapsed();
            let expected = grace.unwrap_or_default();
            assert!(waited >= expected && waited < expected + Duration::from_secs(1), "{waited:?}");
            let (mut peer, mount) = back(&node, CLIENT, "ann", "lasting").await;
            let again = with(Want::existing("f"), &[dh2c(file, guid(3), true)]);
            let reply = peer.create(&mount, &again).await;
            peer.close(&mount, files::file_id(reply.ok())).await;
            other.create(&theirs, &Want::existing("f")).await.ok();
        });
    }
}

/// A request that waits in the grace can be cancelled, and ends with the share.
#[test]
fn a_wait_in_the_grace_can_be_cancelled() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut peer, mount) = back(&first, CLIENT, "ann", "lasting").await;
        let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(3), true)]);
        peer.open_file(&mount, &want).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let node = cluster.node();
        node.embedded.start_shares(&BOTH).await.unwrap();
        node.embedded.serve_shares(&BOTH, Some(Duration::from_secs(60))).await.unwrap();
        let (mut other, theirs) = back(&node, guid(0x32), "bob", "lasting").await;
        let ids = other.send(vec![theirs.put(Want::existing("f").draft())], theirs.via()).await;
        let interim = other.interim().await;
        let cancel = Peer::cancel(ids[0], Some(peer::async_id(&interim)), theirs.logon.id);
        other.send(vec![cancel], theirs.via()).await;
        other.final_reply(ids[0]).await.expect(Status::CANCELLED);
        other.send(vec![theirs.put(Want::existing("f").draft())], theirs.via()).await;
        other.interim().await;
        node.embedded.stop_shares(&BOTH).await.unwrap();
        other.expect_disconnect().await;
    });
}

/// Requests that wait in the grace leave places in the pool of the share to the client that they wait for,
/// also if they are of the same user. Those beyond are refused at once, as after the grace.
#[test]
fn waits_in_the_grace_leave_places_in_the_pool() {
    off_core(async |cluster| {
        let first = cluster.owner().await;
        let (mut peer, mount) = back(&first, CLIENT, "ann", "lasting").await;
        let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(3), true)]);
        let file = peer.open_file(&mount, &want).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let node = cluster.node();
        node.embedded.start_shares(&BOTH).await.unwrap();
        node.embedded.serve_shares(&BOTH, Some(Duration::from_secs(60))).await.unwrap();
        let began = tokio::time::Instant::now();
        let (mut other, theirs) = back(&node, guid(0x32), "ann", "lasting").await;
        let mut asked = Vec::new();
        for _ in 0..BLOCKING_GRACE_WAITS {
            let draft = theirs.put(Want::existing("f").draft());
            asked.extend(other.send(vec![draft], theirs.via()).await);
            other.interim().await;
        }
        for _ in BLOCKING_GRACE_WAITS..BLOCKING_REQUESTS_PER_USER {
            let beyond = other.create(&theirs, &Want::existing("f")).await;
            beyond.expect(Status::FILE_NOT_AVAILABLE);
        }
        let (mut peer, mount) = back(&node, CLIENT, "ann", "lasting").await;
        let again = with(Want::existing("f"), &[dh2c(file, guid(3), true)]);
        peer.create(&mount, &again).await.ok();
        for reply in other.collect(&asked).await {
            reply.expect(Status::SHARING_VIOLATION);
        }
        assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    });
}
