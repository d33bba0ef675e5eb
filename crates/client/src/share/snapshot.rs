//! Shares as they were at an earlier time: MS-SMB2 2.2.13.2.7 and 3.2.4.3.

use frevo_wire::command::create::CreateDisposition;
use frevo_wire::dtyp::{AccessMask, FileTime};

use crate::error::Cause;
use crate::open::create::Ask;
use crate::session::bound::Bound;

/// The length of a token.
const TOKEN_BYTES: usize = 24;
const DAY_SECONDS: i64 = 86_400;

/// A snapshot of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    token: Box<str>,
    time: FileTime,
}

impl Snapshot {
    /// Reads a token such as `@GMT-2024.05.17-10.00.00`, a time in UTC (MS-SMB2 2.2.32.2).
    pub(crate) fn of_token(token: &str) -> Option<Self> {
        let is_token = token.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("@GMT-"));
        let text = token.get(5..).filter(|_| is_token && token.len() == TOKEN_BYTES)?;
        let (date, clock) = text.split_once('-')?;
        let [year, month, day] = numbers(date, [4, 2, 2])?;
        let [hour, minute, second] = numbers(clock, [2, 2, 2])?;
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            2 => 28 + i64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let is_real = year >= 1601
            && (1..=12).contains(&month)
            && (1..=last).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        let seconds = days_of(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second;
        is_real.then(|| Self {
            token: token.to_ascii_uppercase().into(),
            time: FileTime::from_unix(seconds, 0),
        })
    }
}

/// Three numbers with periods between them, of so many digits each.
fn numbers(text: &str, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split('.');
    let mut found = [0; 3];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(found)
}

/// Converts a date to days since 1970. Years begin in March here, so that the leap day is the last
/// one.
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl Snapshot {
    /// Returns the token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The parameters of a CREATE in the snapshot, for an operation that is a change or not.
    ///
    /// # Errors
    /// The operation would change the snapshot.
    pub(crate) fn open(&self, ask: Ask, is_change: bool) -> Result<Ask, Cause> {
        let reads = ask.access.contains(AccessMask::READ_DATA);
        let makes =
            !matches!(ask.disposition, CreateDisposition::OPEN | CreateDisposition::OPEN_IF);
        if is_change || makes || (ask.access.intersects(Bound::WRITES) && !reads) {
            return Err(Cause::Usage("a snapshot cannot be changed"));
        }
        Ok(Ask { snapshot: Some(self.time), ..ask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_times_in_utc() {
        for (token, seconds) in [
            ("@GMT-1970.01.01-00.00.00", 0),
            ("@gmt-2000.02.29-12.34.56", 951_827_696),
            ("@GMT-2026.11.22-00.58.01", 1_795_309_081),
        ] {
            let snapshot = Snapshot::of_token(token).unwrap();
            assert_eq!(snapshot.time, FileTime::from_unix(seconds, 0));
            assert_eq!(&*snapshot.token, token.to_uppercase());
        }
        for wrong in [
            "",
            "@GMT-",
            "@GMT-2001.02.29-00.00.00",
            "@GMT-2000.13.01-00.00.00",
            "@GMT-2000.01.00-00.00.00",
            "@GMT-2000.01.01-24.00.00",
            "@GMT-2000.01.01-00.60.00",
            "@GMT-2000.01.01-00.00.+1",
            "@GMT-2000.1.001-00.00.00",
            "@GMT-2000.01.01.00.00.00",
            "@GMT-2000.01.01-00.00.00 ",
            "XGMT-2000.01.01-00.00.00",
        ] {
            assert_eq!(Snapshot::of_token(wrong), None, "{wrong}");
        }
    }
}
