//! NEGOTIATE: MS-CIFS 2.2.4.52, MS-SMB 2.2.4.5.

use alloc::vec::Vec;

use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::FileTime;

use crate::header::Command;
use crate::limits::{BLOB_BYTES_MAX, BUFFER_BYTES_MIN};
use crate::message::{Request, Response};

/// The only dialect that is offered: the others have no large files and no statuses of NT.
const DIALECT: &[u8] = b"\x02NT LM 0.12\0";

bit_set! {
    /// Capabilities of a server and of a client, MS-SMB 2.2.4.5.2.1.
    Capabilities(u32) {
        /// CAP_UNICODE
        UNICODE = 0x0000_0004,
        /// CAP_LARGE_FILES
        LARGE_FILES = 0x0000_0008,
        /// CAP_NT_SMBS
        NT_SMBS = 0x0000_0010,
        /// CAP_RPC_REMOTE_APIS
        RPC_REMOTE_APIS = 0x0000_0020,
        /// CAP_STATUS32
        STATUS32 = 0x0000_0040,
        /// CAP_NT_FIND
        NT_FIND = 0x0000_0200,
        /// CAP_INFOLEVEL_PASSTHRU
        INFOLEVEL_PASSTHRU = 0x0000_2000,
        /// CAP_LARGE_READX
        LARGE_READX = 0x0000_4000,
        /// CAP_LARGE_WRITEX
        LARGE_WRITEX = 0x0000_8000,
        /// CAP_UNIX
        UNIX = 0x0080_0000,
        /// CAP_EXTENDED_SECURITY
        EXTENDED_SECURITY = 0x8000_0000,
    }
}

bit_set! {
    /// SecurityMode, MS-CIFS 2.2.4.52.2.
    SecurityMode(u8) {
        /// Users log on; else each share has a password.
        USER_SECURITY = 0x01,
        /// Passwords are not sent in plain text.
        ENCRYPT_PASSWORDS = 0x02,
        /// Signatures are possible.
        SECURITY_SIGNATURES_ENABLED = 0x04,
        /// Signatures are required.
        SECURITY_SIGNATURES_REQUIRED = 0x08,
    }
}

/// How a server wants users to log on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// With tokens of SPNEGO; the server's first one, which may be empty.
    Extended(Vec<u8>),
    /// With responses to a challenge.
    Challenge([u8; 8]),
    /// With the password in plain text.
    PlainText,
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// SecurityMode
    pub security_mode: SecurityMode,
    /// MaxMpxCount, at least 1.
    pub max_mpx: u16,
    /// MaxBufferSize
    pub max_buffer: u32,
    /// SessionKey, which is sent back in SESSION_SETUP.
    pub session_key: u32,
    /// Capabilities
    pub capabilities: Capabilities,
    /// SystemTime
    pub system_time: FileTime,
    /// ServerTimeZone: minutes from the server's time to UTC.
    pub time_zone: i16,
    /// How users log on.
    pub security: Security,
}

/// Returns the request.
pub fn request() -> Request<'static> {
    Request::new(Command::NEGOTIATE, Vec::new(), DIALECT.to_vec())
}

/// Parameter words of the response in the dialect NT LM 0.12.
const WORDS: usize = 17;

impl Negotiated {
    /// Parses the response.
    ///
    /// # Errors
    /// If it is malformed, or the server does not speak NT LM 0.12.
    pub fn parse(response: &Response<'_>) -> Parsed<Self> {
        let r = &mut response.words(1, "NEGOTIATE WordCount")?;
        if r.u16("DialectIndex")? != 0 || response.word_count() < WORDS {
            return Err(Malformed::new("DialectIndex: the server does not speak NT LM 0.12"));
        }
        let security_mode = SecurityMode(r.u8("SecurityMode")?);
        let max_mpx = r.u16("MaxMpxCount")?.max(1);
        r.skip(2, "MaxNumberVcs")?;
        let max_buffer = r.u32("MaxBufferSize")?;
        if max_buffer < BUFFER_BYTES_MIN {
            return Err(Malformed::new("MaxBufferSize"));
        }
        r.skip(4, "MaxRawSize")?;
        let session_key = r.u32("SessionKey")?;
        let capabilities = Capabilities(r.u32("Capabilities")?);
        let system_time = FileTime(r.u64("SystemTime")?);
        let time_zone = i16::from_le_bytes(r.array("ServerTimeZone")?);
        let challenge_len = usize::from(r.u8("ChallengeLength")?);
        let security = if capabilities.contains(Capabilities::EXTENDED_SECURITY) {
            let blob = response.bytes().get(16..).ok_or(Malformed::new("ServerGUID"))?;
            if blob.len() > BLOB_BYTES_MAX {
                return Err(Malformed::new("SecurityBlob"));
            }
            Security::Extended(blob.to_vec())
        } else if security_mode.contains(SecurityMode::ENCRYPT_PASSWORDS) {
            let challenge = response.bytes().first_chunk().filter(|_| challenge_len == 8);
            Security::Challenge(*challenge.ok_or(Malformed::new("Challenge"))?)
        } else {
            Security::PlainText
        };
        Ok(Self {
            security_mode,
            max_mpx,
            max_buffer,
            session_key,
            capabilities,
            system_time,
            time_zone,
            security,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::header::{HEADER_LEN, Header, PROTOCOL_ID};
    use crate::message::words;

    /// A response of NEGOTIATE, as smbd sends it.
    pub(crate) fn answer(mode: u8, capabilities: u32, challenge_len: u8, bytes: &[u8]) -> Vec<u8> {
        let words = words(|w| {
            w.u16(0).u8(mode).u16(50).u16(1).u32(16_644).u32(65_536).u32(0x1234).u32(capabilities);
            w.u64(7).u16(0xFFC4).u8(challenge_len);
        });
        let mut request = Request::new(Command::NEGOTIATE, words, bytes.to_vec());
        request.payload = &[];
        let mut head = [0u8; HEADER_LEN];
        head[..4].copy_from_slice(&PROTOCOL_ID);
        head[4] = 0x72;
        let header = Header { is_reply: true, ..Header::parse(&head).unwrap() };
        request.frame(&header)[4..].to_vec()
    }

    fn parse(message: &[u8]) -> Parsed<Negotiated> {
        Negotiated::parse(&Response::parse(message).unwrap())
    }

    #[test]
    fn both_forms_are_read() {
        let found =
            parse(&answer(0x03, 0x8080_F3FD, 0, &[&[9; 16][..], b"blob"].concat())).unwrap();
        assert_eq!(found.security, Security::Extended(b"blob".to_vec()));
        assert_eq!((found.max_mpx, found.max_buffer, found.time_zone), (50, 16_644, -60));
        assert!(found.capabilities.contains(Capabilities::UNIX));
        let found = parse(&answer(0x0F, 0x0000_F3FD, 8, b"12345678W\0O\0\0\0")).unwrap();
        assert_eq!(found.security, Security::Challenge(*b"12345678"));
        assert!(found.security_mode.contains(SecurityMode::SECURITY_SIGNATURES_REQUIRED));
        let found = parse(&answer(0x01, 0x0000_0008, 0, b"")).unwrap();
        assert_eq!(found.security, Security::PlainText);
    }

    #[test]
    fn wrong_answers_are_refused() {
        assert!(parse(&answer(0x03, 0x8000_0000, 0, &[9; 15])).is_err(), "no GUID");
        assert!(parse(&answer(0x03, 0, 8, b"1234567")).is_err(), "a short challenge");
        assert!(parse(&answer(0x03, 0, 7, b"12345678")).is_err(), "a length of 7");
        let mut none = answer(0x03, 0, 8, b"12345678");
        none[33] = 0xFF;
        none[34] = 0xFF;
        assert!(parse(&none).is_err(), "no dialect in common");
        let mut small = answer(0x03, 0, 8, b"12345678");
        small[33 + 7..33 + 11].copy_from_slice(&1_023u32.to_le_bytes());
        assert!(parse(&small).is_err(), "a buffer that no path fits");
        small[33 + 7..33 + 11].copy_from_slice(&1_024u32.to_le_bytes());
        assert!(parse(&small).is_ok());
    }
}
