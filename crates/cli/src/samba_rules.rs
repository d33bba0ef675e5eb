//! Rules of Samba's for accounts that Frevo does not have, in words.

use frevo_auth::{AccountFile, SambaRule};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::plural::counted;

/// The reasons not to let an account log on that these rules are for.
pub(crate) fn refusals(rules: &[SambaRule]) -> Vec<String> {
    rules.iter().filter_map(refusal).collect()
}

fn refusal(rule: &SambaRule) -> Option<String> {
    let text = match rule {
        SambaRule::Disabled => String::from("Samba has disabled it"),
        SambaRule::Locked => String::from("Samba has locked it after wrong passwords"),
        SambaRule::Ends(time) => format!("it may log on until {time} only"),
        SambaRule::MustChange => String::from("its password must be changed at the next logon"),
        SambaRule::PasswordEnds(time) if is_past(time) => format!("its password ended at {time}"),
        SambaRule::PasswordEnds(_) => return None,
        SambaRule::Workstations(list) => format!("it may log on from {list} only"),
        SambaRule::Hours => String::from("it may log on at some hours only"),
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
        format!("the passwords of {accounts} would have ended in Samba; those of Frevo have no end")
    })
}

/// True for a time that has passed somewhere in the world: `pdbedit` writes the name of a time zone,
/// which several have. A time in unknown words has passed.
fn is_past(time: &str) -> bool {
    // The time looks like `Thu, 01 Jan 2026 00:00:00 CET`; the zone, the sixth word, is left out.
    let words: Vec<&str> = time.split_whitespace().take(5).collect();
    let parsed = jiff::fmt::strtime::parse("%a, %d %b %Y %H:%M:%S", words.join(" "));
    let moment = parsed
        .and_then(|parsed| parsed.to_datetime())
        .and_then(|time| time.to_zoned(TimeZone::UTC))
        .map(|time| time.timestamp());
    match (moment, Timestamp::now().checked_add(Span::new().hours(14))) {
        (Ok(moment), Ok(latest)) => moment <= latest,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_that_have_ended_are_refused() {
        let ends = |time: &str| SambaRule::PasswordEnds(time.to_owned());
        for past in ["Thu, 01 Jan 2026 00:00:00 UTC", "Sat, 01 Jan 2000 00:00:00 +0300", "gestern"]
        {
            assert_eq!(refusals(&[ends(past)]), [format!("its password ended at {past}")]);
        }
        assert!(refusals(&[ends("Sun, 01 Jan 2034 00:00:00 UTC")]).is_empty());
        assert_eq!(refusals(&[SambaRule::Hours, SambaRule::MustChange]).len(), 2);
    }
}
