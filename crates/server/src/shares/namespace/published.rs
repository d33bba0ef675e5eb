//! The namespace of a share over all reloads, and the answers for paths that lead away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_dfs::{Link, Namespace, Resolution, Root, State};
use frevo_store::Fault;
use frevo_wire::Status;
use parking_lot::RwLock;

/// The namespace of a share. A reload replaces it, also for those who are connected.
#[derive(Debug)]
pub(crate) struct Published {
    namespace: RwLock<Arc<Namespace>>,
    /// True if symbolic links of the host with a text of Samba's are links, too.
    has_samba_links: AtomicBool,
}

impl Published {
    pub(super) fn new(namespace: Arc<Namespace>) -> Arc<Self> {
        let has_samba_links = AtomicBool::new(false);
        Arc::new(Self { namespace: RwLock::new(namespace), has_samba_links })
    }

    /// The namespace as it is now.
    pub(crate) fn namespace(&self) -> Arc<Namespace> {
        Arc::clone(&self.namespace.read())
    }

    /// True if symbolic links of the host with a text of Samba's are links.
    pub(crate) fn has_samba_links(&self) -> bool {
        self.has_samba_links.load(Ordering::Relaxed)
    }

    pub(super) fn set_samba_links(&self, has_some: bool) {
        self.has_samba_links.store(has_some, Ordering::Relaxed);
    }

    /// Goes on with the links of `new`. Without one the share has none any more.
    pub(crate) fn follow(&self, new: Option<&Self>) {
        let none = |old: &Namespace| Arc::new(Namespace::new(old.name(), Root::Share));
        let next = new.map_or_else(|| none(&self.namespace()), Self::namespace);
        *self.namespace.write() = next;
        self.set_samba_links(new.is_some_and(Self::has_samba_links));
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

/// MS-DFSC 3.2.4.1: the fault of a path that matches or contains a link.
pub(super) fn leads_away(namespace: &Namespace, link: Option<&Link>) -> Fault {
    let is_online = namespace.state == State::Online && link.is_none_or(Link::is_online);
    if is_online { Fault::NotCovered } else { Fault::DfsUnavailable }
}

/// Returns a path without its first two components. As on Windows nobody looks at them, and a path of
/// fewer is the root. A backslash at the beginning, which macOS sends and MS-SMB2 2.2.13 does not have, is
/// passed over.
pub(crate) fn without_share(path: &str) -> &str {
    path.trim_start_matches('\\').splitn(3, '\\').nth(2).unwrap_or_default()
}
