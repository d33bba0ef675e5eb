//! The lock of a file of a configuration, held while a program replaces it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::exit::{Exit, Failure};

/// Time for which the lock is waited for, and between two looks at it.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// As [`take`]. None if the file has another text than before.
pub(crate) fn take_unchanged(file: &Path, before: &str) -> Result<Option<File>, Failure> {
    let lock = take(file)?;
    let shown = file.display();
    let now =
        std::fs::read_to_string(file).map_err(Failure::failed(format!("cannot read {shown}")))?;
    Ok((now == before).then_some(lock))
}

/// Waits a while until no other program changes the file at `path`; the lock is held until the file is
/// closed. It is that of the folder, so that no file is left behind.
pub(crate) fn take(path: &Path) -> Result<File, Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let shown = folder.display();
    let opened = File::open(folder).map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let exit = if missing { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("cannot lock the folder {shown}: {error}"))
    })?;
    let began = Instant::now();
    loop {
        match opened.try_lock() {
            Ok(()) => return Ok(opened),
            // Whoever may read the folder can hold the lock: nobody waits for that without end.
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => sleep(PAUSE),
            Err(error) => {
                let text = format!(
                    "cannot lock the folder {shown}: {error}; lslocks shows the program that has it"
                );
                return Err(Failure::new(Exit::Failed, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_changed_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frevo.toml");
        std::fs::write(&path, "one").unwrap();
        let lock = take_unchanged(&path, "one").unwrap().unwrap();
        let other = File::open(folder.path()).unwrap();
        assert!(other.try_lock().is_err(), "it is locked");
        drop(lock);
        other.try_lock().unwrap();
        other.unlock().unwrap();
        assert!(take_unchanged(&path, "two").unwrap().is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
