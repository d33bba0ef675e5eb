//! The commands and flags of the program, with their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use frevo_config::{
    AccountName, ConfinementChoice, DialectName, EncryptionChoice, Listen, LogFormat, MachineSid,
    ShareName, SigningChoice,
};

use crate::account_rules::RulesArguments;
use crate::changes::{CHANGE_EXIT_CODES, Telling};
use crate::exit::EXIT_CODES;
use crate::passwords::PasswordFrom;
use crate::state::DEFAULT_CONFIG;
use crate::value_words::words;

/// Share folders over SMB 3.1.1.
#[derive(Debug, Parser)]
#[command(name = "frevo", version, about, after_help = EXIT_CODES, propagate_version = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Share folders, named here or in a configuration file
    #[command(after_help = SERVE_HELP)]
    Serve(Box<Serve>),
    /// Check a configuration file without starting the server
    #[command(after_help = EXIT_CODES)]
    Check(Check),
    /// Confine the process as serve does, then try to break out (for tests)
    #[command(hide = true)]
    ConfinementTrial(Box<Trial>),
    /// Announce a server on the local network (started by serve)
    #[command(hide = true)]
    Announce(Announce),
    /// Ask winbind about users of domains (started by serve)
    #[command(hide = true)]
    AskWinbind {
        /// Stay root, for a winbind that only root may ask
        #[arg(long)]
        as_root: bool,
    },
    /// Resolve names of domains (started by serve)
    #[command(hide = true)]
    AskDirectory {
        /// Ask winbind instead of controllers
        #[arg(long)]
        winbind: bool,
    },
    /// Ask a directory of accounts (started by serve)
    #[command(hide = true)]
    AskLdap,
    /// Act for a node of a cluster with rights that the server has not (started by serve)
    #[command(hide = true)]
    Hands(Announce),
    /// Probe the servers of targets in namespaces (started by serve)
    #[command(hide = true)]
    ProbeTargets {
        /// The port of SMB at all of them
        port: u16,
    },
    /// Connect with a service that scans for viruses (started by serve)
    #[command(hide = true)]
    ConnectScanners {
        /// The service
        service: frevo_config::ScanService,
    },
    /// Make snapshots with rights that the server has not (started by serve)
    #[command(hide = true)]
    SnapshotHands(Announce),
    /// Send traces to a collector (started by serve)
    #[cfg(feature = "traces")]
    #[command(hide = true)]
    SendTraces {
        /// The address of the collector
        address: std::net::SocketAddr,
    },
    /// Manage the accounts of a server
    #[command(after_help = EXIT_CODES)]
    User(User),
    /// List and change the shares in a configuration file; comments are kept
    #[command(after_help = EXIT_CODES)]
    Share(crate::shares::Shares),
    /// List, change and check the namespaces (DFS) in a configuration file; comments are kept
    #[command(after_help = EXIT_CODES)]
    Namespace(crate::namespaces::Namespaces),
    /// Show and set the quotas of users, groups and shares on this machine
    #[command(after_help = EXIT_CODES)]
    Quota(crate::quota::Quota),
    /// Undo what a session changed in shares with a brake, from recycle bins and snapshots
    #[command(after_help = crate::undo::UNDO_HELP)]
    Undo(crate::undo::Undo),
    /// Join a domain, check the membership, leave it
    #[command(after_help = EXIT_CODES)]
    Domain(crate::domain::arguments::Domain),
    /// Make a certificate to try SMB over QUIC, and tell the client's line for it
    #[command(after_help = EXIT_CODES)]
    Quic(crate::quic::Quic),
    /// Convert Samba's smb.conf to a frevo.toml
    #[command(after_help = IMPORT_HELP)]
    Import(Import),
    #[command(flatten)]
    Admin(Box<crate::admin::arguments::AdminCommand>),
    #[command(flatten)]
    Remote(Box<crate::remote::arguments::Verb>),
    /// Estimate how fast a server can be, and name the bottleneck
    #[command(after_help = EXIT_CODES)]
    Expect(Box<crate::expect::Expect>),
    /// Measure how fast a share is: sequential, random, metadata, small files
    #[command(after_help = EXIT_CODES)]
    Bench(Box<crate::bench::Bench>),
    /// Show the messages of a capture, one line for each
    #[command(after_help = DECODE_HELP)]
    Decode(crate::decode::Decode),
    /// Print a completion script for a shell
    #[command(after_help = EXIT_CODES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = EXIT_CODES)]
    Man,
}

const SERVE_HELP: &str = "\
Frevo listens on port 445 if this user is permitted to, else on 4450. If there is \
no account, it creates one for this run and shows its password once. A password \
cannot be given on the command line, where other users could see it: use \
--password-file, FREVO_PASSWORD or `frevo user add`.

SIGHUP reloads the configuration, the accounts and the log level; clients stay \
connected. SIGTERM and Ctrl-C finish the pending requests, then exit.

Exit codes: 0 ok, 1 failed, 2 usage, 3 bad configuration, 4 authentication \
(a secret is missing, wrong or readable by others), 6 not found";

const IMPORT_HELP: &str = "\
The configuration goes to standard output, or to the file of -o. Standard error \
reports each difference with its reason, the most serious first. If Samba restricts a \
share in a way that Frevo cannot, the share is written as a comment, and it is not served \
until you remove the comment. If an option of [global] does so, nothing is written.

Exit codes: 0 ok, 1 failed, 2 usage, 3 the smb.conf has a syntax error or restricts \
users in a way that Frevo cannot, 6 not found";

const DECODE_HELP: &str = "\
A line has the time since the first message, the number of the connection, > for a request and < \
for an answer, the command, the status, the time from request to answer, the file, and in brackets \
what leases, credits and replays mean.

Exit codes: 0 ok, 1 failed (the file is no capture, or damaged), 2 usage, 6 not found";

/// `frevo serve`
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Folders to share; each share is named after its folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folders: Vec<PathBuf>,

    /// Share a folder under the name SHARE; repeatable
    #[arg(long = "name", value_name = "SHARE=DIR", value_parser = named_folder)]
    pub(crate) named: Vec<(ShareName, PathBuf)>,

    /// Read the configuration from this file; flags override it
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Listen on this address or interface, such as 192.0.2.1, eth0,
    /// [2001:db8::1]:4450 or :4450; repeatable [default: all addresses]
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) listen: Vec<Listen>,

    /// Listen for SMB Direct (RDMA) too, on this address or interface; repeatable
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) rdma: Vec<Listen>,

    /// Listen for SMB over QUIC too, such as at :443; repeatable. `frevo quic` makes a
    /// certificate to try it
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) quic: Vec<Listen>,

    /// Name of the user who may log on [default: your name]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<AccountName>,

    /// File with this user's password; only its owner may be able to read it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,

    /// Share all folders read-only
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Obey the control codes by which smbtorture makes a server misbehave
    #[cfg(feature = "test-hooks")]
    #[arg(long, hide = true)]
    pub(crate) test_hooks: bool,

    /// Encryption of the connections [default: required]
    #[arg(long, value_name = "WHEN", value_parser = words::<EncryptionChoice>(EncryptionChoice::WORDS))]
    pub(crate) encryption: Option<EncryptionChoice>,

    /// Signing of the messages [default: required]
    #[arg(long, value_name = "WHEN", value_parser = words::<SigningChoice>(SigningChoice::WORDS))]
    pub(crate) signing: Option<SigningChoice>,

    /// Oldest SMB dialect that clients may use [default: 3.0]
    #[arg(long, value_name = "DIALECT", value_parser = words::<DialectName>(DialectName::WORDS))]
    pub(crate) min_dialect: Option<DialectName>,

    /// Give up the rights that the server does not need [default: on]
    #[arg(long, value_name = "WHEN", value_parser = words::<ConfinementChoice>(ConfinementChoice::WORDS))]
    pub(crate) confinement: Option<ConfinementChoice>,

    /// Directory for the accounts and the server's identity
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Take the place of the running server with this PID: its sockets and
    /// open files; clients go on (needs root)
    #[arg(long, value_name = "PID")]
    pub(crate) replace: Option<u32>,

    /// Format of the log [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = words::<LogFormat>(LogFormat::WORDS))]
    pub(crate) log: Option<LogFormat>,

    /// Lowest level to log: error, warn, info, debug, trace, or a
    /// filter such as info,frevo::tree=debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

/// `frevo confinement-trial`
#[derive(Debug, Args)]
pub(crate) struct Trial {
    /// Attempt and its operands, separated by blanks
    #[arg(long, value_name = "WORDS")]
    pub(crate) attempt: String,
    /// Attempt it from a process that helps the server: discovery, directory, targets, winbind, names or traces
    #[arg(long, value_name = "NAME")]
    pub(crate) helper: Option<String>,

    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// `frevo announce` and `frevo hands`
#[derive(Debug, Args)]
pub(crate) struct Announce {
    /// Format of the log
    #[arg(long, value_parser = words::<LogFormat>(LogFormat::WORDS))]
    pub(crate) log: Option<LogFormat>,
    /// Least level of the log lines
    #[arg(long)]
    pub(crate) log_level: Option<String>,
}

/// `frevo check`
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Configuration file to check
    #[arg(long, short, value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,

    /// Print all keys with their values, defaults included
    #[arg(long, conflicts_with = "json")]
    pub(crate) resolved: bool,

    /// Print what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `frevo user`
#[derive(Debug, Args)]
pub(crate) struct User {
    #[command(flatten)]
    pub(crate) place: UsersPlace,

    #[command(subcommand)]
    pub(crate) command: UserCommand,
}

/// Which account file is meant.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct UsersPlace {
    /// Use the account file of this state directory
    #[arg(long, value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Use the account file that this configuration names
    #[arg(long, short, value_name = "FILE", global = true, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add an account
    #[command(after_help = CHANGE_EXIT_CODES)]
    Add {
        /// Name of the new account
        name: AccountName,
        #[command(flatten)]
        password: PasswordFrom,
        /// Accept an account that is there already; give it the password, if one is given and differs
        #[arg(long)]
        ensure: bool,
        #[command(flatten)]
        telling: Telling,
    },
    /// Change the password of an account
    #[command(after_help = CHANGE_EXIT_CODES)]
    Passwd {
        /// Name of the account
        name: AccountName,
        #[command(flatten)]
        password: PasswordFrom,
        /// Change nothing if the account has this password already
        #[arg(long)]
        ensure: bool,
        #[command(flatten)]
        telling: Telling,
    },
    /// List the accounts
    #[command(after_help = EXIT_CODES)]
    List {
        /// List the accounts of the directory of [ldap] in place of those of the file
        #[arg(long)]
        ldap: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one account, with its SID
    #[command(after_help = EXIT_CODES)]
    Show {
        /// Name of the account
        name: AccountName,
        /// Show the account of the directory of [ldap], as a logon finds it
        #[arg(long)]
        ldap: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an account
    #[command(after_help = CHANGE_EXIT_CODES)]
    Rm {
        /// Name of the account
        name: AccountName,
        /// Do nothing if there is no such account
        #[arg(long)]
        ensure: bool,
        #[command(flatten)]
        telling: Telling,
    },
    /// Set the groups of an account; its other groups are removed
    ///
    /// A group exists as soon as an account is in it. Members of Administrators
    /// may take ownership of files, change owners and read audit entries.
    #[command(after_help = CHANGE_EXIT_CODES)]
    Groups {
        /// Name of the account
        name: AccountName,
        /// Names of the groups; without any, the account is in no group
        groups: Vec<String>,
        #[command(flatten)]
        telling: Telling,
    },
    /// Set rules for the logons of an account: its end, its hours, its computers
    ///
    /// A rule that is not named stays as it is. The rules count for logons:
    /// sessions that are open go on, but for those of an account that has ended.
    #[command(after_help = CHANGE_EXIT_CODES)]
    Set {
        /// Name of the account
        name: AccountName,
        #[command(flatten)]
        rules: RulesArguments,
        #[command(flatten)]
        telling: Telling,
    },
    /// Let an account log on again
    #[command(after_help = CHANGE_EXIT_CODES)]
    Enable {
        /// Name of the account
        name: AccountName,
        #[command(flatten)]
        telling: Telling,
    },
    /// Stop an account from logging on, without removing it
    #[command(after_help = CHANGE_EXIT_CODES)]
    Disable {
        /// Name of the account
        name: AccountName,
        #[command(flatten)]
        telling: Telling,
    },
    /// Import accounts from Samba, with their passwords
    ///
    /// FILE is the output of `pdbedit -L -v -w`, with which the accounts keep
    /// their SIDs, or an smbpasswd file; - is standard input.
    #[command(after_help = CHANGE_EXIT_CODES)]
    Import {
        /// File to import, or - for standard input
        file: PathBuf,
        /// Replace the passwords of existing accounts
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        telling: Telling,
    },
}

/// `frevo import`
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The smb.conf to convert, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// File to write; it must not exist yet [default: standard output]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// SID of the Samba server, as `net getlocalsid` prints it [default: that of
    /// this machine's Samba, if FILE is its smb.conf]
    #[arg(long, value_name = "SID")]
    pub(crate) sid: Option<MachineSid>,

    /// SID of the domain, for the numbers of its users (idmap config ... backend = rid)
    /// [default: that of this machine's Samba, if FILE is its smb.conf]
    #[arg(long, value_name = "SID")]
    pub(crate) domain_sid: Option<MachineSid>,

    /// FILE is what `testparm -s` prints: it has the lines of `include` and `copy` already
    #[arg(long)]
    pub(crate) testparm: bool,

    /// Leave out this option or module, even if users may do more without it
    #[arg(long, value_name = "OPTION")]
    pub(crate) accept: Vec<String>,

    /// Print the configuration and the report as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn named_folder(text: &str) -> Result<(ShareName, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("write it as SHARE=DIR")?;
    if folder.is_empty() {
        return Err(String::from("write it as SHARE=DIR"));
    }
    Ok((name.parse()?, PathBuf::from(folder)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
