//! Exchanges of authentication tokens: MS-SMB2 3.3.1.15 (PreauthSession).

use std::collections::HashMap;
use std::sync::Arc;

use frevo_auth::Acceptor;
use frevo_proto::preauth::SessionPreauth;
use frevo_wire::Status;

use crate::objects::ledger::Charge;
use crate::objects::session::Session;

/// The purpose of an exchange of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A new session: MS-SMB2 3.3.5.5.1.
    New,
    /// Authenticating anew: MS-SMB2 3.3.5.5.2. The keys stay, and the pre-authentication
    /// hash is not touched.
    Renew,
    /// A further channel of an existing session.
    Bind,
}

/// An exchange of tokens under way on one connection.
#[derive(Debug)]
pub(crate) struct Authentication {
    /// The state of SPNEGO, NTLM and Kerberos.
    pub acceptor: Acceptor,
    /// PreauthSession.PreauthIntegrityHashValue
    pub preauth: SessionPreauth,
    /// The purpose of the exchange.
    pub purpose: Purpose,
    /// The session that the exchange authenticates.
    pub session: Arc<Session>,
    /// The charge of the exchange, to the account of the session or of the connection. A stranger's new
    /// session has one of its own alone.
    pub charge: Option<Charge>,
}

impl Authentication {
    /// Adds the server's response to the hash; a further round will follow it.
    pub(crate) fn on_response(&mut self, status: Status, message: &[u8]) {
        if self.purpose != Purpose::Renew {
            self.preauth.on_response(status, &[message]);
        }
    }
}

/// The exchanges under way on one connection, by session. An idle connection has none and keeps no
/// memory for them.
#[derive(Debug, Default)]
pub(crate) struct Authentications(HashMap<u64, Box<Authentication>>);

impl Authentications {
    /// Keeps an exchange until its next token.
    pub(crate) fn insert(&mut self, session: u64, authentication: Authentication) {
        self.0.insert(session, Box::new(authentication));
    }

    /// Takes the exchange of a session out.
    pub(crate) fn remove(&mut self, session: u64) -> Option<Authentication> {
        let removed = self.0.remove(&session);
        if self.0.is_empty() {
            self.0.shrink_to_fit();
        }
        removed.map(|authentication| *authentication)
    }

    /// The exchange of a session.
    pub(crate) fn get_mut(&mut self, session: u64) -> Option<&mut Authentication> {
        self.0.get_mut(&session).map(AsMut::as_mut)
    }

    /// The number of exchanges.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The sessions of the exchanges.
    pub(crate) fn sessions(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }
}
