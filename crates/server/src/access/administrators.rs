//! The users who administer the server: members of BUILTIN\Administrators. Also those of BUILTIN\Users.
//!
//! This module alone decides it, for privileges, for the services that manage the server, and for the
//! lists of members over SAMR. Administrators are the members of the group Administrators of the
//! account file, those that the configuration names, and Domain Admins of the joined domains. A name
//! of a domain gives nothing until its SID is known. Users are the accounts of the server, and Domain
//! Users of the joined domains.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use frevo_store::security::{Privileges, Token};
use frevo_wire::dtyp::Sid;

use crate::access::access_rules::{Caller, Names};
use crate::access::domain_names::{DomainSids, JoinedDomain};
use crate::access::principals::Principals;

/// DOMAIN_GROUP_RID_ADMINS of MS-SAMR 2.2.1.14.
const DOMAIN_ADMINS: u32 = 512;
/// DOMAIN_GROUP_RID_USERS of MS-SAMR 2.2.1.14.
pub(crate) const DOMAIN_USERS: u32 = 513;

/// The users and groups that a configuration makes administrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdministratorRules {
    named: Vec<Named>,
    /// True if Domain Admins of the joined domains are administrators.
    pub domain_admins: bool,
}

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    /// The entry as it is written.
    written: Arc<str>,
    names: Names,
}

impl AdministratorRules {
    /// Makes rules of these entries: `ann`, `@staff`, `EXAMPLE\ann`, `@EXAMPLE\staff` or
    /// `@S-1-5-21-...`.
    pub fn new<'a>(named: impl IntoIterator<Item = &'a str>, domain_admins: bool) -> Self {
        let named = named
            .into_iter()
            .map(|written| Named { written: written.into(), names: Names::of([written]) });
        Self { named: named.collect(), domain_admins }
    }

    /// Returns the names of domains in the list, in lower case.
    pub(crate) fn of_domains(&self) -> impl Iterator<Item = &str> {
        self.named.iter().flat_map(|named| named.names.of_domains())
    }

    /// True if the decision needs the groups of an account, also those of the host's user.
    pub(crate) fn need_groups(&self) -> bool {
        self.named.iter().any(|named| named.names.has_groups())
    }
}

impl Default for AdministratorRules {
    fn default() -> Self {
        Self { named: Vec::new(), domain_admins: true }
    }
}

/// The place where a user is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownBy {
    /// The accounts of this server.
    Accounts,
    /// The controller of a domain.
    Domain,
}

/// A user about whom the decision is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// The name by which the server knows the user.
    pub(crate) user: &'a str,
    /// The groups that rules may name, in lower case.
    pub(crate) groups: &'a [String],
    /// Where the user is known.
    pub(crate) known_by: KnownBy,
}

/// The token of a user, with the decision.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    pub(crate) token: Arc<Token>,
    /// The group or the entry by which the user administers the server. None for other users.
    pub(crate) ground: Option<Arc<str>>,
}

/// The rules with the SIDs that are known.
#[derive(Debug, Clone, Copy)]
pub struct Administrators<'a> {
    rules: &'a AdministratorRules,
    domains: &'a DomainSids,
}

impl<'a> Administrators<'a> {
    /// Makes a judge of these rules.
    pub const fn new(rules: &'a AdministratorRules, domains: &'a DomainSids) -> Self {
        Self { rules, domains }
    }

    /// Returns the token of a user with BUILTIN\Administrators and its privileges, or without. The token
    /// of a user of a domain has BUILTIN\Users if the joined domain makes the user a member.
    pub(crate) fn decide(&self, user: &Candidate<'_>, token: &Token) -> Decided {
        let is_account = user.known_by == KnownBy::Accounts;
        let is_builtin =
            |sid: &Sid| *sid == Sid::ADMINISTRATORS || (*sid == Sid::USERS && !is_account);
        let others = token.groups().iter().copied().filter(|sid| !is_builtin(sid));
        let is_user = !is_account && self.joined_of(DOMAIN_USERS, token).is_some();
        let others = others.chain(is_user.then_some(Sid::USERS));
        let with = |own: Option<Sid>, privileges| {
            let groups = others.clone().chain(own);
            Token::new(*token.user(), *token.primary_group(), groups, privileges)
        };
        // Only the account file puts an account into a built-in group.
        let ground = if is_account && token.contains(&Sid::ADMINISTRATORS) {
            Some(Arc::from("BUILTIN\\Administrators"))
        } else {
            self.ground(user, &with(None, Privileges::EMPTY))
        };
        let token = match ground {
            Some(_) => with(Some(Sid::ADMINISTRATORS), privileges()),
            None => with(None, Privileges::EMPTY),
        };
        Decided { token: Arc::new(token), ground }
    }

    fn ground(&self, user: &Candidate<'_>, token: &Token) -> Option<Arc<str>> {
        let is_account = user.known_by == KnownBy::Accounts;
        let caller = Caller {
            user: user.user,
            // Groups by name are those of accounts. Users of a domain, whom the host may have in
            // groups of its own, count by their SIDs alone.
            groups: if is_account { user.groups } else { &[] },
            groups_are_known: true,
            token,
            domain_sids: self.domains,
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let named = self.rules.named.iter().find(|named| named.names.certainly_has(&caller));
        if let Some(named) = named {
            return Some(Arc::clone(&named.written));
        }
        let admins = self.joined_of(DOMAIN_ADMINS, token);
        let admins = admins.filter(|_| self.rules.domain_admins && !is_account);
        admins.map(|domain| Arc::from(format!("{}\\Domain Admins", domain.name)))
    }

    /// The joined domain that makes a user a member of its group with this RID. The group is a global
    /// one, so its members are users of its own domain. A trusted domain makes nobody a member, whatever
    /// its controller says.
    fn joined_of(&self, rid: u32, token: &Token) -> Option<&'a JoinedDomain> {
        let of_user = token.user().split_rid().map(|(domain, _)| domain);
        let mut groups = self.joined(rid);
        let found = groups.find(|(of, sid)| of_user == Some(of.sid) && token.contains(sid));
        found.map(|(domain, _)| domain)
    }

    /// The groups with this RID of the joined domains.
    fn joined(&self, rid: u32) -> impl Iterator<Item = (&'a JoinedDomain, Sid)> {
        let domains = self.domains.joined().iter();
        domains.filter_map(move |domain| Some((domain, domain.sid.with_rid(rid)?)))
    }

    /// The members of a group: those of the account file, and of the built-in groups the users and
    /// groups of domains, too.
    pub fn members(&self, known: &Principals<'_>, group: &Sid) -> Vec<Sid> {
        let mut members = known.members(group);
        for further in self.further_members(known, group) {
            if !members.contains(&further) {
                members.push(further);
            }
        }
        members
    }

    /// The aliases that any of `sids` is in.
    pub fn memberships(&self, known: &Principals<'_>, sids: &[Sid]) -> Vec<Sid> {
        let mut found = known.memberships(sids);
        for alias in [Sid::ADMINISTRATORS, Sid::USERS] {
            let further = self.further_members(known, &alias);
            if further.iter().any(|sid| sids.contains(sid)) {
                found.push(alias);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The members of a built-in group that the account file does not have.
    fn further_members(&self, known: &Principals<'_>, group: &Sid) -> Vec<Sid> {
        match *group {
            Sid::ADMINISTRATORS => {
                let named = self.rules.named.iter();
                let named = named.flat_map(|named| named.names.sids(known, self.domains));
                let admins = self.joined(DOMAIN_ADMINS).filter(|_| self.rules.domain_admins);
                named.chain(admins.map(|(_, sid)| sid)).collect()
            }
            Sid::USERS => self.joined(DOMAIN_USERS).map(|(_, sid)| sid).collect(),
            _ => Vec::new(),
        }
    }
}

/// The privileges of administrators.
const fn privileges() -> Privileges {
    Privileges::SECURITY
        .union(Privileges::TAKE_OWNERSHIP)
        .union(Privileges::RESTORE)
        .union(Privileges::MANAGE_VOLUME)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "S-1-5-21-1-2-3";

    fn sid(text: &str) -> Sid {
        text.parse().unwrap()
    }

    fn joined_domain(name: &str) -> JoinedDomain {
        JoinedDomain { name: name.to_owned(), dns_name: String::new(), sid: sid(DOMAIN) }
    }

    /// A token whose primary group is the first of `groups` that is of a domain.
    fn token(user: &str, groups: &[&str]) -> Token {
        let of_domain = groups.iter().find(|group| group.starts_with("S-1-5-21-"));
        let primary = sid(of_domain.unwrap_or(&"S-1-5-21-1-2-3-513"));
        let groups = groups.iter().map(|text| sid(text)).chain(Token::WELL_KNOWN);
        Token::new(sid(user), primary, groups, Privileges::EMPTY)
    }

    fn domains() -> DomainSids {
        let names = [("a\\storage", "S-1-5-21-1-2-3-1200"), ("b\\eve", "S-1-5-21-9-9-9-1000")];
        let names = names.map(|(name, of)| (name.to_owned(), sid(of)));
        let joined = vec![joined_domain("A")];
        names.into_iter().collect::<DomainSids>().with_joined(joined)
    }

    /// The ground of a user of a domain, with these rules.
    fn of_domain(rules: &AdministratorRules, user: &str, groups: &[&str]) -> Option<String> {
        let domains = domains();
        let judge = Administrators::new(rules, &domains);
        let known_by = KnownBy::Domain;
        let candidate = Candidate { user: "A\\ann", groups: &[], known_by };
        let decided = judge.decide(&candidate, &token(user, groups));
        let (token, ground) = (decided.token, decided.ground);
        assert_eq!(token.contains(&Sid::ADMINISTRATORS), ground.is_some());
        assert_eq!(token.holds(privileges()), ground.is_some());
        assert_eq!(token.privileges().is_empty(), ground.is_none());
        ground.map(|ground| ground.to_string())
    }

    #[test]
    fn domain_users_of_the_joined_domain_are_users() {
        let (rules, domains) = (AdministratorRules::default(), domains());
        let judge = Administrators::new(&rules, &domains);
        for (user, groups, known_by, is_user) in [
            ("S-1-5-21-1-2-3-1105", &["S-1-5-21-1-2-3-513"][..], KnownBy::Domain, true),
            // A guest of the domain, whose group is Domain Guests.
            ("S-1-5-21-1-2-3-501", &["S-1-5-21-1-2-3-514", "S-1-5-32-545"], KnownBy::Domain, false),
            ("S-1-5-21-9-9-9-1105", &["S-1-5-21-9-9-9-513"], KnownBy::Domain, false),
            ("S-1-5-21-9-9-9-1105", &["S-1-5-21-1-2-3-513"], KnownBy::Domain, false),
            ("S-1-5-21-7-8-9-1000", &["S-1-5-32-545"], KnownBy::Accounts, true),
        ] {
            let candidate = Candidate { user: "ann", groups: &[], known_by };
            let decided = judge.decide(&candidate, &token(user, groups));
            assert_eq!(decided.token.contains(&Sid::USERS), is_user, "{user} {groups:?}");
        }
    }

    #[test]
    fn domain_admins_of_the_joined_domain_administer() {
        let rules = AdministratorRules::default();
        let admins = "S-1-5-21-1-2-3-512";
        let found = of_domain(&rules, "S-1-5-21-1-2-3-500", &[admins]);
        assert_eq!(found.as_deref(), Some("A\\Domain Admins"));
        for (user, groups) in [
            ("S-1-5-21-1-2-3-1105", &["S-1-5-21-1-2-3-513"][..]),
            // Other groups of administrators, as on a member of a domain.
            ("S-1-5-21-1-2-3-1105", &["S-1-5-21-1-2-3-519", "S-1-5-21-1-2-3-518"]),
            // A trusted domain: its own Domain Admins, and what it claims of the joined domain.
            ("S-1-5-21-9-9-9-500", &["S-1-5-21-9-9-9-512"]),
            ("S-1-5-21-9-9-9-500", &[admins]),
            // A controller does not give groups of this machine.
            ("S-1-5-21-1-2-3-1105", &["S-1-5-32-544"]),
        ] {
            assert_eq!(of_domain(&rules, user, groups), None, "{user} {groups:?}");
        }
        let none = AdministratorRules::new([], false);
        assert_eq!(of_domain(&none, "S-1-5-21-1-2-3-500", &[admins]), None);
    }

    #[test]
    fn named_users_and_groups_of_domains_administer_by_their_sids() {
        let listed = ["ann", "@A\\Storage", "B\\eve", "A\\gone", "@S-1-5-21-1-2-3-1300", "A\\ann"];
        let rules = AdministratorRules::new(listed, false);
        let of = |user: &str, groups: &[&str]| of_domain(&rules, user, groups);
        let ann = "S-1-5-21-1-2-3-1105";
        assert_eq!(of(ann, &["S-1-5-21-1-2-3-1200"]).as_deref(), Some("@A\\Storage"));
        assert_eq!(of(ann, &["S-1-5-21-1-2-3-1300"]).as_deref(), Some("@S-1-5-21-1-2-3-1300"));
        assert_eq!(of("S-1-5-21-9-9-9-1000", &[]).as_deref(), Some("B\\eve"));
        // The user is called `A\ann`, an entry of the list. Its SID is not known, so it gives nothing,
        // and the account `ann` is another user.
        assert_eq!(of(ann, &[]), None);
        let known: Vec<&str> = rules.of_domains().collect();
        assert_eq!(known, ["a\\storage", "b\\eve", "a\\gone", "a\\ann"]);
    }

    #[test]
    fn accounts_administer_by_name_or_group() {
        let domains = domains();
        let rules = AdministratorRules::new(["Ann", "@Staff"], true);
        let judge = Administrators::new(&rules, &domains);
        let of = |user: &str, groups: &[String], sids: &[&str], known_by| {
            let candidate = Candidate { user, groups, known_by };
            let decided = judge.decide(&candidate, &token("S-1-5-21-7-7-7-1000", sids));
            decided.ground.map(|ground| ground.to_string())
        };
        let staff = [String::from("staff")];
        let accounts = KnownBy::Accounts;
        assert_eq!(of("ANN", &[], &[], accounts).as_deref(), Some("Ann"));
        assert_eq!(of("bob", &staff, &[], accounts).as_deref(), Some("@Staff"));
        let in_file = of("bob", &[], &["S-1-5-32-544"], accounts);
        assert_eq!(in_file.as_deref(), Some("BUILTIN\\Administrators"));
        assert_eq!(of("bob", &[], &[], accounts), None);
        // The host has users of domains in its own groups, too, and they are other users.
        assert_eq!(of("A\\bob", &staff, &[], KnownBy::Domain), None);
        assert!(rules.need_groups() && !AdministratorRules::new(["ann"], true).need_groups());
        // An account is no member of a domain's group.
        assert_eq!(of("bob", &[], &["S-1-5-21-1-2-3-512"], accounts), None);
    }
}
