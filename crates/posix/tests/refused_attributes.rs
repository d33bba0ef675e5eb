//! A file system that refuses to tell an access list opens no file by that.

mod common;

use common::{create, how, name, share, write};
use frevo_store::{Fault, Vfs};
use rustix::io::Errno;
use seccompiler::{SeccompAction, SeccompFilter, TargetArch};

/// Makes attributes unreadable with this error, on a thread of its own.
fn refusing(errno: i32, test: impl FnOnce() + Send + 'static) {
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let calls = [libc::SYS_getxattr, libc::SYS_fgetxattr, libc::SYS_lgetxattr];
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let error = SeccompAction::Errno(u32::try_from(errno).unwrap());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, error, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    let run = move || {
        seccompiler::apply_filter(&program).unwrap();
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn only_an_absent_list_is_no_list() {
    let table = [
        (Errno::NODATA, Ok(None)),
        (Errno::OPNOTSUPP, Ok(None)),
        (Errno::PERM, Err(Fault::AccessDenied)),
        (Errno::ACCESS, Err(Fault::AccessDenied)),
        (Errno::IO, Err(Fault::Io(libc::EIO))),
        (Errno::NOSYS, Err(Fault::NotSupported)),
        (Errno::INVAL, Err(Fault::Invalid)),
        (Errno::NOMEM, Err(Fault::NoMemory)),
        (Errno::STALE, Err(Fault::Stale)),
        (Errno::NOLINK, Err(Fault::Io(libc::ENOLINK))),
        (Errno::TIMEDOUT, Err(Fault::Io(libc::ETIMEDOUT))),
        (Errno::NOTCONN, Err(Fault::Io(libc::ENOTCONN))),
        (Errno::BADMSG, Err(Fault::Io(libc::EBADMSG))),
    ];
    for (errno, expected) in table {
        let share = share();
        drop(share.vfs.open(&name("f"), &create()).unwrap());
        let looked = share.vfs.open(&name("f"), &how()).unwrap();
        let written = share.vfs.open(&name("f"), &write()).unwrap();
        refusing(errno.raw_os_error(), move || {
            // Both handles must report the same, because one reads the attribute through its
            // descriptor, the other, without access to data, by path.
            assert_eq!(looked.node.stored_security(), expected, "{errno}");
            assert_eq!(written.node.stored_security(), expected, "{errno}");
            assert_eq!(written.node.security().is_ok(), expected.is_ok(), "{errno}");
        });
    }
}
