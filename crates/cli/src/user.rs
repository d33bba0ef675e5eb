//! `frevo user`: the accounts of a server.

mod import;
mod of_directory;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash};
use frevo_config::{AccountName, Config};
use serde_json::json;

use crate::admin::account_file;
use crate::arguments::{User, UserCommand, UsersPlace};
use crate::changes::Telling;
use crate::console::{print, print_text};
use crate::exit::{Done, Exit, Failure};
use crate::password_rules::PasswordRules;
use crate::passwords::PasswordFrom;
use crate::plural::counted;
use crate::{
    account_changes, account_rules, accounts, config_checks, passwords, state, trusted_file,
};

pub(crate) fn run(user: &User) -> Done {
    let config = user.place.config.as_deref().map(config_checks::read).transpose()?;
    let path = users_file(&user.place, config.as_ref());
    let realm = accounts::realm(config.as_ref());
    match &user.command {
        command if of_directory::is_asked(command) => {
            let usual = || config_checks::read(Path::new(state::DEFAULT_CONFIG));
            of_directory::run(&config.map_or_else(usual, Ok)?, command)
        }
        UserCommand::List { json: true, .. } => list_json(&accounts::read(&path)?),
        UserCommand::List { json: false, .. } => list(&accounts::read(&path)?),
        UserCommand::Show { name, json, .. } => {
            let file = accounts::read(&path)?;
            existing(&file, name, &path)?;
            show(&file, name, *json)
        }
        command => {
            refuse_changeable(&path, config.as_ref())?;
            let telling = telling_of(command);
            let rules = PasswordRules::of(config.as_ref());
            let is_dry = telling.is_dry_run();
            let accounts = Accounts { path: &path, realm: &realm, rules: &rules, is_dry };
            let made = accounts.carry_out(command)?;
            tell_made(&made, &path, config.as_ref(), telling)
        }
    }
}

/// Has the running server take a change over, and tells of it.
fn tell_made(made: &Made, path: &Path, config: Option<&Config>, telling: Telling) -> Done {
    let applies = made.is_changed && !telling.is_dry_run();
    let ended = if applies { account_file::tell_server(path, config)? } else { None };
    let line = match ended {
        None if telling.is_dry_run() && made.is_changed => {
            format!("{} would be changed", path.display())
        }
        None => String::new(),
        Some(0) => String::from("the running server applies the change"),
        Some(ended) => {
            let sessions = counted(usize::try_from(ended).unwrap_or(usize::MAX), "session");
            format!("the running server applies the change; {sessions} ended")
        }
    };
    let mut facts = made.facts.clone();
    facts["file"] = json!(path.display().to_string());
    facts["sessions_ended"] = json!(ended);
    telling.finish(made.is_changed, facts, &line)
}

/// The flags of a command that changes accounts.
fn telling_of(command: &UserCommand) -> Telling {
    match command {
        UserCommand::Add { telling, .. }
        | UserCommand::Passwd { telling, .. }
        | UserCommand::Rm { telling, .. }
        | UserCommand::Groups { telling, .. }
        | UserCommand::Set { telling, .. }
        | UserCommand::Enable { telling, .. }
        | UserCommand::Disable { telling, .. }
        | UserCommand::Import { telling, .. } => *telling,
        UserCommand::List { .. } | UserCommand::Show { .. } => Telling::default(),
    }
}

/// An account file that is changed.
struct Accounts<'a> {
    path: &'a Path,
    /// The realm of Kerberos keys.
    realm: &'a str,
    /// The rules for new passwords.
    rules: &'a PasswordRules,
    /// True if nothing is to be written.
    is_dry: bool,
}

/// The outcome of a change of the accounts.
struct Made {
    is_changed: bool,
    /// A JSON object for configuration tools.
    facts: serde_json::Value,
}

impl Made {
    fn of(name: &AccountName, is_changed: bool) -> Self {
        Self { is_changed, facts: json!({ "user": name.as_str() }) }
    }
}

impl Accounts<'_> {
    fn carry_out(&self, command: &UserCommand) -> Result<Made, Failure> {
        let path = self.path;
        let (name, is_changed) = match command {
            UserCommand::Add { name, password, ensure, .. } => {
                (name, self.add(name, password, *ensure)?)
            }
            UserCommand::Passwd { name, password, ensure, .. } => {
                existing(&accounts::read(path)?, name, path)?;
                (name, self.set_password(name, password, *ensure)?)
            }
            UserCommand::Rm { name, ensure, .. } => {
                let remove = |file: &mut AccountFile| {
                    if !*ensure {
                        existing(file, name, path)?;
                    }
                    file.remove(name.as_str());
                    Ok(())
                };
                (name, self.change(remove)?)
            }
            UserCommand::Groups { name, groups, .. } => {
                let set = |file: &mut AccountFile| {
                    existing(file, name, path)?;
                    file.set_groups(name.as_str(), groups).map(drop).map_err(|why| {
                        let text = format!("cannot set the groups of {name}: {why}");
                        Failure::new(Exit::Usage, text)
                    })
                };
                (name, self.change(set)?)
            }
            UserCommand::Set { name, rules, .. } => {
                let change = rules.change().map_err(|why| Failure::new(Exit::Usage, why))?;
                let set = |file: &mut AccountFile| {
                    existing(file, name, path)?;
                    file.set_rules(name.as_str(), &change).map(drop).map_err(|why| {
                        let text = format!("cannot set the rules for {name}: {why}");
                        Failure::new(Exit::Usage, text)
                    })
                };
                (name, self.change(set)?)
            }
            UserCommand::Enable { name, .. } => (name, self.set_enabled(name, true)?),
            UserCommand::Disable { name, .. } => (name, self.set_enabled(name, false)?),
            UserCommand::Import { file, replace, .. } => return self.import(file, *replace),
            UserCommand::List { .. } | UserCommand::Show { .. } => {
                return Ok(Made { is_changed: false, facts: json!({}) });
            }
        };
        Ok(Made::of(name, is_changed))
    }

    /// Adds an account. With `is_ensured` one that is there gets the password that is given, if any.
    fn add(
        &self,
        name: &AccountName,
        password: &PasswordFrom,
        is_ensured: bool,
    ) -> Result<bool, Failure> {
        let is_there = accounts::read(self.path)?.find(name.as_str()).is_some();
        match (is_there, is_ensured) {
            (true, true) if password.is_named() => self.set_password(name, password, true),
            (true, true) => Ok(false),
            (true, false) => {
                let advice = "to change the password, run: frevo user passwd";
                let text = format!("user {name} exists already; {advice} {name}");
                Err(Failure::new(Exit::Failed, text))
            }
            (false, _) => {
                let password = passwords::ask(password, name.as_str())?;
                self.rules.check(name.as_str(), &password, None).map_err(unusable(name))?;
                let entry = accounts::entry(name.as_str(), &password, self.realm);
                self.change(|file| file.add(entry).map_err(refused(name)))
            }
        }
    }

    /// Sets the password of an account. With `is_ensured` one that it has already stays, with its time.
    fn set_password(
        &self,
        name: &AccountName,
        password: &PasswordFrom,
        is_ensured: bool,
    ) -> Result<bool, Failure> {
        let password = passwords::ask(password, name.as_str())?;
        let hash = NtHash::from_password(&password);
        self.change(|file| {
            existing(file, name, self.path)?;
            let Some(entry) = file.find(name.as_str()) else { return Ok(()) };
            // The Kerberos keys depend on the spelling of the user name, so the stored spelling is used.
            let keys = accounts::kerberos_keys(&entry.name, &password, self.realm);
            let has_it = entry.nt_hash.as_ref() == Some(&hash);
            if is_ensured && has_it && entry.kerberos.as_ref() == Some(&keys) {
                return Ok(());
            }
            // The keys of the present password may be new.
            if is_ensured && has_it {
                file.set_password(name.as_str(), hash, Some(keys), accounts::now());
                return Ok(());
            }
            let set = account_changes::set_password(
                file,
                name.as_str(),
                &password,
                self.realm,
                self.rules,
            );
            set.map_err(unusable(name))
        })
    }

    fn set_enabled(&self, name: &AccountName, is_enabled: bool) -> Result<bool, Failure> {
        self.change(|file| {
            existing(file, name, self.path)?;
            file.set_enabled(name.as_str(), is_enabled);
            Ok(())
        })
    }

    /// Changes the file, but not on a dry run. Returns true if it has changed, or would have.
    fn change(&self, edit: impl FnOnce(&mut AccountFile) -> Done) -> Result<bool, Failure> {
        account_changes::change(self.path, self.is_dry, edit)
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

fn unusable(name: &AccountName) -> impl FnOnce(String) -> Failure {
    move |why| {
        let why = why.trim_start_matches("it ");
        let text = format!("the password of {name} cannot be set: the new one {why}");
        Failure::new(Exit::Auth, text)
    }
}

fn refused(name: &AccountName) -> impl FnOnce(&'static str) -> Failure {
    move |why| Failure::new(Exit::Failed, format!("cannot add user {name}: {why}"))
}

/// The state of an account in a word or two.
fn state_of(entry: &Entry) -> &'static str {
    match entry {
        entry if entry.nt_hash.is_none() => "no password",
        entry if !entry.is_enabled() => "disabled",
        entry if entry.rules().is_over(accounts::now().into()) => "expired",
        _ => "enabled",
    }
}

/// The facts about an account; no secret is among them.
pub(crate) fn facts(file: &AccountFile, entry: &Entry) -> serde_json::Value {
    let sid = entry.rid.and_then(|rid| file.header().machine?.with_rid(rid));
    json!({
        "name": entry.name,
        "state": state_of(entry),
        "sid": sid.map(|sid| sid.to_string()),
        "rid": entry.rid,
        "groups": entry.groups,
        "password_changed":
            entry.last_change.filter(|time| *time != 0).map(|time| account_rules::time(time.into())),
        "kerberos_salt": entry.kerberos.as_ref().map(|keys| &keys.salt),
        "expires": entry.expires.map(account_rules::time),
        "must_change": entry.must_change,
        "password_never_expires": entry.password_never_ends(),
        "hours": entry.hours.map(|hours| hours.to_string()),
        "workstations": entry.workstations,
    })
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
    print_text(&format!("{text}{}", account_rules::shown(entry)))
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
