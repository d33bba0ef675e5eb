//! The accounts of a run, whose users may change their passwords.

use std::fmt;
use std::path::PathBuf;
use std::sync::{OnceLock, PoisonError, RwLock};

use frevo_auth::{Account, AccountFile, AccountRules, Accounts, Membership, NotChanged, NtHash};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::account_changes::{check_lines, set_password};
use crate::password_rules::PasswordRules;
use crate::{accounts, secret_file};
use frevo_wire::fscc::fold_name;

/// The zone of the server's clock. It is read once, since a confined server cannot read it again.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Tells the hours of the server's clock by how much it is ahead of UTC now.
fn by_the_clock(mut rules: AccountRules) -> AccountRules {
    if let Some(hours) = rules.hours.as_mut().filter(|hours| hours.is_local) {
        hours.ahead = ZONE.get_or_init(TimeZone::system).to_offset(Timestamp::now()).seconds();
    }
    rules
}

/// The accounts as they are now, and the file that keeps them.
pub(super) struct LiveAccounts {
    now: RwLock<AccountFile>,
    /// None for a run without state.
    path: Option<PathBuf>,
    /// Names of users whose passwords are kept elsewhere.
    given: Vec<String>,
    /// The realm of the users' Kerberos keys.
    realm: String,
    rules: PasswordRules,
}

impl LiveAccounts {
    pub(super) fn new(
        now: AccountFile,
        path: Option<PathBuf>,
        given: Vec<String>,
        realm: String,
        rules: PasswordRules,
    ) -> Self {
        ZONE.get_or_init(TimeZone::system);
        Self { now: RwLock::new(now), path, given, realm, rules }
    }

    /// True for a user whose password is kept elsewhere.
    fn is_given(&self, user: &str) -> bool {
        self.given.iter().any(|name| fold_name(name) == fold_name(user))
    }

    /// Returns the rules for an account of `now`, as they are at this moment.
    fn rules_of(&self, now: &AccountFile, name: &str, rules: AccountRules) -> AccountRules {
        let entry = now.find(name).filter(|_| !self.is_given(name));
        let password_ends = entry.and_then(|entry| self.rules.end(entry));
        AccountRules { password_ends, ..by_the_clock(rules) }
    }

    /// True if an account has this relative identifier.
    pub(super) fn has_rid(&self, rid: u32) -> bool {
        self.look(|now| now.entries().any(|entry| entry.rid == Some(rid)))
    }

    fn look<T>(&self, look: impl FnOnce(&AccountFile) -> T) -> T {
        look(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Accounts for LiveAccounts {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        self.look(|now| {
            let account = now.account(user, domain)?;
            Some(Account { rules: self.rules_of(now, &account.name, account.rules), ..account })
        })
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        self.look(|now| {
            let known = now.membership(user)?;
            Some(Membership { rules: self.rules_of(now, &known.name, known.rules), ..known })
        })
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        self.look(|now| now.memberships(limit))
    }

    fn password_hash(&self, name: &str) -> Option<NtHash> {
        self.look(|now| now.password_hash(name))
    }

    fn change_password(&self, user: &str, old: &NtHash, new: &str) -> Result<(), NotChanged> {
        let is_given = self.is_given(user);
        let path = self.path.as_ref().filter(|_| !is_given).ok_or(NotChanged::NotKept)?;
        let failed = |failure: crate::exit::Failure| NotChanged::Failed(failure.to_string());
        let _lock = secret_file::lock(path).map_err(failed)?;
        let mut file = accounts::read(path).map_err(failed)?;
        // The password is replaced only if it is still `old`, because another program may have
        // changed it, or removed the account.
        if file.find(user).is_none_or(|entry| entry.nt_hash.as_ref() != Some(old)) {
            return Err(NotChanged::Outdated);
        }
        set_password(&mut file, user, new, &self.realm, &self.rules)
            .map_err(NotChanged::Unusable)?;
        if NtHash::from_password(new) == *old {
            return Err(NotChanged::Unusable(String::from("it is the present one")));
        }
        let text = file.to_text();
        check_lines(&text).map_err(failed)?;
        secret_file::replace(path, &text).map_err(failed)?;
        let Some(entry) = file.find(user).cloned() else { return Err(NotChanged::Outdated) };
        let mut current = self.now.write().unwrap_or_else(PoisonError::into_inner);
        current.put(entry).map_err(|why| NotChanged::Failed(String::from(why)))
    }
}

impl fmt::Debug for LiveAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveAccounts").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use frevo_auth::smbpasswd::RulesChange;
    use frevo_config::Config;

    use super::*;

    #[test]
    fn a_change_is_stored_and_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let mut file = AccountFile::default();
        for name in ["ann", "bob"] {
            file.add(accounts::entry(name, "old", "BOX")).unwrap();
        }
        secret_file::replace(&path, &file.to_text()).unwrap();
        let given = vec![String::from("Bob")];
        let rules = PasswordRules::default();
        let live = LiveAccounts::new(file, Some(path.clone()), given, String::from("BOX"), rules);
        let (old, new) = (NtHash::from_password("old"), NtHash::from_password("new"));
        assert_eq!(live.change_password("bob", &old, "new"), Err(NotChanged::NotKept));
        assert_eq!(live.change_password("ann", &new, "new"), Err(NotChanged::Outdated));
        assert_eq!(live.change_password("carl", &old, "new"), Err(NotChanged::Outdated));
        for unusable in ["", "a\nb", "a\0"] {
            let refused = live.change_password("ann", &old, unusable);
            assert!(matches!(refused, Err(NotChanged::Unusable(_))), "{unusable:?}");
        }
        let same = live.change_password("ann", &old, "old");
        assert_eq!(same, Err(NotChanged::Unusable(String::from("it is the present one"))));
        assert_eq!(live.change_password("ann", &old, "new"), Ok(()));
        assert_eq!(live.account("ann", "").unwrap().nt_hash, new);
        let stored = accounts::read(&path).unwrap();
        let entry = stored.find("ann").unwrap();
        assert_eq!(entry.nt_hash, Some(new));
        assert_eq!(entry.kerberos, Some(accounts::kerberos_keys("ann", "new", "BOX")));
        assert_eq!(stored.find("bob").unwrap().nt_hash, Some(old));
    }

    /// The rules of [passwords] hold for passwords that are kept here: not for those of the configuration.
    #[test]
    fn passwords_get_old_and_are_not_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let mut file = AccountFile::default();
        for name in ["ann", "bob"] {
            file.add(accounts::entry(name, "old", "BOX")).unwrap();
        }
        let hours = Some(Some("mon 07:00-19:00".parse().unwrap()));
        let change = RulesChange { hours, ..RulesChange::default() };
        file.set_rules("ann", &change).unwrap();
        secret_file::replace(&path, &file.to_text()).unwrap();
        let config = "[passwords]\nhistory = 1\nmax_age = \"1 day\"\n";
        let rules = PasswordRules::of(Some(&Config::parse(config).unwrap()));
        let given = vec![String::from("Bob")];
        let live = LiveAccounts::new(file, Some(path.clone()), given, String::from("BOX"), rules);
        let ends = |name: &str| live.account(name, "").unwrap().rules.password_ends;
        let set = live.look(|now| now.find("ann").unwrap().last_change.unwrap());
        assert_eq!((ends("ann"), ends("bob")), (Some(u64::from(set) + 86_400), None));
        let ahead = ZONE.get().unwrap().to_offset(Timestamp::now()).seconds();
        let rules = live.membership("ann").unwrap().rules;
        assert_eq!(rules.hours.map(|hours| (hours.is_local, hours.ahead)), Some((true, ahead)));
        let (old, new) = (NtHash::from_password("old"), NtHash::from_password("new"));
        let again = live.change_password("ann", &old, "old");
        assert_eq!(again, Err(NotChanged::Unusable(String::from("it was used before"))));
        assert_eq!(live.change_password("ann", &old, "new"), Ok(()));
        let again = live.change_password("ann", &new, "old");
        assert_eq!(again, Err(NotChanged::Unusable(String::from("it was used before"))));
        assert_eq!(live.change_password("ann", &new, "newer"), Ok(()));
        let newer = NtHash::from_password("newer");
        assert_eq!(live.change_password("ann", &newer, "old"), Ok(()), "two passwords ago");
        assert_eq!(accounts::read(&path).unwrap().find("ann").unwrap().former, [newer]);
    }
}
