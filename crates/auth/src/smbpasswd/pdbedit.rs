//! The output of `pdbedit -L -v -w`, which has the SIDs that an smbpasswd file lacks.
//!
//! ```text
//! ---------------
//! Unix username:        ann
//! Account Flags:        [U          ]
//! User SID:             S-1-5-21-3004859244-1309964605-2891807487-1001
//! NT hash             : A4F49C406510BDCAB6824EE7C30FD852
//! ```

use super::{AccountFile, Entry, FileFault, flags, folded, nt_hash};
use crate::limits::{MAX_ACCOUNT_LINE_COUNT, MAX_ACCOUNT_LINE_LEN};
use alloc::boxed::Box;
use alloc::string::ToString;
use frevo_wire::dtyp::Sid;

/// The label with which each account begins.
const NAME: &str = "Unix username";
/// Most lines of the output: an account has about 26.
const MAX_LINE_COUNT: usize = 32 * MAX_ACCOUNT_LINE_COUNT;

impl AccountFile {
    /// Parses what Samba's programs print or store of accounts: an smbpasswd file, the output of
    /// `pdbedit -L -w`, or that of `pdbedit -L -v -w`, of which the accounts keep their relative
    /// identifiers and the file the SID of the machine.
    ///
    /// # Errors
    /// The first line that cannot be parsed. A file with an error is not used at all.
    pub fn parse_samba(text: &str) -> Result<Self, FileFault> {
        let is_verbose = |line: &str| field(line).is_some_and(|(key, _)| key == NAME);
        if text.lines().any(is_verbose) { parse(text) } else { Self::parse(text) }
    }
}

fn parse(text: &str) -> Result<AccountFile, FileFault> {
    let mut file = AccountFile::default();
    let mut entry: Option<Entry> = None;
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
            if let Some(entry) = entry.take() {
                file.add_samba(entry).map_err(fault)?;
            }
            entry = Some(Entry::empty(value));
            continue;
        }
        let Some(entry) = &mut entry else { continue };
        match key {
            "Account Flags" => entry.flags = flags(value).map_err(fault)?,
            "User SID" => {
                let sid: Option<Sid> = value.parse().ok();
                let (machine, rid) = sid
                    .and_then(|sid| sid.split_rid())
                    .ok_or_else(|| fault("the SID is not one of an account"))?;
                // Accounts of another domain have no place here.
                if *file.header.machine.get_or_insert(machine) == machine {
                    entry.rid = Some(rid);
                }
                file.header.is_samba = true;
            }
            "NT hash" => entry.nt_hash = nt_hash(value).map_err(fault)?,
            _ => {}
        }
    }
    let fault = |what| FileFault { line: text.lines().count(), what };
    if let Some(entry) = entry {
        file.add_samba(entry).map_err(fault)?;
    }
    Ok(file)
}

/// The parts of a line `Key : value`.
fn field(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    Some((key.trim(), value.trim()))
}

impl Entry {
    fn empty(name: &str) -> Self {
        Self {
            name: name.to_string(),
            uid: u32::MAX,
            nt_hash: None,
            flags: "U".to_string(),
            last_change: None,
            rid: None,
            groups: alloc::vec::Vec::new(),
            kerberos: None,
        }
    }
}

impl AccountFile {
    /// Adds an account as Samba has it. Machines and the like may have any identifier.
    fn add_samba(&mut self, entry: Entry) -> Result<(), &'static str> {
        super::check_name(&entry.name)?;
        if self.places.insert(folded(&entry.name), self.lines.len()).is_some() {
            return Err("the account is already in the file");
        }
        self.lines.push(super::Line::Account(Box::new(entry)));
        Ok(())
    }
}
