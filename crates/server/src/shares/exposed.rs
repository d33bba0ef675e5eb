//! Shares that serve snapshots of other shares, read-only: MS-FSRVP 3.1.4.6.

use std::sync::Arc;

use frevo_store::{FolderId, Vfs};

use crate::access::access_rules::{Names, Rules};
use crate::shares::share::{Share, Target};

/// A share that serves a snapshot. The configuration does not have it, so it outlives reloads here.
#[derive(Debug, Clone)]
pub(crate) struct Exposed {
    /// Its name.
    pub(crate) name: String,
    /// The name of the share that the snapshot is of.
    pub(crate) base: String,
    /// The files of the snapshot.
    pub(crate) files: Arc<dyn Vfs>,
    /// The folder that the share had when the snapshot was exposed.
    pub(crate) folder: BaseFolder,
}

/// The folder of a share.
#[derive(Debug, Clone)]
pub(crate) struct BaseFolder {
    path: Option<String>,
    id: Option<FolderId>,
}

impl BaseFolder {
    pub(crate) fn of(share: &Share) -> Self {
        Self { path: share.host_path.clone(), id: share.vfs().map(|vfs| vfs.folder_id()) }
    }

    /// True if both are one folder. The identity may change when a disk is mounted again, the path does not.
    fn is_same(&self, other: &Self) -> bool {
        match (&self.path, &other.path) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.id == other.id,
        }
    }
}

impl Exposed {
    /// True if `base` is the share that the snapshot is of. One of the same name with another folder is not:
    /// its rules are not about these files.
    pub(crate) fn is_of(&self, base: &Share) -> bool {
        !base.is_exposed && self.folder.is_same(&BaseFolder::of(base))
    }

    /// The share: with the settings that `base` has now, and so without rights that it has taken away.
    ///
    /// Deviation: MS-FSRVP 3.1.4.6 has it keep the access permissions of the time of the exposure.
    pub(crate) fn share(&self, base: &Share) -> Share {
        let plain = Share::disk(&self.name, Arc::clone(&self.files));
        let rules = Rules { write_list: Names::default(), ..base.rules.clone() };
        let base = base.clone();
        Share {
            name: plain.name,
            target: Target::Disk(Arc::clone(&self.files)),
            rules,
            read_only: true,
            is_exposed: true,
            change_notify: false,
            // The bin stays, for it keeps the deleted files of others out of reach. The rest of these are about
            // changes, about a namespace, or about the share's own folder.
            continuous: false,
            time_machine: false,
            time_machine_limit: None,
            host_path: None,
            max_connections: base.max_connections,
            uses: plain.uses,
            begins_elsewhere: false,
            clustered: false,
            moving_addresses: false,
            life: plain.life,
            user_folders: None,
            namespace: None,
            index: None,
            slowness: Arc::clone(&base.slowness),
            ..base
        }
    }
}
