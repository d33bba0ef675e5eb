//! Matches names with patterns that contain wildcards, MS-FSA 2.1.4.4.
//!
//! All positions of the pattern that the name can have reached advance together, so that no pattern
//! and name take longer than the product of their lengths. Matching compares UTF-16 code units, as
//! file systems of Windows do.

use super::upcase::{eq_ignore_case, upcase_unit};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// `<` matches up to the last period, and that period.
const DOS_STAR: u16 = b'<' as u16;
/// `>` matches one character, or none at a period or the end.
const DOS_QM: u16 = b'>' as u16;
/// `"` matches a period, or nothing at the end.
const DOS_DOT: u16 = b'"' as u16;
const STAR: u16 = b'*' as u16;
const QM: u16 = b'?' as u16;
const DOT: u16 = b'.' as u16;

/// True if `text` contains a wildcard, MS-FSA 2.1.4.3.
pub fn has_wildcard(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'*' | b'?' | b'<' | b'>' | b'"'))
}

/// An expression, made ready once to be asked of many names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    ignore_case: bool,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Matches every name.
    All,
    /// Matches one name.
    Literal(String),
    Expression {
        units: Vec<u16>,
        shortcut: Option<Shortcut>,
    },
}

/// The two expressions that people type: of names in ASCII they are a
/// comparison. MS-FSA 2.1.4.4 has the first as well.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shortcut {
    /// A star and then this.
    EndsWith(String),
    /// This and then a star.
    StartsWith(String),
}

impl Shortcut {
    fn of(expression: &str) -> Option<Self> {
        let plain = |text: &&str| text.is_ascii() && !has_wildcard(text);
        let tail =
            expression.strip_prefix('*').filter(plain).map(|text| Self::EndsWith(text.to_owned()));
        let head = || {
            expression.strip_suffix('*').filter(plain).map(|text| Self::StartsWith(text.to_owned()))
        };
        tail.or_else(head)
    }

    fn matches(&self, name: &str, ignore_case: bool) -> bool {
        let name = name.as_bytes();
        let (part, text) = match self {
            Self::EndsWith(text) => {
                let start = name.len().checked_sub(text.len());
                (start.and_then(|start| name.get(start..)), text)
            }
            Self::StartsWith(text) => (name.get(..text.len()), text),
        };
        let text = text.as_bytes();
        part.is_some_and(
            |part| if ignore_case { part.eq_ignore_ascii_case(text) } else { part == text },
        )
    }
}

impl Pattern {
    /// Makes an expression ready.
    pub fn new(expression: &str, ignore_case: bool) -> Self {
        let kind = match expression {
            "*" | "*.*" => Kind::All,
            _ if !has_wildcard(expression) => Kind::Literal(expression.to_owned()),
            _ => {
                let fold = if ignore_case { upcase_unit } else { |unit| unit };
                let mut units: Vec<u16> = expression.encode_utf16().map(fold).collect();
                // Several stars in a row match the same names as one star, so they are merged.
                units.dedup_by(|a, b| *a == STAR && *b == STAR);
                Kind::Expression { units, shortcut: Shortcut::of(expression) }
            }
        };
        Self { ignore_case, kind }
    }

    /// True if every name matches.
    pub fn matches_all(&self) -> bool {
        self.kind == Kind::All
    }

    /// The one name that can match, when there is no wildcard: it can be
    /// looked up instead of searched for.
    pub fn literal(&self) -> Option<&str> {
        match &self.kind {
            Kind::Literal(name) => Some(name),
            Kind::All | Kind::Expression { .. } => None,
        }
    }

    /// Steps that it takes at most to tell whether `name` matches: an expression is
    /// run over each unit of the name.
    pub fn steps(&self, name: &str) -> usize {
        match &self.kind {
            Kind::Expression { shortcut: Some(_), .. } if name.is_ascii() => 1,
            Kind::Expression { units, .. } => units.len().saturating_mul(name.len()),
            Kind::All | Kind::Literal(_) => 1,
        }
    }

    /// True if `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        match &self.kind {
            Kind::All => !name.is_empty(),
            Kind::Literal(literal) if self.ignore_case => eq_ignore_case(literal, name),
            Kind::Literal(literal) => literal == name,
            Kind::Expression { .. } if name.is_empty() => false,
            Kind::Expression { shortcut: Some(shortcut), .. } if name.is_ascii() => {
                shortcut.matches(name, self.ignore_case)
            }
            Kind::Expression { units, .. } => {
                let words = (units.len() / 64).saturating_add(1);
                let (mut now, mut next) = ([0; INLINE_WORDS], [0; INLINE_WORDS]);
                match (now.get_mut(..words), next.get_mut(..words)) {
                    (Some(now), Some(next)) => self.run(units, name, now, next),
                    _ => self.run(units, name, &mut vec![0; words], &mut vec![0; words]),
                }
            }
        }
    }

    fn run(&self, expression: &[u16], name: &str, now: &mut [u64], next: &mut [u64]) -> bool {
        let fold = if self.ignore_case { upcase_unit } else { |unit| unit };
        let mut dots = name.bytes().filter(|b| *b == b'.').count();
        set(now, 0);
        for unit in name.encode_utf16() {
            let is_dot = unit == DOT;
            if is_dot {
                dots = dots.saturating_sub(1);
            }
            next.fill(0);
            let unit = Unit { folded: fold(unit), is_dot, is_last_dot: is_dot && dots == 0 };
            if !advance(expression, unit, now, next) {
                return false;
            }
            now.copy_from_slice(next);
        }
        finish(expression, now)
    }
}

/// Words of states for patterns that are matched without allocation: patterns of fewer than 320
/// code units.
const INLINE_WORDS: usize = 5;

/// A code unit of the name, with the facts that DOS wildcards need.
#[derive(Clone, Copy)]
struct Unit {
    folded: u16,
    is_dot: bool,
    is_last_dot: bool,
}

fn set(states: &mut [u64], state: usize) {
    if let Some(word) = states.get_mut(state / 64) {
        *word |= 1 << (state % 64);
    }
}

/// Calls `visit` with every state that is set, in rising order; `visit` may
/// set the state that follows.
fn for_each(states: &mut [u64], mut visit: impl FnMut(usize, &mut [u64])) {
    for index in 0..states.len() {
        let mut seen = 0;
        loop {
            let word = states.get(index).copied().unwrap_or(0) & !seen;
            if word == 0 {
                break;
            }
            let bit = word.trailing_zeros();
            seen |= 1 << bit;
            let state = index.saturating_mul(64).saturating_add(bit as usize);
            visit(state, states);
        }
    }
}

/// From every state in `now`, reads `unit` into `next`. States that are passed
/// without reading are added to `now`. Whether any state is left.
fn advance(expression: &[u16], unit: Unit, now: &mut [u64], next: &mut [u64]) -> bool {
    let mut any = false;
    for_each(now, |state, now| {
        let Some(element) = expression.get(state) else { return };
        let following = state.saturating_add(1);
        let (stay, pass, step) = match *element {
            STAR => (true, true, false),
            DOS_STAR => (!unit.is_last_dot, true, unit.is_last_dot),
            DOS_QM => (false, unit.is_dot, !unit.is_dot),
            DOS_DOT => (false, false, unit.is_dot),
            QM => (false, false, true),
            literal => (false, false, literal == unit.folded),
        };
        if stay {
            set(next, state);
        }
        if pass {
            set(now, following);
        }
        if step {
            set(next, following);
        }
        any |= stay || step;
    });
    any
}

/// At the end of the name: whether the end of the expression can be reached
/// without reading more.
fn finish(expression: &[u16], now: &mut [u64]) -> bool {
    let mut reached = false;
    for_each(now, |state, now| match expression.get(state) {
        None => reached = true,
        Some(&(STAR | DOS_STAR | DOS_QM | DOS_DOT)) => set(now, state.saturating_add(1)),
        Some(_) => {}
    });
    reached
}
