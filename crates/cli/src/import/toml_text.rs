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
    // Writing to a String cannot fail.
    let _ = writeln!(toml, "{key} = {value}");
}

/// Returns a text as a TOML string without control characters, which terminals would obey.
pub(super) fn quoted(text: &str) -> String {
    if !text.contains(char::is_control) {
        return toml::Value::String(text.to_owned()).to_string();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_without_control_characters() {
        let texts =
            ["a", "a\"b", "SAMDOM\\ann", "\u{1b}[2J", "\u{9b}2J\u{7f}", "a\n'\\\"\tb", "''\"\"\n"];
        for text in texts {
            let quoted = quoted(text);
            assert!(!quoted.contains(char::is_control), "{quoted:?}");
            let table: toml::Table = format!("a = {quoted}").parse().unwrap();
            assert_eq!(table["a"].as_str(), Some(text));
        }
    }
}
