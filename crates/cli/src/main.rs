//! `frevo`: share folders over SMB 3.1.1 with one command.
#![forbid(unsafe_code)]

mod account_changes;
mod account_rules;
mod accounts;
mod admin;
mod administrators;
mod arguments;
mod bench;
mod bounded_input;
mod changes;
mod check;
mod cluster;
mod config_checks;
mod config_contradictions;
mod config_lock;
mod config_names;
mod config_review;
mod config_sources;
mod configured;
mod console;
mod decode;
mod domain;
mod exit;
mod expect;
mod findings;
mod import;
mod keytab;
mod ldap;
mod logging;
mod machine_sid;
mod manual;
mod namespace_loops;
mod namespace_tables;
mod namespaces;
mod network_namespaces;
mod network_shares;
mod password_rules;
mod passwords;
mod plural;
mod printable;
mod quic;
mod quota;
mod remote;
mod resolved;
mod samba_rules;
mod secret_file;
mod serve;
mod share_guards;
mod shares;
mod state;
mod svg;
mod text_table;
mod trusted_file;
mod undo;
mod unix_accounts;
mod user;
mod value_words;
mod wbinfo;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};
use crate::console::{print, tell_failure};
use crate::exit::{Done, Failure};

/// Has rustix look for functions of the kernel's vDSO now. It panics once if getcpu, which no code calls
/// here, is not there, as in User Mode Linux; the others have been found by then.
fn find_vdso() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let _ =
        std::panic::catch_unwind(|| rustix::time::clock_gettime(rustix::time::ClockId::Realtime));
    std::panic::set_hook(hook);
}

fn main() -> ExitCode {
    // `leave_environment` and `find_vdso` are safe only while the process has a single thread.
    passwords::leave_environment();
    find_vdso();
    let line = match remote::mount_options::command_line() {
        Ok(line) => {
            line.notes.iter().for_each(console::tell);
            remote::attrib::spelled(line.arguments)
        }
        Err(failure) => {
            tell_failure(&failure);
            return ExitCode::from(&failure);
        }
    };
    if line.iter().take_while(|one| *one != "--").any(|one| one == "--json") {
        exit::speak_json();
    }
    let arguments = Arguments::try_parse_from(std::iter::once("frevo".into()).chain(line));
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) if exit::is_json() && error.use_stderr() => {
            let text = error.to_string();
            let text = text.split("\n\n").next().unwrap_or_default();
            let text = text.strip_prefix("error: ").unwrap_or(text);
            let failure = Failure::new(exit::Exit::Usage, text.trim());
            tell_failure(&failure);
            return ExitCode::from(&failure);
        }
        Err(error) => error.exit(),
    };
    let done = match &arguments.command {
        Command::Serve(serve) => serve::run(serve),
        Command::ConfinementTrial(trial) => serve::confine::trial::run(trial),
        Command::Check(check) => check::run(check),
        Command::Announce(announce) => serve::discovery::run(announce),
        Command::AskWinbind { as_root } => serve::ask_winbind::run(*as_root),
        Command::Hands(hands) => serve::hands::run(hands),
        Command::SnapshotHands(hands) => serve::snapshot_hands::run(hands),
        Command::AskDirectory { winbind } => serve::ask_directory::run(*winbind),
        Command::ProbeTargets { port } => serve::probe_targets::run(*port),
        Command::AskLdap => serve::ask_ldap::run(),
        Command::ConnectScanners { service } => serve::scan_connector::run(service),
        #[cfg(feature = "traces")]
        Command::SendTraces { address } => serve::send_traces::run(*address),
        Command::User(user) => user::run(user),
        Command::Share(shares) => config_names::telling(shares.config(), || shares::run(shares)),
        Command::Namespace(namespaces) => namespaces::run(namespaces),
        Command::Quota(quota) => quota::run(quota),
        Command::Undo(undo) => undo::run(undo),
        Command::Domain(domain) => domain::run(domain),
        Command::Quic(quic) => quic::run(quic),
        Command::Import(import) => import::run(import),
        Command::Admin(command) => admin::run(command),
        Command::Remote(verb) => admin::find_in_index(verb).unwrap_or_else(|| remote::run(verb)),
        Command::Expect(expect) => expect::run(expect),
        Command::Bench(bench) => bench::run(bench),
        Command::Decode(arguments) => decode::run(arguments),
        Command::Completions { shell } => completions(*shell),
        Command::Man => manual::show(),
    };
    let done = done.and(remote::capture::finish());
    match done {
        Ok(()) => changes::exit_code(),
        Err(failure) => {
            remote::progress::clear();
            tell_failure(&failure);
            ExitCode::from(&failure)
        }
    }
}

fn completions(shell: clap_complete::Shell) -> Done {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "frevo", &mut text);
    text.extend_from_slice(remote::completion::script(shell).as_bytes());
    print(&text)
}
