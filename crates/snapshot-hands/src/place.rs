//! The ways by which snapshots of a folder are made.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use frevo_posix::subvolumes;
use frevo_snapshots::{FOLDER, PATTERN, Second};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::thread::CapabilitySet;

use crate::btrfs::{self, Btrfs};
use crate::fault::SnapshotFault;
use crate::lvm::{self, Lvm};
use crate::mounts::Mount;
use crate::zfs::Zfs;

/// A way by which snapshots are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By btrfs.
    Btrfs,
    /// By ZFS.
    Zfs,
    /// By LVM.
    Lvm,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Btrfs, Self::Zfs, Self::Lvm];

    /// Returns the word of the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs",
            Self::Zfs => "zfs",
            Self::Lvm => "lvm",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A text that is no [`Kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAKind;

impl FromStr for Kind {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        Self::ALL.into_iter().find(|kind| kind.word() == text).ok_or(NotAKind)
    }
}

/// A volume of LVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The group of volumes.
    pub(crate) group: String,
    pub(crate) volume: String,
    /// The type of its file system.
    pub(crate) kind: String,
}

impl Volume {
    /// Reads the name of a device: `/dev/mapper/group-volume`, in which `--` stands for `-`.
    fn of_device(device: &str, kind: &str) -> Option<Self> {
        let name = device.strip_prefix("/dev/mapper/")?;
        let mut parts = vec![String::new()];
        let mut rest = name.chars().peekable();
        while let Some(c) = rest.next() {
            let is_end = c == '-' && rest.next_if_eq(&'-').is_none();
            match parts.last_mut() {
                Some(part) if !is_end => part.push(c),
                _ => parts.push(String::new()),
            }
        }
        let [group, volume] = <[String; 2]>::try_from(parts).ok()?;
        Some(Self { group, volume, kind: kind.to_owned() })
    }

    pub(crate) fn device(&self) -> String {
        let doubled = |name: &str| name.replace('-', "--");
        format!("/dev/mapper/{}-{}", doubled(&self.group), doubled(&self.volume))
    }

    /// The name for programs of LVM.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.group, self.volume)
    }
}

/// The place of the snapshots of a folder, and the way by which they are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotPlace {
    /// The folder is a subvolume of btrfs, and has the snapshots in [`FOLDER`].
    Btrfs {
        /// The folder.
        share: PathBuf,
    },
    /// The folder is in a dataset of ZFS, whose snapshots are in `.zfs/snapshot`.
    Zfs {
        /// The name of the dataset.
        dataset: String,
        /// Its mount point.
        point: PathBuf,
        /// The folder's path below.
        inner: PathBuf,
    },
    /// The folder is on a thin volume of LVM, whose snapshots are mounted.
    Lvm {
        /// The volume.
        volume: Volume,
        /// The folder of the mounts.
        mounts: PathBuf,
        /// The folder's path in the file system.
        inner: PathBuf,
    },
}

impl SnapshotPlace {
    /// Finds out how snapshots of `folder` can be made, or that they can by `kind`. `mounts` is the server's
    /// folder for those that have to be mounted.
    ///
    /// # Errors
    /// A sentence: what the folder would need.
    pub fn find(folder: &Path, kind: Option<Kind>, mounts: &Path) -> Result<Self, SnapshotFault> {
        let folder =
            &folder.canonicalize().map_err(|error| SnapshotFault::of(folder.display(), error))?;
        let mount = Mount::of(folder)?;
        let found = match mount.kind.as_str() {
            "btrfs" => Kind::Btrfs,
            "zfs" => Kind::Zfs,
            _ if is_of_lvm(folder) => Kind::Lvm,
            other => return Err(needs(folder, other, kind)),
        };
        if kind.is_some_and(|kind| kind != found) {
            return Err(needs(folder, &mount.kind, kind));
        }
        match found {
            Kind::Btrfs => {
                let opened = File::open(folder)
                    .map_err(|error| SnapshotFault::of(folder.display(), error))?;
                match subvolumes::is_root(opened.as_fd()) {
                    Ok(true) => Ok(Self::Btrfs { share: folder.clone() }),
                    Ok(false) => Err(btrfs::no_subvolume(folder)),
                    Err(error) => Err(SnapshotFault::of(folder.display(), error)),
                }
            }
            Kind::Zfs => {
                let inner = mount.below(folder)?;
                Ok(Self::Zfs { dataset: mount.source, point: mount.point, inner })
            }
            Kind::Lvm => {
                let volume = Volume::of_device(&mount.source, &mount.kind);
                let volume = volume.filter(|_| lvm::options(&mount.kind).is_some());
                let volume = volume.ok_or_else(|| needs(folder, &mount.kind, kind))?;
                let mounts = mounts.join(volume.device().trim_start_matches("/dev/mapper/"));
                Ok(Self::Lvm { inner: mount.below(folder)?, volume, mounts })
            }
        }
    }

    /// Returns the way by which the snapshots are made.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Btrfs { .. } => Kind::Btrfs,
            Self::Zfs { .. } => Kind::Zfs,
            Self::Lvm { .. } => Kind::Lvm,
        }
    }

    /// Returns the value of the key `snapshots` by which clients see the snapshots.
    pub fn pattern(&self) -> String {
        let path = match self {
            Self::Btrfs { .. } => Path::new(FOLDER).join(PATTERN),
            Self::Zfs { point, inner, .. } => point.join(".zfs/snapshot").join(PATTERN).join(inner),
            Self::Lvm { mounts, inner, .. } => mounts.join(PATTERN).join(inner),
        };
        path.to_string_lossy().into_owned()
    }

    /// Returns a sentence about the right to act that this process lacks, and the process of the snapshots with it.
    /// None if it has what it needs.
    pub fn lacks_right(&self) -> Option<String> {
        let has_right = || {
            let rights = rustix::thread::capabilities(None);
            rights.is_ok_and(|rights| rights.effective.contains(CapabilitySet::SYS_ADMIN))
        };
        match self {
            Self::Btrfs { share } => {
                let is_allowed = |mount: Mount| mount.has_option(btrfs::REMOVING_ALLOWED);
                let may_remove = || has_right() || Mount::of(share).is_ok_and(is_allowed);
                let what = "snapshots can be made, but none removed";
                (!may_remove()).then(|| format!("{self}: {what}: {}", btrfs::right_to_remove()))
            }
            // The rights of `zfs allow` are those of users.
            Self::Zfs { .. } => None,
            Self::Lvm { .. } => (!has_right()).then(|| {
                let what = "no snapshots can be made: that takes CAP_SYS_ADMIN";
                format!("{self}: {what} ({})", btrfs::DROP_IN)
            }),
        }
    }

    /// Returns a sentence about a part of the folder that its snapshots lack: the subvolumes in one of btrfs.
    pub fn lacks_data(&self) -> Option<String> {
        match self {
            Self::Btrfs { share } => btrfs::lacks_data(share),
            // File systems that are mounted in them are found by the list of mounts.
            Self::Zfs { .. } | Self::Lvm { .. } => None,
        }
    }

    /// Returns true if both have the same snapshots: one of the two shares would remove those of the other.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Btrfs { share: a }, Self::Btrfs { share: b }) => a == b,
            (Self::Zfs { dataset: a, .. }, Self::Zfs { dataset: b, .. }) => a == b,
            (Self::Lvm { volume: a, .. }, Self::Lvm { volume: b, .. }) => a == b,
            _ => false,
        }
    }
}

/// Writes what was found, for people.
impl fmt::Display for SnapshotPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btrfs { share } => write!(f, "the subvolume {} of btrfs", share.display()),
            Self::Zfs { dataset, .. } => write!(f, "the dataset {dataset} of ZFS"),
            Self::Lvm { volume, .. } => write!(f, "the volume {} of LVM", volume.name()),
        }
    }
}

/// True for a folder on a volume of LVM: other devices have names in /dev/mapper, too.
fn is_of_lvm(folder: &Path) -> bool {
    let Ok(found) = statx(CWD, folder, AtFlags::empty(), StatxFlags::empty()) else { return false };
    let uuid = format!("/sys/dev/block/{}:{}/dm/uuid", found.stx_dev_major, found.stx_dev_minor);
    std::fs::read_to_string(uuid).is_ok_and(|uuid| uuid.starts_with("LVM-"))
}

/// The fault of a folder of which no snapshots can be made, with what it would need.
fn needs(folder: &Path, found: &str, kind: Option<Kind>) -> SnapshotFault {
    let folder = folder.display();
    SnapshotFault(match kind {
        Some(Kind::Btrfs) => {
            format!("{folder} is on {found}, not on btrfs; use provider = \"auto\"")
        }
        Some(Kind::Zfs) => format!("{folder} is on {found}, not on ZFS; use provider = \"auto\""),
        Some(Kind::Lvm) => format!(
            "{folder} is on {found}, and not on ext4 or XFS on a volume of LVM; use provider = \"auto\""
        ),
        None => format!(
            "no snapshots can be made of {folder}, which is on {found}: put it on btrfs or ZFS, or on ext4 or \
             XFS on a thin volume of LVM (lvmthin(7))"
        ),
    })
}

/// A place that is in use.
#[derive(Debug)]
pub(crate) enum Provider {
    Btrfs(Btrfs),
    Zfs(Zfs),
    Lvm(Lvm),
}

impl Provider {
    pub(crate) fn open(place: &SnapshotPlace) -> Result<Self, SnapshotFault> {
        Ok(match place {
            SnapshotPlace::Btrfs { share } => Self::Btrfs(Btrfs::open(share)?),
            SnapshotPlace::Zfs { dataset, .. } => Self::Zfs(Zfs::open(dataset)?),
            SnapshotPlace::Lvm { volume, mounts, .. } => Self::Lvm(Lvm::open(volume, mounts)?),
        })
    }

    pub(crate) fn list(&self) -> Result<Vec<Second>, SnapshotFault> {
        match self {
            Self::Btrfs(btrfs) => btrfs.list(),
            Self::Zfs(zfs) => zfs.list(),
            Self::Lvm(lvm) => lvm.list(),
        }
    }

    pub(crate) fn mount(&self) -> Result<Vec<Second>, SnapshotFault> {
        match self {
            Self::Btrfs(_) | Self::Zfs(_) => Ok(Vec::new()),
            Self::Lvm(lvm) => lvm.mount_some(),
        }
    }

    pub(crate) fn create(&self, at: Second) -> Result<(), SnapshotFault> {
        match self {
            Self::Btrfs(btrfs) => btrfs.create(at),
            Self::Zfs(zfs) => zfs.create(at),
            Self::Lvm(lvm) => lvm.create(at),
        }
    }

    pub(crate) fn remove(&self, at: Second) -> Result<(), SnapshotFault> {
        match self {
            Self::Btrfs(btrfs) => btrfs.remove(at),
            Self::Zfs(zfs) => zfs.remove(at),
            Self::Lvm(lvm) => lvm.remove(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names_of_volumes() {
        let volume = Volume::of_device("/dev/mapper/v--g-da--ta", "xfs").unwrap();
        assert_eq!(volume.name(), "v-g/da-ta");
        assert_eq!(volume.device(), "/dev/mapper/v--g-da--ta");
        for wrong in ["/dev/sda1", "/dev/mapper/cryptroot", "/dev/mapper/a-b-c", ""] {
            assert_eq!(Volume::of_device(wrong, "xfs"), None, "{wrong}");
        }
    }

    #[test]
    fn a_place_has_a_pattern() {
        let zfs = SnapshotPlace::Zfs {
            dataset: "tank/photos".into(),
            point: "/tank/photos".into(),
            inner: "2026".into(),
        };
        let pattern = "/tank/photos/.zfs/snapshot/frevo-%Y.%m.%d-%H.%M.%S/2026";
        assert_eq!(
            (zfs.pattern(), zfs.to_string()),
            (pattern.into(), "the dataset tank/photos of ZFS".into())
        );
        let volume = Volume { group: "vg".into(), volume: "data".into(), kind: "ext4".into() };
        let lvm = SnapshotPlace::Lvm {
            volume,
            mounts: "/var/lib/frevo/snapshots/vg-data".into(),
            inner: "".into(),
        };
        assert_eq!(lvm.pattern(), "/var/lib/frevo/snapshots/vg-data/frevo-%Y.%m.%d-%H.%M.%S/");
        assert!(zfs.is_shared_with(&zfs) && !zfs.is_shared_with(&lvm));
        for place in
            [zfs.pattern(), lvm.pattern(), SnapshotPlace::Btrfs { share: "/a".into() }.pattern()]
        {
            assert!(place.parse::<frevo_posix::SnapshotFolders>().is_ok(), "{place}");
        }
    }

    /// A thread has its own capabilities, and gives them up without harm to others.
    #[test]
    fn a_right_that_is_lacking_is_told() {
        let volume = Volume { group: "vg".into(), volume: "data".into(), kind: "ext4".into() };
        let lvm = SnapshotPlace::Lvm { volume, mounts: "/x".into(), inner: "".into() };
        let zfs = SnapshotPlace::Zfs { dataset: "a".into(), point: "/a".into(), inner: "".into() };
        let btrfs = SnapshotPlace::Btrfs { share: "/proc".into() };
        let told = std::thread::spawn(move || {
            let mut rights = rustix::thread::capabilities(None).unwrap();
            if rights.effective.contains(CapabilitySet::SYS_ADMIN) {
                assert_eq!((lvm.lacks_right(), btrfs.lacks_right()), (None, None));
            }
            rights.effective.remove(CapabilitySet::SYS_ADMIN);
            rustix::thread::set_capabilities(None, rights).unwrap();
            [&lvm, &zfs, &btrfs].map(SnapshotPlace::lacks_right)
        });
        let [lvm, zfs, btrfs] = told.join().unwrap();
        assert!(lvm.unwrap().contains("no snapshots can be made: that takes CAP_SYS_ADMIN"));
        assert!(btrfs.unwrap().contains("none removed: to remove one takes CAP_SYS_ADMIN"));
        assert_eq!(zfs, None);
    }

    #[test]
    fn a_folder_without_snapshots_says_what_it_needs() {
        let why = |kind| {
            SnapshotPlace::find(Path::new("/proc"), kind, Path::new("/x")).unwrap_err().to_string()
        };
        assert!(
            why(None).contains("/proc, which is on proc: put it on btrfs or ZFS"),
            "{}",
            why(None)
        );
        for kind in Kind::ALL {
            assert!(why(Some(kind)).contains("use provider = \"auto\""), "{kind}");
            assert_eq!(kind.word().parse(), Ok(kind));
        }
        assert_eq!("xfs-reflink".parse::<Kind>(), Err(NotAKind));
        assert!(SnapshotPlace::find(Path::new("/no such folder"), None, Path::new("/x")).is_err());
    }
}
