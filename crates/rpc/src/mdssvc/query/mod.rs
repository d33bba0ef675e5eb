//! The language of queries, as Apple documents it ("File Metadata Query Expression Syntax"), in the forms that
//! Finder and `mdsearch` send.
//!
//! ```text
//! (* == "plan*"cdw || kMDItemTextContent == "plan*"cdw) && kMDItemFSSize > 1000
//! InRange(kMDItemFSContentChangeDate, $time.today(-7), $time.iso(2026-11-30T00:00:00Z))
//! ```

mod conditions;
mod terms;
mod times;
mod types;

pub(super) use types::type_of;

use crate::limits::{MAX_SPOTLIGHT_CONDITIONS, MAX_SPOTLIGHT_QUERY, MAX_SPOTLIGHT_QUERY_DEPTH};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use frevo_index::Query;
use terms::{Modifiers, Number, Operator, Pattern, Value, joined};
use times::Period;

/// A query that is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotParsed {
    /// Bytes of the query before the place.
    pub at: usize,
    /// The rule that the place breaks.
    pub why: &'static str,
}

impl fmt::Display for NotParsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the query is not understood at byte {}: {}", self.at, self.why)
    }
}

impl core::error::Error for NotParsed {}

/// Returns the condition that a query says. `now` is the time, in seconds since 1970-01-01 00:00 UTC.
///
/// # Errors
/// [`NotParsed`] for a query that is not understood, and for one that is too long, too deep, or has too many
/// conditions.
pub fn parse_query(text: &str, now: i64) -> Result<Query, NotParsed> {
    if text.len() > MAX_SPOTLIGHT_QUERY {
        return Err(NotParsed { at: MAX_SPOTLIGHT_QUERY, why: "too long" });
    }
    let mut parser = Parser { text, rest: text, now };
    let query = parser.any_of(0)?;
    parser.skip_space();
    if !parser.rest.is_empty() {
        return Err(parser.error("an operator is missing"));
    }
    let size = Size::of(&query);
    if size.conditions > MAX_SPOTLIGHT_CONDITIONS || size.depth > MAX_SPOTLIGHT_QUERY_DEPTH {
        return Err(parser.error("too many conditions"));
    }
    Ok(query)
}

/// The size of a query.
struct Size {
    conditions: usize,
    depth: usize,
}

impl Size {
    fn of(query: &Query) -> Self {
        let below = match query {
            Query::And(all) | Query::Or(all) => all.as_slice(),
            Query::Not(query) => core::slice::from_ref(&**query),
            _ => &[],
        };
        let all = below.iter().map(Self::of).fold(Self { conditions: 0, depth: 0 }, |all, one| {
            let conditions = all.conditions.saturating_add(one.conditions);
            Self { conditions, depth: all.depth.max(one.depth) }
        });
        let one_more = |number: usize| number.saturating_add(1);
        Self { conditions: one_more(all.conditions), depth: one_more(all.depth) }
    }
}

/// The part of a query that was not read yet.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    now: i64,
}

type Result<T, E = NotParsed> = core::result::Result<T, E>;

impl<'a> Parser<'a> {
    fn error(&self, why: &'static str) -> NotParsed {
        NotParsed { at: self.text.len().saturating_sub(self.rest.len()), why }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes a sign after space; false if something else follows.
    fn eat(&mut self, sign: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: &str, why: &'static str) -> Result<()> {
        if self.eat(sign) { Ok(()) } else { Err(self.error(why)) }
    }

    /// Takes the letters that `is_part` accepts.
    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        word
    }

    /// Conditions between `||`.
    fn any_of(&mut self, depth: usize) -> Result<Query> {
        let mut all = vec![self.all_of(depth)?];
        while self.eat("||") {
            all.push(self.all_of(depth)?);
        }
        Ok(joined(all, Query::Or))
    }

    /// Conditions between `&&`.
    fn all_of(&mut self, depth: usize) -> Result<Query> {
        let mut all = vec![self.condition(depth)?];
        while self.eat("&&") {
            all.push(self.condition(depth)?);
        }
        Ok(joined(all, Query::And))
    }

    fn condition(&mut self, depth: usize) -> Result<Query> {
        if depth >= MAX_SPOTLIGHT_QUERY_DEPTH {
            return Err(self.error("too deep"));
        }
        let depth = depth.saturating_add(1);
        if self.eat("!") {
            return Ok(Query::Not(Box::new(self.condition(depth)?)));
        }
        if self.eat("(") {
            let inner = self.any_of(depth)?;
            self.expect(")", "a parenthesis is open")?;
            return Ok(inner);
        }
        let attribute = self.attribute()?;
        if attribute.eq_ignore_ascii_case("InRange") && self.eat("(") {
            return self.range();
        }
        let Some(operator) = self.operator() else {
            return match attribute {
                _ if attribute.eq_ignore_ascii_case("true") => Ok(Query::All),
                _ if attribute.eq_ignore_ascii_case("false") => Ok(Query::Nothing),
                _ => Err(self.error("a comparison is missing")),
            };
        };
        let modifiers = self.bracketed()?;
        let value = self.value(modifiers)?;
        Ok(conditions::compare(attribute, operator, &value))
    }

    /// Takes the name of an attribute; `*` is any attribute.
    fn attribute(&mut self) -> Result<&'a str> {
        self.skip_space();
        let any = self.word(|letter| letter == '*');
        if !any.is_empty() {
            return Ok("*");
        }
        let is_part =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '.');
        match self.word(is_part) {
            "" => Err(self.error("an attribute is missing")),
            name => Ok(name),
        }
    }

    fn operator(&mut self) -> Option<Operator> {
        let signs = [
            ("==", Operator::Equal),
            ("=", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        signs.into_iter().find(|(sign, _)| self.eat(sign)).map(|(_, operator)| operator)
    }

    /// The rest of `InRange(attribute, least, most)`.
    fn range(&mut self) -> Result<Query> {
        let attribute = self.attribute()?;
        self.expect(",", "a comma is missing")?;
        let least = self.value(Modifiers::default())?;
        self.expect(",", "a comma is missing")?;
        let most = self.value(Modifiers::default())?;
        self.expect(")", "a parenthesis is open")?;
        Ok(Query::And(vec![
            conditions::compare(attribute, Operator::GreaterOrEqual, &least),
            conditions::compare(attribute, Operator::LessOrEqual, &most),
        ]))
    }

    /// Modifiers in brackets, before a value.
    fn bracketed(&mut self) -> Result<Modifiers> {
        let mut modifiers = Modifiers::default();
        if self.eat("[") {
            self.word(|letter| letter.is_ascii_alphabetic())
                .chars()
                .for_each(|letter| modifiers.add(letter));
            self.expect("]", "a bracket is open")?;
        }
        Ok(modifiers)
    }

    fn value(&mut self, modifiers: Modifiers) -> Result<Value> {
        for quote in ['"', '\''] {
            if self.eat(quote.encode_utf8(&mut [0; 4])) {
                return Ok(Value::Text(self.quoted(quote, modifiers)?));
            }
        }
        if self.eat("$time.") {
            return self.time().map(Value::Time);
        }
        let word =
            self.word(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '+'));
        match number(word) {
            Some(number) => Ok(Value::Number(number)),
            None if word.is_empty() => Err(self.error("a value is missing")),
            None => Ok(Value::Text(Pattern::plain(word.to_string()))),
        }
    }

    /// Takes a text up to its closing quote, and the modifiers after it.
    fn quoted(&mut self, quote: char, mut modifiers: Modifiers) -> Result<Pattern> {
        let open = self.error("a quote is open");
        let (mut parts, mut wildcards, mut part) = (Vec::new(), Vec::new(), String::new());
        let mut letters = self.rest.chars();
        loop {
            match letters.next() {
                None => return Err(open),
                Some(letter) if letter == quote => break,
                Some('\\') => part.push(letters.next().ok_or(open)?),
                Some(letter @ ('*' | '?')) => {
                    parts.push(core::mem::take(&mut part));
                    wildcards.push(letter);
                }
                Some(letter) => part.push(letter),
            }
        }
        parts.push(part);
        self.rest = letters.as_str();
        self.word(|letter| letter.is_ascii_alphabetic())
            .chars()
            .for_each(|letter| modifiers.add(letter));
        Ok(Pattern { parts, wildcards, modifiers })
    }

    /// Takes a time after `$time.`.
    fn time(&mut self) -> Result<Period> {
        let name = self.word(|letter| letter.is_ascii_alphabetic() || letter == '_');
        let mut argument = "";
        if let Some(rest) = self.rest.strip_prefix('(') {
            let end = rest.split_once(')');
            let (inner, rest) = end.ok_or(self.error("a parenthesis is open"))?;
            (argument, self.rest) = (inner.trim().trim_matches(['"', '\'']), rest);
        }
        Period::named(name, argument, self.now).ok_or(self.error("no such time"))
    }
}

/// Reads a decimal number.
fn number(word: &str) -> Option<Number> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, "0"));
    let is_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let unsigned = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    if !is_digits(unsigned) || !is_digits(fraction) {
        return None;
    }
    let has_fraction = fraction.bytes().any(|digit| digit != b'0');
    // Digits that are too many for the type are the largest number, or the smallest.
    let is_negative = whole.starts_with('-');
    let limit = if is_negative { i64::MIN } else { i64::MAX };
    let whole = whole.parse().unwrap_or(limit);
    let whole = if is_negative && has_fraction { whole.saturating_sub(1) } else { whole };
    Some(Number { whole, has_fraction })
}
