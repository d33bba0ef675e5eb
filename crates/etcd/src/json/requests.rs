//! Bodies of requests.

use alloc::vec::Vec;

use super::Interval;
use super::writer::Object;
use crate::limits::{KEY_BYTES, OPERATIONS, REQUEST_BYTES};
use crate::types::{Compare, Fact, Fault, Keys, LeaseId, Op, Range, Relation, Revision, Txn};

/// The body of a request without fields.
pub fn empty() -> Vec<u8> {
    b"{}".to_vec()
}

/// The body of a range.
///
/// # Errors
/// [`Fault::Refused`] if a key is empty or longer than [`KEY_BYTES`].
pub fn range(range: &Range) -> Result<Vec<u8>, Fault> {
    checked_keys(&range.keys)?;
    let mut out = Vec::new();
    write_range(range, &mut Object::new(&mut out));
    Ok(out)
}

/// The body of a transaction.
///
/// # Errors
/// [`Fault::Refused`] if a key is empty or longer than [`KEY_BYTES`], if there are more than
/// [`OPERATIONS`] operations in a branch or conditions, or if the body is longer than
/// [`REQUEST_BYTES`].
pub fn txn(txn: &Txn) -> Result<Vec<u8>, Fault> {
    let longest = txn.compares.len().max(txn.success.len()).max(txn.failure.len());
    if longest > OPERATIONS {
        return Err(Fault::Refused("the transaction has too many operations".into()));
    }
    for compare in &txn.compares {
        checked_key(&compare.key)?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(range) => checked_keys(&range.keys)?,
            Op::Put { key, .. } => checked_key(key)?,
            Op::Delete(keys) => checked_keys(keys)?,
        }
    }
    let mut out = Vec::new();
    let mut object = Object::new(&mut out);
    object.list("compare", &txn.compares, write_compare);
    object.list("success", &txn.success, write_op);
    object.list("failure", &txn.failure, write_op);
    drop(object);
    if out.len() > REQUEST_BYTES {
        return Err(Fault::Refused("the transaction is too long".into()));
    }
    Ok(out)
}

/// The body that makes a lease, whose number etcd chooses.
pub fn grant(ttl_seconds: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Object::new(&mut out).number("TTL", ttl_seconds);
    out
}

/// The body of a request about a lease: to end it, or to keep it alive.
pub fn lease(lease: LeaseId) -> Vec<u8> {
    let mut out = Vec::new();
    Object::new(&mut out).number("ID", lease.0);
    out
}

/// The body that begins a watch of the changes behind `after`.
///
/// It asks for those of `after`, too, which [`watch_line`](super::watch_line) leaves out. etcd says that
/// changes are no longer kept if the first wanted revision is smaller than the compacted one. Of the
/// compacted revision itself it tells no deletions (3.4.23 and others): a watch that begins there would
/// miss the end of an owner's key for good.
///
/// # Errors
/// [`Fault::Refused`] if the prefix is empty or longer than [`KEY_BYTES`].
pub fn watch(prefix: &[u8], after: Revision) -> Result<Vec<u8>, Fault> {
    checked_key(prefix)?;
    let mut out = Vec::new();
    Object::new(&mut out).object("create_request", |create| {
        write_keys(&Interval::of(&Keys::Prefix(prefix.to_vec())), create);
        // A start revision of zero would mean only later revisions, so 1 is the smallest.
        create.number("start_revision", after.0.max(1));
        create.yes("progress_notify");
    });
    Ok(out)
}

/// The body that asks for a token.
pub fn authenticate(name: &str, password: &str) -> Vec<u8> {
    // The full capacity is reserved at once, because a growing vector leaves copies of the password
    // in freed memory.
    let mut out = Vec::with_capacity(
        name.len().saturating_add(password.len()).saturating_mul(6).saturating_add(64),
    );
    let mut object = Object::new(&mut out);
    object.text("name", name);
    object.text("password", password);
    drop(object);
    out
}

fn checked_key(key: &[u8]) -> Result<(), Fault> {
    match key.len() {
        0 => Err(Fault::Refused("the key is empty".into())),
        1..=KEY_BYTES => Ok(()),
        _ => Err(Fault::Refused("the key is too long".into())),
    }
}

fn checked_keys(keys: &Keys) -> Result<(), Fault> {
    let (Keys::One(key) | Keys::Prefix(key)) = keys;
    checked_key(key)
}

fn write_keys(interval: &Interval, object: &mut Object<'_>) {
    object.bytes("key", &interval.first);
    if let Some(end) = &interval.end {
        object.bytes("range_end", end);
    }
}

fn write_range(range: &Range, object: &mut Object<'_>) {
    write_keys(&Interval::of(&range.keys).after(&range.after), object);
    if range.limit > 0 {
        object.number("limit", range.limit);
    }
    if range.revision > Revision(0) {
        object.number("revision", range.revision);
    }
}

fn write_op(op: &Op, object: &mut Object<'_>) {
    match op {
        Op::Range(range) => object.object("request_range", |object| write_range(range, object)),
        Op::Put { key, value, lease } => object.object("request_put", |object| {
            object.bytes("key", key);
            object.bytes("value", value);
            if lease.0 != 0 {
                object.number("lease", lease.0);
            }
        }),
        Op::Delete(keys) => {
            object.object("request_delete_range", |object| write_keys(&Interval::of(keys), object))
        }
    }
}

fn write_compare(compare: &Compare, object: &mut Object<'_>) {
    object.bytes("key", &compare.key);
    object.text(
        "result",
        match compare.relation {
            Relation::Equal => "EQUAL",
            Relation::NotEqual => "NOT_EQUAL",
            Relation::Greater => "GREATER",
            Relation::Less => "LESS",
        },
    );
    match &compare.fact {
        Fact::CreateRevision(revision) => {
            object.text("target", "CREATE");
            object.number("create_revision", revision);
        }
        Fact::ModRevision(revision) => {
            object.text("target", "MOD");
            object.number("mod_revision", revision);
        }
        Fact::Value(value) => {
            object.text("target", "VALUE");
            object.bytes("value", value);
        }
        Fact::Lease(lease) => {
            object.text("target", "LEASE");
            object.number("lease", lease.0);
        }
    }
}
