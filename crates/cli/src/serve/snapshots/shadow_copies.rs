//! The snapshots of shadow copies over the network, MS-FSRVP, and the file that has their state.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use frevo_server::{ShadowCopySets, Snapshotter};
use frevo_snapshots::Second;
use frevo_wire::fscc::eq_ignore_case;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::for_admin::{Asked, ShadowCopy};
use super::listed::Listed;
use crate::secret_file;

/// The shares of which clients can have shadow copies made.
pub(super) type Supported = Arc<Mutex<Vec<SupportedShare>>>;

/// A share of which clients can have shadow copies made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SupportedShare {
    pub(super) name: String,
    /// True if a schedule thins its snapshots.
    pub(super) is_thinned: bool,
}

/// The hands of the server for its shadow copies.
pub(super) struct Hands {
    wishes: SyncSender<Asked>,
    file: PathBuf,
    supported: Supported,
    listed: Listed,
}

impl Hands {
    pub(super) fn new(
        wishes: SyncSender<Asked>,
        file: &Path,
        supported: &Supported,
        listed: Listed,
    ) -> Self {
        Self { wishes, file: file.to_owned(), supported: Arc::clone(supported), listed }
    }

    fn supported(&self, share: &str) -> Option<SupportedShare> {
        self.supported.lock().iter().find(|found| eq_ignore_case(&found.name, share)).cloned()
    }

    fn ask(&self, copy: ShadowCopy) -> Result<u64, String> {
        let (answer, answered) = oneshot::channel();
        let stops = || String::from("the server stops");
        self.wishes.send(Asked::ShadowCopy { copy, answer }).map_err(|_| stops())?;
        answered.blocking_recv().unwrap_or_else(|_| Err(stops()))
    }
}

impl fmt::Debug for Hands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hands").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Snapshotter for Hands {
    /// Each share has a place of snapshots of its own, which goes by its name.
    fn volume(&self, share: &str) -> Option<String> {
        self.supported(share).map(|found| found.name)
    }

    /// A share that is there no more has nobody who leaves copies of it.
    fn is_thinned(&self, share: &str) -> bool {
        self.supported(share).is_none_or(|found| found.is_thinned)
    }

    fn create(&self, share: &str, by: &str) -> Result<u64, String> {
        self.ask(ShadowCopy::Create { share: share.to_owned(), by: by.to_owned() })
    }

    fn remove(&self, share: &str, taken: u64, by: &str) -> Result<(), String> {
        let copy = ShadowCopy::Remove { share: share.to_owned(), taken, by: by.to_owned() };
        self.ask(copy).map(drop)
    }

    fn release(&self, share: &str, taken: u64) {
        // A share that the configuration has no more has nobody who thins it.
        let _ = self.ask(ShadowCopy::Release { share: share.to_owned(), taken });
    }

    fn expire(&self, share: &str, taken: u64) -> Result<(), String> {
        self.ask(ShadowCopy::Expire { share: share.to_owned(), taken }).map(drop)
    }

    fn store(&self, state: &[u8]) -> io::Result<()> {
        let done = secret_file::replace_bytes(&self.file, state);
        done.map_err(|failure| io::Error::other(failure.to_string()))?;
        if let Ok(sets) = ShadowCopySets::from_bytes(state, Duration::ZERO) {
            self.listed.note(&sets);
        }
        Ok(())
    }
}

/// Reads the shadow copies of an earlier run. None without a file that can be read: then nobody knows which
/// snapshots are shadow copies, and the file stays as it is.
pub(super) fn read(file: &Path) -> Option<ShadowCopySets> {
    let why = match secret_file::read_bytes(file) {
        Ok(None) => return Some(ShadowCopySets::default()),
        Ok(Some(bytes)) => match ShadowCopySets::from_bytes(&bytes, Duration::ZERO) {
            Ok(sets) => return Some(sets),
            Err(_) => format!("{} is damaged, or of a later Frevo", file.display()),
        },
        Err(failure) => failure.to_string(),
    };
    tracing::error!(target: "frevo::snapshot",
        "the shadow copies of earlier runs are not known, so until the file is mended or removed and the server \
         started again no snapshots are removed and no shadow copies are served: {why}");
    None
}

/// The seconds of all shadow copies. A share keeps those of others as well: it may have had another name.
pub(super) fn held(sets: &ShadowCopySets) -> BTreeSet<Second> {
    sets.snapshots().filter_map(|snapshot| Second::new(snapshot.taken)).collect()
}

/// True if another file system is mounted in a folder: snapshots of the folder do not have it.
pub(super) fn has_mounts_below(folder: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped);
    points.any(|point| point != folder && point.starts_with(folder))
}

/// A path of mountinfo: blanks, tabs, newlines and backslashes are written in octal.
fn unescaped(text: &str) -> PathBuf {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let text = plain.iter().fold(text.to_owned(), |text, (code, sign)| text.replace(code, sign));
    PathBuf::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_folder_are_found() {
        assert!(has_mounts_below(Path::new("/")), "at least /proc");
        assert!(!has_mounts_below(Path::new("/proc/self/fdinfo")));
        assert_eq!(unescaped("/a\\040b\\134c"), Path::new("/a b\\c"));
    }

    #[test]
    fn only_a_missing_file_has_no_shadow_copies() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shadow-copies");
        assert!(read(&file).unwrap().is_empty());
        let empty = ShadowCopySets::default().to_bytes();
        for bytes in [b"nonsense", b"FRVOSC03"] {
            secret_file::replace_bytes(&file, bytes).unwrap();
            assert_eq!(read(&file), None);
            assert_eq!(std::fs::read(&file).unwrap(), bytes, "the file stays");
        }
        secret_file::replace_bytes(&file, &empty).unwrap();
        assert!(read(&file).unwrap().is_empty());
    }
}
