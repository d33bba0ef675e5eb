//! New connections that no session owns yet.

use std::sync::Arc;

use super::Connection;

/// A new connection without a channel. Dropping it ends the connection: an attempt that fails
/// or is given up leaves nothing behind.
pub(crate) struct Claim {
    connection: Arc<Connection>,
    is_kept: bool,
}

impl Claim {
    pub(super) const fn new(connection: Arc<Connection>) -> Self {
        Self { connection, is_kept: false }
    }

    /// Returns the connection, which the new owner ends.
    pub(crate) fn keep(mut self) -> Arc<Connection> {
        self.is_kept = true;
        Arc::clone(&self.connection)
    }
}

impl std::ops::Deref for Claim {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_kept {
            self.connection.close();
        }
    }
}
