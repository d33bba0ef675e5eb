//! Threads beside the cores, and what holds a core.

use std::time::Duration;

/// State machines of a core that answer frames and are idle, kept for the next frames. Requests
/// that wait have theirs, and are charged for them.
pub const SPARE_ANSWERERS: usize = 4;

/// A poll that holds its core for so long is logged, with the request.
pub const SLOW_POLL: Duration = Duration::from_millis(100);

/// Requests that take so long of one poll are noted, in case the poll is too long.
pub const CULPRIT_FROM: Duration = Duration::from_millis(5);

/// Requests that one share's blocking pool carries out at a time; more wait for a place.
pub const BLOCKING_REQUESTS: usize = 24;

/// Those of one user. Its requests may wait for each other, for a lease that is not given up
/// for instance; other users have permits left.
pub const BLOCKING_REQUESTS_PER_USER: usize = 16;

/// Requests on threads of one blocking pool that wait for the clients of a share that has come from
/// another server. Those clients need permits of the same pool, also those of the same user.
pub const BLOCKING_GRACE_WAITS: usize = BLOCKING_REQUESTS_PER_USER / 2;

/// The same for those that close.
pub const BLOCKING_CLOSES: usize = 8;

/// Threads of a blocking pool: one for each request, and for Opens whose clients left.
pub const BLOCKING_THREADS: usize = BLOCKING_REQUESTS + BLOCKING_CLOSES + 8;

/// Threads that close files whose blocks are freed then. One account has one of them at a time.
pub const CLOSING_THREADS: usize = 4;

/// Processors that long work of all accounts together leaves to the cores: with one processor it runs
/// one at a time.
pub const LONG_WORK_SPARES: usize = 1;

/// The part of the processors that long work of one account may use, one nth; at least one.
pub const LONG_WORK_USER_PART: usize = 2;

/// An account has all processors for its long work when no other account has asked for anything for so
/// long.
pub const ALONE_AFTER: Duration = Duration::from_secs(2);

/// Time for which the server remembers which accounts have asked for something lately.
pub const ALONE_KNOWN: Duration = Duration::from_millis(250);

/// How long a thread of a blocking pool waits for more to do.
pub const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(60);

/// Time after which an idle thread of a blocking pool frees the buffers that it keeps.
pub const BLOCKING_THREAD_TRIM: Duration = Duration::from_millis(500);

/// Threads that sign, verify, seal and unseal large messages; one fewer than cores if that is less.
pub const CRYPTO_THREADS: usize = 16;

/// Messages that were given to them and are not done, for each thread: one that it works on, and one for
/// which it need not wait. Further ones wait in their connections, in turns by account.
pub const CRYPTO_JOBS_PER_THREAD: usize = 2;

/// Messages of one connection that are received before their turn, so that others check them, and
/// replies that others protect, before no more requests are received.
pub const CRYPTO_LINED_UP: usize = 8;
