//! The uses of a share, which end with its life here.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::is_of;
use crate::base::limits::{CHANGES_LOOK, CLOSED_AT_ONCE};
use crate::base::panics;
use crate::objects::cluster::LateOpen;
use crate::objects::durable::Survival;
use crate::objects::notice::Notice;
use crate::objects::open::Open;
use crate::objects::server::ServerState;
use crate::objects::session::Session;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::life::Life;

impl ServerState {
    /// Puts the shares of a cluster under its limit, and has each share stop being used when another
    /// server owns it.
    pub(crate) fn watch_lives(self: &Arc<Self>) {
        for share in self.shares().sorted() {
            if let Some(seat) = self.cluster.seat().filter(|_| share.clustered) {
                share.life.limit_by(seat);
            }
            let (server, life) = (Arc::downgrade(self), Arc::downgrade(&share.life));
            let cut_off = move || {
                if let (Some(server), Some(life)) = (server.upgrade(), life.upgrade()) {
                    server.cut_off(&life);
                }
            };
            share.life.when_lost(move || match Handle::try_current() {
                // The caller may hold locks that `cut_off` takes, so a separate task calls it.
                Ok(runtime) => {
                    let cut_off = cut_off.clone();
                    drop(runtime.spawn(async move { cut_off() }));
                }
                // Without a runtime the caller is a thread of the state store. It holds no locks,
                // so it may call `cut_off` itself.
                Err(_) => cut_off(),
            });
        }
    }

    pub(super) fn trees_of(&self, life: &Arc<Life>) -> Vec<(Arc<Session>, Arc<TreeConnect>)> {
        let mut found = Vec::new();
        let mut sessions = self.sessions();
        // Sessions are visited in the order of their ids, because the map's order is random.
        sessions.sort_unstable_by_key(|session| session.id);
        for session in sessions {
            let trees = session.trees().into_iter();
            let trees = trees.filter(|tree| Arc::ptr_eq(&tree.share.life, life));
            found.extend(trees.map(|tree| (Arc::clone(&session), tree)));
        }
        found
    }

    /// Ends the connections of all users of a share: they find its owner when they connect again.
    pub(crate) fn cut_off(&self, life: &Arc<Life>) {
        if planted!(OldOwnerAnswers) {
            return;
        }
        for (session, _) in self.trees_of(life) {
            for channel in session.channel_handles() {
                // The send fails if the channel has ended, and then it needs no notice.
                let _ = channel.send(Notice::ShareLeft);
            }
        }
    }

    /// Closes the Opens of a share that the next owner does not have, and waits for the end of that.
    pub(super) async fn close_all_but_persistent(self: &Arc<Self>, life: &Arc<Life>) {
        let stays = |open: &Open| open.survival().is_some_and(Survival::is_persistent);
        let opens = self.take_opens(life, |open| !stays(open));
        self.close_in_turns(opens.into_iter().map(LateOpen::from).collect()).await;
        // Those of a pause that has just ended.
        let late = self.cluster.late_opens(usize::MAX);
        self.close_in_turns(late).await;
        self.changes_have_ended(life).await;
    }

    /// Waits until no close and no deletion of the share is under way beside the cores.
    pub(super) async fn changes_have_ended(&self, life: &Arc<Life>) {
        while life.has_changes() {
            tokio::time::sleep_until(Instant::now() + CHANGES_LOOK).await;
        }
    }

    /// Like [`Self::changes_have_ended`], and waits for all requests to a share of a cluster, also those whose
    /// connections have ended. No request may wait for this.
    pub(super) async fn work_has_ended(&self, life: &Arc<Life>) {
        while life.has_work() {
            tokio::time::sleep_until(Instant::now() + CHANGES_LOOK).await;
        }
    }

    /// Takes the Opens of a share from their sessions, or from those that wait for their clients, if
    /// `which` says so. They are nobody's any more, and the caller closes them.
    fn take_opens(&self, life: &Arc<Life>, which: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        let mut taken = Vec::new();
        for (session, tree) in self.trees_of(life) {
            let goes = |open: &Arc<Open>| {
                open.tree().id == tree.id && which(open) && session.take_open(open).is_ok()
            };
            taken.extend(session.opens().into_iter().filter(goes));
        }
        taken.extend(self.durables.give_up(|open| is_of(open, life) && which(open)));
        taken
    }

    /// Closes Opens, and lets others use the thread in between. If this is broken off, the rest is closed
    /// beside the core.
    async fn close_in_turns(self: &Arc<Self>, opens: Vec<LateOpen>) {
        let mut closing = Closing { server: self, rest: opens.into_iter() };
        for number in 1_usize.. {
            let Some(open) = closing.rest.next() else { break };
            panics::contained(|| self.close_late(open));
            if number.is_multiple_of(CLOSED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Abandons the Opens of a share that another server owns. Its tree connects stay until their
    /// connections have ended: a request by one of them ends its connection, too.
    pub(super) async fn end_uses(self: &Arc<Self>, life: &Arc<Life>) {
        if planted!(OldOwnerAnswers) {
            return;
        }
        let opens = self.take_opens(life, |_| true);
        self.close_in_turns(opens.into_iter().map(LateOpen::from).collect()).await;
        let late = self.cluster.late_opens(usize::MAX);
        self.close_in_turns(late).await;
    }

    /// Like [`Self::end_uses`], on a thread that may take long.
    pub(super) fn end_uses_now(self: &Arc<Self>, life: &Arc<Life>) {
        if planted!(OldOwnerAnswers) {
            return;
        }
        for open in self.take_opens(life, |_| true) {
            panics::contained(|| self.close_open(&open));
        }
    }
}

/// Opens that are nobody's any more, and of which the rest is still to be closed.
struct Closing<'a> {
    server: &'a Arc<ServerState>,
    rest: std::vec::IntoIter<LateOpen>,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let rest: Vec<_> = self.rest.by_ref().collect();
        if rest.is_empty() {
            return;
        }
        // A move that comes next waits for them.
        let changes: Vec<_> =
            rest.iter().map(|late| late.open.tree().share.life.begin_change()).collect();
        let kept = Arc::new(Mutex::new(rest));
        let (server, taken) = (Arc::clone(self.server), Arc::clone(&kept));
        let close = move || {
            let _changes = changes;
            server.close_rest(&taken);
        };
        if frevo_net::file_io::stays() || self.server.blocking_pool.run_for_core(close).is_err() {
            self.server.close_rest(&kept);
        }
    }
}

impl ServerState {
    /// Closes the Opens that a broken-off move has left.
    fn close_rest(self: &Arc<Self>, rest: &Mutex<Vec<LateOpen>>) {
        let rest = std::mem::take(&mut *rest.lock());
        for late in rest {
            panics::contained(|| self.close_late(late));
        }
    }
}
