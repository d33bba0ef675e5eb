//! Numbers that bound what a server can make this client do or wait for.

use std::time::Duration;

/// Most credits held on one connection unless told: 32 MiB in flight.
pub const CREDITS: u16 = 512;
/// At least so many are asked for, whatever is told: the longest compound costs fewer.
pub const CREDITS_MIN: u16 = 8;
/// Most channels of a session.
pub const CHANNELS_MAX: usize = 16;
/// How long one attempt at a connection and a logon may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long operations wait for a lost server to come back, unless told.
pub const RECOVER_FOR: Duration = Duration::from_secs(60);
/// How long a session that is recovered is not tried again whose user the server refused:
/// attempts without end would lock the account.
pub const LOGON_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Time between two looks for answers that a logoff waits for.
pub const ANSWERED_LOOK: Duration = Duration::from_millis(2);
/// Longest time that a logoff takes, the answers to earlier requests included.
pub const LOG_OFF_FOR: Duration = Duration::from_secs(2);
/// First pause between two attempts to reach a lost server; it doubles.
pub const BACK_OFF_FIRST: Duration = Duration::from_millis(50);
/// WRITE requests for what a server writes in parts.
pub const SHORT_WRITES: u32 = 16;
/// Longest pause between two attempts.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Silence, while answers are due, after which an ECHO is sent.
pub const ECHO_AFTER: Duration = Duration::from_secs(4);
/// Silence, while answers are due, after which a connection counts as dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(12);
/// While all requests under way have been put off, an ECHO is sent so often.
pub const ECHO_WAITING: Duration = Duration::from_secs(30);
/// How long the server may put a request off that waits for nobody (all but
/// CHANGE_NOTIFY, and LOCK that is to wait): a tape has to be found, a disk to be written.
pub const PUT_OFF_FOR: Duration = Duration::from_secs(600);
/// How long the answer to a request may take that was cancelled.
pub const CANCEL_WITHIN: Duration = Duration::from_secs(30);
/// ECHOs that are sent to get the credits that one request costs.
pub const ECHOES_FOR_CREDITS: u32 = 64;
/// Interim responses to one request: MS-SMB2 3.3.4.2 knows one.
pub const INTERIMS: u32 = 16;
/// Connections on which one operation may find the server breaking the protocol:
/// once may be a fault on the way.
pub const BROKEN_MAX: u32 = 2;
/// Rounds that a logon may take.
pub const LOGON_ROUNDS: usize = 8;
/// Largest READ or WRITE, bytes, whatever the server would take, unless told.
pub const TRANSFER_MAX: u32 = 1 << 20;
/// Largest one at all: what a frame holds is less than 16 MiB.
pub const PAYLOAD_MAX: u32 = 8 << 20;
/// Messages at least this long are sealed and opened on other cores, where that is
/// slow here.
pub const BESIDE_BYTES_MIN: usize = 32 << 10;
/// It is slow from this on, for a mebibyte.
pub const BESIDE_FROM: Duration = Duration::from_micros(250);
/// Replies at least this long are given to whoever asked before more is read, while
/// they are in the cache.
pub const HAND_OVER_BYTES: usize = 64 << 10;
/// A clock that stood still this long shows that this program was held up, not the
/// server.
pub const HELD_UP: Duration = Duration::from_secs(3);
/// Attempts at one operation while the server comes and goes.
pub const ATTEMPTS: u32 = 32;
/// Lifetime that is asked for durable handles, milliseconds.
pub const DURABLE_TIMEOUT_MS: u32 = 120_000;
/// Parts of DFS namespaces that are remembered.
pub const REFERRALS_KEPT: usize = 128;
/// How long at most, whatever the server says.
pub const REFERRAL_FOR: Duration = Duration::from_secs(3600);
/// How long at least: what was asked for is used, though version 1 names no time.
pub const REFERRAL_AT_LEAST: Duration = Duration::from_secs(10);
/// Sessions with the targets of a namespace that are kept.
pub const TARGET_SESSIONS: usize = 32;
/// How long it is believed that a share's file system has no way to copy.
pub const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Targets of referrals that are tried on the way to one place.
pub const TARGETS_TRIED: usize = 16;
/// SIDs or names of one lookup.
pub const LOOKUP_MAX: usize = 500;
/// Bytes asked for by one QUERY_DIRECTORY.
pub const LISTING_BYTES: u32 = 1 << 20;
/// Breaks that a server may have told and this client not yet looked at, and as many that
/// are not yet answered: more are no server's that means well.
pub const BREAKS_WAITING: usize = 1024;
/// Breaks that are answered at once.
pub const BREAKS_AT_ONCE: usize = 64;
/// How often a listing that lost its connection is begun in all.
pub const LISTINGS: u32 = 8;
/// Most entries of one listing.
pub const ENTRIES_MAX: usize = 8 << 20;
/// Entries that all listings of a process hold together while they are under way
/// (`Share::read_dir`). What finds no room waits for the others.
pub const ENTRIES_UNDER_WAY: usize = ENTRIES_MAX;
/// Replies to a listing in a row without a name in them (but `.` and `..`).
pub const EMPTY_LISTINGS: usize = 4;
/// Symbolic links and DFS referrals followed for one path.
pub const REDIRECTS: usize = 16;
/// How often a request is repeated once more that the server carries out still, or a CREATE
/// whose Open it has in a session that is over; the pauses double from [`BACK_OFF_FIRST`].
pub const REPEATS: u32 = 7;
