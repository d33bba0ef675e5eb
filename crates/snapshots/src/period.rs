//! Hours, days, weeks and months of UTC.

use core::fmt;

use crate::second::Second;

/// A kind of period of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// Hours.
    Hourly,
    /// Days.
    Daily,
    /// Weeks, which begin on Monday.
    Weekly,
    /// Months.
    Monthly,
}

impl Period {
    /// All kinds, the shortest first.
    pub const ALL: [Self; 4] = [Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly];

    /// Returns the word of a schedule.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }

    /// Returns the number of the period that contains a second. Periods are numbered without gaps.
    pub(crate) fn number(self, second: Second) -> u64 {
        match self {
            Self::Hourly => second.since_1970().div_euclid(3_600),
            Self::Daily => second.days(),
            // 1970 began on a Thursday.
            Self::Weekly => second.days().saturating_add(3).div_euclid(7),
            Self::Monthly => second.months(),
        }
    }

    /// Returns the first second of the period with a number; None after 9999.
    pub(crate) fn start(self, number: u64) -> Option<Second> {
        match self {
            Self::Hourly => Second::new(number.checked_mul(3_600)?),
            Self::Daily => Second::of_day(number),
            Self::Weekly => Second::of_day(number.checked_mul(7)?.saturating_sub(3)),
            Self::Monthly => Second::of_month(number),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weeks_begin_on_monday() {
        let second = |name| Second::of_name(name).unwrap();
        let sunday = second("frevo-2026.11.29-23.59.59");
        let monday = second("frevo-2026.11.30-00.00.00");
        let number = Period::Weekly.number(monday);
        assert_eq!(Period::Weekly.number(sunday) + 1, number);
        assert_eq!(Period::Weekly.start(number), Some(monday));
    }

    proptest! {
        #[test]
        fn a_period_goes_from_its_start_to_the_next(
            seconds in 400_000..253_000_000_000_u64,
            kind in proptest::sample::select(&Period::ALL),
        ) {
            let second = Second::new(seconds).unwrap();
            let number = kind.number(second);
            let (start, next) = (kind.start(number).unwrap(), kind.start(number + 1).unwrap());
            prop_assert!(start <= second && second < next);
            prop_assert_eq!(kind.number(start), number);
        }
    }
}
