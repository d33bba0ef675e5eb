//! Numbers and times for people.

use serde_json::Value;

/// Bytes with a unit: `1.2 GB`.
pub(super) fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut count = count.max(0.0);
    let mut unit = 0;
    while count >= 999.5 && unit + 1 < UNITS.len() {
        count /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && count < 9.95);
    format!("{count:.digits$} {}", UNITS.get(unit).copied().unwrap_or_default())
}

/// A time in the two largest units: `3 d 4 h`.
pub(super) fn span(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let at = units.iter().position(|(_, length)| seconds >= *length).unwrap_or(3);
    let (name, length) = units[at];
    let first = format!("{} {name}", seconds / length);
    match units.get(at + 1).map(|(name, part)| (name, seconds % length / part)) {
        Some((name, rest)) if rest > 0 && at < 2 => format!("{first} {rest} {name}"),
        _ => first,
    }
}

/// The text of a field; empty if it is none.
pub(super) fn text(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap_or_default().to_owned()
}

/// The number of a field; 0 if it is none.
pub(super) fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or(0)
}

/// The cipher, or else the signing algorithm.
pub(super) fn protection(row: &Value) -> String {
    match (row["encryption"].as_str(), row["signing"].as_str()) {
        (Some(cipher), _) => cipher.to_owned(),
        (None, Some(algorithm)) => format!("signed, {algorithm}"),
        (None, None) => String::from("none"),
    }
}

/// A number as one of floating point, exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let shown: Vec<String> =
            [0.0, 999.0, 1_000.0, 9_960.0, 1.25e9, 4e15].into_iter().map(bytes).collect();
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "10 kB", "1.2 GB", "4000 TB"]);
        let shown: Vec<String> = [0, 59, 61, 3_600, 90_000, 273_600].map(span).to_vec();
        assert_eq!(shown, ["0 s", "59 s", "1 min", "1 h", "1 d 1 h", "3 d 4 h"]);
    }
}
