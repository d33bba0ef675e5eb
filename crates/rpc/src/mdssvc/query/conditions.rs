//! Comparisons of attributes, as conditions of the index.

use super::terms::{Number, Operator, Pattern, Value, joined};
use super::times::Period;
use super::types;
use crate::mdssvc::value::EPOCH;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frevo_index::{Bounds, Match, Query, Text};

/// Returns the condition that an attribute compares with a value.
///
/// An attribute that the index does not know is equal to nothing: a comparison for equality is true of no file,
/// and one with `!=` of all.
pub(super) fn compare(attribute: &str, operator: Operator, value: &Value) -> Query {
    if operator == Operator::NotEqual {
        return match compare(attribute, Operator::Equal, value) {
            Query::Nothing => Query::All,
            equal => Query::Not(Box::new(equal)),
        };
    }
    match attribute {
        "*" => match (operator, value) {
            (Operator::Equal, Value::Text(pattern)) => {
                joined(vec![name(pattern), content(pattern)], Query::Or)
            }
            _ => Query::Nothing,
        },
        "kMDItemFSName" | "kMDItemDisplayName" | "_kMDItemFileName" | "kMDItemTitle" => {
            of_text(operator, value, name)
        }
        "kMDItemTextContent" => of_text(operator, value, content),
        "kMDItemContentType" | "kMDItemContentTypeTree" => {
            of_text(operator, value, |pattern| types::named(&pattern.text()))
        }
        "_kMDItemGroupId" => match (operator, value) {
            (Operator::Equal, Value::Number(number)) => types::group(number.whole),
            _ => Query::Nothing,
        },
        "kMDItemFSSize" | "kMDItemLogicalSize" | "kMDItemPhysicalSize" => match value {
            Value::Number(number) => size(operator, *number),
            _ => Query::Nothing,
        },
        "kMDItemFSContentChangeDate"
        | "kMDItemContentModificationDate"
        | "kMDItemAttributeChangeDate"
        // The server does not know when a file was opened last. Its change is what comes next to it.
        | "kMDItemLastUsedDate" => date(operator, value, Query::Modified),
        "kMDItemFSCreationDate" | "kMDItemContentCreationDate" | "kMDItemDateAdded" => {
            date(operator, value, Query::Created)
        }
        _ => Query::Nothing,
    }
}

fn of_text(operator: Operator, value: &Value, condition: impl Fn(&Pattern) -> Query) -> Query {
    match value {
        Value::Text(pattern) if operator == Operator::Equal => condition(pattern),
        Value::Number(number) if operator == Operator::Equal && !number.has_fraction => {
            condition(&Pattern::plain(alloc::format!("{}", number.whole)))
        }
        _ => Query::Nothing,
    }
}

/// A condition on the name.
fn name(pattern: &Pattern) -> Query {
    let is_word = pattern.modifiers.is_word;
    let text = |text: &str, part: Match| Query::Name(text_of(pattern, text, part));
    let parts: Vec<_> = pattern.parts.iter().map(String::as_str).collect();
    let has_one_letter = pattern.wildcards.contains(&'?');
    match parts[..] {
        [only] => text(only, if is_word { Match::Word } else { Match::Whole }),
        _ if has_one_letter => text(&pattern.text(), Match::Pattern),
        _ if parts.iter().all(|part| part.is_empty()) => Query::All,
        [part, ""] => text(part, if is_word { Match::Word } else { Match::Beginning }),
        ["", part] => text(part, Match::End),
        ["", part, ""] => text(part, Match::Within),
        _ => text(&pattern.text(), Match::Pattern),
    }
}

/// A condition on the words in a file: the text of a file as a whole is never meant.
fn content(pattern: &Pattern) -> Query {
    let at = if pattern.parts.first().is_some_and(String::is_empty) {
        Match::Within
    } else {
        Match::Word
    };
    let texts = pattern.parts.iter().filter(|part| !part.is_empty());
    let all: Vec<_> = texts.map(|text| Query::Content(text_of(pattern, text, at))).collect();
    if all.is_empty() { Query::Nothing } else { joined(all, Query::And) }
}

fn text_of(pattern: &Pattern, text: &str, part: Match) -> Text {
    Text {
        text: text.into(),
        part,
        fold_case: pattern.modifiers.folds_case,
        fold_marks: pattern.modifiers.folds_marks,
    }
}

/// The numbers that a comparison is true of. None if there are none.
fn bounds(operator: Operator, number: Number) -> Option<Bounds<i64>> {
    let Number { whole, has_fraction } = number;
    let (from, to) = match operator {
        Operator::Equal if has_fraction => return None,
        Operator::Equal => (Some(whole), Some(whole)),
        Operator::Less if has_fraction => (None, Some(whole)),
        Operator::Less => (None, Some(whole.checked_sub(1)?)),
        Operator::LessOrEqual => (None, Some(whole)),
        Operator::GreaterOrEqual if !has_fraction => (Some(whole), None),
        Operator::Greater | Operator::GreaterOrEqual => (Some(whole.checked_add(1)?), None),
        Operator::NotEqual => (None, None),
    };
    Some(Bounds { from, to })
}

fn size(operator: Operator, number: Number) -> Query {
    let Some(Bounds { from, to }) = bounds(operator, number) else { return Query::Nothing };
    if to.is_some_and(|to| to < 0) {
        return Query::Nothing;
    }
    let unsigned = |bound: Option<i64>| bound.map(|bound| u64::try_from(bound).unwrap_or(0));
    Query::Size(Bounds { from: unsigned(from), to: unsigned(to) })
}

/// A condition on a time. A number counts seconds from 2001 on. A day or a month is equal to all times in it.
fn date(operator: Operator, value: &Value, condition: fn(Bounds<i64>) -> Query) -> Query {
    let from_2001 = |number: &Number| number.whole.saturating_add(EPOCH);
    let found = match (operator, value) {
        (Operator::Equal, Value::Time(Period { from, to })) => {
            Some(Bounds { from: Some(*from), to: Some(*to) })
        }
        (operator, Value::Time(Period { from, .. })) => {
            bounds(operator, Number { whole: *from, has_fraction: false })
        }
        (operator, Value::Number(number)) => {
            bounds(operator, Number { whole: from_2001(number), ..*number })
        }
        (_, Value::Text(_)) => None,
    };
    found.map_or(Query::Nothing, condition)
}
