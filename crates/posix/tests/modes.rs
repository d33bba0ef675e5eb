//! The permission bits of new files and folders, and DOS attributes that are bits of the mode.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use common::{create, create_dir, name};
use frevo_posix::{ModeAttributes, NtAcls, PosixOptions};
use frevo_store::Vfs as _;
use frevo_store::vfs::{BasicChange, OpenHow};
use frevo_wire::dtyp::FileAttributes;

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

/// The value of `system.posix_acl_default`: these rights of the owner, of the group, and of others.
fn default_list(owner: u16, group: u16, others: u16) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, rights) in [(0x01_u16, owner), (0x04, group), (0x20, others)] {
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(u32::MAX.to_le_bytes());
    }
    value
}

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
        let list = default_list(7, 7, 0);
        let flags = rustix::fs::XattrFlags::empty();
        let path = s.path("team");
        if rustix::fs::setxattr(&path, "system.posix_acl_default", &list, flags).is_err() {
            println!("skipped: the file system has no access lists");
            return;
        }
        let file = s.open("team\\f", &create()).unwrap();
        let dir = s.open("team\\d", &create_dir()).unwrap();
        assert_eq!((file.stat.mode, dir.stat.mode), (file_mode, directory_mode));
    }
}

#[test]
fn new_objects_belong_to_the_owner_of_their_folder() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to give files away");
        return;
    }
    let s = share_with(PosixOptions { inherit_owner: true, ..PosixOptions::default() });
    let folder = s.mkdir("team");
    std::os::unix::fs::chown(&folder, Some(12_345), Some(54_321)).unwrap();
    let made = s.open("team\\d", &create_dir()).unwrap();
    assert_eq!((made.stat.uid, made.stat.gid), (12_345, 0), "the group is the user's");
    let made = s.open("team\\d\\f", &create()).unwrap();
    assert_eq!((made.stat.uid, made.stat.gid), (12_345, 0));
    let plain = share_with(PosixOptions::default());
    std::os::unix::fs::chown(plain.mkdir("team"), Some(12_345), None).unwrap();
    assert_eq!(plain.open("team\\f", &create()).unwrap().stat.uid, 0);
}

#[test]
fn attributes_are_bits_of_the_mode() {
    let s = share_with(PosixOptions {
        dos_attributes: false,
        nt_acls: NtAcls::Posix,
        mode_attributes: ModeAttributes { archive: true, system: true, hidden: true },
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
    chmod(&s, "f", 0o700);
    assert_eq!(s.vfs.stat(&name("f")).unwrap().attributes, FileAttributes::ARCHIVE);
    // The bits of a folder are rights to search it.
    let dir = s.open("d", &create_dir()).unwrap();
    assert_eq!(dir.stat.attributes, FileAttributes::DIRECTORY);
}
