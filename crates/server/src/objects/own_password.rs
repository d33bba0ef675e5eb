//! Users who change their own passwords without a session: by the present one, which may be too old for
//! a logon.

use std::fmt;
use std::net::IpAddr;

use frevo_auth::{Account, AccountFault, NotChanged, NtHash, Zeroizing};
use frevo_net::file_io::run_blocking;
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;

use crate::access::throttle::{Attempt, shortened};
use crate::audit::{Event, Kind};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::objects::server::ServerState;

/// A user's wish for another password.
pub struct OwnPassword {
    /// The name that the user claims.
    pub user: String,
    /// The present password.
    pub present: Zeroizing<String>,
    /// The new password.
    pub new: Zeroizing<String>,
    /// The address that the wish comes from.
    pub address: IpAddr,
}

impl fmt::Debug for OwnPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnPassword").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The reason why a user's password was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotOwn {
    /// There is no such account, the present password is not that, or too many were wrong.
    Wrong,
    /// A rule for the account forbids its use.
    Forbidden(AccountFault),
    /// The new password cannot be used, for this reason.
    Unusable(String),
    /// The password of this user is kept elsewhere.
    NotKept,
    /// It cannot be stored; the log says more.
    Failed,
}

impl NotOwn {
    const fn status(&self) -> Status {
        match self {
            Self::Wrong => Status::WRONG_PASSWORD,
            Self::Forbidden(fault) => fault.status(),
            Self::Unusable(_) => Status::PASSWORD_RESTRICTION,
            Self::NotKept => Status::ACCESS_DENIED,
            Self::Failed => Status::UNSUCCESSFUL,
        }
    }
}

impl ServerState {
    /// Changes a password for who knows the present one. A wrong one counts as a failed logon, and is
    /// answered as late as one.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    pub async fn change_own_password(&self, wanted: OwnPassword) -> Result<(), NotOwn> {
        let (user, address) = (wanted.user.clone(), wanted.address);
        let done = self.change_by_present(wanted).await;
        let status = done.as_ref().err().map_or(Status::SUCCESS, NotOwn::status);
        match &done {
            Ok(()) => {
                tracing::info!(target: "frevo::session", user = %shortened(&user), peer = %address,
                "the user has changed the password")
            }
            Err(why) => tracing::warn!(target: "frevo::session", user = %shortened(&user),
                peer = %address, reason = ?why, "the password was not changed"),
        }
        self.audit.emit_limited(address, || {
            Event::new(Kind::Password)
                .status(status)
                .with("user", cut(&user, AUDIT_VALUE_BYTES))
                .with("peer", address.to_string())
                .with("purpose", "page")
        });
        done
    }

    async fn change_by_present(&self, wanted: OwnPassword) -> Result<(), NotOwn> {
        let OwnPassword { user, present, new, address } = wanted;
        let accounts = self.accounts();
        let found = accounts.account(&user, "");
        let name = found.as_ref().map_or_else(|| user.clone(), |account| account.name.clone());
        let judged = judge(found, &present, self.unix_seconds());
        let success = judged.is_ok();
        let attempt = Attempt { address, client: Guid::default(), account: &name, success };
        if !self.throttle.heed(attempt).await {
            return Err(NotOwn::Wrong);
        }
        let account = judged?;
        // A reload while the attempt waited has put other accounts in their place.
        let accounts = self.accounts();
        let store = move || accounts.change_password(&account.name, &account.nt_hash, &new);
        let stored = run_blocking(store).await;
        match stored.unwrap_or_else(|_| Err(NotChanged::Failed(String::from("internal error")))) {
            Ok(()) => Ok(()),
            Err(NotChanged::NotKept) => Err(NotOwn::NotKept),
            Err(NotChanged::Outdated) => Err(NotOwn::Wrong),
            Err(NotChanged::Unusable(why)) => Err(NotOwn::Unusable(why)),
            Err(NotChanged::Failed(why)) => {
                tracing::error!(target: "frevo::session", user = %shortened(&name), %why,
                    "the password was not changed: the account file cannot be written");
                Err(NotOwn::Failed)
            }
        }
    }
}

/// Judges the present password, with equal work for an account that does not exist, and then the rules
/// that do not ask for a new password or a computer.
fn judge(found: Option<Account>, present: &str, now: u64) -> Result<Account, NotOwn> {
    let none = NtHash::from_bytes([0; 16]);
    let is_right =
        NtHash::from_password(present) == *found.as_ref().map_or(&none, |account| &account.nt_hash);
    let account = found.filter(|_| is_right).ok_or(NotOwn::Wrong)?;
    account.rules.check_account(now).map_err(NotOwn::Forbidden)?;
    Ok(account)
}

#[cfg(test)]
mod tests {
    use frevo_auth::AccountRules;

    use super::*;

    #[test]
    fn rules_are_told_to_who_knows_the_password() {
        let account = |rules: AccountRules| {
            let nt_hash = NtHash::from_password("right");
            Some(Account { name: String::from("ann"), nt_hash, rules })
        };
        let judged = |rules, present: &str| judge(account(rules), present, 100).map(|_| ()).err();
        let old = AccountRules {
            must_change: true,
            password_ends: Some(1),
            workstations: vec![String::from("desk")],
            ..AccountRules::default()
        };
        assert_eq!(judged(old.clone(), "right"), None);
        assert_eq!(judged(old, "wrong"), Some(NotOwn::Wrong));
        let over = AccountRules { expires: Some(100), ..AccountRules::default() };
        assert_eq!(judged(over.clone(), "right"), Some(NotOwn::Forbidden(AccountFault::Expired)));
        assert_eq!(judged(over, "wrong"), Some(NotOwn::Wrong));
        assert_eq!(judge(None, "", 100).map(|_| ()), Err(NotOwn::Wrong));
    }
}
