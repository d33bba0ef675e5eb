//! Networks of IP addresses, as people write them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An address, or all that begin alike: `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    bits: u128,
    length: u32,
    shown: IpAddr,
}

/// An address in the space of IPv6, where IPv4 is `::ffff:0:0/96`: a listener
/// for both is told of IPv4 clients so.
const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

/// Bits of an IPv6 address before an IPv4 one in it begins.
const MAPPED: u32 = 96;

impl IpNetwork {
    /// True for an address in the network.
    pub const fn contains(&self, address: IpAddr) -> bool {
        let differ = self.bits ^ bits(address);
        differ.leading_zeros() >= self.length
    }
}

impl FromStr for IpNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not an address or network such as 192.0.2.7, 192.0.2.0/24 or \
                 2001:db8::/32 (names are not looked up)"
            )
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let shown: IpAddr = address.parse().map_err(|_| wrong())?;
        let (most, before) = if shown.is_ipv4() { (32, MAPPED) } else { (128, 0) };
        let length = match length {
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse::<u32>().ok().filter(|length| *length <= most).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
            None => most,
        };
        let network = Self { bits: bits(shown), length: length + before, shown };
        let host = u128::MAX.checked_shr(network.length).unwrap_or(0);
        if network.bits & host != 0 {
            return Err(format!(
                "{text:?} has bits set behind its prefix of {length}: is it a network or one \
                 address?"
            ));
        }
        Ok(network)
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = if self.shown.is_ipv4() { MAPPED } else { 0 };
        write!(f, "{}/{}", self.shown, self.length.saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_prefixes() {
        for (network, inside, outside) in [
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.128/25", "::ffff:192.0.2.129", "192.0.2.127"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("::ffff:192.0.2.0/120", "192.0.2.1", "192.0.3.1"),
        ] {
            let parsed: IpNetwork = network.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(parsed.to_string().parse(), Ok(parsed), "{network}");
        }
        assert!("::/0".parse::<IpNetwork>().unwrap().contains("192.0.2.1".parse().unwrap()));
        for bad in
            ["", "host", "192.0.2.", "192.0.2.0/33", "192.0.2.1/24", "::/129", "::/+1", "1.2.3.4/"]
        {
            assert!(bad.parse::<IpNetwork>().is_err(), "{bad}");
        }
    }
}
