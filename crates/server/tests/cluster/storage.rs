//! A file system that refuses its server, since another one has the share.

use crate::asking::*;
use crate::client::*;
use crate::nodes::*;
use files::{flush_draft, lock_draft, read_draft, write_draft};
use frevo_server::internal::state::LifeState;
use frevo_store::Fault;
use frevo_store::memory::Operation;
use frevo_store::state::Epoch;
use frevo_wire::command::lock::LockFlags;

const ENOTCONN: i32 = 107;
const ESHUTDOWN: i32 = 108;
const EIO: i32 = 5;

/// All calls fail.
fn refuse(cluster: &Cluster, fault: Fault) {
    for operation in [
        Operation::Open,
        Operation::Stat,
        Operation::Space,
        Operation::Read,
        Operation::Write,
        Operation::Sync,
        Operation::List,
        Operation::Remove,
    ] {
        cluster.memory().faults().fail_always(operation, fault);
    }
}

#[test]
fn connections_end_when_the_storage_refuses_the_server() {
    for fault in [Fault::Io(ENOTCONN), Fault::Io(ESHUTDOWN), Fault::Io(EIO), Fault::Stale] {
        in_memory(async |cluster| {
            let node = cluster.owner().await;
            let (mut peer, mount, file) = opened(&node).await;
            let (mut other, theirs) = back(&node, guid(0x32), "bob", "lasting").await;
            other.open_file(&theirs, &Want::file("g")).await;
            refuse(cluster, fault);
            let write = mount.put(write_draft(file, 0, b"late"));
            assert!(peer.ask_or_lose(write, mount.via()).await.is_none(), "{fault:?}");
            other.expect_disconnect().await;
            assert_eq!(*node.lost.lock(), BOTH, "told once");
            assert_eq!(node.state("lasting"), LifeState::Elsewhere(Vec::new()));
            assert_eq!(node.mount_status("lasting").await, None);
            assert_eq!(node.mount_status("own").await, Some(Status::SUCCESS));
            node.embedded.stop_shares(&BOTH).await.unwrap();
            drop((peer, mount, other, theirs));

            cluster.memory().faults().heal();
            let second = cluster.owner().await;
            let (mut peer, mount, file) = taken_up(&second, file).await;
            peer.close(&mount, file).await;
        });
    }
}

/// Two shares that were started together show the same files. When the storage of one is lost, the other grants
/// nobody what a handle of the first holds: its client takes the handle up at the next owner.
#[test]
fn shares_with_the_same_files_stop_together() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount) = back(&node, CLIENT, "ann", "lasting").await;
        let want = with(Want::file("f"), &[dh2q(guid(3), true)]);
        let file = peer.open_file(&mount, &want).await;
        peer.on(&mount, lock_draft(file, &[(0, 4, world::EXCLUSIVE)])).await.ok();
        let (mut other, theirs) = back(&node, guid(0x32), "bob", "plain").await;
        let same = other.open_file(&theirs, &Want::file("f")).await;
        let lock = lock_draft(same, &[(0, 4, LockFlags::EXCLUSIVE_LOCK)]);
        other.send(vec![theirs.put(lock)], theirs.via()).await;
        other.interim().await;
        refuse(cluster, Fault::Io(ENOTCONN));
        let write = mount.put(write_draft(file, 0, b"late"));
        assert!(peer.ask_or_lose(write, mount.via()).await.is_none());
        other.expect_disconnect().await;
        assert_eq!(node.state("plain"), LifeState::Elsewhere(Vec::new()));
        assert_eq!(*node.lost.lock(), BOTH);
    });
}

/// A share that was started again without the other one stays.
#[test]
fn a_share_that_was_started_apart_is_served_on() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        node.embedded.stop_shares(&["plain"]).await.unwrap();
        node.embedded.take_shares(&["plain"]).await.unwrap();
        let (mut peer, mount, file) = opened(&node).await;
        refuse(cluster, Fault::Io(ENOTCONN));
        let write = mount.put(write_draft(file, 0, b"late"));
        assert!(peer.ask_or_lose(write, mount.via()).await.is_none());
        assert_eq!(*node.lost.lock(), LASTING);
        assert_eq!(node.state("plain"), LifeState::Owned(Epoch(2)));
    });
}

#[test]
fn each_kind_of_request_notices() {
    let kinds = [
        Kind { name: "READ", draft: |file| read_draft(file, 0, 4) },
        Kind { name: "FLUSH", draft: flush_draft },
        Kind { name: "CREATE", draft: |_| Want::file("g").draft() },
        Kind { name: "CREATE of a folder", draft: |_| Want::directory("d").draft() },
    ];
    for Kind { name, draft } in kinds {
        in_memory(async |cluster| {
            let node = cluster.owner().await;
            let (mut peer, mount, file) = opened(&node).await;
            refuse(cluster, Fault::Io(ENOTCONN));
            let answer = peer.ask_or_lose(mount.put(draft(file)), mount.via()).await;
            assert!(answer.is_none(), "{name}: {:?}", answer.map(|answer| answer.status()));
            assert_eq!(*node.lost.lock(), BOTH, "{name}");
        });
    }
}

/// As ceph-fuse answers when its client is on the blocklist: the folder of the share is not known any more, and
/// the monitors still tell the space.
#[test]
fn a_client_of_ceph_on_the_blocklist_is_noticed() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        let faults = cluster.memory().faults();
        faults.fail_always(Operation::Write, Fault::Io(ESHUTDOWN));
        faults.fail_always(Operation::Open, Fault::Io(ESHUTDOWN));
        faults.fail_always(Operation::Stat, Fault::NotFound);
        let write = mount.put(write_draft(file, 0, b"late"));
        assert!(peer.ask_or_lose(write, mount.via()).await.is_none());
        assert_eq!(*node.lost.lock(), BOTH);
    });
}

/// An OSD refuses the write, and ceph-fuse itself learns a moment later that it is refused.
#[test]
fn a_refusal_is_noticed_that_is_seen_late() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        let faults = cluster.memory().faults();
        faults.fail_next(Operation::Write, Fault::Io(ESHUTDOWN));
        faults.fail(Operation::Space, 2, u64::MAX, Fault::Io(ESHUTDOWN));
        let write = mount.put(write_draft(file, 0, b"late"));
        assert!(peer.ask_or_lose(write, mount.via()).await.is_none());
        assert_eq!(*node.lost.lock(), BOTH);
    });
}

/// A bad block is no reason to give a share up, nor is a failure in a share of the server's own.
#[test]
fn other_failures_are_told_to_the_client() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        cluster.memory().faults().fail_next(Operation::Write, Fault::Io(EIO));
        let failed = peer.on(&mount, write_draft(file, 0, b"late")).await;
        failed.expect(Status::UNEXPECTED_IO_ERROR);
        peer.on(&mount, write_draft(file, 0, b"again")).await.ok();
        let own = peer.mount(&mount.logon, "own").await;
        let theirs = peer.open_file(&own, &Want::file("g")).await;
        refuse(cluster, Fault::Io(ENOTCONN));
        let failed = peer.on(&own, write_draft(theirs, 0, b"late")).await;
        failed.expect(Status::UNEXPECTED_IO_ERROR);
        assert!(node.lost.lock().is_empty());
    });
}

/// No handle is lost because the storage of the next owner does not serve it, either: its records stay for
/// one whose storage does.
#[test]
fn handles_outlive_an_owner_whose_storage_refuses_it() {
    in_memory(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        refuse(cluster, Fault::Io(ENOTCONN));
        let second = cluster.node();
        let started = second.embedded.start_shares(&BOTH).await;
        assert!(started.as_ref().is_err_and(|why| why.contains("storage")), "{started:?}");
        assert_eq!(cluster.records().len(), 1);
        second.embedded.leave_shares(&BOTH, &[]).await.unwrap();

        cluster.memory().faults().heal();
        let third = cluster.owner().await;
        let (mut peer, mount, file) = taken_up(&third, file).await;
        peer.close(&mount, file).await;
    });
}
