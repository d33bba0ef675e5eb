//! The one place that decides which protection a message gets: MS-SMB2 3.2.4.1.1 and 3.2.4.1.8 for
//! requests, 3.3.4.1.1 and 3.3.4.1.4 for responses and notifications.

use frevo_wire::{Command, Status};

/// The protection of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Neither signed nor encrypted.
    None,
    /// Signed.
    Signed,
    /// Encrypted.
    Sealed,
}

/// A request that a client is about to send in a session. The requests of a logon, which come before
/// the session has keys, and those that bind a connection are not of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Session.EncryptData
    pub session_seals: bool,
    /// TreeConnect.EncryptData, or Share.EncryptData
    pub tree_seals: bool,
    /// Session.SigningRequired, or the user wants it.
    pub session_signs: bool,
    /// The request protects the negotiation (MS-SMB2 3.2.5.5, 3.3.5.7): it is signed in any case.
    pub must_sign: bool,
    /// There is a Channel.SigningKey. A guest has none.
    pub has_signing_key: bool,
    /// Connection.AcceptTransportSecurity: the transport encrypts in place of SMB.
    pub transport_seals: bool,
}

impl Request {
    /// Returns the protection of the request.
    pub const fn protection(&self) -> Protection {
        // MS-SMB2 3.2.4.1.8: a request is encrypted if the session or the tree connect demands
        // encryption. MS-SMB2 2.2.3.1.5: encryption by the transport stands for it.
        if (self.session_seals || self.tree_seals) && !self.transport_seals {
            return Protection::Sealed;
        }
        // MS-SMB2 3.2.4.1.1: a request is signed if the session signs all requests and it is not
        // encrypted, or if this one must be signed.
        let signs = self.session_signs && !self.transport_seals;
        if self.has_signing_key && (signs || self.must_sign) {
            return Protection::Signed;
        }
        Protection::None
    }
}

/// The kind of a message that a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The response to a request with this command and status.
    Final(Command, Status),
    /// An interim response.
    Interim,
    /// A message that no request asked for. True if the tree connect of its Open encrypts.
    Notification(bool),
    /// The news that the session has ended, MS-SMB2 2.2.44.2.
    SessionClosed,
}

impl Answer {
    /// True for the responses before a session has keys, which enter the pre-authentication hash as
    /// they are.
    const fn is_setup(self) -> bool {
        matches!(self, Self::Final(Command::NEGOTIATE | Command::SESSION_SETUP, _))
    }
}

/// The owner of the key that signs a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// Channel.SigningKey
    Channel,
    /// Session.SigningKey, while a channel is being bound.
    Session,
}

/// A message that a server is about to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The kind of the message.
    pub answer: Answer,
    /// The protection of the request; `None` for a notification.
    pub request: Protection,
    /// Connection.Dialect belongs to the SMB 3.x family.
    pub is_smb3: bool,
    /// Session.EncryptData; false without a session.
    pub session_seals: bool,
    /// Session.SigningRequired; false without a session.
    pub session_signs: bool,
    /// There is a Channel.SigningKey.
    pub has_channel_key: bool,
    /// The request binds the connection to a session whose key has proved it.
    pub is_binding: bool,
    /// The response stays without a signature, because its client has no key for it.
    pub is_unsigned: bool,
    /// Connection.AcceptTransportSecurity: the transport encrypts in place of SMB.
    pub transport_seals: bool,
}

impl Response {
    /// Returns true if the message is encrypted: MS-SMB2 3.3.4.1.4.
    pub const fn is_sealed(&self) -> bool {
        if matches!(self.request, Protection::Sealed) {
            return true;
        }
        let seals = match self.answer {
            Answer::Notification(tree_seals) => self.session_seals || tree_seals,
            _ => self.session_seals && !self.answer.is_setup(),
        };
        // MS-SMB2 2.2.3.1.5: encryption by the transport stands for that of SMB.
        seals && self.is_smb3 && !self.transport_seals
    }

    /// Returns the owner of the key that signs the message, if it is signed: MS-SMB2 3.3.4.1.1.
    pub fn signer(&self) -> Option<Signer> {
        let status = match self.answer {
            Answer::Final(_, status) => status,
            Answer::SessionClosed => return self.signer_of_closed(),
            Answer::Interim | Answer::Notification(_) => return None,
        };
        if self.is_unsigned || self.is_sealed() {
            return None;
        }
        // MS-SMB2 3.3.5.5.3: the final response of a logon is signed, to prove to the client that
        // the server has the key.
        let is_granted = self.answer.is_setup() && status == Status::SUCCESS;
        // Clients that demand signatures ignore an unsigned refusal of a request that should have been
        // signed, so it is signed, too. smbd does the same.
        let is_asked = matches!(self.request, Protection::Signed)
            || (self.session_signs && !self.transport_seals && !self.answer.is_setup());
        if self.has_channel_key && (is_asked || is_granted) {
            return Some(Signer::Channel);
        }
        // A response to a channel binding that is not signed with the channel's key, such as a
        // failure, is signed with the session's.
        self.is_binding.then_some(Signer::Session)
    }

    /// Returns the owner of the key that signs the news of the end of a session. MS-SMB2 4.11.1: it is
    /// signed if the session demands signatures and does not encrypt.
    fn signer_of_closed(&self) -> Option<Signer> {
        let signs = self.session_signs && self.has_channel_key && !self.transport_seals;
        (signs && !self.is_sealed()).then_some(Signer::Channel)
    }

    /// Returns true if the header of the message says that it is signed.
    pub fn has_signed_flag(&self) -> bool {
        // Windows sets the flag on errors although it has no key. Without the flag, clients that
        // demand signatures ignore the response and do not learn that their session has ended.
        let is_keyless_refusal = match self.answer {
            Answer::Final(_, status) => {
                status.is_error() && !self.is_sealed() && matches!(self.request, Protection::Signed)
            }
            _ => false,
        };
        is_keyless_refusal || self.signer().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        session_seals: false,
        tree_seals: false,
        session_signs: false,
        must_sign: false,
        has_signing_key: true,
        transport_seals: false,
    };

    #[test]
    fn a_request_is_sealed_before_it_is_signed() {
        let signed = Request { session_signs: true, ..REQUEST };
        for (request, protection) in [
            (REQUEST, Protection::None),
            (signed, Protection::Signed),
            (Request { must_sign: true, ..REQUEST }, Protection::Signed),
            (Request { has_signing_key: false, ..signed }, Protection::None),
            (Request { session_seals: true, ..signed }, Protection::Sealed),
            (Request { tree_seals: true, ..signed }, Protection::Sealed),
            (Request { tree_seals: true, has_signing_key: false, ..REQUEST }, Protection::Sealed),
            // Encryption by the transport stands for that of SMB, but a request that protects the
            // negotiation is signed in any case.
            (Request { transport_seals: true, session_seals: true, ..signed }, Protection::None),
            (Request { transport_seals: true, tree_seals: true, ..REQUEST }, Protection::None),
            (Request { transport_seals: true, ..signed }, Protection::None),
            (Request { transport_seals: true, must_sign: true, ..signed }, Protection::Signed),
        ] {
            assert_eq!(request.protection(), protection, "{request:?}");
        }
    }

    const READ: Answer = Answer::Final(Command::READ, Status::SUCCESS);
    const RESPONSE: Response = Response {
        answer: READ,
        request: Protection::None,
        is_smb3: true,
        session_seals: false,
        session_signs: false,
        has_channel_key: true,
        is_binding: false,
        is_unsigned: false,
        transport_seals: false,
    };

    #[test]
    fn a_response_is_sealed_like_its_request_or_its_session() {
        let setup = |command| Answer::Final(command, Status::SUCCESS);
        let seals = Response { session_seals: true, ..RESPONSE };
        for (response, is_sealed) in [
            (RESPONSE, false),
            (Response { request: Protection::Signed, ..RESPONSE }, false),
            (Response { request: Protection::Sealed, ..RESPONSE }, true),
            (seals, true),
            (Response { is_smb3: false, ..seals }, false),
            // MS-SMB2 3.3.4.1.4: responses to NEGOTIATE and SESSION_SETUP are encrypted only if
            // their request was, even if the session demands encryption.
            (Response { answer: setup(Command::NEGOTIATE), ..seals }, false),
            (Response { answer: setup(Command::SESSION_SETUP), ..seals }, false),
            (Response { answer: setup(Command::TREE_CONNECT), ..seals }, true),
            (
                Response {
                    answer: setup(Command::SESSION_SETUP),
                    request: Protection::Sealed,
                    ..RESPONSE
                },
                true,
            ),
            (Response { answer: Answer::Interim, ..RESPONSE }, false),
            (Response { answer: Answer::Interim, request: Protection::Sealed, ..RESPONSE }, true),
            (Response { answer: Answer::Notification(false), ..RESPONSE }, false),
            (Response { answer: Answer::Notification(true), ..RESPONSE }, true),
            (Response { answer: Answer::Notification(false), ..seals }, true),
            (Response { answer: Answer::Notification(true), is_smb3: false, ..seals }, false),
            (Response { transport_seals: true, ..seals }, false),
            (
                Response { answer: Answer::Notification(true), transport_seals: true, ..seals },
                false,
            ),
            // An encrypted request is answered encrypted over any transport.
            (Response { request: Protection::Sealed, transport_seals: true, ..RESPONSE }, true),
        ] {
            assert_eq!(response.is_sealed(), is_sealed, "{response:?}");
        }
    }

    #[test]
    fn a_response_is_signed_like_its_request_and_at_the_end_of_a_logon() {
        let asked = Response { request: Protection::Signed, ..RESPONSE };
        let must_sign = Response { session_signs: true, ..RESPONSE };
        let logon = |status| Answer::Final(Command::SESSION_SETUP, status);
        let ended = Response { answer: logon(Status::SUCCESS), ..RESPONSE };
        let round = Response { answer: logon(Status::MORE_PROCESSING_REQUIRED), ..RESPONSE };
        let binding = Response { is_binding: true, has_channel_key: false, ..round };
        for (response, signer) in [
            (RESPONSE, None),
            (asked, Some(Signer::Channel)),
            // A session that demands signatures has them on each final response, also on the refusal
            // of an unsigned request.
            (must_sign, Some(Signer::Channel)),
            (Response { has_channel_key: false, ..must_sign }, None),
            (Response { is_unsigned: true, ..must_sign }, None),
            (Response { request: Protection::Sealed, ..must_sign }, None),
            (Response { transport_seals: true, ..must_sign }, None),
            (Response { transport_seals: true, ..asked }, Some(Signer::Channel)),
            (Response { answer: Answer::Interim, ..must_sign }, None),
            (Response { answer: Answer::Notification(false), ..must_sign }, None),
            (Response { session_signs: true, ..round }, None),
            (Response { has_channel_key: false, ..asked }, None),
            (Response { is_unsigned: true, ..asked }, None),
            (Response { session_seals: true, ..asked }, None),
            (Response { request: Protection::Sealed, ..RESPONSE }, None),
            (ended, Some(Signer::Channel)),
            (Response { session_seals: true, ..ended }, Some(Signer::Channel)),
            (Response { transport_seals: true, ..ended }, Some(Signer::Channel)),
            (round, None),
            (binding, Some(Signer::Session)),
            (Response { answer: logon(Status::ACCESS_DENIED), ..binding }, Some(Signer::Session)),
            (Response { has_channel_key: true, ..binding }, Some(Signer::Session)),
            // An interim response and a notification are not signed, because each shares its
            // MessageId with another message, so the nonces would be equal.
            (Response { answer: Answer::Interim, ..asked }, None),
            (Response { answer: Answer::Notification(false), ..asked }, None),
        ] {
            assert_eq!(response.signer(), signer, "{response:?}");
            assert_eq!(response.has_signed_flag(), signer.is_some(), "{response:?}");
        }
    }

    #[test]
    fn the_news_of_an_ended_session_is_protected_like_the_session() {
        let plain = Response { answer: Answer::SessionClosed, ..RESPONSE };
        let signs = Response { session_signs: true, ..plain };
        let seals = Response { session_seals: true, ..signs };
        for (news, is_sealed, is_signed) in [
            (plain, false, false),
            (signs, false, true),
            (seals, true, false),
            (Response { has_channel_key: false, ..signs }, false, false),
            (Response { transport_seals: true, ..signs }, false, false),
            (Response { transport_seals: true, ..seals }, false, false),
        ] {
            assert_eq!(
                (news.is_sealed(), news.signer().is_some()),
                (is_sealed, is_signed),
                "{news:?}"
            );
            assert_eq!(news.has_signed_flag(), is_signed, "{news:?}");
        }
    }

    #[test]
    fn a_refusal_without_a_key_says_that_it_is_signed() {
        let keyless = Response {
            answer: Answer::Final(Command::READ, Status::USER_SESSION_DELETED),
            request: Protection::Signed,
            has_channel_key: false,
            ..RESPONSE
        };
        assert_eq!((keyless.signer(), keyless.has_signed_flag()), (None, true));
        for (answer, request) in [
            (READ, Protection::Signed),
            (keyless.answer, Protection::None),
            (keyless.answer, Protection::Sealed),
        ] {
            let other = Response { answer, request, ..keyless };
            assert!(!other.has_signed_flag(), "{other:?}");
        }
    }
}
