//! The memory of a connection, which its owner counts.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The memory that the owner of a connection allows it. It is given back when this is dropped, once
/// nothing is left of the connection.
pub trait Allowance: fmt::Debug + Send + Sync + 'static {
    /// Has the connection hold up to `bytes` from now on. False if that is more than it may have: what it had
    /// stays.
    fn resize(&self, bytes: usize) -> bool;

    /// Returns it for the owner, who knows its type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}
