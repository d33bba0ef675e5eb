//! The list of this process's mounts, which a confined process cannot open: it stays open from before.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::limits::MOUNT_LIST_BYTES;

const PATH: &str = "/proc/self/mountinfo";

/// The open list.
static KEPT: OnceLock<File> = OnceLock::new();

/// Opens the list for all later questions, before the process is confined. Where that fails, each
/// question tries to open it.
pub fn keep_list() {
    if let Ok(list) = File::open(PATH) {
        let _ = KEPT.set(list);
    }
}

/// Returns the list as it is now. None where it cannot be read, or is longer than
/// [`MOUNT_LIST_BYTES`].
fn list() -> Option<String> {
    match KEPT.get() {
        Some(kept) => read(kept),
        None => read(&File::open(PATH).ok()?),
    }
}

/// Reads the whole list. The kernel returns some lines with each call.
fn read(list: &File) -> Option<String> {
    let mut text = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        match list.read_at(&mut part, text.len() as u64) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(count) => text.extend_from_slice(part.get(..count)?),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        if text.len() > MOUNT_LIST_BYTES {
            return None;
        }
    }
}

/// Returns the kind of the file system of the mount with this number, as the kernel calls it.
pub(crate) fn kind_of(mount: u64) -> Option<String> {
    kind_in(&list()?, mount)
}

/// Returns the kind of the file system at `path`, as the kernel calls it. None if the list of mounts
/// cannot be read.
///
/// # Errors
/// Those of a look at `path`.
pub fn kind_at(path: &Path) -> std::io::Result<Option<String>> {
    let stx = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?;
    Ok(kind_of(stx.stx_mnt_id))
}

fn kind_in(list: &str, mount: u64) -> Option<String> {
    let mount = mount.to_string();
    let line = list.lines().find(|line| line.split(' ').next() == Some(&mount))?;
    kind_of_line(line).map(str::to_owned)
}

/// Returns the kind, which is behind the optional fields; they end with a dash.
fn kind_of_line(line: &str) -> Option<&str> {
    line.split_once(" - ")?.1.split(' ').next()
}

/// True for a path without links at or below a place where an automounter mounts disks at their
/// first use.
pub fn is_automounted(path: &Path) -> bool {
    list().is_some_and(|list| is_automounted_in(&list, path))
}

fn is_automounted_in(list: &str, path: &Path) -> bool {
    list.lines().filter(|line| kind_of_line(line) == Some("autofs")).any(|line| {
        let place = line.split(' ').nth(4).map(unescaped);
        place.is_some_and(|place| path.starts_with(OsStr::from_bytes(&place)))
    })
}

/// Returns a field of the list with the octal numbers of blanks and backslashes replaced.
fn unescaped(field: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, behind @ ..] = rest {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
        22 28 0:21 / /proc rw,nosuid - proc proc rw\n\
        28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        40 28 0:40 / /mnt/auto rw shared:7 master:2 - autofs /etc/auto.mnt rw,indirect\n\
        41 28 0:41 / /srv/my\\040disk rw - autofs systemd-1 rw,direct\n\
        42 41 8:17 / /srv/my\\040disk rw - xfs /dev/sdb1 rw\n";

    #[test]
    fn kinds_and_automounters_are_found() {
        assert_eq!(kind_in(LIST, 28).as_deref(), Some("ext4"));
        assert_eq!(kind_in(LIST, 42).as_deref(), Some("xfs"));
        assert_eq!(kind_in(LIST, 2), None);
        for (path, is_automounted) in [
            ("/mnt/auto", true),
            ("/mnt/auto/disk/folder", true),
            ("/mnt/automatic", false),
            ("/srv/my disk", true),
            ("/srv", false),
        ] {
            assert_eq!(is_automounted_in(LIST, Path::new(path)), is_automounted, "{path}");
        }
    }

    /// Tests that the kept list tells what the file tells, also when it is read again.
    #[test]
    fn the_kept_list_is_read_again() {
        let list = File::open(PATH).unwrap();
        let proc = kind_at(Path::new("/proc")).unwrap();
        assert_eq!(proc.as_deref(), Some("proc"));
        for _ in 0..2 {
            let text = read(&list).unwrap();
            assert!(text.ends_with('\n') && text.contains(" /proc "), "{text}");
        }
    }
}
