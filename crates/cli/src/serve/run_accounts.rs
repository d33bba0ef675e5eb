//! The accounts that may log on.

use std::env;

use frevo_auth::{AccountFile, Zeroizing};
use frevo_config::{AccountName, Config};
use frevo_server::user_map::UserMap;

use crate::arguments::Serve;
use crate::exit::{Exit, Failure};
use crate::{accounts, passwords, state, trusted_file};

/// Bytes that are read of a user map.
const FILE_BYTES_MAX: u64 = 64 << 20;

use super::plan::Plan;

/// A user of this run, and where the password is from.
#[derive(Debug, Clone)]
pub(super) struct RunUser {
    pub(super) name: String,
    pub(super) password: Password,
}

#[derive(Debug, Clone)]
pub(super) enum Password {
    /// Generated; the start screen shows it.
    Generated(Zeroizing<String>),
    /// From a file or the environment.
    Given,
}

/// The accounts, and the user that the flags are about.
#[derive(Debug, Clone)]
pub(super) struct Logon {
    pub(super) accounts: AccountFile,
    pub(super) user_map: UserMap,
    pub(super) run_user: Option<RunUser>,
}

impl Logon {
    /// Collects the accounts. `before` is what they were until now: a password
    /// that was made up stays.
    pub(super) fn new(
        plan: &Plan,
        arguments: &Serve,
        before: Option<Self>,
    ) -> Result<Self, Failure> {
        let mut accounts = if plan.has_state {
            accounts::read(&state::users_file_of(&plan.config))?
        } else {
            AccountFile::default()
        };
        for user in &plan.config.users {
            let password = passwords::from_file(&user.password_file)?;
            put(&mut accounts, user.name.get_ref().as_str(), &password)?;
        }
        let run_user = run_user(&accounts, arguments, before)?;
        if let Some((user, Some(password))) = &run_user {
            put(&mut accounts, &user.name, password)?;
        }
        let user_map = user_map(&plan.config)?;
        Ok(Self { accounts, user_map, run_user: run_user.map(|(user, _)| user) })
    }

    /// Names of those who may log on.
    pub(super) fn names(&self) -> Vec<&str> {
        let may_log_on = self.accounts.entries().filter(|e| e.is_enabled() && e.nt_hash.is_some());
        may_log_on.map(|entry| &*entry.name).collect()
    }
}

/// The names that clients may call accounts by: those in the configuration count
/// before those in the file.
pub(crate) fn user_map(config: &Config) -> Result<UserMap, Failure> {
    let fault = |what: String| Failure::new(Exit::Config, what);
    let mut map = UserMap::default();
    for (name, account) in &config.server.user_map {
        map.add(name, account.as_str()).map_err(|why| fault(format!("user_map: {why}")))?;
    }
    let Some(path) = &config.server.user_map_file else { return Ok(map) };
    let shown = path.display();
    let text = trusted_file::read(path, FILE_BYTES_MAX).map_err(|refusal| match refusal {
        trusted_file::Refusal::OthersWrite(why) => {
            fault(format!("the user_map_file was not read: {why}"))
        }
        trusted_file::Refusal::Unreadable(error) => {
            fault(format!("cannot read the user_map_file {shown}: {error}"))
        }
    })?;
    let file = UserMap::parse(&text).map_err(|why| fault(format!("{shown}: {why}")))?;
    map.extend(file).map_err(|why| fault(format!("{shown}: {why}")))?;
    Ok(map)
}

type RunUserPassword = (RunUser, Option<Zeroizing<String>>);

fn run_user(
    accounts: &AccountFile,
    arguments: &Serve,
    before: Option<Logon>,
) -> Result<Option<RunUserPassword>, Failure> {
    let given = match &arguments.password_file {
        Some(path) => Some(passwords::from_file(path)?),
        // With a configuration, the password in the environment is used only together with
        // `--user`.
        None if arguments.user.is_some() || arguments.config.is_none() => {
            passwords::from_environment()?
        }
        None => None,
    };
    let name = || arguments.user.as_ref().map_or_else(login_name, |name| name.as_str().to_owned());
    if let Some(password) = given {
        let user = RunUser { name: name(), password: Password::Given };
        return Ok(Some((user, Some(password))));
    }
    if let Some(RunUser { name, password: Password::Generated(password) }) =
        before.and_then(|before| before.run_user)
    {
        let user = RunUser { name, password: Password::Generated(password.clone()) };
        return Ok(Some((user, Some(password))));
    }
    match &arguments.user {
        // If an account exists, no new password is generated.
        Some(name) if accounts.find(name.as_str()).is_some() => Ok(None),
        None if arguments.config.is_some() || accounts.entries().next().is_some() => Ok(None),
        _ => {
            let password = passwords::generate()?;
            let user = RunUser { name: name(), password: Password::Generated(password.clone()) };
            Ok(Some((user, Some(password))))
        }
    }
}

/// Adds an account or gives it this password.
fn put(accounts: &mut AccountFile, name: &str, password: &str) -> Result<(), Failure> {
    accounts
        .put(accounts::entry_of_run(name, password))
        .map_err(|why| Failure::new(Exit::Config, format!("cannot add user {name}: {why}")))
}

/// Names of accounts whose passwords come from the configuration or the command line.
pub(super) fn given_names(plan: &Plan, arguments: &Serve, accounts: &AccountFile) -> Vec<String> {
    let configured = plan.config.users.iter().map(|user| user.name.get_ref().as_str().to_owned());
    let mut names: Vec<String> = configured.collect();
    match &arguments.user {
        Some(name) => names.push(name.as_str().to_owned()),
        None if arguments.config.is_none() && accounts.entries().next().is_none() => {
            names.push(login_name());
        }
        None => {}
    }
    names
}

/// The name of the user who started this process: the caller of sudo, never root.
fn login_name() -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(|name| env::var(name).ok());
    let mut names = names.filter(|name| name != "root" && name.parse::<AccountName>().is_ok());
    names.next().unwrap_or_else(|| String::from("frevo"))
}
