//! The storage of clustered shares: a file system that refuses this server since another one has taken
//! the share over (a fence), or has gone.
//!
//! Its calls fail with ENOTCONN (FUSE), ESHUTDOWN (CephFS), ESTALE (NFS) or EIO. A client that is told
//! UNEXPECTED_IO_ERROR gives its handle up; one that loses its connection takes the handle up at the
//! next owner.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use frevo_net::file_io::{self, run_blocking};
use frevo_wire::Status;
use tokio::time::{Instant, sleep, timeout};

use crate::base::limits::{STORAGE_LOOKS, STORAGE_PATIENCE};
use crate::objects::refusal::{Outcome, Refusal};
use crate::objects::server::ServerState;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::storage::has_gone;

/// The looks that the failure of a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// One look: removed files cause such failures every day.
    Slight,
    /// Looks for a moment: an OSD of Ceph refuses a client before the client itself knows.
    Strong,
}

impl Suspicion {
    /// The pauses before the looks.
    fn pauses(self) -> &'static [Duration] {
        match self {
            Self::Slight => &[Duration::ZERO],
            Self::Strong => &STORAGE_LOOKS,
        }
    }
}

/// Returns a suspicion about a request to a clustered share that failed, if lost storage may be the cause. Bad
/// blocks of a disk and removed files cause such failures, too.
fn suspicion(tree: &TreeConnect, outcome: &Outcome) -> Option<Suspicion> {
    // A copy on the server that has failed has a body with the parts that were copied.
    let (Ok(status) | Err(Refusal::Status(status) | Refusal::Data(status, _))) = outcome else {
        return None;
    };
    let suspicion = match *status {
        Status::UNEXPECTED_IO_ERROR | Status::VOLUME_DISMOUNTED => Suspicion::Strong,
        Status::FILE_DELETED | Status::DELETE_PENDING => Suspicion::Slight,
        _ => return None,
    };
    tree.share.clustered.then_some(suspicion)
}

/// Returns the looks at the storage of a share that the failure of a request asks for. They are boxed, so that
/// other requests need no memory for their state.
pub(crate) fn look_after<'a>(
    server: &'a Arc<ServerState>,
    tree: Option<&'a TreeConnect>,
    outcome: &Outcome,
) -> Option<Pin<Box<impl Future<Output = ()> + use<'a>>>> {
    let tree = tree?;
    Some(Box::pin(look(server, tree, suspicion(tree, outcome)?)))
}

/// Looks at the storage of a share after a failure with a `suspicion`. If it is lost, the share is not served any more, and the one who decides about the cluster's shares is told.
///
/// One look at a time is under way for a share, whose result is that of all requests that have failed before
/// it began, by as much as their pauses are long: a file system that does not answer keeps one thread.
async fn look(server: &Arc<ServerState>, tree: &TreeConnect, suspicion: Suspicion) {
    let Some(vfs) = tree.share.vfs().cloned() else { return };
    let pauses = suspicion.pauses();
    let enough = Instant::now() + pauses.iter().sum::<Duration>();
    let looked = async {
        let mut turn = Arc::clone(tree.share.life.storage_look()).lock_owned().await;
        for pause in pauses {
            if turn.is_some_and(|began| began > enough) {
                return false;
            }
            if !pause.is_zero() {
                sleep(*pause).await;
            }
            if !tree.is_served() {
                return false;
            }
            let vfs = Arc::clone(&vfs);
            let look = move || {
                let began = Instant::now();
                let has_gone = has_gone(&*vfs);
                *turn = (!has_gone).then_some(began);
                (has_gone, turn)
            };
            let looked = if file_io::stays() { Ok(look()) } else { run_blocking(look).await };
            let Ok((has_gone, kept)) = looked else { return false };
            if has_gone {
                return true;
            }
            turn = kept;
        }
        false
    };
    // A file system that does not answer does not refuse this server.
    if timeout(STORAGE_PATIENCE, looked).await.unwrap_or(false) {
        server.lose_storage(&tree.share.life);
    }
}
