//! `worm` of a share: its files are written once.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// `[share.worm]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WormSection {
    /// The time without a change after which a file is committed.
    pub after: LongTime,
    /// The time from the commitment on for which a file cannot be deleted; none: for ever.
    #[serde(default)]
    pub retain: Option<LongTime>,
}

/// A time such as `"10 minutes"` or `"7 years"`. A year has 365 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongTime(Duration);

/// The units of a time, with their seconds.
const UNITS: [(&str, u64); 6] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("year", 365 * 86_400),
];

/// The longest time: a thousand years.
const LONGEST: u64 = 1_000 * 365 * 86_400;

impl LongTime {
    /// Returns the time.
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// Reads the text. None for another text.
    fn parse(text: &str) -> Option<Self> {
        let (count, unit) = text.split_once(' ')?;
        let unit = unit.strip_suffix('s').unwrap_or(unit);
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count: u64 = count.parse().ok().filter(|_| is_number)?;
        let seconds = count.checked_mul(*seconds)?;
        (1..=LONGEST).contains(&seconds).then(|| Self(Duration::from_secs(seconds)))
    }
}

impl fmt::Display for LongTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let fits = |(_, unit): &&(&str, u64)| seconds.is_multiple_of(*unit);
        let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
        let count = seconds / unit;
        write!(f, "{count} {name}{}", if count == 1 { "" } else { "s" })
    }
}

impl<'de> Deserialize<'de> for LongTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "{text:?} is not a time such as \"10 minutes\", \"30 days\" or \"7 years\", of a second to \
                 1000 years"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn times_are_a_number_and_a_unit() {
        for (text, seconds, shown) in [
            ("10 minutes", 600, "10 minutes"),
            ("1 second", 1, "1 second"),
            ("90 seconds", 90, "90 seconds"),
            ("7 years", 7 * 365 * 86_400, "7 years"),
            ("14 days", 14 * 86_400, "2 weeks"),
            ("24 hours", 86_400, "1 day"),
        ] {
            let time = LongTime::parse(text).unwrap();
            assert_eq!((time.duration().as_secs(), &*time.to_string()), (seconds, shown));
        }
        for text in
            ["", "10", "minutes", "0 days", "-1 days", "1.5 days", "10  days", "1 day ", "1 eon"]
        {
            assert_eq!(LongTime::parse(text), None, "{text:?}");
        }
        assert_eq!(LongTime::parse("1001 years"), None);
    }

    fn faults(keys: &str, more: &str) -> Vec<String> {
        let text = format!(
            "[[share]]\nname = \"a\"\npath = \"/srv/a\"\nworm = {{ after = \"10 minutes\" }}\n{keys}\n{more}\n"
        );
        let faults = Config::parse(&text).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn nothing_may_undo_it() {
        assert_eq!(faults("", ""), [] as [&str; 0]);
        for keys in ["recycle = true", "keep_deleted = \"30 days\"", "time_machine = true"] {
            assert!(faults(keys, "")[0].contains("cannot be used together"), "{keys}");
        }
        let other = |path: &str, keys: &str| {
            faults("", &format!("[[share]]\nname = \"b\"\npath = \"{path}\"\n{keys}\n"))
        };
        for path in ["/srv/a", "/srv", "/srv/a/below", "/"] {
            assert!(other(path, "")[0].contains("share b shows files"), "{path}");
            assert_eq!(other(path, "read_only = true"), [] as [&str; 0]);
            assert_eq!(other(path, "worm = { after = \"1 day\" }"), [] as [&str; 0]);
        }
        assert!(other("/srv/a", "read_only = true\nwrite_list = [\"ann\"]").len() == 1);
        assert_eq!(other("/srv/ab", ""), [] as [&str; 0]);
        assert!(faults("[share.worm]", "").len() == 1, "given twice");
    }
}
