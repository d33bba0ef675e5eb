//! The quotas of users on the file systems of the shares, for the admin interface.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_admin::{LimitedUser, QuotaSource};
use frevo_config::Config;
use frevo_posix::quota::host::{HostQuota, HostQuotas, Subject, Upkeep};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

/// The type of an automounter's file system, AUTOFS_SUPER_MAGIC of linux/magic.h.
const AUTOFS: u64 = 0x0187;
/// Users that are shown, the fullest ones.
const SHOWN: usize = 1_000;

/// The folders of the shares in force.
#[derive(Debug, Clone, Default)]
pub(super) struct Quotas {
    folders: Arc<Mutex<Vec<SharedFolder>>>,
}

/// The folder of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SharedFolder {
    share: String,
    folder: PathBuf,
}

/// A file system, and the shares on it.
struct FileSystem {
    device: u64,
    shares: Vec<String>,
    quotas: HostQuotas,
}

impl Quotas {
    /// Returns those of the shares of a configuration.
    pub(super) fn of(config: &Config) -> Self {
        let quotas = Self::default();
        quotas.show(config);
        quotas
    }

    /// Shows the shares of a configuration that is in force.
    pub(super) fn show(&self, config: &Config) {
        let folder = |share: &frevo_config::ShareSection| SharedFolder {
            share: share.name.get_ref().to_string(),
            folder: share.shared_folder(),
        };
        *self.folders.lock() = config.shares.iter().map(folder).collect();
    }

    /// The file systems of the folders. Those that cannot be opened are left out: the state of the share says why.
    fn file_systems(&self) -> Vec<FileSystem> {
        let mut all: Vec<FileSystem> = Vec::new();
        let folders = self.folders.lock().clone();
        for SharedFolder { share, folder } in folders {
            let Some(device) = device_of(&folder) else { continue };
            match all.iter_mut().find(|known| known.device == device) {
                Some(known) => known.shares.push(share),
                None => {
                    let Ok(quotas) = HostQuotas::open(&folder) else { continue };
                    all.push(FileSystem { device, shares: vec![share], quotas });
                }
            }
        }
        all
    }
}

/// The device of the file system of a folder. None for one that cannot be used, and for one that an automounter would
/// mount: nobody asked for that.
fn device_of(folder: &Path) -> Option<u64> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty()).ok()?;
    let is_automounter = rustix::fs::fstatfs(&opened).ok()?.f_type as u64 == AUTOFS;
    let device = rustix::fs::fstat(&opened).ok()?.st_dev;
    (!is_automounter).then_some(device)
}

impl FileSystem {
    /// The users with limits. None are shown without the right to ask, CAP_SYS_ADMIN.
    fn users(&self) -> Vec<LimitedUser> {
        let Ok(Some(upkeep)) = self.quotas.upkeep(Subject::User) else { return Vec::new() };
        let all = self.quotas.all(Subject::User).unwrap_or_default();
        all.iter().filter_map(|quota| limited(&self.shares, upkeep, quota)).collect()
    }
}

/// The row of a quota. None for one without limits.
fn limited(shares: &[String], upkeep: Upkeep, quota: &HostQuota) -> Option<LimitedUser> {
    let limits = quota.limits;
    let all = [limits.soft_space, limits.hard_space, limits.soft_files, limits.hard_files];
    all.iter().any(Option::is_some).then(|| LimitedUser {
        shares: shares.to_vec(),
        user: quota.id,
        space: quota.space,
        soft_space: limits.soft_space,
        hard_space: limits.hard_space,
        files: quota.files,
        soft_files: limits.soft_files,
        hard_files: limits.hard_files,
        enforced: upkeep == Upkeep::Enforced,
    })
}

impl QuotaSource for Quotas {
    fn quotas(&self) -> Vec<LimitedUser> {
        let mut users: Vec<_> = self.file_systems().iter().flat_map(FileSystem::users).collect();
        users.sort_by_key(|user| std::cmp::Reverse(user.fullness()));
        users.truncate(SHOWN);
        users
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_posix::quota::host::HostLimits;

    #[test]
    fn users_without_limits_are_not_shown() {
        let quota = HostQuota { id: 7, space: 5, files: 2, ..HostQuota::default() };
        assert_eq!(limited(&[], Upkeep::Enforced, &quota), None);
        let limits = HostLimits { hard_files: Some(3), ..HostLimits::default() };
        let shown =
            limited(&["a".into()], Upkeep::Counted, &HostQuota { limits, ..quota }).unwrap();
        assert_eq!((shown.user, shown.space, shown.hard_files), (7, 5, Some(3)));
        assert!(!shown.enforced && shown.shares == ["a"]);
    }

    #[test]
    fn shares_of_one_file_system_are_one() {
        let text = "[[share]]\nname = \"a\"\npath = \"/proc\"\n[[share]]\nname = \"b\"\npath = \"/proc/self\"\n\
                    [[share]]\nname = \"c\"\npath = \"/no such folder\"\n";
        let quotas = Quotas::of(&Config::parse(text).unwrap());
        let found = quotas.file_systems();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].shares, ["a", "b"]);
        assert!(quotas.quotas().is_empty());
    }
}
