//! Scans for viruses of files that clients have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_store::{Name, Vfs};

use super::closing::owner_of;
use super::{FileOpen, Open};
use crate::base::limits::SCAN_JOB_BYTES;
use crate::objects::ledger::{Charge, Kind};
use crate::objects::tree_connect::TreeConnect;
use crate::shares::scanning::{Find, Scanning, Wanted, changed_of};

/// The find that a scan may make of a file of this name; `shown` are the files as the user sees them.
pub(crate) fn find(
    tree: &TreeConnect,
    scanning: &Scanning,
    shown: &Arc<dyn Vfs>,
    name: Name,
) -> Find {
    Find {
        event: tree.virus_event(&name),
        act: scanning.rules.found.clone(),
        files: Arc::clone(scanning.files(shown)),
        life: Arc::clone(&tree.share.life),
        epoch: tree.epoch(),
        name,
    }
}

impl Open {
    /// Has a file scanned in the background that was changed through this Open, which closes. A file for
    /// which its account has no place or no memory is scanned when it is opened.
    pub(super) fn scan_changed(&self, file: &FileOpen) {
        let tree = self.tree();
        let Some(scanning) = tree.share.scanning.as_ref().filter(|all| all.rules.at_close) else {
            return;
        };
        if file.is_directory || tree.share.is_exposed || file.turned.load(Ordering::Acquire) {
            return;
        }
        let (name, holder) = (file.name(), self.charge.get().map(Charge::holder));
        let size = file.node.stat_without_eas().map_or(0, |stat| stat.end_of_file);
        let Some(changed) = changed_of(&*file.node).filter(|_| scanning.covers(&name, size)) else {
            return;
        };
        let charge = holder.map(|holder| holder.charge(Kind::Waiting, SCAN_JOB_BYTES)).transpose();
        let key = file.key();
        let Ok(charge) = charge else { return scanning.scanner.mark_unscanned(key, changed) };
        let wanted = Wanted {
            key,
            node: None,
            owner: owner_of(holder),
            charge: charge.map(|charge| Box::new(charge) as _),
            find: find(&tree, scanning, &file.vfs, name),
        };
        scanning.scanner.scan_later(wanted, changed);
    }
}
