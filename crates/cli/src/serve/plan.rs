//! The configuration to serve: the file, overridden by flags.

use std::path::{Path, PathBuf};

use frevo_config::{Config, ShareName, ShareSection};

use crate::arguments::Serve;
use crate::config_checks;
use crate::config_sources::Sources;
use crate::configured::folder;
use crate::exit::{Done, Exit, Failure};

use super::{cluster, snapshots};

/// The configuration in force.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) config: Config,
    /// True when accounts and the server's identity are kept: for a run with a
    /// configuration or a state directory.
    pub(super) has_state: bool,
}

impl Plan {
    pub(super) fn new(arguments: &Serve) -> Result<Self, Failure> {
        let nothing = arguments.folders.is_empty() && arguments.named.is_empty();
        let mut config = match &arguments.config {
            Some(path) => config_checks::read(path)?,
            None if nothing => {
                return Err(Failure::new(
                    Exit::Usage,
                    "nothing to share; name a folder (frevo serve DIR) or a configuration \
                     (frevo serve --config FILE)",
                ));
            }
            None => Sources::of_environment()?.config()?,
        };
        override_server(&mut config, arguments);
        if let Some(fault) = config.contradictions().first() {
            return Err(Failure::new(Exit::Usage, fault.to_string()));
        }
        if let Some(why) = config_checks::unsupported(&config) {
            return Err(Failure::new(Exit::Config, why));
        }
        add_shares(&mut config, arguments)?;
        for share in &mut config.shares {
            if config.server.read_only == Some(true) {
                share.read_only = true;
                share.write_list.clear();
            }
        }
        let has_state = arguments.config.is_some() || config.server.state_dir.is_some();
        Ok(Self { config, has_state })
    }

    /// Keys that are looked at once, of those that have changed.
    pub(super) fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let (a, b) = (&self.config, &new.config);
        let keys = [
            ("listen", a.server.listen != b.server.listen),
            ("rdma", a.server.rdma != b.server.rdma),
            ("confinement", a.server.confinement != b.server.confinement),
            ("confine_to", a.server.confine_to != b.server.confine_to),
            ("share_roots", a.server.share_roots != b.server.share_roots),
            ("state_dir", a.server.state_dir != b.server.state_dir),
            ("log", a.server.log != b.server.log),
            ("cores", a.server.cores != b.server.cores),
            ("pin_cores", a.server.pin_cores != b.server.pin_cores),
            ("connections", a.limits.connections != b.limits.connections),
            ("drain_seconds", a.limits.drain_seconds != b.limits.drain_seconds),
            ("audit", a.audit != b.audit),
            ("admin", a.admin != b.admin),
            ("rpc", a.rpc != b.rpc),
            ("ldap", a.ldap != b.ldap),
            ("quic", a.quic.is_on() != b.quic.is_on() || a.quic.listen != b.quic.listen),
            ("traces", a.traces != b.traces),
            ("cluster", cluster::needs_restart(a, b)),
            ("snapshots", snapshots::needs_restart(a, b)),
            ("pool_per_core", a.limits.pool_per_core != b.limits.pool_per_core),
        ];
        keys.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }
}

fn override_server(config: &mut Config, arguments: &Serve) {
    let server = &mut config.server;
    if !arguments.listen.is_empty() {
        server.listen.clone_from(&arguments.listen);
    }
    if !arguments.rdma.is_empty() {
        server.rdma = Some(true);
    }
    if !arguments.quic.is_empty() {
        config.quic.enabled = Some(true);
        config.quic.listen.clone_from(&arguments.quic);
    }
    let server = &mut config.server;
    if arguments.read_only {
        server.read_only = Some(true);
    }
    server.encryption = arguments.encryption.or(server.encryption);
    server.signing = arguments.signing.or(server.signing);
    server.min_dialect = arguments.min_dialect.or(server.min_dialect);
    server.log = arguments.log.or(server.log);
    server.confinement = arguments.confinement.or(server.confinement);
    if arguments.state_dir.is_some() {
        server.state_dir.clone_from(&arguments.state_dir);
    }
    if arguments.log_level.is_some() {
        server.log_level.clone_from(&arguments.log_level);
    }
}

fn add_shares(config: &mut Config, arguments: &Serve) -> Done {
    for folder in &arguments.folders {
        let path = existing(folder)?;
        let name = name_of(&path)?;
        add_share(config, ShareSection::new(name, path))?;
    }
    for (name, folder) in &arguments.named {
        add_share(config, ShareSection::new(name.clone(), existing(folder)?))?;
    }
    Ok(())
}

fn add_share(config: &mut Config, share: ShareSection) -> Done {
    let name = share.name.get_ref();
    if let Some(other) = config.shares.iter().find(|other| other.name.get_ref().is_same(name)) {
        let (one, two) = (other.path.get_ref().display(), share.path.get_ref().display());
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "{one} and {two} would both be shared as {name}; give one another name: \
                 --name OTHER={two}"
            ),
        ));
    }
    config.shares.push(share);
    config.guard_folders();
    Ok(())
}

/// The folder's path from the root on, when there is such a folder.
fn existing(folder: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(folder)
        .map_err(Failure::failed(format!("cannot share {}", folder.display())))?;
    // Opens the folder once, to check it; the name of the section does not matter for that.
    let probe = ShareSection::new(name_or_folder(&absolute), absolute.clone());
    if let Err(fault) = folder::open(&probe) {
        let exit = if fault.is_missing() { Exit::NotFound } else { Exit::Failed };
        return Err(Failure::new(exit, fault.to_string()));
    }
    Ok(absolute.canonicalize().unwrap_or(absolute))
}

fn name_or_folder(path: &Path) -> ShareName {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(ShareName::like);
    name.unwrap_or_else(ShareName::fallback)
}

/// The share's name is the folder's.
fn name_of(path: &Path) -> Result<ShareName, Failure> {
    let usage = |why: String| {
        let shown = path.display();
        let like = name_or_folder(path);
        Failure::new(Exit::Usage, format!("{why}; name the share: --name '{like}={shown}'"))
    };
    let Some(name) = path.file_name() else {
        return Err(usage(format!("the folder {} has no name", path.display())));
    };
    let name = name.to_str().ok_or_else(|| {
        usage(format!("the name of the folder {} is not valid UTF-8", path.display()))
    })?;
    name.parse().map_err(usage)
}
