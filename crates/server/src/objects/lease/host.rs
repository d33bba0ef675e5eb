//! Changes that other programs on the host make to files that clients cache: they break leases
//! and oplocks. Nothing waits for the breaks, as the change is made already.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_store::lease::{Cause, Granted, LeaseState, OplockLevel};
use frevo_store::{Fault, HostChange, Observer};
use tokio::runtime::Handle;

use crate::objects::changes;
use crate::objects::ledger::Holder;
use crate::objects::open::FileOpen;
use crate::objects::server::ServerState;

/// Has a file watched for changes of other programs while `granted`, or what
/// another Open of it has, lets a client cache it. Before the client is told. The place of the file is
/// one of `holder`, the account of the client at `peer`.
pub(crate) fn watch(
    server: &Arc<ServerState>,
    file: &FileOpen,
    granted: Granted,
    holder: &Holder,
    peer: IpAddr,
) {
    let caches = match granted {
        Granted::Nothing => false,
        Granted::Oplock(level) => level != OplockLevel::NONE,
        Granted::Lease { state, .. } => state != LeaseState::EMPTY,
    };
    if !caches {
        return;
    }
    file.cell.observe(|| {
        let (weak, cell) = (Arc::downgrade(server), Arc::downgrade(&file.cell));
        let runtime = Handle::try_current().ok()?;
        let is_directory = file.is_directory;
        let observer = Observer::new(&holder.host_places, move |change: &HostChange<'_>| {
            let (Some(server), Some(cell)) = (weak.upgrade(), cell.upgrade()) else { return };
            let Some(cause) = cause(change, is_directory) else { return };
            let told = Arc::clone(&server);
            let change = async move { told.files.host_changed(cell.key(), cause) };
            runtime.spawn(Arc::clone(&server.watchdog).task("changes on the host", change));
        });
        match file.vfs.observe(&*file.node, false, observer) {
            Ok(observation) => Some(observation),
            Err(Fault::NotSupported) => None,
            Err(fault) => {
                server.lines.tell(peer, |left_out| {
                    tracing::warn!(target: "frevo::lease", account = %holder.name(),
                        name = %file.name(), %fault, left_out,
                        "cannot watch a file; clients that cache it will not see changes by other programs");
                });
                None
            }
        }
    });
}

/// The cause of a break that a change on the host is. MS-FSA has no other programs: data,
/// attributes, extended attributes and permissions are all cached under READ, and the kernel
/// does not tell the last three apart.
fn cause(change: &HostChange<'_>, is_directory: bool) -> Option<Cause> {
    match change {
        // MS-FSA 2.1.5.4: if only data changes, the lease of the directory is not broken.
        HostChange::Change { matches, .. } if is_directory => {
            (*matches != changes::DATA).then_some(Cause::Entry)
        }
        _ if is_directory => Some(Cause::Entry),
        HostChange::Change { .. } | HostChange::Lost => Some(Cause::Write),
        HostChange::Renamed { .. } => Some(Cause::Rename),
    }
}
