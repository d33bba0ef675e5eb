//! The link of a split in the configuration: offline while the folder moves.

use std::path::Path;

use frevo_config::Config;
use frevo_dfs::State;
use frevo_server::{NamespaceChange, NamespaceSettings, StateChange};
use frevo_wire::fscc::fold_name;

use super::plan::Plan;
use crate::config_sources::Sources;
use crate::exit::{Done, Exit, Failure};
use crate::namespace_tables;
use crate::namespaces::sections::{failure, file_of, namespaces_of};
use crate::shares::Edited;

/// The link of a plan in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    Absent,
    /// As while the folder moves.
    Offline,
    Online,
}

/// Looks the link up.
///
/// # Errors
/// When there is another link at its place, above or below it.
pub(super) fn state_of(config: &Config, plan: &Plan) -> Result<LinkState, Failure> {
    let wanted = fold_name(&plan.link.link);
    let is_inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('\\'))
    };
    for (_, namespace) in namespaces_of(config)? {
        if fold_name(namespace.name()) != fold_name(&plan.link.namespace) {
            continue;
        }
        for link in namespace.links() {
            let path = fold_name(link.path());
            let mut targets = link.targets().iter().map(ToString::to_string);
            let leads = targets.any(|target| fold_name(&target) == fold_name(&plan.target.unc()));
            if path == wanted && leads && link.targets().len() == 1 {
                let is_online = link.state == State::Online;
                return Ok(if is_online { LinkState::Online } else { LinkState::Offline });
            }
            if is_inside(&path, &wanted) || is_inside(&wanted, &path) {
                let (name, path) = (namespace.name(), link.path());
                let text = format!(
                    r"{name}\{path} is a link already; a folder can be split off where there is no \
                      link at its place, above it or in it"
                );
                return Err(Failure::new(Exit::Failed, text));
            }
        }
    }
    Ok(LinkState::Absent)
}

/// Makes changes of the link in the file that has the namespace.
fn change(config: &Path, plan: &Plan, changes: &[NamespaceChange]) -> Done {
    // The configuration is read again: an administrator may have changed it meanwhile.
    let sources = Sources::read(config)?;
    let file = file_of(config, &sources, &plan.link.namespace)?;
    let mut edited = Edited::open(&sources, file)?;
    for change in changes {
        let done = namespace_tables::apply(&mut edited.document, change, |_| true);
        done.map_err(|why| failure(&why))?;
    }
    let file = edited.store(&sources)?;
    let file = std::fs::canonicalize(&file).unwrap_or_else(|_| file.to_owned());
    // The change is durable before files move: a power cut leaves no link without them.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Failure::failed(format!("cannot sync {}", folder.display())))
}

fn set(plan: &Plan, state: StateChange) -> NamespaceChange {
    let settings = NamespaceSettings { state: Some(state), ..NamespaceSettings::default() };
    NamespaceChange::Set { path: plan.link.clone(), target: None, settings }
}

/// Adds the link, offline.
pub(super) fn add(config: &Path, plan: &Plan, comment: &str) -> Done {
    let add = NamespaceChange::AddLink {
        path: plan.link.clone(),
        target: plan.target.clone(),
        comment: comment.to_owned(),
        must_be_new: true,
    };
    change(config, plan, &[add, set(plan, StateChange::Offline)])
}

/// Tells clients that the link is offline.
pub(super) fn set_offline(config: &Path, plan: &Plan) -> Done {
    change(config, plan, &[set(plan, StateChange::Offline)])
}

/// Lets clients use the link.
pub(super) fn set_online(config: &Path, plan: &Plan) -> Done {
    change(config, plan, &[set(plan, StateChange::Online)])
}

/// Removes the link, if it is there.
pub(super) fn remove(config: &Path, plan: &Plan) -> Done {
    if state_of(&Sources::read(config)?.config()?, plan)? == LinkState::Absent {
        return Ok(());
    }
    let remove = NamespaceChange::RemoveLink { path: plan.link.clone(), target: None };
    change(config, plan, &[remove])
}

/// Refuses a configuration that this user cannot change.
pub(super) fn check_writable(config: &Path, plan: &Plan) -> Done {
    let sources = Sources::read(config)?;
    let file = file_of(config, &sources, &plan.link.namespace)?;
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    let folder = file.parent().unwrap_or(Path::new("/"));
    let may = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK);
    may.map_err(|errno| {
        let error = std::io::Error::from(errno);
        let text = format!("cannot write {}: {error}; run this as root", file.display());
        Failure::new(Exit::Failed, text)
    })
}
