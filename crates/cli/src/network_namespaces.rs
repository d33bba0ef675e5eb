//! Namespaces that administrators make over the network (MS-DFSNM): a file in the state directory, which
//! the confined server can write. It opens nothing: its namespaces have shares of the configuration as
//! their roots, and few keys.

use std::io;
use std::path::PathBuf;

use frevo_config::limits::{NETWORK_LINKS, NETWORK_NAMESPACES_BYTES};
use frevo_config::{Config, NamespaceSection, USER};
use frevo_server::{NamespaceChange, NotChanged};
use frevo_wire::fscc::fold_name;
use toml_edit::{DocumentMut, Item, Table};

use crate::exit::{Done, Exit, Failure};
use crate::{namespace_tables, secret_file, state, trusted_file};

/// The file in the state directory.
const FILE: &str = "namespaces.toml";
/// Keys of its namespaces.
const KEYS: [&str; 4] = ["name", "ttl", "failback", "link"];

/// The file.
#[derive(Debug)]
pub(crate) struct NetworkNamespaces {
    pub(crate) file: PathBuf,
}

impl NetworkNamespaces {
    /// Returns the file of a configuration, which may have faults. None unless `network_namespaces` is true.
    pub(crate) fn of_table(table: &toml::Table) -> Option<Self> {
        let server = table.get("server")?.as_table()?;
        let is_allowed = server.get("network_namespaces")?.as_bool()?;
        let dir = server.get("state_dir").and_then(|dir| dir.as_str()).map(PathBuf::from);
        let file = dir.unwrap_or_else(state::default_dir).join(FILE);
        is_allowed.then_some(Self { file })
    }

    /// The text of the file; None without a file, or for a user who may not read it.
    pub(crate) fn stored(&self) -> Result<Option<String>, Failure> {
        let shown = self.file.display();
        let none = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        match trusted_file::read(&self.file, NETWORK_NAMESPACES_BYTES) {
            Ok(text) => Ok(Some(text)),
            Err(trusted_file::Refusal::Unreadable(error)) if none.contains(&error.kind()) => {
                Ok(None)
            }
            Err(trusted_file::Refusal::Unreadable(error)) => {
                Err(Failure::new(Exit::Config, format!("cannot read {shown}: {error}")))
            }
            Err(trusted_file::Refusal::OthersWrite(why)) => {
                Err(Failure::new(Exit::Config, format!("{shown} was not read: {why}")))
            }
        }
    }

    /// The text with the namespaces that are served: those that the configuration does not have itself, and
    /// whose root is one of its shares. Empty without any.
    pub(crate) fn text(&self, table: &toml::Table) -> Result<String, Failure> {
        let Some(text) = self.stored()? else { return Ok(String::new()) };
        let Ok(mut document) = text.parse::<DocumentMut>() else {
            tracing::warn!(target: "frevo::server", file = %self.file.display(),
                "the namespaces that were made over the network are not served: the file is not TOML");
            return Ok(String::new());
        };
        document.retain(|key, _| key == "namespace");
        let sections = namespace_tables::sections(&mut document);
        let is_list =
            sections.map(|all| all.retain(|namespace| is_served(namespace, table))).is_ok();
        if !is_list {
            // The file is TOML, but `namespace` is not a list of sections.
            document.remove("namespace");
        }
        Ok(document.to_string())
    }

    /// Replaces the text of the file.
    pub(crate) fn write(&self, text: &str) -> Done {
        secret_file::replace(&self.file, text)
    }

    /// The text after a change of it. `config` has all shares, and all namespaces, also those of other files.
    pub(crate) fn changed(
        &self,
        before: &str,
        config: &Config,
        change: &NamespaceChange,
    ) -> Result<String, NotChanged> {
        let shown = self.file.display();
        let mut document = before
            .parse::<DocumentMut>()
            .map_err(|_| NotChanged::Failed(format!("{shown} is not TOML")))?;
        let has_share = |name: &str| {
            let is_it = |known: &str| fold_name(known) == fold_name(name);
            config.shares.iter().any(|share| is_it(share.name.get_ref().as_str()))
        };
        let is_elsewhere = || {
            let is_it = |namespace: &&NamespaceSection| {
                fold_name(namespace.name.get_ref().as_str()) == fold_name(change.namespace())
            };
            config.namespaces.iter().any(|namespace| is_it(&namespace))
        };
        namespace_tables::apply(&mut document, change, has_share).map_err(|why| match why {
            NotChanged::Absent(_)
                if is_elsewhere()
                    && namespace_tables::namespace_of(&mut document, change.namespace())
                        .is_err() =>
            {
                NotChanged::Forbidden(String::from(
                    "the namespace is in the configuration, which is not changed over the network; \
                     use frevo namespace",
                ))
            }
            why => why,
        })?;
        if matches!(change, NamespaceChange::AddRoot { .. }) && is_elsewhere() {
            return Err(NotChanged::Exists(String::from("the configuration has this namespace")));
        }
        let links = namespace_tables::sections(&mut document)?.iter_mut();
        let count = |namespace: &mut Table| {
            namespace_tables::links_of(namespace).map_or(0, |links| links.len())
        };
        if links.map(count).sum::<usize>() > NETWORK_LINKS {
            let why = format!("administrators may make {NETWORK_LINKS} links over the network");
            return Err(NotChanged::Forbidden(why));
        }
        let after = document.to_string();
        // The server refuses to read a file of this length, so the change is refused.
        if u64::try_from(after.len()).unwrap_or(u64::MAX) >= NETWORK_NAMESPACES_BYTES {
            return Err(NotChanged::Forbidden(format!("{shown} would be too long; remove links")));
        }
        Ok(after)
    }
}

/// True for a section that is served beside the sections of `table`.
fn is_served(namespace: &Table, table: &toml::Table) -> bool {
    let name = namespace.get("name").and_then(Item::as_str).unwrap_or_default();
    let find = |section: &str| {
        let all = table.get(section).and_then(toml::Value::as_array).into_iter().flatten();
        let is_it = |one: &&toml::Value| {
            let known = one.get("name").and_then(toml::Value::as_str).unwrap_or_default();
            fold_name(known) == fold_name(name)
        };
        all.into_iter().find(is_it)
    };
    let path_of = |share: &toml::Value| share.get("path")?.as_str().map(str::to_owned);
    let why = if namespace.iter().any(|(key, _)| !KEYS.contains(&key)) {
        "it has a key that such a namespace cannot have"
    } else if find("namespace").is_some() {
        "the configuration has a namespace of this name"
    } else {
        match find("share") {
            None => "there is no share of this name",
            Some(share) if path_of(share).is_some_and(|path| path.contains(USER)) => {
                "its share has a folder for each user"
            }
            Some(_) => return true,
        }
    };
    tracing::warn!(target: "frevo::server", namespace = name, why,
        "a namespace that was made over the network is not served");
    false
}

#[cfg(test)]
mod tests {
    use frevo_server::{EntryPath, TargetName};

    use super::*;

    const CONFIG: &str = "[server]\nnetwork_namespaces = true\n[[share]]\nname = \"Files\"\npath = \"/srv\"\n\
        [[share]]\nname = \"own\"\npath = \"/x\"\n[[share]]\nname = \"each\"\npath = \"/y/{user}\"\n\
        [[namespace]]\nname = \"own\"\n";

    fn add_root(name: &str) -> NamespaceChange {
        NamespaceChange::AddRoot { namespace: name.to_owned(), comment: String::new() }
    }

    fn add_link(namespace: &str, link: &str) -> NamespaceChange {
        NamespaceChange::AddLink {
            path: EntryPath::parse(&format!(r"\\box\{namespace}\{link}")).unwrap(),
            target: TargetName { server: String::from("a"), share: String::from("b") },
            comment: String::new(),
            must_be_new: false,
        }
    }

    #[test]
    fn namespaces_of_the_network_are_shares_of_the_configuration() {
        let place = tempfile::tempdir().unwrap();
        let network = NetworkNamespaces { file: place.path().join(FILE) };
        let config = Config::parse(CONFIG).unwrap();
        let change = |before: &str, change| network.changed(before, &config, &change);
        let text = change("", add_root("files")).unwrap();
        let text = change(&text, add_link("FILES", r"a\b")).unwrap();
        network.write(&text).unwrap();
        let table: toml::Table = CONFIG.parse().unwrap();
        assert_eq!(network.text(&table).unwrap(), text);
        let whole = Config::parse(&format!("{CONFIG}{text}")).unwrap();
        assert_eq!(whole.namespaces.len(), 2);
        assert!(matches!(change(&text, add_root("FILES")), Err(NotChanged::Exists(_))));
        assert!(matches!(change(&text, add_root("none")), Err(NotChanged::NoShare(_))));
        assert!(matches!(change(&text, add_root("own")), Err(NotChanged::Exists(_))));
        assert!(matches!(change(&text, add_link("own", "x")), Err(NotChanged::Forbidden(_))));
        assert!(matches!(change(&text, add_link("none", "x")), Err(NotChanged::Absent(_))));
    }

    #[test]
    fn a_file_that_somebody_else_has_written_opens_nothing() {
        let place = tempfile::tempdir().unwrap();
        let network = NetworkNamespaces { file: place.path().join(FILE) };
        let table: toml::Table = CONFIG.parse().unwrap();
        for text in [
            "[[namespace]]\nname = \"new\"\n",
            "[[namespace]]\nname = \"files\"\nallow = [\"eve\"]\n",
            "[[namespace]]\nname = \"OWN\"\n",
            "[[namespace]]\nname = \"each\"\n",
            "[[share]]\nname = \"root\"\npath = \"/\"\n",
            "namespace = 5\n",
            "no toml at all [",
        ] {
            network.write(text).unwrap();
            let served = network.text(&table).unwrap();
            let config = Config::parse(&format!("{CONFIG}{served}")).unwrap();
            assert_eq!((config.namespaces.len(), config.shares.len()), (1, 3), "{text}");
        }
        let none: toml::Table = CONFIG.replace("true", "false").parse().unwrap();
        assert!(NetworkNamespaces::of_table(&none).is_none());
        let all: toml::Table = CONFIG.parse().unwrap();
        assert!(NetworkNamespaces::of_table(&all).unwrap().file.ends_with(FILE));
    }

    #[test]
    fn so_many_links_are_made_and_no_more() {
        let place = tempfile::tempdir().unwrap();
        let network = NetworkNamespaces { file: place.path().join(FILE) };
        let config = Config::parse(CONFIG).unwrap();
        let link = |at| format!("[[namespace.link]]\npath = \"l{at}\"\ntargets = ['\\\\a\\b']\n");
        let links: String = (1..NETWORK_LINKS).map(link).collect();
        let before = format!("[[namespace]]\nname = \"files\"\n{links}");
        let full = network.changed(&before, &config, &add_link("files", "last")).unwrap();
        let more = network.changed(&full, &config, &add_link("files", "more"));
        assert!(matches!(more, Err(NotChanged::Forbidden(_))), "{more:?}");
    }
}
