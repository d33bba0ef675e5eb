//! The users that may connect to a share, and those that may write there, in addition to the
//! rights of its files: lists of users, groups and networks.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

pub use frevo_net::IpNetwork;
use frevo_store::security::Token;
use frevo_wire::dtyp::{AccessMask, Sid};
use frevo_wire::fscc::fold_name;

use crate::access::domain_names::DomainSids;
use crate::access::principals::Principals;
use crate::access::share_access::AccessList;

/// Users and groups as a list has them, in lower case. Its length hardly shows in the time
/// that a look at it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
    /// Groups by SID, as those of a domain.
    sids: BTreeSet<Sid>,
    /// Users and groups of domains by name, as `domain\name`.
    domain_users: BTreeSet<String>,
    domain_groups: BTreeSet<String>,
}

impl Names {
    /// A list of users.
    pub fn users(names: &[&str]) -> Self {
        Self::of(names.iter().copied())
    }

    /// The names that a configuration lists: `ann`, `@staff` for all members of a group,
    /// `EXAMPLE\ann` and `@EXAMPLE\staff` for those of a domain, and `@S-1-5-21-...` for all
    /// users whose token has a SID.
    pub fn of<'a>(listed: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names = Self::default();
        for name in listed {
            match name.strip_prefix('@') {
                Some(group) => match group.parse() {
                    Ok(sid) => names.sids.insert(sid),
                    Err(_) if is_of_domain(group) => names.domain_groups.insert(fold_name(group)),
                    Err(_) => names.groups.insert(fold_name(group)),
                },
                None if is_of_domain(name) => names.domain_users.insert(fold_name(name)),
                None => names.users.insert(fold_name(name)),
            };
        }
        names
    }

    /// True when no name is listed.
    pub fn is_empty(&self) -> bool {
        let accounts_are = self.users.is_empty() && self.groups.is_empty() && self.sids.is_empty();
        accounts_are && self.domain_users.is_empty() && self.domain_groups.is_empty()
    }

    /// Returns the names of domains, in lower case.
    pub fn of_domains(&self) -> impl Iterator<Item = &str> {
        self.domain_users.iter().chain(&self.domain_groups).map(String::as_str)
    }

    /// True when the groups of a user's account and of the host are needed to tell whether the list has the user.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// True if the list has the caller.
    pub(crate) fn contains(&self, caller: &Caller<'_>) -> bool {
        if self.is_empty() {
            return false;
        }
        let user = fold_name(caller.user);
        let is_member = caller.groups.iter().any(|group| self.groups.contains(group));
        let has_sid = || self.sids.iter().any(|sid| caller.token.contains(sid));
        self.users.contains(&user) || is_member || has_sid() || self.has_of_domain(caller, &user)
    }

    /// True for a user of a domain that is listed by name or by a group. Only the tokens of such
    /// users have SIDs of domains.
    fn has_of_domain(&self, caller: &Caller<'_>, user: &str) -> bool {
        let is_user = |name: &String| {
            caller.domain_sids.find(name).is_some_and(|sid| caller.token.user() == sid)
        };
        let is_member = |name: &String| {
            caller.domain_sids.find(name).is_some_and(|sid| caller.token.contains(sid))
        };
        // The user's name comes from the domain controller (at logon), so comparing it needs no
        // look-up in the directory.
        self.domain_users.contains(user)
            || self.domain_users.iter().any(is_user)
            || self.domain_groups.iter().any(is_member)
    }

    /// True for a caller that the list has beyond doubt: users and groups of domains count by their
    /// SIDs alone, since a controller of any domain tells the names of its users.
    pub(crate) fn certainly_has(&self, caller: &Caller<'_>) -> bool {
        let is_member = || caller.groups.iter().any(|group| self.groups.contains(group));
        let has_sid = || self.sids.iter().any(|sid| caller.token.contains(sid));
        let has_name = |name: &String, is_it: &dyn Fn(&Sid) -> bool| {
            caller.domain_sids.find(name).is_some_and(is_it)
        };
        let is_user = |sid: &Sid| caller.token.user() == sid;
        let has_group = |sid: &Sid| caller.token.contains(sid);
        self.users.contains(&fold_name(caller.user))
            || is_member()
            || has_sid()
            || self.domain_users.iter().any(|name| has_name(name, &is_user))
            || self.domain_groups.iter().any(|name| has_name(name, &has_group))
    }

    /// Returns the SIDs of the users and groups in the list, as far as they are known. The accounts
    /// of a group of the account file stand in its place.
    pub(crate) fn sids(&self, known: &Principals<'_>, domain_sids: &DomainSids) -> Vec<Sid> {
        let mut sids: Vec<Sid> = self.sids.iter().copied().collect();
        let users = self.users.iter().filter_map(|name| known.account_sid(name));
        sids.extend(users.chain(self.groups.iter().flat_map(|name| known.group_sids(name))));
        sids.extend(self.of_domains().filter_map(|name| domain_sids.find(name)).copied());
        sids
    }

    /// True when a list that takes rights away must be assumed to have the caller, whose
    /// groups may not be known.
    fn may_contain(&self, caller: &Caller<'_>) -> bool {
        self.contains(caller)
            || self.has_groups() && !caller.groups_are_known
            || self.may_name(caller)
    }

    /// True when a name of a domain that is not resolved may be that of the caller or of a group of
    /// the caller. Another name in the caller's own domain is not. The domain may be this server by
    /// another name.
    fn may_name(&self, caller: &Caller<'_>) -> bool {
        let user = fold_name(caller.user);
        let is_open = |name: &&String| caller.domain_sids.find(name).is_none();
        let mut users = self.domain_users.iter().filter(is_open).filter_map(|n| n.split_once('\\'));
        let mut groups =
            self.domain_groups.iter().filter(is_open).filter_map(|name| name.split_once('\\'));
        match user.split_once('\\') {
            Some((domain, _)) => users.any(|(of, _)| of != domain) || groups.next().is_some(),
            None => {
                users.any(|(_, name)| name == user)
                    || groups.any(|(_, name)| caller.groups.iter().any(|group| group == name))
            }
        }
    }
}

/// True for a name that has its domain before it.
fn is_of_domain(name: &str) -> bool {
    name.contains('\\')
}

/// The caller that the rules judge.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Name of the account.
    pub user: &'a str,
    /// Groups of the account and of the host's user of that name, in lower case.
    pub groups: &'a [String],
    /// True when these are all groups: the host may not have named those of its user yet.
    pub groups_are_known: bool,
    /// The token of access checks.
    pub token: &'a Token,
    /// The SIDs of names of domains, as far as they are known.
    pub domain_sids: &'a DomainSids,
    /// Where the client is.
    pub address: IpAddr,
}

/// The verdict of the rules of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The user may not connect; with the reason.
    Refused(&'static str),
    /// The user may read.
    Reads,
    /// The user may read and write.
    Writes,
}

/// The rules of a share. Empty, they let everybody in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Users that may connect; empty: every user.
    pub allow: Names,
    /// Users that may not, even when they are in `allow`.
    pub deny: Names,
    /// Users that may only read.
    pub read_list: Names,
    /// Users that may write, even when the share is read-only or they are in `read_list`.
    pub write_list: Names,
    /// From where clients may connect; alone: from nowhere else.
    pub hosts_allow: Vec<IpNetwork>,
    /// From where they may not, unless `hosts_allow` has them.
    pub hosts_deny: Vec<IpNetwork>,
    /// Rights of users and groups by SID; none: all of them.
    pub access_list: Option<Arc<AccessList>>,
}

impl Rules {
    /// Rules that let in these users alone.
    pub fn for_users(names: &[&str]) -> Self {
        Self { allow: Names::users(names), ..Self::default() }
    }

    /// Returns the names of domains in the lists, in lower case.
    pub fn of_domains(&self) -> impl Iterator<Item = &str> {
        let lists = [&self.allow, &self.deny, &self.read_list, &self.write_list];
        lists.into_iter().flat_map(Names::of_domains)
    }

    /// True when a user's groups are needed for the verdict.
    pub fn need_groups(&self) -> bool {
        self.allow.has_groups()
            || self.deny.has_groups()
            || self.read_list.has_groups()
            || self.write_list.has_groups()
            || self.access_list.as_ref().is_some_and(|list| list.needs_host_users())
    }

    /// The most steps that checking these rules takes: one for each list of names that is not
    /// empty, each network, and each entry of the access list.
    pub fn steps(&self) -> usize {
        let lists = [&self.allow, &self.deny, &self.read_list, &self.write_list];
        let named = lists.into_iter().filter(|list| !list.is_empty()).count();
        let entries = self.access_list.as_ref().map_or(0, |list| list.entries().len());
        let networks = self.hosts_allow.len().saturating_add(self.hosts_deny.len());
        named.saturating_add(networks).saturating_add(entries)
    }

    /// The rights that the access list grants to `caller`.
    pub(crate) fn granted(&self, caller: &Caller<'_>) -> AccessMask {
        self.access_list.as_ref().map_or(AccessMask::FILE_ALL, |list| {
            list.granted(caller.token, caller.groups_are_known)
        })
    }

    /// True for an address from which clients may connect.
    pub(crate) fn takes_address(&self, address: IpAddr) -> bool {
        let listed = |networks: &[IpNetwork]| networks.iter().any(|n| n.contains(address));
        if self.hosts_deny.is_empty() {
            self.hosts_allow.is_empty() || listed(&self.hosts_allow)
        } else {
            listed(&self.hosts_allow) || !listed(&self.hosts_deny)
        }
    }

    /// The verdict for `caller`; `read_only` is the setting of the share.
    pub fn judge(&self, caller: &Caller<'_>, read_only: bool) -> Verdict {
        if !self.takes_address(caller.address) {
            return Verdict::Refused(
                "`hosts_allow` or `hosts_deny` of the share forbids this address",
            );
        }
        if self.deny.contains(caller) {
            return Verdict::Refused("the user is in `deny` of the share");
        }
        if self.deny.has_groups() && !caller.groups_are_known {
            return Verdict::Refused(
                "`deny` of the share has groups, and the host cannot look up the groups of the user",
            );
        }
        if self.deny.may_contain(caller) {
            return Verdict::Refused(
                "`deny` of the share has names of a domain that are not resolved",
            );
        }
        if !self.allow.is_empty() && !self.allow.contains(caller) {
            return Verdict::Refused("the user is not in `allow` of the share");
        }
        let granted = self.granted(caller);
        if !granted.contains(AccessMask::READ_DATA) {
            return Verdict::Refused("`access_list` of the share does not let the user read");
        }
        if !AccessList::writes(granted) {
            return Verdict::Reads;
        }
        let writes =
            self.write_list.contains(caller) || !(read_only || self.read_list.may_contain(caller));
        if writes { Verdict::Writes } else { Verdict::Reads }
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::security::Privileges;

    use super::*;

    fn names(listed: &[&str]) -> Names {
        Names::of(listed.iter().copied())
    }

    fn networks(listed: &[&str]) -> Vec<IpNetwork> {
        listed.iter().map(|network| network.parse().unwrap()).collect()
    }

    fn judge(rules: &Rules, user: &str, groups: &[&str], address: &str) -> Verdict {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let address = address.parse().unwrap();
        let token = &Token::nobody();
        let domain_sids = &DomainSids::default();
        let caller =
            Caller { user, groups: &groups, groups_are_known: true, token, domain_sids, address };
        rules.judge(&caller, false)
    }

    #[test]
    fn lists_of_users() {
        let rules = Rules {
            allow: names(&["Ann", "@Staff"]),
            deny: names(&["bob", "@guests"]),
            ..Rules::default()
        };
        let verdict = |user, groups: &[&str]| judge(&rules, user, groups, "192.0.2.1");
        assert_eq!(verdict("ANN", &[]), Verdict::Writes);
        assert_eq!(verdict("carl", &["staff"]), Verdict::Writes);
        for (user, groups) in
            [("carl", &[][..]), ("bob", &["staff"]), ("ann", &["guests"]), ("staff", &[])]
        {
            assert!(matches!(verdict(user, groups), Verdict::Refused(_)), "{user} {groups:?}");
        }
        let everybody = Rules { deny: names(&["bob"]), ..Rules::default() };
        assert_eq!(judge(&everybody, "ann", &[], "::1"), Verdict::Writes);
        assert!(matches!(judge(&everybody, "Bob", &[], "::1"), Verdict::Refused(_)));
        assert!(rules.need_groups() && !everybody.need_groups());
    }

    /// Groups of a domain are in the token, whatever the host knows of the user.
    #[test]
    fn groups_by_sid() {
        let domain: Sid = "S-1-5-21-1-2-3".parse().unwrap();
        let sid = |rid| domain.with_rid(rid).unwrap();
        let rules = Rules {
            allow: names(&["@S-1-5-21-1-2-3-1108"]),
            deny: names(&["@s-1-5-21-1-2-3-1109"]),
            ..Rules::default()
        };
        assert!(!rules.need_groups() && !rules.allow.is_empty());
        let judged = |groups: &[u32]| {
            let groups = groups.iter().map(|rid| sid(*rid));
            let token = &Token::new(sid(1_105), sid(513), groups, Privileges::EMPTY);
            let address = "::1".parse().unwrap();
            let (user, domain_sids) = ("A\\ann", &DomainSids::default());
            let groups_are_known = false;
            let caller =
                Caller { user, groups: &[], groups_are_known, token, domain_sids, address };
            rules.judge(&caller, false)
        };
        assert_eq!(judged(&[1_108]), Verdict::Writes);
        for groups in [&[][..], &[1_110], &[1_108, 1_109]] {
            assert!(matches!(judged(groups), Verdict::Refused(_)), "{groups:?}");
        }
    }

    /// While the SID of a name is not known, a list that takes rights away has all users of
    /// domains, and a list that gives rights nobody.
    #[test]
    fn names_of_a_domain() {
        let domain: Sid = "S-1-5-21-1-2-3".parse().unwrap();
        let sid = |rid| domain.with_rid(rid).unwrap();
        let judged = |rules: &Rules, user: &str, groups: &[u32], known: &[(&str, u32)]| {
            let token = &Token::new(
                sid(1_105),
                sid(513),
                groups.iter().map(|rid| sid(*rid)),
                Privileges::EMPTY,
            );
            let domain_sids =
                &known.iter().map(|(name, rid)| ((*name).into(), sid(*rid))).collect();
            let (groups, address) = (&[String::from("staff")], "::1".parse().unwrap());
            let groups_are_known = true;
            let caller = Caller { user, groups, groups_are_known, token, domain_sids, address };
            rules.judge(&caller, false)
        };
        let is_refused = |verdict| matches!(verdict, Verdict::Refused(_));
        let known = &[("corp\\staff", 1_108), ("corp.test\\ann", 1_105)][..];
        let allow = |listed| Rules { allow: names(listed), ..Rules::default() };
        let group = allow(&["@CORP\\Staff"]);
        assert!(!group.allow.is_empty() && group.steps() == 1 && !group.need_groups());
        assert_eq!(group.of_domains().collect::<Vec<_>>(), ["corp\\staff"]);
        assert_eq!(judged(&group, "CORP\\ann", &[1_108], known), Verdict::Writes);
        assert!(is_refused(judged(&group, "CORP\\ann", &[1_109], known)));
        assert!(is_refused(judged(&group, "CORP\\ann", &[1_108], &[])));
        assert!(is_refused(judged(&group, "ann", &[], known)), "a group of the same name");
        assert_eq!(judged(&allow(&["Corp\\Ann"]), "CORP\\ann", &[], &[]), Verdict::Writes);
        let by_dns = allow(&["corp.test\\ann"]);
        assert_eq!(judged(&by_dns, "CORP\\ann", &[], known), Verdict::Writes);
        assert!(is_refused(judged(&by_dns, "CORP\\ann", &[], &[])));
        // A list entry without "@" names a user: "CORP\staff" does not admit members of the group
        // "staff".
        let user = allow(&["CORP\\staff"]);
        assert!(is_refused(judged(&user, "CORP\\ann", &[1_108], known)));

        let deny = |listed| Rules { deny: names(listed), ..Rules::default() };
        let group = deny(&["@CORP\\staff"]);
        assert!(is_refused(judged(&group, "CORP\\ann", &[1_108], known)));
        assert_eq!(judged(&group, "CORP\\ann", &[1_109], known), Verdict::Writes);
        let open = judged(&group, "CORP\\ann", &[1_109], &[]);
        assert!(matches!(open, Verdict::Refused(why) if why.contains("not resolved")));
        assert_eq!(judged(&deny(&["@X\\temps"]), "ann", &[], &[]), Verdict::Writes);
        let this_server = judged(&deny(&["@X\\staff"]), "ann", &[], &[]);
        assert!(is_refused(this_server), "the domain may be this server");
        assert!(is_refused(judged(&deny(&["X\\ann"]), "ann", &[], &[])));
        let user = deny(&["CORP\\bob"]);
        assert_eq!(judged(&user, "CORP\\ann", &[], &[]), Verdict::Writes, "another of the domain");
        assert!(is_refused(judged(&user, "CORP\\BOB", &[], &[])));
        assert!(is_refused(judged(&deny(&["corp.test\\bob"]), "CORP\\bob", &[], &[])));
        let read = Rules { read_list: names(&["@CORP\\staff"]), ..Rules::default() };
        assert_eq!(judged(&read, "CORP\\ann", &[1_109], &[]), Verdict::Reads);
        assert_eq!(judged(&read, "CORP\\ann", &[1_109], known), Verdict::Writes);
        let write = Rules { write_list: names(&["@CORP\\staff"]), ..read };
        assert_eq!(judged(&write, "CORP\\ann", &[1_108], known), Verdict::Writes);
        assert_eq!(judged(&write, "CORP\\ann", &[1_108], &[]), Verdict::Reads);
    }

    #[test]
    fn lists_of_networks() {
        let judged = |allow: &[&str], deny: &[&str], address| {
            let rules = Rules {
                hosts_allow: networks(allow),
                hosts_deny: networks(deny),
                ..Rules::default()
            };
            judge(&rules, "ann", &[], address) == Verdict::Writes
        };
        let net = &["192.0.2.0/24"][..];
        let one = &["192.0.2.7"][..];
        assert!(judged(net, &[], "192.0.2.1") && !judged(net, &[], "192.0.3.1"));
        assert!(!judged(&[], net, "192.0.2.1") && judged(&[], net, "192.0.3.1"));
        // An address in `hosts_allow` is admitted even if `hosts_deny` has its network, and so is
        // an address in neither list.
        assert!(judged(one, net, "192.0.2.7") && !judged(one, net, "192.0.2.8"));
        assert!(judged(one, net, "203.0.113.1"));
    }

    #[test]
    fn lists_of_readers_and_writers() {
        let rules = Rules {
            read_list: names(&["bob", "@temps"]),
            write_list: names(&["ann"]),
            ..Rules::default()
        };
        let judged = |user, groups: &[&str], read_only| {
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            let address = "::1".parse().unwrap();
            let (token, domain_sids) = (&Token::nobody(), &DomainSids::default());
            let groups_are_known = true;
            let caller =
                Caller { user, groups: &groups, groups_are_known, token, domain_sids, address };
            rules.judge(&caller, read_only)
        };
        assert_eq!(judged("bob", &[], false), Verdict::Reads);
        assert_eq!(judged("carl", &["temps"], false), Verdict::Reads);
        assert_eq!(judged("carl", &[], false), Verdict::Writes);
        assert_eq!(judged("carl", &[], true), Verdict::Reads);
        assert_eq!(judged("ann", &["temps"], true), Verdict::Writes);
    }

    /// Tests that `access_list` bounds the other rules: `write_list` gives no right that it does
    /// not grant.
    #[test]
    fn the_access_list_bounds_the_rest() {
        let rules = |entries: &[&str]| {
            let entries = entries.iter().map(|entry| entry.parse().unwrap()).collect();
            let access_list = Some(Arc::new(AccessList::new(entries)));
            Rules { access_list, write_list: names(&["ann"]), ..Rules::default() }
        };
        let judged = |entries: &[&str]| judge(&rules(entries), "ann", &[], "::1");
        assert_eq!(judged(&["allow:S-1-1-0:full"]), Verdict::Writes);
        assert_eq!(judged(&["allow:S-1-1-0:change"]), Verdict::Writes);
        assert_eq!(judged(&["allow:S-1-1-0:read"]), Verdict::Reads);
        for none in [&[][..], &["allow:S-1-5-32-544:full"], &["allow:S-1-1-0:0x2"]] {
            assert!(matches!(judged(none), Verdict::Refused(_)), "{none:?}");
        }
        assert_eq!(rules(&["allow:S-1-1-0:read"]).steps(), 2);
        assert!(rules(&["allow:S-1-22-2-7:read"]).need_groups());
    }

    /// While the host has not named a user's groups, the user counts as a member of the groups
    /// that are denied, and of none that is allowed.
    #[test]
    fn groups_that_are_not_known_give_nothing() {
        let judged = |rules: &Rules| {
            let address = "::1".parse().unwrap();
            let groups = &[String::from("known")];
            let (token, domain_sids) = (&Token::nobody(), &DomainSids::default());
            let (user, groups_are_known) = ("ann", false);
            let caller = Caller { user, groups, groups_are_known, token, domain_sids, address };
            rules.judge(&caller, false)
        };
        let is_refused = |verdict| matches!(verdict, Verdict::Refused(_));
        let deny = |listed| Rules { deny: names(listed), ..Rules::default() };
        assert!(is_refused(judged(&deny(&["@guests"]))));
        assert_eq!(judged(&deny(&["bob"])), Verdict::Writes);
        let allow = |listed| Rules { allow: names(listed), ..Rules::default() };
        assert!(is_refused(judged(&allow(&["@staff"]))));
        assert_eq!(judged(&allow(&["@known"])), Verdict::Writes);
        let read = Rules { read_list: names(&["@temps"]), ..Rules::default() };
        assert_eq!(judged(&read), Verdict::Reads);
        let write = Rules { write_list: names(&["ann"]), ..read };
        assert_eq!(judged(&write), Verdict::Writes);
    }
}
