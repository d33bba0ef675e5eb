//! Named limits of the admin interface.

use std::time::Duration;

/// Connections at one time: as many on the Unix socket, and as many on TCP. Strangers reach TCP
/// alone, so they keep nobody from the Unix socket. A further connection ends another one.
pub const CONNECTIONS: usize = 32;

/// Connections of one process on the Unix socket, or of one address on TCP (a /64 of IPv6).
pub const CONNECTIONS_PER_PEER: usize = 16;

/// Longest life of a connection over TCP. A peer that takes its answer slowly, or never, holds its
/// slot no longer.
pub const REMOTE_TIME: Duration = Duration::from_secs(600);

/// Bytes of the head of a request, and of what a connection reads ahead.
pub const HEAD_BYTES: usize = 16 * 1024;

/// Bytes of the body of a request.
pub const BODY_BYTES: usize = 4 * 1024;

/// Headers of a request.
pub const HEADERS: usize = 64;

/// Time in which the head of a request must come, also the time that an idle connection is kept.
pub const HEAD_TIME: Duration = Duration::from_secs(30);

/// Time in which the body of a request must come and its answer be made.
pub const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Time in which snapshots that were asked for are made or removed.
pub const SNAPSHOTS_TIME: Duration = Duration::from_secs(600);

/// Longest time of a capture of messages.
pub const CAPTURE_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Time after which a capture is looked at if little waits in it.
pub const CAPTURE_LOOK: Duration = Duration::from_millis(20);

/// Files that one answer tells of a search in an index.
pub const FOUND_MOST: usize = 10_000;

/// Time for which quotas of users that were read are shown.
pub const QUOTAS_AGE: Duration = Duration::from_secs(60);

/// The delay of the answer to a wrong token.
pub const WRONG_TOKEN_DELAY: Duration = Duration::from_secs(1);

/// Wrong tokens of one network (an address, or a /64 of IPv6) within [`WRONG_TOKENS_TIME`]. Further ones
/// are not judged.
pub const WRONG_TOKENS: usize = 10;

/// Time for which wrong tokens of a network count.
pub const WRONG_TOKENS_TIME: Duration = Duration::from_secs(60);

/// Networks whose wrong tokens are counted.
pub const GUESSING_NETWORKS: usize = 256;

/// Sessions of browsers at one time. A further one ends the one that was used least lately.
pub const SESSIONS: usize = 16;

/// Time after which a session ends that nobody uses.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// Longest life of a session.
pub const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Changes of users, shares and limits within [`CHANGES_TIME`].
pub const CHANGES: usize = 60;

/// Time in which changes are counted.
pub const CHANGES_TIME: Duration = Duration::from_secs(60);

/// Time in which a client of TLS must be known.
pub const TLS_TIME: Duration = Duration::from_secs(10);

/// Least number of characters of a token.
pub const TOKEN_CHARS_MIN: usize = 16;

/// Rows of each list that a request may ask for.
pub const ROWS_MAX: usize = 100_000;

/// Shares with metrics of their own; the others are counted as one.
pub const SHARE_LABELS: usize = 200;

/// Bytes of an answer that the client side of the interface reads.
pub const ANSWER_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// Time between two samples of the history.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// Samples of the history: those of an hour, some 100 bytes each.
pub const SAMPLES: usize = 720;

/// Shares whose folders are looked at.
pub const PROBED_SHARES: usize = 1_000;

/// Threads that look at the folders of shares; one that does not answer keeps its thread.
pub const PROBE_THREADS: usize = 4;

/// Least time between two looks at the folders of all shares.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Time after which a folder that has not answered is shown so.
pub const PROBE_SLOW: Duration = Duration::from_secs(5);

/// Time that an answer waits for looks at folders.
pub const PROBE_PATIENCE: Duration = Duration::from_millis(500);
