//! Limits of what etcd may answer, and of what a client holds.

use core::time::Duration;

/// The longest body of an answer, and the longest single answer of a stream, in bytes.
pub const ANSWER_BYTES: usize = 8 << 20;

/// The longest head of an answer of HTTP, in bytes.
pub const HEAD_BYTES: usize = 16 << 10;

/// The longest request, in bytes of JSON. etcd's own limit is 1.5 MiB (`--max-request-bytes`), which
/// base64 makes 2 MiB.
pub const REQUEST_BYTES: usize = 2 << 20;

/// Objects and lists that may stand one in the other in an answer. etcd's answers have 7.
pub const NESTING: u32 = 16;

/// Keys with their values in one answer, and changes in one answer of a watch.
pub const VALUES: usize = 65_536;

/// Operations in each branch of a transaction, and its conditions. etcd's own limit is 128 unless it
/// is configured (`--max-txn-ops`).
pub const OPERATIONS: usize = 1_024;

/// The longest key, in bytes.
pub const KEY_BYTES: usize = 4_096;

/// Members of a cluster, and addresses of each member.
pub const MEMBERS: usize = 64;

/// The longest name, version or address in an answer, in bytes.
pub const NAME_BYTES: usize = 1_024;

/// The longest token that stands for a name and a password, in bytes.
pub const TOKEN_BYTES: usize = 8_192;

/// The bytes that are kept of a reason in words.
pub const REASON_BYTES: usize = 512;

/// The longest life of a lease, in seconds: etcd's own limit.
pub const TTL_SECONDS: u64 = 9_000_000_000;

/// Endpoints of a client.
pub const ENDPOINTS: usize = 16;

/// Requests that are under way at once, each on a connection of its own. Others wait.
pub const REQUESTS_AT_ONCE: usize = 64;

/// Requests that are under way or wait. Another one fails at once.
pub const REQUESTS: usize = 8_192;

/// Connections to an endpoint that are kept for later requests.
pub const IDLE_CONNECTIONS: usize = 16;

/// Watches at once, each on a connection of its own. Another one fails at once.
pub const WATCHES: usize = 64;

/// Tokens that one request may ask for, where etcd refuses each.
pub const TOKENS_PER_REQUEST: u32 = 3;

/// The pause after all endpoints have failed in turn, before the first is tried again.
pub const PAUSE: Duration = Duration::from_millis(50);

/// The longest time for which a watch is not tried again after all endpoints have failed.
pub const WATCH_PAUSE: Duration = Duration::from_secs(1);
