//! Limits on the work, the memory and the time that a server can cost this client.

use std::time::Duration;

/// Default of the credits held on one connection: 32 MiB in flight.
pub const CREDITS: u16 = 512;
/// Fewest credits asked for, whatever the options say; the longest compound costs fewer.
pub const CREDITS_MIN: u16 = 8;
/// Most connections of a session.
pub const CHANNELS_MAX: usize = 32;
/// Channels over an interface that has several receive queues, where the count is chosen from the
/// server's interfaces; as in Windows.
pub const CHANNELS_PER_RSS: usize = 4;
/// Age of a session at which the client chooses the count of its channels.
pub const CHANNELS_AUTO_AFTER: Duration = Duration::from_millis(300);
/// Interval at which a session with several channels checks them while it sends requests.
pub const CHANNEL_LOOK: Duration = Duration::from_millis(200);
/// Time limit of the connection, the logon or the question that a further channel needs.
pub const CHANNEL_DIAL: Duration = Duration::from_secs(3);
/// Longest pause between two attempts at a further channel.
pub const CHANNEL_BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Time after which a path with unacknowledged bytes and no acknowledgment counts as dead, while
/// other channels work. A path with a long round trip gets four times that.
pub const PATH_DEAD_AFTER: Duration = Duration::from_millis(600);
/// Silence on a channel of a busy session after which an ECHO tries its path.
pub const PATH_PROBE_AFTER: Duration = Duration::from_millis(600);
/// Attempts after which a path that never worked gets no channel.
pub const PATH_TRIES: u32 = 3;
/// Interval of questions about the server's interfaces, as in Windows.
pub const INTERFACES_EVERY: Duration = Duration::from_secs(600);
/// Space for the list of the server's interfaces, bytes.
pub const INTERFACES_BYTES: u32 = 64 << 10;
/// Time limit of one attempt to connect and log on.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most addresses of one server that are tried.
pub const ADDRESSES_MAX: usize = 64;
/// Most addresses of one server to which connections are made at the same time.
pub const ADDRESSES_AT_ONCE: usize = 4;
/// Time without an answer after which the next address of a server is tried beside the earlier ones.
pub const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(300);
/// Time without an answer after which the next target of a DFS link is tried beside the earlier ones, and
/// after which the others are tried while a lost one is connected to again.
pub const NEXT_TARGET_AFTER: Duration = Duration::from_secs(1);
/// Time for which the logon at a target whose server has answered is waited for, when one behind it in the
/// referral is ready.
pub const BETTER_TARGET_WITHIN: Duration = Duration::from_secs(5);
/// Time limit of the connection and the negotiation at one of several addresses; longer than
/// [`PREFERRED_DIAL`], after which another transport is tried there. A few addresses of which none
/// leads to a server have the time of [`CONNECT_TIMEOUT`] together.
pub const ADDRESS_DIAL: Duration = Duration::from_secs(6);
/// Time limit of the first attempt at the address of a node that has fallen silent, while other nodes are about to
/// serve its share; each further one is twice as long, up to [`ADDRESS_DIAL`].
pub const SILENT_DIAL: Duration = Duration::from_millis(100);
/// Time after such an attempt until the next one: the node may come back.
pub const SILENT_PAUSE: Duration = Duration::from_secs(1);
/// Time limit of the first answer of a server whose continuously available share was lost: a connection
/// with a node that has just lost its address is answered by nobody. Each further one is twice as long,
/// up to the limit of the whole attempt.
pub const RECONNECT_ANSWER: Duration = Duration::from_secs(2);
/// Doublings of [`RECONNECT_ANSWER`].
pub const RECONNECT_ANSWER_DOUBLINGS: u32 = 4;
/// Time after which an address of such a server that does not answer is dialled once more, beside the
/// earlier attempts; it grows by as much each time. The kernel itself asks again after 1 s, 3 s and 7 s.
pub const RECONNECT_DIAL_PAUSE: Duration = Duration::from_millis(50);
/// Attempts to dial one address of such a server that are under way at the same time.
pub const RECONNECT_DIALS: usize = 12;
/// Interval at which a client looks if its persistent handles are still open at the server.
pub const KEPT_LOOK: Duration = Duration::from_secs(1);
/// Interval at which a server with persistent handles of this client is asked for life (ECHO), though
/// nothing is due.
pub const KEPT_ECHO: Duration = Duration::from_secs(10);
/// Persistent handles of a share that are reconnected at the same time.
pub const KEPT_AT_ONCE: usize = 16;
/// Longest pause between two attempts at the persistent handles of a share after one has failed. The first
/// pause is [`KEPT_LOOK`], and each further one is twice as long.
pub const KEPT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Repetitions of a request that the server gives up while it waits for other clients, as it does when it
/// gives its share away.
pub const CANCELLED_MAX: u32 = 16;
/// Pause before each of them: the connection is about to end.
pub const CANCELLED_PAUSE: Duration = Duration::from_millis(25);
/// Longest search for a share at the nodes of a cluster, if it was at none of them before. A share that
/// was used is looked for as long as a lost server.
pub const FIND_SHARE_FOR: Duration = Duration::from_secs(3);
/// First pause after all nodes of a cluster have refused a share; each further one is half as long
/// again.
pub const FIND_SHARE_PAUSE_FIRST: Duration = Duration::from_millis(25);
/// Longest pause after all nodes of a cluster have refused a share.
pub const FIND_SHARE_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Most addresses of a share's owner that nodes of a cluster name, one after the other, in one search.
pub const REDIRECTIONS: u32 = 8;
/// Most older dialects that a cluster names, one after the other, before a share is connected. Each one
/// costs a connection.
pub const CLUSTER_DIALECTS_NAMED: u32 = 3;
/// Most shares of clusters that a client remembers, to say that it has used them before.
pub const CLUSTER_SHARES_KEPT: usize = 256;
/// Time limit of the questions that find the dialect of a server which is too old.
pub const SPOKEN_WITHIN: Duration = Duration::from_secs(2);
/// Payload of a READ or WRITE, bytes, from which it moves by RDMA: a shorter one costs less inside
/// the message.
pub const RDMA_FROM: u32 = 4096;
/// Bytes of a message of SMB Direct beside its payload; Frevo's server leaves as many.
pub const RDMA_MESSAGE_OVERHEAD: u32 = 64 << 10;
/// Time limit of a connection with an RPC interface over TCP, with the question for its port and the logon.
pub const RPC_BIND: Duration = Duration::from_secs(5);
/// Time limit of the answer to a call over TCP that does not wait for an event.
pub const RPC_ANSWER: Duration = Duration::from_secs(10);
/// Time in which a server makes a shadow copy, and that in which it serves one.
pub const SHADOW_COPY_PATIENCE: Duration = Duration::from_secs(180);
/// Attempts at a registration with a witness in a row, after which none are made at this node, unless a
/// registration has lasted before.
pub const WITNESS_ATTEMPTS: u32 = 6;
/// First pause after such an attempt has failed; each further one is twice as long.
pub const WITNESS_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest of these pauses, as in Windows.
pub const WITNESS_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time after which a registration counts as one that has lasted.
pub const WITNESS_STEADY: Duration = Duration::from_secs(10);
/// Witnesses that are tried in one attempt.
pub const WITNESS_TRIES: usize = 4;
/// Most interfaces of a cluster that are looked at as witnesses.
pub const WITNESS_INTERFACES: usize = 64;
/// Most addresses of one notification of a witness that are tried.
pub const WITNESS_ADDRESSES: usize = 16;
/// Longest wait of a witness before it answers that there is no news.
pub const WITNESS_KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Time limit of the end of a registration.
pub const WITNESS_END: Duration = Duration::from_secs(1);
/// Most moves that a witness makes a session do within [`WITNESS_WITHIN`].
pub const WITNESS_MOVES: usize = 8;
/// Notifications within [`WITNESS_WITHIN`] after which there is a pause before each further one.
pub const WITNESS_NOTIFICATIONS: usize = 64;
/// Time for which moves and notifications of a witness count.
pub const WITNESS_WITHIN: Duration = Duration::from_secs(60);
/// Time limit of the answers to requests under way when a witness tells to move.
pub const WITNESS_GRACE: Duration = Duration::from_millis(500);
/// Time limit of one attempt to connect over a transport that not every server has, before the next
/// one is tried.
pub const PREFERRED_DIAL: Duration = Duration::from_secs(4);
/// Bytes that are read of the system's file of authorities, for QUIC.
pub const SYSTEM_CERTIFICATES_BYTES: u64 = 4 << 20;
/// Time without further attempts after a preferred transport could not reach a server.
pub const DIAL_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Default of the time for which operations wait for a lost server.
pub const RECOVER_FOR: Duration = Duration::from_secs(60);
/// Most time for which a server is asked to keep a file with byte-range locks for this client after
/// the connection is lost, as Windows keeps it by default; [`RECOVER_FOR`] or the setting, if that
/// is less. The locks of a client that has crashed are kept for this time.
pub const RESILIENT_FOR_MAX: Duration = Duration::from_secs(120);
/// Time without further attempts after the server refused the user of a session that is being
/// recovered: repeated attempts would lock the account.
pub const LOGON_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Longest time for which a request without a waiting caller is held back, to be sent with another one.
pub const UNHURRIED_FOR: Duration = Duration::from_millis(1);
/// Interval at which a logoff looks for the answers that it waits for.
pub const ANSWERED_LOOK: Duration = Duration::from_millis(2);
/// Time limit of a logoff, with the answers to earlier requests.
pub const LOG_OFF_FOR: Duration = Duration::from_secs(2);
/// First pause between two attempts to reach a lost server; each further one doubles.
pub const BACK_OFF_FIRST: Duration = Duration::from_millis(50);
/// Most WRITE requests for one piece that the server writes in parts.
pub const SHORT_WRITES: u32 = 16;
/// Longest pause between two attempts to reach a lost server.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Silence, while answers are due, after which an ECHO is sent.
pub const ECHO_AFTER: Duration = Duration::from_secs(4);
/// Silence, while answers are due, after which a connection counts as dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(12);
/// Silence, while answers are due, after which an ECHO is sent in a session with a continuously
/// available share, which another node may serve by now.
pub const ECHO_AFTER_CONTINUOUS: Duration = Duration::from_secs(1);
/// Silence, while answers are due, after which such a session's connection counts as dead, unless the
/// server's machine has acknowledged bytes during the last second.
pub const DEAD_AFTER_CONTINUOUS: Duration = Duration::from_secs(4);
/// Time without an acknowledgment of sent bytes after which such a session's connection counts as dead.
/// A path with a long round trip gets sixteen times that.
pub const UNACKNOWLEDGED_CONTINUOUS: Duration = Duration::from_secs(2);
/// The same time for the server of a DFS target whose link has others.
pub const UNACKNOWLEDGED_TARGET: Duration = Duration::from_millis(1500);
/// Interval at which such a connection is looked at.
pub const TARGET_LOOK: Duration = Duration::from_millis(250);
/// Interval of ECHOs while every request under way has an interim response.
pub const ECHO_WAITING: Duration = Duration::from_secs(30);
/// Time limit of a request with an interim response, except CHANGE_NOTIFY and a LOCK that
/// waits: long enough for a tape to be loaded.
pub const PUT_OFF_FOR: Duration = Duration::from_secs(600);
/// Time limit of the answer to a cancelled request.
pub const CANCEL_WITHIN: Duration = Duration::from_secs(30);
/// Most ECHOs to collect the credits of one request.
pub const ECHOES_FOR_CREDITS: u32 = 64;
/// Most interim responses to one request; MS-SMB2 3.3.4.2 has one.
pub const INTERIMS: u32 = 16;
/// Most connections on which one operation meets a broken protocol; one may be a fault of the
/// network.
pub const BROKEN_MAX: u32 = 2;
/// Most rounds of a logon.
pub const LOGON_ROUNDS: usize = 8;
/// Default of the largest READ or WRITE, bytes.
pub const TRANSFER_MAX: u32 = 1 << 20;
/// Largest READ or WRITE, bytes, whatever the options say: a frame holds less than 16 MiB.
pub const PAYLOAD_MAX: u32 = 8 << 20;
/// Shortest reply, bytes, that is handed over before the next one is read: it is still in the
/// processor's cache.
pub const HAND_OVER_BYTES: usize = 64 << 10;
/// A gap of the clock from which this program counts as suspended: the silence was not the
/// server's.
pub const HELD_UP: Duration = Duration::from_secs(3);
/// Most attempts at one operation while the connection is lost again and again.
pub const ATTEMPTS: u32 = 32;
/// Most operations on names of one session whose outcome the server keeps; further ones wait.
/// Frevo's server keeps as many.
pub const OPERATIONS: usize = 128;
/// Most questions about the outcome of one operation.
pub const OPERATION_LOOKS: u32 = 600;
/// Longest pause between two questions about the outcome of an operation.
pub const OPERATION_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Lifetime to ask for durable handles, milliseconds.
pub const DURABLE_TIMEOUT_MS: u32 = 120_000;
/// Most DFS referrals in the cache.
pub const REFERRALS_KEPT: usize = 128;
/// Longest lifetime of a cached referral, whatever the server says.
pub const REFERRAL_FOR: Duration = Duration::from_secs(3600);
/// Shortest lifetime of a cached referral; version 1 names none.
pub const REFERRAL_AT_LEAST: Duration = Duration::from_secs(10);
/// Most sessions with the servers of a DFS namespace.
pub const TARGET_SESSIONS: usize = 32;
/// Time for which a share is not asked again for a way to copy that it refused.
pub const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Most DFS targets that are tried for one path.
pub const TARGETS_TRIED: usize = 16;
/// Most SIDs or names of one lookup request.
pub const LOOKUP_MAX: usize = 500;
/// Most bytes of one QUERY_DIRECTORY answer.
pub const LISTING_BYTES: u32 = 1 << 20;
/// Most lease breaks that are received and not looked at, and as many that are not answered.
pub const BREAKS_WAITING: usize = 1024;
/// Most bytes of a session-closed notification: it has 76.
pub const SESSION_CLOSED_BYTES: usize = 128;
/// Times within [`COME_BACKS_WITHIN`] that a session comes back by itself when the server tells that it has
/// ended. After more it waits for a request.
pub const COME_BACKS: usize = 8;
/// Time for which they count.
pub const COME_BACKS_WITHIN: Duration = Duration::from_secs(60);
/// Most lease breaks that are answered at the same time.
pub const BREAKS_AT_ONCE: usize = 64;
/// Most attempts at a listing whose connection is lost.
pub const LISTINGS: u32 = 8;
/// Most names of a listing that begins again by itself when its connection is lost.
pub const LISTING_NAMES: usize = 1 << 18;
/// Most entries of one listing.
pub const ENTRIES_MAX: usize = 8 << 20;
/// Most bytes that listings under way (`Share::list_dir`) and the trees that were walked make a
/// process keep. A listing without room waits for the others.
pub const LISTED_BYTES_MAX: usize = 1 << 30;
/// Most listings that begin again because the server named a file twice: a busy directory may change
/// while it is listed.
pub const REPEATED_LISTINGS: u32 = 2;
/// Most directories below each other that a walk or the removal of a tree goes down.
pub const TREE_DEPTH: usize = 1024;
/// Most files and directories that a walk or the removal of a tree has still to look at.
pub const TREE_ENTRIES: usize = ENTRIES_MAX;
/// Most replies to a listing in a row without a name (except `.` and `..`).
pub const EMPTY_LISTINGS: usize = 4;
/// Most symbolic links and DFS referrals followed for one path.
pub const REDIRECTS: usize = 16;
/// Most repetitions of a CREATE whose Open the server has in a session that is over, or that a
/// server without numbers of operations still carries out. The pauses double from
/// [`BACK_OFF_FIRST`].
pub const REPEATS: u32 = 7;
/// Longest time for which a request about an open file is repeated that the server still carries
/// out, because it got it over a channel that was lost; as long as one that is put off.
pub const REPEAT_FOR: Duration = PUT_OFF_FOR;
/// Longest pause between two such repetitions.
pub const REPEAT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest time for which a CREATE waits for a number, while 128 operations have theirs; it is then
/// sent without one.
pub const NUMBER_WAIT: Duration = Duration::from_secs(5);
/// Longest krb5.conf or resolv.conf in bytes, each of their files.
pub const KRB5_CONF_BYTES: usize = 1 << 18;
/// Most lines of a file of krb5.conf.
pub const KRB5_CONF_LINES: usize = 1 << 13;
/// Time for which data of files must have been under way before the rate of a link is known.
pub const LINK_MEASURED_IN: Duration = Duration::from_millis(100);
/// Bytes that must have been moved in that time.
pub const LINK_BYTES_MIN: u64 = 256 << 10;
/// Time for which a link that was found slow counts as slow, until it is measured again.
pub const LINK_MEASURED_FOR: Duration = Duration::from_secs(30);
/// Part of a core's rate of compression, as a divisor, below which a link is slow.
pub const LINK_PART: u64 = 2;
/// Compressed answers of one connection that other cores expand at once.
pub const EXPANSIONS: usize = 4;
/// The longest time that an expansion may take on the task that reads.
pub const EXPANDED_HERE_MAX: Duration = Duration::from_micros(500);
/// Shortest WRITE, bytes, that another core compresses where all tasks run on one thread.
pub const COMPRESSED_BESIDE_BYTES_MIN: usize = 256 << 10;
/// Most files of krb5.conf with those that they include.
pub const KRB5_CONF_FILES: usize = 64;
/// Most KDCs of a realm that are tried.
pub const KDCS_MAX: usize = 8;
/// Time limit of the connection to one KDC.
pub const KDC_CONNECT: Duration = Duration::from_secs(3);
/// Time limit of a KDC's reply.
pub const KDC_ANSWER: Duration = Duration::from_secs(5);
/// Time limit of a KDC's reply to the change of a password, which it keeps first.
pub const PASSWORD_CHANGE_ANSWER: Duration = Duration::from_secs(30);
/// Time limit of the daemon that keeps a ticket cache (KCM), for the whole cache.
pub const KCM_ANSWER: Duration = Duration::from_secs(3);
/// Name servers that are asked for KDCs, one after the other.
pub const DNS_SERVERS: usize = 3;
/// Time limit of the answer of one name server.
pub const DNS_ANSWER: Duration = Duration::from_secs(2);
/// Longest answer of a name server in bytes.
pub const DNS_BYTES: usize = 4096;
/// Most tickets for servers that are kept in memory.
pub const TICKETS_KEPT: usize = 64;
/// Seconds for which a ticket must still be valid to be used.
pub const TICKET_LEFT_SECONDS: u64 = 3;
/// Time limit of getting a ticket for a server, with all KDCs that are asked.
pub const TICKET_WITHIN: Duration = Duration::from_secs(30);
/// Time before the end of a ticket at which a session gets another one; a quarter of the time that
/// is left, if that is less.
pub const RENEW_AHEAD: Duration = Duration::from_secs(300);
/// Longest pause between two attempts to get another ticket, and interval at which a session compares
/// the clock with the end of its ticket.
pub const RENEW_PAUSE_MAX: Duration = Duration::from_secs(30);
