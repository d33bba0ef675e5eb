//! Events as lines of JSON.

use std::fmt::Write;

use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;

use super::event::{Event, Value};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::{cut, is_obeyed};

/// The version of the schema: a field that is removed or means something else makes a
/// new one, a field more does not.
pub(super) const VERSION: u64 = 1;

/// Appends an event as one line, with the number of events lost before it.
pub(super) fn line(into: &mut String, time: FileTime, event: &Event, lost: u64) {
    let _ = write!(into, "{{\"v\":{VERSION},\"time\":\"");
    rfc3339(into, time);
    let _ = write!(into, "\",\"event\":\"{}\"", event.kind.name());
    if event.status == Status::SUCCESS {
        into.push_str(",\"outcome\":\"success\"");
    } else {
        into.push_str(",\"outcome\":\"refused\"");
        field(into, "status", &Value::Text(format!("{:?}", event.status)));
    }
    if let Some(identity) = &event.identity {
        field(into, "user", &Value::from(&*identity.user));
        field(into, "domain", &Value::from(&*identity.domain));
        if identity.is_guest {
            into.push_str(",\"guest\":true");
        }
        if let Some(sid) = identity.domain_sid() {
            field(into, "sid", &Value::Text(sid.to_string()));
        }
    }
    if let Some(session) = event.session {
        field(into, "session", &Value::Text(format!("{session:#x}")));
    }
    if let Some(peer) = event.peer {
        field(into, "peer", &Value::Text(peer.to_string()));
    }
    for (name, value) in &event.details {
        field(into, name, value);
    }
    if lost != 0 {
        field(into, "lost", &Value::Number(lost));
    }
    into.push_str("}\n");
}

fn field(into: &mut String, name: &str, value: &Value) {
    let _ = write!(into, ",\"{name}\":");
    match value {
        Value::Text(text) => string(into, text),
        Value::Number(number) => {
            let _ = write!(into, "{number}");
        }
        Value::Flag(flag) => {
            let _ = write!(into, "{flag}");
        }
    }
}

/// RFC 8259: a string, cut where it is too long.
fn string(into: &mut String, text: &str) {
    let shown = cut(text, AUDIT_VALUE_BYTES);
    into.push('"');
    for c in shown.chars() {
        match c {
            '"' => into.push_str("\\\""),
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            // RFC 8259 demands escapes only for characters below U+0020. Other control characters
            // are escaped, too, because terminals interpret them. All are below U+10000, so one \u
            // escape each is enough.
            c if is_obeyed(c) => {
                let _ = write!(into, "\\u{:04x}", u32::from(c));
            }
            c => into.push(c),
        }
    }
    if shown.len() < text.len() {
        into.push_str("...");
    }
    into.push('"');
}

/// RFC 3339 in UTC, with milliseconds.
fn rfc3339(into: &mut String, time: FileTime) {
    const DAY: i64 = 86_400;
    let (seconds, nanoseconds) = time.to_unix();
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let rest = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let _ = write!(
        into,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        nanoseconds / 1_000_000
    );
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
/// The year begins in March here, so that the leap day is its last.
const fn civil(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + later, month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        for (seconds, nanoseconds, shown) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999_999_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (1_078_012_800, 0, "2004-02-29T00:00:00.000Z"),
            (4_107_542_399, 1_000_000, "2100-02-28T23:59:59.001Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
            (-1, 0, "1969-12-31T23:59:59.000Z"),
        ] {
            let mut text = String::new();
            rfc3339(&mut text, FileTime::from_unix(seconds, nanoseconds));
            assert_eq!(text, shown);
        }
    }

    #[test]
    fn strings_are_strings_whatever_is_in_them() {
        for text in ["", "ann", "a\"b\\c\n\r\t\0\u{7f}\u{9b}", "\u{202e}\u{1f600}é", "{\"a\":1}"] {
            let mut json = String::new();
            string(&mut json, text);
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            assert!(json.chars().all(|c| !is_obeyed(c)));
        }
    }

    /// Names of users change, and SIDs do not.
    #[test]
    fn a_user_of_a_domain_is_told_with_the_sid() {
        use std::sync::Arc;

        use frevo_store::security::{Privileges, Token};

        use crate::access::identity::Identity;
        use crate::audit::Kind;

        let sid = "S-1-5-21-1-2-3-1105".parse().unwrap();
        let of = |user: &str, is_local| Identity {
            user: user.into(),
            domain: "FREVO.TEST".into(),
            workstation: String::new(),
            token: Arc::new(Token::new(sid, sid, [], Privileges::EMPTY)),
            groups: Arc::default(),
            host: crate::access::host_users::OnHost::Unknown,
            administers_by: None,
            is_local,
            is_guest: user.is_empty(),
        };
        let told = |identity| {
            let mut text = String::new();
            let event = Event::new(Kind::Logoff).by(Some(Arc::new(identity)));
            line(&mut text, FileTime(0), &event, 0);
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(line.get("guest").is_some(), line["user"] == "");
            (line["user"].as_str().unwrap().to_owned(), line.get("sid").cloned())
        };
        let (user, sid) = told(of("FREVO\\ann", false));
        assert_eq!((&*user, sid), ("FREVO\\ann", Some("S-1-5-21-1-2-3-1105".into())));
        assert_eq!(told(of("ann", true)).1, None);
        assert_eq!(told(of("", false)).1, None);
    }

    #[test]
    fn long_strings_are_cut() {
        for (bytes, is_cut) in [
            (AUDIT_VALUE_BYTES - 1, false),
            (AUDIT_VALUE_BYTES, false),
            (AUDIT_VALUE_BYTES + 1, true),
        ] {
            let mut json = String::new();
            string(&mut json, &"x".repeat(bytes));
            assert_eq!(json.len(), bytes.min(AUDIT_VALUE_BYTES) + 2 + if is_cut { 3 } else { 0 });
        }
    }
}
