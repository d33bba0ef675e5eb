//! Folders and links that exist in a namespace only, and folders of the share that links are in.

use std::any::Any;
use std::sync::Arc;

use frevo_store::Fault;
use frevo_store::security::HostAcl;
use frevo_store::vfs::{
    BasicChange, Directory, EaChange, FileKey, HostAccess, Kind, Node, ObjectId, ObjectIdChange,
    Opened, Security, SecurityChange, Stat, StreamStat, VfsResult, VolumeSpace,
};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use frevo_wire::fscc::fold_name;
use frevo_wire::fscc::reparse::ReparseTag;

use super::directory::Linked;
use super::samba::Folder;

/// The number of the file system of all folders and links of namespaces.
const DEVICE: u64 = u64::from_be_bytes(*b"frevodfs");

/// The access of everybody to a folder or a link of a namespace.
const ACCESS: HostAccess = HostAccess { read: true, write: false, execute: true, owner: false };

/// Returns the number of a path of a namespace: the same after each restart. FNV-1a.
pub(super) fn hash(namespace: &str, path: &str) -> u64 {
    let folded = fold_name(namespace) + "\\" + &fold_name(path);
    folded.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Returns the state of a folder of a namespace, or of a link.
pub(super) fn stat(namespace: &str, path: &str, is_link: bool, time: FileTime) -> Stat {
    let key = FileKey::of_file(DEVICE, hash(namespace, path));
    let stat = Stat { mode: 0o555, ..Stat::new(key, Kind::Directory, time) };
    if !is_link {
        return stat;
    }
    let attributes = stat.attributes | FileAttributes::REPARSE_POINT;
    Stat { attributes, reparse_tag: ReparseTag::DFS.0, ..stat }
}

/// Returns the state of a link of Samba's, whose symbolic link has this one.
pub(super) fn link_stat(symlink: Stat) -> Stat {
    let kept = symlink.attributes & FileAttributes::HIDDEN;
    Stat {
        kind: Kind::Directory,
        end_of_file: 0,
        allocation: 0,
        attributes: kept | FileAttributes::DIRECTORY | FileAttributes::REPARSE_POINT,
        mode: 0o555,
        reparse_tag: ReparseTag::DFS.0,
        ..symlink
    }
}

/// A folder that exists in a namespace only, or a link itself.
#[derive(Debug)]
pub(super) struct Virtual {
    stat: Stat,
    /// The links and folders in it; none in a link.
    entries: Option<Linked>,
    /// The folder that the share has at the place of a link. Its access list is the link's: who cannot
    /// read it does not see the link on a share that hides what cannot be read.
    beneath: Option<Arc<dyn Node>>,
    /// The text of a link of Samba's.
    text: Option<String>,
}

impl Virtual {
    /// A folder without entries.
    pub(super) fn folder(namespace: &str, path: &str, time: FileTime) -> Self {
        let stat = stat(namespace, path, false, time);
        Self { stat, entries: None, beneath: None, text: None }
    }

    /// A folder with entries.
    pub(super) const fn with_entries(stat: Stat, entries: Linked) -> Self {
        Self { stat, entries: Some(entries), beneath: None, text: None }
    }

    /// A link itself, over a folder of the share.
    pub(super) fn link(stat: Stat, beneath: Option<Opened>) -> Self {
        let own = beneath.as_ref().map_or(stat, |Opened { stat, .. }| *stat);
        let stat = Stat { mode: own.mode, uid: own.uid, gid: own.gid, ..stat };
        let beneath = beneath.map(|opened| opened.node);
        Self { stat, entries: None, beneath, text: None }
    }

    /// A link of Samba's with this text.
    pub(super) const fn samba_link(stat: Stat, text: String) -> Self {
        Self { stat, entries: None, beneath: None, text: Some(text) }
    }
}

impl Node for Virtual {
    fn key(&self) -> FileKey {
        self.stat.key
    }

    fn stat(&self) -> VfsResult<Stat> {
        Ok(self.stat)
    }

    fn takes_changes(&self) -> VfsResult<()> {
        Err(Fault::ReadOnly)
    }

    fn read_at(&self, _offset: u64, _into: &mut [u8]) -> VfsResult<usize> {
        Err(Fault::IsADirectory)
    }

    fn has_entries(&self) -> VfsResult<bool> {
        Ok(true)
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        let empty = || Box::new(Empty) as Box<dyn Directory>;
        Ok(self.entries.as_ref().map_or_else(empty, |entries| Box::new(entries.listing(None))))
    }

    /// The text of a link of Samba's, for referrals. No client is told.
    fn link_target(&self) -> VfsResult<String> {
        self.text.clone().ok_or(Fault::Invalid)
    }

    /// MS-FSCC 2.1.2.1: a reparse point of a link has a tag of Microsoft's and, here, no data.
    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        if self.stat.reparse_tag == 0 {
            return Err(Fault::NotFound);
        }
        let mut buffer = self.stat.reparse_tag.to_le_bytes().to_vec();
        buffer.extend_from_slice(&[0; 4]);
        Ok(buffer)
    }

    fn security(&self) -> VfsResult<Security> {
        match &self.beneath {
            Some(beneath) => beneath.security(),
            None => Ok(Security::Host(HostAcl::default())),
        }
    }

    fn host_access(&self) -> HostAccess {
        match &self.beneath {
            Some(beneath) => HostAccess { write: false, owner: false, ..beneath.host_access() },
            None => ACCESS,
        }
    }
}

/// A listing of nothing.
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

/// The links in the listings of a folder of the share.
#[derive(Debug)]
pub(super) enum Entries {
    /// Links and folders of the namespace, at least one.
    Linked(Linked),
    /// Symbolic links of the folder itself.
    Samba(Folder),
}

/// A folder of the share in which links can be.
#[derive(Debug)]
pub(super) struct Merged {
    inner: Arc<dyn Node>,
    entries: Entries,
}

impl Merged {
    pub(super) const fn new(inner: Arc<dyn Node>, entries: Entries) -> Self {
        Self { inner, entries }
    }
}

/// Returns the share's own node; none for one of the namespace.
pub(super) fn inner_of(node: &dyn Node) -> Option<&dyn Node> {
    let any: &dyn Any = node;
    if any.is::<Virtual>() {
        return None;
    }
    Some(any.downcast_ref::<Merged>().map_or(node, |merged| &*merged.inner))
}

impl Node for Merged {
    fn key(&self) -> FileKey {
        self.inner.key()
    }

    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.descriptor()
    }

    fn stat(&self) -> VfsResult<Stat> {
        self.inner.stat()
    }

    fn stat_without_eas(&self) -> VfsResult<Stat> {
        self.inner.stat_without_eas()
    }

    fn is_read_only(&self) -> VfsResult<bool> {
        self.inner.is_read_only()
    }

    fn takes_changes(&self) -> VfsResult<()> {
        self.inner.takes_changes()
    }

    fn is_hidden_by_name(&self) -> bool {
        self.inner.is_hidden_by_name()
    }

    fn birth(&self) -> Option<FileTime> {
        self.inner.birth()
    }

    fn data_device(&self) -> Option<(u32, u32)> {
        self.inner.data_device()
    }

    fn is_synced_by_descriptor(&self) -> bool {
        self.inner.is_synced_by_descriptor()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        self.inner.read_at(offset, into)
    }

    fn sync(&self) -> VfsResult<()> {
        self.inner.sync()
    }

    fn sync_all(&self) -> VfsResult<()> {
        self.inner.sync_all()
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.inner.set_basic(change)
    }

    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        self.inner.streams()
    }

    /// A folder with links of the namespace cannot be removed.
    fn has_entries(&self) -> VfsResult<bool> {
        match &self.entries {
            Entries::Linked(_) => Ok(true),
            Entries::Samba(_) => self.inner.has_entries(),
        }
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        let own = self.inner.directory()?;
        Ok(match &self.entries {
            Entries::Linked(entries) => Box::new(entries.listing(Some(own))),
            Entries::Samba(folder) => Box::new(folder.listing(own)),
        })
    }

    fn clear_streams(&self) -> VfsResult<()> {
        self.inner.clear_streams()
    }

    fn link_target(&self) -> VfsResult<String> {
        self.inner.link_target()
    }

    fn device(&self) -> Option<(u32, u32)> {
        self.inner.device()
    }

    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        self.inner.reparse_buffer()
    }

    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        self.inner.keep_reparse(buffer)
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        self.inner.eas()
    }

    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        self.inner.set_ea(name, value)
    }

    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        self.inner.needed_eas()
    }

    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        self.inner.set_ea_needed(name, needed)
    }

    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        self.inner.set_eas(changes)
    }

    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        self.inner.object_id()
    }

    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        self.inner.change_object_id(change)
    }

    fn security(&self) -> VfsResult<Security> {
        self.inner.security()
    }

    fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        self.inner.stored_security()
    }

    fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()> {
        self.inner.set_security(change)
    }

    fn host_access(&self) -> HostAccess {
        self.inner.host_access()
    }

    fn volume_space(&self, uid: Option<u32>) -> VfsResult<Option<VolumeSpace>> {
        self.inner.volume_space(uid)
    }

    fn set_compressed(&self, compressed: bool) -> VfsResult<()> {
        self.inner.set_compressed(compressed)
    }
}
