//! `frevo namespace`: lists, changes and checks the namespaces of a configuration. Comments stay as they
//! are.

mod sections;
mod split;

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use frevo_config::{ShareName, SiteSection};
use frevo_dfs::{Link, Root, State, Target};
use frevo_server::{NamespaceChange, TargetName};
use frevo_wire::fscc::fold_name;

use crate::changes::{CHANGE_EXIT_CODES, Telling};
use crate::config_sources::Sources;
use crate::console::print_text;
use crate::exit::{Done, EXIT_CODES, Exit, Failure, is_json};
use crate::plural::counted;
use crate::shares::Edited;
use crate::state::DEFAULT_CONFIG;
use crate::{namespace_loops, namespace_tables};
use sections::{failure, file_of, namespaces_of, parse_path, usage};

/// The port of SMB.
const PORT: u16 = 445;
/// Time for which a server of a target may keep silent.
const PATIENCE: Duration = Duration::from_secs(3);
/// Servers that are tried at one time.
const AT_ONCE: usize = 32;

/// `frevo namespace`
#[derive(Debug, Args)]
pub(crate) struct Namespaces {
    /// Configuration file of the server
    #[arg(long, short, value_name = "FILE", global = true, default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    config: PathBuf,

    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the namespaces with their links
    #[command(after_help = EXIT_CODES)]
    List {
        /// Print one JSON object per namespace
        #[arg(long)]
        json: bool,
    },
    /// Add a namespace, a link in it, or further targets of a link
    #[command(after_help = CHANGE_EXIT_CODES)]
    Add {
        /// Name of the namespace
        name: ShareName,
        /// Path of the link below the root, such as teams/red
        #[arg(requires = "targets")]
        path: Option<String>,
        /// The shares that the link leads to, such as //nas1.example.com/red
        targets: Vec<String>,
        /// Comment of a new link
        #[arg(long, value_name = "TEXT", requires = "targets")]
        comment: Option<String>,
        #[command(flatten)]
        telling: Telling,
    },
    /// Remove a namespace, a link, or a target of a link
    #[command(after_help = CHANGE_EXIT_CODES)]
    Remove {
        /// Name of the namespace
        name: String,
        /// Path of the link below the root
        path: Option<String>,
        /// The target; with the last one the link is removed
        target: Option<String>,
        #[command(flatten)]
        telling: Telling,
    },
    /// Move a folder of a namespace to another share of this server, and leave a link at its place
    #[command(after_help = split::HELP)]
    Split(split::Split),
    /// Try whether the servers of all targets can be reached, and find links that lead in a circle
    #[command(after_help = EXIT_CODES)]
    Check {
        /// Print one JSON object per server and per circle
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(namespaces: &Namespaces) -> Done {
    let config = &namespaces.config;
    match &namespaces.command {
        Action::List { .. } => list(config),
        Action::Add { name, path: None, telling, .. } => add_namespace(config, name, *telling),
        Action::Add { name, path: Some(path), targets, comment, telling } => {
            let changes = additions(name.as_str(), path, targets, comment.as_deref())?;
            change(config, name.as_str(), &changes, *telling)
        }
        Action::Remove { name, path: None, telling, .. } => {
            let removal = NamespaceChange::RemoveRoot { namespace: name.clone() };
            change(config, name, &[removal], *telling)
        }
        Action::Remove { name, path: Some(path), target, telling } => {
            let target = target.as_deref().map(parse_target).transpose()?;
            let path = parse_path(name, path)?;
            change(config, name, &[NamespaceChange::RemoveLink { path, target }], *telling)
        }
        Action::Split(arguments) => split::run(config, arguments),
        Action::Check { .. } => check(config),
    }
}

fn list(config: &Path) -> Done {
    let sources = Sources::read(config)?;
    let config = sources.config()?;
    let mut out = String::new();
    for (section, namespace) in namespaces_of(&config)? {
        if is_json() {
            let (file, line) = sources.place(&section.name.span());
            let links: Vec<_> =
                namespace.links().map(|link| link_object(link, &config.sites)).collect();
            let object = serde_json::json!({
                "name": namespace.name(), "share": namespace.root == Root::Share,
                "comment": namespace.comment, "online": namespace.state == State::Online,
                "ttl": namespace.root_ttl_s(), "probe_seconds": section.probe_seconds, "links": links, "file": file, "line": line,
            });
            out.push_str(&format!("{object}\n"));
            continue;
        }
        let kind = if namespace.root == Root::Share { " (share)" } else { "" };
        out.push_str(&format!("{}{kind}\n", namespace.name()));
        for link in namespace.links() {
            let targets: Vec<String> = link.targets().iter().map(shown_target).collect();
            let state = if link.state == State::Online { "" } else { " (offline)" };
            out.push_str(&format!("  {}  {}{state}\n", link.path(), targets.join(", ")));
        }
    }
    print_text(&out)
}

fn link_object(link: &Link, sites: &[SiteSection]) -> serde_json::Value {
    let target = |target: &Target| {
        let site = target.site.and_then(|site| sites.get(site.index()));
        serde_json::json!({
            "path": target.to_string(), "online": target.state == State::Online,
            "rank": target.rank, "site": site.map(|site| site.name.get_ref()),
        })
    };
    serde_json::json!({
        "path": link.path(), "comment": link.comment, "online": link.state == State::Online,
        "ttl": link.ttl_s.unwrap_or(frevo_dfs::limits::LINK_TTL_S), "interlink": link.is_interlink,
        "targets": link.targets().iter().map(target).collect::<Vec<_>>(),
    })
}

fn shown_target(target: &Target) -> String {
    let state = if target.state == State::Online { "" } else { " (offline)" };
    format!("{target}{state}")
}

/// A target, as `//server/share` or `\\server\share`, or as a URL.
fn parse_target(target: &str) -> Result<TargetName, Failure> {
    let unc = target.strip_prefix("smb:").unwrap_or(target).replace('/', "\\");
    let parsed = unc.starts_with(r"\\").then(|| TargetName::parse(&unc).ok()).flatten();
    parsed.ok_or_else(|| {
        usage(format!("{target} is not a share; write //SERVER/SHARE or //SERVER/SHARE/FOLDER"))
    })
}

fn add_namespace(config: &Path, name: &ShareName, telling: Telling) -> Done {
    let sources = Sources::read(config)?;
    let mut edited = Edited::open(&sources, config.to_owned())?;
    let done = namespace_tables::add_namespace(&mut edited.document, name.as_str());
    done.map_err(|why| failure(&why))?;
    edited.save(&sources, telling)
}

/// The changes that add a link, or further targets of one.
fn additions(
    name: &str,
    path: &str,
    targets: &[String],
    comment: Option<&str>,
) -> Result<Vec<NamespaceChange>, Failure> {
    let path = parse_path(name, path)?;
    let add = |target: &String| -> Result<NamespaceChange, Failure> {
        let (path, target) = (path.clone(), parse_target(target)?);
        let comment = comment.unwrap_or_default().to_owned();
        Ok(NamespaceChange::AddLink { path, target, comment, must_be_new: false })
    };
    targets.iter().map(add).collect()
}

/// Makes changes of a namespace in the file that has it.
fn change(config: &Path, name: &str, changes: &[NamespaceChange], telling: Telling) -> Done {
    let sources = Sources::read(config)?;
    let file = file_of(config, &sources, name)?;
    let mut edited = Edited::open(&sources, file)?;
    for change in changes {
        let done = namespace_tables::apply(&mut edited.document, change, |_| true);
        done.map_err(|why| failure(&why))?;
    }
    edited.save(&sources, telling)
}

/// The address at which a server answers, or the reason why it does not.
type Reached = Result<IpAddr, String>;

/// Tries the servers of all targets: their names, and the port of SMB.
fn check(config: &Path) -> Done {
    let config = Sources::read(config)?.config()?;
    // The links that lead to each server.
    let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let namespaces: Vec<_> = namespaces_of(&config)?.into_iter().map(|(_, one)| one).collect();
    for namespace in &namespaces {
        for link in namespace.links() {
            for target in link.targets() {
                let links = servers.entry(fold_name(target.server())).or_default();
                links.push(format!(r"{}\{}", namespace.name(), link.path()));
            }
        }
    }
    let servers: Vec<(String, Vec<String>)> = servers.into_iter().collect();
    let (mut out, mut silent) = (String::new(), 0);
    for some in servers.chunks(AT_ONCE) {
        let reached: Vec<Reached> = std::thread::scope(|scope| {
            let tries: Vec<_> =
                some.iter().map(|(server, _)| scope.spawn(move || reach(server))).collect();
            let lost = || Err(String::from("the attempt failed"));
            tries.into_iter().map(|one| one.join().unwrap_or_else(|_| lost())).collect()
        });
        for ((server, links), reached) in some.iter().zip(reached) {
            silent += usize::from(reached.is_err());
            out.push_str(&shown_server(server, links, &reached));
        }
    }
    let loops = namespace_loops::find(&config, &namespaces);
    for found in &loops {
        let object = serde_json::json!({ "loop": found });
        out.push_str(&if is_json() { format!("{object}\n") } else { format!("{found}\n") });
    }
    print_text(&out)?;
    match silent {
        0 if loops.is_empty() => Ok(()),
        0 => Err(Failure::new(Exit::Failed, format!("{} found", counted(loops.len(), "loop")))),
        count => {
            let text =
                format!("{} of {} could not be reached", count, counted(servers.len(), "server"));
            Err(Failure::new(Exit::Failed, text))
        }
    }
}

fn shown_server(server: &str, links: &[String], reached: &Reached) -> String {
    if is_json() {
        let object = serde_json::json!({
            "server": server, "address": reached.as_ref().ok().map(ToString::to_string),
            "error": reached.as_ref().err(), "links": links,
        });
        return format!("{object}\n");
    }
    let first = links.first().map_or("", |link| link);
    let more = match links.len() {
        0 | 1 => String::new(),
        count => format!(" and {}", counted(count - 1, "other link")),
    };
    match reached {
        Ok(address) => format!("{server}  answers at {address}\n"),
        Err(why) => format!("{server}  {why}; {first}{more} may lead nowhere\n"),
    }
}

/// Connects to the port of SMB of a server.
fn reach(server: &str) -> Reached {
    let found =
        (server, PORT).to_socket_addrs().map_err(|error| format!("has no address: {error}"))?;
    let mut why = String::from("has no address");
    for address in found.take(4) {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(address.ip()),
            Err(error) => why = format!("does not answer at {address}: {error}"),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_targets_are_read_in_both_spellings() {
        for path in ["teams/red", r"teams\red", "/teams/red/"] {
            assert_eq!(parse_path("files", path).unwrap().link, r"teams\red", "{path}");
        }
        for path in ["", "/", "a//b", "..", "a:b"] {
            assert!(parse_path("files", path).is_err(), "{path}");
        }
        for target in ["//nas/red/sub", r"\\nas\red\sub", "smb://nas/red/sub/"] {
            assert_eq!(parse_target(target).unwrap().unc(), r"\\nas\red\sub", "{target}");
        }
        for target in ["nas/red", "//nas", "//", "/nas/red", "//nas//red", "//nas/a:b"] {
            assert!(parse_target(target).is_err(), "{target}");
        }
    }
}
