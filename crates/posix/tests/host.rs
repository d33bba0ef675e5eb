//! Effects of the host's users, limits and file systems. Some can only
//! be shown by root, and says so when it is skipped.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use common::{Share, create, create_dir, how, name, read, share, share_with, write};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::{BasicChange, HostAccess, Kind};
use frevo_store::{Fault, Vfs as _};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use rustix::fs::Uid;

#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, needs root");
    }
    root
}

/// Runs `work` in a thread with the rights of an ordinary user.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = scope.spawn(move || {
            let uid = Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        run.join().unwrap()
    })
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn chown(path: &Path, uid: u32) {
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
}

#[test]
fn the_calling_threads_rights_decide() {
    if !is_root("the_calling_threads_rights_decide") {
        return;
    }
    let s = share();
    chmod(s.dir.path(), 0o755);
    chmod(&s.file("secret", "s"), 0o600);
    chmod(&s.file("shown", "s"), 0o644);
    chmod(&s.mkdir("closed"), 0o700);
    s.file("closed/f", "");
    chmod(&s.mkdir("dark"), 0o711);
    chmod(&s.file("dark/known", "k"), 0o644);
    chmod(&s.mkdir("mine"), 0o755);
    chown(&s.path("mine"), 4_242);
    chmod(&s.file("mine/locked", "l"), 0o400);
    chown(&s.path("mine/locked"), 4_242);
    as_user(4_242, || {
        // The attributes of a file can be read without the right to read the file.
        let found = s.open("secret", &how()).unwrap();
        assert_eq!(found.stat.end_of_file, 1);
        assert_eq!(found.stat.attributes, FileAttributes::NORMAL);
        assert_eq!(found.node.stat().unwrap().key, found.node.key());
        assert!(found.node.descriptor().is_none());
        assert_eq!(s.open("secret", &read()).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.open("SECRET", &write()).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.content("shown").unwrap(), "s");
        assert_eq!(s.open("shown", &write()).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.open("new", &create()).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.open("new", &create_dir()).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.open("closed\\f", &how()).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.open("closed\\none", &how()).unwrap_err(), Fault::AccessDenied);
        // The user may not list the directory, so only the exact name is found.
        assert_eq!(s.content("dark\\known").unwrap(), "k");
        assert_eq!(s.open("dark\\KNOWN", &how()).unwrap_err(), Fault::NotFound);
        assert_eq!(s.open("dark", &read()).unwrap_err(), Fault::AccessDenied);
        let dark = s.open("dark", &how()).unwrap();
        assert_eq!(dark.node.directory().map(|_| ()).unwrap_err(), Fault::AccessDenied);
        let key = found.node.key();
        assert_eq!(s.vfs.remove(&name("secret"), key), Err(Fault::AccessDenied));
        let moved = s.vfs.rename(&name("secret"), key, &name("mine\\x"), false);
        assert_eq!(moved, Err(Fault::AccessDenied));
        let change = BasicChange { written: Some(FileTime(1 << 56)), ..BasicChange::default() };
        assert_eq!(found.node.set_basic(&change).unwrap_err(), Fault::AccessDenied);
        assert_eq!(found.node.set_ea("x", b"y").unwrap_err(), Fault::AccessDenied);
        let made = s.open("mine\\new", &create()).unwrap();
        assert_eq!(made.stat.uid, 4_242);
        made.node.sync().unwrap();

        let access = |text: &str| s.open(text, &how()).unwrap().node.host_access();
        let nothing = HostAccess { read: false, write: false, execute: false, owner: false };
        assert_eq!(access("secret"), nothing);
        assert_eq!(access("shown"), HostAccess { read: true, ..nothing });
        assert_eq!(access("dark"), HostAccess { execute: true, ..nothing });
        assert_eq!(access("mine\\locked"), HostAccess { read: true, owner: true, ..nothing });
        let all = HostAccess { read: true, write: true, execute: true, owner: true };
        assert_eq!(access("mine"), all);
    });
    // On this thread the server opens the file with its own rights; user 4243 is refused on a
    // thread that acts as this user.
    assert_eq!(s.content("secret").unwrap(), "s");
    assert!(s.open("dark\\KNOWN", &how()).is_ok());
    as_user(4_243, || {
        assert_eq!(s.open("mine\\locked", &read()).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.open("MINE\\LOCKED", &read()).unwrap_err(), Fault::AccessDenied);
    });
}

#[test]
fn devices_are_only_looked_at() {
    if !is_root("devices_are_only_looked_at") {
        return;
    }
    let s = share();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let null = rustix::fs::makedev(1, 3);
    let device = rustix::fs::FileType::CharacterDevice;
    if rustix::fs::mknodat(rustix::fs::CWD, s.path("null"), device, mode, null).is_err() {
        return;
    }
    let found = s.open("null", &how()).unwrap();
    assert_eq!((found.stat.kind, found.stat.reparse_tag), (Kind::CharDevice, 0x8000_0014));
    assert!(found.node.descriptor().is_none());
    assert_eq!(found.node.read_at(0, &mut [0; 4]).unwrap_err(), Fault::AccessDenied);
    for how in [read(), write()] {
        assert_eq!(s.open("null", &how).unwrap_err(), Fault::AccessDenied);
        assert_eq!(s.open("NULL", &how).unwrap_err(), Fault::AccessDenied);
    }
    let mut listing = s.open("", &read()).unwrap().node.directory().unwrap();
    assert_eq!(listing.next_name().unwrap(), Some("null"));
    assert_eq!(listing.entry_stat().unwrap().unwrap(), s.vfs.stat(&name("null")).unwrap());
}

/// A file system of its own, gone with the value.
struct Mount {
    dir: tempfile::TempDir,
}

impl Mount {
    fn tmpfs(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(dir.path())
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self { dir })
    }

    fn share(&self, options: PosixOptions) -> PosixVfs {
        PosixVfs::open_root(self.dir.path(), options).unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn a_full_file_system_says_so() {
    if !is_root("a_full_file_system_says_so") {
        return;
    }
    let Some(mount) = Mount::tmpfs("size=1m,nr_inodes=20") else {
        eprintln!("a_full_file_system_says_so: skipped, no tmpfs can be mounted");
        return;
    };
    let vfs = mount.share(PosixOptions::default());
    let made = vfs.open(&name("big"), &create()).unwrap();
    let block = vec![7; 64 * 1024];
    let mut written = 0u64;
    let fault = loop {
        match made.node.write_at(written, &block) {
            Ok(()) => written += block.len() as u64,
            Err(fault) => break fault,
        }
        assert!(written <= 2 << 20, "it never fills up");
    };
    assert_eq!(fault, Fault::DiskFull);
    assert_eq!(made.node.set_allocation(4 << 20).unwrap_err(), Fault::DiskFull);
    assert!(made.node.stat().unwrap().end_of_file >= written, "what was written is kept");
    assert_eq!(vfs.space().unwrap().available, 0);
    made.node.set_end_of_file(0).unwrap();
    made.node.write_at(0, b"room again").unwrap();
    let fault = (0..30).find_map(|i| vfs.open(&name(&format!("f{i}")), &create()).err());
    assert_eq!(fault, Some(Fault::DiskFull), "no inodes are left");
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn read_only_mounts_and_other_file_systems() {
    if !is_root("read_only_mounts_and_other_file_systems") {
        return;
    }
    let Some(mount) = Mount::tmpfs("size=1m,ro") else {
        eprintln!("read_only_mounts_and_other_file_systems: skipped, no tmpfs can be mounted");
        return;
    };
    let vfs = mount.share(PosixOptions::default());
    assert!(vfs.volume().read_only);
    assert_eq!(vfs.open(&name("a"), &create()).unwrap_err(), Fault::ReadOnly);
    // A mount inside of the share is another device, on which inode numbers may repeat.
    let s = share();
    s.file("a", "a");
    let inner = s.mkdir("inner");
    let bound = Command::new("mount").arg("--bind").arg(mount.dir.path()).arg(&inner).status();
    if !bound.is_ok_and(|status| status.success()) {
        return;
    }
    let key = s.vfs.stat(&name("a")).unwrap().key;
    let moved = s.vfs.rename(&name("a"), key, &name("inner\\a"), false);
    let inside = s.vfs.stat(&name("INNER")).unwrap();
    let created = s.open("inner\\new", &create()).map(|_| ());
    let removed = s.vfs.remove(&name("inner"), inside.key);
    let _ = Command::new("umount").arg("-l").arg(&inner).status();
    assert!(matches!(moved, Err(Fault::CrossDevice | Fault::ReadOnly)), "{moved:?}");
    assert_ne!(inside.key.device, key.device);
    assert_eq!(created, Err(Fault::ReadOnly));
    assert!(matches!(removed, Err(Fault::Busy | Fault::Stale)), "{removed:?}");
}

/// Without extended attributes a share works, and shows what it can.
#[test]
fn attributes_may_be_off() {
    let options = PosixOptions {
        dos_attributes: false,
        hide_dot_files: false,
        list_ea_sizes: true,
        ..PosixOptions::default()
    };
    let s = share_with(options);
    let attributes = FileAttributes::HIDDEN;
    let made = s.open(".a", &frevo_store::vfs::OpenHow { attributes, ..create() }).unwrap();
    assert_eq!(made.stat.attributes, FileAttributes::NORMAL);
    let change = BasicChange { attributes: Some(attributes), ..BasicChange::default() };
    made.node.set_basic(&change).unwrap();
    assert_eq!(made.node.stat().unwrap().attributes, FileAttributes::NORMAL);
    assert_eq!(rustix::fs::getxattr(s.path(".a"), "user.DOSATTRIB", &mut [0; 64]).ok(), None);
    made.node.set_ea("Color", b"red").unwrap();
    let mut listing = s.open("", &read()).unwrap().node.directory().unwrap();
    listing.next_name().unwrap();
    let listed = listing.entry_stat().unwrap().unwrap();
    assert_eq!(listed.ea_size, 4 + 5 + 5 + 3);
    assert_eq!(listed, s.vfs.stat(&name(".a")).unwrap());
    // An open of this single name must return the same facts as the listing.
    assert_eq!(s.open(".a", &how()).unwrap().stat, listed);
}

/// Changes by others, and what a lease of a local process does.
#[test]
fn local_leases_do_not_block() {
    let s = share();
    let path = s.file("leased", "x");
    let holder = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // F_SETSIG is 10 in linux/fcntl.h.
    const F_SETSIG: libc::c_int = 10;
    // SAFETY: F_SETSIG and F_SETLEASE take an integer and touch no memory.
    let set = unsafe {
        use std::os::fd::AsRawFd as _;
        // The default signal of a lease break would end the test, so SIGWINCH is set, which is
        // ignored.
        libc::fcntl(holder.as_raw_fd(), F_SETSIG, libc::SIGWINCH);
        libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    if set != 0 {
        return;
    }
    assert_eq!(s.open("leased", &read()).unwrap_err(), Fault::Leased);
    assert_eq!(s.open("leased", &how()).unwrap().stat.end_of_file, 1);
    drop(holder);
    assert_eq!(s.content("leased").unwrap(), "x");
}

/// Every entry of a large listing comes once, whatever the buffer's size.
#[test]
fn large_directories_are_listed_whole() {
    let s: Share = share();
    let mut expected = Vec::new();
    for i in 0..3_000 {
        let entry = format!("{:03}-{}", i, "n".repeat(i % 200));
        s.file(&entry, "");
        expected.push(entry);
    }
    expected.sort();
    assert_eq!(s.list(""), expected);
}
