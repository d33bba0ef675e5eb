//! Persistent Opens on their way to the state store and back, MS-SMB2 3.3.1.10
//! Open.IsPersistent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use frevo_proto::lock_sequence::LockSequences;
use frevo_store::lease::{Granted, LeaseOwner, LeaseWish, Route, V2, Wish};
use frevo_store::limits::RECORD_GROUPS;
use frevo_store::name::Rules;
use frevo_store::order::Ordered;
use frevo_store::state::{
    ActorRecord, Done, Epoch, LeaseRecord, LockRecord, OpenRecord, RecordForm, RecordId, StateFault,
};
use frevo_store::vfs::{KindWanted, OpenHow, Opened};
use frevo_store::{
    Admission, Admitted, Attempt, FileCell, FolderId, Name, OpenId, Shape, Sharing, Vfs,
};
use frevo_wire::Status;
use frevo_wire::command::create::{CreateOptions, OplockLevel, ShareAccess};
use frevo_wire::create_context::{AppInstanceVersion, LeaseKey, LeaseState};
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::file_id::FileId;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::store_backlog::Holder;
use super::{AppInstance, Asked, Survival};
use crate::base::host::HostUser;
use crate::base::host::UnixUser;
use crate::base::limits::{HOST_LOOKUP_TIMEOUT, LEASE_BYTES, OPEN_BYTES};
use crate::base::panics;
use crate::objects::data;
use crate::objects::host_locks;
use crate::objects::lease::client::client_id;
use crate::objects::ledger::Kind;
use crate::objects::open::{FileOpen, Open, OpenTarget, shared_fd};
use crate::objects::server::ServerState;
use crate::objects::times::Times;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::share::{RunAs, Share};
use crate::shares::storage;

/// An Open of an earlier owner, which is to be made anew.
pub(super) struct Recorded {
    /// The number of the record.
    pub(super) id: RecordId,
    /// The Open.
    pub(super) record: OpenRecord,
    /// The time until which its client may come.
    pub(super) deadline: Instant,
    /// The share whose records it is among. None for a durable Open, which an earlier run has left to
    /// this one.
    pub(super) holder: Option<Holder>,
}

/// The record of `open`, which survives by `survival`.
pub(super) fn record_of(open: &Open, survival: &Survival) -> Option<OpenRecord> {
    let file = open.file().ok()?;
    let birth = file.node.birth().unwrap_or_default();
    let state = file.cell.lock();
    let claim = state.claim_of(file.id)?;
    let (delete_on_close, delete_pending) = state.deletion_of(file.id);
    let app = survival.app_instance;
    Some(OpenRecord {
        durable_file_id: open.file_id.persistent,
        create_guid: survival.create_guid.unwrap_or_default(),
        client_guid: survival.client_guid,
        owner: survival.owner.clone(),
        share: open.tree().share.name.clone(),
        name: state.name_of(file.id).to_string(),
        file_name: survival.asked.file_name.clone(),
        volume: file.vfs.volume().serial,
        identity: Some(file.vfs.volume().identity),
        inode: file.cell.key().inode,
        stream: file.cell.key().stream,
        birth,
        granted_access: open.granted_access,
        claimed_access: claim.access,
        desired_access: survival.asked.desired_access,
        share_access: survival.asked.share_access.0,
        create_options: survival.asked.create_options.0,
        create_action: survival.action,
        mode: u32::try_from(file.mode.load(std::sync::atomic::Ordering::Relaxed)).unwrap_or(0),
        timeout_ms: u32::try_from(survival.durable_timeout().as_millis()).unwrap_or(u32::MAX),
        delete_on_close,
        delete_pending,
        posix: file.posix,
        app_instance_id: app.map(|app| app.id),
        app_instance_version: app.and_then(|app| app.version).map(|v| (v.high, v.low)),
        lease: lease_of(state.held(file.id), state.lease_of(file.id)),
        locks: survival
            .settled(state.ranges.of(file.id))
            .into_iter()
            .map(|(range, mode)| LockRecord { range, mode })
            .collect(),
        lock_sequences: open.lock_sequences.lock().numbers(),
        actor: actor_of(open, survival),
    })
}

/// The user of the host that `open` acts as. None where the next run can ask the name service for it.
fn actor_of(open: &Open, survival: &Survival) -> Option<ActorRecord> {
    let tree = open.tree();
    if !matches!(tree.share.run_as, RunAs::User) {
        return None;
    }
    let identity = tree.identity();
    let present = identity.as_ref().and_then(|identity| identity.host.user());
    let host = &present.or(survival.actor.as_deref())?.unix;
    let is_fit = tree.share.id_map.sid(host.uid).is_some() && host.groups.len() <= RECORD_GROUPS;
    is_fit.then(|| ActorRecord { uid: host.uid, gid: host.gid, groups: host.groups.clone() })
}

fn lease_of(held: Granted, owner: Option<LeaseOwner>) -> LeaseRecord {
    match held {
        Granted::Nothing => LeaseRecord::NONE,
        Granted::Oplock(level) => LeaseRecord { oplock_level: level.0, ..LeaseRecord::NONE },
        Granted::Lease { state, v2, .. } => LeaseRecord {
            oplock_level: OplockLevel::LEASE.0,
            key: owner.map(|owner| owner.key.0).unwrap_or_default(),
            parent_key: v2.and_then(|v2| v2.parent).unwrap_or_default().0,
            state: state.0,
            epoch: v2.map_or(0, |v2| v2.epoch),
            version: if v2.is_some() { 2 } else { 1 },
        },
    }
}

/// Puts `open` as it is now on record and waits until that is stable, with all that failed
/// before. Does nothing, and calls nobody, for an Open that is not persistent.
pub(crate) async fn keep(server: &ServerState, open: &Open) -> Result<(), Status> {
    let (done, stable) = oneshot::channel();
    match put(server, open, Box::new(move |result| _ = done.send(result))) {
        true if planted!(AnswerBeforeStable) => Ok(()),
        true => {
            stood(stable.await)?;
            settle(server).await
        }
        false => Ok(()),
    }
}

/// Makes good what the store failed to do before: in the record of somebody else may
/// still be what has just been promised to this one.
pub(super) async fn settle(server: &ServerState) -> Result<(), Status> {
    let (removals, stale) = server.durables.backlog().owed();
    let Some(store) = server.durables.store() else { return Ok(()) };
    let mut asked = Vec::new();
    let mut wait = || {
        let (done, stable) = oneshot::channel();
        asked.push(stable);
        Box::new(move |result| _ = done.send(result))
    };
    for (id, holder) in removals {
        server.durables.backlog().remove(&**store, &holder, id, wait());
    }
    for id in stale {
        let open = server.durables.open(id);
        if !open.is_some_and(|open| put(server, &open, wait())) {
            server.durables.backlog().is_over(id);
        }
    }
    for stable in asked {
        match stable.await {
            // The sender was dropped without a result, because the Open no longer needs a record.
            Err(_) => {}
            ended => stood(ended)?,
        }
    }
    Ok(())
}

/// Writes no newer form of records than `form` from now on: a server that may have the shares reads no newer
/// one. Records that are in a newer one are written again.
pub(crate) fn set_form(server: &ServerState, form: RecordForm) {
    if server.durables.set_record_form(form) {
        server.durables.opens().iter().for_each(|open| renew(server, open));
    }
}

/// Like `keep`, for promises that were taken back: no request waits until the record is
/// stable.
pub fn renew(server: &ServerState, open: &Open) {
    put(server, open, Box::new(|_| {}));
}

/// False when there is nothing to put.
fn put(server: &ServerState, open: &Open, done: Done) -> bool {
    let Some(survival) = open.survival() else { return false };
    let Some(store) = server.durables.store() else { return false };
    // The lock keeps the writes of an Open's record in order, so that none follows the record's
    // removal.
    let mut turn = survival.recording.lock();
    if !survival.is_persistent() || open.is_closed() {
        return false;
    }
    let Some(record) = record_of(open, survival) else { return false };
    let (id, record) =
        (RecordId(record.durable_file_id), record.to_bytes_within(server.durables.record_form()));
    match Holder::present(&open.tree().share.life) {
        Some(holder) => {
            turn.is_removed = false;
            server.durables.backlog().put(&**store, &holder, id, record, done);
        }
        None => done(Err(StateFault::Fenced)),
    }
    true
}

/// Like [`keep`], for all persistent Opens of a file, whose name or promises have changed.
pub(crate) async fn keep_file(server: &ServerState, cell: &FileCell) -> Result<(), Status> {
    keep_but(server, cell, None).await
}

/// Like [`keep_file`], after `own` was kept: its record is not written again.
pub(crate) async fn keep_others(
    server: &ServerState,
    cell: &FileCell,
    own: &Open,
) -> Result<(), Status> {
    keep_but(server, cell, Some(own.file_id.persistent)).await
}

/// Puts the persistent Opens of a file on record, without the one with this number. All are asked for at
/// once, so that they become stable together.
async fn keep_but(server: &ServerState, cell: &FileCell, own: Option<u64>) -> Result<(), Status> {
    if server.durables.store().is_none() {
        return Ok(());
    }
    let mut asked = Vec::new();
    for open in server.durables.persistent_of(cell.key()) {
        let (done, stable) = oneshot::channel();
        let is_other = own != Some(open.file_id.persistent);
        if is_other && put(server, &open, Box::new(move |result| _ = done.send(result))) {
            asked.push(stable);
        }
    }
    if asked.is_empty() || planted!(AnswerBeforeStable) {
        return Ok(());
    }
    for stable in asked {
        stood(stable.await)?;
    }
    settle(server).await
}

/// The record of an Open that is being closed. It stays until [`gone`] has it removed, or until this is
/// dropped: so it is removed once, when the deletion of its file is stable.
#[derive(Debug)]
pub(crate) struct HeldRecord<'a>(&'a Open);

impl<'a> HeldRecord<'a> {
    /// Keeps the record of `open`, if it has one. The caller alone closes the Open.
    pub(crate) fn of(open: &'a Open) -> Self {
        if let Some(survival) = open.survival() {
            survival.recording.lock().is_held = true;
        }
        Self(open)
    }
}

impl Drop for HeldRecord<'_> {
    /// Has a record removed that the Open has let go, if nobody has asked for that yet.
    fn drop(&mut self) {
        let Some(survival) = self.0.survival() else { return };
        let is_owed = {
            let mut turn = survival.recording.lock();
            turn.is_held = false;
            std::mem::take(&mut turn.is_owed)
        };
        if is_owed {
            self.0.forget_record();
        }
    }
}

/// Waits until the record of a persistent Open that has closed is gone.
pub(crate) async fn gone(server: &ServerState, open: &Open) -> Result<(), Status> {
    let is_persistent = open.survival().is_some_and(Survival::is_persistent);
    if !is_persistent || server.durables.store().is_none() {
        return Ok(());
    }
    let (done, stable) = oneshot::channel();
    server.durables.remove_record(open, Box::new(move |result| _ = done.send(result)));
    stood(stable.await)
}

fn stood(result: Result<Result<(), StateFault>, oneshot::error::RecvError>) -> Result<(), Status> {
    match result {
        Ok(Ok(())) => Ok(()),
        // Another server owns the share now, so no response is sent, whatever the status.
        Ok(Err(StateFault::Fenced)) => Err(Status::SERVER_UNAVAILABLE),
        Ok(Err(fault)) => {
            tracing::error!(target: "frevo::durable", %fault, "cannot store a persistent handle");
            Err(Status::INSUFFICIENT_RESOURCES)
        }
        Err(_) => Err(Status::INSUFFICIENT_RESOURCES),
    }
}

/// An Open of an earlier run cannot be made again.
pub(super) fn lost(server: &ServerState, id: RecordId, why: &str, holder: Option<&Holder>) {
    let Some(holder) = holder else {
        tracing::info!(target: "frevo::durable", why, "lost a durable handle over the restart");
        return;
    };
    tracing::warn!(target: "frevo::durable", why, "lost a persistent handle");
    if let Some(store) = server.durables.store() {
        server.durables.backlog().remove(&**store, holder, id, Box::new(|_| {}));
    }
}

/// True if the storage of a clustered share does not serve this server.
fn is_storage_gone(server: &ServerState, share: &str) -> bool {
    let shares = server.shares();
    let Some(share) = shares.find(share).filter(|share| share.clustered) else { return false };
    share.vfs().is_some_and(|vfs| storage::has_gone(&**vfs))
}

/// Opens of an earlier owner that were made anew and do not wait for their clients yet. They are closed if
/// not all can be made anew.
struct Made<'a> {
    server: &'a Arc<ServerState>,
    opens: VecDeque<(Arc<Open>, Recorded)>,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for (open, _) in &self.opens {
            panics::contained(|| self.server.close_here(open));
        }
    }
}

/// Makes Opens of an earlier owner anew, each of which waits for its client until its deadline.
/// Returns their number.
///
/// # Errors
/// If the storage of a clustered share does not serve this server: no handle is lost for that. Its records
/// stay for a server whose storage does. They stay, too, if `goes_on` says between two of them that the
/// share is stopped.
pub(super) fn restore_all(
    server: &Arc<ServerState>,
    records: Vec<Recorded>,
    goes_on: &dyn Fn() -> bool,
) -> Result<usize, String> {
    let mut made = Made { server, opens: VecDeque::new() };
    // The look-ups of all owners have one deadline together.
    let patience = std::time::Instant::now() + HOST_LOOKUP_TIMEOUT;
    let mut owners = Owners { patience, mapped: HashMap::new() };
    for recorded in records {
        if !goes_on() {
            return Err(String::from("it was stopped while it was started"));
        }
        match reopen(server, &recorded, &mut owners) {
            Ok(open) => made.opens.push_back((open, recorded)),
            Err(why) if is_storage_gone(server, &recorded.record.share) => {
                return Err(format!("its storage cannot be used: {why}"));
            }
            Err(why) => {
                let Recorded { id, record, holder, .. } = recorded;
                let why = format!("{} of {} in {}: {why}", record.name, record.owner, record.share);
                lost(server, id, &why, holder.as_ref());
            }
        }
    }
    let count = made.opens.len();
    // Caching, locks and deletions are restored only after all Opens exist. Restored earlier, they
    // could make the restoration of another Open fail.
    while let Some((open, recorded)) = made.opens.front() {
        put_back(server, open, &recorded.record);
        if !server.durables.restore(open, recorded.deadline) {
            server.close_here(open);
        }
        made.opens.pop_front();
    }
    Ok(count)
}

/// Opens the file again, as it was open.
fn reopen(
    server: &Arc<ServerState>,
    Recorded { record, holder, .. }: &Recorded,
    owners: &mut Owners,
) -> Result<Arc<Open>, String> {
    let shares = server.shares();
    let share = shares.find(&record.share).ok_or("there is no such share")?;
    let actor = owners.mapped(share, record);
    // The share gets this epoch only when all its Opens exist.
    let epoch = holder.as_ref().map_or_else(|| share.life.epoch(), Holder::epoch);
    let share = owners.acting(server, share, record, actor.as_deref(), epoch);
    let share = &share.ok_or("there is nobody to act as")?;
    let is_persistent = holder.is_some();
    if is_persistent && !share.continuous {
        return Err("the share is not continuous".into());
    }
    let vfs = share.vfs().ok_or("the share has no files")?;
    let opened = open_recorded(&**vfs, record)?;
    let persistent = record.durable_file_id;
    let volatile = if share.clustered { persistent } else { server.new_file_id().volatile };
    let file_id = FileId { persistent, volatile };
    let id = OpenId(file_id.volatile);
    let cell = admit(server, &opened, record, admission_of(record, id, vfs.folder_id()))?;
    let target = OpenTarget::File(FileOpen {
        fd: shared_fd(&*opened.node),
        node: opened.node,
        caching: data::caching(share, CreateOptions(record.mode)),
        gate: share.life.gate(epoch),
        io: OnceLock::new(),
        vfs: Arc::clone(vfs),
        id,
        cell,
        is_directory: false,
        posix: record.posix,
        apple: false,
        base: None,
        mode: AtomicU64::new(u64::from(record.mode)),
        position: AtomicU64::new(0),
        max_size: share.max_file_size,
        times: Times::new(share.late_write_times),
        syncs: OnceLock::new(),
        made: AtomicBool::new(false),
        turned: AtomicBool::new(false),
        written: AtomicBool::new(false),
        altered: AtomicBool::new(false),
        brake: None,
        enumeration: Ordered::new(None),
    });
    // Until its client reconnects, the restored Open belongs to a tree connect that has ended.
    let tree = TreeConnect::new(0, Arc::clone(share), share.maximal_access());
    tree.disconnect();
    let open = Open::new(file_id, Arc::new(tree), record.granted_access, 0, target);
    // An Open from before the restart is restored even if the memory limits would now refuse it.
    let owner = server.ledger.account(&record.owner);
    let open = match owner.charge(Kind::Open, OPEN_BYTES) {
        Ok(charge) => open.charged(charge),
        Err(_) => open,
    };
    if record.lease.version != 0 || record.lease.oplock_level != 0 {
        open.set_promise(owner.charge(Kind::Lease, LEASE_BYTES).ok());
    }
    *open.lock_sequences.lock() = LockSequences::from_numbers(record.lock_sequences);
    let survival = open.survival_or(&server.durables, || survival_of(record, actor));
    survival.set_durable(Duration::from_millis(u64::from(record.timeout_ms)));
    survival.set_persistent(is_persistent);
    Ok(Arc::new(open))
}

/// Enters an Open into the table of open files, and notes in the file's state how its names go.
fn admit(
    server: &ServerState,
    opened: &Opened,
    record: &OpenRecord,
    admission: Admission,
) -> Result<Arc<FileCell>, String> {
    let id = admission.id;
    let attempt = server.files.admit(opened.node.key(), &opened.name, admission);
    let Attempt { cell, admitted, .. } = attempt.map_err(|status| status.to_string())?;
    if admitted != Admitted::In {
        return Err("others have it open".into());
    }
    if opened.stat.links > 1 {
        cell.note_linked();
    }
    if record.posix {
        cell.lock().unlinks_at_close(id);
    }
    Ok(cell)
}

/// Opens the file of a record in the file system. Fails where its name means another file.
fn open_recorded(vfs: &dyn Vfs, record: &OpenRecord) -> Result<Opened, String> {
    let name = recorded_name(record).ok_or("its name is not valid")?;
    let reads = AccessMask::READ_DATA | AccessMask::EXECUTE;
    let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
    let how = OpenHow {
        kind: KindWanted::NotDirectory,
        read: record.granted_access.intersects(reads),
        write: record.granted_access.intersects(writes),
        open_link: CreateOptions(record.create_options).contains(CreateOptions::OPEN_REPARSE_POINT),
        case_sensitive: record.posix,
        ..OpenHow::LOOK
    };
    let opened = vfs.open(&name, &how).map_err(|fault| fault.to_string())?;
    let key = opened.node.key();
    let is_same = key.inode == record.inode
        && key.stream == record.stream
        && record.is_of_volume(&vfs.volume())
        && opened.node.birth().unwrap_or_default() == record.birth;
    if !is_same {
        return Err("another file has its name".into());
    }
    Ok(opened)
}

/// The name in a record, as the file system takes it. The one of a POSIX Open is looked up exactly; its
/// stored spelling is not taken for another name.
fn recorded_name(record: &OpenRecord) -> Option<Name> {
    let as_posix = || Name::parse(&record.name.replace('\\', "/"), Rules::Posix).ok();
    if record.posix {
        return as_posix().filter(|name| name.path() == record.name);
    }
    Name::parse(&record.name, Rules::Windows).ok().or_else(as_posix)
}

fn admission_of(record: &OpenRecord, id: OpenId, folder_id: FolderId) -> Admission {
    let shared = ShareAccess(record.share_access);
    Admission {
        id,
        folder_id,
        access: record.claimed_access,
        granted: record.claimed_access,
        sharing: Sharing {
            read: shared.contains(ShareAccess::READ),
            write: shared.contains(ShareAccess::WRITE),
            delete: shared.contains(ShareAccess::DELETE),
        },
        delete_on_close: record.delete_on_close && !planted!(DeletionForgotten),
        lease: lease_owner(record),
        overwrites: false,
    }
}

/// The owners of Opens of an earlier run, as users of the host.
struct Owners {
    /// The time until which the name service is waited for.
    patience: std::time::Instant,
    /// Those with numbers by arithmetic, who are in the records: no controller says again here what
    /// groups they are in.
    mapped: HashMap<String, Arc<HostUser>>,
}

impl Owners {
    /// The owner, if it has numbers by arithmetic.
    fn mapped(&mut self, share: &Share, record: &OpenRecord) -> Option<Arc<HostUser>> {
        // If the configuration no longer maps the recorded user ID, the Open gets no host user.
        let actor = record.actor.as_ref().filter(|actor| share.id_map.sid(actor.uid).is_some())?;
        let unix = UnixUser { uid: actor.uid, gid: actor.gid, groups: actor.groups.clone() };
        let user = HostUser { unix, groups: Vec::new() };
        let known =
            self.mapped.entry(record.owner.clone()).or_insert_with(|| Arc::new(user.clone()));
        // All Opens of a user share one list of groups, because it may have a thousand entries.
        if **known != user {
            *known = Arc::new(user);
        }
        Some(Arc::clone(known))
    }

    /// The share as the owner of an Open uses it. Nobody waits at the start but for the
    /// host, which may be starting too.
    fn acting(
        &self,
        server: &ServerState,
        share: &Arc<Share>,
        record: &OpenRecord,
        mapped: Option<&HostUser>,
        epoch: Epoch,
    ) -> Option<Arc<Share>> {
        let (users, owner) = (&server.host_users, &record.owner);
        let asked = match (&share.run_as, mapped) {
            (RunAs::User, None) => users.look_up_now(&*server.ambient, owner, self.patience),
            _ => None,
        };
        Arc::clone(share).acting_for(owner, mapped.or(asked.as_deref()), users, epoch)
    }
}

fn survival_of(record: &OpenRecord, actor: Option<Arc<HostUser>>) -> Survival {
    let version = record.app_instance_version.map(|(high, low)| AppInstanceVersion { high, low });
    let asked = Asked {
        file_name: record.file_name.clone(),
        desired_access: record.desired_access,
        share_access: ShareAccess(record.share_access),
        create_options: CreateOptions(record.create_options),
    };
    let survival = Survival::new(
        &record.owner,
        record.client_guid,
        // The GUID of zeros means a durable handle of version 1, which has no create GUID.
        Some(record.create_guid).filter(|guid| *guid != Guid::default()),
        record.app_instance_id.map(|id| AppInstance { id, version }),
        asked,
        record.create_action,
    );
    survival.acting_as(actor)
}

fn lease_owner(record: &OpenRecord) -> Option<LeaseOwner> {
    let client = || client_id(record.client_guid, &record.owner);
    (record.lease.version != 0)
        .then(|| LeaseOwner { client: client(), key: LeaseKey(record.lease.key) })
}

/// Its promises, locks and marks, which are there beside it.
fn put_back(server: &ServerState, open: &Open, record: &OpenRecord) {
    let Ok(file) = open.file() else { return };
    let lease = &record.lease;
    let wish = match lease_owner(record) {
        Some(owner) => {
            let parent = Some(LeaseKey(lease.parent_key)).filter(|key| *key != LeaseKey::default());
            // Granting the lease raises its epoch by one, so the wish has the recorded epoch minus
            // one.
            let v2 = V2 { epoch: lease.epoch.wrapping_sub(1), parent };
            let v2 = (lease.version == 2).then_some(v2);
            Wish::Lease(LeaseWish { owner, state: LeaseState(lease.state), v2 })
        }
        None if lease.oplock_level != 0 => Wish::Oplock(OplockLevel(lease.oplock_level)),
        None => Wish::Nothing,
    };
    let route = Route { session: 0, persistent: open.file_id.persistent, sealed: true };
    // Caching is granted before the locks are restored, because the locks would prevent it.
    let shape = Shape { is_directory: false, allocation: 0 };
    server.files.grant(&file.cell, file.id, shape, wish, route);
    let mut state = file.cell.lock();
    for lock in record.locks.iter().filter(|_| !planted!(LocksLeftBehind)) {
        if let Err(status) = state.ranges.lock(file.id, lock.range, lock.mode) {
            tracing::warn!(target: "frevo::durable", %status, "lost a lock of a persistent handle");
        } else if let Err(status) = host_locks::show(file, &state.ranges, lock.range) {
            tracing::warn!(target: "frevo::durable", %status,
                "another program has locked a range that a persistent handle has locked");
        }
    }
    if record.delete_pending {
        state.set_delete_pending(file.id, true);
    }
}
