//! The place where the folder of a share was opened, and the reasons for which it cannot be opened.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use frevo_net::file_io::{self, Medium};
use frevo_posix::fault_of;
use frevo_store::Fault;
use frevo_store::vfs::Space;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

/// The place where a folder was opened.
#[derive(Debug)]
pub(super) struct PlaceOpened {
    pub(super) located: Located,
    /// The path without links.
    real: PathBuf,
    /// The mounts of the folders above that belong to other disks.
    mounts_above: Vec<u64>,
    /// True at or below a place where a disk is mounted at its first use, and unmounted after a while
    /// without one.
    pub(super) is_automounted: bool,
}

impl PlaceOpened {
    pub(super) fn of(path: &Path, located: Located) -> Self {
        let real = real_path(path);
        let above = real.ancestors().skip(1).filter_map(|above| Located::of(above).ok());
        let mut mounts_above: Vec<u64> =
            above.map(|above| above.mount).filter(|mount| *mount != located.mount).collect();
        mounts_above.dedup();
        let is_automounted = frevo_posix::is_automounted(&real);
        Self { located, real, mounts_above, is_automounted }
    }

    /// True if a folder of a disk above is at `path` now, since the disk here was unmounted.
    pub(super) fn is_uncovered(&self, path: &Path, now: Located) -> bool {
        if self.located.is_mount_root && !now.is_mount_root {
            return true;
        }
        // The real paths are compared, so that a changed symbolic link does not look like an
        // unmounted disk.
        now.mount != self.located.mount
            && self.mounts_above.contains(&now.mount)
            && real_path(path) == self.real
    }
}

fn real_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The object that a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Located {
    device: (u32, u32),
    inode: u64,
    mount: u64,
    is_mount_root: bool,
}

impl Located {
    /// Looks where `path` leads, without mounting a disk that is mounted at its first use.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stx = rustix::fs::statx(CWD, path, AtFlags::NO_AUTOMOUNT, wanted)?;
        Ok(Self {
            device: (stx.stx_dev_major, stx.stx_dev_minor),
            inode: stx.stx_ino,
            mount: stx.stx_mnt_id,
            is_mount_root: stx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        })
    }

    /// True for the folder of another disk.
    pub(super) const fn is_on_other_mount(&self, other: Self) -> bool {
        self.mount != other.mount
    }
}

/// The file system that a path leads to.
#[derive(Debug)]
pub(super) struct FileSystem(File);

impl FileSystem {
    /// Opens the object at `path` for questions about its file system, which no confinement refuses.
    /// It mounts nothing.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(File::from(opened)))
    }

    /// True if a server or another program answers for it.
    pub(super) fn may_wait(&self) -> bool {
        file_io::medium_at(self.0.as_fd()).is_ok_and(|medium| medium == Medium::Remote)
    }

    pub(super) fn space(&self) -> io::Result<Space> {
        Ok(frevo_posix::space_of(&rustix::fs::fstatvfs(&self.0)?))
    }
}

/// The reason for which a folder is not opened.
#[derive(Debug)]
pub(super) enum Unopened {
    /// Its disk was unmounted: the folder there now is on the disk above, which clients must not
    /// fill.
    Unmounted,
    /// This process is confined to the folders of its start, and another disk was mounted there.
    MountedLater,
    /// This process is confined to the folders of its start, and another folder is there.
    MadeLater,
    /// The host refuses it.
    Host(io::Error),
}

impl Unopened {
    /// The reason of the host's error at `path`, where the folder was opened at the place `before`.
    pub(super) fn of(error: io::Error, path: &Path, before: Option<&PlaceOpened>) -> Self {
        // access(2) checks the file's mode, but not this process's Landlock rules. If only the
        // rules refuse the folder, the error says so.
        let is_allowed = || {
            let access = Access::READ_OK | Access::EXEC_OK;
            rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
        };
        if error.kind() != io::ErrorKind::PermissionDenied || !is_allowed() {
            return Self::Host(error);
        }
        Self::confined(path, before)
    }

    /// The reason for which a confined process may not use the folder at `path`.
    pub(super) fn confined(path: &Path, before: Option<&PlaceOpened>) -> Self {
        let is_folder_alone = before.is_some_and(|before| {
            Located::of(path).is_ok_and(|now| !now.is_on_other_mount(before.located))
        });
        if is_folder_alone { Self::MadeLater } else { Self::MountedLater }
    }

    /// The fault for a client: that of this host where it lacks memory or descriptors, else the
    /// volume is not there.
    pub(super) fn fault(&self) -> Fault {
        let Self::Host(error) = self else { return Fault::Dismounted };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => fault_of(errno),
            _ => Fault::Dismounted,
        }
    }

    /// A sentence for people.
    pub(super) fn sentence(&self, path: &Path) -> String {
        Sentence { why: self, path }.to_string()
    }
}

struct Sentence<'a> {
    why: &'a Unopened,
    path: &'a Path,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let error = match self.why {
            Unopened::Unmounted => {
                return write!(
                    f,
                    "the disk at {path} was unmounted; mount it again, or restart frevo to serve the \
                     folder below"
                );
            }
            Unopened::MountedLater => {
                return write!(
                    f,
                    "a disk was mounted at {path} after frevo was started, and frevo is confined to \
                     the folders of its start; restart frevo to serve the disk"
                );
            }
            Unopened::MadeLater => {
                return write!(
                    f,
                    "the folder {path} was made after frevo was started, or its disk was mounted \
                     again, and frevo is confined to the folders of its start; restart frevo to \
                     serve the folder"
                );
            }
            Unopened::Host(error) => error,
        };
        match error.kind() {
            io::ErrorKind::NotFound => {
                write!(f, "its folder was removed; make {path} again")
            }
            io::ErrorKind::PermissionDenied => write!(
                f,
                "{path} cannot be read by the user that runs frevo; give this user read and search \
                 permission (rx) on the folder"
            ),
            io::ErrorKind::StaleNetworkFileHandle => write!(f, "{path} is being mounted"),
            _ => write!(f, "{path} cannot be opened: {error}"),
        }
    }
}
