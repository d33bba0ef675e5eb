//! Rights that a configuration needs.

use std::path::{Path, PathBuf};

use frevo_config::{Config, NtAclsChoice, RunAsChoice, ShareSection};

use crate::arguments::Serve;
use crate::config_checks::{folder_of_accounts, real};
use crate::config_sources::further_files;
use crate::serve::admin_interface;
use crate::serve::plan::Plan;
use crate::serve::quic;
use crate::{keytab, state};

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
    /// Some share's files are written once: the immutable flag is set (CAP_LINUX_IMMUTABLE).
    pub(super) commits_files: bool,
    /// RDMA devices are used.
    pub(super) uses_rdma: bool,
    /// UDP sockets of QUIC are used.
    pub(super) uses_quic: bool,
    /// Attributes are set that take CAP_SYS_ADMIN, and quotas.
    pub(super) sets_privileged_attributes: bool,
}

impl Needs {
    pub(super) fn of(plan: &Plan, arguments: &Serve) -> Self {
        let config = &plan.config;
        let mut needs = Self {
            uses_rdma: config.server.rdma == Some(true),
            uses_quic: config.quic.is_on(),
            ..Self::default()
        };
        for share in &config.shares {
            needs.add_share(share);
        }
        // Log rotation renames the audit file and sends SIGHUP, and the server makes a new one. So
        // the server needs write access to the folder.
        let log = config.audit.file.as_ref().map(|file| real(file.get_ref()));
        needs.written.extend(log.and_then(|log| Some(log.parent()?.to_owned())));
        let folders = config.server.confine_to.iter().chain(&config.server.share_roots);
        needs.written.extend(folders.map(|folder| real(folder)));
        if plan.has_state {
            needs.written.push(real(&state::dir_of(config)));
            needs.written.extend(folder_of_accounts(config).and_then(Result::ok));
        }
        for file in files(config, arguments, plan.has_state) {
            needs.add_file(&file);
        }
        if config.admin.write_configuration == Some(true) {
            let files = arguments.config.iter().map(|file| real(file));
            let folders = files.filter_map(|file| file.parent().map(Path::to_owned));
            needs.written.extend(folders.filter(|folder| is_own(folder)));
        }
        // At a stop the server removes its socket only from a folder of its own. In other folders
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
        self.read.extend(share.snapshot_folder().map(|folder| real(&folder)));
        self.acts_as_users |= share.run_as == Some(RunAsChoice::User)
            || share.force_user.is_some()
            || share.guest.is_some();
        self.commits_files |= share.worm.is_some();
        let skeleton = share.home.as_ref().and_then(|home| home.skeleton.as_deref());
        self.read.extend(skeleton.map(real));
        let quarantine = share.scan.as_ref().and_then(|scan| scan.quarantine.as_deref());
        self.written.extend(quarantine.map(real));
        self.sets_privileged_attributes |= !is_read_only
            && !matches!(share.nt_acls, Some(NtAclsChoice::Posix | NtAclsChoice::Off));
    }

    /// A file that a reload reads again. It is replaced by another one of its name,
    /// so its folder is needed; both folders where its name is a symbolic link.
    fn add_file(&mut self, file: &Path) {
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        for file in [absolute.clone(), real(&absolute)] {
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

/// Files that a reload reads.
fn files(config: &Config, arguments: &Serve, has_state: bool) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = arguments.config.iter().cloned().collect();
    // The folder of further configuration files is read, too.
    let further = arguments.config.iter().map(|file| further_files(file));
    files.extend(further.filter(|folder| folder.is_dir()));
    files.extend(arguments.password_file.clone());
    files.extend(config.users.iter().map(|user| user.password_file.clone()));
    files.extend(config.server.user_map_file.clone());
    files.extend(config.passwords.common.clone());
    files.extend(keytab::path(config).map(Path::to_owned));
    files.extend(quic::Files::of(config).into_iter().flat_map(quic::Files::all));
    if has_state {
        files.push(state::users_file_of(config));
    }
    files
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
        needs.add_file(Path::new("/etc/frevo.toml"));
        assert!(needs.read.iter().all(|path| path == Path::new("/etc/frevo.toml")), "{needs:?}");
        assert_eq!(needs.read_once, [Path::new("/etc/frevo.toml")]);
    }
}
