//! The secrets of `net` in the directory of a membership: `private/secrets.tdb`, which winbind has open.
//!
//! `net` writes a new password in two steps. Killed between them, it takes no further password: "Pending
//! machine account password change found". So there is a copy of the file before the first step, which can
//! be put back: into the same file, because winbind would not see another one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use frevo_auth::Zeroizing;
use rustix::fs::{FlockOperation, fcntl_lock};

use crate::exit::{Done, Failure};
use crate::secret_file;

/// The secrets in the directory of a membership.
const SECRETS: &str = "private/secrets.tdb";
/// Their copy there.
const COPY: &str = "secrets.before";

/// The secrets of one membership.
pub(super) struct NetSecrets {
    secrets: PathBuf,
    copy: PathBuf,
}

impl NetSecrets {
    /// The secrets in the directory of a membership.
    pub(super) fn of(dir: &Path) -> Self {
        Self { secrets: dir.join(SECRETS), copy: dir.join(COPY) }
    }

    /// True if `net` has joined on this machine.
    pub(super) fn are_there(&self) -> bool {
        self.secrets.exists()
    }

    /// Copies the secrets, unless an earlier change has left a copy.
    pub(super) fn copy(&self) -> Done {
        if self.copy.exists() {
            return Ok(());
        }
        let failed = Failure::failed(format!("cannot copy {}", self.secrets.display()));
        let bytes = self.locked(false, |file| {
            let mut bytes = Zeroizing::new(Vec::new());
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        secret_file::replace_bytes(&self.copy, &bytes.map_err(failed)?)
    }

    /// Puts the copy back.
    pub(super) fn restore(&self, state_dir: &Path) -> Done {
        let failed = Failure::failed(format!("cannot write {}", self.secrets.display()));
        let Some(bytes) = secret_file::read_bytes_in(state_dir, &self.copy)? else { return Ok(()) };
        // The bytes beyond the copy stay: other programs have mapped them, and the copy does not refer to
        // them.
        let written = self.locked(true, |file| {
            file.rewind()?;
            file.write_all(&bytes)?;
            file.sync_all()
        });
        written.map_err(failed)
    }

    /// Removes the copy.
    pub(super) fn forget(&self) -> Done {
        match std::fs::remove_file(&self.copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::failed(format!("cannot remove {}", self.copy.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Acts while no other program reads or writes the file: each of them locks the parts that it uses.
    fn locked<T>(
        &self,
        writes: bool,
        act: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.secrets)?;
        let lock = if writes { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        fcntl_lock(&file, lock)?;
        act(&mut file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_that_of_before_and_is_put_into_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        std::fs::create_dir(dir.join("private")).unwrap();
        let file = dir.join(SECRETS);
        let secrets = NetSecrets::of(dir);
        assert!(secrets.copy().is_err(), "there is no file yet");
        secrets.restore(dir).unwrap();
        std::fs::write(&file, b"before").unwrap();
        let mut open = File::open(&file).unwrap();
        secrets.copy().unwrap();
        std::fs::write(&file, b"half a change").unwrap();
        secrets.copy().unwrap();
        secrets.restore(dir).unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before change");
        secrets.forget().unwrap();
        secrets.forget().unwrap();
        assert!(!dir.join(COPY).exists());
    }
}
