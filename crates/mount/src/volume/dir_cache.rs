//! The cache of directories: listings and absent names.
//!
//! While the server's lease on a directory is valid (MS-SMB2 2.2.13.2.10, with R and H), the listed
//! names are complete: a name outside the listing does not exist, if this mount has not made it
//! since (`node/directory/known_names.rs`). A lease covers only names: the
//! lease of the directory breaks when another client closes a written file (MS-FSA 2.1.5.5), so
//! sizes and times stay valid only as long as without a lease.
//!
//! Several look-ups in one directory within a second are answered by one listing.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use frevo_client::internal::{Grant, LeaseHolder, Yield};
use frevo_client::limits::ENTRIES_MAX;
use frevo_client::{Cause, DirEntry, Error, LeaseState, Status};
use fuser::INodeNo;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{Volume, attributes, begin};
use crate::errno::{Outcome, errno};
use crate::limits::{
    ABSENT_MAX, CACHED_ENTRIES_MAX, FILLED_FOR, LEASE_BREAK_PAUSE, LEASED_DIRS_MAX,
    LISTING_ENTRIES_MAX, LOOKUP_LISTING_MAX, SPECIALS_AT_ONCE, SPECIALS_MAX,
};
use crate::names::from_wire;
use crate::node::{DirectoryListing, KEEPING, LeasedDirectory, Node};

/// Handles breaks of a directory's lease.
struct DirectoryLeaseHolder {
    volume: Weak<Volume>,
    node: Weak<Node>,
}

impl LeaseHolder for DirectoryLeaseHolder {
    fn broken(&self, to: LeaseState) -> Yield {
        let found = self.volume.upgrade().zip(self.node.upgrade());
        Box::pin(async move {
            if let Some((volume, node)) = found
                && !to.contains(KEEPING)
            {
                node.directory.state.lock().taken = Some(Instant::now());
                volume.give_up_dir(&node).await;
            }
        })
    }
}

/// The handle through which a directory is listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holding {
    /// No handle that stays open.
    None,
    /// The one that is open, if there is one.
    Present,
    /// One under a lease, which is opened if there is none.
    Wanted,
}

/// The entries of a directory.
type Listed = Result<Vec<DirEntry>, Error>;

impl Volume {
    /// Returns true if the mount uses directory leases.
    fn holds_dirs(&self) -> bool {
        self.settings.cache && !self.settings.attr_timeout.is_zero()
    }

    /// Returns true if metadata requested at `asked` is still valid without a lease.
    pub(super) fn is_fresh(&self, asked: Instant) -> bool {
        asked.elapsed() < self.settings.attr_timeout
    }

    /// Returns the entries of a directory: the cached ones if only `names` are needed or they are
    /// recent.
    pub(super) async fn listing(&self, node: &Arc<Node>, names: bool) -> Outcome<DirectoryListing> {
        if !self.holds_dirs() {
            return self.list_anew(node, Holding::None, ENTRIES_MAX).await;
        }
        let kept = || node.directory.listing().filter(|kept| names || self.is_fresh(kept.asked));
        if let Some(kept) = kept() {
            return Ok(kept);
        }
        let _turn = node.directory.turn.lock().await;
        if let Some(kept) = kept() {
            return Ok(kept);
        }
        self.list_anew(node, Holding::Wanted, ENTRIES_MAX).await
    }

    /// Reads a directory from the server, through its open handle if there is one or `holding` asks
    /// for one. The caller holds the directory's `turn`, unless it wants no handle.
    async fn list_anew(
        &self,
        node: &Arc<Node>,
        holding: Holding,
        most: usize,
    ) -> Outcome<DirectoryListing> {
        let (asked, changes) = (Instant::now(), node.directory.changes());
        let found = match holding {
            Holding::None => None,
            Holding::Present => node.directory.held().filter(|held| held.grant().is_some()),
            Holding::Wanted => self.held(node).await,
        };
        let before = found.as_deref().and_then(LeasedDirectory::grant);
        let (held, listed) = match found {
            Some(held) => {
                let listed = held.dir.list(most).await;
                (Some(held), listed)
            }
            None if holding == Holding::Wanted => self.hold(node, most).await,
            None => (None, self.share.list_dir_of(&node.path()?, most).await),
        };
        let listed = match listed {
            // The handle was lost with its session, or a lease break has closed it. So the
            // directory is listed by its name.
            Err(error)
                if held.is_some()
                    && (matches!(error.cause(), Cause::Unknown) || attributes::is_lost(&error)) =>
            {
                self.list_dir(&node.path()?, most).await
            }
            listed => listed,
        };
        if most < ENTRIES_MAX && listed.as_ref().is_err_and(is_too_long) {
            node.directory.state.lock().is_long = true;
        }
        let mut entries = listed.map_err(|error| errno(&error))?;
        let after = held.as_deref().and_then(LeasedDirectory::grant);
        // A listing is cached only if the lease was the same before and after it, because the lease
        // covers no listing made before it.
        let is_one = |now: &Grant| before.is_none_or(|before| before.version == now.version);
        let grant = after.filter(is_one);
        let seen = node.directory.seen().filter(|seen| grant.is_some() && seen.is_of(changes));
        entries.retain(|entry| !super::names::is_hidden(entry.file_name()));
        self.look_into_listed(node, &mut entries).await?;
        let index = |(at, entry): (usize, &DirEntry)| (entry.file_name().to_owned(), at);
        let is_kept = self.holds_dirs() && entries.len() <= LISTING_ENTRIES_MAX;
        let by_name =
            if is_kept { entries.iter().enumerate().map(index).collect() } else { HashMap::new() };
        let snapshot = DirectoryListing {
            asked,
            entries: Arc::new(entries),
            by_name: Arc::new(by_name),
            grant,
            seen,
        };
        if is_kept {
            self.keep_listing(node, snapshot.clone(), changes);
        }
        Ok(snapshot)
    }

    /// Looks up the kinds of listed special files: the kernel never asks again.
    async fn look_into_listed(&self, node: &Node, entries: &mut [DirEntry]) -> Outcome<()> {
        let mut looked = FuturesUnordered::new();
        let worth = |(_, entry): &(usize, &DirEntry)| entry.metadata().is_worth_a_look();
        let worth: Vec<(usize, &DirEntry)> = entries.iter().enumerate().filter(worth).collect();
        let mut asked = Vec::new();
        for (at, entry) in worth.into_iter().take(SPECIALS_MAX) {
            asked.push((at, node.below(entry.file_name())?, *entry.metadata()));
        }
        let mut asked = asked.into_iter();
        loop {
            for (at, path, known) in asked.by_ref().take(SPECIALS_AT_ONCE - looked.len()) {
                let share = &self.share;
                looked.push(async move { (at, share.look_into(&path, known).await) });
            }
            let Some((at, found)) = looked.next().await else { break };
            let found = found.map_err(|error| errno(&error))?;
            if let Some(entry) = entries.get_mut(at) {
                entry.learn(found);
            }
        }
        Ok(())
    }

    /// Caches a listing, unless the directory has changed since. The oldest listings make room.
    pub(super) fn keep_listing(&self, node: &Arc<Node>, snapshot: DirectoryListing, changes: u64) {
        {
            let mut state = node.directory.state.lock();
            // The count is compared while the state is locked, so that a later change discards this
            // listing.
            if node.directory.changes() != changes {
                return;
            }
            state.listing = Some(snapshot);
        }
        let mut all = self.listed.lock();
        all.retain(|one| one.as_ptr() != Arc::as_ptr(node));
        all.push_back(Arc::downgrade(node));
        let len = |one: &Weak<Node>| one.upgrade().map_or(0, |node| node.directory.listed_len());
        let mut entries: usize = all.iter().map(len).sum();
        while all.len() > LEASED_DIRS_MAX || entries > CACHED_ENTRIES_MAX {
            let Some(first) = all.pop_front() else { return };
            if let Some(first) = first.upgrade() {
                let gone = first.directory.state.lock().listing.take();
                entries -= gone.map_or(0, |gone| gone.entries.len()).min(entries);
            }
        }
    }

    async fn list_dir(&self, path: &str, most: usize) -> Result<Vec<DirEntry>, Error> {
        if most == 0 {
            return Ok(Vec::new());
        }
        if most < ENTRIES_MAX {
            return self.share.list_dir_of(path, most).await;
        }
        self.share.list_dir(path).await
    }

    /// Returns the open handle of a directory if its lease is valid; closes another one. The caller
    /// holds the directory's `turn`.
    async fn held(&self, node: &Arc<Node>) -> Option<Arc<LeasedDirectory>> {
        let held = node.directory.held()?;
        if held.grant().is_some() {
            return Some(held);
        }
        self.close_dir(node).await;
        None
    }

    /// Opens a directory under a lease and lists it, in one round trip where it is short; a listing of
    /// at most 0 entries is not asked for. There is no handle if the server does not grant a lease.
    /// The caller holds the directory's `turn`.
    async fn hold(&self, node: &Arc<Node>, most: usize) -> (Option<Arc<LeasedDirectory>>, Listed) {
        let path = match node.path() {
            Ok(path) => path,
            Err(_) => return (None, Err(Error::new(Status::OBJECT_NAME_NOT_FOUND, "list", ""))),
        };
        if self.holds_none.load(Ordering::Relaxed) {
            return (None, self.list_dir(&path, most).await);
        }
        self.make_room_for_dir().await;
        let Ok(lease) = self.share.lease_of(&path).await else {
            return (None, self.list_dir(&path, most).await);
        };
        let holder: Arc<dyn LeaseHolder> = Arc::new(DirectoryLeaseHolder {
            volume: Weak::clone(&self.me),
            node: Arc::downgrade(node),
        });
        lease.watch(Arc::downgrade(&holder));
        let (dir, listed) = match self.share.keep_dir(&path, &lease, most).await {
            Ok(kept) => kept,
            Err(_) => return (None, self.list_dir(&path, most).await),
        };
        let number = self.number();
        let held = Arc::new(LeasedDirectory { number, dir, lease, _holder: holder });
        if held.grant().is_none() {
            // No directory has got a lease, so this server grants none and is not asked for
            // directory leases again.
            if self.held.lock().is_empty() && node.directory.state.lock().taken.is_none() {
                self.holds_none.store(true, Ordering::Relaxed);
            }
            let _ = held.dir.close().await;
            return (None, listed);
        }
        node.directory.state.lock().held = Some(Arc::clone(&held));
        self.held.lock().push_back(Arc::downgrade(node));
        if held.grant().is_none() {
            // The lease break arrived before the listing was cached and could not discard it. So
            // the listing is not cached.
            self.close_dir(node).await;
            return (None, listed);
        }
        (Some(held), listed)
    }

    /// Closes the directory that has been open longest, if there are too many.
    async fn make_room_for_dir(&self) {
        let oldest = {
            let mut all = self.held.lock();
            all.retain(|node| node.upgrade().is_some_and(|node| node.directory.is_held()));
            if all.len() < LEASED_DIRS_MAX { None } else { all.pop_front() }
        };
        if let Some(oldest) = oldest.and_then(|node| node.upgrade()) {
            self.close_dir(&oldest).await;
        }
    }

    /// Returns a listing for a look-up in `parent`: a recent one, or a new one if look-ups are
    /// frequent.
    pub(super) async fn listed_lately(&self, parent: &Arc<Node>) -> Option<DirectoryListing> {
        if !self.holds_dirs() {
            return None;
        }
        let lately = || {
            let listing = parent.directory.state.lock().listing.clone();
            listing.filter(|listing| self.is_fresh(listing.asked))
        };
        if let Some(found) = lately() {
            return Some(found);
        }
        if !parent.directory.is_worth_listing() {
            return None;
        }
        let _turn = parent.directory.turn.lock().await;
        if let Some(found) = lately() {
            return Some(found);
        }
        let is_over = |at: Option<Instant>, pause| at.is_none_or(|at| at.elapsed() >= pause);
        let (may_hold, is_quiet, is_long) = {
            let state = parent.directory.state.lock();
            let is_quiet = is_over(state.changed, FILLED_FOR);
            (is_over(state.taken, LEASE_BREAK_PAUSE), is_quiet, state.is_long)
        };
        // This mount fills the directory with new files, so it lists the directory once to know
        // which names exist.
        let seeks = is_quiet || (may_hold && parent.directory.seeks_names());
        if !seeks {
            return None;
        }
        if is_long {
            if may_hold && self.held(parent).await.is_none() {
                // The directory is too long to be listed here. Its lease is taken nevertheless,
                // because under it the mount can record which names do not exist.
                drop(self.hold(parent, 0).await);
            }
            return None;
        }
        let holding = if may_hold { Holding::Wanted } else { Holding::Present };
        self.list_anew(parent, holding, LOOKUP_LISTING_MAX).await.ok()
    }

    /// Returns true if the kernel may cache `name` in `parent` as absent until it is invalidated.
    /// `before` is the lease when the server was asked.
    pub(super) fn is_absent(&self, parent: &Node, name: OsString, before: Option<Grant>) -> bool {
        let mut state = parent.directory.state.lock();
        let now = state.held.as_ref().and_then(|held| held.grant());
        let holds =
            before.is_some_and(|before| now.is_some_and(|now| now.version == before.version));
        if !holds || state.absent.len() >= ABSENT_MAX {
            return false;
        }
        // The name is recorded before the kernel learns that it is absent, so that a later lease
        // break finds the name and makes the kernel forget it.
        state.absent.insert(name);
        true
    }

    /// Returns the current lease on a directory.
    pub(super) fn dir_grant(&self, parent: &Node) -> Option<Grant> {
        parent.directory.held().and_then(|held| held.grant())
    }

    /// Discards the cache of a directory after a lease break.
    async fn give_up_dir(&self, node: &Arc<Node>) {
        node.invalidate();
        // The lock `turn` is not awaited, because its holder may wait for the server, which waits
        // for this break.
        self.forget_dir(node);
        let held = node.directory.state.lock().held.take();
        if let Some(held) = held {
            let _ = held.dir.close().await;
        }
    }

    /// Closes an open directory and discards its cache. The caller holds its `turn`, or is its only
    /// user.
    async fn close_dir(&self, node: &Arc<Node>) {
        self.forget_dir(node);
        let held = node.directory.state.lock().held.take();
        if let Some(held) = held {
            let _ = held.dir.close().await;
        }
    }

    /// Closes a directory before it is moved or removed: the CLOSE leaves with the caller's next
    /// request.
    pub(super) async fn let_go_dir(&self, node: &Arc<Node>) {
        let _turn = node.directory.turn.lock().await;
        self.forget_dir(node);
        let held = node.directory.state.lock().held.take();
        if let Some(held) = held {
            begin(async move {
                let _ = held.dir.close_with_next().await;
            })
            .await;
        }
    }

    /// Discards the cache of a directory, here and in the kernel.
    fn forget_dir(&self, node: &Node) {
        let absent = node.directory.state.lock().forget();
        self.forget_absent(node, absent.into_iter().collect());
    }

    /// Another file has the node's name now: discards the listing of its directory.
    pub(super) fn distrust(&self, node: &Node) {
        node.invalidate();
        if let Some((parent, _)) = node.name() {
            parent.directory.changed(None);
        }
    }

    /// Records a local change of `name` in a directory. On a server that ignores case, other
    /// spellings of the name may exist now.
    pub(super) fn changed(&self, directory: &Node, name: &str) {
        directory.directory.changed(Some(name));
        directory.invalidate();
        let name = from_wire(name, self.spelling());
        let is_it = |other: &OsString| other.to_str().is_none_or(|other| may_be_same(&name, other));
        let gone: Vec<OsString> =
            directory.directory.state.lock().absent.extract_if(is_it).collect();
        let others = gone.into_iter().filter(|other| other.to_str() != Some(&*name));
        self.forget_absent(directory, others.collect());
    }

    fn forget_absent(&self, node: &Node, absent: Vec<OsString>) {
        self.forget_names(absent.into_iter().map(|name| (node.id, name)).collect());
    }

    /// Makes the kernel forget these names, present or absent.
    pub(crate) fn forget_names(&self, names: Vec<(u64, OsString)>) {
        let Some(notifier) = self.notifier.get().cloned().filter(|_| !names.is_empty()) else {
            return;
        };
        // The kernel is notified from another thread, because while an entry is being made the
        // kernel has the directory locked, and making the entry may wait for the server.
        drop(tokio::task::spawn_blocking(move || {
            for (parent, name) in names {
                // The call fails only if the kernel has dropped the name itself already.
                let _ = notifier.inval_entry(INodeNo(parent), &name);
            }
        }));
    }

    /// Checks in the background that the server is present while its leases are used: a lost
    /// connection delivers no breaks.
    pub(crate) fn listen(&self) {
        if self.held.lock().is_empty() || self.is_listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = Weak::clone(&self.me);
        tokio::spawn(async move {
            let Some(volume) = me.upgrade() else { return };
            // statfs is a request of the session, so it fails if the session has ended; an ECHO
            // would not.
            if let Err(error) = volume.statfs().await {
                tracing::debug!(?error, "the server does not answer");
            }
            volume.is_listening.store(false, Ordering::Release);
        });
    }

    /// Discards expired listings without a lease.
    pub(super) fn tidy_listings(&self) {
        self.listed.lock().retain(|one| {
            let Some(node) = one.upgrade() else { return false };
            let is_held = node.directory.listing().is_some();
            let mut state = node.directory.state.lock();
            state.listing.take_if(|kept| !is_held && !self.is_fresh(kept.asked));
            state.listing.is_some()
        });
    }

    /// Discards caches whose leases were lost with their session.
    pub(super) async fn tidy_dirs(&self) {
        let all: Vec<_> = self.held.lock().iter().filter_map(Weak::upgrade).collect();
        for node in all {
            if node.directory.held().is_none_or(|held| held.grant().is_some()) {
                continue;
            }
            self.forget_dir(&node);
            // If a listing has the lock `turn`, it will notice the lost lease itself and close the
            // directory.
            if let Ok(_turn) = node.directory.turn.try_lock() {
                self.close_dir(&node).await;
            }
        }
    }
}

/// Returns true if a server that ignores case may treat both as one name. Its case folding and
/// composition outside ASCII are unknown.
fn may_be_same(one: &str, other: &str) -> bool {
    !one.is_ascii() || !other.is_ascii() || one.eq_ignore_ascii_case(other)
}

/// Returns true if a listing stopped because the directory is too long.
fn is_too_long(error: &Error) -> bool {
    matches!(error.cause(), Cause::Limit(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_server_may_take_for_one() {
        assert!(may_be_same("Makefile", "makefile") && !may_be_same("a", "b"));
        // The letters of each pair may count as the same: a final sigma, a composed letter, and the
        // Kelvin sign.
        for (one, other) in [("ΟΔΟΣ", "οδοσ"), ("\u{e9}", "e\u{301}"), ("k", "\u{212a}")] {
            assert!(may_be_same(one, other) && may_be_same(other, one));
        }
    }
}
