//! Users whom a KDC has authenticated, as accounts of this server.

use std::sync::Arc;

use frevo_auth::kerberos::{DomainUser, LogonInfo};
use frevo_auth::{Accounts, Identity, Reason, Refusal};
use frevo_store::security::{Privileges, Token};
use frevo_wire::dtyp::{FileTime, Sid};

use crate::access::principals::{Principal, Use};
use crate::base::host::HostUser;

/// Returns the name by which the server knows a user, with the facts about the user that count
/// here.
///
/// Where settings name realms, the users of these realms are the accounts of the same names, and
/// all others are refused. Otherwise the users of a domain, whose SIDs the PAC tells, are
/// `DOMAIN\user`.
///
/// `now` is the time in seconds from 1970.
///
/// # Errors
/// The reason of a refusal; its text says what to do.
pub(crate) fn known(
    realms: &[String],
    accounts: &dyn Accounts,
    user: &Arc<DomainUser>,
    now: u64,
) -> Result<(String, Arc<DomainUser>), Reason> {
    let principal = &user.principal;
    if realms.is_empty() {
        let pac = user.pac.as_ref().ok_or_else(|| {
            Reason::NoAccount(format!(
                "the ticket of {principal} has no PAC; name the realm in realms of [kerberos]"
            ))
        })?;
        return Ok((name(pac), Arc::clone(user)));
    }
    if !realms.contains(&principal.realm) {
        return Err(Reason::NoAccount(format!(
            "{principal} is of a realm whose users are no accounts here; realms of [kerberos] has \
             {}",
            realms.join(", ")
        )));
    }
    let [name] = principal.components.as_slice() else {
        let why = format!("{principal} is a service or an instance, and no user");
        return Err(Reason::NoAccount(why));
    };
    // MS-KILE 3.1.5.7: names are compared without regard to case, because domain controllers return
    // the name as the client wrote it.
    let account = accounts.membership(name).ok_or_else(|| {
        let why = format!("there is no account for {principal}; add it: frevo user add {name}");
        Reason::NoAccount(why)
    })?;
    account.rules.check_ticket(now).map_err(Reason::Rule)?;
    // The configured account defines the user's groups, so the SIDs of the PAC are dropped.
    Ok((account.name, Arc::new(DomainUser { pac: None, ..DomainUser::clone(user) })))
}

/// Returns the name of a user of a domain.
pub(crate) fn name(user: &LogonInfo) -> String {
    format!("{}\\{}", user.domain, user.user_name)
}

/// Returns a user of a domain as one whose name clients may ask for.
pub(crate) fn principal(user: &LogonInfo) -> Principal {
    let (domain, name) = (user.domain.clone(), user.user_name.clone());
    Principal { sid: user.user, domain, name, kind: Use::User }
}

/// Returns the facts that a domain controller has told about a user, by Kerberos or NTLM.
pub(crate) fn facts(identity: &Identity) -> Option<&LogonInfo> {
    let by_ticket = identity.kerberos.as_ref().and_then(|user| user.pac.as_ref());
    by_ticket.or(identity.by_domain.as_deref())
}

/// Returns the advice about a user of a domain who came with a password that nobody here can judge.
/// `takes_tickets` says that tickets of every realm are taken; `own` is the name of the server.
pub(crate) fn hint(refusal: &Refusal, takes_tickets: bool, own: &str) -> Option<&'static str> {
    let is_stranger = refusal.reason == Reason::UnknownUser && !refusal.domain.is_empty();
    let is_own = refusal.domain.eq_ignore_ascii_case(own);
    (is_stranger && takes_tickets && !is_own).then_some(
        "users of a domain log on by Kerberos: connect by the server's name, with a ticket; for NTLM \
         name the domain in winbind_domains of [server]",
    )
}

/// True for a SID that a controller may give its users. It may not make them members of groups of
/// this machine: built-in ones, users of the host, the server's own accounts.
fn is_of_controller(sid: &Sid, machine: &Sid) -> bool {
    // SIDs under S-1-5-21 belong to a domain or to this machine; those under S-1-18 name ways of
    // authentication (MS-DTYP 2.4.2.4).
    let is_of_domain = sid.authority() == 5 && sid.sub_authorities().first() == Some(&21);
    let is_of_machine = sid.split_rid().is_some_and(|(domain, _)| domain == *machine);
    (is_of_domain && !is_of_machine) || sid.authority() == 18
}

/// True for a user whose SID is one of a domain. A controller may not say that its user is a group of
/// this machine, such as Administrators, or an account of this server.
pub(crate) fn has_own_sid(user: &LogonInfo, machine: &Sid) -> bool {
    is_of_controller(&user.user, machine)
}

/// Returns the token of a user of a domain: the SIDs that its controller gives, and those of the
/// host's user that operations run as. `machine` is the SID of this server, whose built-in groups
/// [`Administrators`](super::administrators::Administrators) gives.
pub(crate) fn token(pac: &LogonInfo, host: Option<&HostUser>, machine: &Sid) -> Token {
    let unix: Vec<Sid> = host.map_or_else(Vec::new, |host| {
        let groups = host.unix.groups.iter().map(|gid| Sid::unix_group(*gid));
        [Sid::unix_user(host.unix.uid)].into_iter().chain(groups).collect()
    });
    let given = pac.groups.iter().filter(|sid| is_of_controller(sid, machine));
    let all = Token::WELL_KNOWN.into_iter().chain(given.copied()).chain(unix);
    let own = Some(pac.primary_group).filter(|sid| is_of_controller(sid, machine));
    Token::new(pac.user, own.unwrap_or(pac.user), all, Privileges::EMPTY)
}

/// Returns the time at which a session ends. None for one that does not end by itself.
pub(crate) fn end(user: Option<&DomainUser>) -> Option<FileTime> {
    user.map(|user| user.expires)
}

#[cfg(test)]
pub(crate) mod tests {
    use frevo_auth::kerberos::UserAccountControl;

    use super::*;

    /// A user of a domain with RID 1,105, whose primary group has 513.
    pub(crate) fn ann(domain_sid: Sid, groups: Vec<Sid>) -> LogonInfo {
        LogonInfo {
            user_name: "ann".into(),
            full_name: String::new(),
            logon_server: String::new(),
            domain: "A".into(),
            domain_sid,
            user: domain_sid.with_rid(1_105).unwrap(),
            primary_group: domain_sid.with_rid(513).unwrap(),
            groups,
            upn: None,
            dns_domain: None,
            user_account_control: UserAccountControl::NORMAL,
            kick_off: None,
        }
    }

    #[test]
    fn a_controller_gives_no_groups_of_this_machine() {
        let sid = |text: &str| -> Sid { text.parse().unwrap() };
        let machine = sid("S-1-5-21-7-8-9");
        for given in ["S-1-5-21-1-2-3-513", "S-1-5-21-0-0-0-497", "S-1-18-1"] {
            assert!(is_of_controller(&sid(given), &machine), "{given}");
        }
        for not_given in [
            "S-1-5-32-544",
            "S-1-5-18",
            "S-1-22-1-0",
            "S-1-22-2-0",
            "S-1-5-21-7-8-9-1000",
            "S-1-3-0",
        ] {
            assert!(!is_of_controller(&sid(not_given), &machine), "{not_given}");
        }
    }

    #[test]
    fn the_token_has_no_others() {
        let sid = |text: &str| -> Sid { text.parse().unwrap() };
        let domain_sid = sid("S-1-5-21-1-2-3");
        let (own, builtin) = (sid("S-1-5-21-7-8-9-1000"), sid("S-1-5-32-544"));
        let group = sid("S-1-5-21-1-2-3-1200");
        let pac = ann(domain_sid, vec![own, builtin, group]);
        let token = token(&pac, None, &sid("S-1-5-21-7-8-9"));
        let has = |sid: &Sid| token.groups().contains(sid);
        assert!(has(&group) && !has(&own) && !has(&builtin) && !has(&Sid::USERS));
    }

    /// The RID of a primary group, below the SID of a domain that is none, makes no member of
    /// Administrators or of a group of this machine.
    #[test]
    fn the_primary_group_is_of_the_domain() {
        let sid = |text: &str| -> Sid { text.parse().unwrap() };
        let machine = sid("S-1-5-21-7-8-9");
        let of_domain = ann(sid("S-1-5-21-1-2-3"), Vec::new());
        assert_eq!(*token(&of_domain, None, &machine).primary_group(), of_domain.primary_group);
        for given in ["S-1-5-32-544", "S-1-5-21-7-8-9-513", "S-1-5-18"] {
            let pac = LogonInfo { primary_group: sid(given), ..of_domain.clone() };
            let token = token(&pac, None, &machine);
            assert_eq!(*token.primary_group(), pac.user);
            assert!(!token.contains(&sid(given)), "{given}");
        }
    }

    #[test]
    fn a_user_has_a_sid_of_a_domain() {
        let sid = |text: &str| -> Sid { text.parse().unwrap() };
        let machine = sid("S-1-5-21-7-8-9");
        for (domain, is_one) in
            [("S-1-5-21-1-2-3", true), ("S-1-5-32", false), ("S-1-5-21-7-8-9", false)]
        {
            assert_eq!(has_own_sid(&ann(sid(domain), Vec::new()), &machine), is_one, "{domain}");
        }
    }
}
