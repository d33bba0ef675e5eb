//! Projects: trees of files with one number, of XFS and ext4 (ioctl_fs_ioc_fsgetxattr).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::fs::{Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
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

/// Returns the project that `folder` was put into; `None` without one, and for a folder that only has the one
/// of the folder above it.
///
/// # Errors
/// Fails if the file system knows no projects.
pub(super) fn of(folder: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let Some(project) = inherited(&get(folder)?) else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::openat(folder, c"..", flags, Mode::empty())?;
    // A file system of another kind above is not asked.
    let is_of_above = fstat(&above)?.st_dev == fstat(folder)?.st_dev
        && fstat(&above)?.st_ino != fstat(folder)?.st_ino
        && get(above.as_fd()).is_ok_and(|above| inherited(&above) == Some(project));
    Ok((!is_of_above).then_some(project))
}

/// Returns the project that new files get by a directory with these attributes.
fn inherited(attributes: &Fsxattr) -> Option<u32> {
    let is_one = attributes.project != 0 && attributes.xflags & INHERITED != 0;
    is_one.then_some(attributes.project)
}

/// The end of a walk that puts files into a project.
#[derive(Debug, Default)]
pub struct Put {
    /// Files and directories that are in the project now.
    pub count: u64,
    /// Directories that have a project of their own, and were left out with all that is in them.
    pub others: u64,
    /// Files and directories that could not be put into it.
    pub failed: u64,
    /// The first of these faults.
    pub why: Option<io::Error>,
}

impl Put {
    fn fail(&mut self, why: io::Error) {
        self.failed += 1;
        self.why.get_or_insert(why);
    }
}

/// Puts `folder` and all files and directories in it into a project. Those of other mounts are left out, and
/// what has the number already is not changed, so that a second call goes on. A file that cannot be changed
/// keeps no other one.
///
/// # Errors
/// Fails if the folder itself cannot be put into the project.
pub(super) fn put(folder: &File, project: u32) -> io::Result<Put> {
    let mut done = Put { count: 1, ..Put::default() };
    // A directory comes before what is in it, so that files that are made meanwhile get the number.
    mark(folder.as_fd(), project, true)?;
    let mut open = vec![Dir::read_from(folder)?];
    while let Some(entries) = open.last_mut() {
        match entries.read() {
            None => drop(open.pop()),
            Some(Err(errno)) => {
                done.fail(errno.into());
                open.pop();
            }
            Some(Ok(entry)) => {
                let found = put_entry(entries, &entry, project, &mut done);
                match found {
                    Ok(Some(_)) if open.len() >= DEPTH_MAX => {
                        let why = format!("more than {DEPTH_MAX} folders in each other");
                        done.fail(io::Error::other(why));
                    }
                    Ok(Some(below)) => open.push(below),
                    Ok(None) => {}
                    Err(why) => done.fail(why),
                }
            }
        }
    }
    Ok(done)
}

/// Puts an entry of a directory into the project. Returns the listing of one that is a directory.
fn put_entry(
    directory: &Dir,
    entry: &DirEntry,
    project: u32,
    done: &mut Put,
) -> io::Result<Option<Dir>> {
    let is_plain = matches!(
        entry.file_type(),
        FileType::RegularFile | FileType::Directory | FileType::Unknown
    );
    if !is_plain || matches!(entry.file_name().to_bytes(), b"." | b"..") {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let name = entry.file_name();
    let file: File = match openat2(directory.fd()?, name, flags, Mode::empty(), resolve) {
        Ok(file) => file.into(),
        // It is gone by now, a symbolic link, of another mount, or something that cannot be opened, such as a
        // socket.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::XDEV) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::Directory => {
            if inherited(&get(file.as_fd())?).is_some_and(|other| other != project) {
                done.others += 1;
                return Ok(None);
            }
            mark(file.as_fd(), project, true)?;
            done.count += 1;
            Ok(Some(Dir::new(file)?))
        }
        FileType::RegularFile => {
            mark(file.as_fd(), project, false)?;
            done.count += 1;
            Ok(None)
        }
        _ => Ok(None),
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
