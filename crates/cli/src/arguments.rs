//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use frevo_server::config::{
    AccountName, ConfinementChoice, DialectName, EncryptionChoice, Listen, LogFormat, ShareName,
    SigningChoice,
};

use crate::exit::EXIT_CODES;

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
    /// Share folders, at once or as a configuration file says
    #[command(after_help = SERVE_HELP)]
    Serve(Box<Serve>),
    /// Look a configuration over without starting anything
    #[command(after_help = EXIT_CODES)]
    Check(Check),
    /// Confine the process as serve does, and try to leave
    #[command(hide = true)]
    ConfinementTrial(Box<Trial>),
    /// Keep the accounts of a server
    #[command(after_help = EXIT_CODES)]
    User(User),
    /// Make a frevo.toml out of Samba's smb.conf
    #[command(after_help = IMPORT_HELP)]
    Import(Import),
    #[command(flatten)]
    Remote(Box<crate::remote::arguments::Verb>),
    /// Tell how fast a server can be, and what keeps it from it
    #[command(after_help = EXIT_CODES)]
    Expect(Box<crate::expect::Expect>),
    /// Print the completions of a shell
    #[command(after_help = EXIT_CODES)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = EXIT_CODES)]
    Man,
}

const SERVE_HELP: &str = "\
Frevo listens on port 445 where it may, else on 4450. Without an account it \
makes one, with a password that it shows once. A password is never taken from \
the command line: use --password-file, FREVO_PASSWORD or `frevo user add`.

SIGHUP reloads the configuration, the accounts and the log level and drops \
nobody; SIGTERM and Ctrl-C finish what clients have begun, then exit.

Exit codes: 0 ok, 1 failed, 2 usage, 3 bad configuration, 4 authentication \
(a secret is missing, wrong or open to others), 6 not found";

const IMPORT_HELP: &str = "\
The configuration goes to standard output or to the file of -o; what could not \
be taken over, and why, goes to standard error. A share whose access Samba \
narrows in a way that Frevo cannot is written as a comment, never left open.

Exit codes: 0 ok, 1 failed, 2 usage, 3 the smb.conf cannot be read, 6 not found";

/// `frevo serve`
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Folders to share, each under its own name
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folders: Vec<PathBuf>,

    /// Share a folder under another name; repeatable
    #[arg(long = "name", value_name = "SHARE=DIR", value_parser = named_folder)]
    pub(crate) named: Vec<(ShareName, PathBuf)>,

    /// Read the configuration from this file; flags win over it
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Listen here: an address or interface, such as 192.0.2.1, eth0,
    /// [2001:db8::1]:4450 or :4450; repeatable
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) listen: Vec<Listen>,

    /// The user who may log on
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<AccountName>,

    /// A file with that user's password, readable by its owner alone
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,

    /// Nobody may change anything
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Obey the control codes by which smbtorture makes a server misbehave
    #[arg(long, hide = true)]
    pub(crate) test_hooks: bool,

    /// Whether clients have to encrypt [default: required]
    #[arg(long, value_name = "WHEN", value_parser = words::<EncryptionChoice>(EncryptionChoice::WORDS))]
    pub(crate) encryption: Option<EncryptionChoice>,

    /// Whether clients have to sign [default: required]
    #[arg(long, value_name = "WHEN", value_parser = words::<SigningChoice>(SigningChoice::WORDS))]
    pub(crate) signing: Option<SigningChoice>,

    /// The oldest dialect that is spoken [default: 3.0]
    #[arg(long, value_name = "DIALECT", value_parser = words::<DialectName>(DialectName::WORDS))]
    pub(crate) min_dialect: Option<DialectName>,

    /// When to give up rights that serving does not need [default: on]
    #[arg(long, value_name = "WHEN", value_parser = words::<ConfinementChoice>(ConfinementChoice::WORDS))]
    pub(crate) confinement: Option<ConfinementChoice>,

    /// Where accounts and the server's identity are kept
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// How to write log lines [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = words::<LogFormat>(LogFormat::WORDS))]
    pub(crate) log: Option<LogFormat>,

    /// Which log lines to write: error, warn, info, debug, trace, or a filter
    /// such as info,frevo::tree=debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

/// `frevo confinement-trial`
#[derive(Debug, Args)]
pub(crate) struct Trial {
    /// The attempt and its operands
    #[arg(long, value_name = "WORDS")]
    pub(crate) attempt: String,

    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// `frevo check`
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The file to look over
    #[arg(long, short, value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

/// Where the configuration of a system's server is.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/frevo/frevo.toml";

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
    /// The state directory whose accounts are meant
    #[arg(long, value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// The configuration whose server's accounts are meant
    #[arg(long, short, value_name = "FILE", global = true, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add an account
    #[command(after_help = EXIT_CODES)]
    Add {
        /// Its name
        name: AccountName,
        #[command(flatten)]
        password: PasswordFrom,
    },
    /// Change a password
    #[command(after_help = EXIT_CODES)]
    Passwd {
        /// Whose
        name: AccountName,
        #[command(flatten)]
        password: PasswordFrom,
    },
    /// List the accounts
    #[command(after_help = EXIT_CODES)]
    List,
    /// Remove an account
    #[command(after_help = EXIT_CODES)]
    Rm {
        /// Which
        name: AccountName,
    },
    /// Put an account into these groups and no others
    ///
    /// A group is whatever is named. Members of Administrators may take
    /// ownership, give files away and see audit lists.
    #[command(after_help = EXIT_CODES)]
    Groups {
        /// Which
        name: AccountName,
        /// The groups; none takes it out of all
        groups: Vec<String>,
    },
    /// Let an account log on again
    #[command(after_help = EXIT_CODES)]
    Enable {
        /// Which
        name: AccountName,
    },
    /// Keep an account, but do not let it log on
    #[command(after_help = EXIT_CODES)]
    Disable {
        /// Which
        name: AccountName,
    },
    /// Take accounts over from Samba
    ///
    /// FILE is a smbpasswd file or what `pdbedit -L -w` prints; - is standard
    /// input. Passwords stay as they are.
    #[command(after_help = EXIT_CODES)]
    Import {
        /// The file, or -
        file: PathBuf,
        /// Accounts that exist get the imported password
        #[arg(long)]
        replace: bool,
    },
}

/// Where a password comes from. Never from the command line, which others see.
#[derive(Debug, Args)]
pub(crate) struct PasswordFrom {
    /// Read the password from standard input instead of asking for it
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// `frevo import`
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The smb.conf, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Where to write the frevo.toml, which must not exist yet
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

/// A value that is one of a few words: they are offered in help and completion.
pub(crate) fn words<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

fn named_folder(text: &str) -> Result<(ShareName, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("write SHARE=DIR")?;
    if folder.is_empty() {
        return Err(String::from("write SHARE=DIR"));
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
