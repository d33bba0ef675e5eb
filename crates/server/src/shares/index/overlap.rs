//! Other shares whose folder is within that of an index, or around it: their clients change the same files.

use std::path::Path;
use std::sync::Arc;

use frevo_store::{FolderId, HostChange, Vfs};
use frevo_wire::fscc::notify::NotifyAction;

use super::inbox::Inbox;

/// A share whose folder overlaps with that of an index.
#[derive(Debug, Clone)]
pub(crate) struct Overlap {
    files: Arc<dyn Vfs>,
    relation: Relation,
}

/// The place of the other share's folder. Paths have `\` between names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Relation {
    /// At this path in the index.
    Within(String),
    /// Around the folder of the index, which has this path there.
    Around(String),
}

impl Overlap {
    /// Returns the overlap of the share of `files` in the folder `other` with an index of the folder `own`. None if
    /// they do not overlap, or are one folder.
    pub(crate) fn of(files: &Arc<dyn Vfs>, other: &str, own: &str) -> Option<Self> {
        let below = |one: &str, folder: &str| {
            let path = Path::new(one).strip_prefix(folder).ok()?;
            let path = path.to_str()?.replace('/', "\\");
            (!path.is_empty()).then_some(path)
        };
        let within = below(other, own).map(Relation::Within);
        let relation = within.or_else(|| below(own, other).map(Relation::Around))?;
        Some(Self { files: Arc::clone(files), relation })
    }

    /// True if `folder_id` is the folder of the other share.
    pub(super) fn is_of(&self, folder_id: FolderId) -> bool {
        self.files.folder_id() == folder_id
    }

    /// Tells a change of the other share to an index.
    pub(super) fn tell(&self, inbox: &Inbox, change: &HostChange<'_>) {
        match change {
            HostChange::Change { action, name, matches } => {
                if let Some(name) = self.relation.path(name) {
                    let (action, matches) = (*action, *matches);
                    inbox.hear(&HostChange::Change { action, name: &name, matches });
                }
            }
            HostChange::Renamed { from, to, matches } => {
                let matches = *matches;
                match (self.relation.path(from), self.relation.path(to)) {
                    (Some(from), Some(to)) => {
                        inbox.hear(&HostChange::Renamed { from: &from, to: &to, matches });
                    }
                    (Some(name), None) | (None, Some(name)) => {
                        let action = NotifyAction::MODIFIED;
                        inbox.hear(&HostChange::Change { action, name: &name, matches });
                    }
                    (None, None) => {}
                }
            }
            HostChange::Lost => {}
        }
    }
}

impl Relation {
    /// The path in the index of a path in the other share. None for one that is not in the index.
    fn path(&self, name: &str) -> Option<String> {
        match self {
            Self::Within(folder) if name.is_empty() => Some(folder.clone()),
            Self::Within(folder) => Some(format!("{folder}\\{name}")),
            Self::Around(folder) => {
                let rest = name.strip_prefix(&**folder)?.strip_prefix('\\')?;
                Some(rest.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::memory::{MemoryOptions, MemoryVfs};
    use frevo_wire::dtyp::FileTime;

    use super::*;

    #[test]
    fn paths_of_other_shares_become_those_of_the_index() {
        let clock = Arc::new(|| FileTime(0));
        let files: Arc<dyn Vfs> = Arc::new(MemoryVfs::new(MemoryOptions::default(), clock));
        let path = |other: &str, own: &str, name: &str| {
            Overlap::of(&files, other, own).and_then(|overlap| overlap.relation.path(name))
        };
        assert_eq!(path("/srv/a/b/c", "/srv/a", "x\\y").as_deref(), Some("b\\c\\x\\y"));
        assert_eq!(path("/srv", "/srv/a/b", "a\\b\\x").as_deref(), Some("x"));
        for (other, own, name) in [
            ("/srv", "/srv/a", "ab\\x"),
            ("/srv", "/srv/a", "a"),
            ("/srv/a", "/srv/a", "x"),
            ("/srv/ab", "/srv/a", "x"),
        ] {
            assert_eq!(path(other, own, name), None, "{other} {own} {name}");
        }
    }
}
