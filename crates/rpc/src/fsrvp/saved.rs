//! The sets as they outlive the server: MS-FSRVP 3.1.4 wants all state stored before a call returns zero.
//!
//! Fixed fields in little-endian order, texts after their length. The context that a client has set is not
//! stored: MS-FSRVP 3.1.3 begins without one.

use super::left::{LeftCopies, LeftCopy};
use super::sets::{Copy, Set, ShadowCopySets, Snapshot, Status, Timer};
use super::{Context, share_of};
use crate::limits::{
    FSRVP_LONG_TIMER, FSRVP_SHORT_TIMER, MAX_FSRVP_COPIES, MAX_FSRVP_SETS, MAX_SHADOW_COPY_NAME,
};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use frevo_wire::codec::{Malformed, Parsed, Reader};
use frevo_wire::dtyp::{FileTime, Guid};

/// The first bytes of the form without copies that were left behind, which earlier versions read.
const MAGIC: [u8; 8] = *b"FRVOSC01";
/// The first bytes of the form that ends with copies that were left behind.
const MAGIC_LEFT: [u8; 8] = *b"FRVOSC02";
const WHAT: &str = "stored shadow copies";

/// The numbers that stand for the states.
const STATES: [Status; 6] = [
    Status::Started,
    Status::Added,
    Status::CreationInProgress,
    Status::Committed,
    Status::Exposed,
    Status::Recovered,
];

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn text(r: &mut Reader<'_>) -> Parsed<String> {
    let length = usize::try_from(r.u32(WHAT)?).unwrap_or(usize::MAX);
    if length > MAX_SHADOW_COPY_NAME {
        return Err(Malformed::new(WHAT));
    }
    let bytes = r.take(length, WHAT)?;
    core::str::from_utf8(bytes).map(String::from).map_err(|_| Malformed::new(WHAT))
}

/// Reads a count, which is at most `most`.
fn count(r: &mut Reader<'_>, most: usize) -> Parsed<usize> {
    let count = usize::try_from(r.u32(WHAT)?).unwrap_or(usize::MAX);
    if count <= most { Ok(count) } else { Err(Malformed::new(WHAT)) }
}

fn guid(r: &mut Reader<'_>) -> Parsed<Guid> {
    r.array(WHAT).map(Guid)
}

fn put_copy(bytes: &mut Vec<u8>, copy: &Copy) {
    bytes.extend(copy.id.0);
    for part in [&copy.share_unc, &copy.share, &copy.volume] {
        put_text(bytes, part);
    }
    bytes.extend(copy.created.0.to_le_bytes());
    bytes.push(u8::from(copy.taken.is_some()));
    bytes.extend(copy.taken.unwrap_or(0).to_le_bytes());
    bytes.push(u8::from(copy.is_exposed));
}

fn copy(r: &mut Reader<'_>) -> Parsed<Copy> {
    let (id, share_unc, share, volume) = (guid(r)?, text(r)?, text(r)?, text(r)?);
    let created = FileTime(r.u64(WHAT)?);
    let (is_taken, taken) = (flag(r)?, r.u64(WHAT)?);
    let is_exposed = flag(r)?;
    if share_of(&share_unc).is_none() || (is_exposed && !is_taken) {
        return Err(Malformed::new(WHAT));
    }
    let taken = is_taken.then_some(taken);
    Ok(Copy { id, share_unc, share, volume, created, taken, is_exposed })
}

fn flag(r: &mut Reader<'_>) -> Parsed<bool> {
    match r.u8(WHAT)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::new(WHAT)),
    }
}

fn set(r: &mut Reader<'_>) -> Parsed<Set> {
    let (id, owner) = (guid(r)?, text(r)?);
    let status = STATES.get(usize::from(r.u8(WHAT)?)).ok_or(Malformed::new(WHAT))?;
    let context = Context(r.u32(WHAT)?);
    let copies = (0..count(r, MAX_FSRVP_COPIES)?).map(|_| copy(r)).collect::<Parsed<Vec<_>>>()?;
    // A snapshot that was being made is unknown: it is one of the server's others, and is made again.
    let status = match status {
        Status::CreationInProgress => Status::Added,
        status => *status,
    };
    Ok(Set { id, owner, status, context, copies })
}

fn put_left(bytes: &mut Vec<u8>, left: &LeftCopies) {
    bytes.extend(u32::try_from(left.0.len()).unwrap_or(u32::MAX).to_le_bytes());
    for LeftCopy { owner, snapshot } in &left.0 {
        put_text(bytes, owner);
        put_text(bytes, &snapshot.share);
        bytes.extend(snapshot.taken.to_le_bytes());
    }
}

fn left(r: &mut Reader<'_>) -> Parsed<LeftCopies> {
    let one = |r: &mut Reader<'_>| {
        let (owner, share, taken) = (text(r)?, text(r)?, r.u64(WHAT)?);
        Ok(LeftCopy { owner, snapshot: Snapshot { share, taken } })
    };
    (0..count(r, LeftCopies::MOST)?).map(|_| one(r)).collect::<Parsed<Vec<_>>>().map(LeftCopies)
}

impl ShadowCopySets {
    /// Returns the bytes to be stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let has_left = !self.left.0.is_empty();
        let mut bytes = Vec::from(if has_left { MAGIC_LEFT } else { MAGIC });
        let is_long = self.timer.is_some_and(|timer| timer.length == FSRVP_LONG_TIMER);
        bytes.push(u8::from(is_long));
        bytes.extend(u32::try_from(self.sets.len()).unwrap_or(u32::MAX).to_le_bytes());
        for set in &self.sets {
            bytes.extend(set.id.0);
            put_text(&mut bytes, &set.owner);
            let state = STATES.iter().position(|status| *status == set.status);
            bytes.push(state.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX));
            bytes.extend(set.context.0.to_le_bytes());
            bytes.extend(u32::try_from(set.copies.len()).unwrap_or(u32::MAX).to_le_bytes());
            set.copies.iter().for_each(|copy| put_copy(&mut bytes, copy));
        }
        if has_left {
            put_left(&mut bytes, &self.left);
        }
        bytes
    }

    /// Reads stored bytes. The timer of a set on its way begins again, with the length that it had.
    ///
    /// # Errors
    /// Bytes of another form.
    pub fn from_bytes(bytes: &[u8], now: Duration) -> Parsed<Self> {
        let r = &mut Reader::new(bytes);
        let has_left = match r.array(WHAT)? {
            MAGIC => false,
            MAGIC_LEFT => true,
            _ => return Err(Malformed::new(WHAT)),
        };
        let length = if flag(r)? { FSRVP_LONG_TIMER } else { FSRVP_SHORT_TIMER };
        let sets = (0..count(r, MAX_FSRVP_SETS)?).map(|_| set(r)).collect::<Parsed<Vec<_>>>()?;
        let left = if has_left { left(r)? } else { LeftCopies::default() };
        let on_their_way = sets.iter().filter(|set| set.status != Status::Recovered).count();
        if r.remaining() != 0 || on_their_way > 1 {
            return Err(Malformed::new(WHAT));
        }
        let timer = (on_their_way == 1).then(|| Timer { due: now.saturating_add(length), length });
        Ok(Self { sets, timer, left, ..Self::default() })
    }
}
