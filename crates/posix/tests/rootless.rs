//! A server without CAP_SYS_ADMIN keeps descriptors in `user.NTACL` and obeys those in
//! `security.NTACL`, which it cannot write. One without CAP_FOWNER keeps times of other users' files
//! with the attributes.

mod common;

use common::{create, how, name, share, write};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::{BasicChange, Security, SecurityChange};
use frevo_store::{Fault, Vfs};
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, FileAttributes, FileTime, SdControl, SecurityDescriptor, Sid,
};
use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

fn descriptor() -> Vec<u8> {
    let mut bytes = Vec::new();
    SecurityDescriptor {
        control: SdControl::DACL_PRESENT,
        owner: Some(Sid::unix_user(7)),
        group: Some(Sid::USERS),
        dacl: Some(Acl::new(vec![Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, Sid::USERS)])),
        ..SecurityDescriptor::default()
    }
    .encode(&mut bytes)
    .unwrap();
    bytes
}

fn without_privilege(test: impl FnOnce() + Send + 'static) {
    without(CapabilitySet::SYS_ADMIN, test);
}

/// Capabilities are a thread's own.
fn without(privilege: CapabilitySet, test: impl FnOnce() + Send + 'static) {
    let run = move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective = sets.effective.difference(privilege);
        set_capabilities(None, sets).unwrap();
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn descriptors_are_kept_where_every_user_may() {
    without_privilege(|| {
        let share = share();
        assert!(share.vfs.volume().descriptors);
        let wanted = descriptor();
        let file = share.vfs.open(&name("f"), &create()).unwrap();
        let change = SecurityChange {
            descriptor: Some(&wanted),
            mode: Some(0o640),
            ..SecurityChange::default()
        };
        file.node.set_security(&change).unwrap();
        let path = share.dir.path().join("f");
        let mut value = [0; 1024];
        assert!(getxattr(&path, c"user.NTACL", &mut value).unwrap() > wanted.len());
        let privileged = getxattr(&path, c"security.NTACL", &mut value);
        assert_eq!(privileged.unwrap_err(), Errno::NODATA);
        drop(file);
        let file = share.vfs.open(&name("F"), &write()).unwrap();
        assert_eq!(file.node.stored_security().unwrap(), Some(wanted));
        // Clients can neither list nor set the attribute that contains the descriptor.
        file.node.set_ea("theirs", b"1").unwrap();
        let names: Vec<_> = file.node.eas().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["theirs"]);
        for private in ["NTACL", "ntacl"] {
            assert_eq!(file.node.set_ea(private, b"forged"), Err(Fault::AccessDenied));
        }
        // After the host has changed the mode, the stored descriptor does not apply any more.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let file = share.vfs.open(&name("f"), &how()).unwrap();
        assert_eq!(file.node.stored_security().unwrap(), None);
        assert!(matches!(file.node.security().unwrap(), Security::Host(_)));
    });
}

/// A descriptor of a server that had CAP_SYS_ADMIN, or of smbd, denies whoever it denied
/// before.
#[test]
fn descriptors_of_a_privileged_server_are_obeyed() {
    let held = capabilities(None).unwrap().effective;
    if !held.contains(CapabilitySet::SYS_ADMIN) {
        eprintln!("left out: only a process with CAP_SYS_ADMIN writes security.NTACL");
        return;
    }
    let share = share();
    let wanted = descriptor();
    let file = share.vfs.open(&name("f"), &create()).unwrap();
    file.node.set_security(&SecurityChange { mode: Some(0o640), ..stored_by(&wanted) }).unwrap();
    let path = share.dir.path().join("f");
    getxattr(&path, c"security.NTACL", &mut [0; 1024]).unwrap();
    drop(file);

    let folder = share.dir.path().to_owned();
    without_privilege(move || {
        let vfs = PosixVfs::open_root(&folder, PosixOptions::default()).unwrap();
        let file = vfs.open(&name("f"), &write()).unwrap();
        assert_eq!(file.node.stored_security().unwrap().as_ref(), Some(&wanted));
        assert_eq!(file.node.security().unwrap(), Security::Stored(wanted.clone()));
        // Without root the privileged attribute cannot be replaced, and a second one could
        // contradict it, so the change is refused.
        let refused =
            file.node.set_security(&SecurityChange { mode: Some(0o666), ..stored_by(&wanted) });
        assert_eq!(refused, Err(Fault::AccessDenied));
        assert_eq!(file.node.stat().unwrap().mode & 0o777, 0o640, "nothing has changed");
        assert_eq!(getxattr(&path, c"user.NTACL", &mut [0; 8]).unwrap_err(), Errno::NODATA);
        // Without root only user.NTACL can be written, so the descriptor of a new file is stored
        // there.
        let new = vfs.open(&name("new"), &create()).unwrap();
        new.node.set_security(&stored_by(&wanted)).unwrap();
        assert_eq!(new.node.stored_security().unwrap(), Some(wanted));
    });
}

/// A list of a server without CAP_SYS_ADMIN holds for one that has it, until a client changes it
/// there: then there is one list, in `security.NTACL`.
#[test]
fn descriptors_are_never_in_two_places() {
    let held = capabilities(None).unwrap().effective;
    if !held.contains(CapabilitySet::SYS_ADMIN) {
        eprintln!("left out: only a process with CAP_SYS_ADMIN writes security.NTACL");
        return;
    }
    let folder = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
    let path = folder.path().join("f");
    let wanted = descriptor();
    let (at, older) = (folder.path().to_owned(), wanted.clone());
    without_privilege(move || {
        let vfs = PosixVfs::open_root(&at, PosixOptions::default()).unwrap();
        let file = vfs.open(&name("f"), &create()).unwrap();
        file.node.set_security(&stored_by(&older)).unwrap();
    });
    let has = |attribute: &str| getxattr(&path, attribute, &mut [0; 1024]).is_ok();
    assert!(has("user.NTACL") && !has("security.NTACL"));

    let vfs = PosixVfs::open_root(folder.path(), PosixOptions::default()).unwrap();
    let stored = || vfs.open(&name("f"), &how()).unwrap().node.stored_security().unwrap();
    assert_eq!([stored().as_ref(), stored().as_ref()], [Some(&wanted); 2], "it is still obeyed");
    let mut newer = wanted;
    newer.extend_from_slice(&[0; 4]);
    vfs.open(&name("f"), &write()).unwrap().node.set_security(&stored_by(&newer)).unwrap();
    assert!(has("security.NTACL") && !has("user.NTACL"));
    assert_eq!(stored().as_ref(), Some(&newer));
    // After the host has changed the mode, neither of the two descriptors applies any more.
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(stored(), None);
}

fn stored_by(descriptor: &[u8]) -> SecurityChange<'_> {
    SecurityChange { descriptor: Some(descriptor), ..SecurityChange::default() }
}

const STRANGER: u32 = 54_321;
const WRITTEN: FileTime = FileTime(132_000_000_000_000_000);
const ACCESSED: FileTime = FileTime(131_000_000_000_000_000);

fn times(accessed: Option<FileTime>, written: Option<FileTime>) -> BasicChange {
    BasicChange { accessed, written, ..BasicChange::default() }
}

/// MS-FSA 2.1.5.15.2: the right to write attributes is enough. Linux lets only the owner set times.
#[test]
fn times_that_the_host_refuses_are_kept() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root gives files away");
        return;
    }
    let share = share();
    let path = share.file("theirs", "data");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    std::os::unix::fs::chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
    without(CapabilitySet::FOWNER, move || {
        let vfs = &share.vfs;
        let seen = |entry: &str| {
            let stat = vfs.stat(&name(entry)).unwrap();
            (stat.accessed, stat.written)
        };
        let before = seen("theirs");
        let file = vfs.open(&name("theirs"), &write()).unwrap();
        file.node.set_basic(&times(None, Some(WRITTEN))).unwrap();
        assert_eq!(file.node.stat().unwrap().written, WRITTEN);
        assert_eq!(seen("theirs"), (before.0, WRITTEN));
        // Neither a change of the attributes nor one of the access time may lose the stored write
        // time.
        let hidden = Some(FileAttributes::HIDDEN);
        file.node.set_basic(&BasicChange { attributes: hidden, ..times(None, None) }).unwrap();
        file.node.set_basic(&times(Some(ACCESSED), None)).unwrap();
        assert_eq!(seen("theirs"), (ACCESSED, WRITTEN));
        let root = vfs.open(&name(""), &how()).unwrap();
        let mut listing = root.node.directory().unwrap();
        while listing.next_name().unwrap() != Some("theirs") {}
        let listed = listing.entry_stat().unwrap().unwrap();
        assert_eq!((listed.accessed, listed.written), (ACCESSED, WRITTEN));
        assert!(listed.attributes.contains(FileAttributes::HIDDEN));
        // After a change of the data the stored times do not apply any more.
        std::thread::sleep(std::time::Duration::from_millis(30));
        std::fs::write(&path, "more").unwrap();
        let now = seen("theirs").1;
        assert!(now > before.1, "{now:?}");
        file.node.set_basic(&times(None, Some(WRITTEN))).unwrap();
        assert_eq!(seen("theirs").1, WRITTEN);
        assert_ne!(std::fs::metadata(&path).unwrap().modified().unwrap(), written());
        // The user owns this file, so the host's own times are set, and nothing need be stored.
        std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
        file.node.set_basic(&times(None, Some(WRITTEN))).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), written());
        assert_eq!(seen("theirs").1, WRITTEN);
    });
}

fn written() -> std::time::SystemTime {
    let (seconds, _) = WRITTEN.to_unix();
    std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.unsigned_abs())
}

/// Tests that a folder which its mode makes read-only is not taken for one that the process is
/// confined to read.
#[test]
fn a_read_only_mode_is_no_confinement() {
    use std::os::unix::fs::PermissionsExt;
    without(CapabilitySet::DAC_OVERRIDE, || {
        let share = share();
        let mode = |mode| std::fs::set_permissions(share.path(""), PermissionsExt::from_mode(mode));
        let whole = share.vfs.reach();
        assert!(whole.takes_files && whole.lists && !share.vfs.is_confined_since(whole));
        mode(0o555).unwrap();
        assert!(!share.vfs.reach().takes_files && !share.vfs.is_confined_since(whole));
        mode(0o755).unwrap();
        assert_eq!(share.vfs.reach(), whole);
    });
}
