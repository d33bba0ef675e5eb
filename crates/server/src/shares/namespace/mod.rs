//! Namespaces of DFS: a share whose folder, or whose empty root, has links among its files.
//!
//! [`Published`] is the namespace of a share over all reloads, [`LinkedVfs`] the share's file system with
//! the links in it: MS-DFSC 3.2.4.1.

mod directory;
mod empty;
mod node;
mod vfs;

use std::sync::Arc;

use frevo_dfs::{Namespace, Resolution, Root, State};
use frevo_store::Vfs;
use frevo_wire::Status;
use parking_lot::RwLock;

use crate::base::ambient::{Ambient, Host};
use crate::shares::share::Share;
use empty::EmptyVfs;
pub(crate) use vfs::LinkedVfs;

/// The namespace of a share. A reload replaces it, also for those who are connected.
#[derive(Debug)]
pub(crate) struct Published(RwLock<Arc<Namespace>>);

impl Published {
    fn new(namespace: Arc<Namespace>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(namespace)))
    }

    /// The namespace as it is now.
    pub(crate) fn namespace(&self) -> Arc<Namespace> {
        Arc::clone(&self.0.read())
    }

    /// Goes on with the links of `new`. Without one the share has none any more.
    pub(crate) fn follow(&self, new: Option<&Self>) {
        let none = |old: &Namespace| Arc::new(Namespace::new(old.name(), Root::Share));
        let next = new.map_or_else(|| none(&self.namespace()), Self::namespace);
        *self.0.write() = next;
    }

    /// Checks a path of a request with SMB2_FLAGS_DFS_OPERATIONS, as MS-SMB2 2.2.13 has them: server
    /// and share before the name. Returns the name.
    ///
    /// # Errors
    /// PATH_NOT_COVERED for a link or a path through one, DFS_UNAVAILABLE while the namespace or the
    /// link is offline.
    pub(crate) fn normalize<'a>(&self, path: &'a str) -> Result<&'a str, Status> {
        let namespace = self.namespace();
        if namespace.state == State::Offline {
            return Err(Status::DFS_UNAVAILABLE);
        }
        let name = without_share(path);
        match namespace.resolve(name) {
            Resolution::Link { link, .. } if !link.is_online() => Err(Status::DFS_UNAVAILABLE),
            Resolution::Link { .. } => Err(Status::PATH_NOT_COVERED),
            Resolution::Folder | Resolution::Nothing => Ok(name),
        }
    }
}

/// Returns a path without its first two components. As on Windows nobody looks at them, and a path of
/// fewer is the root. A backslash at the beginning, which macOS sends and MS-SMB2 2.2.13 does not have, is
/// passed over.
fn without_share(path: &str) -> &str {
    path.trim_start_matches('\\').splitn(3, '\\').nth(2).unwrap_or_default()
}

impl Share {
    /// Makes the share the root of a namespace: the namespace's links are among its files, and it is a
    /// DFS share for clients (Share.IsDfs).
    #[must_use]
    pub fn namespace(self, namespace: impl Into<Arc<Namespace>>) -> Self {
        Self { namespace: Some(Published::new(namespace.into())), ..self }
    }

    /// Returns a share that is the root of a namespace and has no files of its own. Nobody can write to it.
    pub fn of_namespace(namespace: impl Into<Arc<Namespace>>) -> Self {
        let namespace = namespace.into();
        let vfs: Arc<dyn Vfs> = Arc::new(EmptyVfs::new(namespace.name(), Host.now()));
        let share = Self::disk(namespace.name(), vfs).comment(&*namespace.comment);
        share.read_only(true).posix(false).namespace(namespace)
    }
}

#[cfg(test)]
mod tests;
