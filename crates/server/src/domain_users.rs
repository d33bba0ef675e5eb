//! Users whom a KDC has authenticated, as accounts of this server.

use std::sync::Arc;

use frevo_auth::kerberos::{DomainUser, LogonInfo};
use frevo_auth::{Identity, Reason, Refusal};
use frevo_store::security::{Privileges, Token};
use frevo_wire::dtyp::{FileTime, Sid};

use crate::host_users::HostUser;
use crate::server::ServerState;

/// Returns the name by which the server knows a user, with the facts about the user that count
/// here.
///
/// Where settings name realms, the users of these realms are the accounts of the same names, and
/// all others are refused. Otherwise the users of a domain, whose SIDs the PAC tells, are
/// `DOMAIN\user`.
///
/// # Errors
/// The reason of a refusal, with what to do, for the log.
pub(crate) fn known(
    server: &ServerState,
    user: &Arc<DomainUser>,
) -> Result<(String, Arc<DomainUser>), String> {
    let realms = &server.settings().realms;
    let principal = &user.principal;
    if realms.is_empty() {
        let pac = user.pac.as_ref().ok_or_else(|| {
            format!("the ticket of {principal} has no PAC; name the realm in realms of [kerberos]")
        })?;
        return Ok((name(pac), Arc::clone(user)));
    }
    if !realms.contains(&principal.realm) {
        return Err(format!(
            "{principal} is of a realm whose users are no accounts here; realms of [kerberos] has \
             {}",
            realms.join(", ")
        ));
    }
    let [name] = principal.components.as_slice() else {
        return Err(format!("{principal} is a service or an instance, and no user"));
    };
    let account = server.accounts().membership(name).ok_or_else(|| {
        format!("there is no account for {principal}; add it: frevo user add {name}, then reload")
    })?;
    if !account.is_enabled {
        return Err(String::from("the account is disabled"));
    }
    // The account has SIDs of its own.
    Ok((account.name, Arc::new(DomainUser { pac: None, ..DomainUser::clone(user) })))
}

/// Returns the name of a user of a domain.
pub(crate) fn name(user: &LogonInfo) -> String {
    format!("{}\\{}", user.domain, user.user_name)
}

/// Returns the facts that a domain controller has told about a user, by Kerberos or NTLM.
pub(crate) fn facts(identity: &Identity) -> Option<&LogonInfo> {
    let by_ticket = identity.kerberos.as_ref().and_then(|user| user.pac.as_ref());
    by_ticket.or(identity.by_domain.as_deref())
}

/// Returns the advice about a user of a domain who came with a password that nobody here can judge.
pub(crate) fn hint(server: &ServerState, refusal: &Refusal) -> Option<&'static str> {
    let is_stranger = refusal.reason == Reason::UnknownUser && !refusal.domain.is_empty();
    let takes_tickets = server.kerberos.service().is_some() && server.settings().realms.is_empty();
    let is_own = refusal.domain.eq_ignore_ascii_case(&server.settings().server_name);
    (is_stranger && takes_tickets && !is_own).then_some(
        "users of a domain log on by Kerberos: connect by the server's name, with a ticket; for NTLM \
         name the domain in winbind_domains of [server]",
    )
}

/// Returns the token of a user of a domain: the SIDs that its controller gives, and those of the
/// host's user that operations run as.
pub(crate) fn token(pac: &LogonInfo, host: Option<&HostUser>) -> Arc<Token> {
    let unix: Vec<Sid> = host.map_or_else(Vec::new, |host| {
        let groups = host.unix.groups.iter().map(|gid| Sid::unix_group(*gid));
        [Sid::unix_user(host.unix.uid)].into_iter().chain(groups).collect()
    });
    let all = Token::WELL_KNOWN.into_iter().chain([Sid::USERS]);
    let all = all.chain(pac.groups.iter().copied()).chain(unix);
    Arc::new(Token::new(pac.user, pac.primary_group, all, Privileges::EMPTY))
}

/// Returns the time at which a session ends. None for one that does not end by itself.
pub(crate) fn end(user: Option<&DomainUser>) -> Option<FileTime> {
    user.map(|user| user.expires)
}
