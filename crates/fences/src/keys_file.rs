//! The place of a node's registrations with disks.

use std::path::PathBuf;

/// The file of a node's registrations with disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysFile {
    /// Its place.
    pub path: PathBuf,
    /// The names of the cluster and of the node with a blank between them: registrations of another one, in a
    /// copy of a state directory, are not this node's.
    pub owner: String,
}
