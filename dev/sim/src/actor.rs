//! Actors: programs that use a share. Each does one thing after the other, informs the judge before
//! and after, and continues after failures.

mod appending;
mod copying;
mod counting;
mod keeping;
mod naming;
mod registers;
mod squeezing;
mod watching;

pub use copying::{SOURCE, source};
pub use registers::FILES;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_client::{Cause, Error, File, OpenOptions, Share, Status};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::dice::Dice;
use crate::judge::{End, Judge, Moment};
use crate::network::Network;
use crate::trace::Trace;
use crate::{event, violation};

/// Longer than any call may take: every wait ends sooner once the faults have stopped.
const CALL_MAX: Duration = Duration::from_secs(1_500);
/// Time without a disturbance after which a connection counts as undisturbed.
const CALM: Duration = Duration::from_secs(300);
/// Time in which a client sees connections closed whose server has told of the session's end.
const CLOSED_WITHIN: Duration = Duration::from_millis(20);

/// The parts of a run that all actors share.
pub struct Stage {
    /// The record of events.
    pub trace: Arc<Trace>,
    /// The judge of all results.
    pub judge: Mutex<Judge>,
    /// The simulated network.
    pub network: Arc<Network>,
    /// True if the disk has ever failed.
    pub is_disk_bad: AtomicBool,
    /// True if the store of persistent handles has ever failed.
    pub is_store_bad: AtomicBool,
    /// True if the server has ever fallen.
    pub has_fallen: AtomicBool,
    /// The last grace: a time in which nobody is refused because a handle waits for its client.
    pub grace: Mutex<Option<Grace>>,
    /// The time at which actors stop.
    pub until: Instant,
}

/// The time after a takeover in which clients that had handles come first.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    /// Its beginning.
    pub since: Instant,
    /// Its end.
    pub until: Instant,
}

impl Stage {
    /// The parts of a run in which nothing has happened.
    pub fn new(trace: &Arc<Trace>, network: &Arc<Network>, until: Instant) -> Self {
        Self {
            trace: Arc::clone(trace),
            judge: Mutex::new(Judge::new(Arc::clone(trace))),
            network: Arc::clone(network),
            is_disk_bad: AtomicBool::new(false),
            is_store_bad: AtomicBool::new(false),
            has_fallen: AtomicBool::new(false),
            grace: Mutex::default(),
            until,
        }
    }

    /// Returns true if the store of persistent handles has ever failed.
    pub(crate) fn has_store_failed(&self) -> bool {
        self.is_store_bad.load(Ordering::Relaxed)
    }
}

/// One simulated program on a client.
pub struct Actor {
    /// The number of the actor, from 1.
    pub id: u64,
    /// The number of its client's line to the server.
    pub client: usize,
    /// The share that it uses.
    pub share: Share,
    /// True for a continuously available share.
    pub is_lasting: bool,
    /// True if its share compresses.
    pub squeezes: bool,
    /// The actor's own random number generator.
    pub dice: Dice,
    /// The shared parts of the run.
    pub stage: Arc<Stage>,
    /// The number of its last write.
    pub sequence: u64,
}

/// A call that has ended, with its result.
pub(crate) struct Ended<T> {
    /// The moment of the request.
    pub(crate) asked: Moment,
    /// True if the client's connections were disturbed during the call, or when it began.
    pub(crate) disturbed: bool,
    /// The result of the call.
    pub(crate) outcome: Result<T, Failed>,
    /// True if the handle is lost.
    pub(crate) is_handle_lost: bool,
}

/// An expected failure of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Failed {
    /// A status of the server.
    Status(Status),
    /// A lost connection or handle, or a timeout.
    Lost,
}

impl<T> Ended<T> {
    /// Returns how a changing call ended, for calls that change nothing when refused.
    pub(crate) const fn end(&self) -> End {
        match &self.outcome {
            Ok(_) => End::Done { again: self.disturbed },
            Err(Failed::Status(_)) if !self.disturbed => End::Not,
            Err(_) => End::Unknown,
        }
    }
}

impl Actor {
    /// Acts until the end of the run.
    pub async fn act(mut self) {
        while Instant::now() < self.stage.until && !self.stage.trace.is_violated() {
            if self.squeezes && self.dice.percent(25) {
                self.squeezing().await;
            }
            match self.dice.below(14) {
                13 => self.watching().await,
                12 => self.copy().await,
                10..12 => self.keeping().await,
                0..4 => self.registers().await,
                4..6 => self.append().await,
                6..8 => self.count().await,
                _ => self.names().await,
            }
            let pause = *self.dice.pick(&[0, 1, 50, 2_000]);
            sleep(self.dice.millis(0, pause)).await;
        }
        event!(self.stage.trace, "a{} stops", self.id);
    }

    /// Acts a few times, as a client that comes and goes.
    pub(crate) async fn visit(&mut self, times: u64) {
        for _ in 0..times {
            if Instant::now() >= self.stage.until || self.stage.trace.is_violated() {
                return;
            }
            match self.dice.below(4) {
                0 => self.append().await,
                1 => self.count().await,
                _ => self.registers().await,
            }
            sleep(self.dice.millis(0, 3_000)).await;
        }
    }

    /// Returns a value that no actor has written before.
    pub(crate) const fn value(&mut self) -> u64 {
        self.sequence += 1;
        self.id << 32 | self.sequence
    }

    /// Makes a call and returns its end; `may` are the statuses that are allowed.
    pub(crate) async fn call<T>(
        &self,
        what: fmt::Arguments<'_>,
        may: &[Status],
        call: impl Future<Output = frevo_client::Result<T>>,
    ) -> Ended<T> {
        let Stage { trace, judge, network, .. } = &*self.stage;
        let (asked, asked_at) = (judge.lock().moment(), Instant::now());
        event!(trace, "a{} c{} {what}", self.id, self.client);
        let before = network.losses(self.client);
        let was_troubled = network.is_troubled(self.client);
        let channels = self.share.session().info().map_or(0, |info| info.channels);
        let unbroken = network.unbroken(self.client, channels);
        let told = || self.share.witness().map_or(0, |witness| witness.heeded);
        let told_before = told();
        network.call_begins(self.client);
        let outcome = timeout(CALL_MAX, call).await;
        let lent = network.call_ends(self.client);
        if lent > 0 {
            violation!(
                trace,
                "a{} {what}: {lent} buffers are lent and no call is under way",
                self.id
            );
        }
        let lost = |error: &Error| matches!(error.cause(), Cause::Transport(_) | Cause::Unknown);
        if matches!(&outcome, Ok(Err(error)) if lost(error)) {
            // A server that tells a session of its end closes the connections right after that.
            sleep(CLOSED_WITHIN).await;
        }
        let disturbed = was_troubled || network.losses(self.client) != before;
        let is_handle_lost =
            matches!(&outcome, Ok(Err(error)) if matches!(error.cause(), Cause::HandleLost));
        let outcome = match outcome {
            Err(_) => {
                violation!(trace, "a{} {what}: the call does not end", self.id);
                Err(Failed::Lost)
            }
            Ok(Ok(value)) => {
                event!(trace, "a{} {what}: done", self.id);
                Ok(value)
            }
            Ok(Err(error)) => {
                event!(trace, "a{} {what}: {error}", self.id);
                // A client that a witness has told to leave ends its connections itself.
                let has_stayed = told() == told_before;
                let lived = has_stayed && network.is_one_unbroken(&unbroken);
                Err(self.judged(what, may, &error, lived))
            }
        };
        if let Err(Failed::Status(Status::FILE_NOT_AVAILABLE)) = outcome {
            self.check_grace(what, asked_at);
        }
        Ended { asked, disturbed, outcome, is_handle_lost }
    }

    /// Reports a refusal, because of a handle that waits for its client, which should have waited: a
    /// request since the beginning of a grace that was refused before its end.
    fn check_grace(&self, what: fmt::Arguments<'_>, asked: Instant) {
        let grace = *self.stage.grace.lock();
        if grace.is_some_and(|grace| asked >= grace.since && Instant::now() < grace.until) {
            violation!(self.stage.trace, "a{} {what}: refused in the grace", self.id);
        }
    }

    /// Checks whether a call may fail with this error; reports a violation if not. `lived`: a
    /// channel of the session was well all the time.
    fn judged(
        &self,
        what: fmt::Arguments<'_>,
        may: &[Status],
        error: &Error,
        lived: bool,
    ) -> Failed {
        const OF_THE_DISK: [Status; 4] = [
            Status::DISK_FULL,
            Status::UNEXPECTED_IO_ERROR,
            Status::IO_DEVICE_ERROR,
            Status::INSUFFICIENT_RESOURCES,
        ];
        let stage = &*self.stage;
        let is_calm = stage.network.is_calm_since(self.client, CALM);
        let is_fine = match error.cause() {
            Cause::Status(status) if may.contains(status) => true,
            Cause::Status(status) if OF_THE_DISK.contains(status) => {
                stage.is_disk_bad.load(Ordering::Relaxed)
            }
            Cause::Transport(_) | Cause::Unknown => !is_calm && !lived,
            Cause::HandleLost => stage.network.losses(self.client) > 0,
            _ => false,
        };
        if !is_fine {
            violation!(stage.trace, "a{} {what}: {error} ({:?})", self.id, error.cause());
        }
        error.status().map_or(Failed::Lost, Failed::Status)
    }

    /// Opens a file as an actor does, and records the result.
    pub(crate) async fn open(&self, options: OpenOptions, name: &str) -> Option<File> {
        // The file may still be open by a disconnected client (a durable or persistent Open), so
        // FILE_NOT_AVAILABLE is no violation.
        let may = [Status::FILE_NOT_AVAILABLE];
        let opened =
            self.call(format_args!("open {name}"), &may, options.open(&self.share, name)).await;
        let file = opened.outcome.ok()?;
        if let Some(info) = self.share.session().info() {
            let mut judge = self.stage.judge.lock();
            judge.dialects.known(self.client, self.share.name(), info.dialect);
        }
        Some(file)
    }

    /// Closes a file, or abandons it.
    pub(crate) async fn close(&mut self, file: File) {
        if self.dice.percent(30) {
            event!(self.stage.trace, "a{} drops {}", self.id, file.url());
            return;
        }
        let url = String::from(file.url());
        let _ = self.call(format_args!("close {url}"), &[], file.close()).await;
    }

    /// Flushes a file; returns the moment of the request if it succeeded.
    pub(crate) async fn flush(&self, file: &File) -> Option<Moment> {
        let flushed = self.call(format_args!("flush {}", file.url()), &[], file.sync_all()).await;
        flushed.outcome.ok()?;
        self.stage.judge.lock().names_are_stable(flushed.asked);
        Some(flushed.asked)
    }
}
