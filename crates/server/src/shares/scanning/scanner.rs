//! [`Scanner`]: the service with the files that wait for it and the results that are remembered.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use frevo_store::vfs::{KindWanted, OpenHow};
use frevo_store::{Fault, FileKey, Name, Node};
use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::FoundAct;
use super::acts::{self, InfectedFile};
use super::exchange::{Failure, Patience, Source, carry_out};
use super::flight::{Ended, Find, Flight, Job, Scanned, Waiter, Wanted};
use super::kept;
use super::lines::{Lines, Running};
use super::results::{Finding, Kept, Results};
use super::service::{self, ScanService};
use crate::base::ambient::{Ambient as _, Host};
use crate::base::host;
use crate::base::limits::{
    CHANGE_TICK, SCAN_SLACK, SCANNER_CONNECT, SCANNER_PAUSE, SCANS_PER_OPEN, SIGNATURES_AGAIN,
    SIGNATURES_FOR,
};
use crate::base::panics;
use crate::base::pools::threads::Threads;
use crate::base::scanners::{ClamdScan, ClamdVersion, IcapOptions, IcapScan, Offer, Verdict};

#[derive(Default)]
struct State {
    results: Results,
    /// Files that wait or are being scanned.
    under_way: HashMap<FileKey, Arc<Flight>>,
    lines: Lines<Job>,
    running: Running,
    /// The abilities of the service, with the time until which they count.
    offer: Option<(Offer, Instant)>,
    /// Until then the service counts as out of reach.
    unreachable_until: Option<Instant>,
}

impl State {
    /// The number of the signatures by which the service scans, if it is known and new enough.
    fn signatures(&self) -> Option<u64> {
        let (offer, until) = self.offer.as_ref()?;
        (Instant::now() < *until).then(|| number(&offer.tag))
    }

    /// The remembered result by which a file is judged. None if it has to be scanned.
    fn known(&mut self, key: FileKey, changed: FileTime, scans: bool) -> Option<Finding> {
        let Some(kept) = self.results.find(key) else {
            return (!scans).then_some(Finding::Nothing);
        };
        let is_of_now = kept.changed == changed;
        match kept.found {
            // It may be scanned again, and be let pass then.
            Finding::Unscanned | Finding::Blocked => None,
            Finding::Nothing if !scans => Some(Finding::Nothing),
            Finding::Virus(_) if !scans && is_of_now => Some(kept.found),
            found => (is_of_now && self.signatures() == Some(kept.signatures)).then_some(found),
        }
    }
}

/// A number for a text: FNV-1a.
fn number(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Numbers about a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanCounts {
    /// Files that were scanned.
    pub scans: u64,
    /// Viruses that were found.
    pub finds: u64,
    /// Scans that failed.
    pub failures: u64,
    /// Files that wait for a scan or are being scanned.
    pub waiting: usize,
}

impl ScanCounts {
    /// The sums of the numbers of two services.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            scans: self.scans.saturating_add(other.scans),
            finds: self.finds.saturating_add(other.finds),
            failures: self.failures.saturating_add(other.failures),
            waiting: self.waiting.saturating_add(other.waiting),
        }
    }
}

/// A service that scans, for all shares of the process that name it.
pub struct Scanner {
    service: ScanService,
    at_once: usize,
    timeout: Duration,
    threads: Arc<Threads>,
    state: Mutex<State>,
    scans: AtomicU64,
    finds: AtomicU64,
    failures: AtomicU64,
    /// True if the latest scan failed: only the first failure is logged.
    is_failing: AtomicBool,
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner").field("service", &self.service).finish_non_exhaustive()
    }
}

/// The scanners of the process. A reload finds those that are there.
static SCANNERS: Mutex<Vec<Weak<Scanner>>> = Mutex::new(Vec::new());

/// Returns the scanners of the process.
pub(super) fn all() -> Vec<Arc<Scanner>> {
    SCANNERS.lock().iter().filter_map(Weak::upgrade).collect()
}

/// The results of a service outlast its scanner, which may be made again.
impl Drop for Scanner {
    fn drop(&mut self) {
        kept::put_back(self.name(), self.results());
    }
}

impl Scanner {
    /// The scanner of a service with these limits.
    pub(super) fn shared(service: ScanService, at_once: usize, timeout: Duration) -> Arc<Self> {
        let mut scanners = SCANNERS.lock();
        scanners.retain(|scanner| scanner.strong_count() > 0);
        let is_same = |scanner: &Arc<Self>| {
            (&scanner.service, scanner.at_once, scanner.timeout) == (&service, at_once, timeout)
        };
        if let Some(scanner) = scanners.iter().filter_map(Weak::upgrade).find(is_same) {
            return scanner;
        }
        let mut state = State::default();
        for (key, kept) in kept::take(&service.to_string()) {
            state.results.insert(key, kept);
        }
        let scanner = Arc::new(Self {
            service,
            at_once,
            timeout,
            threads: Arc::new(Threads::new("frevo-scan", at_once, host::begin_thread)),
            state: Mutex::new(state),
            scans: AtomicU64::new(0),
            finds: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        });
        scanners.push(Arc::downgrade(&scanner));
        scanner
    }

    /// The name of the service.
    pub(super) fn name(&self) -> String {
        self.service.to_string()
    }

    /// The results that are remembered, those that were asked for lately last.
    pub(super) fn results(&self) -> Vec<(FileKey, Kept)> {
        self.state.lock().results.all()
    }

    /// Returns the numbers of now.
    pub fn counts(&self) -> ScanCounts {
        ScanCounts {
            scans: self.scans.load(Ordering::Relaxed),
            finds: self.finds.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            waiting: self.waiting(),
        }
    }

    fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.lines.count() + state.running.count()
    }

    /// Has a file scanned that was changed, in the background.
    pub(crate) fn scan_later(self: &Arc<Self>, wanted: Wanted, changed: FileTime) {
        // A scan that has begun may be that of the file before the change: this one follows it.
        let _ = self.enter(&mut self.state.lock(), wanted, changed, true);
    }

    /// Has a file scanned when it is opened, also where opens alone scan nothing.
    pub(crate) fn mark_unscanned(&self, key: FileKey, changed: FileTime) {
        self.state.lock().results.insert(key, Kept::unscanned(changed));
    }

    /// Returns the verdict about the file `key` that is to be read, and waits for its scan if one is needed.
    /// `changed` reads the host's time of the last change. `scans` is false if only scans in the background
    /// count, and those that have found something.
    pub(crate) async fn verdict(
        self: &Arc<Self>,
        key: FileKey,
        wanted: impl Fn() -> Wanted,
        changed: impl Fn() -> Option<FileTime>,
        scans: bool,
    ) -> Scanned {
        let waits = self.wait(key, wanted, changed, scans);
        // A service that does not answer ends its scan in time; one that is not asked in time ends this.
        tokio::time::timeout(self.timeout + SCAN_SLACK, waits).await.unwrap_or(Scanned::Unscanned)
    }

    async fn wait(
        self: &Arc<Self>,
        key: FileKey,
        wanted: impl Fn() -> Wanted,
        changed: impl Fn() -> Option<FileTime>,
        scans: bool,
    ) -> Scanned {
        let mut is_clean = false;
        for _ in 0..SCANS_PER_OPEN {
            let Some(now) = changed() else { return Scanned::Unscanned };
            let waiter = match self.ask(key, &wanted, now, scans) {
                Asked::Known(found) => return judged(&found),
                Asked::Wait(waiter) => waiter,
            };
            let mut told = waiter.0.tell.subscribe();
            let ended = told.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
            let Some(ended) = ended else { return Scanned::Unscanned };
            is_clean = ended.is_clean || ended.found == Some(Finding::Nothing);
            match ended.found {
                // A find counts, although the file may have changed meanwhile.
                Some(found @ (Finding::Virus(_) | Finding::Blocked)) => return judged(&found),
                Some(found) if ended.changed == now => return judged(&found),
                _ => {}
            }
        }
        // A file that others change all the time, such as a log: what they write after this open is not
        // scanned either.
        if is_clean { Scanned::Passed } else { Scanned::Unscanned }
    }

    fn ask(
        self: &Arc<Self>,
        key: FileKey,
        wanted: &impl Fn() -> Wanted,
        now: FileTime,
        scans: bool,
    ) -> Asked {
        let mut state = self.state.lock();
        if let Some(flight) = state.under_way.get(&key) {
            let waiter = Waiter::new(flight);
            state.lines.hurry(key);
            // Its own turn may have passed while the background had its places.
            let scanner = Arc::clone(self);
            let _ = self.threads.give(Box::new(move || scanner.work()));
            return Asked::Wait(waiter);
        }
        if let Some(found) = state.known(key, now, scans) {
            return Asked::Known(found);
        }
        match self.enter(&mut state, wanted(), now, false) {
            Some(flight) => Asked::Wait(Waiter::new(&flight)),
            None => Asked::Known(Finding::Unscanned),
        }
    }

    /// Puts a file into the line of its account. None if there is no place, or no thread.
    fn enter(
        self: &Arc<Self>,
        state: &mut State,
        wanted: Wanted,
        changed: FileTime,
        is_background: bool,
    ) -> Option<Arc<Flight>> {
        let flight =
            Arc::new(Flight { waiters: AtomicUsize::new(0), tell: watch::Sender::new(None) });
        let (key, owner) = (wanted.key, wanted.owner);
        let until = (!is_background).then(|| Instant::now() + self.timeout);
        let job = Job { wanted, changed, until, is_background, flight: Arc::clone(&flight) };
        let scanner = Arc::clone(self);
        let has_entered = state.lines.add(owner, job).is_ok()
            && self.threads.give(Box::new(move || scanner.work())).is_ok();
        if !has_entered {
            state.results.insert(key, Kept::unscanned(changed));
            return None;
        }
        state.under_way.insert(key, Arc::clone(&flight));
        Some(flight)
    }

    /// Carries out jobs as long as there is one that may run.
    fn work(&self) {
        loop {
            let mut state = self.state.lock();
            let State { lines, running, .. } = &mut *state;
            let Some(job) = lines.next(running, self.at_once) else { return };
            running.begin(job.wanted.owner, job.is_background);
            drop(state);
            self.end(job);
        }
    }

    /// Carries out a job and tells its end.
    fn end(&self, job: Job) {
        let (key, owner, is_background) = (job.wanted.key, job.wanted.owner, job.is_background);
        let flight = Arc::clone(&job.flight);
        // After a panic the file counts as not scanned.
        let mut ended = Ended::with(job.changed, Some(Finding::Unscanned));
        panics::contained(|| ended = self.carry_out(&job));
        // The node and the charge go before anybody is told.
        let Job { wanted: Wanted { charge, node, .. }, .. } = job;
        drop((charge, node));
        self.leave(key, &flight);
        self.state.lock().running.end(owner, is_background);
        flight.tell.send_replace(Some(ended));
    }

    /// The next who asks finds the result, or begins anew. A change meanwhile may have begun the next scan.
    fn leave(&self, key: FileKey, flight: &Arc<Flight>) {
        let mut state = self.state.lock();
        if state.under_way.get(&key).is_some_and(|one| Arc::ptr_eq(one, flight)) {
            state.under_way.remove(&key);
        }
    }

    fn carry_out(&self, job: &Job) -> Ended {
        let waiters = &job.flight.waiters;
        let is_given_up = || !job.is_background && waiters.load(Ordering::Relaxed) == 0;
        let opened;
        let node = match &job.wanted.node {
            Some(node) => &**node,
            None => match self.open(&job.wanted) {
                Some(node) => {
                    opened = node;
                    &*opened
                }
                // The name has gone or is another file's by now: the file is scanned when it is opened.
                None => {
                    self.mark_unscanned(job.wanted.key, job.changed);
                    return Ended::with(job.changed, None);
                }
            },
        };
        let Some((changed, size)) = settled(node) else {
            return Ended::with(job.changed, Some(Finding::Unscanned));
        };
        let until = job.until.unwrap_or_else(|| Instant::now() + self.timeout);
        let signatures = self.current_signatures(until);
        if let Some(kept) = self.still_true(job.wanted.key, changed, signatures) {
            return Ended::with(changed, Some(kept));
        }
        let patience = Patience { until, is_given_up: &is_given_up };
        let verdict = self.scan(node, size, &patience);
        if matches!(verdict, Err(Failure::GivenUp)) {
            // Somebody who waits since then begins anew.
            return Ended::with(changed, None);
        }
        let found = self.noted(verdict, &job.wanted.find.name);
        let is_changed = changed_of(node) != Some(changed);
        if is_changed && found == Finding::Nothing {
            self.mark_unscanned(job.wanted.key, changed);
            return Ended { changed, found: None, is_clean: true };
        }
        if let Finding::Virus(virus) = &found {
            // Nothing that was written since the scan is moved.
            self.act(&job.wanted, node, virus, !is_changed);
        }
        let signatures = signatures.unwrap_or_default();
        let kept = match found {
            // It is asked again at the next open.
            Finding::Blocked => Kept::unscanned(changed),
            _ => Kept { changed, signatures, found: found.clone() },
        };
        if is_settled(changed) {
            self.state.lock().results.insert(job.wanted.key, kept);
        }
        Ended::with(changed, Some(found))
    }

    /// Opens the file for a scan, as the server's own user.
    fn open(&self, wanted: &Wanted) -> Option<Arc<dyn Node>> {
        let how = OpenHow { read: true, kind: KindWanted::NotDirectory, ..OpenHow::LOOK };
        let opened = wanted.find.files.open(&wanted.find.name, &how).ok()?;
        (opened.node.key() == wanted.key).then_some(opened.node)
    }

    /// A remembered result that still holds. Where the service does not tell its signatures, that of any does.
    fn still_true(
        &self,
        key: FileKey,
        changed: FileTime,
        signatures: Option<u64>,
    ) -> Option<Finding> {
        let kept = self.state.lock().results.find(key)?;
        let is_true = kept.changed == changed
            && kept.found != Finding::Unscanned
            && signatures.is_none_or(|signatures| signatures == kept.signatures);
        is_true.then_some(kept.found)
    }

    /// The number of the service's signatures, which is asked if it is not known. A service that does not
    /// answer counts as unchanged for a while, so that known files do not wait for it. None if it has never answered.
    fn current_signatures(&self, until: Instant) -> Option<u64> {
        let known = self.state.lock().signatures();
        if known.is_some() {
            return known;
        }
        let until = until.min(Instant::now() + SCANNER_CONNECT);
        let patience = Patience { until, is_given_up: &|| false };
        let offer = self.connect().and_then(|socket| match self.service.icap() {
            Some(place) => carry_out(&socket, &mut IcapOptions::new(place), None, &patience),
            None => carry_out(&socket, &mut ClamdVersion::default(), None, &patience),
        });
        let mut state = self.state.lock();
        let (offer, time) = match offer {
            Ok(offer) => (offer, SIGNATURES_FOR),
            // It scans without telling its signatures.
            Err(Failure::Refused(_)) => (Offer::default(), SIGNATURES_FOR),
            Err(_) => {
                state.unreachable_until = Some(Instant::now() + SCANNER_PAUSE);
                (state.offer.take()?.0, SIGNATURES_AGAIN)
            }
        };
        let signatures = number(&offer.tag);
        state.offer = Some((offer, Instant::now() + time));
        Some(signatures)
    }

    /// Connects with the service, unless it was out of reach a moment ago.
    fn connect(&self) -> Result<OwnedFd, Failure> {
        let unreachable = |why: String| Failure::Unreachable(why);
        if self.state.lock().unreachable_until.is_some_and(|until| Instant::now() < until) {
            return Err(unreachable(String::from("the last attempt failed a moment ago")));
        }
        service::connect(&self.service).map_err(|error| unreachable(error.to_string()))
    }

    fn scan(
        &self,
        node: &dyn Node,
        size: u64,
        patience: &Patience<'_>,
    ) -> Result<Verdict, Failure> {
        let socket = self.connect()?;
        let source = Some(Source::new(node, size));
        match self.service.icap() {
            Some(place) => {
                let offer = self.state.lock().offer.as_ref().map(|(offer, _)| offer.clone());
                let mut scan = IcapScan::new(place, &offer.unwrap_or_default(), size);
                carry_out(&socket, &mut scan, source, patience)
            }
            None => carry_out(&socket, &mut ClamdScan::default(), source, patience),
        }
    }

    /// Counts a verdict and logs a failure.
    fn noted(&self, verdict: Result<Verdict, Failure>, name: &Name) -> Finding {
        let failure = match verdict {
            Ok(verdict) => {
                self.scans.fetch_add(1, Ordering::Relaxed);
                if self.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(target: "frevo::scan", service = %self.service,
                        "files are scanned again");
                }
                return match verdict {
                    Verdict::Clean => Finding::Nothing,
                    Verdict::Infected(virus) => Finding::Virus(virus.into()),
                    Verdict::Blocked => {
                        // A client may ask for many of them.
                        tracing::debug!(target: "frevo::scan", service = %self.service,
                            file = ?name.path(), "the service lets a file not pass, and names no virus");
                        Finding::Blocked
                    }
                };
            }
            Err(failure) => failure,
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        if let Failure::Unreachable(_) = failure {
            self.state.lock().unreachable_until = Some(Instant::now() + SCANNER_PAUSE);
        }
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "frevo::scan", service = %self.service, file = ?name.path(), %failure,
                "a file cannot be scanned; further failures are not logged until a scan succeeds");
        }
        Finding::Unscanned
    }

    /// Does to a file with a virus what its share wants, and records it.
    fn act(&self, wanted: &Wanted, node: &dyn Node, virus: &str, may_move: bool) {
        self.finds.fetch_add(1, Ordering::Relaxed);
        let Find { event, act, files, name, life, epoch } = &wanted.find;
        let may_move = may_move && life.serves_since(*epoch);
        let act = if may_move { act } else { &FoundAct::Deny };
        let fate = acts::carry_out(act, &InfectedFile { files, name, key: wanted.key, node });
        let (action, to) = (fate.action, fate.to.unwrap_or_default());
        tracing::warn!(target: "frevo::scan", file = ?name.path(), virus, action, to = ?to,
            "a virus was found");
        if let Some((audit, event)) = event {
            let event = event.clone().status(Status::VIRUS_INFECTED);
            let event = event.with("virus", virus).with("action", action);
            let event = if to.is_empty() { event } else { event.with("to", to) };
            audit.emit(event);
        }
    }
}

enum Asked {
    Known(Finding),
    Wait(Waiter),
}

/// The host's time of the file's last change, which no client sets; the file system's, where there is no host.
pub(crate) fn changed_of(node: &dyn Node) -> Option<FileTime> {
    match node.commitment() {
        Ok(facts) => Some(facts.unchanged_since),
        Err(Fault::NotSupported) => Some(node.stat_without_eas().ok()?.changed),
        Err(_) => None,
    }
}

fn judged(found: &Finding) -> Scanned {
    match found {
        Finding::Nothing => Scanned::Passed,
        Finding::Virus(_) | Finding::Blocked => Scanned::Infected,
        Finding::Unscanned => Scanned::Unscanned,
    }
}

/// The age of a change by the host's clock; 0 for one in the future.
fn age(changed: FileTime) -> Duration {
    let ticks = Host.now().0.saturating_sub(changed.0);
    Duration::from_nanos(ticks.saturating_mul(100))
}

/// True if a change from now on has another time than `changed`.
fn is_settled(changed: FileTime) -> bool {
    age(changed) >= CHANGE_TICK
}

/// The time of the last change and the size of a file. It waits until a later change has another time: the
/// kernel's clock of files moves in ticks.
fn settled(node: &dyn Node) -> Option<(FileTime, u64)> {
    let changed = changed_of(node)?;
    let rest = CHANGE_TICK.saturating_sub(age(changed));
    if !rest.is_zero() {
        std::thread::sleep(rest);
    }
    let changed = changed_of(node)?;
    Some((changed, node.stat_without_eas().ok()?.end_of_file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_holds_for_its_change_and_its_signatures() {
        let (key, then, now) = (FileKey::of_file(1, 2), FileTime(1), FileTime(2));
        let later = Instant::now() + SIGNATURES_FOR;
        let offer = |tag: &[u8]| Some((Offer { tag: tag.to_vec(), preview: None }, later));
        let mut state = State { offer: offer(b"1"), ..State::default() };
        assert_eq!(state.known(key, then, true), None);
        assert_eq!(state.known(key, then, false), Some(Finding::Nothing));
        let virus = Finding::Virus("Eicar".into());
        let keep = |state: &mut State, found: &Finding| {
            let kept = Kept { changed: then, signatures: number(b"1"), found: found.clone() };
            state.results.insert(key, kept);
        };
        for found in [&Finding::Nothing, &virus] {
            keep(&mut state, found);
            assert_eq!(state.known(key, then, true).as_ref(), Some(found));
            assert_eq!(state.known(key, now, true), None);
        }
        // Where opens alone scan nothing, a find is looked at again once the file has changed.
        assert_eq!(state.known(key, now, false), None);
        keep(&mut state, &Finding::Unscanned);
        assert_eq!((state.known(key, then, true), state.known(key, then, false)), (None, None));
        keep(&mut state, &virus);
        state.offer = offer(b"2");
        assert_eq!(state.known(key, then, true), None);
        assert_eq!(state.known(key, then, false), Some(virus));
    }
}
