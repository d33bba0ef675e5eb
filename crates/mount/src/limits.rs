//! Numbers that bound what a mount keeps and waits for.

use std::time::Duration;

/// How long names and attributes that no lease protects are believed, unless told.
pub const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// Threads that take requests from the kernel; the work is done by tasks.
pub const THREADS: usize = 2;
/// Requests that the kernel may have under way in the background (read-ahead,
/// written-back pages).
pub const BACKGROUND: u16 = 64;
/// Longest read and write that the kernel asks for, bytes.
pub const REQUEST_MAX: u32 = 1 << 20;
/// Reads so long are begun by the thread that takes them from the kernel, bytes.
pub const READ_HERE: u32 = 128 << 10;
/// Tries at an operation whose outcome a lost connection left unknown.
pub const UNKNOWN_TRIES: usize = 4;
/// Longest name of a component, bytes, as NAME_MAX has it.
pub const NAME_MAX: u32 = 255;
/// Longest value of an extended attribute, bytes: what an EA's length can say.
pub const XATTR_MAX: usize = 65_535;
/// Bytes in a page of what is kept of a file.
pub const PAGE_BYTES: usize = 64 << 10;
/// Most bytes kept of what was read, of all files together.
pub const CACHE_BYTES: usize = 256 << 20;
/// Pages fetched by one READ.
pub const FETCH_PAGES: u64 = 16;
/// How many pages that were asked for in part are remembered of each file.
pub const ASKED_PAGES: usize = 1024;
/// How far is read ahead of who reads from one end to the other, bytes.
pub const AHEAD_BYTES: u64 = 8 << 20;
/// Writes so long are not copied twice, and are a WRITE of their own, bytes.
pub const SHARED_FROM: usize = 512 << 10;
/// Most bytes in one WRITE of what was gathered.
pub const EXTENT_BYTES: usize = 1 << 20;
/// So many gathered bytes of a file are sent without being asked for.
pub const GATHER_BYTES: u64 = 4 << 20;
/// So many gathered extents of a file too: they are a WRITE each.
pub const GATHER_EXTENTS: usize = 1024;
/// How many times as much a file may gather before its writers wait.
pub const GATHER_MOST: usize = 4;
/// WRITEs of one file under way at once, of what was gathered.
pub const SENDS_AT_ONCE: usize = 64;
/// Notes of pages that have gone, beside as many as there are pages.
pub const STALE_NOTES: usize = 1024;
/// Longest file that POSIX knows, bytes.
pub const LEN_MAX: u64 = i64::MAX as u64;
/// Tries at a read through the pages while others write.
pub const READ_TRIES: usize = 8;
/// With so many unsent bytes of all files together writers wait.
pub const UNSENT_BYTES: u64 = 64 << 20;
/// What was written is sent after this time at the latest.
pub const SEND_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked for.
pub const TIDY_EVERY: Duration = Duration::from_millis(500);
/// How long a file that was only read stays open after its last close.
pub const KEPT_FOR: Duration = Duration::from_secs(10);
/// Most files that are open for nobody.
pub const KEPT_FILES: usize = 256;
/// Most directories that are kept open for what their leases allow to keep, and most of
/// which a listing is kept.
pub const HELD_DIRS: usize = 256;
/// Longest listing that is kept of one of them.
pub const HELD_ENTRIES: usize = 16_384;
/// Most entries in all listings that are kept.
pub const LISTED_ENTRIES: usize = 16 * HELD_ENTRIES;
/// Most special files of a directory that are looked into when it is listed.
pub const SPECIALS_MAX: usize = 256;
/// How many of them at once.
pub const SPECIALS_AT_ONCE: usize = 16;
/// How long the kernel may believe, unless it is told otherwise, that a name is not there
/// which the lease on its directory speaks for.
pub const ABSENT_FOR: Duration = Duration::from_secs(30);
/// Most such names of one directory.
pub const ABSENT_MAX: usize = 4096;
/// So many names of a directory that are asked about in one second are worth a listing.
pub const WORTH_LISTING: u32 = 3;
/// Longest directory that is listed for that.
pub const WORTH_ENTRIES: usize = 2048;
/// A directory whose lease was taken is not held again, but for who lists it, for
/// this long.
pub const NOT_HELD_FOR: Duration = Duration::from_secs(1);
/// How often the server is asked whether it is there while leases are trusted.
pub const ECHO_EVERY: Duration = Duration::from_secs(5);
/// Most byte-range locks of one file.
pub const LOCKS_MAX: usize = 4096;
/// First pause of who waits for a lock; it doubles.
pub const LOCK_AGAIN_FIRST: Duration = Duration::from_millis(10);
/// Longest pause of who waits for a lock.
pub const LOCK_AGAIN_MAX: Duration = Duration::from_millis(500);
/// How often it is looked whether who waits for a lock was sent a signal.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(25);
/// How often it is looked whether who waits for anything else was killed.
pub const KILLED_EVERY: Duration = Duration::from_millis(250);
/// Files that are written and closed at once when all is over.
pub const AT_ONCE_AT_THE_END: usize = 64;
/// How long that may take, once all is written.
pub const CLOSED_WITHIN: Duration = Duration::from_secs(5);
/// Tries at removing a directory in which a removed file is not closed yet.
pub const REMOVE_TRIES: usize = 25;
/// Pause between two of them.
pub const REMOVE_AGAIN: Duration = Duration::from_millis(20);
