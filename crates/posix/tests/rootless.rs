//! A server without CAP_SYS_ADMIN keeps descriptors in `user.NTACL`.

mod common;

use common::{create, how, name, share, write};
use frevo_store::vfs::{Security, SecurityChange};
use frevo_store::{Fault, Vfs};
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, Sid};
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

/// Capabilities are a thread's own.
fn without_privilege(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective = sets.effective.difference(CapabilitySet::SYS_ADMIN);
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
        let change =
            SecurityChange { descriptor: Some(&wanted), uid: None, gid: None, mode: Some(0o640) };
        file.node.set_security(&change).unwrap();
        let path = share.dir.path().join("f");
        let mut value = [0; 1024];
        assert!(getxattr(&path, c"user.NTACL", &mut value).unwrap() > wanted.len());
        let privileged = getxattr(&path, c"security.NTACL", &mut value);
        assert_eq!(privileged.unwrap_err(), Errno::NODATA);
        drop(file);
        let file = share.vfs.open(&name("F"), &write()).unwrap();
        assert_eq!(file.node.stored_security().unwrap(), Some(wanted));
        // Clients neither see it among their own nor write it.
        file.node.set_ea("theirs", b"1").unwrap();
        let names: Vec<_> = file.node.eas().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["theirs"]);
        for private in ["NTACL", "ntacl"] {
            assert_eq!(file.node.set_ea(private, b"forged"), Err(Fault::AccessDenied));
        }
        // As everywhere it is out of force once the host's mode is another.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let file = share.vfs.open(&name("f"), &how()).unwrap();
        assert_eq!(file.node.stored_security().unwrap(), None);
        assert!(matches!(file.node.security().unwrap(), Security::Host(_)));
    });
}
