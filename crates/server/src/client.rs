//! GlobalClientTable, MS-SMB2 3.3.1.16: one dialect for each ClientGuid.

use std::collections::HashMap;

use frevo_proto::Dialect;
use frevo_store::order::{Ordered, rank};
use frevo_wire::dtyp::Guid;

#[derive(Debug)]
struct Client {
    dialect: Dialect,
    sessions: usize,
}

/// Clients that have sessions, by ClientGuid.
#[derive(Debug, Default)]
pub struct ClientTable(Ordered<HashMap<Guid, Client>, { rank::CLIENT }>);

/// The client has sessions with another dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherDialect;

impl ClientTable {
    /// Counts a new session of `guid`, which must speak the dialect of its
    /// others (MS-SMB2 3.3.5.5.3).
    pub fn enter(&self, guid: Guid, dialect: Dialect) -> Result<(), OtherDialect> {
        let mut clients = self.0.lock();
        let client = clients.entry(guid).or_insert(Client { dialect, sessions: 0 });
        if client.dialect != dialect {
            return Err(OtherDialect);
        }
        client.sessions += 1;
        Ok(())
    }

    /// Forgets a session of `guid`, and the client with its last one.
    pub fn leave(&self, guid: Guid) {
        let mut clients = self.0.lock();
        if let Some(client) = clients.get_mut(&guid) {
            client.sessions = client.sessions.saturating_sub(1);
            if client.sessions == 0 {
                clients.remove(&guid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_one_dialect_while_it_has_sessions() {
        let table = ClientTable::default();
        let guid = Guid([7; 16]);
        table.enter(guid, Dialect::SMB_3_1_1).unwrap();
        assert_eq!(table.enter(guid, Dialect::SMB_3_0), Err(OtherDialect));
        table.enter(guid, Dialect::SMB_3_1_1).unwrap();
        table.leave(guid);
        assert_eq!(table.enter(guid, Dialect::SMB_3_0), Err(OtherDialect));
        table.leave(guid);
        table.enter(guid, Dialect::SMB_3_0).unwrap();
    }
}
