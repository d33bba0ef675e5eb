//! `frevo user`: the accounts of a server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash, Zeroizing};
use frevo_config::{AccountName, Config};
use serde_json::json;

use crate::admin::account_file;
use crate::arguments::{User, UserCommand, UsersPlace};
use crate::console::{print, print_text, tell};
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;
use crate::unix_accounts::UnixAccounts;
use crate::{
    accounts, bounded_input, config_checks, machine_sid, passwords, samba_rules, secret_file,
    state, trusted_file, unix_accounts,
};

/// The largest file that is imported, bytes.
const IMPORT_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn run(user: &User) -> Done {
    let config = user.place.config.as_deref().map(config_checks::read).transpose()?;
    let path = users_file(&user.place, config.as_ref());
    let realm = accounts::realm(config.as_ref());
    let is_read = matches!(user.command, UserCommand::List { .. } | UserCommand::Show { .. });
    if is_read {
        return carry_out(&user.command, &path, &realm);
    }
    refuse_changeable(&path, config.as_ref())?;
    carry_out(&user.command, &path, &realm)?;
    account_file::tell_server(&path, config.as_ref())
}

fn carry_out(command: &UserCommand, path: &Path, realm: &str) -> Done {
    match command {
        UserCommand::Add { name, password } => {
            if accounts::read(path)?.find(name.as_str()).is_some() {
                let advice = "to change the password, run: frevo user passwd";
                let text = format!("user {name} exists already; {advice} {name}");
                return Err(Failure::new(Exit::Failed, text));
            }
            let password = passwords::ask(password.password_stdin, name.as_str())?;
            let entry = accounts::entry(name.as_str(), &password, realm);
            change(path, |file| file.add(entry).map_err(refused(name)))
        }
        UserCommand::Passwd { name, password } => {
            existing(&accounts::read(path)?, name, path)?;
            let password = passwords::ask(password.password_stdin, name.as_str())?;
            let hash = NtHash::from_password(&password);
            change(path, |file| {
                existing(file, name, path)?;
                // The Kerberos keys depend on the spelling of the user name, so the stored spelling
                // is used.
                let stored = file.find(name.as_str()).map_or(name.as_str(), |entry| &entry.name);
                let keys = accounts::kerberos_keys(stored, &password, realm);
                file.set_password(name.as_str(), hash, Some(keys), accounts::now());
                Ok(())
            })
        }
        UserCommand::List { json: true } => list_json(&accounts::read(path)?),
        UserCommand::List { json: false } => list(&accounts::read(path)?),
        UserCommand::Show { name, json } => {
            let file = accounts::read(path)?;
            existing(&file, name, path)?;
            show(&file, name, *json)
        }
        UserCommand::Rm { name } => change(path, |file| {
            existing(file, name, path)?;
            file.remove(name.as_str());
            Ok(())
        }),
        UserCommand::Groups { name, groups } => change(path, |file| {
            existing(file, name, path)?;
            match file.set_groups(name.as_str(), groups) {
                Ok(_) => Ok(()),
                Err(why) => Err(Failure::new(
                    Exit::Usage,
                    format!("cannot set the groups of {name}: {why}"),
                )),
            }
        }),
        UserCommand::Enable { name } => set_enabled(path, name, true),
        UserCommand::Disable { name } => set_enabled(path, name, false),
        UserCommand::Import { file, replace } => import(path, file, *replace),
    }
}

fn users_file(place: &UsersPlace, config: Option<&Config>) -> PathBuf {
    if let Some(config) = config {
        return state::users_file_of(config);
    }
    let dir = place.state_dir.clone().unwrap_or_else(state::default_dir);
    state::users_file_in(&dir)
}

/// Refuses accounts that other users could change: the server would not start with them.
fn refuse_changeable(path: &Path, config: Option<&Config>) -> Done {
    let dir = config.map(state::dir_of).or_else(|| path.parent().map(Path::to_owned));
    let faults = trusted_file::faults_of(dir.as_deref(), &[path.to_owned()]);
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Config, faults.join("\nfrevo: ")))
}

/// Reads the file, lets `edit` change it, and writes it back.
fn change(path: &Path, edit: impl FnOnce(&mut AccountFile) -> Done) -> Done {
    if let Some(dir) = path.parent() {
        state::make_dir(dir)?;
    }
    let _lock = secret_file::lock(path)?;
    let mut file = accounts::read(path)?;
    let is_new = file.entries().next().is_none();
    edit(&mut file)?;
    if is_new && file.header().machine.is_none() {
        file.set_machine(machine_sid::random()?, false);
    }
    secret_file::replace(path, &file.to_text())
}

fn set_enabled(path: &Path, name: &AccountName, is_enabled: bool) -> Done {
    change(path, |file| {
        existing(file, name, path)?;
        file.set_enabled(name.as_str(), is_enabled);
        Ok(())
    })
}

fn existing(file: &AccountFile, name: &AccountName, path: &Path) -> Done {
    if file.find(name.as_str()).is_some() {
        return Ok(());
    }
    let names = file.entries().map(|entry| &*entry.name);
    let near = frevo_config::nearest(name.as_str(), names);
    let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    let text = format!("there is no user {name} in {}{hint}", path.display());
    Err(Failure::new(Exit::NotFound, text))
}

fn refused(name: &AccountName) -> impl FnOnce(&'static str) -> Failure {
    move |why| Failure::new(Exit::Failed, format!("cannot add user {name}: {why}"))
}

/// The state of an account in a word or two.
fn state_of(entry: &Entry) -> &'static str {
    match entry {
        entry if entry.nt_hash.is_none() => "no password",
        entry if entry.is_enabled() => "enabled",
        _ => "disabled",
    }
}

/// The facts about an account; no secret is among them.
fn facts(file: &AccountFile, entry: &Entry) -> serde_json::Value {
    let sid = entry.rid.and_then(|rid| file.header().machine?.with_rid(rid));
    json!({
        "name": entry.name,
        "state": state_of(entry),
        "sid": sid.map(|sid| sid.to_string()),
        "rid": entry.rid,
        "groups": entry.groups,
        "password_changed": entry.last_change.filter(|time| *time != 0).map(time_of),
        "kerberos_salt": entry.kerberos.as_ref().map(|keys| &keys.salt),
    })
}

/// A time of an account file, as RFC 3339 has it.
fn time_of(seconds: u32) -> String {
    jiff::Timestamp::from_second(seconds.into()).map_or_else(|_| String::new(), |t| t.to_string())
}

fn list_json(file: &AccountFile) -> Done {
    let all: Vec<_> = file.entries().map(|entry| facts(file, entry)).collect();
    print(format!("{}\n", json!(all)).as_bytes())
}

fn show(file: &AccountFile, name: &AccountName, is_json: bool) -> Done {
    let Some(entry) = file.find(name.as_str()) else { return Ok(()) };
    let facts = facts(file, entry);
    if is_json {
        return print(format!("{facts}\n").as_bytes());
    }
    let word = |key: &str| match &facts[key] {
        serde_json::Value::Null => String::from("unknown"),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let groups = match &*entry.groups {
        [] => String::from("none"),
        groups => groups.join(", "),
    };
    let keys = match &entry.kerberos {
        Some(keys) => format!("AES-256, AES-128 (salt {})", keys.salt),
        None => String::from("none until the password is changed"),
    };
    let text = format!(
        "name              {}\nstate             {}\nSID               {}\n\
         groups            {groups}\npassword changed  {}\nKerberos keys     {keys}\n",
        entry.name,
        state_of(entry),
        word("sid"),
        word("password_changed"),
    );
    print_text(&text)
}

fn list(file: &AccountFile) -> Done {
    let mut text = String::new();
    for entry in file.entries() {
        let state = state_of(entry);
        // Writing to a String cannot fail.
        let _ = match &*entry.groups {
            [] => writeln!(text, "{}\t{state}", entry.name),
            groups => writeln!(text, "{}\t{state}\t{}", entry.name, groups.join(", ")),
        };
    }
    print_text(&text)
}

fn import(path: &Path, from: &Path, replace: bool) -> Done {
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
    let (mut added, mut replaced, mut disabled) = (0, 0, 0);
    change(path, |file| {
        import_machine(file, &imported);
        for entry in imported.entries() {
            match import_entry(file, entry, replace) {
                Ok(Import::Added) => added += 1,
                Ok(Import::Replaced) => replaced += 1,
                Err(why) => {
                    tell(format_args!("skipped {}: {why}", entry.name));
                    continue;
                }
            }
            let mut refusals = samba_rules::refusals(imported.samba_rules(&entry.name));
            refusals.extend(unix.refusal(&entry.name));
            if !refusals.is_empty() {
                file.set_enabled(&entry.name, false);
                disabled += 1;
                tell(format_args!(
                    "{0} is disabled: {1}. Frevo has no such rules; to let {0} log on without them: \
                     frevo user enable {0}",
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
    let added = counted(added, "account");
    let shown = path.display();
    tell(format_args!("{shown}: {added} added, {replaced} replaced; {disabled} of them disabled"));
    Ok(())
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
