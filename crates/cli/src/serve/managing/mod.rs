//! The files of a running server, as the page of the admin interface changes them.

mod commands;
mod sections;
mod users;
mod values;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_admin::{Changed, Kind, Listed, Managing, NotManaged, Reason, SectionChange, UserChange};
use frevo_config::Config;
use sha2::{Digest as _, Sha256};

use crate::arguments::Serve;
use crate::config_sources::Sources;
use crate::exit::{Exit, Failure};

use super::{account_reloads, config_reloads};

/// The files, and those who put their changes in force.
pub(super) struct Files {
    /// None for a server without a configuration file.
    config: Option<PathBuf>,
    /// The state directory of the command line.
    state_dir: Option<PathBuf>,
    /// False for a server that keeps no accounts.
    has_state: bool,
    accounts: Arc<account_reloads::Asking>,
    configuration: Arc<config_reloads::Asking>,
    /// The key of revisions: nobody can try secrets of the files against one.
    key: [u8; 32],
}

impl Files {
    pub(super) fn new(
        arguments: &Serve,
        has_state: bool,
        accounts: Arc<account_reloads::Asking>,
        configuration: Arc<config_reloads::Asking>,
    ) -> Result<Self, Failure> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(Failure::failed("cannot get random bytes from the system"))?;
        let (config, state_dir) = (arguments.config.clone(), arguments.state_dir.clone());
        Ok(Self { config, state_dir, has_state, accounts, configuration, key })
    }

    /// The configuration as the files have it now.
    fn read(&self) -> Result<(Sources, Config), NotManaged> {
        let sources = Sources::of(self.config.as_deref()).map_err(failed)?;
        let mut config = sources.config().map_err(failed)?;
        if self.state_dir.is_some() {
            config.server.state_dir.clone_from(&self.state_dir);
        }
        Ok((sources, config))
    }

    /// The revision of a text.
    fn revision(&self, text: &str) -> String {
        let hash = Sha256::new().chain_update(self.key).chain_update(text).finalize();
        hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The end of the command line that names the configuration.
    fn place(&self) -> String {
        let config = self.config.as_deref();
        let config = config.map(|path| commands::quoted(&path.display().to_string()));
        config.map_or_else(String::new, |path| format!(" -c {path}"))
    }
}

impl Managing for Files {
    fn list(&self, kind: Kind) -> Result<Listed, NotManaged> {
        match kind {
            Kind::User => self.list_users(),
            Kind::Share | Kind::Rate => self.list_sections(kind),
        }
    }

    fn change_user(&self, revision: &str, change: UserChange) -> Result<Changed, NotManaged> {
        self.change_account(revision, &change)
    }

    fn change_section(
        &self,
        kind: Kind,
        revision: &str,
        change: SectionChange,
    ) -> Result<Changed, NotManaged> {
        self.change_table(kind, revision, &change)
    }
}

/// The reason that a failure is.
fn failed(failure: Failure) -> NotManaged {
    let reason = match failure.exit {
        Exit::NotFound => Reason::Absent,
        Exit::Usage => Reason::Malformed,
        Exit::Config => Reason::Refused,
        _ => Reason::Failed,
    };
    NotManaged::new(reason, failure.message)
}

fn outdated() -> NotManaged {
    let why = "somebody else has changed this meanwhile; look at it again, then repeat the change";
    NotManaged::new(Reason::Outdated, why)
}

/// The reason why a file of a folder cannot be replaced, if it cannot: a confined server may write few
/// folders.
fn unwritable(file: &Path) -> Option<String> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let probe = folder.unwrap_or(Path::new(".")).join(format!(".frevo-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe);
    match made {
        Ok(_) => {
            // A file that stays is empty, and goes with the next look.
            let _ = fs::remove_file(&probe);
            None
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let _ = fs::remove_file(&probe);
            None
        }
        Err(error) => Some(format!("this server may not write {}: {error}", file.display())),
    }
}
