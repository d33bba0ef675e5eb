//! Connections, sessions and objects of one client, account or network.

use std::time::Duration;

use super::opens::LOCKS_PER_SESSION;

/// Connections that have not authenticated yet, from one address, or one /64 of IPv6.
pub const UNAUTHENTICATED_PER_ADDRESS: usize = 64;

/// Connections that have not authenticated yet, from one /24 of public IPv4.
pub const UNAUTHENTICATED_PER_24: usize = 256;

/// Connections that have not authenticated yet, from one /56 of IPv6: what many
/// providers give to one customer.
pub const UNAUTHENTICATED_PER_56: usize = 128;

/// Connections that have not authenticated yet, from one /48 of IPv6: what one site
/// can have.
pub const UNAUTHENTICATED_PER_48: usize = 256;

/// A connection that has not authenticated is not evicted before this age, unless its
/// network holds more of them than the newcomer's.
pub const UNAUTHENTICATED_SPARED: Duration = Duration::from_secs(1);

/// Connections that have not authenticated yet, in all.
pub const UNAUTHENTICATED: usize = 4_096;

/// Rows of each list of a status; further ones are only counted.
pub const STATUS_ROWS: usize = 10_000;

/// Statuses of errors that are counted apart; the others share one count.
pub const STATUSES_COUNTED: usize = 64;

/// Connections in all, unless configured otherwise.
pub const CONNECTIONS: usize = 65_536;

/// Connections of one account, unless configured otherwise.
pub const CONNECTIONS_PER_USER: usize = 4_096;

/// Connections from one client network, logged on or not, unless configured otherwise: a
/// terminal server or a network behind one address has many users.
pub const CONNECTIONS_PER_ADDRESS: usize = 16_384;

/// Sessions of one account, unless configured otherwise: a CI farm, or all mounts of a
/// service, may use one account. All of them together take some 10 MiB.
pub const SESSIONS_PER_USER: usize = 4_096;

/// Sessions of guests. Those of one address have at most three quarters of them: see `Uses::take`.
pub const GUEST_SESSIONS: usize = 64;

/// Sessions from one client network.
pub const SESSIONS_PER_ADDRESS: usize = 16_384;

/// Tree connects of one account.
pub const TREES_PER_USER: usize = 32_768;

/// Opens of one account, unless configured otherwise. Descriptors may be fewer.
pub const OPENS_PER_USER: usize = 100_000;

/// Byte ranges that one account may have locked: four sessions full.
pub const LOCKS_PER_USER: usize = 4 * LOCKS_PER_SESSION;

/// Opens may not take the last of this many parts of the descriptors.
pub const DESCRIPTORS_KEPT_PART: usize = 8;

/// Nor the last of them, if that is more: for those who connect.
pub const DESCRIPTORS_KEPT_MIN: usize = 96;

/// Connections may not take the last descriptors: they are for the log, the state store
/// and what is opened for a moment.
pub const DESCRIPTORS_FOR_SERVER: usize = 32;

/// Descriptors that one Open may take: its file, that of a stream, and the folder in which it was made,
/// until that is durable.
pub const DESCRIPTORS_PER_OBJECT: usize = 3;

/// A process that may have fewer descriptors warns when it starts.
pub const DESCRIPTORS_WARN: usize = 16_384;

/// How long a session may have nothing open and ask for nothing before it is ended,
/// minutes, unless configured otherwise: what Windows has.
pub const IDLE_SESSION_MINUTES: u32 = 15;

/// How often idle sessions are looked for.
pub const IDLE_LOOK: Duration = Duration::from_secs(15);

/// Time without a request after which a connection of QUIC is not charged for the wide windows that it has.
pub const QUIC_REST_AFTER: Duration = Duration::from_secs(1);

/// How long accepting pauses when the system is out of descriptors or memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection must have negotiated within this time.
pub const NEGOTIATE_DEADLINE: Duration = Duration::from_secs(10);

/// A connection must have authenticated within this time of being accepted, and
/// again when its last session has ended.
pub const AUTHENTICATE_DEADLINE: Duration = Duration::from_secs(30);

/// How long a new session waits for what the one that it takes over has under way.
pub const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(5);

/// Sessions on one connection.
pub const SESSIONS_PER_CONNECTION: usize = 64;

/// Sessions on one connection before one of them has authenticated: strangers
/// together must not be able to take all that there are.
pub const SESSIONS_BEFORE_AUTHENTICATION: usize = 8;

/// Most sessions of the server.
pub const SESSIONS: usize = 65_536;
const _: () = assert!(UNAUTHENTICATED * SESSIONS_BEFORE_AUTHENTICATION <= SESSIONS / 2);

/// Connections that one session may use, MS-SMB2 note on Windows: 32.
pub const CHANNELS_PER_SESSION: usize = 32;

/// Numbered operations on names that one session may have under way.
pub const OPERATIONS_PER_SESSION: usize = 128;

/// Tree connects in one session.
pub const TREES_PER_SESSION: usize = 1_024;

/// Opens in one session.
pub const OPENS_PER_SESSION: usize = 65_536;

/// CHANGE_NOTIFY requests of one session that may wait.
pub const NOTIFIES_PER_SESSION: usize = 1_024;

/// How long a server that was told to stop waits for requests under way, unless
/// configured otherwise.
pub const DRAIN: Duration = Duration::from_secs(10);
