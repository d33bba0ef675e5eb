//! Files of a snapshot by their identity. A snapshot of a btrfs subvolume has each file under the number that it had
//! in the subvolume, where no number is given twice. So a file that was renamed since is found by its number, and by
//! its time of birth to be sure.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use frevo_wire::dtyp::FileTime;
use rustix::fs::OFlags;

use crate::limits::RENAMED_LINKS;
use crate::stat;
use crate::subvolumes;
use crate::sys;

/// BTRFS_IOC_INO_PATHS: `_IOWR(0x94, 35, struct btrfs_ioctl_ino_path_args)`.
const INO_PATHS: u32 = 0xC038_9423;
/// Bytes that the kernel fills at most.
const CONTAINER: usize = 4_096;
/// Bytes of struct btrfs_data_container before its values.
const CONTAINER_HEAD: usize = 16;

/// struct btrfs_ioctl_ino_path_args.
#[repr(C)]
struct InoPaths {
    inode: u64,
    size: u64,
    reserved: [u64; 4],
    container: u64,
}

const _: () = assert!(size_of::<InoPaths>() == 56);

/// struct btrfs_data_container, with its values and what they point to.
#[repr(C, align(8))]
struct Container([u8; CONTAINER]);

/// A file or folder of a subvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its number in the subvolume.
    pub(crate) inode: u64,
    /// The time of its birth.
    pub(crate) birth: FileTime,
}

impl Identity {
    /// Returns the path that the file has in a snapshot of its subvolume. None if it is not there, if the folder is no
    /// subvolume, or without the right to ask: CAP_DAC_READ_SEARCH.
    pub(crate) fn path_in(&self, snapshot: BorrowedFd<'_>) -> Option<Vec<u8>> {
        if !subvolumes::is_root(snapshot).ok()? {
            return None;
        }
        let readable = sys::reopen(snapshot, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
        let is_it = |path: &Vec<u8>| {
            let found = sys::stat_at(snapshot, path);
            found.is_ok_and(|stx| {
                stx.stx_ino == self.inode && stat::birth_of(&stx) == Some(self.birth)
            })
        };
        paths(readable.as_fd(), self.inode).ok()?.into_iter().take(RENAMED_LINKS).find(is_it)
    }
}

/// The object of a path of today, or a folder above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) identity: Identity,
    /// The components of the path below it.
    pub(crate) below: usize,
}

/// Returns the path in a snapshot of what has `path` today: that of the nearest of `known`, the nearest one first, which
/// the snapshot has, with the components below it. None if the snapshot has none of them.
pub(crate) fn earlier(snapshot: BorrowedFd<'_>, known: &[Known], path: &[u8]) -> Option<Vec<u8>> {
    known.iter().find_map(|one| {
        let mut earlier = one.identity.path_in(snapshot)?;
        for component in last(path, one.below) {
            earlier.push(b'/');
            earlier.extend_from_slice(component);
        }
        Some(earlier)
    })
}

/// Returns the last components of a path.
fn last(path: &[u8], count: usize) -> impl Iterator<Item = &[u8]> {
    let all = path.split(|byte| *byte == b'/');
    let before = all.clone().count().saturating_sub(count);
    all.skip(before)
}

/// Returns the paths of a number below the root of a subvolume, as many as the kernel has room for.
fn paths(subvolume: BorrowedFd<'_>, inode: u64) -> io::Result<Vec<Vec<u8>>> {
    let mut container = Box::new(Container([0; CONTAINER]));
    let address = container.0.as_mut_ptr().expose_provenance() as u64;
    let arguments =
        InoPaths { inode, size: CONTAINER as u64, reserved: [0; 4], container: address };
    // SAFETY: the request reads one struct btrfs_ioctl_ino_path_args, which `arguments` is, and fills at most `size`
    // bytes at `container`, which is as long; both outlive the call, and so does the descriptor.
    let done = unsafe { libc::ioctl(subvolume.as_raw_fd(), INO_PATHS as _, &raw const arguments) };
    if done != 0 {
        return Err(sys::last_errno().into());
    }
    Ok(parse(&container.0))
}

/// Parses struct btrfs_data_container: each value is the place of a path, counted from the first value on.
fn parse(container: &[u8]) -> Vec<Vec<u8>> {
    let count =
        container.get(8..).and_then(<[u8]>::first_chunk).map_or(0, |at| u32::from_ne_bytes(*at));
    let values = container.get(CONTAINER_HEAD..).unwrap_or_default();
    let path = |value: &[u8; 8]| {
        let text = values.get(usize::try_from(u64::from_ne_bytes(*value)).ok()?..)?;
        let end = text.iter().position(|byte| *byte == 0)?;
        text.get(..end).filter(|path| !path.is_empty()).map(<[u8]>::to_vec)
    };
    let (places, _) = values.as_chunks::<8>();
    places.iter().take(count as usize).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_what_the_kernel_has_filled_in() {
        let mut container = vec![0; 64];
        container[8..12].copy_from_slice(&3_u32.to_ne_bytes());
        // Two paths, and a place beyond the end.
        container[16..24].copy_from_slice(&24_u64.to_ne_bytes());
        container[24..32].copy_from_slice(&28_u64.to_ne_bytes());
        container[32..40].copy_from_slice(&4_000_u64.to_ne_bytes());
        container[40..44].copy_from_slice(b"a/b\0");
        container[44..46].copy_from_slice(b"c\0");
        assert_eq!(parse(&container), [b"a/b".to_vec(), b"c".to_vec()]);
        for short in 0..container.len() {
            assert!(parse(&container[..short]).len() <= 2);
        }
        // A text without an end.
        assert_eq!(
            parse(
                &[[0; 8], [1, 0, 0, 0, 0, 0, 0, 0], [8, 0, 0, 0, 0, 0, 0, 0], [b'x'; 8]].concat()
            ),
            [b""; 0]
        );
    }

    #[test]
    fn the_last_components_are_those_below_a_folder() {
        let of = |count| last(b"a/b/c", count).collect::<Vec<_>>().join(&b'/');
        assert_eq!(
            [of(0), of(1), of(2), of(3), of(9)].map(|path| String::from_utf8(path).unwrap()),
            ["", "c", "b/c", "a/b/c", "a/b/c"]
        );
    }

    #[test]
    fn the_kernels_structure_has_its_size() {
        assert_eq!(INO_PATHS >> 16 & 0x3FFF, u32::try_from(size_of::<InoPaths>()).unwrap());
    }

    #[test]
    fn elsewhere_nothing_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::File::open(folder.path()).unwrap();
        let identity = Identity { inode: 300, birth: FileTime::ZERO };
        assert_eq!(identity.path_in(folder.as_fd()), None);
        assert!(paths(folder.as_fd(), 300).is_err());
    }
}
