//! Who may log on.

use crate::NtHash;
use alloc::string::String;
use alloc::vec::Vec;

/// An account that can log on with a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The name as it is stored: what the rest of the server calls the user,
    /// however the client spelled it.
    pub name: String,
    /// The hash of its password.
    pub nt_hash: NtHash,
    /// Whether it may log on. A disabled account is refused only after its
    /// password proved right, so that strangers cannot find it.
    pub is_enabled: bool,
}

/// What is known of an account besides its password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    /// The name as it is stored.
    pub name: String,
    /// Its relative identifier, where one is kept.
    pub rid: Option<u32>,
    /// Names of the groups that it is in.
    pub groups: Vec<String>,
    /// Whether it may log on.
    pub is_enabled: bool,
}

/// Where accounts come from.
///
/// Names are case-insensitive (MS-NLMP 3.2.5.1.2). An implementation should take
/// about as long for a user that it does not know as for one that it does.
pub trait Accounts {
    /// The account of `user`, as the client spelled it, in `domain`, which a
    /// standalone server is free to ignore. `None` when there is none or it has
    /// no NT hash.
    fn account(&self, user: &str, domain: &str) -> Option<Account>;

    /// Who `user` is, as far as it is known here; none for users of others.
    fn membership(&self, user: &str) -> Option<Membership> {
        let _ = user;
        None
    }

    /// All accounts, for those who list them; at most `limit`.
    fn memberships(&self, limit: usize) -> Vec<Membership> {
        let _ = limit;
        Vec::new()
    }
}

impl<A: Accounts + ?Sized> Accounts for &A {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        (**self).account(user, domain)
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        (**self).membership(user)
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        (**self).memberships(limit)
    }
}
