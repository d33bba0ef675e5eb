use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::CWD;
use tempfile::TempDir;

use super::inotify::Change;
use super::*;
use crate::limits::TICK_MS;
use crate::names::Spelling;
use crate::stat;

struct Fixture {
    host: TempDir,
    dir: Dir,
    cache: NameCache,
}

fn open(path: &std::path::Path) -> Dir {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::Sub(Arc::new(rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap()))
}

fn fixture() -> Fixture {
    fixture_with(ShortNames::Off)
}

fn fixture_with(short_names: ShortNames) -> Fixture {
    let host = tempfile::tempdir().unwrap();
    let dir = open(host.path());
    Fixture { dir, host, cache: NameCache::new(short_names, Watching::Inotify) }
}

impl Fixture {
    fn touch(&self, name: &str) {
        std::fs::write(self.host.path().join(name), "").unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.host.path().join(from), self.host.path().join(to)).unwrap();
    }

    fn find(&self, wanted: &str) -> Option<String> {
        find_in(&self.cache, &self.dir, wanted)
    }

    fn readings(&self) -> u64 {
        self.cache.age.load(Ordering::Relaxed)
    }
}

fn find_in(cache: &NameCache, dir: &Dir, wanted: &str) -> Option<String> {
    let stx = sys::stat_fd(dir.fd()).unwrap();
    let found = cache.find(dir, Seen::of(&stx), wanted.as_bytes()).unwrap();
    found.map(|name| String::from_utf8(name).unwrap())
}

#[test]
fn one_reading_is_used_until_the_directory_is_removed() {
    let f = fixture();
    f.touch("One");
    assert_eq!(f.find("ONE").as_deref(), Some("One"));
    assert_eq!(f.find("two"), None);
    for i in 0..500 {
        f.touch(&format!("File{i}"));
        assert_eq!(f.find(&format!("fILE{i}")), Some(format!("File{i}")));
        assert_eq!(f.find(&format!("fILE{}", i + 1)), None);
    }
    f.rename("One", "Two");
    assert_eq!(f.find("one"), None);
    assert_eq!(f.find("two").as_deref(), Some("Two"));
    std::fs::remove_file(f.host.path().join("Two")).unwrap();
    assert_eq!(f.find("two"), None);
    assert_eq!(f.readings(), 1);
}

/// Tests that absent names of a large directory cost no reading, and that the result of a reading
/// is remembered.
#[test]
fn a_large_directory_is_not_read_for_absent_names() {
    let mut f = fixture();
    f.cache.limits = Limits { per_directory: 100, on_core: 50, ..f.cache.limits };
    for i in 0..1_000 {
        f.touch(&format!("Name{i}"));
    }
    let quick = |wanted: &str| {
        patience::short(|| {
            let stx = sys::stat_fd(f.dir.fd()).unwrap();
            f.cache.find(&f.dir, Seen::of(&stx), wanted.as_bytes())
        })
    };
    // This directory is too large to be read on a core thread, so the look-up gives up with AGAIN.
    assert_eq!(quick("new"), (Err(Errno::AGAIN), true));
    assert_eq!(f.find("new"), None);
    let absent = (0..1_000).filter(|i| quick(&format!("new{i}")) == (Ok(None), false)).count();
    assert!(absent > 980, "{absent} of 1000");
    assert_eq!(f.find("NAME7").as_deref(), Some("Name7"));
    assert_eq!(quick("NAME7"), (Ok(Some(b"Name7".to_vec())), false), "remembered");
    // The cache must learn of created, renamed and removed names without reading the directory
    // again.
    let absent = (0..).map(|i| format!("Fresh{i}")).find(|name| !quick(name).1).unwrap();
    f.find(&absent);
    f.touch(&absent);
    assert_eq!(f.find(&absent.to_uppercase()).as_deref(), Some(&*absent));
    f.rename("Name7", "Moved");
    assert_eq!(f.find("NAME7"), None);
    assert_eq!(f.find("MOVED").as_deref(), Some("Moved"));
    std::fs::remove_file(f.host.path().join(&absent)).unwrap();
    assert_eq!(f.find(&absent.to_uppercase()), None);
    assert_eq!(f.readings(), 1);
    let state = f.cache.state.read();
    let weight: usize = state.directories.values().map(|known| known.content.weight()).sum();
    assert_eq!(weight, state.names, "the count agrees");
}

fn short(name: &str) -> String {
    frevo_store::short_name::short_name(name).unwrap()
}

/// Tests that short names, present and absent, need one reading of a small directory, and follow its
/// changes.
#[test]
fn short_names_of_a_small_directory_are_remembered() {
    let f = fixture_with(ShortNames::On(Spelling::Bytes));
    let name = |i: usize| format!("a long name {i}.txt");
    (0..200).for_each(|i| f.touch(&name(i)));
    for i in 0..200 {
        assert_eq!(f.find(&short(&name(i)).to_lowercase()), Some(name(i)));
        assert_eq!(f.find(&short(&name(1_000 + i))), None);
    }
    f.rename(&name(7), "another long name.text");
    assert_eq!(f.find(&short(&name(7))), None);
    let moved = short("another long name.text");
    assert_eq!(f.find(&moved).as_deref(), Some("another long name.text"));
    // Both files have names that differ only in case, so they have the same short name.
    f.touch("ANOTHER long name.text");
    std::fs::remove_file(f.host.path().join("another long name.text")).unwrap();
    assert_eq!(f.find(&moved).as_deref(), Some("ANOTHER long name.text"));
    // A file whose long name equals the short name of another file is found first.
    f.touch(&moved);
    assert_eq!(f.find(&moved.to_lowercase()).as_deref(), Some(&*moved));
    assert_eq!(f.readings(), 1);
    let weight: usize =
        f.cache.state.read().directories.values().map(|known| known.content.weight()).sum();
    assert!(weight > 260 && weight == f.cache.state.read().names, "{weight}");
    let off = fixture();
    off.touch("a long name.txt");
    assert_eq!(off.find(&short("a long name.txt")), None);
}

/// Tests that absent short names of a large directory are answered on a core, without a reading, and
/// present ones after one search.
#[test]
fn short_names_of_a_large_directory_are_remembered() {
    let mut f = fixture_with(ShortNames::On(Spelling::Bytes));
    f.cache.limits = Limits { per_directory: 100, on_core: 50, ..f.cache.limits };
    let name = |i: usize| format!("a long name {i}.txt");
    (0..1_000).for_each(|i| f.touch(&name(i)));
    let quick = |wanted: &str| {
        patience::short(|| {
            let stx = sys::stat_fd(f.dir.fd()).unwrap();
            f.cache.find(&f.dir, Seen::of(&stx), wanted.as_bytes())
        })
    };
    assert_eq!(quick("ABC~1"), (Err(Errno::AGAIN), true));
    assert_eq!(f.find("absent"), None);
    let absent = |i: &usize| quick(&short(&name(5_000 + i))) == (Ok(None), false);
    let known = (0..1_000).filter(absent).count();
    assert!(known > 980, "{known} of 1000");
    assert_eq!(f.find(&short(&name(7))), Some(name(7)));
    assert_eq!(quick(&short(&name(7))), (Ok(Some(name(7).into())), false), "remembered");
    // Inotify events must also update what is known about short names.
    f.rename(&name(7), "moved to a long name");
    assert_eq!(f.find(&short(&name(7))), None);
    assert_eq!(quick(&short(&name(7))), (Ok(None), false), "remembered");
    f.rename("moved to a long name", &name(7));
    assert_eq!(f.find(&short(&name(7))), Some(name(7)));
    f.touch(&short(&name(7)));
    assert_eq!(f.find(&short(&name(7)).to_lowercase()), Some(short(&name(7))));
    assert_eq!(f.readings(), 1);
}

/// Tests that many names with one short name cost no more than others: clients can make them.
#[test]
fn names_with_one_short_name_are_kept() {
    let mut table = Table::new(ShortNames::On(Spelling::Bytes));
    let alike: Vec<String> = (0..1u32 << 12)
        .map(|bits| (0..12).map(|at| if bits >> at & 1 == 1 { 'A' } else { 'a' }).collect())
        .collect();
    for name in &alike {
        table.insert(name.as_bytes());
    }
    let wanted = short(&alike[0]);
    assert!(matches!(table.find(wanted.as_bytes()), Lookup::Present(_)));
    for (gone, name) in alike.iter().enumerate() {
        assert!(matches!(table.find(wanted.as_bytes()), Lookup::Present(_)), "{gone}");
        table.remove(name.as_bytes());
    }
    assert_eq!((table.find(wanted.as_bytes()), table.weight()), (Lookup::Absent, 0));
}

/// Tests that a directory's names are kept up to the limit, and a sketch beyond it.
#[test]
fn names_are_kept_up_to_the_limit_of_a_directory() {
    for (names, is_sketch) in [(99, false), (100, false), (101, true)] {
        let mut f = fixture();
        f.cache.limits = Limits { per_directory: 100, ..f.cache.limits };
        (0..names).for_each(|i| f.touch(&format!("Name{i}")));
        assert_eq!(f.find("NAME1").as_deref(), Some("Name1"));
        let state = f.cache.state.read();
        let mut directories = state.directories.values();
        let Directory { content, .. } = directories.next().unwrap();
        assert_eq!(matches!(content, Content::Sketch(_)), is_sketch, "{names} names");
    }
}

/// Tests that a core begins to read a large directory once, however often it changes, and reads it
/// itself when it has become small.
#[test]
fn a_core_remembers_large_directories() {
    let mut f = fixture();
    f.cache.watches = None;
    f.cache.limits = Limits { on_core: 50, ..f.cache.limits };
    (0..60).for_each(|i| f.touch(&format!("Name{i}")));
    let quick = || {
        patience::short(|| {
            let stx = sys::stat_fd(f.dir.fd()).unwrap();
            f.cache.find(&f.dir, Seen::of(&stx), b"absent")
        })
    };
    let large = || f.cache.large.lock().len();
    assert_eq!(large(), 0);
    for _ in 0..3 {
        assert_eq!((quick(), large()), ((Err(Errno::AGAIN), true), 1));
        assert_eq!((f.find("absent"), large()), (None, 1));
    }
    (0..30).for_each(|i| std::fs::remove_file(f.host.path().join(format!("Name{i}"))).unwrap());
    assert!(quick().1);
    assert_eq!((f.find("absent"), large()), (None, 0));
    f.touch("one more");
    assert_eq!(quick(), (Ok(None), false));
    let keys = 0..3 * LARGE_DIRECTORIES as u64;
    keys.for_each(|inode| f.cache.learn_size(FileKey { device: 1, inode, stream: 0 }, Ok(51)));
    assert_eq!(large(), LARGE_DIRECTORIES);
}

/// Tests that a core reads directories with so many names itself.
#[test]
fn a_core_reads_small_directories() {
    for (names, reads) in [(49, true), (50, true), (51, false)] {
        let mut f = fixture();
        f.cache.limits = Limits { on_core: 50, ..f.cache.limits };
        (0..names).for_each(|i| f.touch(&format!("Name{i}")));
        let (found, gave_up) = patience::short(|| {
            let stx = sys::stat_fd(f.dir.fd()).unwrap();
            f.cache.find(&f.dir, Seen::of(&stx), b"absent")
        });
        assert_eq!((found.is_ok(), gave_up), (reads, !reads), "{names} names");
        assert_eq!(f.find("NAME1").as_deref(), Some("Name1"));
    }
}

#[test]
fn changes_within_one_tick_are_seen() {
    let f = fixture();
    f.touch("a");
    for i in 0..3_000 {
        let (from, to) = if i % 2 == 0 { ("a", "b") } else { ("b", "a") };
        f.rename(from, to);
        assert_eq!(f.find(&from.to_uppercase()), None, "round {i}");
        assert_eq!(f.find(&to.to_uppercase()).as_deref(), Some(to), "round {i}");
    }
    assert_eq!(f.readings(), 1);
}

#[test]
fn times_serve_where_watches_do_not() {
    // Other programs may have the processor for longer than a tick.
    let fixtures = std::iter::repeat_with(|| {
        let mut f = fixture();
        f.cache.watches = None;
        let began = std::time::Instant::now();
        f.touch("a");
        assert_eq!(f.find("A").as_deref(), Some("a"));
        assert_eq!(f.find("B"), None);
        (began.elapsed().as_millis() < u128::from(TICK_MS / 2)).then_some(f)
    });
    let f = fixtures.flatten().next().unwrap();
    assert_eq!(f.readings(), 2, "changed too recently to be valid");
    std::thread::sleep(std::time::Duration::from_millis(3 * TICK_MS));
    for _ in 0..5 {
        assert_eq!(f.find("B"), None);
        assert_eq!(f.find("A").as_deref(), Some("a"));
    }
    assert_eq!(f.readings(), 3);
    for i in 0..300 {
        let (from, to) = if i % 2 == 0 { ("a", "b") } else { ("b", "a") };
        f.rename(from, to);
        assert_eq!(f.find(&from.to_uppercase()), None, "round {i}");
        assert_eq!(f.find(&to.to_uppercase()).as_deref(), Some(to), "round {i}");
    }
}

/// Tests that times are believed only when a change from then on gets others, whichever clock made
/// them.
#[test]
fn times_are_believed_after_a_tick_of_their_clock() {
    const TICK: std::time::Duration = std::time::Duration::from_millis(3 * TICK_MS);
    let (fine, coarse): (state::Times, state::Times) = ([(5, 7); 2], [(5, 0); 2]);
    let holds = |trust: Proof| format!("{trust:?}").contains("holds: true");
    for (times, is_believed) in [(fine, true), (coarse, false)] {
        // At the first check an old timestamp proves nothing, because the clock of a file server
        // may be behind.
        let first = Proof::of(times, None);
        assert!(!holds(first));
        std::thread::sleep(TICK);
        let second = Proof::of(times, Some(first));
        assert_eq!(holds(second), is_believed, "{times:?}");
        assert!(!holds(second.after([(6, 1); 2])), "changed while it was read");
        assert!(!holds(Proof::of([(6, 1); 2], Some(second))), "changed since");
    }
    let first = Proof::of(coarse, None);
    std::thread::sleep(std::time::Duration::from_millis(crate::limits::COARSE_TICK_MS));
    assert!(holds(Proof::of(coarse, Some(first))));
}

/// Tests a file system that tells nothing of changes, as sshfs, mergerfs and exfat-fuse do.
#[test]
fn names_of_a_silent_file_system_are_only_hints() {
    let mut f = fixture();
    f.cache.pretended = Some(volume::FUSE);
    f.touch("First");
    assert_eq!(f.find("FIRST").as_deref(), Some("First"));
    let readings = f.readings();
    for _ in 0..5 {
        assert_eq!(f.find("FIRST").as_deref(), Some("First"));
    }
    assert_eq!(f.readings(), readings, "a look is enough for a known name");
    for i in 0..50 {
        f.touch(&format!("New{i}"));
        assert_eq!(f.find(&format!("NEW{i}")), Some(format!("New{i}")));
    }
    std::fs::remove_file(f.host.path().join("First")).unwrap();
    assert_eq!(f.find("FIRST"), None);
    f.touch("fIRST");
    assert_eq!(f.find("FIRST").as_deref(), Some("fIRST"));
    // This process itself creates a name and tells the cache, so no reading is needed to find it.
    let key = stat::key_of(&sys::stat_fd(f.dir.fd()).unwrap());
    f.touch("Own");
    f.cache.came(key, b"Own");
    let readings = f.readings();
    assert_eq!(f.find("OWN").as_deref(), Some("Own"));
    assert_eq!(f.readings(), readings);
    let state = f.cache.state.read();
    let weight: usize = state.directories.values().map(|known| known.content.weight()).sum();
    assert_eq!(weight, state.names, "the count agrees");
}

/// Tests that a watch without notes, as on a layer below overlayfs, is no trap for a name that has
/// gone.
#[test]
fn a_missed_name_is_looked_for_again() {
    let f = fixture();
    f.touch("Gone");
    assert_eq!(f.find("GONE").as_deref(), Some("Gone"));
    std::fs::remove_file(f.host.path().join("Gone")).unwrap();
    f.cache.watches.as_ref().unwrap().take(|_| ());
    assert_eq!(f.find("GONE").as_deref(), Some("Gone"), "no note came");
    let key = stat::key_of(&sys::stat_fd(f.dir.fd()).unwrap());
    f.cache.missed(key, b"Gone");
    assert_eq!(f.find("GONE"), None);
    assert_eq!(f.readings(), 1);
}

#[test]
fn lost_notes_mean_a_new_reading() {
    let f = fixture();
    f.touch("Keep");
    assert_eq!(f.find("KEEP").as_deref(), Some("Keep"));
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    // A rename makes two events. Each event differs from the one before it, because the kernel
    // would merge equal events.
    f.touch("m0");
    for i in 0..limit / 2 + 10 {
        f.rename(&format!("m{i}"), &format!("m{}", i + 1));
    }
    let last = limit / 2 + 10;
    assert_eq!(f.find(&format!("M{last}")), Some(format!("m{last}")));
    assert_eq!(f.find("M0"), None);
    assert_eq!(f.find("KEEP").as_deref(), Some("Keep"));
    assert_eq!(f.readings(), 2);
    f.touch("After");
    assert_eq!(f.find("AFTER").as_deref(), Some("After"));
    assert_eq!(f.readings(), 2);
}

#[test]
fn a_new_directory_in_the_place_of_another_is_read() {
    let f = fixture();
    for round in 0..50 {
        let path = f.host.path().join("sub");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join(format!("File{round}")), "").unwrap();
        let dir = open(&path);
        let found = find_in(&f.cache, &dir, &format!("FILE{round}"));
        assert_eq!(found, Some(format!("File{round}")));
        if round > 0 {
            assert_eq!(find_in(&f.cache, &dir, &format!("FILE{}", round - 1)), None);
        }
        drop(dir);
        std::fs::remove_dir_all(&path).unwrap();
    }
    let state = f.cache.state.read();
    assert!(state.directories.len() <= 2, "the dead are forgotten");
}

#[test]
fn the_cached_names_are_bounded() {
    let mut f = fixture();
    f.cache.limits = Limits { names: 100, directories: 5, ..f.cache.limits };
    let mut dirs = Vec::new();
    for i in 0..12 {
        let path = f.host.path().join(format!("d{i}"));
        std::fs::create_dir(&path).unwrap();
        for j in 0..i * 10 {
            std::fs::write(path.join(format!("F{j}")), "").unwrap();
        }
        dirs.push(open(&path));
    }
    for round in 0..3 {
        for (i, dir) in dirs.iter().enumerate() {
            assert_eq!(find_in(&f.cache, dir, "f0").is_some(), i > 0, "round {round}");
            assert_eq!(find_in(&f.cache, dir, "none"), None);
            let state = f.cache.state.read();
            assert!(state.names <= 100, "{} names", state.names);
            assert!(state.directories.len() <= 6, "{} directories", state.directories.len());
            let mut names = 0;
            for directory in state.directories.values() {
                if let Content::Names(table) = &directory.content {
                    names += table.len();
                }
            }
            assert_eq!(names, state.names, "the count agrees");
        }
    }
    // Names that were added by inotify events count towards the limit, too.
    let grows = &dirs[1];
    find_in(&f.cache, grows, "f0");
    for i in 0..200 {
        std::fs::write(f.host.path().join(format!("d1/G{i}")), "").unwrap();
        assert_eq!(find_in(&f.cache, grows, &format!("g{i}")), Some(format!("G{i}")));
        assert!(f.cache.state.read().names <= 100);
    }
}

/// Tests one thread that renames and three that look up: a thread that looks twice without a rename
/// in between finds exactly one of the two names.
#[test]
fn threads_agree_on_what_there_is() {
    let f = fixture();
    f.touch("even");
    let stop = AtomicBool::new(false);
    let version = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let before = version.load(Ordering::SeqCst);
                    let (even, odd) = (f.find("EVEN"), f.find("ODD"));
                    if before.is_multiple_of(2) && version.load(Ordering::SeqCst) == before {
                        let rounds = before / 2;
                        assert_eq!(even.is_some(), rounds.is_multiple_of(2), "after {rounds}");
                        assert_eq!(odd.is_some(), !rounds.is_multiple_of(2), "after {rounds}");
                    }
                }
            });
        }
        for i in 0..8_000 {
            let (from, to) = if i % 2 == 0 { ("even", "odd") } else { ("odd", "even") };
            // The version is odd during a rename, which tells readers that the names are changing.
            version.fetch_add(1, Ordering::SeqCst);
            f.rename(from, to);
            version.fetch_add(1, Ordering::SeqCst);
            if i % 64 == 0 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(f.find("Even").as_deref(), Some("even"));
}

#[test]
fn a_directory_that_changes_while_it_is_read() {
    let f = fixture();
    for i in 0..3_000 {
        f.touch(&format!("Name{i}"));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0;
            while !stop.load(Ordering::Relaxed) {
                f.rename(&format!("Name{i}"), &format!("Moved{i}"));
                f.rename(&format!("Moved{i}"), &format!("Name{i}"));
                i = (i + 7) % 3_000;
            }
        });
        for _ in 0..30 {
            let key = stat::key_of(&sys::stat_fd(f.dir.fd()).unwrap());
            f.cache.forget(&mut f.cache.state.write(), key);
            f.find("name0");
        }
        stop.store(true, Ordering::Relaxed);
    });
    // After all renames the cached names equal the names on disk.
    for i in 0..3_000 {
        assert_eq!(f.find(&format!("NAME{i}")), Some(format!("Name{i}")));
        assert_eq!(f.find(&format!("MOVED{i}")), None);
    }
}

/// Tests that a move there and back, which looks like an exchange, is told from one.
#[test]
fn exchanges_and_moves_back_are_distinguished() {
    let f = fixture();
    f.touch("Aa");
    f.touch("Bb");
    assert_eq!(f.find("AA").as_deref(), Some("Aa"));
    let other = tempfile::tempdir_in(f.host.path().parent().unwrap()).unwrap();
    std::fs::write(other.path().join("far"), "").unwrap();
    for round in 0..300 {
        let exchange = |from: &std::path::Path, to: &std::path::Path| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, from, CWD, to, flags).unwrap();
        };
        exchange(&f.host.path().join("Aa"), &f.host.path().join("Bb"));
        exchange(&f.host.path().join("Aa"), &other.path().join("far"));
        assert_eq!(f.find("AA").as_deref(), Some("Aa"), "round {round}");
        assert_eq!(f.find("BB").as_deref(), Some("Bb"), "round {round}");
        f.rename("Aa", "Cc");
        f.rename("Cc", "Aa");
        if round > 100 {
            assert_eq!(f.find("CC"), None, "round {round}");
        }
        f.rename("Aa", &format!("New{round}"));
        f.rename(&format!("New{round}"), "Aa");
    }
    assert!(f.readings() <= 3, "{} readings", f.readings());
    for round in 0..300 {
        assert_eq!(f.find(&format!("NEW{round}")), None);
    }
}

/// Tests that a name stays known while only the first note of its exchange is there.
#[test]
fn half_an_exchange_removes_no_name() {
    let f = fixture();
    f.touch("Aa");
    f.touch("Bb");
    assert_eq!(f.find("AA").as_deref(), Some("Aa"));
    let notes = [
        Change::MovedOut(b"Aa"[..].into()),
        Change::MovedIn(b"Bb"[..].into()),
        Change::MovedOut(b"Bb"[..].into()),
        Change::MovedIn(b"Aa"[..].into()),
    ];
    let key = Seen::of(&sys::stat_fd(f.dir.fd()).unwrap()).key;
    assert!(f.cache.state.read().directories.contains_key(&key));
    for note in notes {
        f.cache.state.write().change(key, note);
        assert_eq!(f.find("AA").as_deref(), Some("Aa"));
        assert_eq!(f.find("BB").as_deref(), Some("Bb"));
    }
    // After the next event the removed name is known to be absent, without reading the directory
    // again.
    f.rename("Aa", "Cc");
    f.touch("Dd");
    assert_eq!(f.find("AA"), None);
    assert_eq!(f.readings(), 1);
}

/// Tests that a core waits neither for the lock of the cache nor for a large directory that another
/// thread reads.
#[test]
fn a_core_does_not_wait_for_readers() {
    let f = fixture();
    f.touch("One");
    assert_eq!(f.find("ONE").as_deref(), Some("One"));
    let key = stat::key_of(&sys::stat_fd(f.dir.fd()).unwrap());
    let stx = sys::stat_fd(f.dir.fd()).unwrap();
    let on_core = || patience::short(|| f.cache.find(&f.dir, Seen::of(&stx), b"ONE"));
    assert_eq!(on_core(), (Ok(Some(b"One".to_vec())), false));
    let held = f.cache.write();
    assert_eq!(on_core(), (Err(Errno::AGAIN), true));
    // Calls that go on without the lock have not given up, since they may change something.
    assert_eq!(patience::short(|| f.cache.watched(key).is_some()), (false, false));
    assert_eq!(patience::short(|| f.cache.missed(key, b"One")), ((), false));
    f.cache.keeps_unwatched.store(true, Ordering::Relaxed);
    assert_eq!(patience::short(|| f.cache.came(key, b"New")), ((), false));
    drop(held);
    // The notes that the call did not read are read by the next one.
    f.rename("One", "Two");
    let held = f.cache.write();
    assert_eq!(on_core().0, Err(Errno::AGAIN));
    drop(held);
    assert_eq!(on_core(), (Ok(None), false));
    assert_eq!(patience::short(|| f.cache.yield_to_readers(key)), (Ok(()), false));
    let reading = [f.cache.reads_beside(key), f.cache.reads_beside(key)];
    for reading in reading {
        let on_core = patience::short(|| f.cache.yield_to_readers(key));
        assert_eq!(on_core, (Err(Errno::AGAIN), true));
        assert_eq!(f.cache.yield_to_readers(key), Ok(()), "a thread waits");
        drop(reading);
    }
    assert_eq!(patience::short(|| f.cache.yield_to_readers(key)), (Ok(()), false));
}

/// Tests that changes which came while a directory was read are entered, in their order, whether they
/// are few or many.
#[test]
fn changes_during_a_reading_are_entered() {
    for count in [1, 255, 256, 257, 1_000] {
        let f = fixture();
        let stx = sys::stat_fd(f.dir.fd()).unwrap();
        let key = stat::key_of(&stx);
        let Ok(Trust::Watch(watch)) = f.cache.begin(&f.dir, key, &stx) else { return };
        let mut read = Read::Few(Table::new(ShortNames::Off));
        (0..count).for_each(|at| f.touch(&format!("Name{at}")));
        std::fs::remove_file(f.host.path().join("Name0")).unwrap();
        f.touch("Last");
        f.cache.catch_up(key, watch, &mut read);
        let rest = {
            let mut state = f.cache.write();
            f.cache.take_notes(&mut state);
            state.finish(key, watch).unwrap()
        };
        assert!(rest.len() <= 256, "{count}");
        rest.iter().for_each(|update| read.apply(update));
        assert_eq!(read.names(), count, "{count}");
        let Read::Few(table) = read else { panic!("few") };
        assert!(matches!(table.find(b"LAST"), Lookup::Present(_)));
        assert!(matches!(table.find(b"NAME0"), Lookup::Absent));
    }
}

/// Tests n and n + 1 names that nobody uses, and one directory that is used, at the first look and after many.
#[test]
fn names_that_nobody_uses_are_forgotten() {
    let mut f = fixture();
    f.cache.limits = Limits { unused: 100, ..f.cache.limits };
    let dirs = [40, 60, 1].map(|count| {
        let path = f.host.path().join(format!("d{count}"));
        std::fs::create_dir(&path).unwrap();
        for number in 0..count {
            std::fs::write(path.join(format!("F{number}")), "").unwrap();
        }
        open(&path)
    });
    let find = |at: usize| assert_eq!(find_in(&f.cache, &dirs[at], "f0").as_deref(), Some("F0"));
    let look = || {
        f.cache.forget_unused();
        f.cache.state.read().names
    };
    (0..2).for_each(find);
    assert_eq!((look(), look()), (100, 100), "so many stay");
    (0..3).for_each(find);
    assert_eq!(look(), 101, "all were used since the last look");
    (1..3).for_each(find);
    assert_eq!(look(), 61, "the one that nobody has used since the last look is forgotten");
    find(1);
    for number in 0..CACHED_NAMES_LOOKS {
        find(2);
        assert_eq!(look(), 61, "{number} looks");
    }
    let forgotten = (0..CACHED_NAMES_LOOKS).find(|_| {
        find(2);
        look() == 1
    });
    assert!(forgotten.is_some(), "few names, which nobody uses");
    for _ in 0..2 * CACHED_NAMES_LOOKS {
        look();
    }
    assert_eq!((look(), f.cache.counted.bytes()), (0, 0));
    (0..3).for_each(find);
}
