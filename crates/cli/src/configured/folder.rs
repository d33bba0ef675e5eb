//! Folders of the host that sections of shares name.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_config::{
    HomeSection, NtAclsChoice, RunAsChoice, ShareSection, StreamsChoice, USER, nearest,
};
use frevo_posix::{
    Case, HomeOwner, ModeAttributes, NewHome, NtAcls, PosixOptions, PosixVfs, Streams,
};
use frevo_server::folders::ShareFolder;
use frevo_server::share::UserFolders;
use frevo_store::Vfs;
use rustix::fs::{Access, AtFlags, CWD};

const fn streams(choice: StreamsChoice) -> Streams {
    match choice {
        StreamsChoice::Xattr => Streams::Xattr,
        StreamsChoice::Folder => Streams::Folder,
        StreamsChoice::Off => Streams::Off,
    }
}

const fn nt_acls(choice: NtAclsChoice) -> NtAcls {
    match choice {
        NtAclsChoice::Xattr => NtAcls::Xattr,
        NtAclsChoice::Posix => NtAcls::Posix,
        NtAclsChoice::Off => NtAcls::Off,
    }
}

/// The options of the file system beneath.
fn posix_options(section: &ShareSection) -> PosixOptions {
    let mut options = PosixOptions {
        read_only: section.read_only && section.write_list.is_empty(),
        ..PosixOptions::default()
    };
    if section.case_sensitive {
        options.case = Case::Sensitive;
    }
    if let Some(mode) = section.file_mode {
        options.create_mask = Some(mode.0);
    }
    if let Some(mode) = section.directory_mode {
        options.directory_mask = Some(mode.0);
    }
    options.forced_file_mode = section.force_file_mode.map_or(0, |mode| mode.0);
    options.forced_directory_mode = section.force_directory_mode.map_or(0, |mode| mode.0);
    options.inherit_modes = section.inherit_modes;
    options.inherit_owner = section.inherit_owner;
    options.inherit_lists = section.inherit_acls;
    options.mode_attributes = ModeAttributes {
        archive: section.map_archive,
        system: section.map_system,
        hidden: section.map_hidden,
        read_only: section.map_readonly,
    };
    options.writers_set_modes = section.dos_filemode;
    options.dos_attributes = section.dos_attributes.unwrap_or(options.dos_attributes);
    options.hide_dot_files = section.hide_dot_files.unwrap_or(options.hide_dot_files);
    options.hide_files.clone_from(&section.hide_files);
    options.veto.clone_from(&section.veto);
    options.short_names = section.short_names;
    options.list_ea_sizes = section.list_ea_sizes;
    options.follow_symlinks_inside = section.follow_symlinks;
    options.snapshots = section.snapshot_folders();
    options.guarded.clone_from(&section.guarded);
    options.recycle = section.recycle.as_ref().map(|recycle| recycle.folder.as_str().to_owned());
    options.bins.clone_from(&section.bins);
    options.host_changes = section.host_changes.unwrap_or(options.host_changes);
    options.nt_acls = section.nt_acls.map_or(options.nt_acls, nt_acls);
    options.posix_locks = section.posix_locks;
    options.streams = section.streams.map_or(options.streams, streams);
    options.shared_storage = section.cluster;
    options
}

/// True when both share one folder in the same way, so that one opened folder serves both. Other
/// shares count only where the folder has snapshots or recycle bins of theirs in it.
pub(crate) fn is_same(one: &ShareSection, other: &ShareSection) -> bool {
    let (mut ours, mut theirs) = (posix_options(one), posix_options(other));
    if one.path.get_ref() != other.path.get_ref() {
        return false;
    }
    // If each user has their own folder, the share's path contains a placeholder and no folder can
    // be compared.
    if one.user_part().is_none() {
        let folder = one.path.get_ref();
        if !frevo_posix::guard_alike(folder, &ours, &theirs) {
            return false;
        }
        for options in [&mut ours, &mut theirs] {
            options.guarded.clear();
            options.bins.clear();
        }
    }
    format!("{ours:?}") == format!("{theirs:?}")
}

/// The folders of users, for a path with `{user}`.
pub(crate) fn of_users(section: &ShareSection) -> Option<UserFolders> {
    let (folder, part) = section.user_part()?;
    let options = posix_options(section);
    let homes = section.home.clone().map(|home| Homes::of(section, home));
    let open = move |account: &str| -> Option<Arc<dyn Vfs>> {
        let part = PathBuf::from(part.to_str()?.replace(USER, account));
        let path = folder.join(&part);
        if let Some(homes) = &homes {
            homes.make(&folder, account);
        }
        let (folder, options) = (folder.clone(), options.clone());
        let opener = move || PosixVfs::open_part(&folder, &part, options.clone());
        match ShareFolder::open(&path, Box::new(opener)) {
            Ok(folder) => Some(Arc::new(folder)),
            Err(error) => {
                tracing::info!(target: "frevo::tree", path = %path.display(),
                    "the folder of a user cannot be opened: {error}");
                None
            }
        }
    };
    Some(UserFolders::new(Arc::new(open)))
}

/// The homes that a share has made.
struct Homes {
    home: HomeSection,
    owner: OwnerOfHomes,
}

/// The owner of homes: the user as which their files are used.
enum OwnerOfHomes {
    /// The user of this process.
    Server,
    /// The user of the host of the account's name.
    Account,
    /// One user of the host.
    One(String),
}

impl Homes {
    fn of(section: &ShareSection, home: HomeSection) -> Self {
        let owner = match &section.force_user {
            Some(name) => OwnerOfHomes::One(name.get_ref().clone()),
            None if section.run_as == Some(RunAsChoice::User) => OwnerOfHomes::Account,
            None => OwnerOfHomes::Server,
        };
        Self { home, owner }
    }

    /// Makes the home of an account, if there is none. The log tells of it, and of a failure.
    fn make(&self, folder: &Path, account: &str) {
        if folder.join(account).symlink_metadata().is_ok() {
            return;
        }
        let made = self.owner_of(account).and_then(|owner| {
            let (mode, skeleton) = (self.home.mode(), self.home.skeleton.as_deref());
            let home = NewHome { mode, owner, skeleton };
            frevo_posix::make_home(folder, account, &home).map_err(|error| error.to_string())
        });
        let path = folder.join(account);
        match made {
            Ok(true) => {
                tracing::info!(target: "frevo::tree", path = %path.display(), "a home was made");
            }
            Ok(false) => {}
            Err(why) => tracing::error!(target: "frevo::tree", path = %path.display(), %why,
                "a home cannot be made"),
        }
    }

    /// The owner of an account's home; None for the user of this process.
    fn owner_of(&self, account: &str) -> Result<Option<HomeOwner>, String> {
        let name: &str = match &self.owner {
            OwnerOfHomes::Server => return Ok(None),
            OwnerOfHomes::Account => account,
            OwnerOfHomes::One(name) => name,
        };
        let user = frevo_posix::user(name)
            .map_err(|errno| format!("the user {name} cannot be looked up: {errno}"))?
            .ok_or_else(|| format!("this host has no user {name}"))?;
        Ok(Some(HomeOwner { uid: user.uid, gid: user.gid }))
    }
}

/// Opens the folder. Of a path with `{user}`, the folder above all users is opened, for
/// reading: each user gets another one.
///
/// # Errors
/// When it is not there, no folder, or may not be used.
pub(crate) fn open(section: &ShareSection) -> Result<Arc<dyn Vfs>, FolderFault> {
    let path = &section.shared_folder();
    let fault = |why| FolderFault { path: path.clone(), why };
    let metadata = std::fs::metadata(path).map_err(|error| fault(Why::of(path, error)))?;
    if !metadata.is_dir() {
        return Err(fault(Why::NotAFolder));
    }
    drop(std::fs::read_dir(path).map_err(|error| fault(Why::of(path, error)))?);
    let mut options = posix_options(section);
    options.read_only |= section.user_part().is_some();
    let (folder, beneath) = (path.clone(), section.beneath.clone());
    let opener = move || open_beneath(&folder, beneath.as_deref(), options.clone());
    let folder = ShareFolder::open(path, Box::new(opener));
    Ok(Arc::new(folder.map_err(|error| fault(Why::of(path, error)))?))
}

/// Opens a folder; below `root`, where it is given, without following links.
fn open_beneath(path: &Path, root: Option<&Path>, options: PosixOptions) -> io::Result<PosixVfs> {
    let Some(root) = root else { return PosixVfs::open_root(path, options) };
    match path.strip_prefix(root) {
        Ok(part) if part.as_os_str().is_empty() => PosixVfs::open_root(root, options),
        Ok(part) => PosixVfs::open_part(root, part, options),
        Err(_) => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
    }
}

/// A folder that cannot be shared.
#[derive(Debug)]
pub(crate) struct FolderFault {
    /// The path of the folder.
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Missing {
        near: Option<PathBuf>,
    },
    NotAFolder,
    Forbidden,
    /// The rights of files allow it, and the confinement of this process does not.
    Confined,
    Other(io::Error),
}

impl Why {
    fn of(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing { near: near(path) },
            io::ErrorKind::NotADirectory => Self::NotAFolder,
            // access(2) knows nothing of Landlock.
            io::ErrorKind::PermissionDenied if may_read(path) => Self::Confined,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other(error),
        }
    }
}

impl FolderFault {
    /// True for a folder that is missing.
    pub(crate) const fn is_missing(&self) -> bool {
        matches!(self.why, Why::Missing { .. })
    }
}

impl fmt::Display for FolderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Missing { near: Some(near) } => {
                write!(f, "there is no folder {path}; did you mean {}?", near.display())
            }
            Why::Missing { near: None } => write!(f, "there is no folder {path}"),
            Why::NotAFolder => write!(f, "{path} is not a folder; only folders can be shared"),
            Why::Forbidden => write!(
                f,
                "{path} cannot be read by the user that runs frevo; give this user read and \
                 search permission (rx) on the folder, and search permission (x) on all folders \
                 above it"
            ),
            Why::Confined => write!(
                f,
                "{path} was made, or its disk mounted, after frevo was started, and frevo is confined \
                 to the folders of its start; restart frevo to serve it"
            ),
            Why::Other(error) => write!(f, "{path} cannot be shared: {error}"),
        }
    }
}

impl std::error::Error for FolderFault {}

/// True if the rights of files let this process read a folder.
fn may_read(path: &Path) -> bool {
    let access = Access::READ_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// A folder that exists and is called nearly so.
fn near(path: &Path) -> Option<PathBuf> {
    /// Entries looked at; a guess is not worth more.
    const ENTRIES_MAX: usize = 10_000;
    let parent = path.parent()?;
    let typed = path.file_name()?.to_str()?;
    let folders: Vec<String> = std::fs::read_dir(parent)
        .ok()?
        .take(ENTRIES_MAX)
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    nearest(typed, folders.iter().map(String::as_str)).map(|name| parent.join(name))
}

#[cfg(test)]
mod tests {
    use frevo_config::Config;
    use frevo_server::folders::{Look, look_at_folder};
    use frevo_store::vfs::{Existence, OpenHow};
    use frevo_store::{Fault, Name};

    use super::*;

    /// Tests that a key of one share, here of its recycle bin and its snapshots, changes that share
    /// and those around it, and no other.
    #[test]
    fn other_shares_change_a_share_only_where_they_are_in_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for folder in ["above/one", "beside"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let shares = |keys: &str| {
            let share = |name: &str, folder: &str, keys: &str| {
                let path = root.join(folder);
                format!("[[share]]\nname = \"{name}\"\npath = {path:?}\n{keys}\n")
            };
            let text = share("above", "above", "")
                + &share("one", "above/one", keys)
                + &share("beside", "beside", "")
                + &share("homes", "homes/{user}", "");
            let mut config = Config::parse(&text).unwrap();
            config.guard_folders();
            config.shares
        };
        let plain = shares("");
        for keys in ["recycle = true", "snapshots = \".snapshots/@GMT-%Y.%m.%d-%H.%M.%S\""] {
            let changed = shares(keys);
            let folders: Vec<bool> =
                plain.iter().zip(&changed).map(|(old, new)| is_same(old, new)).collect();
            assert_eq!(folders, [false, false, true, false], "{keys}");
            let same: Vec<bool> =
                plain.iter().zip(&changed).map(|(old, new)| old.has_same_keys(new)).collect();
            assert_eq!(same, [true, false, true, true], "{keys}");
            assert!(changed.iter().zip(shares(keys)).all(|(old, new)| is_same(old, &new)));
        }
    }

    /// Tests that the folder of a user is compared with its path while the user is connected.
    #[test]
    fn folders_of_users_are_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("ann");
        std::fs::create_dir(&folder).unwrap();
        let share = ShareSection::new("homes".parse().unwrap(), place.path().join("{user}"));
        let users = of_users(&share).unwrap();
        let ann = users.of("ann").unwrap();
        let how = OpenHow { existence: Existence::Either, write: true, ..OpenHow::LOOK };
        let make = || ann.open(&Name::from_stored(String::from("a")), &how).map(drop);
        assert_eq!(make(), Ok(()));
        std::fs::rename(&folder, place.path().join("old")).unwrap();
        let look = || users.in_use().iter().for_each(|vfs| look_at_folder(&**vfs, Look::Untimed));
        look();
        assert_eq!(make(), Err(Fault::Dismounted));
        std::fs::create_dir(&folder).unwrap();
        look();
        assert_eq!(make(), Ok(()));
        assert!(folder.join("a").exists());
    }

    /// A home is made once, for an account alone.
    #[test]
    fn homes_are_made_when_they_are_looked_for() {
        let place = tempfile::tempdir().unwrap();
        let (homes, skeleton) = (place.path().join("homes"), place.path().join("skel"));
        for folder in [&homes, &skeleton] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(skeleton.join("welcome"), "hello").unwrap();
        let mut share = ShareSection::new("homes".parse().unwrap(), homes.join("{user}"));
        assert!(of_users(&share).unwrap().of("ann").is_none());
        share.home = Some(HomeSection { mode: None, skeleton: Some(skeleton) });
        let users = of_users(&share).unwrap();
        assert!(users.of("ann").is_some());
        assert_eq!(std::fs::read_to_string(homes.join("ann/welcome")).unwrap(), "hello");
        for other in ["..", ".ann", "a/b", ""] {
            assert!(users.of(other).is_none(), "{other:?}");
        }
        assert_eq!(std::fs::read_dir(&homes).unwrap().count(), 1);
        // The host has no such user, so nobody could own the home.
        share.run_as = Some(RunAsChoice::User);
        assert!(of_users(&share).unwrap().of("no-such-user-here").is_none());
        assert!(!homes.join("no-such-user-here").exists());
    }

    /// The state after a check of the path, when a user puts a link there before it is opened.
    #[test]
    fn a_share_of_the_network_is_opened_without_links() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(place.path().join("outside/b")).unwrap();
        let opens = |path: PathBuf| {
            let mut share = ShareSection::new("new".parse().unwrap(), path);
            share.beneath = Some(root.clone());
            open(&share).is_ok()
        };
        assert!(opens(root.clone()) && opens(root.join("a/b")));
        assert!(!opens(place.path().join("outside/b")) && !opens(root.join("a/../..")));
        for target in ["../outside", "c"] {
            let _ = std::fs::rename(root.join("a"), root.join("c"));
            let _ = std::fs::remove_file(root.join("a"));
            std::os::unix::fs::symlink(target, root.join("a")).unwrap();
            assert!(root.join("a/b").is_dir());
            assert!(!opens(root.join("a/b")) && !opens(root.join("a")), "{target}");
        }
    }
}
