//! Named streams that are beside their files, in the side folders of two shares.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_posix::{
    SIDE_FOLDER, STREAMS_MARK, is_streams_mark_of, stream_attribute, stream_of_attribute,
};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::contents;
use super::folder::{Folder, attribute, attributes, failed};
use crate::exit::{Exit, Failure};

/// The beginning of the name of a complete stream's file.
const STREAM: u8 = b':';

/// The side folder of a share, if it has one.
pub(super) fn side_of(root: &Folder) -> Result<Option<Folder>, Failure> {
    root.find(OsStr::new(SIDE_FOLDER))
}

/// The name of the directory of an open file in the side folder. None for a file without one.
pub(super) fn mark_of(fd: BorrowedFd<'_>) -> Result<Option<OsString>, Errno> {
    let Some(value) = attribute(fd, STREAMS_MARK)? else { return Ok(None) };
    let inode = rustix::fs::fstat(fd)?.st_ino;
    Ok(is_streams_mark_of(&value, inode).then(|| OsString::from_vec(value)))
}

/// The directory of an open file in a side folder.
pub(super) fn directory_of(
    side: Option<&Folder>,
    fd: BorrowedFd<'_>,
    path: &Path,
) -> Result<Option<Folder>, Failure> {
    let Some(side) = side else { return Ok(None) };
    match mark_of(fd).map_err(failed("read the attributes of", path))? {
        Some(mark) => side.find(&mark),
        None => Ok(None),
    }
}

/// The names of complete streams in the directory of a file.
pub(super) fn streams_in(directory: &Folder) -> Result<Vec<OsString>, Failure> {
    let mut names = directory.names()?;
    names.retain(|name| name.as_bytes().first() == Some(&STREAM));
    Ok(names)
}

/// Removes a directory of the side folder with its streams.
pub(super) fn forget(side: &Folder, mark: &OsStr) -> Result<(), Failure> {
    let Some(directory) = side.find(mark)? else { return Ok(()) };
    for name in directory.names()? {
        directory.remove_file(&name)?;
    }
    side.remove_folder(mark)
}

/// Makes the directory of a file in the side folder, with a new mark unless the file has one.
fn make_directory(side: &Folder, fd: BorrowedFd<'_>, path: &Path) -> Result<Folder, Failure> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    if let Some(mark) = mark_of(fd).map_err(failed("read the attributes of", path))? {
        return make_in(side, &mark);
    }
    let inode = rustix::fs::fstat(fd).map_err(failed("look at", path))?.st_ino;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let count = MADE.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    let mark = format!("{inode:x}-{:x}-{:x}-{process:x}-{count:x}", now.tv_sec, now.tv_nsec);
    let set = rustix::fs::fsetxattr(fd, STREAMS_MARK, mark.as_bytes(), XattrFlags::empty());
    set.map_err(failed("keep the streams of", path))?;
    make_in(side, OsStr::new(&mark))
}

/// Makes a directory in a side folder, unless it is there, for the user that has the side folder: the server's.
pub(super) fn make_in(side: &Folder, mark: &OsStr) -> Result<Folder, Failure> {
    let is_there = side.has(mark)?;
    let made = side.make(mark)?;
    if !is_there {
        made.give_to(side.owner()?)?;
    }
    Ok(made)
}

/// A file whose streams are copied to another one.
pub(super) struct Pair<'a> {
    pub(super) from: BorrowedFd<'a>,
    pub(super) to: BorrowedFd<'a>,
    /// The path of the source, for messages.
    pub(super) path: &'a Path,
}

/// The side folders of the shares that a folder moves between.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) from: Option<Folder>,
    pub(super) to: Folder,
}

impl Sides {
    /// Copies the streams beside a file. Those of the target that the source does not have are removed.
    pub(super) fn copy(&self, pair: &Pair<'_>) -> Result<(), Failure> {
        let present = directory_of(Some(&self.to), pair.to, pair.path)?;
        let source = directory_of(self.from.as_ref(), pair.from, pair.path)?;
        let names = source.as_ref().map(streams_in).transpose()?.unwrap_or_default();
        if let Some(present) = present {
            for name in present.names()? {
                present.remove_file(&name)?;
            }
        }
        let Some(source) = source.filter(|_| !names.is_empty()) else { return Ok(()) };
        let target = make_directory(&self.to, pair.to, pair.path)?;
        for name in names {
            let (from, to) = (source.open_file(&name)?, target.make_file(&name)?);
            contents::copy(&from, &to, &source.at(&name), &mut |_| ())?;
            contents::copy_owner(from.as_fd(), to.as_fd(), &source.at(&name))?;
            contents::copy_times(from.as_fd(), to.as_fd(), &source.at(&name))?;
        }
        Ok(())
    }

    /// Puts a stream of an attribute beside its file, whose attributes have no room for it.
    pub(super) fn put(&self, pair: &Pair<'_>, stream: &str, value: &[u8]) -> Result<(), Failure> {
        let directory = make_directory(&self.to, pair.to, pair.path)?;
        let name = OsString::from_vec([&[STREAM], stream.as_bytes()].concat());
        if directory.has(&name)? {
            // The stream beside the file is newer than the attribute.
            return Ok(());
        }
        let made = directory.make_file(&name)?;
        // The attribute's value ends with a NUL that is no part of the stream.
        let data = value.strip_suffix(&[0]).unwrap_or(value);
        std::os::unix::fs::FileExt::write_all_at(&made, data, 0)
            .map_err(Failure::failed(format!("cannot write {}", directory.at(&name).display())))?;
        contents::copy_owner(pair.from, made.as_fd(), pair.path)
    }

    /// Compares the streams of a file with those of its copy. Returns the name of one that differs.
    pub(super) fn difference(&self, pair: &Pair<'_>) -> Result<Option<String>, Failure> {
        let from = Kept::of(self.from.as_ref(), pair.from, pair.path)?;
        let to = Kept::of(Some(&self.to), pair.to, pair.path)?;
        let both = from.keys().chain(to.keys().filter(|name| !from.contains_key(*name)));
        for name in both {
            let same = match (from.get(name), to.get(name)) {
                (Some(one), Some(other)) => one.is_same(other, pair.path)?,
                _ => false,
            };
            if !same {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }
}

/// The data of a stream.
enum Kept {
    Attribute(Vec<u8>),
    Beside(File),
}

impl Kept {
    /// All streams of a file by name.
    fn of(
        side: Option<&Folder>,
        fd: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<BTreeMap<String, Self>, Failure> {
        let tried = |errno| failed("read the attributes of", path)(errno);
        let mut all = BTreeMap::new();
        for name in attributes(fd).map_err(tried)? {
            let Some(stream) = stream_of_attribute(name.as_bytes()) else { continue };
            let Some(mut value) = attribute(fd, &name).map_err(tried)? else { continue };
            if value.last() == Some(&0) {
                value.pop();
            }
            all.insert(stream.to_owned(), Self::Attribute(value));
        }
        if let Some(directory) = directory_of(side, fd, path)? {
            for name in streams_in(&directory)? {
                let stream = String::from_utf8_lossy(&name.as_bytes()[1..]).into_owned();
                all.insert(stream, Self::Beside(directory.open_file(&name)?));
            }
        }
        Ok(all)
    }

    fn is_same(&self, other: &Self, path: &Path) -> Result<bool, Failure> {
        match (self, other) {
            (Self::Attribute(one), Self::Attribute(other)) => Ok(one == other),
            (Self::Beside(one), Self::Beside(other)) => contents::are_same(one, other, path),
            (Self::Attribute(value), Self::Beside(file))
            | (Self::Beside(file), Self::Attribute(value)) => contents::holds(file, value, path),
        }
    }
}

/// True if the attribute holds a stream, or names the directory of the streams.
pub(super) fn is_of_streams(name: &CStr) -> bool {
    name == STREAMS_MARK || stream_of_attribute(name.to_bytes()).is_some()
}

/// The attribute that is the mark of a file's directory.
pub(super) fn is_mark(name: &CStr) -> bool {
    name == STREAMS_MARK
}

/// The stream that an attribute holds.
pub(super) fn stream_name(name: &CString) -> Option<&str> {
    stream_of_attribute(name.to_bytes()).filter(|stream| stream_attribute(stream).is_some())
}

/// The failure of a program that has no side folder where one has to be.
pub(super) fn no_side(root: &Folder) -> Failure {
    let text = format!("{} has no folder {SIDE_FOLDER}", root.path.display());
    Failure::new(Exit::Failed, text)
}
