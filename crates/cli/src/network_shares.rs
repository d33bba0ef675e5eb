//! Shares that administrators add over the network: a file in the state directory, which the
//! confined server can write. It cannot open what the configuration does not permit: its shares
//! have few keys, and lie below `share_roots`.

use std::io;
use std::path::{Path, PathBuf};

use frevo_config::limits::NETWORK_SHARES;
use frevo_config::{Config, ShareName};
use frevo_server::share_access::AccessList;
use frevo_server::{NotEdited, ShareEdit};
use frevo_wire::fscc::fold_name;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table};

use crate::exit::{Done, Exit, Failure};
use crate::namespace_tables::is_called;
use crate::{secret_file, state, trusted_file};

/// The file in the state directory.
const FILE: &str = "shares.toml";
/// Greatest length of the file, bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Keys of its shares.
const KEYS: [&str; 5] = ["name", "path", "comment", "max_connections", "access_list"];

/// The file, and the folders below which its shares lie.
#[derive(Debug)]
pub(crate) struct NetworkShares {
    pub(crate) file: PathBuf,
    roots: Vec<PathBuf>,
}

impl NetworkShares {
    /// Returns the file and the roots of a configuration, which may have faults. None without
    /// `share_roots`.
    pub(crate) fn of_table(table: &toml::Table) -> Option<Self> {
        let server = table.get("server")?.as_table()?;
        let roots = server.get("share_roots")?.as_array()?;
        let roots = roots.iter().filter_map(|root| root.as_str().map(PathBuf::from)).collect();
        let dir = server.get("state_dir").and_then(|dir| dir.as_str()).map(PathBuf::from);
        Self::new(&dir.unwrap_or_else(state::default_dir), roots)
    }

    fn new(dir: &Path, roots: Vec<PathBuf>) -> Option<Self> {
        (!roots.is_empty()).then(|| Self { file: dir.join(FILE), roots })
    }

    /// The root, without links, that a folder lies below.
    fn find_root(&self, folder: &Path) -> Option<PathBuf> {
        let mut roots = self.roots.iter().filter_map(|root| root.canonicalize().ok());
        roots.find(|root| folder.starts_with(root))
    }

    /// Returns the root from which the folder of a share is opened. For a folder below no root it
    /// is the first one, from which the folder cannot be opened.
    pub(crate) fn root_of(&self, folder: &Path) -> PathBuf {
        let first = || self.roots.first().cloned().unwrap_or_default();
        self.find_root(folder).unwrap_or_else(first)
    }

    /// True if the path of the folder has no link and lies below one of the roots. The path is
    /// checked again when the folder is opened.
    fn permits(&self, folder: &Path) -> bool {
        let is_real = folder.canonicalize().is_ok_and(|real| real == folder);
        is_real && self.find_root(folder).is_some()
    }

    /// Looks for a folder below one of the roots. None for a path outside of them, which is not
    /// looked at.
    fn is_there(&self, folder: &Path) -> Option<Result<(), Errno>> {
        let real = self.roots.iter().filter_map(|root| root.canonicalize().ok());
        let mut roots = self.roots.iter().cloned().chain(real);
        let root = roots.find(|root| folder.starts_with(root))?;
        let part = folder.strip_prefix(&root).ok()?;
        let part = if part.as_os_str().is_empty() { Path::new(".") } else { part };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = open(&root, flags, Mode::empty()).and_then(|root| {
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            openat2(root, part, flags, Mode::empty(), beneath)
        });
        match opened {
            Err(Errno::XDEV | Errno::LOOP) => None,
            opened => Some(opened.map(drop)),
        }
    }

    /// The text of the file; None without a file, or for a user who may not read it.
    pub(crate) fn stored(&self) -> Result<Option<String>, Failure> {
        let shown = self.file.display();
        let none = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        match trusted_file::read(&self.file, BYTES_MAX) {
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

    /// The text with the shares that are permitted. `taken` are the names of the shares of the
    /// configuration, which no share of the network replaces.
    pub(crate) fn text(&self, taken: &[String]) -> Result<Option<String>, Failure> {
        let Some(text) = self.stored()? else { return Ok(None) };
        let Ok(mut document) = text.parse::<DocumentMut>() else {
            tracing::warn!(target: "frevo::server", file = %self.file.display(),
                "the shares that were added over the network are not served: the file is not TOML");
            return Ok(None);
        };
        document.retain(|key, _| key == "share");
        if let Some(shares) = shares_of(&mut document) {
            shares.retain(|share| self.is_permitted(share, taken));
        } else {
            // The file is TOML, but `share` is not a list of sections, so it contains no share that
            // could be served.
            document.remove("share");
        }
        Ok(Some(document.to_string()))
    }

    fn is_permitted(&self, share: &Table, taken: &[String]) -> bool {
        let text = |key| share.get(key).and_then(Item::as_str).unwrap_or_default();
        let name = text("name");
        let why = if share.iter().any(|(key, _)| !KEYS.contains(&key)) {
            "it has a key that such a share cannot have"
        } else if taken.iter().any(|taken| fold_name(taken) == fold_name(name)) {
            "the configuration has a share of this name"
        } else if !self.permits(Path::new(text("path"))) {
            "its folder does not exist below share_roots, or a link was put in its path"
        } else {
            return true;
        };
        tracing::warn!(target: "frevo::server", share = name, path = text("path"), why,
            "a share that was added over the network is not served");
        false
    }

    /// Returns a changed text with the stored shares that are not served at the moment, which the text without
    /// the change lacks, too.
    ///
    /// # Errors
    /// When the file cannot be read, or is not TOML.
    pub(crate) fn with_hidden(&self, before: &str, changed: &str) -> Result<String, Failure> {
        let parsed = |text: &str| {
            let parsed = text.parse::<DocumentMut>();
            parsed.map_err(Failure::failed(format!("{} is not TOML", self.file.display())))
        };
        let mut stored = parsed(&self.stored()?.unwrap_or_default())?;
        let (mut before, mut changed) = (parsed(before)?, parsed(changed)?);
        let served: Vec<String> =
            shares_of(&mut before).into_iter().flat_map(|shares| shares.iter().map(key)).collect();
        let hidden = shares_of(&mut stored).into_iter().flat_map(|shares| shares.iter().cloned());
        let hidden: Vec<Table> = hidden.filter(|share| !served.contains(&key(share))).collect();
        if !hidden.is_empty() {
            let shares =
                changed.entry("share").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
            shares
                .as_array_of_tables_mut()
                .into_iter()
                .for_each(|shares| shares.extend(hidden.clone()));
        }
        Ok(changed.to_string())
    }

    /// Replaces the text of the file.
    pub(crate) fn write(&self, text: &str) -> Done {
        secret_file::replace(&self.file, text)
    }

    /// The text after a change of it. `config` has all shares, also those of other files.
    pub(crate) fn edited(
        &self,
        before: &str,
        config: &Config,
        edit: &ShareEdit,
    ) -> Result<String, NotEdited> {
        let mut document = before.parse::<DocumentMut>().map_err(|_| not_toml(&self.file))?;
        match edit {
            ShareEdit::Add { name, path, comment, max_connections, access } => {
                let mut table = self.addition(config, name, path)?;
                set(&mut table, Some(comment), Some(*max_connections), Some(access.as_ref()));
                let shares = document
                    .entry("share")
                    .or_insert(Item::ArrayOfTables(ArrayOfTables::new()))
                    .as_array_of_tables_mut();
                let shares = shares.ok_or_else(|| not_toml(&self.file))?;
                // The stored file has a share of this name. It is not served, because its folder is
                // missing, but the name stays taken.
                if shares.iter().any(|table| is_called(table, name)) {
                    return Err(NotEdited::Exists);
                }
                if shares.len() >= NETWORK_SHARES {
                    let why =
                        format!("{NETWORK_SHARES} shares were added over the network; remove one");
                    return Err(NotEdited::Forbidden(why));
                }
                shares.push(table);
            }
            ShareEdit::Set { name, comment, max_connections, access } => {
                let shares = shares_of(&mut document);
                let found =
                    shares.and_then(|all| all.iter_mut().find(|table| is_called(table, name)));
                let table = found.ok_or_else(|| elsewhere(config, name, "set"))?;
                let access = access.as_ref().map(Option::as_ref);
                set(table, comment.as_deref(), *max_connections, access);
            }
            ShareEdit::Remove { name } => {
                let shares = shares_of(&mut document);
                let found = shares.filter(|all| all.iter().any(|table| is_called(table, name)));
                let shares = found.ok_or_else(|| elsewhere(config, name, "rm"))?;
                shares.retain(|table| !is_called(table, name));
            }
            _ => {
                return Err(NotEdited::Failed(String::from(
                    "this kind of change is not supported",
                )));
            }
        }
        let after = document.to_string();
        // The server refuses to read a file of this length, so the change is refused.
        if u64::try_from(after.len()).unwrap_or(u64::MAX) >= BYTES_MAX {
            let why = format!("{} would be too long; remove a share", self.file.display());
            return Err(NotEdited::Forbidden(why));
        }
        Ok(after)
    }

    /// The section of a new share.
    fn addition(&self, config: &Config, name: &str, path: &str) -> Result<Table, NotEdited> {
        let name: ShareName = name.parse().map_err(NotEdited::BadName)?;
        // In `path`, braces mark the placeholder of the user's name, so a share name with a brace
        // is refused.
        if name.as_str().contains('{') {
            return Err(NotEdited::BadName(format!("the name {name} has a brace in it")));
        }
        if config.shares.iter().any(|share| share.name.get_ref().is_same(&name)) {
            return Err(NotEdited::Exists);
        }
        let folder = host_path(path);
        if !folder.is_absolute() || path.contains('{') {
            return Err(NotEdited::NoFolder(format!("{path} is not the path of a folder")));
        }
        let forbidden = || {
            let why = "is outside of the folders that share_roots in [server] names";
            NotEdited::Forbidden(format!("{} {why}", folder.display()))
        };
        // A folder outside of the permitted ones always gets the same refusal, which does not
        // reveal whether the folder exists.
        if self.is_there(&folder).ok_or_else(forbidden)?.is_err() {
            return Err(NotEdited::NoFolder(format!("there is no folder {}", folder.display())));
        }
        let there = folder.canonicalize().map_err(|_| forbidden())?;
        let shown = there.to_str().filter(|_| self.permits(&there)).ok_or_else(forbidden)?;
        let mut table = Table::new();
        table.insert("name", toml_edit::value(name.as_str()));
        table.insert("path", toml_edit::value(shown));
        Ok(table)
    }
}

fn not_toml(file: &Path) -> NotEdited {
    NotEdited::Failed(format!("{} is not TOML with a section for each share", file.display()))
}

/// A path as clients write it: `/srv/x`, or `C:\srv\x` for the same.
fn host_path(path: &str) -> PathBuf {
    let is_drive = |head: &str| head.len() == 2 && head.ends_with(':');
    match path.split_at_checked(2) {
        Some((head, rest)) if is_drive(head) => PathBuf::from(rest.replace('\\', "/")),
        _ => PathBuf::from(path),
    }
}

/// The name of a share, as names are compared.
fn key(share: &Table) -> String {
    fold_name(share.get("name").and_then(Item::as_str).unwrap_or_default())
}

fn shares_of(document: &mut DocumentMut) -> Option<&mut ArrayOfTables> {
    document.get_mut("share")?.as_array_of_tables_mut()
}

/// Returns the error for a share that is not in the file: it is in the configuration, or does not
/// exist.
fn elsewhere(config: &Config, name: &str, command: &str) -> NotEdited {
    let is_it = |found: &str| fold_name(found) == fold_name(name);
    if config.shares.iter().any(|share| is_it(share.name.get_ref().as_str())) {
        let why = "the share is in the configuration, which is not changed over the network; use";
        return NotEdited::Forbidden(format!("{why} frevo share {command}"));
    }
    NotEdited::Absent
}

fn set(
    table: &mut Table,
    comment: Option<&str>,
    max_connections: Option<Option<usize>>,
    access: Option<Option<&AccessList>>,
) {
    match access {
        Some(None) => drop(table.remove("access_list")),
        Some(Some(list)) => {
            let entries: Array = list.entries().iter().map(ToString::to_string).collect();
            table.insert("access_list", toml_edit::value(entries));
        }
        None => {}
    }
    match comment {
        Some("") => drop(table.remove("comment")),
        Some(comment) => drop(table.insert("comment", toml_edit::value(comment))),
        None => {}
    }
    match max_connections.map(|most| most.and_then(|most| i64::try_from(most).ok())) {
        Some(None) => drop(table.remove("max_connections")),
        Some(Some(most)) => drop(table.insert("max_connections", toml_edit::value(most))),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(name: &str, path: &str) -> ShareEdit {
        let (name, path) = (name.to_owned(), path.to_owned());
        let comment = String::from("mine");
        ShareEdit::Add { name, path, comment, max_connections: Some(5), access: None }
    }

    fn remove(name: &str) -> ShareEdit {
        ShareEdit::Remove { name: name.to_owned() }
    }

    #[test]
    fn a_share_is_added_changed_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::create_dir(place.path().join("outside")).unwrap();
        std::os::unix::fs::symlink(place.path().join("outside"), root.join("link")).unwrap();
        let shares = NetworkShares::new(place.path(), vec![root.clone()]).unwrap();
        let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let none = Config::default();
        let edit =
            |before: &str, config: &Config, edit: &ShareEdit| shares.edited(before, config, edit);
        let text = edit("", &none, &add("New", &path("a"))).unwrap();
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.shares[0].max_connections, Some(5));
        assert_eq!(config.shares[0].comment, "mine");
        assert!(matches!(edit(&text, &config, &add("NEW", &path("a"))), Err(NotEdited::Exists)));
        std::fs::create_dir(place.path().join("outside/there")).unwrap();
        let above = place.path().to_str().unwrap().to_owned();
        // All paths outside of the permitted folders get the same refusal, so that an administrator
        // does not learn which of them exist.
        for outside in [
            path("link"),
            path("link/there"),
            path("link/absent"),
            path("../outside"),
            path("../absent"),
            String::from("/"),
            String::from("/absent/x"),
            format!("{above}/outside"),
            format!("{above}/absent"),
            above,
        ] {
            let refused = edit("", &none, &add("x", &outside));
            let why =
                format!("{outside} is outside of the folders that share_roots in [server] names");
            assert_eq!(refused, Err(NotEdited::Forbidden(why)));
        }
        for absent in [&*path("absent"), &*path("a/absent"), "relative", "", "C:", "/{user}"] {
            let refused = edit("", &none, &add("x", absent));
            assert!(matches!(refused, Err(NotEdited::NoFolder(_))), "{absent}: {refused:?}");
        }
        assert!(matches!(edit("", &none, &add("a/b", &path("a"))), Err(NotEdited::BadName(_))));
        let windows = format!("C:{}", path("a").replace('/', r"\"));
        let other = edit(&text, &config, &add("Other", &windows)).unwrap();
        assert_eq!(
            Config::parse(&other).unwrap().shares[1].path.get_ref(),
            &root.join("a").canonicalize().unwrap()
        );
        let less = edit(&other, &config, &remove("new")).unwrap();
        assert_eq!(Config::parse(&less).unwrap().shares.len(), 1);
        let (name, comment) = (String::from("new"), Some(String::new()));
        let set = ShareEdit::Set { name, comment, max_connections: Some(None), access: None };
        let set = edit(&text, &config, &set).unwrap();
        let set = &Config::parse(&set).unwrap().shares[0];
        assert_eq!((&*set.comment, set.max_connections), ("", None));
        // The share `new` is in the configuration, so an administrator cannot remove it over the
        // network.
        let refused = edit("", &config, &remove("new"));
        assert!(
            matches!(&refused, Err(NotEdited::Forbidden(why)) if why.contains("frevo share rm"))
        );
        assert_eq!(edit("", &none, &remove("new")), Err(NotEdited::Absent));
    }

    #[test]
    fn what_is_not_permitted_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let shares = NetworkShares::new(place.path(), vec![root.clone()]).unwrap();
        assert_eq!(shares.text(&[]).unwrap(), None);
        std::fs::create_dir(root.join("a")).unwrap();
        let link = root.join("link");
        std::os::unix::fs::symlink(root.join("a"), &link).unwrap();
        let share = |name: &str, path: &Path, more: &str| {
            format!("[[share]]\nname = {name:?}\npath = {path:?}\n{more}")
        };
        let text = [
            String::from("[server]\nencryption = \"off\"\n"),
            share("good", &root, "comment = \"x\"\n"),
            share("swapped", &link, ""),
            share("outside", place.path(), ""),
            share("up", &root.join(".."), ""),
            share("wide", &root, "run_as = \"server\"\n"),
        ]
        .concat();
        shares.write(&text).unwrap();
        let config = Config::parse(&shares.text(&[]).unwrap().unwrap()).unwrap();
        assert_eq!(config.server.encryption, None);
        let names: Vec<&str> = config.shares.iter().map(|s| s.name.get_ref().as_str()).collect();
        assert_eq!(names, ["good"]);
        assert_eq!(shares.stored().unwrap().as_deref(), Some(&*text));
        let taken = shares.text(&[String::from("GOOD")]).unwrap().unwrap();
        assert_eq!(Config::parse(&taken).unwrap().shares.len(), 0);
        shares.write("share = \"x\"").unwrap();
        assert_eq!(shares.text(&[]).unwrap().as_deref(), Some(""));
        shares.write("no toml at all [").unwrap();
        assert_eq!(shares.text(&[]).unwrap(), None);
    }

    #[test]
    fn a_share_whose_folder_is_away_outlives_a_change_of_another() {
        let place = tempfile::tempdir().unwrap();
        let shares = NetworkShares::new(place.path(), vec![place.path().to_owned()]).unwrap();
        std::fs::create_dir(place.path().join("there")).unwrap();
        let section = |name: &str| {
            format!("[[share]]\nname = \"{name}\"\npath = {:?}\n", place.path().join(name))
        };
        shares.write(&(section("away") + &section("there"))).unwrap();
        let before = shares.text(&[]).unwrap().unwrap();
        assert!(!before.contains("away"));
        let left = |changed: &str| {
            let whole = shares.with_hidden(&before, changed).unwrap();
            let config = Config::parse(&whole).unwrap();
            config.shares.iter().map(|share| share.name.get_ref().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(left(""), ["away"]);
        assert_eq!(left(&section("there")), ["there", "away"]);
    }

    #[test]
    fn so_many_shares_are_added_and_no_more() {
        let place = tempfile::tempdir().unwrap();
        let shares = NetworkShares::new(place.path(), vec![place.path().to_owned()]).unwrap();
        let path = place.path().canonicalize().unwrap();
        let section = |at| format!("[[share]]\nname = \"s{at}\"\npath = {path:?}\n");
        let before: String = (0..NETWORK_SHARES - 1).map(section).collect();
        let none = Config::default();
        let add =
            |before: &str, name| shares.edited(before, &none, &add(name, path.to_str().unwrap()));
        let full = add(&before, "last").unwrap();
        assert!(matches!(add(&full, "more"), Err(NotEdited::Forbidden(_))));
        // A share that is not served now keeps its name, so the name cannot be added a second time.
        assert_eq!(add(&full, "S0"), Err(NotEdited::Exists));
    }
}
