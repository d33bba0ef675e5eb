//! A fixed list of users.

use std::collections::BTreeMap;

use frevo_auth::{Account, AccountRules, Accounts, Membership, NtHash};
use frevo_wire::fscc::fold_name;

/// A fixed list of users with their passwords, for programs without accounts of their own.
///
/// It keeps hashes of the passwords. Upper and lower case of names are one.
#[derive(Debug, Clone, Default)]
pub struct UserList(BTreeMap<String, Account>);

impl UserList {
    /// Returns a list without users.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds a user, or gives it another password.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        let name = fold_name(name);
        let nt_hash = NtHash::from_password(password);
        self.0.insert(name.clone(), Account { name, nt_hash, rules: AccountRules::default() });
        self
    }

    /// Disables a user: its logons fail even with the right password.
    #[must_use]
    pub fn disable(mut self, name: &str) -> Self {
        if let Some(account) = self.0.get_mut(&fold_name(name)) {
            account.rules.is_disabled = true;
        }
        self
    }
}

impl Accounts for UserList {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        self.0.get(&fold_name(user)).cloned()
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        self.0.get(&fold_name(user)).map(membership)
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        self.0.values().take(limit).map(membership).collect()
    }

    fn password_hash(&self, name: &str) -> Option<NtHash> {
        self.0.get(&fold_name(name)).map(|account| account.nt_hash.clone())
    }
}

fn membership(account: &Account) -> Membership {
    Membership { name: account.name.clone(), rules: account.rules.clone(), ..Membership::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ignore_case_and_disabled_users_stay_known() {
        let users = UserList::new().user("Ann", "secret").user("bob", "x").disable("BOB");
        let ann = users.account("ANN", "anywhere").unwrap();
        assert_eq!((ann.name.as_str(), ann.rules.is_disabled), ("ann", false));
        assert_eq!(ann.nt_hash, NtHash::from_password("secret"));
        assert!(users.account("bob", "").unwrap().rules.is_disabled);
        assert!(users.account("carl", "").is_none());
        // In Unicode, ſ folds to s and the Kelvin sign to k. Windows takes them as different
        // letters, and so must this server.
        let users = users.user("susan", "x").user("kate", "x").user("Ägir", "x");
        assert!(users.account("äGIR", "").is_some());
        for other in ["\u{17F}usan", "\u{212A}ate"] {
            assert!(users.account(other, "").is_none(), "{other}");
        }
        assert_eq!(users.memberships(1).len(), 1);
        assert!(users.membership("bob").unwrap().rules.is_disabled);
    }
}
