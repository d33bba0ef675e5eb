//! Attributes: getattr, setattr, statfs, access, extended attributes.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use frevo_client::{Basic, Cause, Error, Metadata, Room, Special};
use frevo_wire::Status;
use frevo_wire::dtyp::FileAttributes;
use fuser::{Errno, FileAttr, FileType, INodeNo};

use super::names::MODE_BITS;
use super::{Told, Volume};
use crate::errno::{Outcome, errno};
use crate::limits::XATTR_MAX;
use crate::node::{Node, kind_of};
use crate::settings::Settings;

/// What reads and writes are best multiples of, bytes.
const BLOCK: u32 = 128 << 10;
/// The bits by which a mode lets anybody write.
const WRITE_BITS: u32 = 0o222;
/// Extended attributes of this name space are the server's.
const USER: &str = "user.";

/// The attributes of a node as the kernel wants them.
pub(super) fn attr(node: &Node, metadata: &Metadata, settings: &Settings) -> FileAttr {
    let posix = metadata.posix();
    let mut perm = match (posix, node.kind) {
        (Some(posix), _) => posix.mode,
        (None, FileType::Symlink) => 0o777,
        (None, FileType::Directory) => settings.dir_mode,
        (None, _) => settings.file_mode,
    };
    let is_read_only = posix.is_none() && metadata.attributes().contains(FileAttributes::READONLY);
    // On a directory the attribute means something else to Windows.
    if settings.read_only || (is_read_only && !node.is_dir()) {
        perm &= !(WRITE_BITS as u16);
    }
    FileAttr {
        ino: INodeNo(node.id),
        size: metadata.len(),
        blocks: metadata.allocation().div_ceil(512),
        atime: metadata.accessed(),
        mtime: metadata.modified(),
        ctime: metadata.changed(),
        crtime: metadata.created(),
        kind: node.kind,
        perm,
        nlink: metadata.links().max(1),
        uid: posix.and_then(|posix| posix.uid).unwrap_or(settings.uid),
        gid: posix.and_then(|posix| posix.gid).unwrap_or(settings.gid),
        rdev: device(node, metadata),
        blksize: BLOCK,
        flags: 0,
    }
}

/// The number of a device as FUSE has it, which has 12 bits for the major and 20 for the
/// minor one; 0 when the server does not tell, or tells larger ones.
fn device(node: &Node, metadata: &Metadata) -> u32 {
    match (metadata.special(), node.kind) {
        (Some(Special::CharDevice(major, minor)), FileType::CharDevice)
        | (Some(Special::BlockDevice(major, minor)), FileType::BlockDevice) => {
            u32::try_from(libc::makedev(major, minor)).unwrap_or(0)
        }
        _ => 0,
    }
}

impl Told {
    /// Of no file.
    pub(crate) const fn nothing() -> FileAttr {
        FileAttr {
            ino: INodeNo(0),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 0,
            flags: 0,
        }
    }
}

/// What setattr changes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<SystemTime>,
    pub(crate) modified: Option<SystemTime>,
}

/// Whether a file was closed by who had it open, since nobody uses it any more, or was lost
/// with its session.
pub(super) fn is_lost(error: &Error) -> bool {
    error.status() == Some(Status::FILE_CLOSED) || matches!(error.cause(), Cause::HandleLost)
}

fn is_closed<T>(outcome: &Result<T, Error>) -> bool {
    outcome.as_ref().is_err_and(is_lost)
}

impl Volume {
    /// What is at `path`, special files looked into.
    pub(super) async fn look_at(&self, path: &str) -> Result<Metadata, Error> {
        let found = self.share.lookup(path).await?;
        self.share.look_into(path, found).await
    }

    /// What the node is now, asked anew.
    pub(super) async fn refresh(&self, node: &Arc<Node>) -> Outcome<Metadata> {
        // Length and times are the server's: it has to have all of it. What goes wrong is
        // for who has written it to know.
        let _ = self.send(node).await;
        let asked = Instant::now();
        let told = match self.open_file(node) {
            Some(file) => Some(file.metadata().await),
            None => None,
        };
        match told.filter(|told| !is_closed(told)) {
            Some(told) => self.learn_if_same(node, told.map_err(|error| errno(&error))?, asked),
            None => self.refresh_by_name(node).await,
        }
    }

    /// What is found under its name, if that still is the node.
    pub(super) async fn refresh_by_name(&self, node: &Arc<Node>) -> Outcome<Metadata> {
        let asked = Instant::now();
        let found = self.look_at(&node.path()?).await.map_err(|error| errno(&error))?;
        self.learn_if_same(node, found, asked)
    }

    fn learn_if_same(
        &self,
        node: &Arc<Node>,
        metadata: Metadata,
        asked: Instant,
    ) -> Outcome<Metadata> {
        if !self.is_same(node, &metadata) {
            self.distrust(node);
            return Err(Errno::from_i32(libc::ESTALE));
        }
        node.learn(metadata, asked);
        Ok(metadata)
    }

    /// Whether what was found at the node's path still is the node.
    fn is_same(&self, node: &Node, metadata: &Metadata) -> bool {
        if node.id == crate::node::ROOT {
            return metadata.is_dir();
        }
        let is_same_id = metadata.file_id() == node.id || node.is_made_up();
        is_same_id && kind_of(metadata) == node.kind
    }

    pub(crate) async fn getattr(&self, id: u64) -> Outcome<Told> {
        let node = self.nodes.find(id)?;
        let fresh = || node.known().filter(|known| self.is_fresh(known.at));
        if fresh().is_none() {
            self.learn_from_listing(&node).await;
        }
        match fresh() {
            Some(known) => Ok(self.tell_known(&node, &known)),
            None => {
                let metadata = self.refresh(&node).await?;
                Ok(self.tell(&node, &metadata))
            }
        }
    }

    /// Where many files of a directory are asked about, one listing tells of all.
    async fn learn_from_listing(&self, node: &Arc<Node>) {
        let Some((parent, name)) = node.name().filter(|_| !node.is_open()) else { return };
        let Some(listing) = self.listed_lately(&parent).await else { return };
        let Some(entry) = listing.find(&name) else { return };
        if self.is_same(node, entry.metadata()) {
            node.learn_listed(*entry.metadata(), listing.asked);
        }
    }

    pub(crate) async fn setattr(&self, id: u64, changes: Changes) -> Outcome<Told> {
        self.check_writable()?;
        let node = self.nodes.find(id)?;
        if let Some(size) = changes.size {
            self.truncate(&node, size).await?;
        }
        if self.share.is_posix() {
            let path = || node.path();
            let Changes { mode, uid, gid, .. } = changes;
            let mode = mode.map(|mode| mode & MODE_BITS);
            if mode.is_some() || uid.is_some() || gid.is_some() {
                let set = self.share.set_posix(&path()?, mode, uid, gid).await;
                set.map_err(|error| errno(&error))?;
                node.unlearn();
            }
        }
        let attributes = match changes.mode.filter(|_| !self.share.is_posix()) {
            Some(mode) => self.attributes_for(&node, mode).await?,
            None => None,
        };
        if changes.accessed.is_some() || changes.modified.is_some() || attributes.is_some() {
            // What is sent later would set the time anew.
            let _ = self.send(&node).await;
            let (modified, accessed) = (changes.modified, changes.accessed);
            let basic = Basic { modified, accessed, attributes, ..Basic::default() };
            let by_writer = {
                // The kernel does not wait for a file to be closed. What was written has its
                // time settled then, unless it was set through the same Open.
                let _turn = node.opening.lock().await;
                match self.writer(&node) {
                    Some(file) => Some(file.set_all(&basic).await),
                    None => None,
                }
            };
            let set = match by_writer.filter(|set| !is_closed(set)) {
                Some(set) => set,
                None => {
                    let path = node.path()?;
                    self.share.set_all(&path, &basic).await
                }
            };
            set.map_err(|error| errno(&error))?;
        }
        let metadata = self.refresh(&node).await?;
        Ok(self.tell(&node, &metadata))
    }

    /// The DOS attributes that a mode asks for, if they are others than now: all
    /// that a server without POSIX extensions can keep of it is READONLY.
    async fn attributes_for(&self, node: &Arc<Node>, mode: u32) -> Outcome<Option<FileAttributes>> {
        if node.is_dir() {
            return Ok(None);
        }
        let now = self.refresh(node).await?.attributes();
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

    pub(crate) async fn statfs(&self) -> Outcome<Room> {
        let path = self.nodes.root().path()?;
        self.share.room(&path).await.map_err(|error| errno(&error))
    }

    /// The values of a node's extended attributes, as `user.` names.
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
            // An EA without a value is none (MS-FSCC 2.4.16).
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

/// The EA of an extended attribute; other name spaces are the kernel's own
/// (capabilities, POSIX ACLs), and no server's.
fn user_name(name: &OsStr) -> Outcome<&str> {
    let name = name.to_str().and_then(|name| name.strip_prefix(USER));
    name.filter(|name| !name.is_empty() && name.len() <= 254).ok_or(Errno::EOPNOTSUPP)
}
