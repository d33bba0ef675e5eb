//! Memory: what objects are charged with, its parts, and when it is given back.

use std::time::Duration;

use super::requests::MAX_IO;

/// Bytes that a session is charged with, its keys and tables included.
pub const SESSION_BYTES: usize = 4_096;

/// Bytes that an exchange which binds or renews a session is charged with, with the client's first
/// token.
pub const EXCHANGE_BYTES: usize = 3_072;

/// Estimate of the bytes of a connection that no account is charged with, for each time that it counts: once
/// for its network, and once more for the account that has logged on.
pub const CONNECTION_BYTES: usize = 3 << 10;

/// Bytes that a tree connect is charged with.
pub const TREE_CONNECT_BYTES: usize = 512;

/// Bytes that an Open is charged with, with its place in the tables.
pub const OPEN_BYTES: usize = 2_048;

/// Bytes that a byte-range lock is charged with.
pub const LOCK_BYTES: usize = 256;

/// Bytes that a directory's change watch is charged with, with its place in the tables.
/// Its path is charged twice beside it, for the directory and for its log. The reports
/// that the log keeps are charged to the watch that has fetched least.
pub const WATCH_BYTES: usize = 1_536;

/// Bytes that an oplock, or an Open's place in a lease, is charged with.
pub const LEASE_BYTES: usize = 512;

/// Bytes that a scan of a directory is charged with from its first request on. What
/// reads the names is charged beside it while the scan is under way.
pub const SCAN_BYTES: usize = 2_048;

/// Bytes that a token of an offloaded copy is charged with.
pub const OFFLOAD_TOKEN_BYTES: usize = 1_024;

/// Bytes that a user, session or address is charged with that has limits of rate of its own under one rule.
pub const RATE_BUCKET_BYTES: usize = 896;

/// Bytes that a logical flow is charged with, with its limits and those before them, which a request may still use.
pub const LOGICAL_FLOW_BYTES: usize = 1_536;

/// Bytes that all that is kept for clients may take (requests, replies, what waits, and
/// an estimate of all objects), unless configured otherwise. One client alone may have
/// credits for 512 MiB.
pub const MEMORY: usize = 2 << 30;

/// How often a connection that waits for memory looks whether there is some.
pub const MEMORY_LOOK: Duration = Duration::from_millis(5);

/// Time between two looks for memory to give back to the system.
pub const GIVE_BACK_LOOK: Duration = Duration::from_secs(1);

/// Free memory that was in use shortly before is given back from so many bytes on.
pub const GIVE_BACK_BYTES: usize = 4 << 20;

/// Looks after that one at which further free memory is given back, however little it is.
pub const GIVE_BACK_LOOKS: u32 = 4;

/// Looks after which free memory that nothing counts is given back under load, too.
pub const GIVE_BACK_LOOKS_BUSY: u32 = 30;

/// The part of the most processor time of a look, since memory was given back, at which the process
/// counts as quiet: one in so many.
pub const GIVE_BACK_QUIET_PART: u32 = 4;

/// The part of the memory that the cores together keep as free buffers, one nth, unless
/// configured otherwise.
pub const POOL_SHARE: usize = 16;

/// The part of the memory that logs of changed directories may have, one nth.
pub const CHANGES_SHARE: usize = 16;

/// How long memory is full before its biggest holder loses something.
pub const RELIEF_PATIENCE: Duration = Duration::from_millis(250);

/// Time before it loses more, while memory stays full.
pub const RELIEF_PAUSE: Duration = Duration::from_millis(25);

/// A request that may wait keeps its frame when that is not longer than what the
/// request needs and this.
pub const FRAME_KEPT_BYTES: usize = 8 << 10;

/// An estimate of what a request that waits takes beyond its own state and the bytes
/// of its message: places in lists, timers.
pub const WAITING_BYTES: usize = 512;

/// Bytes by which a connection's frames or replies change before its holder is
/// charged anew.
pub const TAB_STEP_BYTES: usize = 16 << 10;

/// The part of the memory that requests and replies of an account leave to accounts that have little, one
/// nth. An account that has more than this part waits while all have the rest.
pub const MEMORY_KEPT_PART: usize = 4;

/// Bytes of requests and replies that an account has whatever others have: one large reply that is
/// sent, and one that is built.
pub const PASSING_BYTES_MIN: usize = 2 * MAX_IO as usize;

/// Bytes of a request that needs little memory: such requests of an account that has more than its part of
/// the memory are received while an eighth is left, so that it can free something.
pub const SMALL_FRAME_BYTES: u32 = 4 << 10;

/// The part of the memory that small requests of such an account leave to others, one nth: in it, each
/// connection has one small request at a time.
pub const MEMORY_LAST_PART: usize = 8;

/// Requests that one connection of such an account may have under way beside those that it had when there
/// was memory, and small ones that are received before the client takes their answers.
pub const SMALL_REQUESTS_PER_CONNECTION: usize = 16;

/// The part of the memory that replies of one connection may take, one nth, while its account has no
/// more than its part; beyond, [`PASSING_BYTES_MIN`].
pub const MEMORY_CONNECTION_PART: usize = 16;

/// Bytes of requests and of replies that wait to be sent, of one account, beyond which its listings
/// have short answers.
pub const LISTING_BYTES_PER_USER: usize = 64 << 20;

/// Bytes of such a short answer, where the client has room for more.
pub const LISTING_BYTES_SHORT: usize = 64 << 10;

/// Time for which a READ in the middle of a compound waits for memory while earlier replies of the
/// compound have some.
pub const HELD_REPLY_PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of earlier replies in a compound from which this counts: about as much as a request that waits
/// has itself.
pub const HELD_REPLY_BYTES: usize = 8 << 10;

/// Bytes of frames that wait in the capture of an administrator. A frame without room is left out, and counted
/// in the capture.
pub const CAPTURE_QUEUED_BYTES: usize = 8 << 20;
