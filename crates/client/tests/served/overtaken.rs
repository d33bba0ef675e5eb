//! Requests that meet the loss of a channel in unusual orders: overtaken by later ones, repeated while
//! the first attempt lasts, or more of them than can be numbered.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::relay;
use crate::world;

use std::sync::Arc;
use std::time::Duration;

use frevo_client::internal::{LeaseHolder, Yield};
use frevo_client::{LeaseState, LockKind, OpenOptions, Options, Share, ShareMode};
use relay::{FAULTS, Fault, Shared, session, session_with, until};
use tokio::time::{sleep, timeout};
use world::in_world;

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

/// MS-SMB2 3.3.5.2.10: the server refuses a request for its ChannelSequence although its own channel
/// lives, when one that was sent after the loss of another channel has come before it.
#[test]
fn a_request_that_is_overtaken_is_sent_again() {
    in_world(async |world| {
        let (session, shared) = session(world, 3).await;
        until(&session, 3).await;
        let share = session.share("data").await.unwrap();
        let file = both().open(&share, "f").await.unwrap();
        file.write_all_at(&[0; 8], 0).await.unwrap();
        *shared.fault.lock() = Some(Fault::Held);
        let slow = file.write_all_at(&[1; 4], 0);
        let quick = async {
            while shared.fault.lock().is_some() {
                sleep(Duration::from_millis(1)).await;
            }
            *shared.fault.lock() = Some(Fault::Answer);
            file.write_all_at(&[2; 4], 4).await.unwrap();
            assert_eq!(*shared.fault.lock(), None, "no channel was lost");
            shared.release.notify_one();
        };
        let (written, ()) = tokio::join!(slow, quick);
        written.unwrap();
        assert_eq!(std::fs::read(world.path("f")).unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
        file.close().await.unwrap();
        session.log_off().await;
    });
}

/// A cache that takes its time to be given up.
struct Slow(Duration);

impl LeaseHolder for Slow {
    fn broken(&self, _: LeaseState) -> Yield {
        Box::pin(sleep(self.0))
    }
}

/// The server carries out the first attempt for longer than any fixed count of repetitions takes: it
/// waits for the caches of another client, and does not know that the channel is lost.
#[test]
fn a_repetition_waits_for_the_end_of_the_first_attempt() {
    in_world(async |world| {
        let (other, _) = session(world, 1).await;
        let theirs = other.share("data").await.unwrap();
        let slow: Arc<dyn LeaseHolder> = Arc::new(Slow(Duration::from_secs(8)));
        let cached = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        let held = both().lease(cached).open(&theirs, "c").await.unwrap();
        held.watch_lease(Arc::downgrade(&slow));
        let (session, shared) = session(world, 2).await;
        until(&session, 2).await;
        let share = session.share("data").await.unwrap();
        *shared.fault.lock() = Some(Fault::Deaf);
        both().open(&share, "c").await.unwrap().close().await.unwrap();
        assert_eq!(*shared.fault.lock(), None, "the fault did not strike");
        shared.deliver_late().await;
        session.log_off().await;
    });
}

async fn make(share: &Share, name: String) {
    let options = OpenOptions::new().write(true).create_new(true).share_mode(ShareMode::EMPTY);
    options.open(share, &name).await.unwrap().close().await.unwrap();
}

/// More files than an operation number can be had for at one time. The requests that arrive late make
/// none of them again.
#[test]
fn many_files_are_made_once_each() {
    in_world(async |world| {
        let (session, shared) =
            session_with(world, Options::new().durable(false).channels(2)).await;
        let share = session.share("data").await.unwrap();
        let count = || std::fs::read_dir(world.path("")).unwrap().count();
        for fault in FAULTS {
            until(&session, 2).await;
            *shared.skip.lock() = 1;
            *shared.fault.lock() = Some(fault);
            let all = (0..300).map(|at| make(&share, format!("{fault:?}-{at}")));
            futures_util::future::join_all(all).await;
            assert_eq!((*shared.fault.lock(), count()), (None, 300), "{fault:?}");
            for entry in std::fs::read_dir(world.path("")).unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
            shared.deliver_late().await;
            assert_eq!(count(), 0, "{fault:?}: made again by a late request");
        }
        session.log_off().await;
    });
}

/// More locks than there are LockSequenceIndexes, MS-SMB2 2.2.26.
#[test]
fn many_locks_wait_and_one_channel_is_lost() {
    in_world(async |world| {
        let (other, _) = session(world, 1).await;
        let theirs = both().open(&other.share("data").await.unwrap(), "f").await.unwrap();
        theirs.lock(0, 1_000, LockKind::Exclusive).await.unwrap();
        let (session, shared) = session(world, 2).await;
        until(&session, 2).await;
        let file = both().open(&session.share("data").await.unwrap(), "f").await.unwrap();
        // This lock is granted at once, although the hundred locks below wait for the other client.
        let at_once = file.lock(5_000, 1, LockKind::Exclusive);
        let all = (0..100).map(|at| file.lock(at, 1, LockKind::Exclusive));
        let all = futures_util::future::join_all(all);
        let strike = async {
            sleep(Duration::from_millis(200)).await;
            at_once.await.unwrap();
            *shared.fault.lock() = Some(Fault::Answer);
            file.unlock(5_000, 1).await.unwrap();
            theirs.unlock(0, 1_000).await.unwrap();
        };
        let (locked, ()) = tokio::join!(all, strike);
        locked.into_iter().for_each(|locked| locked.unwrap());
        for at in 0..100 {
            file.unlock(at, 1).await.unwrap();
        }
        session.log_off().await;
    });
}

/// The server does not recognise a repeated call of RPC.
#[test]
fn shares_are_listed_though_a_channel_is_lost() {
    in_world(async |world| {
        let (session, shared) = session(world, 2).await;
        // The fault hits one of the four requests: the tree connect, the opening of the pipe, its
        // binding or the call.
        for (fault, skip) in FAULTS.into_iter().flat_map(|fault| (0..4).map(move |n| (fault, n))) {
            until(&session, 2).await;
            *shared.skip.lock() = skip;
            *shared.fault.lock() = Some(fault);
            let listed = session.shares().await;
            assert!(listed.is_ok_and(|all| all.len() > 2), "{fault:?} after {skip}");
        }
        session.log_off().await;
    });
}

/// A session that goes on keeps what it has open: with its lock, nobody else would ever get it.
#[test]
fn a_file_that_is_dropped_is_closed_though_the_channel_is_lost() {
    in_world(async |world| {
        let (other, _) = session(world, 1).await;
        let theirs = both().open(&other.share("data").await.unwrap(), "f").await.unwrap();
        let (session, shared) =
            session_with(world, Options::new().durable(false).channels(2)).await;
        let share = session.share("data").await.unwrap();
        for fault in FAULTS {
            until(&session, 2).await;
            let file = both().open(&share, "f").await.unwrap();
            file.lock(0, 1, LockKind::Exclusive).await.unwrap();
            *shared.fault.lock() = Some(fault);
            drop(file);
            let locked = timeout(Duration::from_secs(20), theirs.lock(0, 1, LockKind::Exclusive));
            locked.await.unwrap_or_else(|_| panic!("{fault:?}: the lock stays")).unwrap();
            assert_eq!(*shared.fault.lock(), None, "{fault:?} did not strike");
            theirs.unlock(0, 1).await.unwrap();
        }
        session.log_off().await;
    });
}

/// Waits until the fault has struck.
async fn struck(shared: &Shared) {
    while shared.fault.lock().is_some() {
        tokio::task::yield_now().await;
    }
}

/// A further channel that comes when the others are lost would be of a session that the next logon
/// ends, with all that was opened over it.
#[test]
fn a_channel_that_comes_after_the_last_one_was_lost_is_of_no_use() {
    in_world(async |world| {
        let (session, shared) = session(world, 2).await;
        until(&session, 2).await;
        let share = session.share("data").await.unwrap();
        let file = both().open(&share, "f").await.unwrap();
        *shared.fault.lock() = Some(Fault::Late);
        file.write_all_at(b"1", 0).await.unwrap();
        // The first two frames are NEGOTIATE and the first SESSION_SETUP. The fault hits the
        // SESSION_SETUP that completes the binding.
        *shared.skip.lock() = 2;
        *shared.fault.lock() = Some(Fault::Held);
        struck(&shared).await;
        // The server does not notice that the last channel is lost, so it still accepts a further
        // channel.
        *shared.fault.lock() = Some(Fault::Late);
        let written = file.write_all_at(b"2", 1);
        let strike = async {
            struck(&shared).await;
            *shared.fault.lock() = Some(Fault::Held);
            struck(&shared).await;
            shared.release.notify_one();
            sleep(Duration::from_millis(500)).await;
            assert_eq!(session.channels(), [], "the session is lost");
            shared.release.notify_one();
        };
        let (written, ()) = tokio::join!(written, strike);
        written.unwrap();
        assert_eq!(std::fs::read(world.path("f")).unwrap(), b"12");
        session.log_off().await;
    });
}
