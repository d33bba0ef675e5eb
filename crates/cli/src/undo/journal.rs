//! The journal of a share's brake, as `undo` reads it.

use std::io::{self, Read};
use std::path::Path;

use frevo_store::snapshot::Moment;
use serde_json::Value;

/// Bytes of each of the two files that are read: more than the server writes.
const FILE_BYTES: u64 = 64 << 20;

/// A change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// It was made.
    Made,
    /// Its data was changed.
    Wrote,
    /// It was removed.
    Removed,
    /// Another file took its name.
    Replaced,
    /// It got this path.
    Renamed(String),
}

/// A line of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The second of the change.
    pub(super) at: Moment,
    pub(super) session: u64,
    pub(super) user: String,
    /// The path before the change, from the root of the share on.
    pub(super) path: String,
    /// The number of the file in its file system.
    pub(super) file: u64,
    pub(super) change: Change,
}

/// The changes that a journal knows, in their order.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) entries: Vec<Entry>,
    /// Changes that the server had no room for, and lines that make no sense.
    pub(super) lost: u64,
}

impl Journal {
    /// Reads the older file and the newer one. A file that is not there has no changes.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut journal = Self::default();
        for path in [path.with_extension("old"), path.to_owned()] {
            let file = match std::fs::File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut text = Vec::new();
            file.take(FILE_BYTES).read_to_end(&mut text)?;
            journal.add(&text);
        }
        Ok(journal)
    }

    fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let value = serde_json::from_slice(line).unwrap_or(Value::Null);
            self.lost += value["lost"].as_u64().unwrap_or(0);
            match entry(&value) {
                Some(entry) => self.entries.push(entry),
                None => self.lost += 1,
            }
        }
    }
}

/// Reads one line. None for one that makes no sense.
fn entry(line: &Value) -> Option<Entry> {
    let text = |name: &str| line[name].as_str();
    let change = match text("event")? {
        "create" => Change::Made,
        "write" => Change::Wrote,
        "delete" if text("action") == Some("replaced") => Change::Replaced,
        "delete" => Change::Removed,
        "rename" => Change::Renamed(text("to")?.to_owned()),
        _ => return None,
    };
    Some(Entry {
        at: moment(text("time")?)?,
        session: session_id(text("session")?)?,
        user: text("user")?.to_owned(),
        path: text("path")?.to_owned(),
        file: line["file"].as_u64()?,
        change,
    })
}

/// Reads the number of a session: `0x1f00`.
pub(super) fn session_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// The second of a time such as `2030-11-30T17:00:00.000Z`.
fn moment(time: &str) -> Option<Moment> {
    let (date, clock) = time.get(..19)?.split_once('T')?;
    let token = format!("@GMT-{}-{}", date.replace('-', "."), clock.replace(':', "."));
    Moment::of_token(&token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_changes() {
        let mut journal = Journal::default();
        journal.add(
            br#"{"v":1,"time":"2030-11-30T17:00:01.500Z","event":"rename","outcome":"success","session":"0x2a","user":"ann","path":"a/b","file":7,"to":"a/b.locked"}
{"v":1,"time":"2030-11-30T17:00:02.000Z","event":"delete","outcome":"success","session":"0x2a","user":"ann","path":"c","file":8,"action":"replaced","lost":3}
{"v":1,"time":"2030-11-30T17:00
"#,
        );
        let [renamed, replaced] = &journal.entries[..] else { panic!("{journal:?}") };
        assert_eq!(renamed.change, Change::Renamed("a/b.locked".into()));
        assert_eq!((renamed.session, &*renamed.user, renamed.file), (42, "ann", 7));
        assert_eq!(renamed.at.to_string(), "@GMT-2030.11.30-17.00.01");
        assert_eq!((&replaced.change, &*replaced.path), (&Change::Replaced, "c"));
        assert_eq!(journal.lost, 4);
    }
}
