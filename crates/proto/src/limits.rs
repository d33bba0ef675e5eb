//! The limits of this crate, bytes unless said otherwise.

/// A frame before the dialect is negotiated. Windows accepts NEGOTIATE requests
/// of about this size.
pub const FRAME_BEFORE_NEGOTIATE: usize = 128 * 1024;

/// A frame between NEGOTIATE and the first session: SESSION_SETUP with the
/// largest security buffer that its 16-bit length can name, and some headers.
pub const FRAME_BEFORE_AUTHENTICATION: usize = 68 * 1024;

/// A request of a command that carries no payload, MS-SMB2 3.3.5.2.
pub const MESSAGE_WITHOUT_PAYLOAD: usize = 68 * 1024;

/// What MS-SMB2 3.3.5.2 allows a message beyond its payload.
pub const MESSAGE_OVERHEAD: usize = 256;

/// The largest frame that the 24-bit length of the transport can name.
pub const FRAME_MAX: usize = 0x00FF_FFFF;

/// Sequence numbers between the lowest and the highest that a Connection
/// accepts; also the most credits that a client can hold. What Windows servers
/// stop at.
pub const WINDOW_MAX: u16 = 8192;

/// Entries of Open.LockSequenceArray, MS-SMB2 3.3.1.10.
pub const LOCK_SEQUENCES: usize = 64;

/// What one credit pays for, MS-SMB2 3.1.5.2.
pub const BYTES_PER_CREDIT: u32 = 65536;
