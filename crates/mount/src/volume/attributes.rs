//! Attributes: getattr, setattr, statfs, access, extended attributes.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_client::internal::Change;
use frevo_client::{Cause, DiskSpace, Error, FileAttributes, Metadata, SetMetadata, Status};
use fuser::{AccessFlags, Errno};

use super::names::MODE_BITS;
use super::reply::WRITE_BITS;
use super::{Changes, EntryReply, STATUS_ATTRIBUTE, Volume, reply};
use crate::errno::{Outcome, errno};
use crate::limits::XATTR_MAX;
use crate::node::{Node, ROOT, kind_of};

/// The set-user-ID and set-group-ID bits of a mode.
const SET_ID_BITS: u32 = 0o6000;
/// The execute bits of a mode.
const EXECUTE_BITS: u32 = 0o111;

/// The name space of the server's extended attributes.
const USER: &str = "user.";

/// Returns true if the error means that the Open is gone: closed after its last use, or lost with
/// its session.
pub(super) fn is_lost(error: &Error) -> bool {
    error.status() == Some(Status::FILE_CLOSED) || matches!(error.cause(), Cause::HandleLost)
}

fn is_closed<T>(outcome: &Result<T, Error>) -> bool {
    outcome.as_ref().is_err_and(is_lost)
}

impl Volume {
    /// Returns the metadata of `path`; looks up the kind of a special file.
    pub(super) async fn look_at(&self, path: &str) -> Result<Metadata, Error> {
        let found = self.share.lookup(path).await?;
        self.share.look_into(path, found).await
    }

    /// Asks the server for the current metadata of a node.
    pub(super) async fn refresh(&self, node: &Arc<Node>) -> Outcome<Metadata> {
        // Unsent data is sent first, because the server knows size and times only of sent data. An
        // error of the sending is reported to the handles that wrote.
        let _ = self.send(node).await;
        let asked = Instant::now();
        let answer = match self.open_file(node) {
            Some(file) => Some(file.metadata().await),
            None => None,
        };
        match answer.filter(|answer| !is_closed(answer)) {
            Some(answer) => self.store_if_same(node, answer.map_err(|error| errno(&error))?, asked),
            None => self.refresh_by_name(node).await,
        }
    }

    /// Returns the metadata found by name, if it still belongs to the node.
    pub(super) async fn refresh_by_name(&self, node: &Arc<Node>) -> Outcome<Metadata> {
        let asked = Instant::now();
        let found = self.look_at(&node.path()?).await.map_err(|error| errno(&error))?;
        self.store_if_same(node, found, asked)
    }

    pub(super) fn store_if_same(
        &self,
        node: &Arc<Node>,
        metadata: Metadata,
        asked: Instant,
    ) -> Outcome<Metadata> {
        if !self.is_same(node, &metadata) {
            self.distrust(node);
            return Err(Errno::from_i32(libc::ESTALE));
        }
        node.set_metadata(metadata, asked);
        Ok(metadata)
    }

    /// Returns true if metadata found at the node's path belongs to the node.
    pub(super) fn is_same(&self, node: &Node, metadata: &Metadata) -> bool {
        if node.id == ROOT {
            return metadata.is_dir();
        }
        let is_same_id = metadata.file_id() == node.id || node.is_made_up();
        is_same_id && kind_of(metadata) == node.kind
    }

    pub(crate) async fn getattr(&self, id: u64) -> Outcome<EntryReply> {
        let node = self.nodes.find(id)?;
        let fresh = || node.known().filter(|known| self.is_fresh(known.at));
        if fresh().is_none() {
            self.refresh_from_listing(&node).await;
        }
        match fresh() {
            Some(known) => Ok(self.reply_known(&node, &known)),
            None => {
                let metadata = self.refresh(&node).await?;
                Ok(self.reply(&node, &metadata))
            }
        }
    }

    /// Takes the metadata from a listing if many files of the directory are looked up.
    async fn refresh_from_listing(&self, node: &Arc<Node>) {
        let Some((parent, name)) = node.name().filter(|_| !node.is_open()) else { return };
        let Some(listing) = self.listed_lately(&parent).await else { return };
        let Some(entry) = listing.find(&name) else { return };
        if self.is_same(node, entry.metadata()) {
            node.set_listed_metadata(*entry.metadata(), listing.asked);
        }
    }

    pub(crate) async fn setattr(&self, id: u64, changes: Changes) -> Outcome<EntryReply> {
        self.check_writable()?;
        let node = self.nodes.find(id)?;
        let mut told = None;
        if let Some(size) = changes.size {
            told = Some(self.truncate(&node, size).await?);
        }
        let change = self.change_of(&node, &changes).await?;
        if !change.is_empty() {
            told = Some(self.change(&node, change).await?);
        }
        if let Some(told) = told {
            return Ok(self.reply(&node, &told));
        }
        // Nothing has changed on the server, for instance after a chmod(2) to the present
        // permissions, so the known attributes are returned.
        match node.known_before_writes().filter(|known| self.is_fresh(known.at)) {
            Some(known) if node.known().is_some() => Ok(self.reply(&node, &known.metadata)),
            // These attributes lack the unsent data, so the kernel must not cache them (TTL zero).
            Some(known) => {
                Ok(EntryReply { ttl: Duration::ZERO, ..self.reply(&node, &known.metadata) })
            }
            None => {
                let metadata = self.refresh(&node).await?;
                Ok(self.reply(&node, &metadata))
            }
        }
    }

    /// Returns the changes as the server is asked for them.
    async fn change_of(&self, node: &Arc<Node>, changes: &Changes) -> Outcome<Change> {
        let &Changes { mode, uid, gid, accessed, modified, .. } = changes;
        let is_posix = self.share.is_posix();
        let attributes = match mode.filter(|_| !is_posix) {
            Some(mode) => self.attributes_for(node, mode).await?,
            None => None,
        };
        let basic = SetMetadata::new().modified(modified).accessed(accessed).attributes(attributes);
        let basic = Some(basic).filter(|basic| *basic != SetMetadata::new());
        if !is_posix {
            return Ok(Change { basic, ..Change::default() });
        }
        Ok(Change { basic, mode: mode.map(|mode| mode & MODE_BITS), uid, gid })
    }

    /// Changes a file, and returns its metadata afterwards.
    async fn change(&self, node: &Arc<Node>, change: Change) -> Outcome<Metadata> {
        let sets_times =
            change.basic.is_some_and(|basic| basic.modified.or(basic.accessed).is_some());
        // Unsent data is sent first. If it were sent later, it would change the times again and
        // clear set-user-ID and set-group-ID.
        if sets_times || change.mode.is_some_and(|mode| mode & SET_ID_BITS != 0) {
            let _ = self.send(node).await;
        }
        let by_name = match change.basic {
            None => change,
            Some(basic) => match self.change_by_writer(node, &basic).await {
                None => change,
                Some(done) => {
                    let rest = Change { basic: None, ..change };
                    let done = done?;
                    if rest.is_empty() {
                        return Ok(done);
                    }
                    rest
                }
            },
        };
        node.invalidate();
        let asked = Instant::now();
        let lease = node.content().filter(|_| node.is_open()).map(|content| {
            let parent = node.name().and_then(|(parent, _)| parent.directory.lease());
            content.lease.set_parent(parent.as_deref());
            Arc::clone(&content.lease)
        });
        let share = self.share_of(node);
        let changed = share.change(&node.path()?, &by_name, lease.as_ref()).await;
        // This mount's change does not break the parent's lease, so the parent's cached listing
        // with the old attributes is dropped here.
        if let Some((parent, _)) = node.name() {
            parent.directory.state.lock().listing = None;
        }
        let found = match changed {
            // MS-SMB2 3.3.5.9.8: the lease belongs to another file than the one that now has the
            // name, so the name leads to a different file.
            Err(error) if lease.is_some() && error.status() == Some(Status::INVALID_PARAMETER) => {
                self.distrust(node);
                return Err(Errno::from_i32(libc::ESTALE));
            }
            changed => changed.map_err(|error| errno(&error))?,
        };
        let found =
            self.share.look_into(&node.path()?, found).await.map_err(|error| errno(&error))?;
        self.store_if_same(node, found, asked)
    }

    /// Sets times and attributes through the Open that writes, if there is one. The kernel does not
    /// wait for a close, and the close of a written file updates its time, unless the time was set
    /// through the same Open.
    async fn change_by_writer(
        &self,
        node: &Arc<Node>,
        basic: &SetMetadata,
    ) -> Option<Outcome<Metadata>> {
        let _turn = self.turn(node).await;
        let file = self.writer(node)?;
        node.invalidate();
        let asked = Instant::now();
        let changed = Some(file.change(basic).await).filter(|changed| !is_closed(changed))?;
        Some(match changed {
            Ok(found) => self.store_if_same(node, found, asked),
            Err(error) => Err(errno(&error)),
        })
    }

    /// Returns the DOS attributes for a mode, if they differ from the current ones: without POSIX
    /// extensions a server can only store READONLY.
    async fn attributes_for(&self, node: &Arc<Node>, mode: u32) -> Outcome<Option<FileAttributes>> {
        if node.is_dir() {
            return Ok(None);
        }
        let now = self.attributes_now(node).await?;
        let is_read_only = now.contains(FileAttributes::READONLY);
        if is_read_only == (mode & WRITE_BITS == 0) {
            return Ok(None);
        }
        let kept = FileAttributes::HIDDEN | FileAttributes::SYSTEM | FileAttributes::ARCHIVE;
        let mut wanted = now & kept;
        if !is_read_only {
            wanted |= FileAttributes::READONLY;
        }
        Ok(Some(wanted))
    }

    /// Returns the DOS attributes of a file. Writes of this mount add ARCHIVE, also those whose data
    /// is not sent yet (MS-FSA 2.1.5.4).
    async fn attributes_now(&self, node: &Arc<Node>) -> Outcome<FileAttributes> {
        if let Some(known) = node.known().filter(|known| self.is_fresh(known.at)) {
            return Ok(known.metadata.attributes());
        }
        let before = node.known_before_writes().filter(|known| self.is_fresh(known.at));
        let found = match (before, self.open_file(node)) {
            (Some(before), _) => before.metadata,
            // The answer that is needed does not depend on unsent data, so the data is not sent
            // first.
            (None, Some(file)) => match file.metadata().await {
                Err(error) if is_lost(&error) => self.refresh(node).await?,
                found => found.map_err(|error| errno(&error))?,
            },
            (None, None) => self.refresh(node).await?,
        };
        let is_written = before.is_some()
            || node.content().is_some_and(|content| content.unsent_len().is_some());
        let added = if is_written { FileAttributes::ARCHIVE } else { FileAttributes::EMPTY };
        Ok(found.attributes() | added)
    }

    /// Decides access(2) where the kernel does not check modes itself.
    ///
    /// # Errors
    /// EACCES for a right that no mode of the file grants, and EROFS on a read-only mount.
    pub(crate) fn access(&self, id: u64, wanted: AccessFlags, uid: u32) -> Outcome<()> {
        if wanted.contains(AccessFlags::W_OK) {
            self.check_writable()?;
        }
        let node = self.nodes.find(id)?;
        let Some(known) = node.known_before_writes().filter(|_| !node.is_dir()) else {
            // Without known attributes every access is allowed here, because the server decides
            // when the file is opened.
            return Ok(());
        };
        let perm = u32::from(reply::attr(&node, &known.metadata, &self.settings).perm);
        let lacks = |right, bits| wanted.contains(right) && perm & bits == 0;
        let is_refused = lacks(AccessFlags::X_OK, EXECUTE_BITS)
            || (uid != 0 && lacks(AccessFlags::W_OK, WRITE_BITS));
        if is_refused { Err(Errno::EACCES) } else { Ok(()) }
    }

    pub(crate) async fn statfs(&self) -> Outcome<DiskSpace> {
        let path = self.nodes.root().path()?;
        self.share.disk_space(&path).await.map_err(|error| errno(&error))
    }

    /// Returns the extended attributes of a node, without the prefix `user.`.
    async fn attributes_of(&self, node: &Node) -> Outcome<Vec<(String, Vec<u8>)>> {
        let path = node.path()?;
        match self.share.extended_attributes(&path).await {
            Ok(found) => Ok(found),
            Err(error) if error.status() == Some(Status::EAS_NOT_SUPPORTED) => {
                Err(Errno::EOPNOTSUPP)
            }
            Err(error) => Err(errno(&error)),
        }
    }

    pub(crate) async fn getxattr(&self, id: u64, name: &OsStr) -> Outcome<Vec<u8>> {
        if id == ROOT && name == STATUS_ATTRIBUTE {
            return Ok(self.status());
        }
        let wanted = user_name(name)?;
        let node = self.nodes.find(id)?;
        let found = self.attributes_of(&node).await?;
        let found = found.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value).ok_or(Errno::from_i32(libc::ENODATA))
    }

    pub(crate) async fn listxattr(&self, id: u64) -> Outcome<Vec<u8>> {
        let node = self.nodes.find(id)?;
        let found = match self.attributes_of(&node).await {
            Err(error) if error == Errno::EOPNOTSUPP => Vec::new(),
            other => other?,
        };
        Ok(found.iter().flat_map(|(name, _)| [USER, name, "\0"].concat().into_bytes()).collect())
    }

    pub(crate) async fn setxattr(
        &self,
        id: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Outcome<()> {
        self.check_writable()?;
        let name = user_name(name)?;
        if value.is_empty() {
            // MS-FSCC 2.4.16: an extended attribute with an empty value cannot exist.
            return Err(Errno::EINVAL);
        }
        if value.len() > XATTR_MAX {
            return Err(Errno::E2BIG);
        }
        let node = self.nodes.find(id)?;
        if flags != 0 {
            let found = self.attributes_of(&node).await?;
            let is_there = found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
            match flags {
                libc::XATTR_CREATE if is_there => return Err(Errno::EEXIST),
                libc::XATTR_REPLACE if !is_there => return Err(Errno::from_i32(libc::ENODATA)),
                _ => {}
            }
        }
        let path = node.path()?;
        self.share.set_extended_attribute(&path, name, value).await.map_err(|error| errno(&error))
    }

    pub(crate) async fn removexattr(&self, id: u64, name: &OsStr) -> Outcome<()> {
        self.check_writable()?;
        self.getxattr(id, name).await?;
        let name = user_name(name)?;
        let path = self.nodes.find(id)?.path()?;
        self.share.set_extended_attribute(&path, name, &[]).await.map_err(|error| errno(&error))
    }
}

/// Returns the EA name of an extended attribute. Other name spaces (capabilities, POSIX ACLs) do
/// not exist on the server.
fn user_name(name: &OsStr) -> Outcome<&str> {
    let name = name.to_str().and_then(|name| name.strip_prefix(USER));
    name.filter(|name| !name.is_empty() && name.len() <= 254).ok_or(Errno::EOPNOTSUPP)
}
