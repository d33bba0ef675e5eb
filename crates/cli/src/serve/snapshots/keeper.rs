//! The thread that makes snapshots when they are due, removes those that the schedules do not keep, and does
//! what administrators ask for.

mod answers;
mod shadow_copies;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use frevo_admin::ShareSnapshots;
use frevo_server::Server;
use frevo_server::audit::{Event, Kind};
use frevo_snapshot_hands::{Hands, SnapshotFault};
use frevo_snapshots::limits::LISTED;
use frevo_snapshots::{Schedule, Second};
use frevo_wire::Status;
use parking_lot::Mutex;

use super::for_admin::{Asked, ForAdmin};
use super::marks::Marks;
use super::places::FoundPlace;

/// Time between two looks at the clock, which may have been set.
const LOOKS: Duration = Duration::from_secs(20);
/// Time after which the list of a share is read again: others may remove snapshots.
const LIST_AGE: Duration = Duration::from_secs(600);
/// Time after an act that failed in which the schedule tries no further one.
const RETRY: Duration = Duration::from_secs(60);
/// Snapshots that are removed in one go. Then wishes of administrators have their turn.
const REMOVED_AT_ONCE: usize = 16;
/// Wishes that wait for the thread.
const WISHES: usize = 16;

/// The act by which a share's place was looked for.
const PLACE: &str = "place";
/// The acts that can fail.
const LIST: &str = "list";
const CREATE: &str = "create";
const REMOVE: &str = "remove";

/// The reasons why no snapshots are removed: nobody knows which of them are shadow copies, or kept.
const UNKNOWN_COPIES: &str =
    "the file of the shadow copies cannot be read, so no snapshots are removed; see the log";
const UNKNOWN_MARKS: &str =
    "the file of the kept snapshots cannot be read, so no snapshots are removed; see the log";

/// An act that failed. It is the share's fault until that act succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failed {
    act: &'static str,
    why: String,
}

/// A share of which snapshots are made.
#[derive(Debug)]
pub(super) struct KeptShare {
    name: String,
    folder: PathBuf,
    /// True if `keep_deleted` asks for the snapshots.
    is_optional: bool,
    provider: Option<String>,
    /// A sentence about a part of the share that snapshots lack.
    lacks: Option<String>,
    /// The place in the set-up of the process. None for a share without a place.
    at: Option<usize>,
    /// None while the configuration has no schedule for the share any more.
    schedule: Option<Schedule>,
    existing: Vec<Second>,
    /// Those of `existing` that are shadow copies of MS-FSRVP: the schedule does not see them.
    held: BTreeSet<Second>,
    /// Those that administrators keep.
    kept: BTreeSet<Second>,
    /// The reason why none is removed: any snapshot may be a shadow copy, or kept.
    removes_none: Option<&'static str>,
    /// Shadow copies that could not be removed, which is tried again.
    unwanted: BTreeSet<Second>,
    /// The moment until which that waits.
    unwanted_wait: Option<Instant>,
    /// The latest shadow copies that were removed: one of the same second could be taken for it by a client
    /// that has used it.
    gone: BTreeSet<Second>,
    /// Those of `existing` that could not be removed. The next list gives them another chance.
    stuck: BTreeSet<Second>,
    /// The moment at which the list was read.
    listed: Option<Instant>,
    /// The moment from which on mounts that are missing are looked for. None at the start.
    next_mounts: Option<Instant>,
    /// The reason why a snapshot is not mounted.
    unmounted: Option<String>,
    /// True after the log has told of snapshots of a time to come.
    is_ahead_told: bool,
    /// The schedule removes those that it does not keep: at the start, and when it has made one. So a snapshot
    /// that an administrator asks for takes nobody's place at once.
    thins: bool,
    /// The moment until which the schedule waits after a fault.
    waits_until: Option<Instant>,
    made: u64,
    removed: u64,
    failures: u64,
    failed: Option<Failed>,
}

impl KeptShare {
    /// `at` is the share's place in the set-up of the process, `held` are the shadow copies of an earlier run.
    /// None if they are not known.
    pub(super) fn new(
        found: &FoundPlace,
        at: Option<usize>,
        held: Option<BTreeSet<Second>>,
    ) -> Self {
        Self {
            name: found.share.clone(),
            folder: found.folder.clone(),
            is_optional: found.is_optional,
            provider: found.place.as_ref().ok().map(|place| place.kind().to_string()),
            lacks: found.lacks.clone(),
            at,
            schedule: Some(found.schedule.clone()),
            existing: Vec::new(),
            removes_none: held.is_none().then_some(UNKNOWN_COPIES),
            held: held.unwrap_or_default(),
            kept: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            unwanted_wait: None,
            gone: BTreeSet::new(),
            stuck: BTreeSet::new(),
            listed: None,
            next_mounts: None,
            unmounted: None,
            is_ahead_told: false,
            thins: true,
            waits_until: None,
            made: 0,
            removed: 0,
            failures: 0,
            failed: found.place.as_ref().err().map(|why| Failed { act: PLACE, why: why.clone() }),
        }
    }

    /// The snapshots that the schedule counts.
    fn scheduled(&self) -> Vec<Second> {
        let is_held = |taken: &&Second| self.held.contains(taken) || self.unwanted.contains(taken);
        self.existing.iter().filter(|taken| !is_held(taken)).copied().collect()
    }

    /// The number of snapshots that have a time to come: a clock was wrong, or is.
    fn ahead(&self, now: Second) -> usize {
        self.existing.iter().filter(|taken| **taken > now).count()
    }

    fn why(&self) -> Option<&str> {
        self.failed.as_ref().map(|failed| &failed.why).or(self.unmounted.as_ref()).map(|why| &**why)
    }

    fn view(&self, now: Second) -> ShareSnapshots {
        let next = self.schedule.as_ref().filter(|_| self.at.is_some() && self.listed.is_some());
        ShareSnapshots {
            share: self.name.clone(),
            provider: self.provider.clone(),
            schedule: self.schedule.as_ref().map(ToString::to_string).unwrap_or_default(),
            count: self.existing.len(),
            oldest: self.existing.iter().min().map(|taken| taken.since_1970()),
            newest: self.existing.iter().max().map(|taken| taken.since_1970()),
            ahead: self.ahead(now),
            next: next
                .and_then(|schedule| schedule.next(&self.scheduled(), now))
                .map(Second::since_1970),
            made: self.made,
            removed: self.removed,
            failures: self.failures,
            lacks: self.lacks.clone(),
            shadow_copies: Vec::new(),
            last_error: self.why().map(str::to_owned),
        }
    }
}

/// The thread's state.
pub(super) struct Keeper {
    shares: Vec<KeptShare>,
    /// None without a share that has a place.
    hands: Option<Hands>,
    server: Server,
    marks: Marks,
    views: Arc<Mutex<Vec<ShareSnapshots>>>,
}

/// The word for the one who has a snapshot made or removed.
const SCHEDULE: &str = "schedule";

/// The second that the clock shows. None before 1970 and after 9999.
fn now() -> Option<Second> {
    Second::new(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs())
}

impl Keeper {
    pub(super) fn new(
        mut shares: Vec<KeptShare>,
        hands: Option<Hands>,
        server: Server,
        marks: Marks,
    ) -> Self {
        for share in &mut shares {
            share.kept = marks.of(&share.name, &share.folder);
            if !marks.are_known() {
                share.removes_none = Some(UNKNOWN_MARKS);
            }
        }
        let views = now().map(|now| shares.iter().map(|share| share.view(now)).collect());
        for share in &shares {
            if let Some(lacks) = &share.lacks {
                tracing::warn!(target: "frevo::snapshot", share = share.name, "{lacks}");
            }
            match (&share.provider, share.why()) {
                (Some(provider), _) => {
                    tracing::info!(target: "frevo::snapshot", share = share.name, provider,
                    "snapshots of the share are kept: {}", share.schedule.as_ref().map(ToString::to_string).unwrap_or_default())
                }
                (None, why) if share.is_optional => {
                    tracing::warn!(target: "frevo::snapshot", share = share.name,
                    "the recycle bin alone keeps deleted files of the share: {}", why.unwrap_or_default())
                }
                (None, why) => tracing::error!(target: "frevo::snapshot", share = share.name,
                    "no snapshots of the share are made: {}", why.unwrap_or_default()),
            }
        }
        let views = Arc::new(Mutex::new(views.unwrap_or_default()));
        Self { shares, hands, server, marks, views }
    }

    /// Starts the thread. It goes on until the process ends.
    pub(super) fn start(mut self) -> io::Result<ForAdmin> {
        let (sender, asked) = sync_channel(WISHES);
        let for_admin = ForAdmin::new(sender, Arc::clone(&self.views));
        std::thread::Builder::new()
            .name(String::from("snapshots"))
            .spawn(move || self.keep(&asked))?;
        Ok(for_admin)
    }

    fn keep(&mut self, asked: &Receiver<Asked>) {
        loop {
            let rest = self.tick();
            match asked.recv_timeout(rest) {
                Ok(asked) => self.carry_out(asked),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Makes and removes what is due. Returns the time until the next look.
    fn tick(&mut self) -> Duration {
        let mut rest = LOOKS;
        for at in 0..self.shares.len() {
            let Some(now) = now() else { continue };
            rest = rest.min(self.tick_share(at, now));
            self.remove_unwanted(at);
            self.mount(at);
            self.tell_ahead(at, now);
        }
        self.show();
        rest
    }

    fn tick_share(&mut self, at: usize, now: Second) -> Duration {
        let Some(share) = self.shares.get(at) else { return LOOKS };
        let Some(schedule) = share.schedule.clone().filter(|_| share.at.is_some()) else {
            return LOOKS;
        };
        if share.waits_until.is_some_and(|until| until > Instant::now()) {
            return LOOKS;
        }
        let is_old = share.listed.is_none_or(|listed| listed.elapsed() >= LIST_AGE);
        let is_due = schedule.is_due(&share.scheduled(), now);
        // The list of those that exist decides, and not the remembered one.
        if (is_old || is_due) && self.list(at).is_err() {
            return self.wait(at);
        }
        let Some(share) = self.shares.get_mut(at) else { return LOOKS };
        let mut made = Ok(());
        if schedule.is_due(&share.scheduled(), now) {
            // The second has a snapshot that the schedule does not count.
            if share.existing.contains(&now) || share.gone.contains(&now) {
                return Duration::from_secs(1);
            }
            share.thins = true;
            made = self.create(at, now, SCHEDULE);
        }
        // A full disk, or a share that has as many as it can, gets room by this alone.
        if self.thin(at, now).is_err() || made.is_err() {
            return self.wait(at);
        }
        if self.shares.get(at).is_some_and(|share| share.thins) {
            return Duration::ZERO;
        }
        let next = self.shares.get(at).and_then(|share| schedule.next(&share.scheduled(), now));
        let seconds = next.map(|next| next.since_1970().saturating_sub(now.since_1970()));
        seconds.map_or(LOOKS, Duration::from_secs).clamp(Duration::from_secs(1), LOOKS)
    }

    /// Has the schedule wait after a fault of its own: faults of what others ask for do not hold it up.
    fn wait(&mut self, at: usize) -> Duration {
        if let Some(share) = self.shares.get_mut(at) {
            share.waits_until = Instant::now().checked_add(RETRY);
        }
        LOOKS
    }

    /// Removes some of the snapshots that the schedule does not keep, if it is time for that.
    fn thin(&mut self, at: usize, now: Second) -> Result<(), String> {
        if !self.shares.get(at).is_some_and(|share| share.thins) {
            return Ok(());
        }
        let surplus = self.surplus(at, now);
        let some = surplus.get(..REMOVED_AT_ONCE).unwrap_or(&surplus);
        let end = self.remove_all(at, some, SCHEDULE);
        if let Some(share) = self.shares.get_mut(at) {
            share.thins = surplus.len() > REMOVED_AT_ONCE;
        }
        end
    }

    /// Removes snapshots. One that cannot be removed, because a client has a file in it open for example, keeps
    /// no other one from being removed.
    ///
    /// # Errors
    /// The first fault.
    fn remove_all(&mut self, at: usize, all: &[Second], by: &'static str) -> Result<(), String> {
        let mut end = Ok(());
        for taken in all {
            let removed = self.remove(at, *taken, by);
            if let (Err(_), Some(share)) = (&removed, self.shares.get_mut(at)) {
                share.stuck.insert(*taken);
            }
            end = end.and(removed);
        }
        if let (Err(why), Some(share)) = (&end, self.shares.get_mut(at)) {
            // Others that were removed afterwards do not end the fault.
            share.failed = Some(Failed { act: REMOVE, why: why.clone() });
        }
        end
    }

    /// The snapshots that neither the schedule nor an administrator keeps, but for those that could not be removed.
    fn surplus(&self, at: usize, now: Second) -> Vec<Second> {
        let Some(share) = self.shares.get(at) else { return Vec::new() };
        let Some(schedule) = share.schedule.as_ref().filter(|_| share.removes_none.is_none())
        else {
            return Vec::new();
        };
        let mut surplus = schedule.surplus(&share.scheduled(), now);
        surplus.retain(|taken| !share.stuck.contains(taken) && !share.kept.contains(taken));
        surplus
    }

    /// Has the process act for a share, and notes the end.
    fn act<T>(
        &mut self,
        at: usize,
        kind: &'static str,
        act: impl FnOnce(&mut Hands, usize) -> Result<T, SnapshotFault>,
    ) -> Result<T, String> {
        let gone = || String::from("the server makes no snapshots of this share");
        let share = self.shares.get_mut(at).ok_or_else(gone)?;
        let end = match (&mut self.hands, share.at) {
            (Some(hands), Some(place)) => act(hands, place).map_err(|fault| fault.to_string()),
            _ => return Err(share.why().map_or_else(gone, str::to_owned)),
        };
        match &end {
            // Only the act that failed can show that its fault is over: a list succeeds on a full disk.
            Ok(_) if share.failed.as_ref().is_some_and(|failed| failed.act == kind) => {
                share.failed = None;
                share.waits_until = None;
            }
            Ok(_) => {}
            Err(why) => {
                share.failures += 1;
                let failed = Some(Failed { act: kind, why: why.clone() });
                if share.failed != failed {
                    tracing::error!(target: "frevo::snapshot", share = share.name, "{why}");
                }
                share.failed = failed;
            }
        }
        end
    }

    fn failed(&self, at: usize) -> Option<Failed> {
        self.shares.get(at).and_then(|share| share.failed.clone())
    }

    fn list(&mut self, at: usize) -> Result<(), String> {
        let existing = self.act(at, LIST, |hands, place| hands.list(place))?;
        if let Some(share) = self.shares.get_mut(at) {
            share.unwanted.retain(|taken| existing.contains(taken));
            share.existing = existing;
            share.stuck.clear();
            share.listed = Some(Instant::now());
        }
        Ok(())
    }

    /// Mounts the snapshots that are not mounted, if it is time for that. A fault keeps nothing else from its turn.
    fn mount(&mut self, at: usize) {
        let is_due = |share: &&mut KeptShare| {
            share.at.is_some() && share.next_mounts.is_none_or(|next| next <= Instant::now())
        };
        let share = self.shares.get_mut(at).filter(is_due);
        let (Some(share), Some(hands)) = (share, &mut self.hands) else { return };
        let Some(place) = share.at else { return };
        // The fault is one of its own: others come and go beside it.
        let (pause, fault) = match hands.mount(place) {
            Ok(rest) if rest.is_empty() => (LIST_AGE, None),
            Ok(_) => (Duration::ZERO, share.unmounted.clone()),
            Err(fault) => (RETRY, Some(fault.to_string())),
        };
        if let Some(why) = fault.as_ref().filter(|_| fault != share.unmounted) {
            tracing::error!(target: "frevo::snapshot", share = share.name, "{why}");
            share.failures += 1;
        }
        share.unmounted = fault;
        share.next_mounts = Instant::now().checked_add(pause);
    }

    /// Logs once that there are snapshots of a time to come.
    fn tell_ahead(&mut self, at: usize, now: Second) {
        let Some(share) = self.shares.get_mut(at) else { return };
        let ahead = share.ahead(now);
        if ahead > 0 && !share.is_ahead_told {
            tracing::warn!(target: "frevo::snapshot", share = share.name, snapshots = ahead,
                "the share has snapshots of a time to come: the clock of this machine is wrong, or was");
        }
        share.is_ahead_told = ahead > 0;
    }

    fn create(&mut self, at: usize, taken: Second, by: &str) -> Result<(), String> {
        let begun = Instant::now();
        let is_full = self.shares.get(at).is_some_and(|share| share.existing.len() >= LISTED);
        let before = self.failed(at);
        let end = self.act(at, CREATE, |hands, place| {
            if is_full {
                let why = format!("the share has {LISTED} snapshots, and gets no further one");
                return Err(SnapshotFault(why));
            }
            // Without the name the next attempt's fault is the same one, and is not told again.
            let nameless = |fault: SnapshotFault| fault.0.replace(&taken.to_name(), "frevo-...");
            hands.create(place, taken).map_err(|fault| SnapshotFault(nameless(fault)))
        });
        let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let (Some(share), Ok(())) = (self.shares.get_mut(at), &end) {
            share.existing.push(taken);
            share.made += 1;
            tracing::info!(target: "frevo::snapshot", share = share.name, snapshot = taken.to_name(), by,
                milliseconds, "made a snapshot");
        }
        if end.is_ok() || by != SCHEDULE || self.failed(at) != before {
            self.record(at, CREATE, taken, by, &end);
        }
        end
    }

    fn remove(&mut self, at: usize, taken: Second, by: &str) -> Result<(), String> {
        let before = self.failed(at);
        let end = self.act(at, REMOVE, |hands, place| hands.remove(place, taken));
        if let (Some(share), Ok(())) = (self.shares.get_mut(at), &end) {
            share.existing.retain(|other| *other != taken);
            share.removed += 1;
            tracing::info!(target: "frevo::snapshot", share = share.name, snapshot = taken.to_name(), by,
                "removed a snapshot");
        }
        if end.is_ok() || by != SCHEDULE || self.failed(at) != before {
            self.record(at, REMOVE, taken, by, &end);
        }
        end
    }

    fn record(
        &self,
        at: usize,
        change: &'static str,
        taken: Second,
        by: &str,
        end: &Result<(), String>,
    ) {
        let (Some(audit), Some(share)) = (self.server.audit(), self.shares.get(at)) else { return };
        let event = Event::new(Kind::Snapshot).with("change", change).with("by", by.to_owned());
        let event = event.with("share", share.name.clone()).with("snapshot", taken.to_name());
        audit.emit(match end {
            Ok(()) => event,
            Err(why) => event.status(Status::UNSUCCESSFUL).with("reason", why.clone()),
        });
    }

    /// Does what an administrator asks for.
    fn carry_out(&mut self, asked: Asked) {
        match asked {
            Asked::Rules(rules) => {
                for share in &mut self.shares {
                    let new = rules.iter().find(|rules| rules.share == share.name);
                    share.schedule = new.map(|rules| rules.schedule.clone());
                    share.thins = true;
                }
            }
            Asked::Act { act, by, answer } => {
                let end = self.answer(&act, by);
                self.show();
                // A send fails if the connection that asked is closed meanwhile.
                let _ = answer.send(end);
            }
            Asked::ShadowCopy { copy, answer } => {
                let end = self.shadow_copy(&copy);
                self.show();
                let _ = answer.send(end);
            }
        }
    }

    /// Shows the state to the admin interface.
    fn show(&self) {
        let Some(now) = now() else { return };
        *self.views.lock() = self.shares.iter().map(|share| share.view(now)).collect();
    }
}
