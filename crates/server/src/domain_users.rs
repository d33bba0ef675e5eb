//! Users whom a KDC has authenticated, as accounts of this server.

use std::sync::Arc;

use frevo_auth::kerberos::{DomainUser, LogonInfo};
use frevo_store::security::{Privileges, Token};
use frevo_wire::dtyp::{FileTime, Sid};

use crate::host_users::HostUser;
use crate::server::ServerState;

/// Returns the name by which the server knows a user: `DOMAIN\user` of a domain, the account of
/// this server that the realm of its own keys names, `user@REALM` of another one.
///
/// # Errors
/// Fails for an account of this server that is disabled.
pub(crate) fn account(server: &ServerState, user: &DomainUser) -> Result<String, &'static str> {
    if let Some(pac) = &user.pac {
        return Ok(format!("{}\\{}", pac.domain, pac.user_name));
    }
    let principal = &user.principal;
    if let [name] = principal.components.as_slice()
        && principal.realm == user.service_realm
        && let Some(account) = server.accounts().membership(name)
    {
        return if account.is_enabled { Ok(account.name) } else { Err("the account is disabled") };
    }
    Ok(principal.to_string())
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
