//! What the operations do: a share, the nodes of it that the kernel knows, and
//! the files and directories that are open.

mod attributes;
mod files;
mod listing;
mod locks;
mod names;
mod ranges;
#[cfg(test)]
mod tests;

pub(crate) use attributes::Changes;
pub(crate) use files::{Handle, Opens};
pub(crate) use listing::Entry;
pub(crate) use locks::{Locks, Range};

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use frevo_client::{Cause, Error, Metadata, Share};
use fuser::{Errno, FileAttr, Notifier};
use parking_lot::Mutex;

use crate::cache::Keeper;
use crate::errno::{Outcome, errno};
use crate::limits::UNKNOWN_TRIES;
use crate::names::to_wire;
use crate::node::{Node, Nodes};
use crate::settings::Settings;
use listing::Listing;

/// A mounted share.
pub(crate) struct Volume {
    pub(crate) share: Share,
    pub(crate) settings: Settings,
    pub(crate) nodes: Nodes,
    me: Weak<Self>,
    keeper: Arc<Keeper>,
    /// By which the kernel is told what it may not keep.
    pub(crate) notifier: OnceLock<Notifier>,
    /// Files that are open for nobody.
    kept: Mutex<HashMap<u64, Arc<Node>>>,
    files: Mutex<HashMap<u64, Arc<Handle>>>,
    listings: Mutex<HashMap<u64, Arc<Listing>>>,
    next: AtomicU64,
    /// The server does not remove names as POSIX has it.
    plain: AtomicBool,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Volume({})", self.share.url(""))
    }
}

/// An answer about a node, and how long the kernel may believe it.
pub(crate) struct Told {
    pub(crate) attr: FileAttr,
    pub(crate) ttl: Duration,
}

impl Volume {
    pub(crate) fn new(share: Share, base: &str, settings: Settings) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            share,
            nodes: Nodes::new(base),
            me: Weak::clone(me),
            keeper: Keeper::new(settings.cache_bytes),
            settings,
            notifier: OnceLock::new(),
            kept: Mutex::default(),
            files: Mutex::default(),
            listings: Mutex::default(),
            next: AtomicU64::new(1),
            plain: AtomicBool::new(false),
        })
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What the kernel is told of a node.
    pub(crate) fn tell(&self, node: &Node, metadata: &Metadata) -> Told {
        // The server does not know of what was gathered.
        let unsent = node.content().and_then(|content| content.unsent_len());
        let metadata = unsent.map_or(*metadata, |len| metadata.with_len(len));
        Told {
            attr: attributes::attr(node, &metadata, &self.settings),
            ttl: self.settings.believed_for,
        }
    }

    /// What the kernel is told of a directory as it lists itself.
    pub(crate) fn tell_itself(&self, node: &Node) -> FileAttr {
        let known = node.known().map_or_else(Metadata::default, |known| known.metadata);
        attributes::attr(node, &known, &self.settings)
    }

    /// `name` in `parent`.
    pub(crate) async fn lookup(&self, parent: u64, name: &OsStr) -> Outcome<Told> {
        let parent = self.nodes.find(parent)?;
        let name = wire(name)?;
        let asked = Instant::now();
        let metadata = self.share.lookup(&parent.below(&name)?).await.map_err(|e| errno(&e))?;
        let node = self.nodes.found(&parent, &name, metadata, asked);
        // Its length and time are the server's to say, once it has all of it.
        let is_ahead = node.content().is_some_and(|content| content.is_ahead_of(asked));
        let metadata =
            if is_ahead { self.refresh(&node).await.unwrap_or(metadata) } else { metadata };
        Ok(self.tell(&node, &metadata))
    }
}

/// A component as the wire has it.
///
/// # Errors
/// EINVAL for what is no Unicode: SMB has no names of bytes.
fn wire(name: &OsStr) -> Outcome<String> {
    if name.len() > crate::limits::NAME_MAX as usize {
        return Err(Errno::ENAMETOOLONG);
    }
    to_wire(name).ok_or(Errno::EINVAL)
}

/// Carries out what must not be done twice. When a lost connection leaves open
/// whether it was done, it is tried again, and an error of which `is_done` says
/// that it is what the second try finds counts as success.
async fn once<T: Default, F: Future<Output = Result<T, Error>>>(
    mut operation: impl FnMut() -> F,
    is_done: impl Fn(Errno) -> bool,
) -> Result<T, Error> {
    let mut unknown = false;
    for _ in 1..UNKNOWN_TRIES {
        match operation().await {
            Err(error) if matches!(error.cause(), Cause::Unknown) => unknown = true,
            Err(error) if unknown && is_done(errno(&error)) => return Ok(T::default()),
            other => return other,
        }
    }
    operation().await
}
