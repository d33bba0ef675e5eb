//! Observations at n - 1, n and n + 1 of their limits.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frevo_store::{Fault, HostChange, Observer};
use parking_lot::Mutex;

use super::{files, observe};
use crate::limits::{HOST_DIRECTORIES, HOST_DIRECTORIES_PER_TREE, HOST_FILES};
use crate::names::Spelling;

fn opened(path: &Path) -> OwnedFd {
    std::fs::File::open(path).unwrap().into()
}

fn no_observer() -> Observer {
    Arc::new(|_: &HostChange<'_>| {})
}

/// Fanotify is there for everybody from Linux 5.13 on.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn is_watched(folder: &Path, test: &str) -> bool {
    let is_watched = observe(opened(folder).as_fd(), false, Spelling::Bytes, no_observer()).is_ok();
    if !is_watched {
        eprintln!("{test}: skipped, the kernel watches nothing for this user");
    }
    is_watched
}

/// One test, since both limits count the directories of the process.
#[test]
fn so_many_directories_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    if !is_watched(folder.path(), "so_many_directories_are_watched") {
        return;
    }
    let make = |name: String| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    for below in [HOST_DIRECTORIES_PER_TREE - 2, HOST_DIRECTORIES_PER_TREE - 1] {
        assert_eq!(losses(&make(format!("tree{below}")), below), 0, "{below} and their root");
    }
    assert_eq!(losses(&make("large".into()), HOST_DIRECTORIES_PER_TREE), 1);
    let watch = |number: usize| {
        let path = make(format!("d{number}"));
        observe(opened(&path).as_fd(), false, Spelling::Bytes, no_observer())
    };
    let mut held: Vec<_> = (0..HOST_DIRECTORIES).map(|number| watch(number).unwrap()).collect();
    assert_eq!(watch(HOST_DIRECTORIES).map(drop), Err(Fault::NoMemory));
    held.pop();
    held.push(watch(HOST_DIRECTORIES + 1).unwrap());
    assert_eq!(watch(HOST_DIRECTORIES + 2).map(drop), Err(Fault::NoMemory));
}

/// Watches a tree of so many directories below its root. Returns the number of reports of losses
/// before a change in each of them was reported.
fn losses(root: &Path, below: usize) -> usize {
    for number in 0..below {
        std::fs::create_dir(root.join(number.to_string())).unwrap();
    }
    let (lost, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(HashSet::new())));
    let (told, changed) = (Arc::clone(&lost), Arc::clone(&seen));
    let observer: Observer = Arc::new(move |change| match change {
        HostChange::Lost => drop(told.fetch_add(1, Ordering::AcqRel)),
        HostChange::Change { name, .. } => {
            changed.lock().extend(name.split_once('\\').map(|(directory, _)| directory.to_owned()));
        }
        HostChange::Renamed { .. } => {}
    });
    let _watched = observe(opened(root).as_fd(), true, Spelling::Bytes, observer).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    // The rounds go on until all directories have reported a change, or one of them has reported a
    // loss.
    for round in 0.. {
        assert!(Instant::now() < until, "neither a loss nor a change in each directory");
        // Changes by this process are not reported, so another program (touch) makes the files.
        let files = (0..below).map(|directory| root.join(format!("{directory}/f{round}")));
        assert!(Command::new("touch").args(files).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(20));
        if lost.load(Ordering::Acquire) > 0 || seen.lock().len() == below {
            break;
        }
    }
    lost.load(Ordering::Acquire)
}

#[test]
fn so_many_files_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    if !is_watched(folder.path(), "so_many_files_are_watched") {
        return;
    }
    let watch = |number: usize| {
        let path = folder.path().join(format!("f{number}"));
        std::fs::write(&path, "").unwrap();
        files::observe(Arc::new(opened(&path)), no_observer())
    };
    let mut held: Vec<_> = (0..HOST_FILES).map(|number| watch(number).unwrap()).collect();
    assert_eq!(watch(HOST_FILES).map(drop), Err(Fault::NoMemory));
    // A second watch of the same file does not count towards the limit HOST_FILES.
    let again = watch(0).unwrap();
    held.pop();
    held.push(watch(HOST_FILES).unwrap());
    assert_eq!(watch(HOST_FILES + 1).map(drop), Err(Fault::NoMemory));
    drop(again);
}
