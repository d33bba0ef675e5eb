//! Rules of Samba's for accounts, as those that an account has here, or in words.

use frevo_auth::smbpasswd::RulesChange;
use frevo_auth::{AccountFile, SambaRule};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::plural::counted;

/// The hours by which the clock of a place may be ahead of UTC.
const AHEAD_MAX: i64 = 14;

/// Returns what these rules change in the rules of an account here.
pub(crate) fn change(rules: &[SambaRule]) -> RulesChange {
    let mut change = RulesChange::default();
    for rule in rules {
        match rule {
            SambaRule::Ends(time) => change.expires = moment(time).map(Some),
            SambaRule::PasswordEnds(time) if is_past(time) => change.must_change = Some(true),
            _ => {}
        }
    }
    change
}

/// The reasons not to let an account log on: rules that it cannot have here.
pub(crate) fn refusals(rules: &[SambaRule]) -> Vec<String> {
    rules.iter().filter_map(refusal).collect()
}

fn refusal(rule: &SambaRule) -> Option<String> {
    let text = match rule {
        SambaRule::Disabled => String::from("Samba has disabled it"),
        SambaRule::Locked => String::from("Samba has locked it after wrong passwords"),
        SambaRule::Ends(time) if moment(time).is_none() => {
            format!("it may log on until {time} only, which cannot be read")
        }
        SambaRule::Ends(_) | SambaRule::PasswordEnds(_) => return None,
        SambaRule::Workstations(list) => {
            format!("it may log on from {list} only, which cannot be kept")
        }
        SambaRule::Hours => String::from("it may log on at some hours only, which cannot be read"),
    };
    Some(text)
}

/// A line about passwords that would have ended, if there are any.
pub(crate) fn told_ends(accounts: &AccountFile) -> Option<String> {
    let ends = |name: &str| {
        let mut rules = accounts.samba_rules(name).iter();
        rules.any(|rule| matches!(rule, SambaRule::PasswordEnds(time) if !is_past(time)))
    };
    let count = accounts.entries().filter(|entry| ends(&entry.name)).count();
    (count > 0).then(|| {
        let accounts = counted(count, "account");
        format!(
            "the passwords of {accounts} would have ended in Samba; those of Frevo have an end by max_age \
             of [passwords] alone"
        )
    })
}

/// The date and time in a text such as `Thu, 01 Jan 2026 00:00:00 CET`, and the name of its zone.
fn parsed(time: &str) -> Option<(DateTime, &str)> {
    let words: Vec<&str> = time.split_whitespace().take(6).collect();
    let (zone, date) = words.split_last().filter(|(_, date)| date.len() == 5)?;
    let parsed = jiff::fmt::strtime::parse("%a, %d %b %Y %H:%M:%S", date.join(" "));
    Some((parsed.ok()?.to_datetime().ok()?, zone))
}

/// The moment of a text of `pdbedit`, in seconds from 1970: exact in UTC and in the zone of this
/// machine. Other zones have no name of their own, so it is the earliest moment that the text can mean.
fn moment(time: &str) -> Option<u64> {
    let (date, zone) = parsed(time)?;
    let here = date.to_zoned(TimeZone::system()).ok()?;
    let moment = if matches!(zone, "UTC" | "GMT") {
        date.to_zoned(TimeZone::UTC).ok()?.timestamp()
    } else if here.strftime("%Z").to_string() == zone {
        here.timestamp()
    } else {
        let utc = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
        utc.checked_sub(Span::new().hours(AHEAD_MAX)).ok()?
    };
    Some(u64::try_from(moment.as_second()).unwrap_or(0))
}

/// True for a time that has passed somewhere in the world: `pdbedit` writes the name of a time zone,
/// which several have. A time in unknown words has passed.
fn is_past(time: &str) -> bool {
    let moment = parsed(time).and_then(|(date, _)| date.to_zoned(TimeZone::UTC).ok());
    match (moment, Timestamp::now().checked_add(Span::new().hours(AHEAD_MAX))) {
        (Some(moment), Ok(latest)) => moment.timestamp() <= latest,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_that_have_ended_must_be_changed() {
        let ends = |time: &str| SambaRule::PasswordEnds(time.to_owned());
        for past in ["Thu, 01 Jan 2026 00:00:00 UTC", "Sat, 01 Jan 2000 00:00:00 +0300", "gestern"]
        {
            assert_eq!(change(&[ends(past)]).must_change, Some(true), "{past}");
        }
        assert!(change(&[ends("Sun, 01 Jan 2034 00:00:00 UTC")]).is_nothing());
    }

    #[test]
    fn the_end_of_an_account_is_taken_over() {
        let ends = |time: &str| [SambaRule::Ends(time.to_owned())];
        let utc = ends("Fri, 01 Jan 2027 00:00:00 UTC");
        assert_eq!(change(&utc).expires, Some(Some(1_798_761_600)));
        assert!(refusals(&utc).is_empty());
        // Nobody knows where this is, so the account ends no later than it did in Samba.
        let elsewhere = ends("Fri, 01 Jan 2027 00:00:00 XYZ");
        assert_eq!(change(&elsewhere).expires, Some(Some(1_798_761_600 - 14 * 3_600)));
        let unknown = ends("gestern");
        assert!(change(&unknown).is_nothing() && refusals(&unknown).len() == 1);
        assert_eq!(refusals(&[SambaRule::Hours, SambaRule::Disabled]).len(), 2);
    }
}
