//! What is kept of directories: listings, and names that are not there.
//!
//! For as long as the server's lease on a directory holds (MS-SMB2 2.2.13.2.10, for
//! reading and for keeping it open) its names are those that were listed, and what was
//! not found in it is not there. A lease speaks for names alone: whoever writes to a
//! file takes the lease of its directory when he closes it (MS-FSA 2.1.5.5), so sizes and
//! times are believed as long as without one.
//!
//! Where several names of a directory are asked about in a row one listing answers
//! for all of them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use frevo_client::limits::ENTRIES_MAX;
use frevo_client::{Cause, DirEntry, Error, Grant, KeptDir, Lease, LeaseHolder, Yield};
use frevo_wire::command::oplock_break::LeaseState;
use fuser::INodeNo;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use super::{Volume, attributes};
use crate::errno::{Outcome, errno};
use crate::limits::{
    ABSENT_MAX, HELD_DIRS, HELD_ENTRIES, LISTED_ENTRIES, NOT_HELD_FOR, SPECIALS_AT_ONCE,
    SPECIALS_MAX, WORTH_ENTRIES, WORTH_LISTING,
};
use crate::names::from_wire;
use crate::node::Node;

/// What a directory is held for.
const KEEPING: LeaseState = LeaseState(LeaseState::READ.0 | LeaseState::HANDLE.0);

/// What is kept of one directory.
#[derive(Default)]
pub(crate) struct ListedDir {
    state: Mutex<State>,
    /// Held while it is opened, listed or closed.
    turn: tokio::sync::Mutex<()>,
    /// Counts what was done in it through this mount.
    changes: AtomicU64,
}

#[derive(Default)]
struct State {
    held: Option<Arc<CachedDir>>,
    listing: Option<Snapshot>,
    /// Names of which the kernel was told that they are not there.
    absent: HashSet<OsString>,
    /// When its lease was taken.
    taken: Option<Instant>,
    /// When something was done in it through this mount.
    changed: Option<Instant>,
    /// It is too long to be listed for the sake of a few names.
    is_long: bool,
    asked: Asked,
}

/// How many names were asked about lately.
#[derive(Default)]
struct Asked {
    since: Option<Instant>,
    count: u32,
}

/// A directory that is open on the server.
pub(crate) struct CachedDir {
    dir: KeptDir,
    lease: Arc<Lease>,
    /// Who is told when it breaks.
    _holder: Arc<dyn LeaseHolder>,
}

/// What was in a directory.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// When the server was asked.
    pub(crate) asked: Instant,
    pub(crate) entries: Arc<Vec<DirEntry>>,
    by_name: Arc<HashMap<String, usize>>,
    /// The lease that it was read under.
    grant: Option<Grant>,
}

impl Snapshot {
    pub(crate) fn find(&self, name: &str) -> Option<&DirEntry> {
        self.entries.get(*self.by_name.get(name)?)
    }
}

impl CachedDir {
    /// The lease, if it allows to keep what was read, and to keep the directory open
    /// without being in the way of who removes or moves it.
    fn grant(&self) -> Option<Grant> {
        Some(self.lease.grant()).filter(|grant| grant.state.contains(KEEPING))
    }
}

/// What a lease on a directory says when it breaks.
struct Breaker {
    volume: Weak<Volume>,
    node: Weak<Node>,
}

impl LeaseHolder for Breaker {
    fn broken(&self, to: LeaseState) -> Yield {
        let found = self.volume.upgrade().zip(self.node.upgrade());
        Box::pin(async move {
            if let Some((volume, node)) = found
                && !to.contains(KEEPING)
            {
                node.listed.state.lock().taken = Some(Instant::now());
                volume.give_up_dir(&node).await;
            }
        })
    }
}

impl ListedDir {
    /// Whether it is open on the server.
    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().held.is_some()
    }

    /// The lease of it, if it allows to keep what is read.
    pub(crate) fn lease(&self) -> Option<Arc<Lease>> {
        let held = self.state.lock().held.clone()?;
        held.grant().map(|_| Arc::clone(&held.lease))
    }

    fn held(&self) -> Option<Arc<CachedDir>> {
        self.state.lock().held.clone()
    }

    /// Closes it on the server alone, as who gives a lease up does first.
    #[cfg(test)]
    pub(super) async fn close_half(&self) {
        let held = self.held().unwrap();
        held.dir.close().await.unwrap();
    }

    /// Something was done in it through this mount.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut state = self.state.lock();
        state.listing = None;
        state.changed = Some(Instant::now());
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What was listed, if the names still are those.
    pub(super) fn listing(&self) -> Option<Snapshot> {
        let state = self.state.lock();
        let snapshot = state.listing.as_ref()?;
        let now = state.held.as_ref().and_then(|held| held.grant());
        (snapshot.grant.is_some() && snapshot.grant.map(|g| g.version) == now.map(|g| g.version))
            .then(|| snapshot.clone())
    }

    /// How many entries are kept of it.
    pub(super) fn listed_len(&self) -> usize {
        self.state.lock().listing.as_ref().map_or(0, |listing| listing.entries.len())
    }

    /// Another name is asked about: whether a listing is the shorter way.
    fn is_worth_listing(&self) -> bool {
        let mut state = self.state.lock();
        let is_lately = state.asked.since.is_some_and(|since| since.elapsed().as_secs() < 1);
        if !is_lately {
            state.asked = Asked { since: Some(Instant::now()), count: 0 };
        }
        state.asked.count += 1;
        state.asked.count >= WORTH_LISTING
    }
}

impl Volume {
    /// Whether leases on directories are made use of.
    fn holds_dirs(&self) -> bool {
        self.settings.cache && !self.settings.believed_for.is_zero()
    }

    /// Whether what the server said at `asked` is believed now, whoever may have
    /// changed it.
    pub(super) fn is_fresh(&self, asked: Instant) -> bool {
        asked.elapsed() < self.settings.believed_for
    }

    /// All that is in a directory: what is kept, if names are enough or it was read just
    /// now.
    pub(super) async fn listing(&self, node: &Arc<Node>, names: bool) -> Outcome<Snapshot> {
        if !self.holds_dirs() {
            return self.list_anew(node, None, ENTRIES_MAX).await;
        }
        let kept = || node.listed.listing().filter(|kept| names || self.is_fresh(kept.asked));
        if let Some(kept) = kept() {
            return Ok(kept);
        }
        let _turn = node.listed.turn.lock().await;
        if let Some(kept) = kept() {
            return Ok(kept);
        }
        let held = self.hold(node).await;
        self.list_anew(node, held.as_deref(), ENTRIES_MAX).await
    }

    /// Reads a directory, through what is held of it.
    async fn list_anew(
        &self,
        node: &Arc<Node>,
        held: Option<&CachedDir>,
        most: usize,
    ) -> Outcome<Snapshot> {
        let (asked, changes) = (Instant::now(), node.listed.changes());
        let before = held.and_then(CachedDir::grant);
        let listed = match held {
            Some(held) => match held.dir.list(most).await {
                // The session was lost, and the handle with it; or it was closed meanwhile, since
                // the lease was taken.
                Err(error)
                    if matches!(error.cause(), Cause::Unknown) || attributes::is_lost(&error) =>
                {
                    self.read_dir(&node.path()?, most).await
                }
                listed => listed,
            },
            None => self.read_dir(&node.path()?, most).await,
        };
        if most < ENTRIES_MAX && listed.as_ref().is_err_and(is_too_long) {
            node.listed.state.lock().is_long = true;
        }
        let mut entries = listed.map_err(|error| errno(&error))?;
        entries.retain(|entry| !super::names::is_hidden(entry.name()));
        self.look_into_listed(node, &mut entries).await?;
        let index = |(at, entry): (usize, &DirEntry)| (entry.name().to_owned(), at);
        let is_kept = self.holds_dirs() && entries.len() <= HELD_ENTRIES;
        let by_name =
            if is_kept { entries.iter().enumerate().map(index).collect() } else { HashMap::new() };
        let after = held.and_then(CachedDir::grant);
        let grant = before.filter(|before| after.is_some_and(|now| now.version == before.version));
        let snapshot =
            Snapshot { asked, entries: Arc::new(entries), by_name: Arc::new(by_name), grant };
        if is_kept {
            self.keep_listing(node, snapshot.clone(), changes);
        }
        Ok(snapshot)
    }

    /// Looks into special files that were listed: the kernel never asks again which they
    /// are.
    async fn look_into_listed(&self, node: &Node, entries: &mut [DirEntry]) -> Outcome<()> {
        let mut looked = FuturesUnordered::new();
        let worth = |(_, entry): &(usize, &DirEntry)| entry.metadata().is_worth_a_look();
        let worth: Vec<(usize, &DirEntry)> = entries.iter().enumerate().filter(worth).collect();
        let mut asked = Vec::new();
        for (at, entry) in worth.into_iter().take(SPECIALS_MAX) {
            asked.push((at, node.below(entry.name())?, *entry.metadata()));
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

    /// Keeps what was listed of a directory, unless it has changed since then. Those
    /// that came first make room.
    pub(super) fn keep_listing(&self, node: &Arc<Node>, snapshot: Snapshot, changes: u64) {
        {
            let mut state = node.listed.state.lock();
            // Under the mutex: whoever changes something in it forgets this afterwards.
            if node.listed.changes() != changes {
                return;
            }
            state.listing = Some(snapshot);
        }
        let mut all = self.listed.lock();
        all.retain(|one| one.as_ptr() != Arc::as_ptr(node));
        all.push_back(Arc::downgrade(node));
        let len = |one: &Weak<Node>| one.upgrade().map_or(0, |node| node.listed.listed_len());
        let mut entries: usize = all.iter().map(len).sum();
        while all.len() > HELD_DIRS || entries > LISTED_ENTRIES {
            let Some(first) = all.pop_front() else { return };
            if let Some(first) = first.upgrade() {
                let gone = first.listed.state.lock().listing.take();
                entries -= gone.map_or(0, |gone| gone.entries.len()).min(entries);
            }
        }
    }

    async fn read_dir(&self, path: &str, most: usize) -> Result<Vec<DirEntry>, Error> {
        if most < ENTRIES_MAX {
            return self.share.list(path).await?.at_most(most).all().await;
        }
        self.share.read_dir(path).await
    }

    /// The directory, kept open. Nothing where the server does not grant that. The
    /// caller has its turn.
    async fn hold(&self, node: &Arc<Node>) -> Option<Arc<CachedDir>> {
        if let Some(held) = node.listed.held() {
            if held.grant().is_some() {
                return Some(held);
            }
            self.close_dir(node).await;
        }
        if self.holds_none.load(Ordering::Relaxed) {
            return None;
        }
        self.make_room_for_dir().await;
        let path = node.path().ok()?;
        let lease = self.share.lease_of(&path).await.ok()?;
        let holder: Arc<dyn LeaseHolder> =
            Arc::new(Breaker { volume: Weak::clone(&self.me), node: Arc::downgrade(node) });
        lease.watch(Arc::downgrade(&holder));
        let dir = self.share.keep_dir(&path, &lease).await.ok()?;
        let held = Arc::new(CachedDir { dir, lease, _holder: holder });
        if held.grant().is_none() {
            // Not asked for again where none is ever given.
            if self.held.lock().is_empty() && node.listed.state.lock().taken.is_none() {
                self.holds_none.store(true, Ordering::Relaxed);
            }
            let _ = held.dir.close().await;
            return None;
        }
        node.listed.state.lock().held = Some(Arc::clone(&held));
        self.held.lock().push_back(Arc::downgrade(node));
        if held.grant().is_none() {
            // The break was faster, and found nothing to be given up.
            self.close_dir(node).await;
            return None;
        }
        Some(held)
    }

    /// The one that is held for the longest time makes room.
    async fn make_room_for_dir(&self) {
        let oldest = {
            let mut all = self.held.lock();
            all.retain(|node| node.upgrade().is_some_and(|node| node.listed.is_held()));
            if all.len() < HELD_DIRS { None } else { all.pop_front() }
        };
        if let Some(oldest) = oldest.and_then(|node| node.upgrade()) {
            self.close_dir(&oldest).await;
        }
    }

    /// Another name in `parent` is wanted, or one again. What a listing says of it,
    /// if there is a new one or it is worth one.
    pub(super) async fn listed_lately(&self, parent: &Arc<Node>) -> Option<Snapshot> {
        if !self.holds_dirs() {
            return None;
        }
        let lately = || {
            let listing = parent.listed.state.lock().listing.clone();
            listing.filter(|listing| self.is_fresh(listing.asked))
        };
        if let Some(found) = lately() {
            return Some(found);
        }
        if !parent.listed.is_worth_listing() {
            return None;
        }
        let _turn = parent.listed.turn.lock().await;
        if let Some(found) = lately() {
            return Some(found);
        }
        let is_before = |at: Option<Instant>| at.is_none_or(|at| at.elapsed() >= NOT_HELD_FOR);
        let (may_hold, is_quiet, is_long) = {
            let state = parent.listed.state.lock();
            (is_before(state.taken), is_before(state.changed), state.is_long)
        };
        // What is just being filled would have to be listed for each new name.
        if !is_quiet {
            return None;
        }
        let held = if may_hold { self.hold(parent).await } else { parent.listed.held() };
        if is_long {
            return None;
        }
        self.list_anew(parent, held.as_deref(), WORTH_ENTRIES).await.ok()
    }

    /// The kernel is told that `name` is not in `parent`: whether it may believe that
    /// until it is told otherwise. `before` is the lease as it was when the server was
    /// asked.
    pub(super) fn is_absent(&self, parent: &Node, name: OsString, before: Option<Grant>) -> bool {
        let mut state = parent.listed.state.lock();
        let now = state.held.as_ref().and_then(|held| held.grant());
        let holds =
            before.is_some_and(|before| now.is_some_and(|now| now.version == before.version));
        if !holds || state.absent.len() >= ABSENT_MAX {
            return false;
        }
        // Noted before the kernel hears of it: a break from now on finds it.
        state.absent.insert(name);
        true
    }

    /// The lease on a directory as it is now.
    pub(super) fn dir_grant(&self, parent: &Node) -> Option<Grant> {
        parent.listed.held().and_then(|held| held.grant())
    }

    /// The lease on a directory has gone, in part or altogether.
    async fn give_up_dir(&self, node: &Arc<Node>) {
        node.unlearn();
        // Its own turn may wait for the server, which waits for this.
        self.forget_dir(node);
        let held = node.listed.state.lock().held.take();
        if let Some(held) = held {
            let _ = held.dir.close().await;
        }
    }

    /// Closes a directory that is held, with all that is kept of it. The caller has its
    /// turn, or nobody else can have it.
    async fn close_dir(&self, node: &Arc<Node>) {
        self.forget_dir(node);
        let held = node.listed.state.lock().held.take();
        if let Some(held) = held {
            let _ = held.dir.close().await;
        }
    }

    /// The same, for who is going to move or remove it.
    pub(super) async fn let_go_dir(&self, node: &Arc<Node>) {
        let _turn = node.listed.turn.lock().await;
        self.close_dir(node).await;
    }

    /// Forgets what is kept of a directory, and has the kernel forget it.
    fn forget_dir(&self, node: &Node) {
        let absent = {
            let mut state = node.listed.state.lock();
            state.listing = None;
            std::mem::take(&mut state.absent)
        };
        self.forget_absent(node, absent.into_iter().collect());
    }

    /// A name of the node is another file's by now: what was listed of its directory is not
    /// believed any more.
    pub(super) fn distrust(&self, node: &Node) {
        node.unlearn();
        if let Some((parent, _)) = node.name() {
            parent.listed.changed();
        }
    }

    /// Something was done to `name` in a directory through this mount. Other spellings
    /// of it may be there now, to a server that ignores case.
    pub(super) fn changed(&self, directory: &Node, name: &str) {
        directory.listed.changed();
        directory.unlearn();
        let name = from_wire(name, self.spelling());
        let is_it = |other: &OsString| other.to_str().is_none_or(|other| may_be_same(&name, other));
        let gone: Vec<OsString> = directory.listed.state.lock().absent.extract_if(is_it).collect();
        let others = gone.into_iter().filter(|other| other.to_str() != Some(&*name));
        self.forget_absent(directory, others.collect());
    }

    fn forget_absent(&self, node: &Node, absent: Vec<OsString>) {
        let Some(notifier) = self.notifier.get().cloned().filter(|_| !absent.is_empty()) else {
            return;
        };
        let parent = INodeNo(node.id);
        // Nobody waits: the kernel does not let go of a directory in which it is just
        // making something, and that may have to wait for the server.
        drop(tokio::task::spawn_blocking(move || {
            for name in absent {
                // It may have forgotten the name itself.
                let _ = notifier.inval_entry(parent, &name);
            }
        }));
    }

    /// Whether the server still is there, as long as its leases are trusted: breaks
    /// would not be heard of. Nobody waits for it.
    pub(crate) fn listen(&self) {
        if self.held.lock().is_empty() || self.is_listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = Weak::clone(&self.me);
        tokio::spawn(async move {
            let Some(volume) = me.upgrade() else { return };
            // An ECHO would not tell that the session has ended.
            if let Err(error) = volume.statfs().await {
                tracing::debug!(?error, "the server does not answer");
            }
            volume.is_listening.store(false, Ordering::Release);
        });
    }

    /// Forgets listings that no lease speaks for and that are not believed any more.
    pub(super) fn tidy_listings(&self) {
        self.listed.lock().retain(|one| {
            let Some(node) = one.upgrade() else { return false };
            let is_held = node.listed.listing().is_some();
            let mut state = node.listed.state.lock();
            state.listing.take_if(|kept| !is_held && !self.is_fresh(kept.asked));
            state.listing.is_some()
        });
    }

    /// Gives up what is held under leases that were lost with their session.
    pub(super) async fn tidy_dirs(&self) {
        let all: Vec<_> = self.held.lock().iter().filter_map(Weak::upgrade).collect();
        for node in all {
            if node.listed.held().is_none_or(|held| held.grant().is_some()) {
                continue;
            }
            self.forget_dir(&node);
            // Whoever lists it now finds that out himself.
            if let Ok(_turn) = node.listed.turn.try_lock() {
                self.close_dir(&node).await;
            }
        }
    }
}

/// Whether a server that ignores case may take both for one name. How it folds what is
/// not ASCII, and whether it composes letters, it tells nobody.
fn may_be_same(one: &str, other: &str) -> bool {
    !one.is_ascii() || !other.is_ascii() || one.eq_ignore_ascii_case(other)
}

/// Whether a listing ended because there are more entries than were wanted.
fn is_too_long(error: &Error) -> bool {
    matches!(error.cause(), Cause::Protocol(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_server_may_take_for_one() {
        assert!(may_be_same("Makefile", "makefile") && !may_be_same("a", "b"));
        // A sigma at the end of a word, a composed letter, the sign of a kelvin.
        for (one, other) in [("ΟΔΟΣ", "οδοσ"), ("\u{e9}", "e\u{301}"), ("k", "\u{212a}")] {
            assert!(may_be_same(one, other) && may_be_same(other, one));
        }
    }
}
