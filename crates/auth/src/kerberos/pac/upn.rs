//! UPN_DNS_INFO: MS-PAC 2.10.

use crate::limits::MAX_NAME_UNITS;
use alloc::string::String;
use frevo_wire::codec::{Malformed, Parsed, Reader};
use frevo_wire::fscc::WireName;

/// The user principal name and the domain's DNS name; empty if unknown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) upn: String,
    pub(super) dns_domain: String,
}

impl Names {
    pub(super) fn parse(bytes: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "UPN_DNS_INFO";
        let mut reader = Reader::new(bytes);
        let mut next = || reader.u16(WHAT).map(usize::from);
        let [upn, dns] = [[next()?, next()?], [next()?, next()?]];
        let text = |[length, offset]: [usize; 2]| {
            let end = offset.checked_add(length).ok_or(Malformed::new(WHAT))?;
            let bytes = bytes.get(offset..end).ok_or(Malformed::new(WHAT))?;
            if length > MAX_UPN_LEN {
                return Err(Malformed::new(WHAT));
            }
            WireName::new(bytes)?.decode()
        };
        Ok(Self { upn: text(upn)?, dns_domain: text(dns)? })
    }
}

/// Bytes of the longest name: a user and a DNS name in UTF-16.
const MAX_UPN_LEN: usize = 4 * MAX_NAME_UNITS + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn encoded(upn: &str, dns: &str) -> Vec<u8> {
        let (upn, dns) = (utf16(upn), utf16(dns));
        let fields = [upn.len(), 16, dns.len(), 16 + upn.len()];
        let mut bytes: Vec<u8> =
            fields.iter().flat_map(|&field| (field as u16).to_le_bytes()).collect();
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(upn);
        bytes.extend(dns);
        bytes
    }

    #[test]
    fn names_are_at_their_offsets() {
        let bytes = encoded("ann@frevo.test", "FREVO.TEST");
        let names = Names::parse(&bytes).unwrap();
        assert_eq!((&*names.upn, &*names.dns_domain), ("ann@frevo.test", "FREVO.TEST"));
        for cut in 0..bytes.len() {
            assert!(Names::parse(&bytes[..cut]).is_err(), "{cut}");
        }
        let empty = Names::parse(&encoded("", "")).unwrap();
        assert_eq!((&*empty.upn, &*empty.dns_domain), ("", ""));
    }

    #[test]
    fn a_name_is_bounded_and_in_utf16() {
        for (units, fits) in [(MAX_UPN_LEN / 2, true), (MAX_UPN_LEN / 2 + 1, false)] {
            assert_eq!(Names::parse(&encoded(&"x".repeat(units), "")).is_ok(), fits, "{units}");
        }
        let mut odd = encoded("ann", "");
        odd[0] = 5;
        assert!(Names::parse(&odd).is_err());
        let mut lone = encoded("ann", "");
        lone[16..18].copy_from_slice(&0xd800_u16.to_le_bytes());
        assert!(Names::parse(&lone).is_err());
    }
}
