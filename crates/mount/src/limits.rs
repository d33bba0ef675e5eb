//! Numbers that bound what a mount keeps and waits for.

use std::time::Duration;

/// Default for how long names and attributes without a lease stay valid.
pub const ATTR_TIMEOUT: Duration = Duration::from_secs(1);
/// Threads that take requests from the kernel; tasks carry them out.
pub const THREADS: usize = 2;
/// Most background requests of the kernel at once (read-ahead, write-back of pages).
pub const BACKGROUND: u16 = 64;
/// Longest read and write that the kernel requests, bytes.
pub const REQUEST_MAX: u32 = 1 << 20;
/// Longest read that starts on the thread that takes it from the kernel, bytes.
pub const INLINE_READ_MAX: u32 = 128 << 10;
/// Most polls of one work after each other, while its waker is called during them.
pub const POLLS_AT_ONCE: usize = 4;
/// Most works that go on in one poll of a task.
pub const GO_ON_AT_ONCE: usize = 16;
/// Attempts at an operation whose outcome is unknown after a lost connection.
pub const UNKNOWN_TRIES: usize = 4;
/// Longest name of a component, bytes; NAME_MAX of POSIX.
pub const NAME_MAX: u32 = 255;
/// Longest path in the share, bytes; a CREATE has no room for more.
pub const PATH_BYTES: usize = 32_000;
/// Length of a path in the share, bytes, from which a server on a Unix file system may not find the
/// directory: PATH_MAX of Linux without 256 bytes for the folder of the share.
pub const HOST_PATH_BYTES: usize = 4096 - 256;
/// Longest value of an extended attribute, bytes; the length field of an EA has 16 bits.
pub const XATTR_MAX: usize = 65_535;
/// Size of a page of the data cache, bytes.
pub const PAGE_BYTES: usize = 64 << 10;
/// Default for the most bytes of cached data, over all files.
pub const CACHE_BYTES: usize = 256 << 20;
/// Most pages fetched by one READ.
pub const FETCH_PAGES: u64 = 16;
/// Pages per file that are remembered as read in part.
pub const PARTLY_READ_PAGES: usize = 1024;
/// Largest read-ahead for a sequential reader, bytes.
pub const READ_AHEAD_BYTES: u64 = 8 << 20;
/// Writes from this size on share one copy between cache and WRITE, bytes.
pub const SHARED_FROM: usize = 512 << 10;
/// Most bytes in one WRITE of write-back data.
pub const EXTENT_BYTES: usize = 1 << 20;
/// Unsent bytes of a file at which sending starts.
pub const WRITE_BACK_BYTES: u64 = 4 << 20;
/// Unsent extents of a file at which sending starts; each extent is a WRITE.
pub const WRITE_BACK_EXTENTS: usize = 1024;
/// Factor over `WRITE_BACK_BYTES` and `WRITE_BACK_EXTENTS` at which writers of a file wait.
pub const WRITE_BACK_FACTOR: usize = 4;
/// Write-back WRITEs of one file at once.
pub const SENDS_AT_ONCE: usize = 64;
/// Entries in the eviction queue for evicted pages, beyond one for each page.
pub const EVICTED_QUEUE_MAX: usize = 1024;
/// Longest file in POSIX, bytes.
pub const LEN_MAX: u64 = i64::MAX as u64;
/// Attempts at a cached read while others write.
pub const READ_TRIES: usize = 8;
/// Unsent bytes of all files at which writers wait.
pub const UNSENT_BYTES: u64 = 64 << 20;
/// Longest time before written data is sent.
pub const SEND_AFTER: Duration = Duration::from_secs(1);
/// Interval of the maintenance task, which sends old data and closes idle files.
pub const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);
/// How long a file that was only read stays open after its last close.
pub const IDLE_FILE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most idle files that stay open on the server.
pub const IDLE_FILES_MAX: usize = 256;
/// Most directories that stay open for their leases, and most cached listings.
pub const LEASED_DIRS_MAX: usize = 256;
/// Most entries of one cached listing.
pub const LISTING_ENTRIES_MAX: usize = 16_384;
/// Most entries of all cached listings together.
pub const CACHED_ENTRIES_MAX: usize = 16 * LISTING_ENTRIES_MAX;
/// Most special files of a directory whose kind is looked up when it is listed.
pub const SPECIALS_MAX: usize = 256;
/// Look-ups of special files at once.
pub const SPECIALS_AT_ONCE: usize = 16;
/// Look-ups of the names of a file at once, when a program opens it again.
pub const NAMES_AT_ONCE: usize = 16;
/// How long the kernel may cache an absent name under a directory lease.
pub const ABSENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Most absent names cached by the kernel for one directory.
pub const ABSENT_MAX: usize = 4096;
/// Look-ups in one directory within a second at which it is listed instead.
pub const LOOKUPS_PER_LISTING: u32 = 3;
/// Most entries of a directory that is listed instead of single look-ups.
pub const LOOKUP_LISTING_MAX: usize = 2048;
/// How long after its last change by this mount a directory counts as being filled.
pub const FILLED_FOR: Duration = Duration::from_secs(1);
/// Most names of one directory that are known to be all of its names.
pub const KNOWN_NAMES_MAX: usize = 8192;
/// How long the names of a directory that changes are not listed again after an attempt.
pub const NAMES_PAUSE: Duration = Duration::from_secs(1);
/// How long after a lease break a directory is opened for a lease only by a listing.
pub const LEASE_BREAK_PAUSE: Duration = Duration::from_secs(1);
/// Interval of requests that check the server's presence while directory leases are held.
pub const ECHO_INTERVAL: Duration = Duration::from_secs(5);
/// Most byte-range locks of one file.
pub const LOCKS_MAX: usize = 4096;
/// First pause between attempts at a lock; it doubles.
pub const LOCK_RETRY_FIRST: Duration = Duration::from_millis(10);
/// Longest pause between attempts at a lock.
pub const LOCK_RETRY_MAX: Duration = Duration::from_millis(500);
/// Interval of checks for signals to a thread that waits for a lock.
pub const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(25);
/// Interval of checks whether a waiting thread was killed.
pub const KILL_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Files that are sent and closed at once during unmount.
pub const CLOSES_AT_ONCE: usize = 64;
/// Longest time to close all files during unmount, after their data is sent.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts at removing a directory that contains a removed file which is still open.
pub const REMOVE_TRIES: usize = 25;
/// Pause between these attempts.
pub const REMOVE_RETRY: Duration = Duration::from_millis(20);
