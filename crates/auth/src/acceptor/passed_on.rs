//! NTLM for users of a domain: the proof is passed on to somebody who can ask a domain controller
//! (MS-NLMP 3.2.5.1.2, MS-APDS 3.1.5.1).

use super::ntlm::{Challenged, Judge};
use super::{AcceptorConfig, Envelope};
use crate::kerberos::LogonInfo;
use crate::ntlm::message::{Authenticate, NtResponse};
use crate::{Accounts, SessionKey};
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
    /// The domains that proofs are passed on for: nobody else's user may be the answer.
    pub domains: Vec<String>,
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

/// The user and the domain that a client means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Meant<'a> {
    user: &'a str,
    domain: &'a str,
    /// True for a user principal name, `user@suffix` without a domain.
    is_principal: bool,
}

impl<'a> Meant<'a> {
    fn of(user: &'a str, domain: &'a str) -> Self {
        match user.rsplit_once('@') {
            Some((user, domain_of_user)) if domain.is_empty() => {
                Self { user, domain: domain_of_user, is_principal: true }
            }
            _ => Self { user, domain, is_principal: false },
        }
    }

    /// The name of the domain that a controller is asked about, for counting. A domain gives its users
    /// suffixes that are no names of a domain, so a principal name with any other suffix than those of
    /// this server counts for the first domain: it means the same user.
    fn counted_for(&self, domains: &'a [String], own: [&str; 2]) -> Option<&'a str> {
        let is = |name: &str| name.eq_ignore_ascii_case(self.domain);
        if domains.iter().any(|domain| is(domain)) {
            return Some(self.domain);
        }
        let is_of_domain = self.is_principal && !self.domain.is_empty() && !own.into_iter().any(is);
        domains.first().map(String::as_str).filter(|_| is_of_domain)
    }
}

/// Returns the question about a proof for a user of one of the domains that proofs are passed on for,
/// and the user's name for counting. None for other users, and for messages that are refused without a
/// question.
pub(super) fn question(
    token: &[u8],
    challenged: &Challenged,
    judge: &Judge<'_>,
    accounts: &dyn Accounts,
) -> Option<(DomainQuestion, String)> {
    let AcceptorConfig { passed_on: domains, server_name, dns_name, .. } = judge.config;
    if domains.is_empty() {
        return None;
    }
    let message = Authenticate::parse(token).ok()?;
    let meant = Meant::of(&message.user, &message.domain);
    let domain = meant.counted_for(domains, [server_name, dns_name])?;
    let user = meant.user;
    let is_account = || {
        let is_named = domains.iter().any(|own| own.eq_ignore_ascii_case(meant.domain));
        !is_named && accounts.account(&message.user, "").is_some()
    };
    if user.is_empty() || is_account() {
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
        domains: domains.clone(),
    };
    Some((question, alloc::format!("{domain}\\{user}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_may_be_in_the_name() {
        let meant = |user, domain| {
            let Meant { user, domain, .. } = Meant::of(user, domain);
            (user, domain)
        };
        assert_eq!(meant("ann", "A"), ("ann", "A"));
        assert_eq!(meant("ann@a.test", ""), ("ann", "a.test"));
        assert_eq!(meant("a@b@a.test", ""), ("a@b", "a.test"));
        assert_eq!(meant("ann@a.test", "B"), ("ann@a.test", "B"));
        assert_eq!(meant("ann", ""), ("ann", ""));
    }

    #[test]
    fn a_suffix_that_names_no_domain_counts_for_the_first_one() {
        let domains = [String::from("A"), String::from("a.test")];
        let counted = |user, domain| {
            Meant::of(user, domain).counted_for(&domains, ["NAS", "nas.a.test"]).map(String::from)
        };
        assert_eq!(counted("ann@a.test", "").as_deref(), Some("a.test"));
        assert_eq!(counted("ann@other.suffix", "").as_deref(), Some("A"));
        for (user, domain) in [
            ("ann", ""),
            ("ann@", ""),
            ("ann@nas", ""),
            ("ann@NAS.a.test", ""),
            ("ann@other.suffix", "B"),
            ("ann", "B"),
        ] {
            assert_eq!(counted(user, domain), None, "{user} {domain}");
        }
    }
}
