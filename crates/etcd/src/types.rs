//! Values of requests and answers.

use alloc::vec::Vec;
use core::fmt;

/// The number of a change in the whole of etcd. Each transaction that changes something has a larger
/// one than all before it. Zero in a comparison stands for a key that does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a lease. Zero is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// A key with its value, as it stands at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the change that made the key: the epoch of an owner.
    pub create_revision: Revision,
    /// The revision of the last change.
    pub mod_revision: Revision,
    /// The number of changes since the key was made, from 1 on.
    pub version: u64,
    /// The lease with whose end the key is deleted, or zero.
    pub lease: LeaseId,
}

/// The keys that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// One key.
    One(Vec<u8>),
    /// All keys that begin with these bytes, which are not empty.
    Prefix(Vec<u8>),
}

/// A request for keys with their values, in the order of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The keys.
    pub keys: Keys,
    /// The number of keys to return at most; zero for all.
    pub limit: u64,
    /// The key to begin after, for the next part of a long answer; empty for the first.
    pub after: Vec<u8>,
    /// The revision to look at, so that several parts belong together; zero for the newest.
    pub revision: Revision,
}

/// A change or a question within a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Asks for keys.
    Range(Range),
    /// Sets the value of a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
        /// The lease with whose end the key is deleted, or zero.
        lease: LeaseId,
    },
    /// Deletes keys. Their absence is no fault.
    Delete(Keys),
}

/// The fact of a key that a comparison looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// [`KeyValue::create_revision`]; zero if the key does not exist.
    CreateRevision(Revision),
    /// [`KeyValue::mod_revision`]; zero if the key does not exist.
    ModRevision(Revision),
    /// [`KeyValue::value`]. False for a key that does not exist.
    Value(Vec<u8>),
    /// [`KeyValue::lease`].
    Lease(LeaseId),
}

/// The relation of the fact in etcd (left) to the one in the comparison (right).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
    /// Larger.
    Greater,
    /// Smaller.
    Less,
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: Vec<u8>,
    /// The relation that must hold.
    pub relation: Relation,
    /// The fact to compare with.
    pub fact: Fact,
}

/// A transaction: if all comparisons hold, the operations of `success`, else those of `failure`. It
/// happens whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The operations if all hold.
    pub success: Vec<Op>,
    /// The operations if one does not.
    pub failure: Vec<Op>,
}

/// The answer to one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpAnswer {
    /// Keys with their values.
    Range {
        /// The keys.
        values: Vec<KeyValue>,
        /// True if there are more after the last of them.
        more: bool,
    },
    /// The value is set.
    Put,
    /// The number of keys that were deleted.
    Delete(u64),
}

/// The answer to a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxnAnswer {
    /// The newest revision after the transaction.
    pub revision: Revision,
    /// True if all comparisons held.
    pub succeeded: bool,
    /// An answer for each operation that was carried out.
    pub answers: Vec<OpAnswer>,
}

/// A change that a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key was set.
    Put(KeyValue),
    /// The key was deleted, by a request or with its lease.
    Delete {
        /// The key.
        key: Vec<u8>,
        /// The revision of the deletion.
        revision: Revision,
    },
}

/// An answer of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchAnswer {
    /// Changes, all of a revision together, in the order of the revisions.
    Changes {
        /// The newest revision of the changes, or that of the moment where there are none.
        revision: Revision,
        /// The changes.
        changes: Vec<Change>,
    },
    /// The changes after the wanted revision are no longer kept: the keys must be read again, and
    /// watched from the revision of that answer on.
    Compacted {
        /// The oldest revision that is kept.
        oldest: Revision,
    },
}

/// The reason why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No member answered in time, or etcd has no majority. A change may have happened, or may happen
    /// later.
    Unavailable(alloc::string::String),
    /// The lease does not exist: it has ended.
    LeaseNotFound,
    /// The revision is no longer kept.
    Compacted,
    /// etcd refused the request, for this reason. It did not happen.
    Refused(alloc::string::String),
    /// etcd has no space left, and says this. A change may have happened all the same: the one that takes
    /// the last space is carried out before it is refused.
    NoSpace(alloc::string::String),
    /// The answer is not one of etcd's.
    Malformed(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "etcd does not answer: {why}"),
            Self::LeaseNotFound => f.write_str("the lease in etcd has ended"),
            Self::Compacted => f.write_str("etcd no longer keeps the wanted revision"),
            Self::Refused(why) => write!(f, "etcd refused the request: {why}"),
            Self::NoSpace(why) => write!(f, "etcd has no space left: {why}"),
            Self::Malformed(what) => write!(f, "the answer is not one of etcd's: {what}"),
        }
    }
}

impl core::error::Error for Fault {}
