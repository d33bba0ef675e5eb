//! Files that a search has found, and their attributes by the names of macOS.

use super::query::type_of;
use super::value::{EPOCH, Value};
use alloc::format;
use alloc::string::String;

use frevo_index::Kind;

/// The names of the attributes that there are.
pub(super) const NAMES: [&str; 10] = [
    "kMDItemFSName",
    "kMDItemDisplayName",
    "kMDItemPath",
    "kMDItemFSSize",
    "kMDItemLogicalSize",
    "kMDItemFSContentChangeDate",
    "kMDItemContentModificationDate",
    "kMDItemFSCreationDate",
    "kMDItemContentCreationDate",
    "kMDItemContentType",
];

/// A file that a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Its number in the share, by which clients ask for its attributes.
    pub id: u64,
    /// Its path in the share, with `/` between its parts.
    pub path: String,
    /// Its kind.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// The time of the last change of its data, in seconds since 1970-01-01 00:00 UTC.
    pub modified: i64,
    /// The time of its creation, in the same unit.
    pub created: i64,
}

impl Hit {
    /// Returns the last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns an attribute; Nil for one that is not known. `root` is the path that clients have for the share.
    pub(super) fn attribute(&self, name: &str, root: &str) -> Value {
        match name {
            "kMDItemFSName" | "kMDItemDisplayName" | "_kMDItemFileName" => Value::text(self.name()),
            "kMDItemPath" => Value::Text(format!("{root}/{}", self.path)),
            "kMDItemFSSize" | "kMDItemLogicalSize" => Value::Integer(self.size),
            "kMDItemFSContentChangeDate" | "kMDItemContentModificationDate" => {
                Value::Date(since_2001(self.modified))
            }
            "kMDItemFSCreationDate" | "kMDItemContentCreationDate" => {
                Value::Date(since_2001(self.created))
            }
            "kMDItemContentType" => Value::text(match self.kind {
                Kind::Folder => "public.folder",
                Kind::File => type_of(self.name()),
            }),
            _ => Value::Nil,
        }
    }

    /// Bytes that it takes.
    pub(super) const fn bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.path.capacity())
    }
}

/// Returns a time in the unit of macOS.
fn since_2001(unix: i64) -> f64 {
    const HALF: i64 = 1 << 31;
    let seconds = unix.saturating_sub(EPOCH);
    // Both halves are exact, and so is their sum up to the year 285,000,000.
    let half = |part: Option<i64>| i32::try_from(part.unwrap_or(0)).map_or(0.0, f64::from);
    half(seconds.checked_div(HALF)) * 2_147_483_648.0 + half(seconds.checked_rem(HALF))
}
