//! Namespaces, links and their files in a configuration, as commands name them.

use std::path::{Path, PathBuf};

use frevo_config::{Config, NamespaceSection, nearest};
use frevo_dfs::Namespace;
use frevo_server::{EntryPath, NotChanged};
use frevo_wire::fscc::fold_name;

use crate::config_sources::Sources;
use crate::exit::{Exit, Failure};

/// A namespace with its section.
pub(super) fn namespaces_of(
    config: &Config,
) -> Result<Vec<(&NamespaceSection, Namespace)>, Failure> {
    let of = |section: &NamespaceSection| section.namespace(&config.shares);
    let fault = |fault: frevo_dfs::BadLink| Failure::new(Exit::Config, fault.to_string());
    config.namespaces.iter().map(|section| Ok((section, of(section).map_err(fault)?))).collect()
}

pub(super) fn usage(text: String) -> Failure {
    Failure::new(Exit::Usage, text)
}

/// The path of a link, with slashes or backslashes between its folders.
pub(super) fn parse_path(namespace: &str, path: &str) -> Result<EntryPath, Failure> {
    let path = path.replace('/', "\\");
    let bare = path.trim_matches('\\');
    let parsed = EntryPath::parse(&format!(r"\\server\{namespace}\{bare}"));
    let parsed = parsed.ok().filter(|parsed| !parsed.is_root());
    parsed.ok_or_else(|| {
        usage(format!("{path} is not the path of a link; write folders such as teams/red"))
    })
}

/// The file with the section of a namespace.
pub(super) fn file_of(config: &Path, sources: &Sources, name: &str) -> Result<PathBuf, Failure> {
    let all = sources.config()?.namespaces;
    let is_wanted =
        |section: &&NamespaceSection| fold_name(section.name.get_ref().as_str()) == fold_name(name);
    let Some(section) = all.iter().find(is_wanted) else {
        let near = nearest(name, all.iter().map(|section| section.name.get_ref().as_str()));
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let text = format!("{} has no namespace {name}{near}", config.display());
        return Err(Failure::new(Exit::NotFound, text));
    };
    Ok(PathBuf::from(sources.place(&section.name.span()).0))
}

pub(super) fn failure(why: &NotChanged) -> Failure {
    let exit = match why {
        NotChanged::Absent(_) | NotChanged::NoTarget(_) => Exit::NotFound,
        NotChanged::Bad(_) => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{why}; nothing was changed"))
}
