//! A scan from the request for it to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use frevo_store::state::Epoch;
use frevo_store::{FileKey, Name, Node, Vfs};
use frevo_wire::dtyp::FileTime;
use tokio::sync::watch;

use super::FoundAct;
use super::lines::Waits;
use super::results::Finding;
use crate::audit::{Audit, Event};
use crate::shares::life::Life;

/// Memory that is charged until it is dropped.
pub(crate) type Charge = Box<dyn Send>;

/// A find, for the audit log, and the place of the file for the act that follows.
pub(crate) struct Find {
    /// The log with the event to which the find is added. None without a log.
    pub(crate) event: Option<(Audit, Event)>,
    pub(crate) act: FoundAct,
    /// The life of the share, and the epoch of its use: what another server owns by now is not touched.
    pub(crate) life: Arc<Life>,
    pub(crate) epoch: Epoch,
    /// The files as the server's own user sees them.
    pub(crate) files: Arc<dyn Vfs>,
    pub(crate) name: Name,
}

/// A file that is to be scanned.
pub(crate) struct Wanted {
    pub(crate) key: FileKey,
    /// The object of the file. None: it is opened for the scan.
    pub(crate) node: Option<Arc<dyn Node>>,
    /// The number of the account in whose line it waits.
    pub(crate) owner: usize,
    /// Lasts until the file is scanned; for the ledger.
    pub(crate) charge: Option<Charge>,
    pub(crate) find: Find,
}

/// The answer to the question if a file may be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// Nothing was found, or the file is let pass without a scan.
    Passed,
    /// A virus was found.
    Infected,
    /// The file could not be scanned.
    Unscanned,
}

/// The end of a scan, as it is told to those who wait.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// The time of the file's last change before the scan.
    pub(super) changed: FileTime,
    /// None if the file has changed meanwhile, or the scan was given up.
    pub(super) found: Option<Finding>,
    /// True if nothing was found in a file that has changed meanwhile.
    pub(super) is_clean: bool,
}

impl Ended {
    pub(super) const fn with(changed: FileTime, found: Option<Finding>) -> Self {
        Self { changed, found, is_clean: false }
    }
}

/// A scan in line.
pub(super) struct Job {
    pub(super) wanted: Wanted,
    /// The time of the file's last change when it was put into the line.
    pub(super) changed: FileTime,
    /// The end of its time. None in the background: its time begins with its turn.
    pub(super) until: Option<Instant>,
    pub(super) is_background: bool,
    pub(super) flight: Arc<Flight>,
}

/// A scan that waits for its turn or has it.
pub(super) struct Flight {
    /// Requests that wait for it.
    pub(super) waiters: AtomicUsize,
    pub(super) tell: watch::Sender<Option<Ended>>,
}

/// A request that waits for a scan.
pub(super) struct Waiter(pub(super) Arc<Flight>);

impl Waiter {
    pub(super) fn new(flight: &Arc<Flight>) -> Self {
        flight.waiters.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(flight))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waits for Job {
    fn key(&self) -> FileKey {
        self.wanted.key
    }

    fn is_background(&self) -> bool {
        self.is_background
    }
}
