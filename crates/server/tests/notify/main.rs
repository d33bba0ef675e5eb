//! CHANGE_NOTIFY of what other programs on the host do.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "../client/mod.rs"]
mod client;

use std::path::Path;
use std::process::Command as Program;
use std::time::Duration;

use client::files::write_draft;
use client::*;
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter, Request};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::fscc::notify::NotifyEntries;

const NAMES: CompletionFilter =
    CompletionFilter(CompletionFilter::FILE_NAME.0 | CompletionFilter::DIR_NAME.0);
const ALL: CompletionFilter = CompletionFilter(0xFFF);

fn ask(file: FileId, filter: CompletionFilter, is_tree: bool, room: u32) -> Draft {
    let flags = if is_tree { ChangeNotifyFlags::WATCH_TREE } else { ChangeNotifyFlags::EMPTY };
    let request =
        Request { flags, output_buffer_length: room, file_id: file, completion_filter: filter };
    Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w))
}

fn changes(reply: &Reply) -> Vec<(u32, String)> {
    let output = change_notify::Response::parse(&reply.message).unwrap().output;
    let told = NotifyEntries::new(output).map(|entry| entry.unwrap());
    told.map(|entry| (entry.action.0, entry.name.decode().unwrap())).collect()
}

/// Another program.
fn host(world: &World, script: &str) {
    let at: &Path = world.dir.path();
    let ran = Program::new("sh").arg("-c").arg(script).current_dir(at).status().unwrap();
    assert!(ran.success());
}

/// True where this kernel and sandbox let a process watch.
fn is_possible() -> bool {
    let test = r"import ctypes,os,sys; sys.exit(ctypes.CDLL(None).fanotify_init(0xC01, 0) < 0)";
    let can = Program::new("python3").args(["-c", test]).status().expect("python3").success();
    if !can {
        println!("skipped: nobody may watch a file system here (fanotify_init)");
    }
    can
}

struct Watcher {
    peer: Peer,
    mount: Mount,
    directory: FileId,
    filter: CompletionFilter,
    is_tree: bool,
}

impl Watcher {
    async fn new(world: &World, path: &str, filter: CompletionFilter, is_tree: bool) -> Self {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::existing(path)).await;
        Self { peer, mount, directory, filter, is_tree }
    }

    async fn begin(&mut self) -> u64 {
        let draft = ask(self.directory, self.filter, self.is_tree, 65_536);
        let id = self.peer.send(vec![self.mount.put(draft)], self.mount.via()).await[0];
        self.peer.interim().await;
        id
    }

    /// Everything until `last` is told.
    async fn until(&mut self, mut pending: Option<u64>, last: (u32, &str)) -> Vec<(u32, String)> {
        let mut all = Vec::new();
        loop {
            let reply = match pending.take() {
                Some(id) => self.peer.final_reply(id).await,
                None => {
                    let draft = ask(self.directory, self.filter, self.is_tree, 65_536);
                    let id = self.peer.send(vec![self.mount.put(draft)], self.mount.via()).await[0];
                    self.peer.final_reply(id).await
                }
            };
            all.extend(changes(reply.ok()));
            if all.iter().any(|(action, name)| (*action, name.as_str()) == last) {
                return all;
            }
        }
    }
}

fn pairs(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
    expected.iter().map(|(action, name)| (*action, (*name).to_owned())).collect()
}

#[test]
fn other_programs_are_told_of_and_our_own_changes_once() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        let mut watcher = Watcher::new(world, "", NAMES, false).await;
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let id = watcher.begin().await;
        host(world, "mkdir d; echo 1 > a");
        let mut all = watcher.until(Some(id), (1, "a")).await;
        host(world, "mv a b");
        let file = bob.open_file(&bobs, &Want::file("own")).await;
        bob.on(&bobs, write_draft(file, 0, b"data")).await.ok();
        host(world, "mv b d/c; rmdir d 2>/dev/null || touch end");
        all.extend(watcher.until(None, (1, "end")).await);
        let own: Vec<_> = all.iter().filter(|(_, name)| name == "own").cloned().collect();
        assert_eq!(own, pairs(&[(1, "own")]), "once");
        all.retain(|(_, name)| name != "own");
        let expected = [(1, "d"), (1, "a"), (4, "a"), (5, "b"), (2, "b"), (1, "end")];
        assert_eq!(all, pairs(&expected));
    });
}

#[test]
fn own_writes_are_told_of_and_their_echo_is_not() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        world.file("f", "x");
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&bobs, &Want::existing("f")).await;
        let mut watcher = Watcher::new(world, "", ALL, true).await;
        let id = watcher.begin().await;
        bob.on(&bobs, write_draft(file, 0, b"data")).await.ok();
        let first = watcher.peer.final_reply(id).await;
        assert_eq!(changes(first.ok()), pairs(&[(3, "f")]));
        watcher.begin().await;
        watcher.peer.expect_silence(Duration::from_millis(100)).await;
    });
}

#[test]
fn the_filter_holds_for_other_programs_too() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        world.file("f", "x");
        for (filter, script) in [
            (CompletionFilter::SIZE, "echo 1 >> f"),
            (CompletionFilter::LAST_WRITE, "echo 1 >> f"),
            (CompletionFilter::ATTRIBUTES, "chmod 640 f"),
            (CompletionFilter::SECURITY, "chmod 600 f"),
            (CompletionFilter::CREATION, "touch f"),
        ] {
            let mut watcher = Watcher::new(world, "", filter, false).await;
            let id = watcher.begin().await;
            host(world, "mkdir d; rmdir d");
            host(world, script);
            let told = watcher.peer.final_reply(id).await;
            assert_eq!(changes(told.ok()), pairs(&[(3, "f")]), "{filter:?}");
        }
    });
}

/// More than is kept: the client is told to look for itself, and what comes
/// after that is told again.
#[test]
fn a_flood_is_to_be_looked_for() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        let mut watcher = Watcher::new(world, "", NAMES, false).await;
        let id = watcher.begin().await;
        host(world, "touch first");
        watcher.peer.final_reply(id).await.ok();
        host(world, "i=0; while [ $i -lt 1500 ]; do : > f$i; i=$((i+1)); done; sleep 0.2");
        let draft = ask(watcher.directory, NAMES, false, 65_536);
        let id = watcher.peer.send(vec![watcher.mount.put(draft)], watcher.mount.via()).await[0];
        let reply = watcher.peer.final_reply(id).await;
        reply.expect(Status::NOTIFY_ENUM_DIR);
        assert_eq!(changes(&reply), pairs(&[]));
        host(world, "touch last");
        watcher.until(None, (1, "last")).await;
    });
}

/// MS-FSA 2.1.5.11: a request that comes after the deletion gets what one before it would have got.
#[test]
fn a_deleted_folder_is_told_of_at_once() {
    in_world(async |world| {
        let folder = Want::file("d").options(CreateOptions::DIRECTORY_FILE);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let watched = peer.open_file(&mount, &folder).await;
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let goes = Want::existing("d")
            .options(CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE);
        let file = other.open_file(&theirs, &goes).await;
        other.close(&theirs, file).await;
        let late = ask(watched, CompletionFilter::FILE_NAME, false, 1000);
        peer.on(&mount, late).await.expect(Status::DELETE_PENDING);
    });
}
