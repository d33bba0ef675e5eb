//! The namespaces that were made over the network for the shares of a cluster: etcd has them, each node a copy of
//! them in its state directory. A change is made in etcd, then served here, then answered.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use frevo_cluster::limits::NAMESPACE_ATTEMPTS;
use frevo_dfs::limits::NAMESPACES;
use frevo_etcd::types::{Fault, Revision, WatchAnswer};
use frevo_server::{NamespaceChange, NotChanged};
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::time::sleep;

use crate::cluster::{Entries, KeptNamespaces, NamespaceStore, NotKept};
use crate::config_sources::Sources;
use crate::exit::Failure;
use crate::network_namespaces::NetworkNamespaces;
use crate::serve::share_edits::Asking;

/// Time between two questions while etcd does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two questions while what etcd has cannot be used.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Time after which namespaces that could not be served are tried again.
const UNSERVED_PAUSE: Duration = Duration::from_secs(30);

/// The namespaces of the cluster's shares. Clones are of one node.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Namespaces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: NamespaceStore,
    /// The latest entries that had no faults.
    good: std::sync::Mutex<Entries>,
    /// The latest that is known of etcd. None if etcd has to be asked before a change.
    known: Mutex<Option<KeptNamespaces>>,
    /// The revision of the latest that this node has read or made.
    revision: AtomicU64,
    /// The revision of etcd at that time, and the number of times at which an older one came after it.
    clock: std::sync::Mutex<Clock>,
    /// Told when etcd has to be read.
    news: Notify,
    /// True while what could not be served waits for another attempt.
    is_waiting: AtomicBool,
    /// The way to the thread that reloads.
    asking: Asking,
    /// The file of the configuration.
    config: Option<PathBuf>,
}

/// The place of a state among others. Revisions begin anew when etcd is restored from an older copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::serve) struct Turn {
    age: u64,
    pub(in crate::serve) revision: Revision,
}

impl Turn {
    /// True for the state of an etcd that has no namespaces.
    pub(in crate::serve) fn is_of_none(self) -> bool {
        self.revision == Revision(0)
    }
}

/// The latest moment that is known, and etcd's revision at it.
#[derive(Debug, Default)]
struct Clock {
    latest: Turn,
    read_at: Revision,
}

impl Clock {
    /// Notes what was read or made last. A revision that is older than a known one begins a new age.
    fn note(&mut self, revision: Revision, read_at: Revision) -> Turn {
        let is_older = revision < self.latest.revision || read_at < self.read_at;
        let age = self.latest.age + u64::from(is_older);
        *self = Self { latest: Turn { age, revision }, read_at };
        self.latest
    }
}

/// A state of the namespaces, to be served.
#[derive(Debug)]
pub(in crate::serve) struct State {
    pub(in crate::serve) turn: Turn,
    pub(in crate::serve) entries: Entries,
    /// The text of those without faults.
    pub(in crate::serve) text: String,
    /// A sentence for each namespace that has a fault.
    faults: Vec<String>,
    left_out: usize,
}

/// The change that led to a state, for the administrator who has asked for it.
#[derive(Debug)]
pub(in crate::serve) struct Made {
    pub(in crate::serve) answer: oneshot::Sender<Result<(), NotChanged>>,
    before: Entries,
}

/// The namespaces that etcd has, and the moment of them.
struct Latest {
    kept: KeptNamespaces,
    turn: Turn,
}

/// The namespaces after a change.
struct After {
    entries: Entries,
    text: String,
    faults: Vec<String>,
}

/// A change that is asked for.
pub(in crate::serve) struct Wanted {
    pub(in crate::serve) change: NamespaceChange,
    /// The texts of the configuration without what etcd has.
    pub(in crate::serve) sources: Sources,
    /// The copy of what etcd has.
    pub(in crate::serve) copy: NetworkNamespaces,
}

impl State {
    /// Looks for faults in what is other than in `good`, which has none.
    fn of(kept: KeptNamespaces, turn: Turn, good: &Entries) -> Self {
        let (text, faults) = kept.entries.checked_text_since(good);
        let KeptNamespaces { entries, left_out, .. } = kept;
        Self { turn, entries, text, faults, left_out }
    }

    /// Tells what is not served.
    pub(in crate::serve) fn warn(&self) {
        if let Some(first) = self.faults.first() {
            tracing::warn!(target: "frevo::cluster", namespaces = self.faults.len(), first,
                "parts of namespaces that etcd has are not served: they have faults");
        }
        if self.left_out > 0 {
            tracing::warn!(target: "frevo::cluster", values = self.left_out,
                "values below frevo/CLUSTER/namespace in etcd are not used: a later version, or somebody else, \
                 has written them");
        }
    }
}

fn not_changed(why: NotKept) -> NotChanged {
    match why {
        NotKept::Raced => NotChanged::Retry(String::from(
            "other nodes of the cluster change the namespaces at the same time",
        )),
        NotKept::Unreachable(why) => NotChanged::Retry(format!(
            "{why}; the change was not made, or will be seen when etcd answers"
        )),
        NotKept::Refused(why) => NotChanged::Failed(why),
    }
}

/// Runs a function that parses much, or waits for a disk, beside the event loop.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

impl Namespaces {
    pub(super) fn new(store: NamespaceStore, asking: Asking, config: Option<PathBuf>) -> Self {
        let (known, revision) = (Mutex::new(None), AtomicU64::new(0));
        let (clock, news) = (std::sync::Mutex::default(), Notify::new());
        Self(Arc::new(Inner {
            store,
            good: std::sync::Mutex::default(),
            known,
            revision,
            clock,
            news,
            is_waiting: AtomicBool::new(false),
            asking,
            config,
        }))
    }

    /// Serves what etcd has, as long as the node runs.
    pub(super) async fn keep(self) {
        let mut told = None;
        loop {
            let Latest { kept, turn } = match self.look().await {
                Ok(latest) => latest,
                Err(why) => {
                    let pause = match &why {
                        // The node itself tells that etcd does not answer.
                        NotKept::Raced | NotKept::Unreachable(_) => PAUSE,
                        NotKept::Refused(text) => {
                            if told.as_ref() != Some(&why) {
                                tracing::error!(target: "frevo::cluster",
                                    "the namespaces that etcd has cannot be used, those of before are served on: {text}");
                            }
                            REFUSED_PAUSE
                        }
                    };
                    told = Some(why);
                    sleep(pause).await;
                    continue;
                }
            };
            told = None;
            let after = kept.read_at;
            let Some(state) = self.state_of(kept, turn).await else { return };
            if !self.0.asking.serve(state, None).await {
                return;
            }
            let has_ended = Arc::new(AtomicBool::new(false));
            let (ended, inner) = (Arc::clone(&has_ended), Arc::clone(&self.0));
            let tell = move |answer: Result<WatchAnswer, Fault>| {
                if !matches!(answer, Ok(WatchAnswer::Changes { .. })) {
                    ended.store(true, Ordering::Release);
                }
                if inner.is_news(&answer) {
                    inner.news.notify_one();
                }
            };
            let watching = self.0.store.watch(after, Box::new(tell));
            self.0.news.notified().await;
            drop(watching);
            // An etcd that ends each watch at once is not asked without end.
            if has_ended.load(Ordering::Acquire) {
                sleep(PAUSE).await;
            }
        }
    }

    /// Reads what etcd has, and gives it what this node has if it has none.
    async fn look(&self) -> Result<Latest, NotKept> {
        let mut known = self.0.known.lock().await;
        let kept = self.read().await?;
        let turn = self.0.note(&mut known, &kept);
        Ok(Latest { kept, turn })
    }

    /// Looks for faults in the namespaces.
    async fn state_of(&self, kept: KeptNamespaces, turn: Turn) -> Option<State> {
        let good = self.0.good();
        let state = beside(move || State::of(kept, turn, &good)).await?;
        self.0.note_good(&state.entries, &state.faults);
        Some(state)
    }

    /// Has what etcd has served again after a pause, because it could not be served.
    pub(in crate::serve) async fn retry(self) {
        if self.0.is_waiting.swap(true, Ordering::AcqRel) {
            return;
        }
        sleep(UNSERVED_PAUSE).await;
        self.0.is_waiting.store(false, Ordering::Release);
        self.0.news.notify_one();
    }

    async fn read(&self) -> Result<KeptNamespaces, NotKept> {
        let good = self.0.good();
        let kept = self.0.store.read(&good).await?;
        if kept.revision != Revision(0) {
            return Ok(kept);
        }
        let inner = Arc::clone(&self.0);
        let Some(entries) = beside(move || inner.stored_here()).await else { return Ok(kept) };
        let entries = entries.unwrap_or_else(|failure| {
            tracing::error!(target: "frevo::cluster",
                "the namespaces of this node's state directory are not given to the cluster: {failure}");
            Entries::default()
        });
        if entries.is_empty() {
            return Ok(kept);
        }
        match self.0.store.replace(&kept, entries).await {
            Ok(kept) => {
                tracing::info!(target: "frevo::cluster",
                    "etcd had no namespaces and has those of this node now");
                Ok(kept)
            }
            Err(NotKept::Raced) => self.0.store.read(&good).await,
            Err(why) => Err(why),
        }
    }

    /// Makes a change in etcd, and has it served here. The answer comes after both.
    pub(in crate::serve) async fn change(
        self,
        wanted: Wanted,
        answer: oneshot::Sender<Result<(), NotChanged>>,
    ) {
        // A send fails if the connection that asked for the change is closed meanwhile.
        let mut before = Entries::default();
        match self.try_change(wanted, &mut before).await {
            Ok(state) => _ = self.0.asking.serve(state, Some(Made { answer, before })).await,
            Err(why) => _ = answer.send(Err(why)),
        }
    }

    /// Makes a change in etcd. Returns the state after it; `replaced` becomes that before it.
    async fn try_change(
        &self,
        wanted: Wanted,
        replaced: &mut Entries,
    ) -> Result<State, NotChanged> {
        let wanted = Arc::new(wanted);
        let mut known = self.0.known.lock().await;
        for _ in 0..NAMESPACE_ATTEMPTS {
            let before = match known.take() {
                Some(known) => known,
                None => self.read().await.map_err(not_changed)?,
            };
            let (entries, wanted) = (before.entries.clone(), Arc::clone(&wanted));
            let good = self.0.good();
            let after = beside(move || wanted.made_of(&entries, &good)).await;
            let bug = || Err(NotChanged::Failed(String::from("internal error")));
            let after = match after.unwrap_or_else(bug) {
                Ok(after) => after,
                Err(why) => {
                    *known = Some(before);
                    return Err(why);
                }
            };
            let After { entries, text, faults } = after;
            match self.0.store.replace(&before, entries.clone()).await {
                Ok(kept) => {
                    let turn = self.0.note(&mut known, &kept);
                    self.0.note_good(&entries, &faults);
                    *replaced = before.entries;
                    let left_out = kept.left_out;
                    return Ok(State { turn, entries, text, faults, left_out });
                }
                Err(NotKept::Raced) => {}
                Err(why) => return Err(not_changed(why)),
            }
        }
        Err(not_changed(NotKept::Raced))
    }

    /// Takes a change back that cannot be served here, unless another node has made one since.
    pub(in crate::serve) async fn undo(self, made: Revision, before: Entries) {
        let mut known = self.0.known.lock().await;
        let Some(kept) = known.take_if(|known| known.revision == made) else {
            tracing::warn!(target: "frevo::cluster",
                "a change of namespaces that this node cannot serve stays in etcd: they have been changed again since");
            return;
        };
        match self.0.store.replace(&kept, before).await {
            Ok(kept) => {
                let turn = self.0.note(&mut known, &kept);
                drop(known);
                let Some(state) = self.state_of(kept, turn).await else { return };
                self.0.asking.serve(state, None).await;
            }
            Err(why) => {
                let why = not_changed(why);
                tracing::error!(target: "frevo::cluster",
                    "a change of namespaces that this node cannot serve stays in etcd: {why}");
            }
        }
    }
}

impl Made {
    /// Tells the administrator the end. Returns the entries before the change, if it is to be taken back.
    pub(in crate::serve) fn tell(self, done: Result<(), NotChanged>) -> Option<Entries> {
        let is_done = done.is_ok();
        // The send fails if the connection that asked for the change is closed meanwhile.
        let _ = self.answer.send(done);
        (!is_done).then_some(self.before)
    }
}

impl Inner {
    fn note(&self, known: &mut Option<KeptNamespaces>, kept: &KeptNamespaces) -> Turn {
        self.revision.store(kept.revision.0, Ordering::Release);
        *known = Some(kept.clone());
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.note(kept.revision, kept.read_at)
    }

    fn good(&self) -> Entries {
        self.good.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_good(&self, entries: &Entries, faults: &[String]) {
        if faults.is_empty() {
            *self.good.lock().unwrap_or_else(PoisonError::into_inner) = entries.clone();
        }
    }

    /// False for the changes that this node has read or made.
    fn is_news(&self, answer: &Result<WatchAnswer, Fault>) -> bool {
        match answer {
            Ok(WatchAnswer::Changes { revision, changes }) => {
                !changes.is_empty() && revision.0 > self.revision.load(Ordering::Acquire)
            }
            // An etcd that was away may be another one now, or restored from an older copy.
            Ok(WatchAnswer::Compacted { .. }) | Err(_) => true,
        }
    }

    /// The namespaces of the cluster's shares that this node has: its copy, or else those of a time at which its
    /// server was on its own.
    fn stored_here(&self) -> Result<Entries, Failure> {
        let table = Sources::without_kept(self.config.as_deref())?.table_without_links();
        let (own, copy) = NetworkNamespaces::of_node(&table);
        let copied = copy.entries()?;
        if !copied.is_empty() {
            return Ok(copied);
        }
        let own = own.of_shares_of_cluster(&table)?;
        Ok(own.map(|(entries, _)| entries).unwrap_or_default())
    }
}

impl Wanted {
    /// The namespaces after the change. It is made to the part that it is about, and this alone is checked, if
    /// the others are those of `good`, which have no faults.
    fn made_of(&self, before: &Entries, good: &Entries) -> Result<After, NotChanged> {
        let Self { change, sources, copy } = self;
        let failed = |failure: Failure| NotChanged::Failed(failure.to_string());
        let file = copy.file.display().to_string();
        let config = sources.config().map_err(failed)?;
        let part = before.touched_by(change);
        let changed = copy.changed(&part.text(), &config, change)?;
        let changed = Entries::of_text(&changed).map_err(NotChanged::Bad)?;
        let entries = before.with(&part, &changed);
        copy.check_size(entries.links(), entries.bytes())?;
        let table = sources.table_without_links();
        let check = |served: &str| sources.with(&file, served).config();
        let is_served = |entries: &Entries| {
            let served = copy.served_of(entries, &table);
            served.len() == entries.text().len() && check(&served).is_ok()
        };
        // A part cannot tell that all namespaces together are too many.
        let is_alone = before == good && config.namespaces.len() + entries.roots() <= NAMESPACES;
        if is_served(if is_alone { &changed } else { &entries }) {
            return Ok(After { text: entries.text(), entries, faults: Vec::new() });
        }
        let (text, faults) = entries.checked_text();
        let (_, earlier) = before.checked_text();
        if let Some(new) = faults.iter().find(|fault| !earlier.contains(fault)) {
            return Err(NotChanged::Bad(new.clone()));
        }
        // A fault of before does not hide that a part of this change is left out.
        let served = Entries::of_text(&text).map_err(NotChanged::Bad)?;
        if !served.has_new_of(before, &entries) {
            let why = faults.into_iter().next();
            let none = || String::from("a part of the change would not be served");
            return Err(NotChanged::Bad(why.unwrap_or_else(none)));
        }
        let checked = check(&copy.served(&text, &table));
        checked.map_err(|failure| NotChanged::Bad(failure.to_string()))?;
        Ok(After { entries, text, faults })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_that_was_restored_begins_a_new_age() {
        let mut clock = Clock::default();
        let mut note = |revision, read_at| clock.note(Revision(revision), Revision(read_at));
        let first = note(7, 9);
        let second = note(12, 12);
        assert!(first < second && note(12, 15) == second);
        let restored = note(7, 8);
        let after = note(10, 10);
        assert!(second < restored && restored < after);
        // The head has not changed since the copy, but etcd has.
        assert!(after < note(10, 9));
    }
}
