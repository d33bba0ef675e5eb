//! Namespaces that administrators make over the network (MS-DFSNM): files in the state directory, which
//! the confined server can write. They open nothing: their namespaces have shares of the configuration as
//! their roots, and few keys.
//!
//! A node of a cluster has two: one for the shares that are its alone, and a copy of what etcd has for the shares of
//! the cluster.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use frevo_config::limits::{NETWORK_LINKS, NETWORK_NAMESPACES_BYTES};
use frevo_config::{Config, NamespaceSection, USER, without_links};
use frevo_server::{NamespaceChange, NotChanged};
use frevo_wire::fscc::fold_name;
use toml_edit::{DocumentMut, Item, Table};

use crate::cluster::Entries;
use crate::exit::{Done, Exit, Failure};
use crate::{namespace_tables, secret_file, state, trusted_file};

/// The file in the state directory.
const FILE: &str = "namespaces.toml";
/// The copy of the namespaces of the cluster's shares, beside it.
const CLUSTER_FILE: &str = "cluster-namespaces.toml";
/// The text of `FILE` before its namespaces of the cluster's shares were left to etcd.
const LEFT_FILE: &str = "namespaces.toml.before-cluster";
/// The beginning of the copy.
const HEAD: &str = "# The namespaces of the cluster, as etcd has them: this file is written again at each change.\n";
/// Keys of its namespaces.
const KEYS: [&str; 4] = ["name", "ttl", "failback", "link"];

/// The shares that are roots of the namespaces in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Roots {
    /// All shares.
    All,
    /// Those that are this server's alone.
    Own,
    /// Those of the cluster.
    Cluster,
}

/// The files of a server.
const KNOWN_FILES: usize = 2;
/// The last text of each file that this process has made or parsed: it is TOML, and need not be parsed to learn
/// that.
static KNOWN: Mutex<Vec<KnownText>> = Mutex::new(Vec::new());

/// The text of a file, by a hash with a random key.
struct KnownText {
    file: PathBuf,
    key: RandomState,
    hash: u64,
}

/// A file.
#[derive(Debug, Clone)]
pub(crate) struct NetworkNamespaces {
    pub(crate) file: PathBuf,
    roots: Roots,
}

impl NetworkNamespaces {
    /// Returns the files of a configuration, which may have faults. None unless `network_namespaces` is true.
    pub(crate) fn of_table(table: &toml::Table) -> Vec<Self> {
        let server = table.get("server").and_then(toml::Value::as_table);
        let key = |key| server.and_then(|server| server.get(key));
        if key("network_namespaces").and_then(toml::Value::as_bool) != Some(true) {
            return Vec::new();
        }
        let dir = dir_of(table);
        let is_node = table.get("cluster").is_some_and(|section| section.get("name").is_some());
        let cluster = Self::of_cluster(&dir);
        // Until etcd has answered once, a node serves what it has.
        let roots = if is_node && cluster.file.exists() { Roots::Own } else { Roots::All };
        let own = Self { file: dir.join(FILE), roots };
        std::iter::once(own).chain(is_node.then_some(cluster)).collect()
    }

    /// The file of the own shares of a node, and its copy, also without `network_namespaces`.
    pub(crate) fn of_node(table: &toml::Table) -> (Self, Self) {
        let dir = dir_of(table);
        (Self::of_own(&dir), Self::of_cluster(&dir))
    }

    /// The copy of a node with this state directory.
    fn of_cluster(state_dir: &Path) -> Self {
        Self { file: state_dir.join(CLUSTER_FILE), roots: Roots::Cluster }
    }

    /// The file of this server's own shares, with this state directory.
    fn of_own(state_dir: &Path) -> Self {
        Self { file: state_dir.join(FILE), roots: Roots::Own }
    }

    /// True for the copy of what etcd has.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.roots == Roots::Cluster
    }

    /// Of the files of a configuration, the one that a namespace belongs in: that of its share, or, without
    /// one, the one that has it.
    pub(crate) fn find(files: Vec<Self>, table: &toml::Table, name: &str) -> Option<Self> {
        let is_of_cluster = match find(table, "share", name) {
            Some(share) => is_clustered(share),
            None => files.iter().any(|file| {
                let text = file.stored().ok().flatten().filter(|_| file.is_of_cluster());
                let document = text.and_then(|text| text.parse::<DocumentMut>().ok());
                document
                    .is_some_and(|mut all| namespace_tables::namespace_of(&mut all, name).is_ok())
            }),
        };
        let is_only = files.len() == 1;
        files.into_iter().find(|file| is_only || file.is_of_cluster() == is_of_cluster)
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
        Ok(self.stored()?.map_or_else(String::new, |text| self.served(&text, table)))
    }

    /// The part of a text of this file that is served.
    pub(crate) fn served(&self, text: &str, table: &toml::Table) -> String {
        if self.is_known(text) && self.is_served_whole(text, table) {
            return text.to_owned();
        }
        let Ok(mut document) = text.parse::<DocumentMut>() else {
            tracing::warn!(target: "frevo::server", file = %self.file.display(),
                "the namespaces that were made over the network are not served: the file is not TOML");
            return String::new();
        };
        self.note(text);
        document.retain(|key, _| key == "namespace");
        let sections = namespace_tables::sections(&mut document);
        let is_list = sections.map(|all| all.retain(|one| self.is_served(one, table))).is_ok();
        if !is_list {
            // The file is TOML, but `namespace` is not a list of sections.
            document.remove("namespace");
        }
        document.to_string()
    }

    /// Notes that a text is TOML.
    fn note(&self, text: &str) {
        let key = RandomState::new();
        let known = KnownText { file: self.file.clone(), hash: key.hash_one(text), key };
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.file != self.file);
        if all.len() >= KNOWN_FILES {
            all.remove(0);
        }
        all.push(known);
    }

    fn is_known(&self, text: &str) -> bool {
        let all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|one| one.file == self.file);
        known.is_some_and(|known| known.key.hash_one(text) == known.hash)
    }

    /// True for a text in TOML that has namespaces alone, all of which are served. Links need no look.
    fn is_served_whole(&self, text: &str, table: &toml::Table) -> bool {
        let Ok(mut document) = without_links(text).parse::<DocumentMut>() else { return false };
        document.len() == 1
            && document.contains_key("namespace")
            && namespace_tables::sections(&mut document)
                .is_ok_and(|all| all.iter().all(|one| self.is_served(one, table)))
    }

    /// The text of the entries that are served.
    pub(crate) fn served_of(&self, entries: &Entries, table: &toml::Table) -> String {
        entries.text_of(|namespace| self.is_served(namespace, table))
    }

    /// Replaces the text of the file.
    pub(crate) fn write(&self, text: &str) -> Done {
        secret_file::replace(&self.file, text)
    }

    /// Replaces the text of the file with one that this process has made.
    pub(crate) fn write_made(&self, text: &str) -> Done {
        self.note(text);
        self.write(text)
    }

    /// Makes the copy that of other entries. Returns true if they differ from what it had.
    pub(crate) fn copy(&self, text: &str) -> Result<bool, Failure> {
        let text = format!("{HEAD}{text}");
        // A copy that cannot be read is replaced.
        if self.stored().is_ok_and(|stored| stored.as_ref() == Some(&text)) {
            return Ok(false);
        }
        self.write_made(&text).map(|()| true)
    }

    /// All namespaces of the file.
    pub(crate) fn entries(&self) -> Result<Entries, Failure> {
        Entries::of_text(&self.stored()?.unwrap_or_default()).map_err(|why| self.unusable(&why))
    }

    fn unusable(&self, why: &str) -> Failure {
        Failure::new(Exit::Config, format!("{} cannot be used: {why}", self.file.display()))
    }

    /// The namespaces of the cluster's shares in this file, and the text without them.
    pub(crate) fn of_shares_of_cluster(
        &self,
        table: &toml::Table,
    ) -> Result<Option<(Entries, String)>, Failure> {
        let Some(text) = self.stored()? else { return Ok(None) };
        let wrong = |why: String| self.unusable(&why);
        let mut rest = text.parse::<DocumentMut>().map_err(|_| wrong("it is not TOML".into()))?;
        let mut moved = rest.clone();
        let is_moved =
            |namespace: &Table| find(table, "share", name_of(namespace)).is_some_and(is_clustered);
        let sections = |all| namespace_tables::sections(all).map_err(|why| wrong(why.to_string()));
        sections(&mut moved)?.retain(is_moved);
        sections(&mut rest)?.retain(|namespace| !is_moved(namespace));
        let entries = Entries::of_text(&moved.to_string()).map_err(wrong)?;
        Ok((!entries.is_empty()).then(|| (entries, rest.to_string())))
    }

    /// Leaves the namespaces of the cluster's shares to etcd, which has `kept`. The text before is kept in a file
    /// beside this one.
    pub(crate) fn leave_to_cluster(&self, table: &toml::Table, kept: &Entries) -> Done {
        let Some((left, rest)) = self.of_shares_of_cluster(table)? else { return Ok(()) };
        let before = self.file.with_file_name(LEFT_FILE);
        let earlier = fs::read_to_string(&before).unwrap_or_default();
        let text = self.stored()?.unwrap_or_default();
        secret_file::replace(&before, &(earlier + &text))?;
        let (file, copy) = (self.file.display(), before.display());
        match kept.has_all_of(&left) {
            true => tracing::info!(target: "frevo::cluster", %file, %copy,
                "etcd has the namespaces of the cluster's shares now: they are taken out of this file, which is \
                 kept in the copy"),
            false => tracing::warn!(target: "frevo::cluster", %file, %copy,
                "this file has other namespaces of the cluster's shares than etcd, which another node has \
                 stored; those of etcd count, and this file is kept in the copy"),
        }
        self.write(&rest)
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
        let links = links.map(count).sum();
        let after = document.to_string();
        self.check_size(links, after.len())?;
        Ok(after)
    }

    /// Fails for a text with so many links, or of such a length, as no change makes.
    pub(crate) fn check_size(&self, links: usize, bytes: usize) -> Result<(), NotChanged> {
        if links > NETWORK_LINKS {
            let why = format!("administrators may make {NETWORK_LINKS} links over the network");
            return Err(NotChanged::Forbidden(why));
        }
        // The server refuses to read a file of this length, so the change is refused.
        if u64::try_from(bytes).unwrap_or(u64::MAX) >= NETWORK_NAMESPACES_BYTES {
            let shown = self.file.display();
            return Err(NotChanged::Forbidden(format!("{shown} would be too long; remove links")));
        }
        Ok(())
    }

    /// True for a section that is served beside the sections of `table`.
    fn is_served(&self, namespace: &Table, table: &toml::Table) -> bool {
        let name = name_of(namespace);
        let path_of = |share: &toml::Value| share.get("path")?.as_str().map(str::to_owned);
        let why = if namespace.iter().any(|(key, _)| !KEYS.contains(&key)) {
            "it has a key that such a namespace cannot have"
        } else if find(table, "namespace", name).is_some() {
            "the configuration has a namespace of this name"
        } else {
            match find(table, "share", name) {
                None => "there is no share of this name",
                Some(share) if path_of(share).is_some_and(|path| path.contains(USER)) => {
                    "its share has a folder for each user"
                }
                Some(share) if self.roots == Roots::Own && is_clustered(share) => {
                    "its share is one of the cluster, whose namespaces etcd has"
                }
                Some(share) if self.roots == Roots::Cluster && !is_clustered(share) => {
                    "its share is none of the cluster here"
                }
                Some(_) => return true,
            }
        };
        tracing::warn!(target: "frevo::server", namespace = name, why,
            "a namespace that was made over the network is not served");
        false
    }
}

/// The state directory of a configuration.
fn dir_of(table: &toml::Table) -> PathBuf {
    let dir = table.get("server").and_then(|server| server.get("state_dir")?.as_str());
    dir.map_or_else(state::default_dir, PathBuf::from)
}

fn name_of(section: &Table) -> &str {
    section.get("name").and_then(Item::as_str).unwrap_or_default()
}

/// The section of this kind and name.
fn find<'a>(table: &'a toml::Table, section: &str, name: &str) -> Option<&'a toml::Value> {
    let all = table.get(section).and_then(toml::Value::as_array).into_iter().flatten();
    let is_it = |one: &&toml::Value| {
        let known = one.get("name").and_then(toml::Value::as_str).unwrap_or_default();
        fold_name(known) == fold_name(name)
    };
    all.into_iter().find(is_it)
}

/// True for a share of the cluster.
fn is_clustered(share: &toml::Value) -> bool {
    share.get("cluster").and_then(toml::Value::as_bool) == Some(true)
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
        let network = NetworkNamespaces::of_own(place.path());
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
        let network = NetworkNamespaces::of_own(place.path());
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
        assert!(NetworkNamespaces::of_table(&none).is_empty());
        let all: toml::Table = CONFIG.parse().unwrap();
        let [file] = &*NetworkNamespaces::of_table(&all) else { panic!() };
        assert!(file.file.ends_with(FILE));
    }

    /// A text that is TOML is served as the same text that was parsed before.
    #[test]
    fn a_known_text_opens_nothing_more() {
        let table: toml::Table = CONFIG.parse().unwrap();
        for text in [
            "[[namespace]]\nname = \"files\"\n[[namespace.link]]\npath = \"a\"\ntargets = ['\\\\x\\y']\n",
            "# a comment\n",
            "[[namespace]]\nname = \"files\"\n[[share]]\nname = \"root\"\npath = \"/\"\n",
            "[[namespace]]\nname = \"files\"\nallow = [\"eve\"]\n",
            "[[namespace]]\nname = \"files\"\n[[namespace]]\nname = \"each\"\n",
            "namespace = 5\n",
        ] {
            let place = tempfile::tempdir().unwrap();
            let network = NetworkNamespaces::of_own(place.path());
            assert!(!network.is_known(text));
            let parsed = network.served(text, &table);
            assert!(network.is_known(text) && !network.is_known(&format!("{text} ")));
            assert_eq!(network.served(text, &table), parsed, "{text}");
        }
    }

    #[test]
    fn so_many_links_are_made_and_no_more() {
        let place = tempfile::tempdir().unwrap();
        let network = NetworkNamespaces::of_own(place.path());
        let config = Config::parse(CONFIG).unwrap();
        let link = |at| format!("[[namespace.link]]\npath = \"l{at}\"\ntargets = ['\\\\a\\b']\n");
        let links: String = (1..NETWORK_LINKS).map(link).collect();
        let before = format!("[[namespace]]\nname = \"files\"\n{links}");
        let full = network.changed(&before, &config, &add_link("files", "last")).unwrap();
        let more = network.changed(&full, &config, &add_link("files", "more"));
        assert!(matches!(more, Err(NotChanged::Forbidden(_))), "{more:?}");
    }

    /// The namespaces of a node: those of its own share "own" and of the cluster's share "files".
    #[test]
    fn a_node_has_a_file_for_its_own_shares_and_one_for_the_clusters() {
        let place = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nnetwork_namespaces = true\nstate_dir = {:?}\n\
             [cluster]\nname = \"nas\"\nendpoints = [\"http://127.0.0.1\"]\n\
             [[share]]\nname = \"files\"\npath = \"/srv\"\ncluster = true\n\
             [[share]]\nname = \"own\"\npath = \"/x\"\n",
            place.path()
        );
        let table: toml::Table = text.parse().unwrap();
        let section = |name: &str| format!("[[namespace]]\nname = \"{name}\"\n");
        let served = || -> Vec<String> {
            let files = NetworkNamespaces::of_table(&table);
            files.iter().map(|file| file.text(&table).unwrap()).collect()
        };
        // A node that etcd has not answered yet serves what it has.
        let own = NetworkNamespaces::of_own(place.path());
        own.write(&(section("files") + &section("own"))).unwrap();
        assert_eq!(served(), [section("files") + &section("own"), String::new()]);
        let (moved, rest) = own.of_shares_of_cluster(&table).unwrap().unwrap();
        assert_eq!((moved.text(), &rest), (section("files"), &section("own")));
        // Another node's namespaces were first.
        let cluster = NetworkNamespaces::of_cluster(place.path());
        let other = Entries::of_text(&section("Files")).unwrap();
        assert!(cluster.copy(&other.text()).unwrap());
        assert!(!cluster.copy(&other.text()).unwrap());
        own.leave_to_cluster(&table, &other).unwrap();
        own.leave_to_cluster(&table, &other).unwrap();
        let left = fs::read_to_string(place.path().join(LEFT_FILE)).unwrap();
        assert_eq!(left, section("files") + &section("own"));
        let [first, second] = &*served() else { panic!() };
        assert!(*first == section("own") && second.ends_with(&section("Files")), "{second}");
        // A share says where its namespace belongs.
        let find = |name| {
            let files = NetworkNamespaces::of_table(&table);
            NetworkNamespaces::find(files, &table, name).unwrap().is_of_cluster()
        };
        assert_eq!([find("FILES"), find("own"), find("none")], [true, false, false]);
        cluster.copy(&section("gone")).unwrap();
        assert!(find("gone"));
        own.write(&section("files")).unwrap();
        cluster.copy(&section("own")).unwrap();
        assert!(served().iter().all(|text| !text.contains("[[")), "{:?}", served());
    }
}
