//! Quotas of the kernel, on an ext4 of its own. It takes root, and says so where
//! it is left out.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "common/loops.rs"]
mod loops;

use std::ffi::CString;
use std::os::unix::fs::chown;

use frevo_posix::quota::host::{HostLimits, HostQuotas, Subject, Upkeep};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::{QuotaLimits, QuotaState};
use frevo_store::{Fault, Vfs};

use loops::Mounted;

/// A mount namespace of the thread's own, in which mounts show nowhere else.
fn unshare() -> bool {
    let none = CString::new("none").unwrap();
    let root = CString::new("/").unwrap();
    // SAFETY: both strings are NUL-terminated and outlive the calls; a thread may
    // leave the namespace and the working directory it shares with others.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none.as_ptr(),
                root.as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
    }
}

fn ext4(test: &str, options: &str) -> Option<(Mounted, PosixVfs)> {
    if !unshare() {
        println!("{test}: skipped, no mount namespace can be made");
        return None;
    }
    let kinds = "quotatype=usrquota:grpquota:prjquota";
    let make = ["-q", "-O", "quota,project", "-I", "256", "-E", kinds];
    let Some(mounted) = Mounted::new("ext4", 16, &make, options) else {
        println!("{test}: skipped, no ext4 with quotas can be mounted");
        return None;
    };
    let vfs = PosixVfs::open_root(&mounted.path(), PosixOptions::default()).unwrap();
    Some((mounted, vfs))
}

#[test]
fn the_kernel_counts_what_users_have() {
    let Some((mounted, vfs)) = ext4("the_kernel_counts_what_users_have", "loop,usrquota") else {
        return;
    };
    assert_eq!(vfs.quota_state(), Ok(Some(QuotaState { is_enforced: true })));
    assert_eq!(vfs.quota(61_001).map(|quota| quota.map_or(0, |quota| quota.used)), Ok(0));
    for (name, uid, bytes) in [("a", 61_001, 40 << 10), ("b", 61_005, 80 << 10)] {
        let path = mounted.path().join(name);
        std::fs::write(&path, vec![7; bytes]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        chown(&path, Some(uid), None).unwrap();
    }
    let first = vfs.quota(61_001).unwrap().unwrap();
    assert_eq!((first.uid, first.used), (61_001, 40 << 10));
    assert_eq!((first.threshold, first.limit), (None, None));
    let next = vfs.quota_from(61_002).unwrap().unwrap();
    assert_eq!((next.uid, next.used), (61_005, 80 << 10));
    assert_eq!(vfs.quota_from(61_001).unwrap().unwrap(), first);
    assert_eq!(vfs.quota_from(61_006), Ok(None));
    assert_eq!(vfs.quota(61_009), Ok(None), "nothing is stored for this user");
}

#[test]
fn limits_are_set() {
    let Some((mounted, vfs)) = ext4("limits_are_set", "loop,usrquota") else { return };
    let path = mounted.path().join("a");
    std::fs::write(&path, vec![7; 40 << 10]).unwrap();
    chown(&path, Some(61_001), None).unwrap();
    let set = |threshold, limit| {
        vfs.set_quota(61_001, QuotaLimits { threshold, limit }).unwrap();
        let stored = vfs.quota(61_001).unwrap().unwrap();
        (stored.threshold, stored.limit)
    };
    assert_eq!(set(Some(2048), Some(4096)), (Some(2048), Some(4096)));
    assert_eq!(set(Some(2049), Some(8191)), (Some(2048), Some(7168)), "a block is 1 KiB");
    assert_eq!(set(Some(9216), Some(4096)), (Some(4096), Some(4096)));
    assert_eq!(set(None, Some(0)), (None, Some(1024)), "none would be no limit");
    assert_eq!(set(None, None), (None, None));
    assert_eq!(vfs.quota_defaults(), Ok(None), "ext4 has no place for them");
    let limits = QuotaLimits { threshold: None, limit: Some(4096) };
    assert_eq!(vfs.set_quota_defaults(limits), Err(Fault::NotSupported));
}

#[test]
fn quotas_without_the_mount_option_are_counted_only() {
    let Some((_mounted, vfs)) = ext4("quotas_without_the_mount_option_are_counted_only", "loop")
    else {
        return;
    };
    assert_eq!(vfs.quota_state(), Ok(Some(QuotaState { is_enforced: false })));
}

#[test]
fn a_file_system_without_quotas_says_so() {
    let vfs = PosixVfs::open_root("/proc".as_ref(), PosixOptions::default()).unwrap();
    assert_eq!(vfs.quota_state(), Ok(None));
}

fn quotas_of(folder: &std::path::Path) -> HostQuotas {
    HostQuotas::open(folder).unwrap()
}

fn written(path: &std::path::Path, bytes: usize) -> std::io::Result<()> {
    use std::io::Write as _;

    let mut file = std::fs::File::create(path)?;
    file.write_all(&vec![7; bytes])?;
    file.sync_all()
}

#[test]
fn groups_have_quotas_as_users_have() {
    let Some((mounted, _)) = ext4("groups_have_quotas_as_users_have", "loop,usrquota,grpquota")
    else {
        return;
    };
    let quotas = quotas_of(&mounted.path());
    assert_eq!(quotas.upkeep(Subject::User).unwrap(), Some(Upkeep::Enforced));
    assert_eq!(quotas.upkeep(Subject::Group).unwrap(), Some(Upkeep::Enforced));
    assert_eq!(quotas.upkeep(Subject::Project).unwrap(), Some(Upkeep::Counted));
    let path = mounted.path().join("a");
    written(&path, 40 << 10).unwrap();
    chown(&path, Some(61_001), Some(61_002)).unwrap();
    let limits = HostLimits {
        soft_space: Some(1 << 20),
        hard_space: Some(2 << 20),
        soft_files: None,
        hard_files: Some(10),
    };
    for (subject, id) in [(Subject::User, 61_001), (Subject::Group, 61_002)] {
        let found = quotas.of(subject, id).unwrap();
        assert_eq!((found.space, found.files, found.limits), (40 << 10, 1, HostLimits::default()));
        quotas.set(subject, id, limits).unwrap();
        assert_eq!(quotas.of(subject, id).unwrap().limits, limits);
        let all: Vec<u32> = quotas.all(subject).unwrap().iter().map(|quota| quota.id).collect();
        assert_eq!(all, [0, id], "root has the folders");
        quotas.set(subject, id, HostLimits::default()).unwrap();
        assert_eq!(quotas.of(subject, id).unwrap().limits, HostLimits::default());
    }
}

#[test]
fn a_folder_has_a_limit_of_its_own() {
    let Some((mounted, vfs)) = ext4("a_folder_has_a_limit_of_its_own", "loop,prjquota") else {
        return;
    };
    let share = mounted.path().join("share");
    std::fs::create_dir_all(share.join("deep/er")).unwrap();
    written(&share.join("deep/er/old"), 100 << 10).unwrap();
    std::os::unix::fs::symlink("nowhere", share.join("link")).unwrap();
    let quotas = quotas_of(&share);
    assert_eq!(quotas.of_folder().unwrap(), None);
    let project = quotas.free_project().unwrap();
    for _ in 0..2 {
        let put = quotas.put_into_project(project).unwrap();
        assert_eq!(
            (put.count, put.others, put.failed),
            (4, 0, 0),
            "two folders, the share, a file"
        );
    }
    assert_ne!(quotas.free_project().unwrap(), project);
    let limits = HostLimits { hard_space: Some(1 << 20), ..HostLimits::default() };
    quotas.set(Subject::Project, project, limits).unwrap();
    let found = quotas.of_folder().unwrap().unwrap();
    assert_eq!((found.id, found.limits), (project, limits));
    assert!(found.space >= 100 << 10, "{found:?}");
    assert!(written(&share.join("deep/new"), 2 << 20).is_err(), "more than the folder's limit");
    assert!(written(&mounted.path().join("beside"), 2 << 20).is_ok());
    // A share below has the number by inheritance, and gets a quota of its own, which stays its own.
    let inner = quotas_of(&share.join("deep"));
    assert_eq!(inner.of_folder().unwrap(), None);
    let own = inner.free_project().unwrap();
    assert_eq!(inner.put_into_project(own).unwrap().count, 4, "with the file that was begun");
    assert_eq!(inner.of_folder().unwrap().unwrap().id, own);
    let put = quotas.put_into_project(project).unwrap();
    assert_eq!((put.count, put.others), (1, 1));
    assert_eq!(inner.of_folder().unwrap().unwrap().id, own);
    // The kernel tells the free space of the folder.
    drop(vfs);
    let vfs = PosixVfs::open_root(&share, PosixOptions::default()).unwrap();
    let space = vfs.space().unwrap();
    assert!(space.total * u64::from(space.unit) <= 1 << 20, "{space:?}");
}

#[test]
fn a_subvolume_has_a_limit_of_its_own() {
    let test = "a_subvolume_has_a_limit_of_its_own";
    if !unshare() {
        println!("{test}: skipped, no mount namespace can be made");
        return;
    }
    let Some(mounted) = Mounted::new("btrfs", 128, &["-q"], "loop") else { return };
    let share = mounted.path().join("share");
    let btrfs = |arguments: &[&str], path: &std::path::Path| {
        let status = std::process::Command::new("btrfs").args(arguments).arg(path).output();
        status.is_ok_and(|output| output.status.success())
    };
    if !btrfs(&["subvolume", "create"], &share) {
        println!("{test}: skipped, there is no program btrfs");
        return;
    }
    let quotas = quotas_of(&share);
    assert!(quotas.is_subvolume().unwrap());
    assert_eq!(quotas.of_folder().unwrap(), None, "quotas are off");
    assert!(quotas.limit_subvolume(Some(1 << 20)).is_err());
    assert!(btrfs(&["quota", "enable"], &mounted.path()));
    quotas.limit_subvolume(Some(4 << 20)).unwrap();
    written(&share.join("a"), 1 << 20).unwrap();
    assert!(btrfs(&["filesystem", "sync"], &mounted.path()));
    let found = quotas.of_folder().unwrap().unwrap();
    assert_eq!(found.limits.hard_space, Some(4 << 20));
    assert!(found.space >= 1 << 20, "{found:?}");
    assert!(written(&share.join("b"), 8 << 20).is_err(), "more than the limit");
    quotas.limit_subvolume(None).unwrap();
    assert_eq!(quotas.of_folder().unwrap().unwrap().limits.hard_space, None);
    assert!(written(&share.join("b"), 8 << 20).is_ok());
}
