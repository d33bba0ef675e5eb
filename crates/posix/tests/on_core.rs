//! Calls that would hold a core for long: they give up there, have changed nothing, and do their
//! work on a thread that may take its time.
#![allow(unreachable_pub, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{create, either, how, name, share_with};
use frevo_posix::limits::{SNAPSHOTS, STEPS_ON_CORE, STREAMS_SHOWN};
use frevo_posix::patience::short;
use frevo_posix::{PosixOptions, Streams};
use frevo_store::snapshot::Moment;
use frevo_store::{Fault, Name, Node, Vfs as _};

/// A folder of snapshots of so many seconds, the first of them at midnight.
fn snapshots(count: usize) -> (common::Share, Vec<Moment>) {
    let snapshots = Some("snapshots/@GMT-%Y.%m.%d-%H.%M.%S".parse().unwrap());
    let s = share_with(PosixOptions { snapshots, ..PosixOptions::default() });
    s.mkdir("snapshots");
    let token = |second: usize| {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!("@GMT-2024.02.29-{hour:02}.{minute:02}.{second:02}")
    };
    let taken = (0..count).map(|second| {
        s.mkdir(&format!("snapshots/{}", token(second)));
        Moment::of_token(&token(second)).unwrap()
    });
    let taken = taken.collect();
    (s, taken)
}

#[test]
fn many_snapshots_are_not_searched_on_a_core() {
    for count in [STEPS_ON_CORE - 1, STEPS_ON_CORE, STEPS_ON_CORE + 1, STEPS_ON_CORE + 2] {
        let (s, taken) = snapshots(count);
        // On a core thread, opening a snapshot fails after STEPS_ON_CORE + 1 steps, and listing the
        // snapshots fails after STEPS_ON_CORE steps.
        let opened = short(|| s.vfs.snapshot(taken[0], &Arc::default()).map(drop));
        assert_eq!(opened.1, count > STEPS_ON_CORE + 1, "{count}");
        assert_eq!(opened.0.is_err(), opened.1, "{count}");
        let listed = short(|| s.vfs.snapshots(&Name::root()).map(|found| found.len()));
        assert_eq!(listed.1, count > STEPS_ON_CORE, "{count}");
        assert_eq!(listed.0.is_err(), listed.1, "{count}");
        assert!(s.vfs.snapshot(taken[0], &Arc::default()).is_ok());
        assert_eq!(s.vfs.snapshots(&Name::root()).unwrap().len(), count);
    }
}

#[test]
fn the_newest_snapshots_are_shown() {
    for count in [SNAPSHOTS - 1, SNAPSHOTS, SNAPSHOTS + 1, 3 * SNAPSHOTS] {
        let (s, mut taken) = snapshots(count);
        taken.reverse();
        taken.truncate(SNAPSHOTS);
        assert_eq!(s.vfs.snapshots(&Name::root()).unwrap(), taken, "{count}");
    }
}

#[test]
fn many_streams_are_not_looked_at_on_a_core() {
    let s = share_with(PosixOptions { streams: Streams::Folder, ..PosixOptions::default() });
    let file = s.vfs.open(&name("f"), &create()).unwrap().node;
    let add = |number: usize| {
        let stream = name("f").with_stream(Some(&format!("s{number}")));
        s.vfs.open(&stream, &either()).unwrap();
    };
    (0..STEPS_ON_CORE).for_each(add);
    let count = |file: &Arc<dyn Node>| short(|| file.streams().map(|all| all.len()).ok());
    assert_eq!(count(&file), (Some(STEPS_ON_CORE), false));
    add(STEPS_ON_CORE);
    assert_eq!(count(&file), (None, true));
    assert_eq!(short(|| file.clear_streams().is_ok()), (false, true));
    assert_eq!(file.streams().unwrap().len(), STEPS_ON_CORE + 1, "nothing was changed");
    file.clear_streams().unwrap();
    assert_eq!(count(&file), (Some(0), false));
}

/// Each stream that is opened reads the names of all, so that there must not be a million.
#[test]
fn a_file_has_so_many_streams() {
    let s = share_with(PosixOptions { streams: Streams::Folder, ..PosixOptions::default() });
    let make = |stream: &str| s.vfs.open(&name("f").with_stream(Some(stream)), &either());
    let key = make("first").unwrap().stat.key.file();
    let side = s.path(".frevo-streams").read_dir().unwrap().next().unwrap().unwrap().path();
    // The streams' files are made directly on disk, because as many requests would take a minute.
    for number in 2..STREAMS_SHOWN {
        std::fs::write(side.join(format!(":s{number}")), "").unwrap();
    }
    make("last").unwrap();
    assert_eq!(make("beyond").map(drop), Err(Fault::NoMemory));
    make("first").unwrap();
    let file = s.vfs.open(&name("f"), &how()).unwrap().node;
    assert_eq!(file.streams().unwrap().len(), STREAMS_SHOWN);
    // Earlier versions allowed more streams, so these files, too, must be removed with the file.
    for number in 0..STREAMS_SHOWN {
        std::fs::write(side.join(format!(":t{number}")), "").unwrap();
    }
    drop(file);
    s.vfs.remove(&name("f"), key).unwrap();
    assert!(!side.exists());
}
