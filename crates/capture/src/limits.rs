//! Limits of captures: of what is written, and of what a file that is read may make a reader hold.

/// Bytes of a capture file, if nobody says another number.
pub const CAPTURE_BYTES: u64 = 256 << 20;

/// Fewest bytes of a capture file that can be asked for.
pub const CAPTURE_BYTES_MIN: u64 = 64 << 10;

/// Bytes of messages that wait for the writer. Further messages are counted and left out.
pub const QUEUED_BYTES: usize = 32 << 20;

/// Bytes that a waiting message costs beside its own.
pub const QUEUED_OVERHEAD: usize = 128;

/// Bytes of messages that a writer takes from the queue at once.
pub const TAKEN_BYTES: usize = 1 << 20;

/// Bytes that are kept free at the end of a file for its last block.
pub const LAST_BLOCK_BYTES: u64 = 1024;

/// Payload of one segment of a stream that is made again. An IPv4 packet has at most 65,535 bytes.
pub const SEGMENT_BYTES: usize = 61_440;

/// Bytes that are kept of the data of each READ and WRITE, if nobody says another number.
pub const DATA_BYTES: usize = 256;

/// Most bytes that can be asked for of the data of each READ and WRITE, beside all of it.
pub const DATA_BYTES_MAX: usize = 128 << 10;

/// Bytes that are kept of a frame whose end is cut, at most. Wireshark reads packets of 256 KiB.
pub const CUT_PACKET_BYTES: usize = 240 << 10;

/// Connections of a capture whose addresses are kept apart.
pub const CONNECTIONS: usize = 32_768;

/// CREATEs without an answer, and open pipes, that are remembered to find passwords in them. A pipe
/// beyond that counts as one of which nothing is known.
pub const PIPES: usize = 4096;

/// Depth to which the elements of a token are followed.
pub const TOKEN_DEPTH: usize = 16;

/// Bytes of a block of a file that is read. Longer blocks are skipped.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Interfaces of a section of a file that is read.
pub const INTERFACES: usize = 256;

/// Bytes of a comment that is shown.
pub const COMMENT_BYTES: usize = 4096;

/// Connections of a file that are followed at once. The oldest one is forgotten for a further one.
pub const FLOWS: usize = 256;

/// Bytes at the heads of the messages of a frame, behind their headers, that are kept while the rest passes by.
pub const HEAD_BYTES: usize = 64 << 10;

/// Bytes at the head of a message with data of a file that are kept.
pub const DATA_HEAD_BYTES: usize = 1 << 10;

/// Segments that wait for an earlier one, of each direction of a connection.
pub const WAITING_SEGMENTS: usize = 256;

/// Bytes of segments that wait for an earlier one, of each direction of a connection.
pub const WAITING_BYTES: usize = 256 << 10;

/// Bytes of what is remembered of requests without an answer, and of the names of open files, leases and shares.
pub const NAMES_BYTES: usize = 32 << 20;

/// Messages of one frame that are shown.
pub const MESSAGES_OF_FRAME: usize = 1024;

/// Characters of a name that are shown.
pub const NAME_CHARS: usize = 400;
