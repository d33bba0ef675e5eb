//! Files as macOS keeps them on SMB shares: Finder information and the resource
//! fork of a file are named streams with rules of their own. What the rules are
//! is told by Apple's published SMB client and shown by Samba's vfs_fruit, whose
//! smbtorture suites judge this.

pub(crate) mod afp_info;
pub(crate) mod nfs_aces;

use std::any::Any;
use std::sync::Arc;

use frevo_store::vfs::{OpenHow, StreamStat};
use frevo_store::{Fault, Name, Node, Stat, Vfs};
use frevo_wire::Status;
use frevo_wire::fscc::eq_ignore_case;

use self::afp_info::{AfpInfoNode, Record};

/// The stream of Finder information, a [`Record`].
pub(crate) const AFP_INFO: &str = "AFP_AfpInfo";
/// The stream that is the resource fork.
pub(crate) const AFP_RESOURCE: &str = "AFP_Resource";

/// How a stream is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The stream AFP_AfpInfo: Finder information.
    Info,
    /// The stream AFP_Resource: the resource fork.
    Resource,
    /// A stream without a meaning for macOS.
    Other,
}

impl Kind {
    /// The kind of the stream with this name.
    pub(crate) fn of(stream: &str) -> Self {
        if eq_ignore_case(stream, AFP_INFO) {
            Self::Info
        } else if eq_ignore_case(stream, AFP_RESOURCE) {
            Self::Resource
        } else {
            Self::Other
        }
    }

    fn of_name(name: &Name) -> Option<Self> {
        name.stream().map(Self::of)
    }

    /// True for a stream that does not exist while it is empty: the first byte makes an
    /// extended attribute or a fork of macOS. For other clients that holds for the streams of
    /// macOS alone.
    const fn vanishes(self, is_apple: bool) -> bool {
        is_apple || !matches!(self, Self::Other)
    }
}

/// Opens Finder information so that it can be looked at.
pub(crate) fn how(name: &Name, how: OpenHow) -> OpenHow {
    OpenHow { read: how.read || Kind::of_name(name) == Some(Kind::Info), ..how }
}

/// True for a stream that does not exist yet, although it has been opened.
pub(crate) fn is_absent(name: &Name, node: &dyn Node, stat: &Stat, is_apple: bool) -> bool {
    match Kind::of_name(name) {
        Some(Kind::Info) => Record::read(node).is_none(),
        Some(kind) => kind.vanishes(is_apple) && stat.end_of_file == 0,
        None => false,
    }
}

/// The node through which the stream `name` is used.
pub(crate) fn wrap(name: &Name, node: Arc<dyn Node>) -> Arc<dyn Node> {
    match Kind::of_name(name) {
        Some(Kind::Info) => Arc::new(AfpInfoNode::new(node)),
        _ => node,
    }
}

/// A new end of the file, or where it is reserved up to: macOS and everybody else
/// finds Finder information 60 bytes long, whatever is set.
pub(crate) fn check_end(node: &dyn Node, end: u64) -> Result<(), Status> {
    if as_info(node).is_some() && end > Record::SIZE as u64 {
        return Err(Status::ALLOTTED_SPACE_EXCEEDED);
    }
    Ok(())
}

fn as_info(node: &dyn Node) -> Option<&AfpInfoNode> {
    let node: &dyn Any = node;
    node.downcast_ref()
}

/// True when Finder information, through the node of its stream, says nothing; None for another
/// stream.
pub(crate) fn is_empty_info(node: &dyn Node) -> Option<bool> {
    as_info(node).map(AfpInfoNode::is_empty)
}

/// True for the name of a stream that does not exist while it is empty.
pub(crate) fn vanishes(name: &Name, is_apple: bool) -> bool {
    Kind::of_name(name).is_some_and(|kind| kind.vanishes(is_apple))
}

/// True for the name of a resource fork.
pub(crate) fn is_resource(name: &Name) -> bool {
    Kind::of_name(name) == Some(Kind::Resource)
}

/// True for a stream of `file` that listings show.
pub(crate) fn shows(vfs: &dyn Vfs, file: &Name, is_apple: bool, stream: &StreamStat) -> bool {
    match Kind::of(&stream.name) {
        Kind::Info => {
            let name = file.with_stream(Some(&stream.name));
            stream.size == Record::SIZE as u64 && info_of(vfs, &name).is_some()
        }
        kind => !kind.vanishes(is_apple) || stream.size != 0,
    }
}

/// The Finder information in the stream `name`.
pub(crate) fn info_of(vfs: &dyn Vfs, name: &Name) -> Option<Record> {
    let opened: Result<_, Fault> = vfs.open(name, &READ);
    Record::read(&*opened.ok()?.node)
}

/// Looks at a stream's data.
const READ: OpenHow = OpenHow { read: true, open_link: true, ..OpenHow::LOOK };
