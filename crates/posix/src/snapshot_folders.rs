//! The location of a share's snapshots, as the configuration tells it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use frevo_store::snapshot::{Pattern, PatternFault};

/// The location of a share's snapshots: a path of which one component is a [`Pattern`], such as
/// `.snapshots/@GMT-%Y.%m.%d-%H.%M.%S` or for snapper `.snapshots/%N/snapshot`. It begins at the
/// share's root unless it begins with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFolders {
    pub(crate) folder: PathBuf,
    pub(crate) pattern: Pattern,
    pub(crate) inner: PathBuf,
}

impl SnapshotFolders {
    /// Returns the folder that holds the snapshots; relative to the share unless it begins with a
    /// slash.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The reason for which a text is no [`SnapshotFolders`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotFault {
    /// Not exactly one component contains a `%`.
    NoPattern,
    /// The path contains `..`.
    Upwards,
    /// The pattern is invalid.
    Pattern(PatternFault),
}

impl std::fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoPattern => {
                f.write_str("exactly one part of the path must contain a pattern with %")
            }
            Self::Upwards => f.write_str("the path must not go through .."),
            Self::Pattern(fault) => fault.fmt(f),
        }
    }
}

impl FromStr for SnapshotFolders {
    type Err = SnapshotFault;

    fn from_str(text: &str) -> Result<Self, SnapshotFault> {
        let (mut folder, mut inner, mut pattern) = (PathBuf::new(), PathBuf::new(), None);
        if text.starts_with('/') {
            folder.push("/");
        }
        for component in text.split('/').filter(|c| !c.is_empty() && *c != ".") {
            if component == ".." {
                return Err(SnapshotFault::Upwards);
            }
            match (component.contains('%'), &pattern) {
                (true, None) => {
                    pattern = Some(Pattern::parse(component).map_err(SnapshotFault::Pattern)?);
                }
                (true, Some(_)) => return Err(SnapshotFault::NoPattern),
                (false, None) => folder.push(component),
                (false, Some(_)) => inner.push(component),
            }
        }
        let pattern = pattern.ok_or(SnapshotFault::NoPattern)?;
        Ok(Self { folder, pattern, inner })
    }
}
