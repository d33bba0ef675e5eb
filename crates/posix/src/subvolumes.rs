//! Snapshots of subvolumes of btrfs: they are made and removed with their directory's right to be written.
//! The caller's user must own the subvolume or be privileged.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys;

/// The number of the root directory of each subvolume, BTRFS_FIRST_FREE_OBJECTID of linux/btrfs_tree.h.
const ROOT_NUMBER: u64 = 256;
/// The type of the file system, in statfs' f_type.
const BTRFS: u64 = 0x9123_683E;
/// BTRFS_SUBVOL_RDONLY of linux/btrfs.h.
const READ_ONLY: u64 = 1 << 1;

/// BTRFS_IOC_SNAP_DESTROY, BTRFS_IOC_SNAP_CREATE_V2 and BTRFS_IOC_SUBVOL_GETFLAGS of linux/btrfs.h.
const SNAP_DESTROY: u32 = 0x5000_940F;
const SNAP_CREATE: u32 = 0x5000_9417;
const GET_FLAGS: u32 = 0x8008_9419;

/// struct btrfs_ioctl_vol_args_v2 of linux/btrfs.h.
#[repr(C)]
struct CreateArguments {
    source: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4_040],
}

/// struct btrfs_ioctl_vol_args of linux/btrfs.h.
#[repr(C)]
struct RemoveArguments {
    descriptor: i64,
    name: [u8; 4_088],
}

/// Returns a name as a text of C of so many bytes.
fn terminated<const SIZE: usize>(name: &str) -> io::Result<[u8; SIZE]> {
    let is_plain = !name.is_empty() && !name.bytes().any(|byte| matches!(byte, 0 | b'/'));
    let mut text = [0; SIZE];
    match text.get_mut(..name.len()) {
        // The last byte stays zero.
        Some(head) if is_plain && name.len() < SIZE => head.copy_from_slice(name.as_bytes()),
        _ => return Err(Errno::INVAL.into()),
    }
    Ok(text)
}

/// True for the root of a subvolume of btrfs.
///
/// # Errors
/// Those of a look at the directory.
pub fn is_root(directory: BorrowedFd<'_>) -> io::Result<bool> {
    let is_btrfs = rustix::fs::fstatfs(directory)?.f_type as u64 == BTRFS;
    Ok(is_btrfs && sys::stat_fd(directory)?.stx_ino == ROOT_NUMBER)
}

/// Makes a read-only snapshot of a subvolume, with a name in a directory of the same file system. It has all
/// that was written before the call, and is on the disk when the call returns.
///
/// # Errors
/// EEXIST if the name is taken, and those of the kernel.
pub fn make_snapshot(
    source: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &str,
) -> io::Result<()> {
    let arguments = CreateArguments {
        source: source.as_raw_fd().into(),
        transaction: 0,
        flags: READ_ONLY,
        unused: [0; 4],
        name: terminated(name)?,
    };
    // SAFETY: the request reads one vol_args_v2, which `arguments` is, with a name that ends with a zero; it
    // outlives the call, and so do both descriptors.
    let done =
        unsafe { libc::ioctl(directory.as_raw_fd(), SNAP_CREATE as _, &raw const arguments) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Removes a read-only snapshot of a directory. Another thing of that name stays.
///
/// # Errors
/// EPERM for other things than a read-only snapshot, and those of the kernel.
pub fn remove_snapshot(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let arguments = RemoveArguments { descriptor: 0, name: terminated(name)? };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The name is a single one, and links are not followed.
    let snapshot: OwnedFd = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    if !is_root(snapshot.as_fd())? || flags_of(snapshot.as_fd())? & READ_ONLY == 0 {
        return Err(Errno::PERM.into());
    }
    drop(snapshot);
    // SAFETY: the request reads one vol_args, which `arguments` is, with a name that ends with a zero; it
    // outlives the call, and so does the descriptor.
    let done =
        unsafe { libc::ioctl(directory.as_raw_fd(), SNAP_DESTROY as _, &raw const arguments) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn flags_of(subvolume: BorrowedFd<'_>) -> io::Result<u64> {
    let mut flags = 0_u64;
    // SAFETY: the request fills one u64, which `flags` is; it outlives the call.
    let done = unsafe { libc::ioctl(subvolume.as_raw_fd(), GET_FLAGS as _, &raw mut flags) };
    if done == 0 { Ok(flags) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_structures_have_its_sizes() {
        // The size is a part of the number of a request.
        for (request, size) in [
            (SNAP_CREATE, size_of::<CreateArguments>()),
            (SNAP_DESTROY, size_of::<RemoveArguments>()),
        ] {
            assert_eq!(request >> 16 & 0x3FFF, u32::try_from(size).unwrap());
        }
    }

    #[test]
    fn names_are_single_and_fit() {
        for name in ["", "a/b", "/", "a\0b", "12345678"] {
            assert!(terminated::<8>(name).is_err(), "{name:?}");
        }
        assert_eq!(terminated::<8>("1234567").unwrap(), *b"1234567\0");
    }

    #[test]
    fn a_directory_of_another_file_system_is_no_subvolume() {
        let directory = std::fs::File::open("/proc").unwrap();
        assert!(!is_root(directory.as_fd()).unwrap());
        assert!(make_snapshot(directory.as_fd(), directory.as_fd(), "a").is_err());
        assert!(remove_snapshot(directory.as_fd(), "self").is_err());
    }
}
