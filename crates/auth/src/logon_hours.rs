//! Hours of the week in which an account may log on, in words and as MS-SAMR 2.2.6.5 has them.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Hours of a week.
const HOURS_PER_WEEK: u32 = 168;
/// Hours of a day.
const HOURS_PER_DAY: u32 = 24;
/// Seconds of an hour.
const HOUR: i64 = 3_600;
/// Hours from the last Sunday before 1970 to its first moment, a Thursday.
const EPOCH_HOUR: i64 = 96;
/// Names of the days, in the order of their bits.
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Days as they are told, Monday first.
const TOLD_DAYS: [u32; 7] = [1, 2, 3, 4, 5, 6, 0];

/// Hours of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogonHours {
    /// One bit for each hour, Sunday's first hour in the lowest bit of the first byte.
    bits: [u8; 21],
    /// True if the hours are those of the server's clock, false for UTC.
    pub is_local: bool,
    /// Seconds by which the clock of the hours is ahead of UTC now: a source of accounts sets them when
    /// it is asked for hours of the server's clock.
    pub ahead: i32,
}

impl LogonHours {
    /// Returns hours of UTC of their bits, as MS-SAMR 2.2.6.5, Samba and LDAP have them. Within a byte
    /// the first hour is the lowest bit.
    pub const fn of_utc(bits: [u8; 21]) -> Self {
        Self { bits, is_local: false, ahead: 0 }
    }

    /// Returns hours of their bits as 42 hexadecimal digits. None for another text.
    pub fn from_hex(text: &str, is_local: bool) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 42 || !text.is_ascii() {
            return None;
        }
        let mut bits = [0; 21];
        for (byte, pair) in bits.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = core::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Self { bits, is_local, ahead: 0 })
    }

    /// Returns the bits as 42 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        let mut text = String::with_capacity(42);
        for byte in self.bits {
            // Writing to a String cannot fail.
            let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02X}"));
        }
        text
    }

    /// True if every hour of the week is among them.
    pub fn is_always(&self) -> bool {
        self.bits.iter().all(|byte| *byte == 0xFF)
    }

    /// True if the moment `now`, in seconds from 1970, is in one of the hours.
    pub fn has(&self, now: u64) -> bool {
        let seconds = i64::try_from(now).unwrap_or(i64::MAX).saturating_add(self.ahead.into());
        let hour = seconds.div_euclid(HOUR).saturating_add(EPOCH_HOUR);
        u32::try_from(hour.rem_euclid(HOURS_PER_WEEK.into())).is_ok_and(|hour| self.bit(hour))
    }

    fn bit(&self, hour: u32) -> bool {
        let byte = usize::try_from(hour / 8).ok().and_then(|byte| self.bits.get(byte));
        byte.is_some_and(|byte| byte & (1 << (hour % 8)) != 0)
    }

    fn set(&mut self, hour: u32) {
        let byte = usize::try_from(hour / 8).ok().and_then(|byte| self.bits.get_mut(byte));
        if let Some(byte) = byte {
            *byte |= 1 << (hour % 8);
        }
    }

    /// Returns the hours of a day as bits, its first hour in the lowest one.
    fn of_day(&self, day: u32) -> u32 {
        let first = day.saturating_mul(HOURS_PER_DAY);
        (0..HOURS_PER_DAY)
            .filter(|hour| self.bit(first.saturating_add(*hour)))
            .fold(0, |bits, hour| bits | 1 << hour)
    }

    /// Adds one group of words, such as `mon-fri 07:00-19:00`.
    fn add(&mut self, group: &str) -> Result<(), &'static str> {
        let mut words = group.split_whitespace();
        let (Some(days), Some(hours), None) = (words.next(), words.next(), words.next()) else {
            return Err("write days and hours, such as mon-fri 07:00-19:00");
        };
        let (start, end) = hours_of(hours)?;
        for part in days.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (day_of(first)?, day_of(last)?);
            let mut day = first;
            loop {
                for hour in start..end {
                    self.set(day.saturating_mul(HOURS_PER_DAY).saturating_add(hour));
                }
                if day == last {
                    break;
                }
                day = day.saturating_add(1) % 7;
            }
        }
        Ok(())
    }
}

fn day_of(word: &str) -> Result<u32, &'static str> {
    let place = DAYS.iter().position(|day| day.eq_ignore_ascii_case(word));
    let day = place.and_then(|place| u32::try_from(place).ok());
    day.ok_or("the days are mon, tue, wed, thu, fri, sat and sun")
}

fn hours_of(word: &str) -> Result<(u32, u32), &'static str> {
    let hour = |text: &str| match text.split_once(':') {
        Some((hour, "00")) if hour.len() <= 2 && hour.bytes().all(|b| b.is_ascii_digit()) => {
            hour.parse::<u32>().map_err(|_| "the hours have the form 07:00-19:00")
        }
        Some((_, minutes)) if minutes.len() == 2 => {
            Err("only whole hours can be set, such as 07:00")
        }
        _ => Err("the hours have the form 07:00-19:00"),
    };
    let (start, end) = word.split_once('-').ok_or("the hours have the form 07:00-19:00")?;
    let (start, end) = (hour(start)?, hour(end)?);
    if end > HOURS_PER_DAY {
        return Err("a day ends at 24:00");
    }
    if start >= end {
        return Err("the end is not after the start; write a night as two groups: \
                    mon-fri 22:00-24:00; tue-sat 00:00-06:00");
    }
    Ok((start, end))
}

/// Reads words such as `mon-fri 07:00-19:00; sat 09:00-12:00`, `always` and `never`, as hours of the
/// server's clock; `UTC` at the end makes them hours of UTC.
impl FromStr for LogonHours {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let of_utc = text.strip_suffix("UTC").or_else(|| text.strip_suffix("utc"));
        let mut hours = Self { bits: [0; 21], is_local: of_utc.is_none(), ahead: 0 };
        match of_utc.unwrap_or(text).trim() {
            "never" => {}
            "always" => hours.bits = [0xFF; 21],
            groups => groups.split(';').try_for_each(|group| hours.add(group))?,
        }
        Ok(hours)
    }
}

impl fmt::Display for LogonHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_always() {
            return f.write_str("always");
        }
        let mut is_first = true;
        let mut days = TOLD_DAYS.iter().copied().peekable();
        while let Some(first) = days.next() {
            let hours = self.of_day(first);
            let mut last = first;
            while let Some(day) = days.next_if(|day| self.of_day(*day) == hours) {
                last = day;
            }
            let mut from = 0;
            while from < HOURS_PER_DAY {
                let left = hours.checked_shr(from).unwrap_or(0);
                let start = from.saturating_add(left.trailing_zeros());
                if left == 0 {
                    break;
                }
                let length = hours.checked_shr(start).unwrap_or(0).trailing_ones();
                let end = start.saturating_add(length);
                if !core::mem::take(&mut is_first) {
                    f.write_str("; ")?;
                }
                write_days(f, first, last)?;
                write!(f, " {start:02}:00-{end:02}:00")?;
                from = end;
            }
        }
        if is_first {
            return f.write_str("never");
        }
        if self.is_local { Ok(()) } else { f.write_str(" UTC") }
    }
}

fn write_days(f: &mut fmt::Formatter<'_>, first: u32, last: u32) -> fmt::Result {
    let name = |day: u32| {
        usize::try_from(day).ok().and_then(|day| DAYS.get(day)).copied().unwrap_or_default()
    };
    f.write_str(name(first))?;
    if first == last { Ok(()) } else { write!(f, "-{}", name(last)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn hours(words: &str) -> LogonHours {
        words.parse().unwrap()
    }

    #[test]
    fn words_are_told_as_they_were_read() {
        for words in [
            "mon-fri 07:00-19:00",
            "mon-fri 07:00-12:00; mon-fri 13:00-19:00; sat 09:00-12:00",
            "mon-sun 00:00-01:00",
            "tue 23:00-24:00; sun 00:00-24:00 UTC",
            "always",
            "never",
        ] {
            assert_eq!(hours(words).to_string(), words);
            let hex = hours(words).to_hex();
            assert_eq!(LogonHours::from_hex(&hex, hours(words).is_local), Some(hours(words)));
        }
        assert_eq!(hours("sat-mon 1:00-2:00").to_string(), "mon 01:00-02:00; sat-sun 01:00-02:00");
        assert_eq!(hours("Mon,WED 00:00-02:00").to_string(), "mon 00:00-02:00; wed 00:00-02:00");
    }

    #[test]
    fn other_words_are_refused() {
        for words in [
            "",
            "mon",
            "mon 7-19",
            "mon 07:30-19:00",
            "mon 19:00-07:00",
            "mon 00:00-25:00",
            "day 00:00-01:00",
            "mon 01:00-02:00;",
            "mon 01:00-02:00 x",
            "mon +1:00-02:00",
        ] {
            assert!(words.parse::<LogonHours>().is_err(), "{words:?}");
        }
        assert_eq!(LogonHours::from_hex(&"F".repeat(41), false), None);
        assert_eq!(LogonHours::from_hex(&"G".repeat(42), false), None);
    }

    /// 2026-11-30 is a Monday; 1,796,083,200 is the first moment of the day after it, in UTC.
    #[test]
    fn moments_are_in_hours_of_utc_or_of_the_clock() {
        const MONDAY: u64 = 1_795_996_800;
        let office = hours("mon 07:00-19:00 UTC");
        for (hour, is_in) in
            [(0, false), (6, false), (7, true), (18, true), (19, false), (31, false)]
        {
            assert_eq!(office.has(MONDAY + hour * 3_600), is_in, "{hour}");
            assert_eq!(office.has(MONDAY + hour * 3_600 + 3_599), is_in, "{hour}");
        }
        let ahead = LogonHours { ahead: 19_800, ..hours("mon 07:00-19:00") };
        assert!(ahead.has(MONDAY + 5_400) && !ahead.has(MONDAY + 5_399));
        let behind = LogonHours { ahead: -18_000, ..hours("sun 23:00-24:00") };
        assert!(behind.has(MONDAY + 4 * 3_600) && !behind.has(MONDAY + 5 * 3_600));
        assert!(hours("thu 00:00-01:00").has(0) && !hours("never").has(0));
    }

    /// The first bit of all is Sunday's first hour, MS-SAMR 2.2.6.5.
    #[test]
    fn bits_begin_on_sunday() {
        let hex = hours("sun 00:00-01:00").to_hex();
        assert!(hex.starts_with("01") && hex.ends_with("00"));
        assert!(hours("sat 23:00-24:00").to_hex().ends_with("80"));
        assert!(LogonHours::of_utc([0xFF; 21]).is_always());
    }
}
