//! Indexes of shares in memory: whatever changes they come to know what is there, and they tell nothing that the user
//! could not list.

use std::collections::BTreeSet;

use frevo_index::{Match, Query, Text};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::security::{Privileges, Token, maximal};
use frevo_store::vfs::{Existence, KindWanted, OpenHow, SecurityChange};
use frevo_store::{Name, Node};
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, FileTime, SecurityDescriptor, Sid};
use frevo_wire::fscc::notify::NotifyAction;
use proptest::prelude::*;

use super::search::Searcher;
use super::*;

/// A share with its index, whose thread is this one.
struct World {
    files: Arc<dyn Vfs>,
    index: Arc<ShareIndex>,
    walker: Walker,
}

fn world(rules: IndexRules) -> World {
    let clock = Arc::new(|| FileTime::from_unix(1_000_000_000, 0));
    let files: Arc<dyn Vfs> = Arc::new(MemoryVfs::new(MemoryOptions::default(), clock));
    let index = Arc::new(ShareIndex::new(rules));
    let share = Indexed {
        name: String::from("share"),
        files: Arc::clone(&files),
        bin: Some(String::from(".recycle")),
        life: Arc::default(),
    };
    World { files, walker: Walker::new(&index, share), index }
}

fn name(path: &str) -> Name {
    Name::from_stored(path.to_owned())
}

impl World {
    fn make(&self, path: &str, is_folder: bool) -> Arc<dyn Node> {
        let kind = if is_folder { KindWanted::Directory } else { KindWanted::NotDirectory };
        let how = OpenHow {
            read: true,
            write: !is_folder,
            existence: Existence::Either,
            kind,
            ..OpenHow::LOOK
        };
        self.files.open(&name(path), &how).unwrap().node
    }

    /// Walks through the share, and looks at all changes.
    fn settle(&mut self) {
        self.walker.settle();
    }

    /// All paths in the share.
    fn there(&self) -> BTreeSet<String> {
        let mut there = BTreeSet::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let opened = self.files.open(&name(&folder), &walk::LIST).unwrap();
            let mut listing = opened.node.directory().unwrap();
            while let Some(entry) = listing.next_name().unwrap().map(str::to_owned) {
                let path = if folder.is_empty() { entry } else { format!("{folder}\\{entry}") };
                if listing.entry_stat().unwrap().unwrap().kind == frevo_store::vfs::Kind::Directory
                {
                    folders.push(path.clone());
                }
                there.insert(path);
            }
        }
        there.retain(|path| !path.starts_with(".recycle"));
        there
    }

    fn found(&self, query: &Query) -> BTreeSet<String> {
        let viewer = Viewer { files: &self.files, token: None, hides_unreadable: false, bin: None };
        all(&Searcher { index: &self.index, viewer }, "", query)
    }

    fn tell(&self, action: NotifyAction, path: &str) {
        let matches = CompletionFilter::FILE_NAME;
        self.index.inbox.hear(&HostChange::Change { action, name: path, matches });
    }
}

fn all(searcher: &Searcher<'_>, scope: &str, query: &Query) -> BTreeSet<String> {
    let (mut found, mut after) = (BTreeSet::new(), None);
    loop {
        let Ok(page) = searcher.search(&name(scope), query, after, 3) else { return found };
        for one in page.found {
            assert!(found.insert(one.path.clone()), "{} is told twice", one.path);
        }
        after = page.after;
        if after.is_none() {
            return found;
        }
    }
}

fn text(text: &str) -> Query {
    let (text, part) = (text.to_owned(), Match::Within);
    Query::Name(Text { text, part, fold_case: true, fold_marks: true })
}

/// A change of the share by this server or another program.
#[derive(Debug, Clone)]
enum Act {
    Make {
        path: String,
        is_folder: bool,
    },
    Remove(usize),
    /// A rename that is told as one, or as a removal and an addition.
    Rename {
        from: usize,
        to: String,
        is_told_whole: bool,
    },
    /// The thread takes what it has heard.
    Look,
    Lose,
}

fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec("[abc]|Ä|\\.recycle", 1..4).prop_map(|names| names.join("\\"))
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (path(), any::<bool>()).prop_map(|(path, is_folder)| Act::Make { path, is_folder }),
        2 => any::<usize>().prop_map(Act::Remove),
        3 => (any::<usize>(), path(), any::<bool>())
            .prop_map(|(from, to, is_told_whole)| Act::Rename { from, to, is_told_whole }),
        2 => Just(Act::Look),
        1 => Just(Act::Lose),
    ]
}

/// Makes a change, and tells the index as the server does.
fn carry_out(world: &mut World, act: &Act) {
    let there = world.there();
    let pick = |number: &usize| there.iter().nth(number % there.len().max(1)).cloned();
    match act {
        Act::Make { path, is_folder } => {
            let how = OpenHow {
                existence: Existence::MustNotExist,
                kind: if *is_folder { KindWanted::Directory } else { KindWanted::NotDirectory },
                ..OpenHow::LOOK
            };
            if world.files.open(&name(path), &how).is_ok() {
                world.tell(NotifyAction::ADDED, path);
            }
        }
        Act::Remove(number) => {
            let Some(path) = pick(number) else { return };
            let key = world.files.stat(&name(&path)).unwrap().key;
            if world.files.remove(&name(&path), key).is_ok() {
                world.tell(NotifyAction::REMOVED, &path);
            }
        }
        Act::Rename { from, to, is_told_whole } => {
            let Some(from) = pick(from) else { return };
            let key = world.files.stat(&name(&from)).unwrap().key;
            if world.files.rename(&name(&from), key, &name(to), false).is_err() {
            } else if *is_told_whole {
                let matches = CompletionFilter::DIR_NAME;
                world.index.inbox.hear(&HostChange::Renamed { from: &from, to, matches });
            } else {
                world.tell(NotifyAction::REMOVED, &from);
                world.tell(NotifyAction::ADDED, to);
            }
        }
        Act::Look => world.walker.take_changes_now(),
        Act::Lose => {
            world.index.inbox.hear(&HostChange::Lost);
            world.settle();
            world.walker.walk_now();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_index_comes_to_know_what_is_there(acts in proptest::collection::vec(act(), 0..40)) {
        let mut world = world(IndexRules::default());
        world.settle();
        for act in &acts {
            carry_out(&mut world, act);
        }
        world.settle();
        prop_assert_eq!(world.there(), world.found(&Query::All));
        prop_assert!(world.index.state().complete);
    }
}

/// The users of a tree of rights: the one who asks, a group, and another.
fn sids() -> [Sid; 3] {
    [1_001, 1_002, 1_003].map(Sid::unix_user)
}

fn token() -> Token {
    let [user, group, _] = sids();
    let groups = Token::WELL_KNOWN.into_iter().chain([group]);
    Token::new(user, Sid::unix_group(100), groups, Privileges::EMPTY)
}

/// A small random number generator: a tree is a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// An access list of up to four entries that allow or deny something that matters, or something else.
    fn descriptor(&mut self) -> SecurityDescriptor {
        let masks = [
            AccessMask::FILE_GENERIC_READ,
            AccessMask::READ_DATA,
            AccessMask::EXECUTE | AccessMask::READ_ATTRIBUTES,
            AccessMask::FILE_ALL,
        ];
        let mut aces = Vec::new();
        for _ in 0..self.below(5) {
            let mask = masks[self.below(4) as usize];
            let sid = [sids()[0], sids()[1], sids()[2], Sid::EVERYONE][self.below(4) as usize];
            let make = if self.below(3) == 0 { Ace::deny } else { Ace::allow };
            aces.push(make(AceFlags::default(), mask, sid));
        }
        let owner = Some(sids()[self.below(3) as usize]);
        SecurityDescriptor { owner, dacl: Some(Acl { aces }), ..SecurityDescriptor::default() }
    }
}

/// A tree with rights at random, and the paths that the user may know of by a rule that is written down once more.
fn tree(seed: u64, hides: bool) -> (World, BTreeSet<String>) {
    let mut random = Random(seed);
    let (world, token) = (world(IndexRules::default()), token());
    let mut folders = vec![(String::new(), true)];
    let mut may_know = BTreeSet::new();
    for number in 0..4 + random.below(12) {
        let (folder, is_open) = folders[random.below(folders.len() as u64) as usize].clone();
        let entry = format!("n{number}");
        let path = if folder.is_empty() { entry } else { format!("{folder}\\{entry}") };
        let is_folder = random.below(2) == 0;
        let node = world.make(&path, is_folder);
        let mut rights = AccessMask::FILE_ALL;
        if random.below(3) > 0 {
            let descriptor = random.descriptor();
            rights = maximal(&descriptor, &token);
            let mut bytes = Vec::new();
            descriptor.encode(&mut bytes).unwrap();
            let change = SecurityChange {
                descriptor: Some(&bytes),
                uid: None,
                gid: None,
                mode: None,
                lists: None,
            };
            node.set_security(&change).unwrap();
        }
        let sees = !hides || rights.contains(AccessMask::FILE_GENERIC_READ);
        if is_open && sees {
            may_know.insert(path.clone());
        }
        if is_folder {
            folders.push((path, is_open && sees && rights.contains(AccessMask::READ_DATA)));
        }
    }
    (world, may_know)
}

/// Trees of rights that are tried: `FREVO_INDEX_TREES=100000` tries as many as docs/search.md promises.
fn trees() -> u64 {
    std::env::var("FREVO_INDEX_TREES").ok().and_then(|count| count.parse().ok()).unwrap_or(100)
}

#[test]
fn no_name_is_told_that_the_user_could_not_list() {
    let token = token();
    let mut told = 0;
    for seed in 0..trees() {
        for hides in [false, true] {
            let (mut world, may_know) = tree(seed, hides);
            world.settle();
            let viewer = Viewer {
                files: &world.files,
                token: Some(&token),
                hides_unreadable: hides,
                bin: None,
            };
            let searcher = Searcher { index: &world.index, viewer };
            for query in [Query::All, text("N")] {
                let found = all(&searcher, "", &query);
                assert_eq!(found, may_know, "seed {seed}, hides {hides}");
                told += found.len();
            }
            // A folder that is searched in tells no more.
            for path in world.found(&Query::All) {
                let below = all(&searcher, &path, &Query::All);
                let wanted: BTreeSet<_> = may_know
                    .iter()
                    .filter(|known| known.starts_with(&format!("{path}\\")))
                    .cloned()
                    .collect();
                assert_eq!(below, wanted, "seed {seed}, hides {hides}, in {path}");
            }
        }
    }
    assert!(told > 0);
}

#[test]
fn what_is_deleted_is_not_found() {
    let mut world = world(IndexRules::default());
    world.make("a", false);
    world.make(".recycle", true);
    world.make(".recycle\\ann", true);
    world.settle();
    assert_eq!(world.found(&Query::All), BTreeSet::from(["a".into()]));
    let key = world.files.stat(&name("a")).unwrap().key;
    world.files.rename(&name("a"), key, &name(".recycle\\ann\\a"), false).unwrap();
    world.tell(NotifyAction::REMOVED, "a");
    world.tell(NotifyAction::ADDED, ".recycle\\ann\\a");
    world.settle();
    assert!(world.found(&Query::All).is_empty());
    // A bin that was configured after the walk.
    world.make("b", true);
    world.make("b\\x", false);
    world.tell(NotifyAction::ADDED, "b");
    world.settle();
    let viewer =
        Viewer { files: &world.files, token: None, hides_unreadable: false, bin: Some("B") };
    let searcher = Searcher { index: &world.index, viewer };
    assert!(all(&searcher, "", &Query::All).is_empty());
}

#[test]
fn a_full_index_says_so_and_goes_on() {
    let mut world = world(IndexRules { max_files: 5, ..IndexRules::default() });
    for number in 0..6 {
        world.make(&format!("n{number}"), false);
    }
    world.settle();
    let state = world.index.state();
    assert_eq!((state.files, state.full, state.complete), (5, true, false));
    let gone = world.found(&Query::All).into_iter().next().unwrap();
    let key = world.files.stat(&name(&gone)).unwrap().key;
    world.files.remove(&name(&gone), key).unwrap();
    world.tell(NotifyAction::REMOVED, &gone);
    world.settle();
    world.walker.walk_now();
    world.settle();
    assert_eq!((world.index.state().files, world.index.state().complete), (5, true));
}

/// A file that is told has the size that it has now, and one that has gone is not told.
#[test]
fn what_is_told_is_looked_at() {
    let mut world = world(IndexRules::default());
    let node = world.make("a", false);
    world.make("b", false);
    world.settle();
    node.write_at(0, b"12345").unwrap();
    let key = world.files.stat(&name("b")).unwrap().key;
    world.files.remove(&name("b"), key).unwrap();
    let viewer = Viewer { files: &world.files, token: None, hides_unreadable: false, bin: None };
    let page = Searcher { index: &world.index, viewer }.search(&Name::root(), &Query::All, None, 9);
    let page = page.unwrap();
    assert_eq!(page.after, None);
    let [found] = &page.found[..] else { panic!("{page:?}") };
    assert_eq!((&*found.path, found.size, found.modified), ("a", 5, 1_000_000_000));
    // The search has the thread look at what had gone.
    assert_eq!(world.index.state().files, 2);
    world.settle();
    assert_eq!(world.index.state().files, 1);
}
