//! Namespaces of DFS: a share whose folder, or whose empty root, has links among its files.
//!
//! [`Published`] is the namespace of a share over all reloads, [`LinkedVfs`] the share's file system with
//! the links in it: MS-DFSC 3.2.4.1.

mod directory;
mod empty;
mod node;
mod published;
pub(crate) mod samba;
mod vfs;

use std::sync::Arc;

use frevo_dfs::{Namespace, Root};
use frevo_store::Vfs;

use crate::base::ambient::{Ambient, Host};
use crate::shares::share::Share;
use empty::EmptyVfs;
pub(crate) use published::{Published, without_share};
pub(crate) use samba::SambaVfs;
pub(crate) use vfs::LinkedVfs;

impl Share {
    /// Makes the share the root of a namespace: the namespace's links are among its files, and it is a
    /// DFS share for clients (Share.IsDfs).
    #[must_use]
    pub fn namespace(self, namespace: impl Into<Arc<Namespace>>) -> Self {
        let published = Published::new(namespace.into());
        let has_samba_links = self.namespace.as_ref().is_some_and(|own| own.has_samba_links());
        published.set_samba_links(has_samba_links);
        Self { namespace: Some(published), ..self }
    }

    /// True makes symbolic links of the host with a text such as `msdfs:server\share` links of DFS, as smbd does
    /// with `msdfs root`, and the share the root of a namespace, which may have links of its own. Links that
    /// clients make are none. False unless set.
    #[must_use]
    pub fn samba_links(self, is_on: bool) -> Self {
        let own = || Published::new(Arc::new(Namespace::new(&self.name, Root::Share)));
        let published = match &self.namespace {
            Some(published) => Some(Arc::clone(published)),
            None => is_on.then(own),
        };
        if let Some(published) = &published {
            published.set_samba_links(is_on);
        }
        Self { namespace: published, ..self }
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
