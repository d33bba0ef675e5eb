//! Named limits of this crate.

use std::time::Duration;

/// Bytes in one component on the medium: 255 units of UTF-16, with three bytes at most for each. Many
/// file systems take less (NAME_MAX), and refuse a longer name themselves.
pub const COMPONENT_BYTES: usize = 765;

/// Files and folders of the skeleton of homes.
pub const HOME_ENTRIES: usize = if cfg!(test) { 64 } else { 1_000 };

/// Bytes of the files of that skeleton together.
pub const HOME_BYTES: u64 = if cfg!(test) { 65_536 } else { 64 << 20 };

/// Folders of that skeleton that lie in one another.
pub(crate) const HOME_DEPTH: usize = 8;

/// Bytes in the name of an extended attribute (XATTR_NAME_MAX).
pub const XATTR_NAME_BYTES: usize = 255;

/// Bytes of a path that one system call takes, without its NUL (PATH_MAX - 1).
pub const PATH_BYTES: usize = 4_095;

/// Names that were removed or renamed lately, remembered on shares with short names.
pub const TUNNELS: usize = 256;

/// Files whose DOS attributes are remembered until they change, in all shares: 17 MB. Each part of the
/// table has 8,192 places of 33 bytes in the end, which are half full.
pub const KNOWN_FILES: usize = if cfg!(test) { 256 } else { 7 << 15 };

/// Time after everything remembered was given up in which no facts are gathered, and nothing is given
/// up again.
pub const FORGOTTEN_FOR: Duration = Duration::from_secs(10);

/// Bytes that one name in the cache of a share takes.
pub const CACHED_NAME_BYTES: usize = 80;

/// Bytes that an open folder takes in this process: its path of at most two components, and its state.
pub const KEPT_FOLDER_BYTES: usize = 1_024;

/// Owners of a folder's entries whose access is remembered while a part of the folder is listed.
pub const LISTED_OWNERS: usize = 64;

/// Paths that are remembered as leading to such files, in all shares: 8 bytes each.
pub const KNOWN_PATHS: usize = 1 << 13;

/// Bytes of the list of mounts that is read; a longer one counts as unknown.
pub const MOUNT_LIST_BYTES: usize = 4 << 20;

/// Mounts that are remembered as having just taken a change.
pub const CHANGED_MOUNTS: usize = 16;

/// Mounts below a share's root of which the server remembers for ten seconds if they ignore case.
pub const CASED_MOUNTS: usize = 64;

/// Bytes of a DOSATTRIB value that are read. Samba's values have fewer than 100, unless they
/// contain a name, as only version 2 does.
pub const DOSATTRIB_BYTES: usize = 384;

/// Bytes of the list of extended attribute names of one file (XATTR_LIST_MAX).
pub const XATTR_LIST_BYTES: usize = 65_536;

/// Bytes of that list up to which clients add names: a longer list could not be read at all. The rest is for
/// attributes of the server and of the system, and for calls that add names at the same time.
pub const XATTR_LIST_FILLED: usize = XATTR_LIST_BYTES - 4_096;

/// Bytes of one extended attribute that a client may store (XATTR_SIZE_MAX;
/// MS-FSA 2.1.5.15.5 stops at 64 KiB in all).
pub const XATTR_VALUE_BYTES: usize = 65_536;

/// Streams of one file that are shown, and those that it may have in the side folder.
pub const STREAMS_SHOWN: usize = 4_096;

/// Locks under which a file's directory in the side folder gets an entry.
pub const SIDE_LOCKS: usize = 16;

/// Bytes moved at a time when a stream changes its place.
pub const STREAM_COPY_BYTES: usize = 256 * 1_024;

/// Bytes read in one system call from a directory whose names alone are wanted.
pub const LIST_BUFFER_BYTES: usize = 64 * 1_024;

/// Bytes read in one system call from a directory whose entries are looked at next, while they are
/// in the processor's cache.
pub const ENTRIES_BUFFER_BYTES: usize = 32 * 1_024;

/// Bytes of names for which a listing remembers the access to entries of one owner.
pub const OWNERS_KEPT_BYTES: usize = 64 * 1_024;

/// Attempts of an operation when names change under it.
pub const RETRIES: usize = 8;

/// Names in the cache of one share, in all its directories; each takes about 80 bytes. Three short
/// names count as one.
pub const CACHED_NAMES: usize = 1 << 19;

/// Names of one share that stay while nobody uses them: 5 MiB. Beyond them directories that were not used for
/// [`CACHED_NAMES_LOOK`] are forgotten.
pub const CACHED_NAMES_UNUSED: usize = 65_536;

/// Time between two looks for directories that nobody uses.
pub const CACHED_NAMES_LOOK: Duration = Duration::from_secs(1);

/// Looks without a use after which a directory is forgotten, however few names there are; before twice as
/// many it is.
pub const CACHED_NAMES_LOOKS: u32 = 60;

/// Directories in the cache of one share; each takes one inotify watch.
pub const CACHED_DIRECTORIES: usize = 4_096;

/// Folders that are kept open between requests, in all shares; each takes one descriptor.
pub const KEPT_FOLDERS: usize = 64;

/// Those of one share: the least recently used one makes room for another.
pub const KEPT_FOLDERS_PER_SHARE: usize = 16;

/// Components of the path of such a folder. The path is looked at for each use, and for a longer one
/// that costs as much as opening the folder.
pub const KEPT_FOLDER_DEPTH: usize = 2;

/// Changes noted while a directory is being read for the cache.
pub const CACHED_CHANGES: usize = 65_536;

/// Names of one directory that may or may not exist.
pub const DOUBTFUL_NAMES: usize = 256;

/// Change notes that one lookup reads one by one: about 1 ms. If more are queued, the names of all
/// directories count as lost, and are read again when they are needed.
pub const CHANGES_AT_ONCE: usize = 4_096;

/// Bytes of change notes read from the kernel at a time.
pub const CHANGES_BUFFER_BYTES: usize = 16 * 1_024;

/// A directory or file that changed less than this before it was read may have changed once more
/// within one tick of its clock, so that reading is not kept.
pub const TICK_MS: u64 = 20;

/// The same where times have whole seconds: FAT has a tick of two.
pub const COARSE_TICK_MS: u64 = 2_000;

/// Snapshots of one share; the oldest ones beyond are not shown.
pub const SNAPSHOTS: usize = 1_024;

/// Names of one file in a snapshot that are tried for a file that was renamed since.
pub const RENAMED_LINKS: usize = 8;

/// Folders above a path that is not there any more that are looked for, to find what was in a folder that was renamed
/// since a snapshot.
pub const RENAMED_FOLDERS: usize = 16;

/// Locks under which names are looked up and then made.
pub const NAMING_LOCKS: usize = 64;

/// Places of directories that are watched for changes by other programs, in all; half of the kernel's
/// own limit for one user (fs.fanotify.max_user_marks) where that is less. The last quarter is for
/// accounts that have less than a quarter.
pub const HOST_DIRECTORIES: usize = if cfg!(test) { 256 } else { 65_536 };

/// Directories that are watched for one observation of a tree, and those that wait to be.
pub const HOST_DIRECTORIES_PER_TREE: usize = if cfg!(test) { 16 } else { 8_192 };

/// Bytes that a watched directory, or one that waits for it, takes beside its path.
pub const HOST_DIRECTORY_BYTES: usize = 288;

/// Bytes of all watched directories and of those that wait for it, with their paths: about as many as
/// [`HOST_DIRECTORIES`] take whose paths have 96 bytes. The last quarter is for accounts that have less
/// than a quarter.
pub const HOST_DIRECTORIES_BYTES: usize = if cfg!(test) { 256 << 10 } else { 24 << 20 };

/// Directories whose watches begin or end together, some 0.5 ms; another thread does the others.
pub const HOST_DIRECTORIES_AT_ONCE: usize = if cfg!(test) { 8 } else { 64 };

/// Bytes of host changes read from the kernel at a time.
pub const HOST_BUFFER_BYTES: usize = 64 * 1_024;

/// Bytes of a reparse buffer that is kept (MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
pub const REPARSE_BYTES: usize = 16 * 1_024;

/// Components of a path that a call opens one by one on a core; a longer walk goes to a thread.
pub const STEPS_ON_CORE: usize = 256;

/// Directories of one share that are known to have no reparse point: 16 bytes each.
pub const WAYS: usize = 65_536;

/// Groups that one user is in (NGROUPS_MAX).
pub const GROUPS_PER_USER: usize = 65_536;

/// Bytes of one entry of the host's user or group tables.
pub const PASSWD_BYTES: usize = 1 << 20;

/// Files that are watched for changes by other programs, in all: one for each file that clients
/// cache.
pub const HOST_FILES: usize = if cfg!(test) { 64 } else { 65_536 };

/// Time in which the kernel may merge events of this process's own writes before they are read.
/// Changes by others may be reported that much later.
pub const HOST_OWN_PAUSE: Duration = Duration::from_millis(2);

/// Bytes of a question to the process that asks the name service. No name is that long.
pub const NAME_SERVICE_QUESTION_BYTES: usize = 4_096;
/// Threads that ask the name service at one time.
pub const NAME_SERVICE_THREADS: usize = 24;
/// Bytes of an answer of the name service: a user with all of the groups.
pub const NAME_SERVICE_ANSWER_BYTES: usize = 16 + 4 * (GROUPS_PER_USER + 2);

/// Names of one directory that are kept as a table; a larger directory gets a sketch.
pub const CACHED_NAMES_PER_DIRECTORY: usize = 65_536;

/// Names that a sketch has a filter for (16 MiB); each short name is one more. In a larger directory each absent name is looked
/// for once, and then remembered.
pub const SKETCH_NAMES: usize = 4 << 20;

/// Bits of the filter for each name. One absent name in 50,000 must be looked for, which takes half a
/// second in a directory of a million names.
pub const SKETCH_BITS_PER_NAME: usize = 32;

/// Bits of the filter that one name sets; see [`SKETCH_BITS_PER_NAME`].
pub const SKETCH_PROBES: u64 = 6;

/// Answers about names of one large directory that are remembered.
pub const SKETCH_ANSWERS: usize = 16_384;

/// Names of a directory that a core reads itself: about 2 ms; with short names half as many. A longer
/// reading is repeated on another thread.
pub const NAMES_READ_ON_CORE: usize = 8_192;

/// Directories of one share that are known to be too large for a core.
pub const LARGE_DIRECTORIES: usize = 64;

/// Time for which a core waits for another thread that creates a name in the same directory.
pub const NAMING_PATIENCE: Duration = Duration::from_millis(2);

/// Bytes of attribute names that a core reads itself.
pub const XATTR_NAMES_ON_CORE: usize = 4_096;

/// Bytes of a file that a core frees itself: 1,024 extents at most where a block has 4 KiB, which take
/// 8 ms on ext4.
pub const FREED_ON_CORE: u64 = 4 << 20;

/// Bytes that a core reserves for a file.
pub const RESERVED_ON_CORE: u64 = 256 << 20;

/// Bytes of a directory, as the file system counts them, that a core looks through in one call: about
/// 4 ms on ext4, whose directories do not shrink when their names are removed.
pub const DIRECTORY_ON_CORE: u64 = if cfg!(test) { 64 << 10 } else { 2 << 20 };

/// Time for which a core waits for another thread that changes the cache of names or moves a stream.
pub const CACHE_PATIENCE: Duration = Duration::from_millis(2);

/// Snapshots of one share that are kept open without a user; the least recently used one makes room for
/// another. Each takes one descriptor.
pub const KEPT_SNAPSHOTS: usize = 64;

/// Time for which a snapshot is kept open after its last use.
pub const SNAPSHOT_KEPT_FOR: Duration = Duration::from_millis(if cfg!(test) { 400 } else { 1_000 });
