//! Limits. docs/limits.md has a line for each.

use core::time::Duration;

/// Smallest lease's time. etcd with its usual times grants no shorter one.
pub const TTL_MIN: Duration = Duration::from_secs(2);

/// Largest lease's time.
pub const TTL_MAX: Duration = Duration::from_secs(60);

/// Time from the end of an owner's limit until the last answer that it had begun has left it. It is a
/// part of the margin.
pub const STOP_TIME: Duration = Duration::from_millis(150);

/// The part of a lease's time by which the clocks of two machines may differ, one nth: two clocks that
/// are each wrong by one hundredth.
pub const CLOCK_ERROR_PART: u32 = 50;

/// First time between an unanswered request and its repetition; it doubles with each further one.
pub const RETRY_FIRST: Duration = Duration::from_millis(50);

/// Longest time between an unanswered request and its repetition.
pub const RETRY_MAX: Duration = Duration::from_secs(1);

/// Time between a fence that failed and the next attempt.
pub const FENCE_RETRY: Duration = Duration::from_secs(1);

/// Time for which a command waits for its effect.
pub const COMMAND_PATIENCE: Duration = Duration::from_secs(60);

/// Nodes of a cluster. Keys of further ones are ignored.
pub const NODES: usize = 64;

/// Shares of a cluster. Keys of further ones are ignored.
pub const SHARES: usize = 8_192;

/// Bytes of the name of a cluster or a node.
pub const NAME_BYTES: usize = 64;

/// Bytes of the name of a share: 80 characters of UTF-8.
pub const SHARE_NAME_BYTES: usize = 320;

/// Bytes of a value that this crate reads or writes, other than records.
pub const VALUE_BYTES: usize = 65_536;

/// Addresses of a node.
pub const ADDRESSES: usize = 32;

/// Largest weight of a node or a share.
pub const WEIGHT_MAX: u32 = 1_000;

/// Bytes of a word about a fence's target.
pub const FENCE_TEXT_BYTES: usize = 256;

/// Bytes of the names of shares in the registration of a node, of [`VALUE_BYTES`]: those that it cannot
/// take, or, if they are too many, those that it can take.
pub const NAMED_BYTES: usize = 60_000;

/// Keys in one answer to the reading of all keys other than records: so many of the largest values are
/// less than the client of etcd takes.
pub const VIEW_PART: u64 = 90;

/// Records in one answer of a load: so many of the largest ones are less than the client of etcd takes.
pub const LOAD_PART: u64 = 90;

/// Records in one transaction. With the comparisons and the number of the transaction it has fewer than
/// etcd's 128 operations.
pub const TXN_RECORDS: usize = 120;

/// Bytes of keys and values in one transaction, of etcd's 1.5 MiB.
pub const TXN_BYTES: usize = 1 << 20;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64 << 10;

/// Bytes of a root or a link of a namespace that was made over the network.
pub const NAMESPACE_ENTRY_BYTES: usize = 32 << 10;

/// Roots and links in one answer to their reading: so many of the largest ones are less than the client of
/// etcd takes.
pub const NAMESPACE_PART: u64 = 128;

/// Roots and links that one transaction changes, with fewer than etcd's 128 operations. A change of more
/// writes all of them to a new folder.
pub const NAMESPACE_CHANGES: usize = 100;

/// Attempts at a change of namespaces while other nodes change them.
pub const NAMESPACE_ATTEMPTS: usize = 32;

/// Changes of records of one share that wait.
pub const RECORDS_WAITING: usize = 65_536;

/// Bytes of records of one share that wait.
pub const RECORD_BYTES_WAITING: usize = 64 << 20;

/// Loads of records that are under way.
pub const LOADS: usize = 1_024;

/// Commands of the administrator that are under way.
pub const COMMANDS: usize = 64;

/// Shares that a node gives away at the same time.
pub const MOVES_AT_ONCE: usize = 16;

/// Transactions that take shares under way at the same time.
pub const TAKES_AT_ONCE: usize = 64;
