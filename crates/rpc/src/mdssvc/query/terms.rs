//! The terms of a comparison in a query.

use super::times::Period;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frevo_index::Query;

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Letters that say how texts are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Modifiers {
    /// c
    pub(super) folds_case: bool,
    /// d
    pub(super) folds_marks: bool,
    /// w
    pub(super) is_word: bool,
}

impl Modifiers {
    pub(super) fn add(&mut self, letter: char) {
        match letter {
            'c' => self.folds_case = true,
            'd' => self.folds_marks = true,
            'w' => self.is_word = true,
            _ => {}
        }
    }
}

/// A text with the places of its wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The text between the wildcards; one more than there are wildcards.
    pub(super) parts: Vec<String>,
    /// The wildcards, `*` and `?`.
    pub(super) wildcards: Vec<char>,
    pub(super) modifiers: Modifiers,
}

impl Pattern {
    pub(super) fn plain(text: String) -> Self {
        Self { parts: vec![text], wildcards: Vec::new(), modifiers: Modifiers::default() }
    }

    /// Returns the text with its wildcards.
    pub(super) fn text(&self) -> String {
        let mut wildcards = self.wildcards.iter();
        let mut text = String::new();
        for part in &self.parts {
            text.push_str(part);
            text.extend(wildcards.next());
        }
        text
    }
}

/// A number: its whole part, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) whole: i64,
    pub(super) has_fraction: bool,
}

/// The value that an attribute is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(Pattern),
    Number(Number),
    Time(Period),
}

/// Joins conditions; one alone stays as it is.
pub(super) fn joined(mut all: Vec<Query>, join: fn(Vec<Query>) -> Query) -> Query {
    match (all.len(), all.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            all.extend(last);
            join(all)
        }
    }
}
