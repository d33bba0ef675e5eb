//! The parameters and the result of an open.

use alloc::sync::Arc;
use alloc::vec::Vec;

use frevo_wire::dtyp::FileAttributes;

use super::fault::{Fault, VfsResult};
use super::links;
use super::node::Node;
use super::stat::{Kind, Stat};
use crate::name::Name;

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
    /// The kind of object that is accepted.
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
            // The request is for the link itself, so the kind of its target does not matter.
            (Kind::Symlink, _) => Ok(()),
            (_, KindWanted::Directory) => Err(Fault::NotADirectory),
            (Kind::File, _) => Ok(()),
            // FIFOs, sockets and devices have no data for clients, so only their attributes can be
            // opened.
            _ if (self.read || self.write) && !self.open_link => Err(Fault::AccessDenied),
            _ => Ok(()),
        }
    }

    /// Refuses a link, opened itself, that stands for a directory where none is accepted, or for
    /// a file where a directory must be.
    pub fn check_link(&self, stored: &[u8]) -> VfsResult<()> {
        match (links::is_of_directory(stored), self.kind) {
            (true, KindWanted::NotDirectory) => Err(Fault::IsADirectory),
            (false, KindWanted::Directory) => Err(Fault::NotADirectory),
            _ => Ok(()),
        }
    }
}

/// An opened directory, for names in it.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// The node that [`Vfs::open_parent`](super::Vfs::open_parent) opened.
    pub node: &'a dyn Node,
    /// The directory's name as stored.
    pub name: &'a Name,
}

/// The result of [`Vfs::open`](super::Vfs::open).
#[derive(Debug)]
pub struct Opened {
    /// The object that was opened or made.
    pub node: Arc<dyn Node>,
    /// Its state just after opening; `ea_size` may be 0, since no reply to CREATE carries it.
    pub stat: Stat,
    /// True if this call created the object.
    pub created: bool,
    /// True if this call created the file, alone or with a stream. Only then the file inherits from
    /// its directory.
    pub file_created: bool,
    /// True if the object was known to have no stored descriptor just after opening; false if that
    /// is not known.
    pub is_bare: bool,
    /// The name as stored (the case on the medium).
    pub name: Name,
}

impl Opened {
    /// Returns an object that existed, with its state and its name as stored. Whether it has a stored
    /// descriptor is not known.
    pub fn existing(node: Arc<dyn Node>, stat: Stat, name: Name) -> Self {
        Self { node, stat, created: false, file_created: false, is_bare: false, name }
    }

    /// Returns the stored descriptor as it was just after opening; see [`Node::stored_security`].
    pub fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        if self.is_bare { Ok(None) } else { self.node.stored_security() }
    }
}

/// The object that [`Vfs::replace`](super::Vfs::replace) makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement<'a> {
    /// A regular file.
    File,
    /// A symbolic link to this target, as the host spells it; see [`links`].
    Symlink(&'a str),
    /// A FIFO.
    Fifo,
    /// A socket without a listener.
    Socket,
}
