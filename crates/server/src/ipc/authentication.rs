//! The authentication of a client over RPC: NTLM and Kerberos, each alone or in SPNEGO. On a pipe only
//! the user of the session may authenticate.

use std::sync::Arc;

use frevo_auth::kerberos::AcceptorEntropy;
use frevo_auth::{Acceptor, AcceptorConfig, Done, Refusal, Step};
use frevo_rpc::{AuthType, Token, Verdict};
use frevo_wire::fscc::eq_ignore_case;

use super::peer::Peer;
use crate::access::throttle::shortened;
use crate::objects::session::Identity;
use crate::objects::{audited, directory, logon};

/// An authentication that has begun.
#[derive(Debug)]
pub(super) struct Exchange {
    acceptor: Acceptor,
}

impl Exchange {
    fn new(peer: &Peer, kind: AuthType) -> Self {
        let server = &peer.server;
        let (settings, ambient) = (server.settings(), &server.ambient);
        let mut config = AcceptorConfig::standalone(&settings.server_name);
        config.ntlm = settings.ntlm && kind != AuthType::KERBEROS;
        config.require_mic = settings.require_mic;
        config.passed_on.clone_from(&settings.passed_on);
        if let Some(domain) = settings.passed_on.first() {
            config.domain = domain.to_uppercase();
        }
        let mut challenge = [0; 8];
        ambient.random(&mut challenge);
        let acceptor = Acceptor::new(Arc::new(config), challenge).with_dce_style();
        // MS-RPCE 2.2.1.1.7: RPC_C_AUTHN_GSS_NEGOTIATE alone is SPNEGO.
        let acceptor = match kind {
            AuthType::NEGOTIATE => acceptor,
            _ => acceptor.without_spnego(),
        };
        if kind == AuthType::NTLM {
            return Self { acceptor };
        }
        let Some(service) = server.kerberos.service() else { return Self { acceptor } };
        let mut entropy =
            AcceptorEntropy { subkey: [0; 32], confounder: [0; 16], sequence: [0; 4] };
        ambient.random(&mut entropy.subkey);
        ambient.random(&mut entropy.confounder);
        ambient.random(&mut entropy.sequence);
        Self { acceptor: acceptor.with_kerberos(service, entropy) }
    }

    async fn step(&mut self, peer: &Peer, token: &[u8]) -> Result<Step, Refusal> {
        let server = &peer.server;
        let accounts = server.accounts();
        let acceptor = &mut self.acceptor;
        let address = peer.address.ip();
        if let Some(asking) = directory::before_proof(server, acceptor, token, &accounts, address) {
            asking.await?;
        }
        let mut step = acceptor.step(token, server.ambient.now().0, &*accounts)?;
        if let Step::Retry(_, refusal) = &step
            && refusal.needs_other_keys()
        {
            let again = logon::with_other_keys(server, acceptor, token, step, &accounts);
            step = Box::pin(again).await?;
        }
        let Step::Ask(question) = step else { return Ok(step) };
        let answer = server.domain_logons.ask(question).await;
        self.acceptor.answer(answer)
    }
}

/// The result of a token.
pub(super) enum Proof {
    /// The exchange goes on with this token.
    Continue(Vec<u8>),
    /// The client has proved its identity, and has the name that counts here.
    Proved(Box<Done>),
    /// The client is refused; this has been told.
    Refused,
}

/// Takes a token. `exchange` is the authentication that the token belongs to, and keeps it until
/// its end.
pub(super) async fn prove(
    peer: &Peer,
    token: &Token,
    exchange: &mut Option<Box<Exchange>>,
) -> Proof {
    if token.is_first {
        *exchange = Some(Box::new(Exchange::new(peer, token.kind)));
    }
    let Some(mut begun) = exchange.take() else { return Proof::Refused };
    match begun.step(peer, &token.token).await {
        Ok(Step::Continue(answer) | Step::Retry(answer, _)) => {
            *exchange = Some(begun);
            Proof::Continue(answer)
        }
        // The domain controller has already been asked in this step, so a second question is
        // refused.
        Ok(Step::Ask(_)) => Proof::Refused,
        Ok(Step::Done(done)) => {
            let address = peer.address.ip();
            if let Some(asking) = directory::before_naming(&peer.server, &done, address)
                && let Err(refusal) = asking.await
            {
                refused(peer, &refusal);
                return Proof::Refused;
            }
            named(peer, done)
        }
        Err(refusal) => {
            if !refusal.account.is_empty() && peer.heed(&refusal.account, false).await {
                peer.server.doubt(&refusal.account);
            }
            refused(peer, &refusal);
            Proof::Refused
        }
    }
}

/// Gives a user who has proved the identity the name that counts here.
fn named(peer: &Peer, mut done: Done) -> Proof {
    match logon::name_user(&peer.server, &mut done) {
        Ok(()) => Proof::Proved(Box::new(done)),
        Err(refusal) => {
            refused(peer, &refusal);
            Proof::Refused
        }
    }
}

/// Returns the verdict on a proof, with the protection of calls if the ends have agreed on one.
pub(super) fn protected(peer: &Peer, done: Done) -> Verdict {
    let mut seed = [0; 16];
    peer.server.ambient.random(&mut seed);
    let protection = done.protection(seed).map(Box::new);
    Verdict::Done(done.token, protection)
}

/// Judges a token on a pipe of the user `identity`.
pub(super) async fn judge(
    peer: &Peer,
    identity: &Identity,
    token: &Token,
    exchange: &mut Option<Box<Exchange>>,
) -> Verdict {
    let done = match prove(peer, token, exchange).await {
        Proof::Continue(answer) => return Verdict::Continue(answer),
        Proof::Refused => return Verdict::Refused,
        Proof::Proved(done) => done,
    };
    let user = &done.identity.user;
    let is_own = eq_ignore_case(user, &identity.user);
    // Even a correct password waits for its turn, as at each logon, and is refused after many wrong
    // ones. A Kerberos ticket is no guess, so it need not wait.
    let is_guess = done.identity.kerberos.is_none();
    let counts = !is_guess || peer.heed(user, is_own).await;
    if is_own && counts { protected(peer, *done) } else { Verdict::Refused }
}

/// Tells of a logon that was refused.
pub(super) fn refused(peer: &Peer, refusal: &Refusal) {
    let ticket = refusal.ticket();
    peer.tell(|left_out| {
        let etype = ticket.map(|ticket| ticket.etype().to_string());
        tracing::warn!(target: "frevo::session", peer = %peer.address,
            user = %shortened(&refusal.user), reason = %refusal.reason,
            service = ticket.map(|ticket| display(&ticket.server)), etype,
            kvno = ticket.and_then(|ticket| ticket.kvno),
            left_out, "authentication over RPC refused");
    });
    audited::logon_refused(&peer.server, peer.address, refusal);
}
