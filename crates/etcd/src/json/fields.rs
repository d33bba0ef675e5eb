//! Fields that several answers have.

use alloc::vec::Vec;

use super::Parsed;
use super::reader::{Reader, whole};
use super::refusal::Refusal;
use crate::limits::{ANSWER_BYTES, KEY_BYTES};
use crate::types::{Fault, KeyValue, LeaseId, Revision};

/// The fault of an answer whose header has no revision.
pub(super) const NO_REVISION: Fault = Fault::Malformed("an answer without a revision");

/// The header that each answer has.
#[derive(Default)]
pub(super) struct Header {
    pub(super) cluster: u64,
    pub(super) member: u64,
    pub(super) revision: Revision,
}

impl Header {
    pub(super) fn read(reader: &mut Reader<'_>) -> Parsed<Self> {
        let mut header = Self::default();
        reader.object(|name, value| {
            match name {
                b"cluster_id" => header.cluster = value.unsigned()?,
                b"member_id" => header.member = value.unsigned()?,
                b"revision" => header.revision = revision(value)?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(header)
    }
}

/// Reads a revision. etcd's is a number with a sign.
pub(super) fn revision(reader: &mut Reader<'_>) -> Parsed<Revision> {
    let number = reader.signed()?;
    u64::try_from(number).map(Revision).map_err(|_| Fault::Malformed("a revision below zero"))
}

/// The fields of a key with its value.
#[derive(Default)]
pub(super) struct Pair {
    pub(super) key: Vec<u8>,
    value: Vec<u8>,
    create_revision: Revision,
    pub(super) mod_revision: Revision,
    version: u64,
    lease: LeaseId,
}

impl Pair {
    pub(super) fn read(reader: &mut Reader<'_>) -> Parsed<Self> {
        let mut pair = Self::default();
        reader.object(|name, value| {
            match name {
                b"key" => pair.key = value.bytes(KEY_BYTES)?,
                b"value" => pair.value = value.bytes(ANSWER_BYTES)?,
                b"create_revision" => pair.create_revision = revision(value)?,
                b"mod_revision" => pair.mod_revision = revision(value)?,
                b"version" => pair.version = value.unsigned()?,
                b"lease" => pair.lease = LeaseId(value.signed()?),
                _ => value.skip()?,
            }
            Ok(())
        })?;
        if pair.key.is_empty() || pair.mod_revision == Revision(0) {
            return Err(Fault::Malformed("a key without a name or a revision"));
        }
        Ok(pair)
    }

    /// Returns a key that exists.
    pub(super) fn existing(self) -> Parsed<KeyValue> {
        let Self { key, value, create_revision, mod_revision, version, lease } = self;
        let is_consistent =
            create_revision > Revision(0) && create_revision <= mod_revision && version > 0;
        if !is_consistent {
            return Err(Fault::Malformed("a key whose revisions contradict each other"));
        }
        Ok(KeyValue { key, value, create_revision, mod_revision, version, lease })
    }
}

/// Reads a line of a stream: a result, or an error.
pub(super) fn result<'a, T>(
    line: &'a [u8],
    mut read: impl FnMut(&mut Reader<'a>) -> Parsed<T>,
) -> Parsed<Result<T, Refusal>> {
    let mut found = None;
    whole(line, |reader| {
        reader.object(|name, value| {
            match name {
                b"result" => found = Some(Ok(read(value)?)),
                b"error" => found = Some(Err(Refusal::read_error(value)?)),
                _ => value.skip()?,
            }
            Ok(())
        })
    })?;
    found.ok_or(Fault::Malformed("a line with neither a result nor an error"))
}
