//! [`Journal`]: the changes of files in a share with a brake, for whoever has to undo those of a session.
//!
//! A change is queued and written by a thread of the journal's own, as the audit log does it. The file is
//! bounded: at its limit it becomes the older of two.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use frevo_store::FileKey;

use crate::audit::{Audit, Event, File, Kind, Sink};
use crate::base::limits::{AUDIT_VALUE_BYTES, BRAKE_JOURNAL_BYTES};

/// The journal of a share. Its thread and its file are made with the first change.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    writer: OnceLock<Option<Audit>>,
}

/// A change of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    /// It was made.
    Made,
    /// Its data changed for the first time through this Open.
    Wrote,
    /// It lost its name.
    Removed,
    /// Another file took its name.
    Replaced,
    /// It has this name now.
    Renamed(&'a str),
}

/// The session that changes a file, and its account.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author<'a> {
    pub(crate) session: u64,
    pub(crate) user: &'a str,
}

impl Journal {
    /// The journal in a file.
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, writer: OnceLock::new() }
    }

    /// The path of its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Queues a change of the file at `path`. It never waits.
    pub(crate) fn note(&self, by: Author<'_>, path: &str, key: FileKey, change: Change<'_>) {
        let to = if let Change::Renamed(to) = change { to.len() } else { 0 };
        if path.len().max(to) > AUDIT_VALUE_BYTES {
            // It would be cut, and be the path of another file.
            tracing::warn!(target: "frevo::brake", session = by.session,
                "a change of a file with a very long path is not in the journal of the brake");
            return;
        }
        let Some(writer) = self.writer.get_or_init(|| self.start()) else { return };
        let kind = match change {
            Change::Made => Kind::Create,
            Change::Wrote => Kind::Write,
            Change::Removed | Change::Replaced => Kind::Delete,
            Change::Renamed(_) => Kind::Rename,
        };
        let event = Event::new(kind)
            .session(by.session)
            .with("user", by.user)
            .with("path", path)
            .with("file", key.inode);
        writer.emit(match change {
            Change::Renamed(to) => event.with("to", to.replace('\\', "/")),
            Change::Replaced => event.with("action", "replaced"),
            Change::Made | Change::Wrote | Change::Removed => event,
        });
    }

    fn start(&self) -> Option<Audit> {
        let shown = self.path.display().to_string();
        let file = Bounded { path: self.path.clone(), shown, file: None, bytes: 0 };
        let started = Audit::start(vec![Box::new(file)]);
        let tell = |error: &io::Error| {
            tracing::error!(target: "frevo::brake", path = %self.path.display(),
                "cannot write the journal of a brake, so that `frevo undo` will know nothing: {error}");
        };
        started.inspect_err(tell).ok()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(Some(writer)) = self.writer.get() {
            writer.finish();
        }
    }
}

/// A file of at most [`BRAKE_JOURNAL_BYTES`], beside the one before it.
struct Bounded {
    path: PathBuf,
    shown: String,
    file: Option<File>,
    bytes: u64,
}

impl Bounded {
    fn open(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                if let Some(folder) = self.path.parent() {
                    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                }
                let file = File::open(&self.path)?;
                self.bytes = std::fs::symlink_metadata(&self.path)?.len();
                file
            }
        };
        Ok(self.file.insert(file))
    }
}

impl Sink for Bounded {
    fn name(&self) -> &str {
        &self.shown
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        self.open()?;
        let more = lines.len() as u64;
        if self.bytes > 0 && self.bytes + more > BRAKE_JOURNAL_BYTES {
            std::fs::rename(&self.path, self.path.with_extension("old"))?;
            self.file = None;
        }
        self.open()?.write(lines)?;
        self.bytes += more;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn changes_are_lines_for_their_owner_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("brake").join("office.jsonl");
        let journal = Journal::new(path.clone());
        let by = Author { session: 42, user: "ann" };
        let key = FileKey::of_file(1, 7);
        journal.note(by, "a\u{202e}b\n", key, Change::Made);
        journal.note(by, "a", key, Change::Renamed("b"));
        journal.note(by, "b", key, Change::Replaced);
        journal.note(by, &"x/".repeat(AUDIT_VALUE_BYTES), key, Change::Made);
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> =
            text.lines().map(|line| &line[line.find("\"event").unwrap()..]).collect();
        let rest = r#""outcome":"success","session":"0x2a","user":"ann""#;
        assert_eq!(
            lines,
            [
                format!(r#""event":"create",{rest},"path":"a\u202eb\n","file":7}}"#),
                format!(r#""event":"rename",{rest},"path":"a","file":7,"to":"b"}}"#),
                format!(r#""event":"delete",{rest},"path":"b","file":7,"action":"replaced"}}"#),
            ]
        );
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_file_before_stays_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("office.jsonl");
        let shown = String::new();
        let mut file = Bounded { path: path.clone(), shown, file: None, bytes: 0 };
        let half = usize::try_from(BRAKE_JOURNAL_BYTES / 2).unwrap();
        let line = |letter: &str| letter.repeat(half);
        for letter in ["a", "b", "c", "d", "e"] {
            file.write(&line(letter)).unwrap();
        }
        let old = std::fs::read_to_string(path.with_extension("old")).unwrap();
        assert!(old == line("c") + &line("d"));
        assert!(std::fs::read_to_string(&path).unwrap() == line("e"));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
        // A server that starts again goes on.
        let shown = String::new();
        let mut again = Bounded { path: path.clone(), shown, file: None, bytes: 0 };
        again.write("f").unwrap();
        assert_eq!(path.metadata().unwrap().len(), half as u64 + 1);
    }
}
