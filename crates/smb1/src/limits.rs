//! Limits on what a server may send and on what is asked of it.

/// Longest message from a server, bytes.
pub const FRAME_BYTES_MAX: usize = 0x0011_0000;

/// Parameters and data of a transaction that are put together from several messages, bytes.
pub const TRANSACTION_BYTES_MAX: usize = 2 * 0xFFFF;

/// Messages of one answer to a transaction.
pub const TRANSACTION_PARTS_MAX: usize = 256;

/// Requests under way on a connection, whatever MaxMpxCount a server tells.
pub const REQUESTS_MAX: u16 = 128;

/// Most bytes that one READ or WRITE moves, to a server with Samba's Unix extensions.
pub const UNIX_IO_BYTES: u32 = 1 << 20;

/// Most bytes that one READ moves, from a server with CAP_LARGE_READX: what all such servers return.
pub const LARGE_READ_BYTES: u32 = 61_440;

/// Most bytes that one WRITE moves, to a server with CAP_LARGE_WRITEX: what all such servers take.
pub const LARGE_WRITE_BYTES: u32 = 61_440;

/// Most bytes that one WRITE moves, to a Samba whose Unix extensions offer no longer ones: 127 KiB, which its buffer
/// holds with the header.
pub const SAMBA_WRITE_BYTES: u32 = 130_048;

/// Smallest MaxBufferSize of a server, bytes: no path fits a smaller one.
pub const BUFFER_BYTES_MIN: u32 = 1_024;

/// Longest security blob of a server, bytes.
pub const BLOB_BYTES_MAX: usize = 0xFFFF;

/// Names in the answer to a NetBIOS name query.
pub const NETBIOS_NAMES_MAX: usize = 128;

/// Data of a list of shares that is asked for, bytes.
pub const LIST_BYTES: u16 = 0x7FFF;
