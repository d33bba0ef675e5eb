//! Open files: reading, writing, and what else is done with a handle.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_client::{Cause, File, OpenOptions};
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;
use fuser::Errno;

use super::{Told, Volume, wire};
use crate::errno::{Outcome, errno};
use crate::node::Node;

/// A file that a program has open.
pub(crate) struct Handle {
    pub(crate) node: Arc<Node>,
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
    /// Every write goes to the end.
    pub(crate) appends: bool,
}

/// The server's Opens of a node: all of its handles use the same ones.
#[derive(Default)]
pub(crate) struct Opens {
    files: Vec<Opened>,
    /// Handles.
    users: usize,
    /// Where it is to be removed when it is closed.
    hidden: Option<String>,
}

#[derive(Clone)]
struct Opened {
    file: File,
    reads: bool,
    writes: bool,
}

impl Opens {
    /// Whether there is any.
    pub(crate) const fn is_open(&self) -> bool {
        !self.files.is_empty()
    }

    fn find(&self, reads: bool, writes: bool) -> Option<File> {
        let fits = |one: &&Opened| (one.reads || !reads) && (one.writes || !writes);
        self.files.iter().rev().find(fits).map(|one| one.file.clone())
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

    /// Nodes that are open.
    pub(super) fn open_nodes(&self) -> Vec<Arc<Node>> {
        self.files.lock().values().map(|handle| Arc::clone(&handle.node)).collect()
    }

    /// The node's file goes when it is closed.
    pub(super) fn remove_at_close(&self, node: &Node, path: String) {
        node.opens.lock().hidden = Some(path);
    }

    /// A number that no other mount uses for the same file.
    pub(super) fn unique(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanoseconds = since.unwrap_or_default().as_nanos() as u64;
        nanoseconds.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(std::process::id()) << 32
            ^ self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) async fn open(&self, id: u64, flags: i32) -> Outcome<u64> {
        let node = self.nodes.find(id)?;
        let (reads, writes) = wants(flags);
        if writes {
            self.check_writable()?;
        }
        let _turn = node.opening.lock().await;
        if node.opens.lock().find(reads, writes).is_none() {
            let file = self.open_as(&node, writes).await?;
            node.opens.lock().files.push(file);
        }
        Ok(self.enter(&node, flags))
    }

    /// Opens a node's file on the server. For writing it is opened for reading
    /// too, where that is allowed.
    async fn open_as(&self, node: &Node, writes: bool) -> Outcome<Opened> {
        let path = node.path()?;
        let options = OpenOptions::new().write(writes);
        match options.clone().read(true).open(&self.share, &path).await {
            Ok(file) => Ok(Opened { file, reads: true, writes }),
            Err(error) if writes && error.status() == Some(Status::ACCESS_DENIED) => {
                let file = options.open(&self.share, &path).await.map_err(|e| errno(&e))?;
                Ok(Opened { file, reads: false, writes })
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// A new handle.
    fn enter(&self, node: &Arc<Node>, flags: i32) -> u64 {
        let (can_read, can_write) = wants(flags);
        node.opens.lock().users += 1;
        let number = self.number();
        let appends = flags & libc::O_APPEND != 0;
        let handle = Handle { node: Arc::clone(node), can_read, can_write, appends };
        self.files.lock().insert(number, Arc::new(handle));
        number
    }

    pub(crate) async fn create(
        &self,
        parent: u64,
        name: &OsStr,
        flags: i32,
    ) -> Outcome<(Told, u64)> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, wire(name)?);
        let path = parent.below(&name)?;
        let exclusive = flags & libc::O_EXCL != 0;
        let options = OpenOptions::new().read(true).write(true);
        let made =
            options.clone().create(true).create_new(exclusive).open(&self.share, &path).await;
        let file = match made {
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
        self.changed(&parent);
        let node = self.nodes.found(&parent, &name, metadata);
        node.opens.lock().files.push(Opened { file, reads: true, writes: true });
        let number = self.enter(&node, flags);
        Ok((self.tell(&node, &metadata), number))
    }

    pub(crate) async fn read(&self, number: u64, offset: u64, len: u32) -> Outcome<Vec<u8>> {
        let handle = self.handle(number)?;
        if !handle.can_read {
            return Err(Errno::EBADF);
        }
        let file = handle.node.opens.lock().find(true, false).ok_or(Errno::EBADF)?;
        let mut data = vec![0; len as usize];
        let count = file.read_at(offset, &mut data).await.map_err(|error| errno(&error))?;
        data.truncate(count);
        Ok(data)
    }

    pub(crate) async fn write(&self, number: u64, offset: u64, data: &[u8]) -> Outcome<u32> {
        let handle = self.handle(number)?;
        let node = &handle.node;
        if !handle.can_write {
            return Err(Errno::EBADF);
        }
        let file = self.writer(node).ok_or(Errno::EBADF)?;
        let offset = if handle.appends {
            file.metadata().await.map_err(|error| errno(&error))?.len()
        } else {
            offset
        };
        file.write_at(offset, data).await.map_err(|error| errno(&error))?;
        node.unlearn();
        Ok(u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// Cuts or extends a file, open or not.
    pub(super) async fn truncate(&self, node: &Arc<Node>, size: u64) -> Outcome<()> {
        self.check_writable()?;
        let file = match self.writer(node) {
            Some(file) => file,
            None => {
                let options = OpenOptions::new().access(AccessMask::WRITE_DATA);
                let path = node.path()?;
                options.open(&self.share, &path).await.map_err(|error| errno(&error))?
            }
        };
        file.set_len(size).await.map_err(|error| errno(&error))?;
        node.unlearn();
        Ok(())
    }

    /// What a close(2) must have seen to the end.
    pub(crate) async fn flush(&self, number: u64) -> Outcome<()> {
        self.handle(number)?;
        Ok(())
    }

    pub(crate) async fn fsync(&self, number: u64) -> Outcome<()> {
        let handle = self.handle(number)?;
        match self.writer(&handle.node) {
            Some(file) => file.sync().await.map_err(|error| errno(&error)),
            // Nothing can have been written.
            None => Ok(()),
        }
    }

    /// The last use of a handle has ended.
    pub(crate) async fn release(&self, number: u64) {
        let Some(handle) = self.files.lock().remove(&number) else { return };
        let node = &handle.node;
        let _turn = node.opening.lock().await;
        let (files, hidden) = {
            let mut opens = node.opens.lock();
            opens.users = opens.users.saturating_sub(1);
            if opens.users > 0 {
                return;
            }
            (std::mem::take(&mut opens.files), opens.hidden.take())
        };
        for opened in files {
            if let Err(error) = opened.file.close().await {
                tracing::warn!(%error, "not closed as it should be");
            }
        }
        if let Some(hidden) = hidden
            && let Err(error) = self.share.remove_file(&hidden).await
        {
            tracing::warn!(%error, "a removed file is left under a hidden name");
        }
    }
}
