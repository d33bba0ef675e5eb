//! The 64-byte header of every SMB2 message, MS-SMB2 2.2.1.

use crate::codec::{Fields, Malformed, Parsed, Reader, Writer};
use crate::status::Status;
use crate::{bit_set, open_enum};

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 64;

/// The first four bytes of an SMB2 message: 0xFE 'S' 'M' 'B'.
pub const PROTOCOL_ID: [u8; 4] = [0xFE, b'S', b'M', b'B'];

/// Where the 16-byte Signature lies in the header.
pub const SIGNATURE_RANGE: core::ops::Range<usize> = 48..64;

open_enum! {
    /// The Command field, MS-SMB2 2.2.1.2.
    Command(u16) {
        /// 2.2.3
        NEGOTIATE = 0x00,
        /// 2.2.5
        SESSION_SETUP = 0x01,
        /// 2.2.7
        LOGOFF = 0x02,
        /// 2.2.9
        TREE_CONNECT = 0x03,
        /// 2.2.11
        TREE_DISCONNECT = 0x04,
        /// 2.2.13
        CREATE = 0x05,
        /// 2.2.15
        CLOSE = 0x06,
        /// 2.2.17
        FLUSH = 0x07,
        /// 2.2.19
        READ = 0x08,
        /// 2.2.21
        WRITE = 0x09,
        /// 2.2.26
        LOCK = 0x0A,
        /// 2.2.31
        IOCTL = 0x0B,
        /// 2.2.30
        CANCEL = 0x0C,
        /// 2.2.28
        ECHO = 0x0D,
        /// 2.2.33
        QUERY_DIRECTORY = 0x0E,
        /// 2.2.35
        CHANGE_NOTIFY = 0x0F,
        /// 2.2.37
        QUERY_INFO = 0x10,
        /// 2.2.39
        SET_INFO = 0x11,
        /// 2.2.23, 2.2.24
        OPLOCK_BREAK = 0x12,
        /// 2.2.23.2 note: a server-to-client notification of 3.1.1.
        SERVER_TO_CLIENT_NOTIFICATION = 0x13,
    }
}

bit_set! {
    /// The Flags field of the header, MS-SMB2 2.2.1.2.
    HeaderFlags(u32) {
        /// The message is a response.
        SERVER_TO_REDIR = 0x0000_0001,
        /// An ASYNC header: AsyncId in place of Reserved and TreeId.
        ASYNC_COMMAND = 0x0000_0002,
        /// Related to the previous operation of the compound.
        RELATED_OPERATIONS = 0x0000_0004,
        /// The message is signed.
        SIGNED = 0x0000_0008,
        /// Mask of the I/O priority (3.1.1).
        PRIORITY_MASK = 0x0000_0070,
        /// A DFS operation.
        DFS_OPERATIONS = 0x1000_0000,
        /// A replay (3.x).
        REPLAY_OPERATION = 0x2000_0000,
    }
}

/// Bytes 32 to 40 of the header. The flag ASYNC_COMMAND decides their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// MS-SMB2 2.2.1.2: a process id (reserved) and the tree.
    Sync {
        /// Echoed in responses; clients put a process id here.
        process_id: u32,
        /// The tree connect, 0 where none applies.
        tree_id: u32,
    },
    /// MS-SMB2 2.2.1.1: an operation that the server completes later.
    Async {
        /// Names the operation on this connection.
        async_id: u64,
    },
}

/// A parsed header. Unknown commands and flags survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Credits that the message consumes (2.1 and up; 0 means 1).
    pub credit_charge: u16,
    /// In a response the status; in a request of 3.x the low 16 bits are the
    /// ChannelSequence, see [`Header::channel_sequence`].
    pub status: Status,
    /// Command: the operation.
    pub command: Command,
    /// Credits asked for (request) or granted (response).
    pub credits: u16,
    /// The bits of [`HeaderFlags`].
    pub flags: HeaderFlags,
    /// Bytes from this header to the next one of the compound, 0 in the last.
    pub next_command: u32,
    /// Position in the sequence window.
    pub message_id: u64,
    /// Tree or async id.
    pub route: Route,
    /// The session, 0 where none applies.
    pub session_id: u64,
    /// Signature; zero in an unsigned message.
    pub signature: [u8; 16],
}

impl Header {
    /// Parses the first 64 bytes of `message`.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        if r.array::<4>("ProtocolId")? != PROTOCOL_ID {
            return Err(Malformed::new("ProtocolId"));
        }
        if r.u16("header StructureSize")? != 64 {
            return Err(Malformed::new("header StructureSize"));
        }
        let credit_charge = r.u16("CreditCharge")?;
        let status = Status(r.u32("Status")?);
        let command = Command(r.u16("Command")?);
        let credits = r.u16("Credits")?;
        let flags = HeaderFlags(r.u32("Flags")?);
        let next_command = r.u32("NextCommand")?;
        let message_id = r.u64("MessageId")?;
        let route = if flags.contains(HeaderFlags::ASYNC_COMMAND) {
            Route::Async { async_id: r.u64("AsyncId")? }
        } else {
            Route::Sync { process_id: r.u32("ProcessId")?, tree_id: r.u32("TreeId")? }
        };
        let session_id = r.u64("SessionId")?;
        let signature = r.array("Signature")?;
        Ok(Self {
            credit_charge,
            status,
            command,
            credits,
            flags,
            next_command,
            message_id,
            route,
            session_id,
            signature,
        })
    }

    /// Encodes the header; no allocation.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let route = match self.route {
            Route::Sync { process_id, tree_id } => u64::from(tree_id) << 32 | u64::from(process_id),
            Route::Async { async_id } => async_id,
        };
        let mut w = Fields::new(&mut bytes);
        w.put(PROTOCOL_ID).put(64_u16.to_le_bytes()).put(self.credit_charge.to_le_bytes());
        w.put(self.status.0.to_le_bytes()).put(self.command.0.to_le_bytes());
        w.put(self.credits.to_le_bytes()).put(self.flags.0.to_le_bytes());
        w.put(self.next_command.to_le_bytes()).put(self.message_id.to_le_bytes());
        w.put(route.to_le_bytes()).put(self.session_id.to_le_bytes()).put(self.signature);
        bytes
    }

    /// Appends the 64 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.to_bytes());
    }

    /// The tree of a synchronous message.
    pub const fn tree_id(&self) -> Option<u32> {
        match self.route {
            Route::Sync { tree_id, .. } => Some(tree_id),
            Route::Async { .. } => None,
        }
    }

    /// The ChannelSequence of a 3.x request, MS-SMB2 2.2.1.2.
    pub const fn channel_sequence(&self) -> u16 {
        (self.status.0 & 0xFFFF) as u16
    }

    /// True for a response.
    pub const fn is_response(&self) -> bool {
        self.flags.contains(HeaderFlags::SERVER_TO_REDIR)
    }
}
