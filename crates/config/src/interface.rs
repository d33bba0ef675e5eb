//! `[[interface]]`: what clients are told of one of the server's addresses.

use std::net::IpAddr;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

/// `[[interface]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSection {
    /// The address of the server that the section is about.
    pub address: Spanned<IpAddr>,
    /// Speed of its link.
    pub speed: Option<Speed>,
    /// True if several connections to the address make transfers faster.
    pub rss: Option<bool>,
    /// True if RDMA reaches the address.
    pub rdma: Option<bool>,
}

impl InterfaceSection {
    /// Returns the faults of all sections together, and where they are.
    pub(super) fn faults(all: &[Self]) -> Vec<(Range<usize>, String)> {
        let address = |one: &Self| one.address.get_ref().to_canonical();
        let mut faults = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let here = address(one);
            let what = if all.iter().take(index).any(|other| address(other) == here) {
                format!("a second [[interface]] has the address {here}")
            } else if here.is_unspecified() || here.is_multicast() {
                format!("{here} is not an address of an interface")
            } else {
                continue;
            };
            faults.push((one.address.span(), what));
        }
        faults
    }
}

/// Bits per second: `"10G"`, `"2.5G"`, `"100M"`, or a number. At least 1, at most 100 T.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed(pub u64);

impl Speed {
    const MAX: u64 = 100_000_000_000_000;

    const fn new(bits: u64) -> Option<Self> {
        if bits == 0 || bits > Self::MAX { None } else { Some(Self(bits)) }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            let (number, unit) = text.split_at(end);
            let digits: usize = match unit.trim() {
                "" => 0,
                "k" | "K" => 3,
                "M" => 6,
                "G" => 9,
                "T" => 12,
                _ => return None,
            };
            let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
            let (whole, tail): (u64, &str) = (whole.parse().ok()?, part.trim_end_matches('0'));
            if part.is_empty() || part.contains('.') || tail.len() > digits {
                return None;
            }
            let tail: u64 = format!("{tail:0<digits$}").parse().unwrap_or(0);
            let factor = 10_u64.checked_pow(u32::try_from(digits).ok()?)?;
            Self::new(whole.checked_mul(factor)?.checked_add(tail)?)
        };
        parse().ok_or_else(|| {
            format!(
                "{text:?} is not a speed in bits per second such as \"10G\", \"2.5G\", \"100M\""
            )
        })
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(bits) => Self::new(bits).ok_or_else(|| {
                de::Error::custom("a speed is at least 1 bit and at most 100 Tbit per second")
            }),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of bits per second, or a text such as \"10G\"")]
enum Written {
    Number(u64),
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn speeds_are_decimal() {
        for (text, bits) in [
            ("10G", 10_000_000_000),
            ("2.5G", 2_500_000_000),
            ("100M", 100_000_000),
            ("1T", 1_000_000_000_000),
            ("0.5 k", 500),
            ("1.50M", 1_500_000),
            ("1", 1),
        ] {
            assert_eq!(text.parse(), Ok(Speed(bits)), "{text}");
        }
        for text in ["", "G", "0", "10g", "1.G", ".5G", "1.2.3G", "1.5", "101T", "-1", "10Gbit"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_has_one_section() {
        let section =
            |address| format!("[[interface]]\naddress = \"{address}\"\nspeed = \"10G\"\n");
        let fault = |text: &str| Config::parse(text).unwrap_err()[0].to_string();
        let twice = section("192.0.2.1") + &section("::ffff:192.0.2.1");
        assert!(fault(&twice).starts_with("line 5: a second [[interface]] has the address 192.0"));
        assert!(fault(&section("0.0.0.0")).starts_with("line 2: 0.0.0.0 is not an address"));
        assert!(fault(&section("eth0")).starts_with("line 2: "));
        assert!(fault("[[interface]]\nspeed = 1\n").contains("needs the key `address`"));
        assert!(
            fault("[[interface]]\naddress = \"::1\"\nspeed = \"fast\"\n").starts_with("line 3")
        );
        let config = Config::parse(&(section("192.0.2.1") + &section("2001:db8::1"))).unwrap();
        let set = &config.interfaces;
        assert_eq!((set.len(), set[1].speed, set[1].rss), (2, Some(Speed(10_000_000_000)), None));
    }
}
