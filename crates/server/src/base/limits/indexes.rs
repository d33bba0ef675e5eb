//! Indexes of shares.

use std::time::Duration;

/// Changes of a share that wait to be looked at. With more the share is walked through again.
pub const INDEX_CHANGES: usize = if cfg!(test) { 256 } else { 65_536 };

/// Bytes of the paths of these changes.
pub const INDEX_CHANGES_BYTES: usize = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// Time for which one call of Spotlight searches. What is found until then is told, and the client asks for more.
pub const SPOTLIGHT_SEARCH: Duration = Duration::from_millis(500);
