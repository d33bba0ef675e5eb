//! The limits of a server that its owner chooses.

use std::time::Duration;

use crate::base::limits;
use crate::objects::ledger::{Kind, Ledger};

/// The limits of a server that its owner chooses.
///
/// `docs/limits.md` lists the limits that are fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time. [`Server::serve`](crate::Server::serve) closes further ones
    /// at once.
    pub connections: usize,
    /// The time that requests under way get once the server is told to stop.
    pub drain: Duration,
    /// Bytes that the server keeps for its clients. Beyond it the client with the most
    /// loses connections.
    pub memory: usize,
    /// Bytes of free buffers that one core keeps for the next request. None: a sixteenth of
    /// `memory`, divided among the cores.
    pub pool_per_core: Option<usize>,
    /// Connections of one account. None: the default of `docs/limits.md`. Never more than three quarters
    /// of `connections`.
    pub connections_per_user: Option<usize>,
    /// Connections of one network of clients before logon. None: the default.
    pub connections_per_address: Option<usize>,
    /// Sessions of one account. None: the default.
    pub sessions_per_user: Option<usize>,
    /// Open files of one account. None: the default.
    pub opens_per_user: Option<usize>,
    /// File descriptors that the process may have. None: no limit that the server heeds.
    pub descriptors: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS,
            drain: limits::DRAIN,
            memory: limits::MEMORY,
            pool_per_core: None,
            connections_per_user: None,
            connections_per_address: None,
            sessions_per_user: None,
            opens_per_user: None,
            descriptors: None,
        }
    }
}

impl Limits {
    /// Applies the limits of memory, accounts and networks.
    pub(super) fn apply(&self, ledger: &Ledger) {
        ledger.set_limit(self.memory);
        let networks = self.connections_per_address;
        ledger.set_most(Kind::Connection, Some(self.connections_of_account()), networks);
        ledger.set_most(Kind::Session, self.sessions_per_user, None);
        ledger.set_most(Kind::Open, self.opens_per_user, self.opens_per_user);
    }

    /// Connections that one account may have: not the last quarter of all, so that others can log on.
    fn connections_of_account(&self) -> usize {
        let wanted = self.connections_per_user.unwrap_or(limits::CONNECTIONS_PER_USER);
        wanted.min(self.connections - self.connections / 4)
    }

    /// Bytes of free buffers that each of `cores` cores keeps.
    pub(super) fn pool_of_each(&self, cores: usize) -> usize {
        self.pool_per_core.unwrap_or(self.memory / limits::POOL_SHARE / cores.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_account_leaves_connections_to_others() {
        let ledger = Ledger::default();
        Limits { connections: 8, ..Limits::default() }.apply(&ledger);
        let ann = ledger.account("ann");
        let held: Vec<_> = (0..6).map(|_| ann.charge(Kind::Connection, 0).unwrap()).collect();
        assert!(ann.charge(Kind::Connection, 0).is_err(), "the last quarter");
        assert!(ledger.account("bob").charge(Kind::Connection, 0).is_ok());
        drop(held);
        Limits { connections: 8, connections_per_user: Some(2), ..Limits::default() }
            .apply(&ledger);
        let _held: Vec<_> = (0..2).map(|_| ann.charge(Kind::Connection, 0).unwrap()).collect();
        assert!(ann.charge(Kind::Connection, 0).is_err());
    }
}
