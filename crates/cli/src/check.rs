//! `frevo check`: a configuration looked over without starting anything.

use frevo_server::config::ListenOn;

use crate::arguments::Check;
use crate::config_checks::{
    changeable_by_others, read, secrets_in_shares, unknown_users, warnings,
};
use crate::console::{print, tell};
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;
use crate::serve::confine;
use crate::serve::listen::addresses_of;
use crate::serve::run_accounts::user_map;
use crate::{accounts, passwords, state};

pub(crate) fn run(check: &Check) -> Done {
    let path = &check.config;
    let config = read(path)?;
    let mut faults = Vec::new();
    for share in &config.shares {
        if let Err(fault) = share.open_folder() {
            faults.push(format!("share {}: {fault}", share.name.get_ref()));
        }
        if let Err(why) = share.identities() {
            faults.push(format!("share {}: {why}", share.name.get_ref()));
        }
    }
    if let Err(failure) = user_map(&config) {
        faults.push(failure.to_string());
    }
    for listen in &config.server.listen {
        if let ListenOn::Interface(name) = &listen.on
            && let Err(failure) = addresses_of(name)
        {
            faults.push(format!("listen: {failure}"));
        }
    }
    for user in &config.users {
        if let Err(failure) = passwords::from_file(&user.password_file) {
            faults.push(format!("user {}: {failure}", user.name.get_ref()));
        }
    }
    if let Err(why) = config.audit.check() {
        faults.push(why);
    }
    faults.extend(secrets_in_shares(&config, true));
    faults.extend(changeable_by_others(&config, true));
    let mut known: Vec<String> =
        config.users.iter().map(|user| user.name.get_ref().as_str().to_lowercase()).collect();
    let mut users_read = true;
    match accounts::read(&state::users_file_of(&config)) {
        Ok(file) => {
            let with_password = file.entries().filter(|entry| entry.nt_hash.is_some());
            known.extend(with_password.map(|entry| entry.name.to_lowercase()));
        }
        Err(failure) => {
            faults.push(failure.to_string());
            users_read = false;
        }
    }
    if !faults.is_empty() {
        let lines: Vec<String> =
            faults.iter().map(|fault| format!("{}: {fault}", path.display())).collect();
        return Err(Failure::new(Exit::Config, lines.join("\nfrevo: ")));
    }
    if users_read {
        for warning in unknown_users(&config, &known) {
            tell(format_args!("warning: {warning}"));
        }
    }
    for warning in warnings(&config) {
        tell(format_args!("warning: {warning}"));
    }
    let (shares, users) = (counted(config.shares.len(), "share"), counted(known.len(), "user"));
    let confined = confine::outlook(config.server.confinement);
    let lines = format!("{confined}\n{}: ok ({shares}, {users})\n", path.display());
    print(lines.as_bytes())
}
