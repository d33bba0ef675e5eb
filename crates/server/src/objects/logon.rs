//! The user whom an authentication has proved: the name, the identity and the host's user, alike for
//! SESSION_SETUP and for RPC.

use std::sync::Arc;

use frevo_auth::{Acceptor, Done, Reason, Refusal, Step};
use frevo_store::security::Token;
use tokio::time::Instant;

use crate::access::administrators::{Candidate, Decided, KnownBy};
use crate::access::domain_users;
use crate::access::host_users::OnHost;
use crate::access::identity::Identity;
use crate::access::principals::SharedAccounts;
use crate::base::limits::NEWER_KEYS_PATIENCE;
use crate::objects::server::ServerState;

/// Gives a user of a KDC or of a domain the name that counts here.
///
/// # Errors
/// The refusal of a user who has no account here.
pub(crate) fn name_user(server: &ServerState, done: &mut Done) -> Result<(), Refusal> {
    if let Some(by_kdc) = &done.identity.kerberos {
        let (settings, accounts) = (server.settings(), server.accounts());
        let now = server.unix_seconds();
        match domain_users::known(&settings.realms, &*accounts, by_kdc, now) {
            Ok((name, user)) => {
                done.identity.user = name;
                done.identity.kerberos = Some(user);
            }
            Err(reason) => {
                let (user, domain) = (done.identity.user.clone(), done.identity.domain.clone());
                return Err(Refusal { user, domain, ..Refusal::new(reason) });
            }
        }
    }
    if let Some(user) = &done.identity.by_domain {
        done.identity.user = domain_users::name(user);
    }
    let facts = domain_users::facts(&done.identity);
    if facts.is_some_and(|user| !domain_users::has_own_sid(user, &server.machine_sid())) {
        let why = String::from("the controller gives the user a SID that no domain has");
        let (user, domain) = (done.identity.user.clone(), done.identity.domain.clone());
        return Err(Refusal { user, domain, ..Refusal::new(Reason::NoAccount(why)) });
    }
    Ok(())
}

/// Judges a ticket again that no key of the server has opened, with other keys, if there are any.
/// `refused` is the answer without them.
///
/// # Errors
/// The refusal that ends the exchange.
pub(crate) async fn with_other_keys(
    server: &ServerState,
    acceptor: &mut Acceptor,
    token: &[u8],
    refused: Step,
    accounts: &SharedAccounts,
) -> Result<Step, Refusal> {
    let end = Instant::now() + NEWER_KEYS_PATIENCE;
    let mut step = refused;
    // A reload sets keys that are no newer for this ticket, so newer ones may have to come still.
    while let Step::Retry(_, refusal) = &step
        && refusal.needs_other_keys()
    {
        let waits = refusal.needs_newer_keys().then_some(end);
        let used = acceptor.service().cloned();
        let Some(service) = server.kerberos.newer(used.as_ref(), waits).await else { break };
        acceptor.take_keys(service);
        step = acceptor.step(token, server.ambient.now().0, &**accounts)?;
    }
    Ok(step)
}

/// Returns the host's user that the map of ids gives to a user of a domain; None if the host is to
/// be asked.
pub(crate) fn mapped(server: &ServerState, done: &Done) -> Option<OnHost> {
    let facts = domain_users::facts(&done.identity);
    let user = facts.and_then(|user| server.settings().id_map.user(user))?;
    Some(OnHost::Known(Some(Arc::new(user))))
}

/// Returns the identity of a user who has a name by [`name_user`] and is `host` on the host.
pub(crate) fn identity(
    server: &ServerState,
    done: &Done,
    host: OnHost,
    accounts: &SharedAccounts,
) -> Identity {
    let user = &*done.identity.user;
    let is_nobody = user.is_empty();
    let is_guest = done.identity.guest.is_some();
    let is_local = accounts.membership(user).is_some();
    let groups = match is_nobody {
        true => Arc::default(),
        false => server.groups(user, host.user()),
    };
    let Decided { token, ground } = match (is_nobody, domain_users::facts(&done.identity)) {
        (true, _) if is_guest => Decided { token: Arc::new(Token::guest()), ground: None },
        (true, _) => Decided { token: Arc::new(Token::nobody()), ground: None },
        (false, Some(pac)) => {
            let token = domain_users::token(pac, host.user(), &server.machine_sid());
            server.decide(&Candidate { user, groups: &groups, known_by: KnownBy::Domain }, &token)
        }
        (false, None) => {
            let token = server.account_token(user, host.user());
            server.decide(&Candidate { user, groups: &groups, known_by: KnownBy::Accounts }, &token)
        }
    };
    Identity {
        user: user.to_owned(),
        domain: done.identity.domain.clone(),
        workstation: done.identity.workstation.clone(),
        token,
        groups,
        host,
        administers_by: ground,
        is_local,
        is_guest,
    }
}
