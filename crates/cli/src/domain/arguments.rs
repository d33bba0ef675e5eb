//! The arguments of `frevo domain`.

use clap::{Args, Subcommand, ValueEnum};
use frevo_config::Realm;

use crate::arguments::UsersPlace;
use crate::exit::EXIT_CODES;
use crate::passwords::PasswordFrom;

/// `frevo domain`
#[derive(Debug, Args)]
pub(crate) struct Domain {
    #[command(flatten)]
    pub(crate) place: UsersPlace,

    #[command(subcommand)]
    pub(crate) command: DomainCommand,
}

const JOIN_HELP: &str = "\
The keys go to a keytab in the state directory, and krb5.conf and /etc/krb5.keytab of \
this host stay as they are. A host that is a member already needs another \
--computer-name: a second join under its name would end its membership.

Exit codes: 0 ok, 1 failed, 2 usage, 3 bad configuration, 4 authentication, 6 neither net nor \
adcli is installed";

const STATUS_HELP: &str = "\
It asks the domain controller, and changes nothing.

Exit codes: 0 ok, 1 a check failed, 2 usage, 3 bad configuration, 4 authentication, 6 not found";

#[derive(Debug, Subcommand)]
pub(crate) enum DomainCommand {
    /// Join a domain by `net` or `adcli`, with a keytab in the state directory
    #[command(after_help = JOIN_HELP)]
    Join(Join),
    /// Leave a domain, and remove its keys from this server
    #[command(after_help = EXIT_CODES)]
    Leave(Leave),
    /// Check DNS, clock, keys and names of the memberships, in one sentence each
    #[command(after_help = STATUS_HELP)]
    Status {
        /// Realm of the domain [default: all]
        realm: Option<Realm>,
        /// Print one JSON object per check
        #[arg(long)]
        json: bool,
    },
    /// Change the password of the machine account, if it is old
    ///
    /// Old keys stay in the keytab, so that tickets of before go on to work. A
    /// timer of systemd runs this: frevo-domain-renew.timer.
    #[command(after_help = EXIT_CODES)]
    Renew(Renew),
}

/// `frevo domain leave`
#[derive(Debug, Args)]
pub(crate) struct Leave {
    /// Realm of the domain [default: the only one]
    pub(crate) realm: Option<Realm>,

    /// Remove the account of the cluster, which all nodes use
    #[arg(long)]
    pub(crate) cluster: bool,

    #[command(flatten)]
    pub(crate) administrator: Administrator,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `frevo domain renew`
#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// Realm of the domain [default: all]
    pub(crate) realm: Option<Realm>,

    /// Change only a password that is older
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub(crate) older_than: u32,

    /// User of the domain who sets a new password if that of this server is lost
    #[arg(long, short = 'U', value_name = "NAME")]
    user: Option<String>,

    #[command(flatten)]
    password: PasswordFrom,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Renew {
    /// The user who may set a new password.
    pub(crate) fn administrator(&self) -> Option<Administrator> {
        Some(Administrator { user: self.user.clone()?, password: self.password.clone() })
    }
}

/// `frevo domain join`
#[derive(Debug, Args)]
pub(crate) struct Join {
    /// Realm of the domain, such as EXAMPLE.COM
    pub(crate) realm: Realm,

    #[command(flatten)]
    pub(crate) administrator: Administrator,

    /// Name of the machine account [default: the server's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) computer_name: Option<String>,

    /// Name by which clients connect [default: the server's name in the domain]
    #[arg(long, value_name = "HOST.DOMAIN")]
    pub(crate) host_name: Option<String>,

    /// Short name of the domain, if it is not the first part of the realm
    #[arg(long, value_name = "NAME")]
    pub(crate) short_name: Option<String>,

    /// Full name of the domain controller to use, also as the KDC of the server [default: by DNS]
    #[arg(long, value_name = "HOST")]
    pub(crate) controller: Option<String>,

    /// Organisational unit of the machine account, such as "Servers/Files"
    #[arg(long, value_name = "OU")]
    pub(crate) ou: Option<String>,

    /// Make one account for all nodes of the cluster, or give this node its keys (needs --config)
    #[arg(long)]
    pub(crate) cluster: bool,

    /// Program that joins [default: the one that is installed]
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub(crate) with: Option<Tool>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The user of the domain who may add and remove machines.
#[derive(Debug, Args)]
pub(crate) struct Administrator {
    /// User of the domain who may add and remove machines
    #[arg(long, short = 'U', value_name = "NAME", default_value = "Administrator")]
    pub(crate) user: String,

    #[command(flatten)]
    pub(crate) password: PasswordFrom,
}

/// A program that manages memberships.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// Samba's `net ads`
    Net,
    /// `adcli`
    Adcli,
}

impl Tool {
    /// The name of the program.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Adcli => "adcli",
        }
    }
}
