//! Numbers about a running server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::panics;
use crate::objects::ledger::Kind;
use crate::objects::rates::FlowNumbers;
use crate::objects::server::ServerState;
use crate::shares::recycle::RecycleCounts;
use crate::shares::scanning::ScanCounts;
use crate::shares::share::Share;

/// Numbers about a server at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Connections.
    pub connections: usize,
    /// Sessions, those that have not yet authenticated included.
    pub sessions: usize,
    /// Opens: files, directories and pipes that clients have open.
    pub opens: usize,
    /// Files and directories that are open, counted once however many Opens they have.
    pub files: usize,
    /// Opens that outlive their connection (durable, resilient, persistent).
    pub durable_opens: usize,
    /// Opens without a connection that wait for their client to come back.
    pub waiting_opens: usize,
    /// Bytes that the server keeps for its clients.
    pub memory: usize,
    /// Polls of a task that held a core longer than the watchdog allows. 0 where it does
    /// not measure.
    pub held_polls: u64,
    /// Panics of the process: bugs that cost a client its connection and nobody else
    /// anything.
    pub panics: u64,
    /// Files that were moved to recycle bins instead of being deleted.
    pub recycled: u64,
    /// Files that were deleted for good because their recycle bin could not take them.
    pub recycle_lost: u64,
    /// Files that were removed from recycle bins because of their age or the size of the bin.
    pub recycle_expired: u64,
    /// Times that the brake of a share took hold of a client.
    pub brake_alarms: u64,
    /// Clients that brakes have hold of, or told of lately.
    pub braked_clients: usize,
    /// Bytes by which compression has made answers shorter.
    pub saved_in_answers: u64,
    /// Bytes by which compression has made requests shorter.
    pub saved_in_requests: u64,
    /// Clients of other nodes of the cluster that have registered with the witness.
    pub witness_registrations: usize,
    /// Notifications of the witness that clients have fetched.
    pub witness_notifications: u64,
    /// Servers of targets in namespaces that are probed.
    pub probed_servers: usize,
    /// Those of them that do not answer.
    pub failing_servers: usize,
    /// Logical flows of storage quality of service.
    pub logical_flows: usize,
    /// Requests that wait for limits of logical flows.
    pub flows_waiting: usize,
    /// Requests that have waited for them.
    pub flows_held: u64,
    /// The time that they have waited, all together, microseconds.
    pub flows_held_us: u64,
    /// Files that were scanned for viruses.
    pub scans: u64,
    /// Viruses that scans have found.
    pub scan_finds: u64,
    /// Scans that have failed.
    pub scan_failures: u64,
    /// Files that wait for a scan or are being scanned.
    pub scans_waiting: usize,
    /// Files and folders in the indexes of shares.
    pub index_files: u64,
    /// Bytes of these indexes.
    pub index_bytes: u64,
}

impl Metrics {
    pub(super) fn of(state: &ServerState) -> Self {
        let (durable_opens, waiting_opens) = state.durables.counts();
        let FlowNumbers { flows, waited } = state.rates.storage_qos.numbers();
        let shares = state.shares().sorted();
        let sum = |count: fn(&RecycleCounts) -> u64| -> u64 {
            // The share of a snapshot has the bin of its base, which is counted once.
            let own = shares.iter().filter(|share| !share.is_exposed);
            let bins = own.filter_map(|share| share.recycle.as_ref());
            bins.map(|bin| count(&bin.counts)).sum()
        };
        let brakes = || shares.iter().filter_map(|share| share.brake.as_ref());
        // A share of a snapshot has the count of its base.
        let own = shares.iter().filter(|share| !share.is_exposed);
        let saved_in_answers = own.map(|share| share.saved.load(Ordering::Relaxed)).sum();
        let scans = scan_counts(&shares);
        let indexes = shares.iter().filter(|share| !share.is_exposed);
        let indexes: Vec<_> =
            indexes.filter_map(|share| share.index.as_ref().map(|index| index.state())).collect();
        Self {
            brake_alarms: brakes().map(|brake| brake.alarms()).sum(),
            braked_clients: brakes().map(|brake| brake.held().len()).sum(),
            saved_in_answers,
            saved_in_requests: state.saved_by_clients.load(Ordering::Relaxed),
            recycled: sum(RecycleCounts::kept),
            recycle_lost: sum(RecycleCounts::lost),
            recycle_expired: sum(RecycleCounts::expired),
            connections: state.ledger.count(Kind::Connection),
            sessions: state.session_count(),
            opens: state.ledger.count(Kind::Open),
            files: state.files.len(),
            durable_opens,
            waiting_opens,
            memory: state.ledger.bytes(),
            held_polls: state.watchdog.held(),
            panics: panics::count(),
            witness_registrations: state.witness.count(),
            witness_notifications: state.witness.told.all(),
            probed_servers: state.target_servers.probed(),
            failing_servers: state.target_servers.failing(),
            logical_flows: flows,
            flows_waiting: waited.waiting,
            flows_held: waited.count,
            flows_held_us: waited.micros,
            scans: scans.scans,
            scan_finds: scans.finds,
            scan_failures: scans.failures,
            scans_waiting: scans.waiting,
            index_files: indexes.iter().map(|index| index.files).sum(),
            index_bytes: indexes.iter().map(|index| index.bytes).sum(),
        }
    }
}

/// The sums of the services that scan the files of these shares, each counted once.
fn scan_counts(shares: &[Arc<Share>]) -> ScanCounts {
    let all = shares.iter().filter_map(|share| share.scanning.as_ref());
    let mut scanners: Vec<_> = all.map(|scanning| &scanning.scanner).collect();
    scanners.sort_by_key(|scanner| Arc::as_ptr(scanner));
    scanners.dedup_by(|one, other| Arc::ptr_eq(one, other));
    scanners.into_iter().fold(ScanCounts::default(), |sum, scanner| sum.and(scanner.counts()))
}
