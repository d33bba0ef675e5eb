//! The state of a running server, as administrators see it: types.

use serde::Serialize;

use crate::objects::activity::{BUCKETS, CLASSES, Class, Latencies, Totals, bucket_end};
use crate::shares::index::IndexState;
use crate::shares::life::ShareLife;

/// The parts of a [`Status`] that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusQuery {
    /// Rows of each list; further ones are counted only.
    pub limit: usize,
    /// True to list Opens.
    pub opens: bool,
    /// True to list byte-range locks.
    pub locks: bool,
    /// True to list leases and oplocks.
    pub leases: bool,
    /// True to list the latencies of each session by class of operation.
    pub latencies: bool,
    /// Leaves out what does not belong to this account.
    pub user: Option<String>,
    /// Leaves out Opens, locks and leases of other shares.
    pub share: Option<String>,
}

impl Default for StatusQuery {
    /// All parts of everybody, as many rows as [`STATUS_ROWS`](crate::base::limits::STATUS_ROWS).
    fn default() -> Self {
        let limit = crate::base::limits::STATUS_ROWS;
        Self {
            limit,
            opens: true,
            locks: true,
            leases: true,
            latencies: true,
            user: None,
            share: None,
        }
    }
}

/// The state of a server at one moment, or nearly: sessions are looked at one after the other.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Facts and counts of the whole server.
    pub server: ServerStatus,
    /// Sessions.
    pub sessions: Rows<SessionStatus>,
    /// Shares.
    pub shares: Rows<ShareStatus>,
    /// Files, directories and pipes that clients have open.
    pub opens: Rows<OpenStatus>,
    /// Byte-range locks that clients hold.
    pub locks: Rows<LockStatus>,
    /// Leases and oplocks that clients hold.
    pub leases: Rows<LeaseStatus>,
    /// Connections of remote procedure calls over TCP.
    pub rpc_connections: Rows<RpcConnectionStatus>,
    /// Clients of other nodes of the cluster that have registered with the witness of this one.
    pub witness: Rows<WitnessStatus>,
    /// Servers that links of namespaces lead to and that are probed, or whose names are resolved.
    pub targets: Rows<TargetStatus>,
    /// Limits of rate.
    pub rates: Rows<RateStatus>,
}

/// A list that may have been cut.
#[derive(Debug, Clone, Serialize)]
pub struct Rows<T> {
    /// The rows that were asked for, at most [`StatusQuery::limit`].
    pub rows: Vec<T>,
    /// The number of rows that were left out.
    pub more: usize,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), more: 0 }
    }
}

impl<T> Rows<T> {
    /// Adds a row made by `make`, or counts it when there are `limit` rows.
    pub(super) fn add(&mut self, limit: usize, make: impl FnOnce() -> T) {
        if self.rows.len() < limit {
            self.rows.push(make());
        } else {
            self.more += 1;
        }
    }
}

/// Facts and counts of the whole server.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Name that clients see.
    pub name: String,
    /// Version of this library.
    pub version: &'static str,
    /// Seconds from 1970 to its start.
    pub started: i64,
    /// Seconds from 1970 to this look.
    pub now: i64,
    /// The number of connections, those without a session included.
    pub connections: usize,
    /// The number of sessions.
    pub sessions: usize,
    /// The number of Opens.
    pub opens: usize,
    /// Opens without a connection that wait for their client.
    pub waiting_opens: usize,
    /// Bytes that the server keeps for its clients.
    pub memory: usize,
    /// Failed logons since the start.
    pub failed_logons: u64,
    /// Requests since the start that were answered with an error, by status, the most frequent
    /// first.
    pub errors: Vec<ErrorStatus>,
    /// Activity of all sessions since the start.
    pub activity: ActivityStatus,
}

/// Requests that were answered with one status.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ErrorStatus {
    /// The specification's name without STATUS_, or the number: `ACCESS_DENIED`; `other` for all
    /// statuses beyond [`STATUSES_COUNTED`](crate::base::limits::STATUSES_COUNTED).
    pub status: String,
    /// The number of requests.
    pub count: u64,
}

/// Facts and counts of one session.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct SessionStatus {
    /// Session.SessionId, as hexadecimal text: `0x1f00`.
    pub id: String,
    /// Name of the account that has logged on. Empty for a guest.
    pub user: String,
    /// True for a guest.
    pub guest: bool,
    /// The domain that the client named.
    pub domain: String,
    /// The SID of a user of a domain; None for an account of this server.
    pub sid: Option<String>,
    /// The client's address, of its first channel.
    pub address: String,
    /// The name by which the client calls its machine. It proves nothing.
    pub client: String,
    /// The dialect: `3.1.1`.
    pub dialect: &'static str,
    /// The signing algorithm; None where messages need not be signed.
    pub signing: Option<&'static str>,
    /// The cipher; None where messages need not be sealed.
    pub encryption: Option<&'static str>,
    /// True when it must authenticate again.
    pub expired: bool,
    /// Seconds from 1970 to its logon.
    pub since: i64,
    /// Milliseconds since its latest request.
    pub idle_ms: u64,
    /// The connections that the session uses.
    pub channels: Vec<ChannelStatus>,
    /// The shares that it is connected to.
    pub shares: Vec<String>,
    /// The number of its Opens.
    pub opens: usize,
    /// The number of its byte-range locks.
    pub locks: usize,
    /// The name of a limit of rate that a request of it waits for now.
    pub limited_by: Option<String>,
    /// Activity of its channels.
    pub activity: ActivityStatus,
}

/// A channel of a session.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ChannelStatus {
    /// The number of the connection in the log.
    pub connection: u64,
    /// Address and port of the client.
    pub address: String,
    /// Address and port of the server.
    pub server_address: String,
    /// The number of credits that the client holds.
    pub credits: u64,
    /// The number of answered requests.
    pub operations: u64,
    /// Bytes received in requests.
    pub received: u64,
    /// Bytes sent in responses.
    pub sent: u64,
}

/// A limit of rate, and the requests that it has held back since it is in force.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct RateStatus {
    /// Its name.
    pub name: String,
    /// Bytes that may be read in a second; None: no limit.
    pub read: Option<u64>,
    /// Bytes that may be written in a second; None: no limit.
    pub write: Option<u64>,
    /// Operations in a second; None: no limit.
    pub operations: Option<u64>,
    /// Those who have the limits each on their own: `user`, `session` or `address`, or `flow` for the limits of logical
    /// flows; None: all share them.
    pub each: Option<&'static str>,
    /// The number of users, sessions, addresses or flows that have them now, or that still owe.
    pub buckets: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that have waited.
    pub held: u64,
    /// The time that they have waited, all together, microseconds.
    pub held_us: u64,
    /// The users, sessions or addresses that are held back most, those first of which something waits now, as
    /// [`Server::status`](crate::Server::status) tells them; as many as
    /// [`RATE_HELD_SHOWN`](crate::base::limits::RATE_HELD_SHOWN).
    pub most_held: Vec<HeldStatus>,
}

/// A user, a session or an address that its own limits of rate have held back.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct HeldStatus {
    /// Name of the user, number of the session (`0x2a`) or address of the client.
    pub who: String,
    /// The limit that has held it back most: `operations`, `read` or `write`.
    pub by: &'static str,
    /// Requests that wait for that limit now.
    pub waiting: usize,
    /// Requests that have waited for it.
    pub held: u64,
    /// The time that they have waited, all together, microseconds.
    pub held_us: u64,
}

/// Facts about a connection of remote procedure calls over TCP.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct RpcConnectionStatus {
    /// The number of the connection in the log, as hexadecimal text: `0x2a`.
    pub id: String,
    /// Name of the account that has logged on; None before that.
    pub user: Option<String>,
    /// Address and port of the client.
    pub address: String,
    /// Address and port of the server.
    pub server_address: String,
    /// Seconds from 1970 to its acceptance.
    pub since: i64,
}

/// A client that has registered with the witness, MS-SWN 3.1.1.3.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct WitnessStatus {
    /// Name of the client's machine, as it says.
    pub client: String,
    /// Name of the account that has registered.
    pub user: String,
    /// Address of the client.
    pub address: String,
    /// The address at which the client uses SMB.
    pub server_address: String,
    /// The share whose moves the client wants to know of. None if it has named no share.
    pub share: Option<String>,
    /// The version of the protocol: 1 or 2.
    pub version: u32,
    /// True while the client waits for news; news that come otherwise are kept for it.
    pub waiting: bool,
    /// News that the client has not fetched.
    pub queued: usize,
    /// Seconds from 1970 to the registration.
    pub since: i64,
}

/// Facts about a server that links of namespaces lead to.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct TargetStatus {
    /// Its name or address, as in targets.
    pub server: String,
    /// `answers`, `fails`, `unknown` before it is judged, `not_probed`.
    pub state: &'static str,
    /// Seconds from 1970 to the judgement; None without one.
    pub since: Option<i64>,
    /// The reason why it fails.
    pub reason: Option<String>,
    /// Its addresses, where they are known.
    pub addresses: Vec<String>,
}

/// The brake of a share.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct BrakeStatus {
    /// Its action: `alarm`, `slow`, `hold` or `cut`.
    pub action: &'static str,
    /// The number of times that it took hold, since the start of the server.
    pub alarms: u64,
    /// The clients that it has hold of, or that it told of lately.
    pub clients: Vec<BrakedStatus>,
}

/// A client that the brake of a share has hold of, or that it told of lately.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct BrakedStatus {
    /// Name of its account.
    pub user: String,
    /// Its address, when it came for the first time.
    pub address: String,
    /// The session whose change was the last one: `0x2a`.
    pub session: String,
    /// The action: `alarm`, `slow`, `hold` or `cut`.
    pub action: &'static str,
    /// The changes of which there were too many: `files`, `renames` or `deletions`.
    pub pattern: &'static str,
    /// The number of these changes.
    pub count: usize,
    /// Seconds in which they were made, at most.
    pub seconds: u64,
    /// Seconds since the brake took hold.
    pub ago: u64,
}

/// Facts and counts of one share.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ShareStatus {
    /// Name of the share.
    pub name: String,
    /// Text that clients see beside it.
    pub comment: String,
    /// True when nobody writes.
    pub read_only: bool,
    /// True when clients must encrypt.
    pub encrypt: bool,
    /// True when it is left out of listings.
    pub hidden: bool,
    /// True if files do not change any more once they stayed unchanged for a time.
    pub write_once: bool,
    /// The brake on clients that change files as ransomware does. None without one.
    pub brake: Option<BrakeStatus>,
    /// True if files are scanned for viruses.
    pub scanned: bool,
    /// How far the index of names, sizes and dates is. None without one.
    pub index: Option<IndexState>,
    /// `read` or `write`: the rights of clients without an account. None where the share lets no guest
    /// in.
    pub guests: Option<&'static str>,
    /// The number of tree connects.
    pub connections: usize,
    /// The number of Opens.
    pub opens: usize,
    /// Bytes by which compression has made the answers to its clients shorter since the start.
    pub saved: u64,
    /// The state of its life here. A share that is owned can have a folder that cannot be opened.
    pub life: ShareLife,
    /// True while it is owned and not served, because this server does not know if it still owns it: the
    /// limit of the cluster has passed.
    pub paused: bool,
    /// The number of its ownership; 0 while it has no records of persistent handles.
    pub epoch: u64,
}

/// Facts about one Open.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct OpenStatus {
    /// The volatile half of its FileId, as hexadecimal text. No other Open has it while the
    /// server runs.
    pub id: String,
    /// Its session, as [`SessionStatus::id`]; None when it waits for its client.
    pub session: Option<String>,
    /// Name of the account that has logged on.
    pub user: String,
    /// Name of the share.
    pub share: String,
    /// The path in the share, with `\` between names; the name of a pipe.
    pub path: String,
    /// `file`, `directory` or `pipe`.
    pub kind: &'static str,
    /// Granted access: letters of `rwdx`, `a` for attributes alone.
    pub access: String,
    /// Access that it lets others have: letters of `rwd`.
    pub sharing: String,
    /// Its oplock or lease: letters of `RWH`, empty without one.
    pub caching: String,
    /// The number of its byte-range locks.
    pub locks: usize,
    /// `durable`, `resilient` or `persistent`; None when it ends with its connection.
    pub durable: Option<&'static str>,
    /// True when the file goes with it.
    pub delete_on_close: bool,
}

/// A byte-range lock of an Open.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct LockStatus {
    /// Its Open, as [`OpenStatus::id`].
    pub open: String,
    /// Name of the account that has logged on.
    pub user: String,
    /// Name of the share.
    pub share: String,
    /// The path in the share.
    pub path: String,
    /// Offset of the first locked byte.
    pub offset: u64,
    /// The number of locked bytes; 0 locks none.
    pub length: u64,
    /// True for an exclusive lock.
    pub exclusive: bool,
}

/// A lease, or an oplock.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// LeaseKey as hexadecimal text; None for an oplock.
    pub key: Option<String>,
    /// Name of the account that has logged on.
    pub user: String,
    /// Name of the share.
    pub share: String,
    /// The path in the share.
    pub path: String,
    /// The rights to cache: letters of `RWH`.
    pub state: String,
    /// True while the client is asked to give it back.
    pub breaking: bool,
    /// The number of its Opens.
    pub opens: usize,
}

/// Operations, bytes, latencies, and on what the time went. Times are microseconds.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ActivityStatus {
    /// The number of answered requests.
    pub operations: u64,
    /// Requests that were answered with an error.
    pub failures: u64,
    /// Bytes received in requests.
    pub received: u64,
    /// Bytes sent in responses.
    pub sent: u64,
    /// Time of work on the core.
    pub busy_us: u64,
    /// Time of waiting for a disk or a thread.
    pub waited_medium_us: u64,
    /// Time of waiting for other clients: breaks and locks.
    pub waited_others_us: u64,
    /// Time of waiting for limits of rate.
    pub waited_limits_us: u64,
    /// Time in which the client had no credits left.
    pub without_credits_us: u64,
    /// Time in which replies waited for the client or the network.
    pub unsent_us: u64,
    /// Latencies by class of operation; classes without operations are left out.
    pub classes: Vec<ClassStatus>,
}

/// Latencies of one class of operations.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ClassStatus {
    /// The class: `read`, `write` and so on.
    pub class: &'static str,
    /// The number of operations.
    pub count: u64,
    /// The sum of all latencies.
    pub sum_us: u64,
    /// Operations by latency: up to 16 µs, 32 µs and so on; the last bucket has no end.
    pub buckets: [u64; BUCKETS],
}

impl From<&Totals> for ActivityStatus {
    fn from(totals: &Totals) -> Self {
        let classes = Class::ALL.iter().zip(&totals.classes);
        let classes = classes.filter(|(_, latencies)| latencies.count() > 0);
        let of = |(class, latencies): (&Class, &Latencies)| ClassStatus {
            class: class.name(),
            count: latencies.count(),
            sum_us: latencies.micros,
            buckets: latencies.buckets,
        };
        Self {
            operations: totals.operations(),
            failures: totals.failures,
            received: totals.received,
            sent: totals.sent,
            busy_us: totals.busy,
            waited_medium_us: totals.medium,
            waited_others_us: totals.others,
            waited_limits_us: totals.held,
            without_credits_us: totals.credits,
            unsent_us: totals.network,
            classes: classes.map(of).collect(),
        }
    }
}

/// The classes of operations and the ends of the buckets of their histograms.
#[derive(Debug, Clone, Copy)]
pub struct LatencyBuckets;

impl LatencyBuckets {
    /// The names of all classes.
    pub const CLASSES: [&'static str; CLASSES] = {
        let mut names = [""; CLASSES];
        let mut at = 0;
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
        while at < CLASSES {
            names[at] = Class::ALL[at].name();
            at += 1;
        }
        names
    };

    /// The longest latency of each bucket, seconds; infinite for the last bucket.
    pub fn ends() -> [f64; BUCKETS] {
        std::array::from_fn(|at| bucket_end(at).map_or(f64::INFINITY, |end| end.as_secs_f64()))
    }
}
