//! Rules for the logons of an account, which its owner learns of once the password was right.

use crate::AccountFault;
use crate::limits::{MAX_WORKSTATION_COUNT, MAX_WORKSTATION_NAME_LEN};
use crate::logon_hours::LogonHours;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::fscc::eq_ignore_case;

/// The rules for the logons of one account. A source of accounts fills what it knows; the default has
/// no rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountRules {
    /// True for an account that may not log on.
    pub is_disabled: bool,
    /// The moment from which on the account may not log on, in seconds from 1970. None for no end.
    pub expires: Option<u64>,
    /// True if the password must be changed before the next logon.
    pub must_change: bool,
    /// The moment from which on the password is too old, in seconds from 1970. None for no end.
    pub password_ends: Option<u64>,
    /// The hours of the week in which the account may log on. None for all.
    pub hours: Option<LogonHours>,
    /// Names of the computers from which the account may log on, as computers say of themselves. An
    /// empty list is for all.
    pub workstations: Vec<String>,
}

impl AccountRules {
    /// Returns no rule but that of a disabled account.
    #[must_use]
    pub fn enabled(is_enabled: bool) -> Self {
        Self { is_disabled: !is_enabled, ..Self::default() }
    }

    /// Judges a logon with the right password at `now`, in seconds from 1970, from the computer that
    /// calls itself `workstation`.
    ///
    /// # Errors
    /// The first rule that forbids the logon.
    pub fn check(&self, now: u64, workstation: &str) -> Result<(), AccountFault> {
        self.check_account(now)?;
        if self.must_change {
            return Err(AccountFault::MustChange);
        }
        if self.password_ends.is_some_and(|end| now >= end) {
            return Err(AccountFault::PasswordExpired);
        }
        self.check_workstation(workstation)
    }

    /// Judges a logon that another server has proved by a password of its own, which says nothing of
    /// the computer. An account that may log on from some computers only is refused.
    ///
    /// # Errors
    /// The first rule that forbids the logon.
    pub fn check_ticket(&self, now: u64) -> Result<(), AccountFault> {
        self.check_account(now)?;
        self.check_workstation("")
    }

    /// Judges whether the account may be used at `now`, in seconds from 1970.
    ///
    /// # Errors
    /// The first rule that forbids it.
    pub fn check_account(&self, now: u64) -> Result<(), AccountFault> {
        if self.is_disabled {
            return Err(AccountFault::Disabled);
        }
        if self.hours.as_ref().is_some_and(|hours| !hours.has(now)) {
            return Err(AccountFault::Hours);
        }
        if self.expires.is_some_and(|end| now >= end) {
            return Err(AccountFault::Expired);
        }
        Ok(())
    }

    /// True for an account that may not be used at any time from `now` on, in seconds from 1970.
    pub fn is_over(&self, now: u64) -> bool {
        self.is_disabled || self.expires.is_some_and(|end| now >= end)
    }

    fn check_workstation(&self, workstation: &str) -> Result<(), AccountFault> {
        // Some clients of NetBIOS write the names of computers as `\\NAME`.
        let bare = workstation.trim_start_matches('\\');
        let is_named = self.workstations.iter().any(|name| eq_ignore_case(name, bare));
        if self.workstations.is_empty() || is_named {
            return Ok(());
        }
        Err(AccountFault::Workstation)
    }
}

/// Checks a list of computers from which an account may log on.
///
/// # Errors
/// The reason why the list cannot be used.
pub fn check_workstations(names: &[String]) -> Result<(), &'static str> {
    if names.len() > MAX_WORKSTATION_COUNT {
        return Err("it has more than 32 computers");
    }
    let is_name = |name: &String| {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        !name.is_empty() && name.len() <= MAX_WORKSTATION_NAME_LEN && name.chars().all(is_part)
    };
    if names.iter().all(is_name) {
        return Ok(());
    }
    Err("a name of a computer has letters, digits, '-', '_' and '.', and at most 64 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    /// Monday, 2026-11-30 00:00 UTC.
    const MONDAY: u64 = 1_795_996_800;

    #[test]
    fn no_rule_forbids_nothing() {
        assert_eq!(AccountRules::default().check(MONDAY, ""), Ok(()));
        assert_eq!(AccountRules::enabled(true), AccountRules::default());
    }

    #[test]
    fn each_rule_has_its_own_fault() {
        let check = |rules: AccountRules| rules.check(MONDAY, "DESK");
        assert_eq!(check(AccountRules::enabled(false)), Err(AccountFault::Disabled));
        let until = |expires| AccountRules { expires: Some(expires), ..AccountRules::default() };
        assert_eq!(check(until(MONDAY)), Err(AccountFault::Expired));
        assert_eq!(check(until(MONDAY + 1)), Ok(()));
        assert!(until(MONDAY).is_over(MONDAY) && !until(MONDAY).is_over(MONDAY - 1));
        let rules = AccountRules { must_change: true, ..AccountRules::default() };
        assert_eq!(check(rules), Err(AccountFault::MustChange));
        let until = |end| AccountRules { password_ends: Some(end), ..AccountRules::default() };
        assert_eq!(check(until(MONDAY)), Err(AccountFault::PasswordExpired));
        assert_eq!(check(until(MONDAY + 1)), Ok(()));
        let at = |words: &str| AccountRules {
            hours: Some(words.parse().unwrap()),
            ..AccountRules::default()
        };
        assert_eq!(check(at("tue 00:00-24:00")), Err(AccountFault::Hours));
        assert_eq!(check(at("mon 00:00-01:00")), Ok(()));
    }

    #[test]
    fn a_computer_is_named_in_any_case() {
        let workstations = vec!["Desk".to_owned(), "lap".to_owned()];
        let rules = AccountRules { workstations, ..AccountRules::default() };
        for (from, is_let_in) in
            [("DESK", true), ("\\\\desk", true), ("LAP", true), ("DESK2", false), ("", false)]
        {
            assert_eq!(rules.check(MONDAY, from).is_ok(), is_let_in, "{from}");
        }
        // A ticket does not say where it comes from.
        assert_eq!(rules.check_ticket(MONDAY), Err(AccountFault::Workstation));
        let old = AccountRules { must_change: true, ..AccountRules::default() };
        assert_eq!(old.check_ticket(MONDAY), Ok(()));
    }

    #[test]
    fn lists_of_computers_have_an_end() {
        let names = |count| vec!["desk-1.office".to_owned(); count];
        assert!(check_workstations(&names(32)).is_ok());
        assert!(check_workstations(&names(33)).is_err());
        for bad in ["", "a,b", "a:b", "a b", "\n"] {
            assert!(check_workstations(&[bad.to_owned()]).is_err(), "{bad:?}");
        }
    }
}
