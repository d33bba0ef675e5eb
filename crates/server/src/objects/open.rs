//! Opens: MS-SMB2 3.3.1.10, the server's side of an open file or pipe.

pub(crate) mod closing;
mod deletion;
pub(crate) mod scanned;
mod vanishing;

use std::fmt;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use frevo_net::file_io::{self, Caching};
use frevo_proto::lock_sequence::LockSequences;
use frevo_proto::protection::Thrift;
use frevo_proto::replay::ChannelSequence;
use frevo_store::order::model::step;
use frevo_store::order::{Ordered, rank};
use frevo_store::{Fault, FileCell, FileKey, FileTable, Link, Name, Node, OpenId, Vfs};
use frevo_wire::Status;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::limits::{LOCKS_LIKE_AN_OPEN, LOCKS_RELEASED_AT_ONCE};
use crate::base::panics::Steps;
use crate::base::pools::slots::Slot;
use crate::base::under_way::UnderWay;
use crate::objects::durable::{Durables, Survival};
use crate::objects::enumeration::Enumeration;
use crate::objects::ledger::Charge;
use crate::objects::name_holds;
use crate::objects::pipe::Pipe;
use crate::objects::rates::LogicalFlow;
use crate::objects::syncs::Syncs;
use crate::objects::times::Times;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::brake::Watched;

pub(crate) use self::closing::ClosingPlace;
pub(crate) use self::deletion::Deletion;
use self::deletion::Patience;

/// An open file, directory or pipe. Any channel of the session may use it.
pub struct Open {
    /// The id by which clients name it; both halves are unique while the server runs.
    pub file_id: FileId,
    /// The tree connect it is used through: another one after a reconnect.
    tree: Mutex<Arc<TreeConnect>>,
    /// Open.GrantedAccess
    pub granted_access: AccessMask,
    /// Open.ChannelSequence with its counts, MS-SMB2 3.3.5.2.10.
    pub channel_sequence: Ordered<ChannelSequence, { rank::OPEN }>,
    /// Open.LockSequenceArray
    pub lock_sequences: Ordered<LockSequences, { rank::LAST }>,
    /// Notified when a numbered LOCK is carried out, and when an attempt at one has ended.
    pub lock_turns: Notify,
    /// Open.CurrentQuotaIndex: the least number that the next user told of has.
    pub quota_from: AtomicU64,
    /// Why its close did not remove what was to go with it.
    removal_failure: OnceLock<Status>,
    /// Places of its byte-range locks among those of the session that took them.
    pub lock_places: Ordered<Vec<(Slot, Charge)>, { rank::LAST }>,
    /// The file or pipe.
    pub target: OpenTarget,
    /// The state of an Open that can outlive its connection; most Opens have none.
    survival: OnceLock<Box<Kept>>,
    closed: AtomicBool,
    closing: Notify,
    /// It lasts as long as anybody has the file: a request, or a token of a copy.
    charge: OnceLock<Charge>,
    /// The charge of its oplock or its place in a lease, until it closes.
    promise: Mutex<Option<Charge>>,
    /// Open.LogicalFlowID of MS-SQOS 3.2.1.2; None for most.
    logical_flow: ArcSwapOption<LogicalFlow>,
    /// Its operations, on all channels.
    pub under_way: Arc<UnderWay>,
    /// [`Thrift`] of the data that READs return, from the first one on that asks for compressed data.
    thrift: OnceLock<Arc<Thrift>>,
}

/// The survival of an Open, with the table of Opens that survive.
struct Kept {
    survival: Survival,
    table: Arc<Durables>,
}

/// The object of an Open.
pub enum OpenTarget {
    /// A file or directory.
    File(FileOpen),
    /// A named pipe of IPC$.
    Pipe(Mutex<Pipe>),
}

/// The part of an Open that only files and directories have.
pub struct FileOpen {
    /// The object in the file system.
    pub node: Arc<dyn Node>,
    /// Its descriptor, when data may be moved through it directly.
    pub fd: Option<Arc<OwnedFd>>,
    /// The fate of data in the host's page cache.
    pub caching: Caching,
    /// The question if the file may still be changed, for a file of a clustered share.
    pub gate: Option<file_io::Gate>,
    /// The descriptor with the facts of its medium; from the first use on.
    pub io: OnceLock<Option<file_io::File>>,
    /// File system of the file.
    pub vfs: Arc<dyn Vfs>,
    /// The Open's id, by which the shared state knows what is its own.
    pub id: OpenId,
    /// State shared with the other Opens of the file, or of the named stream.
    pub cell: Arc<FileCell>,
    /// The file's own state, when a named stream of it is open.
    pub base: Option<Arc<FileCell>>,
    /// True for a directory.
    pub is_directory: bool,
    /// The client is macOS, which gets no file ids: it would take inode numbers,
    /// which are used again, for HFS+'s, which are not.
    pub apple: bool,
    /// Opened with the POSIX extensions' create context.
    pub posix: bool,
    /// CreateOptions that stay in force: FILE_WRITE_THROUGH,
    /// FILE_NO_INTERMEDIATE_BUFFERING, FILE_SEQUENTIAL_ONLY, FILE_DELETE_ON_CLOSE
    /// (what FileModeInformation shows, MS-FSCC 2.4.31).
    pub mode: AtomicU64,
    /// FilePositionInformation: kept for clients that set it, used by none.
    pub position: AtomicU64,
    /// Volume.MaxFileSize of MS-FSA 2.1.1.1 as the share has it.
    pub max_size: u64,
    /// Times that stay as they are, whatever is done through it.
    pub times: Times,
    /// Requests that make stable what was written, from the first one on.
    pub syncs: OnceLock<Arc<Syncs>>,
    /// The file was made through this Open, whose node makes its name stable with the next sync.
    pub made: AtomicBool,
    /// Another object has taken the place of the file that was opened
    /// (FSCTL_SET_REPARSE_POINT): the descriptor is of no use any more.
    pub turned: AtomicBool,
    /// Its data was changed through this Open, which its directory will show
    /// when it closes.
    pub written: AtomicBool,
    /// Its data was changed, or its size, or a range was zeroed through this Open: for the
    /// audit log.
    pub altered: AtomicBool,
    /// The file as the brake of the share looks at it; none without a brake.
    pub(crate) brake: Option<Box<Watched>>,
    /// QUERY_DIRECTORY's place.
    pub enumeration: Ordered<Option<Enumeration>, { rank::OPEN }>,
}

/// The descriptor that a node of the host's file system shares.
pub(crate) fn shared_fd(node: &dyn Node) -> Option<Arc<OwnedFd>> {
    node.descriptor().and_then(|any| any.downcast().ok())
}

/// The path in the share as Windows shows it, with the stream.
pub(crate) fn path_of(name: &Name) -> String {
    let mut path = name.path().replace('/', "\\");
    if let Some(stream) = name.stream() {
        let _ = write!(path, ":{stream}");
    }
    path
}

impl Open {
    /// Makes an Open that no table knows yet.
    pub fn new(
        file_id: FileId,
        tree: Arc<TreeConnect>,
        granted_access: AccessMask,
        channel_sequence: u16,
        target: OpenTarget,
    ) -> Self {
        Self {
            file_id,
            tree: Mutex::new(tree),
            granted_access,
            channel_sequence: Ordered::new(ChannelSequence::new(channel_sequence)),
            lock_sequences: Ordered::new(LockSequences::new()),
            lock_turns: Notify::new(),
            quota_from: AtomicU64::new(0),
            removal_failure: OnceLock::new(),
            lock_places: Ordered::default(),
            target,
            survival: OnceLock::new(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            charge: OnceLock::new(),
            promise: Mutex::default(),
            logical_flow: ArcSwapOption::empty(),
            under_way: Arc::default(),
            thrift: OnceLock::new(),
        }
    }

    /// Returns the thrift in compressing the data that READs return.
    pub(crate) fn thrift(&self) -> &Arc<Thrift> {
        let saved = || Arc::clone(&self.tree().share.saved);
        self.thrift.get_or_init(|| Arc::new(Thrift::counting_in(saved())))
    }

    /// Returns the logical flow that it is of.
    pub(crate) fn logical_flow(&self) -> Option<Arc<LogicalFlow>> {
        self.logical_flow.load_full()
    }

    /// Puts it into a logical flow, or takes it out of the one that it is of.
    pub(crate) fn set_logical_flow(&self, flow: Option<Arc<LogicalFlow>>) {
        self.logical_flow.store(flow);
    }

    /// It is kept at the cost of a holder.
    pub fn charged(self, charge: Charge) -> Self {
        let _ = self.charge.set(charge);
        self
    }

    /// Sets the charge of its oplock or its place in a lease.
    pub fn set_promise(&self, charge: Option<Charge>) {
        let old = std::mem::replace(&mut *self.promise.lock(), charge);
        drop(old);
    }

    /// The id under which the store knows it.
    pub const fn id(&self) -> OpenId {
        OpenId(self.file_id.volatile)
    }

    /// The tree connect it is used through.
    pub fn tree(&self) -> Arc<TreeConnect> {
        Arc::clone(&self.tree.lock())
    }

    /// It is used through `tree` from now on.
    pub fn set_tree(&self, tree: Arc<TreeConnect>) {
        *self.tree.lock() = tree;
    }

    /// The state by which it outlives its connection, if it can.
    pub fn survival(&self) -> Option<&Survival> {
        self.survival.get().map(|kept| &kept.survival)
    }

    /// Like [`Self::survival`]. An Open without survival gets what `make` returns, and is in
    /// `table`, or about to be.
    pub fn survival_or(&self, table: &Arc<Durables>, make: impl FnOnce() -> Survival) -> &Survival {
        let kept = || Box::new(Kept { survival: make(), table: Arc::clone(table) });
        &self.survival.get_or_init(kept).survival
    }

    /// The pipe, of an Open of one.
    ///
    /// # Errors
    /// INVALID_DEVICE_REQUEST for a file.
    pub(crate) const fn pipe(&self) -> Result<&Mutex<Pipe>, Status> {
        match &self.target {
            OpenTarget::Pipe(pipe) => Ok(pipe),
            OpenTarget::File(_) => Err(Status::INVALID_DEVICE_REQUEST),
        }
    }

    /// The file part; INVALID_DEVICE_REQUEST for a pipe.
    pub const fn file(&self) -> Result<&FileOpen, Status> {
        match &self.target {
            OpenTarget::File(file) => Ok(file),
            OpenTarget::Pipe(_) => Err(Status::INVALID_DEVICE_REQUEST),
        }
    }

    /// True for a POSIX Open of a file.
    pub const fn is_posix(&self) -> bool {
        matches!(&self.target, OpenTarget::File(file) if file.posix)
    }

    /// Fails with ACCESS_DENIED unless all of `access` was granted.
    pub const fn require(&self, access: AccessMask) -> Result<(), Status> {
        if self.granted_access.contains(access) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
    }

    /// Fails with ACCESS_DENIED unless any of `access` was granted.
    pub const fn require_any(&self, access: AccessMask) -> Result<(), Status> {
        if self.granted_access.intersects(access) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
    }

    /// Closes it: takes it out of its file and removes the file when that was
    /// the last Open of one that is delete pending. Does nothing the second
    /// time. I/O under way keeps the descriptor until it ends.
    ///
    /// A removal that fails (a directory that filled up meanwhile) leaves the
    /// file where it is: MS-FSA 2.1.5.5 has nobody to tell. An Open of a share that
    /// another server serves by now leaves its file, and its record, as they are.
    /// Returns the deletions that a pause of the share, or the loss of its storage, leaves for later.
    #[must_use]
    pub(crate) fn close(&self, files: &FileTable) -> Vec<Deletion> {
        self.close_within(files, Patience::Long)
    }

    /// Like [`Self::close`], for a core. What the host has renamed in a large directory is
    /// searched for elsewhere: that part of the deletion is returned.
    #[must_use]
    pub(crate) fn close_briefly(&self, files: &FileTable) -> Vec<Deletion> {
        let stays = file_io::stays();
        self.close_within(files, if stays { Patience::Long } else { Patience::Short })
    }

    fn close_within(&self, files: &FileTable, patience: Patience) -> Vec<Deletion> {
        let mut left = Vec::new();
        step();
        if self.closed.swap(true, Ordering::AcqRel) {
            return left;
        }
        self.closing.notify_waiters();
        if let OpenTarget::File(file) = &self.target {
            self.brake_closed(file);
        }
        let mut steps = Steps::default();
        self.leave_file(files, &mut steps, patience, &mut left);
        *self.lock_places.lock() = Vec::new();
        self.set_promise(None);
        steps.take(|| {
            if let Some(kept) = self.survival.get() {
                kept.table.forget(self);
            }
            // The record stays as long as names are to be deleted, so that the next owner of the share
            // deletes them if this server cannot.
            if left.is_empty() {
                self.forget_record();
            }
        });
        steps.end();
        left
    }

    /// Has the record of a persistent Open that has closed removed.
    pub(super) fn forget_record(&self) {
        if let Some(kept) = self.survival.get() {
            kept.table.forget_record(self);
        }
    }

    fn leave_file(
        &self,
        files: &FileTable,
        steps: &mut Steps,
        patience: Patience,
        left: &mut Vec<Deletion>,
    ) {
        let OpenTarget::File(file) = &self.target else { return };
        files.watches.forget(self.id());
        let mut actor = None;
        steps.take(|| {
            file.hide_locks();
            // The Open is already closed, so it gets no new locks while its locks are released in
            // several steps.
            let has_more =
                || file.cell.lock().ranges.release_some(self.id(), LOCKS_RELEASED_AT_ONCE);
            while has_more() {}
            file.leave_vanishing();
            if !self.tree().share.life.serves() {
                return;
            }
            if file.written.load(Ordering::Acquire) || file.altered.load(Ordering::Relaxed) {
                self.record_written(file);
                self.scan_changed(file);
            }
            actor = files.leases.has_directories().then(|| file.in_directory());
            // MS-FSA 2.1.5.5 phase 3: closing a written file updates its entry in the directory.
            if let Some(actor) = actor.filter(|_| file.written.load(Ordering::Acquire)) {
                files.entry_changed(&*file.vfs, &file.name(), actor);
            }
        });
        // The Open leaves the stream's state (its cell) before that of the file, because closing
        // the stream may delete the file as well.
        for cell in core::iter::once(&file.cell).chain(&file.base) {
            steps.take(|| left.extend(self.leave(file, cell, files, actor, patience)));
        }
    }

    /// Why its close did not remove what was to go with it, as its client is told.
    ///
    /// # Errors
    /// The status.
    pub fn removed(&self) -> Result<(), Status> {
        self.removal_failure.get().copied().map_or(Ok(()), Err)
    }

    /// Has the file system write back what a closed file has, as each close(2) does: the last
    /// owner of the descriptor, on any thread, then has nothing left to wait for.
    pub(crate) fn start_writeback(&self) {
        if let OpenTarget::File(file) = &self.target
            && let Some(fd) = &file.fd
        {
            drop(fd.try_clone());
        }
    }

    /// The work to close it, in Opens without locks.
    pub(crate) fn work_to_close(&self) -> usize {
        1 + self.lock_places.lock().len() / LOCKS_LIKE_AN_OPEN
    }

    /// It has lost its session. True when it is kept for its client, otherwise
    /// it has to be closed.
    pub fn disconnect(self: &Arc<Self>) -> bool {
        self.survival.get().is_some_and(|kept| kept.table.disconnect(self))
    }

    /// Waits until it is closed: for requests that wait by nature.
    pub async fn closed(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        // The notification is registered before the check, so that a close in between is not
        // missed.
        closing.as_mut().enable();
        if !self.is_closed() {
            closing.await;
        }
    }

    /// True once [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl FileOpen {
    /// The name it was opened by, as it is now.
    pub fn name(&self) -> Name {
        self.cell.lock().name_of(self.id).clone()
    }

    /// Removes one of its names through `vfs`, if that still means it.
    fn remove(
        &self,
        files: &FileTable,
        cell: &FileCell,
        link: &Link,
        vfs: &dyn Vfs,
    ) -> frevo_store::vfs::VfsResult<()> {
        let Link { folder_id, name } = link;
        if self.outlives_deletion(name) {
            return Err(Fault::Busy);
        }
        let _name = name_holds::hold(files, *folder_id, name)?;
        let is_own = std::ptr::eq(cell, &*self.cell);
        vfs.remove(name, if is_own { self.key() } else { cell.key() })
    }

    /// The key of the object that its name means: another object than the opened one, once the
    /// file has become a reparse point.
    pub fn key(&self) -> FileKey {
        if self.turned.load(Ordering::Acquire) { self.node.key() } else { self.cell.key() }
    }

    /// The road for data, when there is a descriptor.
    pub fn io(&self) -> Option<&file_io::File> {
        if self.turned.load(Ordering::Acquire) {
            return None;
        }
        let made = || {
            let fd = Arc::clone(self.fd.as_ref()?) as _;
            let file = match self.node.data_device() {
                Some((major, minor)) => file_io::File::on(fd, major, minor),
                None => file_io::File::new(fd),
            };
            Some(file.ok()?.caching(self.caching).gated(self.gate.clone()))
        };
        self.io.get_or_init(made).as_ref()
    }

    /// True when all of `option` is in force.
    pub fn has_mode(&self, option: CreateOptions) -> bool {
        let mode = self.mode.load(Ordering::Relaxed);
        mode & u64::from(option.0) == u64::from(option.0)
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open")
            .field("file_id", &self.file_id)
            .field("granted_access", &self.granted_access)
            .finish_non_exhaustive()
    }
}
