//! Files that decide about access: read only if no other user can change or replace
//! them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;
/// Entries of a directory belong to their owners (mode 1777 of `/tmp`).
const STICKY: u32 = 0o1000;

/// The reason why a file is not read.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// An error of the host.
    Unreadable(io::Error),
    /// Another user can change or replace it. The text names the command that ends that.
    OthersWrite(String),
}

/// Reads the text of a file that only root and the user of this process can change.
///
/// A pipe, such as the shell's `<(...)`, is taken as it is. A longer file is refused: its end could
/// restrict what its beginning allows.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<String, Refusal> {
    let file = File::open(path).map_err(Refusal::Unreadable)?;
    let metadata = file.metadata().map_err(Refusal::Unreadable)?;
    if metadata.is_file() {
        let fault = fault_of(&metadata, path, "").or_else(|| directories_of(path));
        if let Some(fault) = fault {
            return Err(Refusal::OthersWrite(fault));
        }
    }
    let mut text = String::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_string(&mut text)
        .map_err(Refusal::Unreadable)?;
    if text.len() as u64 > bytes_max {
        return Err(Refusal::Unreadable(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// The reason why others could replace the file at `path`: its directory, or that
/// of the file which a symbolic link leads to, can be changed by them.
pub(crate) fn directories_of(path: &Path) -> Option<String> {
    let absolute = std::path::absolute(path).ok()?;
    let target = absolute.canonicalize().ok();
    [Some(absolute), target].into_iter().flatten().find_map(|path| directory(path.parent()?, &path))
}

/// The reason why others could change a directory, or put another one in its place.
pub(crate) fn directory_itself(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    fault_of(&metadata, path, "").or_else(|| directories_of(path))
}

/// The reason why others could change what a directory holds.
pub(crate) fn directory(directory: &Path, for_what: &Path) -> Option<String> {
    let metadata = std::fs::metadata(directory).ok()?;
    // On a read-only file system, as in containers, no user can change the file, so its modes do
    // not matter.
    let is_read_only = rustix::fs::statvfs(directory)
        .is_ok_and(|fs| fs.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    if is_read_only {
        return None;
    }
    let which = format!(", which holds {},", for_what.display());
    // In a sticky directory other users can add files but cannot replace this one. Only the
    // directory's owner can, so only the owner is checked.
    if metadata.mode() & STICKY != 0 {
        return fault_of_owner(&metadata, directory, &which);
    }
    fault_of(&metadata, directory, &which)
}

fn fault_of(metadata: &Metadata, path: &Path, which: &str) -> Option<String> {
    fault_of_owner(metadata, path, which).or_else(|| fault_of_mode(metadata, path, which))
}

fn fault_of_owner(metadata: &Metadata, path: &Path, which: &str) -> Option<String> {
    let shown = path.display();
    let me = rustix::process::geteuid().as_raw();
    let owner = metadata.uid();
    (owner != me && owner != 0).then(|| {
        format!(
            "{shown}{which} belongs to user {owner}, who could change it; run: chown {me} {shown}"
        )
    })
}

fn fault_of_mode(metadata: &Metadata, path: &Path, which: &str) -> Option<String> {
    let shown = path.display();
    let mode = metadata.mode() & 0o7777;
    (mode & OTHERS_WRITE != 0).then(|| {
        format!(
            "{shown}{which} can be changed by other users (mode {mode:04o}); run: chmod go-w {shown}"
        )
    })
}

/// The reasons why others could change the state directory or replace the account
/// file, the password files and the user map.
pub(crate) fn faults_of(state_dir: Option<&Path>, files: &[PathBuf]) -> Vec<String> {
    let state = state_dir.and_then(|dir| {
        let metadata = std::fs::metadata(dir).ok()?;
        fault_of(&metadata, dir, "")
    });
    let mut faults: Vec<String> = state.into_iter().collect();
    for file in files {
        let is_file = std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
        faults.extend(directories_of(file).filter(|_| is_file));
    }
    faults.dedup();
    faults
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn refused(path: &Path) -> String {
        match read(path, 100) {
            Err(Refusal::OthersWrite(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_that_others_can_change_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frevo.toml");
        std::fs::write(&path, "text").unwrap();
        for mode in [0o600, 0o644, 0o755] {
            chmod(&path, mode);
            assert_eq!(read(&path, 100).unwrap(), "text", "{mode:o}");
        }
        for (len, is_read) in [(99, true), (100, true), (101, false)] {
            std::fs::write(&path, "x".repeat(len)).unwrap();
            assert_eq!(read(&path, 100).is_ok(), is_read, "{len} bytes");
        }
        std::fs::write(&path, "text").unwrap();
        for mode in [0o620, 0o602, 0o666] {
            chmod(&path, mode);
            let why = refused(&path);
            assert!(why.contains(&format!("mode {mode:04o}")), "{why}");
            assert!(why.ends_with(&format!("chmod go-w {}", path.display())), "{why}");
        }
        chmod(&path, 0o644);
        for mode in [0o770, 0o707] {
            chmod(folder.path(), mode);
            let why = refused(&path);
            assert!(why.contains("which holds") && why.contains("chmod go-w"), "{why}");
        }
        chmod(folder.path(), 0o1777);
        assert_eq!(read(&path, 100).unwrap(), "text");
    }

    #[test]
    fn a_link_is_as_safe_as_both_its_ends() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::write(open.join("real"), "text").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(open.join("real"), &link).unwrap();
        assert_eq!(read(&link, 100).unwrap(), "text");
        chmod(&open, 0o777);
        assert!(refused(&link).contains("open"));
    }

    #[test]
    fn a_file_of_another_user_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frevo.toml");
        std::fs::write(&path, "text").unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
            // Only root can change a file's owner, so other users skip the rest of the test.
            return;
        }
        let why = refused(&path);
        assert!(why.contains("user 12345") && why.contains("chown 0 "), "{why}");
    }

    /// Its owner can replace what others have in it: a `conf.d` of a stranger in `/tmp`, with links
    /// to files of root.
    #[test]
    fn a_sticky_directory_of_another_user_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, "text").unwrap();
        chmod(folder.path(), 0o1777);
        assert_eq!(read(&path, 100).unwrap(), "text");
        if std::os::unix::fs::chown(folder.path(), Some(12_345), None).is_err() {
            return;
        }
        let why = refused(&path);
        assert!(why.contains("which holds") && why.contains("user 12345"), "{why}");
    }

    #[test]
    fn a_directory_that_others_can_change_or_replace() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        assert_eq!(directory_itself(&root), None);
        for mode in [0o775, 0o757, 0o1777] {
            chmod(&root, mode);
            assert!(directory_itself(&root).unwrap().contains("chmod go-w"), "{mode:o}");
        }
        chmod(&root, 0o755);
        chmod(folder.path(), 0o777);
        assert!(directory_itself(&root).unwrap().contains("which holds"));
    }

    #[test]
    fn the_state_directory_is_looked_at_too() {
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users");
        std::fs::write(&users, "").unwrap();
        let faults = || faults_of(Some(folder.path()), std::slice::from_ref(&users));
        assert!(faults().is_empty());
        chmod(folder.path(), 0o775);
        assert!(faults()[0].contains("chmod go-w"), "{:?}", faults());
        assert_eq!(faults().len(), 2, "the directory, and the file in it");
    }
}
