//! Faults in a configuration file, with their places.

use std::fmt;
use std::ops::Range;

use super::nearest::nearest;

/// Sections with their keys.
pub(super) type Keys = [(&'static str, Vec<String>)];

/// One thing that is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Number of the text that has the fault, from 0: a configuration is read from several texts.
    pub part: usize,
    /// Number of the line in that text, from 1. None if the fault has no place.
    pub line: Option<usize>,
    /// The description of the fault.
    pub what: String,
    /// Advice on how to correct the fault.
    pub hint: Option<String>,
}

impl Fault {
    /// Makes a fault at the bytes `span` of `text`.
    pub(super) fn at(text: &str, span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { line: Some(line_of(text, span.start)), ..Self::new(what) }
    }

    /// Makes a fault without a place.
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { part: 0, line: None, what: what.into(), hint: None }
    }

    /// Converts a line number that counts through all texts into a text and a line in it.
    /// `first_lines` are the numbers of the lines that the texts begin with.
    pub(super) fn locate(&mut self, first_lines: &[usize]) {
        let Some(line) = self.line else { return };
        let part = first_lines.iter().rposition(|first| *first <= line).unwrap_or(0);
        let first = first_lines.get(part).copied().unwrap_or(1);
        self.part = part;
        self.line = Some(line.saturating_sub(first).saturating_add(1));
    }

    /// Adds advice on how to correct the fault.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A fault of the TOML reader, in words for the reader of the file. `keys` are the keys of each
    /// section.
    pub(super) fn from_toml(text: &str, error: &toml::de::Error, keys: &Keys) -> Self {
        let message = error.message();
        let line = error.span().map(|span| line_of(text, span.start));
        let fault = |what: String, hint: Option<String>| Self { part: 0, line, what, hint };
        let span = error.span();
        let key = span.as_ref().and_then(|span| subject(text, span.start));
        let key = key.unwrap_or_else(|| String::from("the value"));
        if let Some((what, hint)) = mismatch(message, &key) {
            return fault(what, hint);
        }
        let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let Some((&typed, expected)) = quoted.split_first() else {
            return fault(message.to_owned(), None);
        };
        if message.starts_with("unknown field") {
            let section = span.and_then(|span| section_of(text, span.start));
            let here = section.map_or_else(String::new, |section| format!(" in {section}"));
            return fault(
                format!("unknown key `{typed}`{here}"),
                Some(unknown_key_hint(typed, expected, keys)),
            );
        }
        if message.starts_with("unknown variant") {
            let is_list =
                span.is_some_and(|span| text.get(span).is_some_and(|v| v.starts_with('[')));
            let each = if is_list && key.starts_with('`') { "each value of " } else { "" };
            let key = format!("{each}{key}");
            let hint = nearest(typed, expected.iter().copied());
            return fault(
                format!("{key} must be {}, not \"{typed}\"", alternatives(expected)),
                hint.map(|near| format!("did you mean \"{near}\"?")),
            );
        }
        if message.starts_with("missing field") {
            let section = span.and_then(|span| section_of(text, span.end));
            let section = section.unwrap_or("the file");
            return fault(format!("{section} needs the key `{typed}`"), None);
        }
        fault(message.to_owned(), None)
    }
}

/// The key whose value stands at the byte `at`, as the subject of a sentence. `None` for a
/// byte before the first key.
fn subject(text: &str, at: usize) -> Option<String> {
    text.get(..at)?.rsplit('\n').find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let key = key.trim();
        let is_key = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let is_list = value.trim_start().starts_with('[');
        let each = if is_list { "each value of " } else { "" };
        (is_key && !key.is_empty()).then(|| format!("{each}`{key}`"))
    })
}

/// The words of a list of possible values: `"a", "b" or "c"`.
fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// The fault, with its hint, of a value of the wrong type or out of the type's range: serde's
/// message in the terms of TOML. `None` for other messages.
fn mismatch(message: &str, key: &str) -> Option<(String, Option<String>)> {
    if let Some(wanted) = message.strip_prefix("expected ") {
        return Some((format!("{key} must be {wanted}"), None));
    }
    let (kind, rest) = message.split_once(": ")?;
    let (found, wanted) = rest.rsplit_once(", expected ")?;
    let is_number = wanted.starts_with(['u', 'i'])
        && wanted.ends_with(|c: char| c.is_ascii_digit())
        || wanted == "usize";
    if kind == "invalid value" && is_number {
        let is_negative = found.contains('-');
        let what = if is_negative { "must be 0 or more" } else { "is too large" };
        return Some((format!("{key} {what}"), None));
    }
    if kind != "invalid type" {
        return None;
    }
    if let (Some(text), "a sequence") = (found.strip_prefix("string "), wanted) {
        return Some((format!("{key} is a list"), Some(format!("write [{text}]"))));
    }
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("boolean", value)) => value.replace('`', ""),
        Some((_, number)) => {
            format!("the number {}", number.replace("point", "").replace('`', "").trim())
        }
        None if found == "sequence" => String::from("a list"),
        None => String::from("a section"),
    };
    let wanted = match wanted {
        "a sequence" => "a list",
        "a string" | "string" | "path string" => "a text in quotes",
        "a boolean" => "true or false",
        _ if is_number => "a whole number",
        _ if wanted.starts_with("struct") || wanted == "a map" => "a section",
        other => other,
    };
    Some((format!("{key} must be {wanted}, not {found}"), None))
}

fn unknown_key_hint(typed: &str, expected: &[&str], keys: &Keys) -> String {
    if let Some(near) = nearest(typed, expected.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    let elsewhere = keys.iter().find(|(_, keys)| keys.iter().any(|key| key == typed));
    match elsewhere {
        Some((section, _)) => format!("`{typed}` is a key of {section}"),
        None => format!("the keys here are {}", expected.join(", ")),
    }
}

/// The line of a byte, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The table header that a byte stands under.
fn section_of(text: &str, at: usize) -> Option<&str> {
    let above = text.get(..at)?;
    above.lines().rev().map(str::trim).find_map(|line| {
        let end = line.starts_with('[').then(|| line.rfind(']'))??;
        line.get(..=end)
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(self.what.trim_end())?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
