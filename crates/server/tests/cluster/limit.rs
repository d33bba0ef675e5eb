//! The limit of the cluster: beyond it nothing leaves the server, and no file is changed. Opens, locks
//! and leases are there when it was moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::asking::*;
use crate::client::*;
use crate::nodes::*;
use files::{close_draft, lock_draft, read_draft, write_draft};
use frevo_server::Share;
use frevo_server::internal::state::LifeState;
use frevo_store::memory::Operation;
use frevo_store::state::Epoch;
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::create_context::CreateContext;

/// Each kind of request, after the limit: no answer, no change.
#[test]
fn nothing_leaves_beyond_the_limit() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (peer, mount, file) = opened(&node).await;
        drop((peer, mount));
        lost(&node, 1).await;
        let kinds = [
            Kind { name: "READ", draft: |file| read_draft(file, 0, 4) },
            Kind { name: "WRITE", draft: |file| write_draft(file, 0, b"late") },
            Kind { name: "CLOSE", draft: close_draft },
            Kind { name: "LOCK", draft: |file| lock_draft(file, &[(8, 1, world::EXCLUSIVE)]) },
            Kind { name: "SET_INFO", draft: files::delete_draft },
            Kind { name: "CREATE", draft: |_| Want::file("new").draft() },
            Kind { name: "FLUSH", draft: files::flush_draft },
        ];
        for Kind { name, draft } in kinds {
            cluster.allow(&node);
            let (mut peer, mount, file) = taken_up(&node, file).await;
            cluster.pause();
            let answer = peer.ask_or_lose(mount.put(draft(file)), mount.via()).await;
            assert!(answer.is_none(), "{name} was answered: {:?}", answer.map(|a| a.status()));
            assert_eq!(cluster.content("f"), Some(b"acknowledged".to_vec()), "{name}");
            assert_eq!(cluster.content("new"), None, "{name}");
            drop((peer, mount));
            node.is_left().await;
        }
        assert_eq!(node.mount_status("lasting").await, None, "nobody knows who has it");
        assert_eq!(node.mount_status("own").await, Some(Status::SUCCESS));
        assert_eq!(node.state("lasting"), LifeState::Owned(Epoch(1)));
        assert_eq!(cluster.records()[0].locks.len(), 1);

        cluster.allow(&node);
        let (mut peer, mount, file) = taken_up(&node, file).await;
        peer.close(&mount, file).await;
        assert!(cluster.records().is_empty());
    });
}

/// A request that comes beyond the limit is not under way afterwards (MS-SMB2 3.3.5.2.10): when the limit was
/// moved, the client repeats it over another channel.
#[test]
fn a_request_that_met_the_pause_is_repeated_after_it() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        cluster.pause();
        let write = mount.put(write_draft(file, 0, b"late"));
        assert!(peer.ask_or_lose(write, mount.via()).await.is_none());
        drop((peer, mount));
        node.is_left().await;
        cluster.allow(&node);
        let (mut peer, mount, file) = taken_up(&node, file).await;
        let mut again = write_draft(file, 0, b"late").flags(HeaderFlags::REPLAY_OPERATION);
        // The next ChannelSequence, for a channel was lost.
        again.header.status = Status(1);
        peer.on(&mount, again).await.ok();
        peer.close(&mount, file).await;
        assert_eq!(cluster.content("f"), Some(b"lateowledged".to_vec()));
    });
}

/// Clients that ask nothing lose their connections, too, and requests that wait are not answered.
#[test]
fn waiting_requests_are_not_answered_beyond_the_limit() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut idle, idles, _) = opened(&node).await;
        let (mut waits, theirs) = back(&node, guid(0x32), "bob", "plain").await;
        let file = waits.open_file(&theirs, &Want::file("g")).await;
        let (mut holder, held) = back(&node, guid(0x33), "ann", "plain").await;
        let same = holder.open_file(&held, &Want::file("g")).await;
        holder.on(&held, lock_draft(same, &[(0, 1, world::EXCLUSIVE)])).await.ok();
        let lock = lock_draft(file, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]);
        waits.send(vec![theirs.put(lock)], theirs.via()).await;
        waits.interim().await;
        let folder = holder.open_file(&held, &Want::directory("")).await;
        let watch = Draft::new(Command::CHANGE_NOTIFY).with(|w| {
            change_notify::Request {
                flags: ChangeNotifyFlags::EMPTY,
                output_buffer_length: 4_096,
                file_id: folder,
                completion_filter: CompletionFilter::FILE_NAME,
            }
            .encode(w);
        });
        holder.send(vec![held.put(watch)], held.via()).await;
        holder.interim().await;
        cluster.pause();
        idle.expect_disconnect().await;
        waits.expect_disconnect().await;
        holder.expect_disconnect().await;
        drop((idle, idles));
        node.is_left().await;
        cluster.allow(&node);
        let (mut peer, mount) = back(&node, guid(0x34), "bob", "plain").await;
        let again = peer.open_file(&mount, &Want::existing("g").sharing(ALONE)).await;
        peer.close(&mount, again).await;
    });
}

/// A request that waits for a lease to be given up changes nothing when the limit has passed meanwhile.
#[test]
fn what_waited_over_the_limit_changes_nothing() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, _) = {
            let (mut peer, mount) = back(&node, CLIENT, "ann", "plain").await;
            let file = peer.open_file(&mount, &leased(Want::file("f"), 1, RWH, &[])).await;
            peer.write(&mount, file, 0, b"kept").await;
            (peer, mount, file)
        };
        let (mut other, theirs) = back(&node, guid(0x32), "bob", "plain").await;
        let want = Want::existing("f").disposition(CreateDisposition::OVERWRITE);
        other.send(vec![theirs.put(want.draft())], theirs.via()).await;
        other.interim().await;
        assert!(peer.frame().await.is_some(), "the break");
        cluster.pause();
        other.expect_disconnect().await;
        peer.expect_disconnect().await;
        drop((peer, mount, other, theirs));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(cluster.content("f"), Some(b"kept".to_vec()));
    });
}

/// The clock jumps in the middle of a compound, whose first message was carried out in time.
#[test]
fn no_part_of_a_compound_leaves_beyond_the_limit() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        let own = peer.mount(&mount.logon, "own").await;
        let other = peer.open_file(&own, &Want::file("of its own")).await;
        peer.write(&own, other, 0, b"data").await;
        let ids = peer
            .send(
                vec![mount.put(read_draft(file, 0, 4)), own.put(read_draft(other, 0, 4))],
                own.via(),
            )
            .await;
        assert!(peer.collect(&ids).await.iter().all(|reply| reply.status() == Status::SUCCESS));
        let (clock, reads) = (Arc::clone(&cluster.clock), AtomicU32::new(0));
        cluster.memory().faults().at_call(Some(Arc::new(move |operation| {
            let is_second =
                operation == Operation::Read && reads.fetch_add(1, Ordering::Relaxed) == 1;
            if is_second {
                clock.jump(Duration::from_secs(7_200));
            }
        })));
        peer.send(
            vec![mount.put(read_draft(file, 0, 4)), own.put(read_draft(other, 0, 4))],
            own.via(),
        )
        .await;
        peer.expect_disconnect().await;
        cluster.memory().faults().at_call(None);
    });
}

/// The clock jumps in the call that carries a request out: the change has happened, and nobody is told.
#[test]
fn an_answer_that_was_ready_is_not_sent() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        let clock = Arc::clone(&cluster.clock);
        cluster.memory().faults().at_call(Some(Arc::new(move |operation| {
            if operation == Operation::Write {
                clock.jump(Duration::from_secs(7_200));
            }
        })));
        let write = write_draft(file, 0, b"happened");
        assert!(peer.ask_or_lose(mount.put(write), mount.via()).await.is_none());
        cluster.memory().faults().at_call(None);
        assert_eq!(cluster.content("f").map(|all| all[..8].to_vec()), Some(b"happened".to_vec()));
    });
}

/// The clock jumps in the first of the calls that carry a request out: the others are not made.
#[test]
fn each_change_looks_at_the_limit() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount) = back(&node, guid(0x32), "bob", "plain").await;
        let file = peer.open_file(&mount, &Want::file("g")).await;
        peer.write(&mount, file, 0, b"kept").await;
        peer.close(&mount, file).await;
        let cuts = cluster.memory().faults().calls(Operation::SetEndOfFile);
        let clock = Arc::clone(&cluster.clock);
        cluster.memory().faults().at_call(Some(Arc::new(move |operation| {
            if operation == Operation::SetBasic {
                clock.jump(Duration::from_secs(7_200));
            }
        })));
        let want = Want::existing("g").disposition(CreateDisposition::OVERWRITE);
        assert!(peer.ask_or_lose(mount.put(want.draft()), mount.via()).await.is_none());
        cluster.memory().faults().at_call(None);
        assert_eq!(cluster.memory().faults().calls(Operation::SetEndOfFile), cuts);
        assert_eq!(cluster.content("g"), Some(b"kept".to_vec()));
    });
}

/// A file that goes with its Open goes when the share is served again; Opens that nobody can come back
/// for do not keep others out.
#[test]
fn what_was_to_be_closed_is_closed_after_the_pause() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount) = back(&node, guid(0x32), "bob", "plain").await;
        let want = Want::file("goes").options(CreateOptions::DELETE_ON_CLOSE).sharing(ALONE);
        peer.open_file(&mount, &want).await;
        peer.open_file(&mount, &Want::file("stays").sharing(ALONE)).await;
        cluster.pause();
        drop((peer, mount));
        node.is_left().await;
        assert!(cluster.content("goes").is_some(), "no change in the pause");
        cluster.allow(&node);
        let (mut peer, mount) = back(&node, guid(0x32), "bob", "plain").await;
        assert!(cluster.content("goes").is_none());
        peer.open_file(&mount, &Want::existing("stays").sharing(ALONE)).await;
        drop((peer, mount));
        node.is_left().await;

        // A share that is lost in the pause is the next owner's, with all its files.
        let (mut peer, mount) = back(&node, guid(0x32), "bob", "plain").await;
        peer.open_file(&mount, &want).await;
        cluster.pause();
        drop((peer, mount));
        node.is_left().await;
        node.embedded.stop_shares(&BOTH).await.unwrap();
        cluster.allow(&node);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(cluster.content("goes").is_some());
        assert!(node.server.files.is_empty());
    });
}

/// The clock jumps in one after the other of the calls that a close makes: a deletion that was promised is
/// made after the pause, and until then the record of a persistent handle tells the next owner of it.
///
/// The limit is asked before each call. A close that deletes one name asks for the last time before it removes
/// this name, so the clock jumps too late to keep it. The close of a stream whose file is to go with it
/// removes two: the file is left for after the pause if the clock jumps while the stream is removed.
#[test]
fn a_deletion_outlives_a_pause_within_its_close() {
    for name in ["g", "g:s"] {
        in_memory(async |cluster| {
            let node = cluster.owner().await;
            let mut left = Vec::new();
            for number in 0.. {
                let removals = cluster.memory().faults().calls(Operation::Remove);
                let Paused { is_left, is_answered } =
                    close_in_pause(cluster, &node, name, number).await;
                left.extend(
                    is_left
                        .then_some(cluster.memory().faults().calls(Operation::Remove) - removals),
                );
                if is_answered {
                    assert!(number > 0, "the clock has jumped in a call of the close");
                    break;
                }
            }
            let both: &[u64] = if name == "g" { &[] } else { &[2] };
            assert_eq!(left, both, "{name}");
        });
    }
}

/// The close of an Open in a pause.
struct Paused {
    /// True if the Open was closed and its file is left for after the pause.
    is_left: bool,
    /// True if the close made too few calls to be paused.
    is_answered: bool,
}

/// Has the clock jump in one of the calls that the close of `name` makes, which deletes a file. It is deleted
/// when this returns.
async fn close_in_pause(cluster: &Cluster, node: &Node, name: &str, number: usize) -> Paused {
    let (mut peer, mount) = back(node, CLIENT, "ann", "lasting").await;
    let want = with(Want::file(name), &[dh2q(guid(3), true)]);
    let file = peer.open_file(&mount, &want).await;
    peer.write(&mount, file, 0, b"goes").await;
    peer.on(&mount, files::delete_draft(file)).await.ok();
    if name != "g" {
        let whole = peer.open_file(&mount, &Want::existing("g")).await;
        peer.on(&mount, files::delete_draft(whole)).await.ok();
        peer.close(&mount, whole).await;
        assert!(cluster.content("g").is_some(), "its stream is open");
    }
    let (clock, calls) = (Arc::clone(&cluster.clock), AtomicUsize::new(0));
    cluster.memory().faults().at_call(Some(Arc::new(move |_| {
        if calls.fetch_add(1, Ordering::Relaxed) == number {
            clock.jump(Duration::from_secs(7_200));
        }
    })));
    let answer = peer.ask_or_lose(mount.put(close_draft(file)), mount.via()).await;
    cluster.memory().faults().at_call(None);
    if let Some(answer) = answer {
        answer.ok();
        assert_eq!(cluster.content("g"), None);
        return Paused { is_left: false, is_answered: true };
    }
    drop((peer, mount));
    node.is_left().await;
    let is_there = cluster.content("g").is_some();
    // Handles of streams are not persistent.
    let records = usize::from(name == "g");
    assert!(!is_there || cluster.records().len() == records, "call {number}");
    let is_closed = node.server.durables.counts().0 == 0;
    cluster.allow(node);
    tokio::time::sleep(Duration::from_secs(1)).await;
    if !is_closed {
        let (mut peer, mount) = back(node, CLIENT, "ann", "lasting").await;
        let again = with(Want::existing(name), &[dh2c(file, guid(3), true)]);
        let file = files::file_id(peer.create(&mount, &again).await.ok());
        peer.close(&mount, file).await;
    }
    let is_gone = || cluster.content("g").is_none() && cluster.records().is_empty();
    assert!(comes(is_gone).await, "call {number}");
    Paused { is_left: is_there && is_closed, is_answered: false }
}

/// The clock jumps in one after the other of the calls that a CREATE makes: a file that was to go with its
/// Open goes, with the record, if nobody comes for it.
#[test]
fn a_file_goes_after_a_pause_within_its_create() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        for number in 0.. {
            let (mut peer, mount) = back(&node, CLIENT, "ann", "lasting").await;
            let want = Want::file("g").options(CreateOptions::DELETE_ON_CLOSE).sharing(ALONE);
            let draft = with(want, &[dh2q(guid(3), true)]).draft();
            let (clock, calls) = (Arc::clone(&cluster.clock), AtomicUsize::new(0));
            cluster.memory().faults().at_call(Some(Arc::new(move |_| {
                if calls.fetch_add(1, Ordering::Relaxed) == number {
                    clock.jump(Duration::from_secs(7_200));
                }
            })));
            let answer = peer.ask_or_lose(mount.put(draft), mount.via()).await;
            cluster.memory().faults().at_call(None);
            if let Some(answer) = answer {
                peer.close(&mount, files::file_id(answer.ok())).await;
                assert!(number > 0, "the clock has jumped in a call of the CREATE");
                return;
            }
            drop((peer, mount));
            node.is_left().await;
            cluster.allow(&node);
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert_eq!(cluster.content("g"), None, "call {number}");
            assert!(cluster.records().is_empty(), "call {number}");
            assert!(node.server.files.is_empty(), "call {number}");
        }
    });
}

/// Durable handles outlive a pause, and the time of all handles begins anew after it.
#[test]
fn the_time_of_a_pause_does_not_count() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (peer, mount, file) = opened(&node).await;
        let (mut other, theirs) = back(&node, guid(0x32), "bob", "plain").await;
        let want = batch(Want::file("d"), &[CreateContext::DurableRequest]);
        let durable = files::file_id(&other.create(&theirs, &want).await);
        cluster.pause();
        drop((peer, mount, other, theirs));
        lost(&node, 2).await;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(node.server.durables.counts(), (2, 2), "they wait");
        cluster.allow(&node);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (mut peer, mount, file) = taken_up(&node, file).await;
        peer.close(&mount, file).await;
        let (mut other, theirs) = back(&node, guid(0x32), "bob", "plain").await;
        let want = batch(Want::existing("d"), &[dhnc(durable)]);
        other.create(&theirs, &want).await.ok();
    });
}

/// No limit is asked for shares that are not the cluster's.
#[test]
fn a_share_of_its_own_asks_no_clock() {
    in_memory(async |cluster| {
        let node = cluster.node();
        let (mut peer, mount) = back(&node, guid(0x32), "bob", "own").await;
        let looks = cluster.clock.looks();
        let file = peer.open_file(&mount, &Want::file("g")).await;
        peer.write(&mount, file, 0, b"data").await;
        peer.read(&mount, file, 0, 4).await;
        peer.close(&mount, file).await;
        assert_eq!(cluster.clock.looks(), looks);
    });
}

/// A share whose options change while it is served stays under the limit.
#[test]
fn a_reload_keeps_the_limit() {
    in_memory(async |cluster| {
        let node = cluster.owner().await;
        let files = node.server.shares().find("lasting").unwrap().vfs().unwrap().clone();
        let shares = ["lasting", "late"]
            .map(|name| Share::disk(name, Arc::clone(&files)).continuous(true).clustered(true));
        node.embedded.reload(frevo_server::Reload::new().shares(shares));
        assert_eq!(node.state("lasting"), LifeState::Owned(Epoch(1)));
        assert_eq!(node.mount_status("late").await, Some(Status::BAD_NETWORK_NAME));
        node.embedded.start_shares(&["late"]).await.unwrap();
        node.embedded.serve_shares(&["late"], None).await.unwrap();
        assert_eq!(node.mount_status("late").await, Some(Status::SUCCESS));
        cluster.pause();
        assert_eq!(node.mount_status("late").await, None);
        assert_eq!(node.mount_status("lasting").await, None);
    });
}
