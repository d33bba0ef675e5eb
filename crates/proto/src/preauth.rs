//! The pre-authentication integrity chain of 3.1.1: MS-SMB2 3.2.5.2 and 3.3.5.4 for the Connection,
//! 3.2.5.3 and 3.3.5.5 for each session setup.
//!
//! Messages are passed in parts and without the transport's prefix: from their SMB2 header to the
//! last byte that was sent or received.

use frevo_crypto::PreauthHash;
use frevo_wire::Status;

/// Connection.PreauthIntegrityHashValue: the hash of the NEGOTIATE request and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionPreauth(PreauthHash);

impl ConnectionPreauth {
    /// Makes the value before NEGOTIATE.
    pub const fn new() -> Self {
        Self(PreauthHash::new())
    }

    /// Adds the NEGOTIATE request, later its response.
    pub fn on_negotiate(&mut self, message_parts: &[&[u8]]) {
        self.0.update(message_parts);
    }

    /// Returns the chain of a new session setup or binding. Each begins with the Connection's
    /// value, which no later message changes.
    pub const fn session_setup(&self) -> SessionPreauth {
        SessionPreauth(self.0)
    }
}

/// Session.PreauthIntegrityHashValue, or while a channel is bound that of a PreauthSession.
/// Re-authentication has none, because its keys stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPreauth(PreauthHash);

impl SessionPreauth {
    /// Adds a SESSION_SETUP request.
    pub fn on_request(&mut self, message_parts: &[&[u8]]) {
        self.0.update(message_parts);
    }

    /// Adds a SESSION_SETUP response if it asks for another round. The final response, successful
    /// or not, is not added: keys that are derived before sign it.
    pub fn on_response(&mut self, status: Status, message_parts: &[&[u8]]) {
        if status == Status::MORE_PROCESSING_REQUIRED {
            self.0.update(message_parts);
        }
    }

    /// Returns the value for the key derivation, after the last request.
    pub const fn hash(&self) -> &PreauthHash {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(messages: &[&[u8]]) -> PreauthHash {
        let mut hash = PreauthHash::new();
        for message in messages {
            hash.update(&[message]);
        }
        hash
    }

    #[test]
    fn chain_of_a_setup_in_two_rounds() {
        let mut connection = ConnectionPreauth::new();
        connection.on_negotiate(&[b"negotiate request"]);
        connection.on_negotiate(&[b"negotiate ", b"response"]);
        let before = connection;
        let mut session = connection.session_setup();
        session.on_request(&[b"setup 1"]);
        session.on_response(Status::MORE_PROCESSING_REQUIRED, &[b"go on"]);
        session.on_request(&[b"setup 2"]);
        let at_keys = *session.hash();
        session.on_response(Status::SUCCESS, &[b"welcome"]);
        assert_eq!(*session.hash(), at_keys);
        let messages: [&[u8]; 5] =
            [b"negotiate request", b"negotiate response", b"setup 1", b"go on", b"setup 2"];
        assert_eq!(at_keys, hash_of(&messages));
        assert_eq!(connection, before);
    }

    #[test]
    fn failures_and_other_sessions_leave_the_connection_alone() {
        let mut connection = ConnectionPreauth::new();
        connection.on_negotiate(&[b"n"]);
        let mut failed = connection.session_setup();
        failed.on_request(&[b"bad"]);
        let before = *failed.hash();
        failed.on_response(Status::LOGON_FAILURE, &[b"no"]);
        assert_eq!(*failed.hash(), before);
        let mut next = connection.session_setup();
        next.on_request(&[b"good"]);
        assert_eq!(*next.hash(), hash_of(&[b"n", b"good"]));
    }
}
