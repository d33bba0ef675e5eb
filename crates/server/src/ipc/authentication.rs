//! The authentication of a client over RPC: NTLM, and Kerberos in SPNEGO. On a pipe only the user
//! of the session may authenticate.

use std::sync::Arc;

use frevo_auth::kerberos::AcceptorEntropy;
use frevo_auth::{Acceptor, AcceptorConfig, Done, Reason, Refusal, Step};
use frevo_rpc::{AuthType, Token, Verdict};
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::eq_ignore_case;

use crate::access::domain_users;
use crate::access::throttle::Attempt;
use crate::command::request::Request;
use crate::objects::session::Identity;

/// An authentication that has begun.
#[derive(Debug)]
pub(super) struct Exchange {
    acceptor: Acceptor,
}

impl Exchange {
    fn new(rq: &Request<'_>, kind: AuthType) -> Self {
        let settings = &rq.connection.settings;
        let server = rq.server();
        let ambient = &server.ambient;
        let mut config = AcceptorConfig::standalone(&settings.server_name);
        config.ntlm = settings.ntlm || kind == AuthType::NTLM;
        config.require_mic = settings.require_mic;
        config.passed_on.clone_from(&settings.passed_on);
        if let Some(domain) = settings.passed_on.first() {
            config.domain = domain.to_uppercase();
        }
        let mut challenge = [0; 8];
        ambient.random(&mut challenge);
        let acceptor = Acceptor::new(Arc::new(config), challenge).with_dce_style();
        let Some(service) = server.kerberos.service() else { return Self { acceptor } };
        let mut entropy =
            AcceptorEntropy { subkey: [0; 32], confounder: [0; 16], sequence: [0; 4] };
        ambient.random(&mut entropy.subkey);
        ambient.random(&mut entropy.confounder);
        ambient.random(&mut entropy.sequence);
        Self { acceptor: acceptor.with_kerberos(service, entropy) }
    }

    async fn step(&mut self, rq: &Request<'_>, token: &[u8]) -> Result<Step, Refusal> {
        let server = rq.server();
        let accounts = server.accounts();
        let step = self.acceptor.step(token, server.ambient.now().0, &*accounts)?;
        let Step::Ask(question) = step else { return Ok(step) };
        let answer = server.domain_logons.ask(*question).await;
        self.acceptor.answer(answer)
    }
}

/// Judges a token of the session's user. `exchange` is the authentication that the token belongs
/// to, and keeps it until its end.
pub(super) async fn judge(
    rq: &Request<'_>,
    identity: &Identity,
    token: &Token,
    exchange: &mut Option<Box<Exchange>>,
) -> Verdict {
    if token.is_first {
        *exchange = Some(Box::new(Exchange::new(rq, token.kind)));
    }
    let Some(mut begun) = exchange.take() else { return Verdict::Refused };
    match begun.step(rq, &token.token).await {
        Ok(Step::Continue(answer) | Step::Retry(answer, _)) => {
            *exchange = Some(begun);
            Verdict::Continue(answer)
        }
        // The domain controller has already been asked in this step, so a second question is
        // refused.
        Ok(Step::Ask(_)) => Verdict::Refused,
        Ok(Step::Done(done)) => accepted(rq, identity, done).await,
        Err(refusal) => {
            if !refusal.account.is_empty() {
                heed(rq, &refusal.account, false).await;
            }
            refused(rq, &refusal);
            Verdict::Refused
        }
    }
}

async fn accepted(rq: &Request<'_>, identity: &Identity, done: Done) -> Verdict {
    let user = match user(rq, &done) {
        Ok(user) => user,
        Err(refusal) => {
            refused(rq, &refusal);
            return Verdict::Refused;
        }
    };
    let is_own = eq_ignore_case(&user, &identity.user);
    // Even a correct password waits for its turn, as at each logon, and is refused after many wrong
    // ones. A Kerberos ticket is no guess, so it need not wait.
    let is_guess = done.identity.kerberos.is_none();
    let counts = !is_guess || heed(rq, &user, is_own).await;
    let mut seed = [0; 16];
    rq.server().ambient.random(&mut seed);
    match done.protection(seed) {
        Some(protection) if is_own && counts => Verdict::Done(done.token, Box::new(protection)),
        _ => Verdict::Refused,
    }
}

/// Returns the name of the user here.
fn user(rq: &Request<'_>, done: &Done) -> Result<String, Refusal> {
    if let Some(by_kdc) = &done.identity.kerberos {
        let server = rq.server();
        let (settings, accounts) = (server.settings(), server.accounts());
        let known = domain_users::known(&settings.realms, &*accounts, by_kdc);
        return known.map(|(name, _)| name).map_err(|why| {
            let (user, domain) = (done.identity.user.clone(), done.identity.domain.clone());
            Refusal { user, domain, ..Refusal::new(Reason::NoAccount(why)) }
        });
    }
    Ok(match &done.identity.by_domain {
        Some(user) => domain_users::name(user),
        None => done.identity.user.clone(),
    })
}

fn refused(rq: &Request<'_>, refusal: &Refusal) {
    rq.tell(|left_out| {
        tracing::warn!(target: "frevo::session", peer = %rq.connection.peer,
            user = %crate::access::throttle::shortened(&refusal.user), reason = %refusal.reason,
            left_out, "authentication over RPC refused");
    });
    crate::command::audited::logon_refused(rq, refusal);
}

/// Waits as long as the throttle says; false when the outcome does not count.
pub(super) async fn heed(rq: &Request<'_>, account: &str, success: bool) -> bool {
    let client = rq.connection.negotiated().map_or_else(|_| Guid::default(), |n| n.client_guid);
    let attempt = Attempt { address: rq.connection.peer.ip(), client, account, success };
    rq.server().throttle.heed(attempt).await
}
