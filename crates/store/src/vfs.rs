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
//! That is a read-only store. Every other method has a default that refuses
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

/// What names one stream of one file on one machine for as long as it exists:
/// share modes, byte ranges and caching rights are per stream (MS-FSA 2.1.1.3
/// to 2.1.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
    /// The stream: 0 is the file's own data (or the directory), any other a hash
    /// of the folded name, see [`Name::stream_id`].
    pub stream: u64,
}

impl FileKey {
    /// The key of a file's own data, or of a directory.
    pub const fn of_file(device: u64, inode: u64) -> Self {
        Self { device, inode, stream: 0 }
    }

    /// The file that this is a stream of.
    #[must_use]
    pub const fn file(self) -> Self {
        Self { stream: 0, ..self }
    }
}

/// A named stream as FileStreamInformation shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStat {
    /// Its name alone, without colons and type.
    pub name: String,
    /// Bytes to its end.
    pub size: u64,
    /// Bytes allocated on the medium.
    pub allocation: u64,
}

/// What kind of object a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link (shown as a reparse point, never followed out of the share).
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

/// Attributes that a file system keeps; the others tell what a file is.
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

/// What is known of a file: MS-FSA 2.1.1.3 File in the host's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Which file.
    pub key: FileKey,
    /// FileId: which file, as clients see it. They take all of a share for one volume,
    /// so that it is not only [`FileKey::inode`] where others are mounted below.
    pub id: u64,
    /// Kind.
    pub kind: Kind,
    /// Bytes to the end of file; 0 for directories.
    pub end_of_file: u64,
    /// Bytes allocated on the medium; 0 for directories.
    pub allocation: u64,
    /// Hard links.
    pub links: u32,
    /// DOS attributes; DIRECTORY and REPARSE_POINT agree with `kind`, and
    /// NORMAL is set exactly when nothing else is.
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
    /// Reparse tag, 0 without REPARSE_POINT.
    pub reparse_tag: u32,
    /// Bytes of extended attributes as FileEaInformation counts them, 0 if none.
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

/// What to do when the name exists or not, as far as the file system is
/// concerned. SUPERSEDE and OVERWRITE are made of these and truncation, after
/// share modes allowed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existence {
    /// It must exist.
    MustExist,
    /// It must not exist.
    MustNotExist,
    /// Opened when it exists, created otherwise.
    Either,
}

/// What kind a caller accepts, and makes if it creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindWanted {
    /// FILE_DIRECTORY_FILE
    Directory,
    /// FILE_NON_DIRECTORY_FILE
    NotDirectory,
    /// Neither: whatever exists; a file if it must be created.
    Any,
}

/// How to open.
#[derive(Debug, Clone, Copy)]
pub struct OpenHow {
    /// What may or must exist.
    pub existence: Existence,
    /// Accepted kind.
    pub kind: KindWanted,
    /// Data will be read.
    pub read: bool,
    /// Data will be written, appended, truncated or allocated.
    pub write: bool,
    /// FILE_OPEN_REPARSE_POINT: open a symbolic link itself.
    pub open_link: bool,
    /// Attributes that a created file gets (READONLY HIDDEN SYSTEM ARCHIVE
    /// TEMPORARY OFFLINE NOT_CONTENT_INDEXED; others are ignored).
    pub attributes: FileAttributes,
    /// POSIX mode that a created file gets, before the share's masks; None: the
    /// share's default.
    pub mode: Option<u32>,
    /// Names are compared exactly (POSIX extensions).
    pub case_sensitive: bool,
}

impl OpenHow {
    /// Looks at what is there and opens nothing of it.
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

    /// The same at a directory.
    pub const DIRECTORY: Self = Self { kind: KindWanted::Directory, ..Self::LOOK };

    /// Whether an object of this kind may be opened so.
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

/// A directory that was found for a name in it.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// What [`Vfs::open_parent`] opened.
    pub node: &'a dyn Node,
    /// Its name as stored.
    pub name: &'a Name,
}

/// What [`Vfs::open`] found or made.
#[derive(Debug)]
pub struct Opened {
    /// The open object.
    pub node: Arc<dyn Node>,
    /// Its state just after opening; `ea_size` may be left 0, since no reply to
    /// CREATE carries it.
    pub stat: Stat,
    /// Whether it was created by this call.
    pub created: bool,
    /// Whether the file was created by this call, be it because a stream of it
    /// was: what a new file inherits it inherits only then.
    pub file_created: bool,
    /// The name as it is stored (the case on the medium).
    pub name: Name,
}

/// What [`Vfs::replace`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement<'a> {
    /// A regular file.
    File,
    /// A symbolic link to this target, as the host spells it.
    Symlink(&'a str),
    /// A FIFO.
    Fifo,
    /// A socket that nobody listens on.
    Socket,
}

/// Changes of times and attributes; `None` and `FileTime::ZERO` leave things alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BasicChange {
    /// New CreationTime.
    pub created: Option<FileTime>,
    /// New LastAccessTime.
    pub accessed: Option<FileTime>,
    /// New LastWriteTime.
    pub written: Option<FileTime>,
    /// New ChangeTime (kept only where the host can).
    pub changed: Option<FileTime>,
    /// New attributes (the settable ones; NORMAL clears all).
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

/// What is done to an object id, MS-FSA 2.1.5.10.2, .35 and .36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectIdChange {
    /// The object, which has none, has this one.
    New(ObjectId),
    /// The one it has gets this extended information.
    Extended([u8; 48]),
    /// It has none any more; nor need it have had one.
    Forget,
}

/// Ranges of the same length in two files, MS-FSA 2.1.5.10.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentCopy {
    /// Where in the source, bytes.
    pub source_offset: u64,
    /// Where in the target, bytes.
    pub target_offset: u64,
    /// Bytes.
    pub length: u64,
    /// A failure leaves the target as it was.
    pub is_atomic: bool,
}

/// Ranges of a file that have data, as first byte and first byte behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocated {
    /// In order; none is empty and none touches the next.
    pub ranges: Vec<(u64, u64)>,
    /// Whether there are more than were asked for.
    pub has_more: bool,
}

/// A file system, or the part of one that a share shows. Names are relative to
/// the share's root and cannot leave it.
pub trait Vfs: Any + Send + Sync + fmt::Debug {
    /// Finds or makes `name` and opens it. Case is ignored unless `how` says
    /// otherwise: an exact match wins, else the first that folds alike.
    ///
    /// A name with a stream means that stream: its node moves the stream's data,
    /// and whatever else is asked of it or done to it is the file's. A file that
    /// does not exist is made along with a stream that may be. Where there are no
    /// streams the name is [`Fault::NameInvalid`].
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened>;

    /// Opens the directory that `name` is in, for what protects it and to work in it:
    /// of its state the stored attributes and times may be missing.
    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.open(&name.parent(), &OpenHow::DIRECTORY)
    }

    /// Where its names are names: file systems of one folder say the same.
    fn place(&self) -> FolderId {
        FolderId(core::ptr::from_ref(self).cast::<()>().addr())
    }

    /// As [`Self::open`], in the directory that [`Self::open_parent`] has found for
    /// `name` a moment ago: there it need not be looked for again.
    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let _ = parent;
        self.open(name, how)
    }

    /// Removes the file or empty directory `name` if it still is `key`;
    /// otherwise [`Fault::Stale`]. Or the one stream that `name` has.
    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        let _ = (name, key);
        Err(Fault::ReadOnly)
    }

    /// Moves `from` (still `key`, else [`Fault::Stale`]) to `to`, whose parent
    /// must exist. An existing `to` is replaced when `replace` is set, else
    /// [`Fault::Exists`]; renaming to another case of the same name works.
    /// Returns the new name as stored. When `from` has a stream, `to` is another
    /// stream of the same file, or its own data: what that held is lost.
    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        let _ = (from, key, to, replace);
        Err(Fault::ReadOnly)
    }

    /// Makes `to` another name of the open file `node`.
    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        let _ = (node, to, replace);
        Err(Fault::NotSupported)
    }

    /// Puts another kind of object, which holds nothing, in the place of the
    /// empty file or directory `name` that `node` is (else [`Fault::Stale`]; a
    /// directory with entries is [`Fault::NotEmpty`]). From then on `node` is
    /// what was made, also by its key.
    ///
    /// [`Fault::NotSupported`] where there are no such objects.
    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        let _ = (name, node, by);
        Err(Fault::NotSupported)
    }

    /// What `name` means now, without opening it; links are not followed.
    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        let how = OpenHow { open_link: true, ..OpenHow::LOOK };
        self.open(name, &how).map(|opened| opened.stat)
    }

    /// Free and total space. The default is a full volume.
    fn space(&self) -> VfsResult<Space> {
        Ok(Space::FULL)
    }

    /// Facts.
    fn volume(&self) -> &Volume;

    // Quotas.

    /// What is done about quotas; `None` where none are kept. They can be turned on
    /// and off at any time.
    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        Ok(None)
    }

    /// The quota of a user; `None` where the file system knows nothing of him: he has
    /// no files and no limits.
    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _ = uid;
        Ok(None)
    }

    /// The quota of the user with the lowest number from `uid` on.
    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _ = uid;
        Ok(None)
    }

    /// Limits a user. Numbers that the file system cannot keep become the next below
    /// that it can, but never no limit; a threshold beyond the limit becomes the limit.
    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        let _ = (uid, limits);
        Err(Fault::NotSupported)
    }

    /// The limits of whoever is new; `None` where the file system has no place for any.
    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        Ok(None)
    }

    /// Limits whoever is new, as [`Self::set_quota`] does.
    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        let _ = limits;
        Err(Fault::NotSupported)
    }

    // Snapshots.

    /// When the snapshots were taken in which there is something of that name
    /// now, the newest first.
    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        let _ = name;
        Ok(Vec::new())
    }

    /// The file system as it was then, read-only; [`Fault::NotFound`] without a
    /// snapshot of that second. No key of a file in it is one of a file here.
    fn snapshot(&self, taken: Moment) -> VfsResult<Arc<dyn Vfs>> {
        let _ = taken;
        Err(Fault::NotFound)
    }

    /// Whether byte-range locks are to be shown to other programs:
    /// [`Node::show_lock`].
    fn shows_locks(&self) -> bool {
        false
    }

    /// Tells `observer` what other programs do in the open directory `node` (in
    /// everything below it, for a tree), until what this returns is dropped. Of
    /// anything else but a directory: what they do to it, without names.
    /// [`Fault::NotSupported`] where that cannot be known.
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
    /// FILE_NEED_EA
    pub need: bool,
}

/// An open object of a file system. Dropping it closes it. It is `Any` so that
/// [`Vfs::link`] knows its own again.
pub trait Node: Any + Send + Sync + fmt::Debug {
    /// Which file this is.
    fn key(&self) -> FileKey;

    /// A further owner of the host's descriptor (`std::os::fd::OwnedFd`), when
    /// there is one through which data may be moved directly.
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Its present state.
    fn stat(&self) -> VfsResult<Stat>;

    /// The same, but that `ea_size` may be left 0: few replies carry it, and to count
    /// it costs.
    fn stat_without_eas(&self) -> VfsResult<Stat> {
        self.stat()
    }

    /// Device, major and minor, of the file system that the regular file behind
    /// [`Self::descriptor`] lies on, when that is known.
    fn data_device(&self) -> Option<(u32, u32)> {
        None
    }

    /// Whether READONLY is among its attributes: less than all of its state, where
    /// that alone is asked for.
    fn is_read_only(&self) -> VfsResult<bool> {
        Ok(self.stat()?.attributes.contains(FileAttributes::READONLY))
    }

    /// Whether what it is on takes changes now, [`Fault::ReadOnly`] if not: the host
    /// can make a file system read-only at any time, and does so when one fails.
    fn takes_changes(&self) -> VfsResult<()> {
        Ok(())
    }

    /// Whether it is HIDDEN because of its name alone, see [`Stat::attributes`].
    fn is_hidden_by_name(&self) -> bool {
        false
    }

    /// When the object came to be, as the medium has it and nobody can change it:
    /// with [`Self::key`] it names the object beyond its removal. None where the
    /// file system does not know.
    fn birth(&self) -> Option<FileTime> {
        None
    }

    /// Reads at `offset`; fewer bytes than asked for means end of file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize>;

    /// Writes all of `data` at `offset`, extending the file if need be.
    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        let _ = (offset, data);
        Err(Fault::ReadOnly)
    }

    /// Puts all that was written, and the metadata to find it, on stable storage.
    fn sync(&self) -> VfsResult<()> {
        Ok(())
    }

    /// Cuts or extends (with zeros) the file.
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

    /// The named streams of the file, in the order of their names; the file's own
    /// data is none of them.
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

    /// The extended attributes that clients may see, names without prefix.
    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        Ok(Vec::new())
    }

    /// Sets or (with an empty value) removes an extended attribute.
    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        let _ = (name, value);
        Err(Fault::NotSupported)
    }

    /// Names, as stored, of the attributes without which the file is not to be
    /// understood: FILE_NEED_EA, MS-FSCC 2.4.16.
    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Says so of an attribute, or no longer. It ends with the attribute.
    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        let _ = name;
        if needed { Err(Fault::NotSupported) } else { Ok(()) }
    }

    /// Sets or removes several extended attributes, each named once. Goes on after
    /// a fault and tells the first one; names that cannot be are refused before
    /// anything is changed.
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

    /// Target of a symbolic link as stored.
    fn link_target(&self) -> VfsResult<String> {
        Err(Fault::Invalid)
    }

    /// Major and minor number of a device.
    fn device(&self) -> Option<(u32, u32)> {
        None
    }

    /// The reparse buffer that is kept with a file or directory, MS-FSA 2.1.1.3
    /// File.ReparseData with its header; [`Fault::NotFound`] without one. Links
    /// and special files say by their kind what they are, and keep none.
    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        Err(Fault::NotFound)
    }

    /// Keeps a reparse buffer with a file or directory, or takes it away. The
    /// state says from then on that it is a reparse point, and which.
    /// [`Fault::NotSupported`] where nothing can be kept.
    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        let _ = buffer;
        Err(Fault::NotSupported)
    }

    /// The object id of a file or directory with its extended information, as a
    /// client set it or was given it (MS-FSA 2.1.1.3 File.ObjectId); none before.
    /// [`Fault::NotSupported`] where nothing can be kept.
    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        Err(Fault::NotSupported)
    }

    /// Changes the object id, unless the change does not go with what there is:
    /// [`Fault::Exists`] for a new one where one is, [`Fault::NotFound`] for the
    /// extended information of none.
    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        let _ = change;
        Err(Fault::NotSupported)
    }

    /// What protects the object.
    fn security(&self) -> VfsResult<Security> {
        Ok(Security::Host(HostAcl::default()))
    }

    /// The stored descriptor alone, if there is one in force: most files have
    /// none, and then the host's permissions need not be asked for.
    fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        Ok(match self.security()? {
            Security::Stored(bytes) => Some(bytes),
            Security::Host(_) => None,
        })
    }

    /// Stores a descriptor and what on the host comes nearest to it. It is in
    /// force until the host's permissions are changed by anybody else.
    fn set_security(&self, _change: &SecurityChange<'_>) -> VfsResult<()> {
        Err(Fault::NotSupported)
    }

    /// The access that the host gives this process to the object. The default is all: the
    /// rules of the share decide.
    fn host_access(&self) -> HostAccess {
        HostAccess { read: true, write: true, execute: true, owner: true }
    }

    /// Shows other programs a lock of whoever opened this node, in place of what
    /// was shown of the range before. False when one of them has it locked in a
    /// way that conflicts.
    fn show_lock(&self, lock: ShownLock) -> VfsResult<bool> {
        let _ = lock;
        Ok(true)
    }

    // Extents and holes.

    /// Makes a range of this file show what a range of `source` holds, by
    /// sharing its extents. Both are aligned to [`Volume::cluster`], except that
    /// they may end where both files do. The file grows when the range ends
    /// behind its end. [`Fault::CrossDevice`] when `source` is a node of another
    /// file system, [`Fault::Invalid`] for ranges that overlap or are not aligned.
    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        let _ = (source, copy);
        Err(Fault::NotSupported)
    }

    /// Whether what is written from now on is kept compressed; of a directory, what
    /// is made in it. [`Stat::attributes`] shows it.
    fn set_compressed(&self, _compressed: bool) -> VfsResult<()> {
        Err(Fault::NotSupported)
    }

    /// Makes `length` bytes from `first` on read as zeros. The end of the file
    /// stays. `punch`: their space is given back; otherwise it is kept where the
    /// file system can do so without writing.
    fn zero(&self, first: u64, length: u64, punch: bool) -> VfsResult<()> {
        let _ = (first, length, punch);
        Err(Fault::NotSupported)
    }

    /// Up to `limit` ranges with data from `first` to before `beyond`.
    fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated> {
        let _ = (first, beyond, limit);
        Err(Fault::NotSupported)
    }
}

/// What other programs are shown of an Open's byte-range locks in one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownLock {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
    /// The strongest lock there; none: it is free.
    pub mode: Option<Mode>,
}

/// What protects an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// A self-relative security descriptor, as it was stored.
    Stored(Vec<u8>),
    /// None is stored, or the host's permissions were changed since it was:
    /// they decide.
    Host(HostAcl),
}

/// New protection of an object.
#[derive(Debug, Clone, Copy, Default)]
pub struct SecurityChange<'a> {
    /// The descriptor to store, self-relative; none where only the host's
    /// permissions are to say what it says.
    pub descriptor: Option<&'a [u8]>,
    /// New POSIX owner.
    pub uid: Option<u32>,
    /// New POSIX group.
    pub gid: Option<u32>,
    /// New permission bits, of which the lowest nine count. The sticky bit, and
    /// set-group-ID of a directory, stay as they are; set-user-ID and set-group-ID of a
    /// file are cleared.
    pub mode: Option<u32>,
}

/// What the host's permissions allow this process on one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAccess {
    /// Read or list.
    pub read: bool,
    /// Write, or add and remove entries.
    pub write: bool,
    /// Execute or traverse.
    pub execute: bool,
    /// Owner (or privileged): may change mode, times and attributes.
    pub owner: bool,
}

/// A directory being listed.
pub trait Directory: Send + fmt::Debug {
    /// Moves to the next entry and gives its name as clients see it.
    fn next_name(&mut self) -> VfsResult<Option<&str>>;

    /// State of the entry that [`Self::next_name`] gave last; `None` when it
    /// has gone since. `ea_size` may be left 0 where counting is too dear.
    fn entry_stat(&mut self) -> VfsResult<Option<Stat>>;

    /// Starts over, seeing entries made since.
    fn rewind(&mut self) -> VfsResult<()>;

    /// An estimate of the bytes that it keeps.
    fn bytes(&self) -> usize;

    /// The number of its descriptor, if it has one of its own.
    fn descriptor(&self) -> Option<usize> {
        None
    }
}
