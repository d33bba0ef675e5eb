//! The three NTLM messages (MS-NLMP 2.2.1) with their parsers and encoders.

use super::{AvPairs, Flags, SIGNATURE, av_pair::text};
use crate::limits::{MAX_AUTHENTICATE_LEN, MAX_CHALLENGE_LEN, MAX_NAME_UNITS, MAX_NEGOTIATE_LEN};
use alloc::{string::String, vec::Vec};
use frevo_wire::codec::{Malformed, Parsed, Reader, Writer, pointed};

frevo_wire::open_enum! {
    /// MessageType.
    MessageType(u32) {
        /// NEGOTIATE_MESSAGE, from the client.
        NEGOTIATE = 1,
        /// CHALLENGE_MESSAGE, from the server.
        CHALLENGE = 2,
        /// AUTHENTICATE_MESSAGE, from the client.
        AUTHENTICATE = 3,
    }
}

/// Offset of the MIC in an AUTHENTICATE_MESSAGE that has one.
const MIC_AT: usize = 72;
/// Offset of the payload in an AUTHENTICATE_MESSAGE with a MIC.
const PAYLOAD_AFTER_MIC: usize = 88;
/// Length of an AUTHENTICATE_MESSAGE without Version and MIC, as the oldest clients send.
const AUTHENTICATE_LEAST: usize = 64;
/// Length of a CHALLENGE_MESSAGE with TargetInfo but without Version.
const CHALLENGE_LEAST: usize = 48;
/// Length of NTProofStr and the fixed part of NTLMv2_CLIENT_CHALLENGE.
const NTLM_V2_RESPONSE_LEAST: usize = 44;
/// Length of an NTLMv1 response (MS-NLMP 2.2.2.6).
const NTLM_V1_RESPONSE_LEN: usize = 24;

/// VERSION (MS-NLMP 2.2.2.10), for debugging only: the number of Windows 10 and the NTLM revision
/// of all versions.
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];

/// NEGOTIATE_MESSAGE. The names that it may contain are not used and not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiate {
    /// The flags that the client offers.
    pub flags: Flags,
}

impl Negotiate {
    /// Parses the message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        if message.len() > MAX_NEGOTIATE_LEN {
            return Err(Malformed::new("NEGOTIATE_MESSAGE: too long"));
        }
        let mut reader = opened(message, MessageType::NEGOTIATE)?;
        Ok(Self { flags: Flags(reader.u32("NegotiateFlags")?) })
    }

    /// Encodes the message, without names.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40);
        let mut w = Writer::new(&mut out);
        w.bytes(&SIGNATURE).u32(MessageType::NEGOTIATE.0).u32(self.flags.0).zeros(16);
        w.bytes(&version(self.flags));
        out
    }
}

/// CHALLENGE_MESSAGE.
#[derive(Debug, Clone)]
pub struct Challenge<'a> {
    /// The flags that the server has chosen.
    pub flags: Flags,
    /// ServerChallenge.
    pub server_challenge: [u8; 8],
    /// TargetName.
    pub target_name: String,
    /// TargetInfo as bytes, which [`AvPairs::parse`] reads.
    pub target_info: &'a [u8],
}

impl<'a> Challenge<'a> {
    /// Parses the message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        if message.len() > MAX_CHALLENGE_LEN {
            return Err(Malformed::new("CHALLENGE_MESSAGE: too long"));
        }
        let mut reader = opened(message, MessageType::CHALLENGE)?;
        let target_name = field(&mut reader, message, CHALLENGE_LEAST, "TargetName")?;
        let flags = Flags(reader.u32("NegotiateFlags")?);
        let server_challenge = reader.array("ServerChallenge")?;
        reader.skip(8, "Reserved")?;
        let target_info = field(&mut reader, message, CHALLENGE_LEAST, "TargetInfo")?;
        // The target name is only shown to users. If it is not Unicode, its code page is unknown,
        // and it is left out.
        let target_name = if flags.contains(Flags::UNICODE) {
            text(target_name, MAX_NAME_UNITS, "TargetName")?
        } else {
            String::new()
        };
        Ok(Self { flags, server_challenge, target_name, target_info })
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let name: Vec<u8> = if self.flags.contains(Flags::UNICODE) {
            self.target_name.encode_utf16().flat_map(u16::to_le_bytes).collect()
        } else {
            // The code page of the client is unknown, so each character outside of ASCII becomes a
            // question mark.
            let oem = |c: char| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?');
            self.target_name.chars().map(oem).collect()
        };
        let mut out = Vec::with_capacity(256);
        let mut payload = Payload::starting_at(56);
        let mut w = Writer::new(&mut out);
        w.bytes(&SIGNATURE).u32(MessageType::CHALLENGE.0);
        payload.put(&mut w, &name);
        w.u32(self.flags.0).bytes(&self.server_challenge).zeros(8);
        payload.put(&mut w, self.target_info);
        w.bytes(&version(self.flags)).bytes(&payload.bytes);
        out
    }
}

/// NtChallengeResponse, by its form.
#[derive(Debug, Clone)]
pub enum NtResponse<'a> {
    /// The message has no response.
    Absent,
    /// NTLMv1, which is always refused.
    V1,
    /// NTLMv2_RESPONSE (MS-NLMP 2.2.2.8).
    V2(NtlmV2<'a>),
}

/// NTLMv2_RESPONSE.
#[derive(Debug, Clone)]
pub struct NtlmV2<'a> {
    /// NTProofStr.
    pub proof: [u8; 16],
    /// All bytes behind NTProofStr: `temp` of MS-NLMP 3.3.2.
    pub temp: &'a [u8],
    /// TimeStamp, as FILETIME ticks.
    pub time: u64,
    /// AvPairs.
    pub av_pairs: AvPairs<'a>,
}

impl<'a> NtResponse<'a> {
    fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        match bytes.len() {
            0 => return Ok(Self::Absent),
            NTLM_V1_RESPONSE_LEN => return Ok(Self::V1),
            n if n < NTLM_V2_RESPONSE_LEAST => return Err(Malformed::new("NtChallengeResponse")),
            _ => {}
        }
        let mut reader = Reader::new(bytes);
        let proof = reader.array("NTProofStr")?;
        let temp = reader.clone().rest();
        if reader.u8("RespType")? != 1 || reader.u8("HiRespType")? != 1 {
            return Err(Malformed::new("RespType of NtChallengeResponse"));
        }
        reader.skip(6, "Reserved2")?;
        let time = reader.u64("TimeStamp")?;
        reader.skip(8, "ChallengeFromClient")?;
        reader.skip(4, "Reserved3")?;
        let av_pairs = AvPairs::parse(reader.rest())?;
        Ok(Self::V2(NtlmV2 { proof, temp, time, av_pairs }))
    }
}

/// AUTHENTICATE_MESSAGE.
#[derive(Debug, Clone)]
pub struct Authenticate<'a> {
    /// The flags that both sides use.
    pub flags: Flags,
    /// LmChallengeResponse, unparsed.
    pub lm_response: &'a [u8],
    /// NtChallengeResponse.
    pub nt_response: NtResponse<'a>,
    /// DomainName.
    pub domain: String,
    /// UserName.
    pub user: String,
    /// Workstation.
    pub workstation: String,
    /// EncryptedRandomSessionKey, unparsed.
    pub session_key: &'a [u8],
    message: &'a [u8],
    payload_at: usize,
}

impl<'a> Authenticate<'a> {
    /// Parses the message. Its flags tell how its names are encoded.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        if message.len() > MAX_AUTHENTICATE_LEN {
            return Err(Malformed::new("AUTHENTICATE_MESSAGE: too long"));
        }
        let mut reader = opened(message, MessageType::AUTHENTICATE)?;
        let mut payload_at = message.len();
        let mut field = |what| -> Parsed<&'a [u8]> {
            let offset = offset_of_next(&reader)?;
            let value = field(&mut reader, message, AUTHENTICATE_LEAST, what)?;
            if !value.is_empty() {
                payload_at = payload_at.min(offset);
            }
            Ok(value)
        };
        let lm_response = field("LmChallengeResponse")?;
        let nt_response = field("NtChallengeResponse")?;
        let domain = field("DomainName")?;
        let user = field("UserName")?;
        let workstation = field("Workstation")?;
        let session_key = field("EncryptedRandomSessionKey")?;
        let flags = Flags(reader.u32("NegotiateFlags")?);
        Ok(Self {
            flags,
            lm_response,
            nt_response: NtResponse::parse(nt_response)?,
            domain: name(domain, flags, "DomainName")?,
            user: name(user, flags, "UserName")?,
            workstation: name(workstation, flags, "Workstation")?,
            session_key,
            message,
            payload_at,
        })
    }

    /// Returns UserName and DomainName, if they can be read from a message that may be malformed
    /// otherwise; else empty names. Refusals are counted by these names.
    pub fn claim(message: &[u8]) -> (String, String) {
        let names = || -> Parsed<(String, String)> {
            if message.len() > MAX_AUTHENTICATE_LEN {
                return Err(Malformed::new("AUTHENTICATE_MESSAGE: too long"));
            }
            let mut reader = opened(message, MessageType::AUTHENTICATE)?;
            reader.skip(16, "LmChallengeResponse and NtChallengeResponse")?;
            let mut behind = reader.clone();
            behind.skip(32, "DomainName to EncryptedRandomSessionKey")?;
            let flags = Flags(behind.u32("NegotiateFlags")?);
            let mut read = |what| {
                let value = field(&mut reader, message, AUTHENTICATE_LEAST, what);
                value.and_then(|value| name(value, flags, what))
            };
            // Each field has its own offset, so the domain can be read even if the user name is
            // malformed.
            let domain = read("DomainName").unwrap_or_default();
            Ok((read("UserName")?, domain))
        };
        names().unwrap_or_default()
    }

    /// True if the client asks to be anonymous (MS-NLMP 3.2.5.1.2): no name and no proof of one.
    pub fn is_anonymous(&self) -> bool {
        self.user.is_empty()
            && matches!(self.nt_response, NtResponse::Absent)
            && matches!(self.lm_response, [] | [0])
    }

    /// Returns the MIC, and the whole message with zeros in its place. Malformed if the payload
    /// begins at the MIC's offset.
    pub fn mic(&self) -> Parsed<([u8; 16], Vec<u8>)> {
        let fault = Malformed::new("MIC: no room for it in the AUTHENTICATE_MESSAGE");
        if self.payload_at < PAYLOAD_AFTER_MIC {
            return Err(fault);
        }
        let mut cleared = self.message.to_vec();
        let place = cleared.get_mut(MIC_AT..PAYLOAD_AFTER_MIC).ok_or(fault)?;
        let mic = <[u8; 16]>::try_from(&*place).map_err(|_| fault)?;
        place.fill(0);
        Ok((mic, cleared))
    }
}

/// The client's fields of an AUTHENTICATE_MESSAGE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuthenticateParts<'a> {
    pub(crate) flags: Flags,
    pub(crate) lm_response: &'a [u8],
    pub(crate) nt_response: &'a [u8],
    pub(crate) domain: &'a str,
    pub(crate) user: &'a str,
    pub(crate) workstation: &'a str,
    pub(crate) session_key: &'a [u8],
}

impl AuthenticateParts<'_> {
    /// Encodes the message, with zeros for the MIC.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let is_oem = self.flags.contains(Flags::OEM) && !self.flags.contains(Flags::UNICODE);
        let encoded = |s: &str| -> Vec<u8> {
            if is_oem {
                return s.as_bytes().to_vec();
            }
            s.encode_utf16().flat_map(u16::to_le_bytes).collect()
        };
        // The names come first in the payload, so that their UTF-16 text begins at even offsets.
        let mut payload = Payload::starting_at(PAYLOAD_AFTER_MIC);
        let domain = payload.add(&encoded(self.domain));
        let user = payload.add(&encoded(self.user));
        let workstation = payload.add(&encoded(self.workstation));
        let lm_response = payload.add(self.lm_response);
        let nt_response = payload.add(self.nt_response);
        let session_key = payload.add(self.session_key);
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.bytes(&SIGNATURE).u32(MessageType::AUTHENTICATE.0);
        for (length, offset) in [lm_response, nt_response, domain, user, workstation, session_key] {
            w.u16(length).u16(length).u32(offset);
        }
        w.u32(self.flags.0).bytes(&version(self.flags)).zeros(16).bytes(&payload.bytes);
        out
    }
}

/// Writes a MIC into a message of [`AuthenticateParts::encode`].
pub(crate) fn set_mic(message: &mut [u8], mic: &[u8; 16]) {
    if let Some(place) = message.get_mut(MIC_AT..PAYLOAD_AFTER_MIC) {
        place.copy_from_slice(mic);
    }
}

/// Checks signature and type, and returns a reader behind them.
fn opened(message: &[u8], expected: MessageType) -> Parsed<Reader<'_>> {
    let mut reader = Reader::new(message);
    if reader.array("NTLM signature")? != SIGNATURE {
        return Err(Malformed::new("NTLM signature"));
    }
    if MessageType(reader.u32("NTLM MessageType")?) != expected {
        return Err(Malformed::new("NTLM MessageType: out of turn"));
    }
    Ok(reader)
}

/// Returns the bytes of a field of length, maximum length and offset.
fn field<'a>(
    reader: &mut Reader<'_>,
    message: &'a [u8],
    not_before: usize,
    what: &'static str,
) -> Parsed<&'a [u8]> {
    let length = reader.u16(what)?;
    reader.skip(2, what)?;
    let offset = reader.u32(what)?;
    pointed(message, offset, u32::from(length), not_before, what)
}

/// Decodes a name of an AUTHENTICATE_MESSAGE (MS-NLMP 2.2.2.5): UTF-16LE, or characters of the
/// client's code page. A message names no code page, so that only those are taken which all have.
/// Deviation: a message with neither flag is UTF-16LE, because libraries send no flags in this
/// message and Unicode names.
fn name(bytes: &[u8], flags: Flags, what: &'static str) -> Parsed<String> {
    if flags.contains(Flags::UNICODE) || !flags.contains(Flags::OEM) {
        return text(bytes, MAX_NAME_UNITS, what);
    }
    if !bytes.is_ascii() || bytes.len() > MAX_NAME_UNITS {
        return Err(Malformed::new(what));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed::new(what))
}

/// Returns the offset in the next field, without reading it.
fn offset_of_next(reader: &Reader<'_>) -> Parsed<usize> {
    let mut ahead = reader.clone();
    ahead.skip(4, "offset")?;
    usize::try_from(ahead.u32("offset")?).map_err(|_| Malformed::new("offset"))
}

/// The payload behind a fixed part, and the fields that point into it.
struct Payload {
    start: usize,
    bytes: Vec<u8>,
}

impl Payload {
    const fn starting_at(start: usize) -> Self {
        Self { start, bytes: Vec::new() }
    }

    /// Appends `value` and returns its length and offset. A value too long for a field is left out;
    /// only this side's names could be.
    fn add(&mut self, value: &[u8]) -> (u16, u32) {
        let offset = self.start.saturating_add(self.bytes.len());
        let length = u16::try_from(value.len()).unwrap_or(0);
        self.bytes.extend_from_slice(value.get(..usize::from(length)).unwrap_or_default());
        (length, u32::try_from(offset).unwrap_or(u32::MAX))
    }

    fn put(&mut self, w: &mut Writer<'_>, value: &[u8]) {
        let (length, offset) = self.add(value);
        w.u16(length).u16(length).u32(offset);
    }
}

const fn version(flags: Flags) -> [u8; 8] {
    if flags.contains(Flags::VERSION) { VERSION } else { [0; 8] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntlm::AvId;
    use alloc::vec;

    /// MS-NLMP 4.2.4.3, CHALLENGE_MESSAGE.
    const CHALLENGE: &str = "4e544c4d53535000 02000000 0c000c00 38000000 33828ae2 0123456789abcdef \
        0000000000000000 24002400 44000000 06007017 0000000f 530065007200760065007200 \
        02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 00000000";
    /// MS-NLMP 4.2.4.3, AUTHENTICATE_MESSAGE.
    const AUTHENTICATE: &str = "4e544c4d53535000 03000000 18001800 6c000000 54005400 84000000 \
        0c000c00 48000000 08000800 54000000 10001000 5c000000 10001000 d8000000 358288e2 \
        0501280a 0000000f 44006f006d00610069006e00 5500730065007200 \
        43004f004d0050005500540045005200 86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa \
        68cd0ab851e51c96aabc927bebef6a1c 0101000000000000 0000000000000000 aaaaaaaaaaaaaaaa \
        00000000 02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 \
        00000000 00000000 c5dad2544fc9799094ce1ce90bc9d03e";

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|p| u8::from_str_radix(core::str::from_utf8(p).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn the_challenge_of_the_specification() {
        let bytes = hex(CHALLENGE);
        let message = Challenge::parse(&bytes).unwrap();
        assert_eq!(message.flags, Flags(0xe28a_8233));
        assert_eq!(message.server_challenge, [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(message.target_name, "Server");
        let pairs = AvPairs::parse(message.target_info).unwrap();
        assert_eq!(pairs.name(AvId::NB_DOMAIN_NAME).unwrap().unwrap(), "Domain");
        assert_eq!(pairs.name(AvId::NB_COMPUTER_NAME).unwrap().unwrap(), "Server");
        // Frevo sends another VERSION than the specification's example, so these bytes are copied.
        // All other bytes must be equal.
        let mut ours = message.encode();
        ours[48..56].copy_from_slice(&bytes[48..56]);
        assert_eq!(ours, bytes);
    }

    #[test]
    fn the_authenticate_of_the_specification() {
        let bytes = hex(AUTHENTICATE);
        let message = Authenticate::parse(&bytes).unwrap();
        assert_eq!(
            (&*message.domain, &*message.user, &*message.workstation),
            ("Domain", "User", "COMPUTER")
        );
        assert_eq!(message.session_key.len(), 16);
        assert!(message.flags.contains(Flags::KEY_EXCH | Flags::UNICODE));
        let NtResponse::V2(v2) = &message.nt_response else { panic!("not version 2") };
        assert_eq!(v2.proof[..4], [0x68, 0xcd, 0x0a, 0xb8]);
        assert_eq!(v2.time, 0);
        // The payload begins at offset 72, where the MIC would be, so the message has no MIC.
        assert!(message.mic().is_err());
    }

    fn parts() -> AuthenticateParts<'static> {
        AuthenticateParts {
            flags: Flags::UNICODE | Flags::VERSION,
            lm_response: &[0; 24],
            nt_response: &[],
            domain: "D",
            user: "User",
            workstation: "W",
            session_key: &[9; 16],
        }
    }

    #[test]
    fn a_written_message_is_read_back() {
        let mut bytes = parts().encode();
        set_mic(&mut bytes, &[0xcc; 16]);
        let message = Authenticate::parse(&bytes).unwrap();
        assert_eq!((&*message.domain, &*message.user, &*message.workstation), ("D", "User", "W"));
        assert_eq!(message.session_key, [9; 16]);
        let (mic, cleared) = message.mic().unwrap();
        assert_eq!(mic, [0xcc; 16]);
        assert_eq!(cleared, parts().encode());
    }

    #[test]
    fn every_field_that_points_outside_is_malformed() {
        let good = parts().encode();
        for field in 0..6 {
            let at = 12 + field * 8;
            for (length, offset) in [(u16::MAX, 88), (2, u32::MAX), (2, 62), (2, good.len() as u32)]
            {
                let mut bad = good.clone();
                bad[at..at + 2].copy_from_slice(&length.to_le_bytes());
                bad[at + 4..at + 8].copy_from_slice(&offset.to_le_bytes());
                assert!(Authenticate::parse(&bad).is_err(), "field {field} {length} {offset}");
            }
        }
    }

    #[test]
    fn an_odd_length_of_a_name_is_malformed() {
        for field in 2..5 {
            let mut bad = parts().encode();
            bad[12 + field * 8] = 1;
            assert!(Authenticate::parse(&bad).is_err());
        }
    }

    #[test]
    fn truncation_is_malformed_everywhere() {
        let good = hex(CHALLENGE);
        for cut in 0..good.len() {
            assert!(Challenge::parse(&good[..cut]).is_err() || cut >= good.len() - 4, "{cut}");
        }
        let good = hex(AUTHENTICATE);
        for cut in 0..good.len() {
            assert!(Authenticate::parse(&good[..cut]).is_err(), "{cut}");
        }
        assert!(Negotiate::parse(&Negotiate { flags: Flags::UNICODE }.encode()[..15]).is_err());
    }

    #[test]
    fn message_lengths_are_bounded() {
        for (extra, taken) in [(-1isize, true), (0, true), (1, false)] {
            let padded = |mut bytes: Vec<u8>, max: usize| {
                bytes.resize(max.checked_add_signed(extra).unwrap(), 0);
                bytes
            };
            let negotiate = Negotiate { flags: Flags::UNICODE }.encode();
            assert_eq!(Negotiate::parse(&padded(negotiate, MAX_NEGOTIATE_LEN)).is_ok(), taken);
            let challenge = padded(hex(CHALLENGE), MAX_CHALLENGE_LEN);
            assert_eq!(Challenge::parse(&challenge).is_ok(), taken);
            let authenticate = padded(parts().encode(), MAX_AUTHENTICATE_LEN);
            assert_eq!(Authenticate::parse(&authenticate).is_ok(), taken);
        }
    }

    #[test]
    fn responses_are_distinguished_by_length() {
        assert!(matches!(NtResponse::parse(&[]), Ok(NtResponse::Absent)));
        assert!(matches!(NtResponse::parse(&[7; 24]), Ok(NtResponse::V1)));
        for n in [1, 16, 23, 25, 43] {
            assert!(NtResponse::parse(&vec![1; n]).is_err(), "{n}");
        }
        let mut least = [0u8; 44];
        least[16] = 1;
        assert!(NtResponse::parse(&least).is_err());
        least[17] = 1;
        assert!(matches!(NtResponse::parse(&least), Ok(NtResponse::V2(_))));
    }
}
