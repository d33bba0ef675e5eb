//! The rules for logons of an account, in the fields behind its time.
//!
//! ```text
//! EXPIRES-1798761600:MUST-CHANGE:HOURS-L0000...:WORKSTATIONS-desk,lap:FORMER-A4F4...:
//! ```
//!
//! `HOURS-` has the hours of the week as 42 hexadecimal digits, behind `L` for the server's clock or
//! `U` for UTC. Earlier versions of Frevo ignore these fields.

use super::{AccountFile, Entry};
use crate::account_rules::check_workstations;
use crate::hash::NtHash;
use crate::limits::MAX_FORMER_PASSWORD_COUNT;
use crate::{AccountRules, LogonHours};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// Bytes of a field besides its list.
const AROUND_LIST: usize = 24;

/// A change of the rules for an account. None leaves a rule as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesChange {
    /// The end of the account; None in it for no end.
    pub expires: Option<Option<u64>>,
    /// True if the password must be changed before the next logon.
    pub must_change: Option<bool>,
    /// The hours; None in it for all.
    pub hours: Option<Option<LogonHours>>,
    /// The computers; an empty list for all.
    pub workstations: Option<Vec<String>>,
    /// True for an account whose password never gets too old.
    pub password_never_ends: Option<bool>,
}

impl RulesChange {
    /// True if nothing is to be changed.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Entry {
    /// Returns the rules for logons of the account, but for the age of its password.
    pub fn rules(&self) -> AccountRules {
        AccountRules {
            is_disabled: !self.is_enabled(),
            expires: self.expires,
            must_change: self.must_change,
            password_ends: None,
            hours: self.hours,
            workstations: self.workstations.clone(),
        }
    }

    /// True for an account whose password never gets too old: Samba's flag X.
    pub fn password_never_ends(&self) -> bool {
        self.flags.contains('X')
    }

    /// True if the password `hash` is the present one or one of the `count` newest former ones.
    pub fn had_password(&self, hash: &NtHash, count: usize) -> bool {
        let former = self.former.iter().take(count);
        former.chain(self.nt_hash.as_ref()).any(|known| known == hash)
    }

    /// Takes over one field; a field of another kind is ignored.
    pub(super) fn parse_rule(&mut self, field: &str) -> Result<(), &'static str> {
        if let Some(time) = field.strip_prefix("EXPIRES-") {
            self.expires = Some(time.parse().map_err(|_| "EXPIRES- is not followed by a time")?);
        } else if field == "MUST-CHANGE" {
            self.must_change = true;
        } else if let Some(hours) = field.strip_prefix("HOURS-") {
            let local = hours.strip_prefix('L').map(|digits| LogonHours::from_hex(digits, true));
            let utc = || hours.strip_prefix('U').map(|digits| LogonHours::from_hex(digits, false));
            let hours = local.or_else(utc).flatten();
            self.hours = Some(hours.ok_or("HOURS- is not followed by hours")?);
        } else if let Some(names) = field.strip_prefix("WORKSTATIONS-") {
            let names: Vec<String> = names.split(',').map(ToOwned::to_owned).collect();
            check_workstations(&names).map_err(|_| "WORKSTATIONS- is not followed by names")?;
            self.workstations = names;
        } else if let Some(hashes) = field.strip_prefix("FORMER-") {
            let hashes: Option<Vec<NtHash>> = hashes.split(',').map(NtHash::from_hex).collect();
            let hashes = hashes.filter(|all| all.len() <= MAX_FORMER_PASSWORD_COUNT);
            self.former = hashes.ok_or("FORMER- is not followed by hashes")?;
        }
        Ok(())
    }

    /// Writes the fields of the rules.
    pub(super) fn write_rules(&self, out: &mut String) -> fmt::Result {
        if let Some(end) = self.expires {
            write!(out, "EXPIRES-{end}:")?;
        }
        if self.must_change {
            out.push_str("MUST-CHANGE:");
        }
        if let Some(hours) = &self.hours {
            let clock = if hours.is_local { 'L' } else { 'U' };
            write!(out, "HOURS-{clock}{}:", hours.to_hex())?;
        }
        if !self.workstations.is_empty() {
            write!(out, "WORKSTATIONS-{}:", self.workstations.join(","))?;
        }
        for (place, hash) in self.former.iter().enumerate() {
            out.push_str(if place == 0 { "FORMER-" } else { "," });
            out.push_str(&hash.to_hex());
        }
        if !self.former.is_empty() {
            out.push(':');
        }
        Ok(())
    }

    /// Returns no less than the bytes of the fields.
    pub(super) fn rules_len(&self) -> usize {
        const HOURS: usize = 64;
        const HASH: usize = 33;
        let names = self.workstations.iter().map(|name| name.len().saturating_add(1));
        let hashes = self.former.len().saturating_mul(HASH);
        names
            .fold(hashes, usize::saturating_add)
            .saturating_add(HOURS)
            .saturating_add(3 * AROUND_LIST)
    }
}

impl AccountFile {
    /// Changes the rules for an account. Returns `false` if there is no such account.
    ///
    /// # Errors
    /// If a name of a computer cannot be stored.
    pub fn set_rules(&mut self, name: &str, change: &RulesChange) -> Result<bool, &'static str> {
        check_workstations(change.workstations.as_deref().unwrap_or_default())?;
        let Some(entry) = self.find_mut(name) else { return Ok(false) };
        if let Some(expires) = change.expires {
            entry.expires = expires;
        }
        if let Some(must_change) = change.must_change {
            entry.must_change = must_change;
        }
        if let Some(hours) = change.hours {
            entry.hours = hours.filter(|hours| !hours.is_always());
        }
        if let Some(workstations) = &change.workstations {
            entry.workstations.clone_from(workstations);
        }
        if let Some(never_ends) = change.password_never_ends {
            entry.flags.retain(|c| c != 'X');
            if never_ends {
                entry.flags.push('X');
            }
        }
        Ok(true)
    }

    /// Keeps the present password of an account among the `count` newest former ones; with 0 none is
    /// kept. To be called before a new password is set.
    pub fn keep_former_password(&mut self, name: &str, count: usize) {
        let Some(entry) = self.find_mut(name) else { return };
        if let Some(hash) = entry.nt_hash.clone() {
            entry.former.insert(0, hash);
        }
        entry.former.truncate(count.min(MAX_FORMER_PASSWORD_COUNT));
    }
}
