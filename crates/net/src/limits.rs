//! Every bound of this crate, by name.

use std::time::Duration;

/// Bytes of free buffers one core thread keeps for reuse. What is freed
/// beyond it goes back to the system at once.
pub const POOL_RETAINED_BYTES_MAX: usize = 32 << 20;

/// Time between two looks for free buffers that nobody used: what a burst took goes
/// back within twice this time.
pub const POOL_TRIM_INTERVAL: Duration = Duration::from_secs(2);

/// The largest block a pool keeps; larger ones are made and unmade each time.
pub const POOLED_BLOCK_BYTES_MAX: usize = (8 << 20) + 4096;

/// The largest length a [`crate::Buf`] may be asked for: a whole frame with
/// its prefix and every headroom fits.
pub const BUF_BYTES_MAX: usize = (16 << 20) + 65536;

/// Bytes of the scratch that all connections of a core receive into first.
pub const RECEIVE_SCRATCH_BYTES: usize = 16 << 10;

/// The largest length four prefix bytes can say (MS-SMB2 2.1).
pub const FRAME_BYTES_MAX: u32 = 0x00ff_ffff;

/// Time between two questions for leave to receive.
pub const GATE_PAUSE: Duration = Duration::from_millis(5);

/// How long a begun frame may stand still before its connection is given up.
pub const FRAME_PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes per second a begun frame has to arrive at, beyond
/// [`FRAME_PROGRESS_TIMEOUT`], so that one byte every nine seconds does not
/// hold a large buffer for a day.
pub const FRAME_RATE_MIN: u32 = 4096;

/// Bytes in a send queue from which on it calls itself full.
pub const SEND_QUEUE_BYTES_MAX: usize = 16 << 20;

/// Frames in a send queue from which on it calls itself full.
pub const SEND_QUEUE_FRAMES_MAX: usize = 4096;

/// The time in which a peer has to take [`SEND_RATE_MIN`], or all that waits for it.
/// Otherwise its connection is given up, whatever it sends meanwhile.
pub const SEND_STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes per second that a peer has to take while something waits for it, as a mean over
/// [`SEND_STALL_TIMEOUT`].
pub const SEND_RATE_MIN: u32 = 4096;

/// A queue that is blocked for so long is watched: what the peer has acknowledged is
/// asked of the kernel, which a peer that reads fast never costs.
pub const SEND_BLOCKED_LOOK: Duration = Duration::from_secs(1);

/// How long the kernel keeps data of ours that a client does not acknowledge, or that its
/// window has no room for (TCP_USER_TIMEOUT). As long as silent peers are asked for.
pub const SEND_UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(120);

/// Segments handed to the kernel in one vectored write.
pub const SEND_IOV_MAX: usize = 64;

/// File tails of at least this many bytes leave by `sendfile`; smaller ones
/// are read and copied. Measured on loopback, processor time of the sender:
/// 2.8 against 4.8 us at 32 KiB, no difference one by one at 16 KiB.
pub const SENDFILE_BYTES_MIN: usize = 32 << 10;

/// File tails of at least this many bytes leave by `splice` through a pipe:
/// 5 to 20 percent less processor time than `sendfile` from here on, and
/// none below.
pub const SPLICE_BYTES_MIN: usize = 512 << 10;

/// The size asked for of a splice pipe.
pub const SPLICE_PIPE_BYTES: usize = 1 << 20;

/// Splice pipes a core keeps for reuse.
pub const SPLICE_PIPES_RETAINED_MAX: usize = 8;

/// Core threads one process may have.
pub const CORES_MAX: usize = 1024;

/// Threads for blocking calls each core's runtime may have.
pub const BLOCKING_THREADS_PER_CORE_MAX: usize = 64;

/// Operations one core's io_uring may have under way.
pub const RING_OPS_MAX: u32 = 256;

/// Operations one mount may have under way on all rings together, so that a
/// disk that stalls does not take every slot of every core.
pub const RING_OPS_PER_MOUNT_MAX: usize = 128;

/// Calls one mount may have blocking on threads, for the same reason.
pub const BLOCKING_CALLS_PER_MOUNT_MAX: usize = 32;

/// Bytes written on the core thread in one call, where that is the road.
pub const INLINE_WRITE_BYTES_MAX: usize = 1 << 20;

/// A write on the core thread that slept this long shows that the disk cannot
/// follow: its mount's writes leave the core for a while.
pub const INLINE_WRITE_STALL: Duration = Duration::from_millis(10);

/// Writes on the core thread that are watched for sleep after one that took
/// [`INLINE_WRITE_STALL`] for whatever reason.
pub const INLINE_WRITES_WATCHED: u32 = 64;

/// How long they stay away the first time; doubled each time it happens again
/// at once, up to [`INLINE_WRITE_AWAY_MAX`].
pub const INLINE_WRITE_AWAY_MIN: Duration = Duration::from_secs(1);

/// The longest they stay away.
pub const INLINE_WRITE_AWAY_MAX: Duration = Duration::from_secs(64);

/// Mounts of which a memory is kept; files of further ones share one.
pub const MOUNTS_MAX: usize = 4096;

/// How long a dying core thread waits for the kernel to let go of buffers,
/// before it leaks them.
pub const RING_FAREWELL: Duration = Duration::from_secs(2);

/// Connections the kernel holds for a listener until they are accepted.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Silence after which the kernel asks a peer whether it is still there.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Time between such questions.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Unanswered questions after which the connection is dead.
pub const KEEPALIVE_COUNT: u32 = 6;

/// Interfaces reported at most; a host with thousands of containers has
/// thousands.
pub const INTERFACES_MAX: usize = 4096;

/// How long one poll goes on with what could as well go on later. Half of the
/// 10 ms that no request may hold a core for: the step at hand still ends.
pub const POLL_SLICE: Duration = Duration::from_millis(5);

/// Processor time that one poll may take before builds with assertions count it
/// as a fault.
pub const HELD_CORE_MAX: Duration = Duration::from_millis(20);

/// How many times slower unoptimised code may be.
pub const UNOPTIMISED_FACTOR: u32 = 10;
