//! `frevo quota`: shows and sets the quotas of users, groups and shares, which the host's kernel keeps.

mod set;
mod show;
mod subject;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use frevo_config::{ShareSection, nearest};
use frevo_posix::quota::host::HostQuotas;
use frevo_wire::fscc::fold_name;

use crate::config_sources::Sources;
use crate::exit::{Done, EXIT_CODES, Exit, Failure};
use crate::state::DEFAULT_CONFIG;

/// `frevo quota`
#[derive(Debug, Args)]
pub(crate) struct Quota {
    /// Configuration file of the server
    #[arg(long, short, value_name = "FILE", global = true, default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    config: PathBuf,

    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what users, groups and shares have, and their limits
    #[command(after_help = EXIT_CODES)]
    Show(show::Show),
    /// Set limits of a user, a group or a whole share; limits that are not named stay
    #[command(after_help = SET_HELP)]
    Set(set::Set),
}

const SET_HELP: &str = "\
Users and groups are those of the host, and their limits are for all of their files on the share's \
file system, whatever share these are in. --share limits what is in the folder, whoever owns it: on \
XFS and ext4 by a project (mount option prjquota or pquota), into which all files of the folder are \
put; on btrfs by the subvolume's group (btrfs quota enable). A size is a number of bytes, or one such \
as 500M or 1.5T; none takes a limit away.

  frevo quota set photos --user ann --space 50G
  frevo quota set photos --group staff --soft-space 200G --space 220G
  frevo quota set photos --share --space 1T

Exit codes: 0 ok, 1 failed, 2 usage, 3 bad configuration, 6 not found, 7 something was changed \
(with --exit-code)";

pub(crate) fn run(quota: &Quota) -> Done {
    let shares = Sources::read(&quota.config)?.config()?.shares;
    let configured = Configured { file: quota.config.display().to_string(), shares };
    match &quota.command {
        Verb::Show(show) => show::run(show, &configured),
        Verb::Set(set) => set::run(set, &configured),
    }
}

/// The shares of a configuration.
struct Configured {
    file: String,
    shares: Vec<ShareSection>,
}

/// A share, and the file system of its folder.
struct OnDisk {
    name: String,
    folder: PathBuf,
    quotas: HostQuotas,
}

impl Configured {
    /// Returns the share with this name.
    fn find(&self, name: &str) -> Result<&ShareSection, Failure> {
        let named = |share: &ShareSection| share.name.get_ref().as_str().to_owned();
        let is_wanted = |share: &&ShareSection| fold_name(&named(share)) == fold_name(name);
        if let Some(share) = self.shares.iter().find(is_wanted) {
            return Ok(share);
        }
        let names: Vec<String> = self.shares.iter().map(named).collect();
        let near = nearest(name, names.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        Err(Failure::new(Exit::NotFound, format!("{} has no share {name}{near}", self.file)))
    }
}

impl OnDisk {
    fn open(share: &ShareSection) -> Result<Self, Failure> {
        let folder = share.shared_folder();
        let name = share.name.get_ref().as_str().to_owned();
        let tried = format!("cannot open {}, the folder of {name}", folder.display());
        let quotas = HostQuotas::open(&folder).map_err(Failure::failed(tried))?;
        Ok(Self { name, folder, quotas })
    }
}
