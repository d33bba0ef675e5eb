//! GlobalClientTable, MS-SMB2 3.3.1.16: one dialect for each ClientGuid of an account.
//!
//! The specification has one entry for each ClientGuid. It is no secret and anybody may
//! use it, so that the sessions of one account must not decide on those of another.

use std::collections::HashMap;

use frevo_proto::Dialect;
use frevo_store::order::{Ordered, rank};
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;

use crate::base::surplus::return_surplus;

#[derive(Debug)]
struct Client {
    dialect: Dialect,
    sessions: usize,
}

/// Clients that have sessions, by ClientGuid and the account's name in lower case.
#[derive(Debug, Default)]
pub struct ClientTable(Ordered<HashMap<(Guid, String), Client>, { rank::CLIENT }>);

/// The client has sessions with another dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherDialect;

impl ClientTable {
    /// Counts a new session of `user` from `guid`, which must speak the dialect of its
    /// others (MS-SMB2 3.3.5.5.3).
    pub fn enter(&self, guid: Guid, user: &str, dialect: Dialect) -> Result<(), OtherDialect> {
        let mut clients = self.0.lock();
        let client = clients.entry(key(guid, user)).or_insert(Client { dialect, sessions: 0 });
        if client.dialect != dialect {
            return Err(OtherDialect);
        }
        client.sessions += 1;
        Ok(())
    }

    /// Forgets a session of `user` from `guid`, and the client with its last one.
    pub fn leave(&self, guid: Guid, user: &str) {
        let mut clients = self.0.lock();
        let key = key(guid, user);
        if let Some(client) = clients.get_mut(&key) {
            client.sessions = client.sessions.saturating_sub(1);
            if client.sessions == 0 {
                clients.remove(&key);
                return_surplus(&mut clients);
            }
        }
    }
}

fn key(guid: Guid, user: &str) -> (Guid, String) {
    (guid, fold_name(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_one_dialect_while_it_has_sessions() {
        let table = ClientTable::default();
        let guid = Guid([7; 16]);
        table.enter(guid, "ann", Dialect::SMB_3_1_1).unwrap();
        assert_eq!(table.enter(guid, "ann", Dialect::SMB_3_0), Err(OtherDialect));
        table.enter(guid, "ann", Dialect::SMB_3_1_1).unwrap();
        table.leave(guid, "Ann");
        assert_eq!(table.enter(guid, "ann", Dialect::SMB_3_0), Err(OtherDialect));
        table.leave(guid, "Ann");
        table.enter(guid, "ann", Dialect::SMB_3_0).unwrap();
        // Sessions of other accounts may use any dialect, because the dialect is compared only
        // within an account.
        table.enter(guid, "bob", Dialect::SMB_3_1_1).unwrap();
    }
}
