//! Who may log on.

use crate::NtHash;
use alloc::string::String;

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

/// Where accounts come from.
///
/// Names are case-insensitive (MS-NLMP 3.2.5.1.2). An implementation should take
/// about as long for a user that it does not know as for one that it does.
pub trait Accounts {
    /// The account of `user`, as the client spelled it, in `domain`, which a
    /// standalone server is free to ignore. `None` when there is none or it has
    /// no NT hash.
    fn account(&self, user: &str, domain: &str) -> Option<Account>;
}

impl<A: Accounts + ?Sized> Accounts for &A {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        (**self).account(user, domain)
    }
}
