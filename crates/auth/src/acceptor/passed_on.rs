//! NTLM for users of a domain: the proof is passed on to somebody who can ask a domain controller
//! (MS-NLMP 3.2.5.1.2, MS-APDS 3.1.5.1).

use super::Envelope;
use super::ntlm::{Challenged, Judge};
use crate::SessionKey;
use crate::kerberos::LogonInfo;
use crate::ntlm::message::{Authenticate, NtResponse};
use alloc::{string::String, sync::Arc, vec::Vec};
use core::fmt;

/// A proof of a password that only a domain controller can judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainQuestion {
    /// The user, in the client's spelling.
    pub user: String,
    /// The domain, in the client's spelling.
    pub domain: String,
    /// ServerChallenge of the CHALLENGE_MESSAGE.
    pub challenge: [u8; 8],
    /// NtChallengeResponse: NTLMv2_RESPONSE.
    pub nt_response: Vec<u8>,
    /// LmChallengeResponse
    pub lm_response: Vec<u8>,
}

/// The answer of a domain controller that accepts a proof.
#[derive(Clone)]
pub struct DomainLogon {
    /// SessionBaseKey, 16 bytes.
    pub session_key: SessionKey,
    /// The user.
    pub user: Arc<LogonInfo>,
}

impl fmt::Debug for DomainLogon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainLogon").field("user", &self.user).finish_non_exhaustive()
    }
}

/// An exchange that waits for the answer to a question.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) envelope: Option<Envelope>,
    pub(super) mech_list_mic: Option<Vec<u8>>,
    /// AUTHENTICATE_MESSAGE
    pub(super) token: Vec<u8>,
    pub(super) challenged: Challenged,
    /// The name by which failures are counted.
    pub(super) account: String,
}

/// Returns the user and the domain that a client means: `user@domain` is in the user's field.
fn meant<'a>(user: &'a str, domain: &'a str) -> (&'a str, &'a str) {
    match user.rsplit_once('@') {
        Some(parts) if domain.is_empty() => parts,
        _ => (user, domain),
    }
}

/// Returns the question about a proof for a user of one of `domains`, and the user's name for
/// counting. None for other users, and for messages that are refused without a question.
pub(super) fn question(
    token: &[u8],
    challenged: &Challenged,
    judge: &Judge<'_>,
    domains: &[String],
) -> Option<(DomainQuestion, String)> {
    if domains.is_empty() {
        return None;
    }
    let message = Authenticate::parse(token).ok()?;
    let (user, domain) = meant(&message.user, &message.domain);
    if user.is_empty() || !domains.iter().any(|own| own.eq_ignore_ascii_case(domain)) {
        return None;
    }
    if !judge.takes_form_of(&message, challenged) {
        return None;
    }
    let NtResponse::V2(response) = &message.nt_response else { return None };
    let question = DomainQuestion {
        user: message.user.clone(),
        domain: message.domain.clone(),
        challenge: challenged.server_challenge(),
        nt_response: [&response.proof[..], response.temp].concat(),
        lm_response: message.lm_response.to_vec(),
    };
    Some((question, alloc::format!("{domain}\\{user}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_may_be_in_the_name() {
        assert_eq!(meant("ann", "A"), ("ann", "A"));
        assert_eq!(meant("ann@a.test", ""), ("ann", "a.test"));
        assert_eq!(meant("a@b@a.test", ""), ("a@b", "a.test"));
        assert_eq!(meant("ann@a.test", "B"), ("ann@a.test", "B"));
        assert_eq!(meant("ann", ""), ("ann", ""));
    }
}
