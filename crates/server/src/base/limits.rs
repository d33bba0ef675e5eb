//! Named limits of the server.

use std::time::Duration;

/// Largest READ or WRITE payload, bytes (MaxReadSize, MaxWriteSize).
pub const MAX_IO: u32 = 8 * 1024 * 1024;

/// MaxReadSize, MaxWriteSize and MaxTransactSize of dialect 2.0.2, which has no multi-credit
/// requests.
pub const MAX_IO_SINGLE_CREDIT: u32 = 64 * 1024;

/// Largest QUERY_INFO, QUERY_DIRECTORY, SET_INFO buffer, bytes (MaxTransactSize).
pub const MAX_TRANSACT: u32 = 8 * 1024 * 1024;

/// Connections that have not authenticated yet, from one address, or one /64 of IPv6.
pub const UNAUTHENTICATED_PER_ADDRESS: usize = 64;

/// Connections that have not authenticated yet, from one /24 of public IPv4.
pub const UNAUTHENTICATED_PER_24: usize = 256;

/// Connections that have not authenticated yet, from one /56 of IPv6: what many
/// providers give to one customer.
pub const UNAUTHENTICATED_PER_56: usize = 128;

/// Connections that have not authenticated yet, from one /48 of IPv6: what one site
/// can have.
pub const UNAUTHENTICATED_PER_48: usize = 256;

/// A connection that has not authenticated is not evicted before this age, unless its
/// network holds more of them than the newcomer's.
pub const UNAUTHENTICATED_SPARED: Duration = Duration::from_secs(1);

/// Connections that have not authenticated yet, in all.
pub const UNAUTHENTICATED: usize = 4_096;

/// Rows of each list of a status; further ones are only counted.
pub const STATUS_ROWS: usize = 10_000;

/// Statuses of errors that are counted apart; the others share one count.
pub const STATUSES_COUNTED: usize = 64;

/// Connections in all, unless configured otherwise.
pub const CONNECTIONS: usize = 65_536;

/// Connections of one account, unless configured otherwise.
pub const CONNECTIONS_PER_USER: usize = 4_096;

/// Connections from one client network, logged on or not, unless configured otherwise: a
/// terminal server or a network behind one address has many users.
pub const CONNECTIONS_PER_ADDRESS: usize = 16_384;

/// Sessions of one account, unless configured otherwise: a CI farm, or all mounts of a
/// service, may use one account. All of them together take some 10 MiB.
pub const SESSIONS_PER_USER: usize = 4_096;

/// Sessions from one client network.
pub const SESSIONS_PER_ADDRESS: usize = 16_384;

/// Tree connects of one account.
pub const TREES_PER_USER: usize = 32_768;

/// Opens of one account, unless configured otherwise. Descriptors may be fewer.
pub const OPENS_PER_USER: usize = 100_000;

/// Byte ranges that one account may have locked: four sessions full.
pub const LOCKS_PER_USER: usize = 4 * LOCKS_PER_SESSION;

/// Opens may not take the last of this many parts of the descriptors.
pub const DESCRIPTORS_KEPT_PART: usize = 8;

/// Nor the last of them, if that is more: for those who connect.
pub const DESCRIPTORS_KEPT_MIN: usize = 96;

/// Connections may not take the last descriptors: they are for the log, the state store
/// and what is opened for a moment.
pub const DESCRIPTORS_FOR_SERVER: usize = 32;

/// Descriptors that one Open may take: its file, that of a stream, and the folder in which it was made,
/// until that is durable.
pub const DESCRIPTORS_PER_OBJECT: usize = 3;

/// A process that may have fewer descriptors warns when it starts.
pub const DESCRIPTORS_WARN: usize = 16_384;

/// How long a session may have nothing open and ask for nothing before it is ended,
/// minutes, unless configured otherwise: what Windows has.
pub const IDLE_SESSION_MINUTES: u32 = 15;

/// How often idle sessions are looked for.
pub const IDLE_LOOK: Duration = Duration::from_secs(15);

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

/// Keys that are derived from passwords at one time, beside the cores, for clients that change
/// their passwords: each may take a second.
pub const PASSWORD_DERIVATIONS: usize = 1;

/// Bytes that a session is charged with, its keys and tables included.
pub const SESSION_BYTES: usize = 4_096;

/// Bytes that an exchange which binds or renews a session is charged with, with the client's first
/// token.
pub const EXCHANGE_BYTES: usize = 3_072;

/// Bytes that a tree connect is charged with.
pub const TREE_CONNECT_BYTES: usize = 512;

/// Bytes that an Open is charged with, with its place in the tables.
pub const OPEN_BYTES: usize = 2_048;

/// Bytes that a byte-range lock is charged with.
pub const LOCK_BYTES: usize = 256;

/// Bytes that a directory's change watch is charged with, with its place in the tables.
/// Its path is charged twice beside it, for the directory and for its log. The reports
/// that the log keeps are charged to the watch that has fetched least.
pub const WATCH_BYTES: usize = 1_536;

/// Bytes that an oplock, or an Open's place in a lease, is charged with.
pub const LEASE_BYTES: usize = 512;

/// Bytes that a scan of a directory is charged with from its first request on. What
/// reads the names is charged beside it while the scan is under way.
pub const SCAN_BYTES: usize = 2_048;

/// Bytes that a pipe is charged with, its context handles included. Parts of requests
/// and answers that were not read are charged beside it.
pub const PIPE_BYTES: usize = 4_096;

/// Bytes that a token of an offloaded copy is charged with.
pub const OFFLOAD_TOKEN_BYTES: usize = 1_024;

/// Refused connections are logged once in this time, with their number.
pub const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Panics are logged once in this time, with their number.
pub const PANIC_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Associations of RPC over TCP that one account may have.
pub const ASSOCIATIONS_PER_USER: usize = 64;

/// Associations of RPC over TCP from one client network, before and after logon.
pub const ASSOCIATIONS_PER_ADDRESS: usize = 256;

/// Bytes that an association of RPC over TCP is charged with, its context handles included. Parts
/// of requests and answers that were not taken are charged beside it.
pub const ASSOCIATION_BYTES: usize = 16_384;

/// Bytes of one look at what a client of RPC over TCP has sent.
pub const ASSOCIATION_READ_BYTES: usize = 8_192;

/// Calls of RPC that wait for an event, of one account, over all its pipes and connections.
/// `MAX_PENDING` of `frevo-rpc` bounds those of one association.
pub const RPC_WAITS_PER_USER: usize = 256;

/// Bytes that a call of RPC is charged with while it waits for an event.
pub const RPC_WAIT_BYTES: usize = 2_048;

/// Registrations with the witness of a cluster that one account may have. `MAX_WITNESS_REGISTRATIONS` of
/// `frevo-rpc` bounds those of all.
pub const WITNESS_REGISTRATIONS_PER_USER: usize = 256;

/// Bytes that a registration with the witness is charged with, and the news that wait for its client.
pub const WITNESS_REGISTRATION_BYTES: usize = 4_096;

/// Time between looks for registrations with the witness that nobody uses.
pub const WITNESS_SWEEP: Duration = Duration::from_secs(10);

/// Time between looks at the user of a connection whose calls wait for events: the account may have
/// changed, and the ticket may have ended.
pub const RPC_WAIT_LOOK: Duration = Duration::from_secs(30);

/// A PDU of RPC over TCP, and a call in fragments, must have come whole within this time.
pub const RPC_MESSAGE_DEADLINE: Duration = Duration::from_secs(30);

/// A client of RPC over TCP must have taken an answer, or the next part of it, within this time.
pub const RPC_ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Time after which a connection to the endpoint mapper ends that asks nothing.
pub const RPC_MAPPER_IDLE: Duration = Duration::from_secs(30);

/// Time after which an association of RPC over TCP ends that has no call under way: as long as a
/// session of Windows.
pub const RPC_IDLE: Duration = Duration::from_secs(15 * 60);

/// How long accepting pauses when the system is out of descriptors or memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection must have negotiated within this time.
pub const NEGOTIATE_DEADLINE: Duration = Duration::from_secs(10);

/// A connection must have authenticated within this time of being accepted, and
/// again when its last session has ended.
pub const AUTHENTICATE_DEADLINE: Duration = Duration::from_secs(30);

/// How long a new session waits for what the one that it takes over has under way.
pub const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(5);

/// Sessions on one connection.
pub const SESSIONS_PER_CONNECTION: usize = 64;

/// Sessions on one connection before one of them has authenticated: strangers
/// together must not be able to take all that there are.
pub const SESSIONS_BEFORE_AUTHENTICATION: usize = 8;

/// Most sessions of the server.
pub const SESSIONS: usize = 65_536;
const _: () = assert!(UNAUTHENTICATED * SESSIONS_BEFORE_AUTHENTICATION <= SESSIONS / 2);

/// Connections that one session may use, MS-SMB2 note on Windows: 32.
pub const CHANNELS_PER_SESSION: usize = 32;

/// Numbered operations on names that one session may have under way.
pub const OPERATIONS_PER_SESSION: usize = 128;

/// Tree connects in one session.
pub const TREES_PER_SESSION: usize = 1_024;

/// Opens in one session.
pub const OPENS_PER_SESSION: usize = 65_536;

/// Opens that are closed on a core when their session or tree connect ends: some
/// 5 ms. More are closed beside it.
pub const CLOSED_ON_CORE: usize = 256;

/// State machines of a core that answer frames and are idle, kept for the next frames. Requests
/// that wait have theirs, and are charged for them.
pub const SPARE_ANSWERERS: usize = 4;

/// Pipes that one session may have open. Each may hold a whole answer.
pub const PIPES_PER_SESSION: usize = 1_040;

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

/// CHANGE_NOTIFY requests of one session that may wait.
pub const NOTIFIES_PER_SESSION: usize = 1_024;

/// Changes in one answer to CHANGE_NOTIFY that are judged one by one, where the user
/// may not see all names. More are answered with NOTIFY_ENUM_DIR: the client lists the
/// directory.
pub const NAMES_JUDGED: usize = 32;

/// Folders in the paths of the names that are checked for one answer, counted for each name from
/// the root. More are answered with NOTIFY_ENUM_DIR.
pub const FOLDERS_JUDGED: usize = 400;

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

/// A poll that holds its core for so long is logged, with the request.
pub const SLOW_POLL: Duration = Duration::from_millis(100);

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

/// Requests that take so long of one poll are noted, in case the poll is too long.
pub const CULPRIT_FROM: Duration = Duration::from_millis(5);

/// Elements of one compound.
pub const COMPOUND_ELEMENTS: usize = 128;

/// Bytes that the replies to a compound may take beyond the largest payload
/// negotiated: headers, fixed parts, create contexts.
pub const REPLY_OVERHEAD: usize = 64 * 1024;

/// How long the count of what backups take is good.
pub const TIME_MACHINE_COUNTED: Duration = Duration::from_secs(10);

/// Names that one count of backups looks at, in all folders together; macOS makes bands of 8 MiB
/// and more.
pub const TIME_MACHINE_NAMES: usize = if cfg!(test) { 64 } else { 4_000_000 };

/// Backups that one count looks at: a Mac has one on a share.
pub const TIME_MACHINE_IMAGES: usize = if cfg!(test) { 8 } else { 4_096 };

/// Bytes of a disk image's Info.plist that are looked at.
pub const TIME_MACHINE_PLIST_BYTES: usize = 64 * 1024;

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

/// Looks at a share's folder without a use of it after which it is closed, so that its disk can be
/// unmounted.
pub const FOLDER_IDLE_LOOKS: u32 = 2;

/// Openings of a share's folder in a row, while each opening or somebody else mounts a disk there.
pub const FOLDER_OPENINGS: usize = 4;

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

/// Waiting time after a failed logon: of its account from its network, and of the
/// address itself, where each further one doubles it.
pub const LOGON_DELAY: Duration = Duration::from_secs(2);

/// Longest waiting time after failed logons of one address, which has not logged on to the account
/// before.
pub const LOGON_DELAY_MAX: Duration = Duration::from_secs(60);

/// The time after which an attempt to log on is answered at the latest, whatever it waits for:
/// clients of .NET and Node give up after five seconds. Whatever has not had its turn by then is
/// refused unjudged.
pub const LOGON_PATIENCE: Duration = Duration::from_secs(4);

/// Logons on one account from one network that wait for their turn. The one whose
/// address has failed most is refused unjudged when there are more.
pub const LOGON_WAITING: usize = 64;

/// Pairs of account and network that wait after a failed logon.
pub const LOGON_LINES: usize = 65_536;

/// How long a failed logon is remembered once it holds nobody back any more.
pub const LOGON_FAILURES_KEPT: Duration = Duration::from_secs(600);

/// How long an address or a client that has logged on to an account need not wait for
/// others' failed logons on it.
pub const LOGON_GOOD_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Addresses and clients remembered for one account, half of them for each; the oldest is forgotten
/// first.
pub const LOGON_GOOD_PER_ACCOUNT: usize = 32;

/// Accounts whose addresses and clients are remembered.
pub const LOGON_GOOD_ACCOUNTS: usize = 16_384;

/// Bytes of an account's name by which failed logons are told apart: names that
/// are longer belong to nobody, and each is remembered.
pub const LOGON_NAME_BYTES: usize = 256;

/// Failed logons remembered, by account and address, client or network, and as many that were refused
/// unjudged; those who failed least are forgotten first.
pub const LOGON_FAILURES_REMEMBERED: usize = 65_536;

/// How long a server that was told to stop waits for requests under way, unless
/// configured otherwise.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Entries of the access list of a share that is set over the network.
pub const SHARE_ACCESS_ENTRIES: usize = 100;

/// Accounts that are looked at to find a name or SID, or are listed.
pub const ACCOUNTS_LISTED: usize = 100_000;

/// Estimate of the bytes that each of them takes meanwhile.
pub const ACCOUNT_LISTED_BYTES: usize = 256;

/// How long a client that waits for a range that another program has locked
/// waits before that is asked again; doubled each time.
pub const HOST_LOCK_PAUSE: Duration = Duration::from_millis(20);

/// See [`HOST_LOCK_PAUSE`].
pub const HOST_LOCK_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Lifetime of an answer of the host's name service. A user that logs on again later has its
/// new groups.
pub const HOST_USER_FRESH: Duration = Duration::from_secs(5);

/// Users of the host remembered; the oldest is forgotten first.
pub const HOST_USERS_REMEMBERED: usize = 4_096;

/// Lifetime of an answer about the host's number of a SID.
pub const HOST_IDS_FRESH: Duration = Duration::from_secs(300);

/// SIDs in access lists whose numbers on the host are remembered.
pub const HOST_IDS_REMEMBERED: usize = 8_192;

/// Questions to the host's name service at one time: it may hang, and each takes
/// a thread.
pub const HOST_LOOKUPS: usize = 4;

/// Lookups of names that one user may have under way. Each may be of many names.
pub const HOST_LOOKUPS_PER_USER: usize = 2;

/// Questions about NTLM to domain controllers at one time; each takes a thread.
pub const DOMAIN_LOGONS: usize = 8;

/// How long the answer to such a question is waited for, its place included.
pub const DOMAIN_LOGON_TIMEOUT: Duration = Duration::from_secs(15);

/// Questions of clients about names of domains that wait for the thread that asks.
pub const DOMAIN_NAMES_QUESTIONS: usize = 64;

/// Names in one question to a domain controller.
pub const DOMAIN_NAMES_PER_QUESTION: usize = 256;

/// Names of domains remembered, and as many SIDs; the oldest is forgotten first.
pub const DOMAIN_NAMES_REMEMBERED: usize = 4_096;

/// Lifetime of an answer about names of domains.
pub const DOMAIN_NAMES_FRESH: Duration = Duration::from_secs(600);

/// Time after which names in rules that are not resolved are asked for again.
pub const DOMAIN_NAMES_AGAIN: Duration = Duration::from_secs(10);

/// Time in which no client's question is passed on after one that nobody answered.
pub const DOMAIN_NAMES_DOWN: Duration = Duration::from_secs(8);

/// Characters of a name with its domain that is asked for and remembered. A name of a domain in DNS
/// has at most 255, an account's at most 256.
pub const DOMAIN_NAME_CHARS: usize = 512;

/// How long one request of a client waits for answers about names, for all of them together.
pub const DOMAIN_NAMES_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a start waits until names in rules are resolved.
pub const DOMAIN_NAMES_AT_START: Duration = Duration::from_secs(5);

/// How long it is waited for.
pub const HOST_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A start asks again after so long, for [`HOST_LOOKUP_TIMEOUT`] in all.
pub const HOST_LOOKUP_AGAIN: Duration = Duration::from_millis(250);

/// Bytes that all that is kept for clients may take (requests, replies, what waits, and
/// an estimate of all objects), unless configured otherwise. One client alone may have
/// credits for 512 MiB.
pub const MEMORY: usize = 2 << 30;

/// How often a connection that waits for memory looks whether there is some.
pub const MEMORY_LOOK: Duration = Duration::from_millis(5);

/// Bytes of a file of names that stand for accounts.
pub const USER_MAP_BYTES: usize = 4 << 20;

/// Names that stand for accounts.
pub const USER_MAP_NAMES: usize = 100_000;

/// Users that one answer tells the quotas of, and that one query may name.
pub const QUOTA_ENTRIES: usize = 1_024;

/// Threads that sign, verify, seal and unseal large messages; one fewer than cores if that is less.
pub const CRYPTO_THREADS: usize = 16;

/// Messages that were given to them and are not done, for each thread: one that it works on, and one for
/// which it need not wait. Further ones wait in their connections, in turns by account.
pub const CRYPTO_JOBS_PER_THREAD: usize = 2;

/// Messages of one connection that are received before their turn, so that others check them, and
/// replies that others protect, before no more requests are received.
pub const CRYPTO_LINED_UP: usize = 8;

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

/// Time that requests of a share may take to end while it is given to another server.
pub const HANDOVER_PATIENCE: Duration = Duration::from_secs(5);

/// Time after the loss of a share to an unknown server in which a TREE_CONNECT to it ends the connection.
/// By its end an address that moves with the share has left, so that the client looks elsewhere when the share
/// is refused.
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

/// Time between two looks for memory to give back to the system.
pub const GIVE_BACK_LOOK: Duration = Duration::from_secs(1);

/// Free memory that was in use shortly before is given back from so many bytes on.
pub const GIVE_BACK_BYTES: usize = 4 << 20;

/// Looks after that one at which further free memory is given back, however little it is.
pub const GIVE_BACK_LOOKS: u32 = 4;

/// Looks after which free memory that nothing counts is given back under load, too.
pub const GIVE_BACK_LOOKS_BUSY: u32 = 30;

/// The part of the most processor time of a look, since memory was given back, at which the process
/// counts as quiet: one in so many.
pub const GIVE_BACK_QUIET_PART: u32 = 4;

/// The part of the memory that the cores together keep as free buffers, one nth, unless
/// configured otherwise.
pub const POOL_SHARE: usize = 16;

/// The part of the memory that logs of changed directories may have, one nth.
pub const CHANGES_SHARE: usize = 16;

/// How long memory is full before its biggest holder loses something.
pub const RELIEF_PATIENCE: Duration = Duration::from_millis(250);

/// Time before it loses more, while memory stays full.
pub const RELIEF_PAUSE: Duration = Duration::from_millis(25);

/// A request that may wait keeps its frame when that is not longer than what the
/// request needs and this.
pub const FRAME_KEPT_BYTES: usize = 8 << 10;

/// An estimate of what a request that waits takes beyond its own state and the bytes
/// of its message: places in lists, timers.
pub const WAITING_BYTES: usize = 512;

/// Bytes by which a connection's frames or replies change before its holder is
/// charged anew.
pub const TAB_STEP_BYTES: usize = 16 << 10;

/// The part of the memory that requests and replies of an account leave to accounts that have little, one
/// nth. An account that has more than this part waits while all have the rest.
pub const MEMORY_KEPT_PART: usize = 4;

/// Bytes of requests and replies that an account has whatever others have: one large reply that is
/// sent, and one that is built.
pub const PASSING_BYTES_MIN: usize = 2 * MAX_IO as usize;

/// Bytes of a request that needs little memory: such requests of an account that has more than its part of
/// the memory are received while an eighth is left, so that it can free something.
pub const SMALL_FRAME_BYTES: u32 = 4 << 10;

/// The part of the memory that small requests of such an account leave to others, one nth: in it, each
/// connection has one small request at a time.
pub const MEMORY_LAST_PART: usize = 8;

/// Requests that one connection of such an account may have under way beside those that it had when there
/// was memory, and small ones that are received before the client takes their answers.
pub const SMALL_REQUESTS_PER_CONNECTION: usize = 16;

/// The part of the memory that replies of one connection may take, one nth, while its account has no
/// more than its part; beyond, [`PASSING_BYTES_MIN`].
pub const MEMORY_CONNECTION_PART: usize = 16;

/// Bytes of requests and of replies that wait to be sent, of one account, beyond which its listings
/// have short answers.
pub const LISTING_BYTES_PER_USER: usize = 64 << 20;

/// Bytes of such a short answer, where the client has room for more.
pub const LISTING_BYTES_SHORT: usize = 64 << 10;

/// Log lines about clients that one network may cause at once: 24 bits of an IPv4 address,
/// 48 bits of an IPv6 address.
pub const LINES_AT_ONCE_PER_NETWORK: u32 = 60;

/// After so long one more.
pub const LINE_INTERVAL_PER_NETWORK: Duration = Duration::from_millis(500);

/// Log lines about clients that all networks together may cause at once.
pub const LINES_AT_ONCE: u32 = 300;

/// After so long one more.
pub const LINE_INTERVAL: Duration = Duration::from_millis(100);

/// Networks whose log lines are counted.
pub const LINE_NETWORKS: usize = 4_096;

/// Bytes of one value in a log line of text.
pub const LOG_VALUE_BYTES: usize = 512;

/// Audit events that may wait to be written; one more is lost, and counted.
pub const AUDIT_QUEUE: usize = 65_536;

/// Bytes of audit events that may wait to be written.
pub const AUDIT_QUEUE_BYTES: usize = 16 << 20;

/// Audit events that are written by one system call.
pub const AUDIT_BATCH: usize = 1_024;

/// How long the first of them waits for more.
pub const AUDIT_PAUSE: Duration = Duration::from_millis(20);

/// No event is added to a write of so many bytes: control characters in names take six
/// times their size.
pub const AUDIT_WRITE_BYTES: usize = 256 << 10;

/// How long the writer of the audit log waits for the journal or syslog to take a line.
pub const AUDIT_SEND: Duration = Duration::from_secs(1);

/// How often the log says that audit events are lost.
pub const AUDIT_COMPLAINTS: Duration = Duration::from_secs(60);

/// Bytes of one value in the audit log.
pub const AUDIT_VALUE_BYTES: usize = 8_192;

/// An answer to a logon that waited for so long because others failed before is in the
/// audit log.
pub const THROTTLE_TOLD: Duration = Duration::from_millis(100);

/// Time that a client with a ticket for a key that the server does not have waits for newer keys.
pub const NEWER_KEYS_PATIENCE: Duration = Duration::from_secs(10);

/// Shortest time between two looks for newer keys.
pub const NEWER_KEYS_LOOK: Duration = Duration::from_millis(100);

/// Time in which nobody waits for newer keys, after they did not come.
pub const NEWER_KEYS_REST: Duration = Duration::from_secs(10);

/// Time for which a READ in the middle of a compound waits for memory while earlier replies of the
/// compound have some.
pub const HELD_REPLY_PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of earlier replies in a compound from which this counts: about as much as a request that waits
/// has itself.
pub const HELD_REPLY_BYTES: usize = 8 << 10;
