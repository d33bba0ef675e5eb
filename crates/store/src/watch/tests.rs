use super::*;
use crate::file::Admission;
use crate::file_table::FileTable;
use crate::limits::*;
use crate::share_mode::Sharing;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use frevo_wire::dtyp::AccessMask;

/// A client that may have any number of bytes.
#[derive(Debug)]
struct Rich;

impl Payer for Rich {
    fn pay(&self, _: usize) -> bool {
        true
    }
}

impl Watches {
    /// A watch whose client may have any number of bytes.
    fn of(
        &self,
        id: OpenId,
        folder_id: FolderId,
        directory: &Arc<FileCell>,
        wanted: Wanted,
    ) -> (Arc<Watch>, bool) {
        let rich = |_| Ok::<Box<dyn Payer>, ()>(Box::new(Rich));
        self.begin(id, folder_id, directory, wanted, rich).unwrap()
    }
}

/// A client with a limit in bytes, and the bytes that it pays for.
#[derive(Debug, Clone)]
struct Poor(Arc<AtomicUsize>, usize);

impl Payer for Poor {
    fn pay(&self, bytes: usize) -> bool {
        if bytes <= self.1 {
            self.0.store(bytes, Ordering::Relaxed);
        }
        bytes <= self.1
    }
}

impl Drop for Poor {
    fn drop(&mut self) {
        // The watch has dropped its payer, so it pays nothing any more. The test's own copy is the
        // last one and is ignored.
        if Arc::strong_count(&self.0) > 1 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

const HERE: FolderId = FolderId(1);
const NAMES: CompletionFilter =
    CompletionFilter(CompletionFilter::FILE_NAME.0 | CompletionFilter::DIR_NAME.0);

const FLAT: Wanted = Wanted { filter: NAMES, is_tree: false, room: 4096 };
const TREE: Wanted = Wanted { is_tree: true, ..FLAT };

fn name(path: &str) -> Name {
    Name::from_stored(String::from(path))
}

fn directory(path: &str, inode: u64) -> Arc<FileCell> {
    let sharing = Sharing { read: true, write: true, delete: true };
    let id = OpenId(inode);
    let access = AccessMask::READ_DATA;
    let (folder_id, delete_on_close, lease, overwrites) = (FolderId(1), false, None, false);
    let admission = Admission {
        id,
        folder_id,
        access,
        granted: access,
        sharing,
        delete_on_close,
        lease,
        overwrites,
    };
    let key = FileKey::of_file(1, inode);
    FileTable::default().admit(key, &name(path), admission).unwrap().cell
}

fn poll(next: &mut Next<'_>) -> Poll<Reported> {
    Pin::new(next).poll(&mut Context::from_waker(Waker::noop()))
}

fn changes_of(watch: &Watch) -> Vec<(u32, String)> {
    match poll(&mut watch.next()) {
        Poll::Ready(Reported::Changes(changes)) => {
            changes.into_iter().map(|c| (c.action.0, c.name)).collect()
        }
        Poll::Pending => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn pairs(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
    expected.iter().map(|(action, name)| (*action, String::from(*name))).collect()
}

#[test]
fn only_changes_in_the_watched_directory_or_tree_are_reported() {
    let watches = Watches::default();
    let d = directory("d", 7);
    let flat = watches.of(OpenId(1), HERE, &d, FLAT).0;
    let tree = watches.of(OpenId(2), HERE, &d, TREE).0;
    let root = watches.of(OpenId(3), HERE, &directory("", 8), FLAT).0;
    for path in ["d\\a", "d\\b\\c", "d", "da", "e\\d\\a"] {
        let added = NotifyAction::ADDED;
        watches.report(HERE, &name(path), added, CompletionFilter::FILE_NAME);
        watches.report(FolderId(2), &name(path), added, CompletionFilter::FILE_NAME);
        watches.report(HERE, &name(path), added, CompletionFilter::SIZE);
    }
    assert_eq!(changes_of(&flat), pairs(&[(1, "a")]));
    assert_eq!(changes_of(&tree), pairs(&[(1, "a"), (1, "b\\c")]));
    assert_eq!(changes_of(&root), pairs(&[(1, "d"), (1, "da")]));
    assert!(changes_of(&flat).is_empty(), "once");
}

#[test]
fn the_first_request_says_what_is_watched() {
    let watches = Watches::default();
    let d = directory("d", 7);
    let one = watches.of(OpenId(1), HERE, &d, Wanted { filter: CompletionFilter::SIZE, ..FLAT }).0;
    let two = watches.of(OpenId(1), HERE, &d, TREE).0;
    assert!(Arc::ptr_eq(&one, &two));
    let added = NotifyAction::ADDED;
    watches.report(HERE, &name("d\\a"), added, CompletionFilter::FILE_NAME);
    assert!(changes_of(&two).is_empty());
    watches.forget(OpenId(1));
    assert!(watches.is_empty());
}

#[test]
fn renames_are_reported_in_pairs_or_as_removal_and_addition() {
    let watches = Watches::default();
    let watch = watches.of(OpenId(1), HERE, &directory("d", 7), TREE).0;
    let matches = CompletionFilter::FILE_NAME;
    watches.report_rename(HERE, &name("d\\a"), &name("d\\b"), matches);
    watches.report_rename(HERE, &name("d\\b"), &name("d\\e\\b"), matches);
    watches.report_rename(HERE, &name("d\\c"), &name("e\\c"), matches);
    let expected = [(4, "a"), (5, "b"), (2, "b"), (1, "e\\b"), (2, "c")];
    assert_eq!(changes_of(&watch), pairs(&expected));
}

#[test]
fn a_watched_directory_that_moves_is_watched_where_it_is() {
    let watches = Watches::default();
    let (watch, _) = watches.of(OpenId(1), HERE, &directory("d\\e", 7), FLAT);
    let (above, _) = watches.of(OpenId(2), HERE, &directory("d", 8), FLAT);
    let matches = CompletionFilter::DIR_NAME;
    watches.report_rename(HERE, &name("d\\e"), &name("d\\f"), matches);
    watches.report_rename(HERE, &name("d"), &name("g"), matches);
    assert_eq!(changes_of(&above), pairs(&[(4, "e"), (5, "f")]));
    for path in ["d\\e\\old", "g\\f\\new", "g\\x"] {
        let added = NotifyAction::ADDED;
        watches.report(HERE, &name(path), added, CompletionFilter::FILE_NAME);
    }
    assert_eq!(changes_of(&watch), pairs(&[(1, "new")]));
    assert_eq!(changes_of(&above), pairs(&[(1, "x")]));
    watches.forget(OpenId(1));
    watches.forget(OpenId(2));
    assert!(watches.is_empty() && watches.index.read().by_name.is_empty());
}

#[test]
fn changes_by_other_programs_are_filtered_and_stored() {
    let watches = Watches::default();
    let (watch, is_first) = watches.of(OpenId(1), HERE, &directory("d", 7), FLAT);
    assert!(is_first);
    let action = NotifyAction::MODIFIED;
    let change = |matches| HostChange::Change { action, name: "x", matches };
    watch.directory.add_host(false, &change(CompletionFilter::SIZE));
    watch.directory.add_host(false, &HostChange::Renamed { from: "a", to: "b", matches: NAMES });
    watch.directory.add_host(false, &change(NAMES));
    assert_eq!(changes_of(&watch), pairs(&[(4, "a"), (5, "b"), (3, "x")]));
    watch.directory.add_host(false, &change(NAMES));
    watch.directory.add_host(false, &HostChange::Lost);
    assert_eq!(poll(&mut watch.next()), Poll::Ready(Reported::TooMany));
}

/// Tests that a change does not look at a thousand watches of other directories.
#[test]
fn other_directories_cost_nothing() {
    let watches = Watches::default();
    for i in 0..1_000 {
        let wanted = if i % 2 == 0 { FLAT } else { TREE };
        let _ = watches.of(OpenId(i), HERE, &directory(&alloc::format!("d{i}"), i), wanted);
    }
    let index = watches.index.bare().read();
    // The logs of all these watches are locked, so the report would hang if it touched one of them.
    let guards: Vec<_> =
        index.by_open.values().map(|watch| watch.directory.log.bare().lock()).collect();
    let added = NotifyAction::ADDED;
    watches.report(HERE, &name("e\\f\\g"), added, CompletionFilter::FILE_NAME);
    drop(guards);
}

#[test]
fn requests_are_answered_in_the_order_they_came() {
    let watches = Watches::default();
    let watch = watches.of(OpenId(1), HERE, &directory("d", 7), FLAT).0;
    let (mut one, mut two, mut three) = (watch.next(), watch.next(), watch.next());
    let add = |path| {
        let matches = CompletionFilter::FILE_NAME;
        watches.report(HERE, &name(path), NotifyAction::ADDED, matches);
    };
    add("d\\a");
    assert!(poll(&mut two).is_pending() && poll(&mut three).is_pending());
    assert!(poll(&mut one).is_ready());
    drop(one);
    assert!(poll(&mut two).is_pending());
    drop(two);
    add("d\\b");
    assert!(poll(&mut three).is_ready(), "who gives up makes room");
}

#[test]
fn unread_changes_are_bounded() {
    let watches = Watches::default();
    let watch = watches.of(OpenId(1), HERE, &directory("", 7), FLAT).0;
    let add = |path: &str, action| {
        watches.report(HERE, &name(path), action, CompletionFilter::FILE_NAME);
    };
    for count in [CHANGES_PER_WATCH - 1, CHANGES_PER_WATCH] {
        (0..count).for_each(|i| add(&alloc::format!("{i}"), NotifyAction::ADDED));
        assert_eq!(changes_of(&watch).len(), count);
    }
    (0..=CHANGES_PER_WATCH).for_each(|i| add(&alloc::format!("{i}"), NotifyAction::ADDED));
    assert_eq!(poll(&mut watch.next()), Poll::Ready(Reported::TooMany));
    assert!(poll(&mut watch.next()).is_pending(), "told once");
    (0..CHANGES_PER_WATCH * 2).for_each(|_| add("same", NotifyAction::MODIFIED));
    assert_eq!(changes_of(&watch), pairs(&[(3, "same")]));
    for (bytes, fits) in [(0, true), (1, false)] {
        let long = "x".repeat(CHANGE_BYTES_PER_WATCH / 2 + bytes);
        add(&long, NotifyAction::ADDED);
        add(&long, NotifyAction::REMOVED);
        let expected = poll(&mut watch.next());
        assert_eq!(matches!(expected, Poll::Ready(Reported::Changes(_))), fits);
    }
}

#[test]
fn a_deleted_directory_ends_every_request() {
    let watches = Watches::default();
    let d = directory("d", 7);
    let watch = watches.of(OpenId(1), HERE, &d, FLAT).0;
    let (mut one, mut two) = (watch.next(), watch.next());
    watches.deleting(FileKey::of_file(1, 8));
    assert!(poll(&mut one).is_pending() && poll(&mut two).is_pending());
    watches.deleting(d.key());
    assert_eq!(poll(&mut two), Poll::Ready(Reported::Deleted));
    assert_eq!(poll(&mut one), Poll::Ready(Reported::Deleted));
    assert_eq!(poll(&mut watch.next()), Poll::Ready(Reported::Deleted));
}

/// MS-FSA 2.1.4.1: a change completes the request that waits for it, however late that request is
/// polled. The next change is for the next request, and the answer of a cancelled request is not
/// lost.
#[test]
fn a_change_is_for_the_request_that_waits_when_it_happens() {
    let watches = Watches::default();
    let watch = watches.of(OpenId(1), HERE, &directory("d", 7), FLAT).0;
    let report = |path: &str| {
        let added = NotifyAction::ADDED;
        watches.report(HERE, &name(path), added, CompletionFilter::FILE_NAME);
    };
    let names = |next: &mut Next<'_>| match poll(next) {
        Poll::Ready(Reported::Changes(changes)) => {
            changes.into_iter().map(|change| change.name).collect()
        }
        _ => Vec::new(),
    };
    let (mut first, mut second) = (watch.next(), watch.next());
    report("d\\a");
    report("d\\b");
    report("d\\c");
    assert_eq!(names(&mut second), ["b"]);
    assert_eq!(names(&mut first), ["a"]);
    assert_eq!(names(&mut watch.next()), ["c"]);
    let cancelled = watch.next();
    report("d\\e");
    report("d\\f");
    drop(cancelled);
    assert_eq!(names(&mut watch.next()), ["e", "f"]);
}

#[test]
fn a_watch_for_the_other_filter_skips_the_report() {
    let watches = Watches::default();
    let d = directory("d", 7);
    let attributes = CompletionFilter::ATTRIBUTES;
    let all = CompletionFilter(NAMES.0 | attributes.0);
    let both = watches.of(OpenId(1), HERE, &d, Wanted { filter: all, ..FLAT }).0;
    let one = watches.of(OpenId(2), HERE, &d, Wanted { filter: attributes, ..FLAT }).0;
    let modified = NotifyAction::MODIFIED;
    watches.report_unless(
        HERE,
        &name("d\\a"),
        modified,
        Filters { matches: attributes, unless: NAMES },
    );
    assert_eq!(changes_of(&one), pairs(&[(3, "a")]));
    assert!(changes_of(&both).is_empty());
}

/// Tests that a change is stored once for many watches, and that each watch reads only what it is
/// interested in.
#[test]
fn watches_of_one_directory_share_its_log() {
    let watches = Watches::default();
    let d = directory("d", 7);
    let many: Vec<_> = (0..200).map(|i| watches.of(OpenId(i), HERE, &d, FLAT).0).collect();
    let sizes = Wanted { filter: CompletionFilter::SIZE, ..FLAT };
    let other = watches.of(OpenId(5_000), HERE, &d, sizes).0;
    assert_eq!(watches.bytes(), 0);
    let report = |path: &str, matches| {
        watches.report(HERE, &name(path), NotifyAction::ADDED, matches);
    };
    for i in 0..100 {
        report(&alloc::format!("d\\name {i}"), CompletionFilter::FILE_NAME);
    }
    report("d\\sized", CompletionFilter::SIZE);
    let bytes = watches.bytes();
    assert!((1_000..40_000).contains(&bytes), "{bytes} bytes for 101 changes");
    for watch in &many {
        assert_eq!(changes_of(watch).len(), 100);
        assert!(changes_of(watch).is_empty());
    }
    assert_eq!(changes_of(&other), pairs(&[(1, "sized")]));
    // All watches have read these reports, so the log must remove them.
    for i in 0..102 {
        report(&alloc::format!("d\\later {i}"), CompletionFilter::FILE_NAME);
        for watch in many.iter().chain([&other]) {
            let _ = changes_of(watch);
        }
    }
    assert!(watches.bytes() < bytes, "{} bytes", watches.bytes());
    (0..200).chain([5_000]).for_each(|id| watches.forget(OpenId(id)));
    drop((many, other));
    assert_eq!(watches.bytes(), 0);
}

/// Tests that each woken request wakes the next few.
#[test]
fn thousands_that_wait_are_woken_by_each_other() {
    use core::sync::atomic::AtomicUsize;
    struct Count(AtomicUsize);
    impl alloc::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let watches = Watches::default();
    let d = directory("d", 7);
    let many: Vec<_> = (0..3_000).map(|i| watches.of(OpenId(i), HERE, &d, FLAT).0).collect();
    let woken: Vec<_> = (0..3_000).map(|_| Arc::new(Count(AtomicUsize::new(0)))).collect();
    let wakers: Vec<_> = woken.iter().map(|count| Waker::from(Arc::clone(count))).collect();
    let mut waiting: Vec<_> = many.iter().map(|watch| Some(watch.next())).collect();
    for (next, waker) in waiting.iter_mut().flatten().zip(&wakers) {
        assert!(Pin::new(next).poll(&mut Context::from_waker(waker)).is_pending());
    }
    let count = || woken.iter().filter(|count| count.0.load(Ordering::Relaxed) > 0).count();
    watches.report(HERE, &name("d\\a"), NotifyAction::ADDED, CompletionFilter::FILE_NAME);
    assert_eq!(count(), WAKES_AT_ONCE);
    let mut done = 0;
    while done < 3_000 {
        let next =
            (0..3_000).find(|i| waiting[*i].is_some() && woken[*i].0.load(Ordering::Relaxed) > 0);
        let at = next.expect("somebody is woken while there are some left");
        let mut next = waiting[at].take().unwrap();
        // Every second request is polled; the others are dropped, which cancels them.
        if at % 2 == 0 {
            let polled = Pin::new(&mut next).poll(&mut Context::from_waker(&wakers[at]));
            let a = Change { action: NotifyAction::ADDED, name: String::from("a") };
            assert_eq!(polled, Poll::Ready(Reported::Changes(Vec::from([a]))));
        }
        drop(next);
        assert!(count() <= (2 * done + 3) * WAKES_AT_ONCE);
        done += 1;
    }
    // The first request of this watch was cancelled, so its next request returns the changes.
    assert_eq!(changes_of(&many[1]), pairs(&[(1, "a")]));
    assert!(changes_of(&many[0]).is_empty());
}

/// Tests that logs which nobody reads leave other logs only their newest report.
#[test]
fn all_logs_together_are_bounded() {
    let watches = Watches::default();
    watches.set_limit(64 << 10);
    let idle = watches.of(OpenId(1), HERE, &directory("idle", 7), FLAT).0;
    let live = watches.of(OpenId(2), HERE, &directory("live", 8), FLAT).0;
    let add = |path: &str| {
        watches.report(HERE, &name(path), NotifyAction::ADDED, CompletionFilter::FILE_NAME);
    };
    for i in 0..CHANGES_PER_WATCH {
        add(&alloc::format!("idle\\{i} {}", "x".repeat(200)));
    }
    assert!(watches.bytes() <= 64 << 10);
    let mut waits = live.next();
    assert!(poll(&mut waits).is_pending());
    add("live\\a");
    let a = Change { action: NotifyAction::ADDED, name: String::from("a") };
    assert_eq!(poll(&mut waits), Poll::Ready(Reported::Changes(Vec::from([a]))));
    add("live\\b");
    add("live\\c");
    assert!(watches.bytes() <= (64 << 10) + 1_024);
    assert_eq!(poll(&mut idle.next()), Poll::Ready(Reported::TooMany));
    let last = poll(&mut live.next());
    assert!(matches!(last, Poll::Ready(Reported::TooMany | Reported::Changes(_))));
    assert!(poll(&mut live.next()).is_pending());
}

#[test]
fn one_log_is_bounded() {
    for count in [REPORTS_PER_DIRECTORY - 1, REPORTS_PER_DIRECTORY, REPORTS_PER_DIRECTORY + 1] {
        let watches = Watches::default();
        let d = directory("d", 7);
        let names = watches.of(OpenId(1), HERE, &d, FLAT).0;
        let sizes = Wanted { filter: CompletionFilter::SIZE, ..FLAT };
        let sizes = watches.of(OpenId(2), HERE, &d, sizes).0;
        let report = |path: &str, matches| {
            watches.report(HERE, &name(path), NotifyAction::ADDED, matches);
        };
        report("d\\first", CompletionFilter::SIZE);
        (1..count).for_each(|i| {
            report(&alloc::format!("d\\{i}"), CompletionFilter::FILE_NAME);
        });
        let fits = count <= REPORTS_PER_DIRECTORY;
        let first = poll(&mut sizes.next());
        assert_eq!(matches!(first, Poll::Ready(Reported::Changes(_))), fits, "{count}");
        assert_eq!(poll(&mut names.next()), Poll::Ready(Reported::TooMany));
    }
}

#[test]
fn the_bytes_of_one_log_are_bounded() {
    for over in [-1, 0, 1] {
        let watches = Watches::default();
        let d = directory("d", 7);
        let names = watches.of(OpenId(1), HERE, &d, FLAT).0;
        let sizes = Wanted { filter: CompletionFilter::SIZE, ..FLAT };
        let sizes = watches.of(OpenId(2), HERE, &d, sizes).0;
        let report = |letter: &str, length, matches| {
            let path = alloc::format!("d\\{}", letter.repeat(length));
            watches.report(HERE, &name(&path), NotifyAction::ADDED, matches);
        };
        report("a", 1, CompletionFilter::SIZE);
        let before = watches.bytes();
        report("b", 1_000, CompletionFilter::FILE_NAME);
        let fixed = watches.bytes() - before - 1_000;
        let wanted = REPORT_BYTES_PER_DIRECTORY.checked_add_signed(over).unwrap();
        report("c", wanted - watches.bytes() - fixed, CompletionFilter::FILE_NAME);
        let fits = over <= 0;
        assert_eq!(watches.bytes() == wanted, fits, "{over}: {}", watches.bytes());
        let first = poll(&mut sizes.next());
        assert_eq!(matches!(first, Poll::Ready(Reported::Changes(_))), fits, "{over}");
        drop(names);
    }
}

/// Tests that no answer is empty when a file is written again and again while requests come and go.
#[test]
fn a_repeated_change_completes_the_next_request() {
    let watches = Watches::default();
    let watch = watches.of(OpenId(1), HERE, &directory("d", 7), FLAT).0;
    let modify = || {
        let modified = NotifyAction::MODIFIED;
        watches.report(HERE, &name("d\\a"), modified, CompletionFilter::FILE_NAME);
    };
    modify();
    let mut one = watch.next();
    modify();
    let mut two = watch.next();
    let a = Change { action: NotifyAction::MODIFIED, name: String::from("a") };
    let expected = Poll::Ready(Reported::Changes(Vec::from([a])));
    assert_eq!(poll(&mut one), expected);
    assert_eq!(poll(&mut two), expected);
    let mut three = watch.next();
    assert!(poll(&mut three).is_pending());
    modify();
    modify();
    assert_eq!(poll(&mut three), expected);
    assert_eq!(changes_of(&watch), pairs(&[(3, "a")]));
}

/// Tests that the client of the slowest watch pays for the log, and that reports beyond its limit
/// are dropped.
#[test]
fn the_slowest_watch_pays_for_the_log() {
    let watches = Watches::default();
    let d = directory("d", 7);
    let paid: Vec<_> = (0..2).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let begin = |id: u64, most| {
        let poor = Poor(Arc::clone(&paid[id as usize]), most);
        let payer = |path| {
            assert_eq!(path, 1, "bytes of the path");
            Ok::<Box<dyn Payer>, ()>(Box::new(poor))
        };
        watches.begin(OpenId(id), HERE, &d, FLAT, payer).unwrap().0
    };
    let held = || paid.iter().map(|paid| paid.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let slow = begin(0, 1 << 20);
    let change = |i: usize| {
        let name = name(&alloc::format!("d\\file{i:04}"));
        watches.report(HERE, &name, NotifyAction::ADDED, CompletionFilter::FILE_NAME);
    };
    (0..20).for_each(change);
    assert_eq!(held(), [watches.bytes(), 0]);
    let fast = begin(1, 4_000);
    assert_eq!(changes_of(&slow).len(), 20);
    (20..60).for_each(change);
    assert_eq!(changes_of(&slow).len(), 40);
    (60..400).for_each(change);
    // `fast` has read nothing, so it is charged instead of `slow`. It can be charged only 4,000
    // bytes, so its earliest reports are dropped.
    assert_eq!(held(), [0, watches.bytes()]);
    assert!((1_000..=4_000).contains(&watches.bytes()), "{}", watches.bytes());
    assert_eq!(poll(&mut fast.next()), Poll::Ready(Reported::TooMany));
    watches.forget(OpenId(1));
    assert_eq!(held(), [watches.bytes(), 0], "the remaining watch pays");
    watches.forget(OpenId(0));
    drop((slow, fast));
    assert_eq!((held(), watches.bytes()), (alloc::vec![0, 0], 0));
}

#[test]
fn a_watch_without_a_payer_is_refused() {
    let watches = Watches::default();
    let refused = watches.begin(OpenId(1), HERE, &directory("d", 7), FLAT, |_| Err("poor"));
    assert_eq!(refused.err(), Some("poor"));
    assert!(watches.is_empty() && watches.index.read().by_name.is_empty());
}

/// The room of thousands of watches is given back while others still watch.
#[test]
fn a_crowd_of_watches_leaves_no_room() {
    let watches = Watches::default();
    let wanted = Wanted { filter: NAMES, is_tree: false, room: 4_096 };
    let here = directory("d", 1);
    watches.of(OpenId(1), HERE, &here, wanted);
    for n in 2..5_000 {
        watches.of(OpenId(n), HERE, &here, wanted);
        watches.of(OpenId(n + 5_000), HERE, &directory("e", n), wanted);
    }
    for n in 2..5_000 {
        watches.forget(OpenId(n));
        watches.forget(OpenId(n + 5_000));
    }
    let index = watches.index.read();
    assert_eq!(index.by_open.len(), 1);
    let readers = index.by_open[&OpenId(1)].directory.log.lock().room_of_readers();
    for room in [index.by_open.capacity(), index.by_key.capacity(), readers] {
        assert!(room <= 64, "room for {room}");
    }
}

#[test]
fn a_listener_hears_of_all_changes_without_a_watch() {
    let watches = Watches::default();
    let heard = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let listener = Listener::new(move |folder_id, change: &HostChange<'_>| {
        ear.lock().push(match change {
            HostChange::Change { action, name, .. } => {
                let action = if *action == NotifyAction::ADDED { "ADDED" } else { "REMOVED" };
                alloc::format!("{} {action} {name}", folder_id.0)
            }
            HostChange::Renamed { from, to, .. } => alloc::format!("{} {from} {to}", folder_id.0),
            HostChange::Lost => String::from("lost"),
        });
    });
    let report = |watches: &Watches| {
        watches.report(HERE, &name("a"), NotifyAction::ADDED, NAMES);
        watches.report_rename(HERE, &name("a"), &name("b\\c"), NAMES);
        watches.report(FolderId(2), &name("d"), NotifyAction::REMOVED, NAMES);
    };
    report(&watches);
    assert!(watches.is_empty() && heard.lock().is_empty());
    watches.set_listeners(Vec::from([listener]));
    report(&watches);
    assert!(!watches.is_empty());
    assert_eq!(*heard.lock(), ["1 ADDED a", "1 a b\\c", "2 REMOVED d"]);
    watches.set_listeners(Vec::new());
    report(&watches);
    assert!(watches.is_empty() && heard.lock().len() == 3);
}
