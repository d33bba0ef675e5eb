//! The part of a connection that only one of SMB Direct has.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use frevo_net::rdma::{Endpoint, Holder};

/// The endpoint of a connection of SMB Direct, and the account of its registered memory.
pub(super) struct Direct {
    pub(super) endpoint: Arc<Endpoint>,
    /// True once the client may have as many credits of SMB Direct as it asks for.
    pub(super) is_trusted: Cell<bool>,
    /// The holder of its registered memory.
    pub(super) registers_for: RefCell<Arc<Holder>>,
}

impl Direct {
    /// Returns the part for a client that has not logged on.
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            is_trusted: Cell::new(false),
            registers_for: RefCell::default(),
        }
    }
}
