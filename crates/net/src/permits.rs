//! Permits for calls that take long, in turns by account and across cores.
//!
//! A disk carries out so many calls at a time, and so do the threads beside the cores. Who needs a permit
//! and finds none waits. A permit that becomes free goes to the account that holds the fewest, so that an
//! account with a thousand calls in line holds up another's call for the end of one call. An account
//! alone has all permits. While several accounts ask, each has [`SHARED_PERMITS_PART`] of them at most:
//! a call that has begun waits on the disk for few calls of others.
//!
//! An account is the one for which the asking thread works ([`accounts::current`]). Tasks that work for
//! none are one account.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::accounts::{self, Account};
use crate::limits::{SHARED_PERMITS, SHARED_PERMITS_PART};

/// A number of permits. A clone is the same permits.
#[derive(Clone)]
pub struct Permits(Arc<Shared>);

struct Shared {
    /// Permits that one account has while others ask too.
    part: usize,
    state: Mutex<State>,
}

/// One permit, until it is dropped.
pub struct Permit {
    shared: Arc<Shared>,
    account: Key,
}

/// The account of a permit: its address, as long as it has an [`Entry`]. 0 for none.
type Key = usize;

struct State {
    free: usize,
    entries: HashMap<Key, Entry>,
    /// Accounts with calls that wait, the one that holds the fewest permits first.
    line: BTreeSet<LinePlace>,
    /// The number of the next place.
    next: u64,
    /// The account that asked last. None before the first call.
    last: Option<Key>,
    /// The time at which two accounts have asked in a row last. None for never.
    shared: Option<Instant>,
}

/// A place in the line: by the permits that the account holds, then by age.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LinePlace {
    held: usize,
    number: u64,
    account: Key,
}

/// An account that holds permits, or waits for some.
#[derive(Default)]
struct Entry {
    /// Keeps the account's address.
    _account: Option<Arc<Account>>,
    held: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
    /// Calls in `waiting` at which those whose callers have gone are taken out.
    look_at: usize,
    place: Option<LinePlace>,
}

/// A permit on its way to a call that waits.
struct Granted {
    to: oneshot::Sender<Permit>,
    account: Key,
}

/// Calls of an account that wait before those without a caller are searched for.
const LOOK_FROM: usize = 32;

impl Permits {
    /// Makes `count` permits.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self::with_part(count, (count / SHARED_PERMITS_PART).max(1))
    }

    /// Makes `count` permits of which one account may have all, also while others ask: something else
    /// bounds what each has.
    #[must_use]
    pub fn without_parts(count: usize) -> Self {
        Self::with_part(count, count)
    }

    fn with_part(count: usize, part: usize) -> Self {
        let state = State {
            free: count,
            entries: HashMap::new(),
            line: BTreeSet::new(),
            next: 0,
            last: None,
            shared: None,
        };
        Self(Arc::new(Shared { part, state: Mutex::new(state) }))
    }

    /// Returns the number of permits that nobody holds.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.state.lock().free
    }

    /// Takes a permit for the account of this thread, unless it would have to wait.
    #[must_use]
    pub fn try_take(&self) -> Option<Permit> {
        let account = accounts::current();
        let key = key_of(account.as_ref());
        self.0.state.lock().try_take(key, account, self.0.part).then(|| self.permit(key))
    }

    /// Waits for a permit for the account of this thread.
    pub async fn take(&self) -> Permit {
        let waits = match self.take_or_wait() {
            Ok(permit) => return permit,
            Err(waits) => waits,
        };
        match waits.await {
            Ok(permit) => permit,
            // The sender is never dropped while its receiver exists.
            Err(_) => std::future::pending().await,
        }
    }

    fn take_or_wait(&self) -> Result<Permit, oneshot::Receiver<Permit>> {
        let account = accounts::current();
        let key = key_of(account.as_ref());
        let mut state = self.0.state.lock();
        if state.try_take(key, account.clone(), self.0.part) {
            return Ok(self.permit(key));
        }
        let (sender, receiver) = oneshot::channel();
        state.wait(key, account, sender);
        Err(receiver)
    }

    fn permit(&self, account: Key) -> Permit {
        Permit { shared: Arc::clone(&self.0), account }
    }
}

impl std::fmt::Debug for Permits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permits").field("free", &self.free()).finish_non_exhaustive()
    }
}

fn key_of(account: Option<&Arc<Account>>) -> Key {
    account.map_or(0, |account| Arc::as_ptr(account).addr())
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut granted = Vec::new();
        self.shared.state.lock().give_back(self.account, self.shared.part, &mut granted);
        // The permits are sent without the lock. One whose caller has gone meanwhile is dropped, and so
        // goes to the next call; callers that have gone before were left out.
        for Granted { to, account } in granted {
            drop(to.send(Self { shared: Arc::clone(&self.shared), account }));
        }
    }
}

impl State {
    /// Takes a permit if one is free for the account, and notes who asked.
    fn try_take(&mut self, key: Key, account: Option<Arc<Account>>, part: usize) -> bool {
        if self.last.replace(key).is_some_and(|last| last != key) {
            self.shared = Some(Instant::now());
        }
        let held = self.entries.get(&key).map_or(0, |entry| entry.held);
        let waits = self.entries.get(&key).is_some_and(|entry| !entry.waiting.is_empty());
        // The calls in line may not have the free permits, so a free permit may go to this call.
        if self.free == 0 || waits || (held >= part && self.is_shared()) {
            return false;
        }
        self.free -= 1;
        self.entry(key, account).held += 1;
        true
    }

    fn entry(&mut self, key: Key, account: Option<Arc<Account>>) -> &mut Entry {
        self.entries.entry(key).or_insert_with(|| Entry { _account: account, ..Entry::default() })
    }

    /// True while several accounts ask, or one waits beside another.
    fn is_shared(&self) -> bool {
        self.line.len() > 1 || self.shared.is_some_and(|since| since.elapsed() < SHARED_PERMITS)
    }

    fn wait(&mut self, key: Key, account: Option<Arc<Account>>, call: oneshot::Sender<Permit>) {
        let entry = self.entry(key, account);
        if entry.waiting.len() >= entry.look_at.max(LOOK_FROM) {
            entry.waiting.retain(|call| !call.is_closed());
            entry.look_at = 2 * entry.waiting.len();
        }
        entry.waiting.push_back(call);
        self.line_up(key);
    }

    /// Gives an account with calls that wait its place in the line, behind those that hold as many
    /// permits, and takes out one without.
    fn line_up(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let is_right = entry.place.is_some_and(|place| place.held == entry.held);
        if is_right && !entry.waiting.is_empty() {
            return;
        }
        if let Some(place) = entry.place.take() {
            self.line.remove(&place);
        }
        if entry.waiting.is_empty() {
            if entry.held == 0 {
                self.entries.remove(&key);
            }
            return;
        }
        let place = LinePlace { held: entry.held, number: self.next, account: key };
        self.next += 1;
        entry.place = Some(place);
        self.line.insert(place);
    }

    /// Takes a permit back, and grants what is free to the calls whose turn it is.
    fn give_back(&mut self, key: Key, part: usize, granted: &mut Vec<Granted>) {
        self.free += 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.held -= 1;
        }
        self.line_up(key);
        while self.free > 0
            && let Some(place) = self.line.first().copied()
            && (place.held < part || !self.is_shared())
        {
            let Some(entry) = self.entries.get_mut(&place.account) else { break };
            let live = loop {
                match entry.waiting.pop_front() {
                    Some(call) if call.is_closed() => {}
                    call => break call,
                }
            };
            if let Some(to) = live {
                self.free -= 1;
                entry.held += 1;
                granted.push(Granted { to, account: place.account });
            }
            self.line_up(place.account);
        }
    }
}

#[cfg(test)]
mod tests;
