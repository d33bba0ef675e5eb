//! The task that removes old files from the bins of all shares, beside the cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_store::Vfs;
use frevo_wire::dtyp::FileTime;
use tokio::time::sleep;

use super::RecycleBin;
use super::expiry::Walk;
use crate::base::ambient::Ambient;
use crate::base::limits::{RECYCLE_FIRST_SWEEP, RECYCLE_PAUSE, RECYCLE_SWEEP};
use crate::shares::share::Share;

/// Ends a walk on another thread when the task ends.
#[derive(Debug, Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sweeps the bins of the shares that `shares` tells from time to time, until it is dropped.
pub(crate) async fn watch(ambient: Arc<dyn Ambient>, shares: impl Fn() -> Vec<Arc<Share>>) {
    let stop = Stop::default();
    sleep(RECYCLE_FIRST_SWEEP).await;
    loop {
        for share in shares() {
            sweep_share(&share, ambient.now(), &stop.0).await;
        }
        sleep(RECYCLE_SWEEP).await;
    }
}

/// Sweeps one share: its folder, or those of the users that are connected.
async fn sweep_share(share: &Share, now: FileTime, stop: &Arc<AtomicBool>) {
    // A snapshot stays as it is.
    let expiring = share.recycle.as_ref().filter(|bin| bin.expires() && !share.is_exposed);
    // If another server serves the share, that server empties its recycle bin. A share that is given away does
    // not wait for this.
    let Some(bin) = expiring.filter(|_| share.life.takes_new()) else { return };
    let folders = match &share.user_folders {
        Some(folders) => folders.in_use(),
        None => share.vfs().cloned().into_iter().collect(),
    };
    for vfs in folders {
        let (bin, name, stop) = (Arc::clone(bin), share.name.clone(), Arc::clone(stop));
        let life = Arc::clone(&share.life);
        let goes_on = move || !stop.load(Ordering::Relaxed) && life.takes_new();
        let change = share.life.begin_change();
        let sweep = move || {
            let _change = change;
            sweep(&*vfs, &bin, &name, now, &goes_on);
        };
        let swept = frevo_net::file_io::run_blocking(sweep).await;
        if let Err(error) = swept {
            tracing::warn!(target: "frevo::recycle", share = %share.name, %error,
                "cannot look for old files in the recycle bin");
        }
    }
}

fn sweep(vfs: &dyn Vfs, bin: &RecycleBin, share: &str, now: FileTime, goes_on: &dyn Fn() -> bool) {
    let mut pause = || {
        std::thread::sleep(RECYCLE_PAUSE);
        goes_on()
    };
    let removed = Walk::new(vfs, now, &mut pause).expire(bin);
    bin.counts.expired.fetch_add(removed.files, Ordering::Relaxed);
    if removed.files > 0 {
        tracing::info!(target: "frevo::recycle", share, files = removed.files,
            bytes = removed.bytes, "removed old files from the recycle bin");
    }
}
