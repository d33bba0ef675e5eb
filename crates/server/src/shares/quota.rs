//! The quota index of a volume, `$Extend\$Quota:$Q:$INDEX_ALLOCATION`: the file that
//! clients open to ask for quotas (MS-FSCC 2.5.2).
//!
//! Quotas are the host's file system's, where it keeps any; FileFsControlInformation
//! says so. Everybody may open the index to ask, and administrators to set: it is not
//! itself written.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use frevo_store::security::{Privileges, Token};
use frevo_store::vfs::{
    BasicChange, Directory, Existence, HostAccess, Kind, KindWanted, OpenHow, Opened, QuotaLimits,
    QuotaState, Space, UserQuota, VfsResult, Volume,
};
use frevo_store::{Fault, FileKey, Name, Node, Stat, Vfs};
use frevo_wire::Status;
use frevo_wire::dtyp::{FileAttributes, FileTime};
use frevo_wire::fscc::eq_ignore_case;

/// The name of the quota index on NTFS.
const NAME: &str = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";
/// The name without stream and type, which no other file has.
const PATH: &str = "$Extend\\$Quota";

/// The file system that a name means: the share's, or the one in which there is
/// nothing but the quota index.
pub(crate) fn choose<'a>(vfs: Arc<dyn Vfs>, text: Cow<'a, str>) -> (Arc<dyn Vfs>, Cow<'a, str>) {
    // The first character is checked first, because few names begin with $ and this check is fast.
    if !text.starts_with('$') || !eq_ignore_case(&text, NAME) {
        return (vfs, text);
    }
    (Arc::new(QuotaVolume(vfs)), Cow::Borrowed(PATH))
}

/// Checks that a user may read the quotas of others, or change any: it must be an
/// administrator.
///
/// # Errors
/// ACCESS_DENIED for everybody else.
pub(crate) fn manages(token: &Token) -> Result<(), Status> {
    if token.holds(Privileges::SECURITY) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
}

/// A volume of which nothing but its quota index shows.
#[derive(Debug)]
struct QuotaVolume(Arc<dyn Vfs>);

/// The quota index, when a client has opened it.
#[derive(Debug)]
struct QuotaIndex(FileKey);

impl QuotaVolume {
    fn index(&self, name: &Name) -> VfsResult<QuotaIndex> {
        if name.path() != PATH {
            return Err(Fault::NotFound);
        }
        let root = self.0.stat(&Name::root())?.key;
        // The quota index is not a file of the file system, so it gets an inode number that the
        // file system never uses.
        Ok(QuotaIndex(FileKey { inode: u64::MAX, ..root }))
    }
}

impl Vfs for QuotaVolume {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let node = self.index(name)?;
        match (how.existence, how.kind) {
            (Existence::MustNotExist, _) => return Err(Fault::Exists),
            (_, KindWanted::NotDirectory) => return Err(Fault::IsADirectory),
            _ => {}
        }
        let stat = node.stat()?;
        let name = Name::from_stored(PATH.to_owned());
        Ok(Opened::existing(Arc::new(node), stat, name))
    }

    fn remove(&self, _: &Name, _: FileKey) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn rename(&self, _: &Name, _: FileKey, _: &Name, _: bool) -> VfsResult<Name> {
        Err(Fault::ReadOnly)
    }

    fn link(&self, _: &dyn Node, _: &Name, _: bool) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.index(name)?.stat()
    }

    fn space(&self) -> VfsResult<Space> {
        self.0.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.0.volume()
    }

    fn folder_id(&self) -> frevo_store::FolderId {
        self.0.folder_id()
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        self.0.quota_state()
    }

    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.0.quota(uid)
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.0.quota_from(uid)
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.0.set_quota(uid, limits)
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        self.0.quota_defaults()
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.0.set_quota_defaults(limits)
    }
}

impl Node for QuotaIndex {
    fn key(&self) -> FileKey {
        self.0
    }

    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    fn stat(&self) -> VfsResult<Stat> {
        Ok(Stat {
            key: self.0,
            id: self.0.inode,
            kind: Kind::Directory,
            end_of_file: 0,
            allocation: 0,
            links: 1,
            attributes: FileAttributes::HIDDEN
                | FileAttributes::SYSTEM
                | FileAttributes::DIRECTORY
                | FileAttributes::ARCHIVE,
            created: FileTime::ZERO,
            accessed: FileTime::ZERO,
            written: FileTime::ZERO,
            changed: FileTime::ZERO,
            mode: 0o555,
            uid: 0,
            gid: 0,
            reparse_tag: 0,
            ea_size: 0,
        })
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> VfsResult<usize> {
        Err(Fault::IsADirectory)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn sync(&self) -> VfsResult<()> {
        Ok(())
    }

    fn set_end_of_file(&self, _: u64) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn set_allocation(&self, _: u64) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn set_basic(&self, _: &BasicChange) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Ok(Box::new(Empty))
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        Ok(Vec::new())
    }

    fn set_ea(&self, _: &str, _: &[u8]) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn link_target(&self) -> VfsResult<String> {
        Err(Fault::Invalid)
    }

    fn host_access(&self) -> HostAccess {
        HostAccess { read: true, write: false, execute: true, owner: false }
    }
}

/// The entries that are listed.
#[derive(Debug)]
struct Empty;

impl Directory for Empty {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        Ok(None)
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        Ok(None)
    }

    fn rewind(&mut self) -> VfsResult<()> {
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
