//! The number of an Open.

/// The number of an Open. Unique in the server while the Open exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub u64);
