//! Exchanges of authentication tokens: MS-SMB2 3.3.1.15 (PreauthSession).

use std::sync::Arc;

use frevo_auth::Acceptor;
use frevo_proto::preauth::SessionPreauth;
use frevo_wire::Status;

use crate::ledger::Charge;
use crate::session::Session;

/// The purpose of an exchange of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
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
pub struct Authentication {
    /// The state of SPNEGO, NTLM and Kerberos.
    pub acceptor: Acceptor,
    /// PreauthSession.PreauthIntegrityHashValue
    pub preauth: SessionPreauth,
    /// The purpose of the exchange.
    pub purpose: Purpose,
    /// The session that the exchange authenticates.
    pub session: Arc<Session>,
    /// The charge of an exchange for an existing session; a new session has its own.
    pub charge: Option<Charge>,
}

impl Authentication {
    /// Adds the server's response to the hash; a further round will follow it.
    pub fn on_response(&mut self, status: Status, message: &[u8]) {
        if self.purpose != Purpose::Renew {
            self.preauth.on_response(status, &[message]);
        }
    }
}
