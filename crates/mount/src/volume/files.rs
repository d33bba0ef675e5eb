//! Open files: reading, writing, and what else is done with a handle.

use std::ffi::OsStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use frevo_client::{Cause, File, Lease, LeaseHolder, OpenOptions, Yield};
use frevo_wire::Status;
use frevo_wire::command::oplock_break::LeaseState;
use fuser::{Errno, INodeNo};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::names::MODE_BITS;
use super::{Told, Volume};
use crate::cache::{Content, Course, Heard};
use crate::errno::{Outcome, errno};
use crate::limits::{AT_ONCE_AT_THE_END, CLOSED_WITHIN, KEPT_FILES, KEPT_FOR};
use crate::node::Node;

/// What is asked for to read, and to write.
const READING: LeaseState = LeaseState(LeaseState::READ.0 | LeaseState::HANDLE.0);
const WRITING: LeaseState = LeaseState(READING.0 | LeaseState::WRITE.0);

/// A file that a program has open.
pub(crate) struct Handle {
    pub(crate) node: Arc<Node>,
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
    /// Every write goes to the end.
    appends: bool,
    /// A write is on stable storage when it is acknowledged.
    syncs: bool,
    course: Course,
    /// What of the file's failures it was told of.
    heard: Heard,
}

/// The server's Opens of a node: all of its handles use the same ones.
#[derive(Default)]
pub(crate) struct Opens {
    files: Vec<Opened>,
    /// Handles.
    users: usize,
    /// Where it is to be removed when it is closed: a name for each link.
    hidden: Vec<String>,
    /// Since when it is open for nobody.
    kept: Option<Instant>,
}

struct Opened {
    /// No other has it.
    id: u64,
    file: File,
    reads: bool,
    writes: bool,
}

impl Handle {
    /// What went wrong with what was written, once.
    fn tell_failures(&self) -> Outcome<()> {
        self.node.content().map_or(Ok(()), |content| content.failures.tell(&self.heard))
    }
}

impl Opens {
    /// Whether there is any.
    pub(crate) const fn is_open(&self) -> bool {
        !self.files.is_empty()
    }

    fn find(&self, reads: bool, writes: bool) -> Option<File> {
        self.best(reads, writes).map(|one| one.file.clone())
    }

    fn best(&self, reads: bool, writes: bool) -> Option<&Opened> {
        let fits = |one: &&Opened| (one.reads || !reads) && (one.writes || !writes);
        // One that writes too is the one that locks are taken with.
        self.files.iter().filter(fits).max_by_key(|one| (one.writes, one.reads))
    }
}

/// What an open wants, from the flags of open(2).
const fn wants(flags: i32) -> (bool, bool) {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        _ => (true, true),
    }
}

/// Gives up what a lease of a node allowed.
pub(crate) struct Breaker {
    volume: Weak<Volume>,
    node: Weak<Node>,
}

impl LeaseHolder for Breaker {
    fn broken(&self, to: LeaseState) -> Yield {
        let found = self.volume.upgrade().zip(self.node.upgrade());
        Box::pin(async move {
            if let Some((volume, node)) = found {
                volume.give_up(&node, to).await;
            }
        })
    }
}

impl Volume {
    pub(crate) fn handle(&self, number: u64) -> Outcome<Arc<Handle>> {
        self.files.lock().get(&number).cloned().ok_or(Errno::EBADF)
    }

    /// An Open of the node, if there is one.
    pub(super) fn open_file(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(false, false)
    }

    /// An Open of the node that can write.
    pub(super) fn writer(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(false, true)
    }

    /// An Open of the node that can read.
    pub(super) fn reader(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(true, false)
    }

    /// Nodes that programs have open.
    pub(super) fn open_nodes(&self) -> Vec<Arc<Node>> {
        self.files.lock().values().map(|handle| Arc::clone(&handle.node)).collect()
    }

    /// The node's file goes from `path` when it is closed. The caller holds `opening`.
    pub(super) fn remove_at_close(&self, node: &Node, path: String) {
        node.opens.lock().hidden.push(path);
    }

    /// A number that no other mount uses for the same file.
    pub(super) fn unique(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanoseconds = since.unwrap_or_default().as_nanos() as u64;
        nanoseconds.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (u64::from(std::process::id()) << 32)
            ^ self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What is kept of a node's data.
    pub(super) async fn content(&self, node: &Arc<Node>) -> Outcome<Arc<Content>> {
        if let Some(content) = node.content() {
            return Ok(content);
        }
        let lease = self.share.lease_of(&node.path()?).await.map_err(|error| errno(&error))?;
        // Somebody else may have come first.
        if let Some(content) = node.content() {
            return Ok(content);
        }
        self.keep(node, lease);
        node.content().ok_or(Errno::EIO)
    }

    /// What is kept of the node is kept under `lease`.
    fn keep(&self, node: &Arc<Node>, lease: Arc<Lease>) {
        let (volume, of) = (Weak::clone(&self.me), Arc::downgrade(node));
        node.keep(Content::new(lease, &self.keeper, Arc::new(Breaker { volume, node: of })));
    }

    pub(crate) async fn open(&self, id: u64, flags: i32) -> Outcome<u64> {
        let node = self.nodes.find(id)?;
        let (reads, writes) = wants(flags);
        if writes {
            self.check_writable()?;
        }
        let _turn = node.opening.lock().await;
        self.open_on_server(&node, reads, writes).await?;
        self.enter(&node, flags)
    }

    /// Makes sure that there is an Open. The caller holds `opening`. What was kept
    /// open does not stay so for nobody.
    pub(super) async fn open_on_server(
        &self,
        node: &Arc<Node>,
        reads: bool,
        writes: bool,
    ) -> Outcome<File> {
        let opened = self.take_or_open(node, reads, writes).await;
        if opened.is_err() && node.opens.lock().users == 0 {
            self.close_all(node).await;
        }
        opened
    }

    async fn take_or_open(&self, node: &Arc<Node>, reads: bool, writes: bool) -> Outcome<File> {
        let content = self.content(node).await?;
        let is_kept = {
            let mut opens = node.opens.lock();
            let is_kept = opens.kept.take().is_some();
            if is_kept {
                self.not_kept(node);
            }
            is_kept
        };
        loop {
            let found = node.opens.lock().best(reads, writes).map(|one| (one.id, one.file.clone()));
            let is_good = || !is_kept || content.lease.grant().state.contains(LeaseState::HANDLE);
            let Some((id, file)) = found.filter(|_| is_good()) else { break };
            match file.confirm().await {
                // With what was locked through it, that is for who locked it to know.
                Err(error) if matches!(error.cause(), Cause::HandleLost) => {
                    if node.locks.lock().await.is_any() {
                        return Err(errno(&error));
                    }
                    node.opens.lock().files.retain(|one| one.id != id);
                }
                other => return other.map(|()| file).map_err(|error| errno(&error)),
            }
        }
        let changes = content.changes();
        let opened = self.open_as(node, &content, writes).await?;
        let file = opened.file.clone();
        content.opened(&file, writes, file.metadata_at_open().len(), changes);
        node.opens.lock().files.push(opened);
        Ok(file)
    }

    /// Opens a node's file on the server. For writing it is opened for reading
    /// too, where that is allowed.
    async fn open_as(&self, node: &Arc<Node>, content: &Content, writes: bool) -> Outcome<Opened> {
        let path = node.path()?;
        let options = self.options(if writes { WRITING } else { READING });
        let options = options.write(writes).shared_lease(&content.lease);
        let (file, reads) = match options.clone().read(true).open(&self.share, &path).await {
            Err(error) if writes && error.status() == Some(Status::ACCESS_DENIED) => {
                (options.open(&self.share, &path).await.map_err(|e| errno(&e))?, false)
            }
            // The lease is on another file: MS-SMB2 3.3.5.9.8.
            Err(error) if error.status() == Some(Status::INVALID_PARAMETER) => {
                self.refresh_by_name(node).await?;
                return Err(errno(&error));
            }
            other => (other.map_err(|error| errno(&error))?, true),
        };
        // Somebody else may have put another file in its place: told so the kernel looks
        // for the name anew, and opens that.
        if ![0, node.id].contains(&file.metadata_at_open().file_id()) && !node.is_made_up() {
            let _ = file.close().await;
            self.distrust(node);
            return Err(Errno::from_i32(libc::ESTALE));
        }
        Ok(Opened { id: self.number(), file, reads, writes })
    }

    fn options(&self, lease: LeaseState) -> OpenOptions {
        OpenOptions::new().lease(if self.settings.cache { lease } else { LeaseState::EMPTY })
    }

    /// A new handle of what is open.
    fn enter(&self, node: &Arc<Node>, flags: i32) -> Outcome<u64> {
        let (can_read, can_write) = wants(flags);
        let heard = node.content().ok_or(Errno::EIO)?.failures.heard();
        node.opens.lock().users += 1;
        let number = self.number();
        let handle = Handle {
            node: Arc::clone(node),
            can_read,
            can_write,
            appends: flags & libc::O_APPEND != 0,
            syncs: flags & libc::O_DSYNC != 0,
            course: Course::default(),
            heard,
        };
        self.files.lock().insert(number, Arc::new(handle));
        Ok(number)
    }

    pub(crate) async fn create(
        &self,
        parent: u64,
        name: &OsStr,
        flags: i32,
        mode: u32,
    ) -> Outcome<(Told, u64)> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, self.wire(name)?);
        let path = parent.below(&name)?;
        let lease = self.share.lease_of(&path).await.map_err(|error| errno(&error))?;
        // What this mount does takes nothing of what it keeps of the directory.
        lease.set_parent(parent.listed.lease().as_deref());
        let asked = std::time::Instant::now();
        let exclusive = flags & libc::O_EXCL != 0;
        let options = self.options(WRITING).read(true).write(true).shared_lease(&lease);
        let options = options.mode(mode & MODE_BITS);
        let make = options.clone().create(true).create_new(exclusive);
        let file = match make.open(&self.share, &path).await {
            // It was made, or somebody else made it meanwhile; nobody knows.
            Err(error) if matches!(error.cause(), Cause::Unknown) => {
                options.open(&self.share, &path).await
            }
            other => other,
        };
        let file = file.map_err(|error| errno(&error))?;
        let mut metadata = file.metadata_at_open();
        if metadata.file_id() == 0 {
            metadata = file.metadata().await.map_err(|error| errno(&error))?;
        }
        self.changed(&parent, &name);
        let found = metadata.with_links(metadata.links().max(1));
        let node = self.nodes.found(&parent, &name, found, asked);
        let _turn = node.opening.lock().await;
        self.keep(&node, lease);
        if let Some(content) = node.content() {
            // That of a file which is open already may have changed.
            content.opened(&file, true, metadata.len(), 0);
        }
        {
            let mut opens = node.opens.lock();
            if opens.kept.take().is_some() {
                self.not_kept(&node);
            }
            let file = file.clone();
            opens.files.push(Opened { id: self.number(), file, reads: true, writes: true });
        }
        // Made by somebody else since the kernel looked for it, which leaves it to the
        // server to empty it.
        if flags & libc::O_TRUNC != 0 && !file.was_created() {
            let resized = match node.content() {
                Some(content) => content.resize(&file, 0).await,
                None => Ok(()),
            };
            node.unlearn();
            metadata = metadata.with_len(0);
            if let Err(error) = resized {
                if node.opens.lock().users == 0 {
                    self.close_all(&node).await;
                }
                self.forget(node.id, 1);
                return Err(error);
            }
        }
        let number = self.enter(&node, flags)?;
        Ok((self.tell(&node, &metadata), number))
    }

    pub(crate) async fn read(&self, number: u64, offset: u64, len: u32) -> Outcome<Bytes> {
        let handle = self.handle(number)?;
        if !handle.can_read {
            return Err(Errno::EBADF);
        }
        let node = &handle.node;
        let file = self.reader(node).ok_or(Errno::EBADF)?;
        let content = self.content(node).await?;
        let len = len as usize;
        if !self.settings.cache {
            return content.read_direct(&file, offset, len).await;
        }
        let ahead = handle.course.ahead(offset, len as u64);
        content.read(&file, offset, len, ahead).await
    }

    /// Writes for a program.
    pub(crate) async fn write(&self, number: u64, offset: u64, data: &[u8]) -> Outcome<u32> {
        let handle = self.handle(number)?;
        self.put(&handle, (!handle.appends).then_some(offset), data).await
    }

    /// Writes for a program what can be taken in at once. None when it has to be waited
    /// for something first.
    pub(crate) fn write_now(&self, number: u64, offset: u64, data: &[u8]) -> Option<u32> {
        let handle = self.handle(number).ok()?;
        if !handle.can_write || handle.syncs || !self.settings.cache {
            return None;
        }
        let node = &handle.node;
        let content = self.writer(node).and_then(|_| node.content())?;
        if content.failures.are_new(&handle.heard) {
            return None;
        }
        if !content.write_now((!handle.appends).then_some(offset), data) {
            return None;
        }
        node.unlearn();
        u32::try_from(data.len()).ok()
    }

    /// Writes what the kernel has of a map: it has its place, and comes through any
    /// handle of the file that can write.
    pub(crate) async fn write_back(&self, number: u64, offset: u64, data: &[u8]) -> Outcome<u32> {
        let handle = self.handle(number)?;
        self.put(&handle, Some(offset), data).await
    }

    async fn put(&self, handle: &Handle, offset: Option<u64>, data: &[u8]) -> Outcome<u32> {
        if !handle.can_write {
            return Err(Errno::EBADF);
        }
        let node = &handle.node;
        let file = self.writer(node).ok_or(Errno::EBADF)?;
        let content = self.content(node).await?;
        content.failures.tell(&handle.heard)?;
        let done = content.write(&file, offset, data, self.settings.cache).await;
        node.unlearn();
        done?;
        if handle.syncs {
            self.sync(handle).await?;
        }
        Ok(u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// Cuts or extends a file, open or not.
    pub(super) async fn truncate(&self, node: &Arc<Node>, size: u64) -> Outcome<()> {
        self.check_writable()?;
        let _turn = node.opening.lock().await;
        let was_open = self.writer(node).is_some();
        let file = self.open_on_server(node, false, true).await?;
        let resized = self.content(node).await?.resize(&file, size).await;
        if !was_open && node.opens.lock().users == 0 {
            self.close_all(node).await;
        }
        node.unlearn();
        resized
    }

    /// What a close(2) by `owner` must have seen to the end.
    pub(crate) async fn flush(&self, number: u64, owner: u64) -> Outcome<()> {
        let handle = self.handle(number)?;
        let _ = self.send(&handle.node).await;
        self.unlock_all(&handle.node, owner).await;
        // Who only reads has nothing to lose, and must not hear it in the place of who has.
        if handle.can_write { handle.tell_failures() } else { Ok(()) }
    }

    /// Sends what was gathered of a node.
    pub(super) async fn send(&self, node: &Node) -> Outcome<()> {
        match node.content() {
            Some(content) => content.send().await,
            None => Ok(()),
        }
    }

    pub(crate) async fn fsync(&self, number: u64) -> Outcome<()> {
        let handle = self.handle(number)?;
        self.sync(&handle).await
    }

    async fn sync(&self, handle: &Handle) -> Outcome<()> {
        let node = &handle.node;
        let _ = self.send(node).await;
        let synced = match self.syncer(node).await {
            Some(file) => file.sync().await.map_err(|error| errno(&error)),
            // Nothing can have been written.
            None => Ok(()),
        };
        handle.tell_failures().and(synced)
    }

    /// An Open by which what anybody wrote can be put on stable storage: MS-SMB2 3.3.5.11
    /// wants one that writes, POSIX any.
    async fn syncer(&self, node: &Arc<Node>) -> Option<File> {
        if let Some(file) = self.writer(node) {
            return Some(file);
        }
        if self.settings.read_only {
            return None;
        }
        let _turn = node.opening.lock().await;
        // Where that is not allowed nobody here has written.
        self.open_on_server(node, false, true).await.ok()
    }

    /// The last use of a handle has ended.
    pub(crate) async fn release(&self, number: u64) {
        let Some(handle) = self.files.lock().remove(&number) else { return };
        let node = &handle.node;
        self.unlock_through(node, number).await;
        let _turn = node.opening.lock().await;
        {
            let mut opens = node.opens.lock();
            opens.users = opens.users.saturating_sub(1);
            if opens.users > 0 {
                return;
            }
        }
        if let Err(error) = self.send(node).await {
            // A close(2) was told, unless it was a map that was written to.
            tracing::warn!(?node, ?error, "what was written is lost");
        }
        if !self.keeps(node) {
            self.close_all(node).await;
        }
    }

    /// Whether a file that nobody uses stays open for a while: what was only read,
    /// since the server settles the times of a file when it is closed.
    fn keeps(&self, node: &Arc<Node>) -> bool {
        let Some(content) = node.content() else { return false };
        let keeping = LeaseState::READ | LeaseState::HANDLE;
        let may = self.settings.cache && content.lease.grant().state.contains(keeping);
        let mut opens = node.opens.lock();
        let is_plain = opens.hidden.is_empty() && opens.files.iter().all(|one| !one.writes);
        let mut kept = self.kept.lock();
        let keeps = may && is_plain && kept.len() < KEPT_FILES;
        if keeps {
            opens.kept = Some(Instant::now());
            kept.insert(node.id, Arc::clone(node));
        }
        keeps
    }

    fn not_kept(&self, node: &Node) {
        let mut kept = self.kept.lock();
        if kept.get(&node.id).is_some_and(|one| std::ptr::eq(&**one, node)) {
            kept.remove(&node.id);
        }
    }

    /// Closes all of the server's Opens of a node. The caller holds `opening`.
    async fn close_all(&self, node: &Node) {
        let (files, hidden) = {
            let mut opens = node.opens.lock();
            if opens.kept.take().is_some() {
                self.not_kept(node);
            }
            (std::mem::take(&mut opens.files), std::mem::take(&mut opens.hidden))
        };
        for opened in files {
            if let Err(error) = opened.file.close().await {
                tracing::warn!(%error, "not closed as it should be");
            }
        }
        if let Some(content) = node.content() {
            content.closed();
        }
        for hidden in hidden {
            if let Err(error) = self.share.remove_file(&hidden).await {
                tracing::warn!(%error, "a removed file is left under a hidden name");
            }
        }
    }

    /// Closes a node that is open for nobody.
    pub(crate) async fn let_go(&self, node: &Arc<Node>) {
        if node.listed.is_held() {
            self.let_go_dir(node).await;
        }
        let _turn = node.opening.lock().await;
        let is_kept = {
            let opens = node.opens.lock();
            opens.users == 0 && opens.is_open()
        };
        if is_kept {
            self.close_all(node).await;
        }
    }

    /// A lease of the node falls to `to`: what it allowed is given up.
    async fn give_up(&self, node: &Arc<Node>, to: LeaseState) {
        node.unlearn();
        if let Some(notifier) = self.notifier.get().cloned() {
            // What programs have mapped: written back first, then forgotten.
            let number = INodeNo(node.id);
            let told = tokio::task::spawn_blocking(move || notifier.inval_inode(number, 0, 0));
            if let Ok(Err(error)) = told.await {
                tracing::debug!(%error, "the kernel keeps what it mapped");
            }
        }
        let Some(content) = node.content() else { return };
        if !to.contains(LeaseState::WRITE) {
            content.send_unasked().await;
        }
        if !to.contains(LeaseState::READ) {
            content.forget();
        }
        if !to.contains(LeaseState::HANDLE) {
            self.let_go(node).await;
        }
    }

    /// What is done from time to time: sending what was written a while ago, closing
    /// what nobody has used for a while.
    pub(crate) async fn tidy(&self) {
        for node in self.open_nodes() {
            let Some(content) = node.content() else { continue };
            if content.waiting().is_some_and(|since| since.elapsed() >= crate::limits::SEND_AFTER) {
                // One that has to wait does not keep the others.
                content.send_soon();
            }
        }
        self.tidy_dirs().await;
        self.tidy_listings();
        let kept: Vec<_> = self.kept.lock().values().cloned().collect();
        for node in kept {
            let since = node.opens.lock().kept;
            if since.is_none_or(|since| since.elapsed() >= KEPT_FOR) {
                self.let_go(&node).await;
            }
        }
    }

    /// Writes all that was gathered.
    pub(crate) async fn flush_all(&self) {
        let nodes = futures_util::stream::iter(self.nodes.all());
        let flush = async |node: Arc<Node>| {
            if let Err(error) = self.send(&node).await {
                tracing::warn!(?node, ?error, "what was written is lost");
            }
        };
        nodes.for_each_concurrent(AT_ONCE_AT_THE_END, flush).await;
    }

    /// How many bytes of all files are not on the server yet, and never will be.
    pub(crate) fn unsent_and_lost(&self) -> (u64, u64) {
        (self.keeper.unsent(), self.keeper.lost())
    }

    /// Closes all that is open: nobody can use it any more. A server that does not answer
    /// closes it itself.
    pub(crate) async fn settle(&self) {
        self.flush_all().await;
        let close = async {
            let handles: Vec<u64> = self.files.lock().keys().copied().collect();
            let handles = futures_util::stream::iter(handles);
            handles.for_each_concurrent(AT_ONCE_AT_THE_END, |one| self.release(one)).await;
            let nodes = futures_util::stream::iter(self.nodes.all());
            let let_go = async |node: Arc<Node>| self.let_go(&node).await;
            nodes.for_each_concurrent(AT_ONCE_AT_THE_END, let_go).await;
        };
        if tokio::time::timeout(CLOSED_WITHIN, close).await.is_err() {
            tracing::warn!("the server does not answer, and has files open of what is unmounted");
        }
    }

    /// Nobody will use the handle that was made.
    pub(crate) fn not_opened(self: &Arc<Self>, number: u64) {
        let volume = Arc::clone(self);
        tokio::spawn(async move { volume.release(number).await });
    }

    /// The kernel was not told of a node after all.
    pub(crate) fn not_told(self: &Arc<Self>, id: u64) {
        if let Some(node) = self.forget(id, 1) {
            let volume = Arc::clone(self);
            tokio::spawn(async move { volume.let_go(&node).await });
        }
    }

    /// The kernel has forgotten a node so many times. The node, when that was
    /// altogether and it is still open.
    pub(crate) fn forget(&self, id: u64, count: u64) -> Option<Arc<Node>> {
        let is_busy = |node: &Arc<Node>| node.is_open() || node.listed.is_held();
        self.nodes.forget(id, count).filter(is_busy)
    }
}
