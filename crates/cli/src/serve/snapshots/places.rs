//! The places of the snapshots that the server makes.

use std::path::{Path, PathBuf};

use frevo_config::{Config, ShareSection, SnapshotProvider};
use frevo_posix::SnapshotFolders;
use frevo_snapshot_hands::{Kind, SnapshotPlace};
use frevo_snapshots::Schedule;

use super::shadow_copies;
use crate::state;

/// The folder of the state directory below which snapshots of LVM are mounted.
const MOUNTS: &str = "snapshots";

/// A share of which the server makes snapshots, and the way by which it does.
#[derive(Debug, Clone)]
pub(crate) struct FoundPlace {
    /// The name of the share.
    pub(crate) share: String,
    /// Its folder.
    pub(crate) folder: PathBuf,
    pub(crate) schedule: Schedule,
    /// True if the share does without snapshots where it can have none.
    pub(crate) is_optional: bool,
    /// The place, or what the folder would need.
    pub(crate) place: Result<SnapshotPlace, String>,
    /// A sentence about a part of the folder that snapshots lack.
    pub(crate) lacks: Option<String>,
}

impl FoundPlace {
    /// True for the share of a configuration.
    pub(crate) fn is_of(&self, share: &ShareSection) -> bool {
        share.name.get_ref().as_str() == self.share
            && *share.path.get_ref() == self.folder
            && share.kept_snapshots().is_some()
    }

    /// The snapshots as clients find them.
    pub(crate) fn folders(&self) -> Option<SnapshotFolders> {
        self.place.as_ref().ok()?.pattern().parse().ok()
    }
}

/// The folder below which snapshots are mounted.
pub(crate) fn mounts(config: &Config) -> PathBuf {
    state::dir_of(config).join(MOUNTS)
}

/// Finds the places of all shares of which the server makes snapshots.
pub(crate) fn find(config: &Config) -> Vec<FoundPlace> {
    let mut all: Vec<FoundPlace> = Vec::new();
    for share in &config.shares {
        let Some(kept) = share.kept_snapshots() else { continue };
        let Some(schedule) = kept.schedule.schedule() else { continue };
        let kind = match kept.provider {
            SnapshotProvider::Auto => None,
            SnapshotProvider::Btrfs => Some(Kind::Btrfs),
            SnapshotProvider::Zfs => Some(Kind::Zfs),
            SnapshotProvider::Lvm => Some(Kind::Lvm),
        };
        let folder = share.path.get_ref().clone();
        let place =
            SnapshotPlace::find(&folder, kind, &mounts(config)).map_err(|fault| fault.to_string());
        let place = place.and_then(|place| usable(place, &all));
        let (share, is_optional) = (share.name.get_ref().to_string(), kept.is_optional);
        let lacks = place.as_ref().ok().and_then(|place| lacks(place, &folder));
        all.push(FoundPlace { share, folder, schedule, is_optional, place, lacks });
    }
    all
}

/// A part of the folder that snapshots lack.
fn lacks(place: &SnapshotPlace, folder: &Path) -> Option<String> {
    let mounted = shadow_copies::has_mounts_below(folder)
        .then(|| String::from("snapshots lack what is in the file systems that are mounted in it"));
    mounted.or_else(|| place.lacks_data())
}

/// Refuses a place that an earlier share has, and one of which clients would not see the snapshots.
fn usable(place: SnapshotPlace, earlier: &[FoundPlace]) -> Result<SnapshotPlace, String> {
    let is_shared =
        |found: &&FoundPlace| found.place.as_ref().is_ok_and(|other| other.is_shared_with(&place));
    if let Some(other) = earlier.iter().find(is_shared) {
        let pattern = place.pattern();
        return Err(format!(
            "the share {} keeps snapshots of {place} already; write snapshots = \"{pattern}\" here",
            other.share
        ));
    }
    match place.pattern().parse::<SnapshotFolders>() {
        Ok(_) => Ok(place),
        Err(fault) => {
            Err(format!("clients could not see the snapshots in {}: {fault}", place.pattern()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_have_snapshots_says_why() {
        let text = "[[share]]\nname = \"a\"\npath = \"/proc\"\n[share.snapshots]\n\
                    [[share]]\nname = \"b\"\npath = \"/proc\"\n[share.snapshots]\nprovider = \"zfs\"\n\
                    [[share]]\nname = \"c\"\npath = \"/proc\"\n";
        let config = Config::parse(text).unwrap();
        let found = find(&config);
        assert_eq!(found.len(), 2);
        let why = |at: usize| found[at].place.clone().unwrap_err();
        assert!(why(0).contains("put it on btrfs or ZFS"), "{}", why(0));
        assert!(why(1).contains("not on ZFS"), "{}", why(1));
        assert!(found[0].is_of(&config.shares[0]) && !found[0].is_of(&config.shares[2]));
        assert!(!found[0].is_optional);
        let text = "[[share]]\nname = \"a\"\npath = \"/proc\"\nkeep_deleted = \"3 days\"\n";
        let found = find(&Config::parse(text).unwrap());
        assert!(found[0].is_optional && found[0].place.is_err());
    }
}
