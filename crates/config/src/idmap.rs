//! `[[idmap]]`: numbers of the host for users and groups of a domain.

use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::names::MachineSid;

/// The lowest number: those below are of the system's own users.
const LOWEST: u32 = 1_000;

/// `[[idmap]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdmapSection {
    /// The SID of the domain.
    pub domain_sid: Spanned<MachineSid>,
    /// The numbers of its users and groups.
    pub range: Spanned<Numbers>,
    /// The RID that has the first number.
    #[serde(default)]
    pub base_rid: u32,
}

impl IdmapSection {
    /// Returns the faults of all sections together, and where they are.
    pub(super) fn faults(all: &[Self]) -> Vec<(Range<usize>, String)> {
        let mut faults = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let (sid, here) = (one.domain_sid.get_ref(), one.range.get_ref());
            for other in all.iter().take(index) {
                let before = other.range.get_ref();
                if other.domain_sid.get_ref() == sid {
                    let what = format!("a second [[idmap]] is about the domain {sid}");
                    faults.push((one.domain_sid.span(), what));
                } else if before.first <= here.last && here.first <= before.last {
                    let what = String::from("the range has numbers of another [[idmap]]");
                    faults.push((one.range.span(), what));
                }
            }
        }
        faults
    }
}

/// Numbers of users and groups, written `100000-199999`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The first number.
    pub first: u32,
    /// The last number.
    pub last: u32,
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = |text: &str| {
            let text = text.trim();
            text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
        };
        let ends = text.split_once('-').and_then(|(a, b)| Some((digits(a)?, digits(b)?)));
        // u32::MAX is not a valid id of a user or group, so a range must end below it.
        match ends {
            Some((first, last)) if LOWEST <= first && first <= last && last < u32::MAX => {
                Ok(Self { first, last })
            }
            _ => Err(format!(
                "{text:?} is not a range of numbers from {LOWEST} on, such as 100000-199999"
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::Numbers;

    fn section(sid: &str, range: &str) -> String {
        format!("[[idmap]]\ndomain_sid = \"{sid}\"\nrange = \"{range}\"\n")
    }

    #[test]
    fn ranges_of_domains() {
        let (a, b) = ("S-1-5-21-1-2-3", "S-1-5-21-4-5-6");
        let text =
            section(a, "100000-199999") + &section(b, "200000 - 299999") + "base_rid = 1000\n";
        let sections = Config::parse(&text).unwrap().idmaps;
        assert_eq!(sections[0].range.get_ref(), &Numbers { first: 100_000, last: 199_999 });
        assert_eq!(sections[1].range.get_ref(), &Numbers { first: 200_000, last: 299_999 });
        assert_eq!((sections[0].base_rid, sections[1].base_rid), (0, 1_000));
        let fault = |text: &str| Config::parse(text).unwrap_err()[0].to_string();
        let twice = section(a, "100000-199999") + &section(a, "200000-299999");
        assert!(
            fault(&twice).starts_with("line 5: a second [[idmap]] is about"),
            "{}",
            fault(&twice)
        );
        let overlapping = section(a, "100000-199999") + &section(b, "199999-299999");
        assert!(fault(&overlapping).starts_with("line 6: the range has numbers of another"));
        for bad in ["", "1000", "999-2000", "2000-1999", "1000-4294967295", "+1000-2000", "-5"] {
            assert!(fault(&section(a, bad)).contains("not a range"), "{bad}");
        }
        assert!(fault(&section("S-1-5-32", "1000-2000")).contains("S-1-5-32"));
    }
}
