//! The quotas of users on the file systems of the shares, for the admin interface.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_admin::{LimitedUser, QuotaSource};
use frevo_config::Config;
use frevo_posix::quota::host::{HostQuota, HostQuotas, Subject, Upkeep};
use parking_lot::Mutex;

/// The types of file systems of disks with quotas of users.
const COUNTED: &[&str] = &["ext2", "ext3", "ext4", "xfs", "f2fs", "jfs", "ocfs2", "gfs2"];
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
    /// The folder at which it is mounted.
    point: PathBuf,
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
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for SharedFolder { share, folder } in folders {
            let Some(point) = counted_mount(&mounts, &folder) else { continue };
            match all.iter_mut().find(|known| known.point == point) {
                Some(known) => known.shares.push(share),
                None => {
                    let Ok(quotas) = HostQuotas::open(&folder) else { continue };
                    all.push(FileSystem { point, shares: vec![share], quotas });
                }
            }
        }
        all
    }
}

/// The mount point of a folder on a file system of a disk of this host, which may have quotas. None for others: those of
/// the network and of FUSE may not answer, and an automounter would mount one.
fn counted_mount(mounts: &str, folder: &Path) -> Option<PathBuf> {
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let point = PathBuf::from(unescaped(left.split(' ').nth(4)?));
        let is_counted = COUNTED.contains(&right.split(' ').next()?);
        folder.starts_with(&point).then_some((point, is_counted))
    };
    // Of mounts at one place the last one is seen.
    let all = mounts.lines().filter_map(mount);
    let (point, is_counted) = all.max_by_key(|(point, _)| point.as_os_str().len())?;
    is_counted.then_some(point)
}

/// A path of mountinfo: blanks, tabs, newlines and backslashes are written in octal.
fn unescaped(text: &str) -> String {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    plain.iter().fold(text.to_owned(), |text, (code, sign)| text.replace(code, sign))
}

impl FileSystem {
    /// The quotas of users with limits. None are shown without the right to ask, CAP_SYS_ADMIN.
    fn users(&self) -> Vec<UserOfShares<'_>> {
        let Ok(Some(upkeep)) = self.quotas.upkeep(Subject::User) else { return Vec::new() };
        let all = self.quotas.all(Subject::User).unwrap_or_default().into_iter();
        let of = |quota| UserOfShares { shares: &self.shares, upkeep, quota };
        all.map(of).filter(UserOfShares::is_limited).collect()
    }
}

/// The quota of a user, and the shares that it is for.
struct UserOfShares<'a> {
    shares: &'a [String],
    upkeep: Upkeep,
    quota: HostQuota,
}

impl UserOfShares<'_> {
    fn is_limited(&self) -> bool {
        let limits = self.quota.limits;
        let all = [limits.soft_space, limits.hard_space, limits.soft_files, limits.hard_files];
        all.iter().any(Option::is_some)
    }

    /// The row, as yet without the shares.
    fn row(&self) -> LimitedUser {
        let HostQuota { id, space, files, limits } = self.quota;
        LimitedUser {
            shares: Vec::new(),
            user: id,
            space,
            soft_space: limits.soft_space,
            hard_space: limits.hard_space,
            files,
            soft_files: limits.soft_files,
            hard_files: limits.hard_files,
            enforced: self.upkeep == Upkeep::Enforced,
        }
    }
}

impl QuotaSource for Quotas {
    fn quotas(&self) -> Vec<LimitedUser> {
        let file_systems = self.file_systems();
        let mut users: Vec<_> = file_systems.iter().flat_map(FileSystem::users).collect();
        users.sort_by_cached_key(|user| std::cmp::Reverse(user.row().fullness()));
        users.truncate(SHOWN);
        let row =
            |user: &UserOfShares<'_>| LimitedUser { shares: user.shares.to_vec(), ..user.row() };
        users.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_posix::quota::host::HostLimits;

    #[test]
    fn users_without_limits_are_not_shown() {
        let quota = HostQuota { id: 7, space: 5, files: 2, ..HostQuota::default() };
        let user = |quota| UserOfShares { shares: &[], upkeep: Upkeep::Counted, quota };
        assert!(!user(quota).is_limited());
        let limits = HostLimits { hard_files: Some(3), ..HostLimits::default() };
        let limited = user(HostQuota { limits, ..quota });
        assert!(limited.is_limited());
        let row = limited.row();
        assert_eq!((row.user, row.space, row.hard_files, row.enforced), (7, 5, Some(3), false));
    }

    #[test]
    fn file_systems_of_disks_alone_are_asked() {
        let mounts = "22 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n\
                      23 22 8:2 / /srv/my\\040disk rw - xfs /dev/sdb1 rw\n\
                      24 22 0:40 / /srv/nfs rw - nfs4 box:/ rw\n\
                      25 22 0:41 / /srv/auto rw - autofs systemd-1 rw\n";
        let at = |folder: &str| counted_mount(mounts, Path::new(folder));
        assert_eq!(at("/srv/my disk/photos"), Some("/srv/my disk".into()));
        assert_eq!(at("/srv/other"), Some("/".into()));
        assert_eq!((at("/srv/nfs/a"), at("/srv/auto")), (None, None));
        assert_eq!(counted_mount("", Path::new("/a")), None);
        let text = "[[share]]\nname = \"a\"\npath = \"/proc\"\n";
        assert!(Quotas::of(&Config::parse(text).unwrap()).quotas().is_empty());
    }
}
