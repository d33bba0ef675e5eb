//! Snapshots of a subvolume of btrfs, in a folder in it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use frevo_posix::subvolumes;
use frevo_snapshots::{FOLDER, Second};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::fault::SnapshotFault;
use crate::limits::NESTED_NAMED;

/// The snapshots of a subvolume.
#[derive(Debug)]
pub(crate) struct Btrfs {
    share: PathBuf,
}

/// The mount option by which the owner of a snapshot may remove it.
pub(crate) const REMOVING_ALLOWED: &str = "user_subvol_rm_allowed";

/// The place of the rights of the unit of systemd.
pub(crate) const DROP_IN: &str = "the unit of systemd has it with frevo-snapshots.conf, in contrib/ or \
    /usr/share/doc/frevo/examples/";

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Btrfs {
    /// Makes the folder of the snapshots.
    pub(crate) fn open(share: &Path) -> Result<Self, SnapshotFault> {
        let opened = Self { share: share.to_owned() };
        opened.folder(opened.root()?.as_fd())?;
        Ok(opened)
    }

    fn fault(&self, what: &str, cause: impl std::fmt::Display) -> SnapshotFault {
        SnapshotFault(format!("{what} {}: {cause}", self.share.display()))
    }

    /// Opens the share's folder, which must be a subvolume.
    fn root(&self) -> Result<OwnedFd, SnapshotFault> {
        let failed = |error: io::Error| self.fault("cannot use", error);
        let root = rustix::fs::open(&self.share, DIRECTORY, Mode::empty());
        let root = root.map_err(|errno| failed(errno.into()))?;
        match subvolumes::is_root(root.as_fd()).map_err(failed)? {
            true => Ok(root),
            false => Err(no_subvolume(&self.share)),
        }
    }

    /// Opens the folder of the snapshots; makes it if it is not there. Others than this user must not be able
    /// to put something there, or to look.
    fn folder(&self, root: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, SnapshotFault> {
        let failed =
            |errno: Errno| self.fault(&format!("cannot use {FOLDER} in"), io::Error::from(errno));
        match rustix::fs::mkdirat(root, FOLDER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let folder = rustix::fs::openat(root, FOLDER, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        let folder = folder.map_err(failed)?;
        let (ours, theirs) =
            (rustix::fs::fstat(root).map_err(failed)?, rustix::fs::fstat(&folder).map_err(failed)?);
        let is_own =
            theirs.st_uid == rustix::process::geteuid().as_raw() && theirs.st_mode & 0o077 == 0;
        if !is_own || ours.st_dev != theirs.st_dev {
            let why =
                "it is not a folder that the server has made; move it away, and restart frevo";
            return Err(self.fault(&format!("cannot use {FOLDER} in"), why));
        }
        Ok(folder)
    }

    pub(crate) fn list(&self) -> Result<Vec<Second>, SnapshotFault> {
        let failed =
            |errno: Errno| self.fault("cannot list the snapshots of", io::Error::from(errno));
        let folder = self.folder(self.root()?.as_fd())?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            found.extend(entry.file_name().to_str().ok().and_then(Second::of_name));
        }
        Ok(found)
    }

    pub(crate) fn create(&self, at: Second) -> Result<(), SnapshotFault> {
        let failed = |error: io::Error| self.fault("cannot make a snapshot of", error);
        let root = self.root()?;
        let folder = self.folder(root.as_fd())?;
        // The kernel writes out what the subvolume has in memory first. A sync before would only have two
        // transactions committed in place of one.
        match subvolumes::make_snapshot(root.as_fd(), folder.as_fd(), &at.to_name()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(self.fault("cannot make a snapshot of", format!("there is one of {at}")))
            }
            done => done.map_err(failed),
        }
    }

    pub(crate) fn remove(&self, at: Second) -> Result<(), SnapshotFault> {
        let folder = self.folder(self.root()?.as_fd())?;
        match subvolumes::remove_snapshot(folder.as_fd(), &at.to_name()) {
            // Others may remove it, too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let what = format!("cannot remove the snapshot {} of", at.to_name());
                Err(self.fault(&what, format!("{error}; {}", right_to_remove())))
            }
            done => done.map_err(|error| {
                self.fault(&format!("cannot remove the snapshot {} of", at.to_name()), error)
            }),
        }
    }
}

/// The right to remove snapshots.
pub(crate) fn right_to_remove() -> String {
    format!("to remove one takes CAP_SYS_ADMIN ({DROP_IN}) or the mount option {REMOVING_ALLOWED}")
}

/// Returns a sentence about subvolumes in a share, which are empty folders in snapshots of it. None without any, and
/// where nobody can tell.
pub(crate) fn lacks_data(share: &Path) -> Option<String> {
    let root = rustix::fs::open(share, DIRECTORY, Mode::empty()).ok()?;
    let own = rustix::fs::statat(&root, FOLDER, AtFlags::SYMLINK_NOFOLLOW).ok();
    let own = own.map(|found| found.st_ino);
    let found = subvolumes::nested(root.as_fd(), own, NESTED_NAMED + 1).ok()?;
    let named = found.iter().take(NESTED_NAMED).map(|path| path.display().to_string());
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if found.len() > NESTED_NAMED { " and more" } else { "" };
    (!found.is_empty()).then(|| {
        format!(
            "snapshots lack what is in the subvolumes in it, which are empty folders there: {named}{more}; \
             share each by itself with [share.snapshots], or make them plain folders"
        )
    })
}

/// The fault of a folder on btrfs that is no subvolume.
pub(crate) fn no_subvolume(share: &Path) -> SnapshotFault {
    let share = share.display();
    SnapshotFault(format!(
        "{share} is on btrfs, but is no subvolume, of which alone there are snapshots; make it one: \
         mv {share} {share}.old && btrfs subvolume create {share} && cp -a --reflink {share}.old/. {share}"
    ))
}
