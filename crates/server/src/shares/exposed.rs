//! Shares that serve snapshots of other shares, read-only: MS-FSRVP 3.1.4.6.

use std::sync::Arc;

use frevo_store::Vfs;

use crate::access::access_rules::Rules;
use crate::access::share_access::AccessList;
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
    /// The access list that the share had when the snapshot was exposed.
    pub(crate) access_list: Option<Arc<AccessList>>,
}

impl Exposed {
    /// The share: with the settings that `base` has now. MS-FSRVP 3.1.4.6: with its access permissions at the
    /// time of the exposure.
    pub(crate) fn share(&self, base: &Share) -> Share {
        let plain = Share::disk(&self.name, Arc::clone(&self.files));
        let rules = Rules { access_list: self.access_list.clone(), ..base.rules.clone() };
        let base = base.clone();
        Share {
            name: plain.name,
            target: Target::Disk(Arc::clone(&self.files)),
            rules,
            read_only: true,
            is_exposed: true,
            change_notify: false,
            // The rest of these are about changes, about a namespace, or about the share's own folder.
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
            recycle: None,
            namespace: None,
            slowness: Arc::clone(&base.slowness),
            ..base
        }
    }
}
