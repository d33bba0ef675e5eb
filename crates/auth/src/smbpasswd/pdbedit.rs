//! The output of `pdbedit -L -v -w`, which has the SIDs that an smbpasswd file lacks.
//!
//! ```text
//! ---------------
//! Unix username:        ann
//! Account Flags:        [U          ]
//! User SID:             S-1-5-21-3004859244-1309964605-2891807487-1001
//! Kickoff time:         Wed, 06 Feb 2036 15:06:39 UTC
//! NT hash             : A4F49C406510BDCAB6824EE7C30FD852
//! ```

use super::{AccountFile, Entry, FileFault, flags, folded, nt_hash};
use crate::LogonHours;
use crate::account_rules::check_workstations;
use crate::limits::{MAX_ACCOUNT_LINE_COUNT, MAX_ACCOUNT_LINE_LEN};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::dtyp::Sid;

/// The label with which each account begins.
const NAME: &str = "Unix username";
/// Most lines of the output: an account has about 26.
const MAX_LINE_COUNT: usize = 32 * MAX_ACCOUNT_LINE_COUNT;
/// Samba's times without an end are in this year or later: 2036 (the end of its 32-bit times of
/// NTP) and 2038.
const YEAR_WITHOUT_END: u32 = 2_036;

/// A rule by which Samba refuses logons of an account, now or under conditions, and that the account
/// does not have by being read: its text needs a calendar, or cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SambaRule {
    /// The account is disabled.
    Disabled,
    /// The account is locked after wrong passwords.
    Locked,
    /// The account ends at this time, written as `pdbedit` does.
    Ends(String),
    /// The password ends at this time, written as `pdbedit` does.
    PasswordEnds(String),
    /// The account may log on at these workstations only, of which the names cannot be kept.
    Workstations(String),
    /// The account may not log on at all hours of the week, in a form that cannot be kept.
    Hours,
}

impl AccountFile {
    /// Parses what Samba's programs print or store of accounts: an smbpasswd file, the output of
    /// `pdbedit -L -w`, or that of `pdbedit -L -v -w`, of which the accounts keep their relative
    /// identifiers and the file the SID of the machine.
    ///
    /// # Errors
    /// The first line that cannot be parsed. A file with an error is not used at all.
    pub fn parse_samba(text: &str) -> Result<Self, FileFault> {
        let is_verbose = |line: &str| field(line).is_some_and(|(key, _)| key == NAME);
        if text.lines().any(is_verbose) {
            return parse(text);
        }
        let mut file = Self::parse(text)?;
        // In Samba's files a last change of 0 means "must change the password"; in Frevo's own it
        // means "unknown".
        let is_samba = file.header == super::Header::default();
        for line in &mut file.lines {
            if let super::Line::Account(entry) = line
                && is_samba
                && entry.last_change == Some(0)
            {
                entry.must_change = has_password_age(entry);
            }
        }
        let rules = file.entries().map(|entry| (folded(&entry.name), rules_of_flags(entry)));
        file.samba_rules = rules.filter(|(_, rules)| !rules.is_empty()).collect();
        Ok(file)
    }

    /// Returns the rules of an account that [`Self::parse_samba`] has found.
    pub fn samba_rules(&self, name: &str) -> &[SambaRule] {
        self.samba_rules.get(&folded(name)).map_or(&[], Vec::as_slice)
    }
}

/// The rules in the flags of an account.
fn rules_of_flags(entry: &Entry) -> Vec<SambaRule> {
    let mut rules = Vec::new();
    if entry.flags.contains('D') {
        rules.push(SambaRule::Disabled);
    }
    if entry.flags.contains('L') {
        rules.push(SambaRule::Locked);
    }
    rules
}

/// False for an account whose password never ends, or is not needed.
fn has_password_age(entry: &Entry) -> bool {
    !entry.flags.contains(['X', 'N'])
}

/// True for a time that Samba obeys: not "never", not zero, and not one of its times without an end.
fn is_end(time: &str) -> bool {
    if matches!(time, "" | "never" | "0") {
        return false;
    }
    // The time has the form `Thu, 01 Jan 2026 00:00:00 UTC`, so the year is its fourth word.
    let year = time.split_whitespace().nth(3).and_then(|year| year.parse::<u32>().ok());
    year.is_none_or(|year| year < YEAR_WITHOUT_END)
}

/// An account that is being read, with the values that make rules.
struct Account<'a> {
    entry: Entry,
    ends: &'a str,
    last_set: &'a str,
    password_ends: &'a str,
    workstations: &'a str,
    hours: &'a str,
}

impl Account<'_> {
    fn new(name: &str) -> Self {
        Self {
            entry: Entry::without_password(name, u32::MAX),
            ends: "",
            last_set: "",
            password_ends: "",
            workstations: "",
            hours: "",
        }
    }

    /// Gives the account the rules that it can keep, and returns the others.
    fn take_rules(&mut self) -> Vec<SambaRule> {
        let mut rules = rules_of_flags(&self.entry);
        self.entry.must_change = self.last_set == "0" && has_password_age(&self.entry);
        if is_end(self.ends) {
            rules.push(SambaRule::Ends(self.ends.to_owned()));
        }
        if is_end(self.password_ends) && has_password_age(&self.entry) {
            rules.push(SambaRule::PasswordEnds(self.password_ends.to_owned()));
        }
        let names = self.workstations.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(ToOwned::to_owned).collect();
        match check_workstations(&names) {
            Ok(()) => self.entry.workstations = names,
            Err(_) => rules.push(SambaRule::Workstations(self.workstations.to_owned())),
        }
        if self.hours.contains(|digit| !matches!(digit, 'F' | 'f')) {
            match LogonHours::from_hex(self.hours, false) {
                Some(hours) => self.entry.hours = Some(hours),
                None => rules.push(SambaRule::Hours),
            }
        }
        rules
    }
}

fn parse(text: &str) -> Result<AccountFile, FileFault> {
    let mut file = AccountFile::default();
    let mut account: Option<Account<'_>> = None;
    for (index, line) in text.lines().enumerate() {
        let fault = |what| FileFault { line: index.saturating_add(1), what };
        if index >= MAX_LINE_COUNT {
            return Err(fault("too many lines"));
        }
        if line.len() > MAX_ACCOUNT_LINE_LEN {
            return Err(fault("the line is too long"));
        }
        let Some((key, value)) = field(line) else { continue };
        if key == NAME {
            if let Some(account) = account.replace(Account::new(value)) {
                file.add_samba(account).map_err(fault)?;
            }
            continue;
        }
        if let Some(account) = &mut account {
            file.take_field(account, key, value).map_err(fault)?;
        }
    }
    let fault = |what| FileFault { line: text.lines().count(), what };
    if let Some(account) = account {
        file.add_samba(account).map_err(fault)?;
    }
    Ok(file)
}

/// The parts of a line `Key : value`.
fn field(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    Some((key.trim(), value.trim()))
}

impl AccountFile {
    /// Takes over one line of an account.
    fn take_field<'a>(
        &mut self,
        account: &mut Account<'a>,
        key: &str,
        value: &'a str,
    ) -> Result<(), &'static str> {
        match key {
            "Account Flags" => account.entry.flags = flags(value)?,
            "User SID" => {
                let sid: Option<Sid> = value.parse().ok();
                let (machine, rid) = sid
                    .and_then(|sid| sid.split_rid())
                    .ok_or("the SID is not one of an account")?;
                // The header keeps the SID of one machine. An account with another domain SID gets
                // no RID, so it is not imported.
                if *self.header.machine.get_or_insert(machine) == machine {
                    account.entry.rid = Some(rid);
                }
                self.header.is_samba = true;
            }
            "NT hash" => account.entry.nt_hash = nt_hash(value)?,
            "Kickoff time" => account.ends = value,
            "Password last set" => account.last_set = value,
            "Password must change" => account.password_ends = value,
            "Workstations" => account.workstations = value,
            "Logon hours" => account.hours = value,
            _ => {}
        }
        Ok(())
    }

    /// Adds an account as Samba has it. Machines and the like may have any identifier.
    fn add_samba(&mut self, mut account: Account<'_>) -> Result<(), &'static str> {
        let rules = account.take_rules();
        let entry = account.entry;
        super::check_name(&entry.name)?;
        if self.places.insert(folded(&entry.name), self.lines.len()).is_some() {
            return Err("the account is already in the file");
        }
        if !rules.is_empty() {
            self.samba_rules.insert(folded(&entry.name), rules);
        }
        self.lines.push(super::Line::Account(Box::new(entry)));
        Ok(())
    }
}
