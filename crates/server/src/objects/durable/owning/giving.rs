//! Shares that this server gives away, or has lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_store::state::RecordId;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{NotMoved, turns};
use crate::base::limits::HANDOVER_PATIENCE;
use crate::objects::durable::record::settle;
use crate::objects::server::ServerState;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::life::Life;

impl ServerState {
    /// Like [`Self::drain_shares_of`], for shares without addresses of their own.
    ///
    /// # Errors
    /// Those of [`Self::drain_shares_of`].
    pub async fn drain_shares(
        self: &Arc<Self>,
        names: &[&str],
        patience: Duration,
    ) -> Result<(), NotMoved> {
        self.drain_shares_of(names, patience, std::future::ready(())).await
    }

    /// Brings the uses of shares to an end, so that another server can take them: takes no new
    /// users, answers what is under way, closes all Opens but persistent ones, has the addresses of the shares
    /// leave this machine, ends the connections of the users, and waits until the records are stable.
    ///
    /// `leave` ends when the addresses have left: a client that is sent away before that would come back here,
    /// and could be refused its handles. The connections at an address end with it.
    ///
    /// # Errors
    /// When a share is not served here, or this has not ended within `patience`: the shares are
    /// served on, and their clients may come back. The addresses may have left by then.
    pub async fn drain_shares_of(
        self: &Arc<Self>,
        names: &[&str],
        patience: Duration,
        leave: impl Future<Output = ()>,
    ) -> Result<(), NotMoved> {
        let lives = self.lives(names)?;
        let _turns = turns(&lives).await;
        let mut draining = Draining { server: self, lives: Vec::new() };
        for life in &lives {
            life.drain().map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
            draining.lives.push(Arc::clone(life));
        }
        let until = Instant::now() + patience;
        for life in &lives {
            let late = NotMoved::of(life.share(), &"its requests have not ended in time");
            let ended = async {
                self.uses_have_ended(life).await;
                self.work_has_ended(life).await;
            };
            timeout_at(until, ended).await.map_err(|_| late)?;
        }
        for life in &lives {
            let late = NotMoved::of(life.share(), &"its files were not closed in time");
            timeout_at(until, self.close_all_but_persistent(life)).await.map_err(|_| late)?;
            if life.is_paused() || self.cluster.has_late_open_of(life) {
                // Files are not closed beyond the limit.
                return Err(NotMoved::of(life.share(), &"it is paused"));
            }
        }
        let late = || NotMoved::of(&names.join(", "), &"the records were not stored in time");
        timeout_at(until, self.store_all(&lives)).await.map_err(|_| late())??;
        // From here on the clients wait for the next owner, so little is left to do.
        let stay = NotMoved::of(&names.join(", "), &"its addresses have not left in time");
        timeout_at(until, leave).await.map_err(|_| stay)?;
        for life in &lives {
            self.cut_off(life);
            life.drained().map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
        }
        let stored = async {
            // A close of an Open whose client did not come back may have begun before.
            for life in &lives {
                self.work_has_ended(life).await;
            }
            self.store_all(&lives).await
        };
        timeout_at(until, stored).await.map_err(|_| late())??;
        draining.lives.clear();
        Ok(())
    }

    /// Waits until no request to a share is under way, and none begins.
    pub(super) async fn uses_have_ended(&self, life: &Arc<Life>) {
        let trees: Vec<_> = self.trees_of(life).into_iter().map(|(_, tree)| tree).collect();
        end_all(&trees).await;
    }

    /// Waits until all records of the shares are as their Opens are.
    async fn store_all(&self, lives: &[Arc<Life>]) -> Result<(), NotMoved> {
        settle(self).await.map_err(|status| {
            let share = lives.first().map_or("", |life| &**life.share());
            NotMoved::of(share, &status)
        })?;
        for life in lives {
            self.flush(life).await?;
        }
        Ok(())
    }

    /// Waits until all records of a share are as they were last put: a change is stable when a later
    /// one is.
    async fn flush(&self, life: &Arc<Life>) -> Result<(), NotMoved> {
        let Some(store) = self.durables.store() else { return Ok(()) };
        let (done, stable) = oneshot::channel();
        // No Open has the id 0, so this removes nothing. But it completes only when all earlier
        // changes are stored.
        store.remove(&life.ownership(), RecordId(0), Box::new(|result| _ = done.send(result)));
        match stable.await {
            Ok(result) => result.map_err(|fault| NotMoved::of(life.share(), &fault)),
            Err(_) => Err(NotMoved::of(life.share(), &"the state store has not answered")),
        }
    }

    /// Leaves shares that were drained, or whose start failed: another server may take them at
    /// `addresses`. Their persistent Opens wait for their clients there.
    ///
    /// # Errors
    /// When a share is neither drained nor failed.
    pub async fn leave_shares(
        self: &Arc<Self>,
        names: &[&str],
        addresses: &[SocketAddr],
    ) -> Result<(), NotMoved> {
        let lives = self.lives(names)?;
        let _turns = turns(&lives).await;
        for life in &lives {
            let left = life.leave(addresses.to_vec());
            left.map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
            self.cut_off(life);
            self.end_uses(life).await;
            self.durables.backlog().forget(life);
            tracing::info!(target: "frevo::share", share = &**life.share(), "left the share");
        }
        Ok(())
    }

    /// Gives shares away: drains and leaves them. Their users find the server at `addresses`.
    ///
    /// # Errors
    /// Those of [`Self::drain_shares`].
    pub async fn give_shares(
        self: &Arc<Self>,
        names: &[&str],
        addresses: &[SocketAddr],
    ) -> Result<(), NotMoved> {
        self.drain_shares(names, HANDOVER_PATIENCE).await?;
        self.leave_shares(names, addresses).await
    }

    /// Stops serving shares, or starting them, at once: another server may own them. Nothing is
    /// answered from the call on, and no change of a file begins. It waits for nothing, so
    /// [`Self::stop_shares`] is to follow. A share that is not here serves nothing: it keeps none of the
    /// others from being stopped. Returns the shares that are here.
    pub fn begin_to_stop_shares(self: &Arc<Self>, names: &[&str]) -> Vec<Arc<Life>> {
        let lives: Vec<_> = names.iter().filter_map(|name| self.life(name).ok()).collect();
        for life in &lives {
            if life.stop() {
                tracing::warn!(target: "frevo::share", share = &**life.share(),
                    epoch = life.epoch().0, "stopped serving the share");
            }
            self.cut_off(life);
        }
        lives
    }

    /// Stops serving shares, or starting them, when it is first polled:
    /// [`Self::begin_to_stop_shares`]. It ends when all changes that had begun have ended; if storage
    /// does not answer, that is when it refuses this server.
    ///
    /// # Errors
    /// None at present.
    pub async fn stop_shares(self: &Arc<Self>, names: &[&str]) -> Result<(), NotMoved> {
        let lives = self.begin_to_stop_shares(names);
        // A start that is under way notices the stop, and gives its turn back.
        let _turns = turns(&lives).await;
        for life in &lives {
            self.uses_have_ended(life).await;
            self.end_uses(life).await;
            self.work_has_ended(life).await;
            self.durables.backlog().forget(life);
        }
        Ok(())
    }

    /// Notes that another server may own a share from now on, though it was not given away: this one
    /// stops serving it at once. Returns false if it did not serve it.
    ///
    /// # Errors
    /// When there is no such share.
    pub fn lose_share(self: &Arc<Self>, name: &str) -> Result<bool, NotMoved> {
        let life = self.life(name)?;
        let is_lost = life.fence(life.ownership().epoch);
        if is_lost {
            self.cut_off(&life);
            self.end_uses_now(&life);
        }
        Ok(is_lost)
    }
}

impl ServerState {
    /// Notes that the storage of a share refuses this server: it serves neither the share any more, nor those
    /// that were started together with it. They show the same files, and would grant what the share's handles
    /// hold: these are kept for the next owner, and nobody's here.
    pub(crate) fn lose_storage(&self, life: &Arc<Life>) {
        if !life.stop() {
            return;
        }
        tracing::error!(target: "frevo::share", share = &**life.share(), epoch = life.epoch().0,
            "the file system of the share refuses this server, or has gone; the share is not served \
             here any more");
        let others: Vec<_> = life.started_with().into_iter().filter(|other| other.stop()).collect();
        for other in &others {
            tracing::warn!(target: "frevo::share", share = &**other.share(), epoch = other.epoch().0,
                of = &**life.share(), "stopped serving the share, whose files are those of a share that is lost");
        }
        for life in std::iter::once(life).chain(&others) {
            self.cut_off(life);
            self.cluster.storage_lost(life.share());
        }
    }
}

/// Ends the waits of requests, and waits until none is under way.
async fn end_all(trees: &[Arc<TreeConnect>]) {
    for tree in trees {
        tree.under_way.end();
        tree.under_way.give_up();
    }
    for tree in trees {
        tree.under_way.drained().await;
    }
}

/// Shares that are being drained. Those that are not drained to the end are served on: their tree
/// connects have ended, so their clients connect again.
struct Draining<'a> {
    server: &'a Arc<ServerState>,
    lives: Vec<Arc<Life>>,
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        for life in &self.lives {
            // A share that was lost meanwhile is not kept, so the result is ignored.
            if life.keep().is_ok() {
                tracing::warn!(target: "frevo::share", share = &**life.share(),
                    "cannot give the share away now; it is served on");
            }
            self.server.cut_off(life);
        }
    }
}
