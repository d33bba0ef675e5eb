//! Quotas of a file system of the host, for its administrator: of users, groups and projects.
//!
//! A project is a tree of files with one number, whose space the kernel counts together: by it, a folder gets
//! a limit of its own on XFS and ext4.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::kernel::{self, LIMITS_OF_FILES, LIMITS_OF_SPACE, NextDqblk, Wanted, blocks, bytes};
pub use super::kernel::{Subject, Upkeep};
use super::project;
pub use super::project::Put;
use super::subvolume;
use crate::subvolumes;

/// The file system of a folder.
#[derive(Debug)]
pub struct HostQuotas {
    folder: File,
}

/// The quota of a user, a group or a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostQuota {
    /// Number of the user, group or project.
    pub id: u32,
    /// Bytes that the files take.
    pub space: u64,
    /// Count of files and directories.
    pub files: u64,
    /// The limits.
    pub limits: HostLimits,
}

/// The limits of a quota; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// Bytes beyond which there is a grace time.
    pub soft_space: Option<u64>,
    /// Bytes that are not exceeded.
    pub hard_space: Option<u64>,
    /// Count of files beyond which there is a grace time.
    pub soft_files: Option<u64>,
    /// Count of files that is not exceeded.
    pub hard_files: Option<u64>,
}

impl HostQuotas {
    /// Opens the file system of `folder`.
    ///
    /// # Errors
    /// Fails if the folder cannot be opened.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        Ok(Self { folder: folder.into() })
    }

    /// Returns the kernel's upkeep of quotas of a kind; `None` if there are none, and before Linux 5.14.
    ///
    /// # Errors
    /// Fails if the kernel does not answer.
    pub fn upkeep(&self, subject: Subject) -> io::Result<Option<Upkeep>> {
        Ok(kernel::upkeep(self.folder.as_fd(), subject)?)
    }

    /// Returns the quota of a number; zeros for one that has no files and no limits.
    ///
    /// # Errors
    /// Fails without the right to ask: CAP_SYS_ADMIN, except about the own user and groups.
    pub fn of(&self, subject: Subject, id: u32) -> io::Result<HostQuota> {
        let entry = kernel::entry(self.folder.as_fd(), subject, Wanted::Of(id))?;
        Ok(entry.map_or(HostQuota { id, ..HostQuota::default() }, |block| block.quota()))
    }

    /// Returns all quotas of a kind that have files or limits, by their numbers.
    ///
    /// # Errors
    /// Fails without the right to ask, CAP_SYS_ADMIN.
    pub fn all(&self, subject: Subject) -> io::Result<Vec<HostQuota>> {
        let mut found = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let entry = kernel::entry(self.folder.as_fd(), subject, Wanted::From(from))?;
            let Some(block) = entry else { break };
            next = block.id.checked_add(1);
            let quota = block.quota();
            found.extend(Some(quota).filter(|quota| !quota.is_empty()));
        }
        Ok(found)
    }

    /// Sets the limits of a number, all four.
    ///
    /// # Errors
    /// Fails without the right, CAP_SYS_ADMIN, and if quotas of this kind are switched off.
    pub fn set(&self, subject: Subject, id: u32, limits: HostLimits) -> io::Result<()> {
        // A limit of 0 files would be no limit for the kernel, so that 1 is the smallest.
        let files = |limit: Option<u64>| limit.map_or(0, |files| files.max(1));
        let block = NextDqblk {
            hard_blocks: blocks(limits.hard_space),
            soft_blocks: blocks(limits.soft_space),
            hard_inodes: files(limits.hard_files),
            soft_inodes: files(limits.soft_files),
            valid: LIMITS_OF_SPACE | LIMITS_OF_FILES,
            ..NextDqblk::default()
        };
        Ok(kernel::set(self.folder.as_fd(), subject, id, block)?)
    }
}

/// The number of the first project that is made here; smaller ones are an administrator's own.
const FIRST_PROJECT: u32 = 10_000;

/// The quota of the folder itself, whoever has files in it.
impl HostQuotas {
    /// Returns true for a subvolume of btrfs, which has a limit of space, and no project.
    ///
    /// # Errors
    /// Those of a look at the folder.
    pub fn is_subvolume(&self) -> io::Result<bool> {
        subvolumes::is_root(self.folder.as_fd())
    }

    /// Returns the quota of the folder: that of its project, or of its subvolume, which counts no files.
    /// `None` for a folder that has none.
    ///
    /// # Errors
    /// Fails without the right to ask, CAP_SYS_ADMIN, and if the file system knows no such quotas.
    pub fn of_folder(&self) -> io::Result<Option<HostQuota>> {
        if self.is_subvolume()? {
            let space = subvolume::space(self.folder.as_fd())?;
            return Ok(space.map(|found| HostQuota {
                space: found.referred,
                limits: HostLimits { hard_space: found.limit, ..HostLimits::default() },
                ..HostQuota::default()
            }));
        }
        match project::of(self.folder.as_fd())? {
            Some(project) => self.of(Subject::Project, project).map(Some),
            None => Ok(None),
        }
    }

    /// Sets the limit of a subvolume's space.
    ///
    /// # Errors
    /// Fails without CAP_SYS_ADMIN, and where quotas are off (`btrfs quota enable`).
    pub fn limit_subvolume(&self, space: Option<u64>) -> io::Result<()> {
        subvolume::limit(self.folder.as_fd(), space)
    }

    /// Returns the number of a project that has no files and no limits.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub fn free_project(&self) -> io::Result<u32> {
        let last = self.all(Subject::Project)?.last().map_or(0, |last| last.id);
        last.max(FIRST_PROJECT - 1)
            .checked_add(1)
            .ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// Puts the folder and all files and directories in it into a project; those left out that have one of their
    /// own. New ones belong to it as well. A second call goes on where one was interrupted.
    ///
    /// # Errors
    /// Fails if the file system knows no projects, and the folder itself cannot be changed.
    pub fn put_into_project(&self, project: u32) -> io::Result<Put> {
        project::put(&self.folder, project)
    }
}

impl HostQuota {
    fn is_empty(&self) -> bool {
        *self == Self { id: self.id, ..Self::default() }
    }
}

impl NextDqblk {
    fn quota(&self) -> HostQuota {
        let files = |count: u64| (count != 0).then_some(count);
        HostQuota {
            id: self.id,
            space: self.space,
            files: self.inodes,
            limits: HostLimits {
                soft_space: bytes(self.soft_blocks),
                hard_space: bytes(self.hard_blocks),
                soft_files: files(self.soft_inodes),
                hard_files: files(self.hard_inodes),
            },
        }
    }
}
