//! The text of an address that moves: `192.0.2.20/24%eth0`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Bytes of the name of an interface: IFNAMSIZ of linux/if.h, without its zero.
const NAME: usize = 15;

/// An address with its network, and the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FloatingAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network.
    pub prefix: u8,
    /// The interface. None: the one that has an address of the network.
    pub interface: Option<String>,
}

/// The text is no address of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnAddress;

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write an address with its network, as 192.0.2.20/24 or 192.0.2.20/24%eth0")
    }
}

impl std::error::Error for NotAnAddress {}

impl fmt::Display for FloatingAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)?;
        self.interface.iter().try_for_each(|name| write!(f, "%{name}"))
    }
}

impl FromStr for FloatingAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let (text, interface) = match text.split_once('%') {
            Some((text, name)) => (text, Some(name)),
            None => (text, None),
        };
        let is_name = |name: &str| {
            (1..=NAME).contains(&name.len())
                && !name.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control())
        };
        let (address, prefix) = text.split_once('/').ok_or(NotAnAddress)?;
        let address: IpAddr = address.parse().map_err(|_| NotAnAddress)?;
        let prefix = prefix.parse().map_err(|_| NotAnAddress)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let is_usable =
            !address.is_loopback() && !address.is_multicast() && !address.is_unspecified();
        if !(1..=most).contains(&prefix) || !is_usable || !interface.is_none_or(is_name) {
            return Err(NotAnAddress);
        }
        Ok(Self { address, prefix, interface: interface.map(String::from) })
    }
}

/// True if `address` is in the network of `other`.
pub(super) fn is_in(address: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((left, width), (right, other_width)) = (bits(address), bits(other));
    let shift = width - u32::from(prefix).min(width);
    width == other_width && left.checked_shr(shift) == right.checked_shr(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_network_and_may_have_an_interface() {
        for text in ["192.0.2.20/24", "192.0.2.20/32%eth0", "2001:db8::20/64%br-lan.7"] {
            let address: FloatingAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "192.0.2.20",
            "192.0.2.20/33",
            "192.0.2.20/0",
            "2001:db8::20/129",
            "192.0.2.20/24%",
            "192.0.2.20/24%a/b",
            "192.0.2.20/24%sixteen-letters-x",
            "127.0.0.1/8",
            "::/64",
            "224.0.0.1/24",
            "nas/24",
        ] {
            assert_eq!(text.parse::<FloatingAddress>(), Err(NotAnAddress), "{text}");
        }
    }

    #[test]
    fn networks_contain_addresses() {
        let is_in = |address: &str, other: &str, prefix| {
            is_in(address.parse().unwrap(), other.parse().unwrap(), prefix)
        };
        assert!(is_in("192.0.2.20", "192.0.2.1", 24));
        assert!(!is_in("192.0.3.20", "192.0.2.1", 24));
        assert!(is_in("192.0.3.20", "192.0.2.1", 23));
        assert!(is_in("2001:db8::20", "2001:db8::1", 64));
        assert!(!is_in("2001:db8:0:1::20", "2001:db8::1", 64));
        assert!(!is_in("192.0.2.20", "::c000:214", 24), "of another family");
        assert!(is_in("10.0.0.1", "192.0.2.1", 0) && is_in("::1", "2001:db8::1", 0));
        assert!(!is_in("192.0.2.20", "192.0.2.21", 32));
    }
}
