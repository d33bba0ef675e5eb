//! Answers of a watch.

use alloc::string::String;
use alloc::vec::Vec;

use super::Parsed;
use super::fields::{Header, NO_REVISION, Pair, result, revision};
use super::reader::Reader;
use super::refusal::Refusal;
use crate::limits::{NAME_BYTES, VALUES};
use crate::types::{Change, Fault, Revision, WatchAnswer};

/// An answer in the stream of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchLine {
    /// The watch has begun: all later changes will be told.
    Created,
    /// An answer for the caller. Changes are those that were asked for.
    Answer(WatchAnswer),
    /// The watch has ended for this reason.
    Ended(Refusal),
}

/// A line of the stream of a watch of `prefix`, whose changes up to `after` are told already. Those
/// are left out.
///
/// # Errors
/// [`Fault::Malformed`].
pub fn watch_line(line: &[u8], prefix: &[u8], after: Revision) -> Parsed<WatchLine> {
    let Told { revision, created, canceled, reason, oldest, mut changes } =
        match result(line, Told::read)? {
            Ok(told) => told,
            Err(refusal) => return Ok(WatchLine::Ended(refusal)),
        };
    if canceled {
        // The smallest revision that is kept, where that is the reason.
        return Ok(match oldest {
            Revision(0) => WatchLine::Ended(Refusal::of_words(&reason)),
            oldest => WatchLine::Answer(WatchAnswer::Compacted { oldest }),
        });
    }
    if created {
        return Ok(WatchLine::Created);
    }
    if revision == Revision(0) {
        return Err(NO_REVISION);
    }
    if changes.iter().any(|change| !change_key(change).starts_with(prefix)) {
        return Err(Fault::Malformed("a change that was not asked for"));
    }
    if !changes.is_sorted_by_key(change_revision) {
        return Err(Fault::Malformed("changes that are not in their order"));
    }
    let newest = changes.last().map(change_revision);
    if newest.is_some_and(|newest| newest > revision) {
        return Err(Fault::Malformed("a change that is newer than its answer"));
    }
    // A member that lags behind may send changes that are known already, and they are dropped.
    changes.retain(|change| change_revision(change) > after);
    let revision = newest.unwrap_or(revision).max(after);
    Ok(WatchLine::Answer(WatchAnswer::Changes { revision, changes }))
}

fn change_key(change: &Change) -> &[u8] {
    match change {
        Change::Put(value) => &value.key,
        Change::Delete { key, .. } => key,
    }
}

fn change_revision(change: &Change) -> Revision {
    match change {
        Change::Put(value) => value.mod_revision,
        Change::Delete { revision, .. } => *revision,
    }
}

/// The fields of a watch's answer.
#[derive(Default)]
struct Told {
    revision: Revision,
    created: bool,
    canceled: bool,
    reason: String,
    oldest: Revision,
    changes: Vec<Change>,
}

impl Told {
    fn read(reader: &mut Reader<'_>) -> Parsed<Self> {
        let mut told = Self::default();
        reader.object(|name, value| {
            match name {
                b"header" => told.revision = Header::read(value)?.revision,
                b"created" => told.created = value.boolean()?,
                b"canceled" => told.canceled = value.boolean()?,
                b"cancel_reason" => told.reason = value.text(NAME_BYTES)?,
                b"compact_revision" => told.oldest = revision(value)?,
                b"fragment" if value.boolean()? => {
                    return Err(Fault::Malformed("a part of an answer"));
                }
                b"fragment" => {}
                b"events" => {
                    told.changes.clear();
                    value.list(VALUES, |event| {
                        told.changes.push(change(event)?);
                        Ok(())
                    })?;
                }
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(told)
    }
}

fn change(reader: &mut Reader<'_>) -> Parsed<Change> {
    let mut pair = None;
    let mut is_delete = false;
    reader.object(|name, value| {
        match name {
            b"type" if value.is_string() => {
                let kind = value.text(NAME_BYTES)?;
                is_delete = kind == "DELETE";
                if !is_delete && kind != "PUT" {
                    return Err(Fault::Malformed("a change of an unknown kind"));
                }
            }
            b"type" => match value.unsigned()? {
                0 => is_delete = false,
                1 => is_delete = true,
                _ => return Err(Fault::Malformed("a change of an unknown kind")),
            },
            b"kv" => pair = Some(Pair::read(value)?),
            _ => value.skip()?,
        }
        Ok(())
    })?;
    let pair = pair.ok_or(Fault::Malformed("a change of no key"))?;
    if is_delete {
        return Ok(Change::Delete { key: pair.key, revision: pair.mod_revision });
    }
    pair.existing().map(Change::Put)
}
