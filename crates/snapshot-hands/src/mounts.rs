//! The mount below a folder, from `/proc/self/mountinfo` (proc(5)).

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::fault::SnapshotFault;
use crate::limits::MOUNT_LIST_BYTES;

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The number of the mount.
    id: u64,
    /// The folder of the file system that is mounted, `/` unless it is a part.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    /// The type of the file system, such as `ext4`.
    pub(crate) kind: String,
    /// The device, or the dataset of ZFS.
    pub(crate) source: String,
    /// The options of the file system, with commas between them.
    options: String,
}

impl Mount {
    /// Returns the mount in which `folder` is.
    pub(crate) fn of(folder: &Path) -> Result<Self, SnapshotFault> {
        let list = list()?;
        let found = statx(CWD, folder, AtFlags::empty(), StatxFlags::MNT_ID)
            .map_err(|errno| SnapshotFault::of(folder.display(), errno))?;
        let mut mounts = list.lines().filter_map(parse);
        let mount = mounts.find(|mount| mount.id == found.stx_mnt_id);
        mount.ok_or_else(|| SnapshotFault(format!("{} is in no mount", folder.display())))
    }

    /// Returns true if the file system has this option.
    pub(crate) fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }

    /// Returns true if a file system is mounted at `point`.
    pub(crate) fn is_at(point: &Path) -> Result<bool, SnapshotFault> {
        Ok(list()?.lines().filter_map(parse).any(|mount| mount.point == point))
    }

    /// Returns the path of a folder in the file system.
    pub(crate) fn below(&self, folder: &Path) -> Result<PathBuf, SnapshotFault> {
        let inner = folder.strip_prefix(&self.point).ok().filter(|_| self.root == Path::new("/"));
        inner.map(Path::to_owned).ok_or_else(|| {
            SnapshotFault(format!(
                "{} is not reached by the mount point of its file system ({} at {}); share the folder \
                 by that path",
                folder.display(),
                self.source,
                self.point.display()
            ))
        })
    }
}

/// Reads the list of mounts.
fn list() -> Result<String, SnapshotFault> {
    const PATH: &str = "/proc/self/mountinfo";
    let mut text = Vec::new();
    File::open(PATH)
        .and_then(|file| file.take(MOUNT_LIST_BYTES).read_to_end(&mut text))
        .map_err(|error| SnapshotFault::of(PATH, error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads a line: `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let id = left.next()?.parse().ok()?;
    let (root, point) = (path(left.nth(2)?), path(left.next()?));
    let mut right = right.split(' ');
    let kind = right.next()?.to_owned();
    let source = path(right.next()?).to_str()?.to_owned();
    let options = right.next()?.to_owned();
    Some(Mount { id, root, point, kind, source, options })
}

/// A path, in which blanks, tabs, line ends and backslashes are written as octal numbers.
fn path(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let number =
            octal.and_then(|octal| u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok());
        match number {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_mounts() {
        let line = "36 35 0:52 / /tank/my\\040photos rw,noatime shared:1 - zfs tank/my\\040photos rw,xattr";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/tank/my photos"));
        assert_eq!((&*mount.kind, &*mount.source), ("zfs", "tank/my photos"));
        assert_eq!(mount.below(Path::new("/tank/my photos/2026")).unwrap(), Path::new("2026"));
        assert_eq!(mount.below(Path::new("/tank/my photos")).unwrap(), Path::new(""));
        let fault = mount.below(Path::new("/srv")).unwrap_err().to_string();
        assert!(fault.contains("by that path"), "{fault}");
        assert!(mount.has_option("rw") && mount.has_option("xattr") && !mount.has_option("x"));
        let part = Mount { root: "/a".into(), ..mount };
        assert!(part.below(Path::new("/tank/my photos")).is_err());
        for wrong in [
            "",
            "x",
            "36 35 98:0 / /mnt",
            "36 35 98:0 / /mnt rw - ext3",
            "36 35 98:0 / /mnt rw - ext3 /dev/root",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(Mount::of(Path::new("/proc")).is_ok_and(|mount| mount.kind == "proc"));
        assert!(Mount::is_at(Path::new("/proc")).unwrap());
    }
}
