//! The fault of a fence or of an address, as a sentence.

use std::fmt;

/// The reason why something could not be done: a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceFault(pub String);

impl fmt::Display for FenceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FenceFault {}

impl FenceFault {
    /// The way back for a node whose mount was fenced.
    pub(crate) const MOUNT_AGAIN: &str =
        "stop frevo on this node, unmount that file system, mount it again, and start frevo";

    /// A fault with its cause.
    pub(crate) fn of(what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self(format!("{what}: {cause}"))
    }
}
