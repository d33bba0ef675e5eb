//! The limits of this crate, bytes unless said otherwise.

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
