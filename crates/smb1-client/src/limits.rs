//! Limits of a connection by SMB1.

use std::time::Duration;

/// Time limit of an attempt at one port of a server.
pub const DIAL_WITHIN: Duration = Duration::from_secs(5);

/// Time limit of a message of the NetBIOS session service, and of NEGOTIATE.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Time limit of an answer of the NetBIOS name service.
pub const NAME_WITHIN: Duration = Duration::from_secs(1);

/// Longest datagram of the NetBIOS name service, bytes.
pub const DATAGRAM_BYTES_MAX: usize = 4_096;

/// Rounds of a logon with tokens of SPNEGO.
pub const LOGON_ROUNDS: usize = 8;

/// Bytes in each direction between the client and the bridge.
pub const BRIDGE_BYTES: usize = 4 << 20;

/// Longest request of the client to the bridge, bytes.
pub const REQUEST_BYTES_MAX: u32 = (1 << 20) + 65_536;

/// Bytes of one READ or WRITE of the client: all pieces are asked for at once.
pub const BRIDGE_IO_BYTES: u32 = 983_040;

/// Requests for one part of a READ, of a server that answers with less than it was asked for. The client
/// goes on behind what there is.
pub const READS_OF_A_PART: usize = 4;

/// Bytes of an answer beside its data that are kept with it.
pub const KEPT_BESIDE_DATA: usize = 4_096;

/// Entries of a directory that wait to be listed.
pub const ENTRIES_WAITING_MAX: usize = 0xFFFF;
