//! Local paths of any length. A system call takes a path of at most PATH_MAX bytes (path_resolution(7)):
//! longer ones are reached by way of the descriptor of a directory.

use std::ffi::OsStr;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// The longest path that a system call takes, bytes: PATH_MAX without the NUL at its end.
const WHOLE_MAX: usize = 4095;

/// A path for system calls, usable as long as this value lives.
pub(crate) struct Reachable<'a> {
    path: Shortened<'a>,
    /// The directory that a shortened path begins at.
    _directory: Option<OwnedFd>,
}

enum Shortened<'a> {
    Whole(&'a Path),
    InDirectory(PathBuf),
}

impl Deref for Reachable<'_> {
    type Target = Path;

    fn deref(&self) -> &Path {
        match &self.path {
            Shortened::Whole(path) => path,
            Shortened::InDirectory(path) => path,
        }
    }
}

impl AsRef<Path> for Reachable<'_> {
    fn as_ref(&self) -> &Path {
        self
    }
}

/// Returns `path` as system calls take it. Links on the way are followed, as in any path; the last name
/// is not looked at.
///
/// # Errors
/// A directory on the way to a long path cannot be opened.
pub(crate) fn reach(path: &Path) -> io::Result<Reachable<'_>> {
    if path.as_os_str().len() <= WHOLE_MAX {
        return Ok(Reachable { path: Shortened::Whole(path), _directory: None });
    }
    let (above, name) = match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => (above, name),
        _ => (path, OsStr::new(".")),
    };
    let directory = open_directory(above)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok(Reachable { path: Shortened::InDirectory(short), _directory: Some(directory) })
}

/// Opens a directory by parts of its path.
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let mut opened: Option<OwnedFd> = None;
    let mut rest = path.as_os_str().as_bytes();
    loop {
        let (part, after) = split(rest);
        let from: BorrowedFd<'_> = opened.as_ref().map_or(CWD, |opened| opened.as_fd());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let next = openat(from, OsStr::from_bytes(part), flags, Mode::empty())?;
        if after.is_empty() {
            return Ok(next);
        }
        (opened, rest) = (Some(next), after);
    }
}

/// The longest beginning of a path that a system call takes, and the rest without the slashes before it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= WHOLE_MAX {
        return (path, &[]);
    }
    let begin = path.get(..=WHOLE_MAX).unwrap_or_default();
    // A single name that is too long cannot be split. So it is passed on, and the system refuses
    // it.
    let slash = begin.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
    let names = begin.get(..slash).unwrap_or_default();
    let end = names.iter().rposition(|byte| *byte != b'/').map(|last| last + 1);
    let (part, rest) = path.split_at(end.unwrap_or(path.len()));
    let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
    (part, rest.get(slashes..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_between_names() {
        assert_eq!(split(b"a/b"), (&b"a/b"[..], &b""[..]));
        let name = "n".repeat(200);
        let long = vec![name.as_str(); 50].join("//");
        let (part, rest) = split(long.as_bytes());
        assert!(part.len() <= WHOLE_MAX && part.ends_with(b"n") && rest.starts_with(b"n"));
        assert_eq!(part.len() + 2 + rest.len(), long.len());
        let longest = "n".repeat(5000);
        assert_eq!(split(longest.as_bytes()), (longest.as_bytes(), &b""[..]));
        let absolute = format!("/{longest}");
        assert_eq!(split(absolute.as_bytes()), (absolute.as_bytes(), &b""[..]));
    }

    #[test]
    fn long_paths_are_reached_and_short_ones_stay() {
        let place = tempfile::tempdir().unwrap();
        let mut path = place.path().to_owned();
        assert_eq!(&*reach(&path).unwrap(), path);
        while path.as_os_str().len() < 2 * WHOLE_MAX {
            path.push("n".repeat(200));
            std::fs::create_dir(reach(&path).unwrap()).unwrap();
        }
        let (one, other) = (path.join("one"), path.join("other"));
        std::fs::write(reach(&one).unwrap(), b"data").unwrap();
        std::fs::rename(reach(&one).unwrap(), reach(&other).unwrap()).unwrap();
        assert_eq!(std::fs::read(reach(&other).unwrap()).unwrap(), b"data");
        let gone = reach(&path.join("absent/file")).err().map(|error| error.kind());
        assert_eq!(gone, Some(io::ErrorKind::NotFound));
    }
}
