//! The one place that decides which protection a received message must have: MS-SMB2 3.3.5.2.4,
//! 3.3.5.2.9 and 3.3.5.2.11 for requests, 3.2.5.1.1 and 3.2.5.1.3 for answers.

use frevo_wire::Status;

use super::Protection;

/// The rule for the signature of a command's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureRule {
    /// MS-SMB2 3.3.5.2.4: the session says whether the request must be signed.
    BySession,
    /// A signed request is refused: there is no session yet (NEGOTIATE).
    Never,
    /// The handler finds the key; a channel's key is used where there is one (SESSION_SETUP).
    ByHandler,
    /// In 3.1.1 an unsigned request ends the connection (TREE_CONNECT, MS-SMB2 3.3.5.7).
    Demanded,
}

/// The next step with a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// No further proof is needed.
    Nothing,
    /// The signature must be right, with Channel.SigningKey.
    Signature,
    /// The message is refused with this status.
    Refusal(Status),
    /// The connection ends.
    Disconnect,
}

/// The session of a received request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFacts {
    /// Session.IsAnonymous
    pub is_anonymous: bool,
    /// Session.SigningRequired
    pub must_sign: bool,
    /// There is a Channel.SigningKey. There is none before the end of a logon.
    pub has_signing_key: bool,
}

/// A request that a server has received. Unsealing has checked a sealed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The rule of its command.
    pub rule: SignatureRule,
    /// Its protection; [`Protection::Signed`] if it has SMB2_FLAGS_SIGNED.
    pub protection: Protection,
    /// Connection.Dialect is 3.1.1.
    pub is_3_1_1: bool,
    /// Connection.AcceptTransportSecurity: the transport encrypts in place of SMB.
    pub transport_seals: bool,
}

impl Request {
    /// Returns the demand on the request's signature, MS-SMB2 3.3.5.2.4. `session` finds its session,
    /// if that is one of the connection.
    ///
    /// Windows: MS-SMB2 3.3.5.2.4 looks for the session of an unsigned request among all; there the
    /// connection's own count, and any other is not there (3.3.5.2.9).
    pub fn demand(&self, session: impl FnOnce() -> Option<SessionFacts>) -> Demand {
        match self.protection {
            Protection::Sealed => Demand::Nothing,
            Protection::Signed => self.demand_on_signed(session()),
            Protection::None => self.demand_on_unsigned(session()),
        }
    }

    const fn demand_on_signed(&self, session: Option<SessionFacts>) -> Demand {
        match (self.rule, session) {
            (SignatureRule::Never, _) => Demand::Refusal(Status::INVALID_PARAMETER),
            // The client has no session on this connection yet, because the request binds a
            // channel. Its handler verifies the signature with the session's key.
            (SignatureRule::ByHandler, None) => Demand::Nothing,
            (_, None) => Demand::Refusal(Status::USER_SESSION_DELETED),
            (_, Some(SessionFacts { has_signing_key: true, .. })) => Demand::Signature,
            // A logon's session has no key before the logon has ended, so there is nothing to
            // verify with.
            (SignatureRule::ByHandler, Some(_)) => Demand::Nothing,
            (_, Some(_)) => Demand::Refusal(Status::NOT_SUPPORTED),
        }
    }

    const fn demand_on_unsigned(&self, session: Option<SessionFacts>) -> Demand {
        let Some(session) = session else { return Demand::Nothing };
        // MS-SMB2 3.3.5.7: in dialect 3.1.1 an unsigned TREE_CONNECT ends the connection, even if
        // the session need not sign.
        if matches!(self.rule, SignatureRule::Demanded) && self.is_3_1_1 && !session.is_anonymous {
            return Demand::Disconnect;
        }
        // MS-SMB2 3.3.5.2.4: an encrypted request needs no signature. Encryption by the transport
        // stands for that of SMB (MS-SMB2 2.2.3.1.5).
        if session.must_sign && !self.transport_seals {
            Demand::Refusal(Status::ACCESS_DENIED)
        } else {
            Demand::Nothing
        }
    }
}

/// Returns the status with which a request in the clear is refused, if it is: MS-SMB2 3.3.5.2.9.
/// `session_seals` is Session.EncryptData. Encryption by the transport stands for that of SMB: MS-SMB2
/// 2.2.3.1.5.
pub const fn refusal_by_session(
    is_sealed: bool,
    session_seals: bool,
    is_smb3: bool,
) -> Option<Status> {
    if is_sealed || !session_seals || !is_smb3 { None } else { Some(Status::ACCESS_DENIED) }
}

/// Returns the status with which a request in the clear is refused, if it is: MS-SMB2 3.3.5.2.11.
/// `tree_seals` is TreeConnect.Share.EncryptData. A client of 2.x, which cannot encrypt, is refused
/// too (RejectUnencryptedAccess).
pub const fn refusal_by_tree(is_sealed: bool, tree_seals: bool) -> Option<Status> {
    if is_sealed || !tree_seals { None } else { Some(Status::ACCESS_DENIED) }
}

/// An answer that a client has received in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The protection that its request had, or that the session gives its requests.
    pub request: Protection,
    /// Its protection. [`Protection::Sealed`] means that a key of this session has opened it,
    /// [`Protection::Signed`] that it has SMB2_FLAGS_SIGNED.
    pub protection: Protection,
    /// There is a Channel.SigningKey. A guest has none.
    pub has_signing_key: bool,
}

impl Answer {
    /// Returns the demand on an answer: an encrypted request is answered encrypted, a signed one
    /// signed, and a signature that is there must be right.
    pub const fn demand(&self) -> Demand {
        match (self.protection, self.request) {
            // MS-SMB2 3.2.5.1.3: decryption has already proved that the message is authentic, so
            // its signature is not verified.
            (Protection::Sealed, _) => Demand::Nothing,
            (_, Protection::Sealed) => Demand::Disconnect,
            (Protection::Signed, _) | (_, Protection::Signed) if self.has_signing_key => {
                Demand::Signature
            }
            _ => Demand::Nothing,
        }
    }

    /// Returns the demand on an answer to SESSION_SETUP, whose success must be proved: MS-SMB2
    /// 3.2.5.3.1.
    pub fn demand_of_logon(&self, status: Status) -> Demand {
        match (self.protection, self.request) {
            _ if status != Status::SUCCESS => Demand::Nothing,
            (Protection::Sealed, _) => Demand::Nothing,
            (_, Protection::Sealed) => Demand::Disconnect,
            _ if self.has_signing_key => Demand::Signature,
            _ => Demand::Disconnect,
        }
    }
}

/// Returns true if a notification of the server counts. MS-SMB2 3.2.5.1.3: notifications are not
/// signed. 3.2.5.1.1: in a session that encrypts (`session_seals`) one in the clear may be forged.
pub const fn is_notification_trusted(is_sealed: bool, session_seals: bool) -> bool {
    is_sealed || !session_seals
}

/// The news of the end of a session that a client has received, MS-SMB2 2.2.44.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionClosed {
    /// The protection that the news has.
    pub protection: Protection,
    /// Session.EncryptData
    pub session_seals: bool,
    /// Session.SigningRequired
    pub session_signs: bool,
    /// There is a Channel.SigningKey. A guest has none.
    pub has_signing_key: bool,
    /// Connection.AcceptTransportSecurity: the transport encrypts in place of SMB.
    pub transport_seals: bool,
}

/// The worth of the news of the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It counts.
    Given,
    /// It counts if its signature is right, with Channel.SigningKey.
    BySignature,
    /// It may be forged, and is ignored.
    Refused,
}

impl SessionClosed {
    /// Returns the worth of the news. MS-SMB2 4.11.1: it is protected like other messages of its session.
    /// In the clear it counts where nothing is protected; there whoever forges it gains no more than by
    /// cutting the connection.
    pub const fn trust(&self) -> Trust {
        match self.protection {
            Protection::Sealed => Trust::Given,
            _ if self.session_seals && !self.transport_seals => Trust::Refused,
            Protection::Signed if self.has_signing_key => Trust::BySignature,
            Protection::Signed => Trust::Refused,
            Protection::None if self.session_signs && !self.transport_seals => Trust::Refused,
            Protection::None => Trust::Given,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionFacts =
        SessionFacts { is_anonymous: false, must_sign: false, has_signing_key: true };
    const ALL: [SignatureRule; 4] = [
        SignatureRule::BySession,
        SignatureRule::Never,
        SignatureRule::ByHandler,
        SignatureRule::Demanded,
    ];

    fn demands(protection: Protection, session: Option<SessionFacts>) -> [Demand; 4] {
        ALL.map(|rule| {
            let request = Request { rule, protection, is_3_1_1: true, transport_seals: false };
            request.demand(|| session)
        })
    }

    #[test]
    fn a_signed_request_is_verified_where_there_is_a_key() {
        use Demand::{Nothing, Refusal, Signature};
        let never = Refusal(Status::INVALID_PARAMETER);
        let gone = Refusal(Status::USER_SESSION_DELETED);
        let keyless = Refusal(Status::NOT_SUPPORTED);
        let signed = |session| demands(Protection::Signed, session);
        assert_eq!(signed(Some(SESSION)), [Signature, never, Signature, Signature]);
        assert_eq!(signed(None), [gone, never, Nothing, gone]);
        let none = SessionFacts { has_signing_key: false, ..SESSION };
        assert_eq!(signed(Some(none)), [keyless, never, Nothing, keyless]);
    }

    #[test]
    fn an_unsigned_request_is_refused_where_the_session_signs() {
        use Demand::{Disconnect, Nothing, Refusal};
        let denied = Refusal(Status::ACCESS_DENIED);
        let unsigned = |session| demands(Protection::None, session);
        assert_eq!(unsigned(None), [Nothing; 4]);
        assert_eq!(unsigned(Some(SESSION)), [Nothing, Nothing, Nothing, Disconnect]);
        let signs = SessionFacts { must_sign: true, ..SESSION };
        assert_eq!(unsigned(Some(signs)), [denied, denied, denied, Disconnect]);
        let anonymous = SessionFacts { is_anonymous: true, ..SESSION };
        assert_eq!(unsigned(Some(anonymous)), [Nothing; 4]);
        // In dialects before 3.1.1 an unsigned TREE_CONNECT is not refused.
        let older = Request {
            rule: SignatureRule::Demanded,
            protection: Protection::None,
            is_3_1_1: false,
            transport_seals: false,
        };
        assert_eq!(older.demand(|| Some(SESSION)), Nothing);
        // Encryption by the transport stands for that of SMB, but the TREE_CONNECT of 3.1.1 still
        // proves the negotiation.
        let secure = |rule| Request { rule, transport_seals: true, is_3_1_1: true, ..older };
        assert_eq!(secure(SignatureRule::BySession).demand(|| Some(signs)), Nothing);
        assert_eq!(secure(SignatureRule::Demanded).demand(|| Some(signs)), Disconnect);
    }

    #[test]
    fn a_sealed_request_needs_no_signature() {
        let signs = SessionFacts { must_sign: true, ..SESSION };
        for session in [None, Some(SESSION), Some(signs)] {
            assert_eq!(demands(Protection::Sealed, session), [Demand::Nothing; 4]);
        }
    }

    #[test]
    fn sessions_and_trees_that_encrypt_refuse_the_clear() {
        let denied = Some(Status::ACCESS_DENIED);
        for (is_sealed, seals, is_smb3, by_session, by_tree) in [
            (false, true, true, denied, denied),
            (false, true, false, None, denied),
            (false, false, true, None, None),
            (true, true, true, None, None),
            (true, false, true, None, None),
        ] {
            assert_eq!(refusal_by_session(is_sealed, seals, is_smb3), by_session);
            assert_eq!(refusal_by_tree(is_sealed, seals), by_tree);
        }
    }

    #[test]
    fn an_answer_is_protected_like_its_request() {
        use Demand::{Disconnect, Nothing, Signature};
        use Protection::{None, Sealed, Signed};
        for (request, protection, with_key, without) in [
            (None, None, Nothing, Nothing),
            (None, Signed, Signature, Nothing),
            (None, Sealed, Nothing, Nothing),
            (Signed, None, Signature, Nothing),
            (Signed, Signed, Signature, Nothing),
            (Signed, Sealed, Nothing, Nothing),
            (Sealed, None, Disconnect, Disconnect),
            (Sealed, Signed, Disconnect, Disconnect),
            (Sealed, Sealed, Nothing, Nothing),
        ] {
            let answer = Answer { request, protection, has_signing_key: true };
            assert_eq!(answer.demand(), with_key, "{answer:?}");
            let answer = Answer { has_signing_key: false, ..answer };
            assert_eq!(answer.demand(), without, "{answer:?}");
        }
    }

    #[test]
    fn the_success_of_a_logon_must_be_proved() {
        use Demand::{Disconnect, Nothing, Signature};
        let answer = |request, protection, has_signing_key| {
            Answer { request, protection, has_signing_key }.demand_of_logon(Status::SUCCESS)
        };
        use Protection::{None, Sealed, Signed};
        for protection in [None, Signed] {
            assert_eq!(answer(Signed, protection, true), Signature);
            assert_eq!(answer(None, protection, true), Signature);
            assert_eq!(answer(Sealed, protection, true), Disconnect);
            assert_eq!(answer(Signed, protection, false), Disconnect);
        }
        assert_eq!(answer(Sealed, Sealed, true), Nothing);
        let refused = Answer { request: Sealed, protection: None, has_signing_key: true };
        assert_eq!(refused.demand_of_logon(Status::LOGON_FAILURE), Nothing);
    }

    #[test]
    fn the_news_of_an_ended_session_counts_with_the_protection_of_the_session() {
        use Trust::{BySignature, Given, Refused};
        let news = |protection| SessionClosed {
            protection,
            session_seals: false,
            session_signs: false,
            has_signing_key: true,
            transport_seals: false,
        };
        let trusts = |change: fn(&mut SessionClosed)| {
            [Protection::None, Protection::Signed, Protection::Sealed].map(|protection| {
                let mut news = news(protection);
                change(&mut news);
                news.trust()
            })
        };
        assert_eq!(trusts(|_| {}), [Given, BySignature, Given]);
        assert_eq!(trusts(|news| news.session_signs = true), [Refused, BySignature, Given]);
        assert_eq!(trusts(|news| news.session_seals = true), [Refused, Refused, Given]);
        assert_eq!(trusts(|news| news.has_signing_key = false), [Given, Refused, Given]);
        let secure = |news: &mut SessionClosed| {
            (news.session_seals, news.session_signs, news.transport_seals) = (true, true, true);
        };
        assert_eq!(trusts(secure), [Given, BySignature, Given]);
    }

    #[test]
    fn a_notification_in_the_clear_does_not_count_where_the_session_encrypts() {
        assert!(is_notification_trusted(true, true) && is_notification_trusted(true, false));
        assert!(is_notification_trusted(false, false));
        assert!(!is_notification_trusted(false, true));
    }
}
