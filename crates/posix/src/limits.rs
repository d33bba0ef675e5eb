//! Named limits of this crate.

use std::time::Duration;

/// Bytes in one component on the medium (NAME_MAX).
pub const COMPONENT_BYTES: usize = 255;

/// Bytes of a path that one system call takes, without its NUL (PATH_MAX - 1).
pub const PATH_BYTES: usize = 4_095;

/// Names that went and are remembered for a moment, where there are short names.
pub const TUNNELS: usize = 256;

/// Bytes of a DOSATTRIB value that are looked at; Samba's are below 100 unless
/// they hold a name, as only those of version 2 do.
pub const DOSATTRIB_BYTES: usize = 384;

/// Bytes of the list of extended attribute names of one file (XATTR_LIST_MAX).
pub const XATTR_LIST_BYTES: usize = 65_536;

/// Bytes of one extended attribute that a client may store (XATTR_SIZE_MAX;
/// MS-FSA 2.1.5.15.5 stops at 64 KiB in all).
pub const XATTR_VALUE_BYTES: usize = 65_536;

/// Streams of one file that are shown.
pub const STREAMS_SHOWN: usize = 4_096;

/// Bytes moved at a time when a stream changes its place.
pub const STREAM_COPY_BYTES: usize = 256 * 1_024;

/// Bytes read from a directory in one system call.
pub const LIST_BUFFER_BYTES: usize = 64 * 1_024;

/// How often an operation starts over because the name space changed under it.
pub const RETRIES: usize = 8;

/// Names held by the cache of one share, in all its directories; at some 80
/// bytes each.
pub const CACHED_NAMES: usize = 1 << 19;

/// Directories held by the cache of one share; each takes one inotify watch.
pub const CACHED_DIRECTORIES: usize = 4_096;

/// Changes noted while a directory is being read for the cache.
pub const CACHED_CHANGES: usize = 65_536;

/// Names of one directory of which it is not known whether they are there.
pub const DOUBTFUL_NAMES: usize = 256;

/// Change notes that a look-up takes one by one: some 1 ms. When more are queued, what is
/// known of all directories counts as lost, and is read again when it is asked for.
pub const CHANGES_AT_ONCE: usize = 4_096;

/// Bytes of change notes read from the kernel at a time.
pub const CHANGES_BUFFER_BYTES: usize = 16 * 1_024;

/// A directory that changed less than this before it was read may have changed
/// once more within the same tick of its clock: what was read then is not kept.
pub const TICK_MS: u64 = 20;

/// Snapshots of one share; the oldest beyond them are not shown.
pub const SNAPSHOTS: usize = 1_024;

/// Locks under which names are looked up and then made.
pub const NAMING_LOCKS: usize = 64;

/// Directories that are watched for what other programs do in them, in all; the
/// kernel allows one user some more (fs.fanotify.max_user_marks).
pub const HOST_DIRECTORIES: usize = 65_536;

/// The same, for one observation of a tree.
pub const HOST_DIRECTORIES_PER_TREE: usize = 8_192;

/// Bytes of host changes read from the kernel at a time.
pub const HOST_BUFFER_BYTES: usize = 64 * 1_024;

/// Bytes of a reparse buffer that is kept (MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
pub const REPARSE_BYTES: usize = 16 * 1_024;

/// Groups that one user is in (NGROUPS_MAX).
pub const GROUPS_PER_USER: usize = 65_536;

/// Bytes of one entry of the host's user or group tables.
pub const PASSWD_BYTES: usize = 1 << 20;

/// Files that are watched for what other programs do to them, in all: one for
/// each that clients cache.
pub const HOST_FILES: usize = 65_536;

/// How long what this process does to such files is left to be merged by the
/// kernel before it is looked at. Changes of others may be told that much later.
pub const HOST_OWN_PAUSE: Duration = Duration::from_millis(2);

/// Bytes of a question to the process that asks the name service. No name is that long.
pub const NAME_SERVICE_QUESTION_BYTES: usize = 4_096;
/// Threads that ask the name service at one time.
pub const NAME_SERVICE_THREADS: usize = 24;
/// Bytes of an answer of the name service: a user with all of the groups.
pub const NAME_SERVICE_ANSWER_BYTES: usize = 16 + 4 * (GROUPS_PER_USER + 2);

/// Names of one directory that are kept as they are; of a larger one a sketch is.
pub const CACHED_NAMES_PER_DIRECTORY: usize = 65_536;

/// Names that a sketch has a filter for (8 MiB). In a larger directory each absent
/// name is looked for once, and then remembered.
pub const SKETCH_NAMES: usize = 4 << 20;

/// Bits of the filter for each name, and bits that a name sets: one absent name in
/// a thousand has to be looked for.
pub const SKETCH_BITS_PER_NAME: usize = 16;

/// See [`SKETCH_BITS_PER_NAME`].
pub const SKETCH_PROBES: u64 = 6;

/// Names of one large directory of which it is remembered whether they are there.
pub const SKETCH_ANSWERS: usize = 16_384;

/// Names of a directory that are read on a core: some 2 ms. A longer reading is
/// begun again beside it.
pub const NAMES_READ_ON_CORE: usize = 8_192;

/// How long a core waits for somebody who makes a name in the same directory.
pub const NAMING_PATIENCE: Duration = Duration::from_millis(2);

/// Bytes of attribute names that are looked at on a core.
pub const XATTR_NAMES_ON_CORE: usize = 4_096;
