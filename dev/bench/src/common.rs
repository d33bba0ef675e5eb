//! Options and paths that all measuring commands share.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::server::Programs;

/// The options that all measuring commands share.
#[derive(Args)]
pub(crate) struct Common {
    /// Parent of the temporary directory for the shared files.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,
    /// The program under test.
    #[arg(long, default_value_os_t = beside_ourselves("frevo"))]
    pub(crate) frevo: PathBuf,
    /// A further argument for `frevo serve` (repeatable).
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) frevo_arg: Vec<String>,
    #[arg(long, default_value = "/usr/sbin/smbd")]
    pub(crate) smbd: PathBuf,
    /// A line for smbd's `[global]` (repeatable); Samba's defaults otherwise.
    #[arg(long)]
    pub(crate) smbd_conf: Vec<String>,
    /// The account of this machine that smbd serves.
    #[arg(long, default_value = "daemon")]
    pub(crate) account: String,
    /// Nice value of servers and client, so that other work on the machine disturbs less; ignored
    /// without the permission.
    #[arg(long, default_value_t = -15, allow_hyphen_values = true)]
    pub(crate) nice: i32,
    /// Threads of the client; 1 leaves the other cores to the server.
    #[arg(long, default_value_t = 1)]
    pub(crate) client_threads: usize,
}

impl Common {
    /// Returns the programs and the account to measure.
    pub(crate) fn programs(&self) -> Programs {
        Programs {
            frevo: self.frevo.clone(),
            frevo_args: self.frevo_arg.clone(),
            is_share_configured: false,
            smbd: self.smbd.clone(),
            smbd_conf: self.smbd_conf.clone(),
            account: self.account.clone(),
        }
    }

    /// Makes a temporary directory that other accounts may enter.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::Builder::new()
            .prefix("frevo-bench-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir_in(&self.dir)
            .with_context(|| format!("making a directory in {}", self.dir.display()))?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        Ok(dir)
    }
}

fn beside_ourselves(name: &str) -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(name)))
        .unwrap_or_else(|| PathBuf::from(name))
}
