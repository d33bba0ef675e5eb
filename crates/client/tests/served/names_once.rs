//! Names that are made, renamed and removed exactly once, though a channel is lost with the
//! request or with its answer.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::relay;
use crate::world;

use std::time::Duration;

use frevo_client::{Cause, Change, Error, OpenOptions, Options, RecursiveMode, Share, ShareMode};
use relay::{FAULTS, Fault, session, session_with, until};
use world::{World, in_world};

/// Carries out `operation` with each fault: first `make`, and in the end `is_done` holds.
async fn once(
    world: &World,
    what: (&str, &str, &[(&str, bool)]),
    operation: impl AsyncFn(&Share) -> Result<(), Error>,
) {
    once_with(world, Options::new(), what, operation).await;
}

/// As [`once`], in a session with these options and two channels.
async fn once_with(
    world: &World,
    options: Options,
    what: (&str, &str, &[(&str, bool)]),
    operation: impl AsyncFn(&Share) -> Result<(), Error>,
) {
    let (name, make, is_done) = what;
    let (session, shared) = session_with(world, options.channels(2)).await;
    let share = session.share("data").await.unwrap();
    for fault in FAULTS {
        until(&session, 2).await;
        for (path, _) in is_done {
            let path = world.path(path);
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir(&path);
        }
        if !make.is_empty() {
            std::fs::write(world.path(make), name).unwrap();
        }
        *shared.fault.lock() = Some(fault);
        let done = operation(&share).await;
        assert!(done.is_ok(), "{name} {fault:?}: {done:?}");
        assert_eq!(*shared.fault.lock(), None, "{name}: the fault did not strike");
        let check = |when: &str| {
            for (path, is_there) in is_done {
                assert_eq!(world.path(path).exists(), *is_there, "{name} {fault:?} {path} {when}");
            }
        };
        check("at the end");
        if fault == Fault::Late {
            // Another program puts a file at the name that the operation made. A late copy of the
            // request must not remove that file.
            if !make.is_empty() {
                std::fs::write(world.path(make), name).unwrap();
            }
            for (path, is_there) in is_done.iter().filter(|(path, _)| *path != make) {
                if *is_there {
                    let path = world.path(path);
                    let _ = std::fs::remove_file(&path);
                    let _ = std::fs::remove_dir(&path);
                }
            }
            shared.deliver_late().await;
            assert!(world.path(make).exists(), "{name}: {make} after a late request");
            for (path, _) in is_done.iter().filter(|(path, _)| *path != make) {
                assert!(!world.path(path).exists(), "{name}: {path} after a late request");
            }
        }
    }
    session.log_off().await;
}

#[test]
fn a_directory_is_made_once() {
    in_world(async |world| {
        let what = ("mkdir", "", &[("d", true)][..]);
        once(world, what, async |share| share.create_dir("d").await).await;
    });
}

/// A client without durable handles has a CreateGuid too, and the CREATE that arrives late makes
/// nothing.
#[test]
fn a_file_is_made_once() {
    in_world(async |world| {
        for durable in [true, false] {
            let what = ("open", "", &[("f", true)][..]);
            once_with(world, Options::new().durable(durable), what, async |share| {
                let options = OpenOptions::new().write(true).create_new(true);
                options.share_mode(ShareMode::EMPTY).open(share, "f").await?.close().await
            })
            .await;
        }
    });
}

#[test]
fn a_file_is_removed_once() {
    in_world(async |world| {
        let what = ("remove", "f", &[("f", false)][..]);
        once(world, what, async |share| share.remove_file("f").await).await;
    });
}

#[test]
fn a_file_is_renamed_once() {
    in_world(async |world| {
        let what = ("rename", "f", &[("f", false), ("g", true)][..]);
        once(world, what, async |share| share.rename("f", "g").await).await;
        once(world, what, async |share| share.rename_if_not_exists("f", "g").await).await;
    });
}

#[test]
fn a_link_is_made_once() {
    in_world(async |world| {
        let what = ("link", "f", &[("f", true), ("g", true)][..]);
        once(world, what, async |share| share.hard_link("f", "g").await).await;
    });
}

/// The error that the first request met is the operation's.
#[test]
fn an_error_is_told_though_its_answer_was_lost() {
    in_world(async |world| {
        let (session, shared) = session(world, 2).await;
        let share = session.share("data").await.unwrap();
        std::fs::create_dir(world.path("d")).unwrap();
        for fault in FAULTS {
            until(&session, 2).await;
            *shared.fault.lock() = Some(fault);
            let error = share.create_dir("d").await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{fault:?}: {error}");
            until(&session, 2).await;
            *shared.fault.lock() = Some(fault);
            let error = share.remove_file("absent").await.unwrap_err();
            assert!(error.is_not_found(), "{fault:?}: {error}");
        }
        session.log_off().await;
    });
}

/// Nobody is left to ask.
#[test]
fn with_the_last_channel_the_outcome_is_lost() {
    in_world(async |world| {
        for (channels, fault) in [(1, Fault::Answer), (1, Fault::Request)] {
            let (session, shared) = session(world, channels).await;
            let share = session.share("data").await.unwrap();
            *shared.fault.lock() = Some(fault);
            let error = share.create_dir(&format!("{fault:?}")).await.unwrap_err();
            assert!(matches!(error.cause(), Cause::Unknown), "{error}");
            assert!(error.to_string().contains("unknown"), "{error}");
            session.log_off().await;
        }
    });
}

/// The server tells of a change once: the answer that goes with a channel is not told again.
#[test]
fn changes_that_went_with_a_channel_are_missed() {
    in_world(async |world| {
        let (session, shared) = session(world, 2).await;
        until(&session, 2).await;
        let share = session.share("data").await.unwrap();
        let mut watch = share.watch("", RecursiveMode::NonRecursive).await.unwrap();
        // `other` uses connections without faults.
        let other = world.share().await;
        let soon = Duration::from_millis(300);
        let mut begun = Vec::new();
        for number in 0.. {
            other.create_dir(&format!("begin-{number}")).await.unwrap();
            while let Ok(changes) = tokio::time::timeout(soon, watch.next_changes()).await {
                begun.extend(changes.unwrap());
            }
            if !begun.is_empty() {
                break;
            }
        }
        assert!(!begun.contains(&Change::Missed), "{begun:?}");
        // The lost answer may belong to another request than that of the watch, so rounds are
        // repeated until the watch reports `Missed`.
        for round in 0.. {
            until(&session, 2).await;
            let (lost, told) = (format!("lost-{round}"), format!("told-{round}"));
            *shared.fault.lock() = Some(Fault::Answer);
            other.create_dir(&lost).await.unwrap();
            // The client asks for changes meanwhile: the fault hits an answer, and after an earlier
            // round the server may have no request that it could answer.
            let mut changes = Vec::new();
            while shared.fault.lock().is_some() {
                let moment = Duration::from_millis(10);
                if let Ok(more) = tokio::time::timeout(moment, watch.next_changes()).await {
                    changes.extend(more.unwrap());
                }
            }
            // The lost answer contained the change, so the watch reports `Missed`, even if no
            // further change happens.
            if changes.is_empty() {
                changes = watch.next_changes().await.unwrap();
            }
            other.create_dir(&told).await.unwrap();
            while !changes.contains(&Change::Added(told.clone())) {
                changes.extend(watch.next_changes().await.unwrap());
            }
            if changes.contains(&Change::Missed) {
                break;
            }
            assert!(changes.contains(&Change::Added(lost)), "{changes:?}");
        }
        session.log_off().await;
    });
}

/// Names come once and all, though the position in the directory is lost with a channel.
#[test]
fn a_listing_goes_on_without_its_channel() {
    in_world(async |world| {
        for at in 0..5_000 {
            std::fs::write(world.path(&format!("entry-{at:05}")), b"").unwrap();
        }
        // With eight credits a reply cannot hold the whole listing, so there are several replies.
        let (session, shared) = session_with(world, Options::new().credits(8).channels(2)).await;
        let share = session.share("data").await.unwrap();
        for fault in [Fault::Answer, Fault::Request] {
            // The first or the second reply is the one that the fault hits.
            for after in [0, 1] {
                until(&session, 2).await;
                let mut dir = share.read_dir("").await.unwrap().max_entries(5_000);
                let mut names = std::collections::BTreeSet::new();
                loop {
                    if names.len() == after {
                        *shared.fault.lock() = Some(fault);
                    }
                    let Some(entry) = dir.next_entry().await.unwrap() else { break };
                    assert!(names.insert(entry.file_name().to_owned()), "{entry:?} came twice");
                }
                assert_eq!(names.len(), 5_000, "{fault:?} after {after}");
                assert_eq!(*shared.fault.lock(), None, "the fault did not strike");
            }
        }
        session.log_off().await;
    });
}
