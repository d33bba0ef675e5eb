//! The account file: lines as in Samba's smbpasswd(5), which `pdbedit -L -w` prints too, so that
//! Samba's users can be imported.
//!
//! ```text
//! # a comment
//! ann:1000:XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX:A4F49C406510BDCAB6824EE7C30FD852:[U          ]:LCT-65A1B2C3:
//! ```
//!
//! Text in, entries out: the caller reads and writes the file and checks its permissions. The LM
//! hash is not kept.

use crate::NtHash;
use crate::account::{Account, Accounts, Membership};
use crate::limits::{MAX_ACCOUNT_LINE_COUNT, MAX_ACCOUNT_LINE_LEN};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt::{self, Write};
use zeroize::Zeroizing;

/// The first relative identifier of accounts that are not built in.
const FIRST_RID: u32 = 1_000;
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
}

impl Entry {
    /// Makes an enabled user with this hash.
    pub fn new(name: &str, uid: u32, nt_hash: NtHash, last_change: u32) -> Self {
        Self {
            name: name.to_owned(),
            uid,
            nt_hash: Some(nt_hash),
            flags: "U".to_owned(),
            last_change: Some(last_change),
            rid: None,
            groups: Vec::new(),
        }
    }

    fn membership(&self) -> Membership {
        Membership {
            name: self.name.clone(),
            rid: self.rid,
            groups: self.groups.clone(),
            is_enabled: self.is_enabled(),
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
    Account(Entry),
}

/// The accounts of a file, with its comments.
#[derive(Debug, Clone, Default)]
pub struct AccountFile {
    lines: Vec<Line>,
    /// Index in `lines` of each account, by folded name.
    places: BTreeMap<String, usize>,
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
            if line.trim().is_empty() || line.starts_with('#') {
                file.lines.push(Line::Text(line.to_owned()));
                continue;
            }
            let entry = parse_entry(line).map_err(fault)?;
            if file.places.insert(folded(&entry.name), file.lines.len()).is_some() {
                return Err(fault("the account is already in the file"));
            }
            file.lines.push(Line::Account(entry));
        }
        Ok(file)
    }

    /// Returns the text of the file. It contains secrets, so it is wiped when dropped.
    pub fn to_text(&self) -> Zeroizing<String> {
        // One allocation, because growing would leave copies behind.
        let mut out = Zeroizing::new(String::with_capacity(self.text_len()));
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
        self.lines.iter().fold(0usize, |n, line| {
            n.saturating_add(match line {
                Line::Text(text) => text.len().saturating_add(1),
                Line::Account(e) => {
                    let groups = e.groups.iter().map(|group| group.len().saturating_add(1));
                    let name = e.name.len().saturating_add(e.flags.len());
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

    /// Iterates over all accounts in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.lines.iter().filter_map(|line| match line {
            Line::Account(entry) => Some(entry),
            Line::Text(_) => None,
        })
    }

    /// Adds an account.
    ///
    /// # Errors
    /// If the file has it already, is full, or the name cannot be stored.
    pub fn add(&mut self, mut entry: Entry) -> Result<(), &'static str> {
        check_name(&entry.name)?;
        entry.rid = entry.rid.or_else(|| self.next_rid());
        if self.find(&entry.name).is_some() {
            return Err("the account is already in the file");
        }
        if self.lines.len() >= MAX_ACCOUNT_LINE_COUNT {
            return Err("too many lines");
        }
        self.places.insert(folded(&entry.name), self.lines.len());
        self.lines.push(Line::Account(entry));
        Ok(())
    }

    /// Sets a password, at `now` in seconds from 1970. Returns `false` if there is no such account.
    pub fn set_hash(&mut self, name: &str, nt_hash: NtHash, now: u32) -> bool {
        let Some(entry) = self.find_mut(name) else { return false };
        entry.nt_hash = Some(nt_hash);
        entry.flags.retain(|c| c != 'N');
        entry.last_change = Some(now);
        true
    }

    /// Returns a relative identifier above all in the file. So a new account is never taken for a
    /// removed one, unless the newest account was removed.
    fn next_rid(&self) -> Option<u32> {
        let last = self.entries().filter_map(|entry| entry.rid).max().unwrap_or(FIRST_RID - 1);
        last.checked_add(1)
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
        let Some(place) = self.places.remove(&folded(name)) else { return false };
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
            is_enabled: entry.is_enabled(),
        })
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        self.find(user).map(Entry::membership)
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        self.entries().take(limit).map(Entry::membership).collect()
    }
}

fn folded(name: &str) -> String {
    name.to_lowercase()
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the account has no name");
    }
    if name.starts_with('#') || name.chars().any(|c| c == ':' || c.is_control()) {
        return Err("the name has a character that an account file cannot hold");
    }
    if name.len() > MAX_ACCOUNT_LINE_LEN / 2 {
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
    // The LM hash is not needed, and dangerous to keep.
    let is_hash_field = |field: &str| field.len() == NO_HASH.len() && field.is_ascii();
    fields.next().filter(|lm| is_hash_field(lm)).ok_or("the LM hash field is not 32 characters")?;
    let nt = fields.next().filter(|nt| is_hash_field(nt));
    let nt = nt.ok_or("the NT hash field is not 32 characters")?;
    let nt_hash = match NtHash::from_hex(nt) {
        Some(hash) => Some(hash),
        // For an account without a password Samba writes "NO PASSWORD" padded with X.
        None if nt == NO_HASH || nt.starts_with("NO PASSWORD") => None,
        None => return Err("the NT hash is not hexadecimal"),
    };
    let flags = match fields.next() {
        Some(flags) if flags.starts_with('[') => flags
            .strip_prefix('[')
            .and_then(|flags| flags.strip_suffix(']'))
            .filter(|flags| flags.chars().all(|c| FLAG_LETTERS.contains(c)))
            .ok_or("the flags are not letters in brackets")?,
        // The oldest files end here or continue with the full name: all are users.
        _ => "U",
    };
    let flags: String = flags.chars().filter(|c| *c != ' ').collect();
    let last_change = match fields.next().and_then(|field| field.strip_prefix("LCT-")) {
        Some(digits) => {
            Some(u32::from_str_radix(digits, 16).map_err(|_| "LCT- is not followed by a time")?)
        }
        None => None,
    };
    let mut entry = Entry {
        name: name.to_string(),
        uid,
        nt_hash,
        flags,
        last_change,
        rid: None,
        groups: Vec::new(),
    };
    for field in fields {
        if let Some(rid) = field.strip_prefix("RID-") {
            entry.rid = Some(rid.parse().map_err(|_| "RID- is not followed by a number")?);
        } else if let Some(groups) = field.strip_prefix("GROUPS-") {
            entry.groups =
                groups.split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        }
    }
    Ok(entry)
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
    if !entry.groups.is_empty() {
        write!(out, "GROUPS-{}:", entry.groups.join(","))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const X: &str = NO_HASH;
    const HASH: &str = "A4F49C406510BDCAB6824EE7C30FD852";

    fn line(name: &str, nt: &str, flags: &str) -> String {
        format!("{name}:1000:{X}:{nt}:[{flags:<11}]:LCT-65A1B2C3:")
    }

    #[test]
    fn a_file_comes_back_with_its_comments() {
        let text = format!(
            "# users\n{}\n\n{}\n{}\n",
            line("ann", HASH, "U"),
            line("Bob", HASH, "UD"),
            line("nopw", X, "NU"),
        );
        let file = AccountFile::parse(&text).unwrap();
        assert_eq!(*file.to_text(), text);
        assert_eq!(file.entries().count(), 3);
        let ann = file.account("ANN", "ANY").unwrap();
        assert_eq!((&*ann.name, ann.is_enabled), ("ann", true));
        assert_eq!(ann.nt_hash, NtHash::from_password("Password"));
        assert!(!file.account("bob", "").unwrap().is_enabled);
        assert!(file.account("nopw", "").is_none());
        assert!(file.account("carl", "").is_none());
    }

    #[test]
    fn an_lm_hash_is_forgotten() {
        let text = format!("ann:1:{HASH}:{HASH}:[U          ]:LCT-00000000:\n");
        let written = AccountFile::parse(&text).unwrap().to_text();
        assert!(written.contains(X));
        assert_eq!(written.matches(HASH).count(), 1);
    }

    #[test]
    fn what_samba_writes_is_taken() {
        for (text, enabled) in [
            (format!("a:0:{X}:{HASH}:[DU         ]:LCT-5F000000:"), false),
            (format!("a:0:{X}:{HASH}:[UX         ]:LCT-5F000000:"), true),
            (format!("a:0:{X}:{HASH}:[UL         ]:LCT-5F000000:"), false),
            (format!("a$:0:{X}:{HASH}:[W          ]:LCT-5F000000:"), false),
            (format!("a:0:{X}:{HASH}:[U          ]:"), true),
            (format!("a:0:{X}:{HASH}:Full Name:/home/a:/bin/sh"), true),
            (format!("a:4294967295:{X}:{HASH}:[U          ]:LCT-5F000000:Full Name"), true),
        ] {
            let file = AccountFile::parse(&text).unwrap();
            assert_eq!(file.entries().next().unwrap().is_enabled(), enabled, "{text}");
        }
        let text = "a:0:NO PASSWORDXXXXXXXXXXXXXXXXXXXXX:NO PASSWORDXXXXXXXXXXXXXXXXXXXXX:[NU         ]:LCT-0:";
        assert!(AccountFile::parse(text).unwrap().account("a", "").is_none());
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for bad in [
            "ann",
            "ann:x",
            &format!(":1:{X}:{HASH}:[U]:LCT-0:"),
            &format!("ann:1:{X}:short:[U]:LCT-0:"),
            &format!("ann:1:{X}:{}:[U]:LCT-0:", "Z".repeat(32)),
            &format!("ann:1:{X}:{}:[U]:LCT-0:", "é".repeat(16)),
            &format!("ann:1:{X}:{HASH}:[U:LCT-0:"),
            &format!("ann:1:{X}:{HASH}:[Q]:LCT-0:"),
            &format!("ann:1:{X}:{HASH}:[U]:LCT-zz:"),
        ] {
            let text = format!("# first\n{bad}\n");
            assert_eq!(AccountFile::parse(&text).unwrap_err().line, 2, "{bad}");
        }
        let twice = format!("{}\n{}\n", line("ann", HASH, "U"), line("Ann", HASH, "U"));
        assert_eq!(AccountFile::parse(&twice).unwrap_err().line, 2);
    }

    #[test]
    fn lines_are_bounded_in_length_and_number() {
        for (n, taken) in [
            (MAX_ACCOUNT_LINE_LEN - 1, true),
            (MAX_ACCOUNT_LINE_LEN, true),
            (MAX_ACCOUNT_LINE_LEN + 1, false),
        ] {
            assert_eq!(AccountFile::parse(&"#".repeat(n)).is_ok(), taken);
        }
        for (n, taken) in [
            (MAX_ACCOUNT_LINE_COUNT - 1, true),
            (MAX_ACCOUNT_LINE_COUNT, true),
            (MAX_ACCOUNT_LINE_COUNT + 1, false),
        ] {
            assert_eq!(AccountFile::parse(&"#\n".repeat(n)).is_ok(), taken);
        }
    }

    #[test]
    fn accounts_are_added_changed_and_removed() {
        let mut file = AccountFile::parse(&format!("# c\n{}\n", line("ann", HASH, "U"))).unwrap();
        let hash = NtHash::from_password("new");
        file.add(Entry::new("Bob", 7, hash.clone(), 5)).unwrap();
        file.add(Entry::new("carl", 8, hash.clone(), 5)).unwrap();
        assert!(file.add(Entry::new("BOB", 7, hash.clone(), 5)).is_err());
        for name in ["", "a:b", "#a", "a\nb"] {
            assert!(file.add(Entry::new(name, 7, hash.clone(), 5)).is_err(), "{name:?}");
        }
        assert!(file.set_enabled("bob", false));
        assert!(!file.account("bob", "").unwrap().is_enabled);
        assert!(file.set_hash("ANN", hash.clone(), 6));
        assert!(file.remove("ann") && !file.remove("ann"));
        assert!(file.set_enabled("bob", true));
        let groups = ["staff".to_owned(), "Administrators".to_owned()];
        assert_eq!(file.set_groups("bob", &groups), Ok(true));
        assert!(file.set_groups("bob", &["a,b".to_owned()]).is_err());
        assert_eq!(file.set_groups("nobody", &groups), Ok(false));
        let file = AccountFile::parse(&file.to_text()).unwrap();
        let bob = file.membership("BOB").unwrap();
        assert_eq!((bob.rid, &*bob.groups), (Some(1_000), &groups[..]));
        assert_eq!(file.membership("carl").unwrap().rid, Some(1_001));
        assert!(file.account("bob", "").unwrap().is_enabled);
        assert_eq!(file.account("carl", "").unwrap().nt_hash, hash);
        assert_eq!(file.to_text().lines().next(), Some("# c"));
    }
}
