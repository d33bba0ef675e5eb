//! Opens: their locks, leases, reconnects and closes.

use std::time::Duration;

/// Opens that are closed on a core when their session or tree connect ends: some
/// 5 ms. More are closed beside it.
pub const CLOSED_ON_CORE: usize = 256;

/// Byte ranges that the Opens of one session may have locked: four times what one
/// Open may (`LOCKS_PER_OPEN` of the store).
pub const LOCKS_PER_SESSION: usize = 262_144;

/// Byte ranges that one LOCK may lock or unlock: 64 KiB of them. They take some 4 ms.
pub const LOCKS_PER_REQUEST: usize = 2_730;

/// Byte ranges that one Open may have locked where other programs see the locks (`posix_locks`): for
/// each, the kernel looks at all of the file.
pub const HOST_LOCKS_PER_OPEN: usize = 512;

/// Locked byte ranges that take as long to release as an Open takes to close.
pub const LOCKS_LIKE_AN_OPEN: usize = 16;

/// Byte ranges of an Open that closes that are released at once. Between them others use the file.
pub const LOCKS_RELEASED_AT_ONCE: usize = 1_024;

/// Changes of the state store that may wait to be written.
pub const STATE_QUEUE: usize = 65_536;

/// Of those, how many are written in one go.
pub const STATE_BATCH: usize = 1_024;

/// Open.DurableOpenTimeout of a persistent Open where the client leaves it to the
/// server: longer, since a restart and a network that learns of it take time.
pub const PERSISTENT_TIMEOUT: Duration = Duration::from_secs(120);

/// Opens that can be reconnected, replayed or found by their application, in all.
pub const DURABLE_OPENS: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Persistent Opens of one file. Each change of what a file's Opens cache puts all of them on
/// record, so one file must not have many.
pub const PERSISTENT_OPENS_PER_FILE: usize = 1_024;

/// Opens of an application instance that a core compares with the file of a CREATE, some 1 ms; more
/// are compared on another thread.
pub const OPENS_OF_INSTANCE_COMPARED: usize = 1_024;

/// Of those, how many may wait for their client at one time; what is more is
/// closed with its connection.
pub const DISCONNECTED_OPENS: usize = if cfg!(test) { 256 } else { 262_144 };

/// The same for one user, so that none keeps the others' from being kept.
pub const DISCONNECTED_OPENS_PER_OWNER: usize = if cfg!(test) { 64 } else { 65_536 };

/// Open.DurableOpenTimeout of version 1: what Windows has since Windows 8.
pub const DURABLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The same of version 2 where the client leaves it to the server.
pub const DURABLE_TIMEOUT_V2: Duration = Duration::from_secs(180);

/// The longest that a client may ask for in version 2, MS-SMB2 3.3.5.9.10.
pub const DURABLE_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// MaxResiliencyTimeout, MS-SMB2 3.3.1.5.
pub const RESILIENCY_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// The shortest Open.ResiliencyTimeout: less than a client needs to be back would
/// be no promise. A longer time than was asked for breaks none.
pub const RESILIENCY_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How long a CREATE waits for a program of the host to give up its lease: a
/// little longer than the kernel's `lease-break-time`, after which it is gone.
pub const HOST_LEASE_PATIENCE: Duration = Duration::from_secs(50);

/// How often it looks meanwhile.
pub const HOST_LEASE_LOOK: Duration = Duration::from_millis(50);

/// How long a reconnect waits for the end of the session that still has its Open, and a request of an Open for the
/// reconnect that takes it up after a move.
pub const RECONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Open.ResiliencyTimeout where the client leaves it to the server.
pub const RESILIENCY_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a client has to acknowledge the break of an oplock or a lease,
/// MS-SMB2 3.3.2.1 and 3.3.2.5: what Windows allows. A request waits no longer than
/// that for all the breaks that it needs.
pub const BREAK_TIMEOUT: Duration = Duration::from_secs(35);

/// Bounds of the retransmission time-out by which a break notification is
/// waited to arrive.
pub const BREAK_RTO_MIN: Duration = Duration::from_millis(200);

/// See [`BREAK_RTO_MIN`].
pub const BREAK_RTO_MAX: Duration = Duration::from_secs(1);

/// Retransmission time-outs without an acknowledgment after which a break notification is sent
/// over a second channel too.
pub const BREAK_RTOS_BESIDE: u32 = 2;

/// Retransmission time-outs without an acknowledgment of a break notification after which a
/// connection counts as dead.
pub const BREAK_RTOS: u32 = 6;

/// Break notifications that a core passes on from one channel to another at once, some 1 ms;
/// further ones are passed on by another thread.
pub const BREAKS_PASSED_ON: usize = 1_024;

/// Open files that a core compares with a directory that gets another name, some 1 ms. Where more
/// are open, another thread compares them.
pub const OPEN_FILES_COMPARED: usize = 4_096;

/// Times that one CREATE waits for others to give back what they cache: a file
/// whose oplocks change hands without end is in use.
pub const BREAKS_AWAITED: usize = 32;

/// Files of one account whose names were taken by others and that wait to be closed; a further
/// rename closes the file itself, on its thread. Each counts as an Open meanwhile.
pub const CLOSINGS_WAITING: usize = 64;

/// Time for which a close beside the core waits for I/O that has the file.
pub const CLOSING_PATIENCE: Duration = Duration::from_secs(60);

/// Time for which a close beside the core waits for such I/O in one turn. Then the next close of its
/// account has its turn.
pub const CLOSING_TURN: Duration = Duration::from_millis(100);

/// Time for which a request that finds no space waits for files that are being closed.
pub const SPACE_PATIENCE: Duration = Duration::from_secs(30);

/// Time for which a query of the free space waits for deleted files of its account that are being
/// closed: those who delete something see its space.
pub const FREE_SPACE_PATIENCE: Duration = Duration::from_secs(2);

/// Time for which the removal of a folder on a network or FUSE file system waits for removed files of
/// its account that are being closed: they have names in it until then.
pub const CLOSED_NAMES_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that a truncation beside the core cuts at first, and at least; further steps are as long as
/// [`CUT_TIME`] allows.
pub const CUT_BYTES: u64 = 1 << 20;

/// Time that one step of a truncation beside the core shall take: others have the account's turn
/// after each.
pub const CUT_TIME: Duration = Duration::from_millis(20);

/// Time for which the server believes that a changed file has FILE_ATTRIBUTE_ARCHIVE before it looks
/// again: programs of the host may have cleared it.
pub const ARCHIVE_KNOWN: Duration = Duration::from_secs(1);

/// How long a client that waits for a range that another program has locked
/// waits before that is asked again; doubled each time.
pub const HOST_LOCK_PAUSE: Duration = Duration::from_millis(20);

/// See [`HOST_LOCK_PAUSE`].
pub const HOST_LOCK_PAUSE_MAX: Duration = Duration::from_millis(500);
