//! The account file: lines as in Samba's smbpasswd(5), which `pdbedit -L -w` prints too, so that
//! Samba's users can be imported.
//!
//! ```text
//! # a comment
//! ann:1000:XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX:A4F49C406510BDCAB6824EE7C30FD852:[U          ]:LCT-65A1B2C3:
//! ```
//!
//! A first line `#!frevo accounts 2 ...` ([`Header`]) holds what belongs to all accounts; Samba and
//! earlier versions of Frevo take it for a comment.
//!
//! Text in, entries out: the caller reads and writes the file and checks its permissions. The LM
//! hash is not kept.

mod header;
mod pdbedit;
mod restrictions;
pub use header::Header;
pub use pdbedit::SambaRule;
pub use restrictions::RulesChange;

use frevo_wire::fscc::fold_name;

use crate::account::{Account, Accounts, Membership};
use crate::limits::{MAX_ACCOUNT_LINE_COUNT, MAX_ACCOUNT_LINE_LEN, MAX_ACCOUNT_NAME_LEN};
use crate::{KerberosKeys, LogonHours, NtHash};
use alloc::{borrow::ToOwned, boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::fmt::{self, Write};
use frevo_wire::dtyp::Sid;
use zeroize::Zeroizing;

/// The first relative identifier of accounts that are not built in.
const FIRST_RID: u32 = 1_000;
/// The relative identifier of the built-in Administrator (MS-DTYP 2.4.2.4).
const ADMINISTRATOR_RID: u32 = 500;
/// The field in place of a missing hash.
const NO_HASH: &str = "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX";
/// Flag letters with a meaning (smbpasswd(5) and what `pdbedit` prints).
const FLAG_LETTERS: &str = "NDHTUMWSLXI ";

/// One account of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name in the file's spelling.
    pub name: String,
    /// The Unix user id that Samba stored; not used.
    pub uid: u32,
    /// The hash; a user without one cannot log on.
    pub nt_hash: Option<NtHash>,
    /// The letters between the brackets, without blanks.
    pub flags: String,
    /// Time of the last password change, in seconds from 1970; `None` if not stored.
    pub last_change: Option<u32>,
    /// The relative identifier of the account's SID, stored as `RID-` behind the time, which Samba
    /// ignores.
    pub rid: Option<u32>,
    /// The account's groups, stored as `GROUPS-` behind the time, with commas.
    pub groups: Vec<String>,
    /// The Kerberos keys of the password, stored as `KRB5-` behind the time. None for an account
    /// whose password nobody has told since it was imported.
    pub kerberos: Option<KerberosKeys>,
    /// The moment from which on the account may not log on, in seconds from 1970, stored as
    /// `EXPIRES-`. None for no end.
    pub expires: Option<u64>,
    /// True if the password must be changed before the next logon, stored as `MUST-CHANGE`.
    pub must_change: bool,
    /// The hours of the week in which the account may log on, stored as `HOURS-`. None for all.
    pub hours: Option<LogonHours>,
    /// The computers from which the account may log on, stored as `WORKSTATIONS-`; none for all.
    pub workstations: Vec<String>,
    /// Hashes of former passwords, the newest first, stored as `FORMER-`.
    pub former: Vec<NtHash>,
}

impl Entry {
    /// Makes an enabled user with this hash.
    pub fn new(name: &str, uid: u32, nt_hash: NtHash, last_change: u32) -> Self {
        Self {
            name: name.to_owned(),
            nt_hash: Some(nt_hash),
            last_change: Some(last_change),
            ..Self::without_password(name, uid)
        }
    }

    /// Makes an enabled user without a password.
    fn without_password(name: &str, uid: u32) -> Self {
        Self {
            name: name.to_owned(),
            uid,
            nt_hash: None,
            flags: "U".to_owned(),
            last_change: None,
            rid: None,
            groups: Vec::new(),
            kerberos: None,
            expires: None,
            must_change: false,
            hours: None,
            workstations: Vec::new(),
            former: Vec::new(),
        }
    }

    /// Returns the account with the Kerberos keys of its password.
    pub fn with_kerberos(self, keys: KerberosKeys) -> Self {
        Self { kerberos: Some(keys), ..self }
    }

    fn membership(&self) -> Membership {
        Membership {
            name: self.name.clone(),
            rid: self.rid,
            groups: self.groups.clone(),
            rules: self.rules(),
        }
    }

    /// True if the account may log on: an ordinary user, neither disabled nor locked. Machine and
    /// trust accounts are no users.
    pub fn is_enabled(&self) -> bool {
        self.flags.contains('U') && !self.flags.contains(['D', 'L'])
    }

    /// Enables or disables the account.
    pub fn set_enabled(&mut self, is_enabled: bool) {
        self.flags.retain(|c| !matches!(c, 'D' | 'L'));
        if is_enabled {
            if !self.flags.contains('U') {
                self.flags.push('U');
            }
        } else {
            self.flags.push('D');
        }
    }
}

#[derive(Debug, Clone)]
enum Line {
    Text(String),
    /// Boxed, so that a blank line or a comment does not take the memory of an account.
    Account(Box<Entry>),
}

/// The accounts of a file, with its comments.
#[derive(Debug, Clone, Default)]
pub struct AccountFile {
    header: Header,
    lines: Vec<Line>,
    /// Index in `lines` of each account, by folded name.
    places: BTreeMap<String, usize>,
    /// Rules of Samba's for accounts that were read from its files, by folded name; never written.
    samba_rules: BTreeMap<String, Vec<SambaRule>>,
}

/// A line that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// The line's number, from 1.
    pub line: usize,
    /// The error in the line.
    pub what: &'static str,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for FileFault {}

impl AccountFile {
    /// Parses the text of a file. Blank lines and lines that begin with `#` are kept unchanged.
    ///
    /// # Errors
    /// The first line that is no account, is too long, or repeats an account. A file with an error
    /// is not used at all.
    pub fn parse(text: &str) -> Result<Self, FileFault> {
        let mut file = Self::default();
        for (index, line) in text.lines().enumerate() {
            let fault = |what| FileFault { line: index.saturating_add(1), what };
            if index >= MAX_ACCOUNT_LINE_COUNT {
                return Err(fault("too many lines"));
            }
            if line.len() > MAX_ACCOUNT_LINE_LEN {
                return Err(fault("the line is too long"));
            }
            if let Some(header) = Header::parse(line).map_err(fault)? {
                if file.header != Header::default() {
                    return Err(fault("the file has a second line that begins with #!frevo"));
                }
                file.header = header;
                continue;
            }
            if line.trim().is_empty() || line.starts_with('#') {
                file.lines.push(Line::Text(line.to_owned()));
                continue;
            }
            let entry = parse_entry(line).map_err(fault)?;
            if file.places.insert(folded(&entry.name), file.lines.len()).is_some() {
                return Err(fault("the account is already in the file"));
            }
            file.lines.push(Line::Account(Box::new(entry)));
        }
        Ok(file)
    }

    /// Returns the text of the file. It contains secrets, so it is wiped when dropped.
    pub fn to_text(&self) -> Zeroizing<String> {
        // The text is allocated at its final length, because growing it would leave copies of
        // secrets in memory.
        let mut out = Zeroizing::new(String::with_capacity(self.text_len()));
        if self.header != Header::default() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", self.header);
        }
        for line in &self.lines {
            // Writing to a String cannot fail.
            let _ = match line {
                Line::Text(text) => writeln!(out, "{text}"),
                Line::Account(entry) => write_entry(&mut out, entry),
            };
        }
        out
    }

    fn text_len(&self) -> usize {
        const AROUND_NAME: usize = 128;
        self.lines.iter().fold(Header::LEN_MAX, |n, line| {
            n.saturating_add(match line {
                Line::Text(text) => text.len().saturating_add(1),
                Line::Account(e) => {
                    let groups = e.groups.iter().map(|group| group.len().saturating_add(1));
                    const KEYS: usize = 128;
                    let salt = e
                        .kerberos
                        .as_ref()
                        .map_or(0, |keys| keys.salt.len().saturating_mul(2).saturating_add(KEYS));
                    let name = e.name.len().saturating_add(e.flags.len()).saturating_add(salt);
                    let name = name.saturating_add(e.rules_len());
                    groups.fold(name, usize::saturating_add).saturating_add(AROUND_NAME)
                }
            })
        })
    }

    /// Returns the account of this name, in any case.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        match self.lines.get(*self.places.get(&folded(name))?)? {
            Line::Account(entry) => Some(entry),
            Line::Text(_) => None,
        }
    }

    /// Returns the account of this name for changes. Its name must not change.
    fn find_mut(&mut self, name: &str) -> Option<&mut Entry> {
        match self.lines.get_mut(*self.places.get(&folded(name))?)? {
            Line::Account(entry) => Some(entry),
            Line::Text(_) => None,
        }
    }

    /// Adds an account, or replaces the password of the one of its name, which keeps its identifier,
    /// its groups and its rules but those for the password.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn put(&mut self, entry: Entry) -> Result<(), &'static str> {
        let Some(known) = self.find_mut(&entry.name) else { return self.add(entry) };
        let former = known.clone();
        *known = Entry {
            rid: former.rid,
            groups: former.groups,
            expires: former.expires,
            hours: former.hours,
            workstations: former.workstations,
            ..entry
        };
        Ok(())
    }

    /// Iterates over all accounts in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.lines.iter().filter_map(|line| match line {
            Line::Account(entry) => Some(&**entry),
            Line::Text(_) => None,
        })
    }

    /// Adds an account.
    ///
    /// # Errors
    /// If the file has it already, is full, or the name cannot be stored.
    pub fn add(&mut self, mut entry: Entry) -> Result<(), &'static str> {
        check_name(&entry.name)?;
        if self.find(&entry.name).is_some() {
            return Err("the account is already in the file");
        }
        match entry.rid {
            Some(rid) => self.check_rid(rid)?,
            None => entry.rid = self.next_rid(),
        }
        if self.lines.len() >= MAX_ACCOUNT_LINE_COUNT {
            return Err("too many lines");
        }
        self.places.insert(folded(&entry.name), self.lines.len());
        self.lines.push(Line::Account(Box::new(entry)));
        Ok(())
    }

    /// Sets a password, at `now` in seconds from 1970, by its hash and, where the password itself is
    /// known, its Kerberos keys. Returns `false` if there is no such account.
    pub fn set_password(
        &mut self,
        name: &str,
        nt_hash: NtHash,
        kerberos: Option<KerberosKeys>,
        now: u32,
    ) -> bool {
        let Some(entry) = self.find_mut(name) else { return false };
        entry.nt_hash = Some(nt_hash);
        // The Kerberos keys of the previous password are replaced or removed, so that it cannot be
        // used any more.
        entry.kerberos = kerberos;
        entry.flags.retain(|c| c != 'N');
        entry.last_change = Some(now);
        entry.must_change = false;
        true
    }

    /// Returns a relative identifier above all that accounts of the file have or had, so that a new
    /// account is never taken for a removed one.
    fn next_rid(&self) -> Option<u32> {
        let rids = self.entries().filter_map(|entry| entry.rid).filter(|rid| *rid >= FIRST_RID);
        let last = rids.max().unwrap_or(FIRST_RID - 1);
        last.checked_add(1).map(|next| next.max(self.header.next_rid.unwrap_or(0)))
    }

    /// Refuses relative identifiers of built-in accounts and those that another account has.
    fn check_rid(&self, rid: u32) -> Result<(), &'static str> {
        if rid < FIRST_RID && rid != ADMINISTRATOR_RID {
            return Err("its relative identifier is reserved for a built-in group");
        }
        if self.entries().any(|entry| entry.rid == Some(rid)) {
            return Err("another account has its relative identifier");
        }
        Ok(())
    }

    /// Gives an account another relative identifier. Returns `false` if there is no such account.
    ///
    /// # Errors
    /// If another account has it or it is reserved.
    pub fn set_rid(&mut self, name: &str, rid: u32) -> Result<bool, &'static str> {
        match self.find(name) {
            Some(entry) if entry.rid != Some(rid) => self.check_rid(rid)?,
            Some(_) => return Ok(true),
            None => return Ok(false),
        }
        Ok(self.find_mut(name).map(|entry| entry.rid = Some(rid)).is_some())
    }

    /// Returns the facts about all accounts.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Sets the SID of the machine that the accounts are of. `is_samba` is true for the SID of a
    /// Samba server, whose lists also name users and groups of the host.
    pub const fn set_machine(&mut self, sid: Sid, is_samba: bool) {
        self.header.machine = Some(sid);
        self.header.is_samba = is_samba;
    }

    /// Sets the groups of an account. Returns `false` if there is no such account.
    ///
    /// # Errors
    /// If a name cannot be stored.
    pub fn set_groups(&mut self, name: &str, groups: &[String]) -> Result<bool, &'static str> {
        for group in groups {
            check_name(group)?;
            if group.contains(',') {
                return Err("the name has a character that an account file cannot hold");
            }
        }
        let Some(entry) = self.find_mut(name) else { return Ok(false) };
        entry.groups = groups.to_vec();
        Ok(true)
    }

    /// Enables or disables an account. Returns `false` if there is no such account.
    pub fn set_enabled(&mut self, name: &str, is_enabled: bool) -> bool {
        self.find_mut(name).map(|entry| entry.set_enabled(is_enabled)).is_some()
    }

    /// Removes an account. Returns `false` if there is no such account.
    pub fn remove(&mut self, name: &str) -> bool {
        let rid = self.find(name).and_then(|entry| entry.rid).unwrap_or(0);
        let Some(place) = self.places.remove(&folded(name)) else { return false };
        let next = self.next_rid().unwrap_or(u32::MAX);
        if rid >= FIRST_RID && rid.saturating_add(1) >= next {
            self.header.next_rid = Some(rid.saturating_add(1));
        }
        self.lines.remove(place);
        for other in self.places.values_mut().filter(|other| **other > place) {
            *other = other.saturating_sub(1);
        }
        true
    }
}

impl Accounts for AccountFile {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        let entry = self.find(user)?;
        Some(Account {
            name: entry.name.clone(),
            nt_hash: entry.nt_hash.clone()?,
            rules: entry.rules(),
        })
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        self.find(user).map(Entry::membership)
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        self.entries().take(limit).map(Entry::membership).collect()
    }

    fn password_hash(&self, name: &str) -> Option<NtHash> {
        self.find(name)?.nt_hash.clone()
    }
}

fn folded(name: &str) -> String {
    fold_name(name)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the account has no name");
    }
    if name.starts_with('#') || name.chars().any(|c| c == ':' || c.is_control()) {
        return Err("the name has a character that an account file cannot hold");
    }
    if name.len() > MAX_ACCOUNT_NAME_LEN {
        return Err("the name is too long");
    }
    Ok(())
}

fn parse_entry(line: &str) -> Result<Entry, &'static str> {
    let mut fields = line.split(':');
    let name = fields.next().unwrap_or_default();
    check_name(name)?;
    let uid =
        fields.next().and_then(|uid| uid.trim().parse().ok()).ok_or("the uid is no number")?;
    // Only the length of the LM hash is checked. The hash itself is not used, because it is easy to
    // break.
    let is_hash_field = |field: &str| field.len() == NO_HASH.len() && field.is_ascii();
    fields.next().filter(|lm| is_hash_field(lm)).ok_or("the LM hash field is not 32 characters")?;
    let nt = fields.next().filter(|nt| is_hash_field(nt));
    let nt = nt.ok_or("the NT hash field is not 32 characters")?;
    let nt_hash = nt_hash(nt)?;
    let flags = match fields.next() {
        Some(letters) if letters.starts_with('[') => flags(letters)?,
        // In the oldest files the line ends after the hashes or continues with the full name. All
        // their accounts are users (U).
        _ => "U".to_owned(),
    };
    let last_change = match fields.next().and_then(|field| field.strip_prefix("LCT-")) {
        Some(digits) => {
            Some(u32::from_str_radix(digits, 16).map_err(|_| "LCT- is not followed by a time")?)
        }
        None => None,
    };
    let mut entry = Entry { nt_hash, flags, last_change, ..Entry::without_password(name, uid) };
    for field in fields {
        if let Some(rid) = field.strip_prefix("RID-") {
            entry.rid = Some(rid.parse().map_err(|_| "RID- is not followed by a number")?);
        } else if let Some(keys) = field.strip_prefix("KRB5-") {
            let keys = KerberosKeys::parse(keys).ok_or("KRB5- is not followed by keys")?;
            entry.kerberos = Some(keys);
        } else if let Some(groups) = field.strip_prefix("GROUPS-") {
            entry.groups =
                groups.split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        } else {
            entry.parse_rule(field)?;
        }
    }
    Ok(entry)
}

/// Parses an NT hash; None for an account without a password.
fn nt_hash(text: &str) -> Result<Option<NtHash>, &'static str> {
    match NtHash::from_hex(text) {
        Some(hash) => Ok(Some(hash)),
        // Samba writes "NO PASSWORD" and many X for an account without a password, so it has no
        // hash.
        None if text == NO_HASH || text.starts_with("NO PASSWORD") => Ok(None),
        None => Err("the NT hash is not hexadecimal"),
    }
}

/// Parses the letters between brackets.
fn flags(text: &str) -> Result<String, &'static str> {
    let letters = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let letters = letters.filter(|letters| letters.chars().all(|c| FLAG_LETTERS.contains(c)));
    let letters = letters.ok_or("the flags are not letters in brackets")?;
    Ok(letters.chars().filter(|c| *c != ' ').collect())
}

fn write_entry(out: &mut String, entry: &Entry) -> fmt::Result {
    write!(out, "{}:{}:{NO_HASH}:", entry.name, entry.uid)?;
    match &entry.nt_hash {
        Some(hash) => out.push_str(&hash.to_hex()),
        None => out.push_str(NO_HASH),
    }
    write!(out, ":[{:<11}]:LCT-{:08X}:", entry.flags, entry.last_change.unwrap_or(0))?;
    if let Some(rid) = entry.rid {
        write!(out, "RID-{rid}:")?;
    }
    if let Some(keys) = &entry.kerberos {
        out.push_str("KRB5-");
        keys.write(out)?;
        out.push(':');
    }
    if !entry.groups.is_empty() {
        write!(out, "GROUPS-{}:", entry.groups.join(","))?;
    }
    entry.write_rules(out)?;
    writeln!(out)
}

#[cfg(test)]
mod tests;
