//! The arguments of the client's commands.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::as_of::AsOf;
use super::connection_options::{Application, Connection, Copying};
use super::filter::Filter;
use super::location::{Location, Url};
use super::saved::StoreName;
use crate::exit::EXIT_CODES;

/// The commands of the client, flattened into those of `frevo`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List directories
    #[command(after_help = EXIT_CODES)]
    #[command(disable_help_flag = true)]
    Ls(Ls),
    /// Show a directory as a tree
    #[command(after_help = EXIT_CODES)]
    Tree {
        /// Directory to show
        url: Url,
        /// Show N levels [default: all]
        #[arg(long, short = 'L', value_name = "N")]
        depth: Option<usize>,
        #[command(flatten)]
        as_of: AsOf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Find files by name, type and size
    #[command(after_help = EXIT_CODES)]
    Find(Find),
    /// Show the type, size, attributes and times of files
    #[command(after_help = EXIT_CODES)]
    Stat {
        /// Files and directories
        #[arg(required = true)]
        urls: Vec<Url>,
        /// Show times in UTC [default: the local time zone]
        #[arg(long)]
        utc: bool,
        #[command(flatten)]
        as_of: AsOf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Print files on standard output
    #[command(after_help = EXIT_CODES)]
    Cat {
        /// Files to print
        #[arg(required = true)]
        urls: Vec<Url>,
        #[command(flatten)]
        as_of: AsOf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Download files and directories
    #[command(after_help = EXIT_CODES)]
    #[command(override_usage = "frevo get [OPTIONS] <URL>... [TO]")]
    Get(Get),
    /// Upload files and directories
    #[command(after_help = EXIT_CODES)]
    Put(Put),
    /// Copy files, within a server, between servers, or to and from this machine
    #[command(after_help = EXIT_CODES)]
    Cp(Cp),
    /// Rename or move files within a share
    #[command(after_help = EXIT_CODES)]
    Mv {
        /// Files and directories to move
        #[arg(required = true)]
        from: Vec<Url>,
        /// New name, or the directory to move them to
        to: Url,
        /// Do not replace an existing file
        #[arg(long, short = 'n')]
        no_replace: bool,
        /// Replace read-only files too
        #[arg(long, short, conflicts_with = "no_replace")]
        force: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove files and directories
    #[command(after_help = EXIT_CODES)]
    Rm(Rm),
    /// Create directories
    #[command(after_help = EXIT_CODES)]
    Mkdir {
        /// Directories to create
        #[arg(required = true)]
        urls: Vec<Url>,
        /// Create missing parent directories; accept existing directories
        #[arg(long, short)]
        parents: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Bring files back as they were in a snapshot
    #[command(after_help = EXIT_CODES)]
    Restore(Restore),
    /// Make a directory equal to another one, in one direction
    #[command(after_help = EXIT_CODES)]
    Sync(Sync),
    /// Mount a share on a local folder
    #[command(after_help = MOUNT_HELP)]
    Mount(Box<Mount>),
    /// Save the password of a server, or list the saved servers
    #[command(after_help = EXIT_CODES)]
    Login {
        /// Server, as in smb://USER@HOST [default: list the saved servers]
        url: Option<Url>,
        /// Where to keep the password [default: the Secret Service if there is one, else a file]
        #[arg(long, value_name = "STORE")]
        store: Option<StoreName>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change your password on a server
    ///
    /// With --password-stdin the first line is the old password, the second one
    /// the new password.
    #[command(after_help = EXIT_CODES)]
    Passwd {
        /// Server, as in smb://USER@HOST
        url: Url,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a saved password
    #[command(after_help = EXIT_CODES)]
    Logout {
        /// Server, as in smb://USER@HOST; without USER all of its users
        url: Url,
    },
    /// Print the URLs that begin with a word (for completion scripts)
    #[command(hide = true)]
    CompleteUrl {
        /// The word
        #[arg(default_value = "")]
        word: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the shares of a server
    #[command(after_help = EXIT_CODES)]
    Shares {
        /// Server, as in smb://HOST
        url: Url,
        /// List administrative shares and pipes too
        #[arg(long, short)]
        all: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Print changes of a directory as they happen, until Ctrl-C
    #[command(after_help = EXIT_CODES)]
    Watch {
        /// Directory to watch
        url: Url,
        /// Watch all directories below it too
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show or change an access list
    #[command(after_help = EXIT_CODES)]
    Acl(Box<super::acl::AclArguments>),
    /// Show or set attributes (such as read-only and hidden), set times
    #[command(after_help = EXIT_CODES)]
    #[command(disable_help_flag = true)]
    #[command(override_usage = "frevo attrib [OPTIONS] [+FLAGS|-FLAGS]... <URL>...")]
    Attrib(Box<super::attrib::Attrib>),
    /// Show the free space of shares
    #[command(after_help = EXIT_CODES)]
    Df {
        /// Shares, or directories in them
        #[arg(required = true)]
        urls: Vec<Url>,
        /// Show sizes in bytes
        #[arg(long)]
        exact: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the size of directories with all their content
    #[command(after_help = EXIT_CODES)]
    #[command(disable_help_flag = true)]
    Du(Du),
}

impl Verb {
    /// Returns the options of a command that keeps files open.
    pub(crate) fn application(&self) -> Option<&Application> {
        match self {
            Self::Get(get) => Some(&get.application),
            Self::Put(put) => Some(&put.application),
            Self::Cp(cp) => Some(&cp.application),
            Self::Sync(sync) => Some(&sync.application),
            Self::Mount(mount) => Some(&mount.application),
            Self::Restore(restore) => Some(&restore.application),
            _ => None,
        }
    }
}

/// `frevo ls`
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Directories to list, or files
    #[arg(required = true)]
    pub(crate) urls: Vec<Url>,
    /// Show attributes, sizes and times
    #[arg(long, short)]
    pub(crate) long: bool,
    /// List all directories below too
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// Show sizes in readable units, such as 4.2M
    #[arg(long, short = 'h', short_alias = 'H')]
    pub(crate) human: bool,
    /// Show times in UTC [default: the local time zone]
    #[arg(long)]
    pub(crate) utc: bool,
    /// Colour the names as LS_COLORS says
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: super::colors::When,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo rm`
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Files and directories to remove
    #[arg(required = true)]
    pub(crate) urls: Vec<Url>,
    /// Remove directories with all their content
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Ignore files that do not exist; remove read-only files too
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Only show what would be removed
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo du`
#[derive(Debug, Args)]
pub(crate) struct Du {
    /// Directories or files
    #[arg(required = true)]
    pub(crate) urls: Vec<Url>,
    /// Show only the total of each URL
    #[arg(long, short)]
    pub(crate) summarize: bool,
    /// Show directories down to N levels below
    #[arg(long, short, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// Show sizes in readable units, such as 4.2M
    #[arg(long, short = 'h', short_alias = 'H')]
    pub(crate) human: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo find`
#[derive(Debug, Args)]
pub(crate) struct Find {
    /// Directory to search
    #[arg(required_unless_present = "index")]
    pub(crate) url: Option<Url>,
    /// Search in the index of a share of this machine's server: SHARE or SHARE/FOLDER
    #[arg(long, value_name = "SHARE", conflicts_with = "url")]
    pub(crate) index: Option<String>,
    /// Admin socket of that server [default: of the service, or of your own server]
    #[arg(long, value_name = "PATH", requires = "index", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// Use the server of this configuration
    #[arg(long, value_name = "FILE", requires = "index", conflicts_with = "socket", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Name of the file, with * and ? as wildcards; ignores case
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
    /// Type of the file
    #[arg(long = "type", value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Minimum size (bytes; k, M, G, T)
    #[arg(long, value_name = "BYTES", value_parser = super::output::parse_size)]
    pub(crate) min_size: Option<u64>,
    /// Maximum size (bytes; k, M, G, T)
    #[arg(long, value_name = "BYTES", value_parser = super::output::parse_size)]
    pub(crate) max_size: Option<u64>,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The types that `find --type` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// File
    #[value(name = "f")]
    File,
    /// Directory
    #[value(name = "d")]
    Directory,
    /// Symbolic link or other reparse point
    #[value(name = "l")]
    Link,
}

/// `frevo get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Files and directories to download; the last argument may be the local
    /// file or folder to write to, or - for standard output
    /// [default: the current folder]
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::AnyPath)]
    pub(crate) places: Vec<Location>,
    /// Copy directories with all their content
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Skip files whose copy in the target is equal (by size and time) or newer
    #[arg(long, short)]
    pub(crate) update: bool,
    /// Only show what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) application: Application,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo put`
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// Files and directories to upload; - is standard input
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) from: Vec<PathBuf>,
    /// New name, or the directory to copy them to (a name that ends in / is
    /// created as a directory)
    pub(crate) url: Url,
    /// Copy directories with all their content
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Replace read-only files on the server too
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Skip files whose copy in the target is equal (by size and time) or newer
    #[arg(long, short)]
    pub(crate) update: bool,
    /// Only show what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) application: Application,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo cp`
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// Files and directories to copy: URLs or local paths
    #[arg(required = true)]
    pub(crate) from: Vec<Location>,
    /// New name, or the directory to copy them to
    pub(crate) to: Location,
    /// Copy directories with all their content
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Replace read-only files on the server too
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Skip files whose copy in the target is equal (by size and time) or newer
    #[arg(long, short)]
    pub(crate) update: bool,
    /// Only show what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) application: Application,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo restore`
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Files and directories to bring back; of a directory all content. Files that
    /// are not in the snapshot stay. Named streams of files are brought back as well
    #[arg(required = true)]
    pub(crate) urls: Vec<Url>,
    /// Time to go back to: a date such as 2026-11-22 or 2026-11-22T10:00, or an age such
    /// as 36h; the newest snapshot of that time or before is taken [default: the
    /// snapshot that the URL names]
    #[arg(long, value_name = "WHEN", value_parser = super::filter::parse_when)]
    pub(crate) as_of: Option<SystemTime>,
    /// Only show what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) application: Application,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `frevo sync`
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Source directory
    pub(crate) from: Location,
    /// Target directory, which is changed
    pub(crate) to: Location,
    /// Remove files from the target that are not in the source
    #[arg(long)]
    pub(crate) delete: bool,
    /// Compare the content of files, not their size and time
    #[arg(long, short)]
    pub(crate) checksum: bool,
    /// Keep files that are newer in the target
    #[arg(long, short)]
    pub(crate) update: bool,
    /// Only show what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) copying: Copying,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) application: Application,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

const MOUNT_HELP: &str = "\
The command returns when the share is mounted; a process in the background serves the \
mount. If the share cannot be mounted, the command says why and its exit code is not 0. \
To unmount, use fusermount3 -u FOLDER (as root: umount FOLDER) or SIGTERM, with --foreground \
also Ctrl-C; written data is sent to the server first. Users other than root need \
fusermount3 (Debian: package fuse3). While the server cannot be reached, programs that use \
the folder wait, for at most --patience seconds.

Exit codes: 0 ok, 1 failed, 2 usage, 4 authentication (a secret is missing, wrong or \
readable by others), 5 cannot connect, 6 not found, 130 interrupted";

/// `frevo mount`
#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// Share, or a directory in it
    #[arg(required_unless_present = "status")]
    pub(crate) url: Option<Url>,
    /// Empty local folder to mount it on
    #[arg(value_hint = ValueHint::DirPath, required_unless_present = "status")]
    pub(crate) folder: Option<PathBuf>,
    /// Show at which server, or node of a cluster, the share of a mounted folder is
    /// [default: of all folders]
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with_all = ["url", "folder"])]
    pub(crate) status: Option<Option<PathBuf>>,
    /// Mount read-only
    #[arg(long, short)]
    pub(crate) read_only: bool,
    /// Owner of all files, a user id [default: yours]
    #[arg(long, value_name = "ID", help_heading = "Mount")]
    pub(crate) uid: Option<u32>,
    /// Group of all files, a group id [default: yours]
    #[arg(long, value_name = "ID", help_heading = "Mount")]
    pub(crate) gid: Option<u32>,
    /// Permission bits to clear on all files and directories, octal [default: 022]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Mount")]
    pub(crate) umask: Option<u16>,
    /// Permission bits of all files, octal [default: 755, or from --umask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Mount")]
    pub(crate) file_mode: Option<u16>,
    /// Permission bits of all directories, octal [default: 755, or from --umask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Mount")]
    pub(crate) dir_mode: Option<u16>,
    /// Let other users of this machine use the mount, as its permissions allow
    #[arg(long, help_heading = "Mount")]
    pub(crate) allow_other: bool,
    /// Forbid the execution of programs in the mount
    #[arg(long, help_heading = "Mount")]
    pub(crate) noexec: bool,
    /// Do not cache: every read and write goes to the server
    #[arg(long, help_heading = "Mount")]
    pub(crate) no_cache: bool,
    /// Time to cache names and attributes that no lease protects, in seconds
    /// [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Mount")]
    pub(crate) attr_timeout: Option<f64>,
    /// Do not use the server's POSIX extensions: permissions and owners come
    /// from the options here
    #[arg(long, help_heading = "Mount")]
    pub(crate) no_posix: bool,
    /// Stay in the foreground until Ctrl-C
    #[arg(long, short, help_heading = "Mount")]
    pub(crate) foreground: bool,
    /// Check the arguments and mount nothing, like mount -f
    #[arg(long, help_heading = "Mount")]
    pub(crate) fake: bool,
    /// File to write the log to [default: standard error in the foreground, the
    /// journal in the background]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Mount")]
    pub(crate) log_file: Option<PathBuf>,
    /// Lowest level to log: error, warn, info, debug, trace, or a filter
    #[arg(long, value_name = "LEVEL", default_value = "warn,fuser=error", help_heading = "Mount")]
    pub(crate) log_level: String,
    /// Run as the process in the background: report on standard output when the
    /// share is mounted
    #[arg(long, hide = true)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) application: Application,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

fn parse_mode(text: &str) -> Result<u16, String> {
    let mask = u16::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| String::from("write an octal number up to 777, such as 022"))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| String::from("write a number of seconds from 0 to 3600"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::arguments::{Arguments, Command};

    fn instance(line: &[&str]) -> Option<String> {
        let all = std::iter::once("frevo").chain(line.iter().copied());
        match Arguments::try_parse_from(all).ok()?.command {
            Command::Remote(verb) => verb.application()?.instance().map(|it| it.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_that_keep_files_open_know_their_application() {
        const ID: &str = "2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10";
        let lines = [
            ["get", "smb://box/data/a", "b"],
            ["put", "a", "smb://box/data/b"],
            ["cp", "smb://box/data/a", "smb://box/data/b"],
            ["sync", "a", "smb://box/data/b"],
            ["mount", "smb://box/data", "a"],
        ];
        for line in lines {
            let with = |more: &[&str]| instance(&[&line[..], more].concat());
            assert_eq!(with(&[]), None, "{line:?}");
            assert_eq!(with(&["--app-instance", ID]).as_deref(), Some(ID), "{line:?}");
            let all = ["--app-instance", ID, "--app-version", "3.4"];
            assert_eq!(with(&all).as_deref(), Some(&*format!("{ID} version 3.4")), "{line:?}");
            for wrong in [&["--app-version", "3"][..], &["--app-instance", "3"]] {
                let all = ["frevo"].iter().chain(&line).chain(wrong);
                assert!(Arguments::try_parse_from(all).is_err(), "{line:?} {wrong:?}");
            }
        }
        assert!(instance(&["cat", "smb://box/data/a", "--app-instance", ID]).is_none());
    }
}
