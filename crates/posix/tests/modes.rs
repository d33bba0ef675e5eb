//! The permission bits of new files and folders, and DOS attributes that are bits of the mode.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::print_stdout,
    unreachable_pub,
    reason = "tests"
)]

mod common;
#[path = "common/loops.rs"]
mod loops;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{create, create_dir, name, read};
use frevo_posix::credentials::{self, Credentials};
use frevo_posix::{ModeAttributes, NtAcls, PosixOptions};
use frevo_store::Vfs as _;
use frevo_store::vfs::{BasicChange, OpenHow, SecurityChange};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use rustix::fs::CWD;

/// A share of a process without a umask, as the server is one.
fn share_with(options: PosixOptions) -> common::Share {
    rustix::process::umask(rustix::fs::Mode::empty());
    common::share_with(options)
}

fn chmod(s: &common::Share, path: &str, mode: u32) {
    std::fs::set_permissions(s.path(path), Permissions::from_mode(mode)).unwrap();
}

#[test]
fn forced_bits_are_set_whatever_the_masks_are() {
    let s = share_with(PosixOptions {
        create_mask: Some(0o640),
        directory_mask: Some(0o750),
        forced_file_mode: 0o110,
        forced_directory_mode: 0o2070,
        ..PosixOptions::default()
    });
    let file = s.open("f", &create()).unwrap();
    assert_eq!(file.stat.mode, 0o750);
    let dir = s.open("d", &create_dir()).unwrap();
    assert_eq!(dir.stat.mode, 0o2770);
    let asked = s.open("g", &OpenHow { mode: Some(0o600), ..create() }).unwrap();
    assert_eq!(asked.stat.mode, 0o710, "also for a client that sets the mode");
    let asked = s.open("e", &OpenHow { mode: Some(0o700), ..create_dir() }).unwrap();
    assert_eq!(asked.stat.mode, 0o2770);
}

#[test]
fn modes_of_the_folder_are_inherited() {
    let s = share_with(PosixOptions {
        create_mask: Some(0o600),
        forced_file_mode: 0o001,
        forced_directory_mode: 0o007,
        inherit_modes: true,
        ..PosixOptions::default()
    });
    s.mkdir("team");
    chmod(&s, "team", 0o2771);
    let file = s.open("team\\f", &create()).unwrap();
    assert_eq!(file.stat.mode, 0o660);
    let dir = s.open("team\\d", &create_dir()).unwrap();
    assert_eq!(dir.stat.mode, 0o2771);
    let below = s.open("team\\d\\g", &create()).unwrap();
    assert_eq!(below.stat.mode, 0o660);
    // A client with the POSIX extensions says itself what it wants.
    let asked = s.open("team\\h", &OpenHow { mode: Some(0o640), ..create() }).unwrap();
    assert_eq!(asked.stat.mode, 0o601);
}

/// Tags of the entries of a POSIX list.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// Sets a POSIX list with the rights of each tag. False where the file system has none.
fn set_list(s: &common::Share, path: &str, attribute: &str, rights: &[(u16, u16)]) -> bool {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for &(tag, rights) in rights {
        let id = if tag == USER { 54_321 } else { u32::MAX };
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    let done = rustix::fs::setxattr(s.path(path), attribute, &value, flags);
    if done.is_err() {
        println!("skipped: the file system has no access lists");
    }
    done.is_ok()
}

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";

#[test]
fn a_default_list_decides_if_it_counts() {
    for (mask, inherit_lists, file_mode, directory_mode) in
        [(0o755, false, 0o640, 0o750), (0o755, true, 0o750, 0o750), (0o777, true, 0o770, 0o770)]
    {
        let s = share_with(PosixOptions {
            create_mask: Some(mask),
            directory_mask: Some(mask),
            inherit_lists,
            ..PosixOptions::default()
        });
        s.mkdir("team");
        if !set_list(&s, "team", DEFAULT_LIST, &[(OWNER, 7), (GROUP, 7), (OTHERS, 0)]) {
            return;
        }
        let file = s.open("team\\f", &create()).unwrap();
        let dir = s.open("team\\d", &create_dir()).unwrap();
        assert_eq!((file.stat.mode, dir.stat.mode), (file_mode, directory_mode));
    }
}

#[test]
fn a_forced_group_bit_leaves_the_rights_of_a_default_list() {
    for inherit_lists in [false, true] {
        let s = share_with(PosixOptions {
            forced_directory_mode: 0o2000,
            inherit_lists,
            ..PosixOptions::default()
        });
        s.mkdir("team");
        if !set_list(&s, "team", DEFAULT_LIST, &[(OWNER, 7), (GROUP, 0), (OTHERS, 0)]) {
            return;
        }
        assert_eq!(s.open("team\\d", &create_dir()).unwrap().stat.mode, 0o2700);
        let asked = s.open("team\\e", &OpenHow { mode: Some(0o755), ..create_dir() }).unwrap();
        assert_eq!(asked.stat.mode, 0o2700);
        let asked = s.open("team\\f", &OpenHow { mode: Some(0o644), ..create() }).unwrap();
        assert_eq!(asked.stat.mode, 0o600);
    }
}

#[test]
fn the_mask_of_a_list_is_no_right_of_the_group() {
    let s = share_with(PosixOptions { inherit_modes: true, ..PosixOptions::default() });
    s.mkdir("team");
    let list = [(OWNER, 7), (USER, 7), (GROUP, 5), (MASK, 7), (OTHERS, 0)];
    if !set_list(&s, "team", ACCESS_LIST, &list) {
        return;
    }
    assert_eq!(s.vfs.stat(&name("team")).unwrap().mode, 0o770);
    assert_eq!(s.open("team\\f", &create()).unwrap().stat.mode, 0o640);
    assert_eq!(s.open("team\\d", &create_dir()).unwrap().stat.mode, 0o750);
    // A default list limits the rights of the group itself.
    set_list(&s, "team", DEFAULT_LIST, &list);
    assert_eq!(s.open("team\\g", &create()).unwrap().stat.mode, 0o660);
    let mut value = [0; 128];
    let len = rustix::fs::getxattr(s.path("team/g"), ACCESS_LIST, &mut value[..]).unwrap();
    let mut entries = value[4..len].chunks_exact(8);
    assert_eq!(entries.nth(2), Some(&[4, 0, 5, 0, 255, 255, 255, 255][..]), "the group's entry");
}

/// A user that the tests act as, whose folders belong to another one.
const MAKER: u32 = 12_346;
const OWNER_OF_FOLDER: u32 = 12_345;

/// A share with a folder of somebody else, in which everybody may make files. None without root.
fn folder_of_another(options: PosixOptions) -> Option<common::Share> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to give files away");
        return None;
    }
    let s = share_with(options);
    chmod(&s, "", 0o755);
    s.mkdir("team");
    std::os::unix::fs::chown(s.path("team"), Some(OWNER_OF_FOLDER), Some(54_321)).unwrap();
    chmod(&s, "team", 0o777);
    Some(s)
}

fn maker() -> Arc<Credentials> {
    Arc::new(Credentials::new(MAKER, MAKER, &[]).unwrap())
}

#[test]
fn new_objects_belong_to_the_owner_of_their_folder() {
    let inherits = PosixOptions { inherit_owner: true, ..PosixOptions::default() };
    let Some(s) = folder_of_another(inherits) else { return };
    let user = maker();
    let acting = user.assume().unwrap();
    let owner = |path: &str, how: &OpenHow| {
        let stat = s.open(path, how).unwrap().stat;
        (stat.uid, stat.gid)
    };
    let expected = (OWNER_OF_FOLDER, MAKER);
    assert_eq!(owner("team\\d", &create_dir()), expected, "the group is the user's");
    assert_eq!(owner("team\\f", &create()), expected);
    {
        let _server = credentials::as_server();
        assert_eq!(owner("team\\bin", &create_dir()), (0, 0), "the server's own");
    }
    drop(acting);
    let plain = folder_of_another(PosixOptions::default()).unwrap();
    let _acting = user.assume().unwrap();
    assert_eq!(plain.open("team\\f", &create()).unwrap().stat.uid, MAKER);
}

#[test]
fn a_file_that_is_given_away_keeps_its_attributes() {
    let inherits = PosixOptions { inherit_owner: true, ..PosixOptions::default() };
    let Some(s) = folder_of_another(inherits) else { return };
    let user = maker();
    let attributes = FileAttributes::HIDDEN | FileAttributes::ARCHIVE;
    {
        let _acting = user.assume().unwrap();
        let made = s.open("team\\f", &OpenHow { attributes, ..create() }).unwrap();
        assert_eq!(made.stat.attributes, attributes);
        made.node.set_ea("note", b"text").unwrap();
        let written = Some(FileTime(130_000_000_000_000_000));
        made.node.set_basic(&BasicChange { written, ..BasicChange::default() }).unwrap();
    }
    let opened = s.open("team\\f", &read()).unwrap();
    assert_eq!((opened.stat.uid, opened.stat.attributes), (OWNER_OF_FOLDER, attributes));
    assert_eq!(opened.stat.written, FileTime(130_000_000_000_000_000));
    assert_eq!(opened.node.eas().unwrap(), [(String::from("note"), b"text".to_vec())]);
    let _acting = user.assume().unwrap();
    let opened = s.open("team\\f", &common::how()).unwrap();
    assert!(opened.node.set_ea("note", b"other").is_err(), "a later open is that of a stranger");
}

/// Makes folders while another thread puts the folder of another user in their place. Returns the owner and
/// the mode that this one has at last.
fn race(s: &common::Share, how: &OpenHow) -> (u32, u32) {
    const ROUNDS: usize = 500;
    let (done, path) = (AtomicBool::new(false), s.path("team/carl"));
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&path, Some(54_321), None).unwrap();
    // With a file in it, it is not removed with the new ones.
    s.file("team/carl/file", "");
    let carl = std::fs::File::open(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (one, other) = (s.path("team/new"), s.path("team/carl"));
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(CWD, &one, CWD, &other, flags);
            }
        });
        let user = maker();
        let acting = how.mode.is_none().then(|| user.assume().unwrap());
        for _ in 0..ROUNDS {
            let _ = s.open("team\\new", how);
            let _server = credentials::as_server();
            for entry in std::fs::read_dir(s.path("team")).unwrap() {
                let entry = entry.unwrap().path();
                if std::fs::remove_dir(&entry).is_err() {
                    let _ = std::fs::rename(&entry, &path);
                }
            }
        }
        drop(acting);
        done.store(true, Ordering::Relaxed);
    });
    let state = carl.metadata().unwrap();
    (state.uid(), state.mode() & 0o7777)
}

#[test]
fn a_folder_in_place_of_a_new_one_keeps_its_mode_and_owner() {
    let inherits = PosixOptions { inherit_owner: true, ..PosixOptions::default() };
    for how in [create_dir(), OpenHow { mode: Some(0o777), ..create_dir() }] {
        let Some(s) = folder_of_another(inherits.clone()) else { return };
        assert_eq!(race(&s, &how), (54_321, 0o755));
    }
}

#[test]
fn a_file_system_without_modes_takes_new_objects() {
    let Some(disk) = loops::Mounted::new("vfat", 8, &[], "loop,umask=0") else { return };
    let options = PosixOptions {
        forced_directory_mode: 0o2070,
        dos_attributes: false,
        nt_acls: NtAcls::Posix,
        mode_attributes: ModeAttributes { archive: true, ..ModeAttributes::default() },
        ..PosixOptions::default()
    };
    let vfs = frevo_posix::PosixVfs::open_root(&disk.path(), options).unwrap();
    vfs.open(&name("d"), &create_dir()).unwrap();
    let file = vfs.open(&name("f"), &create()).unwrap();
    let change = BasicChange { attributes: Some(FileAttributes::NORMAL), ..BasicChange::default() };
    file.node.set_basic(&change).unwrap();
}

#[test]
fn attributes_are_bits_of_the_mode() {
    let s = share_with(PosixOptions {
        dos_attributes: false,
        nt_acls: NtAcls::Posix,
        mode_attributes: ModeAttributes {
            archive: true,
            system: true,
            hidden: true,
            read_only: false,
        },
        ..PosixOptions::default()
    });
    let attributes = FileAttributes::ARCHIVE | FileAttributes::SYSTEM;
    let file = s.open("f", &OpenHow { attributes, ..create() }).unwrap();
    assert_eq!((file.stat.mode, file.stat.attributes), (0o754, attributes));
    let set = |attributes| {
        let change = BasicChange { attributes: Some(attributes), ..BasicChange::default() };
        file.node.set_basic(&change).unwrap();
        let stat = s.vfs.stat(&name("f")).unwrap();
        (stat.mode, stat.attributes)
    };
    assert_eq!(set(FileAttributes::HIDDEN), (0o645, FileAttributes::HIDDEN));
    assert_eq!(set(FileAttributes::NORMAL), (0o644, FileAttributes::NORMAL));
    // A change would take set-group-ID from a program.
    chmod(&s, "f", 0o2755);
    assert_eq!(set(FileAttributes::NORMAL).0, 0o2755);
    chmod(&s, "f", 0o700);
    assert_eq!(s.vfs.stat(&name("f")).unwrap().attributes, FileAttributes::ARCHIVE);
    // The bits of a folder are rights to search it.
    let dir = s.open("d", &create_dir()).unwrap();
    assert_eq!(dir.stat.attributes, FileAttributes::DIRECTORY);
}

#[test]
fn attributes_of_the_mode_keep_to_the_mask_and_the_forced_bits() {
    let s = share_with(PosixOptions {
        create_mask: Some(0o644),
        forced_file_mode: 0o001,
        dos_attributes: false,
        nt_acls: NtAcls::Posix,
        mode_attributes: ModeAttributes {
            archive: true,
            hidden: true,
            ..ModeAttributes::default()
        },
        ..PosixOptions::default()
    });
    let attributes = FileAttributes::ARCHIVE;
    let file = s.open("f", &OpenHow { attributes, ..create() }).unwrap();
    assert_eq!(file.stat.mode, 0o645);
    for attributes in [FileAttributes::ARCHIVE, FileAttributes::NORMAL] {
        let change = BasicChange { attributes: Some(attributes), ..BasicChange::default() };
        file.node.set_basic(&change).unwrap();
        assert_eq!(s.vfs.stat(&name("f")).unwrap().mode, 0o645);
    }
}

/// READONLY is the owner's missing right to write: also for the fast question that deletion asks.
#[test]
fn read_only_is_a_right_that_the_owner_lacks() {
    let s = share_with(PosixOptions {
        create_mask: Some(0o664),
        dos_attributes: false,
        nt_acls: NtAcls::Posix,
        mode_attributes: ModeAttributes { read_only: true, ..ModeAttributes::default() },
        ..PosixOptions::default()
    });
    let read_only = FileAttributes::READONLY;
    let made = s.open("r", &OpenHow { attributes: read_only, ..create() }).unwrap();
    assert_eq!((made.stat.mode, made.stat.attributes), (0o444, read_only));
    assert!(made.node.is_read_only().unwrap());
    let file = s.open("f", &create()).unwrap();
    let set = |attributes| {
        let change = BasicChange { attributes: Some(attributes), ..BasicChange::default() };
        file.node.set_basic(&change).unwrap();
        let stat = s.vfs.stat(&name("f")).unwrap();
        (stat.mode, stat.attributes, file.node.is_read_only().unwrap())
    };
    assert_eq!(set(read_only), (0o444, read_only, true));
    assert_eq!(set(FileAttributes::NORMAL), (0o664, FileAttributes::NORMAL, false));
    chmod(&s, "f", 0o600);
    assert_eq!(
        set(FileAttributes::NORMAL).0,
        0o600,
        "the rights of a file that was not read-only stay"
    );
    chmod(&s, "f", 0o066);
    assert!(file.node.is_read_only().unwrap(), "the host's change counts");
}

/// The server changes the mode for a user who may write the file, and for nobody else.
#[test]
fn who_may_write_a_file_may_change_its_mode_if_the_share_says_so() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to act as users");
        return;
    }
    for (writers_set_modes, nt_acls, may) in [
        (true, NtAcls::Posix, true),
        (false, NtAcls::Posix, false),
        // A stored list says who may change it.
        (true, NtAcls::Xattr, false),
    ] {
        let s = share_with(PosixOptions { writers_set_modes, nt_acls, ..PosixOptions::default() });
        chmod(&s, "", 0o755);
        for (path, mode) in [("writable", 0o666), ("readable", 0o644)] {
            std::fs::write(s.path(path), "x").unwrap();
            chmod(&s, path, mode);
            std::os::unix::fs::chown(s.path(path), Some(OWNER_OF_FOLDER), Some(54_321)).unwrap();
        }
        let user = maker();
        let acting = user.assume().unwrap();
        let set = |path: &str, mode: u32| {
            let node = s.open(path, &read()).unwrap().node;
            let by_list = node
                .set_security(&SecurityChange { mode: Some(mode), ..SecurityChange::default() });
            let by_mode = BasicChange { mode: Some(mode | 0o001), ..BasicChange::default() };
            (node.host_access().owner, by_list.is_ok(), node.set_basic(&by_mode).is_ok())
        };
        assert_eq!(set("writable", 0o4662), (may, may, may));
        assert_eq!(set("readable", 0o666), (false, false, false));
        drop(acting);
        let mode = |path: &str| std::fs::metadata(s.path(path)).unwrap().mode() & 0o7777;
        assert_eq!(mode("writable"), if may { 0o663 } else { 0o666 }, "never set-user-ID");
        assert_eq!(mode("readable"), 0o644);
    }
}

/// Attributes in the mode are the owner's to change, unless the share lets writers change modes.
#[test]
fn attributes_of_the_mode_are_set_by_the_owner() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to act as users");
        return;
    }
    for writers_set_modes in [false, true] {
        let s = share_with(PosixOptions {
            writers_set_modes,
            dos_attributes: false,
            nt_acls: NtAcls::Posix,
            mode_attributes: ModeAttributes { read_only: true, ..ModeAttributes::default() },
            ..PosixOptions::default()
        });
        chmod(&s, "", 0o755);
        for (path, owner) in [("own", MAKER), ("other", OWNER_OF_FOLDER)] {
            std::fs::write(s.path(path), "x").unwrap();
            chmod(&s, path, 0o666);
            std::os::unix::fs::chown(s.path(path), Some(owner), Some(54_321)).unwrap();
        }
        let user = maker();
        let acting = user.assume().unwrap();
        let change =
            BasicChange { attributes: Some(FileAttributes::READONLY), ..BasicChange::default() };
        let set = |path: &str| s.open(path, &read()).unwrap().node.set_basic(&change).is_ok();
        assert_eq!((set("own"), set("other")), (true, writers_set_modes));
        drop(acting);
        let mode = |path: &str| std::fs::metadata(s.path(path)).unwrap().mode() & 0o777;
        let other = if writers_set_modes { 0o444 } else { 0o666 };
        assert_eq!((mode("own"), mode("other")), (0o444, other));
    }
}
