//! The arguments of the client's commands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use frevo_server::config::DialectName;

use super::dos::Carry;
use super::filter::Filter;
use super::location::{Host, Location, Url};
use crate::arguments::words;
use crate::exit::EXIT_CODES;

/// What all commands that speak to a server have. It comes last in each, as do the others that
/// have a heading: to clap what follows is below that too.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The user to log on as [default: the URL's, else $FREVO_USER, else $USER]
    #[arg(long, short = 'U', value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// A file with lines username=, password=, domain=, readable by its owner
    /// alone
    #[arg(long, short = 'A', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) credentials: Option<PathBuf>,

    /// Read the password from standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,

    /// The password is an NT hash of 32 digits
    #[arg(long)]
    pub(crate) nt_hash: bool,

    /// Encrypt everything, whatever the server asks for
    #[arg(long, short = 'e')]
    pub(crate) encrypt: bool,

    /// Sign only when the server requires it: faster, and whoever sits on the way
    /// can change files unseen
    #[arg(long)]
    pub(crate) sign_when_asked: bool,

    /// The newest dialect to speak [default: 3.1.1]
    #[arg(long, value_name = "DIALECT", value_parser = words::<DialectName>(DialectName::WORDS))]
    pub(crate) max_dialect: Option<DialectName>,

    /// The oldest dialect to speak [default: 3.0]
    #[arg(long, value_name = "DIALECT", value_parser = words::<DialectName>(DialectName::WORDS))]
    pub(crate) min_dialect: Option<DialectName>,

    /// Offer this cipher; repeatable, the preferred one first [default: all]
    #[arg(long, value_name = "CIPHER")]
    pub(crate) cipher: Vec<CipherName>,

    /// Offer this signing algorithm; repeatable, the preferred one first
    /// [default: all]
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) signing: Vec<SigningName>,

    /// Connections to use where the server has several channels, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_connections)]
    pub(crate) channels: usize,

    /// Connections at most, each a client of its own to the server, over which trees of
    /// many small files are copied; 1 to 16
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_connections)]
    pub(crate) connections: usize,

    /// Seconds to wait for a lost server to come back
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) patience: u64,

    /// Where links of DFS namespaces may lead: the user's name is told there
    #[arg(long, value_name = "WHERE", default_value = "anywhere")]
    pub(crate) dfs: DfsLinks,

    /// A domain controller to ask for a domain's DFS namespaces, where the
    /// domain's name does not lead to one
    #[arg(long, value_name = "HOST")]
    pub(crate) dc: Option<Host>,

    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What all commands that copy files have.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copying")]
pub(crate) struct Copying {
    /// What copies have of DOS attributes and creation times
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    pub(crate) attributes: Carry,

    /// Bytes a second over the network at most (k, M, G may follow)
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) bwlimit: Option<u64>,
}

/// Where links of DFS namespaces may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DfsLinks {
    /// To other servers too
    Anywhere,
    /// To other shares of the same server
    SameHost,
    /// They are not followed
    Never,
}

/// Ciphers by their usual names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CipherName {
    /// AES-128-GCM
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
    /// AES-128-CCM
    #[value(name = "aes-128-ccm")]
    Aes128Ccm,
    /// AES-256-GCM
    #[value(name = "aes-256-gcm")]
    Aes256Gcm,
    /// AES-256-CCM
    #[value(name = "aes-256-ccm")]
    Aes256Ccm,
}

/// Signing algorithms by their usual names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SigningName {
    /// AES-GMAC
    #[value(name = "aes-gmac")]
    AesGmac,
    /// AES-CMAC
    #[value(name = "aes-cmac")]
    AesCmac,
    /// HMAC-SHA256
    #[value(name = "hmac-sha256")]
    HmacSha256,
}

/// The client's commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List directories
    #[command(after_help = EXIT_CODES)]
    #[command(disable_help_flag = true)]
    Ls(Ls),
    /// List a directory and all below it as a tree
    #[command(after_help = EXIT_CODES)]
    Tree {
        /// The directory
        url: Url,
        /// How deep to go
        #[arg(long, short = 'L', value_name = "N")]
        depth: Option<usize>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Find files by name, kind and size
    #[command(after_help = EXIT_CODES)]
    Find(Find),
    /// Tell what a file or directory is
    #[command(after_help = EXIT_CODES)]
    Stat {
        /// Which
        #[arg(required = true)]
        urls: Vec<Url>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Write files to standard output
    #[command(after_help = EXIT_CODES)]
    Cat {
        /// Which
        #[arg(required = true)]
        urls: Vec<Url>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Fetch files and directories
    #[command(after_help = EXIT_CODES)]
    #[command(override_usage = "frevo get [OPTIONS] <URL>... [TO]")]
    Get(Get),
    /// Send files and directories
    #[command(after_help = EXIT_CODES)]
    Put(Put),
    /// Copy from anywhere to anywhere; on the server where both ends are there
    #[command(after_help = EXIT_CODES)]
    Cp(Cp),
    /// Rename or move within a share
    #[command(after_help = EXIT_CODES)]
    Mv {
        /// What
        #[arg(required = true)]
        from: Vec<Url>,
        /// To where; several go into a directory
        to: Url,
        /// Do not replace what is there
        #[arg(long, short = 'n')]
        no_replace: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove files and directories
    #[command(after_help = EXIT_CODES)]
    Rm(Rm),
    /// Make directories
    #[command(after_help = EXIT_CODES)]
    Mkdir {
        /// Which
        #[arg(required = true)]
        urls: Vec<Url>,
        /// With those on the way; one that exists is no error
        #[arg(long, short)]
        parents: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make one directory like another, in one direction
    #[command(after_help = EXIT_CODES)]
    Sync(Sync),
    /// Make a share a folder of this machine
    #[command(after_help = MOUNT_HELP)]
    Mount(Box<Mount>),
    /// List the shares of a server
    #[command(after_help = EXIT_CODES)]
    Shares {
        /// The server, as in smb://host
        url: Url,
        /// Those for administrators too
        #[arg(long, short)]
        all: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Tell of changes as they happen, until Ctrl-C
    #[command(after_help = EXIT_CODES)]
    Watch {
        /// The directory
        url: Url,
        /// With all below it
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show an access list, or change it
    #[command(after_help = EXIT_CODES)]
    Acl(Box<super::acl::AclArguments>),
    /// Show attributes such as read-only and hidden, and times, or set them
    #[command(after_help = EXIT_CODES)]
    #[command(disable_help_flag = true)]
    #[command(override_usage = "frevo attrib [OPTIONS] [+FLAGS|-FLAGS]... <URL>...")]
    Attrib(Box<super::attrib::Attrib>),
    /// Tell how much room is left in shares
    #[command(after_help = EXIT_CODES)]
    Df {
        /// The shares
        #[arg(required = true)]
        urls: Vec<Url>,
        /// In bytes
        #[arg(long)]
        exact: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Tell how large directories are, with all in them
    #[command(after_help = EXIT_CODES)]
    #[command(disable_help_flag = true)]
    Du(Du),
    /// List the snapshots of a file or directory
    #[command(after_help = EXIT_CODES)]
    Snapshots {
        /// Of what
        url: Url,
        #[command(flatten)]
        connection: Connection,
    },
}

/// `frevo ls`
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Directories; a file is listed as itself
    #[arg(required = true)]
    pub(crate) urls: Vec<Url>,
    /// With attributes, sizes and times
    #[arg(long, short)]
    pub(crate) long: bool,
    /// With all below it
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// Sizes such as 4.2M
    #[arg(long, short = 'h', short_alias = 'H')]
    pub(crate) human: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo rm`
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// What
    #[arg(required = true)]
    pub(crate) urls: Vec<Url>,
    /// Directories, with all that is in them
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// What does not exist is no error, and read-only files are removed too
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Only tell what would be removed
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo du`
#[derive(Debug, Args)]
pub(crate) struct Du {
    /// Directories, or files
    #[arg(required = true)]
    pub(crate) urls: Vec<Url>,
    /// Not each directory below
    #[arg(long, short)]
    pub(crate) summarize: bool,
    /// Directories so deep below
    #[arg(long, short, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// Sizes such as 4.2M
    #[arg(long, short = 'h', short_alias = 'H')]
    pub(crate) human: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo find`
#[derive(Debug, Args)]
pub(crate) struct Find {
    /// Where to begin
    pub(crate) url: Url,
    /// Names that fit, with * and ?; case does not matter
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
    /// Of this kind
    #[arg(long = "type", value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// At least so many bytes (k, M, G, T may follow)
    #[arg(long, value_name = "BYTES", value_parser = super::output::parse_size)]
    pub(crate) min_size: Option<u64>,
    /// At most so many bytes
    #[arg(long, value_name = "BYTES", value_parser = super::output::parse_size)]
    pub(crate) max_size: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Files
    #[value(name = "f")]
    File,
    /// Directories
    #[value(name = "d")]
    Directory,
    /// Symbolic links and other reparse points
    #[value(name = "l")]
    Link,
}

/// `frevo get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// What, and last a local path to where [default: the same name here]; several go
    /// into a directory; - is standard output
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::AnyPath)]
    pub(crate) places: Vec<Location>,
    /// A directory, with all that is in it
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Only tell what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo put`
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// What; - is standard input
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) from: Vec<PathBuf>,
    /// To where; a directory or a name ending in / takes it under its own name
    pub(crate) url: Url,
    /// A directory, with all that is in it
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Replace what is read-only on the server too
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Only tell what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo cp`
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// What: URLs or local paths
    #[arg(required = true)]
    pub(crate) from: Vec<Location>,
    /// To where; several go into a directory
    pub(crate) to: Location,
    /// A directory, with all that is in it
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Replace what is read-only on the server too
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Only tell what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo sync`
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// The directory that is as it should be
    pub(crate) from: Location,
    /// The directory that is made like it
    pub(crate) to: Location,
    /// Remove what is only in the second
    #[arg(long)]
    pub(crate) delete: bool,
    /// Compare contents instead of size and time
    #[arg(long, short)]
    pub(crate) checksum: bool,
    /// What is newer in the second stays as it is
    #[arg(long, short)]
    pub(crate) update: bool,
    /// Only tell what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

const MOUNT_HELP: &str = "\
It returns when the share is mounted and goes on in the background; what cannot be \
mounted is said before, and the exit code tells. fusermount3 -u FOLDER (umount, for \
root) and SIGTERM unmount, after all that was written is on the server; with --foreground \
Ctrl-C too. Without root it takes fusermount3 (Debian's package fuse3). When \
the server is away programs wait, up to --patience seconds.

Exit codes: 0 ok, 1 failed, 2 usage, 4 authentication (a secret is missing, wrong or open \
to others), 5 cannot connect, 6 not found, 130 interrupted";

/// `frevo mount`
#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// What: a share or a directory in it
    pub(crate) url: Url,
    /// On which folder, an empty one
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Nothing can be changed through it
    #[arg(long, short)]
    pub(crate) read_only: bool,
    /// Whose files they seem to be [default: yours]
    #[arg(long, value_name = "ID", help_heading = "Mount")]
    pub(crate) uid: Option<u32>,
    /// Whose group's files they seem to be [default: yours]
    #[arg(long, value_name = "ID", help_heading = "Mount")]
    pub(crate) gid: Option<u32>,
    /// Permissions that nothing has, octal [default: 022]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Mount")]
    pub(crate) umask: Option<u16>,
    /// Permissions of all files, octal [default: what --umask leaves]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Mount")]
    pub(crate) file_mode: Option<u16>,
    /// Permissions of all directories, octal [default: what --umask leaves]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Mount")]
    pub(crate) dir_mode: Option<u16>,
    /// Let other users of this machine in, as far as the permissions say
    #[arg(long, help_heading = "Mount")]
    pub(crate) allow_other: bool,
    /// No program in it can be executed
    #[arg(long, help_heading = "Mount")]
    pub(crate) noexec: bool,
    /// Keep nothing: every read and write goes to the server
    #[arg(long, help_heading = "Mount")]
    pub(crate) no_cache: bool,
    /// How long to believe names and attributes that no lease protects
    /// [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Mount")]
    pub(crate) attr_timeout: Option<f64>,
    /// Do without the server's POSIX extensions: permissions and owners are what the
    /// options here say
    #[arg(long, help_heading = "Mount")]
    pub(crate) no_posix: bool,
    /// Stay in the foreground, until Ctrl-C
    #[arg(long, short, help_heading = "Mount")]
    pub(crate) foreground: bool,
    /// Look at the arguments and mount nothing, as mount(8) does with -f
    #[arg(long, help_heading = "Mount")]
    pub(crate) fake: bool,
    /// Where to write log lines [default: standard error in the foreground, else
    /// the journal where there is one, else nowhere]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Mount")]
    pub(crate) log_file: Option<PathBuf>,
    /// Which log lines to write: error, warn, info, debug, trace, or a filter
    #[arg(long, value_name = "LEVEL", default_value = "warn,fuser=error", help_heading = "Mount")]
    pub(crate) log_level: String,
    /// The program that goes on in the background: says on standard output when
    /// the share is mounted
    #[arg(long, hide = true)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

fn parse_connections(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=16).contains(count));
    count.ok_or_else(|| String::from("write a number from 1 to 16"))
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let rate = super::output::parse_size(text)?;
    if rate == 0 { Err(String::from("nothing would ever go")) } else { Ok(rate) }
}

fn parse_mode(text: &str) -> Result<u16, String> {
    let mask = u16::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| String::from("write an octal number up to 777, such as 022"))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| String::from("write a number of seconds from 0 to 3600"))
}
