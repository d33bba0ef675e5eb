//! Every bound of this crate, by name.

use std::time::Duration;

/// Bytes of free buffers that one core thread keeps for reuse: those whose lengths were needed last.
/// Others are returned to the system at once.
pub const POOL_RETAINED_BYTES_MAX: usize = 32 << 20;

/// Time between two searches for unused free buffers: the memory of a burst is returned within
/// twice this time.
pub const POOL_TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of the largest block that a pool keeps; larger ones are made and freed each time.
pub const POOLED_BLOCK_BYTES_MAX: usize = (8 << 20) + 4096;

/// Bytes from which the allocator of a server maps a block by itself: it returns to the system when it is
/// freed.
pub const MALLOC_MAPPED_BYTES_MIN: i32 = 128 << 10;

/// Free bytes at the end of an arena of a server's allocator, from which on they return to the system.
pub const FREE_BYTES_PER_ARENA: i32 = 128 << 10;

/// Largest length of a [`crate::Buf`], bytes: a whole frame with its prefix and headroom.
pub const BUF_BYTES_MAX: usize = (16 << 20) + 65536;

/// Bytes of the scratch buffer that all connections of a core receive into first.
pub const RECEIVE_SCRATCH_BYTES: usize = 16 << 10;

/// Largest length in four prefix bytes (MS-SMB2 2.1).
pub const FRAME_BYTES_MAX: u32 = 0x00ff_ffff;

/// Largest NetBIOS session request before the first frame, bytes: two names of 255 bytes, RFC 1002
/// 4.3.2.
pub const SESSION_REQUEST_BYTES_MAX: u32 = 510;

/// Time between two checks whether a connection may receive.
pub const GATE_PAUSE: Duration = Duration::from_millis(5);

/// Time in which a begun frame must make progress, else its connection ends.
pub const FRAME_PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes per second at which a begun frame must arrive, beyond [`FRAME_PROGRESS_TIMEOUT`]. Without
/// it one byte every nine seconds would hold a large buffer for a day.
pub const FRAME_RATE_MIN: u32 = 4096;

/// Bytes of a large frame that must arrive before its reader is woken up. The kernel makes room for
/// them, unless memory is scarce.
pub const FRAME_WAKE_BYTES: u32 = 512 << 10;

/// Time in which these bytes must arrive. Otherwise the reader takes the rest of the frame as it comes.
pub const FRAME_WAKE_PATIENCE: Duration = Duration::from_millis(100);

/// Bytes in a send queue that make it full.
pub const SEND_QUEUE_BYTES_MAX: usize = 16 << 20;

/// Frames in a send queue that make it full.
pub const SEND_QUEUE_FRAMES_MAX: usize = 4096;

/// Time in which a peer must take [`SEND_RATE_MIN`], or everything that waits for it. Otherwise its
/// connection ends, whatever it sends meanwhile.
pub const SEND_STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes per second that a peer must take while data waits for it, on average over
/// [`SEND_STALL_TIMEOUT`].
pub const SEND_RATE_MIN: u32 = 4096;

/// Time after which a blocked queue is watched: the kernel is asked for the bytes that the peer has
/// acknowledged. Peers that read fast never cost this call.
pub const SEND_BLOCKED_LOOK: Duration = Duration::from_secs(1);

/// Time for which the kernel keeps data that a client does not acknowledge, or for which its window
/// has no room (TCP_USER_TIMEOUT). Equal to the time after which silent peers are lost.
pub const SEND_UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(120);

/// Segments handed to the kernel in one vectored write.
pub const SEND_IOV_MAX: usize = 64;

/// File tails of at least this many bytes leave by `sendfile`; smaller ones are read and copied.
/// Measured on loopback, processor time of the sender: 2.8 against 4.8 us at 32 KiB, no difference
/// one by one at 16 KiB.
pub const SENDFILE_BYTES_MIN: usize = 32 << 10;

/// File tails of at least this many bytes leave by `splice` through a pipe, which takes 5 to 20
/// percent less processor time than `sendfile` from this size on.
pub const SPLICE_BYTES_MIN: usize = 512 << 10;

/// Requested size of a splice pipe, bytes.
pub const SPLICE_PIPE_BYTES: usize = 1 << 20;

/// Splice pipes that a core keeps for reuse.
pub const SPLICE_PIPES_RETAINED_MAX: usize = 8;

/// Core threads of one process.
pub const CORES_MAX: usize = 1024;

/// Threads for blocking calls of each core's runtime.
pub const BLOCKING_THREADS_PER_CORE_MAX: usize = 64;

/// Operations of one core's io_uring at a time.
pub const RING_OPS_MAX: u32 = 256;

/// Operations of one mount at a time on all rings together, so that a stalled disk does not take
/// every slot of every core.
pub const RING_OPS_PER_MOUNT_MAX: usize = 128;

/// Calls of one mount at a time on threads, so that a stalled disk does not take every thread.
pub const BLOCKING_CALLS_PER_MOUNT_MAX: usize = 32;

/// The part of a mount's calls at a time that one account has while other accounts use the mount too, one
/// nth: their calls have few others before them on the disk.
pub const SHARED_PERMITS_PART: usize = 4;

/// Time for which permits count as shared after two accounts have asked in a row.
pub const SHARED_PERMITS: Duration = Duration::from_secs(1);

/// Bytes of one write call on the core thread.
pub const INLINE_WRITE_BYTES_MAX: usize = 1 << 20;

/// A write on the core thread that slept this long shows that the disk cannot keep up: its mount's
/// writes leave the core for a while.
pub const INLINE_WRITE_STALL: Duration = Duration::from_millis(10);

/// Writes on the core thread that are watched for sleep after one that took [`INLINE_WRITE_STALL`]
/// for whatever reason.
pub const INLINE_WRITES_WATCHED: u32 = 64;

/// Time for which writes leave the core at first. It doubles each time they are slow again at once,
/// up to [`INLINE_WRITE_AWAY_MAX`].
pub const INLINE_WRITE_AWAY_MIN: Duration = Duration::from_secs(1);

/// Longest time for which writes leave the core.
pub const INLINE_WRITE_AWAY_MAX: Duration = Duration::from_secs(64);

/// Mounts of which facts are kept; files of further ones share one entry.
pub const MOUNTS_MAX: usize = 4096;

/// Time for which a core thread that ends waits for the kernel to release buffers, before it leaks
/// them.
pub const RING_FAREWELL: Duration = Duration::from_secs(2);

/// Connections the kernel holds for a listener until they are accepted.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Silence after which the kernel probes a peer.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Time between two probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Unanswered probes after which the connection is lost.
pub const KEEPALIVE_COUNT: u32 = 6;

/// Network interfaces that are reported; a host with thousands of containers has thousands.
pub const INTERFACES_MAX: usize = 4096;

/// Time after which a poll postpones work that can wait. Half of the 10 ms for which a request may
/// hold a core: the present step still ends.
pub const POLL_SLICE: Duration = Duration::from_millis(5);

/// Time for which the tasks of one account may use a core while other accounts use it too, before
/// others have their turn.
pub const TURN_SLICE: Duration = Duration::from_millis(1);

/// Bytes that one call sends while several accounts use the core. A socket takes 4 MiB at once, which are
/// copied for some 2 ms.
pub const SEND_STEP_BYTES: usize = 1 << 20;

/// Time for which a core counts as shared after it has worked for two accounts in a row.
pub const SHARED_CORE: Duration = Duration::from_millis(100);

/// Slices of others that an account lets pass in the line of a core, while it uses other cores as
/// well.
pub const TURNS_PASSED_MAX: u32 = 3;

/// Processor time that a look at the clock stands for in a simulator: the work since the one before.
pub const SIMULATED_LOOK: Duration = Duration::from_micros(100);

/// Processor time that a poll stands for in a simulator, beside its looks at the clock.
pub const SIMULATED_POLL: Duration = Duration::from_micros(10);

/// Processor time of one poll that builds with assertions count as a fault.
pub const HELD_CORE_MAX: Duration = Duration::from_millis(20);

/// Factor by which unoptimised code may be slower.
pub const UNOPTIMISED_FACTOR: u32 = 10;

/// Bytes of memory that may be registered for RDMA at a time, in all connections. `ulimit -l` and
/// `limits.memory` may allow fewer.
pub const RDMA_REGISTERED_BYTES_MAX: usize = 4 << 30;

/// Bytes that the RDMA transfers of one connection may have registered at a time. Further ones wait.
pub const RDMA_TRANSFER_BYTES_MAX: usize = 64 << 20;

/// Time for which an RDMA transfer waits for memory that may be registered.
pub const RDMA_ROOM_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes that a process must be permitted to pin (`ulimit -l`) before it listens for RDMA.
pub const RDMA_LOCKED_BYTES_MIN: u64 = 64 << 20;

/// Receives of one RDMA connection: the credits of a peer, and some more for messages that were not
/// read yet.
pub const RDMA_RECEIVES_MAX: usize = 272;

/// Credits of a peer that has not logged on.
pub const RDMA_CREDITS_NEW: u16 = 16;

/// Messages of one RDMA connection that are on their way to the peer.
pub const RDMA_SENDS_MAX: usize = 64;

/// Bytes of an RDMA read or write that is copied through memory which stays registered. To register
/// and deregister memory takes some microseconds, to copy so many bytes less than one.
pub const RDMA_STAGED_BYTES: usize = 8 << 10;

/// RDMA reads and writes of one connection that are under way.
pub const RDMA_TRANSFERS_MAX: usize = 64;

/// Memory windows of one RDMA connection. Further buffers are lent by registering each.
pub const RDMA_WINDOWS_MAX: usize = 64;

/// Bytes of one RDMA connection that stay registered, without access by the peer, while nobody uses
/// them.
pub const RDMA_KEPT_BYTES_MAX: usize = 32 << 20;

/// Registrations of one RDMA connection that are kept so.
pub const RDMA_KEPT_MAX: usize = 64;

/// Slots for messages that are registered together when there are too few.
pub const RDMA_SLOTS_AT_ONCE: usize = 16;

/// Bytes of the first message of either side, MS-SMBD 3.1.7.2.
pub const RDMA_FIRST_RECEIVE_BYTES: usize = 512;

/// Completions that are taken from a device in one call.
pub const RDMA_COMPLETIONS_AT_ONCE: usize = 32;

/// Such calls before other tasks of the core have their turn.
pub const RDMA_POLLS_AT_ONCE: usize = 16;

/// RDMA reads of a server that a client serves at a time.
pub const RDMA_READS_SERVED: u8 = 16;

/// RDMA connections that wait to be accepted.
pub const RDMA_BACKLOG: i32 = 128;

/// Times that a device sends again what was not acknowledged, before the connection is lost.
pub const RDMA_RETRIES: u8 = 6;

/// Times that a device sends again to a peer that has no receive posted. SMB Direct's credits rule
/// that out, so that only a faulty peer is met.
pub const RDMA_RNR_RETRIES: u8 = 6;

/// Time limit of the first attempt to find the device that leads to a server; each further one
/// doubles.
pub const RDMA_RESOLVE_FIRST: Duration = Duration::from_millis(100);

/// Time to find the device and the way to a server.
pub const RDMA_RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two attempts to listen on a device that was taken away.
pub const RDMA_LISTEN_AGAIN: Duration = Duration::from_secs(2);

/// Calls of librdmacm that are made at a time, each on a thread of its own.
pub const RDMA_CALLS_AT_ONCE: usize = 8;

/// Time for which a connection that has ended waits for its last messages to leave.
pub const RDMA_FAREWELL: Duration = Duration::from_secs(1);

/// Bytes that the peer of a QUIC connection may have under way to a client, and at most to a server once it
/// sends large requests after the logon: the rate of 1 Gbit/s over a round trip of 130 ms.
pub const QUIC_RECEIVE_WINDOW: usize = 16 << 20;

/// Bytes that the client of a new QUIC connection may have under way.
pub const QUIC_RECEIVE_WINDOW_NEW: usize = 32 << 10;

/// Bytes of one QUIC connection that were sent and are kept until the peer acknowledges them, at most.
pub const QUIC_SEND_WINDOW: usize = 8 << 20;

/// Such bytes of a server's connection until its client takes large answers after the logon.
pub const QUIC_SEND_WINDOW_NEW: usize = 32 << 10;

/// Bytes in a second for which the windows of a widened QUIC connection have room: 2 Gbit/s. The time that
/// counts is that of a round trip.
pub const QUIC_WINDOW_RATE: usize = 250_000_000;

/// The least window of a widened QUIC connection, which busy cores answer late.
pub const QUIC_WINDOW_MIN: usize = 1 << 20;

/// The window of a QUIC connection that is widened while memory is scarce.
pub const QUIC_WINDOW_SCARCE: usize = 256 << 10;

/// Bytes of a thousand that a QUIC connection may lose without sending less: BBR.LossThresh of
/// draft-ietf-ccwg-bbr. A queue that is full loses more.
pub const QUIC_FORGIVEN_PER_MILLE: u64 = 20;

/// Memory that a waiting datagram takes beside its bytes, which is counted with them.
pub const QUIC_DATAGRAM_BYTES: usize = 256;

/// Bytes of datagrams of one peer that wait for its QUIC connection while that has its first windows, and that
/// any peer may have waiting while memory is full.
pub const QUIC_QUEUED_BYTES_NEW: usize = 128 << 10;

/// Bytes of datagrams of one peer that wait for its QUIC connection, because its core is busy.
pub const QUIC_QUEUED_BYTES: usize = 4 << 20;

/// Bytes that the kernel may keep for a UDP socket of QUIC in each direction, if `net.core.rmem_max` and
/// `net.core.wmem_max` allow it.
pub const QUIC_SOCKET_BYTES: usize = 4 << 20;

/// The longest datagram of QUIC over the loopback, whose packets may have 64 KiB. Its memory in the kernel is
/// little more than 64 KiB.
pub const QUIC_LOCAL_DATAGRAM: u16 = 65_000;

/// Bytes that QUIC sends over the loopback before the first acknowledgment: eight long datagrams.
pub const QUIC_LOCAL_WINDOW: u64 = 8 * QUIC_LOCAL_DATAGRAM as u64;

/// Bytes of datagrams that QUIC sends with one call: the kernel takes 64 KiB.
pub const QUIC_TRAIN_BYTES: usize = 65_000;

/// Datagrams that a QUIC connection handles before others of its core have their turn.
pub const QUIC_DATAGRAMS_AT_ONCE: usize = 256;

/// Bytes that a QUIC connection sends before others of its core have their turn.
pub const QUIC_SENT_AT_ONCE: usize = 256 << 10;

/// Bytes that are given to QUIC at a time. It copies them into memory of their own, for longer ones the system has to
/// give pages each time.
pub const QUIC_WRITE_BYTES: usize = 64 << 10;

/// Time without a packet from the peer after which a QUIC connection is lost.
pub const QUIC_IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Time without a packet after which a QUIC connection sends one, so that firewalls remember it.
pub const QUIC_KEEP_ALIVE: Duration = Duration::from_secs(25);

/// Time for a QUIC handshake, also of a client, and for the client to open its stream.
pub const QUIC_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Clients of one QUIC listener whose first packets wait until their handshakes begin. Further clients
/// get no answer, and try again.
pub const QUIC_HANDSHAKES_MAX: usize = 512;

/// QUIC handshakes of all listeners under way from which on each further client has to prove its address
/// by a Retry before anything is kept of it.
pub const QUIC_HANDSHAKES_UNPROVEN_MAX: usize = 32;

/// Bytes of one client that are kept until its QUIC handshake begins.
pub const QUIC_FIRST_PACKETS_BYTES: u64 = 64 << 10;

/// Bytes of all such clients of a listener.
pub const QUIC_FIRST_PACKETS_BYTES_MAX: u64 = 4 << 20;

/// Time for which the end of a QUIC connection waits until the peer has what was sent last.
pub const QUIC_FAREWELL: Duration = Duration::from_secs(3);

/// Certificates that are read from one file. The bundles of systems have some 150.
pub const QUIC_CERTIFICATES_MAX: usize = 1_000;

/// Time after which a client of QUIC tries the next address of a name as well, RFC 8305 8.
pub const QUIC_NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Datagrams that came together which one call takes from a UDP socket of QUIC; each is of up to 64 KiB.
pub const QUIC_TRAINS_AT_ONCE: usize = 4;

/// Characters of the common name in a client's certificate that are logged: `ub-common-name` of
/// RFC 5280 A.1.
pub const QUIC_COMMON_NAME_CHARS: usize = 64;

/// Certificates that a client of QUIC may send above its own. `rustls-webpki` takes no longer chains.
pub const QUIC_CHAIN_CERTIFICATES_MAX: usize = 6;
