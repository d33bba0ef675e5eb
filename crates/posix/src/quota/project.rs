//! Projects: trees of files with one number, of XFS and ext4 (ioctl_fs_ioc_fsgetxattr).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

/// struct fsxattr of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Fsxattr {
    xflags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<Fsxattr>() == 28);

/// FS_IOC_FSGETXATTR: `_IOR('X', 31, struct fsxattr)`.
const GET: u32 = 0x801C_581F;
/// FS_IOC_FSSETXATTR: `_IOW('X', 32, struct fsxattr)`.
const SET: u32 = 0x401C_5820;
/// FS_XFLAG_PROJINHERIT: new files in the directory get its number.
const INHERITED: u32 = 0x200;

/// The most directories between the top of a tree and a file in it.
const DEPTH_MAX: usize = 512;

/// Returns the project that new files in `folder` belong to; `None` without one.
///
/// # Errors
/// Fails if the file system knows no projects.
pub(super) fn of(folder: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let attributes = get(folder)?;
    let is_one = attributes.project != 0 && attributes.xflags & INHERITED != 0;
    Ok(is_one.then_some(attributes.project))
}

/// Puts `folder` and all files and directories in it into a project; returns their count. Those of other file
/// systems are left out, and what has the number already is not changed, so that a second call goes on.
///
/// # Errors
/// Fails if the file system knows no projects, at a file that cannot be changed, and in a tree that is too deep.
pub(super) fn put(folder: &File, project: u32) -> io::Result<u64> {
    let device = fstat(folder)?.st_dev;
    let mut count = 0;
    // A directory comes before what is in it, so that files that are made meanwhile get the number.
    let mut open = vec![Walked::begin(folder.try_clone()?.into(), project, &mut count)?];
    while let Some(walked) = open.last_mut() {
        let Some(entry) = walked.entries.read() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        if !matches!(
            entry.file_type(),
            FileType::RegularFile | FileType::Directory | FileType::Unknown
        ) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&walked.folder, entry.file_name(), flags, Mode::empty());
        let file: File = match opened {
            Ok(file) => file.into(),
            // It is gone by now, a symbolic link, or something that cannot be opened, such as a socket.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let stat = fstat(&file)?;
        if stat.st_dev != device {
            continue;
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if open.len() >= DEPTH_MAX => {
                return Err(io::Error::other(format!(
                    "more than {DEPTH_MAX} folders in each other"
                )));
            }
            FileType::Directory => open.push(Walked::begin(file, project, &mut count)?),
            FileType::RegularFile => {
                mark(file.as_fd(), project, false)?;
                count += 1;
            }
            _ => {}
        }
    }
    Ok(count)
}

/// A directory whose entries are being put into the project.
struct Walked {
    folder: File,
    entries: Dir,
}

impl Walked {
    fn begin(folder: File, project: u32, count: &mut u64) -> io::Result<Self> {
        mark(folder.as_fd(), project, true)?;
        *count += 1;
        let entries = Dir::read_from(&folder)?;
        Ok(Self { folder, entries })
    }
}

fn mark(file: BorrowedFd<'_>, project: u32, is_directory: bool) -> io::Result<()> {
    let mut attributes = get(file)?;
    let flags = attributes.xflags | if is_directory { INHERITED } else { 0 };
    if (attributes.project, attributes.xflags) == (project, flags) {
        return Ok(());
    }
    attributes.project = project;
    attributes.xflags = flags;
    // SAFETY: FS_IOC_FSSETXATTR reads one struct fsxattr, which `attributes` is, and keeps nothing of it.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), SET as _, &raw const attributes) };
    if done == 0 { Ok(()) } else { Err(crate::sys::last_errno().into()) }
}

fn get(file: BorrowedFd<'_>) -> io::Result<Fsxattr> {
    let mut attributes = Fsxattr::default();
    // SAFETY: FS_IOC_FSGETXATTR fills one struct fsxattr, which `attributes` is; any bits are valid in it.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), GET as _, &raw mut attributes) };
    if done == 0 { Ok(attributes) } else { Err(crate::sys::last_errno().into()) }
}
