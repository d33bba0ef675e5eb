//! Answers, each checked against its request.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::fields::{Header, NO_REVISION, Pair, result};
use super::reader::{Reader, whole};
use super::refusal::Refusal;
use super::{Interval, Parsed};
use crate::engine::RangeAnswer;
use crate::limits::{MEMBERS, NAME_BYTES, OPERATIONS, TOKEN_BYTES, TTL_SECONDS, VALUES};
use crate::types::{Fault, KeyValue, LeaseId, Op, OpAnswer, Range, Revision, Txn, TxnAnswer};

/// A lease in an answer, and its time to live from the moment of the answer on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseAnswer {
    /// The lease.
    pub lease: LeaseId,
    /// The time to live.
    pub ttl: Duration,
}

/// The state of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The member's number.
    pub member: u64,
    /// The version of its program, such as 3.4.23.
    pub version: String,
    /// The number of the leader, as this member knows it; zero for none.
    pub leader: u64,
    /// The size of the database on disk, in bytes.
    pub database_bytes: u64,
    /// The newest revision that this member has.
    pub revision: Revision,
}

/// A member of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// The member's number.
    pub id: u64,
    /// Its name. A member that was never started has none.
    pub name: String,
    /// The addresses for clients, as URLs.
    pub client_urls: Vec<String>,
}

/// The answer to a range.
///
/// # Errors
/// [`Fault::Malformed`], also for keys that were not asked for, or that are not in their order.
pub fn range_answer(body: &[u8], asked: &Range) -> Parsed<RangeAnswer> {
    let mut header = Header::default();
    let mut found = Listed::default();
    whole(body, |reader| {
        reader.object(|name, value| match name {
            b"header" => Header::read(value).map(|read| header = read),
            name => found.field(name, value),
        })
    })?;
    if header.revision == Revision(0) {
        return Err(NO_REVISION);
    }
    let Listed { values, more } = found.checked(asked, header.revision)?;
    Ok(RangeAnswer { revision: header.revision, values, more })
}

/// The keys in an answer.
#[derive(Default)]
struct Listed {
    values: Vec<KeyValue>,
    more: bool,
}

impl Listed {
    fn field(&mut self, name: &[u8], reader: &mut Reader<'_>) -> Parsed<()> {
        match name {
            b"kvs" => {
                self.values.clear();
                reader.list(VALUES, |value| {
                    self.values.push(Pair::read(value)?.existing()?);
                    Ok(())
                })
            }
            b"more" => reader.boolean().map(|more| self.more = more),
            _ => reader.skip(),
        }
    }

    /// Returns the keys if they are those that were asked for. A change in the transaction of the range
    /// may be newer than the revision of an answer's part, so `newest` is that of the whole.
    fn checked(self, asked: &Range, newest: Revision) -> Parsed<Self> {
        let interval = Interval::of(&asked.keys).after(&asked.after);
        if self.values.iter().any(|value| !interval.contains(&value.key)) {
            return Err(Fault::Malformed("a key that was not asked for"));
        }
        if !self.values.is_sorted_by(|one, next| one.key < next.key) {
            return Err(Fault::Malformed("keys that are not in their order"));
        }
        if self.values.iter().any(|value| value.mod_revision > newest) {
            return Err(Fault::Malformed("a key that is newer than its answer"));
        }
        let is_too_many = asked.limit > 0
            && u64::try_from(self.values.len()).is_ok_and(|count| count > asked.limit);
        if is_too_many {
            return Err(Fault::Malformed("more keys than were asked for"));
        }
        if self.more && self.values.is_empty() {
            return Err(Fault::Malformed("an empty part of a longer answer"));
        }
        Ok(self)
    }
}

/// The answer to a transaction.
///
/// # Errors
/// [`Fault::Malformed`], also if the answers are not those to the transaction's operations.
pub fn txn_answer(body: &[u8], asked: &Txn) -> Parsed<TxnAnswer> {
    let mut header = Header::default();
    let mut succeeded = false;
    let mut parts = Vec::new();
    whole(body, |reader| {
        reader.object(|name, value| {
            match name {
                b"header" => header = Header::read(value)?,
                b"succeeded" => succeeded = value.boolean()?,
                b"responses" => {
                    parts.clear();
                    value.list(OPERATIONS, |part| {
                        parts.push(Part::read(part)?);
                        Ok(())
                    })?;
                }
                _ => value.skip()?,
            }
            Ok(())
        })
    })?;
    let newest = header.revision;
    if newest == Revision(0) {
        return Err(NO_REVISION);
    }
    let ops = if succeeded { &asked.success } else { &asked.failure };
    if parts.len() != ops.len() {
        return Err(Fault::Malformed("another number of answers than of operations"));
    }
    let answers = parts.into_iter().zip(ops).map(|(part, op)| part.checked(op, newest));
    Ok(TxnAnswer { revision: newest, succeeded, answers: answers.collect::<Parsed<_>>()? })
}

/// The answer to one operation of a transaction.
enum Part {
    Range(Listed),
    Put,
    Delete(u64),
}

impl Part {
    fn read(reader: &mut Reader<'_>) -> Parsed<Self> {
        let mut part = None;
        reader.object(|name, value| {
            match name {
                b"response_range" => {
                    let mut found = Listed::default();
                    value.object(|name, value| found.field(name, value))?;
                    part = Some(Self::Range(found));
                }
                b"response_put" => {
                    value.skip()?;
                    part = Some(Self::Put);
                }
                b"response_delete_range" => {
                    let mut count = 0;
                    value.object(|name, value| match name {
                        b"deleted" => value.unsigned().map(|deleted| count = deleted),
                        _ => value.skip(),
                    })?;
                    part = Some(Self::Delete(count));
                }
                _ => value.skip()?,
            }
            Ok(())
        })?;
        part.ok_or(Fault::Malformed("an answer to no operation"))
    }

    fn checked(self, op: &Op, newest: Revision) -> Parsed<OpAnswer> {
        match (self, op) {
            (Self::Range(found), Op::Range(range)) => {
                let Listed { values, more } = found.checked(range, newest)?;
                Ok(OpAnswer::Range { values, more })
            }
            (Self::Put, Op::Put { .. }) => Ok(OpAnswer::Put),
            (Self::Delete(count), Op::Delete(_)) => Ok(OpAnswer::Delete(count)),
            _ => Err(Fault::Malformed("an answer to another operation")),
        }
    }
}

/// The answer to a request for a lease.
///
/// # Errors
/// [`Fault::Malformed`].
pub fn lease_answer(body: &[u8]) -> Parsed<LeaseAnswer> {
    let answer = whole(body, lease_fields)?;
    match (answer.lease, answer.ttl.as_secs()) {
        (LeaseId(0), _) => Err(Fault::Malformed("a lease without a number")),
        (_, 1..=TTL_SECONDS) => Ok(answer),
        _ => Err(Fault::Malformed("a lease whose time is none")),
    }
}

/// The answer to a request that keeps `lease` alive: the first line of a stream.
///
/// # Errors
/// [`Fault::LeaseNotFound`] if the lease has ended, which etcd tells as a time of zero.
/// [`Fault::Malformed`]. The stream may also end with a refusal.
pub fn kept_answer(line: &[u8], lease: LeaseId) -> Parsed<Result<LeaseAnswer, Refusal>> {
    let read = result(line, lease_fields)?;
    let Ok(answer) = read else { return Ok(read) };
    if answer.lease != lease {
        return Err(Fault::Malformed("an answer about another lease"));
    }
    match answer.ttl.as_secs() {
        0 => Err(Fault::LeaseNotFound),
        1..=TTL_SECONDS => Ok(Ok(answer)),
        _ => Err(Fault::Malformed("a lease whose time is none")),
    }
}

fn lease_fields(reader: &mut Reader<'_>) -> Parsed<LeaseAnswer> {
    let mut answer = LeaseAnswer { lease: LeaseId(0), ttl: Duration::ZERO };
    reader.object(|name, value| {
        match name {
            b"ID" => answer.lease = LeaseId(value.signed()?),
            // etcd has a negative time for a lease that ended before its keys were deleted.
            b"TTL" => {
                let seconds = u64::try_from(value.signed()?).unwrap_or(0);
                answer.ttl = Duration::from_secs(seconds);
            }
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(answer)
}

/// The revision in an answer that has nothing else: the end of a lease.
///
/// # Errors
/// [`Fault::Malformed`].
pub fn revision_answer(body: &[u8]) -> Parsed<Revision> {
    let header = header_of(body)?;
    if header.revision == Revision(0) { Err(NO_REVISION) } else { Ok(header.revision) }
}

/// The number of the cluster in any answer; zero if it has none.
///
/// # Errors
/// [`Fault::Malformed`].
pub fn cluster_of(body: &[u8]) -> Parsed<u64> {
    Ok(header_of(body)?.cluster)
}

/// The header of any answer.
fn header_of(body: &[u8]) -> Parsed<Header> {
    let mut header = Header::default();
    whole(body, |reader| {
        reader.object(|name, value| match name {
            b"header" => Header::read(value).map(|read| header = read),
            _ => value.skip(),
        })
    })?;
    Ok(header)
}

/// The token in the answer to a name and a password.
///
/// # Errors
/// [`Fault::Malformed`], also for a token that no head of HTTP can hold.
pub fn token_answer(body: &[u8]) -> Parsed<String> {
    let mut token = String::new();
    whole(body, |reader| {
        reader.object(|name, value| match name {
            b"token" => value.text(TOKEN_BYTES).map(|read| token = read),
            _ => value.skip(),
        })
    })?;
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Fault::Malformed("an answer without a token"));
    }
    Ok(token)
}

/// The state of a member.
///
/// # Errors
/// [`Fault::Malformed`].
pub fn status_answer(body: &[u8]) -> Parsed<Status> {
    let mut status = Status::default();
    whole(body, |reader| {
        reader.object(|name, value| {
            match name {
                b"header" => {
                    let header = Header::read(value)?;
                    (status.member, status.revision) = (header.member, header.revision);
                }
                b"version" => status.version = value.text(NAME_BYTES)?,
                b"leader" => status.leader = value.unsigned()?,
                b"dbSize" => status.database_bytes = value.unsigned()?,
                _ => value.skip()?,
            }
            Ok(())
        })
    })?;
    if status.version.is_empty() {
        return Err(Fault::Malformed("a member without a version"));
    }
    Ok(status)
}

/// The members of the cluster.
///
/// # Errors
/// [`Fault::Malformed`].
pub fn members_answer(body: &[u8]) -> Parsed<Vec<Member>> {
    let mut members = Vec::new();
    whole(body, |reader| {
        reader.object(|name, value| match name {
            b"members" => {
                members.clear();
                value.list(MEMBERS, |value| {
                    members.push(member(value)?);
                    Ok(())
                })
            }
            _ => value.skip(),
        })
    })?;
    if members.is_empty() {
        return Err(Fault::Malformed("a cluster without members"));
    }
    Ok(members)
}

fn member(reader: &mut Reader<'_>) -> Parsed<Member> {
    let mut member = Member::default();
    reader.object(|name, value| {
        match name {
            b"ID" => member.id = value.unsigned()?,
            b"name" => member.name = value.text(NAME_BYTES)?,
            b"clientURLs" => {
                member.client_urls.clear();
                value.list(MEMBERS, |url| {
                    member.client_urls.push(url.text(NAME_BYTES)?);
                    Ok(())
                })?;
            }
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(member)
}
