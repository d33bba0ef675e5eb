//! `fuse`: the connection of a mount, which the kernel can end (Documentation/filesystems/fuse.rst).
//!
//! After the end each call on the mount fails with ENOTCONN, also one that waits. A change that the FUSE
//! file system has taken from the kernel before may still reach its own storage.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use frevo_cluster::fence::Fence;
use rustix::fs::{major, minor, stat, statfs};
use rustix::io::Errno;

use crate::fault::FenceFault;
use crate::host::Boot;

/// The folder of the connections, one folder for each.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// FUSE_SUPER_MAGIC of linux/magic.h.
const FUSE: i64 = 0x6573_5546;
/// FUSE_CTL_SUPER_MAGIC of fs/fuse/control.c.
const CONTROL: i64 = 0x6573_5543;

/// Returns the connection of the mount in which `folder` is.
pub(crate) fn identity(folder: &Path, boot: &Boot) -> Result<Fence, FenceFault> {
    let name = folder.display();
    let failed = |errno: Errno| match errno {
        Errno::NOTCONN | Errno::CONNABORTED => FenceFault(format!(
            "the FUSE file system of {name} has ended; {}",
            FenceFault::MOUNT_AGAIN
        )),
        errno => FenceFault::of(&name, std::io::Error::from(errno)),
    };
    let device = stat(folder).map_err(failed)?.st_dev;
    if kind(folder).map_err(failed)? != FUSE {
        let text = format!("{name} is no FUSE file system; use another `fence`");
        return Err(FenceFault(text));
    }
    let connection = connection_of(major(device), minor(device));
    match std::fs::metadata(abort_file(connection)) {
        Ok(_) => Ok(Fence::Fuse { connection, host: boot.0.clone() }),
        Err(_) => Err(no_control().unwrap_or_else(|| {
            FenceFault(format!("the FUSE connection {connection} of {name} has ended"))
        })),
    }
}

/// Ends a connection. One that does not exist has ended.
///
/// Each run of each kernel counts its own connections: the one with the same number at this host is another
/// one, perhaps of no node at all.
pub(crate) fn fence(connection: u32, host: &str, boot: &Boot) -> Result<(), FenceFault> {
    if host != boot.0 {
        return Err(FenceFault(format!(
            "the FUSE connection {connection} is none of this machine since its last start; `fence = \
             \"fuse\"` is for nodes on one machine: if that node is on this one, start it again, and it \
             gives its shares free; if it does not come back, docs/cluster-fences.md (`fuse`) has the way"
        )));
    }
    let file = abort_file(connection);
    let ended =
        OpenOptions::new().write(true).open(&file).and_then(|mut file| file.write_all(b"1"));
    match ended {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => no_control().map_or(Ok(()), Err),
        Err(error) => Err(FenceFault::of(file.display(), error)),
    }
}

fn abort_file(connection: u32) -> PathBuf {
    Path::new(CONNECTIONS).join(connection.to_string()).join("abort")
}

/// The number of a connection is the device number inside the kernel: MKDEV of linux/kdev_t.h.
fn connection_of(major: u32, minor: u32) -> u32 {
    (major << 20) | minor
}

#[allow(clippy::useless_conversion, reason = "the type depends on the C library")]
fn kind(folder: &Path) -> Result<i64, Errno> {
    Ok(i64::try_from(statfs(folder)?.f_type).unwrap_or_default())
}

/// The fault of a host that shows no connections.
fn no_control() -> Option<FenceFault> {
    let shows = kind(Path::new(CONNECTIONS)).is_ok_and(|kind| kind == CONTROL);
    (!shows).then(|| {
        FenceFault(format!(
            "{CONNECTIONS} is not there; mount it: mount -t fusectl none {CONNECTIONS}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_the_numbers_of_the_kernel() {
        assert_eq!(connection_of(0, 51), 51);
        // A file system on a block device: /dev/sda1.
        assert_eq!(connection_of(8, 1), 0x0080_0001);
        assert_eq!(abort_file(51), Path::new("/sys/fs/fuse/connections/51/abort"));
    }

    #[test]
    fn what_is_not_fuse_has_no_connection() {
        let boot = Boot::of_this_host().unwrap();
        let fault = identity(Path::new("/proc"), &boot).unwrap_err().to_string();
        assert_eq!(fault, "/proc is no FUSE file system; use another `fence`");
        assert!(identity(Path::new("/no such folder"), &boot).is_err());
    }

    /// The kernel of this test has no connection with this number, so that a fence by the number alone succeeds.
    #[test]
    fn a_connection_of_another_host_is_not_ended() {
        let boot = Boot::of_this_host().unwrap();
        for host in ["119afa99-d96f-4299-a6f5-000000000000", "", "../.."] {
            let fault = fence(u32::MAX, host, &boot).unwrap_err().to_string();
            assert!(fault.starts_with("the FUSE connection 4294967295 is none of this"), "{fault}");
        }
        if no_control().is_none() {
            assert_eq!(fence(u32::MAX, &boot.0, &boot), Ok(()));
        }
    }
}
