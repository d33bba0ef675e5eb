//! Quotas of the kernel, on an ext4 of its own. It takes root, and says so where
//! it is left out.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "common/loops.rs"]
mod loops;

use std::ffi::CString;
use std::os::unix::fs::chown;

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
    let make = ["-q", "-O", "quota", "-E", "quotatype=usrquota"];
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
