//! Folders by their descriptors: users of the host may change them meanwhile, and no symbolic link that
//! they make on the way is followed.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::exit::{Exit, Failure};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open folder, with its path for messages.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    pub(super) path: PathBuf,
}

/// For `map_err`: a failure that tells the call, the file and the error.
pub(super) fn failed(tried: &str, path: &Path) -> impl FnOnce(Errno) -> Failure {
    let tried = format!("cannot {tried} {}", path.display());
    move |errno| {
        let exit = if errno == Errno::NOENT { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("{tried}: {}", io::Error::from(errno)))
    }
}

/// The kind of a file in its state.
pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

impl Folder {
    /// Opens the folder of a share: its own path may lead over symbolic links.
    pub(super) fn of_share(path: &Path) -> Result<Self, Failure> {
        let real = std::fs::canonicalize(path).map_err(|error| {
            let exit = match error.kind() {
                io::ErrorKind::NotFound => Exit::NotFound,
                _ => Exit::Failed,
            };
            Failure::new(exit, format!("cannot open {}: {error}", path.display()))
        })?;
        let fd = rustix::fs::openat(CWD, &real, DIRECTORY, Mode::empty());
        Ok(Self { fd: fd.map_err(failed("open", path))?, path: real })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The path of an entry, for messages.
    pub(super) fn at(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a folder in this one.
    pub(super) fn open(&self, name: &OsStr) -> Result<Self, Failure> {
        let found = self.find(name)?;
        found.ok_or_else(|| failed("open", &self.at(name))(Errno::NOENT))
    }

    /// Opens a folder in this one. None if there is no entry of its name.
    pub(super) fn find(&self, name: &OsStr) -> Result<Option<Self>, Failure> {
        let path = self.at(name);
        match rustix::fs::openat(self, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let text = format!("{} is no folder, or a symbolic link", path.display());
                Err(Failure::new(Exit::Failed, text))
            }
            Err(errno) => Err(failed("open", &path)(errno)),
        }
    }

    /// Makes a folder that only its owner can look into, unless it is there, and opens it.
    pub(super) fn make(&self, name: &OsStr) -> Result<Self, Failure> {
        match rustix::fs::mkdirat(self, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.open(name),
            Err(errno) => Err(failed("make the folder", &self.at(name))(errno)),
        }
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, name: &OsStr) -> Result<std::fs::File, Failure> {
        // A pipe that somebody has put there meanwhile does not keep the program waiting.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = self.at(name);
        let fd = rustix::fs::openat(self, name, flags, Mode::empty());
        let fd = fd.map_err(failed("open", &path))?;
        let stat = rustix::fs::fstat(&fd).map_err(failed("look at", &path))?;
        if kind_of(&stat) == FileType::RegularFile {
            return Ok(std::fs::File::from(fd));
        }
        let text = format!("{} has become another file; run the command again", path.display());
        Err(Failure::new(Exit::Failed, text))
    }

    /// Makes a file, which must not be there.
    pub(super) fn make_file(&self, name: &OsStr) -> Result<std::fs::File, Failure> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(self, name, flags, Mode::RUSR | Mode::WUSR);
        fd.map(std::fs::File::from).map_err(failed("make", &self.at(name)))
    }

    /// The names of all entries, sorted.
    pub(super) fn names(&self) -> Result<Vec<OsString>, Failure> {
        let tried = |errno| failed("list", &self.path)(errno);
        let mut names = Vec::new();
        for entry in Dir::read_from(self).map_err(tried)? {
            let name = entry.map_err(tried)?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(OsString::from_vec(name.into_bytes()));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The state of an entry. None if there is none of this name.
    pub(super) fn stat(&self, name: &OsStr) -> Result<Option<Stat>, Failure> {
        match rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("look at", &self.at(name))(errno)),
        }
    }

    pub(super) fn has(&self, name: &OsStr) -> Result<bool, Failure> {
        Ok(self.stat(name)?.is_some())
    }

    /// Renames an entry to a name that must be free.
    pub(super) fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> Result<(), Errno> {
        match rustix::fs::renameat_with(self, name, to, new, RenameFlags::NOREPLACE) {
            // Some file systems have no such flag.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            done => return done,
        }
        match rustix::fs::statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => rustix::fs::renameat(self, name, to, new),
            Ok(_) => Err(Errno::EXIST),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn remove_file(&self, name: &OsStr) -> Result<(), Failure> {
        let removed = rustix::fs::unlinkat(self, name, AtFlags::empty());
        removed.map_err(failed("remove", &self.at(name)))
    }

    /// Removes an empty folder.
    pub(super) fn remove_folder(&self, name: &OsStr) -> Result<(), Failure> {
        let removed = rustix::fs::unlinkat(self, name, AtFlags::REMOVEDIR);
        removed.map_err(failed("remove", &self.at(name)))
    }

    /// Makes the entries of this folder durable.
    pub(super) fn sync(&self) -> Result<(), Failure> {
        rustix::fs::fsync(self).map_err(failed("sync", &self.path))
    }

    /// Makes all of the folder's file system durable.
    pub(super) fn sync_all(&self) -> Result<(), Failure> {
        rustix::fs::syncfs(self).map_err(failed("sync", &self.path))
    }

    /// The owner and the group.
    pub(super) fn owner(&self) -> Result<(u32, u32), Failure> {
        let stat = rustix::fs::fstat(self).map_err(failed("look at", &self.path))?;
        Ok((stat.st_uid, stat.st_gid))
    }

    /// Makes owner, group and mode those of another folder.
    pub(super) fn be_as(&self, other: &Self) -> Result<(), Failure> {
        self.give_to(other.owner()?)?;
        let stat = rustix::fs::fstat(other).map_err(failed("look at", &other.path))?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::fchmod(self, mode).map_err(failed("set the mode of", &self.path))
    }

    /// Sets owner and group where this program may.
    pub(super) fn give_to(&self, owner: (u32, u32)) -> Result<(), Failure> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let (uid, gid) = (rustix::fs::Uid::from_raw(owner.0), rustix::fs::Gid::from_raw(owner.1));
        let done = rustix::fs::fchown(self, Some(uid), Some(gid));
        done.map_err(failed("set the owner of", &self.path))
    }
}

impl std::os::fd::AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The names of the extended attributes of an open file.
pub(super) fn attributes(fd: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut list = Vec::new();
    loop {
        let length = match rustix::fs::flistxattr_query(fd) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        };
        list.resize(length.max(1), 0);
        match rustix::fs::flistxattr(fd, list.as_mut_slice()) {
            Ok(length) => list.truncate(length),
            Err(Errno::RANGE) => continue,
            Err(errno) => return Err(errno),
        }
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        return Ok(names.filter_map(|name| CString::new(name).ok()).collect());
    }
}

/// The value of an extended attribute. None if the file has none of this name.
pub(super) fn attribute(
    fd: BorrowedFd<'_>,
    name: &std::ffi::CStr,
) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = Vec::new();
    loop {
        let length = match rustix::fs::fgetxattr_query(fd, name) {
            Ok(length) => length,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        value.resize(length.max(1), 0);
        match rustix::fs::fgetxattr(fd, name, value.as_mut_slice()) {
            Ok(length) => {
                value.truncate(length);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
}
