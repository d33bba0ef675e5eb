//! The charges of a connection with its association.

use std::sync::Arc;

use frevo_wire::Status;

use crate::base::limits::ASSOCIATION_BYTES;
use crate::objects::ledger::{Charge, Holder, Kind};

/// The charges of a connection: its network from the beginning on, and the account of the last logon.
pub(super) struct Counts {
    /// The connection, for its network.
    _connection: Charge,
    /// The association. It has its bytes until an account has logged on, and counts the association for
    /// its network until the end.
    association: Charge,
    account: Option<OfAccount>,
}

/// The charges of the account that has logged on.
struct OfAccount {
    _connection: Charge,
    /// The association with its bytes.
    association: Charge,
}

impl Counts {
    /// Charges a new connection to its network.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the network has as many connections as it may have.
    pub(super) fn of_network(network: &Arc<Holder>) -> Result<Self, Status> {
        let connection = network.charge(Kind::Connection, 0)?;
        let association = network.charge(Kind::Association, ASSOCIATION_BYTES)?;
        Ok(Self { _connection: connection, association, account: None })
    }

    /// Charges an account that has logged on. It replaces the account of an earlier logon, which is not
    /// charged any more.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the account has as much as it may have. The connection must end.
    pub(super) fn move_to(&mut self, account: &Arc<Holder>) -> Result<(), Status> {
        let bytes = self.held().bytes();
        // The earlier charges end first: the same account may have no place for this connection twice.
        self.account = None;
        let connection = account.charge(Kind::Connection, 0)?;
        let association = account.charge(Kind::Association, bytes)?;
        self.account = Some(OfAccount { _connection: connection, association });
        self.association.resize(0)
    }

    /// Charges the bytes that the association holds now.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when they are more than the client may have.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Status> {
        let account = self.account.as_mut().map(|account| &mut account.association);
        account.unwrap_or(&mut self.association).resize(bytes)
    }

    /// The charge that has the bytes.
    fn held(&self) -> &Charge {
        self.account.as_ref().map_or(&self.association, |account| &account.association)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ledger::Ledger;

    fn counted(holder: &Holder) -> (usize, usize, usize) {
        (holder.count(Kind::Connection), holder.count(Kind::Association), holder.bytes())
    }

    #[test]
    fn a_client_that_logs_on_again_is_counted_once() {
        let ledger = Ledger::default();
        let network = ledger.network([192, 0, 2, 1].into());
        let (ann, bob) = (ledger.account("ann"), ledger.account("bob"));
        // Each account has a place for one connection.
        ledger.set_most(Kind::Connection, Some(1), None);
        ledger.set_most(Kind::Association, Some(1), None);
        let mut counts = Counts::of_network(&network).unwrap();
        counts.resize(5_000).unwrap();
        assert_eq!(counted(&network), (1, 1, 5_000));
        for _ in 0..3 {
            counts.move_to(&ann).unwrap();
            assert_eq!((counted(&network), counted(&ann)), ((1, 1, 0), (1, 1, 5_000)));
        }
        let mut other = Counts::of_network(&network).unwrap();
        assert!(other.move_to(&ann).is_err(), "a second connection has no place");
        drop(other);
        counts.resize(7_000).unwrap();
        counts.move_to(&bob).unwrap();
        assert_eq!((counted(&ann), counted(&bob)), ((0, 0, 0), (1, 1, 7_000)));
        drop(counts);
        assert_eq!((counted(&network), counted(&bob)), ((0, 0, 0), (0, 0, 0)));
    }
}
