//! Folders of the host as shares: what a `[[share]]` of the configuration opens, and the
//! users that its files are used as.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_posix::credentials::{self, Credentials};
use frevo_posix::{Case, NtAcls, PosixOptions, PosixVfs, Streams};
use frevo_store::Vfs;

use super::{Identities, NtAclsChoice, RunAsChoice, ShareSection, StreamsChoice, nearest};
use crate::shares::folders::ShareFolder;
use crate::shares::share::RunAs;
use crate::shares::user_folders::{USER, UserFolders};

impl From<StreamsChoice> for Streams {
    fn from(choice: StreamsChoice) -> Self {
        match choice {
            StreamsChoice::Xattr => Self::Xattr,
            StreamsChoice::Folder => Self::Folder,
            StreamsChoice::Off => Self::Off,
        }
    }
}

impl From<NtAclsChoice> for NtAcls {
    fn from(choice: NtAclsChoice) -> Self {
        match choice {
            NtAclsChoice::Xattr => Self::Xattr,
            NtAclsChoice::Posix => Self::Posix,
            NtAclsChoice::Off => Self::Off,
        }
    }
}

impl ShareSection {
    /// The options of the file system beneath.
    fn posix_options(&self) -> PosixOptions {
        let mut options = PosixOptions {
            read_only: self.read_only && self.write_list.is_empty(),
            ..PosixOptions::default()
        };
        if self.case_sensitive {
            options.case = Case::Sensitive;
        }
        if let Some(mode) = self.file_mode {
            options.create_mask = Some(mode.0);
        }
        if let Some(mode) = self.directory_mode {
            options.directory_mask = Some(mode.0);
        }
        options.dos_attributes = self.dos_attributes.unwrap_or(options.dos_attributes);
        options.hide_dot_files = self.hide_dot_files.unwrap_or(options.hide_dot_files);
        options.hide_files.clone_from(&self.hide_files);
        options.veto.clone_from(&self.veto);
        options.short_names = self.short_names;
        options.list_ea_sizes = self.list_ea_sizes;
        options.follow_symlinks_inside = self.follow_symlinks;
        options.snapshots = self.snapshots.as_ref().map(|path| path.0.clone());
        options.guarded.clone_from(&self.guarded);
        options.recycle = self.recycle.as_ref().map(|recycle| recycle.folder.0.clone());
        options.bins.clone_from(&self.bins);
        options.host_changes = self.host_changes.unwrap_or(options.host_changes);
        options.nt_acls = self.nt_acls.map_or(options.nt_acls, Into::into);
        options.posix_locks = self.posix_locks;
        options.streams = self.streams.map_or(options.streams, Into::into);
        options
    }

    /// As whom files are used.
    ///
    /// # Errors
    /// Why that cannot be done here, for people.
    pub fn identities(&self) -> Result<Identities, String> {
        let is_user = self.run_as == Some(RunAsChoice::User);
        if !is_user && self.force_user.is_none() {
            return Ok(Identities::default());
        }
        let key = if is_user { "run_as = \"user\"" } else { "force_user" };
        credentials::check().map_err(|why| {
            format!("{key} is not possible here: {why}; start frevo as root, or remove the key")
        })?;
        let group = match &self.force_group {
            Some(name) => {
                let name = name.get_ref();
                let group = frevo_posix::group_id(name).map_err(|errno| {
                    format!("force_group: cannot look up the group {name}: {errno}")
                })?;
                Some(group.ok_or_else(|| format!("force_group: this host has no group {name}"))?)
            }
            None => None,
        };
        let run_as = match &self.force_user {
            None => RunAs::User,
            Some(name) => {
                let name = name.get_ref();
                let user = frevo_posix::user(name)
                    .map_err(|errno| {
                        format!("force_user: cannot look up the user {name}: {errno}")
                    })?
                    .ok_or_else(|| format!("force_user: this host has no user {name}"))?;
                let gid = group.unwrap_or(user.gid);
                let one = Credentials::new(user.uid, gid, &user.groups);
                RunAs::One(Arc::new(one.ok_or("force_user must not be root")?))
            }
        };
        Ok(Identities { run_as, force_group: group })
    }

    /// True when both share one folder in the same way, so that one opened folder serves both. Other
    /// shares count only where the folder has snapshots or recycle bins of theirs in it.
    pub fn is_same_folder(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.posix_options(), other.posix_options());
        if self.path.get_ref() != other.path.get_ref() {
            return false;
        }
        // With one folder for each user, the share has no folder yet that could be compared.
        if self.user_part().is_none() {
            let folder = self.path.get_ref();
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

    /// True when both have the same keys.
    pub fn has_same_keys(&self, other: &Self) -> bool {
        let own = |share: &Self| Self { bins: Vec::new(), guarded: Vec::new(), ..share.clone() };
        own(self) == own(other)
    }

    /// The folders of users, for a path with `{user}`.
    #[doc(hidden)]
    pub fn user_folders(&self) -> Option<UserFolders> {
        let (folder, part) = self.user_part()?;
        let options = self.posix_options();
        let open = move |account: &str| -> Option<Arc<dyn Vfs>> {
            let part = PathBuf::from(part.to_str()?.replace(USER, account));
            let path = folder.join(&part);
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

    /// Opens the folder. Of a path with `{user}`, the folder above all users is opened, for
    /// reading: each user gets another one.
    ///
    /// # Errors
    /// When it is not there, no folder, or may not be used.
    pub fn open_folder(&self) -> Result<Arc<dyn Vfs>, FolderFault> {
        let path = &self.shared_folder();
        let fault = |why| FolderFault { path: path.clone(), why };
        let metadata = std::fs::metadata(path).map_err(|error| fault(Why::of(path, error)))?;
        if !metadata.is_dir() {
            return Err(fault(Why::NotAFolder));
        }
        drop(std::fs::read_dir(path).map_err(|error| fault(Why::of(path, error)))?);
        let mut options = self.posix_options();
        options.read_only |= self.user_part().is_some();
        let (folder, beneath) = (path.clone(), self.beneath.clone());
        let opener = move || open_beneath(&folder, beneath.as_deref(), options.clone());
        let folder = ShareFolder::open(path, Box::new(opener));
        Ok(Arc::new(folder.map_err(|error| fault(Why::of(path, error)))?))
    }
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
pub struct FolderFault {
    /// The path of the folder.
    pub path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Missing { near: Option<PathBuf> },
    NotAFolder,
    Forbidden,
    Other(io::Error),
}

impl Why {
    fn of(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing { near: near(path) },
            io::ErrorKind::NotADirectory => Self::NotAFolder,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other(error),
        }
    }
}

impl FolderFault {
    /// True for a folder that is missing.
    pub const fn is_missing(&self) -> bool {
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
            Why::Other(error) => write!(f, "{path} cannot be shared: {error}"),
        }
    }
}

impl std::error::Error for FolderFault {}

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
    use frevo_store::vfs::{Existence, OpenHow};
    use frevo_store::{Fault, Name};

    use super::*;
    use crate::base::limits::FOLDER_IDLE_LOOKS;
    use crate::config::{Config, open_share};
    use crate::shares::folders::{Look, look_at_folder};

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
                plain.iter().zip(&changed).map(|(old, new)| old.is_same_folder(new)).collect();
            assert_eq!(folders, [false, false, true, false], "{keys}");
            let same: Vec<bool> =
                plain.iter().zip(&changed).map(|(old, new)| old.has_same_keys(new)).collect();
            assert_eq!(same, [true, false, true, true], "{keys}");
            assert!(changed.iter().zip(shares(keys)).all(|(old, new)| old.is_same_folder(&new)));
        }
    }

    /// Tests that the folder of a user is compared with its path while the user is connected.
    #[test]
    fn folders_of_users_are_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("ann");
        std::fs::create_dir(&folder).unwrap();
        let share = ShareSection::new("homes".parse().unwrap(), place.path().join("{user}"));
        let users = share.user_folders().unwrap();
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

    /// Tests that requests leave the core while their folder is closed, unless the key says another.
    #[test]
    fn a_closed_folder_is_opened_beside_the_core() {
        let place = tempfile::tempdir().unwrap();
        for (key, while_open, while_closed) in
            [(None, false, true), (Some(true), true, true), (Some(false), false, false)]
        {
            let mut section = ShareSection::new("a".parse().unwrap(), place.path().to_owned());
            section.off_core = key;
            let vfs = section.open_folder().unwrap();
            let share = open_share(&section, Arc::clone(&vfs), Identities::default());
            assert_eq!(share.pool().is_some(), while_open, "{key:?}");
            (0..=FOLDER_IDLE_LOOKS).for_each(|_| look_at_folder(&*vfs, Look::Timed));
            assert_eq!(share.pool().is_some(), while_closed, "{key:?}");
        }
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
            share.open_folder().is_ok()
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
