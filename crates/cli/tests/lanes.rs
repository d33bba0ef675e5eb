//! Trees of many small files go over several connections, and arrive whatever becomes
//! of one of them.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use harness::{Place, Said, Serving, said, text};

/// Enough for two lanes, and for more to come when one is cut.
const MANY: usize = 600;

/// What becomes of the connection with that number, from 0.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Carried,
    /// Closed as soon as it is made.
    Refused,
    /// Cut when the client has sent so many bytes.
    CutAfter(usize),
}

/// A relay in front of a server, which counts connections and cuts some.
struct Relay {
    address: String,
    made: Arc<AtomicUsize>,
}

impl Relay {
    fn new(server: &str, fate: impl Fn(usize) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let made = Arc::new(AtomicUsize::new(0));
        let (server, count) = (server.to_owned(), Arc::clone(&made));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                match fate(count.fetch_add(1, Ordering::SeqCst)) {
                    Fate::Refused => drop(client.shutdown(Shutdown::Both)),
                    Fate::Carried => carry(client, &server, usize::MAX),
                    Fate::CutAfter(bytes) => carry(client, &server, bytes),
                }
            }
        });
        Self { address, made }
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

/// Carries bytes both ways, until the client has sent `most`.
fn carry(client: TcpStream, server: &str, most: usize) {
    let server = TcpStream::connect(server).unwrap();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || pass(from_server, to_client, usize::MAX));
    thread::spawn(move || pass(client, server, most));
}

fn pass(mut from: TcpStream, mut to: TcpStream, most: usize) {
    let mut left = most;
    let mut buffer = vec![0; 16 << 10];
    while left > 0 {
        let Ok(count @ 1..) = from.read(&mut buffer) else { break };
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        left = left.saturating_sub(count);
    }
    for stream in [&from, &to] {
        // It may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

struct World {
    place: Place,
    server: Serving,
}

impl World {
    /// With a tree of `count` small files and a large one, here and there.
    fn new(count: usize) -> Self {
        let place = Place::new();
        for root in [place.folder("tree"), place.folder("share/tree")] {
            for at in 0..count {
                let folder = root.join(format!("d{}", at % 7));
                fs::create_dir_all(&folder).unwrap();
                let data = format!("{at} ").repeat(at % 700);
                fs::write(folder.join(format!("file {at}")), data).unwrap();
            }
            fs::write(root.join("large"), "large".repeat(100_000)).unwrap();
        }
        place.file("password", "secret", 0o600);
        let (folder, password) = (place.path("share"), place.path("password"));
        let state = place.path("state");
        let server = place.serve(&[
            text(&folder),
            "--listen",
            "127.0.0.1:0",
            "--user",
            "ann",
            "--password-file",
            text(&password),
            "--state-dir",
            text(&state),
        ]);
        Self { place, server }
    }

    fn relay(&self, fate: impl Fn(usize) -> Fate + Send + 'static) -> Relay {
        Relay::new(&self.server.address, fate)
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.place.command(arguments);
        said(command.env("FREVO_PASSWORD", "secret").output().unwrap())
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
        self.place.path(below)
    }
}

fn files(root: &Path) -> u64 {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    let out = Command::new("diff").arg("-r").arg(a).arg(b).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[test]
fn many_small_files_take_a_second_connection() {
    let world = World::new(MANY);
    assert_eq!(world.there_and_back(&[], |_| Fate::Carried), [2, 2]);
}

#[test]
fn a_few_do_not_nor_do_those_who_want_one() {
    let world = World::new(60);
    assert_eq!(world.there_and_back(&[], |_| Fate::Carried), [1, 1]);
    let world = World::new(MANY);
    assert_eq!(world.there_and_back(&["--connections", "1"], |_| Fate::Carried), [1, 1]);
    world.run(&["put", "--connections", "0", "tree", "smb://x/y"]).fails(2, &["1 to 16"]);
}

#[test]
fn a_server_that_refuses_the_second_is_content_with_one() {
    let world = World::new(MANY);
    let fate = |nth| if nth == 0 { Fate::Carried } else { Fate::Refused };
    let made = world.there_and_back(&[], fate);
    assert!(made.iter().all(|made| *made > 1), "it was tried: {made:?}");
}

#[test]
fn a_second_that_is_cut_comes_back() {
    let world = World::new(MANY);
    let fate = |nth| if nth == 1 { Fate::CutAfter(10_000) } else { Fate::Carried };
    assert_eq!(world.there_and_back(&[], fate), [3, 3]);
}

#[test]
fn a_second_that_is_cut_for_good_is_done_without() {
    let world = World::new(MANY);
    let fate = |nth| match nth {
        0 => Fate::Carried,
        1 => Fate::CutAfter(10_000),
        _ => Fate::Refused,
    };
    let patience = ["--patience", "1"];
    let made = world.there_and_back(&patience, fate);
    assert!(made.iter().all(|made| *made > 2), "it was tried: {made:?}");
}

#[test]
fn a_first_that_is_cut_comes_back() {
    let world = World::new(MANY);
    let fate = |nth| if nth == 0 { Fate::CutAfter(40_000) } else { Fate::Carried };
    assert_eq!(world.there_and_back(&[], fate), [3, 3]);
}

#[test]
fn sync_takes_it_too_both_ways() {
    let world = World::new(MANY);
    let relay = world.relay(|_| Fate::Carried);
    let url = |path| format!("smb://ann@{}/share/{path}", relay.address);
    world.run(&["sync", "tree", &url("synced")]).succeeds();
    assert_eq!(relay.made(), 2);
    assert_same(&world.path("tree"), &world.path("share/synced"));
    world.run(&["sync", &url("synced"), "back"]).succeeds();
    assert_eq!(relay.made(), 4);
    assert_same(&world.path("tree"), &world.path("back"));
    // Nothing is left to do, so that one is enough to see it.
    world.run(&["sync", &url("synced"), "back"]).succeeds();
    assert_eq!(relay.made(), 5);
}

#[test]
fn what_fails_on_both_fails() {
    let world = World::new(MANY);
    // A directory where a file is to go.
    fs::create_dir_all(world.path("share/sent/tree/d3/file 598/x")).unwrap();
    let url = format!("smb://ann@{}/share/sent", world.server.address);
    world.run(&["put", "-r", "tree", &url]).fails(1, &["file 598"]);
}
