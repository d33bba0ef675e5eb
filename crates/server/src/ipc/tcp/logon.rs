//! Logons over RPC on TCP. What SESSION_SETUP checks is checked here, too: the throttle, the host's
//! user, accounts that change meanwhile, the end of a ticket.

use std::sync::Arc;

use frevo_auth::{Done, Reason, Refusal};
use frevo_rpc::{AuthLevel, Token, Verdict};
use frevo_wire::dtyp::FileTime;

use super::End;
use crate::access::domain_users;
use crate::access::throttle::shortened;
use crate::audit::{Event, Kind};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::ipc::authentication::{self, Exchange, Proof};
use crate::ipc::peer::Peer;
use crate::objects::logon;
use crate::objects::server::SharedAccounts;
use crate::objects::session::Identity;

/// The user of a connection.
pub(super) struct User {
    pub(super) identity: Arc<Identity>,
    /// The accounts by which the user was let in.
    accounts: SharedAccounts,
    /// The end of the ticket; None for a password.
    expires: Option<FileTime>,
}

impl User {
    /// Fails when the user may call no longer: the account was changed, or the ticket has ended.
    pub(super) fn check(&self, peer: &Peer) -> Result<(), End> {
        let server = &peer.server;
        if self.expires.is_some_and(|end| server.ambient.now() >= end) {
            return Err(Some("its ticket has ended"));
        }
        let is_changed = !Arc::ptr_eq(&self.accounts, &server.accounts());
        if is_changed && self.identity.is_local && !server.may_stay(&self.identity, &self.accounts)
        {
            return Err(Some("its account was changed"));
        }
        Ok(())
    }
}

/// The result of a token.
pub(super) enum Judged {
    /// Nobody has logged on by it.
    Verdict(Verdict),
    /// This user has.
    LoggedOn(Box<User>, Verdict),
}

/// Judges a token.
pub(super) async fn judge(
    peer: &Peer,
    token: &Token,
    exchange: &mut Option<Box<Exchange>>,
) -> Judged {
    let accounts = peer.server.accounts();
    let done = match authentication::prove(peer, token, exchange).await {
        Proof::Continue(answer) => return Judged::Verdict(Verdict::Continue(answer)),
        Proof::Refused => return Judged::Verdict(Verdict::Refused),
        Proof::Proved(done) => done,
    };
    let Some(user) = admit(peer, &done, accounts).await else {
        return Judged::Verdict(Verdict::Refused);
    };
    tell(peer, token.level, &done, &user);
    match authentication::protected(peer, *done) {
        verdict @ Verdict::Done(_, Some(_)) => Judged::LoggedOn(Box::new(user), verdict),
        // Each level that is offered over TCP protects the calls.
        _ => Judged::Verdict(Verdict::Refused),
    }
}

/// Lets a user in whose identity is proved. None for a refusal, which has been told.
async fn admit(peer: &Peer, done: &Done, accounts: SharedAccounts) -> Option<User> {
    let server = &peer.server;
    let name = &*done.identity.user;
    if name.is_empty() {
        // MS-SMB2 3.3.5.9: an anonymous user cannot open a pipe, so it cannot use the interfaces on
        // TCP either.
        authentication::refused(peer, &refusal(done, "anonymous clients are not served"));
        return None;
    }
    // A Kerberos ticket is no guess, and an attacker's wrong passwords must not lock out the
    // owner's tickets.
    if done.identity.kerberos.is_none() && !peer.heed(name, true).await {
        return None;
    }
    let host = match logon::mapped(server, done) {
        Some(host) => host,
        None => server.host_user(name).await,
    };
    if server.settings().has_host_sids && !host.is_known() {
        let why = "the host's name service does not tell the groups of this user";
        authentication::refused(peer, &refusal(done, why));
        return None;
    }
    let identity = logon::identity(server, done, host, &accounts);
    if identity.is_local && !server.may_stay(&identity, &accounts) {
        let why = "the account was changed while the logon waited";
        authentication::refused(peer, &refusal(done, why));
        return None;
    }
    let expires = domain_users::end(done.identity.kerberos.as_deref());
    Some(User { identity: Arc::new(identity), accounts, expires })
}

fn refusal(done: &Done, why: &str) -> Refusal {
    let (user, domain) = (done.identity.user.clone(), done.identity.domain.clone());
    Refusal { user, domain, ..Refusal::new(Reason::NoAccount(String::from(why))) }
}

fn tell(peer: &Peer, level: AuthLevel, done: &Done, user: &User) {
    let sealed = level >= AuthLevel::PRIVACY;
    peer.tell(|left_out| {
        tracing::info!(target: "frevo::session", peer = %peer.address,
            user = %user.identity.user, workstation = %shortened(&done.identity.workstation),
            purpose = "rpc", mechanism = ?done.identity.mechanism(), sealed, mic = done.has_mic,
            left_out, "logged on");
    });
    peer.server.audit.emit(|| {
        Event::new(Kind::Logon)
            .from(peer.source())
            .by(Some(Arc::clone(&user.identity)))
            .administering(user.identity.administers_by.as_deref())
            .with("workstation", cut(&done.identity.workstation, AUDIT_VALUE_BYTES))
            .with("purpose", "rpc")
            .with("mechanism", format!("{:?}", done.identity.mechanism()))
            .with("sealed", sealed)
            .with("mic", done.has_mic)
    });
}
