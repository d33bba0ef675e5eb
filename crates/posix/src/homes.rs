//! Home folders that are made when they are first looked for.
//!
//! A home is made aside, in a folder that only the server may enter, and gets its name by one rename:
//! nobody sees half a home. A lock on the folder aside lets one caller at a time make the home of a
//! user; what a crash has left in it is removed first.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown,
    flock, fstat, fsync, mkdirat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::limits::{HOME_BYTES, HOME_DEPTH, HOME_ENTRIES};

/// The first part of the name aside.
const ASIDE: &str = ".frevo-home.";

/// Turns of the lock that are taken before a caller gives up: each one means that another caller has made
/// the home, and somebody has removed it.
const TURNS: usize = 8;

/// A user of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeOwner {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// How homes are made.
#[derive(Debug, Clone, Default)]
pub struct NewHome<'a> {
    /// The mode of the home.
    pub mode: u32,
    /// The owner of the home and of all that is in it. None for the user of this process.
    pub owner: Option<HomeOwner>,
    /// The folder whose files and folders are copied into the home; its links and devices are not.
    pub skeleton: Option<&'a Path>,
}

/// Makes the home `name` in the folder `parent`. Returns false if there is something of this name
/// already, which is left alone.
///
/// # Errors
/// If the name is none, the skeleton is larger than the limits, or a call of the host fails. Nothing of
/// this name is there then.
pub fn make_home(parent: &Path, name: &str, home: &NewHome<'_>) -> io::Result<bool> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parent = rustix::fs::open(parent, FOLDER, Mode::empty())?;
    let parent = parent.as_fd();
    let aside = format!("{ASIDE}{name}");
    for _ in 0..TURNS {
        if exists(parent, name)? {
            return Ok(false);
        }
        match mkdirat(parent, &*aside, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let folder = match open_folder(parent, &aside) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        flock(&folder, FlockOperation::LockExclusive)?;
        if !is_at(parent, &aside, folder.as_fd())? {
            continue;
        }
        if let Err(error) = fill(folder.as_fd(), home) {
            let _ = empty(folder.as_fd(), 0);
            let _ = unlinkat(parent, &*aside, AtFlags::REMOVEDIR);
            return Err(error);
        }
        return match put_in_place(parent, &aside, name) {
            Ok(()) => Ok(true),
            // Somebody else has made it meanwhile, and not by this function.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {
                empty(folder.as_fd(), 0)?;
                unlinkat(parent, &*aside, AtFlags::REMOVEDIR)?;
                Ok(false)
            }
            Err(errno) => Err(errno.into()),
        };
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Folders are opened as they are: a link is refused.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_folder(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

fn exists(parent: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// True if the open folder is still the one of this name.
fn is_at(parent: BorrowedFd<'_>, name: &str, folder: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (open, there) = (fstat(folder)?, statat(parent, name, AtFlags::SYMLINK_NOFOLLOW));
    match there {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (open.st_dev, open.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Fills the folder aside, and gives it to its owner at last.
fn fill(folder: BorrowedFd<'_>, home: &NewHome<'_>) -> io::Result<()> {
    let made = fstat(folder)?;
    let own = rustix::process::geteuid().as_raw();
    if made.st_uid != own && home.owner.is_none_or(|owner| owner.uid != made.st_uid) {
        let why = "the folder aside belongs to another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    // A crash may have come after the owner got it.
    fchown(folder, Some(Uid::from_raw(own)), None)?;
    fchmod(folder, Mode::RWXU)?;
    empty(folder, 0)?;
    if let Some(skeleton) = home.skeleton {
        let skeleton = rustix::fs::open(skeleton, FOLDER, Mode::empty())?;
        let mut copy = Copying { owner: home.owner, entries: 0, bytes: 0 };
        copy.folder(skeleton.as_fd(), folder, 0)?;
    }
    give(folder, home.owner, home.mode)?;
    fsync(folder)?;
    Ok(())
}

/// Gives a file to its owner, and sets its mode, without set-user-ID and the like.
fn give(file: BorrowedFd<'_>, owner: Option<HomeOwner>, mode: u32) -> Result<(), Errno> {
    if let Some(HomeOwner { uid, gid }) = owner {
        fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    fchmod(file, Mode::from_raw_mode(mode & 0o777))
}

/// Renames the folder aside, which replaces nothing.
fn put_in_place(parent: BorrowedFd<'_>, aside: &str, name: &str) -> Result<(), Errno> {
    match renameat_with(parent, aside, parent, name, RenameFlags::NOREPLACE) {
        // Some file systems, such as those of FUSE, cannot do that. A rename of a folder replaces
        // nothing but an empty folder there.
        Err(Errno::INVAL | Errno::NOSYS) => {
            renameat_with(parent, aside, parent, name, RenameFlags::empty())?
        }
        other => other?,
    }
    fsync(parent)
}

/// Removes all that a folder holds; links are not followed.
fn empty(folder: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
    // A skeleton that is too deep has left one more.
    if depth > HOME_DEPTH + 1 {
        return Err(too_large("deeper"));
    }
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match unlinkat(folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                empty(open_folder(folder, name)?.as_fd(), depth + 1)?;
                unlinkat(folder, name, AtFlags::REMOVEDIR)?;
            }
            other => other?,
        }
    }
    Ok(())
}

fn too_large(how: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("the skeleton is {how} than is allowed"))
}

/// A copy under way.
struct Copying {
    owner: Option<HomeOwner>,
    entries: usize,
    bytes: u64,
}

impl Copying {
    /// Copies the files and folders of a folder.
    fn folder(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        if depth > HOME_DEPTH {
            return Err(too_large("deeper"));
        }
        for entry in Dir::read_from(from)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > HOME_ENTRIES {
                return Err(too_large("of more files"));
            }
            let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    let below = open_folder(from, name)?;
                    mkdirat(to, name, Mode::RWXU)?;
                    let made = open_folder(to, name)?;
                    self.folder(below.as_fd(), made.as_fd(), depth + 1)?;
                    give(made.as_fd(), self.owner, stat.st_mode)?;
                    fsync(&made)?;
                }
                FileType::RegularFile => self.file(from, to, name)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &std::ffi::CStr,
    ) -> io::Result<()> {
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = openat(from, name, read, Mode::empty())?;
        let stat = fstat(&source)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = openat(to, name, write | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR)?;
        let mut made = File::from(made);
        let left = HOME_BYTES.saturating_sub(self.bytes);
        let copied = io::copy(&mut File::from(source).take(left.saturating_add(1)), &mut made)?;
        if copied > left {
            return Err(too_large("larger"));
        }
        self.bytes += copied;
        give(made.as_fd(), self.owner, stat.st_mode)?;
        made.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (homes, skeleton) = (place.path().join("homes"), place.path().join("skel"));
        fs::create_dir(&homes).unwrap();
        fs::create_dir_all(skeleton.join("a/b")).unwrap();
        fs::write(skeleton.join("a/b/file"), "text").unwrap();
        fs::set_permissions(skeleton.join("a/b/file"), fs::Permissions::from_mode(0o4640)).unwrap();
        symlink("/etc/passwd", skeleton.join("link")).unwrap();
        (place, homes, skeleton)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_home_has_what_its_skeleton_has() {
        let (_place, homes, skeleton) = place();
        let home = NewHome { mode: 0o2750, owner: None, skeleton: Some(&skeleton) };
        assert!(make_home(&homes, "ann", &home).unwrap());
        assert_eq!(names(&homes), ["ann"]);
        assert_eq!(names(&homes.join("ann")), ["a"]);
        assert_eq!(fs::read_to_string(homes.join("ann/a/b/file")).unwrap(), "text");
        assert_eq!((mode(&homes.join("ann")), mode(&homes.join("ann/a/b/file"))), (0o750, 0o640));
        fs::write(homes.join("ann/a/b/file"), "changed").unwrap();
        assert!(!make_home(&homes, "ann", &home).unwrap());
        assert_eq!(fs::read_to_string(homes.join("ann/a/b/file")).unwrap(), "changed");
        for bad in ["", ".", "..", "a/b", ".hidden"] {
            assert!(make_home(&homes, bad, &home).is_err(), "{bad:?}");
        }
    }

    /// A link of the name, or one aside, is neither followed nor replaced.
    #[test]
    fn links_lead_nowhere() {
        let (place, homes, skeleton) = place();
        let elsewhere = place.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let home = NewHome { mode: 0o700, owner: None, skeleton: Some(&skeleton) };
        symlink(&elsewhere, homes.join("ann")).unwrap();
        assert!(!make_home(&homes, "ann", &home).unwrap());
        symlink(&elsewhere, homes.join(".frevo-home.bob")).unwrap();
        assert!(make_home(&homes, "bob", &home).is_err());
        assert!(names(&elsewhere).is_empty() && !homes.join("bob").exists());
    }

    /// The state after a crash in the middle: the home is made anew, from the skeleton alone.
    #[test]
    fn what_a_crash_left_is_removed() {
        let (_place, homes, skeleton) = place();
        let aside = homes.join(".frevo-home.ann");
        fs::create_dir_all(aside.join("old/older")).unwrap();
        fs::write(aside.join("old/older/half"), "ha").unwrap();
        symlink("/etc", aside.join("old/link")).unwrap();
        let home = NewHome { mode: 0o700, owner: None, skeleton: Some(&skeleton) };
        assert!(make_home(&homes, "ann", &home).unwrap());
        assert_eq!(
            (names(&homes), names(&homes.join("ann"))),
            (vec!["ann".into()], vec!["a".into()])
        );
        assert!(Path::new("/etc").exists());
    }

    #[test]
    fn logons_at_once_make_one_home() {
        let (_place, homes, skeleton) = place();
        let make = || {
            let home = NewHome { mode: 0o700, owner: None, skeleton: Some(&skeleton) };
            make_home(&homes, "ann", &home).unwrap()
        };
        let made = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            let made: Vec<bool> = all.into_iter().map(|one| one.join().unwrap()).collect();
            made.into_iter().filter(|made| *made).count()
        });
        assert_eq!(made, 1);
        assert_eq!(
            (names(&homes), names(&homes.join("ann"))),
            (vec!["ann".into()], vec!["a".into()])
        );
    }

    #[test]
    fn a_skeleton_is_bounded() {
        let (_place, homes, skeleton) = place();
        let make = || {
            make_home(
                &homes,
                "ann",
                &NewHome { mode: 0o700, owner: None, skeleton: Some(&skeleton) },
            )
        };
        let large = File::create(skeleton.join("large")).unwrap();
        large.set_len(HOME_BYTES - 3).unwrap();
        assert_eq!(make().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(names(&homes).is_empty());
        large.set_len(HOME_BYTES - 4).unwrap();
        assert!(make().unwrap());
        fs::remove_dir_all(homes.join("ann")).unwrap();
        fs::remove_file(skeleton.join("large")).unwrap();
        let deep = skeleton.join("a/b/").join("d/".repeat(HOME_DEPTH - 2));
        fs::create_dir_all(&deep).unwrap();
        assert!(make().unwrap());
        fs::remove_dir_all(homes.join("ann")).unwrap();
        fs::create_dir(deep.join("d")).unwrap();
        assert_eq!(make().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(names(&homes).is_empty());
        fs::remove_dir_all(skeleton.join("a/b/d")).unwrap();
        // There are four entries already.
        for number in 4..HOME_ENTRIES {
            fs::write(skeleton.join(number.to_string()), "").unwrap();
        }
        assert!(make().unwrap());
        fs::remove_dir_all(homes.join("ann")).unwrap();
        fs::write(skeleton.join("more"), "").unwrap();
        assert_eq!(make().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    /// Root gives a home to its user; a server of another user cannot, and makes none.
    #[test]
    fn a_home_belongs_to_its_user() {
        let (_place, homes, skeleton) = place();
        let owner = Some(HomeOwner { uid: 12_345, gid: 54_321 });
        let made =
            make_home(&homes, "ann", &NewHome { mode: 0o700, owner, skeleton: Some(&skeleton) });
        if rustix::process::geteuid().is_root() {
            use std::os::unix::fs::MetadataExt as _;
            assert!(made.unwrap());
            for path in ["ann", "ann/a", "ann/a/b/file"] {
                let metadata = fs::symlink_metadata(homes.join(path)).unwrap();
                assert_eq!((metadata.uid(), metadata.gid()), (12_345, 54_321), "{path}");
            }
        } else {
            assert!(made.is_err());
            assert!(names(&homes).is_empty());
        }
    }
}
