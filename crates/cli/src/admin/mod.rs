//! `frevo status`, `opens`, `top`, `kick`, `brake`, `capture`, `reload`, `cluster`, `snapshots`, `log-level` and
//! `find --index`: the server of this machine.

pub(crate) mod account_file;
pub(crate) mod arguments;
mod brake;
mod capture;
mod cluster;
mod figures;
mod find;
mod kick;
mod log_level;
mod quotas;
mod rates;
mod reload;
pub(crate) mod running_server;
mod snapshots;
mod socket;
mod status;
mod terminal;
mod top;

use crate::exit::{Done, Failure};
use crate::remote::arguments::Verb;
use arguments::AdminCommand;

/// Carries out `frevo find --index`. None for another command.
pub(crate) fn find_in_index(verb: &Verb) -> Option<Done> {
    let Verb::Find(find) = verb else { return None };
    let index = find.index.as_ref()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::failed("cannot start the event loop"));
    Some(runtime.and_then(|runtime| runtime.block_on(find::run(find, index))))
}

/// Runs a command against the server's admin interface.
pub(crate) fn run(command: &AdminCommand) -> Done {
    if let AdminCommand::Snapshots(arguments) = command
        && let Some(done) = snapshots::of_another_machine(arguments)
    {
        return done;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    runtime.block_on(async {
        match command {
            AdminCommand::Status(arguments) => status::status(arguments).await,
            AdminCommand::Opens(arguments) => status::opens(arguments).await,
            AdminCommand::Top(arguments) => top::run(arguments).await,
            AdminCommand::Kick(arguments) => kick::run(arguments).await,
            AdminCommand::Brake(arguments) => brake::run(arguments).await,
            AdminCommand::Capture(arguments) => capture::run(arguments).await,
            AdminCommand::Cluster(arguments) => cluster::run(arguments).await,
            AdminCommand::Snapshots(arguments) => snapshots::run(arguments).await,
            AdminCommand::Reload(arguments) => reload::run(arguments).await,
            AdminCommand::LogLevel(arguments) => log_level::run(arguments).await,
        }
    })
}
