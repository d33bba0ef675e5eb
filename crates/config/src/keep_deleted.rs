//! `keep_deleted` of a share: one switch for its recycle bin and its snapshots.

use frevo_snapshots::limits::KEPT_OF_A_PERIOD;
use serde::{Deserialize, Deserializer, de};

/// A time in days, such as `"30 days"` or `"2 weeks"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptDays(u32);

impl KeptDays {
    /// Returns the number of days, at least 1.
    pub const fn days(self) -> u32 {
        self.0
    }

    /// Reads the text. None for another text.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let (count, unit) = (words.next()?, words.next()?);
        let days = match unit {
            "day" | "days" => 1,
            "week" | "weeks" => 7,
            _ => return None,
        };
        let is_number = count.bytes().all(|byte| byte.is_ascii_digit()) && words.next().is_none();
        let count: u32 = count.parse().ok().filter(|_| is_number)?;
        let days = count.checked_mul(days)?;
        (1..=KEPT_OF_A_PERIOD).contains(&days).then_some(Self(days))
    }
}

impl<'de> Deserialize<'de> for KeptDays {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "keep_deleted is a time of 1 to {KEPT_OF_A_PERIOD} days, such as \"30 days\" or \"2 weeks\""
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ShareSection};

    fn share(keys: &str) -> ShareSection {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/a\"\n{keys}\n");
        Config::parse(&text).unwrap().shares.remove(0)
    }

    #[test]
    fn one_switch_is_a_bin_and_snapshots() {
        let both = share("keep_deleted = \"30 days\"");
        assert_eq!(both.recycle.as_ref().unwrap().keep_days, 30);
        let kept = both.kept_snapshots().unwrap();
        let schedule = kept.schedule.schedule().unwrap();
        assert_eq!(schedule.to_string(), "hourly keep 24, daily keep 30");
        assert!(kept.is_optional);
        // Both are out of the reach of other shares.
        assert_eq!((both.bins.len(), both.guarded.len()), (1, 1));
        assert_eq!(share("keep_deleted = \"2 weeks\"").recycle.unwrap().keep_days, 14);
        assert!(share("").recycle.is_none() && share("").snapshots.is_none());
    }

    #[test]
    fn keys_of_their_own_count_for_their_part() {
        let table = share("keep_deleted = \"1 day\"\nrecycle = { keep_days = 3 }");
        assert_eq!(table.recycle.as_ref().unwrap().keep_days, 3);
        assert!(table.kept_snapshots().unwrap().is_optional);
        let table = share("keep_deleted = \"1 day\"\nsnapshots = { schedule = \"none\" }");
        assert!(!table.kept_snapshots().unwrap().is_optional);
        assert_eq!(table.recycle.unwrap().keep_days, 1);
        let none = share("keep_deleted = \"1 day\"\nrecycle = false");
        assert!(none.recycle.is_none() && none.kept_snapshots().is_some());
        // The server makes no snapshots there.
        let text = "[[share]]\nname = \"a\"\npath = \"/a/{user}\"\nkeep_deleted = \"1 day\"\n";
        let users = Config::parse(text).unwrap().shares.remove(0);
        assert!(users.recycle.is_some() && users.snapshots.is_none());
    }

    #[test]
    fn other_times_are_refused() {
        for wrong in [
            "30",
            "0 days",
            "1001 days",
            "3 months",
            "-1 days",
            "+1 days",
            "1 day ago",
            "143 weeks",
        ] {
            let text =
                format!("[[share]]\nname = \"a\"\npath = \"/a\"\nkeep_deleted = \"{wrong}\"\n");
            let faults = Config::parse(&text).unwrap_err();
            assert!(faults[0].to_string().contains("\"30 days\""), "{wrong}: {faults:?}");
        }
        assert_eq!(share("keep_deleted = \"1000 days\"").recycle.unwrap().keep_days, 1000);
    }
}
