//! Shares that Samba lets guests into (`guest ok`), and the users who are guests (`map to guest`).

use super::access_options::NAMES;
use super::conversion::{Conversion, ShareParameters};
use super::report::{Report, Weight};
use super::smb_conf::Parameter;
use super::toml_text::{encryption, line, quoted};

/// A share as far as guests go.
pub(super) struct ShareGuests<'a> {
    pub(super) of: ShareParameters<'a>,
    /// The user of the host that guests act as.
    pub(super) user: &'a str,
    pub(super) is_read_only: bool,
    /// True for a share with a folder for each user.
    pub(super) is_of_users: bool,
    /// Some share of the file lets guests in.
    pub(super) lets_guests_in: bool,
}

impl ShareGuests<'_> {
    /// True if guests are let in.
    pub(super) fn are_let_in(&self) -> bool {
        matches!(of(self), Some(Ok(_)))
    }
}

/// The guests of a share, as Frevo can have them.
struct Guests<'a> {
    /// The option that lets them in.
    parameter: &'a Parameter,
    /// The user of the host that they act as.
    user: &'a str,
    writes: bool,
}

/// Returns the guests of a share; an error with the option and the reason where Samba lets guests in and
/// Frevo does not. None where Samba lets none in either.
fn of<'a>(share: &ShareGuests<'a>) -> Option<Result<Guests<'a>, (&'a Parameter, String)>> {
    let parameter =
        share.of.parameter("guest ok").filter(|_| share.of.truth("guest ok") == Some(true))?;
    if let Some(why) = reason_against(share) {
        return Some(Err((parameter, format!("guests are not let in, because {why}"))));
    }
    Some(Ok(Guests { parameter, user: share.user, writes: !share.is_read_only }))
}

/// The reason for which guests are not let in.
fn reason_against(share: &ShareGuests<'_>) -> Option<String> {
    let demands = |value: Option<&str>| value.and_then(encryption) == Some("required");
    let has = |option: &&str| share.of.value(option).is_some_and(|value| !value.is_empty());
    let own = share.of.section.value("server smb encrypt");
    if demands(own) || demands(share.of.global.value("server smb encrypt")) {
        return Some(String::from("encryption is demanded"));
    }
    let mut rules = NAMES.iter().map(|names| names.option);
    if let Some(option) = rules.find(has) {
        return Some(format!("the share has rules for users ({option})"));
    }
    if share.is_of_users {
        return Some(String::from("each user has a folder of its own there"));
    }
    let mut special = ["continuous availability", "fruit:timemachine"].into_iter();
    if let Some(option) = special.find(|option| share.of.truth(option) == Some(true)) {
        return Some(format!("the share has {option}"));
    }
    let user = share.user;
    (user == "root" || user.contains(['%', '\\', '+'])).then(|| format!("guests cannot be {user}"))
}

/// Writes the keys for guests of a share. Without guests of its own it goes on demanding encryption where
/// that is only given up for the guests of other shares.
pub(super) fn write(share: &ShareGuests<'_>, report: &mut Report, toml: &mut String) {
    let name = &share.of.section.name;
    match of(share) {
        None => {}
        Some(Err((parameter, why))) => {
            report.parameter(Weight::Stricter, name, parameter, &why);
        }
        Some(Ok(Guests { parameter, user, writes })) => {
            line(toml, "guest", &quoted(user));
            if writes {
                line(toml, "guest_write", "true");
            }
            if share.of.value("hosts allow").is_none_or(str::is_empty) {
                let why = "guests are let in from private addresses only; see hosts_allow";
                report.parameter(Weight::Stricter, name, parameter, why);
            }
            return;
        }
    }
    let is_given_up = share.lets_guests_in && share.of.global.value("server smb encrypt").is_none();
    if is_given_up && !toml.ends_with("encrypt = true\n") {
        line(toml, "encrypt", "true");
    }
}

/// Writes the keys of `[server]` for guests.
pub(super) fn write_server(conversion: &mut Conversion<'_>, toml: &mut String) {
    let lets_in = conversion.lets_guests_in;
    if lets_in && conversion.global.value("server smb encrypt").is_none() {
        line(toml, "encryption", "\"offered\"");
    }
    let Some(parameter) = conversion.global.parameter("map to guest") else { return };
    let report = &mut conversion.report;
    match &*parameter.value.to_ascii_lowercase() {
        "never" => {}
        "bad uid" => {
            let why = "users without an account are refused";
            report.parameter(Weight::Stricter, "global", parameter, why);
        }
        _ if !lets_in => {
            let why = "no share lets guests in; everyone logs on";
            report.parameter(Weight::Stricter, "global", parameter, why);
        }
        value @ ("bad user" | "bad password") => {
            line(toml, "unknown_users", "\"guest\"");
            if value == "bad password" {
                let why = "a wrong password of an account is always refused; users without an account are \
                           guests";
                report.parameter(Weight::Stricter, "global", parameter, why);
            }
        }
        _ => {
            let why = "unknown value; users without an account are refused, see unknown_users";
            report.parameter(Weight::Stricter, "global", parameter, why);
        }
    }
}
