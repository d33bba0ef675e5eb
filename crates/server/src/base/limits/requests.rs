//! Requests and their replies.

use std::time::Duration;

/// Largest READ or WRITE payload, bytes (MaxReadSize, MaxWriteSize).
pub const MAX_IO: u32 = 8 * 1024 * 1024;

/// MaxReadSize, MaxWriteSize and MaxTransactSize of dialect 2.0.2, which has no multi-credit
/// requests.
pub const MAX_IO_SINGLE_CREDIT: u32 = 64 * 1024;

/// Largest QUERY_INFO, QUERY_DIRECTORY, SET_INFO buffer, bytes (MaxTransactSize).
pub const MAX_TRANSACT: u32 = 8 * 1024 * 1024;

/// Changes in one answer to CHANGE_NOTIFY that are judged one by one, where the user
/// may not see all names. More are answered with NOTIFY_ENUM_DIR: the client lists the
/// directory.
pub const NAMES_JUDGED: usize = 32;

/// Folders in the paths of the names that are checked for one answer, counted for each name from
/// the root. More are answered with NOTIFY_ENUM_DIR.
pub const FOLDERS_JUDGED: usize = 400;

/// Chunks of one server-side copy, MS-SMB2 3.3.3: what Windows allows.
pub const COPY_CHUNKS: u32 = 256;

/// Bytes of one chunk of a server-side copy.
pub const COPY_CHUNK_BYTES: u32 = 1024 * 1024;

/// Bytes of one server-side copy.
pub const COPY_BYTES: u32 = 16 * 1024 * 1024;

/// Tokens of offloaded copies that one session may hold; the oldest goes.
pub const OFFLOAD_TOKENS_PER_SESSION: usize = 64;

/// Bytes that one token stands for, and that one FSCTL_OFFLOAD_WRITE writes.
pub const OFFLOAD_BYTES: u64 = 256 << 20;

/// How long a token is good unless the client says.
pub const OFFLOAD_TTL: Duration = Duration::from_secs(60);

/// How long it is good at most. While it is, its file stays open.
pub const OFFLOAD_TTL_MAX: Duration = Duration::from_secs(300);

/// A file must have been left alone for this long before it gets a token: more
/// than a tick of any file system's clock.
pub const OFFLOAD_QUIET: Duration = Duration::from_millis(20);

/// Bytes that the extended attributes of a file may take, MS-FSA 2.1.5.15.6: 64 KiB
/// less five.
pub const EA_BYTES: usize = 64 * 1024 - 5;

/// Bytes of a list of extended attributes, or of their names, from a client. An
/// entry takes up to seven bytes more than [`EA_BYTES`] counts, so that every list
/// that fits a file fits this.
pub const EA_LIST_BYTES: usize = 128 * 1024;

/// Requests of commands that set attributes, names or protection and are longer
/// than this are carried out beside the core.
pub const LONG_REQUEST: usize = 8 * 1024;

/// Ranges of one FSCTL_FILE_LEVEL_TRIM.
pub const TRIM_RANGES: usize = 1_024;

/// Extents in one answer of FSCTL_GET_RETRIEVAL_POINTERS. A client asks for the next ones.
pub const EXTENTS_PER_ANSWER: usize = 4_096;

/// Requests of one connection that wait for something.
pub const WAITING_PER_CONNECTION: usize = 511;

/// Requests of one connection under way before reading pauses.
pub const IN_FLIGHT_PER_CONNECTION: usize = 8_192;

/// A request that takes longer than this gets an interim response, MS-SMB2 3.3.4.2.
pub const INTERIM_AFTER: Duration = Duration::from_millis(100);

/// Elements of one compound.
pub const COMPOUND_ELEMENTS: usize = 128;

/// Bytes that the replies to a compound may take beyond the largest payload
/// negotiated: headers, fixed parts, create contexts.
pub const REPLY_OVERHEAD: usize = 64 * 1024;

/// Bytes of a reply from which a request that has used up its slice gives others their turn before the
/// reply is protected and sent.
pub const LONG_REPLY_BYTES: usize = 1 << 20;

/// Bytes of such a reply that are copied from the page cache before others have their turn, if that is due.
pub const READ_STEP_BYTES: usize = 1 << 20;

/// Length of a large request. When another one is behind it, the kernel is given room for more.
pub const LARGE_REQUEST_BYTES: usize = 8 << 10;

/// Unread bytes of such a client for which the kernel has room then: sixteen requests of 64 KiB. With
/// twice as much, requests of 1 MiB took 10 percent more processor time: they leave the cache.
pub const RECEIVE_WINDOW_BYTES: usize = 1 << 20;

/// Large requests whose replies leave together where each comes with a receive of its own.
pub const BURST_REQUESTS_MAX: usize = 8;

/// Bytes of such requests after which the replies leave.
pub const BURST_BYTES_MAX: usize = 512 << 10;

/// Length of a READ up to which a client on this host may be answered without a copy (docs/adr/0003).
pub const UNCOPIED_READ_BYTES_MAX: u32 = 256 << 10;

/// Bytes of replies that leave a connection together, up to which READs of a client on this host are
/// answered without a copy. Up to 512 KiB in flight that was faster, from 768 KiB on slower
/// (docs/adr/0003).
pub const UNCOPIED_TOGETHER_BYTES_MAX: usize = 512 << 10;

/// Time after which no reply waits for a further request.
pub const BURST_TIME_MAX: Duration = Duration::from_micros(500);

/// The time whose bytes and operations pass a limit of rate at once after a pause, unless the rule says
/// otherwise: 1 % of ten seconds.
pub const RATE_BURST: Duration = Duration::from_millis(100);

/// The weight of a session that no rule has one for.
pub const RATE_WEIGHT: u32 = 1;

/// Requests of one connection that wait for a limit of rate before reading pauses. Fewer than may wait for
/// something.
pub const HELD_BACK_PER_CONNECTION: usize = 128;

/// Bytes of such requests at which reading pauses. More than the largest WRITE has: behind a single one that waits,
/// CANCEL, CLOSE and acknowledgments are still read.
pub const HELD_BACK_BYTES: usize = 16 << 20;

/// Credits that a client keeps while a request of its connection waits for a limit of rate. They pay for the
/// largest request, and what they pay for is read without a pause: so CANCEL and ECHO come through.
pub const HELD_BACK_CREDITS: u16 = 128;

/// Time for which a client may rely on the limits that it has been told for a logical flow (MS-SQOS).
pub const STORAGE_QOS_TTL: Duration = Duration::from_secs(4);

/// Users, sessions or addresses that have limits of their own under one rule of rate.
pub const RATE_BUCKETS: usize = 16_384;

/// Limits of rate that one account has of its own, for its sessions and addresses under all rules.
pub const RATE_BUCKETS_PER_USER: usize = RATE_BUCKETS / 4;

/// Users, sessions or addresses that a status names for a rule of rate: those that it holds back most.
pub const RATE_HELD_SHOWN: usize = 8;

/// Logical flows of one account (MS-SQOS): some for each virtual disk of a large host.
pub const LOGICAL_FLOWS_PER_USER: usize = 4_096;

/// Networks of one session in one share whose rules of rate are remembered: those of its channels.
pub const RATE_FLOWS: usize = 4;
