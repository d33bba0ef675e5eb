//! What the operations do: a share, the nodes of it that the kernel knows, and
//! the files and directories that are open.

mod attributes;
mod caller;
mod dir_cache;
mod files;
mod listing;
mod locks;
mod names;
mod opens;
mod ranges;
#[cfg(test)]
mod tests;
mod upkeep;

pub(crate) use attributes::Changes;
pub(crate) use caller::Caller;
pub(crate) use dir_cache::ListedDir;
pub(crate) use files::Handle;
pub(crate) use listing::Entry;
pub(crate) use locks::{Locks, Range};
pub(crate) use opens::Opens;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use frevo_client::{Cause, Error, Metadata, Share};
use fuser::{Errno, FileAttr, Notifier};
use parking_lot::Mutex;

use crate::cache::Keeper;
use crate::errno::{Outcome, errno};
use crate::limits::{ABSENT_FOR, UNKNOWN_TRIES};
use crate::names::{Spelling, to_wire};
use crate::node::{Known, Node, Nodes};
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
    /// Directories that are kept open, the oldest first.
    held: Mutex<VecDeque<Weak<Node>>>,
    /// Directories of which a listing is kept, the latest last.
    listed: Mutex<VecDeque<Weak<Node>>>,
    /// The server has no leases on directories.
    holds_none: AtomicBool,
    /// The server is being asked whether it is there.
    is_listening: AtomicBool,
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
            held: Mutex::default(),
            listed: Mutex::default(),
            holds_none: AtomicBool::new(false),
            is_listening: AtomicBool::new(false),
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

    /// The same of what the server said at `asked`: it is believed no longer for being
    /// told later.
    pub(crate) fn tell_known(&self, node: &Node, known: &Known) -> Told {
        let told = self.tell(node, &known.metadata);
        Told { ttl: told.ttl.saturating_sub(known.at.elapsed()), ..told }
    }

    /// What the kernel is told of a directory as it lists itself.
    pub(crate) fn tell_itself(&self, node: &Node) -> FileAttr {
        let known = node.known().map_or_else(Metadata::default, |known| known.metadata);
        attributes::attr(node, &known, &self.settings)
    }

    /// `name` in `parent`.
    pub(crate) async fn lookup(&self, parent: u64, name: &OsStr) -> Outcome<NameLookup> {
        let parent = self.nodes.find(parent)?;
        let spelled = self.wire(name)?;
        if let Some(told) = self.look_in_listing(&parent, &spelled).await {
            return Ok(NameLookup::There(told));
        }
        let before = self.dir_grant(&parent);
        let asked = Instant::now();
        let metadata = match self.look_at(&parent.below(&spelled)?).await {
            Ok(metadata) => metadata,
            Err(error) if errno(&error) == Errno::ENOENT => {
                let is_kept = self.is_absent(&parent, name.to_owned(), before);
                return if is_kept {
                    Ok(NameLookup::Absent(ABSENT_FOR))
                } else {
                    Err(Errno::ENOENT)
                };
            }
            Err(error) => return Err(errno(&error)),
        };
        let node = self.nodes.found(&parent, &spelled, metadata, asked);
        // Its length and time are the server's to say, once it has all of it.
        let is_ahead = node.content().is_some_and(|content| content.is_ahead_of(asked));
        let metadata =
            if is_ahead { self.refresh(&node).await.unwrap_or(metadata) } else { metadata };
        Ok(NameLookup::There(self.tell(&node, &metadata)))
    }

    /// What a listing of just now says of a name; nothing if the server knows more.
    async fn look_in_listing(&self, parent: &Arc<Node>, name: &str) -> Option<Told> {
        let listing = self.listed_lately(parent).await?;
        let entry = listing.find(name)?;
        let node = self.nodes.listed(parent, name, *entry.metadata(), listing.asked);
        match node.known().filter(|known| self.is_fresh(known.at)) {
            Some(known) => Some(self.tell_known(&node, &known)),
            None => {
                // The kernel is not told of it now.
                self.forget(node.id, 1);
                None
            }
        }
    }
}

/// What came of looking for a name.
pub(crate) enum NameLookup {
    There(Told),
    /// It is not there, and the kernel may believe that for so long.
    Absent(Duration),
}

impl Volume {
    /// How names are spelled on the wire.
    pub(crate) fn spelling(&self) -> Spelling {
        if self.share.is_posix() { Spelling::Exact } else { Spelling::Mapped }
    }

    /// A component as the wire has it.
    ///
    /// # Errors
    /// EINVAL for what is no Unicode: SMB has no names of bytes.
    fn wire(&self, name: &OsStr) -> Outcome<String> {
        if name.len() > crate::limits::NAME_MAX as usize {
            return Err(Errno::ENAMETOOLONG);
        }
        to_wire(name, self.spelling()).ok_or(Errno::EINVAL)
    }
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
