//! The mounts that a confined server reaches.
//!
//! Landlock permits the folders that were there at the start. A file system that was mounted at the same place
//! afterwards is not among them: a node whose storage was fenced must be restarted after the mount.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use frevo_fences::hands::SetUp;
use rustix::fs::{Access, AtFlags, CWD, accessat};

/// The folders of each unit.
#[derive(Debug)]
pub(super) struct Folders(BTreeMap<String, Vec<PathBuf>>);

impl Folders {
    pub(super) fn of(set_up: &SetUp) -> Self {
        let units = set_up.units.iter();
        Self(units.map(|unit| (unit.name.clone(), unit.folders.clone())).collect())
    }

    /// Returns when this process has reached all folders of a unit. The file system may take its time, so a
    /// thread waits for it.
    pub(super) async fn reach(&self, unit: &str) -> Result<(), String> {
        let folders = self.0.get(unit).cloned().unwrap_or_default();
        let reached = move || folders.iter().try_for_each(|folder| open(folder));
        let ended = |error| format!("the storage of {unit} was not looked at: {error}");
        tokio::task::spawn_blocking(reached).await.map_err(ended)?
    }
}

fn open(folder: &Path) -> Result<(), String> {
    let name = folder.display();
    match File::open(folder) {
        Ok(_) => Ok(()),
        // A folder that the server itself may not read is read as the users of its sessions.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !may_read(folder) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(format!(
            "frevo may not open {name}: a confined server reaches no file system that was mounted after its \
             start; if {name} was mounted anew, restart frevo on this node"
        )),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// True if the rights of the file system let this process read a folder. accessat(2) knows no rule of Landlock.
fn may_read(folder: &Path) -> bool {
    accessat(CWD, folder, Access::READ_OK, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use landlock::{ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetStatus};

    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    use super::*;

    const NOBODY: u32 = 65_534;

    /// A thread that has no rights of root, and a folder that only its owner reads.
    #[test]
    fn a_folder_that_the_server_may_not_read_is_no_later_mount() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        if chown(&path, Some(NOBODY), Some(NOBODY)).is_err() {
            eprintln!("skipped: this test needs root");
            return;
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)).unwrap();
        let opened = std::thread::spawn(move || {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            set_capabilities(None, sets).unwrap();
            assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
            open(&path)
        });
        assert_eq!(opened.join().unwrap(), Ok(()));
    }

    /// A thread that Landlock permits no folder, as it does for folders of later mounts.
    #[test]
    fn a_mount_after_the_start_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(open(folder.path()), Ok(()));
        let path = folder.path().to_owned();
        let confined = std::thread::spawn(move || {
            let all = AccessFs::from_all(ABI::V1);
            let rules = Ruleset::default().handle_access(all).unwrap().create().unwrap();
            let status = rules.restrict_self().unwrap().ruleset;
            (status != RulesetStatus::NotEnforced).then(|| open(&path))
        });
        let Some(opened) = confined.join().unwrap() else {
            eprintln!("skipped: a kernel without Landlock");
            return;
        };
        let why = opened.unwrap_err();
        let name = folder.path().display().to_string();
        assert!(why.starts_with(&format!("frevo may not open {name}: ")), "{why}");
        assert!(why.ends_with("restart frevo on this node"), "{why}");
    }

    #[tokio::test]
    async fn the_folders_of_a_unit_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let units = [("good", folder.path().to_owned()), ("bad", absent)];
        let folders = Folders(units.map(|(name, folder)| (name.to_owned(), vec![folder])).into());
        for unit in ["good", "address 192.0.2.20"] {
            assert_eq!(folders.reach(unit).await, Ok(()), "{unit}");
        }
        let why = folders.reach("bad").await.unwrap_err();
        assert!(why.ends_with("absent: No such file or directory (os error 2)"), "{why}");
    }
}
