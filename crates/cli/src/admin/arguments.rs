//! The arguments of the commands for administrators.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueHint};
use frevo_capture::cut::CaptureData;

use crate::exit::EXIT_CODES;
use crate::remote::connection_options::{Connection, parse_capture_data, parse_capture_size};
use crate::remote::location::Url;

/// The dialects that a cluster can have as its maximum.
const DIALECTS: [&str; 3] = ["3.0", "3.0.2", "3.1.1"];

const KICK_HELP: &str = "\
NAME alone is looked up among users, sessions, open files and shares. A client whose \
session ended may log on again: `frevo user disable` forbids that.

Exit codes: 0 ok, 1 failed, 2 usage, 5 no server runs, 6 there is nothing of this name";

const BRAKE_HELP: &str = "\
Without `release` this lists them, and those that were told of lately. NAME alone is a session (0x...) or a \
user. A client that was released is counted anew.

Exit codes: 0 ok, 1 failed, 2 usage, 5 no server runs, 6 no brake has hold of NAME";

const CAPTURE_HELP: &str = "\
The messages are decrypted. Of the content of files only the first bytes of each read and write are in \
them, unless --capture-data asks for more. Only messages for which all that is \
named is true are captured. `frevo decode FILE` shows them. The capture ends at its size, at its time \
or with Ctrl-C; the audit log has a line for its begin and its end.

Exit codes: 0 ok, 1 failed, 2 usage (FILE exists, or there is a capture already), 5 no server runs";

const TOP_HELP: &str = "\
WAITS FOR names what took most of the time: disk, others (locks and lease breaks), \
limits (a [[rate]] of the configuration, with its name), \
credits (the client used up its credits), network (the client does not take its \
replies), server (work on a core). 100 % is the whole interval; several requests at once can add up to more.

Exit codes: 0 ok, 1 failed, 2 usage, 5 no server runs";

const LOG_LEVEL_HELP: &str = "\
A level alone, such as `debug`, applies to all targets; `frevo::tree=debug` changes one target. \
The level lasts until the server stops or reloads its configuration. Targets are the \
words in front of log lines.

Exit codes: 0 ok, 1 failed, 2 usage, 5 no server runs";

const RELOAD_HELP: &str = "\
A configuration with a fault is refused as a whole: the one before stays in force, and \
`frevo status` says so until a reload succeeds. Shares that cannot be served are named, and \
the others are served.

Exit codes: 0 ok, 1 failed, 2 usage, 3 the configuration is refused, 5 no server runs";

const CLUSTER_HELP: &str = "\
Without a command, this tells how to start a cluster. SHARE is a share of the cluster or the \
group that it is in; `frevo cluster status` lists both. A move ends when the other node owns \
the share.

Exit codes: 0 ok, 1 failed, 2 usage, 3 bad configuration or findings of check, 5 no server \
runs, 6 this server is no node of a cluster";

const SNAPSHOTS_HELP: &str = "\
With a URL this lists the tokens of the snapshots in which there is the file or directory; \
`create` has the server make one that stays and is a share of its own until `delete` (MS-FSRVP; for \
Administrators and Backup Operators). With --server, and for `list`, `prune`, `keep` and `release`, the commands are \
about the snapshots that this machine's server makes of a share with [share.snapshots].

Exit codes: 0 ok, 1 failed, 2 usage, 4 authentication, 5 cannot connect or no server runs, 6 not \
found, or the server makes no snapshots";

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Show sessions, shares, open files, locks and leases of this machine's server
    #[command(after_help = EXIT_CODES)]
    Status(StatusArguments),
    /// List the files that clients have open
    #[command(after_help = EXIT_CODES)]
    Opens(OpensArguments),
    /// Show the busiest sessions live, with their speed and what they wait for
    #[command(after_help = TOP_HELP)]
    Top(TopArguments),
    /// Disconnect a user, a session, an open file or everybody from a share
    #[command(after_help = KICK_HELP)]
    Kick(KickArguments),
    /// List the clients that the brake of a share has hold of, or release one
    #[command(after_help = BRAKE_HELP)]
    Brake(BrakeArguments),
    /// Write the messages of a session, user, client or share to a file for Wireshark
    #[command(after_help = CAPTURE_HELP)]
    Capture(CaptureArguments),
    /// Show the cluster that this server is a node of, and move its shares
    #[command(after_help = CLUSTER_HELP)]
    Cluster(ClusterArguments),
    /// List the snapshots of a file or directory; list, make and thin those of this machine's server
    #[command(after_help = SNAPSHOTS_HELP)]
    Snapshots(Box<SnapshotsArguments>),
    /// Have the running server read its configuration again, and tell whether it is in force
    #[command(after_help = RELOAD_HELP)]
    Reload(ReloadArguments),
    /// Show or change the level of the running server's log
    #[command(after_help = LOG_LEVEL_HELP)]
    LogLevel(LogLevelArguments),
}

/// The server that is meant.
#[derive(Debug, Args)]
pub(crate) struct ServerPlace {
    /// Admin socket of the server [default: of the service, or of your own server]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Use the server of this configuration
    #[arg(long, short, value_name = "FILE", conflicts_with = "socket", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The rows that are shown.
#[derive(Debug, Args)]
pub(crate) struct Rows {
    /// Show only what belongs to this user
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Show only open files, locks and leases of this share
    #[arg(long, value_name = "NAME")]
    pub(crate) share: Option<String>,

    /// Show at most N rows of each list [default: 10000 in JSON, otherwise 50]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// `frevo status`
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) rows: Rows,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// `frevo snapshots`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SnapshotsArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<SnapshotsVerb>,

    /// File or directory
    #[arg(required = true)]
    pub(crate) url: Option<Url>,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotsVerb {
    /// Make a snapshot of a share now
    Create(Box<SnapshotCreation>),
    /// Delete a snapshot that `create` has made of a share of another machine; with --server any one
    Delete(Box<SnapshotDeletion>),
    /// Remove the snapshots that the schedule of a share does not keep
    Prune(SnapshotPruning),
    /// List the snapshots that the server has made of a share
    List(SnapshotsOfShare),
    /// Have a snapshot stay, whatever the schedule says
    Keep(SnapshotOfShare),
    /// Give a snapshot that `keep` has named back to the schedule
    Release(SnapshotOfShare),
}

/// `frevo snapshots create`
#[derive(Debug, Args)]
pub(crate) struct SnapshotCreation {
    /// URL of a share; with --server the name of one
    pub(crate) share: String,

    #[command(flatten)]
    pub(crate) own: OwnServer,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// This machine's server, in place of that of a URL.
#[derive(Debug, Args)]
pub(crate) struct OwnServer {
    /// Ask the server of this machine, over its admin socket
    #[arg(long)]
    pub(crate) server: bool,

    /// Admin socket of the server [default: of the service, or of your own server]
    #[arg(long, value_name = "PATH", requires = "server", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Use the server of this configuration
    #[arg(long, short, value_name = "FILE", requires = "server", conflicts_with = "socket", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

impl OwnServer {
    /// Returns the place of the server.
    pub(crate) fn place(&self, json: bool) -> ServerPlace {
        ServerPlace { socket: self.socket.clone(), config: self.config.clone(), json }
    }
}

/// `frevo snapshots delete`
#[derive(Debug, Args)]
pub(crate) struct SnapshotDeletion {
    /// URL of the share that `create` has named; with --server the name of a share
    pub(crate) share: String,

    /// Set of the snapshot, as `create` has named it; with --server the snapshot, as `list` names it
    #[arg(value_name = "SET")]
    pub(crate) set: String,

    #[command(flatten)]
    pub(crate) own: OwnServer,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// A share of this machine's server.
#[derive(Debug, Args)]
pub(crate) struct SnapshotsOfShare {
    /// Name of the share
    pub(crate) share: String,

    /// Ask the server of this machine, as this command always does
    #[arg(long)]
    pub(crate) server: bool,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// `frevo snapshots prune`
#[derive(Debug, Args)]
pub(crate) struct SnapshotPruning {
    #[command(flatten)]
    pub(crate) of: SnapshotsOfShare,

    /// List the snapshots that would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A snapshot of a share of this machine's server.
#[derive(Debug, Args)]
pub(crate) struct SnapshotOfShare {
    #[command(flatten)]
    pub(crate) of: SnapshotsOfShare,

    /// The snapshot, as `list` names it
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
}

/// `frevo opens`
#[derive(Debug, Args)]
pub(crate) struct OpensArguments {
    #[command(flatten)]
    pub(crate) rows: Rows,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// The order of the sessions that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Order {
    /// Operations per second.
    #[default]
    Operations,
    /// Bytes per second, both ways.
    Bytes,
    /// 99th percentile of the latency.
    Latency,
    /// Time that requests have waited.
    Waiting,
    /// Name of the user.
    User,
}

/// `frevo top`
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Time between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) interval: f64,

    /// Stop after so many updates [default: at q or Ctrl-C]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// Order of the sessions [default: operations]
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort: Option<Order>,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// `frevo kick`
#[derive(Debug, Args)]
pub(crate) struct KickArguments {
    /// User, session, open file or share: NAME, ID, or user:NAME, session:ID,
    /// open:ID, share:NAME
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// `frevo brake`
#[derive(Debug, Args)]
pub(crate) struct BrakeArguments {
    #[command(subcommand)]
    pub(crate) act: Option<BrakeAct>,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// The command of `frevo brake`.
#[derive(Debug, Subcommand)]
pub(crate) enum BrakeAct {
    /// Let go of a client: its changes are carried out again, and its account may connect
    Release {
        /// User, session or share: NAME, ID, or user:NAME, session:ID, share:NAME
        #[arg(value_name = "TARGET")]
        target: String,

        #[command(flatten)]
        place: ServerPlace,
    },
}

/// `frevo capture`
#[derive(Debug, Args)]
pub(crate) struct CaptureArguments {
    /// File to write; it must not exist yet
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Ask the server of this machine, over its admin socket
    #[arg(long, required = true)]
    pub(crate) server: bool,

    /// Capture this session, as `frevo status` shows it
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// Capture the sessions of this account
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Capture the client at this address
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Option<IpAddr>,

    /// Capture the uses of this share
    #[arg(long, value_name = "NAME")]
    pub(crate) share: Option<String>,

    /// Capture everything
    #[arg(long, required_unless_present_any = ["session", "user", "address", "share"], conflicts_with_all = ["session", "user", "address", "share"])]
    pub(crate) all: bool,

    /// End the capture after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) time: u64,

    /// End the capture at this size (bytes; k, M, G)
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_capture_size)]
    pub(crate) capture_size: u64,

    /// Keep so many bytes of the data of each read and write (bytes; k), or all
    #[arg(long, value_name = "all|BYTES", default_value = "256", value_parser = parse_capture_data)]
    pub(crate) capture_data: CaptureData,

    /// Keep the answers and tickets of logons, and calls that carry passwords
    #[arg(long)]
    pub(crate) capture_secrets: bool,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// `frevo reload`
#[derive(Debug, Args)]
pub(crate) struct ReloadArguments {
    /// Send SIGHUP to this process if the server has no admin socket, without waiting for the result
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<i32>,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// `frevo log-level`
#[derive(Debug, Args)]
pub(crate) struct LogLevelArguments {
    /// New level: LEVEL or TARGET=LEVEL, separated by commas [default: show the current level]
    #[arg(value_name = "TARGET=LEVEL")]
    pub(crate) filter: Option<String>,

    /// Change the level for lines about the client at this address only; `off` removes it
    #[arg(long, value_name = "ADDR", requires = "filter")]
    pub(crate) client: Option<IpAddr>,

    #[command(flatten)]
    pub(crate) place: ServerPlace,
}

/// `frevo cluster`
#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<ClusterVerb>,
}

/// The commands of `frevo cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Show nodes, and the owner of each share with the reason
    #[command(after_help = EXIT_CODES)]
    Status {
        /// Fail unless this node serves all shares of the cluster
        #[arg(long)]
        here: bool,
        #[command(flatten)]
        place: ServerPlace,
    },
    /// Move a share, with its group, to another node
    #[command(after_help = EXIT_CODES)]
    Move {
        /// The share, or its group
        share: String,
        /// The node that is to have it
        node: String,
        #[command(flatten)]
        place: ServerPlace,
    },
    /// Move all shares of a node to others, and give it none
    #[command(after_help = EXIT_CODES)]
    Drain {
        /// The node
        node: String,
        #[command(flatten)]
        place: ServerPlace,
    },
    /// Let a node have shares again; none moves back by itself
    #[command(after_help = EXIT_CODES)]
    Undrain {
        /// The node
        node: String,
        #[command(flatten)]
        place: ServerPlace,
    },
    /// Let clients use a newer dialect, once all nodes speak it
    #[command(after_help = EXIT_CODES)]
    Raise {
        /// The dialect [default: the newest one]
        #[arg(long, value_name = "DIALECT", value_parser = PossibleValuesParser::new(DIALECTS))]
        to: Option<String>,
        #[command(flatten)]
        place: ServerPlace,
    },
    /// Have a client of the witness of this node use another node
    #[command(after_help = EXIT_CODES)]
    MoveClient {
        /// The client's machine, as `frevo status` shows it
        client: String,
        /// The node that it is to use
        node: String,
        #[command(flatten)]
        place: ServerPlace,
    },
    /// Compare the nodes, and look at etcd, clocks and file systems
    #[command(after_help = EXIT_CODES)]
    Check {
        /// The configuration [default: /etc/frevo/frevo.toml]
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
