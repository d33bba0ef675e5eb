//! The channels whose activity is counted.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use frevo_net::watchdog::Moment;
use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;

use super::company::Company;
use super::errors::Errors;
use super::{Activity, CountedAs, Spent, Totals, is_failure};
use crate::base::surplus::return_surplus;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::ledger::Holder;
use crate::objects::session::Session;

/// All channels of a server, with the sum of those that have ended.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    table: Mutex<Table>,
    failed_logons: AtomicU64,
    errors: Errors,
    company: Company,
}

#[derive(Debug, Default)]
struct Table {
    channels: HashMap<Key, Entry>,
    past: Totals,
}

/// A session and a connection.
type Key = (u64, u64);

/// A channel of a session, with its counts.
#[derive(Clone)]
pub(crate) struct Entry {
    /// Session.SessionId
    pub(crate) session: u64,
    /// Connection that the channel uses.
    pub(crate) connection: Arc<ConnectionInfo>,
    /// The time of its first SESSION_SETUP.
    pub(crate) since: FileTime,
    /// Counts of the channel's requests, bytes and times.
    pub(crate) activity: Arc<Activity>,
    /// The session, whose account is known once it has logged on.
    of: Weak<Session>,
}

impl Entry {
    /// The account that has logged on.
    fn account(&self) -> Option<Arc<Holder>> {
        self.of.upgrade()?.account().cloned()
    }
}

impl Registry {
    /// Registers the channel of `session` on `connection`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        session: &Arc<Session>,
        connection: &Arc<ConnectionInfo>,
    ) -> Registered {
        let activity = Arc::new(Activity::default());
        let key = (session.id, connection.id);
        let entry = Entry {
            session: session.id,
            connection: Arc::clone(connection),
            since: connection.server.ambient.now(),
            activity: Arc::clone(&activity),
            of: Arc::downgrade(session),
        };
        self.table.lock().channels.insert(key, entry);
        Registered { registry: Arc::clone(self), key, activity }
    }

    /// True if no account but that of `user` has asked for anything lately.
    pub(crate) fn is_alone(&self, user: &str) -> bool {
        let now = Moment::now();
        self.company.is_alone(user, now, |company| {
            let table = self.table.lock();
            let mut channels = table.channels.values();
            channels.all(|entry| {
                let account = entry.account();
                account.is_none_or(|account| company.goes_on(&account, entry.activity.idle(now)))
            });
        })
    }

    /// Counts a logon that failed.
    pub(crate) fn count_failed_logon(&self) {
        self.failed_logons.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of logons that failed since the start.
    pub(crate) fn failed_logons(&self) -> u64 {
        self.failed_logons.load(Ordering::Relaxed)
    }

    /// Requests that were answered with an error, by status; None stands for rare statuses.
    pub(crate) fn errors(&self) -> Vec<(Option<Status>, u64)> {
        self.errors.counts()
    }

    /// Returns the channels that have not ended.
    pub(crate) fn channels(&self) -> Vec<Entry> {
        self.table.lock().channels.values().cloned().collect()
    }

    /// The sum over all channels since the start, those that have ended included.
    pub(crate) fn totals(&self) -> Totals {
        // The lock is held while the counts are read, so that a channel that ends meanwhile is
        // counted once.
        let table = self.table.lock();
        let mut totals = table.past;
        table.channels.values().for_each(|entry| totals.add(&entry.activity.totals()));
        totals
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = (self.session, self.connection.id);
        f.debug_tuple("Entry").field(&key).finish()
    }
}

/// A channel's place in the [`Registry`], until this is dropped.
pub(crate) struct Registered {
    registry: Arc<Registry>,
    key: Key,
    /// Counts of the channel's requests, bytes and times.
    pub(crate) activity: Arc<Activity>,
}

impl Registered {
    /// Counts an answered request: of `received` bytes, answered by `sent` bytes at `now`.
    pub(crate) fn count(
        &self,
        counted: CountedAs,
        status: Status,
        spent: &Spent,
        received: usize,
        sent: usize,
        now: Moment,
    ) {
        self.activity.count(counted, status, spent, received, sent, now);
        if is_failure(status) {
            self.registry.errors.count(status);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut table = self.registry.table.lock();
        // A later logon to the same session on this connection has replaced the entry by its own,
        // which must stay.
        let is_own = |entry: &Entry| Arc::ptr_eq(&entry.activity, &self.activity);
        let ended = if table.channels.get(&self.key).is_some_and(is_own) {
            let ended = table.channels.remove(&self.key);
            return_surplus(&mut table.channels);
            ended
        } else {
            None
        };
        let totals = self.activity.totals();
        table.past.add(&totals);
        drop(table);
        if let Some(account) = ended.as_ref().and_then(Entry::account) {
            let now = Moment::now();
            self.registry.company.note_end(&account, self.activity.idle(now), now);
        }
        // The entry is dropped after the lock is released, because its drop may free facts of a
        // connection.
        drop(ended);
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.key).finish()
    }
}
