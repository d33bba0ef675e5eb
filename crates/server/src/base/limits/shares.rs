//! Shares: their disks, their recycle bins, and their moves between servers.

use std::time::Duration;

/// Names tried for a file that goes to a recycle bin, against other changes of the same folder.
pub const RECYCLE_ATTEMPTS: usize = 16;

/// Time from the start of a server to the first search for old files in recycle bins.
pub const RECYCLE_FIRST_SWEEP: Duration = Duration::from_secs(60);

/// Interval of the search for old files in recycle bins.
pub const RECYCLE_SWEEP: Duration = Duration::from_secs(3_600);

/// Entries of recycle bins between two pauses of the search.
pub const RECYCLE_SLICE: usize = 1_000;

/// Pause of the search for old files in recycle bins.
pub const RECYCLE_PAUSE: Duration = Duration::from_millis(20);

/// Users of a recycle bin, folders that are still to be listed, and files of one folder that are
/// removed in one search; further ones are left to later searches.
pub const RECYCLE_FOLDERS: usize = 10_000;

/// Ages in hours that the search tells apart: a year. Older files count as one year old.
pub const RECYCLE_AGES: usize = 8_784;

/// A request that holds its core for so long in one poll waits for a slow disk: the requests of its share leave
/// the cores for [`SLOW_SHARE`]. No request computes for so long, and a busy machine seldom stops a
/// thread for so long.
pub const SLOW_CALL: Duration = Duration::from_millis(200);

/// Time without a request after which a share's disk is tried out: it may have been stopped, and take seconds
/// to start.
pub const UNTRIED_AFTER: Duration = Duration::from_secs(60);

/// Parts of requests that run beside the cores, and do not wait for long, before a disk counts as tried out.
pub const DISK_TRIALS: u32 = 64;

/// Time for which the requests of a share run beside the cores after its last slow call.
pub const SLOW_SHARE: Duration = Duration::from_secs(60);

/// How long the count of what backups take is good.
pub const TIME_MACHINE_COUNTED: Duration = Duration::from_secs(10);

/// Names that one count of backups looks at, in all folders together; macOS makes bands of 8 MiB
/// and more.
pub const TIME_MACHINE_NAMES: usize = if cfg!(test) { 64 } else { 4_000_000 };

/// Backups that one count looks at: a Mac has one on a share.
pub const TIME_MACHINE_IMAGES: usize = if cfg!(test) { 8 } else { 4_096 };

/// Bytes of a disk image's Info.plist that are looked at.
pub const TIME_MACHINE_PLIST_BYTES: usize = 64 * 1024;

/// Looks at a share's folder without a use of it after which it is closed, so that its disk can be
/// unmounted.
pub const FOLDER_IDLE_LOOKS: u32 = 2;

/// Openings of a share's folder in a row, while each opening or somebody else mounts a disk there.
pub const FOLDER_OPENINGS: usize = 4;

/// Users that one answer tells the quotas of, and that one query may name.
pub const QUOTA_ENTRIES: usize = 1_024;

/// Time that requests of a share may take to end while it is given to another server.
pub const HANDOVER_PATIENCE: Duration = Duration::from_secs(5);

/// Time after the loss of a share in which a TREE_CONNECT to it ends the connection, unless it asks for the owner.
/// By its end an address that moves with the share has left, and a witness has told its clients of the owner, so
/// that the client looks elsewhere when the share is refused.
pub const LEFT_SHARE_PATIENCE: Duration = Duration::from_secs(5);

/// Opens of a share that is given away or lost which are closed before others use the thread.
pub const CLOSED_AT_ONCE: usize = 64;

/// Time between two looks at the closes of a share that it waits for.
pub const CHANGES_LOOK: Duration = Duration::from_millis(2);

/// Longest time between two looks at the limit of a cluster's shares by the one who ends the
/// connections of clients that ask nothing. Requests look at it themselves.
pub const LIMIT_LOOK: Duration = Duration::from_millis(250);

/// Time between two such looks while the shares are paused.
pub const PAUSE_LOOK: Duration = Duration::from_millis(100);

/// Pauses before looks at the storage of a cluster's share after a request has failed.
pub const STORAGE_LOOKS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(250)];

/// Longest wait for looks at the storage of a cluster's share after a request has failed.
pub const STORAGE_PATIENCE: Duration = Duration::from_secs(2);

/// After so long it is tried again to remove what the state store did not remove.
pub const REMOVE_AGAIN: Duration = Duration::from_secs(2);

/// Changes of one kind, of one client in one share, that the brake counts in a minute or an hour, whatever the
/// configuration says.
pub const BRAKE_COUNT_MAX: u16 = 500;

/// Files made by a client last that the brake knows; further ones count as files that were there before. And the most of
/// old files that it has emptied last, and of those that it has moved to an excepted place.
pub const BRAKE_FRESH_FILES: usize = 256;

/// Folders of a client in which the brake pairs new files with removed ones: those that changed last.
pub const BRAKE_FOLDERS: usize = 128;

/// Bytes that a tree connect is charged with in addition where the share has a brake.
pub const BRAKE_CLIENT_BYTES: usize = 62 << 10;

/// Addresses of an account that the brake of a share holds one by one. With so many the account is held at all others, too.
pub const BRAKE_HELD_ADDRESSES: usize = 16;

/// Clients that the brake of a share remembers without a tree connect, those that it has hold of not counted.
pub const BRAKE_CLIENTS: usize = 256;

/// Bytes of the journal of a brake; at this size it becomes the older of two.
pub const BRAKE_JOURNAL_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// Time after which the brake forgets a client without a tree connect.
pub const BRAKE_IDLE: Duration = Duration::from_secs(3_600);
