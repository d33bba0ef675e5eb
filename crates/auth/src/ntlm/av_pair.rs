//! AV_PAIR lists (MS-NLMP 2.2.2.1): the server's facts about itself, and the client's additions,
//! which its response protects.

use crate::limits::{MAX_AV_PAIR_COUNT, MAX_NAME_UNITS, MAX_TARGET_NAME_UNITS};
use alloc::{string::String, vec::Vec};
use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};

frevo_wire::open_enum! {
    /// AvId, MS-NLMP 2.2.2.1.
    AvId(u16) {
        /// MsvAvEOL: ends the list.
        EOL = 0,
        /// MsvAvNbComputerName.
        NB_COMPUTER_NAME = 1,
        /// MsvAvNbDomainName.
        NB_DOMAIN_NAME = 2,
        /// MsvAvDnsComputerName.
        DNS_COMPUTER_NAME = 3,
        /// MsvAvDnsDomainName.
        DNS_DOMAIN_NAME = 4,
        /// MsvAvDnsTreeName.
        DNS_TREE_NAME = 5,
        /// MsvAvFlags.
        FLAGS = 6,
        /// MsvAvTimestamp, a FILETIME.
        TIMESTAMP = 7,
        /// MsvAvSingleHost.
        SINGLE_HOST = 8,
        /// MsvAvTargetName, a service principal name.
        TARGET_NAME = 9,
        /// MsvAvChannelBindings, an MD5 or zeros.
        CHANNEL_BINDINGS = 10,
    }
}

frevo_wire::bit_set! {
    /// The value of MsvAvFlags.
    AvFlags(u32) {
        /// The account is constrained.
        CONSTRAINED = 1,
        /// The AUTHENTICATE_MESSAGE has a MIC.
        MIC = 2,
        /// MsvAvTargetName comes from a source that the client does not trust.
        UNTRUSTED_TARGET = 4,
    }
}

/// A list with valid lengths, borrowed from a message.
#[derive(Debug, Clone, Default)]
pub struct AvPairs<'a> {
    pairs: Vec<(AvId, &'a [u8])>,
}

impl<'a> AvPairs<'a> {
    /// Reads up to MsvAvEOL. Later bytes are ignored, as MS-NLMP note <30> describes Windows. An
    /// empty list has no MsvAvEOL: a client answers so to a server without TargetInfo.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let mut pairs = Vec::new();
        let mut reader = Reader::new(bytes);
        if bytes.is_empty() {
            return Ok(Self { pairs });
        }
        loop {
            let id = AvId(reader.u16("AvId")?);
            let length = reader.u16("AvLen")?;
            let value = reader.take(usize::from(length), "AvLen")?;
            if id == AvId::EOL {
                return if length == 0 {
                    Ok(Self { pairs })
                } else {
                    Err(Malformed::new("MsvAvEOL"))
                };
            }
            if pairs.len() >= MAX_AV_PAIR_COUNT {
                return Err(Malformed::new("number of AV_PAIRs"));
            }
            // An AvId that occurs twice is refused, because the two values may contradict each
            // other.
            if pairs.iter().any(|&(seen, _)| seen == id) {
                return Err(Malformed::new("AV_PAIR list: the same AvId twice"));
            }
            pairs.push((id, value));
        }
    }

    /// Returns the value of `id`, if the list has it.
    pub fn value(&self, id: AvId) -> Option<&'a [u8]> {
        self.pairs.iter().find(|(seen, _)| *seen == id).map(|&(_, value)| value)
    }

    /// Iterates over all pairs in their order.
    pub fn iter(&self) -> impl Iterator<Item = (AvId, &'a [u8])> + '_ {
        self.pairs.iter().copied()
    }

    /// Returns MsvAvFlags; no flag if the list has none.
    pub fn flags(&self) -> Parsed<AvFlags> {
        self.fixed(AvId::FLAGS, "MsvAvFlags")
            .map(|value| AvFlags(value.map_or(0, u32::from_le_bytes)))
    }

    /// Returns MsvAvTimestamp, as FILETIME ticks.
    pub fn timestamp(&self) -> Parsed<Option<u64>> {
        self.fixed(AvId::TIMESTAMP, "MsvAvTimestamp").map(|value| value.map(u64::from_le_bytes))
    }

    /// Returns MsvAvChannelBindings; `None` for zeros, which mean none.
    pub fn channel_bindings(&self) -> Parsed<Option<[u8; 16]>> {
        let value = self.fixed(AvId::CHANNEL_BINDINGS, "MsvAvChannelBindings")?;
        Ok(value.filter(|hash| *hash != [0; 16]))
    }

    /// Returns MsvAvTargetName; an empty one means none (MS-NLMP 3.1.5.1.2).
    pub fn target_name(&self) -> Parsed<Option<String>> {
        let Some(value) = self.value(AvId::TARGET_NAME) else { return Ok(None) };
        let name = text(value, MAX_TARGET_NAME_UNITS, "MsvAvTargetName")?;
        Ok((!name.is_empty()).then_some(name))
    }

    /// Returns the name with this `id`.
    pub fn name(&self, id: AvId) -> Parsed<Option<String>> {
        self.value(id).map(|value| text(value, MAX_NAME_UNITS, "name in AV_PAIR")).transpose()
    }

    fn fixed<const N: usize>(&self, id: AvId, what: &'static str) -> Parsed<Option<[u8; N]>> {
        self.value(id).map(|v| v.try_into().map_err(|_| Malformed::new(what))).transpose()
    }
}

/// Appends one pair. The value comes from this crate or was bounded by the parser.
pub(crate) fn put(out: &mut Vec<u8>, id: AvId, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    let mut writer = Writer::new(out);
    writer.u16(id.0).u16(length);
    writer.bytes(value.get(..usize::from(length)).unwrap_or_default());
}

/// Appends a pair whose value is text.
pub(crate) fn put_text(out: &mut Vec<u8>, id: AvId, value: &str) {
    let utf16: Vec<u8> = value.encode_utf16().flat_map(u16::to_le_bytes).collect();
    put(out, id, &utf16);
}

/// Decodes UTF-16LE of at most `max_units` units. Unpaired surrogates are malformed, so that two
/// different names cannot become one.
pub(crate) fn text(bytes: &[u8], max_units: usize, what: &'static str) -> Parsed<String> {
    let fault = Malformed::new(what);
    if !bytes.len().is_multiple_of(2) || bytes.len() / 2 > max_units {
        return Err(fault);
    }
    let units = bytes.chunks_exact(2).map(|pair| match *pair {
        [low, high] => u16::from_le_bytes([low, high]),
        _ => 0,
    });
    char::decode_utf16(units).collect::<Result<String, _>>().map_err(|_| fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn list(pairs: &[(AvId, &[u8])]) -> Vec<u8> {
        let mut out = vec![];
        for (id, value) in pairs {
            put(&mut out, *id, value);
        }
        out
    }

    #[test]
    fn a_list_needs_its_end_and_no_lie_about_lengths() {
        let good = list(&[(AvId::NB_COMPUTER_NAME, b"S\0"), (AvId::EOL, b"")]);
        assert!(AvPairs::parse(&good).is_ok());
        for cut in 1..good.len() {
            assert!(AvPairs::parse(&good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(AvPairs::parse(&[]).unwrap().pairs.is_empty());
        assert!(AvPairs::parse(&[1, 0, 0xff, 0xff, 0, 0]).is_err());
        assert!(AvPairs::parse(&[0, 0, 1, 0, 0]).is_err());
    }

    #[test]
    fn bytes_after_the_end_are_ignored() {
        let mut bytes = list(&[(AvId::FLAGS, &[2, 0, 0, 0]), (AvId::EOL, b"")]);
        bytes.extend([0; 4]);
        assert!(AvPairs::parse(&bytes).unwrap().flags().unwrap().contains(AvFlags::MIC));
    }

    #[test]
    fn the_same_id_twice_and_wrong_sizes_are_malformed() {
        let twice =
            list(&[(AvId::FLAGS, &[0, 0, 0, 0]), (AvId::FLAGS, &[2, 0, 0, 0]), (AvId::EOL, b"")]);
        assert!(AvPairs::parse(&twice).is_err());
        let odd = list(&[
            (AvId::FLAGS, &[2, 0, 0]),
            (AvId::TIMESTAMP, &[0; 7]),
            (AvId::CHANNEL_BINDINGS, &[0; 15]),
            (AvId::TARGET_NAME, b"abc"),
            (AvId::EOL, b""),
        ]);
        let pairs = AvPairs::parse(&odd).unwrap();
        assert!(pairs.flags().is_err());
        assert!(pairs.timestamp().is_err());
        assert!(pairs.channel_bindings().is_err());
        assert!(pairs.target_name().is_err());
    }

    #[test]
    fn the_number_of_pairs_is_bounded() {
        for (count, taken) in [
            (MAX_AV_PAIR_COUNT - 1, true),
            (MAX_AV_PAIR_COUNT, true),
            (MAX_AV_PAIR_COUNT + 1, false),
        ] {
            let mut bytes = vec![];
            for id in 0..count {
                put(&mut bytes, AvId(100 + id as u16), b"");
            }
            put(&mut bytes, AvId::EOL, b"");
            assert_eq!(AvPairs::parse(&bytes).is_ok(), taken, "{count}");
        }
    }

    #[test]
    fn zero_bindings_and_an_empty_target_are_none() {
        let bytes =
            list(&[(AvId::CHANNEL_BINDINGS, &[0; 16]), (AvId::TARGET_NAME, b""), (AvId::EOL, b"")]);
        let pairs = AvPairs::parse(&bytes).unwrap();
        assert_eq!(pairs.channel_bindings().unwrap(), None);
        assert_eq!(pairs.target_name().unwrap(), None);
    }

    #[test]
    fn the_target_name_is_bounded() {
        for (units, taken) in [
            (MAX_TARGET_NAME_UNITS - 1, true),
            (MAX_TARGET_NAME_UNITS, true),
            (MAX_TARGET_NAME_UNITS + 1, false),
        ] {
            let bytes = list(&[(AvId::TARGET_NAME, &b"a\0".repeat(units)), (AvId::EOL, b"")]);
            assert_eq!(AvPairs::parse(&bytes).unwrap().target_name().is_ok(), taken, "{units}");
        }
    }

    #[test]
    fn names_are_bounded_and_need_paired_surrogates() {
        for (units, taken) in
            [(MAX_NAME_UNITS - 1, true), (MAX_NAME_UNITS, true), (MAX_NAME_UNITS + 1, false)]
        {
            let bytes = b"a\0".repeat(units);
            assert_eq!(text(&bytes, MAX_NAME_UNITS, "t").is_ok(), taken);
        }
        assert!(text(&[0x00, 0xd8], 9, "t").is_err());
        assert!(text(&[0x00], 9, "t").is_err());
        assert_eq!(text(&[0x3d, 0xd8, 0x00, 0xde], 9, "t").unwrap(), "\u{1F600}");
    }
}
