//! Shares that pass from one owner to another, with their persistent Opens (MS-SMB2 3.3.1.10).
//!
//! A server on its own loads all records before it serves anybody ([`restore`]): shares can show the
//! same files, and a handle that waits for its client keeps others out. A share that several servers
//! have in turn is taken while others are served ([`ServerState::take_shares`]) and given away
//! ([`ServerState::give_shares`]), or lost ([`ServerState::lose_share`]).
//!
//! An Open of a share that another server owns is abandoned by its close: nothing is done to its
//! file, and its record is the next owner's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use frevo_store::StateStore;
use frevo_store::state::{Epoch, Loaded, OpenRecord, RecordId, StateFault};
use frevo_wire::fscc::fold_name;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::Survival;
use super::record::{Recorded, lost, restore_all, settle};
use super::store_backlog::Holder;
use crate::base::limits::HANDOVER_PATIENCE;
use crate::base::panics;
use crate::objects::notice::Notice;
use crate::objects::open::Open;
use crate::objects::server::ServerState;
use crate::objects::session::Session;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::life::Life;
use crate::shares::share::Share;

/// A share that could not be taken or given away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotMoved {
    /// The name of the share.
    pub share: String,
    /// The reason.
    pub why: String,
}

impl std::fmt::Display for NotMoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the share {}: {}", self.share, self.why)
    }
}

impl std::error::Error for NotMoved {}

impl NotMoved {
    fn of(share: &str, why: &impl ToString) -> Self {
        Self { share: share.to_owned(), why: why.to_string() }
    }
}

/// Asks a store for the records of a share.
pub(super) fn load(
    store: &dyn StateStore,
    share: &str,
) -> mpsc::Receiver<Result<Loaded, StateFault>> {
    let (done, loaded) = mpsc::channel();
    // The send fails if the start was given up because another load had failed.
    store.load(share, Box::new(move |result| _ = done.send(result)));
    loaded
}

/// The fault of a store that drops a callback.
pub(super) fn unanswered(_: mpsc::RecvError) -> StateFault {
    StateFault::Failed(String::from("it has not answered"))
}

/// Keeps persistent Opens in `store`, and makes those of an earlier run anew. Each waits for its
/// client as long as it would have after a lost connection. To be called before anybody is served.
///
/// # Errors
/// When the store cannot be read. A record that cannot be made an Open again
/// (its file or share has gone) costs that Open alone, and is logged.
pub fn restore(server: &Arc<ServerState>, store: Arc<dyn StateStore>) -> Result<usize, StateFault> {
    server.durables.set_store(store);
    restore_new(server)
}

/// Loads the continuous shares whose records were not loaded yet: all of them at the start, those
/// that a reload has made continuous later.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn restore_new(server: &Arc<ServerState>) -> Result<usize, StateFault> {
    let Some(store) = server.durables.store() else { return Ok(0) };
    let is_new = |share: &Arc<Share>| share.continuous && share.life.is_without_records();
    let shares: Vec<_> = server.shares().sorted().into_iter().filter(is_new).collect();
    let loading: Vec<_> = shares.iter().map(|share| load(&**store, share.life.share())).collect();
    let mut records = Vec::new();
    for (share, loading) in shares.iter().zip(loading) {
        let loaded = loading.recv().map_err(unanswered)??;
        let epoch = loaded.ownership.epoch;
        records.extend(read(server, &share.life, loaded));
        // The state is changed only by the task that starts the share, namely this one, so `own`
        // succeeds.
        let _ = share.life.own(epoch);
    }
    // The Opens of all shares are restored in one step, because caching and locks can be restored
    // only when all Opens exist.
    Ok(restore_all(server, records))
}

/// Decodes the records of a share.
fn read(server: &ServerState, life: &Arc<Life>, loaded: Loaded) -> Vec<Recorded> {
    let holder = Holder::loaded(life, &loaded.ownership);
    let readable = |(id, bytes): (RecordId, Vec<u8>)| match OpenRecord::from_bytes(&bytes) {
        Ok(record) => {
            let time = Duration::from_millis(u64::from(record.timeout_ms));
            let deadline = Instant::now() + time;
            Some(Recorded { id, record, deadline, holder: Some(holder.clone()) })
        }
        Err(error) => {
            lost(server, id, &error.to_string(), Some(&holder));
            None
        }
    };
    loaded.records.into_iter().filter_map(readable).collect()
}

/// Shares that are being taken. Those that are not served when this is dropped have failed.
struct Starting {
    lives: Vec<Arc<Life>>,
    why: String,
}

impl Default for Starting {
    fn default() -> Self {
        Self { lives: Vec::new(), why: String::from("it was not taken to the end") }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        for life in &self.lives {
            // If the share is already served, the call has no effect, so its result is ignored.
            let _ = life.fail(self.why.clone());
        }
    }
}

/// True for an Open of that share.
fn is_of(open: &Open, life: &Arc<Life>) -> bool {
    Arc::ptr_eq(&open.tree().share.life, life)
}

impl ServerState {
    /// Has each share stop being used when another server owns it.
    pub(crate) fn watch_lives(self: &Arc<Self>) {
        for share in self.shares().sorted() {
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

    fn life(&self, name: &str) -> Result<Arc<Life>, NotMoved> {
        let shares = self.shares();
        let share = shares.find(&fold_name(name));
        let share = share.ok_or_else(|| NotMoved::of(name, &"there is no such share"))?;
        Ok(Arc::clone(&share.life))
    }

    fn lives(&self, names: &[&str]) -> Result<Vec<Arc<Life>>, NotMoved> {
        names.iter().map(|name| self.life(name)).collect()
    }

    /// Takes shares that another server had: loads their records, makes their persistent Opens anew,
    /// and serves them. Shares that show the same files are to be taken together. Returns the number
    /// of Opens.
    ///
    /// # Errors
    /// When a share is served already, or its records cannot be loaded: it has failed then, and may
    /// be taken again.
    pub async fn take_shares(self: &Arc<Self>, names: &[&str]) -> Result<usize, NotMoved> {
        let lives = self.lives(names)?;
        let mut starting = Starting::default();
        for life in lives {
            life.start().map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
            self.end_uses(&life);
            self.durables.backlog().forget(&life);
            starting.lives.push(life);
        }
        let taken = self.take(&starting.lives).await;
        if let Err(fault) = &taken {
            tracing::error!(target: "frevo::share", %fault, "cannot serve a share");
            starting.why.clone_from(&fault.why);
        }
        taken
    }

    async fn take(self: &Arc<Self>, lives: &[Arc<Life>]) -> Result<usize, NotMoved> {
        let mut loading = Vec::new();
        for life in lives {
            let (done, loaded) = oneshot::channel();
            loading.push((life, loaded));
            match self.durables.store() {
                Some(store) => store.load(life.share(), Box::new(|result| _ = done.send(result))),
                None => drop(done),
            }
        }
        let (mut records, mut epochs) = (Vec::new(), Vec::new());
        for (life, loaded) in loading {
            let Ok(loaded) = loaded.await else {
                if self.durables.store().is_none() {
                    epochs.push((life, Epoch::default()));
                    continue;
                }
                return Err(NotMoved::of(life.share(), &"the state store has not answered"));
            };
            let loaded = loaded.map_err(|fault| NotMoved::of(life.share(), &fault))?;
            epochs.push((life, loaded.ownership.epoch));
            records.extend(read(self, life, loaded));
        }
        let count = self.restore_beside(records).await;
        for (life, epoch) in epochs {
            life.own(epoch).map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
            tracing::info!(target: "frevo::share", share = &**life.share(), epoch = epoch.0,
                "this server owns the share");
        }
        self.start_scavenger();
        Ok(count)
    }

    /// Makes Opens anew beside the core, which serves others meanwhile.
    async fn restore_beside(self: &Arc<Self>, records: Vec<Recorded>) -> usize {
        if records.is_empty() || frevo_net::file_io::stays() {
            return restore_all(self, records);
        }
        let (done, restored) = oneshot::channel();
        let (server, runtime) = (Arc::clone(self), Handle::current());
        let given = self.blocking_pool.run_for_core(move || {
            let _runtime = runtime.enter();
            let _ = done.send(restore_all(&server, records));
        });
        // If the server ends before the task runs, no Open is restored, but the records stay in the
        // state store.
        if given.is_err() { 0 } else { restored.await.unwrap_or_default() }
    }

    /// Gives shares away, so that another server at `addresses` can take them. Their users lose the
    /// connections by which they use them, and find the other server; persistent Opens wait for
    /// their clients there, all other Opens are closed.
    ///
    /// # Errors
    /// When a share is not served here, or its records cannot be brought up to date.
    pub async fn give_shares(
        self: &Arc<Self>,
        names: &[&str],
        addresses: &[SocketAddr],
    ) -> Result<(), NotMoved> {
        let lives = self.lives(names)?;
        for life in &lives {
            life.drain().map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
        }
        for life in &lives {
            self.cut_off(life);
            // Running requests may still change files, so they must end before the next owner
            // serves the share.
            let trees: Vec<_> = self.trees_of(life).into_iter().map(|(_, tree)| tree).collect();
            for tree in &trees {
                tree.under_way.end();
                tree.under_way.give_up();
            }
            let drained = async {
                for tree in &trees {
                    tree.under_way.drained().await;
                }
            };
            if timeout(HANDOVER_PATIENCE, drained).await.is_err() {
                tracing::warn!(target: "frevo::share", share = &**life.share(),
                    "gave the share away while requests were still being carried out");
            }
            self.close_all_but_persistent(life);
        }
        let settled = settle(self).await.map_err(|status| NotMoved::of(&names.join(", "), &status));
        let mut given = settled;
        for life in &lives {
            let flushed = self.flush(life).await;
            let left = life.leave(addresses.to_vec());
            let left = left.map_err(|wrong| NotMoved::of(life.share(), &wrong));
            self.end_uses(life);
            self.durables.backlog().forget(life);
            given = given.and(flushed).and(left);
            tracing::info!(target: "frevo::share", share = &**life.share(), "gave the share away");
        }
        given
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
            self.end_uses(&life);
        }
        Ok(is_lost)
    }

    fn trees_of(&self, life: &Arc<Life>) -> Vec<(Arc<Session>, Arc<TreeConnect>)> {
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
                let _ = channel.send(Notice::Disconnect("another server serves the share"));
            }
        }
    }

    /// Closes the Opens of a share that the next owner does not have.
    fn close_all_but_persistent(self: &Arc<Self>, life: &Arc<Life>) {
        let stays = |open: &Open| open.survival().is_some_and(Survival::is_persistent);
        self.close_attached(life, |open| !stays(open));
        for open in self.durables.give_up(|open| is_of(open, life) && !stays(open)) {
            panics::contained(|| self.close_open(&open));
        }
    }

    fn close_attached(self: &Arc<Self>, life: &Arc<Life>, which: impl Fn(&Open) -> bool) {
        for (session, tree) in self.trees_of(life) {
            for open in session.opens() {
                let goes = open.tree().id == tree.id && which(&open);
                if goes && session.take_open(&open).is_ok() {
                    panics::contained(|| self.close_open(&open));
                }
            }
        }
    }

    /// Abandons the Opens of a share that another server owns. Its tree connects stay until their
    /// connections have ended: a request by one of them ends its connection, too.
    fn end_uses(self: &Arc<Self>, life: &Arc<Life>) {
        if planted!(OldOwnerAnswers) {
            return;
        }
        self.close_attached(life, |_| true);
        for open in self.durables.give_up(|open| is_of(open, life)) {
            panics::contained(|| self.close_open(&open));
        }
    }
}
