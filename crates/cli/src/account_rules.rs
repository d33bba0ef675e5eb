//! The rules for the logons of accounts, on the command line and in words.

use clap::Args;
use frevo_auth::LogonHours;
use frevo_auth::smbpasswd::{Entry, RulesChange};
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The rules that a command sets; the others stay.
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct RulesArguments {
    /// Last day of the account, such as 2026-12-31; or the moment of its end, such as
    /// 2026-12-31T18:00:00Z; or never
    #[arg(long, value_name = "DATE")]
    expires: Option<String>,

    /// Demand another password before the next logon; =no takes that back
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no)]
    must_change: Option<bool>,

    /// Hours of the week for logons, by the server's clock, such as
    /// "mon-fri 07:00-19:00; sat 09:00-12:00"; or always
    #[arg(long, value_name = "HOURS")]
    hours: Option<LogonHours>,

    /// Names of the computers to log on from, with commas between them; or any
    #[arg(long, value_name = "NAMES")]
    workstations: Option<String>,

    /// Let the password never get too old, whatever max_age of [passwords] says; =no takes that back
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no)]
    password_never_expires: Option<bool>,
}

fn yes_or_no(text: &str) -> Result<bool, &'static str> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err("the values are yes and no"),
    }
}

impl RulesArguments {
    /// Returns the change that the arguments stand for.
    ///
    /// # Errors
    /// The reason why a date cannot be used.
    pub(crate) fn change(&self) -> Result<RulesChange, String> {
        let names = self.workstations.as_deref().map(|names| match names.trim() {
            "any" => Vec::new(),
            names => names.split(',').map(|name| name.trim().to_owned()).collect(),
        });
        Ok(RulesChange {
            expires: self.expires.as_deref().map(end).transpose()?,
            must_change: self.must_change,
            hours: self.hours.map(Some),
            workstations: names,
            password_never_ends: self.password_never_expires,
        })
    }
}

/// Reads the end of an account: None for never. A day is the last one, by the clock of this machine.
///
/// # Errors
/// The reason why the text cannot be used.
pub(crate) fn end(text: &str) -> Result<Option<u64>, String> {
    if text == "never" {
        return Ok(None);
    }
    let seconds = match text.parse::<Timestamp>() {
        Ok(moment) => Some(moment.as_second()),
        Err(_) => text.parse::<Date>().ok().and_then(|day| {
            let next = day.tomorrow().ok()?.to_datetime(Time::midnight());
            Some(next.to_zoned(TimeZone::system()).ok()?.timestamp().as_second())
        }),
    };
    let end = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    end.map(Some).ok_or_else(|| {
        format!(
            "{text:?} is not a date such as 2026-12-31, a moment such as 2026-12-31T18:00:00Z, or never"
        )
    })
}

/// A moment in seconds from 1970, as RFC 3339 has it.
pub(crate) fn time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| String::from("never"), |time| time.to_string())
}

/// A moment by the clock of this machine.
fn shown_time(seconds: u64) -> String {
    let moment =
        i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let Some(moment) = moment else { return String::from("never") };
    let zoned: Zoned = moment.to_zoned(TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M %:z").to_string()
}

/// The rules for an account, each in words; none for an account without rules.
pub(crate) fn words(entry: &Entry) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(entry.expires.map(|end| format!("it may log on until {}", shown_time(end))));
    words.extend(entry.hours.map(|hours| format!("it may log on {hours}")));
    if !entry.workstations.is_empty() {
        words.push(format!("it may log on from {}", entry.workstations.join(", ")));
    }
    if entry.must_change {
        words.push(String::from("its password must be changed before the next logon"));
    }
    words
}

/// The rules for an account as lines of `frevo user show`.
pub(crate) fn shown(entry: &Entry) -> String {
    let password = match (entry.must_change, entry.password_never_ends()) {
        (true, _) => "must be changed before the next logon",
        (false, true) => "never gets too old",
        (false, false) => "may be used",
    };
    let hours = entry.hours.map_or_else(|| String::from("always"), |hours| hours.to_string());
    let computers = match &*entry.workstations {
        [] => String::from("any"),
        names => names.join(", "),
    };
    format!(
        "password          {password}\nexpires           {}\nlogon hours       {hours}\n\
         workstations      {computers}\n",
        entry.expires.map_or_else(|| String::from("never"), shown_time),
    )
}

#[cfg(test)]
mod tests {
    use frevo_auth::NtHash;

    use super::*;

    #[test]
    fn ends_are_days_moments_or_never() {
        assert_eq!(end("never"), Ok(None));
        assert_eq!(end("2026-12-31T18:00:00Z"), Ok(Some(1_798_740_000)));
        assert_eq!(end("2026-12-31T18:00:00+01:00"), Ok(Some(1_798_736_400)));
        // The end of a day in any zone is within 14 hours of the end in UTC.
        let day = end("2026-12-31").unwrap().unwrap();
        assert!(day.abs_diff(1_798_761_600) <= 14 * 3_600, "{day}");
        for bad in ["", "31.12.2026", "2026-02-30", "soon", "1969-12-30"] {
            assert!(end(bad).is_err(), "{bad:?}");
        }
        assert_eq!(time(1_798_740_000), "2026-12-31T18:00:00Z");
    }

    #[test]
    fn arguments_change_what_they_name() {
        let arguments = RulesArguments {
            workstations: Some(String::from("desk, lap")),
            must_change: Some(true),
            ..RulesArguments::default()
        };
        let change = arguments.change().unwrap();
        assert_eq!(change.workstations, Some(vec![String::from("desk"), String::from("lap")]));
        assert_eq!((change.must_change, change.expires, change.hours), (Some(true), None, None));
        let any = RulesArguments { workstations: Some(String::from("any")), ..arguments };
        assert_eq!(any.change().unwrap().workstations, Some(Vec::new()));
        assert!(RulesArguments::default().change().unwrap().is_nothing());
    }

    #[test]
    fn rules_are_told_in_words() {
        let mut entry = Entry::new("ann", 7, NtHash::from_password("x"), 5);
        assert!(words(&entry).is_empty());
        entry.hours = Some("mon-fri 07:00-19:00".parse().unwrap());
        entry.workstations = vec![String::from("desk")];
        assert_eq!(words(&entry), ["it may log on mon-fri 07:00-19:00", "it may log on from desk"]);
        let shown = shown(&entry);
        assert!(shown.contains("logon hours       mon-fri 07:00-19:00\n"), "{shown}");
        assert!(shown.contains("expires           never\n"), "{shown}");
    }
}
