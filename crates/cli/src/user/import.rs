//! `frevo user import`: the accounts of a Samba server.

use std::path::Path;

use frevo_auth::smbpasswd::{Entry, RulesChange};
use frevo_auth::{AccountFile, NtHash, Zeroizing};
use frevo_config::AccountName;
use serde_json::json;

use super::{Accounts, Made};
use crate::console::tell;
use crate::exit::{Exit, Failure};
use crate::plural::counted;
use crate::unix_accounts::UnixAccounts;
use crate::{account_rules, accounts, bounded_input, samba_rules, unix_accounts};

/// The largest file that is imported, bytes.
const IMPORT_BYTES_MAX: u64 = 64 << 20;

impl Accounts<'_> {
    /// Takes over the accounts of a file of Samba's.
    pub(super) fn import(&self, from: &Path, replace: bool) -> Result<Made, Failure> {
        let text = read_import(from)?;
        let imported = AccountFile::parse_samba(&text).map_err(|fault| {
            let advice = "the file must be an smbpasswd file, or the output of: pdbedit -L -v -w";
            let shown = from.display();
            Failure::new(Exit::Config, format!("{shown}:{}: {}; {advice}", fault.line, fault.what))
        })?;
        let unix = UnixAccounts::of_samba().unwrap_or_else(|failure| {
            tell(unix_accounts::told(&failure));
            UnixAccounts::Unknown
        });
        let (mut added, mut replaced, mut disabled, mut skipped) = (0, 0, 0, 0);
        let is_changed = self.change(|file| {
            import_machine(file, &imported);
            for entry in imported.entries() {
                match import_entry(file, entry, replace) {
                    Ok(Import::Added) => added += 1,
                    Ok(Import::Replaced) => replaced += 1,
                    Err(why) => {
                        skipped += 1;
                        tell(format_args!("skipped {}: {why}", entry.name));
                        continue;
                    }
                }
                let rules = imported.samba_rules(&entry.name);
                import_rules(file, entry, &samba_rules::change(rules));
                let mut refusals = samba_rules::refusals(rules);
                refusals.extend(unix.refusal(&entry.name));
                if !refusals.is_empty() {
                    file.set_enabled(&entry.name, false);
                    disabled += 1;
                    tell(format_args!(
                        "{0} is disabled: {1}; to let {0} log on nevertheless: frevo user enable {0}",
                        entry.name,
                        refusals.join(", ")
                    ));
                }
            }
            Ok(())
        })?;
        if let Some(line) = samba_rules::told_ends(&imported) {
            tell(line);
        }
        let facts = json!({
            "added": added, "replaced": replaced, "disabled": disabled, "skipped": skipped,
        });
        let added = counted(added, "account");
        let shown = self.path.display();
        tell(format_args!(
            "{shown}: {added} added, {replaced} replaced; {disabled} of them disabled"
        ));
        Ok(Made { is_changed, facts })
    }
}

/// Takes over the SID of the machine, if no account would get another SID by that.
fn import_machine(file: &mut AccountFile, imported: &AccountFile) {
    let Some(samba) = imported.header().machine else {
        let text = "the accounts get new SIDs, because the file has none: access lists that Samba \
                    stored do not name them; the output of `pdbedit -L -v -w` has the SIDs";
        return tell(text);
    };
    let is_first = file.header().machine.is_none() && file.entries().next().is_none();
    if is_first || file.header().machine == Some(samba) {
        file.set_machine(samba, true);
        return tell(format_args!("the SID of the Samba server is taken over: {samba}"));
    }
    let here = match file.header().machine {
        Some(sid) => sid.to_string(),
        None => String::from("another one"),
    };
    tell(format_args!(
        "the SID of the Samba server is {samba}, that of this server {here}: access lists that \
         Samba stored do not name the accounts, unless [server] has sid = \"{samba}\""
    ));
}

/// Gives an account that was imported the rules that it has in Samba, and tells of them.
fn import_rules(file: &mut AccountFile, entry: &Entry, more: &RulesChange) {
    let change = RulesChange {
        expires: Some(more.expires.flatten()),
        must_change: Some(entry.must_change || more.must_change == Some(true)),
        hours: Some(entry.hours),
        workstations: Some(entry.workstations.clone()),
        password_never_ends: Some(entry.password_never_ends()),
    };
    // The names of computers were checked when they were read.
    let _ = file.set_rules(&entry.name, &change);
    let rules = file.find(&entry.name).map_or_else(Vec::new, account_rules::words);
    if !rules.is_empty() {
        tell(format_args!("{} keeps its rules: {}", entry.name, rules.join(", ")));
    }
}

enum Import {
    Added,
    Replaced,
}

fn import_entry(file: &mut AccountFile, entry: &Entry, replace: bool) -> Result<Import, String> {
    entry.name.parse::<AccountName>()?;
    if entry.name.ends_with('$') || !entry.flags.contains('U') {
        return Err(String::from("machine and trust accounts are not imported"));
    }
    let Some(hash) = entry.nt_hash.clone() else {
        return Err(String::from("the account has no NT hash; add it with frevo user add"));
    };
    // Samba allows an account with the hash of the empty password to log on, which Frevo does not.
    if hash == NtHash::from_password("") {
        return Err(String::from("the password is empty, which Frevo does not allow"));
    }
    if file.find(&entry.name).is_none() {
        file.add(entry.clone()).map_err(|why| match entry.rid {
            Some(rid) => format!(
                "{why} (RID {rid}); with another one it would lose the rights that \
                                  access lists give it, so remove that account first"
            ),
            None => String::from(why),
        })?;
        return Ok(Import::Added);
    }
    if !replace {
        return Err(String::from("the account exists already; --replace replaces its password"));
    }
    if let Some(rid) = entry.rid {
        file.set_rid(&entry.name, rid)?;
    }
    let changed = entry.last_change.unwrap_or_else(accounts::now);
    file.set_password(&entry.name, hash, None, changed);
    file.set_enabled(&entry.name, entry.is_enabled());
    Ok(Import::Replaced)
}

fn read_import(from: &Path) -> Result<Zeroizing<String>, Failure> {
    bounded_input::text(bounded_input::read(from, IMPORT_BYTES_MAX)?, from).map(Zeroizing::new)
}
