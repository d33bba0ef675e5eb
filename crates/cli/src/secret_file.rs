//! Files that hold secrets: read only when no other user can, written whole or
//! not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use frevo_auth::Zeroizing;

use crate::exit::{Exit, Failure};

/// Largest file that is read, bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The user and the group that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Owner {
    /// Returns the owner of a file or directory.
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Self {
        Self { uid: metadata.uid(), gid: metadata.gid() }
    }
}

/// The permission bits of group and others.
const NOT_OWNER: u32 = 0o077;

/// Reads the text of a file that only its owner, who runs this or is root, may read or
/// write. `None` when there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Zeroizing<String>>, Failure> {
    read_bytes(path)?.map(|bytes| text(path, bytes)).transpose()
}

/// Like [`read`], for a file below the state directory `folder`; see [`read_bytes_in`].
pub(crate) fn read_in(folder: &Path, path: &Path) -> Result<Option<Zeroizing<String>>, Failure> {
    read_bytes_in(folder, path)?.map(|bytes| text(path, bytes)).transpose()
}

fn text(path: &Path, mut bytes: Zeroizing<Vec<u8>>) -> Result<Zeroizing<String>, Failure> {
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err(Failure::new(Exit::Failed, format!("{} is not valid UTF-8", path.display())))
        }
    }
}

/// Reads a file that only its owner, who runs this or is root, may read or write. `None` when there
/// is none.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    read_bytes_of(path, None)
}

/// Like [`read_bytes`], for a file below the state directory `folder`. For root it may belong to the
/// owner of the directory: the user of the server, who could replace every file there.
pub(crate) fn read_bytes_in(
    folder: &Path,
    path: &Path,
) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    let server = match std::fs::metadata(folder) {
        Ok(metadata) if rustix::process::geteuid().is_root() => Some(metadata.uid()),
        // If the directory does not exist, reading the file below fails, and the caller gets that
        // error.
        _ => None,
    };
    read_bytes_of(path, server)
}

fn read_bytes_of(path: &Path, server: Option<u32>) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::new(Exit::Auth, format!("cannot read {shown}: {error}")));
        }
    };
    let metadata = file.metadata().map_err(Failure::failed(format!("cannot read {shown}")))?;
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != me && metadata.uid() != 0 && Some(metadata.uid()) != server {
        return Err(Failure::new(
            Exit::Auth,
            format!(
                "{shown} belongs to another user, who could change it; run: chown {me} {shown}"
            ),
        ));
    }
    // A pipe of the shell, `<(...)`, can be used by this process only, so its mode is not checked.
    if metadata.mode() & NOT_OWNER != 0 && metadata.is_file() {
        return Err(Failure::new(
            Exit::Auth,
            format!("{shown} can be read or changed by other users; run: chmod 600 {shown}"),
        ));
    }
    let too_large =
        || Failure::new(Exit::Failed, format!("{shown} is larger than {} MiB", BYTES_MAX >> 20));
    if metadata.len() > BYTES_MAX {
        return Err(too_large());
    }
    // The buffer gets its final size at once, because growing it would leave copies of the secret
    // in memory.
    let room = usize::try_from(metadata.len()).unwrap_or(0).saturating_add(1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(Failure::failed(format!("cannot read {shown}")))?;
    // The length of a pipe is unknown before it is read, so the limit is checked here.
    if bytes.len() as u64 > BYTES_MAX {
        return Err(too_large());
    }
    Ok(Some(bytes))
}

/// Replaces the file at `path` by `text` in one step: a reader sees the old file or
/// the new one.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    replace_bytes(path, text.as_bytes())
}

/// Like [`replace`], for a file that is no text.
pub(crate) fn replace_bytes(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    replace_for(path, bytes, None)
}

/// Like [`replace_bytes`]. The new file belongs to `owner`, if there is one, from its first moment.
pub(crate) fn replace_for(path: &Path, bytes: &[u8], owner: Option<Owner>) -> Result<(), Failure> {
    let attempt = || -> io::Result<()> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let new = beside(path);
        // A run that was killed may have left a file of this name, so it is removed first.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let given = owner.map_or(Ok(()), |Owner { uid, gid }| fchown(&file, Some(uid), Some(gid)));
        let written = given.and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| std::fs::rename(&new, path)) {
            // Only the first error is reported, even if the new file cannot be removed either.
            let _ = std::fs::remove_file(&new);
            return Err(error);
        }
        File::open(folder)?.sync_all()
    };
    attempt().map_err(Failure::failed(format!("cannot write {}", path.display())))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Held while a file is read, changed and written back.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Lets programs that are started from now on hold the lock, too, so that it outlives this
    /// process while one of them goes on.
    pub(crate) fn share_with_programs(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(&self.0, rustix::io::FdFlags::empty())?)
    }
}

/// Waits until no other process changes the file at `path`.
pub(crate) fn lock(path: &Path) -> Result<Lock, Failure> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let beside = path.with_file_name(name);
    let failure = Failure::failed(format!("cannot lock {}", beside.display()));
    let attempt = || -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&beside)?;
        file.lock()?;
        Ok(file)
    };
    attempt().map(Lock).map_err(failure)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// A server with a user of its own owns its state directory and the keytab in it. Root may read it.
    #[test]
    fn root_reads_files_of_the_servers_user() {
        if !rustix::process::geteuid().is_root() {
            // Only root can give files to another user, so the test ends for other users.
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keytab");
        replace_for(&path, b"keys", Some(Owner { uid: 61_001, gid: 61_001 })).unwrap();
        let of_root = read_bytes_in(folder.path(), &path).unwrap_err();
        assert!(of_root.message.contains("belongs to another user"), "{of_root}");
        chown(folder.path(), Some(61_001), Some(61_001)).unwrap();
        assert_eq!(**read_bytes_in(folder.path(), &path).unwrap().unwrap(), *b"keys");
        chown(&path, Some(61_002), None).unwrap();
        assert_eq!(read_bytes_in(folder.path(), &path).unwrap_err().exit, Exit::Auth);
        chown(&path, Some(61_001), None).unwrap();
        assert_eq!(read_bytes(&path).unwrap_err().exit, Exit::Auth);
    }

    #[test]
    fn only_the_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(read(&path).unwrap().is_none());
        replace(&path, "one").unwrap();
        assert_eq!(*read(&path).unwrap().unwrap(), "one");
        for mode in [0o640, 0o604, 0o620, 0o602] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let failure = read(&path).unwrap_err();
            assert_eq!(failure.exit, Exit::Auth, "{mode:o}");
            assert!(failure.message.contains("chmod 600"), "{failure}");
        }
        replace(&path, "two").unwrap();
        assert_eq!(*read(&path).unwrap().unwrap(), "two");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(!beside(&path).exists());
    }
}
