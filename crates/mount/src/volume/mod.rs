//! The operations on a mounted share, its nodes, and its open files and directories.

mod attributes;
mod caller;
mod dir_cache;
mod files;
mod handles;
mod listing;
mod locks;
mod maintenance;
mod names;
mod opens;
mod ranges;
mod removal;
mod reply;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use caller::Caller;
pub(crate) use handles::{Handle, OpenDirectory};
pub(crate) use listing::Entry;
pub(crate) use reply::{Changes, EntryReply};
pub use status::STATUS_ATTRIBUTE;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use frevo_client::{Cause, Error, Metadata, Share};
use fuser::{Errno, FileAttr, Notifier};
use parking_lot::Mutex;

use crate::cache::CacheBudget;
use crate::errno::{Outcome, errno};
use crate::limits::{ABSENT_TIMEOUT, UNKNOWN_TRIES};
use crate::names::{Spelling, to_wire};
use crate::node::{Node, Nodes, Seen, TimedMetadata};
use crate::settings::Settings;
use names::is_hidden;

/// A share that is mounted.
pub(crate) struct Volume {
    pub(crate) share: Share,
    pub(crate) settings: Settings,
    pub(crate) nodes: Nodes,
    me: Weak<Self>,
    budget: Arc<CacheBudget>,
    /// Invalidates entries and pages in the kernel.
    pub(crate) notifier: OnceLock<Notifier>,
    /// Idle files that stay open on the server.
    kept: Mutex<HashMap<u64, Arc<Node>>>,
    /// Files that the kernel has forgotten and that are not closed yet.
    forgotten: Mutex<Vec<Arc<Node>>>,
    /// Directories that are open under a lease, the oldest first.
    held: Mutex<VecDeque<Weak<Node>>>,
    /// Directories with a cached listing, the latest last.
    listed: Mutex<VecDeque<Weak<Node>>>,
    /// True if the server grants no leases on directories.
    holds_none: AtomicBool,
    /// True while a request checks the server's presence.
    is_listening: AtomicBool,
    files: Mutex<HashMap<u64, Arc<Handle>>>,
    listings: Mutex<HashMap<u64, Arc<OpenDirectory>>>,
    next: AtomicU64,
    /// True if the server cannot remove or replace open files as POSIX does.
    plain: AtomicBool,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Volume({})", self.share.url(""))
    }
}

impl Volume {
    pub(crate) fn new(share: Share, base: &str, settings: Settings) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            share,
            nodes: Nodes::new(base),
            me: Weak::clone(me),
            budget: CacheBudget::new(settings.cache_bytes),
            settings,
            notifier: OnceLock::new(),
            kept: Mutex::default(),
            forgotten: Mutex::default(),
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

    /// Returns the attributes of a node and their validity for the kernel.
    pub(crate) fn reply(&self, node: &Node, metadata: &Metadata) -> EntryReply {
        // The server's length does not include unsent data, so the length is replaced.
        let unsent = node.content().and_then(|content| content.unsent_len());
        let metadata = unsent.map_or(*metadata, |len| metadata.with_len(len));
        EntryReply {
            attr: reply::attr(node, &metadata, &self.settings),
            ttl: self.settings.attr_timeout,
        }
    }

    /// Returns earlier metadata as a reply; its validity counts from the request to the server.
    pub(crate) fn reply_known(&self, node: &Node, known: &TimedMetadata) -> EntryReply {
        let told = self.reply(node, &known.metadata);
        EntryReply { ttl: told.ttl.saturating_sub(known.at.elapsed()), ..told }
    }

    /// Returns the attributes of a directory for its own entry `.`.
    pub(crate) fn attr_of_directory(&self, node: &Node) -> FileAttr {
        let known = node.known().map_or_else(Metadata::default, |known| known.metadata);
        reply::attr(node, &known, &self.settings)
    }

    /// Looks up `name` in `parent`.
    pub(crate) async fn lookup(&self, parent: u64, name: &OsStr) -> Outcome<NameLookup> {
        let parent = self.nodes.find(parent)?;
        let spelled = self.wire(name)?;
        if let Some(told) = self.look_in_listing(&parent, &spelled).await {
            return Ok(NameLookup::Found(told, told.ttl));
        }
        if let Some(told) = self.look_up_promised(&parent, &spelled) {
            return Ok(NameLookup::Found(told, self.settings.attr_timeout));
        }
        let absent = |before| match self.is_absent(&parent, name.to_owned(), before) {
            true => Ok(NameLookup::Absent(ABSENT_TIMEOUT)),
            false => Err(Errno::ENOENT),
        };
        if let Some(grant) = parent.directory.lacks(&spelled).filter(|_| !is_hidden(&spelled)) {
            return absent(Some(grant));
        }
        let (before, seen) = (self.dir_grant(&parent), parent.directory.seen());
        let asked = Instant::now();
        let metadata = match self.look_at(&parent.below(&spelled)?).await {
            Ok(metadata) => metadata,
            Err(error) if errno(&error) == Errno::ENOENT => return absent(before),
            Err(error) => return Err(errno(&error)),
        };
        let node = self.nodes.found(&parent, &spelled, metadata, asked);
        self.promised(&parent, &spelled, &node, seen);
        // The file has unsent data newer than this answer. So `refresh` sends it first, because
        // only then does the server report size and times correctly.
        let is_ahead = node.content().is_some_and(|content| content.is_ahead_of(asked));
        let metadata =
            if is_ahead { self.refresh(&node).await.unwrap_or(metadata) } else { metadata };
        let told = self.reply(&node, &metadata);
        Ok(NameLookup::Found(told, told.ttl))
    }

    /// Records that the server need not be asked for a name while the lease holds under which it was
    /// `before` it was asked.
    fn promised(&self, parent: &Node, name: &str, node: &Node, before: Option<Seen>) {
        // A promise lets look-ups of a name do without a request. If the server ignores case, a
        // removed file could still be found by another spelling, so only a share with exact names
        // gets promises.
        if self.spelling() == Spelling::Exact {
            self.nodes.promised(parent, name, node.id, before);
        }
    }

    /// Looks up a name that was promised; None if the server has to be asked. Its size and times may
    /// be old: then they are not valid, and the kernel asks for them when a program wants them.
    fn look_up_promised(&self, parent: &Node, name: &str) -> Option<EntryReply> {
        let node = self.nodes.look_up_promised(parent, name)?;
        match node.known().filter(|_| !node.is_open()) {
            Some(known) => Some(self.reply_known(&node, &known)),
            None => {
                // This entry is not sent to the kernel, so the look-up counted for it is taken
                // back.
                self.forget(node.id, 1);
                None
            }
        }
    }

    /// Looks up a name in a recent listing; None if the server has to be asked.
    async fn look_in_listing(&self, parent: &Arc<Node>, name: &str) -> Option<EntryReply> {
        let listing = self.listed_lately(parent).await?;
        let entry = listing.find(name)?;
        let node = self.nodes.listed(parent, name, *entry.metadata(), listing.asked);
        self.promised(parent, name, &node, listing.seen);
        match node.known().filter(|known| self.is_fresh(known.at)) {
            Some(known) => Some(self.reply_known(&node, &known)),
            None => {
                // This entry is not sent to the kernel, so the look-up counted for it is taken
                // back.
                self.forget(node.id, 1);
                None
            }
        }
    }
}

/// The result of a look-up.
pub(crate) enum NameLookup {
    /// The file, and how long the kernel may know it by this name.
    Found(EntryReply, Duration),
    /// The name is absent, and the kernel may cache that for this time.
    Absent(Duration),
}

impl Volume {
    /// The spelling of names on the wire.
    pub(crate) fn spelling(&self) -> Spelling {
        if self.share.is_posix() { Spelling::Exact } else { Spelling::Mapped }
    }

    /// Converts a component to its wire spelling.
    ///
    /// # Errors
    /// EINVAL for a name that is not Unicode.
    fn wire(&self, name: &OsStr) -> Outcome<String> {
        if name.len() > crate::limits::NAME_MAX as usize {
            return Err(Errno::ENAMETOOLONG);
        }
        to_wire(name, self.spelling()).ok_or(Errno::EINVAL)
    }
}

/// Begins `work`, so that its first request leaves before the caller's next one, and leaves the rest
/// to the background.
async fn begin(work: impl Future<Output: Send + 'static> + Send + 'static) {
    let mut work = Box::pin(work);
    let is_done = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await;
    if !is_done {
        drop(tokio::spawn(work));
    }
}

/// Carries out an operation that must not take effect twice. If a lost connection leaves the
/// outcome unknown, the operation is repeated; an error for which `is_done` returns true then means
/// that the first attempt succeeded.
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
