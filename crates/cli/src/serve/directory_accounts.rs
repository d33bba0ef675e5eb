//! The accounts of a server together with those of a directory. An account of the server comes before one of
//! the directory with its name.

use std::fmt;
use std::sync::Arc;

use frevo_auth::{Account, Accounts, Membership, NotChanged, NtHash};
use frevo_config::AccountName;
use frevo_server::account_directory::{AccountDirectory, DirectoryAccount};
use frevo_wire::dtyp::Sid;

use super::live_accounts::LiveAccounts;

/// Groups of the server itself. A directory makes nobody a member of them.
const OWN_GROUPS: [&str; 3] = ["Administrators", "Users", "Guests"];

/// The accounts of both.
pub(super) struct DirectoryAccounts {
    own: LiveAccounts,
    directory: Arc<AccountDirectory>,
    /// The SID of the machine.
    machine: Sid,
}

impl DirectoryAccounts {
    pub(super) fn new(own: LiveAccounts, directory: Arc<AccountDirectory>, machine: Sid) -> Self {
        Self { own, directory, machine }
    }

    fn is_own(&self, user: &str) -> bool {
        self.own.membership(user).is_some()
    }

    /// The relative identifier of an account, if it has one below the SID of the machine that no account of
    /// the server has: two accounts of one SID would have each other's rights.
    fn rid(&self, account: &DirectoryAccount) -> Option<u32> {
        let (domain, rid) = account.sid.as_ref()?.split_rid()?;
        let is_free = (FIRST_RID..NAMED_RID).contains(&rid) && !self.own.has_rid(rid);
        (domain == self.machine && is_free).then_some(rid)
    }

    fn facts(&self, account: &DirectoryAccount) -> Membership {
        let is_own = |name: &str| OWN_GROUPS.iter().any(|own| own.eq_ignore_ascii_case(name));
        let groups = account.groups.iter().filter(|name| !is_own(name));
        Membership {
            name: account.name.clone(),
            rid: self.rid(account),
            groups: groups.cloned().collect(),
            rules: account.rules.clone(),
        }
    }
}

/// The first relative identifier of accounts that are not built in.
const FIRST_RID: u32 = 1_000;
/// The first relative identifier of those that come from names of accounts and groups.
const NAMED_RID: u32 = 0x1000_0000;

impl Accounts for DirectoryAccounts {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        match self.is_own(user) {
            true => self.own.account(user, domain),
            false => self.directory.account(user),
        }
    }

    fn asks_directory(&self, user: &str, _: &str) -> Option<String> {
        let is_name = user.parse::<AccountName>().is_ok();
        (is_name && !self.is_own(user)).then(|| user.to_owned())
    }

    fn directory_of(&self, name: &str) -> Option<&'static str> {
        (!self.is_own(name) && self.directory.latest(name).is_some()).then_some("ldap")
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        let own = self.own.membership(user);
        own.or_else(|| Some(self.facts(&*self.directory.latest(user)?)))
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        let mut all = self.own.memberships(limit);
        let others = self.directory.remembered(limit);
        let others = others.iter().filter(|account| !self.is_own(&account.name));
        all.extend(others.map(|account| self.facts(account)));
        all.truncate(limit);
        all
    }

    fn password_hash(&self, name: &str) -> Option<NtHash> {
        match self.is_own(name) {
            true => self.own.password_hash(name),
            false => self.directory.latest(name)?.nt_hash.clone(),
        }
    }

    fn change_password(&self, user: &str, old: &NtHash, new: &str) -> Result<(), NotChanged> {
        match self.is_own(user) {
            true => self.own.change_password(user, old, new),
            false => Err(NotChanged::NotKept),
        }
    }
}

impl fmt::Debug for DirectoryAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryAccounts").field("own", &self.own).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use frevo_auth::{AccountFile, AccountRules};
    use frevo_server::account_directory::{AskDirectory, Lifetimes};
    use std::time::Duration;

    use super::*;
    use crate::accounts;
    use crate::password_rules::PasswordRules;

    /// A directory that knows ann and bob.
    #[derive(Debug)]
    struct Fake;

    impl AskDirectory for Fake {
        fn look_up(&self, user: &str) -> Result<Option<DirectoryAccount>, String> {
            let rid = match user {
                "ann" => 3_000,
                "bob" => 3_001,
                _ => return Ok(None),
            };
            Ok(Some(DirectoryAccount {
                name: user.to_owned(),
                nt_hash: Some(NtHash::from_password("of the directory")),
                sid: machine().with_rid(rid),
                groups: vec!["staff".into(), "administrators".into()],
                rules: AccountRules::default(),
            }))
        }
    }

    fn machine() -> Sid {
        "S-1-5-21-1-2-3".parse().unwrap()
    }

    fn both(file: AccountFile, machine: Sid) -> DirectoryAccounts {
        let lifetimes = Lifetimes { fresh: Duration::from_secs(60), away: Duration::from_secs(60) };
        let directory = Arc::new(AccountDirectory::new(Arc::new(Fake), lifetimes));
        for name in ["ann", "bob"] {
            directory.learn_now(name);
        }
        DirectoryAccounts::new(
            LiveAccounts::new(file, None, Vec::new(), "X".into(), PasswordRules::default()),
            directory,
            machine,
        )
    }

    #[test]
    fn an_account_of_the_file_comes_first() {
        let mut file = AccountFile::default();
        file.add(accounts::entry_of_run("Bob", "of the file")).unwrap();
        let both = both(file, machine());
        let (ann, bob) = (both.account("ann", "").unwrap(), both.account("bob", "").unwrap());
        assert_eq!(ann.nt_hash, NtHash::from_password("of the directory"));
        assert_eq!((&*bob.name, bob.nt_hash), ("Bob", NtHash::from_password("of the file")));
        assert_eq!(both.asks_directory("bob", ""), None);
        assert_eq!(both.asks_directory("carl", "").as_deref(), Some("carl"));
        assert_eq!(both.asks_directory("a/b", ""), None, "no name of an account");
        assert_eq!((both.directory_of("ann"), both.directory_of("bob")), (Some("ldap"), None));
        let listed: Vec<_> = both.memberships(9).into_iter().map(|one| one.name).collect();
        assert_eq!(listed, ["Bob", "ann"]);
        let hash = NtHash::from_password("of the directory");
        assert_eq!(both.change_password("ann", &hash, "new"), Err(NotChanged::NotKept));
        assert!(both.account("carl", "").is_none() && both.membership("carl").is_none());
    }

    /// A directory makes nobody an administrator, and gives nobody the SID of another account.
    #[test]
    fn a_directory_gives_no_rights_of_the_server() {
        let of_ann = |file, machine| both(file, machine).membership("ann").unwrap();
        let ann = of_ann(AccountFile::default(), machine());
        assert_eq!((ann.rid, ann.groups), (Some(3_000), vec!["staff".to_owned()]));
        let mut file = AccountFile::default();
        let mut other = accounts::entry_of_run("carl", "x");
        other.rid = Some(3_000);
        file.add(other).unwrap();
        assert_eq!(of_ann(file, machine()).rid, None);
        let elsewhere = "S-1-5-21-9-9-9".parse().unwrap();
        assert_eq!(of_ann(AccountFile::default(), elsewhere).rid, None);
    }
}
