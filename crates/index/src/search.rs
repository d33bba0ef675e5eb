//! A search: the entries that a query is true of, some at a time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::chunk::Chunk;
use crate::entry::{Entry, NONE, Slot};
use crate::index::Index;
use crate::limits::{CHUNK, QUERY_CONDITIONS, QUERY_DEPTH, TEXT_BYTES};
use crate::needle::Needle;
use crate::query::{Bounds, Kind, Query, Text};

/// Entries whose comparison takes as long as passing over a chunk without one.
const CHUNK_COST: usize = 64;

/// A query that is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadQuery {
    /// It has more conditions than are compared, or more within each other.
    TooComplex,
    /// A text is too long.
    TextTooLong,
}

impl fmt::Display for BadQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooComplex => "the query has too many conditions",
            Self::TextTooLong => "a text of the query is too long",
        })
    }
}

impl core::error::Error for BadQuery {}

/// The place where a search goes on. It stays good while the index changes: a file that was there all the time is
/// told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u32);

impl Cursor {
    /// The beginning of a search.
    pub const START: Self = Self(0);

    /// Returns the number of the place, for whoever goes on with the search later.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the place of a number.
    pub const fn of_number(number: u32) -> Self {
        Self(number)
    }
}

/// A query, made ready to be compared with many names.
#[derive(Debug)]
pub struct Search {
    condition: Condition,
    /// Plain comparisons that take as long as one of the whole condition.
    cost: usize,
}

#[derive(Debug)]
enum Condition {
    All,
    Nothing,
    And(Vec<Self>),
    Or(Vec<Self>),
    /// One condition, in a list so that it is on the heap.
    Not(Vec<Self>),
    Name(Box<Needle>),
    Kind(Kind),
    Size(Bounds<u64>),
    Modified(Bounds<i64>),
    Created(Bounds<i64>),
}

impl Search {
    /// Prepares a query. Words in files are not known here: a condition on them is true of no file.
    ///
    /// # Errors
    /// For a query with too many conditions.
    pub fn new(query: &Query) -> Result<Self, BadQuery> {
        let mut conditions = 0;
        let condition = prepare(query, QUERY_DEPTH, &mut conditions)?;
        Ok(Self { cost: condition.cost(), condition })
    }
}

fn prepare(query: &Query, depth: usize, count: &mut usize) -> Result<Condition, BadQuery> {
    let depth = depth.checked_sub(1).ok_or(BadQuery::TooComplex)?;
    *count = count.saturating_add(1);
    if *count > QUERY_CONDITIONS {
        return Err(BadQuery::TooComplex);
    }
    let mut each = |queries: &[Query]| -> Result<Vec<Condition>, BadQuery> {
        queries.iter().map(|query| prepare(query, depth, count)).collect()
    };
    Ok(match query {
        Query::All => Condition::All,
        Query::Nothing | Query::Content(_) => Condition::Nothing,
        Query::And(all) => Condition::And(each(all)?),
        Query::Or(any) => Condition::Or(each(any)?),
        Query::Not(query) => Condition::Not(each(core::slice::from_ref(query))?),
        Query::Name(Text { text, .. }) if text.len() > TEXT_BYTES => {
            return Err(BadQuery::TextTooLong);
        }
        Query::Name(text) => Condition::Name(Box::new(Needle::new(text))),
        Query::Kind(kind) => Condition::Kind(*kind),
        Query::Size(bounds) => Condition::Size(*bounds),
        Query::Modified(bounds) => Condition::Modified(*bounds),
        Query::Created(bounds) => Condition::Created(*bounds),
    })
}

impl Condition {
    fn cost(&self) -> usize {
        match self {
            Self::And(all) | Self::Or(all) | Self::Not(all) => {
                all.iter().map(Self::cost).fold(1, usize::saturating_add)
            }
            Self::Name(needle) => needle.cost(),
            _ => 1,
        }
    }

    /// False if no entry of the chunk can meet the condition, as its names show at once.
    fn may_be_in(&self, chunk: &Chunk) -> bool {
        match self {
            Self::Nothing => false,
            Self::Name(needle) => needle.may_be_in(chunk.names()),
            Self::And(all) => all.iter().all(|one| one.may_be_in(chunk)),
            Self::Or(any) => any.iter().any(|one| one.may_be_in(chunk)),
            _ => true,
        }
    }

    fn is_true(&self, entry: &Entry, chunk: &Chunk) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::And(all) => all.iter().all(|one| one.is_true(entry, chunk)),
            Self::Or(any) => any.iter().any(|one| one.is_true(entry, chunk)),
            Self::Not(none) => !none.iter().any(|one| one.is_true(entry, chunk)),
            Self::Name(needle) => needle.matches(chunk.name_of(entry)),
            Self::Kind(kind) => entry.kind() == *kind,
            Self::Size(bounds) => bounds.contain(&entry.size()),
            Self::Modified(bounds) => bounds.contain(&entry.modified()),
            Self::Created(bounds) => bounds.contain(&entry.created()),
        }
    }
}

impl Index {
    /// Compares entries from `after` on with a query, at most about `budget` of them, and tells those below `scope`
    /// that meet it until `tell` returns false. Returns where the search goes on; None at its end.
    pub fn search(
        &self,
        search: &Search,
        scope: Slot,
        after: Cursor,
        budget: usize,
        mut tell: impl FnMut(Slot) -> bool,
    ) -> Option<Cursor> {
        let mut budget = budget;
        let mut slot = after.0;
        loop {
            let local = usize::try_from(slot).ok()? % CHUNK;
            let chunk = self.chunks.get(usize::try_from(slot).ok()? / CHUNK)?;
            let next_chunk = slot
                .checked_add(u32::try_from(CHUNK).ok()?)?
                .checked_sub(u32::try_from(local).ok()?)?;
            if budget == 0 {
                return Some(Cursor(slot));
            }
            if chunk.entries.is_empty() || !search.condition.may_be_in(chunk) {
                budget = budget.saturating_sub(CHUNK_COST.saturating_mul(search.cost));
                slot = next_chunk;
                continue;
            }
            for entry in chunk.entries.get(local..).unwrap_or_default() {
                if budget == 0 {
                    return Some(Cursor(slot));
                }
                budget = budget.saturating_sub(search.cost);
                let is_found = entry.is_live() && search.condition.is_true(entry, chunk);
                let goes_on = !is_found || !self.is_told(slot, scope) || tell(Slot(slot));
                slot = slot.checked_add(1).filter(|slot| *slot < NONE)?;
                if !goes_on {
                    return Some(Cursor(slot));
                }
            }
            slot = next_chunk;
        }
    }

    /// True if a file meets a query.
    pub fn meets(&self, search: &Search, slot: Slot) -> bool {
        let at = usize::try_from(slot.0).unwrap_or(usize::MAX);
        let chunk = self.chunks.get(at / CHUNK);
        let entry =
            chunk.and_then(|chunk| Some(search.condition.is_true(chunk.get(at % CHUNK)?, chunk)));
        entry.unwrap_or(false)
    }
}
