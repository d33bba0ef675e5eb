//! The limit of a cluster's shares as time passes: the pause beyond it, and the end of the pause.
//!
//! Requests look at the limit themselves. This task ends the connections of clients that ask nothing,
//! and puts things right when the limit was moved.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::base::limits::{CLOSED_ON_CORE, LIMIT_LOOK, PAUSE_LOOK, STORAGE_PATIENCE};
use crate::base::panics;
use crate::objects::server::ServerState;
use crate::shares::life::Life;

impl ServerState {
    /// Looks at the limit from now on, as long as this server owns a share of the cluster. Without a
    /// cluster it does nothing.
    pub(crate) fn watch_limit(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.cluster.begin_watch() {
            let watching = watch(Arc::downgrade(self));
            drop(runtime.spawn(Arc::clone(&self.watchdog).task("limit of the cluster", watching)));
        }
    }

    /// The shares of the cluster that this server owns.
    fn limited_lives(&self) -> Vec<Arc<Life>> {
        let shares = self.shares().sorted().into_iter().map(|share| Arc::clone(&share.life));
        shares.filter(|life| life.is_limited() && life.is_owned()).collect()
    }

    /// Does what the limit demands now. Returns the time until the next look, or None if there is no
    /// share to look after.
    fn look_at_limit(self: &Arc<Self>) -> Option<Duration> {
        let seat = self.cluster.seat()?;
        let lives = self.limited_lives();
        if lives.is_empty() && !self.cluster.has_late_opens() {
            return None;
        }
        if !seat.allows() {
            if !self.cluster.is_paused.swap(true, Ordering::AcqRel) {
                tracing::warn!(target: "frevo::share", shares = lives.len(),
                    "the shares of the cluster are paused: it is not known if this server still owns them");
                lives.iter().for_each(|life| self.cut_off(life));
            }
            return Some(PAUSE_LOOK);
        }
        self.end_pause();
        self.close_late_opens(CLOSED_ON_CORE);
        let rest = if self.cluster.has_late_opens() { PAUSE_LOOK } else { LIMIT_LOOK };
        Some(seat.left().min(rest))
    }

    /// Lets Opens wait for their clients anew if a pause has ended: clients could not come during it.
    pub(crate) fn end_pause(&self) {
        if self.cluster.is_paused.load(Ordering::Acquire) && self.cluster.allows() {
            // The pause ends for the scavenger when all Opens wait anew. So it ends none of them before.
            self.durables.wait_anew(|open| open.tree().share.life.is_limited());
            if self.cluster.is_paused.swap(false, Ordering::AcqRel) {
                tracing::info!(target: "frevo::share", "the shares of the cluster are served again");
            }
        }
    }

    /// Closes at most `most` Opens that were to be closed while their share was paused. Returns their
    /// number.
    pub(crate) fn close_late_opens(self: &Arc<Self>, most: usize) -> usize {
        let late = self.cluster.late_opens(most);
        let count = late.len();
        for late in late {
            panics::contained(|| self.close_late(late));
        }
        count
    }

    /// Waits until those Opens are closed, and the files of a share that were to go with them are deleted:
    /// a CREATE after the pause, which may repeat one before it, does not meet them.
    pub(crate) async fn late_opens_have_closed(self: &Arc<Self>, life: &Arc<Life>) {
        while self.close_late_opens(CLOSED_ON_CORE) == CLOSED_ON_CORE {
            tokio::task::yield_now().await;
        }
        // A file system that does not answer does not keep the CREATE from its own attempt.
        let _ = timeout(STORAGE_PATIENCE, self.changes_have_ended(life)).await;
    }
}

async fn watch(server: Weak<ServerState>) {
    while let Some(server) = server.upgrade() {
        let Some(time) = server.look_at_limit() else {
            server.cluster.is_watched.store(false, Ordering::Release);
            // A share may have been taken since the look.
            if !server.limited_lives().is_empty() && server.cluster.begin_watch() {
                continue;
            }
            return;
        };
        let look = Arc::clone(&server.cluster.look);
        // The task does not keep the server.
        drop(server);
        tokio::select! {
            biased;
            // A millisecond more, so that the next look finds the limit passed.
            () = sleep(time + Duration::from_millis(1)) => {}
            () = look.notified() => {}
        }
    }
}
