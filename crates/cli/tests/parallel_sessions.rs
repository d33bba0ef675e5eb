//! Trees of many small files go over several connections, and arrive whatever becomes
//! of one of them.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use harness::relay::{Fate, Relay};
use harness::world::{World, assert_same};
use harness::{PATIENCE, Said, said};

/// Enough for two lanes, and for more to come when one is cut.
const MANY: usize = 600;

/// A server, with a tree of small files and a large one, here and there.
struct Trees {
    world: World,
}

impl Trees {
    /// Of `count` small files.
    fn new(count: usize) -> Self {
        let world = World::new();
        for root in [world.place.folder("tree"), world.there("tree")] {
            for at in 0..count {
                let folder = root.join(format!("d{}", at % 7));
                fs::create_dir_all(&folder).unwrap();
                let data = format!("{at} ").repeat(at % 700);
                fs::write(folder.join(format!("file {at}")), data).unwrap();
            }
            fs::write(root.join("large"), "large".repeat(100_000)).unwrap();
        }
        Self { world }
    }

    fn relay(&self, fate: impl Fn(usize) -> Fate + Send + 'static) -> Relay {
        Relay::new(&self.world.address, fate)
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.world.run(arguments)
    }

    /// Sends the tree, and fetches it, and says how many connections each took.
    #[track_caller]
    fn there_and_back(
        &self,
        more: &[&str],
        fate: impl Fn(usize) -> Fate + Send + Copy + 'static,
    ) -> [usize; 2] {
        let url = |relay: &Relay, path| format!("smb://ann@{}/share/{path}", relay.address);
        let (there, back) = (self.relay(fate), self.relay(fate));
        let (to, from) = (url(&there, "sent"), url(&back, "tree"));
        let said = self.run(&[&["put", "-r", "--json", "tree", &to], more].concat());
        said.succeeds();
        let count = files(&self.path("tree"));
        let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(json["files"], count, "none is counted twice: {said:?}");
        assert_same(&self.path("tree"), &self.path("share/sent"));
        self.run(&[&["get", "-r", &from, "got"], more].concat()).succeeds();
        assert_same(&self.path("share/tree"), &self.path("got"));
        [there.made(), back.made()]
    }

    fn path(&self, below: &str) -> PathBuf {
        self.world.place.path(below)
    }
}

fn files(root: &Path) -> u64 {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

/// Begins to send the tree over a relay that holds what goes through it, and waits until
/// two connections are made and nothing moves on one of them.
fn held_up(trees: &Trees) -> (Relay, Child) {
    let relay = trees.relay(|nth| match nth {
        0 => Fate::HeldAfter(40_000),
        1 => Fate::HeldAfter(10_000),
        _ => Fate::Carried,
    });
    let url = format!("smb://ann@{}/share/sent", relay.address);
    let mut child = trees.world.command(&["put", "-r", "--json", "tree", &url]).spawn().unwrap();
    let begun = Instant::now();
    while relay.held() == 0 || relay.made() < 2 {
        assert!(begun.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(5));
    }
    (relay, child)
}

#[test]
fn a_server_that_is_killed_is_waited_for() {
    let mut trees = Trees::new(MANY);
    let (relay, child) = held_up(&trees);
    let made = relay.made();
    trees.world.kill();
    thread::sleep(Duration::from_millis(300));
    trees.world.start();
    let said = said(child.wait_with_output().unwrap());
    let json: serde_json::Value = serde_json::from_str(said.succeeds()).unwrap();
    assert_eq!(json["files"], files(&trees.path("tree")), "none is counted twice: {said:?}");
    assert_same(&trees.path("tree"), &trees.path("share/sent"));
    assert!(relay.made() > made);
}

#[test]
fn ctrl_c_ends_all_of_them() {
    let trees = Trees::new(MANY);
    let (_relay, child) = held_up(&trees);
    let begun = Instant::now();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let interrupted = said(child.wait_with_output().unwrap());
    assert_eq!(interrupted.code, 130, "{interrupted:?}");
    // The logoff waits at most two seconds for an answer, so the command ends in time.
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(files(&trees.path("share/sent")) < files(&trees.path("tree")));
    let url = format!("smb://ann@{}/share/", trees.world.address);
    trees.run(&["sync", "tree", &format!("{url}sent")]).succeeds();
    assert_same(&trees.path("tree"), &trees.path("share/sent"));
}

#[test]
fn many_small_files_take_a_second_connection() {
    let trees = Trees::new(MANY);
    assert_eq!(trees.there_and_back(&[], |_| Fate::Carried), [2, 2]);
}

#[test]
fn a_few_do_not_nor_do_those_who_want_one() {
    let trees = Trees::new(60);
    assert_eq!(trees.there_and_back(&[], |_| Fate::Carried), [1, 1]);
    let trees = Trees::new(MANY);
    assert_eq!(trees.there_and_back(&["--connections", "1"], |_| Fate::Carried), [1, 1]);
    trees.run(&["put", "--connections", "0", "tree", "smb://x/y"]).fails(2, &["1 to 16"]);
}

#[test]
fn a_server_that_refuses_the_second_is_content_with_one() {
    let trees = Trees::new(MANY);
    let fate = |nth| if nth == 0 { Fate::Carried } else { Fate::Refused };
    let made = trees.there_and_back(&[], fate);
    assert!(made.iter().all(|made| *made > 1), "it was tried: {made:?}");
}

#[test]
fn a_second_that_is_cut_comes_back() {
    let trees = Trees::new(MANY);
    let fate = |nth| if nth == 1 { Fate::CutAfter(10_000) } else { Fate::Carried };
    assert_eq!(trees.there_and_back(&[], fate), [3, 3]);
}

#[test]
fn a_second_that_is_cut_for_good_is_done_without() {
    let trees = Trees::new(MANY);
    let fate = |nth| match nth {
        0 => Fate::Carried,
        1 => Fate::CutAfter(10_000),
        _ => Fate::Refused,
    };
    let patience = ["--patience", "1"];
    let made = trees.there_and_back(&patience, fate);
    assert!(made.iter().all(|made| *made > 2), "it was tried: {made:?}");
}

#[test]
fn a_first_that_is_cut_comes_back() {
    let trees = Trees::new(MANY);
    let fate = |nth| if nth == 0 { Fate::CutAfter(40_000) } else { Fate::Carried };
    assert_eq!(trees.there_and_back(&[], fate), [3, 3]);
}

#[test]
fn sync_takes_it_too_both_ways() {
    let trees = Trees::new(MANY);
    let relay = trees.relay(|_| Fate::Carried);
    let url = |path| format!("smb://ann@{}/share/{path}", relay.address);
    trees.run(&["sync", "tree", &url("synced")]).succeeds();
    assert_eq!(relay.made(), 2);
    assert_same(&trees.path("tree"), &trees.path("share/synced"));
    trees.run(&["sync", &url("synced"), "back"]).succeeds();
    assert_eq!(relay.made(), 4);
    assert_same(&trees.path("tree"), &trees.path("back"));
    // Nothing is left to copy, and one connection is enough to find that out.
    trees.run(&["sync", &url("synced"), "back"]).succeeds();
    assert_eq!(relay.made(), 5);
}

#[test]
fn what_fails_on_both_fails() {
    let trees = Trees::new(MANY);
    // The target has a directory where the file `file 598` is to be copied, so this file fails.
    fs::create_dir_all(trees.path("share/sent/tree/d3/file 598/x")).unwrap();
    let url = format!("smb://ann@{}/share/sent", trees.world.address);
    trees.run(&["put", "-r", "tree", &url]).fails(1, &["file 598"]);
}
