//! Numbers that no two servers of a cluster give.

use core::fmt;

/// A source of FileId.Persistent and SessionId (MS-SMB2 2.2.14.1, 2.2.1.2). A client that comes to
/// another server of a cluster names its handle and its earlier session by the numbers that the first
/// server gave, so that no two servers may give the same one.
pub trait IdSource: Send + Sync + fmt::Debug {
    /// Takes a number that was never given before, neither 0 nor `u64::MAX`. None if there is none now:
    /// the request that needs it fails with INSUFFICIENT_RESOURCES.
    fn take(&self) -> Option<u64>;
}
