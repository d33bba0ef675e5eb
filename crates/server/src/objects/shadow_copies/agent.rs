//! The thread that has the state of the shadow copies. What may block runs beside it: one set at a time is on
//! its way, so that this is one work at a time.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use frevo_rpc::fsrvp::{
    Exposure, HResult, LeftCopy, NewCopy, Removal, Reply, Request, ShadowCopySets, Snapshot,
    share_of,
};
use frevo_store::HostPlaces;
use frevo_store::snapshot::Moment;
use frevo_wire::dtyp::{FileTime, Guid};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{Asked, BY_SERVER, Requester, ShadowCopies, Snapshotter};
use crate::base::host;
use crate::base::limits::SHADOW_COPY_CALLS;
use crate::base::panics;
use crate::objects::kick::{Administrator, Kick, kick};
use crate::objects::server::ServerState;
use crate::shares::exposed::{BaseFolder, Exposed};
use crate::shares::share::Share;

/// The answer to a call, and what is to be done before it is sent.
struct Step {
    result: Result<Reply, HResult>,
    removal: Removal,
}

impl From<Result<Reply, HResult>> for Step {
    fn from(result: Result<Reply, HResult>) -> Self {
        Self { result, removal: Removal::default() }
    }
}

impl From<HResult> for Step {
    fn from(status: HResult) -> Self {
        Self { result: Err(status), removal: Removal::default() }
    }
}

impl From<Result<Removal, HResult>> for Step {
    fn from(result: Result<Removal, HResult>) -> Self {
        match result {
            Ok(removal) => Self { result: Ok(Reply::Done), removal },
            Err(status) => status.into(),
        }
    }
}

/// A work beside the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Commit,
    Expose,
}

/// The end of a work.
#[derive(Debug)]
enum Ended {
    /// The snapshots that were made: all, or none.
    Committed { set: Guid, made: Result<Vec<Snapshot>, HResult> },
    /// The shares that serve the snapshots.
    Opened { set: Guid, opened: Result<Vec<Exposed>, HResult> },
}

/// A call that waits for the end of a work.
struct Waiting {
    set: Guid,
    work: Work,
    until: Instant,
    asked: Asked,
}

/// The state of the thread.
struct Agent {
    server: Weak<ServerState>,
    hands: Arc<dyn Snapshotter>,
    sets: ShadowCopySets,
    /// The bytes that are stored.
    stored: Vec<u8>,
    began: Instant,
    waiting: Vec<Waiting>,
    ends: mpsc::UnboundedSender<Ended>,
    ended: Option<mpsc::UnboundedReceiver<Ended>>,
}

/// Starts the thread, with the sets of an earlier run, whose shares are served again. It ends with the server.
///
/// # Errors
/// There is no thread.
pub(crate) fn begin(
    server: &Arc<ServerState>,
    hands: Arc<dyn Snapshotter>,
    sets: ShadowCopySets,
) -> io::Result<()> {
    let (sender, calls) = mpsc::channel(SHADOW_COPY_CALLS);
    let agent = Agent::new(Arc::downgrade(server), hands, sets);
    agent.restore(server);
    agent.start(calls)?;
    // A server has one thread for them.
    let _ = server.shadow_copies.set(ShadowCopies::new(sender));
    Ok(())
}

/// The share that serves a snapshot of `base`. None if the snapshot cannot be opened.
fn open(base: &Share, exposure: Exposure) -> Option<Exposed> {
    let Exposure { name, snapshot: Snapshot { share, taken } } = exposure;
    let moment = Moment::of(FileTime::from_unix(i64::try_from(taken).ok()?, 0))?;
    let opened = base.vfs()?.snapshot(moment, &Arc::<HostPlaces>::default());
    match opened {
        Ok(files) => Some(Exposed { name, base: share, files, folder: BaseFolder::of(base) }),
        Err(fault) => {
            tracing::error!(target: "frevo::snapshot", share, exposed = name, ?fault,
                "a shadow copy cannot be served");
            None
        }
    }
}

impl Agent {
    fn new(server: Weak<ServerState>, hands: Arc<dyn Snapshotter>, sets: ShadowCopySets) -> Self {
        let (ends, ended) = mpsc::unbounded_channel();
        Self {
            server,
            hands,
            stored: sets.to_bytes(),
            sets,
            began: Instant::now(),
            waiting: Vec::new(),
            ends,
            ended: Some(ended),
        }
    }

    /// Serves the shares of an earlier run again. It blocks.
    fn restore(&self, server: &ServerState) {
        let shares = server.shares();
        let found = self.sets.exposures().filter_map(|exposure| {
            let base = shares.find(&exposure.snapshot.share)?;
            open(base, exposure)
        });
        let found: Vec<Exposed> = found.collect();
        if !found.is_empty() {
            server.change_exposed(|exposed| exposed.extend(found));
        }
    }

    /// Starts the thread. It ends when nobody can call any more.
    fn start(mut self, mut calls: mpsc::Receiver<Asked>) -> io::Result<()> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().on_thread_start(host::begin_thread).build()?;
        let Some(mut ended) = self.ended.take() else { return Ok(()) };
        let named = thread::Builder::new().name(String::from("shadow-copies"));
        named.spawn(move || {
            host::begin_thread();
            runtime.block_on(async {
                self.thin_left().await;
                loop {
                    let due = self.next_look();
                    tokio::select! {
                        // A call that came before the end of a work waits for it.
                        biased;
                        asked = calls.recv() => match asked {
                            Some(asked) => self.answer(asked).await,
                            None => return,
                        },
                        Some(end) = ended.recv() => self.end(end).await,
                        () = sleep_until(due) => self.look().await,
                    }
                }
            });
            // A storage that does not answer holds up nobody.
            runtime.shutdown_background();
        })?;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The next time at which the timer elapses, or a call has waited long enough.
    fn next_look(&self) -> Instant {
        let timer = self.sets.due().map(|due| self.began + due);
        let waits = self.waiting.iter().map(|waiting| waiting.until);
        let far = Instant::now() + Duration::from_secs(3_600);
        waits.chain(timer).min().unwrap_or(far).min(far)
    }

    async fn answer(&mut self, asked: Asked) {
        // A timer that has elapsed ends the set before this call.
        if self.next_look() <= Instant::now() {
            self.look().await;
        }
        let work = match &asked.request {
            Request::Commit { set, timeout_ms } => Some((Work::Commit, *set, *timeout_ms)),
            Request::Expose { set, timeout_ms } => Some((Work::Expose, *set, *timeout_ms)),
            _ => None,
        };
        if let Some((work, set, timeout_ms)) = work {
            return self.begin(work, set, Duration::from_millis(u64::from(timeout_ms)), asked);
        }
        let before = self.sets.clone();
        let Step { mut result, removal } = self.step(&asked.request, &asked.by);
        if self.store().await.is_err() {
            self.sets = before;
            result = Err(HResult::UNEXPECTED);
        } else {
            self.carry_out(removal, &asked.by.user).await;
        }
        // A send fails if the pipe that asked is closed meanwhile.
        let _ = asked.answer.send(result);
        if matches!(asked.request, Request::SetContext(_)) {
            self.thin_left().await;
        }
    }

    /// Carries out a call that does not wait.
    fn step(&mut self, request: &Request, by: &Requester) -> Step {
        let now = self.now();
        match request {
            Request::SetContext(context) => {
                let set = self.sets.set_context(*context, by.address, now);
                // Where a schedule thins them, it has them from now on.
                let is_left = |copy: &&LeftCopy| !self.hands.is_thinned(&copy.snapshot.share);
                let left: Vec<_> = set.removal.released.iter().filter(is_left).cloned().collect();
                left.into_iter().for_each(|copy| self.sets.leave(copy));
                Step { result: set.result.map(|()| Reply::Done), removal: set.removal }
            }
            Request::Start { client_set } => match self.new_id() {
                Some(id) => self.sets.start(*client_set, id, &by.user, now).into(),
                None => HResult::UNEXPECTED.into(),
            },
            Request::Add { set, share, .. } => self.add(*set, share, now).into(),
            Request::Prepare { set, .. } => self.sets.prepare(*set, now).into(),
            Request::RecoveryComplete { set } => self.sets.complete_recovery(*set).into(),
            Request::Abort { set } => self.sets.abort(*set).into(),
            Request::IsPathSupported { share } => self.supported(share).into(),
            Request::IsPathShadowCopied { share } => match self.volume_of(share) {
                Ok(CopiedShare { volume, .. }) => Ok(self.sets.is_shadow_copied(&volume)).into(),
                // MS-FSRVP 3.1.4.10: a share without a store of snapshots has none.
                Err(HResult::NOT_SUPPORTED) => {
                    Ok(Reply::ShadowCopied { is_present: false, compatibility: 0 }).into()
                }
                Err(status) => status.into(),
            },
            Request::GetShareMapping { copy, set, share, level } => {
                self.sets.mapping(*set, *copy, share, *level, now).into()
            }
            Request::DeleteShareMapping { set, copy, share } => {
                self.sets.delete(*set, *copy, share).into()
            }
            Request::GetSupportedVersion | Request::Commit { .. } | Request::Expose { .. } => {
                HResult::UNEXPECTED.into()
            }
        }
    }

    /// A random GUID.
    fn new_id(&self) -> Option<Guid> {
        let mut bytes = [0; 16];
        self.server.upgrade()?.ambient.random(&mut bytes);
        // RFC 9562, 5.4: these bits mark the GUID as a random one.
        bytes[7] = (bytes[7] & 0x0F) | 0x40;
        bytes[8] = (bytes[8] & 0x3F) | 0x80;
        Some(Guid(bytes))
    }

    /// The share that a text in UNC format names, whatever the server is called in it.
    fn volume_of(&self, unc: &str) -> Result<CopiedShare, HResult> {
        let name = share_of(unc).ok_or(HResult::INVALID_ARGUMENT)?;
        let server = self.server.upgrade().ok_or(HResult::UNEXPECTED)?;
        let shares = server.shares();
        let share = shares.find(name).ok_or(HResult::OBJECT_NOT_FOUND)?;
        let volume = if share.is_exposed { None } else { self.hands.volume(&share.name) };
        let volume = volume.ok_or(HResult::NOT_SUPPORTED)?;
        Ok(CopiedShare { share: share.name.clone(), volume })
    }

    fn supported(&self, unc: &str) -> Result<Reply, HResult> {
        self.volume_of(unc)?;
        let server = self.server.upgrade().ok_or(HResult::UNEXPECTED)?;
        Ok(Reply::Supported { owner: server.settings().server_name.clone() })
    }

    fn add(&mut self, set: Guid, unc: &str, now: Duration) -> Result<Reply, HResult> {
        let CopiedShare { share, volume } = self.volume_of(unc)?;
        let server = self.server.upgrade().ok_or(HResult::UNEXPECTED)?;
        let id = self.new_id().ok_or(HResult::UNEXPECTED)?;
        let (share_unc, created) = (unc.to_owned(), server.ambient.now());
        self.sets.add(set, NewCopy { id, share_unc, share, volume, created }, now)
    }

    /// Begins a work, or waits for one that was begun before.
    fn begin(&mut self, work: Work, set: Guid, patience: Duration, asked: Asked) {
        let begun = match work {
            Work::Commit => self.commit(set, asked.by.user.clone()),
            Work::Expose => self.expose(set),
        };
        match begun {
            Ok(()) => {
                let until = Instant::now() + patience;
                // The place of a call whose pipe is closed is free.
                let is_of_it = |one: &Waiting| one.set == set && one.work == work;
                self.waiting.retain(|one| !is_of_it(one) || !one.asked.answer.is_closed());
                self.waiting.push(Waiting { set, work, until, asked });
            }
            Err(status) => _ = asked.answer.send(Err(status)),
        }
    }

    fn commit(&mut self, set: Guid, by: String) -> Result<(), HResult> {
        let Some(wanted) = self.sets.begin_commit(set)? else { return Ok(()) };
        let (hands, ends) = (Arc::clone(&self.hands), self.ends.clone());
        tokio::task::spawn_blocking(move || {
            let mut made: Vec<Snapshot> = Vec::new();
            let mut end = Ok(());
            for one in wanted {
                let created = panics::contained(|| hands.create(&one.share, &by));
                match created.unwrap_or_else(|| Err(String::from("a panic"))) {
                    Ok(taken) => made.push(Snapshot { share: one.share, taken }),
                    Err(why) => {
                        tracing::error!(target: "frevo::snapshot", share = one.share,
                            "a shadow copy that a client has asked for is not made: {why}");
                        end = Err(HResult::WAIT_FAILED);
                        break;
                    }
                }
            }
            if end.is_err() {
                remove(&*hands, &made, BY_SERVER);
            }
            // The thread ends with the server alone.
            let _ = ends.send(Ended::Committed { set, made: end.map(|()| made) });
        });
        Ok(())
    }

    fn expose(&mut self, set: Guid) -> Result<(), HResult> {
        let is_it = |waiting: &Waiting| waiting.set == set && waiting.work == Work::Expose;
        let is_under_way = self.waiting.iter().any(is_it);
        let exposures = self.sets.begin_expose(set)?;
        if is_under_way {
            return Ok(());
        }
        let server = self.server.upgrade().ok_or(HResult::UNEXPECTED)?;
        let ends = self.ends.clone();
        tokio::task::spawn_blocking(move || {
            let shares = server.shares();
            let opened = panics::contained(|| -> Option<Vec<Exposed>> {
                let one =
                    |exposure: Exposure| open(shares.find(&exposure.snapshot.share)?, exposure);
                exposures.into_iter().map(one).collect()
            });
            let opened = opened.flatten().ok_or(HResult::WAIT_FAILED);
            let _ = ends.send(Ended::Opened { set, opened });
        });
        Ok(())
    }

    async fn end(&mut self, end: Ended) {
        let (work, set) = match &end {
            Ended::Committed { set, .. } => (Work::Commit, *set),
            Ended::Opened { set, .. } => (Work::Expose, *set),
        };
        let result = match end {
            Ended::Committed { made, .. } => self.end_commit(set, made).await,
            Ended::Opened { opened, .. } => self.end_expose(set, opened).await,
        };
        for waiting in self.waiting.extract_if(.., |one| one.set == set && one.work == work) {
            let _ = waiting.asked.answer.send(result.clone());
        }
    }

    /// Notes the snapshots. Those of a set that has ended meanwhile, or whose state is not stored, are
    /// removed.
    async fn end_commit(
        &mut self,
        set: Guid,
        made: Result<Vec<Snapshot>, HResult>,
    ) -> Result<Reply, HResult> {
        let (before, now) = (self.sets.clone(), self.now());
        let made = match made {
            Ok(made) => made,
            Err(status) => {
                self.sets.end_commit(set, Err(status), now);
                return Err(status);
            }
        };
        let taken: Vec<u64> = made.iter().map(|one| one.taken).collect();
        let is_there = self.sets.end_commit(set, Ok(&taken), now);
        if is_there && self.store().await.is_ok() {
            return Ok(Reply::Done);
        }
        if is_there {
            self.sets = before;
            self.sets.end_commit(set, Err(HResult::UNEXPECTED), now);
        }
        let hands = Arc::clone(&self.hands);
        let _ = tokio::task::spawn_blocking(move || remove(&*hands, &made, BY_SERVER)).await;
        Err(HResult::UNEXPECTED)
    }

    /// Serves the shares. Those of a set that has ended meanwhile, or whose state is not stored, are not.
    async fn end_expose(
        &mut self,
        set: Guid,
        opened: Result<Vec<Exposed>, HResult>,
    ) -> Result<Reply, HResult> {
        let (before, now) = (self.sets.clone(), self.now());
        let is_there = self.sets.end_expose(set, opened.is_ok(), now);
        let opened = opened?;
        let server = self.server.upgrade();
        match server.filter(|_| is_there) {
            Some(server) if self.store().await.is_ok() => {
                server.change_exposed(|exposed| exposed.extend(opened));
                Ok(Reply::Done)
            }
            _ => {
                if is_there {
                    self.sets = before;
                    self.sets.end_expose(set, false, now);
                }
                Err(HResult::UNEXPECTED)
            }
        }
    }

    /// Ends calls that have waited long enough, and the set whose client is silent.
    async fn look(&mut self) {
        let now = Instant::now();
        let mut late = Vec::new();
        for waiting in self.waiting.extract_if(.., |waiting| waiting.until <= now) {
            let status = match waiting.work {
                Work::Commit => HResult::COMMIT_TIMEOUT,
                Work::Expose => HResult::WAIT_TIMEOUT,
            };
            late.push(waiting.set);
            let _ = waiting.asked.answer.send(Err(status));
        }
        late.retain(|set| self.waiting.iter().all(|waiting| waiting.set != *set));
        let since = self.now();
        late.into_iter().for_each(|set| self.sets.end_wait(set, since));
        if let Some(removal) = self.sets.elapse(self.now()) {
            tracing::info!(target: "frevo::snapshot", snapshots = removal.snapshots.len(),
                "a client that made shadow copies is silent: they are removed");
            // A set that is still stored ends again after a restart.
            let _ = self.store().await;
            self.carry_out(removal, BY_SERVER).await;
        }
    }

    /// Removes copies that clients have left behind, if there are too many. One that cannot be removed stays known,
    /// and is tried again.
    async fn thin_left(&mut self) {
        let surplus = self.sets.surplus_left();
        if surplus.is_empty() {
            return;
        }
        let hands = Arc::clone(&self.hands);
        let removing = tokio::task::spawn_blocking(move || {
            let is_removed = |one: &Snapshot| match hands.expire(&one.share, one.taken) {
                Ok(()) => true,
                Err(why) => {
                    tracing::warn!(target: "frevo::snapshot", share = one.share,
                        "a shadow copy that a client has left is not removed yet: {why}");
                    false
                }
            };
            surplus.into_iter().filter(is_removed).collect::<Vec<Snapshot>>()
        });
        for gone in removing.await.unwrap_or_default() {
            self.sets.forget_left(&gone);
        }
        // A copy that is still stored is looked for again after a restart, and is not there.
        let _ = self.store().await;
    }

    /// Stores the state if it has changed.
    async fn store(&mut self) -> Result<(), ()> {
        let bytes = self.sets.to_bytes();
        if bytes == self.stored {
            return Ok(());
        }
        let (hands, writes) = (Arc::clone(&self.hands), bytes.clone());
        let written = tokio::task::spawn_blocking(move || hands.store(&writes)).await;
        match written {
            Ok(Ok(())) => {
                self.stored = bytes;
                Ok(())
            }
            Ok(Err(error)) => {
                tracing::error!(target: "frevo::snapshot", %error,
                    "the state of the shadow copies cannot be stored");
                Err(())
            }
            Err(_) => Err(()),
        }
    }

    /// Ends the shares of shadow copies, then removes the snapshots.
    async fn carry_out(&self, removal: Removal, by: &str) {
        let Removal { shares, snapshots, released } = removal;
        if let Some(server) = self.server.upgrade().filter(|_| !shares.is_empty()) {
            server.change_exposed(|exposed| exposed.retain(|one| !shares.contains(&one.name)));
            for name in shares {
                let by = Administrator { name: by, ground: None };
                kick(&server, &Kick::Share(name), by).await;
            }
        }
        if snapshots.is_empty() && released.is_empty() {
            return;
        }
        let (hands, by) = (Arc::clone(&self.hands), by.to_owned());
        let done = tokio::task::spawn_blocking(move || {
            remove(&*hands, &snapshots, &by);
            for LeftCopy { snapshot, .. } in released {
                hands.release(&snapshot.share, snapshot.taken);
            }
        });
        let _ = done.await;
    }
}

/// A share of which snapshots can be made.
struct CopiedShare {
    share: String,
    /// The store that it is on.
    volume: String,
}

/// Removes snapshots. The hands try again where that fails.
fn remove(hands: &dyn Snapshotter, snapshots: &[Snapshot], by: &str) {
    for Snapshot { share, taken } in snapshots {
        if let Err(why) = hands.remove(share, *taken, by) {
            tracing::warn!(target: "frevo::snapshot", share, "a shadow copy is not removed yet: {why}");
        }
    }
}
