//! The plan of a split: the folder, its new place, and the link between them, checked before anything changes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

use frevo_config::{Config, NamespaceSection, ShareSection, USER, nearest};
use frevo_posix::is_own_folder;
use frevo_server::{EntryPath, TargetName};
use frevo_wire::fscc::fold_name;
use sha2::{Digest as _, Sha256};

use super::folder::Folder;
use super::streams;
use super::tree::mount_of;
use crate::accounts::host_name;
use crate::exit::{Exit, Failure};
use crate::namespaces::sections::{parse_path, usage};

/// The folder of ext4 for files without a name, in the root of each of its file systems.
const LOST: &str = "lost+found";

/// A split that was found possible.
#[derive(Debug)]
pub(super) struct Plan {
    /// The namespace and the path of the link, as the folders are spelled on the disk.
    pub(super) link: EntryPath,
    pub(super) target: TargetName,
    pub(super) from: ShareSection,
    pub(super) to: ShareSection,
    pub(super) source: Source,
    pub(super) destination: Destination,
    /// The name of the folder that holds what is begun, in the side folders of both shares.
    pub(super) id: String,
}

/// The folder that moves.
#[derive(Debug)]
pub(super) struct Source {
    /// The folder of the share.
    pub(super) root: Folder,
    /// The folder in which the moving folder is.
    pub(super) above: Folder,
    pub(super) name: String,
}

impl Source {
    pub(super) fn path(&self) -> PathBuf {
        self.above.path.join(&self.name)
    }
}

/// The folder that the entries of the moving folder go to.
#[derive(Debug)]
pub(super) struct Destination {
    /// The folder of the share.
    pub(super) root: Folder,
    /// Names from there on.
    pub(super) folders: Vec<String>,
    /// The entries that may be in it before the split.
    ignored: BTreeSet<String>,
}

impl Destination {
    pub(super) fn path(&self) -> PathBuf {
        self.folders.iter().fold(self.root.path.clone(), |path, name| path.join(name))
    }

    /// Opens the folder. None if it is not there.
    pub(super) fn find(&self) -> Result<Option<Folder>, Failure> {
        let mut folder = self.root.open(OsStr::new("."))?;
        folder.path.clone_from(&self.root.path);
        for name in &self.folders {
            match folder.find(OsStr::new(name))? {
                Some(inner) => folder = inner,
                None => return Ok(None),
            }
        }
        Ok(Some(folder))
    }

    /// Opens the folder, and makes it if it is not there. Those on the way have the rights of the one above.
    pub(super) fn make(&self) -> Result<Folder, Failure> {
        let mut folder = self.root.open(OsStr::new("."))?;
        folder.path.clone_from(&self.root.path);
        for name in &self.folders {
            let name = OsStr::new(name);
            let is_there = folder.has(name)?;
            let inner = folder.make(name)?;
            if !is_there {
                inner.be_as(&folder)?;
                folder.sync()?;
            }
            folder = inner;
        }
        Ok(folder)
    }

    /// True for an entry that is no file of the share's users.
    pub(super) fn ignores(&self, name: &OsStr) -> bool {
        is_own_folder(name.as_encoded_bytes())
            || name.to_str().is_some_and(|name| self.ignored.contains(name))
    }

    /// Refuses a folder that is in use: its files and those that come would be mixed.
    pub(super) fn check_empty(&self) -> Result<(), Failure> {
        let Some(folder) = self.find()? else { return Ok(()) };
        if mount_of(&folder)? != mount_of(&self.root)? {
            let text = format!(
                "a file system is mounted in the share on the way to {}; share it, and move the \
                 folder to that share",
                folder.path.display()
            );
            return Err(Failure::new(Exit::Failed, text));
        }
        let side = streams::side_of(&self.root)?;
        let own = streams::directory_of(side.as_ref(), folder.fd(), &folder.path)?;
        if own.map(|own| streams::streams_in(&own)).transpose()?.is_some_and(|all| !all.is_empty())
        {
            let text = format!(
                "{} has named streams of its own, which would be lost; remove them first",
                folder.path.display()
            );
            return Err(Failure::new(Exit::Failed, text));
        }
        let names = folder.names()?;
        match names.iter().find(|name| !self.ignores(name)) {
            None => Ok(()),
            Some(name) => {
                let text = format!(
                    "{} is not empty: it has {}; name a folder that is not there yet, such as \
                     --to SHARE/FOLDER",
                    folder.path.display(),
                    name.display()
                );
                Err(Failure::new(Exit::Failed, text))
            }
        }
    }
}

/// The words of the command line.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// The namespace and the folders below it.
    pub(super) path: &'a str,
    /// The share, and folders in it.
    pub(super) to: &'a str,
    pub(super) server_name: Option<&'a str>,
}

impl Plan {
    pub(super) fn new(config: &Config, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let (namespace, path) = split_path(wanted.path)?;
        let section = namespace_of(config, namespace)?;
        let name = section.name.get_ref().as_str();
        let from = section.share(&config.shares).ok_or_else(|| {
            let text = format!("the namespace {name} is no share, so that no folder is in it");
            Failure::new(Exit::Usage, text)
        })?;
        if section.is_networked && from.cluster {
            let text = format!(
                "the namespace {name} was made over the network, and is the cluster's; write it into the \
                 configuration of each node instead to split a folder off"
            );
            return Err(Failure::new(Exit::Failed, text));
        }
        let (share, folders) = wanted.to.split_once(['/', '\\']).unwrap_or((wanted.to, ""));
        let to = share_of(config, share)?;
        check_shares(from, to)?;
        let source = source_of(from, &parse_path(name, path)?)?;
        let folders: Vec<String> = names_of(folders)?;
        let destination = Destination {
            root: Folder::of_share(to.path.get_ref())?,
            ignored: ignored(to),
            folders,
        };
        check_places(config, &source, &destination)?;
        let below = source.path();
        let below = below.strip_prefix(&source.root.path).unwrap_or(&below);
        let Some(below) = below.to_str() else {
            let text = format!(
                "{} is not valid UTF-8, so that no link can have this name",
                below.display()
            );
            return Err(Failure::new(Exit::Failed, text));
        };
        let link = parse_path(name, below)?;
        let server = server_name(config, to, wanted.server_name);
        let share = to.name.get_ref().as_str();
        let parts = std::iter::once(share).chain(destination.folders.iter().map(String::as_str));
        let share = parts.collect::<Vec<_>>().join("\\");
        let target = TargetName::parse(&format!(r"\\{server}\{share}"))
            .map_err(|_| usage(format!(r"\\{server}\{share} cannot be the target of a link")))?;
        let id = id_of(&link, &target);
        let (from, to) = (from.clone(), to.clone());
        Ok(Self { link, target, from, to, source, destination, id })
    }
}

/// The namespace, and the path below it.
fn split_path(path: &str) -> Result<(&str, &str), Failure> {
    let bare = path.trim_matches(['/', '\\']);
    bare.split_once(['/', '\\']).ok_or_else(|| {
        usage(format!("{path} names no folder; write NAMESPACE/FOLDER, such as files/teams/red"))
    })
}

fn names_of(folders: &str) -> Result<Vec<String>, Failure> {
    let names = folders.split(['/', '\\']).filter(|name| !name.is_empty()).map(str::to_owned);
    let names: Vec<String> = names.collect();
    match names.iter().find(|name| matches!(&***name, "." | "..") || is_own_folder(name.as_bytes()))
    {
        Some(name) => Err(usage(format!("{name} cannot be in --to"))),
        None => Ok(names),
    }
}

fn namespace_of<'a>(config: &'a Config, name: &str) -> Result<&'a NamespaceSection, Failure> {
    let names = || config.namespaces.iter().map(|one| one.name.get_ref().as_str());
    let found = config.namespaces.iter().find(|one| is_same(one.name.get_ref().as_str(), name));
    found.ok_or_else(|| not_found("namespace", name, names()))
}

fn share_of<'a>(config: &'a Config, name: &str) -> Result<&'a ShareSection, Failure> {
    let names = || config.shares.iter().map(|one| one.name.get_ref().as_str());
    let found = config.shares.iter().find(|one| is_same(one.name.get_ref().as_str(), name));
    found.ok_or_else(|| not_found("share", name, names()))
}

fn not_found<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let near = nearest(name, known);
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Failure::new(Exit::NotFound, format!("the configuration has no {what} {name}{near}"))
}

fn is_same(one: &str, other: &str) -> bool {
    fold_name(one) == fold_name(other)
}

fn check_shares(from: &ShareSection, to: &ShareSection) -> Result<(), Failure> {
    for share in [from, to] {
        if share.path.get_ref().to_string_lossy().contains(USER) {
            let name = share.name.get_ref();
            let text =
                format!("the share {name} has a folder for each user; no folder moves there");
            return Err(Failure::new(Exit::Usage, text));
        }
    }
    if from.name == to.name || is_same(from.name.get_ref().as_str(), to.name.get_ref().as_str()) {
        let name = to.name.get_ref();
        let text =
            format!("the folder is in the share {name} already; name another share with --to");
        return Err(usage(text));
    }
    Ok(())
}

/// Finds the folder that moves, without regard to case, over no symbolic link. Its last folder need not be
/// there: a split that was interrupted has it aside.
fn source_of(share: &ShareSection, path: &EntryPath) -> Result<Source, Failure> {
    let root = Folder::of_share(share.path.get_ref())?;
    let mut above = root.open(OsStr::new("."))?;
    above.path.clone_from(&root.path);
    let mut names: Vec<&str> = path.link.split('\\').collect();
    let last = names.pop().unwrap_or_default();
    for name in names {
        let name = spelled(&above, name)?;
        let inner = above.open(OsStr::new(&name))?;
        above = inner;
    }
    let name = spelled(&above, last)?;
    let first = path.link.split('\\').next().unwrap_or_default();
    let is_bin = share.recycle.as_ref().is_some_and(|bin| is_same(bin.folder.as_str(), first));
    if is_own_folder(first.as_bytes()) || is_own_folder(name.as_bytes()) || is_bin {
        return Err(usage(format!("{name} is a folder of the server's own")));
    }
    if mount_of(&above)? != mount_of(&root)? {
        let text = format!(
            "a file system is mounted in the share on the way to {}; share that file system, and \
             make a link to the share: frevo namespace add",
            above.at(OsStr::new(&name)).display()
        );
        return Err(Failure::new(Exit::Failed, text));
    }
    Ok(Source { root, above, name })
}

/// The name of an entry as it is on the disk. The name itself if there is no such entry.
fn spelled(folder: &Folder, name: &str) -> Result<String, Failure> {
    if folder.has(OsStr::new(name))? {
        return Ok(name.to_owned());
    }
    let names = folder.names()?;
    let found = names.iter().filter_map(|known| known.to_str());
    Ok(found.into_iter().find(|known| is_same(known, name)).unwrap_or(name).to_owned())
}

/// Entries that a share without files of its users has.
fn ignored(share: &ShareSection) -> BTreeSet<String> {
    let bin = share.recycle.as_ref().map(|recycle| recycle.folder.as_str().to_owned());
    bin.into_iter().chain([String::from(LOST)]).collect()
}

/// Refuses places inside each other, and a folder in which there is another share.
fn check_places(
    config: &Config,
    source: &Source,
    destination: &Destination,
) -> Result<(), Failure> {
    let (from, to) = (source.path(), destination.path());
    if to.starts_with(&from) || from.starts_with(&to) {
        let (from, to) = (from.display(), to.display());
        let text = format!("{to} and {from} are inside each other; name another place with --to");
        return Err(usage(text));
    }
    for share in &config.shares {
        let folder = share.shared_folder();
        let folder = std::fs::canonicalize(&folder).unwrap_or(folder);
        if folder.starts_with(&from) {
            let (name, from) = (share.name.get_ref(), from.display());
            let text = format!(
                "the share {name} is in {from}; remove it from the configuration first, or move a \
                 folder without it"
            );
            return Err(Failure::new(Exit::Failed, text));
        }
    }
    Ok(())
}

/// The name of this server in targets.
fn server_name(config: &Config, to: &ShareSection, chosen: Option<&str>) -> String {
    let cluster = config.cluster.name.as_ref().filter(|_| to.cluster).map(|name| name.0.clone());
    let named = || config.server.target_names.iter().flatten().next().cloned();
    let own = || config.server.name.as_ref().map(|name| name.as_str().to_owned());
    chosen
        .map(str::to_owned)
        .or(cluster)
        .or_else(named)
        .or_else(own)
        .unwrap_or_else(|| host_name().as_str().to_owned())
}

/// The name of the folder that holds what is begun: another one for each link and place.
fn id_of(link: &EntryPath, target: &TargetName) -> String {
    let all = [&*link.namespace, &*link.link, &*target.share].map(fold_name).join("\n");
    let hash = Sha256::digest(all.as_bytes());
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("split-{hash}")
}

/// True for the name of a folder that holds what is begun.
pub(super) fn is_id(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("split-"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(server: &str, places: &[&Path]) -> Config {
        let [files, red] = places else { panic!("two places") };
        let text = format!(
            "[server]\n{server}[[share]]\nname = \"files\"\npath = {files:?}\n\
             [[share]]\nname = \"red\"\npath = {red:?}\n\
             [[share]]\nname = \"each\"\npath = \"/srv/{{user}}\"\n\
             [[namespace]]\nname = \"files\"\n[[namespace]]\nname = \"own\"\n"
        );
        Config::parse(&text).unwrap()
    }

    fn plan(config: &Config, path: &str, to: &str) -> Result<Plan, Failure> {
        Plan::new(config, &Wanted { path, to, server_name: None })
    }

    #[test]
    fn a_plan_has_the_names_of_the_disk() {
        let place = tempfile::tempdir().unwrap();
        let (files, red) = (place.path().join("files"), place.path().join("red"));
        std::fs::create_dir_all(files.join("Teams/Red")).unwrap();
        std::fs::create_dir(&red).unwrap();
        let config = config("name = \"box\"\ntarget_names = [\"nas\", \"x\"]\n", &[&files, &red]);
        let one = plan(&config, "/FILES/teams\\red/", "RED/new/er").unwrap();
        assert_eq!((&*one.link.link, &*one.link.namespace), (r"Teams\Red", "files"));
        assert_eq!(one.target.unc(), r"\\nas\red\new\er");
        assert!(one.source.path().ends_with("files/Teams/Red"));
        assert!(
            one.destination.path().ends_with("red/new/er")
                && one.destination.find().unwrap().is_none()
        );
        // A later call finds what this one has begun, and one with another target does not.
        assert_eq!(plan(&config, "files/Teams/Red", "red/NEW/er").unwrap().id, one.id);
        assert_ne!(plan(&config, "files/Teams/Red", "red").unwrap().id, one.id);
        for (path, to, why) in [
            ("files", "red", "names no folder"),
            ("files/../red", "red", "not the path of a link"),
            ("own/a", "red", "is no share"),
            ("files/Teams", "each", "for each user"),
            ("files/Teams", "files", "already"),
            ("files/Teams", "red/..", "cannot be in --to"),
            ("files/Teams", "red/.frevo-streams", "cannot be in --to"),
        ] {
            let failure = plan(&config, path, to).unwrap_err();
            assert!(failure.message.contains(why), "{path} {to}: {failure}");
        }
    }

    #[test]
    fn places_are_apart() {
        let place = tempfile::tempdir().unwrap();
        let red = place.path().join("a/red");
        std::fs::create_dir_all(&red).unwrap();
        let inside = plan(&config("", &[place.path(), &red]), "files/a", "red").unwrap_err();
        assert!(inside.message.contains("inside each other"), "{inside}");
        std::fs::create_dir(place.path().join("b")).unwrap();
        let other =
            plan(&config("", &[&place.path().join("a"), place.path()]), "files/red", "red/b/c");
        assert!(other.is_ok(), "{other:?}");
    }
}
