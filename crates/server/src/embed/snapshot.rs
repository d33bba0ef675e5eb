//! The state of a running server, as administrators see it: collecting.
//!
//! Locks of the data path are held for copies of lists of pointers, one session or file at a
//! time; nothing is formatted under a lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_net::watchdog::Moment;
use frevo_rpc::witness::Version;
use frevo_store::byte_range::Mode;
use frevo_store::lease::{Granted, LeaseOwner};
use frevo_wire::command::create::OplockLevel;
use frevo_wire::create_context::LeaseState;
use frevo_wire::dtyp::{AccessMask, FileTime};
use frevo_wire::fscc::eq_ignore_case;

use super::status::{
    ActivityStatus, BrakeStatus, BrakedStatus, ChannelStatus, ErrorStatus, HeldStatus, LeaseStatus,
    LockStatus, OpenStatus, RateStatus, RpcConnectionStatus, ServerStatus, SessionStatus,
    ShareStatus, Status, StatusQuery, TargetStatus, WitnessStatus,
};
use crate::access::rate_rules::Each;
use crate::base::protection_names::{cipher_name, dialect_name, signing_name};
use crate::objects::activity::{Entry, Totals};
use crate::objects::durable::Survival;
use crate::objects::kick::hex;
use crate::objects::ledger::Kind;
use crate::objects::open::path_of;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::rates::{FlowNumbers, HeldBack, HeldOne, Limited, STORAGE_QOS};
use crate::objects::server::ServerState;
use crate::objects::session::{Session, State};
use crate::objects::witness::Shown;
use crate::shares::brake::{Brake, Seen};
use crate::shares::share::{Share, Target};
use crate::shares::target_servers::{TargetHealth, TargetServer};

fn seconds(time: FileTime) -> i64 {
    time.to_unix().0
}

/// Collects the parts of a status that `query` asks for.
pub(super) fn collect(server: &ServerState, query: &StatusQuery) -> Status {
    let mut channels: HashMap<u64, Vec<Entry>> = HashMap::new();
    for entry in server.activity.channels() {
        channels.entry(entry.session).or_default().push(entry);
    }
    let mut sessions = server.sessions();
    sessions.sort_unstable_by_key(|session| session.id);
    let mut status = Status { server: server_status(server), ..Status::default() };
    let mut collector = Collector {
        query,
        limited: server.rates.holders(),
        leases: HashMap::new(),
        shares: HashMap::new(),
    };
    for session in &sessions {
        let entries = channels.remove(&session.id).unwrap_or_default();
        if matches!(session.state(), State::Valid | State::Expired) {
            collector.add_session(session, &entries, &mut status);
        }
    }
    for open in server.durables.waiting() {
        collector.add_open(None, &open, &mut status);
    }
    collector.add_leases(&mut status);
    add_rpc_connections(server, query, &mut status);
    add_witness(server, query, &mut status);
    add_targets(server, query, &mut status);
    if query.user.is_none() && query.share.is_none() {
        add_rates(server, query, &mut status);
    }
    for share in server.shares().sorted() {
        status.shares.add(query.limit, || share_status(&share, &collector.shares));
    }
    status
}

/// Adds the connections of remote procedure calls over TCP.
fn add_rpc_connections(server: &ServerState, query: &StatusQuery, status: &mut Status) {
    for connection in server.rpc_connections.sorted() {
        if query.user.as_ref().is_some_and(|user| !connection.is_of(user)) {
            continue;
        }
        status.rpc_connections.add(query.limit, || RpcConnectionStatus {
            id: hex(connection.id),
            user: connection.user(),
            address: connection.peer.to_string(),
            server_address: connection.local.to_string(),
            since: seconds(connection.since),
        });
    }
}

/// Adds the registrations with the witness.
fn add_witness(server: &ServerState, query: &StatusQuery, status: &mut Status) {
    for Shown { client, registration, is_waiting, queued } in server.witness.shown() {
        let share = registration.share.as_deref();
        let is_other = |wanted: Option<&str>, own: Option<&str>| {
            wanted.is_some_and(|wanted| !own.is_some_and(|own| eq_ignore_case(own, wanted)))
        };
        if is_other(query.user.as_deref(), Some(&client.user))
            || is_other(query.share.as_deref(), share)
        {
            continue;
        }
        status.witness.add(query.limit, || WitnessStatus {
            client: registration.client.clone(),
            user: client.user.clone(),
            address: client.address.to_string(),
            server_address: registration.address.to_string(),
            share: share.map(str::to_owned),
            version: if registration.version == Version::V1 { 1 } else { 2 },
            waiting: is_waiting,
            queued,
            since: seconds(client.since),
        });
    }
}

/// Adds the limits of rate with those that they hold back most, and the limits of logical flows.
fn add_rates(server: &ServerState, query: &StatusQuery, status: &mut Status) {
    for (limited, held) in server.rates.numbers() {
        status.rates.add(query.limit, || {
            let most_held = limited.most_held().into_iter().map(held_status).collect();
            RateStatus { most_held, ..rate_status(&limited, held) }
        });
    }
    let storage_qos = &server.rates.storage_qos;
    if storage_qos.is_on() {
        let FlowNumbers { flows, waited } = storage_qos.numbers();
        status.rates.add(query.limit, || RateStatus {
            name: String::from(STORAGE_QOS),
            each: Some("flow"),
            buckets: flows,
            waiting: waited.waiting,
            held: waited.count,
            held_us: waited.micros,
            ..RateStatus::default()
        });
    }
}

/// Returns the limits of rate with what they hold back.
pub(super) fn rates(server: &ServerState) -> Vec<RateStatus> {
    server.rates.numbers().iter().map(|(limited, held)| rate_status(limited, *held)).collect()
}

fn rate_status(limited: &Limited, held: HeldBack) -> RateStatus {
    RateStatus {
        name: limited.rule.name.clone(),
        read: limited.rule.read,
        write: limited.rule.write,
        each: limited.rule.each.map(Each::as_str),
        buckets: held.buckets,
        operations: limited.rule.operations,
        waiting: held.waited.waiting,
        held: held.waited.count,
        held_us: held.waited.micros,
        most_held: Vec::new(),
    }
}

fn held_status(HeldOne { who, by, waited }: HeldOne) -> HeldStatus {
    HeldStatus { who, by, waiting: waited.waiting, held: waited.count, held_us: waited.micros }
}

/// Adds the servers that links of namespaces lead to: they are of no user and no share.
fn add_targets(server: &ServerState, query: &StatusQuery, status: &mut Status) {
    if query.user.is_some() || query.share.is_some() {
        return;
    }
    for TargetServer { name, health, addresses } in server.target_servers.sorted() {
        let (state, since, reason) = match health {
            TargetHealth::NotProbed => ("not_probed", None, None),
            TargetHealth::Unknown => ("unknown", None, None),
            TargetHealth::Answers { since } => ("answers", Some(since), None),
            TargetHealth::Fails { since, why } => ("fails", Some(since), Some(why)),
        };
        let addresses = addresses.iter().map(ToString::to_string).collect();
        status.targets.add(query.limit, || TargetStatus {
            server: name,
            state,
            since,
            reason,
            addresses,
        });
    }
}

/// Collects the shares alone: Opens are counted and not looked at.
pub(super) fn shares(server: &ServerState) -> Vec<ShareStatus> {
    let mut counts = ShareCounts::new();
    for session in server.sessions() {
        if matches!(session.state(), State::Valid | State::Expired) {
            session.for_each_tree(|tree| add_use(&mut counts, &tree.share.name, 1, 0));
            session.for_each_open(|open| add_use(&mut counts, &open.tree().share.name, 0, 1));
        }
    }
    for open in server.durables.waiting() {
        add_use(&mut counts, &open.tree().share.name, 0, 1);
    }
    server.shares().sorted().iter().map(|share| share_status(share, &counts)).collect()
}

/// Tree connects and Opens by the name of the share.
type ShareCounts = HashMap<String, (usize, usize)>;

/// Adds to the counts of a share. Its name is copied once, not for each Open.
fn add_use(counts: &mut ShareCounts, name: &str, connections: usize, opens: usize) {
    if let Some(count) = counts.get_mut(name) {
        count.0 += connections;
        count.1 += opens;
    } else {
        counts.insert(name.to_owned(), (connections, opens));
    }
}

fn brake_status(brake: &Brake) -> BrakeStatus {
    let clients =
        brake.held().into_iter().map(|Seen { user, address, gripped, age }| BrakedStatus {
            user,
            address: address.to_string(),
            session: hex(gripped.session),
            action: gripped.action.as_str(),
            pattern: gripped.finding.pattern.name(),
            count: gripped.finding.count,
            seconds: gripped.finding.pattern.within().as_secs(),
            ago: age.as_secs(),
        });
    BrakeStatus {
        action: brake.action().as_str(),
        alarms: brake.alarms(),
        clients: clients.collect(),
    }
}

fn share_status(share: &Share, counts: &ShareCounts) -> ShareStatus {
    let (connections, opens) = counts.get(&*share.name).copied().unwrap_or_default();
    ShareStatus {
        name: share.name.clone(),
        comment: share.comment.clone(),
        read_only: share.read_only && matches!(share.target, Target::Disk(_)),
        encrypt: share.encrypt,
        hidden: share.hidden,
        write_once: share.write_once.is_some(),
        brake: share.brake.as_deref().map(brake_status),
        scanned: share.scanning.is_some(),
        index: share.index.as_ref().filter(|_| !share.is_exposed).map(|index| index.state()),
        guests: share.guest_access().map(|_| match share.lets_guests_write() {
            true => "write",
            false => "read",
        }),
        connections,
        opens,
        saved: share.saved.load(Ordering::Relaxed),
        life: share.life.state().kind(),
        paused: share.life.is_paused(),
        epoch: share.life.ownership().epoch.0,
    }
}

/// Collects what a status tells of the server itself, without a look at sessions and Opens.
pub(super) fn server_status(server: &ServerState) -> ServerStatus {
    let settings = server.settings();
    ServerStatus {
        name: settings.server_name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        started: seconds(server.started),
        now: seconds(server.ambient.now()),
        connections: server.ledger.count(Kind::Connection),
        sessions: server.session_count(),
        opens: server.ledger.count(Kind::Open),
        waiting_opens: server.durables.counts().1,
        memory: server.ledger.bytes(),
        failed_logons: server.activity.failed_logons(),
        errors: server
            .activity
            .errors()
            .into_iter()
            .map(|(status, count)| error_status(status, count))
            .collect(),
        activity: ActivityStatus::from(&server.activity.totals()),
    }
}

fn error_status(status: Option<frevo_wire::Status>, count: u64) -> ErrorStatus {
    let name = status.map_or_else(
        || String::from("other"),
        |status| match status.name() {
            Some(name) => String::from(name),
            None => format!("{:#010x}", status.0),
        },
    );
    ErrorStatus { status: name, count }
}

/// A lease, or the oplock of one Open.
type LeaseId = Result<LeaseOwner, u64>;

struct Collector<'a> {
    query: &'a StatusQuery,
    /// The sessions that wait for limits of rate.
    limited: BTreeMap<u64, String>,
    leases: HashMap<LeaseId, LeaseStatus>,
    shares: ShareCounts,
}

impl Collector<'_> {
    fn add_session(&mut self, session: &Arc<Session>, entries: &[Entry], status: &mut Status) {
        let identity = session.identity();
        let user = identity.as_ref().map_or("", |identity| &identity.user);
        let trees = session.trees();
        for tree in &trees {
            add_use(&mut self.shares, &tree.share.name, 1, 0);
        }
        if self.query.user.as_ref().is_some_and(|wanted| !eq_ignore_case(wanted, user)) {
            return;
        }
        let opens = session.opens();
        status.sessions.add(self.query.limit, || {
            let names = trees.iter().map(|tree| tree.share.name.clone());
            let mut known = session_status(session, entries);
            if !self.query.latencies {
                known.activity.classes = Vec::new();
            }
            SessionStatus {
                user: user.to_owned(),
                guest: identity.as_ref().is_some_and(|identity| identity.is_guest),
                domain: identity.as_ref().map_or_else(String::new, |id| id.domain.clone()),
                sid: identity.as_ref().and_then(|id| id.domain_sid()).map(ToString::to_string),
                client: identity.as_ref().map_or_else(String::new, |id| id.workstation.clone()),
                shares: names.collect(),
                opens: opens.len(),
                locks: session.locks.taken(),
                limited_by: self.limited.get(&session.id).cloned(),
                ..known
            }
        });
        for open in &opens {
            self.add_open(Some(session), open, status);
        }
    }

    fn add_open(&mut self, session: Option<&Session>, open: &Arc<Open>, status: &mut Status) {
        let tree = open.tree();
        let share = &tree.share.name;
        add_use(&mut self.shares, share, 0, 1);
        let query = self.query;
        if query.share.as_ref().is_some_and(|wanted| !eq_ignore_case(wanted, share)) {
            return;
        }
        let identity = tree.identity();
        let user = match (&identity, open.survival()) {
            (Some(identity), _) => &*identity.user,
            (None, Some(survival)) => &*survival.owner,
            (None, None) => "",
        };
        if query.user.as_ref().is_some_and(|wanted| !eq_ignore_case(wanted, user)) {
            return;
        }
        let is_full = |len: usize| len >= query.limit;
        if query.opens && is_full(status.opens.rows.len()) {
            status.opens.more += 1;
        } else if query.opens {
            let row = open_status(open);
            let session = session.map(|session| hex(session.id));
            let (user, share) = (user.to_owned(), share.clone());
            status.opens.rows.push(OpenStatus { session, user, share, ..row });
        }
        let OpenTarget::File(file) = &open.target else { return };
        if query.locks {
            add_locks(query.limit, open, file, user, share, status);
        }
        if query.leases {
            self.add_lease(open, file, user, share);
        }
    }

    fn add_lease(&mut self, open: &Open, file: &FileOpen, user: &str, share: &str) {
        let (held, owner, name) = {
            let cell = file.cell.lock();
            (cell.held(file.id), cell.lease_of(file.id), cell.name_of(file.id).clone())
        };
        let (state, breaking) = match held {
            Granted::Lease { state, is_breaking, .. } => (lease_letters(state), is_breaking),
            Granted::Oplock(level) => (oplock_letters(level), false),
            Granted::Nothing => return,
        };
        let id = owner.ok_or(open.file_id.volatile);
        let lease = self.leases.entry(id).or_insert_with(|| LeaseStatus {
            key: owner.map(|owner| owner.key.0.iter().map(|byte| format!("{byte:02x}")).collect()),
            user: user.to_owned(),
            share: share.to_owned(),
            path: path_of(&name),
            state,
            breaking,
            opens: 0,
        });
        lease.opens += 1;
    }

    fn add_leases(&mut self, status: &mut Status) {
        let mut leases: Vec<_> = std::mem::take(&mut self.leases).into_iter().collect();
        leases
            .sort_unstable_by(|(a, x), (b, y)| (&x.share, &x.path, a).cmp(&(&y.share, &y.path, b)));
        for (_, lease) in leases {
            status.leases.add(self.query.limit, || lease);
        }
    }
}

/// The facts of a session that its channels know.
fn session_status(session: &Session, entries: &[Entry]) -> SessionStatus {
    let now = Moment::now();
    let mut totals = Totals::default();
    let mut channels = Vec::with_capacity(entries.len());
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_unstable_by_key(|entry| entry.connection.id);
    for entry in &sorted {
        let carried = entry.activity.totals();
        totals.add(&carried);
        channels.push(ChannelStatus {
            connection: entry.connection.id,
            address: entry.connection.peer.to_string(),
            server_address: entry.connection.local.to_string(),
            credits: entry.activity.credits_held(),
            operations: carried.operations(),
            received: carried.received,
            sent: carried.sent,
        });
    }
    let first = sorted.first();
    let algorithm = first.and_then(|entry| entry.connection.negotiated().ok());
    let algorithm = algorithm.map(|negotiated| signing_name(negotiated.terms.signing_algorithm));
    let security = session.security();
    let by_transport =
        first.is_some() && sorted.iter().all(|entry| entry.connection.accepts_transport_security());
    let is_signed = security.is_some_and(|security| security.signing_required) && !by_transport;
    let is_sealed = security.is_some_and(|security| security.encrypt_data);
    let cipher = session.cipher.filter(|_| is_sealed).map(cipher_name);
    let idle = sorted.iter().map(|entry| entry.activity.idle(now)).min();
    SessionStatus {
        id: hex(session.id),
        address: first.map_or_else(String::new, |entry| {
            entry.connection.peer.ip().to_canonical().to_string()
        }),
        dialect: dialect_name(session.dialect),
        signing: algorithm.filter(|_| is_signed),
        encryption: if by_transport { Some("transport") } else { cipher },
        expired: session.state() == State::Expired,
        since: sorted.iter().map(|entry| seconds(entry.since)).min().unwrap_or(0),
        idle_ms: u64::try_from(idle.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX),
        channels,
        activity: ActivityStatus::from(&totals),
        ..SessionStatus::default()
    }
}

/// The facts of an Open but for those of its session.
fn open_status(open: &Open) -> OpenStatus {
    let id = hex(open.file_id.volatile);
    let access = access_letters(open.granted_access);
    let file = match &open.target {
        OpenTarget::Pipe(pipe) => {
            let path = pipe.lock().name().to_owned();
            return OpenStatus { id, access, path, kind: "pipe", ..OpenStatus::default() };
        }
        OpenTarget::File(file) => file,
    };
    let (name, held, claim, locks, deletion) = {
        let cell = file.cell.lock();
        let name = cell.name_of(file.id).clone();
        let locks = cell.ranges.held_by(file.id);
        (name, cell.held(file.id), cell.claim_of(file.id), locks, cell.deletion_of(file.id))
    };
    let sharing = claim.map(|claim| {
        let sharing = claim.sharing;
        letters([(sharing.read, 'r'), (sharing.write, 'w'), (sharing.delete, 'd')])
    });
    OpenStatus {
        id,
        path: path_of(&name),
        kind: if file.is_directory { "directory" } else { "file" },
        access,
        sharing: sharing.unwrap_or_default(),
        caching: match held {
            Granted::Nothing => String::new(),
            Granted::Oplock(level) => oplock_letters(level),
            Granted::Lease { state, .. } => lease_letters(state),
        },
        locks,
        durable: open.survival().and_then(Survival::kind),
        delete_on_close: deletion.0 || deletion.1,
        ..OpenStatus::default()
    }
}

fn add_locks(
    limit: usize,
    open: &Open,
    file: &FileOpen,
    user: &str,
    share: &str,
    status: &mut Status,
) {
    let (name, locks) = {
        let cell = file.cell.lock();
        if cell.ranges.held_by(file.id) == 0 {
            return;
        }
        (cell.name_of(file.id).clone(), cell.ranges.of(file.id))
    };
    for (range, mode) in locks {
        status.locks.add(limit, || LockStatus {
            open: hex(open.file_id.volatile),
            user: user.to_owned(),
            share: share.to_owned(),
            path: path_of(&name),
            offset: range.offset,
            length: range.length,
            exclusive: mode == Mode::Exclusive,
        });
    }
}

fn letters<const N: usize>(of: [(bool, char); N]) -> String {
    of.into_iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect()
}

fn access_letters(access: AccessMask) -> String {
    let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
    let data = letters([
        (access.contains(AccessMask::READ_DATA), 'r'),
        (access.intersects(writes), 'w'),
        (access.contains(AccessMask::DELETE), 'd'),
        (access.contains(AccessMask::EXECUTE), 'x'),
    ]);
    if data.is_empty() { String::from("a") } else { data }
}

fn lease_letters(state: LeaseState) -> String {
    letters([
        (state.contains(LeaseState::READ), 'R'),
        (state.contains(LeaseState::WRITE), 'W'),
        (state.contains(LeaseState::HANDLE), 'H'),
    ])
}

/// The rights of a lease that allows the same caching as an oplock.
fn oplock_letters(level: OplockLevel) -> String {
    String::from(match level {
        OplockLevel::II => "R",
        OplockLevel::EXCLUSIVE => "RW",
        OplockLevel::BATCH => "RWH",
        _ => "",
    })
}
