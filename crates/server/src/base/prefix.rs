//! Prefixes of addresses, by which clients that are not known yet are counted.

use std::net::{IpAddr, Ipv6Addr};

/// The first bits of an address. IPv4 is counted as its mapped form in IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Prefix {
    bits: u128,
    length: u8,
}

/// Bits of a mapped address before those of IPv4.
const MAPPED: u8 = 96;
/// Bits of a whole address.
const WHOLE: u8 = 128;

impl Prefix {
    /// The prefix of all addresses.
    #[cfg(test)]
    pub(crate) const EVERY: Self = Self { bits: 0, length: 0 };

    fn new(address: IpAddr, length: u8) -> Self {
        let bits = bits(address);
        let host = u32::from(WHOLE.saturating_sub(length));
        let mask = u128::MAX.checked_shl(host).unwrap_or(0);
        Self { bits: bits & mask, length }
    }

    /// Makes the prefix of one address.
    pub(crate) fn exact(address: IpAddr) -> Self {
        Self::new(address, WHOLE)
    }

    /// The prefixes by which connections are counted, from that of all addresses
    /// to the address. Private IPv4 networks are flat: a /24 there is no unit of its own.
    pub(crate) fn of_connection(address: IpAddr) -> impl DoubleEndedIterator<Item = Self> {
        let lengths: &[u8] = match address.to_canonical() {
            IpAddr::V4(v4) if v4.is_private() || v4.is_loopback() || v4.is_link_local() => {
                &[0, WHOLE]
            }
            IpAddr::V4(_) => &[0, MAPPED + 24, WHOLE],
            IpAddr::V6(_) => &[0, 48, 56, 64, WHOLE],
        };
        lengths.iter().map(move |length| Self::new(address, *length))
    }

    /// The prefixes by which guesses are counted, from the widest to the address. The
    /// widest is what one guesser can be expected to own: of IPv4 on a local network
    /// that is one address, but of IPv6 a host can take any address of its /64.
    pub(crate) fn of_guess(address: IpAddr) -> impl DoubleEndedIterator<Item = Self> {
        let lengths: &[u8] = match address.to_canonical() {
            IpAddr::V4(v4) if v4.is_private() || v4.is_loopback() || v4.is_link_local() => &[WHOLE],
            IpAddr::V4(_) => &[MAPPED + 24, WHOLE],
            IpAddr::V6(v6) if v6.is_loopback() => &[WHOLE],
            IpAddr::V6(v6) if v6.is_unique_local() || v6.is_unicast_link_local() => &[64, WHOLE],
            IpAddr::V6(_) => &[48, 56, 64, WHOLE],
        };
        lengths.iter().map(move |length| Self::new(address, *length))
    }

    /// The number of its bits, those of IPv4 counted from 96.
    pub(crate) const fn length(self) -> u8 {
        self.length
    }

    /// True for prefixes of IPv4.
    pub(crate) fn is_v4(self) -> bool {
        is_v4(IpAddr::V6(Ipv6Addr::from_bits(self.bits)))
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn is_v4(address: IpAddr) -> bool {
    address.to_canonical().is_ipv4()
}

/// The network that one host may have all addresses of.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(prefixes: impl Iterator<Item = Prefix>) -> Vec<u8> {
        prefixes.map(Prefix::length).collect()
    }

    #[test]
    fn local_networks_are_counted_by_address_and_public_ones_wider() {
        let of = |address: &str| lengths(Prefix::of_guess(address.parse().unwrap()));
        for local in ["192.168.1.7", "10.0.0.1", "127.0.0.1", "169.254.3.3", "::ffff:10.1.1.1"] {
            assert_eq!(of(local), [128], "{local}");
        }
        for public in ["192.0.2.1", "::ffff:192.0.2.1", "100.64.0.1"] {
            assert_eq!(of(public), [120, 128], "{public}");
        }
        assert_eq!(of("2001:db8::1"), [48, 56, 64, 128]);
        assert_eq!(of("fe80::1"), [64, 128]);
        assert_eq!(of("fd00::1"), [64, 128]);
        assert_eq!(of("::1"), [128]);
    }

    #[test]
    fn a_mapped_address_is_its_address() {
        let [plain, mapped] =
            ["192.0.2.1", "::ffff:192.0.2.1"].map(|a| Prefix::exact(a.parse().unwrap()));
        assert_eq!(plain, mapped);
    }

    #[test]
    fn connections_are_counted_in_steps_and_private_networks_by_address() {
        let of = |address: &str| {
            let address = address.parse().unwrap();
            let first = Prefix::of_connection(address).next();
            let last = Prefix::of_connection(address).next_back();
            assert_eq!((first, last), (Some(Prefix::EVERY), Some(Prefix::exact(address))));
            lengths(Prefix::of_connection(address))
        };
        assert_eq!(of("2001:db8:1:2::3"), [0, 48, 56, 64, 128]);
        for public in ["192.0.2.1", "::ffff:192.0.2.1"] {
            assert_eq!(of(public), [0, 120, 128], "{public}");
        }
        for local in ["192.168.1.7", "10.0.0.1", "127.0.0.1", "169.254.3.3", "::ffff:10.1.1.1"] {
            assert_eq!(of(local), [0, 128], "{local}");
        }
    }
}
