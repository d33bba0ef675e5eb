//! The table: where each of these Opens is now.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_store::lease::{Granted, LeaseState, OplockLevel};
use frevo_store::order::{Ordered, rank};
use frevo_store::state::{Done, Ownership, RecordForm, RecordId, StateFault};
use frevo_store::surplus::less_room;
use frevo_store::{FileKey, StateStore};
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Survival;
use super::by_file::ByFile;
use super::store_backlog::{Holder, StoreBacklog};
use crate::base::limits::{DURABLE_OPENS, PERSISTENT_OPENS_PER_FILE};
use crate::base::surplus::return_surplus;
use crate::objects::open::{FileOpen, Open};

mod disconnected;

pub(super) use disconnected::Broken;

/// Where an Open is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attachment {
    /// Open.Session: in the table of this session.
    Attached(u64),
    /// Open.Session is NULL; given up at that time.
    Disconnected(Instant),
}

struct Entry {
    open: Arc<Open>,
    place: Attachment,
}

/// The account (in lower case), ClientGuid and CreateGuid.
///
/// Deviation: MS-SMB2 3.3.5.9.10 looks for the GUIDs and then compares the account. What
/// another account sends with a GUID of this one is then in its way.
type CreateKey = (String, Guid, Guid);

/// Open.DurableFileId
type Id = u64;

#[derive(Default)]
struct Table {
    opens: HashMap<Id, Entry>,
    /// Open.CreateGuid of each client: the newest Open with it.
    by_create: HashMap<CreateKey, Id>,
    /// Open.CreateGuid of an account's persistent Opens, whichever client's.
    by_persistent: HashMap<(String, Guid), Id>,
    by_file: ByFile,
    by_app: HashMap<Guid, BTreeSet<Id>>,
    /// CREATEs with a CreateGuid that are being carried out.
    creating: HashSet<CreateKey>,
    deadlines: BTreeSet<(Instant, Id)>,
    /// Disconnected Opens of each owner.
    waiting: HashMap<String, usize>,
    is_scavenging: bool,
}

/// Opens that outlive their connection, or can be replayed.
#[derive(Default)]
pub struct Durables {
    table: Ordered<Table, { rank::DURABLE }>,
    /// Where persistent Opens are kept, if anywhere.
    store: OnceLock<Arc<dyn StateStore>>,
    /// Where other durable Opens are left when the server stops, if anywhere.
    handover: OnceLock<(Arc<dyn StateStore>, Ownership)>,
    /// The newest form of records that all servers read which may have the shares; zero if no other
    /// server may.
    form: AtomicU8,
    /// Requests to the state store that failed.
    backlog: StoreBacklog,
    /// Persistent Opens that wait for their client.
    orphans: AtomicUsize,
    /// Told when a deadline comes that is before all others.
    pub(super) earlier: Notify,
    /// Told when an Open loses its session or closes.
    detached: Notify,
    /// Told when a persistent Open waits for its client no longer.
    come: Notify,
}

/// The Open that a CREATE with a CreateGuid meets.
pub enum Replay {
    /// Nobody has used the CreateGuid: it may go on, and while it does the
    /// CreateGuid is its own.
    New(Creating),
    /// An Open that can be replayed, attached to this session.
    Attached(Arc<Open>, u64),
    /// An Open that can be replayed, and waits for its client.
    Disconnected(Arc<Open>),
}

/// A CREATE that is being carried out. Its CreateGuid is free again when it is
/// dropped, whatever has become of it.
pub struct Creating {
    table: Arc<Durables>,
    key: CreateKey,
}

impl Drop for Creating {
    fn drop(&mut self) {
        let mut table = self.table.table.lock();
        table.creating.remove(&self.key);
        if let Some(room) = less_room(table.creating.capacity(), table.creating.len()) {
            table.creating.shrink_to(room);
        }
    }
}

/// The hold on a file of persistent Opens that wait for their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// There are none.
    None,
    /// The caches of each of them can be broken: a CREATE waits for that.
    Breakable,
    /// Nobody gets the file.
    Firm,
}

/// True while the client of an Open caches the handle, also while it is asked to give that up.
fn keeps_handle(file: &FileOpen) -> bool {
    match file.held() {
        Granted::Lease { state, .. } => state.contains(LeaseState::HANDLE),
        Granted::Oplock(level) => level == OplockLevel::BATCH,
        Granted::Nothing => false,
    }
}

impl Durables {
    /// Looks for the CREATE that a request repeats: Open.IsReplayEligible,
    /// Open.CreateGuid and Open.ClientGuid. One that is still being carried out
    /// is FILE_NOT_AVAILABLE to a replay, so that the client tries again, and
    /// DUPLICATE_OBJECTID to anybody else.
    pub fn enter(
        self: &Arc<Self>,
        user: &str,
        client_guid: Guid,
        create_guid: Guid,
        is_replay: bool,
    ) -> Result<Replay, Status> {
        let key = (fold_name(user), client_guid, create_guid);
        let mut table = self.table.lock();
        // A running CREATE is looked up first, because its Open may already be in the table, but
        // not yet in its session or stored.
        if table.creating.contains(&key) {
            return Err(if is_replay {
                Status::FILE_NOT_AVAILABLE
            } else {
                Status::DUPLICATE_OBJECTID
            });
        }
        let eligible =
            |entry: &&Entry| entry.open.survival().is_some_and(Survival::is_replay_eligible);
        let found = table.by_create.get(&key).and_then(|id| table.opens.get(id)).filter(eligible);
        if let Some(Entry { open, place }) = found {
            let open = Arc::clone(open);
            return Ok(match *place {
                Attachment::Attached(session) => Replay::Attached(open, session),
                Attachment::Disconnected(_) => Replay::Disconnected(open),
            });
        }
        table.creating.insert(key.clone());
        Ok(Replay::New(Creating { table: Arc::clone(self), key }))
    }

    /// The persistent Open of `user` with this CreateGuid, whichever client made it, and
    /// whether a session has it.
    pub fn persistent(&self, user: &str, create_guid: Guid) -> Option<(Arc<Open>, bool)> {
        let table = self.table.lock();
        let key = (fold_name(user), create_guid);
        let entry = table.by_persistent.get(&key).and_then(|id| table.opens.get(id))?;
        Some((Arc::clone(&entry.open), matches!(entry.place, Attachment::Attached(_))))
    }

    /// The newest form of records that is written.
    pub(super) fn record_form(&self) -> RecordForm {
        match self.form.load(Ordering::Relaxed) {
            0 => RecordForm::newest(),
            form => RecordForm(form),
        }
    }

    /// Writes no newer form than `form` from now on. Returns true if records may be in a newer one.
    pub(super) fn set_record_form(&self, form: RecordForm) -> bool {
        let before = self.form.swap(form.0, Ordering::Relaxed);
        before == 0 || RecordForm(before) > form
    }

    /// Where persistent Opens are kept; without it there are none.
    pub fn store(&self) -> Option<&Arc<dyn StateStore>> {
        self.store.get()
    }

    /// Requests to the state store that failed.
    pub(super) const fn backlog(&self) -> &StoreBacklog {
        &self.backlog
    }

    /// The Open of that Open.DurableFileId, wherever it is.
    pub(super) fn open(&self, id: RecordId) -> Option<Arc<Open>> {
        self.table.lock().opens.get(&id.0).map(|entry| Arc::clone(&entry.open))
    }

    /// A persistent Open could not be put on record: it is durable at most.
    pub fn not_kept(&self, open: &Open) {
        let Some(survival) = open.survival() else { return };
        let id = open.file_id.persistent;
        let mut table = self.table.lock();
        if !survival.is_persistent() {
            return;
        }
        survival.set_persistent(false);
        if let Some(guid) = survival.create_guid {
            remove_if(&mut table.by_persistent, (survival.owner.clone(), guid), id);
        }
        table.by_file.leave(key_of(open), id);
        let place = table.opens.get(&id).map(|entry| entry.place);
        if matches!(place, Some(Attachment::Disconnected(_))) {
            self.orphans.fetch_sub(1, Ordering::AcqRel);
            table.by_file.adopt(key_of(open));
        }
        drop(table);
        // A record of the Open may exist, because a change of the file writes the records of all
        // its Opens. It is removed.
        self.remove_record(open, Box::new(|_| {}));
    }

    /// Removes the record of `open`, which has closed or is not persistent any more. A thread
    /// that is putting that record is waited for.
    pub(super) fn remove_record(&self, open: &Open, done: Done) {
        let (Some(store), Some(survival)) = (self.store(), open.survival()) else { return };
        let mut turn = survival.recording.lock();
        // If another server owns the share, the records are that server's and must not be removed.
        let Some(holder) = Holder::present(&open.tree().share.life) else {
            return done(Err(StateFault::Fenced));
        };
        turn.is_removed = true;
        self.backlog.remove(&**store, &holder, RecordId(open.file_id.persistent), done);
    }

    /// Asks again for removals that failed.
    pub(super) fn remove_again(&self, now: Instant) {
        if let Some(store) = self.store() {
            self.backlog.retry(&**store, now);
        }
    }

    /// Keeps persistent Opens in `store` from now on.
    pub(super) fn set_store(&self, store: Arc<dyn StateStore>) {
        let _ = self.store.set(store);
    }

    /// Where durable Opens are left for the next run.
    pub(super) fn handover(&self) -> Option<&(Arc<dyn StateStore>, Ownership)> {
        self.handover.get()
    }

    /// Leaves durable Opens in `store` when the server stops, as the owner of its records.
    pub(super) fn set_handover(&self, store: Arc<dyn StateStore>, owner: Ownership) {
        let _ = self.handover.set((store, owner));
    }

    /// The persistent Opens of a file.
    pub(super) fn persistent_of(&self, key: FileKey) -> Vec<Arc<Open>> {
        let table = self.table.lock();
        let opens = table.by_file.of(key).filter_map(|id| table.opens.get(&id));
        opens.map(|entry| Arc::clone(&entry.open)).collect()
    }

    /// True for a file that may have a further persistent Open.
    pub fn takes_persistent(&self, key: FileKey) -> bool {
        self.table.lock().by_file.count(key) < PERSISTENT_OPENS_PER_FILE
    }

    /// Takes in a new Open of `session`. INSUFFICIENT_RESOURCES when there are too many.
    pub fn add(&self, open: &Arc<Open>, session: u64) -> Result<(), Status> {
        let place = Attachment::Attached(session);
        if self.insert(open, place) { Ok(()) } else { Err(Status::INSUFFICIENT_RESOURCES) }
    }

    fn insert(&self, open: &Arc<Open>, place: Attachment) -> bool {
        let Some(survival) = open.survival() else { return false };
        let id = open.file_id.persistent;
        let mut table = self.table.lock();
        if table.opens.get(&id).is_some_and(|entry| Arc::ptr_eq(&entry.open, open)) {
            return true;
        }
        // Two DurableFileIds of 64 random bits are never equal in practice. If they are, the later
        // Open is refused, so that it is not mistaken for the earlier one.
        if table.opens.len() >= DURABLE_OPENS || table.opens.contains_key(&id) {
            return false;
        }
        if let Some(guid) = survival.create_guid {
            let owner = || survival.owner.clone();
            table.by_create.insert((owner(), survival.client_guid, guid), id);
            if survival.is_persistent() {
                table.by_persistent.insert((owner(), guid), id);
                table.by_file.enter(key_of(open), id);
            }
        }
        if let Some(app) = survival.app_instance {
            table.by_app.entry(app.id).or_default().insert(id);
        }
        table.opens.insert(id, Entry { open: Arc::clone(open), place });
        true
    }

    /// The number of Opens of this application instance.
    pub fn count_of_app(&self, id: Guid) -> usize {
        self.table.lock().by_app.get(&id).map_or(0, BTreeSet::len)
    }

    /// Opens of this application instance, with their sessions.
    pub fn of_app(&self, id: Guid) -> Vec<(Arc<Open>, Option<u64>)> {
        let table = self.table.lock();
        let ids = table.by_app.get(&id).into_iter().flatten();
        ids.filter_map(|id| table.opens.get(id))
            .map(|entry| {
                let session = match entry.place {
                    Attachment::Attached(session) => Some(session),
                    Attachment::Disconnected(_) => None,
                };
                (Arc::clone(&entry.open), session)
            })
            .collect()
    }

    /// The next deadline. None ends the scavenger, which a later one starts again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let mut table = self.table.lock();
        let deadline = table.deadlines.first().map(|(at, _)| *at);
        let next = deadline.into_iter().chain(self.backlog.next()).min();
        table.is_scavenging = next.is_some();
        next
    }

    /// True when a scavenger must be started; from then on it counts as started.
    pub(super) fn needs_scavenger(&self) -> bool {
        let mut table = self.table.lock();
        let has_work = !table.deadlines.is_empty() || self.backlog.next().is_some();
        let needs = !table.is_scavenging && has_work;
        table.is_scavenging |= needs;
        needs
    }

    /// The Open has closed.
    pub(crate) fn forget(&self, open: &Open) {
        self.take_out(&mut self.table.lock(), open.file_id.persistent);
        self.detached.notify_waiters();
    }

    /// The Open has closed, and what it promised is done. A record that a [`HeldRecord`](super::record::HeldRecord)
    /// keeps goes with that.
    pub(crate) fn forget_record(&self, open: &Open) {
        let Some(survival) = open.survival().filter(|survival| survival.is_persistent()) else {
            return;
        };
        let is_another_s = {
            let mut turn = survival.recording.lock();
            turn.is_owed |= turn.is_held;
            turn.is_held || turn.is_removed
        };
        if !is_another_s {
            // The removal of the record is only started. Callers that depend on its end wait
            // themselves.
            self.remove_record(open, Box::new(|_| {}));
        }
    }

    fn take_out(&self, table: &mut Table, id: Id) -> Option<Arc<Open>> {
        let Entry { open, place } = table.opens.remove(&id)?;
        return_surplus(&mut table.opens);
        let survival = open.survival()?;
        if let Attachment::Disconnected(deadline) = place {
            self.leave_waiting(table, &open, survival, deadline);
        }
        table.by_file.leave(key_of(&open), id);
        if let Some(guid) = survival.create_guid {
            let owner = || survival.owner.clone();
            remove_if(&mut table.by_create, (owner(), survival.client_guid, guid), id);
            remove_if(&mut table.by_persistent, (owner(), guid), id);
        }
        if let Some(app) = survival.app_instance
            && let Slot::Occupied(mut ids) = table.by_app.entry(app.id)
        {
            ids.get_mut().remove(&id);
            if ids.get().is_empty() {
                ids.remove();
                return_surplus(&mut table.by_app);
            }
        }
        Some(Arc::clone(&open))
    }

    /// Returns the hold on a file of persistent Opens that wait for their clients, for a CREATE by
    /// `client`. MS-SMB2 3.3.5.9, note 301.
    pub fn hold(&self, key: FileKey, client: Guid) -> Hold {
        if !self.has_orphans() {
            return Hold::None;
        }
        let table = self.table.lock();
        if !table.by_file.is_held(key) {
            return Hold::None;
        }
        let entries = table.by_file.of(key).filter_map(|id| table.opens.get(&id));
        let mut waiting = entries.filter(|e| matches!(e.place, Attachment::Disconnected(_)));
        let is_breakable = |open: &Open| {
            let is_others = open.survival().is_some_and(|s| s.client_guid != client);
            is_others && open.file().is_ok_and(keeps_handle)
        };
        if waiting.all(|entry| is_breakable(&entry.open)) { Hold::Breakable } else { Hold::Firm }
    }

    /// True while a persistent Open waits for its client.
    pub fn has_orphans(&self) -> bool {
        self.orphans.load(Ordering::Acquire) > 0
    }

    /// How many Opens there are, and how many of them wait for their client.
    pub fn counts(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.opens.len(), table.deadlines.len())
    }

    /// The Opens that wait for their client.
    pub fn waiting(&self) -> Vec<Arc<Open>> {
        let table = self.table.lock();
        let entries = table.deadlines.iter().filter_map(|(_, id)| table.opens.get(id));
        entries.map(|entry| Arc::clone(&entry.open)).collect()
    }

    /// Returns all durable Opens.
    pub fn opens(&self) -> Vec<Arc<Open>> {
        self.table.lock().opens.values().map(|entry| Arc::clone(&entry.open)).collect()
    }
}

/// The key of an Open's file. An Open that is durable has one, and no stream, whose key could change.
fn key_of(open: &Open) -> FileKey {
    open.file().map_or(FileKey::of_file(0, 0), |file| file.cell.key())
}

/// Removes `key` while it still stands for `id`.
fn remove_if<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Id>, key: K, id: Id) {
    if let Slot::Occupied(slot) = map.entry(key)
        && *slot.get() == id
    {
        slot.remove();
        return_surplus(map);
    }
}

impl fmt::Debug for Durables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (opens, waiting) = self.counts();
        f.debug_struct("Durables").field("opens", &opens).field("waiting", &waiting).finish()
    }
}
