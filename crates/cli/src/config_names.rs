//! Users and groups that a configuration names, looked up in the account file and on the host.

use std::path::Path;

use frevo_auth::AccountFile;
use frevo_config::{Config, RunAsChoice, ShareSection, Who, nearest};
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;

use crate::config_sources::Sources;
use crate::console::tell;
use crate::exit::Done;
use crate::findings::{Finding, known_users, place_of_administrators};
use crate::{accounts, state};

/// Accounts that are looked up on the host for a share with `run_as = "user"`.
const LOOKED_UP: usize = 1_000;

/// Unknown users and groups, and accounts that a share cannot serve.
pub(crate) fn find(config: &Config, file: &AccountFile, sources: &Sources) -> Vec<Finding> {
    let users = known_users(config, file);
    let groups: Vec<String> = file
        .entries()
        .flat_map(|entry| entry.groups.iter().map(|group| fold_name(group)))
        .collect();
    // A directory may have users and groups that the file has not.
    let has_directory = config.ldap.is_on();
    let unknown = |who: &Who| unknown(who, &users, &groups).filter(|_| !has_directory);
    let mut findings = Vec::new();
    // An unknown administrator is an error, as in a list that grants rights.
    for who in config.server.administrators() {
        if let Some(why) = unknown(who) {
            let place = place_of_administrators(config, sources);
            let text = format!("administrators: {why}");
            findings.push(Finding { place, is_fault: true, text });
        }
    }
    for share in &config.shares {
        // In a list that grants rights an unknown name is an error, because it may be mistyped, and
        // a future user of that name would get the rights. In a list that takes rights away it does
        // no harm.
        let lists: [(&str, &[Who], bool); 4] = [
            ("allow", &share.allow, true),
            ("write_list", &share.write_list, true),
            ("read_list", &share.read_list, false),
            ("deny", &share.deny, false),
        ];
        for (key, listed, is_fault) in lists {
            for who in listed {
                if let Some(why) = unknown(who) {
                    let key =
                        if key == "allow" && has_users_key(sources, share) { "users" } else { key };
                    let place = sources.place_of_key(&share.name.span(), key);
                    let text = format!("share {}: {key}: {why}", share.name.get_ref());
                    findings.push(Finding { place, is_fault, text });
                }
            }
        }
        if share.run_as == Some(RunAsChoice::User) {
            findings.extend(without_host_user(share, &users, sources));
        }
    }
    for rate in &config.rates {
        for why in rate.users.iter().filter_map(unknown) {
            let place = sources.place(&rate.name.span());
            let text = format!("the limit of rate {}: users: {why}", rate.name.get_ref());
            findings.push(Finding { place, is_fault: false, text });
        }
    }
    findings
}

/// Makes a change to a configuration, and tells the users and groups that it names and that there are not: they
/// may be made later.
pub(crate) fn telling(config: &Path, change: impl FnOnce() -> Done) -> Done {
    // A change may mend the fault for which there is no configuration before it.
    let before = of_file(config).unwrap_or_default();
    change()?;
    let after = of_file(config).unwrap_or_default();
    let is_new = |found: &&Finding| !before.iter().any(|old| old.text == found.text);
    after.iter().filter(is_new).for_each(|found| tell(found.shown()));
    Ok(())
}

/// Those of a configuration and its account file, if both can be read.
fn of_file(config: &Path) -> Option<Vec<Finding>> {
    let sources = Sources::read(config).ok()?;
    let config = sources.config().ok()?;
    let file = accounts::read(&state::users_file_of(&config)).ok()?;
    Some(find(&config, &file, &sources))
}

/// True when the section calls `allow` by its other name.
fn has_users_key(sources: &Sources, share: &ShareSection) -> bool {
    let span = share.name.span();
    sources.place_of_key(&span, "allow") == sources.place(&span)
}

/// The reason why a user or a group is not known. Names of a domain are resolved by its controllers,
/// so only names without a domain are checked.
fn unknown(who: &Who, users: &[String], groups: &[String]) -> Option<String> {
    match who.group() {
        _ if who.domain().is_some() => None,
        Some(group) => unknown_group(group, groups),
        None => unknown_user(who.as_str(), users),
    }
}

fn unknown_user(user: &str, known: &[String]) -> Option<String> {
    if known.contains(&fold_name(user)) {
        return None;
    }
    if user.parse::<Sid>().is_ok() {
        return Some(format!("write the SID {user} as \"@{user}\""));
    }
    let near = nearest(user, known.iter().map(|name| &**name));
    let hint = near.map_or_else(
        || format!("; add it with: frevo user add {user}"),
        |near| format!("; did you mean {near}?"),
    );
    Some(format!("there is no account {user}{hint}"))
}

fn unknown_group(group: &str, known: &[String]) -> Option<String> {
    let is_known = known.contains(&fold_name(group));
    if is_known || group.eq_ignore_ascii_case("Administrators") || group.parse::<Sid>().is_ok() {
        return None;
    }
    match frevo_posix::group_id(group) {
        Ok(Some(_)) => None,
        Ok(None) => Some(format!(
            "neither the account file nor this host has a group {group}; see frevo user groups"
        )),
        Err(errno) => Some(format!("cannot look up the group {group} on this host: {errno}")),
    }
}

/// Accounts that may use a share as themselves, and whom the host does not have.
fn without_host_user(share: &ShareSection, users: &[String], sources: &Sources) -> Vec<Finding> {
    let named: Vec<String> = share
        .allow
        .iter()
        .filter(|who| who.group().is_none())
        .map(|who| fold_name(who.as_str()))
        .collect();
    // Groups of domains have no accounts.
    let is_local = |group: &str| group.parse::<Sid>().is_err_and(|_| !group.contains('\\'));
    let has_groups = share.allow.iter().any(|who| who.group().is_some_and(is_local));
    let is_allowed = |user: &&String| share.allow.is_empty() || named.contains(user) || has_groups;
    let served: Vec<&String> = users.iter().filter(is_allowed).take(LOOKED_UP).collect();
    let why_not = |user: &str| match frevo_posix::user(user) {
        Ok(Some(found)) if found.uid == 0 => Some("is root, who may not use the share"),
        Ok(Some(_)) => None,
        Ok(None) => Some("is no user of this host; add one with: useradd"),
        Err(_) => Some("cannot be looked up on this host"),
    };
    let refused: Vec<(&String, &str)> =
        served.iter().filter_map(|user| Some((*user, why_not(user)?))).collect();
    let is_nobody_served = !served.is_empty() && refused.len() == served.len();
    let place = sources.place_of_key(&share.name.span(), "run_as");
    refused
        .into_iter()
        .map(|(user, why)| Finding {
            place: place.clone(),
            is_fault: is_nobody_served || named.contains(user),
            text: format!(
                "share {}: run_as = \"user\", but the account {user} {why}",
                share.name.get_ref()
            ),
        })
        .collect()
}
