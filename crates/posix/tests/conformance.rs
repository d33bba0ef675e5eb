//! The common checks of all implementors of `Vfs`, and a comparison of the host with memory on
//! arbitrary sequences of calls.

mod common;

use std::sync::Arc;

use common::{Share, name, share};
use frevo_store::conformance::Subject;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::vfs::{BasicChange, Existence, Kind, KindWanted, Node, OpenHow, VfsResult};
use frevo_store::{FileKey, Stat, Vfs};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use proptest::prelude::*;

struct Host(Share);

impl Subject for Host {
    fn vfs(&self) -> &dyn Vfs {
        &self.0.vfs
    }

    fn symlink(&self, name: &str, target: &str) {
        let path = self.0.path(&name.replace('\\', "/"));
        std::os::unix::fs::symlink(target, path).unwrap();
    }
}

frevo_store::conformance_tests!(Host(share()));

/// Short enough to meet often, in two directories and below a file.
const PATHS: [&str; 16] = [
    "", "a", "A", "b", "d", "D", "d\\a", "D\\A", "d\\b", "d\\é", "d\\É", "d\\e", "d\\e\\a",
    "D\\E\\d", "link", "link\\a",
];

#[derive(Debug, Clone)]
enum Step {
    Open {
        at: usize,
        existence: u8,
        kind: u8,
        access: u8,
        exact: bool,
        hidden: bool,
    },
    Close(usize),
    /// With the key of an open node.
    Remove(usize, usize),
    /// With the key that it has.
    RemoveThis(usize),
    Rename(usize, usize, usize, bool),
    RenameThis(usize, usize, bool),
    Link(usize, usize, bool),
    Stat(usize),
    NodeStat(usize),
    Read(usize, u16, u16),
    Write(usize, u16, u16),
    SetEnd(usize, u16),
    SetBasic(usize, u8, bool),
    SetEa(usize, u8, u8),
    List(usize),
    Symlink,
}

fn step() -> impl Strategy<Value = Step> {
    let path = 0..PATHS.len();
    let node = 0..8usize;
    prop_oneof![
        8 => (path.clone(), 0..3u8, 0..3u8, 0..4u8, prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(at, existence, kind, access, exact, hidden)| {
                Step::Open { at, existence, kind, access, exact, hidden }
            }),
        2 => node.clone().prop_map(Step::Close),
        1 => (path.clone(), node.clone()).prop_map(|(at, n)| Step::Remove(at, n)),
        2 => path.clone().prop_map(Step::RemoveThis),
        1 => (path.clone(), node.clone(), path.clone(), any::<bool>())
            .prop_map(|(a, n, b, r)| Step::Rename(a, n, b, r)),
        4 => (path.clone(), path.clone(), any::<bool>())
            .prop_map(|(a, b, r)| Step::RenameThis(a, b, r)),
        2 => (node.clone(), path.clone(), any::<bool>()).prop_map(|(n, b, r)| Step::Link(n, b, r)),
        1 => path.clone().prop_map(Step::Stat),
        1 => node.clone().prop_map(Step::NodeStat),
        2 => (node.clone(), 0..9_000u16, 0..9_000u16).prop_map(|(n, a, l)| Step::Read(n, a, l)),
        3 => (node.clone(), 0..9_000u16, 0..9_000u16).prop_map(|(n, a, l)| Step::Write(n, a, l)),
        1 => (node.clone(), 0..9_000u16).prop_map(|(n, end)| Step::SetEnd(n, end)),
        1 => (node.clone(), any::<u8>(), any::<bool>()).prop_map(|(n, b, m)| Step::SetBasic(n, b, m)),
        1 => (node, 0..4u8, 0..3u8).prop_map(|(n, name, len)| Step::SetEa(n, name, len)),
        2 => path.prop_map(Step::List),
        1 => Just(Step::Symlink),
    ]
}

const EA_NAMES: [&str; 4] = ["one", "ONE", "two", ""];

fn how(existence: u8, kind: u8, access: u8, exact: bool, hidden: bool) -> OpenHow {
    OpenHow {
        existence: [Existence::MustExist, Existence::MustNotExist, Existence::Either]
            [usize::from(existence)],
        kind: [KindWanted::Any, KindWanted::Directory, KindWanted::NotDirectory][usize::from(kind)],
        read: access & 1 != 0,
        write: access & 2 != 0,
        open_link: hidden,
        attributes: if hidden { FileAttributes::HIDDEN } else { FileAttributes::EMPTY },
        mode: None,
        case_sensitive: exact,
    }
}

/// One file system under the model, with the nodes that are open in it.
struct Side<'a> {
    subject: &'a dyn Subject,
    nodes: Vec<Arc<dyn Node>>,
}

/// Returns the facts that both must agree on. Numbers and times differ.
fn described(stat: &Stat) -> String {
    let links = if stat.kind == Kind::Directory { u32::from(stat.links > 0) } else { stat.links };
    format!(
        "{:?} {} links {links} {:?} {:o} tag {:x}",
        stat.kind, stat.end_of_file, stat.attributes, stat.mode, stat.reparse_tag
    )
}

fn done(outcome: VfsResult<()>) -> String {
    format!("{outcome:?}")
}

impl Side<'_> {
    fn node(&self, at: usize) -> Option<&Arc<dyn Node>> {
        self.nodes.get(at % self.nodes.len().max(1))
    }

    fn key(&self, path: usize) -> VfsResult<FileKey> {
        self.subject.vfs().stat(&name(PATHS[path])).map(|stat| stat.key)
    }

    fn rename(&self, from: usize, key: VfsResult<FileKey>, to: usize, replace: bool) -> String {
        let (from, to) = (name(PATHS[from]), name(PATHS[to]));
        let renamed = key.and_then(|key| self.subject.vfs().rename(&from, key, &to, replace));
        format!("{renamed:?}")
    }

    /// Does a step and says how it went.
    fn run(&mut self, step: &Step) -> String {
        let vfs = self.subject.vfs();
        let on = |n: usize, f: &dyn Fn(&dyn Node) -> String| {
            self.node(n).map_or_else(String::new, |node| f(&**node))
        };
        match *step {
            Step::Open { at, existence, kind, access, exact, hidden } => {
                let how = how(existence, kind, access, exact, hidden);
                match vfs.open(&name(PATHS[at]), &how) {
                    Ok(opened) => {
                        let said = format!(
                            "{} {} {}",
                            opened.name,
                            opened.created,
                            described(&opened.stat)
                        );
                        self.nodes.push(opened.node);
                        said
                    }
                    Err(fault) => format!("{fault:?}"),
                }
            }
            Step::Close(n) => {
                if !self.nodes.is_empty() {
                    let at = n % self.nodes.len();
                    self.nodes.remove(at);
                }
                String::new()
            }
            Step::Remove(at, n) => on(n, &|node| done(vfs.remove(&name(PATHS[at]), node.key()))),
            Step::RemoveThis(at) => {
                done(self.key(at).and_then(|key| vfs.remove(&name(PATHS[at]), key)))
            }
            Step::Rename(a, n, b, r) => on(n, &|node| self.rename(a, Ok(node.key()), b, r)),
            Step::RenameThis(a, b, r) => self.rename(a, self.key(a), b, r),
            Step::Link(n, to, r) => on(n, &|node| done(vfs.link(node, &name(PATHS[to]), r))),
            Step::Stat(at) => format!("{:?}", vfs.stat(&name(PATHS[at])).map(|s| described(&s))),
            Step::NodeStat(n) => on(n, &|node| {
                let stat = node.stat().unwrap();
                format!("{} eas {}", described(&stat), stat.ea_size)
            }),
            Step::Read(n, at, len) => on(n, &|node| {
                let mut buffer = vec![0; usize::from(len) + 1];
                let count = node.read_at(at.into(), &mut buffer);
                format!("{count:?} {:x?}", &buffer[..count.unwrap_or(0)])
            }),
            Step::Write(n, at, len) => on(n, &|node| {
                let data: Vec<u8> = (at..=at + len).map(|b| b as u8).collect();
                done(node.write_at(at.into(), &data))
            }),
            Step::SetEnd(n, end) => on(n, &|node| done(node.set_end_of_file(end.into()))),
            Step::SetBasic(n, bits, mode) => on(n, &|node| {
                let attributes = FileAttributes(u32::from(bits) | FileAttributes::SYSTEM.0);
                let mode = mode.then_some(0o600 | u32::from(bits & 7));
                let change = BasicChange {
                    attributes: Some(attributes),
                    mode,
                    created: Some(FileTime(0x01dc_0000_0000_0000)),
                    ..BasicChange::default()
                };
                done(node.set_basic(&change))
            }),
            Step::SetEa(n, at, len) => on(n, &|node| {
                let set = node.set_ea(EA_NAMES[usize::from(at)], &vec![b'v'; len.into()]);
                let eas = node.eas().map(|mut eas| {
                    eas.sort();
                    eas
                });
                format!("{set:?} {eas:?}")
            }),
            Step::List(at) => format!("{:?}", self.list(PATHS[at])),
            Step::Symlink => {
                if vfs.stat(&name("link")).is_err() {
                    self.subject.symlink("link", "d");
                }
                String::new()
            }
        }
    }

    /// Entries with their states, in the order of their names.
    fn list(&self, at: &str) -> VfsResult<Vec<(String, String)>> {
        let how = how(0, 1, 1, false, false);
        let mut listing = self.subject.vfs().open(&name(at), &how)?.node.directory()?;
        let mut entries = Vec::new();
        while let Some(entry) = listing.next_name()?.map(String::from) {
            let stat = listing.entry_stat()?.expect("nobody else is here");
            entries.push((entry, described(&stat)));
        }
        entries.sort();
        Ok(entries)
    }

    /// The whole tree, with the content of every file.
    fn tree(&self, at: &str) -> Vec<(String, String)> {
        let mut tree = Vec::new();
        for (entry, state) in self.list(at).unwrap() {
            let path = name(at).child(&entry);
            let read =
                OpenHow { open_link: true, case_sensitive: true, ..how(0, 0, 1, false, false) };
            let node = self.subject.vfs().open(&path, &read).unwrap().node;
            let mut content = vec![0; 20_000];
            let count = node.read_at(0, &mut content);
            content.truncate(count.unwrap_or(0));
            tree.push((path.to_string(), format!("{state} {count:?} {content:x?}")));
            if node.stat().unwrap().kind == Kind::Directory && !path.path().contains(['A', 'D']) {
                tree.extend(self.tree(path.path()));
            }
        }
        tree
    }
}

struct Memory(MemoryVfs);

impl Subject for Memory {
    fn vfs(&self) -> &dyn Vfs {
        &self.0
    }

    fn symlink(&self, at: &str, target: &str) {
        self.0.symlink(&name(at), target).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn host_and_memory_answer_alike(steps in prop::collection::vec(step(), 1..60)) {
        let host = Host(share());
        let clock = Arc::new(|| FileTime(0x01dc_0000_0000_0000));
        let memory = Memory(MemoryVfs::new(MemoryOptions::default(), clock));
        let mut host = Side { subject: &host, nodes: Vec::new() };
        let mut memory = Side { subject: &memory, nodes: Vec::new() };
        for (at, step) in steps.iter().enumerate() {
            prop_assert_eq!(host.run(step), memory.run(step), "step {}: {:?}", at, step);
        }
        prop_assert_eq!(host.tree(""), memory.tree(""));
    }
}
