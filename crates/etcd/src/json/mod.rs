//! Requests and answers of etcd's gateway, which speaks JSON: the paths below `/v3`.
//!
//! The gateway writes protobuf's JSON: 64-bit numbers are strings, bytes are base64, and fields with
//! the value zero are left out. Every answer is checked as bytes of a stranger: by length, count and
//! nesting, and against the request that it answers.

mod answers;
mod base64;
mod fields;
mod reader;
mod refusal;
mod requests;
mod stream;
mod watched;
mod writer;

pub use answers::{
    LeaseAnswer, Member, Status, cluster_of, kept_answer, lease_answer, members_answer,
    range_answer, revision_answer, status_answer, token_answer, txn_answer,
};
pub use refusal::{Refusal, Verdict, plain_reason, refusal};
pub use requests::{authenticate, empty, grant, lease, range, txn, watch};
pub use stream::{Lines, TOO_LONG};
pub use watched::{WatchLine, watch_line};

use alloc::vec::Vec;

use crate::types::{Fault, Keys};

/// The result of reading an answer.
pub type Parsed<T> = Result<T, Fault>;

/// A call of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Reads keys.
    Range,
    /// Carries out a transaction.
    Txn,
    /// Makes a lease.
    Grant,
    /// Ends a lease.
    Revoke,
    /// Keeps a lease alive. The answer is a stream, which has one answer for each request.
    KeepAlive,
    /// Watches keys. The answer is a stream without an end.
    Watch,
    /// Asks one member for its version and its leader.
    Status,
    /// Lists the members.
    Members,
    /// Gets a token for a name and a password.
    Authenticate,
}

impl Call {
    /// The path of the call's URL.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Range => "/v3/kv/range",
            Self::Txn => "/v3/kv/txn",
            Self::Grant => "/v3/lease/grant",
            Self::Revoke => "/v3/lease/revoke",
            Self::KeepAlive => "/v3/lease/keepalive",
            Self::Watch => "/v3/watch",
            Self::Status => "/v3/maintenance/status",
            Self::Members => "/v3/cluster/member/list",
            Self::Authenticate => "/v3/auth/authenticate",
        }
    }
}

/// The keys from `first` on and before `end`. Without `end` it is one key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interval {
    first: Vec<u8>,
    /// As in etcd's interface: one zero byte means all keys from `first` on.
    end: Option<Vec<u8>>,
}

impl Interval {
    fn of(keys: &Keys) -> Self {
        match keys {
            Keys::One(key) => Self { first: key.clone(), end: None },
            Keys::Prefix(prefix) => Self { first: prefix.clone(), end: Some(prefix_end(prefix)) },
        }
    }

    /// Leaves out all keys up to `after`, and `after` itself.
    fn after(mut self, after: &[u8]) -> Self {
        if self.end.is_some() && after >= self.first.as_slice() && !after.is_empty() {
            self.first = [after, &[0]].concat();
        }
        self
    }

    fn contains(&self, key: &[u8]) -> bool {
        match self.end.as_deref() {
            None => key == self.first,
            Some([0]) => key >= self.first.as_slice(),
            Some(end) => key >= self.first.as_slice() && key < end,
        }
    }
}

/// The first key behind all keys that begin with `prefix`. etcd takes one zero byte as "no end".
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    Vec::from([0])
}

#[cfg(test)]
mod tests;
