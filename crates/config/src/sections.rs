//! Lines of a text of TOML: its sections and their keys, also of a text with faults.

use std::ops::Range;

/// True if the section around the byte `at` has one of these keys, be it with a fault.
pub(super) fn has_key(text: &str, at: usize, keys: &[&str]) -> bool {
    let lines: Vec<Range<usize>> = lines_of(text).collect();
    let line = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
    let is_first = |range: &Range<usize>| range.start <= at && is_header(line(range));
    let first = lines.iter().rposition(is_first).map_or(0, |header| header.saturating_add(1));
    let own = lines.iter().skip(first).map(line).take_while(|line| !is_header(line));
    own.filter_map(key_of).any(|key| keys.contains(&&*key))
}

/// The lines of a text, each with its line break.
pub(super) fn lines_of(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.split_inclusive('\n').scan(0, |start, line| {
        let range = *start..*start + line.len();
        *start = range.end;
        Some(range)
    })
}

/// True for the line that begins a section.
pub(super) fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[') && line.trim_end().ends_with(']')
        || line.trim_start().starts_with("[[")
}

/// The key of a line that has one.
pub(super) fn key_of(line: &str) -> Option<String> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim().trim_matches('"');
    let is_key = key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    (is_key && !key.is_empty()).then(|| key.to_owned())
}
