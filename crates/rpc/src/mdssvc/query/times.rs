//! Times in queries: `$time.now`, `$time.today(-1)`, `$time.iso(2026-11-30T12:00:00Z)`.
//!
//! The server does not know the client's time zone. Days, weeks, months and years are those of UTC; weeks begin on
//! Monday.

const DAY: i64 = 86_400;
const WEEK: i64 = 7 * DAY;

/// A day, a week, a month, a year, or one moment: its first and its last second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Period {
    const fn moment(at: i64) -> Self {
        Self { from: at, to: at }
    }

    /// The time between two beginnings.
    const fn between(from: i64, next: i64) -> Self {
        Self { from, to: next.saturating_sub(1) }
    }

    /// Returns the period of a name with an argument, which may be empty. None if there is no such period.
    pub(super) fn named(name: &str, argument: &str, now: i64) -> Option<Self> {
        if name == "iso" {
            return iso(argument).map(Self::moment);
        }
        let offset = match argument.strip_prefix('+').unwrap_or(argument) {
            "" => 0,
            number => number.parse::<i32>().ok().map(i64::from)?,
        };
        Some(match name {
            "now" => Self::moment(now.saturating_add(offset)),
            "today" => Self::day(now, offset),
            "yesterday" => Self::day(now, offset.saturating_sub(1)),
            "tomorrow" => Self::day(now, offset.saturating_add(1)),
            "this_week" => {
                // 1970-01-01 was a Thursday.
                let since_monday = now.saturating_add(3 * DAY).rem_euclid(WEEK);
                let monday = now.saturating_sub(since_monday);
                let from = monday.saturating_add(offset.saturating_mul(WEEK));
                Self::between(from, from.saturating_add(WEEK))
            }
            "this_month" => {
                let month = Month::of(now).plus(offset);
                Self::between(month.start(), month.plus(1).start())
            }
            "this_year" => {
                let january = Month(Month::of(now).year().saturating_mul(12));
                let january = january.plus(offset.saturating_mul(12));
                Self::between(january.start(), january.plus(12).start())
            }
            _ => return None,
        })
    }

    /// The day that is `offset` days after that of `now`.
    fn day(now: i64, offset: i64) -> Self {
        let midnight = now.saturating_sub(now.rem_euclid(DAY));
        let from = midnight.saturating_add(offset.saturating_mul(DAY));
        Self::between(from, from.saturating_add(DAY))
    }
}

/// A month of the Gregorian calendar, counted from January of the year 0.
#[derive(Debug, Clone, Copy)]
struct Month(i64);

impl Month {
    /// The month of a time. Years begin in March here, so that a leap day is the last of its year.
    const fn of(now: i64) -> Self {
        let days = now.div_euclid(DAY).saturating_add(719_468);
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let leap_days = (day / 1_460).saturating_sub(day / 36_524).saturating_add(day / 146_096);
        let year = day.saturating_sub(leap_days) / 365;
        let before = year.saturating_mul(365).saturating_add(year / 4).saturating_sub(year / 100);
        let month = day.saturating_sub(before).saturating_mul(5).saturating_add(2) / 153;
        let years = era.saturating_mul(400).saturating_add(year);
        Self(years.saturating_mul(12).saturating_add(month).saturating_add(2))
    }

    const fn plus(self, months: i64) -> Self {
        Self(self.0.saturating_add(months))
    }

    const fn year(self) -> i64 {
        self.0.div_euclid(12)
    }

    /// The first second.
    const fn start(self) -> i64 {
        days(self.year(), self.0.rem_euclid(12).saturating_add(1), 1).saturating_mul(DAY)
    }
}

/// Returns the days from 1970 to a date.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year.saturating_sub(1) };
    let since_march = month.saturating_add(9).rem_euclid(12);
    let month_days = since_march.saturating_mul(153).saturating_add(2) / 5;
    let leap_days = year.div_euclid(4).saturating_sub(year.div_euclid(100));
    let leap_days = leap_days.saturating_add(year.div_euclid(400));
    let year_days = year.saturating_mul(365).saturating_add(leap_days);
    year_days.saturating_add(month_days).saturating_add(day).saturating_sub(719_469)
}

/// Reads a date, or a date and a time, of ISO 8601. Without a time zone it is in UTC.
fn iso(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let mut fields = date.splitn(3, '-').map(digits);
    let mut next = || fields.next().flatten();
    let (year, month, day) = (next()?, next()?, next()?);
    // A month that has fewer days goes on in the next one.
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let midnight = days(year, month, day).saturating_mul(DAY);
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at_checked(zone)?;
    Some(midnight.saturating_add(seconds(clock)?).saturating_sub(offset(zone)?))
}

/// Reads a time of day. A fraction of a second is left out.
fn seconds(clock: &str) -> Option<i64> {
    let clock = clock.split(['.', ',']).next().unwrap_or("");
    let mut parts =
        clock.splitn(3, ':').map(|part| if part.is_empty() { Some(0) } else { digits(part) });
    let mut next = |most: i64| match parts.next() {
        None => Some(0),
        Some(part) => part.filter(|part| *part <= most),
    };
    let (hours, minutes, seconds) = (next(24)?, next(59)?, next(60)?);
    Some(
        hours
            .saturating_mul(3_600)
            .saturating_add(minutes.saturating_mul(60))
            .saturating_add(seconds),
    )
}

/// Reads a time zone: `Z`, `+02:00`, `+0200` or `+02`.
fn offset(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.split_at_checked(1) {
        None | Some(("Z" | "z", "")) => return Some(0),
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        Some(_) => return None,
    };
    let (hours, minutes) = rest.split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let minutes = if minutes.is_empty() { 0 } else { digits(minutes)? };
    let (hours, minutes) = (digits(hours).filter(|h| *h < 24)?, Some(minutes).filter(|m| *m < 60)?);
    Some(
        hours.saturating_mul(3_600).saturating_add(minutes.saturating_mul(60)).saturating_mul(sign),
    )
}

/// Reads up to four digits.
fn digits(text: &str) -> Option<i64> {
    let is_short = text.len() <= 4 && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_short { text.parse().ok() } else { None }
}
