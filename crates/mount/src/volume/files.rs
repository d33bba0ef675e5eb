//! Operations on open files.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use frevo_client::{Cause, File, Metadata};
use fuser::Errno;

use super::names::MODE_BITS;
use super::opens::WRITING;
use super::{EntryReply, Handle, Volume, begin};
use crate::cache::{BeforeOpen, ReadAhead};
use crate::errno::{Outcome, errno, errno_of_new};
use crate::node::{Node, Opened, Seen};

/// Returns (reads, writes) from the flags of open(2).
const fn wants(flags: i32) -> (bool, bool) {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        _ => (true, true),
    }
}

impl Volume {
    pub(crate) fn handle(&self, number: u64) -> Outcome<Arc<Handle>> {
        self.files.lock().get(&number).cloned().ok_or(Errno::EBADF)
    }

    /// Returns the nodes that programs have open.
    pub(super) fn open_nodes(&self) -> Vec<Arc<Node>> {
        self.files.lock().values().map(|handle| Arc::clone(&handle.node)).collect()
    }

    /// Returns a number that no other mount uses for the same file.
    pub(super) fn unique(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanoseconds = since.unwrap_or_default().as_nanos() as u64;
        nanoseconds.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (u64::from(std::process::id()) << 32)
            ^ self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) async fn open(&self, id: u64, flags: i32) -> Outcome<u64> {
        let node = self.nodes.find(id)?;
        let (reads, writes) = wants(flags);
        if writes {
            self.check_writable()?;
        }
        let _turn = self.turn(&node).await;
        let mut opened = Ok(());
        if self.reuses(&node, reads, writes) {
            opened = self.check_names(&node).await;
        }
        if opened.is_ok() {
            opened = self.open_on_server(&node, reads, writes).await.map(drop);
        } else if node.opens.lock().users == 0 {
            self.close_all_with_next(&node).await;
        }
        match opened {
            // The kernel has used an outdated name. After ESTALE it looks the name up again, and
            // creates the file if the program wants that.
            Err(error) if error == Errno::ENOENT => {
                self.distrust(&node);
                Err(Errno::from_i32(libc::ESTALE))
            }
            opened => opened.and_then(|()| self.enter(&node, flags)),
        }
    }

    /// Adds a handle for an open node; returns its number.
    fn enter(&self, node: &Arc<Node>, flags: i32) -> Outcome<u64> {
        let (can_read, can_write) = wants(flags);
        let seen_failures = node.content().ok_or(Errno::EIO)?.failures.seen();
        node.opens.lock().users += 1;
        let number = self.number();
        let handle = Handle {
            node: Arc::clone(node),
            can_read,
            can_write,
            appends: flags & libc::O_APPEND != 0,
            syncs: flags & libc::O_DSYNC != 0,
            read_ahead: ReadAhead::default(),
            seen_failures,
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
    ) -> Outcome<(EntryReply, u64)> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, self.wire(name)?);
        let path = parent.below(&name)?;
        let lease = self.share.lease_of(&path).await.map_err(|error| errno(&error))?;
        // With the parent's lease key this CREATE does not break the mount's own lease on the
        // directory.
        lease.set_parent(parent.directory.lease().as_deref());
        let (asked, seen) = (Instant::now(), parent.directory.seen());
        let exclusive = flags & libc::O_EXCL != 0;
        let options = self.options(WRITING).read(true).write(true).shared_lease(&lease);
        let options = options.mode(mode & MODE_BITS);
        let make = options.clone().create(true).create_new(exclusive);
        let file = match make.open(&self.share, &path).await {
            // The answer to CREATE was lost. This request or another client has made the file.
            Err(error) if matches!(error.cause(), Cause::Unknown) => {
                options.open(&self.share, &path).await
            }
            other => other,
        };
        let file = file.map_err(|error| errno_of_new(&error, &path))?;
        let mut metadata = file.metadata_at_open();
        if metadata.file_id() == 0 {
            metadata = file.metadata().await.map_err(|error| errno(&error))?;
        }
        self.changed(&parent, &name);
        let found = metadata.with_links(metadata.links().max(1));
        let node = self.nodes.found(&parent, &name, found, asked);
        self.promised(&parent, &name, &node, seen.map(Seen::after_own_change));
        let _turn = self.turn(&node).await;
        self.count_breaks(&node).await;
        self.keep(&node, lease);
        if let Some(content) = node.content() {
            // If the file was open before, its cached data may be outdated. So it is compared.
            content.opened(&file, true, BeforeOpen::NEW, &metadata, None);
        }
        {
            let mut opens = node.opens.lock();
            if opens.kept.take().is_some() {
                self.not_kept(&node);
            }
            let file = file.clone();
            opens.files.push(Opened { id: self.number(), file, reads: true, writes: true });
        }
        // Another client has made the file since the kernel's look-up, so it is truncated here.
        if flags & libc::O_TRUNC != 0 && !file.was_created() {
            let resized = match node.content() {
                Some(content) => content.resize(&file, 0).await.map(drop),
                None => Ok(()),
            };
            node.invalidate();
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
        Ok((self.reply(&node, &metadata), number))
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
        let ahead = handle.read_ahead.ahead(offset, len as u64);
        content.read(&file, offset, len, ahead).await
    }

    /// Writes data for a program.
    pub(crate) async fn write(&self, number: u64, offset: u64, data: &[u8]) -> Outcome<u32> {
        let handle = self.handle(number)?;
        self.put(&handle, (!handle.appends).then_some(offset), data).await
    }

    /// Writes data for a program if that needs no wait; None otherwise.
    pub(crate) fn write_now(&self, number: u64, offset: u64, data: &[u8]) -> Option<u32> {
        let handle = self.handle(number).ok()?;
        if !handle.can_write || handle.syncs || !self.settings.cache {
            return None;
        }
        let node = &handle.node;
        let content = self.writer(node).and_then(|_| node.content())?;
        if content.failures.are_new(&handle.seen_failures) {
            return None;
        }
        if !content.write_now((!handle.appends).then_some(offset), data) {
            return None;
        }
        node.written();
        u32::try_from(data.len()).ok()
    }

    /// Writes back mapped pages; the kernel sends them through any handle that can write.
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
        content.failures.tell(&handle.seen_failures)?;
        let done = content.write(&file, offset, data, self.settings.cache).await;
        node.written();
        done?;
        if handle.syncs {
            self.sync(handle).await?;
        }
        Ok(u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// Truncates or extends a file, open or not. Returns its metadata afterwards.
    pub(super) async fn truncate(&self, node: &Arc<Node>, size: u64) -> Outcome<Metadata> {
        self.check_writable()?;
        let _turn = self.turn(node).await;
        let was_open = self.writer(node).is_some();
        let file = self.open_on_server(node, false, true).await?;
        node.invalidate();
        let asked = Instant::now();
        let resized = self.content(node).await?.resize(&file, size).await;
        if !was_open
            && node.opens.lock().users == 0
            && let Some(volume) = self.me.upgrade()
        {
            let node = Arc::clone(node);
            begin(async move { volume.close_all_with_next(&node).await }).await;
        }
        match resized {
            Ok(found) => self.store_if_same(node, found, asked),
            Err(error) => {
                node.invalidate();
                Err(error)
            }
        }
    }

    /// Completes a close(2) by `owner`: sends data, releases the owner's locks, reports failures.
    pub(crate) async fn flush(&self, number: u64, owner: u64) -> Outcome<()> {
        let handle = self.handle(number)?;
        let _ = self.send(&handle.node).await;
        self.unlock_all(&handle.node, owner).await;
        // A handle that can only read must not take the error that belongs to a handle that wrote.
        if handle.can_write { handle.tell_failures() } else { Ok(()) }
    }

    /// Sends the unsent data of a node.
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
            Some(file) => file.sync_all().await.map_err(|error| errno(&error)),
            // No Open that could have written exists, so there is no lost data to report.
            None => Ok(()),
        };
        handle.tell_failures().and(synced)
    }

    /// Returns an Open that can flush all data to stable storage: MS-SMB2 3.3.5.11 requires write
    /// access, POSIX none.
    async fn syncer(&self, node: &Arc<Node>) -> Option<File> {
        if let Some(file) = self.writer(node) {
            return Some(file);
        }
        if self.settings.read_only {
            return None;
        }
        let _turn = self.turn(node).await;
        // A file that cannot be opened for writing has no data written by this mount, so there is
        // nothing to sync.
        self.open_on_server(node, false, true).await.ok()
    }

    /// Ends a handle after its last use.
    pub(crate) async fn release(&self, number: u64) {
        let Some(handle) = self.files.lock().remove(&number) else { return };
        let node = &handle.node;
        self.unlock_through(node, number).await;
        let _turn = self.turn(node).await;
        {
            let mut opens = node.opens.lock();
            opens.users = opens.users.saturating_sub(1);
            if opens.users > 0 {
                return;
            }
        }
        if let Err(error) = self.send(node).await {
            // close(2) has reported this error already. If the data came from mapped pages, no
            // program learns of it, so it is logged.
            tracing::warn!(?node, ?error, "written data is lost");
        }
        if !self.keeps(node) {
            self.close_all_with_next(node).await;
        }
    }
}
