//! The quotas of users and groups on the file systems of the shares, and of the shares, for the admin interface.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_admin::{LimitedOwner, OwnerKind, QuotaSource};
use frevo_config::Config;
use frevo_posix::quota::host::{HostLimits, HostQuota, HostQuotas, Subject, Upkeep};
use parking_lot::Mutex;

/// The types of file systems of disks with quotas of users.
const COUNTED: &[&str] = &["ext2", "ext3", "ext4", "xfs", "f2fs", "jfs", "ocfs2", "gfs2"];
/// Those with quotas of folders alone.
const COUNTED_BY_FOLDER: &[&str] = &["btrfs"];
/// Owners that are shown, the fullest ones.
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
    mount: Mount,
    shares: Vec<String>,
    quotas: HostQuotas,
    /// The shares with limits of their own.
    limited: Vec<LimitedShare>,
}

/// A mounted file system that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// True if it counts for users and groups.
    has_users: bool,
}

/// A share with limits.
struct LimitedShare {
    share: String,
    upkeep: Upkeep,
    quota: HostQuota,
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
            let Some(mount) = counted_mount(&mounts, &folder) else { continue };
            let Ok(quotas) = HostQuotas::open(&folder) else { continue };
            let limited = limited_share(&share, &quotas);
            match all.iter_mut().find(|known| known.mount.point == mount.point) {
                Some(known) => {
                    known.shares.push(share);
                    known.limited.extend(limited);
                }
                None => {
                    let limited = limited.into_iter().collect();
                    all.push(FileSystem { mount, shares: vec![share], quotas, limited });
                }
            }
        }
        all
    }
}

/// The limits of a share, if it has any and the kernel tells them.
fn limited_share(share: &str, quotas: &HostQuotas) -> Option<LimitedShare> {
    let quota = quotas.of_folder().ok()??;
    let upkeep = match quotas.is_subvolume().ok()? {
        true => Upkeep::Enforced,
        false => quotas.upkeep(Subject::Project).ok()??,
    };
    is_limited(&quota).then(|| LimitedShare { share: share.to_owned(), upkeep, quota })
}

fn is_limited(quota: &HostQuota) -> bool {
    quota.limits != HostLimits::default()
}

/// The mount of a folder on a file system of a disk of this host, which may have quotas. None for others: those of
/// the network and of FUSE may not answer, and an automounter would mount one.
fn counted_mount(mounts: &str, folder: &Path) -> Option<Mount> {
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let point = PathBuf::from(unescaped(left.split(' ').nth(4)?));
        let kind = right.split(' ').next()?;
        let has_users = COUNTED.contains(&kind);
        let is_counted = has_users || COUNTED_BY_FOLDER.contains(&kind);
        folder.starts_with(&point).then_some((Mount { point, has_users }, is_counted))
    };
    // Of mounts at one place the last one is seen.
    let all = mounts.lines().filter_map(mount);
    let (mount, is_counted) = all.max_by_key(|(mount, _)| mount.point.as_os_str().len())?;
    is_counted.then_some(mount)
}

/// A path of mountinfo: blanks, tabs, newlines and backslashes are written in octal.
fn unescaped(text: &str) -> String {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    plain.iter().fold(text.to_owned(), |text, (code, sign)| text.replace(code, sign))
}

impl FileSystem {
    /// The quotas with limits. None are shown without the right to ask, CAP_SYS_ADMIN.
    fn owners(&self) -> Vec<Owner<'_>> {
        let mut owners: Vec<Owner<'_>> = self.limited.iter().map(LimitedShare::owner).collect();
        if self.mount.has_users {
            owners.extend(self.of(Subject::User, OwnerKind::User));
            owners.extend(self.of(Subject::Group, OwnerKind::Group));
        }
        owners
    }

    fn of(&self, subject: Subject, kind: OwnerKind) -> Vec<Owner<'_>> {
        let Ok(Some(upkeep)) = self.quotas.upkeep(subject) else { return Vec::new() };
        let all = self.quotas.all(subject).unwrap_or_default().into_iter();
        let of = |quota| Owner { kind, shares: &self.shares, upkeep, quota };
        all.filter(is_limited).map(of).collect()
    }
}

impl LimitedShare {
    fn owner(&self) -> Owner<'_> {
        let shares = std::slice::from_ref(&self.share);
        Owner { kind: OwnerKind::Share, shares, upkeep: self.upkeep, quota: self.quota }
    }
}

/// The quota of a user, a group or a share, and the shares that it is for.
struct Owner<'a> {
    kind: OwnerKind,
    shares: &'a [String],
    upkeep: Upkeep,
    quota: HostQuota,
}

impl Owner<'_> {
    /// The row, as yet without the shares.
    fn row(&self) -> LimitedOwner {
        let HostQuota { id, space, files, limits } = self.quota;
        LimitedOwner {
            kind: self.kind,
            shares: Vec::new(),
            id,
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
    fn quotas(&self) -> Vec<LimitedOwner> {
        let file_systems = self.file_systems();
        let mut owners: Vec<_> = file_systems.iter().flat_map(FileSystem::owners).collect();
        owners.sort_by_cached_key(|owner| std::cmp::Reverse(owner.row().fullness()));
        owners.truncate(SHOWN);
        let row = |owner: &Owner<'_>| LimitedOwner { shares: owner.shares.to_vec(), ..owner.row() };
        owners.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_without_limits_are_not_shown() {
        let quota = HostQuota { id: 7, space: 5, files: 2, ..HostQuota::default() };
        assert!(!is_limited(&quota));
        let limits = HostLimits { hard_files: Some(3), ..HostLimits::default() };
        let quota = HostQuota { limits, ..quota };
        assert!(is_limited(&quota));
        let limited = LimitedShare { share: "a".into(), upkeep: Upkeep::Counted, quota };
        let owner = limited.owner();
        assert_eq!(owner.shares, ["a"]);
        let row = owner.row();
        assert_eq!((row.kind, row.id, row.space), (OwnerKind::Share, 7, 5));
        assert_eq!((row.hard_files, row.enforced), (Some(3), false));
    }

    #[test]
    fn file_systems_of_disks_alone_are_asked() {
        let mounts = "22 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n\
                      23 22 8:2 / /srv/my\\040disk rw - xfs /dev/sdb1 rw\n\
                      24 22 0:40 / /srv/nfs rw - nfs4 box:/ rw\n\
                      25 22 0:41 / /srv/auto rw - autofs systemd-1 rw\n\
                      26 22 0:42 / /srv/pool rw - btrfs /dev/sdc rw\n";
        let at = |folder: &str| counted_mount(mounts, Path::new(folder));
        let mount = |point: &str, has_users| Some(Mount { point: point.into(), has_users });
        assert_eq!(at("/srv/my disk/photos"), mount("/srv/my disk", true));
        assert_eq!(at("/srv/other"), mount("/", true));
        assert_eq!(at("/srv/pool/photos"), mount("/srv/pool", false));
        assert_eq!((at("/srv/nfs/a"), at("/srv/auto")), (None, None));
        assert_eq!(counted_mount("", Path::new("/a")), None);
        let text = "[[share]]\nname = \"a\"\npath = \"/proc\"\n";
        assert!(Quotas::of(&Config::parse(text).unwrap()).quotas().is_empty());
    }
}
