//! Accounts and the trait that finds them.

use crate::{AccountRules, NtHash};
use alloc::string::String;
use alloc::vec::Vec;

/// An account that can log on with a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The stored name, which the rest of the server uses, however the client spelled it.
    pub name: String,
    /// The hash of the account's password.
    pub nt_hash: NtHash,
    /// The rules for its logons. They count only after its password was right, so that strangers
    /// learn nothing of them.
    pub rules: AccountRules,
}

/// Facts about an account besides its password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    /// The user's name as it is stored.
    pub name: String,
    /// The relative identifier, if one is stored.
    pub rid: Option<u32>,
    /// Names of the account's groups.
    pub groups: Vec<String>,
    /// The rules for its logons.
    pub rules: AccountRules,
}

/// The reason why a user's password was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotChanged {
    /// The password of this user is kept elsewhere.
    NotKept,
    /// The password is not what it was when the change began.
    Outdated,
    /// The new password cannot be used, for this reason.
    Unusable(String),
    /// It cannot be stored; the text is for logs.
    Failed(String),
}

/// A source of accounts.
///
/// Names are case-insensitive (MS-NLMP 3.2.5.1.2). An implementation should take equally long for
/// unknown and for known users.
pub trait Accounts {
    /// Returns the account of `user`, in the client's spelling, in `domain`, which a standalone
    /// server may ignore. `None` if there is none or it has no NT hash.
    fn account(&self, user: &str, domain: &str) -> Option<Account>;

    /// Returns the name by which a directory has to be asked before the account of `user` is looked up
    /// here. None for a source that asks no directory, and for accounts that it has itself.
    fn asks_directory(&self, user: &str, domain: &str) -> Option<String> {
        let _ = (user, domain);
        None
    }

    /// Returns the kind of directory that the account of this stored name is of, for logs. None for accounts
    /// of the server itself.
    fn directory_of(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }

    /// Returns the facts about `user`; None for users of other servers.
    fn membership(&self, user: &str) -> Option<Membership> {
        let _ = user;
        None
    }

    /// Returns at most `limit` accounts, for listings.
    fn memberships(&self, limit: usize) -> Vec<Membership> {
        let _ = limit;
        Vec::new()
    }

    /// Returns the hash of the password of the account whose stored name is `name`, by which a
    /// changed password is found out. None for an account without a password here.
    fn password_hash(&self, name: &str) -> Option<NtHash> {
        let _ = name;
        None
    }

    /// Stores the new password of a user whose password has the hash `old`. It may wait for a disk.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    fn change_password(&self, user: &str, old: &NtHash, new: &str) -> Result<(), NotChanged> {
        let _ = (user, old, new);
        Err(NotChanged::NotKept)
    }
}

impl<A: Accounts + ?Sized> Accounts for &A {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        (**self).account(user, domain)
    }

    fn asks_directory(&self, user: &str, domain: &str) -> Option<String> {
        (**self).asks_directory(user, domain)
    }

    fn directory_of(&self, name: &str) -> Option<&'static str> {
        (**self).directory_of(name)
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        (**self).membership(user)
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        (**self).memberships(limit)
    }

    fn password_hash(&self, name: &str) -> Option<NtHash> {
        (**self).password_hash(name)
    }

    fn change_password(&self, user: &str, old: &NtHash, new: &str) -> Result<(), NotChanged> {
        (**self).change_password(user, old, new)
    }
}
