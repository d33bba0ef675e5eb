//! Lines of the frevo.toml.

use std::fmt::Write as _;

use super::words::truth;

/// Frevo's word for Samba's.
pub(super) fn encryption(value: &str) -> Option<&'static str> {
    match value.to_ascii_lowercase().as_str() {
        "required" | "mandatory" | "desired+required" => Some("required"),
        "desired" | "if_required" | "default" | "auto" | "enabled" => Some("offered"),
        "off" | "disabled" => Some("off"),
        other => truth(other).map(|yes| if yes { "offered" } else { "off" }),
    }
}

pub(super) fn line(toml: &mut String, key: &str, value: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(toml, "{key} = {value}");
}

/// Returns a text as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
