//! The results as a table, as JSON and as a live line.

use frevo_client::Share;
use serde_json::{Value, json};

use super::Plan;
use super::measure::Measured;
use super::workload::Unit;
use crate::plural::counted;
use crate::remote::output::human;

/// The percentiles of the table, and their names.
const PERCENTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];

/// The server and the protection of its messages: `SMB 3.1.1, signed (AES-GMAC)`.
fn protection(share: &Share) -> String {
    let Some(info) = share.session().info() else { return String::from("SMB") };
    let how = match info.cipher {
        Some(cipher) if info.encrypted => format!("encrypted ({cipher})"),
        _ if info.signed => format!("signed ({})", info.signing),
        _ => String::from("neither signed nor encrypted"),
    };
    format!("{}, {how}", info.dialect)
}

/// The line above the table.
pub(super) fn head(share: &Share, plan: &Plan) -> String {
    let channels = share.session().info().map_or(1, |info| info.channels);
    format!(
        "{}: {}, {}, {} each, files of {}",
        share.url(""),
        protection(share),
        counted(plan.clients, "client"),
        counted(channels, "connection"),
        human(plan.sizes.data),
    )
}

/// The object before the results.
pub(super) fn head_object(share: &Share, plan: &Plan) -> Value {
    let info = share.session().info();
    let info = info.as_ref();
    let signing = info.filter(|info| info.signed).map(|info| info.signing.to_string());
    let cipher = info.filter(|info| info.encrypted).and_then(|info| info.cipher);
    json!({
        "target": share.url(""),
        "dialect": info.map(|info| info.dialect.to_string()),
        "signing": signing,
        "cipher": cipher.map(|cipher| cipher.to_string()),
        "clients": plan.clients,
        "channels": info.map_or(1, |info| info.channels),
        "file_size": plan.sizes.data,
        "request_size": plan.sizes.block,
        "files": plan.sizes.files,
    })
}

/// The head of the table.
pub(super) fn columns() -> String {
    let names: String = PERCENTILES.iter().map(|(_, name)| format!("{name:>10}")).collect();
    format!("{:12}{:>18}{:>7}{names}{:>10}", "test", "rate", "depth", "max")
}

/// A line of the table.
pub(super) fn row(measured: &Measured) -> String {
    let cells: String = PERCENTILES
        .iter()
        .map(|(part, _)| format!("{:>10}", time(measured.latency.value_at_quantile(*part))))
        .collect();
    format!(
        "{:12}{:>18}{:>7}{cells}{:>10}",
        measured.test.name(),
        rate(measured),
        measured.depth,
        time(measured.latency.max())
    )
}

/// A result as an object.
pub(super) fn object(measured: &Measured) -> Value {
    let mut latency = serde_json::Map::new();
    for (part, name) in PERCENTILES {
        latency.insert(name.into(), measured.latency.value_at_quantile(part).into());
    }
    latency.insert("max".into(), measured.latency.max().into());
    latency.insert("mean".into(), measured.latency.mean().into());
    json!({
        "test": measured.test.name(),
        "depth": measured.depth,
        "seconds": measured.seconds,
        "cpu_seconds": measured.cpu_seconds,
        "operations": measured.operations,
        "bytes": measured.bytes,
        "entries": measured.entries,
        "unit": match measured.test.unit() {
            Unit::Bytes => "bytes",
            Unit::Operations => "operations",
            Unit::Entries => "entries",
        },
        "per_second": measured.per_second(),
        "latency_ns": latency,
    })
}

/// A rate with its unit: `1,234 MB/s`. A megabyte is a million bytes.
pub(super) fn rate(measured: &Measured) -> String {
    rate_in(measured.test.unit(), measured.per_second())
}

/// A rate in a unit.
pub(super) fn rate_in(unit: Unit, per_second: f64) -> String {
    match unit {
        Unit::Bytes if per_second < 1e8 => format!("{:.1} MB/s", per_second / 1e6),
        Unit::Bytes => format!("{} MB/s", grouped(per_second / 1e6)),
        Unit::Operations => format!("{} ops/s", grouped(per_second)),
        Unit::Entries => format!("{} entries/s", grouped(per_second)),
    }
}

/// A whole number with commas between its thousands.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A latency with its unit.
pub(super) fn time(nanoseconds: u64) -> String {
    let ns = nanoseconds as f64;
    match ns {
        _ if ns < 99.95e3 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 999.5e3 => format!("{:.0} µs", ns / 1e3),
        _ if ns < 99.95e6 => format!("{:.1} ms", ns / 1e6),
        _ if ns < 999.5e6 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_three_digits() {
        assert_eq!(time(12_345), "12.3 µs");
        assert_eq!(time(123_456), "123 µs");
        assert_eq!(time(999_700), "1.0 ms");
        assert_eq!(time(2_500_000_000), "2.5 s");
        assert_eq!([0.0, 999.0, 1e3, 1234567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
