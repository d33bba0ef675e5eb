//! Observations at n - 1, n and n + 1 of their limits.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, HostChange, HostPlaces, Observation, Observer};
use hashbrown::HashSet;
use parking_lot::Mutex;

use super::fanotify::{self, Fanotify, Handle};
use super::{
    CountedPath, DueReports, Kind, ListedEntry, Member, Observed, Owned, Scan, State, Unscanned,
    files, observe,
};
use crate::limits::{
    HOST_DIRECTORIES, HOST_DIRECTORIES_BYTES, HOST_DIRECTORIES_PER_TREE, HOST_DIRECTORY_BYTES,
    HOST_FILES,
};
use crate::names::Spelling;

fn opened(path: &Path) -> OwnedFd {
    std::fs::File::open(path).unwrap().into()
}

/// Returns an observer of an account of its own.
fn no_observer() -> Observer {
    of_account(&Arc::default())
}

fn of_account(places: &Arc<HostPlaces>) -> Observer {
    Observer::new(places, |_| {})
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

/// Held by tests that use up the places of directories, which are those of the process.
static DIRECTORIES: Mutex<()> = Mutex::new(());

#[test]
fn so_many_directories_are_watched() {
    let _alone = DIRECTORIES.lock();
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

/// Tests that no more directories wait for their marks than a tree may have, and that what is beyond is
/// reported once.
#[test]
fn so_many_directories_wait_for_marks() {
    let folder = tempfile::tempdir().unwrap();
    let entries = |count: usize| {
        let path = |number: usize| number.to_string().into_bytes();
        (0..count).map(|number| ListedEntry { path: path(number), is_directory: true }).collect()
    };
    let most = HOST_DIRECTORIES_PER_TREE;
    for (count, queued, goes_on, losses) in
        [(most - 1, most - 1, true, 0), (most, most, true, 0), (most + 1, most, false, 1)]
    {
        let mut state = State::default();
        let observed = Observed {
            root: Arc::new(opened(folder.path())),
            is_tree: true,
            observer: no_observer(),
            spelling: Spelling::Bytes,
            handles: HashSet::default(),
            unscanned: 0,
            was_lost: false,
            lacks_room: Arc::default(),
        };
        state.observed.insert(1, observed);
        let mut reports = DueReports::new();
        let entered = state.enter(1, &mut entries(count), Scan::Old, &mut reports);
        assert_eq!((entered, state.unscanned.len(), reports.len()), (goes_on, queued, losses));
        state.add(1, b"more", true, &mut reports);
        assert!(state.unscanned.len() <= most && reports.len() <= 1);
        assert!(!state.enter(2, &mut entries(1), Scan::Old, &mut reports), "no such observation");
    }
}

/// Returns an observation of `folder` with the number 1, whose directory `a/marked` is marked and whose
/// `a/waits` waits.
fn with_two(folder: &Path, places: &Arc<HostPlaces>) -> (State, Handle) {
    let handle = fanotify::handle_of(opened(folder).as_fd()).unwrap();
    let mut state = State::default();
    let observed = Observed {
        root: Arc::new(opened(folder)),
        is_tree: true,
        observer: of_account(places),
        spelling: Spelling::Bytes,
        handles: HashSet::from_iter([handle.clone()]),
        unscanned: 0,
        was_lost: false,
        lacks_room: Arc::default(),
    };
    let place = places.take(Kind::Directory, 0, HOST_DIRECTORIES).unwrap();
    state.observed.insert(1, observed);
    let path = CountedPath::new(b"a/marked".to_vec(), places).unwrap();
    state.give_place(handle.clone(), Member { id: 1, path, _place: place });
    let waiting = ListedEntry { path: b"a/waits".to_vec(), is_directory: true };
    state.enter(1, &mut vec![waiting], Scan::Old, &mut DueReports::new());
    (state, handle)
}

/// Clients choose the paths that wait for marks and those that have them, and each is counted with its
/// length, also after a move.
#[test]
fn paths_of_watched_directories_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Ok(group) = Fanotify::new() else { return };
    let places = Arc::default();
    let (mut state, handle) = with_two(folder.path(), &places);
    let counted = |state: &State| {
        [&state.directories[&handle][0].path, &state.unscanned[0].path].map(CountedPath::path_bytes)
    };
    assert_eq!(counted(&state), [b"a/marked".len(), b"a/waits".len()]);
    let mut reports = DueReports::new();
    state.move_below(&group, 1, b"a", &[b'b'; 200], &mut reports);
    assert_eq!(counted(&state), [200 + b"/marked".len(), 200 + b"/waits".len()]);
    let paths: usize = counted(&state).iter().sum();
    assert_eq!(places.bytes(), 2 * HOST_DIRECTORY_BYTES + paths);
    state.move_below(&group, 1, &[b'b'; 200], b"c", &mut reports);
    assert_eq!(counted(&state), [b"c/marked".len(), b"c/waits".len()]);
    assert!(reports.is_empty());
    drop(state);
    assert_eq!((places.bytes(), places.count(Kind::Directory)), (0, 0));
}

/// A directory whose path becomes too long for its account is watched no more, which is reported; one
/// beside it stays, and so does a path that only becomes another one.
#[test]
fn a_moved_path_without_room_is_forgotten() {
    let _alone = DIRECTORIES.lock();
    let folder = tempfile::tempdir().unwrap();
    let Ok(group) = Fanotify::new() else { return };
    let places = Arc::default();
    let (mut state, handle) = with_two(folder.path(), &places);
    let beside = ListedEntry { path: b"beside".to_vec(), is_directory: true };
    state.enter(1, &mut vec![beside], Scan::Old, &mut DueReports::new());
    // Others use the memory up, so that the account may have a quarter of it.
    let room = HOST_DIRECTORIES_BYTES;
    let rest = places.take_bytes(room / 4 - places.bytes() - 1, 0, room).unwrap();
    let others: Arc<HostPlaces> = Arc::default();
    let mut full = Vec::new();
    while let Some(path) = CountedPath::new(vec![b'x'; 4_000], &others) {
        full.push(path);
    }
    full.push(CountedPath::new(vec![b'x'; 4_000], &Arc::default()).unwrap());
    let mut reports = DueReports::new();
    state.move_below(&group, 1, b"a", b"b", &mut reports);
    assert!(reports.is_empty(), "it is no longer than before");
    state.move_below(&group, 1, b"b", b"long", &mut reports);
    assert!(matches!(&*reports, [report] if matches!(report.change, Owned::Lost)));
    assert!(!state.directories.contains_key(&handle));
    let observed = &state.observed[&1];
    assert!(observed.lacks_room.load(Ordering::Relaxed) && observed.handles.is_empty());
    let waiting = |state: &State| -> Vec<Vec<u8>> {
        state.unscanned.iter().map(|directory| directory.path.to_vec()).collect()
    };
    // The one that is forgotten has left room for the others.
    assert_eq!(waiting(&state), [b"long/waits".to_vec(), b"beside".to_vec()]);
    assert_eq!((observed.unscanned, state.places), (2, 0));
    let more = places.take_bytes(room / 4 - places.bytes() - 1, 0, room).unwrap();
    state.move_below(&group, 1, b"long", b"longer", &mut reports);
    assert_eq!((waiting(&state), state.observed[&1].unscanned), (vec![b"beside".to_vec()], 1));
    assert_eq!((reports.len(), state.dropped.len()), (1, 1), "losses are reported once");
    drop((state, rest, more));
    assert_eq!(places.bytes(), 0);
}

/// The tables of a crowd of watches shrink when it has gone.
#[test]
fn memory_of_many_watches_is_given_back() {
    let mut state = State::default();
    let places = Arc::default();
    let path = || CountedPath::new(Vec::new(), &places).unwrap();
    state.unscanned.reserve(10_000);
    state.directories.reserve(10_000);
    state.observed.reserve(10_000);
    state.unscanned.push(Unscanned { id: 1, path: path(), scan: Scan::Old });
    assert!(state.has_spare());
    state.give_back();
    assert!(!state.has_spare());
    assert_eq!(state.unscanned.len(), 1);
    let State { directories, observed, unscanned, .. } = state;
    for room in [directories.capacity(), observed.capacity(), unscanned.capacity()] {
        assert!(room <= 64, "room for {room}");
    }
}

/// Trees with long paths, of which each directory has few places and many bytes, do not take the last
/// quarter of the bytes.
#[test]
fn an_account_leaves_bytes_to_others() {
    const DEPTH: usize = HOST_DIRECTORIES_PER_TREE - 2;
    const TREES: usize = 12;
    let _alone = DIRECTORIES.lock();
    let folder = tempfile::tempdir().unwrap();
    if !is_watched(folder.path(), "an_account_leaves_bytes_to_others") {
        return;
    }
    let long = "d".repeat(240);
    let tops: Vec<_> = (0..TREES).map(|number| folder.path().join(number.to_string())).collect();
    for top in &tops {
        std::fs::create_dir_all(top.join(vec![&*long; DEPTH].join("/"))).unwrap();
    }
    let (ann, bob) = (Arc::default(), Arc::default());
    let watch = |top: &Path, places: &Arc<HostPlaces>| -> VfsResult<Box<dyn Observation>> {
        let all = places.count(Kind::Directory) + DEPTH + 1;
        let observer = of_account(places);
        let observed = observe(opened(top).as_fd(), true, Spelling::Bytes, observer)?;
        await_that(|| observed.lacks_room() || places.count(Kind::Directory) == all);
        Ok(observed)
    };
    let mut held = Vec::new();
    for top in &tops {
        match watch(top, &ann) {
            Ok(observation) => held.push(observation),
            Err(fault) => assert_eq!(fault, Fault::NoMemory),
        }
    }
    assert!(!held[0].lacks_room() && held[held.len() - 1].lacks_room());
    let most = HOST_DIRECTORIES_BYTES - HOST_DIRECTORIES_BYTES / 4;
    assert!(ann.bytes() <= most, "{} bytes", ann.bytes());
    assert!(ann.bytes() > most - 8_192, "{} bytes: it has room for more", ann.bytes());
    let of_bob = watch(&tops[0], &bob).unwrap();
    assert!(!of_bob.lacks_room());
    assert_eq!(bob.count(Kind::Directory), DEPTH + 1);
    // The thread removes the marks of trees that have ended.
    drop((held, of_bob));
    await_that(|| (ann.bytes(), bob.bytes()) == (0, 0));
}

/// Trees within trees, each of which has a place for each of its directories, do not take the last
/// quarter.
#[test]
fn an_account_leaves_places_to_others() {
    const DEPTH: usize = HOST_DIRECTORIES_PER_TREE;
    let _alone = DIRECTORIES.lock();
    let folder = tempfile::tempdir().unwrap();
    if !is_watched(folder.path(), "an_account_leaves_places_to_others") {
        return;
    }
    let folder = folder.path();
    let (ann, bob) = (Arc::default(), Arc::default());
    let mut held: Vec<Box<dyn Observation>> = Vec::new();
    let mut lacks = false;
    for number in 0..HOST_DIRECTORIES {
        let chain = format!("chain{number}/{}", vec!["d"; DEPTH - 1].join("/"));
        std::fs::create_dir_all(folder.join(&chain)).unwrap();
        let mut top = folder.join(chain);
        while !lacks && top != folder {
            let observer = of_account(&ann);
            let dir = opened(&top);
            match observe(dir.as_fd(), true, Spelling::Bytes, observer) {
                Ok(observation) => held.push(observation),
                Err(fault) => assert_eq!(fault, Fault::NoMemory),
            }
            await_scans();
            lacks = held.last().unwrap().lacks_room();
            top.pop();
        }
        if lacks {
            break;
        }
    }
    assert!(lacks, "the account has had room for all");
    let most = HOST_DIRECTORIES - HOST_DIRECTORIES / 4;
    assert_eq!(ann.count(frevo_store::Observed::Directory), most);
    let alone = folder.join("of-another");
    std::fs::create_dir(&alone).unwrap();
    let watch =
        |places| observe(opened(&alone).as_fd(), false, Spelling::Bytes, of_account(places));
    assert_eq!(watch(&ann).map(drop), Err(Fault::NoMemory));
    let of_bob = watch(&bob).unwrap();
    // The thread removes the marks of trees that have ended.
    drop(held);
    await_scans();
    assert_eq!(ann.count(frevo_store::Observed::Directory), 0);
    watch(&ann).unwrap();
    drop(of_bob);
}

/// Waits until the thread has marked and unmarked all that it has to.
fn await_scans() {
    let hub = super::hub().unwrap();
    await_that(|| {
        let state = hub.state.lock();
        state.unscanned.is_empty() && state.ended.is_empty() && state.unneeded.is_empty()
    });
}

fn await_that(is_done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        assert!(Instant::now() < until, "the thread does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Watches a tree of so many directories below its root. Returns the number of reports of losses
/// before a change in each of them was reported.
fn losses(root: &Path, below: usize) -> usize {
    for number in 0..below {
        std::fs::create_dir(root.join(number.to_string())).unwrap();
    }
    let (lost, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(HashSet::new())));
    let (told, changed) = (Arc::clone(&lost), Arc::clone(&seen));
    let observer = Observer::new(&Arc::default(), move |change| match change {
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
