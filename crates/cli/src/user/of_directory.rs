//! `frevo user list --ldap`, `frevo user show NAME --ldap`: the accounts of the directory, as logons find them.

use std::fmt::Write as _;

use frevo_config::{AccountName, Config};
use frevo_ldap::person::Person;
use serde_json::{Value, json};

use crate::arguments::UserCommand;
use crate::console::{print, print_text, tell};
use crate::exit::{Done, Exit, Failure};
use crate::ldap::{LdapSetup, ask_once, state_of};

/// Most accounts that are listed.
const LISTED: usize = 10_000;

/// True for a command about the directory.
pub(super) fn is_asked(command: &UserCommand) -> bool {
    matches!(command, UserCommand::List { ldap: true, .. } | UserCommand::Show { ldap: true, .. })
}

/// Carries out such a command.
pub(super) fn run(config: &Config, command: &UserCommand) -> Done {
    let setup = LdapSetup::read(config)?.ok_or_else(|| {
        let text = "the configuration has no [ldap]; see docs/ldap.md";
        Failure::new(Exit::Config, text)
    })?;
    match command {
        UserCommand::Show { name, json, .. } => show(&setup, name, *json),
        UserCommand::List { json, .. } => list(&setup, *json),
        _ => Ok(()),
    }
}

fn show(setup: &LdapSetup, name: &AccountName, is_json: bool) -> Done {
    let user = name.as_str();
    let found = ask_once(setup, |mut directory| async move { directory.look_up(user).await });
    let person = found.map_err(|why| Failure::new(Exit::Failed, why))?.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no user {name} in the directory"))
    })?;
    if is_json {
        return print(format!("{}\n", facts(&person)).as_bytes());
    }
    let or = |text: Option<String>, other: &str| text.unwrap_or_else(|| other.to_owned());
    let groups = Some(person.groups.join(", ")).filter(|groups| !groups.is_empty());
    let rules = Some(rules(&person).join(", ")).filter(|rules| !rules.is_empty());
    print_text(&format!(
        "name              {}\nstate             {}\nSID               {}\n\
         groups            {}\nrules             {}\nentry             {}\n",
        person.name,
        state_of(&person),
        or(person.sid.map(|sid| sid.to_string()), "unknown"),
        or(groups, "none"),
        or(rules, "none"),
        person.dn,
    ))
}

fn list(setup: &LdapSetup, is_json: bool) -> Done {
    let listed = ask_once(setup, |mut directory| async move { directory.list(LISTED).await });
    let listing = listed.map_err(|why| Failure::new(Exit::Failed, why))?;
    if listing.is_cut {
        tell("the directory has more accounts than are listed, or does not list more");
    }
    if is_json {
        let all: Vec<Value> = listing.people.iter().map(facts).collect();
        return print(format!("{}\n", json!(all)).as_bytes());
    }
    let mut text = String::new();
    for person in &listing.people {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}\t{}", person.name, state_of(person));
    }
    print_text(&text)
}

/// The facts about an account; no secret is among them.
fn facts(person: &Person) -> Value {
    json!({
        "name": person.name,
        "state": state_of(person),
        "sid": person.sid.map(|sid| sid.to_string()),
        "groups": person.groups,
        "rules": rules(person),
        "entry": person.dn,
    })
}

/// The rules for logons, in words.
fn rules(person: &Person) -> Vec<String> {
    let rules = &person.rules;
    let time = |seconds: u64| {
        let time = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
        time.map_or_else(|| seconds.to_string(), |time| time.to_string())
    };
    let computers = (!rules.workstations.is_empty()).then(|| rules.workstations.join(" "));
    [
        rules.is_disabled.then(|| String::from("disabled")),
        rules.expires.map(|end| format!("ends {}", time(end))),
        rules.must_change.then(|| String::from("password must be changed")),
        rules.password_ends.map(|end| format!("password ends {}", time(end))),
        rules.hours.map(|hours| format!("hours {hours} UTC")),
        computers.map(|computers| format!("from {computers}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}
