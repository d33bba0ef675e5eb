//! Snapshots of subvolumes of btrfs: they are made and removed with their directory's right to be written.
//! The caller's user must own the subvolume or be privileged.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

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
/// BTRFS_IOC_GET_SUBVOL_ROOTREF and BTRFS_IOC_INO_LOOKUP_USER of linux/btrfs.h.
const GET_CHILDREN: u32 = 0xD000_943D;
const LOOK_UP: u32 = 0xD000_943E;
/// BTRFS_MAX_ROOTREF_BUFFER_NUM of linux/btrfs.h.
const CHILDREN_AT_ONCE: usize = 255;
/// Calls of GET_CHILDREN for one subvolume: it may have far more snapshots in it than the server makes.
const CHILDREN_CALLS: usize = 256;

/// The folder, a subvolume, in which snapper keeps its snapshots.
const OF_SNAPPER: &str = ".snapshots";

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

/// A subvolume in another one, rootref of struct btrfs_ioctl_get_subvol_rootref_args.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Child {
    tree: u64,
    /// The number of the directory in which it is.
    directory: u64,
}

/// struct btrfs_ioctl_get_subvol_rootref_args of linux/btrfs.h.
#[repr(C)]
struct Children {
    least_tree: u64,
    children: [Child; CHILDREN_AT_ONCE],
    count: u8,
    unused: [u8; 7],
}

/// struct btrfs_ioctl_ino_lookup_user_args of linux/btrfs.h.
#[repr(C)]
struct LookUp {
    directory: u64,
    tree: u64,
    name: [u8; 256],
    path: [u8; 3_824],
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

/// Returns the paths in `subvolume` of subvolumes that a snapshot of it does not have, at most `most`. Those in the
/// directory of number `snapshots`, those that nobody can write to, and the folder of snapper are snapshots, which
/// nobody misses in others.
///
/// # Errors
/// Those of the kernel, such as ENOTTY before Linux 4.18.
pub fn nested(
    subvolume: BorrowedFd<'_>,
    snapshots: Option<u64>,
    most: usize,
) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let none = Child { tree: 0, directory: 0 };
    let mut page =
        Children { least_tree: 0, children: [none; CHILDREN_AT_ONCE], count: 0, unused: [0; 7] };
    for _ in 0..CHILDREN_CALLS {
        // SAFETY: the request reads and fills one rootref_args, which `page` is; it outlives the call, and so
        // does the descriptor.
        let done = unsafe { libc::ioctl(subvolume.as_raw_fd(), GET_CHILDREN as _, &raw mut page) };
        let error = (done != 0).then(io::Error::last_os_error);
        // There are more: the page is filled all the same.
        let has_more =
            error.as_ref().is_some_and(|error| error.raw_os_error() == Some(libc::EOVERFLOW));
        if let Some(error) = error.filter(|_| !has_more) {
            return Err(error);
        }
        for child in page.children.iter().take(page.count.into()) {
            if found.len() == most {
                return Ok(found);
            }
            if Some(child.directory) == snapshots {
                continue;
            }
            match path_of(subvolume, *child) {
                Ok(path) if is_of_snapshots(subvolume, &path) => {}
                Ok(path) => found.push(path),
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if !has_more {
            break;
        }
    }
    Ok(found)
}

/// The path of a child in its subvolume.
fn path_of(subvolume: BorrowedFd<'_>, child: Child) -> io::Result<PathBuf> {
    let Child { tree, directory } = child;
    let mut look_up = LookUp { directory, tree, name: [0; 256], path: [0; 3_824] };
    // SAFETY: the request reads and fills one ino_lookup_user_args, which `look_up` is; it outlives the call, and
    // so does the descriptor.
    let done = unsafe { libc::ioctl(subvolume.as_raw_fd(), LOOK_UP as _, &raw mut look_up) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let text = |bytes: &[u8]| {
        let text = CStr::from_bytes_until_nul(bytes).map(|text| text.to_bytes().to_vec());
        text.unwrap_or_default()
    };
    // The path ends with a slash, or is empty.
    let path = [text(&look_up.path), text(&look_up.name)].concat();
    Ok(PathBuf::from(OsStr::from_bytes(&path)))
}

/// True for a subvolume that nobody can write to, and the folder of snapper.
fn is_of_snapshots(subvolume: BorrowedFd<'_>, path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_read_only = || {
        let opened = rustix::fs::openat(subvolume, path, flags, Mode::empty());
        let found = opened.map_err(io::Error::from).and_then(|opened| flags_of(opened.as_fd()));
        found.is_ok_and(|found| found & READ_ONLY != 0)
    };
    path == Path::new(OF_SNAPPER) || is_read_only()
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
            (GET_CHILDREN, size_of::<Children>()),
            (LOOK_UP, size_of::<LookUp>()),
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
        assert!(nested(directory.as_fd(), None, 3).is_err());
    }
}
