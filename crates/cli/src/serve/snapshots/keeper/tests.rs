//! The thread's acts on a btrfs of the test's own. It takes root, and says so where it is left out.
#![allow(clippy::print_stdout, unreachable_pub, reason = "a test that is left out says so")]

#[path = "../../../../../posix/tests/common/loops.rs"]
mod loops;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use frevo_admin::{NotKept, SnapshotAct};
use frevo_server::{UserList, vfs};
use frevo_snapshot_hands::{SetUp, ShareSetUp, SnapshotPlace};
use loops::Mounted;

use super::super::for_admin::ShadowCopy;
use super::*;

/// A keeper of one share, which is on a file system of its own.
struct Site {
    keeper: Keeper,
    share: PathBuf,
    _mounted: Mounted,
}

impl Site {
    fn new(schedule: &str) -> Option<Self> {
        let mounted = Mounted::new("btrfs", 256, &["-q"], "loop")?;
        let share = mounted.path().join("share");
        let made = Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(&share).status();
        assert!(made.unwrap().success());
        let place = SnapshotPlace::find(&share, None, Path::new("/nowhere")).unwrap();
        let found = FoundPlace {
            share: String::from("photos"),
            folder: share.clone(),
            schedule: schedule.parse().unwrap(),
            is_optional: false,
            place: Ok(place.clone()),
            lacks: None,
        };
        let set_up = ShareSetUp { folder: share.clone(), kind: place.kind() };
        let set_up = SetUp { shares: vec![set_up], mounts: "/nowhere".into() };
        let kept = KeptShare::new(&found, Some(0), Some(BTreeSet::new()));
        let server = Server::builder()
            .share("photos", vfs::folder(&share).unwrap())
            .accounts(Arc::new(UserList::new().user("ann", "secret")))
            .build()
            .unwrap();
        let hands = Some(Hands::within(set_up).unwrap());
        let marks = Marks::read(Some(mounted.path().join("kept-snapshots")));
        let keeper = Keeper::new(vec![kept], hands, server, marks);
        Some(Self { keeper, share, _mounted: mounted })
    }

    fn copy(&mut self, copy: &ShadowCopy) -> Result<u64, String> {
        self.keeper.shadow_copy(copy)
    }

    fn create(&mut self) -> u64 {
        let (share, by) = (String::from("Photos"), String::from("ann"));
        self.copy(&ShadowCopy::Create { share, by }).unwrap()
    }

    fn release(&mut self, taken: u64) {
        let share = String::from("photos");
        assert_eq!(self.copy(&ShadowCopy::Release { share, taken }), Ok(taken));
    }

    fn expire(&mut self, taken: u64) {
        let share = String::from("photos");
        assert_eq!(self.copy(&ShadowCopy::Expire { share, taken }), Ok(taken));
    }

    fn count(&self) -> usize {
        let folder = self.share.join(frevo_snapshots::FOLDER);
        std::fs::read_dir(folder).unwrap().count()
    }
}

/// The copy of a client that begins again was removed at once.
#[test]
fn copies_that_are_left_stay_without_a_schedule_until_they_expire() {
    let Some(mut site) = Site::new("none") else { return };
    let (one, two) = (site.create(), site.create());
    site.release(one);
    site.release(two);
    site.keeper.tick();
    assert_eq!(site.count(), 2);
    site.expire(one);
    assert_eq!(site.count(), 1);
    // One that somebody else has removed is no fault.
    site.expire(one);
    assert_eq!(site.keeper.shares[0].why(), None);
    assert_eq!(site.keeper.shares[0].removed, 1);
    // One that a client holds stays.
    let three = site.create();
    site.expire(three);
    assert_eq!(site.count(), 2);
    site.expire(two);
    assert_eq!(site.count(), 1);
}

/// With a schedule, that alone says which ones stay.
#[test]
fn copies_that_are_left_belong_to_the_schedule() {
    let Some(mut site) = Site::new("monthly keep 1") else { return };
    let (one, two) = (site.create(), site.create());
    // The schedule makes one of its own, in a second that has none, and does not see those of the client.
    while site.keeper.shares[0].scheduled().is_empty() {
        site.keeper.tick();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(site.count(), 3);
    site.expire(one);
    assert_eq!(site.count(), 3);
    site.release(one);
    site.release(two);
    site.keeper.tick();
    assert_eq!(site.count(), 1);
}

/// A copy that a client has left, and that an administrator keeps, is none of those that expire.
#[test]
fn copies_that_are_left_and_kept_do_not_expire() {
    let Some(mut site) = Site::new("none") else { return };
    let taken = site.create();
    let keep = SnapshotAct::Keep { share: String::from("photos"), snapshot: taken };
    let refused = site.keeper.answer(&keep, "ann").unwrap_err();
    assert!(matches!(&refused, NotKept::Failed(why) if why.contains("shadow copy")), "{refused:?}");
    site.release(taken);
    assert!(site.keeper.answer(&keep, "ann").unwrap()[0].kept);
    site.expire(taken);
    assert_eq!(site.count(), 1);
    let release = SnapshotAct::Release { share: String::from("photos"), snapshot: taken };
    assert!(!site.keeper.answer(&release, "ann").unwrap()[0].kept);
    site.expire(taken);
    assert_eq!(site.count(), 0);
}

/// While nobody knows which snapshots are kept, none is removed.
#[test]
fn nothing_is_removed_while_marks_are_unknown() {
    let Some(mut site) = Site::new("monthly keep 1") else { return };
    let now = now().unwrap();
    for ago in [9, 6, 3] {
        let taken = Second::new(now.since_1970() - ago).unwrap();
        site.keeper.create(0, taken, "ann").unwrap();
    }
    for share in &mut site.keeper.shares {
        share.removes_none = Some(UNKNOWN_MARKS);
    }
    let prune = |dry_run| SnapshotAct::Prune { share: String::from("photos"), dry_run };
    let removal =
        SnapshotAct::Remove { share: String::from("photos"), snapshot: now.since_1970() - 9 };
    for act in [prune(false), prune(true), removal] {
        let refused = site.keeper.answer(&act, "ann").unwrap_err();
        assert!(matches!(&refused, NotKept::Failed(why) if why == UNKNOWN_MARKS), "{refused:?}");
    }
    site.keeper.tick();
    assert_eq!(site.count(), 3);
    site.keeper.shares[0].removes_none = None;
    let listed = site.keeper.answer(&prune(true), "ann").unwrap();
    assert_eq!((listed.len(), site.count()), (2, 3));
    assert_eq!(site.keeper.answer(&prune(false), "ann").unwrap(), listed);
    assert_eq!(site.count(), 1);
}

/// A snapshot of a time to come is told, once.
#[test]
fn a_clock_that_is_behind_is_noticed() {
    let Some(mut site) = Site::new("none") else { return };
    let now = now().unwrap();
    let later = Second::new(now.since_1970() + 100_000).unwrap();
    site.keeper.create(0, later, "ann").unwrap();
    site.create();
    site.keeper.tick();
    assert!(site.keeper.shares[0].is_ahead_told);
    let view = site.keeper.views.lock()[0].clone();
    assert_eq!((view.ahead, view.count), (1, 2));
    site.keeper.remove(0, later, "ann").unwrap();
    site.keeper.tick();
    assert!(!site.keeper.shares[0].is_ahead_told);
}
