//! Names of snapshots: the `@GMT-` tokens of MS-SMB2 2.2.32.2, and the patterns that name folders
//! of snapshots.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use frevo_wire::dtyp::FileTime;
use frevo_wire::fscc::upcase;

/// A second of UTC in calendar form. It identifies a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

const DAY_SECONDS: i64 = 86_400;

impl Moment {
    /// Returns the second that contains `time`; None before 1601 and after 9999.
    pub fn of(time: FileTime) -> Option<Self> {
        let (seconds, _) = time.to_unix();
        let (year, month, day) = civil_of(seconds.div_euclid(DAY_SECONDS))?;
        let rest = u32::try_from(seconds.rem_euclid(DAY_SECONDS)).ok()?;
        let (hour, rest) = (rest / 3600, rest % 3600);
        Some(Self { year, month, day, hour, minute: rest / 60, second: rest % 60 })
            .filter(|moment| (1601..=9999).contains(&moment.year))
    }

    /// Returns the beginning of the second.
    pub fn time(self) -> FileTime {
        let days = days_of(i64::from(self.year), i64::from(self.month), i64::from(self.day));
        let clock = u64::from(self.hour)
            .saturating_mul(3600)
            .saturating_add(u64::from(self.minute).saturating_mul(60))
            .saturating_add(u64::from(self.second));
        let clock = i64::try_from(clock).unwrap_or(0);
        FileTime::from_unix(days.saturating_mul(DAY_SECONDS).saturating_add(clock), 0)
    }

    /// Parses a token; the case of its letters does not matter.
    pub fn of_token(token: &str) -> Option<Self> {
        let upper = token.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("@GMT-"));
        if !upper || token.len() != 24 {
            return None;
        }
        let pattern = Pattern::parse("%Y.%m.%d-%H.%M.%S").ok()?;
        match pattern.matches(token.get(5..)?)? {
            Taken::At(moment) => Some(moment),
            Taken::Unsaid => None,
        }
    }

    fn is_real(&self) -> bool {
        Self::of(self.time()) == Some(*self)
    }
}

/// Writes the token of MS-SMB2 2.2.32.2, such as @GMT-2024.05.17-10.00.00.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "@GMT-{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}")
    }
}

/// Converts days since 1970 to year, month and day of the Gregorian calendar. Years begin in March
/// here, so that the leap day is the last one.
#[allow(clippy::arithmetic_side_effects, reason = "the days of a FILETIME are few")]
fn civil_of(days: i64) -> Option<(u32, u32, u32)> {
    if !(-1_000_000..=4_000_000).contains(&days) {
        return None;
    }
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let small = |number: i64| u32::try_from(number).ok();
    Some((small(year)?, small(month)?, small(day)?))
}

/// Converts year, month and day to days since 1970; every part has at most four digits.
#[allow(clippy::arithmetic_side_effects, reason = "four digits each")]
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = (month + 9).rem_euclid(12);
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The form of snapshot folders' names: literal text, `%Y %m %d %H %M %S` (UTC, two digits, four
/// for the year), `%N` (any number), `%%`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
    Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

/// Takes a prefix off a name, without regard to case.
fn without_prefix<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    let mut rest = name.chars();
    for expected in prefix.chars() {
        if upcase(rest.next()?) != upcase(expected) {
            return None;
        }
    }
    Some(rest.as_str())
}

/// The time of a snapshot, as its name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The snapshot was taken at this second.
    At(Moment),
    /// The name has only a number.
    Unsaid,
}

/// The reason for which a text is no [`Pattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternFault {
    /// `%` is followed by this character, which is not one of `Y m d H M S N %`; `None` at the
    /// end of the text.
    Unknown(Option<char>),
    /// One of `Y m d H M S N` occurs twice.
    Twice,
    /// The text has neither `%Y`, `%m` and `%d`, nor `%N`: all snapshots would have one name.
    NoTime,
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(Some(kind)) => {
                write!(f, "%{kind} is not supported; use %Y %m %d %H %M %S, %N or %%")
            }
            Self::Unknown(None) => f.write_str("it must not end with a single %; write %%"),
            Self::Twice => f.write_str("each of %Y %m %d %H %M %S %N can be used only once"),
            Self::NoTime => f.write_str("it must have %Y, %m and %d, or %N"),
        }
    }
}

impl Pattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternFault> {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            let literal = match (c, if c == '%' { rest.next() } else { None }) {
                ('%', Some('%')) => '%',
                ('%', kind) => {
                    let part = part_of(kind).ok_or(PatternFault::Unknown(kind))?;
                    if parts.contains(&part) {
                        return Err(PatternFault::Twice);
                    }
                    parts.push(part);
                    continue;
                }
                (c, _) => c,
            };
            if let Some(Part::Text(text)) = parts.last_mut() {
                text.push(literal);
            } else {
                parts.push(Part::Text(String::from(literal)));
            }
        }
        let has = |field| parts.contains(&Part::Field(field));
        let dated = has(Field::Year) && has(Field::Month) && has(Field::Day);
        if dated || parts.contains(&Part::Number) {
            Ok(Self(parts))
        } else {
            Err(PatternFault::NoTime)
        }
    }

    /// Returns the time if a folder of that name is a snapshot. Parts of the time that the pattern
    /// leaves out are zero.
    pub fn matches(&self, name: &str) -> Option<Taken> {
        self.matches_by(name, |name, text| name.strip_prefix(text))
    }

    /// Like [`Self::matches`], without regard to case.
    pub fn matches_any_case(&self, name: &str) -> Option<Taken> {
        self.matches_by(name, without_prefix)
    }

    /// `strip` takes a part of the pattern's text off the front of a name.
    fn matches_by<'n>(
        &self,
        name: &'n str,
        strip: impl Fn(&'n str, &str) -> Option<&'n str>,
    ) -> Option<Taken> {
        let mut rest = name;
        let mut moment = Moment { year: 0, month: 0, day: 0, hour: 0, minute: 0, second: 0 };
        for part in &self.0 {
            rest = match part {
                Part::Text(text) => strip(rest, text)?,
                Part::Number => {
                    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                    if digits.len() == rest.len() {
                        return None;
                    }
                    digits
                }
                Part::Field(field) => {
                    let (digits, after) = rest.split_at_checked(field.digits())?;
                    if !digits.bytes().all(|b| b.is_ascii_digit()) {
                        return None;
                    }
                    *field.of(&mut moment) = digits.parse().ok()?;
                    after
                }
            };
        }
        if !rest.is_empty() {
            return None;
        }
        if moment.year == 0 && moment.month == 0 {
            return Some(Taken::Unsaid);
        }
        moment.is_real().then_some(Taken::At(moment))
    }
}

fn part_of(kind: Option<char>) -> Option<Part> {
    Some(match kind? {
        'Y' => Part::Field(Field::Year),
        'm' => Part::Field(Field::Month),
        'd' => Part::Field(Field::Day),
        'H' => Part::Field(Field::Hour),
        'M' => Part::Field(Field::Minute),
        'S' => Part::Field(Field::Second),
        'N' => Part::Number,
        _ => return None,
    })
}

impl Field {
    const fn digits(self) -> usize {
        match self {
            Self::Year => 4,
            _ => 2,
        }
    }

    const fn of(self, moment: &mut Moment) -> &mut u32 {
        match self {
            Self::Year => &mut moment.year,
            Self::Month => &mut moment.month,
            Self::Day => &mut moment.day,
            Self::Hour => &mut moment.hour,
            Self::Minute => &mut moment.minute,
            Self::Second => &mut moment.second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString as _;

    #[test]
    fn tokens_are_moments() {
        for (token, seconds) in [
            ("@GMT-1970.01.01-00.00.00", 0),
            ("@GMT-2000.02.29-12.34.56", 951_827_696),
            ("@GMT-2026.11.22-00.58.01", 1_795_309_081),
            ("@GMT-1601.01.01-00.00.00", -11_644_473_600),
        ] {
            let moment = Moment::of_token(token).expect(token);
            assert_eq!(moment.time().to_unix(), (seconds, 0));
            assert_eq!(moment.to_string(), token);
            assert_eq!(Moment::of_token(&token.to_lowercase()), Some(moment));
        }
        for token in [
            "",
            "@GMT-",
            "@GMT-2001.02.29-00.00.00",
            "@GMT-2000.13.01-00.00.00",
            "@GMT-2000.00.01-00.00.00",
            "@GMT-2000.01.01-24.00.00",
            "@GMT-2000.01.01-00.60.00",
            "@GMT-2000.01.01-00.00.0",
            "@GMT-2000.01.01-00.00.000",
            "@GMT-2000.01.01-00.00.+1",
            "@GMT-2000-01-01-00.00.00",
            "@GMT-1600.01.01-00.00.00",
            "#GMT-2000.01.01-00.00.00",
            "@GMé2000.01.01-00.00.00",
        ] {
            assert_eq!(Moment::of_token(token), None, "{token}");
        }
    }

    #[test]
    fn patterns_match_names() {
        let daily = Pattern::parse("daily_%Y-%m-%d").unwrap();
        let Some(Taken::At(day)) = daily.matches("daily_2024-03-01") else { panic!("a day") };
        assert_eq!(day.to_string(), "@GMT-2024.03.01-00.00.00");
        for name in ["daily_2024-3-1", "daily_2024-03-01x", "Daily_2024-03-01", "daily_2024-02-30"]
        {
            assert_eq!(daily.matches(name), None, "{name}");
        }
        for name in ["Daily_2024-03-01", "DAILY_2024-03-01", "daily_2024-03-01"] {
            assert_eq!(daily.matches_any_case(name), Some(Taken::At(day)), "{name}");
        }
        for name in ["daily2024-03-01", "Daily", "", "DAILY_2024-03-01x"] {
            assert_eq!(daily.matches_any_case(name), None, "{name}");
        }
        let accents = Pattern::parse("é-%N").unwrap();
        assert_eq!(accents.matches_any_case("É-1"), Some(Taken::Unsaid));
        assert_eq!(accents.matches("É-1"), None);
        let number = Pattern::parse("%N").unwrap();
        assert_eq!(number.matches("17"), Some(Taken::Unsaid));
        assert_eq!(number.matches("x"), None);
        assert_eq!(number.matches(""), None);
        let percent = Pattern::parse("100%%-%N").unwrap();
        assert_eq!(percent.matches("100%-2"), Some(Taken::Unsaid));
        for (text, fault) in [
            ("%Y", PatternFault::NoTime),
            ("plain", PatternFault::NoTime),
            ("%Y%m%d%", PatternFault::Unknown(None)),
            ("%Y%m%d%x", PatternFault::Unknown(Some('x'))),
            ("%Y%m%d%d", PatternFault::Twice),
        ] {
            assert_eq!(Pattern::parse(text), Err(fault), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_second_is_a_token(seconds in -11_644_473_600i64..253_402_300_800) {
            let time = FileTime::from_unix(seconds, 0);
            let moment = Moment::of(time).unwrap();
            prop_assert_eq!(moment.time(), time);
            prop_assert_eq!(Moment::of_token(&moment.to_string()), Some(moment));
        }

        #[test]
        fn any_text_is_a_token_or_none(text in "\\PC{0,30}", name in "\\PC{0,30}") {
            let _ = Moment::of_token(&text);
            if let Ok(pattern) = Pattern::parse(&text) {
                let _ = pattern.matches(&name);
            }
        }
    }
}
