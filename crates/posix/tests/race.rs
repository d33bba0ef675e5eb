//! Rules that must hold while another program changes the tree.

mod common;

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{Share, create, either, how, name, read, share, share_with, write};
use frevo_posix::PosixOptions;
use frevo_store::Fault;
use frevo_store::Vfs as _;
use frevo_store::vfs::{Existence, OpenHow, Parent};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// How long each race is run; FREVO_RACE_SECONDS makes it longer.
fn duration() -> Duration {
    let seconds = std::env::var("FREVO_RACE_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Tells the other threads to stop, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exchanges two entries until told to stop; returns how often.
fn exchange(s: &Share, a: &str, b: &str, stop: &AtomicBool) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, s.path(a), CWD, s.path(b), RenameFlags::EXCHANGE).unwrap();
        count += 1;
    }
    count
}

/// THREATS F1: a directory and a link that leads out change places all the
/// time; no open may reach what lies outside, in any mode.
fn nothing_outside_is_reached(options: PosixOptions) {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "outside").unwrap();
    let outside_path = outside.path().join("file");
    let s = share_with(options);
    s.mkdir("dir");
    s.file("dir/file", "inside");
    symlink(outside.path(), s.path("link")).unwrap();
    let secret = s.vfs.stat(&name("dir\\file")).unwrap().key.inode;
    let stop = AtomicBool::new(false);
    let (mut inside, mut refused) = (0u64, 0u64);
    let hows = [how(), read(), write(), either(), OpenHow { open_link: true, ..read() }];
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| exchange(&s, "dir", "link", &stop));
        let stopping = Stop(&stop);
        let end = Instant::now() + duration();
        while Instant::now() < end {
            // The kernel resolves "dir\file" in one system call; "DIR\FILE" is walked component by
            // component. Neither may lead outside.
            for text in ["dir\\file", "DIR\\FILE", "link\\file", "LINK\\File"] {
                for how in &hows {
                    match s.open(text, how) {
                        Ok(opened) => {
                            inside += 1;
                            assert_eq!(opened.node.key().inode, secret, "{text}: outside!");
                        }
                        Err(Fault::Symlink | Fault::Busy) => refused += 1,
                        Err(fault) => panic!("{text}: {fault:?}"),
                    }
                }
                // A file that is made in a folder that is open already must stay inside, too.
                let fresh = name(text).parent().child("fresh");
                if let Ok(parent) = s.vfs.open_parent(&fresh) {
                    let inside = Parent { node: &*parent.node, name: &parent.name };
                    match s.vfs.open_in(inside, &fresh, &either()) {
                        Ok(made) => s.vfs.remove(&made.name, made.node.key()).unwrap_or(()),
                        Err(Fault::Symlink | Fault::Busy) => {}
                        Err(fault) => panic!("{text}: {fault:?}"),
                    }
                }
                match s.open(&name(text).parent().child("fresh").to_string(), &either()) {
                    Ok(made) => s.vfs.remove(&made.name, made.node.key()).unwrap_or(()),
                    Err(Fault::Symlink | Fault::Busy) => {}
                    Err(fault) => panic!("{text}: {fault:?}"),
                }
            }
        }
        drop(stopping);
        assert!(swapper.join().unwrap() > 1_000, "the attacker did attack");
    });
    assert!(inside > 0 && refused > 0, "{inside} opens inside, {refused} refused");
    let left = std::fs::read_dir(outside.path()).unwrap().count();
    assert_eq!(left, 1, "nothing was made outside");
    assert_eq!(std::fs::read_to_string(outside_path).unwrap(), "outside");
}

#[test]
fn links_that_change_places_with_directories_lead_nowhere() {
    nothing_outside_is_reached(PosixOptions::default());
}

#[test]
fn nor_do_they_when_links_inside_are_followed() {
    let options = PosixOptions { follow_symlinks_inside: true, ..PosixOptions::default() };
    nothing_outside_is_reached(options);
}

#[test]
fn changes_by_other_processes_are_seen_at_once() {
    let s = share();
    s.file("Mixed", "x");
    assert!(s.open("MIXED", &how()).is_ok());
    for round in 0..50 {
        let (from, to) = if round % 2 == 0 { ("Mixed", "Other") } else { ("Other", "Mixed") };
        let moved = std::process::Command::new("mv").args([s.path(from), s.path(to)]).status();
        assert!(moved.unwrap().success());
        assert_eq!(s.open(&from.to_uppercase(), &how()).unwrap_err(), Fault::NotFound);
        assert_eq!(s.open(&to.to_uppercase(), &how()).unwrap().name, name(to));
        // Another process has just made the name, so creating it must fail, also in another case.
        let made = format!("Made{round}");
        let status = std::process::Command::new("touch").arg(s.path(&made)).status();
        assert!(status.unwrap().success());
        assert_eq!(s.open(&made.to_lowercase(), &create()).unwrap_err(), Fault::Exists);
    }
}

#[test]
fn directories_that_move_are_found_where_they_are() {
    let s = share();
    s.mkdir("One/Deep");
    s.file("One/Deep/File", "1");
    s.mkdir("Two/Deep");
    s.file("Two/Deep/File", "2");
    for _ in 0..200 {
        assert_eq!(s.content("ONE\\DEEP\\FILE").unwrap(), "1");
        assert_eq!(s.content("TWO\\DEEP\\FILE").unwrap(), "2");
        let exchange = RenameFlags::EXCHANGE;
        renameat_with(CWD, s.path("One"), CWD, s.path("Two"), exchange).unwrap();
        assert_eq!(s.content("ONE\\DEEP\\FILE").unwrap(), "2");
        assert_eq!(s.content("TWO\\DEEP\\FILE").unwrap(), "1");
        renameat_with(CWD, s.path("One"), CWD, s.path("Two"), exchange).unwrap();
    }
}

#[test]
fn one_of_many_makes_a_name() {
    let s = share();
    for round in 0..300 {
        let made = AtomicU32::new(0);
        let spellings = ["name", "NAME", "Name", "nAME"].map(|n| format!("{n}{round}"));
        std::thread::scope(|scope| {
            for spelling in &spellings {
                scope.spawn(|| {
                    let how = if round % 2 == 0 { create() } else { either() };
                    match s.open(spelling, &how) {
                        Ok(opened) => {
                            made.fetch_add(u32::from(opened.created), Ordering::Relaxed);
                        }
                        Err(fault) => assert_eq!(fault, Fault::Exists),
                    }
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1, "round {round}");
    }
    assert_eq!(s.list("").len(), 300);
}

#[test]
fn one_of_many_renames_to_a_name() {
    let s = share();
    for round in 0..200 {
        let moved = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for (i, spelling) in ["target", "TARGET", "Target"].iter().enumerate() {
                let from = format!("from{i}-{round}");
                s.file(&from, "");
                let key = s.vfs.stat(&name(&from)).unwrap().key;
                let (s, moved) = (&s, &moved);
                scope.spawn(move || {
                    let to = name(&format!("{spelling}{round}"));
                    match s.vfs.rename(&name(&from), key, &to, false) {
                        Ok(_) => {
                            moved.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(fault) => assert_eq!(fault, Fault::Exists),
                    }
                });
            }
        });
        assert_eq!(moved.load(Ordering::Relaxed), 1, "round {round}");
    }
}

#[test]
fn open_and_remove_race_without_surprise() {
    let s = share();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match s.open("File", &either()) {
                        Ok(opened) => match s.vfs.remove(&name("FILE"), opened.node.key()) {
                            Ok(()) | Err(Fault::Stale | Fault::NotFound) => {}
                            Err(fault) => panic!("remove: {fault:?}"),
                        },
                        Err(fault) => assert_eq!(fault, Fault::Busy),
                    }
                    match s.open("fILE", &OpenHow { existence: Existence::MustExist, ..read() }) {
                        Ok(_) | Err(Fault::NotFound | Fault::Busy) => {}
                        Err(fault) => panic!("open: {fault:?}"),
                    }
                }
            });
        }
        std::thread::sleep(duration() / 2);
        drop(Stop(&stop));
    });
}

/// As `git` does: many small files in many directories, each made under a
/// temporary name and moved to its own.
#[test]
fn many_small_files() {
    let s = share();
    for i in 0..1_000u32 {
        let dir = format!("{:02x}", i % 64);
        let is_new = OpenHow { kind: frevo_store::vfs::KindWanted::Directory, ..either() };
        s.open(&dir, &OpenHow { read: false, write: false, ..is_new }).unwrap();
        let temporary = s.open(&format!("{dir}\\tmp_obj_{i}"), &create()).unwrap();
        temporary.node.write_at(0, format!("object {i}").as_bytes()).unwrap();
        let to = name(&format!("{}\\{i:038x}", dir.to_uppercase()));
        let made = s.vfs.rename(&temporary.name, temporary.node.key(), &to, false).unwrap();
        assert_eq!(made, name(&format!("{dir}\\{i:038x}")));
    }
    for i in 0..1_000u32 {
        let text = format!("{:02X}\\{i:038X}", i % 64);
        assert_eq!(s.content(&text).unwrap(), format!("object {i}"));
    }
}
