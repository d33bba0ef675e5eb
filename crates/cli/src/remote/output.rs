//! Output for people and for scripts: sizes, times, attributes, JSON objects.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use frevo_client::{FileAttributes, Metadata};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{spelling, walk};
use crate::exit::{Done, Failure};
use crate::printable::printable;

/// A size in binary units with two digits: `4.2M`.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => bytes.to_string(),
        (_, value) if value < 9.95 => format!("{value:.1}{}", UNITS[unit]),
        _ => format!("{value:.0}{}", UNITS[unit]),
    }
}

/// The bytes of a size such as `10`, `4k`, `1.5G`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "k" | "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        unit => return Err(format!("{unit} is not a unit; use k, M, G or T")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{text} is not a size; write a number such as 65536 or 64k"))?;
    if !(number.is_finite() && number >= 0.0) {
        return Err(format!("{text} is not a size; write a number such as 65536 or 64k"));
    }
    // The cast turns a float that is too large into u64::MAX.
    Ok((number * (1_u64 << shift) as f64) as u64)
}

/// True when times are shown in UTC.
static UTC: AtomicBool = AtomicBool::new(false);

/// Shows times in UTC, not in the local time zone.
pub(crate) fn show_utc() {
    UTC.store(true, Ordering::Relaxed);
}

/// The time zone that times are shown in, and true if that is UTC, also because the local one is
/// not known.
fn zone() -> (TimeZone, bool) {
    let zone = if UTC.load(Ordering::Relaxed) { TimeZone::UTC } else { TimeZone::system() };
    let name = zone.iana_name().unwrap_or_default();
    let is_utc = zone.is_unknown() || ["UTC", "Etc/UTC", "Etc/Unknown"].contains(&name);
    (zone, is_utc)
}

/// `2026-11-22 01:20` in the local time zone, `2026-11-22 00:20Z` in UTC.
pub(crate) fn time(time: SystemTime) -> String {
    let (zone, is_utc) = zone();
    let format = if is_utc { "%Y-%m-%d %H:%MZ" } else { "%Y-%m-%d %H:%M" };
    jiff::Timestamp::try_from(time)
        .map(|stamp| stamp.to_zoned(zone))
        .map_or_else(|_| String::from("-"), |zoned| zoned.strftime(format).to_string())
}

/// A time with its seconds, for messages in which two times of a minute can meet.
pub(crate) fn time_to_the_second(time: SystemTime) -> String {
    let (zone, is_utc) = zone();
    let format = if is_utc { "%Y-%m-%d %H:%M:%SZ" } else { "%Y-%m-%d %H:%M:%S" };
    jiff::Timestamp::try_from(time)
        .map(|stamp| stamp.to_zoned(zone))
        .map_or_else(|_| String::from("-"), |zoned| zoned.strftime(format).to_string())
}

/// `2026-11-22 01:20:07.25 +01:00`, in the local time zone.
pub(crate) fn full_time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|stamp| stamp.to_zoned(zone().0)).map_or_else(
        |_| String::from("-"),
        |at| at.strftime("%Y-%m-%d %H:%M:%S%.f %:z").to_string(),
    )
}

/// A time in UTC with its fraction of a second, for scripts: RFC 3339.
pub(crate) fn exact_time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| String::new(), |stamp| stamp.to_string())
}

/// One letter for each attribute that people know.
pub(crate) fn attributes(attributes: FileAttributes) -> String {
    let letters = [
        (FileAttributes::DIRECTORY, 'd'),
        (FileAttributes::REPARSE_POINT, 'l'),
        (FileAttributes::READONLY, 'r'),
        (FileAttributes::HIDDEN, 'h'),
        (FileAttributes::SYSTEM, 's'),
        (FileAttributes::ARCHIVE, 'a'),
    ];
    letters
        .iter()
        .map(|(bit, letter)| if attributes.contains(*bit) { *letter } else { '-' })
        .collect()
}

/// The kind in a word.
pub(crate) fn kind(metadata: &Metadata) -> &'static str {
    walk::kind(metadata).word()
}

/// A file as a JSON object. `path` is spelled as on the wire.
pub(crate) fn object(path: &str, metadata: &Metadata) -> Value {
    json!({
        "path": spelling::shown(path),
        "type": kind(metadata),
        "size": metadata.len(),
        "allocated": metadata.allocation(),
        "attributes": metadata.attributes().bits(),
        "created": exact_time(metadata.created()),
        "modified": exact_time(metadata.modified()),
        "changed": exact_time(metadata.changed()),
        "accessed": exact_time(metadata.accessed()),
        // An answer without a file id has 0, which is printed as null.
        "id": (metadata.file_id() != 0).then_some(metadata.file_id()),
    })
}

/// A line to standard output. False when the reader is gone.
///
/// Names are the server's: on a terminal a control character in them is shown as
/// `?`, that none moves the cursor or types for the user.
pub(crate) fn line(text: impl std::fmt::Display) -> bool {
    let text = text.to_string();
    colored_line(if std::io::stdout().is_terminal() { printable(&text) } else { text })
}

/// Like [`line`], for text with colours, in which nothing else moves the cursor.
pub(crate) fn colored_line(text: impl std::fmt::Display) -> bool {
    match super::progress::beside(|| writeln!(std::io::stdout().lock(), "{text}")) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                let _ = UNWRITTEN.set(error.to_string());
            }
            false
        }
    }
}

/// Why lines could not be written, if the reader is not gone.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// The failure of a command whose lines could not be written.
pub(crate) fn unwritten() -> Done {
    let tried = Failure::failed("cannot write to standard output");
    UNWRITTEN.get().map_or(Ok(()), |why| Err(tried(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people_and_from_them() {
        assert_eq!(human(0), "0");
        assert_eq!(human(1023), "1023");
        assert_eq!(human(1536), "1.5k");
        assert_eq!(human(10 << 20), "10M");
        assert_eq!(parse_size("1.5k"), Ok(1536));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        assert!(parse_size("2X").is_err() && parse_size("k").is_err());
    }

    #[test]
    fn attributes_are_letters() {
        let some = FileAttributes::DIRECTORY | FileAttributes::HIDDEN;
        assert_eq!(attributes(some), "d--h--");
    }
}
