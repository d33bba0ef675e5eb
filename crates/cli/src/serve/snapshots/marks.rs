//! The snapshots that administrators keep: their marks are in a file of the state directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use frevo_snapshots::Second;
use frevo_wire::fscc::eq_ignore_case;
use serde_json::{Value, json};

use crate::secret_file;

/// The marks of all shares.
#[derive(Debug)]
pub(super) struct Marks {
    /// None for a server that keeps no state.
    file: Option<PathBuf>,
    /// None if the file cannot be read: then any snapshot may have a mark.
    all: Option<Vec<Mark>>,
}

/// A snapshot that no schedule removes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    share: String,
    folder: PathBuf,
    taken: Second,
}

impl Mark {
    /// True for a mark of a share. One that has another name now, or another folder, has its marks all the same.
    fn is_of(&self, share: &str, folder: &Path) -> bool {
        eq_ignore_case(&self.share, share) || self.folder == folder
    }

    fn to_json(&self) -> Value {
        // Folders are named by a configuration, whose texts are UTF-8.
        json!({ "share": self.share, "folder": self.folder.to_string_lossy(), "snapshot": self.taken.to_name() })
    }

    fn of_json(object: &Value) -> Option<Self> {
        let text = |name| object.get(name)?.as_str();
        let (share, folder) = (text("share")?.to_owned(), text("folder")?.into());
        Some(Self { share, folder, taken: Second::of_name(text("snapshot")?)? })
    }
}

/// The reasons of a server that cannot remember a mark.
const NO_STATE: &str = "a server without a state directory remembers no kept snapshots";
const UNKNOWN: &str = "the file of the kept snapshots cannot be read; see the log";

impl Marks {
    /// Reads the marks of an earlier run. A file that cannot be read stays as it is.
    pub(super) fn read(file: Option<PathBuf>) -> Self {
        let all = match &file {
            None => Ok(Vec::new()),
            Some(file) => read_file(file),
        };
        let told = all.inspect_err(|why| {
            tracing::error!(target: "frevo::snapshot",
                "the kept snapshots of earlier runs are not known, so until the file is mended or removed and the \
                 server started again no snapshots are removed: {why}");
        });
        Self { file, all: told.ok() }
    }

    /// False if any snapshot may have a mark.
    pub(super) const fn are_known(&self) -> bool {
        self.all.is_some()
    }

    /// Returns the kept snapshots of a share.
    pub(super) fn of(&self, share: &str, folder: &Path) -> BTreeSet<Second> {
        let all = self.all.iter().flatten().filter(|mark| mark.is_of(share, folder));
        all.map(|mark| mark.taken).collect()
    }

    /// Notes the kept snapshots of a share, on the disk first.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn set(
        &mut self,
        share: &str,
        folder: &Path,
        kept: &BTreeSet<Second>,
    ) -> Result<(), String> {
        let file = self.file.as_ref().ok_or(NO_STATE)?;
        let all = self.all.as_mut().ok_or(UNKNOWN)?;
        let mut new = all.clone();
        new.retain(|mark| !mark.is_of(share, folder));
        new.extend(kept.iter().map(|taken| Mark {
            share: share.to_owned(),
            folder: folder.to_owned(),
            taken: *taken,
        }));
        let text = Value::Array(new.iter().map(Mark::to_json).collect()).to_string();
        let stored = secret_file::replace_bytes(file, text.as_bytes());
        stored.map_err(|failure| failure.to_string())?;
        *all = new;
        Ok(())
    }
}

fn read_file(file: &Path) -> Result<Vec<Mark>, String> {
    let bytes = secret_file::read_bytes(file).map_err(|failure| failure.to_string())?;
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    let list: Option<Value> = serde_json::from_slice(&bytes).ok();
    let marks = list.as_ref().and_then(Value::as_array);
    let marks = marks.and_then(|list| list.iter().map(Mark::of_json).collect());
    marks.ok_or_else(|| format!("{} is damaged, or of a later Frevo", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_outlive_the_server_and_changes_of_names() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kept-snapshots");
        let read = || Marks::read(Some(file.clone()));
        let (a, b) = (Path::new("/srv/a"), Path::new("/srv/b"));
        let second = |at| Second::new(at).unwrap();
        let kept = BTreeSet::from([second(1), second(2)]);
        let mut marks = read();
        assert!(marks.are_known() && marks.of("photos", a).is_empty());
        marks.set("photos", a, &kept).unwrap();
        marks.set("music", b, &BTreeSet::from([second(3)])).unwrap();
        for marks in [&marks, &read()] {
            assert_eq!(marks.of("Photos", a), kept);
            assert_eq!(marks.of("pictures", a), kept, "the share has another name");
            assert_eq!(marks.of("photos", Path::new("/srv/c")), kept, "the folder was moved");
            assert_eq!(marks.of("films", Path::new("/srv/c")), BTreeSet::new());
        }
        marks.set("photos", a, &BTreeSet::new()).unwrap();
        assert!(read().of("photos", a).is_empty());
        assert_eq!(read().of("music", b), BTreeSet::from([second(3)]));
    }

    #[test]
    fn a_file_that_cannot_be_read_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kept-snapshots");
        secret_file::replace_bytes(&file, b"[{}]").unwrap();
        let mut marks = Marks::read(Some(file.clone()));
        assert!(!marks.are_known());
        let end = marks.set("photos", Path::new("/srv/a"), &BTreeSet::new());
        assert_eq!(end, Err(String::from(UNKNOWN)));
        assert_eq!(std::fs::read(&file).unwrap(), b"[{}]");
        let mut none = Marks::read(None);
        assert!(none.are_known());
        assert_eq!(none.set("a", Path::new("/a"), &BTreeSet::new()), Err(String::from(NO_STATE)));
    }
}
