//! What programs do with a share: each actor does one thing after the other,
//! tells the judge before and after, and goes on whatever fails.

mod appending;
mod copying;
mod counting;
mod keeping;
mod naming;
mod registers;

pub use copying::{SOURCE, source};
pub use registers::FILES;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_client::{Cause, Error, File, OpenOptions, Share};
use frevo_wire::Status;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::dice::Dice;
use crate::judge::{End, Judge, Moment};
use crate::network::Network;
use crate::trace::Trace;
use crate::{event, violation};

/// Longer than any call may take: every way of waiting for others ends sooner
/// once the weather is good.
const CALL_MAX: Duration = Duration::from_secs(1_500);
/// After that long without a disturbance a connection is as good as new.
const CALM: Duration = Duration::from_secs(300);

/// What all actors share.
pub struct Stage {
    /// What happened.
    pub trace: Arc<Trace>,
    /// Who knows the truth.
    pub judge: Mutex<Judge>,
    /// The network.
    pub network: Arc<Network>,
    /// The disk has failed at times.
    pub is_disk_bad: AtomicBool,
    /// So has the store of persistent handles.
    pub is_store_bad: AtomicBool,
    /// The server has fallen at times.
    pub has_fallen: AtomicBool,
    /// When actors stop.
    pub until: Instant,
}

impl Stage {
    /// Whether the store of persistent handles has ever failed.
    pub(crate) fn has_store_failed(&self) -> bool {
        self.is_store_bad.load(Ordering::Relaxed)
    }
}

/// One actor.
pub struct Actor {
    /// Which one, from 1.
    pub id: u64,
    /// On which client.
    pub client: usize,
    /// Where.
    pub share: Share,
    /// The share is continuous.
    pub is_lasting: bool,
    /// Its chance.
    pub dice: Dice,
    /// The rest.
    pub stage: Arc<Stage>,
    /// What it wrote last.
    pub sequence: u64,
}

/// A call that has ended.
pub(crate) struct Ended<T> {
    /// When it was asked.
    pub(crate) asked: Moment,
    /// Whether the client's connections were disturbed meanwhile.
    pub(crate) disturbed: bool,
    /// What it returned.
    pub(crate) outcome: Result<T, Failed>,
    /// The handle is lost.
    pub(crate) is_handle_lost: bool,
}

/// A call that failed as it may.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Failed {
    /// The server said so.
    Status(Status),
    /// The connection, the handle, the patience.
    Lost,
}

impl<T> Ended<T> {
    /// What became of a call that changes something, when a refused one changes
    /// nothing.
    pub(crate) const fn end(&self) -> End {
        match &self.outcome {
            Ok(_) => End::Done { again: self.disturbed },
            Err(Failed::Status(_)) if !self.disturbed => End::Not,
            Err(_) => End::Unknown,
        }
    }
}

impl Actor {
    /// Acts until the time is over.
    pub async fn act(mut self) {
        while Instant::now() < self.stage.until && !self.stage.trace.is_violated() {
            match self.dice.below(13) {
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

    /// A value that nobody has written before.
    pub(crate) const fn value(&mut self) -> u64 {
        self.sequence += 1;
        self.id << 32 | self.sequence
    }

    /// Makes a call and says how it ended; `may` are statuses that are in order.
    pub(crate) async fn call<T>(
        &self,
        what: fmt::Arguments<'_>,
        may: &[Status],
        call: impl Future<Output = frevo_client::Result<T>>,
    ) -> Ended<T> {
        let Stage { trace, judge, network, .. } = &*self.stage;
        let asked = judge.lock().moment();
        event!(trace, "a{} c{} {what}", self.id, self.client);
        let before = network.losses(self.client);
        let outcome = timeout(CALL_MAX, call).await;
        let disturbed = network.losses(self.client) != before;
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
                Err(self.judged(what, may, &error))
            }
        };
        Ended { asked, disturbed, outcome, is_handle_lost }
    }

    /// Whether a call may fail like that.
    fn judged(&self, what: fmt::Arguments<'_>, may: &[Status], error: &Error) -> Failed {
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
            Cause::Transport(_) | Cause::Unknown => !is_calm,
            Cause::HandleLost => stage.network.losses(self.client) > 0,
            _ => false,
        };
        if !is_fine {
            violation!(stage.trace, "a{} {what}: {error} ({:?})", self.id, error.cause());
        }
        error.status().map_or(Failed::Lost, Failed::Status)
    }

    /// Opens a file.
    pub(crate) async fn open(&self, options: OpenOptions, name: &str) -> Option<File> {
        // A persistent or durable Open of a client that is away keeps others out.
        let may = [Status::FILE_NOT_AVAILABLE];
        self.call(format_args!("open {name}"), &may, options.open(&self.share, name))
            .await
            .outcome
            .ok()
    }

    /// Closes a file, or lets go of it.
    pub(crate) async fn close(&mut self, file: File) {
        if self.dice.percent(30) {
            event!(self.stage.trace, "a{} drops {}", self.id, file.url());
            return;
        }
        let url = String::from(file.url());
        let _ = self.call(format_args!("close {url}"), &[], file.close()).await;
    }

    /// Flushes a file; the moment at which it was asked, if it went well.
    pub(crate) async fn flush(&self, file: &File) -> Option<Moment> {
        let flushed = self.call(format_args!("flush {}", file.url()), &[], file.sync()).await;
        flushed.outcome.ok()?;
        self.stage.judge.lock().names_are_stable(flushed.asked);
        Some(flushed.asked)
    }
}
