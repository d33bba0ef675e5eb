//! NetBIOS over TCP: the session service of port 139 and names, RFC 1001 and 1002.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use frevo_wire::codec::{Malformed, Parsed, Reader};

use crate::limits::{FRAME_BYTES_MAX, NETBIOS_NAMES_MAX};

/// The port of the session service.
pub const SESSION_PORT: u16 = 139;

/// The port of the name service.
pub const NAME_PORT: u16 = 137;

/// The name by which a server answers that does not look at the called name.
pub const ANY_SERVER: &str = "*SMBSERVER";

/// The kind of a name, its sixteenth byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suffix(pub u8);

impl Suffix {
    /// A workstation, the calling name.
    pub const WORKSTATION: Self = Self(0x00);
    /// A file server.
    pub const SERVER: Self = Self(0x20);
}

/// Returns a name in its first-level encoding, RFC 1001 14.1, with its length and its end.
pub fn encode_name(name: &str, suffix: Suffix) -> [u8; 34] {
    let padding = if name == "*" { 0 } else { b' ' };
    let mut plain = [padding; 16];
    for (place, one) in plain.iter_mut().take(15).zip(name.chars()) {
        *place = u8::try_from(one.to_ascii_uppercase()).unwrap_or(b'_');
    }
    if let Some(last) = plain.last_mut() {
        *last = suffix.0;
    }
    let mut encoded = [0; 34];
    let [length, letters @ .., _] = &mut encoded;
    *length = 32;
    let nibbles = plain.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    for (letter, nibble) in letters.iter_mut().zip(nibbles) {
        *letter = nibble.saturating_add(b'A');
    }
    encoded
}

/// SESSION REQUEST
const REQUEST: u8 = 0x81;

/// Returns the request for a session, RFC 1002 4.3.2.
pub fn session_request(called: &str, calling: &str) -> Vec<u8> {
    let names = [encode_name(called, Suffix::SERVER), encode_name(calling, Suffix::WORKSTATION)];
    let mut packet = alloc::vec![REQUEST, 0, 0, 68];
    packet.extend(names.iter().flatten());
    packet
}

/// A packet of the session service, as its first four bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A message of this many bytes follows.
    Message(usize),
    /// The session is granted.
    Positive,
    /// The session is refused; one byte follows, the reason.
    Negative,
    /// Another address and port follow, six bytes.
    Retarget,
    /// Nothing, to keep the connection.
    KeepAlive,
}

impl Packet {
    /// Parses the four bytes.
    ///
    /// # Errors
    /// If the kind is unknown, or the message is longer than any that is asked for.
    pub fn parse(prefix: [u8; 4]) -> Parsed<Self> {
        let [kind, high, middle, low] = prefix;
        // RFC 1002 4.3.1 has 17 bits of length, MS-SMB 2.1 24 bits without NetBIOS.
        let length = u32::from_be_bytes([0, high, middle, low]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match kind {
            0x00 if length <= FRAME_BYTES_MAX => Ok(Self::Message(length)),
            0x00 => Err(Malformed::new("message length")),
            0x82 if length == 0 => Ok(Self::Positive),
            0x83 if length == 1 => Ok(Self::Negative),
            0x84 if length == 6 => Ok(Self::Retarget),
            0x85 if length == 0 => Ok(Self::KeepAlive),
            _ => Err(Malformed::new("packet of the session service")),
        }
    }
}

/// NODE STATUS REQUEST of all names.
const NBSTAT: u16 = 0x0021;
/// General name service resource record.
const NB: u16 = 0x0020;

/// Returns a question with a number of its own: RFC 1002 4.2.12 and 4.2.17.
fn question(id: u16, name: [u8; 34], kind: u16, is_broadcast: bool) -> Vec<u8> {
    let mut packet = Vec::with_capacity(50);
    packet.extend_from_slice(&id.to_be_bytes());
    let flags: u16 = if is_broadcast { 0x0110 } else { 0x0000 };
    for field in [flags, 1, 0, 0, 0] {
        packet.extend_from_slice(&field.to_be_bytes());
    }
    packet.extend_from_slice(&name);
    packet.extend_from_slice(&kind.to_be_bytes());
    packet.extend_from_slice(&1u16.to_be_bytes());
    packet
}

/// Returns the question for the addresses of a server by its NetBIOS name, for all hosts of a network.
pub fn name_query(id: u16, name: &str) -> Vec<u8> {
    question(id, encode_name(name, Suffix::SERVER), NB, true)
}

/// Returns the question for the names of a host.
pub fn status_query(id: u16) -> Vec<u8> {
    question(id, encode_name("*", Suffix(0)), NBSTAT, false)
}

/// Reads the head of an answer to the question `id`, up to its data.
fn answer<'a>(packet: &'a [u8], id: u16, kind: u16) -> Parsed<Reader<'a>> {
    let r = &mut Reader::new(packet);
    let mut field = |what| r.array(what).map(u16::from_be_bytes);
    let [found, flags] = [field("NAME_TRN_ID")?, field("OPCODE")?];
    let [questions, answers] = [field("QDCOUNT")?, field("ANCOUNT")?];
    field("NSCOUNT")?;
    field("ARCOUNT")?;
    // A response without an error.
    if found != id || flags & 0x800F != 0x8000 || questions != 0 || answers == 0 {
        return Err(Malformed::new("name service header"));
    }
    let r = &mut Reader::new(packet);
    r.skip(12, "header")?;
    match r.u8("RR_NAME")? {
        // A pointer to an earlier name.
        length if length & 0xC0 == 0xC0 => r.skip(1, "RR_NAME")?,
        length => r.skip(usize::from(length).saturating_add(1), "RR_NAME")?,
    }
    if r.array("RR_TYPE").map(u16::from_be_bytes)? != kind {
        return Err(Malformed::new("RR_TYPE"));
    }
    r.skip(6, "RR_CLASS and TTL")?;
    let length = usize::from(r.array("RDLENGTH").map(u16::from_be_bytes)?);
    Ok(Reader::new(r.take(length, "RDATA")?))
}

/// Returns the addresses in an answer to [`name_query`].
///
/// # Errors
/// If it is malformed, or answers another question.
pub fn addresses(packet: &[u8], id: u16) -> Parsed<Vec<Ipv4Addr>> {
    let r = &mut answer(packet, id, NB)?;
    let mut found = Vec::new();
    while !r.is_empty() && found.len() < NETBIOS_NAMES_MAX {
        r.skip(2, "NB_FLAGS")?;
        found.push(Ipv4Addr::from(r.array::<4>("NB_ADDRESS")?));
    }
    Ok(found)
}

/// Returns the name of the file server in an answer to [`status_query`]; None if the host has none.
///
/// # Errors
/// If it is malformed, or answers another question.
pub fn server_name(packet: &[u8], id: u16) -> Parsed<Option<String>> {
    let r = &mut answer(packet, id, NBSTAT)?;
    let count = usize::from(r.u8("NUM_NAMES")?).min(NETBIOS_NAMES_MAX);
    for _ in 0..count {
        let name = r.take(15, "NODE_NAME")?;
        let suffix = Suffix(r.u8("NODE_NAME")?);
        let flags = r.array("NAME_FLAGS").map(u16::from_be_bytes)?;
        let is_group = flags & 0x8000 != 0;
        if suffix == Suffix::SERVER
            && !is_group
            && name.iter().all(|byte| (b' '..0x7F).contains(byte))
        {
            let text: String = name.iter().map(|byte| char::from(*byte)).collect();
            return Ok(Some(text.trim_end().into()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// RFC 1001 14.1 has the name "The NetBIOS name" as an example, with a space for the suffix.
    #[test]
    fn the_encoding_of_the_rfc() {
        let encoded = encode_name("FRED", Suffix(b' '));
        assert_eq!(&encoded[1..33], b"EGFCEFEECACACACACACACACACACACACA");
        assert_eq!((encoded[0], encoded[33]), (32, 0));
        assert_eq!(&encode_name("*", Suffix(0))[1..33], b"CKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(&encode_name("fred", Suffix::SERVER)[1..9], b"EGFCEFEE");
    }

    #[test]
    fn prefixes_are_told_apart() {
        assert_eq!(Packet::parse([0, 1, 0, 2]), Ok(Packet::Message(0x1_0002)));
        assert_eq!(Packet::parse([0x82, 0, 0, 0]), Ok(Packet::Positive));
        assert_eq!(Packet::parse([0x83, 0, 0, 1]), Ok(Packet::Negative));
        assert_eq!(Packet::parse([0x85, 0, 0, 0]), Ok(Packet::KeepAlive));
        let most = u32::try_from(FRAME_BYTES_MAX).unwrap();
        let of = |length: u32| Packet::parse(length.to_be_bytes());
        assert!(of(most).is_ok() && of(most - 1).is_ok() && of(most + 1).is_err());
        for wrong in [[0x82, 0, 0, 1], [0x83, 0, 0, 0], [0x86, 0, 0, 0], [0xFF, b'S', b'M', b'B']] {
            assert!(Packet::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_session_request_has_both_names() {
        let packet = session_request("SRV", "ME");
        assert_eq!(packet.len(), 72);
        assert_eq!(packet[..4], [0x81, 0, 0, 68]);
        assert_eq!(packet[4..38], encode_name("SRV", Suffix::SERVER));
    }

    fn reply(id: u16, kind: u16, data: &[u8]) -> Vec<u8> {
        let mut packet = id.to_be_bytes().to_vec();
        packet.extend([0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        packet.extend(encode_name("X", Suffix::SERVER));
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1, 0, 0, 0, 0]);
        packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        packet.extend(data);
        packet
    }

    #[test]
    fn answers_of_the_name_service_are_read() {
        let found = addresses(&reply(7, NB, &[0, 0, 192, 0, 2, 1, 0, 0, 192, 0, 2, 2]), 7).unwrap();
        assert_eq!(found, [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
        assert!(addresses(&reply(7, NB, &[0, 0, 192, 0, 2]), 7).is_err());
        assert!(addresses(&reply(7, NB, &[]), 8).is_err(), "another question");
        let mut data = vec![3];
        for (name, suffix, flags) in [
            (b"WORK           ", 0x00, 0x84u8),
            (b"GROUP          ", 0x20, 0x84),
            (b"NAS            ", 0x20, 0x04),
        ] {
            data.extend(name);
            data.extend([suffix, flags, 0]);
        }
        assert_eq!(server_name(&reply(7, NBSTAT, &data), 7).unwrap().as_deref(), Some("NAS"));
        assert!(server_name(&reply(7, NBSTAT, &data[..30]), 7).is_err());
        assert_eq!(server_name(&reply(7, NBSTAT, &[0]), 7), Ok(None));
    }

    proptest! {
        #[test]
        fn any_datagram_is_read(packet in proptest::collection::vec(any::<u8>(), 0..120)) {
            let id = packet.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            let _ = addresses(&packet, id);
            let _ = server_name(&packet, id);
        }
    }
}
