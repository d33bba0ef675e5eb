//! The clients with the handles they keep, and a second client per file that tries the locked
//! ranges.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result};
use frevo_client::{
    Client, Credentials, File, LeaseState, LockKind, OpenOptions, Options, ServerName, Session,
    Share,
};
use parking_lot::Mutex;

use crate::machine::{Address, KEPT, Machine, PASSWORD, USER};
use crate::model::{SPACING, Slots};
use crate::possible::Possible;

/// The common file of all clients; each writes to slots of its own.
pub(crate) const COMMON: &str = "common";
/// Number of slots of each client in its own file, and in the common one.
pub(crate) const SLOTS: usize = 48;
const COMMON_SLOTS: usize = 16;
/// Files of each client that are opened and closed all the time.
pub(crate) const OPEN_LANES: usize = 2;
/// Findings that are printed; more say nothing new.
const SHOWN: usize = 20;
/// The offset of ranges that stay locked and that no client writes.
const STANDING: u64 = 1 << 40;
/// The offset of ranges that are locked and unlocked all the time.
pub(crate) const PASSING: u64 = 1 << 41;

/// The server, the clients and the counters of the run.
#[derive(Debug)]
pub(crate) struct World {
    /// The files, or the copy of them that the last start has made.
    pub(crate) files: PathBuf,
    /// True if `files` are those that the server serves.
    pub(crate) shows_the_present: bool,
    pub(crate) address: Address,
    pub(crate) peers: Vec<Arc<Peer>>,
    pub(crate) prober: Prober,
    /// Held for reading by every step of the load; holding it for writing pauses the load.
    pub(crate) gate: tokio::sync::RwLock<()>,
    pub(crate) is_over: AtomicBool,
    pub(crate) counts: Counts,
    period: AtomicU64,
    findings: Mutex<usize>,
}

/// The time between two failures, or between a failure and the restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(u64);

impl Period {
    /// True if the machine runs.
    pub(crate) const fn is_up(self) -> bool {
        self.0.is_multiple_of(2)
    }
}

/// Counters of completed steps.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) locks: AtomicU64,
    pub(crate) opens: AtomicU64,
    pub(crate) names: AtomicU64,
}

/// A client with a ClientGuid of its own.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) number: u32,
    session: Session,
    pub(crate) share: Share,
    pub(crate) own: Mutex<Own>,
    pub(crate) own_slots: Slots,
    pub(crate) common: File,
    pub(crate) common_slots: Slots,
    /// A file with delete-on-close.
    pub(crate) doomed: Mutex<Option<File>>,
    /// The possible states of the files that are opened and closed all the time.
    pub(crate) passing: [Mutex<Possible>; OPEN_LANES],
}

/// A client's own file.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) file: File,
    /// The lease state that the client requests.
    pub(crate) lease: LeaseState,
}

/// A client that opens the common file, too, and tries the locked ranges.
#[derive(Debug)]
pub(crate) struct Prober {
    session: Session,
    pub(crate) share: Share,
    pub(crate) common: File,
}

/// A lease for reading, writing and the handle.
pub(crate) const ALL: LeaseState =
    LeaseState::READ.union(LeaseState::WRITE).union(LeaseState::HANDLE);

impl Peer {
    pub(crate) fn own_name(&self) -> String {
        format!("own-{}", self.number)
    }

    pub(crate) fn passing_name(&self, lane: usize) -> String {
        format!("passing-{}-{lane}", self.number)
    }

    pub(crate) fn doomed_name(&self) -> String {
        format!("doomed-{}", self.number)
    }

    /// Returns true if its writes are stable when answered; otherwise it flushes.
    pub(crate) const fn writes_through(&self) -> bool {
        self.number.is_multiple_of(2)
    }

    pub(crate) const fn has_doomed(&self) -> bool {
        !self.number.is_multiple_of(3)
    }

    /// Returns the ranges of the common file that it locks during the whole run.
    pub(crate) fn standing(&self) -> [(u64, u64); 4] {
        let base = STANDING + u64::from(self.number) * 4096;
        let data = (self.common_slots.base(), self.common_slots.span());
        [data, (base, 1), (base + 16, 100), (base + 1024, 1024)]
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::new().read(true).write(true).create(true).write_through(self.writes_through())
    }

    /// Opens the client's own file with a full lease, and locks ranges of it.
    pub(crate) async fn open_own(&self) -> Result<Own> {
        let file = self.options().lease(ALL).open(&self.share, &self.own_name()).await?;
        file.try_lock(STANDING, 4096, LockKind::Exclusive).await?;
        Ok(Own { lease: file.lease(), file })
    }

    /// Makes a file with delete-on-close.
    pub(crate) async fn open_doomed(&self) -> Result<File> {
        let file = self.options().delete_on_close(true);
        let file = file.open(&self.share, &self.doomed_name()).await?;
        file.try_lock(STANDING, 4096, LockKind::Exclusive).await?;
        file.write_all_at(b"for as long as it is open", 0).await?;
        Ok(file)
    }
}

impl World {
    /// Logs all clients on and opens their files.
    pub(crate) async fn new(machine: &Machine, clients: u32) -> Result<Self> {
        let address = machine.address();
        let mut peers = Vec::new();
        for number in 0..clients {
            peers.push(Arc::new(peer(address, number).await?));
        }
        let (session, share) = log_on(address, KEPT, true).await?;
        let common = OpenOptions::new().read(true).write(true).lease(LeaseState::EMPTY);
        let common = common.open(&share, COMMON).await?;
        // This lock survives only if the handle is restored, because opening the file again by its
        // name does not bring the lock back.
        common.try_lock(STANDING - 1, 1, LockKind::Exclusive).await?;
        Ok(Self {
            files: machine.files(),
            shows_the_present: machine.shows_the_present(),
            address,
            peers,
            prober: Prober { session, share, common },
            gate: tokio::sync::RwLock::default(),
            is_over: AtomicBool::new(false),
            counts: Counts::default(),
            period: AtomicU64::new(0),
            findings: Mutex::default(),
        })
    }

    pub(crate) fn period(&self) -> Period {
        Period(self.period.load(Ordering::Acquire))
    }

    /// Begins the next period, before a failure and after a restart.
    pub(crate) fn begin_period(&self) {
        self.period.fetch_add(1, Ordering::AcqRel);
    }

    /// Reports a finding.
    pub(crate) fn found(&self, what: impl Into<String>) {
        let mut findings = self.findings.lock();
        *findings += 1;
        if *findings <= SHOWN {
            eprintln!("finding: {}", what.into());
        }
    }

    pub(crate) fn findings(&self) -> usize {
        *self.findings.lock()
    }

    pub(crate) fn count_names(&self) {
        self.counts.names.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Closes all files and logs off all sessions.
    pub(crate) async fn leave(&self) -> Result<()> {
        for peer in &self.peers {
            let own = peer.own.lock().file.clone();
            let doomed = peer.doomed.lock().take();
            own.close().await.context("closing a file at the end")?;
            peer.common.clone().close().await.context("closing a file at the end")?;
            if let Some(doomed) = doomed {
                doomed.close().await.context("closing a file at the end")?;
            }
            peer.session.clone().log_off().await;
        }
        self.prober.common.clone().close().await.context("closing a file at the end")?;
        self.prober.session.clone().log_off().await;
        Ok(())
    }
}

/// Makes a new client; returns its session and the share.
pub(crate) async fn log_on(
    address: Address,
    share: &str,
    durable: bool,
) -> Result<(Session, Share)> {
    let client = Client::new(Options::new().durable(durable));
    let server = ServerName::new(address.host).at_port(address.port);
    let session = client.connect(server, Credentials::new(USER, PASSWORD)).await?;
    let share = session.share(share).await?;
    Ok((session, share))
}

async fn peer(address: Address, number: u32) -> Result<Peer> {
    let (session, share) = log_on(address, KEPT, true).await?;
    let base = u64::from(number) * COMMON_SLOTS as u64 * SPACING;
    let through = number.is_multiple_of(2);
    let options = OpenOptions::new().read(true).write(true).create(true).write_through(through);
    let common = options.clone().lease(LeaseState::EMPTY).open(&share, COMMON).await?;
    let placeholder = options.lease(ALL).open(&share, &format!("own-{number}")).await?;
    let peer = Peer {
        number,
        session,
        share,
        own: Mutex::new(Own { lease: placeholder.lease(), file: placeholder.clone() }),
        own_slots: Slots::new(number, 0, SLOTS),
        common,
        common_slots: Slots::new(number, base, COMMON_SLOTS),
        doomed: Mutex::default(),
        passing: Default::default(),
    };
    placeholder.close().await?;
    let own = peer.open_own().await?;
    anyhow::ensure!(own.lease == ALL, "the server granted the lease {:?}", own.lease);
    *peer.own.lock() = own;
    for (offset, len) in peer.standing() {
        peer.common.try_lock(offset, len, LockKind::Exclusive).await?;
    }
    if peer.has_doomed() {
        let doomed = peer.open_doomed().await?;
        *peer.doomed.lock() = Some(doomed);
    }
    Ok(peer)
}
