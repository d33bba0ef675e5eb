//! Rights that a configuration needs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use frevo_config::{Config, NtAclsChoice, RunAsChoice, ShareSection};

use crate::arguments::Serve;
use crate::config_checks::{folder_of_accounts, real};
use crate::config_sources::further_files;
use crate::serve::admin_interface;
use crate::serve::plan::Plan;
use crate::{keytab, state};

/// Entries of a folder that are looked at; a folder with more is none for a few files.
const ENTRIES_MAX: usize = 1_000;

/// Folders, files and privileges that serving a configuration takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    /// Folders that are read and written.
    pub(super) written: Vec<PathBuf>,
    /// Folders and files that are read.
    pub(super) read: Vec<PathBuf>,
    /// Folders in which files are removed: that of the admin socket.
    pub(super) emptied: Vec<PathBuf>,
    /// Files lie in a folder that holds other users' secrets too: after they are
    /// replaced, a reload cannot read them.
    pub(super) read_once: Vec<PathBuf>,
    /// Files are used as other users.
    pub(super) acts_as_users: bool,
    /// RDMA devices are used.
    pub(super) uses_rdma: bool,
    /// Attributes are set that take CAP_SYS_ADMIN, and quotas.
    pub(super) sets_privileged_attributes: bool,
}

impl Needs {
    pub(super) fn of(plan: &Plan, arguments: &Serve) -> Self {
        let config = &plan.config;
        let mut needs = Self { uses_rdma: config.server.rdma == Some(true), ..Self::default() };
        for share in &config.shares {
            needs.add_share(share);
        }
        // Log rotation renames the audit file and sends SIGHUP, and the server makes a new one: so
        // the server needs write access to the folder.
        let log = config.audit.file.as_ref().map(|file| real(file.get_ref()));
        needs.written.extend(log.and_then(|log| Some(log.parent()?.to_owned())));
        let folders = config.server.confine_to.iter().chain(&config.server.share_roots);
        needs.written.extend(folders.map(|folder| real(folder)));
        if plan.has_state {
            needs.written.push(real(&state::dir_of(config)));
            needs.written.extend(folder_of_accounts(config).and_then(Result::ok));
        }
        for file in configuration(arguments) {
            needs.add_file(&file, is_own);
        }
        let further = further(config, arguments, plan.has_state);
        for file in further.iter().filter(|file| !needs.reaches(file)).collect::<Vec<_>>() {
            needs.add_file(file, |folder| is_own(folder) && holds_only(folder, &further));
        }
        // At a stop the server removes its socket only from a folder of its own: in other folders
        // the socket file stays, and the next start replaces it.
        let socket =
            admin_interface::socket_of(plan).and_then(|socket| std::path::absolute(socket).ok());
        let folder = socket.as_deref().and_then(Path::parent).filter(|folder| is_own(folder));
        needs.emptied.extend(folder.map(real));
        needs
    }

    /// The needs of one share.
    pub(super) fn of_share(share: &ShareSection) -> Self {
        let mut needs = Self::default();
        needs.add_share(share);
        needs
    }

    fn add_share(&mut self, share: &ShareSection) {
        let folder = real(&share.shared_folder());
        let is_read_only = share.read_only && share.write_list.is_empty();
        if is_read_only { &mut self.read } else { &mut self.written }.push(folder);
        self.read.extend(share.snapshot_folder().map(real));
        self.acts_as_users |= share.run_as == Some(RunAsChoice::User) || share.force_user.is_some();
        self.sets_privileged_attributes |= !is_read_only
            && !matches!(share.nt_acls, Some(NtAclsChoice::Posix | NtAclsChoice::Off));
    }

    /// True if the folders of a file are granted already.
    fn reaches(&self, file: &Path) -> bool {
        let granted = || self.written.iter().chain(&self.read);
        let is_within = |name: &PathBuf| granted().any(|folder| real(name).starts_with(folder));
        let folders = names_of(file).map(|name| name.parent().map(Path::to_owned));
        folders.iter().all(|folder| folder.as_ref().is_some_and(is_within))
    }

    /// The files that a reload reads, each by its name and by that of the file which a symbolic link
    /// leads to.
    pub(super) fn files(plan: &Plan, arguments: &Serve) -> Vec<PathBuf> {
        let mut files = configuration(arguments);
        files.extend(further(&plan.config, arguments, plan.has_state));
        files.iter().flat_map(|file| names_of(file)).map(|file| real(&file)).collect()
    }

    /// A file that a reload reads again. It is replaced by another one of its name,
    /// so its folder is needed where `is_own` holds; both folders where its name is a symbolic link.
    fn add_file(&mut self, file: &Path, is_own: impl Fn(&Path) -> bool) {
        for file in names_of(file) {
            match file.parent() {
                Some(folder) if is_own(folder) => self.read.push(real(folder)),
                _ => {
                    self.read.push(real(&file));
                    self.read_once.push(real(&file));
                }
            }
        }
        self.read_once.dedup();
    }
}

/// The configuration file and the folder of further ones. Programs that change the configuration
/// replace the file, so that its folder is needed whatever else it holds.
fn configuration(arguments: &Serve) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = arguments.config.iter().cloned().collect();
    // The folder of further configuration files is read, too.
    let further = arguments.config.iter().map(|file| further_files(file));
    files.extend(further.filter(|folder| folder.is_dir()));
    files
}

/// Files that the configuration names: passwords, keys, accounts.
fn further(config: &Config, arguments: &Serve, has_state: bool) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = arguments.password_file.iter().cloned().collect();
    files.extend(config.users.iter().map(|user| user.password_file.clone()));
    files.extend(config.server.user_map_file.clone());
    files.extend(keytab::path(config).map(Path::to_owned));
    if has_state {
        files.push(state::users_file_of(config));
    }
    files
}

/// A file's name, and that of the file which it leads to as a symbolic link.
fn names_of(file: &Path) -> [PathBuf; 2] {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let real = real(&absolute);
    [absolute, real]
}

/// True for a folder in which nothing lies but `files` and what editors and orchestrators leave beside
/// them: a confined server may read all that is below it.
fn holds_only(folder: &Path, files: &[PathBuf]) -> bool {
    let is_frevos = |name: &OsStr| name.as_encoded_bytes().starts_with(b"frevo");
    if folder.file_name().is_some_and(is_frevos) {
        return true;
    }
    let here: Vec<OsString> = files
        .iter()
        .flat_map(|file| names_of(file))
        .filter(|file| file.parent().is_some_and(|parent| real(parent) == real(folder)))
        .filter_map(|file| file.file_name().map(OsStr::to_owned))
        .collect();
    let is_of_one = |name: &OsStr| {
        // Versions of a mounted secret lie in folders such as `..data`; an editor's copies have names
        // such as `.password.swp` and `password~`.
        let name = name.as_encoded_bytes();
        let plain = name.strip_prefix(b".").unwrap_or(name);
        name.starts_with(b"..") || here.iter().any(|one| plain.starts_with(one.as_encoded_bytes()))
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let mut entries = entries.take(ENTRIES_MAX + 1).enumerate();
    entries.all(|(at, entry)| {
        at < ENTRIES_MAX && entry.is_ok_and(|entry| is_of_one(&entry.file_name()))
    })
}

/// True for a folder that is likely there for Frevo: not one of the system's at
/// the top (`/etc`, `/home`), and not a home.
fn is_own(folder: &Path) -> bool {
    let depth = folder.components().count();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let is_home = home.is_some_and(|home| home == folder)
        || (depth == 3 && folder.starts_with("/home"))
        || folder == Path::new("/var/lib")
        || folder == Path::new("/usr/local");
    depth > 2 && !is_home
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_others_are_not_granted_for_one_file() {
        for own in ["/etc/frevo", "/home/ann/frevo", "/srv/frevo/etc", "/usr/local/etc"] {
            assert!(is_own(Path::new(own)), "{own}");
        }
        for other in ["/", "/etc", "/tmp", "/root", "/home/ann", "/var/lib"] {
            assert!(!is_own(Path::new(other)), "{other}");
        }
        let mut needs = Needs::default();
        needs.add_file(Path::new("/etc/frevo.toml"), is_own);
        assert!(needs.read.iter().all(|path| path == Path::new("/etc/frevo.toml")), "{needs:?}");
        assert_eq!(needs.read_once, [Path::new("/etc/frevo.toml")]);
    }

    #[test]
    fn a_folder_with_other_files_is_not_granted_for_a_password() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for folder in ["own", "shared", "frevo-keys"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        for file in ["own/ann", "own/ann~", "own/.ann.swp", "own/bob", "shared/ann", "frevo-keys/x"]
        {
            std::fs::write(at(file), "").unwrap();
        }
        std::fs::create_dir(at("own/..data")).unwrap();
        std::fs::write(at("shared/other"), "").unwrap();
        let files = [at("own/ann"), at("own/bob"), at("shared/ann")];
        assert!(holds_only(&at("own"), &files));
        assert!(!holds_only(&at("own"), &files[1..]), "the file of another user");
        assert!(!holds_only(&at("shared"), &files));
        assert!(holds_only(&at("frevo-keys"), &files), "it is there for Frevo");
        assert!(!holds_only(&at("none"), &files));
    }
}
