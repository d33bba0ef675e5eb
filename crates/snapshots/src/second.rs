//! Seconds of UTC, by which snapshots are known, and the names of snapshots.

use alloc::string::String;
use core::fmt;

const DAY_SECONDS: u64 = 86_400;

/// The pattern of the names of a server's own snapshots, as the key `snapshots` of a share takes it.
pub const PATTERN: &str = "frevo-%Y.%m.%d-%H.%M.%S";

/// The folder of a share in which the server keeps snapshots that cannot be elsewhere. Clients see them as
/// previous versions only.
pub const FOLDER: &str = ".frevo-snapshots";

/// A second of UTC from 1970 to 9999. It identifies a snapshot of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Second(u64);

impl Second {
    /// The last second of the year 9999.
    const LAST: u64 = 253_402_300_799;

    /// Returns the second that began so many seconds after 1970; None after 9999.
    pub fn new(since_1970: u64) -> Option<Self> {
        (since_1970 <= Self::LAST).then_some(Self(since_1970))
    }

    /// Returns the seconds since 1970.
    pub const fn since_1970(self) -> u64 {
        self.0
    }

    /// Returns the second of a name of the form of [`PATTERN`]. None for each other name: that is a
    /// stranger's.
    pub fn of_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("frevo-").filter(|rest| rest.len() == 19)?;
        let number = |from: usize, digits: usize| -> Option<u64> {
            let text = rest.get(from..from.checked_add(digits)?)?;
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
        };
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let clock = [(11, 3_600), (14, 60), (17, 1)];
        let mut seconds = day_of(year, month, day)?.checked_mul(DAY_SECONDS)?;
        for (at, unit) in clock {
            seconds = seconds.checked_add(number(at, 2)?.checked_mul(unit)?)?;
        }
        // The form decides about separators, and about days and hours that there are not.
        Self::new(seconds).filter(|second| second.to_name() == name)
    }

    /// Returns the name of the snapshot.
    pub fn to_name(self) -> String {
        let Date { year, month, day } = date_of(self.days());
        let clock = self.0.rem_euclid(DAY_SECONDS);
        let (hour, rest) = (clock.div_euclid(3_600), clock.rem_euclid(3_600));
        let (minute, second) = (rest.div_euclid(60), rest.rem_euclid(60));
        alloc::format!("frevo-{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}")
    }

    /// Returns the time for programs, such as 2026-11-30T02:00:00Z.
    pub fn to_rfc_3339(self) -> String {
        let shown = alloc::format!("{self}");
        shown.replacen(' ', "T", 1).replacen(" UTC", "Z", 1)
    }

    /// Returns the days since 1970.
    pub(crate) const fn days(self) -> u64 {
        self.0.div_euclid(DAY_SECONDS)
    }

    /// Returns the months since January 1970.
    pub(crate) fn months(self) -> u64 {
        let date = date_of(self.days());
        date.year
            .saturating_sub(1970)
            .saturating_mul(12)
            .saturating_add(date.month.saturating_sub(1))
    }

    /// Returns the first second of a day.
    pub(crate) fn of_day(days: u64) -> Option<Self> {
        Self::new(days.checked_mul(DAY_SECONDS)?)
    }

    /// Returns the first second of a month.
    pub(crate) fn of_month(months: u64) -> Option<Self> {
        let year = months.div_euclid(12).checked_add(1970)?;
        Self::of_day(day_of(year, months.rem_euclid(12).checked_add(1)?, 1)?)
    }
}

/// Writes the time for people, such as 2026-11-30 02:00:00 UTC.
impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Date { year, month, day } = date_of(self.days());
        let clock = self.0.rem_euclid(DAY_SECONDS);
        let (hour, rest) = (clock.div_euclid(3_600), clock.rem_euclid(3_600));
        let (minute, second) = (rest.div_euclid(60), rest.rem_euclid(60));
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// A day of the Gregorian calendar.
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

/// Days from 1 March of the year 0 to 1970.
const DAYS_BEFORE_1970: u64 = 719_468;
/// Days of 400 years.
const ERA_DAYS: u64 = 146_097;

/// Converts days since 1970 to a date. Years begin in March here, so that the leap day is the last one.
#[allow(clippy::arithmetic_side_effects, reason = "the days until 9999 are few")]
fn date_of(days: u64) -> Date {
    let days = days + DAYS_BEFORE_1970;
    let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    Date { year, month, day: of_year - (153 * shifted + 2) / 5 + 1 }
}

/// Converts a date to days since 1970. A day that a month does not have is one of the next month. None
/// before 1970, and for months that there are not.
#[allow(clippy::arithmetic_side_effects, reason = "the years are checked")]
fn day_of(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9_999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let shifted = (month + 9) % 12;
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + of_year;
    (year / 400 * ERA_DAYS + of_era).checked_sub(DAYS_BEFORE_1970)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString as _;

    #[test]
    fn names_have_the_time() {
        for (name, seconds) in [
            ("frevo-1970.01.01-00.00.00", 0),
            ("frevo-2000.02.29-12.34.56", 951_827_696),
            ("frevo-2026.11.22-00.58.01", 1_795_309_081),
            ("frevo-9999.12.31-23.59.59", Second::LAST),
        ] {
            let second = Second::new(seconds).unwrap();
            assert_eq!(second.to_name(), name);
            assert_eq!(Second::of_name(name), Some(second));
        }
        assert_eq!(Second::new(951_827_696).unwrap().to_string(), "2000-02-29 12:34:56 UTC");
        assert_eq!(Second::new(951_827_696).unwrap().to_rfc_3339(), "2000-02-29T12:34:56Z");
        assert_eq!(Second::new(Second::LAST + 1), None);
    }

    #[test]
    fn names_of_strangers_are_no_seconds() {
        for name in [
            "",
            "frevo-",
            "frevo-2026.11.22-00.58.0",
            "frevo-2026.11.22-00.58.011",
            "frevo-2026.11.22_00.58.01",
            "frevo-2026.11.31-00.58.01",
            "frevo-2026.13.01-00.58.01",
            "frevo-2026.11.22-24.00.00",
            "frevo-2026.11.22-00.60.00",
            "frevo-1969.12.31-23.59.59",
            "frevo-+026.11.22-00.58.01",
            "frevo-2026.11.22-00.58.0é",
            "Frevo-2026.11.22-00.58.01",
            "@GMT-2026.11.22-00.58.01",
            "autosnap_2026-11-22_00:58:01_hourly",
        ] {
            assert_eq!(Second::of_name(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn each_second_has_a_name(seconds in 0..=Second::LAST) {
            let second = Second::new(seconds).unwrap();
            prop_assert_eq!(Second::of_name(&second.to_name()), Some(second));
            prop_assert_eq!(second.to_name().len(), PATTERN.len() + 2);
        }

        #[test]
        fn a_name_is_one_seconds_or_a_strangers(name in "frevo-[0-9.-]{0,22}|\\PC{0,30}") {
            if let Some(second) = Second::of_name(&name) {
                prop_assert_eq!(second.to_name(), name);
            }
        }

        #[test]
        fn months_follow_each_other(months in 0..96_000_u64) {
            if let Some(first) = Second::of_month(months) {
                prop_assert_eq!(first.months(), months);
                if let Some(before) = first.since_1970().checked_sub(1) {
                    prop_assert_eq!(Second::new(before).unwrap().months(), months - 1);
                }
            }
        }
    }
}
