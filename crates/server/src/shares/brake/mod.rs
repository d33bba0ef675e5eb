//! The brake on ransomware: what the changes of a client look like, and what follows.
//!
//! [`Brake`] is that of a share. Its clients, each an account at an address, have a [`Judge`] and outlive their
//! sessions, so that a new logon is the same client. [`Braked`] is a client as a tree connect has it. The judge and
//! [`is_noise`] are values without a clock and without I/O; `objects::braked` tells them of changes, and
//! `command::braking` holds requests back.

mod journal;
mod judge;
mod noise;
mod table;
mod watched;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_store::FileKey;
use frevo_wire::fscc::fold_name;

use crate::access::access_rules::{Caller, Names};
use crate::base::limits::{BRAKE_COUNT_MAX, RATE_BURST};
use crate::base::rates::{Clock, Gate};

use journal::{Author, Change, Journal};
pub use judge::BrakeLimits;
pub(crate) use judge::Finding;
use judge::{File, Judge, NameParts};
use noise::{Places, is_noise};
use table::{Client, Gripped, Key, Table};
pub(crate) use table::{Grip, Seen};
pub(crate) use watched::{By, Copied, OpenedAs, Watched};

/// The action of a brake that takes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrakeAction {
    /// It is told: in the log, the audit log, the status and the metrics.
    Alarm,
    /// And the client's changes are slowed down for a time.
    Slow,
    /// And the client's changes are refused until an administrator releases it. It goes on reading.
    Hold,
    /// And its session ends, and its account is refused for a time.
    Cut,
}

impl BrakeAction {
    /// Its word in configurations, the status and the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::Slow => "slow",
            Self::Hold => "hold",
            Self::Cut => "cut",
        }
    }
}

/// The rules of the brake of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrakeRules {
    /// The numbers at which it takes hold.
    pub limits: BrakeLimits,
    /// Its action then.
    pub action: BrakeAction,
    /// Changes a second of a client that is slowed down.
    pub slow_to: u32,
    /// Time for which a client is slowed down, or its account is refused.
    pub lasts: Duration,
    /// Users and groups whose changes are not looked at.
    pub except: Names,
    /// Folders and files whose changes are not looked at, by their paths from the root of the share.
    pub except_paths: Vec<String>,
}

/// The brake of a share.
#[derive(Debug, Clone)]
pub(crate) struct Brake {
    rules: BrakeRules,
    /// The paths of the rules without case.
    paths: Vec<String>,
    table: Arc<Table>,
    /// The journal of changes; none without a state directory.
    journal: Option<Arc<Journal>>,
}

/// Equal for equal rules.
impl PartialEq for Brake {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

/// The brake has taken hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alarm {
    pub(crate) finding: Finding,
    pub(crate) action: BrakeAction,
}

/// A client as a tree connect has it.
#[derive(Debug)]
pub(crate) struct Braked {
    brake: Arc<Brake>,
    client: Arc<Client>,
    /// True once the end of its session was begun.
    is_ending: AtomicBool,
}

impl Brake {
    /// Makes the brake of a share.
    pub(crate) fn new(rules: BrakeRules) -> Self {
        let within = |count: u16| count.clamp(1, BRAKE_COUNT_MAX);
        let BrakeLimits { files_per_minute, files_per_hour, renames_per_minute, .. } = rules.limits;
        let limits = BrakeLimits {
            files_per_minute: within(files_per_minute),
            files_per_hour: within(files_per_hour),
            renames_per_minute: within(renames_per_minute),
            ..rules.limits
        };
        let path = |path: &String| fold_name(&path.trim_matches('/').replace('/', "\\"));
        let paths = rules.except_paths.iter().map(path).collect();
        Self { rules: BrakeRules { limits, ..rules }, paths, table: Arc::default(), journal: None }
    }

    /// The brake with the clients of the one before a reload.
    pub(crate) fn following(self, old: &Self) -> Self {
        let is_same = |one: &Arc<Journal>, other: &Arc<Journal>| one.path() == other.path();
        let journal = match (self.journal, &old.journal) {
            (Some(new), Some(old)) if is_same(&new, old) => Some(Arc::clone(old)),
            (new, _) => new,
        };
        Self { table: Arc::clone(&old.table), journal, ..self }
    }

    /// The brake with a journal of changes in a file.
    pub(crate) fn with_journal(self, path: PathBuf) -> Self {
        Self { journal: Some(Arc::new(Journal::new(path))), ..self }
    }

    /// The client that `caller` is. None for one whose changes are not looked at.
    pub(crate) fn client(self: &Arc<Self>, caller: &Caller<'_>) -> Option<Arc<Braked>> {
        if self.rules.except.contains(caller) {
            return None;
        }
        let client = self.table.client(Key::of(caller), caller);
        let is_ending = AtomicBool::new(false);
        Some(Arc::new(Braked { brake: Arc::clone(self), client, is_ending }))
    }

    /// True while an account is refused since its session was ended; a guest at its address alone.
    pub(crate) fn refuses(&self, caller: &Caller<'_>) -> bool {
        self.table.refuses(&Key::of(caller))
    }

    /// Lets go of the clients that `which` picks, and forgets what they changed. Returns their number.
    pub(crate) fn release(&self, which: impl Fn(&Seen) -> bool) -> usize {
        self.table.release(which)
    }

    /// The clients that it has hold of.
    pub(crate) fn held(&self) -> Vec<Seen> {
        self.table.held()
    }

    /// The number of times that it took hold.
    pub(crate) fn alarms(&self) -> u64 {
        self.table.alarms.load(Ordering::Relaxed)
    }

    /// The action of its rules.
    pub(crate) const fn action(&self) -> BrakeAction {
        self.rules.action
    }
}

impl Braked {
    /// False for the path of a name whose changes are not looked at.
    pub(crate) fn watches(&self, path: &str) -> bool {
        let paths = &self.brake.paths;
        if paths.is_empty() {
            return true;
        }
        let path = fold_name(path);
        !paths.iter().any(|except| {
            let rest = path.strip_prefix(&**except);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('\\'))
        })
    }

    /// True for an old file that the client has moved to where changes are not looked at.
    fn has_moved(&self, file: File) -> bool {
        self.client.judge.lock().is_moved(file)
    }

    /// True for a new file of the client with data that does not compress.
    fn is_noisy(&self, file: File) -> bool {
        let now = self.brake.table.clock.now();
        self.client.judge.lock().is_noisy(file, now)
    }

    /// The places of data that are looked at.
    fn places(&self) -> Places {
        self.brake.table.places
    }

    /// True for the first call: the session of a client that is cut off ends once.
    pub(crate) fn begins_to_end(&self) -> bool {
        !self.is_ending.swap(true, Ordering::Relaxed)
    }

    /// Tells the judge of a change by a session. Returns what has to be told if the brake takes hold.
    pub(crate) fn note(
        &self,
        session: u64,
        change: impl FnOnce(&mut Judge, &BrakeLimits, Duration) -> Option<Finding>,
    ) -> Option<Alarm> {
        let (rules, table) = (&self.brake.rules, &self.brake.table);
        let now = table.clock.now();
        // Of a client that changes nothing any more nothing is remembered either.
        if matches!(self.grip(), Grip::Held | Grip::Cut) {
            return None;
        }
        let finding = change(&mut self.client.judge.lock(), &rules.limits, now)?;
        table.alarms.fetch_add(1, Ordering::Relaxed);
        let until = now.saturating_add(rules.lasts);
        let slow_to = u64::from(rules.slow_to.max(1));
        let gate = || Arc::new(Gate::new(slow_to, RATE_BURST));
        let gripped = Gripped { action: rules.action, session, finding, since: now, until };
        self.client.take_hold(gripped, gate);
        Some(Alarm { finding, action: rules.action })
    }

    /// Writes a change of a file at `path` to the journal.
    fn write_down(&self, session: u64, path: &str, key: FileKey, change: Change<'_>) {
        if let Some(journal) = &self.brake.journal {
            let by = Author { session, user: self.client.user() };
            journal.note(by, &path.replace('\\', "/"), key, change);
        }
    }

    /// Tells the judge of a change that is no finding by itself.
    fn tell(&self, change: impl FnOnce(&mut Judge, Duration)) {
        let now = self.brake.table.clock.now();
        change(&mut self.client.judge.lock(), now);
    }

    /// The hold on the client now.
    pub(crate) fn grip(&self) -> Grip {
        self.client.grip(self.brake.table.clock)
    }

    /// The gate of a client that is slowed down.
    pub(crate) fn gate(&self) -> Option<Arc<Gate>> {
        self.client.gate()
    }

    /// The clock of the brake.
    pub(crate) fn clock(&self) -> Clock {
        self.brake.table.clock
    }
}

#[cfg(test)]
mod tests;
