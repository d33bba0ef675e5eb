//! Changes by other programs are reported, changes by this process are not.
#![allow(clippy::print_stdout, missing_docs, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::OpenHow;
use frevo_store::{Fault, HostChange, Name, Observation, Observer, Vfs as _};
use parking_lot::Mutex;

/// One of the tests holds up the thread that all observations share.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Told {
    _observation: Box<dyn Observation>,
    changes: Arc<Mutex<Vec<String>>>,
}

const HOW: OpenHow = OpenHow { read: true, ..OpenHow::LOOK };

/// None where a sandbox forbids it: then there is nothing to test.
fn observe(root: &Path, is_tree: bool) -> Option<Told> {
    let vfs = PosixVfs::open_root(root, PosixOptions::default()).unwrap();
    let opened = vfs.open(&Name::root(), &HOW).unwrap();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&changes);
    let observer = move |change: &HostChange<'_>| {
        list.lock().push(match change {
            HostChange::Change { action, name, .. } => format!("{} {name}", action.0),
            HostChange::Renamed { from, to, .. } => format!("{from} -> {to}"),
            HostChange::Lost => String::from("lost"),
        });
    };
    match vfs.observe(&*opened.node, is_tree, Observer::new(&Arc::default(), observer)) {
        Ok(_observation) => Some(Told { _observation, changes }),
        Err(Fault::NotSupported) => None,
        Err(fault) => panic!("{fault}"),
    }
}

impl Told {
    /// Returns when changes in `directory` are reported: marks are made until one is.
    fn wait_for_watch(&self, directory: &Path) {
        let began = Instant::now();
        // On a busy machine a mark may be reported after the next one was made.
        let mut marks = Vec::new();
        loop {
            marks.push(format!("\\{}", mark(directory)));
            std::thread::sleep(Duration::from_millis(20));
            let is_mark = |change: &String| marks.iter().any(|mark| change.ends_with(mark));
            if self.changes.lock().iter().any(is_mark) {
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{} is not watched",
                directory.display()
            );
        }
    }

    /// Everything up to the mark, which another program makes.
    fn so_far(&self, root: &Path) -> Vec<String> {
        let mark = mark(root);
        let removed = format!("2 {mark}");
        let began = Instant::now();
        loop {
            let mut changes = self.changes.lock();
            if let Some(at) = changes.iter().position(|c| *c == removed) {
                let mut all: Vec<_> = changes.drain(..=at).collect();
                all.retain(|c| !c.ends_with("-mark"));
                all.dedup();
                return all;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{changes:?}");
            drop(changes);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Makes and removes a file in `directory`, and returns its name.
fn mark(directory: &Path) -> String {
    static MARKS: AtomicUsize = AtomicUsize::new(0);
    let mark = format!("{}-mark", MARKS.fetch_add(1, Ordering::Relaxed));
    host(directory, &format!("touch {mark}; rm {mark}"));
    mark
}

fn host(root: &Path, script: &str) {
    let ran = Command::new("sh").arg("-c").arg(script).current_dir(root).status().unwrap();
    assert!(ran.success());
}

#[test]
fn only_changes_by_other_programs_are_reported() {
    let _one = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    host(root, "mkdir sub; echo x > old");
    let Some(told) = observe(root, false) else { return };
    std::fs::write(root.join("own"), "1").unwrap();
    std::fs::rename(root.join("own"), root.join("own2")).unwrap();
    host(root, "echo 1 > a");
    host(root, "mv a b");
    host(root, "chmod 600 b");
    std::fs::write(root.join("b"), "own").unwrap();
    host(root, "mv b sub/c");
    host(root, "echo 2 > sub/d; mv sub/d e; rm e");
    std::fs::remove_file(root.join("own2")).unwrap();
    host(root, "mkdir f");
    let expected = ["1 a", "3 a", "a -> b", "3 b", "2 b", "1 e", "2 e", "1 f"];
    assert_eq!(told.so_far(root), expected);
}

/// One thread tells all observers: a panic of one must not silence the others.
#[test]
fn an_observer_that_panics_silences_no_other() {
    let _one = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let Some(told) = observe(root, false) else { return };
    let vfs = PosixVfs::open_root(root, PosixOptions::default()).unwrap();
    let opened = vfs.open(&Name::root(), &HOW).unwrap();
    let met = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&met);
    let observer = move |_: &HostChange<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        panic!("planted");
    };
    let _panicking =
        vfs.observe(&*opened.node, false, Observer::new(&Arc::default(), observer)).unwrap();
    host(root, "mkdir a; mkdir b");
    assert_eq!(told.so_far(root), ["1 a", "1 b"]);
    assert!(met.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_tree_is_observed_wherever_it_grows_and_moves() {
    let _one = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    host(root, "mkdir -p t/u out/v");
    let Some(told) = observe(&root.join("t"), true) else { return };
    let tree = root.join("t");
    // A thread adds the watches of new directories some time later, so the test waits for each.
    let settle = |directory: &str| told.wait_for_watch(&tree.join(directory));
    settle("u");
    host(&tree, "echo 1 > u/x");
    host(&tree, "mkdir u/n");
    settle("u/n");
    host(&tree, "touch u/n/y");
    host(&tree, "mv u w");
    host(&tree, "touch w/n/z");
    host(root, "mv out/v t/v");
    settle("v");
    host(root, "touch t/v/a; mv t/w out/w; touch out/w/unseen; rm -r t/v");
    std::fs::create_dir_all(tree.join("own/deep")).unwrap();
    settle("own/deep");
    host(&tree, "touch own/deep/s");
    let expected = [
        "1 u\\x",
        "3 u\\x",
        "1 u\\n",
        "1 u\\n\\y",
        "3 u\\n\\y",
        "u -> w",
        "1 w\\n\\z",
        "3 w\\n\\z",
        "1 v",
        "1 v\\a",
        "3 v\\a",
        "2 w",
        "2 v\\a",
        "2 v",
        "1 own\\deep\\s",
        "3 own\\deep\\s",
    ];
    assert_eq!(told.so_far(&tree), expected);
}

#[test]
fn observations_of_one_directory_end_by_themselves() {
    let _one = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (Some(one), Some(two)) = (observe(root, false), observe(root, true)) else { return };
    host(root, "mkdir x");
    assert_eq!(one.so_far(root), ["1 x"]);
    drop(one);
    host(root, "rmdir x");
    assert_eq!(two.so_far(root), ["1 x", "2 x"]);
}

#[test]
fn more_than_the_kernel_keeps_is_lost() {
    let _one = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let Some(told) = observe(root, false) else { return };
    // While `told.changes` is locked the callback blocks, so the thread reads no events and the
    // kernel's queue becomes full.
    let held = told.changes.lock();
    host(root, "i=0; while [ $i -lt 20000 ]; do : > f$i; i=$((i+1)); done");
    drop(held);
    let began = Instant::now();
    while !told.changes.lock().iter().any(|c| c == "lost") {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
}
