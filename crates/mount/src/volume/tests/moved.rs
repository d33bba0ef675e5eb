//! A mount of a share that moves between the nodes of a cluster, or whose node dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuser::Errno;
use tokio::time::sleep;

use super::nodes::{Nodes, address, with_nodes};
use super::{Volume, name};
use crate::node::ROOT;
use crate::settings::Settings;
use crate::volume::STATUS_ATTRIBUTE;

/// Transactions that a database commits at least.
const COMMITS: u64 = 30;

async fn mounted(nodes: &Arc<Nodes>) -> Arc<Volume> {
    Volume::new(nodes.share("lasting").await, "", Settings::of(0, 0))
}

/// Commits as sqlite does: a journal that is made, synced and removed, and a page that is written and
/// synced in between. Returns the count of commits.
async fn commit(volume: Arc<Volume>, number: u64, is_over: Arc<AtomicBool>) -> u64 {
    let (base, journal) = (format!("base{number}"), format!("base{number}-journal"));
    let data = volume.make(&base).await;
    let mut at = 0;
    while !is_over.load(Ordering::SeqCst) || at < COMMITS {
        let log = volume.create(ROOT, name(&journal), libc::O_RDWR | libc::O_EXCL, 0o644).await;
        let log = log.unwrap_or_else(|error| panic!("{journal} {at}: {error:?}")).1;
        volume.write(log, 0, &at.to_le_bytes()).await.unwrap();
        volume.fsync(log).await.unwrap();
        volume.write(data, at * 512, &[at as u8; 512]).await.unwrap();
        volume.fsync(data).await.unwrap();
        volume.close(log).await;
        volume.unlink(ROOT, name(&journal)).await.unwrap();
        at += 1;
    }
    volume.close(data).await;
    at
}

async fn under_commits(nodes: &Arc<Nodes>, trouble: impl AsyncFnOnce()) {
    let is_over = Arc::new(AtomicBool::new(false));
    let mut databases = Vec::new();
    for number in 0..3 {
        let work = commit(mounted(nodes).await, number, Arc::clone(&is_over));
        databases.push(tokio::spawn(work));
    }
    trouble().await;
    is_over.store(true, Ordering::SeqCst);
    for (number, database) in databases.into_iter().enumerate() {
        let count = database.await.unwrap();
        let expected: Vec<u8> = (0..count).flat_map(|at| [at as u8; 512]).collect();
        assert!(std::fs::read(nodes.path(&format!("base{number}"))).unwrap() == expected);
    }
    assert_eq!(std::fs::read_dir(nodes.dir.path()).unwrap().count(), 3, "no journal is left");
}

#[test]
fn a_database_goes_on_while_its_share_moves() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        under_commits(nodes, async || {
            for round in 0..10 {
                sleep(Duration::from_millis(40)).await;
                nodes.hand_over("lasting", round % 2, (round + 1) % 2).await;
            }
        })
        .await;
    });
}

#[test]
fn a_database_goes_on_while_its_nodes_die() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        under_commits(nodes, async || {
            for round in 0..8 {
                sleep(Duration::from_millis(60)).await;
                nodes.die(round % 2);
                sleep(Duration::from_millis(80)).await;
                nodes.take((round + 1) % 2, "lasting").await;
                nodes.revive(round % 2);
            }
        })
        .await;
    });
}

/// The folder of a mount says where its share is; no other file does, and no list of attributes.
#[test]
fn a_mount_says_where_its_share_is() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        let volume = mounted(nodes).await;
        let status = async || {
            let found = volume.getxattr(ROOT, name(STATUS_ATTRIBUTE)).await.unwrap();
            String::from_utf8(found).unwrap()
        };
        let said = status().await;
        assert!(
            said.starts_with("url smb://cluster/lasting\naddress node0\nip 127.0.0.1\nmoves 0\n")
        );
        let file = volume.make("f").await;
        nodes.hand_over("lasting", 0, 1).await;
        volume.write(file, 0, b"1").await.unwrap();
        volume.fsync(file).await.unwrap();
        let said = status().await;
        assert!(said.contains(&format!("address {}\n", address(1).host)), "{said}");
        assert!(said.contains("moves 1\n") && said.contains("pause_ms "), "{said}");
        // The server does not know of it.
        let listed = volume.listxattr(ROOT).await.unwrap();
        assert!(!String::from_utf8(listed).unwrap().contains("frevo"));
        let id = volume.node_of("f").id;
        let absent = volume.getxattr(id, name(STATUS_ATTRIBUTE)).await.unwrap_err();
        assert_eq!(absent, Errno::from_i32(libc::ENODATA));
        // It is told without the server, also while there is none.
        nodes.die(1);
        let said = tokio::time::timeout(Duration::from_secs(1), status()).await.unwrap();
        assert!(said.contains("address node1\n"), "{said}");
        nodes.take(0, "lasting").await;
        volume.close(file).await;
    });
}
