//! What is wrong with a configuration file, and where.

use std::fmt;
use std::ops::Range;

use super::nearest::nearest;
use super::schema::keys;

/// One thing that is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: Option<usize>,
    /// What is wrong with it.
    pub what: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault at `span` of `text`.
    pub(super) fn at(text: &str, span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { line: Some(line_of(text, span.start)), what: what.into(), hint: None }
    }

    /// With advice.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the TOML reader found, in the words of somebody who reads the file.
    pub(super) fn from_toml(text: &str, error: &toml::de::Error) -> Self {
        let message = error.message();
        let line = error.span().map(|span| line_of(text, span.start));
        let fault = |what: String, hint: Option<String>| Self { line, what, hint };
        let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let Some((&typed, expected)) = quoted.split_first() else {
            return fault(message.to_owned(), None);
        };
        if message.starts_with("unknown field") {
            let section = error.span().and_then(|span| section_of(text, span.start));
            let here = section.map_or_else(String::new, |section| format!(" in {section}"));
            return fault(
                format!("unknown key `{typed}`{here}"),
                Some(unknown_key_hint(typed, expected)),
            );
        }
        if message.starts_with("unknown variant") {
            let hint = nearest(typed, expected.iter().copied()).map_or_else(
                || format!("it is one of {}", expected.join(", ")),
                |near| format!("did you mean \"{near}\"? It is one of {}", expected.join(", ")),
            );
            return fault(format!("\"{typed}\" is not known here"), Some(hint));
        }
        fault(message.to_owned(), None)
    }
}

fn unknown_key_hint(typed: &str, expected: &[&str]) -> String {
    if let Some(near) = nearest(typed, expected.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    let elsewhere = keys().into_iter().find(|(_, keys)| keys.iter().any(|key| key == typed));
    match elsewhere {
        Some((section, _)) => format!("`{typed}` is a key of {section}"),
        None => format!("the keys here are {}", expected.join(", ")),
    }
}

/// The line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
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
