//! The 32-byte header of every message, MS-CIFS 2.2.3.1 and MS-SMB 2.2.3.1.

use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::{bit_set, open_enum};

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 32;

/// The first four bytes of a message: 0xFF 'S' 'M' 'B'.
pub const PROTOCOL_ID: [u8; 4] = [0xFF, b'S', b'M', b'B'];

/// The bytes of the header that the signature takes.
pub const SIGNATURE_RANGE: core::ops::Range<usize> = 14..22;

/// SMB_FLAGS_REPLY.
const REPLY: u8 = 0x80;

/// SMB_FLAGS_CASE_INSENSITIVE and SMB_FLAGS_CANONICALIZED_PATHS, as all clients send them.
const USUAL_FLAGS: u8 = 0x18;

open_enum! {
    /// The command of a message, MS-CIFS 2.2.2.1.
    Command(u8) {
        /// SMB_COM_CREATE_DIRECTORY, 2.2.4.1
        CREATE_DIRECTORY = 0x00,
        /// SMB_COM_DELETE_DIRECTORY, 2.2.4.2
        DELETE_DIRECTORY = 0x01,
        /// SMB_COM_CLOSE, 2.2.4.5
        CLOSE = 0x04,
        /// SMB_COM_FLUSH, 2.2.4.6
        FLUSH = 0x05,
        /// SMB_COM_DELETE, 2.2.4.7
        DELETE = 0x06,
        /// SMB_COM_RENAME, 2.2.4.8
        RENAME = 0x07,
        /// SMB_COM_WRITE, 2.2.4.12
        WRITE = 0x0B,
        /// SMB_COM_LOCKING_ANDX, 2.2.4.32; from a server an oplock break.
        LOCKING_ANDX = 0x24,
        /// SMB_COM_TRANSACTION, 2.2.4.33
        TRANSACTION = 0x25,
        /// SMB_COM_ECHO, 2.2.4.39
        ECHO = 0x2B,
        /// SMB_COM_OPEN_ANDX, 2.2.4.41
        OPEN_ANDX = 0x2D,
        /// SMB_COM_READ_ANDX, 2.2.4.42
        READ_ANDX = 0x2E,
        /// SMB_COM_WRITE_ANDX, 2.2.4.43
        WRITE_ANDX = 0x2F,
        /// SMB_COM_TRANSACTION2, 2.2.4.46
        TRANSACTION2 = 0x32,
        /// SMB_COM_FIND_CLOSE2, 2.2.4.48
        FIND_CLOSE2 = 0x34,
        /// SMB_COM_TREE_DISCONNECT, 2.2.4.51
        TREE_DISCONNECT = 0x71,
        /// SMB_COM_NEGOTIATE, 2.2.4.52
        NEGOTIATE = 0x72,
        /// SMB_COM_SESSION_SETUP_ANDX, 2.2.4.53
        SESSION_SETUP_ANDX = 0x73,
        /// SMB_COM_LOGOFF_ANDX, 2.2.4.54
        LOGOFF_ANDX = 0x74,
        /// SMB_COM_TREE_CONNECT_ANDX, 2.2.4.55
        TREE_CONNECT_ANDX = 0x75,
        /// SMB_COM_NT_CREATE_ANDX, 2.2.4.64
        NT_CREATE_ANDX = 0xA2,
        /// SMB_COM_NO_ANDX_COMMAND, 2.2.4.75: the end of a chain.
        NO_ANDX_COMMAND = 0xFF,
    }
}

impl Command {
    /// Returns true if several messages may answer a request with this command.
    pub const fn is_transaction(self) -> bool {
        matches!(self, Self::TRANSACTION | Self::TRANSACTION2)
    }
}

bit_set! {
    /// The Flags2 field.
    Flags2(u16) {
        /// SMB_FLAGS2_LONG_NAMES
        LONG_NAMES = 0x0001,
        /// SMB_FLAGS2_EAS
        EAS = 0x0002,
        /// SMB_FLAGS2_SMB_SECURITY_SIGNATURE
        SECURITY_SIGNATURE = 0x0004,
        /// SMB_FLAGS2_SMB_SECURITY_SIGNATURE_REQUIRED
        SECURITY_SIGNATURE_REQUIRED = 0x0010,
        /// SMB_FLAGS2_IS_LONG_NAME
        IS_LONG_NAME = 0x0040,
        /// SMB_FLAGS2_EXTENDED_SECURITY
        EXTENDED_SECURITY = 0x0800,
        /// SMB_FLAGS2_NT_STATUS
        NT_STATUS = 0x4000,
        /// SMB_FLAGS2_UNICODE
        UNICODE = 0x8000,
    }
}

/// A header. The process id is always 1, as servers compare it only between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The operation.
    pub command: Command,
    /// The status of a response: an NTSTATUS, or an SMBSTATUS without [`Flags2::NT_STATUS`].
    pub status: u32,
    /// True for a response.
    pub is_reply: bool,
    /// Features in effect for the message.
    pub flags2: Flags2,
    /// SecuritySignature.
    pub signature: [u8; 8],
    /// The tree connect.
    pub tree: u16,
    /// The session.
    pub user: u16,
    /// The number of the request.
    pub mid: u16,
}

/// PIDLow of all requests.
const PROCESS: u16 = 1;

impl Header {
    /// Parses the first 32 bytes of a message.
    ///
    /// # Errors
    /// If they are not there, or no SMB1.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        if r.array::<4>("Protocol")? != PROTOCOL_ID {
            return Err(Malformed::new("Protocol"));
        }
        let command = Command(r.u8("Command")?);
        let status = r.u32("Status")?;
        let is_reply = r.u8("Flags")? & REPLY != 0;
        let flags2 = Flags2(r.u16("Flags2")?);
        r.skip(2, "PIDHigh")?;
        let signature = r.array("SecuritySignature")?;
        r.skip(2, "Reserved")?;
        let tree = r.u16("TID")?;
        r.skip(2, "PIDLow")?;
        let user = r.u16("UID")?;
        let mid = r.u16("MID")?;
        Ok(Self { command, status, is_reply, flags2, signature, tree, user, mid })
    }

    /// Appends the 32 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let flags = if self.is_reply { USUAL_FLAGS | REPLY } else { USUAL_FLAGS };
        w.bytes(&PROTOCOL_ID).u8(self.command.0).u32(self.status).u8(flags).u16(self.flags2.0);
        w.u16(0).bytes(&self.signature).u16(0);
        w.u16(self.tree).u16(PROCESS).u16(self.user).u16(self.mid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The beginning of the response in MS-SMB 4.3.
    #[test]
    fn the_header_of_the_signing_example() {
        let bytes: [u8; 32] = [
            0xFF, 0x53, 0x4D, 0x42, 0x73, 0x00, 0x00, 0x00, 0x00, 0x98, 0x07, 0xC8, 0x00, 0x00,
            0xAB, 0x44, 0xC4, 0x76, 0x45, 0x84, 0x1A, 0x6A, 0x00, 0x00, 0x00, 0x00, 0xFF, 0xFE,
            0x00, 0x08, 0x40, 0x00,
        ];
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.command, Command::SESSION_SETUP_ANDX);
        assert!(header.is_reply);
        assert_eq!(header.flags2.0, 0xC807);
        assert_eq!(header.signature, [0xAB, 0x44, 0xC4, 0x76, 0x45, 0x84, 0x1A, 0x6A]);
        assert_eq!((header.user, header.mid), (0x0800, 0x40));
        let mut again = Vec::new();
        header.encode(&mut Writer::new(&mut again));
        // PIDLow alone differs.
        assert_eq!(again[..26], bytes[..26]);
        assert_eq!(again[28..], bytes[28..]);
        assert_eq!(again[9], 0x98);
    }

    #[test]
    fn other_protocols_and_short_headers_are_refused() {
        let mut bytes = [0u8; 32];
        bytes[..4].copy_from_slice(&PROTOCOL_ID);
        assert!(Header::parse(&bytes).is_ok());
        assert!(Header::parse(&bytes[..31]).is_err());
        bytes[0] = 0xFE;
        assert!(Header::parse(&bytes).is_err());
    }
}
