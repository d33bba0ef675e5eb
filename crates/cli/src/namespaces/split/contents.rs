//! Data, owners, times and extended attributes of files, copied and compared.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Advice, Gid, Mode, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::folder::{attribute, attributes, failed};
use super::streams::{self, Pair, Sides};
use crate::exit::Failure;

/// Bytes that are read at one time.
const BLOCK: usize = 1 << 20;
/// The label of SELinux: the host's policy gives the file one at its new place.
const LABEL: &[u8] = b"security.selinux";
/// The beginning of the names of POSIX access lists.
const LISTS: &[u8] = b"system.";
/// Attributes that are properties of one file system, such as the compression of btrfs.
const OF_BTRFS: &[u8] = b"btrfs.";

/// The bytes from `at` on that are no hole. None at the end of the file.
fn next_data(file: &File, at: u64) -> Result<Option<u64>, Errno> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        // The file system knows no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(errno) => Err(errno),
    }
}

/// Copies the data of a file to an empty one, without its holes. `done` is told the bytes of each block.
pub(super) fn copy(
    from: &File,
    to: &File,
    path: &Path,
    done: &mut dyn FnMut(u64),
) -> Result<(), Failure> {
    let tried = || Failure::failed(format!("cannot copy {}", path.display()));
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while let Some(start) = next_data(from, at).map_err(failed("copy", path))? {
        let length = from.read_at(&mut block, start).map_err(tried())?;
        if length == 0 {
            break;
        }
        to.write_all_at(&block[..length], start).map_err(tried())?;
        at = start + length as u64;
        done(length as u64);
    }
    let size = from.metadata().map_err(tried())?.len();
    to.set_len(size).map_err(tried())
}

/// True if two files hold the same bytes. Those of the second one are read from its disk.
pub(super) fn are_same(one: &File, other: &File, path: &Path) -> Result<bool, Failure> {
    let tried = || Failure::failed(format!("cannot compare {} with its copy", path.display()));
    // Memory tells nothing of the disk. File systems that cannot forget it read it from there.
    let _ = rustix::fs::fadvise(other, 0, None, Advice::DontNeed);
    let size = one.metadata().map_err(tried())?.len();
    if other.metadata().map_err(tried())?.len() != size {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    while at < size {
        let data = |file| next_data(file, at).map_err(failed("compare", path));
        let start = match (data(one)?, data(other)?) {
            (None, None) => break,
            (one, other) => one.unwrap_or(size).min(other.unwrap_or(size)),
        };
        let length = usize::try_from(size - start).unwrap_or(BLOCK).min(BLOCK);
        let (ours, theirs) = (&mut ours[..length], &mut theirs[..length]);
        if !fill(one, ours, start).map_err(tried())?
            || !fill(other, theirs, start).map_err(tried())?
            || ours != theirs
        {
            return Ok(false);
        }
        at = start + length as u64;
    }
    Ok(true)
}

/// Reads a whole block. False if the file has become shorter.
fn fill(file: &File, into: &mut [u8], at: u64) -> std::io::Result<bool> {
    match file.read_exact_at(into, at) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        done => done.map(|()| true),
    }
}

/// True if the file holds these bytes.
pub(super) fn holds(file: &File, value: &[u8], path: &Path) -> Result<bool, Failure> {
    let tried = || Failure::failed(format!("cannot compare {} with its copy", path.display()));
    let mut read = vec![0; value.len()];
    let is_long = file.metadata().map_err(tried())?.len() == value.len() as u64;
    Ok(is_long && fill(file, &mut read, 0).map_err(tried())? && read == value)
}

/// The time stamps of a state.
pub(super) fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.try_into().unwrap_or(0),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn stat_of(fd: BorrowedFd<'_>, path: &Path) -> Result<Stat, Failure> {
    rustix::fs::fstat(fd).map_err(failed("look at", path))
}

pub(super) fn copy_times(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    path: &Path,
) -> Result<(), Failure> {
    let stat = stat_of(from, path)?;
    rustix::fs::futimens(to, &times(&stat)).map_err(failed("set the times of the copy of", path))
}

/// Gives a copy the owner and the group.
pub(super) fn copy_owner(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    path: &Path,
) -> Result<(), Failure> {
    let (from, present) = (stat_of(from, path)?, stat_of(to, path)?);
    if (from.st_uid, from.st_gid) == (present.st_uid, present.st_gid) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(from.st_uid), Gid::from_raw(from.st_gid));
    let done = rustix::fs::fchown(to, Some(uid), Some(gid));
    done.map_err(failed("keep the owner of", path))
}

/// True for an attribute that is copied and compared as it is.
fn is_copied(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    !streams::is_of_streams(name) && bytes != LABEL && !bytes.starts_with(OF_BTRFS)
}

/// Owner, mode and extended attributes of a folder, to be restored.
pub(super) struct Saved {
    stat: Stat,
    attributes: BTreeMap<CString, Vec<u8>>,
}

impl Saved {
    pub(super) fn of(fd: BorrowedFd<'_>, path: &Path) -> Result<Self, Failure> {
        let tried = |errno| failed("read the attributes of", path)(errno);
        let mut all = BTreeMap::new();
        for name in attributes(fd).map_err(tried)? {
            if !is_kept(&name) {
                let value = attribute(fd, &name).map_err(tried)?;
                all.extend(value.map(|value| (name, value)));
            }
        }
        Ok(Self { stat: stat_of(fd, path)?, attributes: all })
    }

    pub(super) fn restore(&self, fd: BorrowedFd<'_>, path: &Path) -> Result<(), Failure> {
        let tried = |errno| failed("restore the attributes of", path)(errno);
        let (uid, gid) = (Uid::from_raw(self.stat.st_uid), Gid::from_raw(self.stat.st_gid));
        rustix::fs::fchown(fd, Some(uid), Some(gid)).map_err(tried)?;
        for name in attributes(fd).map_err(tried)? {
            if !self.attributes.contains_key(&name) && !is_kept(&name) {
                rustix::fs::fremovexattr(fd, &name).map_err(tried)?;
            }
        }
        let mode = Mode::from_raw_mode(self.stat.st_mode & 0o7777);
        rustix::fs::fchmod(fd, mode).map_err(tried)?;
        // An access list has the mode in it.
        for (name, value) in &self.attributes {
            let set = rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty());
            set.map_err(tried)?;
        }
        Ok(())
    }
}

/// True for an attribute that a folder has from its place, and for the mark of its streams.
fn is_kept(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    streams::is_mark(name) || bytes == LABEL || bytes.starts_with(OF_BTRFS)
}

/// Gives a copy all that its source has but data and times: owner, mode, extended attributes with access
/// lists, and streams.
pub(super) fn copy_properties(sides: &Sides, pair: &Pair<'_>) -> Result<(), Failure> {
    let path = pair.path;
    copy_owner(pair.from, pair.to, path)?;
    let names = attributes(pair.from).map_err(failed("read the attributes of", path))?;
    // An access list that the copy has inherited from its folder goes before the mode is set.
    for name in attributes(pair.to).map_err(failed("read the attributes of the copy of", path))? {
        let stays = names.contains(&name) || name.to_bytes() == LABEL || streams::is_mark(&name);
        if !stays && !name.to_bytes().starts_with(OF_BTRFS) {
            let removed = rustix::fs::fremovexattr(pair.to, &name);
            removed.map_err(failed("keep the attributes of", path))?;
        }
    }
    let mode = Mode::from_raw_mode(stat_of(pair.from, path)?.st_mode & 0o7777);
    let set_mode =
        |mode| rustix::fs::fchmod(pair.to, mode).map_err(failed("keep the mode of", path));
    // A user who is not root needs the right to write for most attributes.
    set_mode(mode | Mode::WUSR)?;
    sides.copy(pair)?;
    let is_list = |name: &&CString| name.to_bytes().starts_with(LISTS);
    for name in names.iter().filter(|name| !is_list(name)) {
        copy_attribute(sides, pair, name)?;
    }
    set_mode(mode)?;
    // An access list has the mode in it.
    names.iter().filter(is_list).try_for_each(|name| copy_attribute(sides, pair, name))
}

/// Copies an extended attribute. A stream that does not fit goes beside the file.
fn copy_attribute(sides: &Sides, pair: &Pair<'_>, name: &CString) -> Result<(), Failure> {
    let (path, stream) = (pair.path, streams::stream_name(name));
    if !is_copied(name) && stream.is_none() {
        return Ok(());
    }
    let value = attribute(pair.from, name).map_err(failed("read the attributes of", path))?;
    let Some(value) = value else { return Ok(()) };
    let set = rustix::fs::fsetxattr(pair.to, name, &value, XattrFlags::empty());
    match (set, stream) {
        (Ok(()), _) => Ok(()),
        (Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::OPNOTSUPP), Some(stream)) => {
            sides.put(pair, stream, &value)
        }
        (Err(errno), _) => {
            let tried = format!("keep the attribute {} of", name.to_string_lossy());
            Err(failed(&tried, path)(errno))
        }
    }
}

/// Compares all of two files but their data. Returns what differs.
pub(super) fn difference(sides: &Sides, pair: &Pair<'_>) -> Result<Option<String>, Failure> {
    let (from, to) = (stat_of(pair.from, pair.path)?, stat_of(pair.to, pair.path)?);
    if let Some(what) = difference_of(&from, &to) {
        return Ok(Some(what.to_owned()));
    }
    let read = |errno| failed("read the attributes of", pair.path)(errno);
    let all = |fd: BorrowedFd<'_>| -> Result<Vec<_>, Failure> {
        let mut all = Vec::new();
        for name in attributes(fd).map_err(read)? {
            if is_copied(&name) {
                all.push((attribute(fd, &name).map_err(read)?, name));
            }
        }
        all.sort_unstable_by(|one, other| one.1.cmp(&other.1));
        Ok(all)
    };
    if all(pair.from)? != all(pair.to)? {
        return Ok(Some(String::from("the extended attributes")));
    }
    Ok(sides.difference(pair)?.map(|stream| format!("the stream {stream}")))
}

/// Compares two states. File systems keep times with different precision.
pub(super) fn difference_of(from: &Stat, to: &Stat) -> Option<&'static str> {
    if from.st_mode != to.st_mode {
        Some("the mode")
    } else if (from.st_uid, from.st_gid) != (to.st_uid, to.st_gid) {
        Some("the owner")
    } else if from.st_mtime != to.st_mtime {
        Some("the time of the last change")
    } else if from.st_rdev != to.st_rdev {
        Some("the device")
    } else {
        None
    }
}

/// The descriptors of two open files.
pub(super) fn pair<'a>(from: &'a File, to: &'a File, path: &'a Path) -> Pair<'a> {
    Pair { from: from.as_fd(), to: to.as_fd(), path }
}
