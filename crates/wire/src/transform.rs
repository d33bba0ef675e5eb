//! SMB2 TRANSFORM_HEADER, MS-SMB2 2.2.41, which precedes a sealed message.

use crate::codec::{Fields, Malformed, Parsed, Reader, Writer};
use core::ops::Range;

/// Bytes of the header.
pub const TRANSFORM_HEADER_LEN: usize = 52;

/// The first four bytes: 0xFD 'S' 'M' 'B'.
pub const TRANSFORM_PROTOCOL_ID: [u8; 4] = [0xFD, b'S', b'M', b'B'];

/// The part of the header that is authenticated, MS-SMB2 3.1.4.3: everything
/// from the Nonce on.
pub const AAD_RANGE: Range<usize> = 20..52;

/// Where the authentication tag lies in the header.
pub const TRANSFORM_SIGNATURE_RANGE: Range<usize> = 4..20;

/// The Flags of a sealed message; in 3.0 and 3.0.2 the field is
/// EncryptionAlgorithm and the same value means AES-128-CCM.
pub const TRANSFORM_ENCRYPTED: u16 = 0x0001;

/// A parsed header. The receiver, which also has the body, checks flags and size; a violation is a
/// disconnect (MS-SMB2 3.3.5.2.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransformHeader {
    /// The authentication tag of the sealed message.
    pub signature: [u8; 16],
    /// 11 bytes for CCM, 12 for GCM, the rest zero.
    pub nonce: [u8; 16],
    /// Bytes of the message before and after sealing.
    pub original_message_size: u32,
    /// [`TRANSFORM_ENCRYPTED`].
    pub flags: u16,
    /// The session whose keys are used.
    pub session_id: u64,
}

impl TransformHeader {
    /// Parses the first 52 bytes of `message`.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        if r.array::<4>("transform ProtocolId")? != TRANSFORM_PROTOCOL_ID {
            return Err(Malformed::new("transform ProtocolId"));
        }
        let signature = r.array("transform Signature")?;
        let nonce = r.array("Nonce")?;
        let original_message_size = r.u32("OriginalMessageSize")?;
        r.skip(2, "transform Reserved")?;
        let flags = r.u16("transform Flags")?;
        let session_id = r.u64("transform SessionId")?;
        Ok(Self { signature, nonce, original_message_size, flags, session_id })
    }

    /// Appends the 52 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&TRANSFORM_PROTOCOL_ID).bytes(&self.signature).bytes(&self.nonce);
        w.u32(self.original_message_size).u16(0).u16(self.flags).u64(self.session_id);
    }

    /// The 52 bytes, for the headroom before a message; no allocation.
    pub fn to_bytes(&self) -> [u8; TRANSFORM_HEADER_LEN] {
        let mut bytes = [0; TRANSFORM_HEADER_LEN];
        let mut w = Fields::new(&mut bytes);
        w.put(TRANSFORM_PROTOCOL_ID).put(self.signature).put(self.nonce);
        w.put(self.original_message_size.to_le_bytes()).put([0, 0]);
        w.put(self.flags.to_le_bytes()).put(self.session_id.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{AAD_RANGE, TRANSFORM_HEADER_LEN, TRANSFORM_SIGNATURE_RANGE, TransformHeader};
    use crate::codec::Writer;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn places() {
        let header = TransformHeader {
            signature: [0xAA; 16],
            nonce: [0xBB; 16],
            original_message_size: 0x0102_0304,
            flags: 1,
            session_id: 0x1112_1314_1516_1718,
        };
        let bytes = header.to_bytes();
        assert_eq!(&bytes[..4], b"\xFDSMB");
        assert_eq!(bytes[TRANSFORM_SIGNATURE_RANGE], [0xAA; 16]);
        assert_eq!(bytes[AAD_RANGE][..16], [0xBB; 16]);
        assert_eq!(
            bytes[36..52],
            [4, 3, 2, 1, 0, 0, 1, 0, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]
        );
        assert!(TransformHeader::parse(&bytes[..51]).is_err());
        let mut other = bytes;
        other[0] = 0xFE;
        assert!(TransformHeader::parse(&other).is_err());
    }

    proptest! {
        #[test]
        fn survives(signature: [u8; 16], nonce: [u8; 16], size: u32, flags: u16, session_id: u64) {
            let header = TransformHeader {
                signature, nonce, original_message_size: size, flags, session_id,
            };
            let mut bytes = Vec::new();
            header.encode(&mut Writer::new(&mut bytes));
            prop_assert_eq!(bytes.len(), TRANSFORM_HEADER_LEN);
            prop_assert_eq!(&bytes[..], &header.to_bytes()[..]);
            prop_assert_eq!(TransformHeader::parse(&bytes).unwrap(), header);
        }
    }
}
