//! The fault of an act, as a sentence.

use std::fmt;

/// The reason why a snapshot could not be made, listed or removed: a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFault(pub String);

impl fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SnapshotFault {}

impl SnapshotFault {
    /// A fault with its cause.
    pub(crate) fn of(what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self(format!("{what}: {cause}"))
    }
}
