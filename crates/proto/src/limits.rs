//! The limits of this crate, bytes unless said otherwise.

use core::time::Duration;

/// Longest frame before the dialect is negotiated. Windows accepts NEGOTIATE requests of about this
/// size.
pub const FRAME_BEFORE_NEGOTIATE: usize = 128 * 1024;

/// Longest frame between NEGOTIATE and the first session: SESSION_SETUP with the largest security
/// buffer of its 16-bit length, and headers.
pub const FRAME_BEFORE_AUTHENTICATION: usize = 68 * 1024;

/// Longest request of a command without payload, MS-SMB2 3.3.5.2.
pub const MESSAGE_WITHOUT_PAYLOAD: usize = 68 * 1024;

/// Bytes of a message beyond its payload, MS-SMB2 3.3.5.2.
pub const MESSAGE_OVERHEAD: usize = 256;

/// Longest frame in the transport's 24-bit length.
pub const FRAME_MAX: usize = 0x00FF_FFFF;

/// Sequence numbers between the lowest and the highest that a Connection accepts; also the most
/// credits that a client can hold. The maximum of Windows servers.
pub const WINDOW_MAX: u16 = 8192;

/// Entries of Open.LockSequenceArray, MS-SMB2 3.3.1.10.
pub const LOCK_SEQUENCES: usize = 64;

/// Bytes that one credit covers, MS-SMB2 3.1.5.2.
pub const BYTES_PER_CREDIT: u32 = 65536;

/// Receives that are posted for one peer of SMB Direct (Connection.ReceiveCreditMax), MS-SMBD
/// 3.1.7.2: the value of Windows.
pub const SMBD_RECEIVE_CREDITS: u16 = 255;

/// Send credits that are asked of a peer of SMB Direct (Connection.SendCreditTarget).
pub const SMBD_SEND_CREDITS: u16 = 255;

/// Longest message sent over SMB Direct (Connection.MaxSendSize): it fits into one Ethernet packet.
pub const SMBD_SEND_SIZE: u32 = 1364;

/// Longest message received over SMB Direct (Connection.MaxReceiveSize). Peers send 1364 bytes, and
/// then receives have this length too.
pub const SMBD_RECEIVE_SIZE: u32 = 8192;

/// Least MaxReceiveSize that a peer of SMB Direct may have, MS-SMBD 3.1.5.6.
pub const SMBD_RECEIVE_SIZE_MIN: u32 = 128;

/// Longest message of SMB2 that is put together from fragments (Connection.MaxFragmentedRecvSize).
pub const SMBD_FRAGMENTED_SIZE: u32 = 1_048_576;

/// Least MaxFragmentedSize that a peer of SMB Direct may have, MS-SMBD 3.1.5.6.
pub const SMBD_FRAGMENTED_SIZE_MIN: u32 = 131_072;

/// Largest transfer by RDMA for one request (Connection.MaxReadWriteSize).
pub const SMBD_READ_WRITE_SIZE: u32 = 8_388_608;

/// Silence after which a peer of SMB Direct is asked for a sign of life
/// (Connection.KeepaliveInterval).
pub const SMBD_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(120);

/// Time within which a peer of SMB Direct must give that sign, MS-SMBD 3.1.5.1.
pub const SMBD_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time within which a server of SMB Direct must negotiate, MS-SMBD 3.1.4.1.
pub const SMBD_NEGOTIATE_TIMEOUT_ACTIVE: Duration = Duration::from_secs(120);

/// Time within which a client of SMB Direct must negotiate, MS-SMBD 3.1.7.2.
pub const SMBD_NEGOTIATE_TIMEOUT_PASSIVE: Duration = Duration::from_secs(5);

/// Time within which a begun message of SMB Direct must be complete.
pub const SMBD_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes per second at which a fragmented message must arrive, beyond [`SMBD_MESSAGE_TIMEOUT`].
pub const SMBD_MESSAGE_RATE_MIN: u32 = 4096;

/// Messages that are signed or sealed together, where that is faster (AES-CMAC, AES-CCM).
pub const PROTECTED_TOGETHER: usize = 8;

/// Total length from which no further message waits to be signed or sealed with others.
pub const PROTECTED_TOGETHER_BYTES_MAX: usize = 8 << 20;

/// Messages that are verified or unsealed together, where that is faster (AES-CMAC, AES-CCM).
pub const CHECKED_TOGETHER: usize = 8;

/// Total length from which no further message is received to be checked with others.
pub const CHECKED_TOGETHER_BYTES_MAX: usize = 4 << 20;

/// Length below which a message is not protected or checked with others.
pub const TOGETHER_BYTES_MIN: usize = 8 << 10;

/// Messages of a frame whose signatures may be verified before its turn.
pub const VERIFIED_AHEAD: usize = 128;

/// Processor time of one message from which it does not stay on a thread that serves others.
pub const CRYPTO_HELD_MAX: Duration = Duration::from_millis(5);

/// The same where the thread has nothing else to do.
pub const CRYPTO_HELD_ALONE_MAX: Duration = Duration::from_millis(10);

/// Length from which a message gains on another thread if a core is idle, for algorithms that are
/// chains.
pub const CRYPTO_GAINS_BYTES_MIN: usize = 4 << 20;

/// Length below which a message stays on a thread that serves others.
pub const CRYPTO_ELSEWHERE_BYTES_MIN: usize = 256 << 10;

/// Length from which other cores help a connection that has several, where the algorithm is slow.
pub const CRYPTO_HELPED_BYTES_MIN: usize = 32 << 10;

/// Time for one mebibyte from which an algorithm counts as slow.
pub const CRYPTO_SLOW_FROM: Duration = Duration::from_micros(250);

/// Length up to which data is not compressed, MS-SMB2 3.1.4.4.
pub const COMPRESSED_BYTES_MIN: usize = 1024;

/// Bytes that take as long as the beginning of a payload of LZ77+Huffman, for which its decoder makes
/// tables.
pub const EXPANDED_PAYLOAD_BYTES: usize = 32 << 10;
