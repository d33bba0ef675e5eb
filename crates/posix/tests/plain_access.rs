//! The access to an entry, as a listing tells it without opening the entry, is that of the entry
//! when it is opened; and a listing says nothing of an entry with protection or streams of its own.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Share, how, name, share};
use frevo_posix::credentials::Credentials;
use frevo_posix::dosattrib;
use frevo_store::Vfs;
use frevo_store::vfs::{HostAccess, OpenHow};
use frevo_wire::dtyp::FileAttributes;
use rustix::fs::XattrFlags;

const SETTLED: Duration = Duration::from_millis(60);

/// ext2, ext3 and ext4, by f_type.
const EXT4: u64 = 0xEF53;

/// A user without any file here.
const STRANGER: u32 = 54_321;

/// user::rw-, user:54321:---, group::r--, mask::r--, other::r-- in the kernel's form.
fn list() -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(1u16, 6u16, none), (2, 0, STRANGER), (4, 4, none), (16, 4, none), (32, 4, none)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&bits.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    list
}

fn attribute(path: &Path, attribute: &str, value: &[u8]) {
    rustix::fs::setxattr(path, attribute, value, XattrFlags::empty()).unwrap();
}

/// The access to each entry of the share's root, and its attributes, by a listing.
fn listed(share: &Share) -> BTreeMap<String, (Option<HostAccess>, FileAttributes)> {
    let root = share.vfs.open(&name(""), &how()).unwrap();
    let mut listing = root.node.directory().unwrap();
    let mut found = BTreeMap::new();
    while let Some(entry) = listing.next_name().unwrap().map(str::to_owned) {
        let stat = listing.entry_stat().unwrap().unwrap();
        let access = listing.plain_access();
        assert_eq!(listing.plain_access(), access, "{entry}, asked again");
        found.insert(entry, (access, stat.attributes));
    }
    found
}

/// Compares with what opening each entry says; returns the names of which the listing tells.
fn names_with_access(share: &Share) -> Vec<String> {
    let mut names = Vec::new();
    for (entry, (access, attributes)) in listed(share) {
        let Some(access) = access else { continue };
        let look = OpenHow { open_link: true, ..how() };
        let opened = share.vfs.open(&name(&entry), &look).unwrap();
        assert_eq!(opened.node.host_access(), access, "{entry}");
        assert_eq!(opened.stored_security().unwrap(), None, "{entry}");
        assert!(opened.node.streams().unwrap().is_empty(), "{entry}");
        assert_eq!(opened.stat.attributes, attributes, "{entry}");
        names.push(entry);
    }
    names
}

const MODES: [u32; 9] = [0o000, 0o400, 0o444, 0o600, 0o640, 0o644, 0o004, 0o755, 0o777];

/// Files of many modes, which a listing tells of, and entries of which it does not.
fn fill(share: &Share) -> Vec<String> {
    let mut plain = Vec::new();
    for mode in MODES {
        for kind in ["file", "folder"] {
            let entry = format!("{kind}-{mode:o}");
            let path = match kind {
                "file" => share.file(&entry, "x"),
                _ => share.mkdir(&entry),
            };
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            plain.push(entry);
        }
    }
    let marked = share.file("marked", "");
    attribute(&marked, dosattrib::NAME, b"0x2");
    attribute(&marked, "user.mime_type", b"x");
    plain.push("marked".into());
    attribute(&share.file("with-stream", ""), "user.DosStream.s:$DATA", b"x\0");
    attribute(&share.file("with-side-stream", ""), "user.frevo.streams", b"1-2");
    attribute(&share.file("with-descriptor", ""), "user.NTACL", b"x");
    attribute(&share.file("with-list", ""), "system.posix_acl_access", &list());
    for n in 0..40 {
        attribute(&share.file("with-many", ""), &format!("user.a-long-name-of-{n}"), b"x");
    }
    std::os::unix::fs::symlink("marked", share.path("link")).unwrap();
    plain.sort();
    plain
}

/// True where the kernel notes changes of attributes, so that a listing tells at all.
fn tells(share: &Share) -> bool {
    let folder = std::fs::File::open(share.path("")).unwrap();
    let is_ext4 = rustix::fs::fstatfs(&folder).unwrap().f_type as u64 == EXT4;
    let probe = share.file("probe", "");
    let tells = names_with_access(share).contains(&"probe".to_owned());
    std::fs::remove_file(probe).unwrap();
    assert!(tells || !is_ext4);
    tells
}

#[test]
fn a_listing_shows_the_access_of_an_open() {
    let share = share();
    let tells = tells(&share);
    let plain = fill(&share);
    for round in 0..3 {
        let names = names_with_access(&share);
        assert_eq!(names, if tells { plain.clone() } else { Vec::new() }, "round {round}");
        // Facts are cached only for files without changes for this time, so the next round finds
        // them in the cache.
        std::thread::sleep(SETTLED);
    }
}

/// Another program's change of what was known is seen at once.
#[test]
fn protection_that_a_known_file_gets_is_seen() {
    let share = share();
    let tells = tells(&share);
    let path = share.file("f", "");
    let is_told = || names_with_access(&share) == ["f"];
    for (what, value) in [
        ("user.NTACL", b"x".to_vec()),
        ("user.DosStream.s:$DATA", b"x\0".to_vec()),
        ("system.posix_acl_access", list()),
    ] {
        std::thread::sleep(SETTLED);
        assert_eq!([is_told(), is_told()], [tells; 2]);
        attribute(&path, what, &value);
        assert!(!is_told(), "{what}");
        rustix::fs::removexattr(&path, what).unwrap();
        assert_eq!(is_told(), tells, "{what} has gone");
    }
    for mode in MODES {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!([is_told(), is_told()], [tells; 2], "{mode:o}");
    }
}

/// A user of the host gets the access of that user, and reads no attributes of files that the user
/// may not read, although the server knows them.
#[test]
fn a_host_user_gets_its_own_access() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let share = share();
    let tells = tells(&share);
    let plain = fill(&share);
    std::fs::set_permissions(share.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(share.path("marked"), PermissionsExt::from_mode(0o644)).unwrap();
    let secret = share.file("secret", "");
    attribute(&secret, dosattrib::NAME, b"0x2");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    std::thread::sleep(SETTLED);
    let user = Arc::new(Credentials::new(STRANGER, STRANGER, &[]).unwrap());
    for round in 0..3 {
        let seen = listed(&share);
        assert_eq!(seen["secret"].1, FileAttributes::HIDDEN, "the server, round {round}");
        let acting = user.assume().unwrap();
        let seen = listed(&share);
        assert_eq!(seen["secret"].1, FileAttributes::NORMAL, "the user, round {round}");
        assert_eq!(seen["marked"].1, FileAttributes::HIDDEN, "round {round}");
        let names = names_with_access(&share);
        assert!(!tells || plain.iter().all(|entry| names.contains(entry)), "{names:?}");
        for (entry, (access, _)) in seen {
            let Some(access) = access else { continue };
            let may_read = ["-444", "-644", "-4", "-755", "-777", "marked", "probe"];
            let expected = may_read.iter().any(|end| entry.ends_with(end));
            assert_eq!(access.read, expected, "{entry}");
        }
        drop(acting);
    }
}
