//! The contract between the server and a file system.
//!
//! Implementors are `frevo-posix` (a folder of the host), [`crate::memory`] (files in
//! memory, with fault injection) and any program that embeds the server.
//!
//! # The least that an implementor writes
//!
//! - [`Vfs::open`] and [`Vfs::volume`],
//! - [`Node::key`], [`Node::stat`] and [`Node::read_at`],
//! - [`Node::directory`] and a [`Directory`] for folders.
//!
//! Together they make a read-only store. Every other method has a default that refuses
//! ([`Fault::ReadOnly`], [`Fault::NotSupported`]) or says that there is nothing. A store
//! that can be written adds [`Vfs::remove`], [`Vfs::rename`], [`Node::write_at`],
//! [`Node::set_end_of_file`], [`Node::set_basic`] and [`Node::sync`].
//!
//! # Rules
//!
//! - A method returns within milliseconds: the caller holds a core that other clients wait
//!   for. A slow store is shared with a blocking pool (`off_core`).
//! - Methods are called from several threads at one time, also on one node.
//! - [`FileKey`] names a file for as long as it exists, on the whole server: two file
//!   systems never have one `device`. Share modes, byte ranges and leases stand on it.
//! - An open node stays usable when its name is removed or moved.
//! - No name leads out of the share; links are never followed out of it.
//! - Sizes, offsets and lengths are bytes. Offsets are below 2^63.
//! - Whatever a client sends has been checked: a [`Name`] has no `..`, no separator within
//!   a component, no NUL.
//!
//! Data I/O that may block has a second way: when [`Node::descriptor`] names a host
//! descriptor, the caller may move data through it (io_uring, sendfile) instead of
//! [`Node::read_at`] and [`Node::write_at`].
//!
//! # Tests of an implementor
//!
//! `conformance` (feature `conformance`) has the checks that all implementors pass; see its
//! documentation.

mod fault;
mod volume;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use frevo_wire::dtyp::{FileAttributes, FileTime};

use crate::byte_range::Mode;
use crate::name::{FolderId, Name};
use crate::observe::{Observation, Observer};
use crate::security::HostAcl;
use crate::snapshot::Moment;

pub use fault::{Fault, VfsResult};
pub use volume::{QuotaLimits, QuotaState, Space, UserQuota, Volume};

/// The identity of one stream of one file on this machine, while the file exists. Share modes, byte
/// ranges and caching rights belong to a stream (MS-FSA 2.1.1.3 to 2.1.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The file system's number.
    pub device: u64,
    /// The file's number in its file system.
    pub inode: u64,
    /// The stream: 0 is the file's own data (or the directory), any other number a hash of the
    /// folded name, see [`Name::stream_id`].
    pub stream: u64,
}

impl FileKey {
    /// Returns the key of a file's own data, or of a directory.
    pub const fn of_file(device: u64, inode: u64) -> Self {
        Self { device, inode, stream: 0 }
    }

    /// Returns the key of the file that this is a stream of.
    #[must_use]
    pub const fn file(self) -> Self {
        Self { stream: 0, ..self }
    }
}

/// A named stream as FileStreamInformation shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStat {
    /// The name alone, without colons and type.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Bytes allocated on the medium.
    pub allocation: u64,
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, shown as a reparse point and never followed out of the share.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// The attributes that a file system stores; the others follow from the file's state.
pub const STORED_ATTRIBUTES: FileAttributes = FileAttributes(
    FileAttributes::READONLY.0
        | FileAttributes::HIDDEN.0
        | FileAttributes::SYSTEM.0
        | FileAttributes::ARCHIVE.0
        | FileAttributes::TEMPORARY.0
        | FileAttributes::SPARSE_FILE.0
        | FileAttributes::OFFLINE.0
        | FileAttributes::NOT_CONTENT_INDEXED.0,
);

/// The state of a file: MS-FSA 2.1.1.3 File in the host's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The file's identity in the server.
    pub key: FileKey,
    /// FileId, the file's identity for clients. They take a share for one volume, so it is not
    /// [`FileKey::inode`] alone if other file systems are mounted below.
    pub id: u64,
    /// The kind of object.
    pub kind: Kind,
    /// Size in bytes; 0 for directories.
    pub end_of_file: u64,
    /// Bytes allocated on the medium; 0 for directories.
    pub allocation: u64,
    /// Number of hard links.
    pub links: u32,
    /// DOS attributes. DIRECTORY and REPARSE_POINT agree with `kind`, and NORMAL is set exactly if
    /// nothing else is.
    pub attributes: FileAttributes,
    /// CreationTime.
    pub created: FileTime,
    /// LastAccessTime.
    pub accessed: FileTime,
    /// LastWriteTime.
    pub written: FileTime,
    /// ChangeTime.
    pub changed: FileTime,
    /// POSIX permission bits (without the file type).
    pub mode: u32,
    /// POSIX owner.
    pub uid: u32,
    /// POSIX group.
    pub gid: u32,
    /// Reparse tag; 0 without REPARSE_POINT.
    pub reparse_tag: u32,
    /// Bytes of extended attributes as FileEaInformation counts them; 0 without any.
    pub ea_size: u32,
}

impl Stat {
    /// The state of an empty file or directory without attributes, whose times are all
    /// `time`: a beginning for `..Stat::new(...)`.
    pub const fn new(key: FileKey, kind: Kind, time: FileTime) -> Self {
        let attributes = match kind {
            Kind::Directory => FileAttributes::DIRECTORY,
            _ => FileAttributes::NORMAL,
        };
        Self {
            key,
            id: key.inode,
            kind,
            end_of_file: 0,
            allocation: 0,
            links: 1,
            attributes,
            created: time,
            accessed: time,
            written: time,
            changed: time,
            mode: 0o755,
            uid: 0,
            gid: 0,
            reparse_tag: 0,
            ea_size: 0,
        }
    }
}

/// The file system's part of CreateDisposition. SUPERSEDE and OVERWRITE consist of these and a
/// truncation, after share modes allowed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existence {
    /// The name must exist.
    MustExist,
    /// The name must not exist.
    MustNotExist,
    /// Opens an existing file, or creates one.
    Either,
}

/// The kind that a caller accepts, and that it creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindWanted {
    /// FILE_DIRECTORY_FILE
    Directory,
    /// FILE_NON_DIRECTORY_FILE
    NotDirectory,
    /// Accepts any kind; creates a file.
    Any,
}

/// Parameters of an open.
#[derive(Debug, Clone, Copy)]
pub struct OpenHow {
    /// The condition on the name's existence.
    pub existence: Existence,
    /// The accepted kind.
    pub kind: KindWanted,
    /// Data will be read.
    pub read: bool,
    /// Data will be written, appended, truncated or allocated.
    pub write: bool,
    /// FILE_OPEN_REPARSE_POINT: opens a symbolic link itself.
    pub open_link: bool,
    /// Attributes of a created file (READONLY HIDDEN SYSTEM ARCHIVE TEMPORARY OFFLINE
    /// NOT_CONTENT_INDEXED; others are ignored).
    pub attributes: FileAttributes,
    /// POSIX mode of a created file, before the share's masks; None for the share's default.
    pub mode: Option<u32>,
    /// Names are compared exactly (POSIX extensions).
    pub case_sensitive: bool,
}

impl OpenHow {
    /// Opens an existing object of any kind without access to its data.
    pub const LOOK: Self = Self {
        existence: Existence::MustExist,
        kind: KindWanted::Any,
        read: false,
        write: false,
        open_link: false,
        attributes: FileAttributes::EMPTY,
        mode: None,
        case_sensitive: false,
    };

    /// Opens an existing directory without access to data.
    pub const DIRECTORY: Self = Self { kind: KindWanted::Directory, ..Self::LOOK };

    /// Refuses a kind that this open does not accept.
    pub fn check(&self, kind: Kind) -> VfsResult<()> {
        match (kind, self.kind) {
            (Kind::Directory, KindWanted::NotDirectory) => Err(Fault::IsADirectory),
            (Kind::Directory, _) => Ok(()),
            (Kind::Symlink, _) if !self.open_link => Err(Fault::Symlink),
            (_, KindWanted::Directory) => Err(Fault::NotADirectory),
            (Kind::File | Kind::Symlink, _) => Ok(()),
            // FIFOs, sockets and devices have no data that a client could want.
            _ if (self.read || self.write) && !self.open_link => Err(Fault::AccessDenied),
            _ => Ok(()),
        }
    }
}

/// An opened directory, for names in it.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// The node that [`Vfs::open_parent`] opened.
    pub node: &'a dyn Node,
    /// The directory's name as stored.
    pub name: &'a Name,
}

/// The result of [`Vfs::open`].
#[derive(Debug)]
pub struct Opened {
    /// The open object.
    pub node: Arc<dyn Node>,
    /// Its state just after opening; `ea_size` may be 0, since no reply to CREATE carries it.
    pub stat: Stat,
    /// True if this call created the object.
    pub created: bool,
    /// True if this call created the file, alone or with a stream. Only then the file inherits from
    /// its directory.
    pub file_created: bool,
    /// The name as stored (the case on the medium).
    pub name: Name,
}

/// The object that [`Vfs::replace`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement<'a> {
    /// A regular file.
    File,
    /// A symbolic link to this target, as the host spells it.
    Symlink(&'a str),
    /// A FIFO.
    Fifo,
    /// A socket without a listener.
    Socket,
}

/// Changes of times and attributes. `None` and `FileTime::ZERO` leave a value unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BasicChange {
    /// New CreationTime.
    pub created: Option<FileTime>,
    /// New LastAccessTime.
    pub accessed: Option<FileTime>,
    /// New LastWriteTime.
    pub written: Option<FileTime>,
    /// New ChangeTime (stored only if the host can).
    pub changed: Option<FileTime>,
    /// New settable attributes; NORMAL clears all.
    pub attributes: Option<FileAttributes>,
    /// New POSIX mode.
    pub mode: Option<u32>,
    /// New POSIX owner.
    pub uid: Option<u32>,
    /// New POSIX group.
    pub gid: Option<u32>,
}

/// FILE_OBJECTID_BUFFER, MS-FSCC 2.1.3: 16 bytes of id, 48 of extended information.
pub type ObjectId = [u8; 64];

/// A change of an object id, MS-FSA 2.1.5.10.2, .35 and .36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectIdChange {
    /// Sets the id of an object without one.
    New(ObjectId),
    /// Sets the extended information of the present id.
    Extended([u8; 48]),
    /// Removes the id if there is one.
    Forget,
}

/// Two ranges of equal length in two files, MS-FSA 2.1.5.10.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentCopy {
    /// Offset in the source, bytes.
    pub source_offset: u64,
    /// Offset in the target, bytes.
    pub target_offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// True if a failure must leave the target unchanged.
    pub is_atomic: bool,
}

/// Ranges of a file that have data: first byte, and first byte behind the range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocated {
    /// In order; no range is empty or touches the next.
    pub ranges: Vec<(u64, u64)>,
    /// True if there are more ranges than the limit.
    pub has_more: bool,
}

/// A file system, or the part of one that a share shows. Names are relative to the share's root and
/// cannot leave it.
pub trait Vfs: Any + Send + Sync + fmt::Debug {
    /// Finds or makes `name` and opens it. Case is ignored unless `how` says otherwise: an exact
    /// match wins, else the first name that differs in case only.
    ///
    /// A name with a stream means that stream: its node reads and writes the stream's data, and all
    /// other state is the file's. A stream of a file that does not exist is created with its file.
    /// Without support for streams the name is [`Fault::NameInvalid`].
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened>;

    /// Opens the parent directory of `name`, to read its security and to work in it. Stored
    /// attributes and times may be missing in its state.
    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.open(&name.parent(), &OpenHow::DIRECTORY)
    }

    /// Returns the identity of the folder that names are relative to. Two file systems of one
    /// folder return the same.
    fn folder_id(&self) -> FolderId {
        FolderId(core::ptr::from_ref(self).cast::<()>().addr())
    }

    /// Opens `name` as [`Self::open`] does, in the directory that [`Self::open_parent`] has just
    /// opened for it, without a lookup of the directory.
    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let _ = parent;
        self.open(name, how)
    }

    /// Removes the file or empty directory `name` if it still is `key`, else fails with
    /// [`Fault::Stale`]. Removes only the stream if `name` has one.
    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        let _ = (name, key);
        Err(Fault::ReadOnly)
    }

    /// Moves `from` (still `key`, else [`Fault::Stale`]) to `to`, whose parent must exist. An
    /// existing `to` is replaced if `replace` is set, else the call fails with [`Fault::Exists`];
    /// renaming to another case of `from` works. Returns the new name as stored. If `from` has a
    /// stream, `to` is another stream of that file, or its own data: the old content of `to` is
    /// lost.
    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        let _ = (from, key, to, replace);
        Err(Fault::ReadOnly)
    }

    /// Makes `to` a further name of the open file `node`.
    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        let _ = (node, to, replace);
        Err(Fault::NotSupported)
    }

    /// Replaces the empty file or directory `name`, opened as `node` (else [`Fault::Stale`]), by
    /// another kind of empty object. A directory with entries fails with [`Fault::NotEmpty`].
    /// Afterwards `node` and its key are the new object's.
    ///
    /// Fails with [`Fault::NotSupported`] on a file system without such objects.
    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        let _ = (name, node, by);
        Err(Fault::NotSupported)
    }

    /// Returns the state of `name` without opening it; links are not followed.
    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        let how = OpenHow { open_link: true, ..OpenHow::LOOK };
        self.open(name, &how).map(|opened| opened.stat)
    }

    /// Returns free and total space.
    fn space(&self) -> VfsResult<Space> {
        Ok(Space::FULL)
    }

    /// Returns facts about the file system.
    fn volume(&self) -> &Volume;

    // Quotas.

    /// Returns the state of quotas; None on a file system without quotas. It can change at any
    /// time.
    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        Ok(None)
    }

    /// Returns the quota of a user; None for a user without files and limits.
    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _ = uid;
        Ok(None)
    }

    /// Returns the quota of the user with the lowest number at or behind `uid`.
    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _ = uid;
        Ok(None)
    }

    /// Sets the limits of a user. A number that the file system cannot store becomes the next lower
    /// one, but never "no limit"; a threshold beyond the limit becomes the limit.
    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        let _ = (uid, limits);
        Err(Fault::NotSupported)
    }

    /// Returns the limits of new users; None if the file system cannot store any.
    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        Ok(None)
    }

    /// Sets the limits of new users, as [`Self::set_quota`] does.
    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        let _ = limits;
        Err(Fault::NotSupported)
    }

    // Snapshots.

    /// Returns the times of the snapshots that contain a file of this name, newest first.
    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        let _ = name;
        Ok(Vec::new())
    }

    /// Returns the file system at the time of a snapshot, read-only; [`Fault::NotFound`] without a
    /// snapshot of that second. Its file keys differ from all keys of this file system.
    fn snapshot(&self, taken: Moment) -> VfsResult<Arc<dyn Vfs>> {
        let _ = taken;
        Err(Fault::NotFound)
    }

    /// True if byte-range locks are to be shown to other programs by [`Node::show_lock`].
    fn shows_locks(&self) -> bool {
        false
    }

    /// Reports to `observer` the changes by other programs in the open directory `node` (for a
    /// tree: in everything below it), until the result is dropped. For any other object: its
    /// changes, without names. Fails with [`Fault::NotSupported`] if the host cannot tell.
    fn observe(
        &self,
        node: &dyn Node,
        is_tree: bool,
        observer: Observer,
    ) -> VfsResult<Box<dyn Observation>> {
        let _ = (node, is_tree, observer);
        Err(Fault::NotSupported)
    }
}

/// A change of one extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EaChange<'a> {
    /// Name without prefix.
    pub name: &'a str,
    /// The new value; an empty one removes the attribute.
    pub value: &'a [u8],
    /// FILE_NEED_EA is set.
    pub need: bool,
}

/// An open object of a file system. Dropping it closes it. It is `Any` so that [`Vfs::link`]
/// recognises its own nodes.
pub trait Node: Any + Send + Sync + fmt::Debug {
    /// Returns the file's identity.
    fn key(&self) -> FileKey;

    /// Returns a shared owner of the host's descriptor (`std::os::fd::OwnedFd`), if data may be
    /// moved directly through one.
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Returns the present state.
    fn stat(&self) -> VfsResult<Stat>;

    /// Returns the present state; `ea_size` may be 0: few replies carry it, and counting costs
    /// time.
    fn stat_without_eas(&self) -> VfsResult<Stat> {
        self.stat()
    }

    /// Returns the device numbers (major, minor) of the file system of the regular file behind
    /// [`Self::descriptor`], if known.
    fn data_device(&self) -> Option<(u32, u32)> {
        None
    }

    /// True if the attribute READONLY is set. Cheaper than the whole state.
    fn is_read_only(&self) -> VfsResult<bool> {
        Ok(self.stat()?.attributes.contains(FileAttributes::READONLY))
    }

    /// Fails with [`Fault::ReadOnly`] if the file system takes no changes now. The host can make it
    /// read-only at any time, and does so after an error of the disk.
    fn takes_changes(&self) -> VfsResult<()> {
        Ok(())
    }

    /// True if the object is HIDDEN because of its name alone: see [`Stat::attributes`].
    fn is_hidden_by_name(&self) -> bool {
        false
    }

    /// Returns the object's birth time as stored on the medium, which nobody can change: with
    /// [`Self::key`] it identifies the object even after its removal. None if the file system does
    /// not know it.
    fn birth(&self) -> Option<FileTime> {
        None
    }

    /// Reads at `offset`; fewer bytes than asked for mean the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize>;

    /// Writes all of `data` at `offset`, extending the file if necessary.
    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        let _ = (offset, data);
        Err(Fault::ReadOnly)
    }

    /// Makes all written data stable, and the metadata to find it.
    fn sync(&self) -> VfsResult<()> {
        Ok(())
    }

    /// Sets the end of the file; an extension reads as zeros.
    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        let _ = end;
        Err(Fault::ReadOnly)
    }

    /// Reserves space up to `bytes`; below the end of file it cuts (MS-FSA 2.1.5.15.1).
    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        let _ = bytes;
        Err(Fault::ReadOnly)
    }

    /// Changes times and attributes.
    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        let _ = change;
        Err(Fault::ReadOnly)
    }

    /// Returns the named streams of the file, sorted by name, without the file's own data.
    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        Ok(Vec::new())
    }

    /// Removes all named streams, as overwriting a file does.
    fn clear_streams(&self) -> VfsResult<()> {
        Ok(())
    }

    /// Starts listing a directory, without "." and "..".
    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Err(Fault::NotADirectory)
    }

    /// Returns the extended attributes that clients may see, names without prefix.
    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        Ok(Vec::new())
    }

    /// Sets an extended attribute; an empty value removes it.
    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        let _ = (name, value);
        Err(Fault::NotSupported)
    }

    /// Returns the stored names of the attributes that a program must understand to use the file:
    /// FILE_NEED_EA, MS-FSCC 2.4.16.
    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Sets or clears FILE_NEED_EA of an attribute. Removing the attribute clears it.
    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        let _ = name;
        if needed { Err(Fault::NotSupported) } else { Ok(()) }
    }

    /// Sets or removes several extended attributes, each named once. Continues after a fault and
    /// returns the first one. Invalid names are refused before anything changes.
    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        let flags = changes.iter().any(|change| change.need) || !self.needed_eas()?.is_empty();
        let apply = |change: &EaChange<'_>| {
            self.set_ea(change.name, change.value)?;
            if flags && !change.value.is_empty() {
                self.set_ea_needed(change.name, change.need)?;
            }
            Ok(())
        };
        let mut done = Ok(());
        for change in changes {
            done = done.and(apply(change));
        }
        done
    }

    /// Returns the target of a symbolic link as stored.
    fn link_target(&self) -> VfsResult<String> {
        Err(Fault::Invalid)
    }

    /// Returns the major and minor number of a device.
    fn device(&self) -> Option<(u32, u32)> {
        None
    }

    /// Returns the reparse buffer stored with a file or directory, MS-FSA 2.1.1.3 File.ReparseData
    /// with its header; [`Fault::NotFound`] without one. The kind of a link or special file says
    /// what it is, so it stores none.
    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        Err(Fault::NotFound)
    }

    /// Stores a reparse buffer with a file or directory, or removes it. The state then shows a
    /// reparse point and its tag. Fails with [`Fault::NotSupported`] if buffers cannot be stored.
    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        let _ = buffer;
        Err(Fault::NotSupported)
    }

    /// Returns the object id of a file or directory with its extended information (MS-FSA 2.1.1.3
    /// File.ObjectId); None without one. Fails with [`Fault::NotSupported`] if ids cannot be
    /// stored.
    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        Err(Fault::NotSupported)
    }

    /// Changes the object id.
    ///
    /// # Errors
    /// [`Fault::Exists`] for a new id on an object that has one, [`Fault::NotFound`] for extended
    /// information on an object without one.
    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        let _ = change;
        Err(Fault::NotSupported)
    }

    /// Returns the object's protection.
    fn security(&self) -> VfsResult<Security> {
        Ok(Security::Host(HostAcl::default()))
    }

    /// Returns only the stored descriptor, if there is one in force. Most files have none, and then
    /// the host's permissions need not be read.
    fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        Ok(match self.security()? {
            Security::Stored(bytes) => Some(bytes),
            Security::Host(_) => None,
        })
    }

    /// Stores a descriptor, and sets the nearest permissions on the host. It is in force until
    /// another program changes the host's permissions.
    fn set_security(&self, _change: &SecurityChange<'_>) -> VfsResult<()> {
        Err(Fault::NotSupported)
    }

    /// Returns whether the host allows this process to read, write or execute the object.
    fn host_access(&self) -> HostAccess {
        HostAccess { read: true, write: true, execute: true, owner: true }
    }

    /// Shows other programs a lock of this node's Open, replacing the lock shown for that range
    /// before. False if another program holds a conflicting lock.
    fn show_lock(&self, lock: ShownLock) -> VfsResult<bool> {
        let _ = lock;
        Ok(true)
    }

    // Extents and holes.

    /// Makes a range of this file share the extents of a range of `source`. Both ranges are aligned
    /// to [`Volume::cluster`], except that they may end where both files end. The file grows if the
    /// range ends behind its end. Fails with [`Fault::CrossDevice`] if `source` is a node of
    /// another file system, and with [`Fault::Invalid`] for ranges that overlap or are not aligned.
    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        let _ = (source, copy);
        Err(Fault::NotSupported)
    }

    /// Makes later writes compressed or not; on a directory, the files that are created in it.
    /// [`Stat::attributes`] shows it.
    fn set_compressed(&self, _compressed: bool) -> VfsResult<()> {
        Err(Fault::NotSupported)
    }

    /// Makes `length` bytes from `first` on read as zeros. The end of the file stays. With `punch`
    /// their space is freed; otherwise it is kept if the file system can do so without writing.
    fn zero(&self, first: u64, length: u64, punch: bool) -> VfsResult<()> {
        let _ = (first, length, punch);
        Err(Fault::NotSupported)
    }

    /// Returns up to `limit` ranges with data from `first` to before `beyond`.
    fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated> {
        let _ = (first, beyond, limit);
        Err(Fault::NotSupported)
    }
}

/// A range of an Open's byte-range locks, as shown to other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownLock {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
    /// The strongest lock on the range; None if it is free.
    pub mode: Option<Mode>,
}

/// The protection of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// A self-relative security descriptor, as it was stored.
    Stored(Vec<u8>),
    /// The host's permissions: no descriptor is stored, or the host's permissions changed since it
    /// was.
    Host(HostAcl),
}

/// A new protection of an object.
#[derive(Debug, Clone, Copy, Default)]
pub struct SecurityChange<'a> {
    /// The self-relative descriptor to store; None if the host's permissions alone express it.
    pub descriptor: Option<&'a [u8]>,
    /// New POSIX owner.
    pub uid: Option<u32>,
    /// New POSIX group.
    pub gid: Option<u32>,
    /// New permission bits, of which the lowest nine count. The sticky bit and set-group-ID of a
    /// directory are not changed; set-user-ID and set-group-ID of a file are cleared.
    pub mode: Option<u32>,
}

/// The access of this process to one object under the host's permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAccess {
    /// May read or list.
    pub read: bool,
    /// May write, or add and remove entries.
    pub write: bool,
    /// May execute or traverse.
    pub execute: bool,
    /// Is owner (or privileged): may change mode, times and attributes.
    pub owner: bool,
}

/// A listing of a directory.
pub trait Directory: Send + fmt::Debug {
    /// Moves to the next entry and returns its name as clients see it; None at the end.
    fn next_name(&mut self) -> VfsResult<Option<&str>>;

    /// Returns the state of the entry that [`Self::next_name`] returned last; `None` if it has
    /// gone. `ea_size` may be 0 if counting is too expensive.
    fn entry_stat(&mut self) -> VfsResult<Option<Stat>>;

    /// Starts again from the first entry, with the entries made since.
    fn rewind(&mut self) -> VfsResult<()>;

    /// An estimate of the bytes that it keeps.
    fn bytes(&self) -> usize;

    /// The number of its descriptor, if it has one of its own.
    fn descriptor(&self) -> Option<usize> {
        None
    }
}
