//! Snapshots of a btrfs of the test's own. It takes root, and says so where it is left out.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "../../posix/tests/common/loops.rs"]
mod loops;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frevo_snapshot_hands::{Hands, Kind, SetUp, ShareSetUp, SnapshotPlace};
use frevo_snapshots::{FOLDER, Second};
use loops::Mounted;

/// A btrfs with a subvolume.
fn share(test: &str) -> Option<(Mounted, PathBuf)> {
    let Some(mounted) = Mounted::new("btrfs", 256, &["-q"], "loop") else {
        println!("{test}: skipped, no btrfs can be mounted");
        return None;
    };
    let share = mounted.path().join("share");
    subvolume(&share);
    Some((mounted, share))
}

fn subvolume(path: &Path) {
    let done = Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(path).status();
    assert!(done.unwrap().success());
}

fn hands(share: &Path) -> Hands {
    let shares = vec![ShareSetUp { folder: share.to_owned(), kind: Kind::Btrfs }];
    Hands::within(SetUp { shares, mounts: "/nowhere".into() }).unwrap()
}

fn second(at: u64) -> Second {
    Second::new(1_795_000_000 + at).unwrap()
}

/// Ends the writer, also when an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Bytes of one record of the writer.
const RECORD: usize = 8;

/// Tests that each snapshot has every record that was written before it was asked for, and none from after
/// its end. Nothing is flushed.
#[test]
fn a_snapshot_has_what_was_written_before() {
    let Some((_mounted, share)) = share("a_snapshot_has_what_was_written_before") else { return };
    let rounds = std::env::var("FREVO_SNAPSHOT_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut file = std::fs::File::create(share.join("records")).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0_u64.. {
                file.write_all(&number.to_le_bytes()).unwrap();
                written.store(number + 1, Ordering::Release);
                if is_over.load(Ordering::Acquire) {
                    return;
                }
            }
        });
        let _over = Over(&is_over);
        let mut hands = hands(&share);
        for round in 0..rounds {
            let before = written.load(Ordering::Acquire);
            hands.create(0, second(round)).unwrap();
            let after = written.load(Ordering::Acquire);
            let kept = share.join(FOLDER).join(second(round).to_name()).join("records");
            let kept = std::fs::read(kept).unwrap();
            let count = (kept.len() / RECORD) as u64;
            assert!(before <= count && count <= after + 1, "{before} {count} {after}");
            // Records that are written meanwhile are there or not. Their places may be there without them.
            let is_right = |(number, record): (u64, &[u8])| {
                record == number.to_le_bytes() || (number >= before && record == [0; RECORD])
            };
            assert!((0..).zip(kept.chunks(RECORD)).all(is_right), "round {round}");
        }
        assert_eq!(hands.list(0).unwrap().len() as u64, rounds);
    });
}

#[test]
fn snapshots_are_read_only_and_go_when_they_are_removed() {
    let Some((_mounted, share)) = share("snapshots_are_read_only") else { return };
    std::fs::write(share.join("a"), "old").unwrap();
    let mut hands = hands(&share);
    assert_eq!(hands.list(0).unwrap(), []);
    hands.create(0, second(1)).unwrap();
    let twice = hands.create(0, second(1)).unwrap_err().to_string();
    assert!(twice.contains("there is one of 2026-"), "{twice}");
    std::fs::write(share.join("a"), "new").unwrap();
    hands.create(0, second(2)).unwrap();
    let of = |at: u64| share.join(FOLDER).join(second(at).to_name()).join("a");
    assert_eq!(std::fs::read_to_string(of(1)).unwrap(), "old");
    assert_eq!(std::fs::read_to_string(of(2)).unwrap(), "new");
    let refused = std::fs::write(of(1), "changed").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(hands.list(0).unwrap(), [second(2), second(1)]);
    hands.remove(0, second(1)).unwrap();
    hands.remove(0, second(1)).unwrap();
    assert_eq!(hands.list(0).unwrap(), [second(2)]);
}

#[test]
fn things_of_others_stay() {
    let Some((_mounted, share)) = share("things_of_others_stay") else { return };
    let mut hands = hands(&share);
    hands.create(0, second(1)).unwrap();
    let folder = share.join(FOLDER);
    // Others' names are not listed, and things that are no snapshots not removed, whatever their names.
    subvolume(&folder.join("mine"));
    subvolume(&folder.join(second(2).to_name()));
    std::fs::create_dir(folder.join(second(3).to_name())).unwrap();
    std::fs::write(folder.join(second(4).to_name()), "a file").unwrap();
    std::os::unix::fs::symlink(second(1).to_name(), folder.join(second(5).to_name())).unwrap();
    for at in 2..=5 {
        let fault = hands.remove(0, second(at)).unwrap_err().to_string();
        assert!(fault.starts_with("cannot remove the snapshot frevo-2026"), "{fault}");
    }
    assert!(!hands.list(0).unwrap().contains(&second(6)));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 6);
}

#[test]
fn a_folder_that_others_can_change_is_not_used() {
    let Some((mounted, share)) = share("a_folder_that_others_can_change_is_not_used") else {
        return;
    };
    let folder = share.join(FOLDER);
    let mut hands = hands(&share);
    hands.create(0, second(1)).unwrap();
    // One that others can read is none of the server's own either: a client may have made it before.
    for mode in [0o770, 0o755] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&folder, mode).unwrap();
        let fault = hands.create(0, second(2)).unwrap_err().to_string();
        assert!(fault.contains("not a folder that the server has made"), "{fault}");
    }
    std::fs::rename(&folder, share.join("away")).unwrap();
    std::os::unix::fs::symlink("away", &folder).unwrap();
    hands.create(0, second(2)).unwrap_err();
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(61_001), None).unwrap();
    hands.create(0, second(2)).unwrap_err();
    std::fs::remove_dir(&folder).unwrap();
    // A folder of the server's own is made again.
    hands.create(0, second(2)).unwrap();
    // A plain folder of the file system has no snapshots of its own.
    let plain = mounted.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let fault = SnapshotPlace::find(&plain, None, Path::new("/x")).unwrap_err().to_string();
    assert!(
        fault.contains("is no subvolume") && fault.contains("btrfs subvolume create"),
        "{fault}"
    );
    let found = SnapshotPlace::find(&share, None, Path::new("/x")).unwrap();
    assert_eq!(found.kind(), Kind::Btrfs);
}

#[test]
fn subvolumes_in_a_share_are_told() {
    let Some((_mounted, share)) = share("subvolumes_in_a_share_are_told") else { return };
    let told = || SnapshotPlace::find(&share, None, Path::new("/x")).unwrap().lacks_data();
    assert_eq!(told(), None);
    // Snapshots are not missed in others: those of the server, of snapper, and read-only ones of other programs.
    hands(&share).create(0, second(1)).unwrap();
    subvolume(&share.join(".snapshots"));
    let mut taken = Command::new("btrfs");
    taken.args(["-q", "subvolume", "snapshot", "-r"]).arg(&share).arg(share.join("weekly"));
    assert!(taken.status().unwrap().success());
    assert_eq!(told(), None);
    std::fs::create_dir(share.join("a")).unwrap();
    subvolume(&share.join("a/nested"));
    let text = told().unwrap();
    assert!(text.contains("empty folders there: a/nested; share each"), "{text}");
    for name in ["b", "c", "d"] {
        subvolume(&share.join(name));
    }
    let text = told().unwrap();
    assert!(text.contains("a/nested, b, c and more"), "{text}");
    hands(&share).create(0, second(2)).unwrap();
    let kept = share.join(FOLDER).join(second(2).to_name());
    assert_eq!(std::fs::read_dir(kept.join("a/nested")).unwrap().count(), 0);
}
