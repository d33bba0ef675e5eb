//! Mode and owners of a file, as the SMB 3.1.1 POSIX extensions tell them.

use frevo_wire::codec::Parsed;
use frevo_wire::create_context::PosixResponse;
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::posix::PosixAttributes;
use frevo_wire::fscc::reparse::NfsSpecial;

use crate::error::Cause;
use crate::metadata::Metadata;

/// Position of the file type in a mode, bits.
const TYPE_SHIFT: u32 = 12;

/// The type of a file in its POSIX mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PosixFileType {
    /// A regular file or a directory: the DOS attributes tell which.
    Plain,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

/// Mode and owners of a file, if the share has the POSIX extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PosixMetadata {
    /// The type of the file.
    pub kind: PosixFileType,
    /// The permission bits, 0 to 0o7777.
    pub mode: u16,
    /// The owner's number; `None` if the server sent another kind of SID.
    pub uid: Option<u32>,
    /// The group's number; `None` if the server sent another kind of SID.
    pub gid: Option<u32>,
}

impl PosixMetadata {
    pub(crate) fn of(found: &PosixAttributes) -> Self {
        Self::new(found.mode, &found.owner, &found.group)
    }

    /// Reads the answer to the create context.
    pub(crate) fn of_answer(answer: &PosixResponse<'_>) -> Result<Self, Cause> {
        let owner = Sid::parse(answer.owner_sid)?;
        let group = Sid::parse(answer.group_sid)?;
        Ok(Self::new(answer.mode, &owner, &group))
    }

    fn new(mode: u32, owner: &Sid, group: &Sid) -> Self {
        // The numbers are those of the POSIX extensions. Number 1 (directory) is not needed here,
        // because the DOS attributes tell directories.
        let kind = match mode >> TYPE_SHIFT {
            2 => PosixFileType::Symlink,
            3 => PosixFileType::CharDevice,
            4 => PosixFileType::BlockDevice,
            5 => PosixFileType::Fifo,
            6 => PosixFileType::Socket,
            _ => PosixFileType::Plain,
        };
        let mode = u16::try_from(mode & 0o7777).unwrap_or(0);
        Self { kind, mode, uid: number(owner, 1), gid: number(group, 2) }
    }
}

/// Reads the number in S-1-22-kind-number or S-1-5-88-kind-number.
fn number(sid: &Sid, kind: u32) -> Option<u32> {
    match (sid.authority(), sid.sub_authorities()) {
        (22, [found, number]) | (5, [88, found, number]) if *found == kind => Some(*number),
        _ => None,
    }
}

/// Reads FilePosixInformation, level 100.
pub(crate) fn read_posix(bytes: &[u8]) -> Parsed<Metadata> {
    let found = PosixAttributes::parse(bytes)?;
    Ok(Metadata {
        len: found.end_of_file,
        allocation: found.allocation_size,
        attributes: found.attributes,
        created: found.creation_time,
        accessed: found.last_access_time,
        written: found.last_write_time,
        changed: found.change_time,
        reparse_tag: found.reparse_tag,
        file_id: found.inode,
        links: found.links,
        posix: Some(PosixMetadata::of(&found)),
        is_junction: false,
        special: None,
    })
}

/// A special file and the numbers of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A symbolic link.
    Symlink,
    /// A character device and its major and minor number.
    CharDevice(u32, u32),
    /// A block device and its major and minor number.
    BlockDevice(u32, u32),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

impl Special {
    pub(crate) fn of_nfs<N>(found: &NfsSpecial<N>) -> Self {
        match *found {
            NfsSpecial::Symlink(_) => Self::Symlink,
            NfsSpecial::Character { major, minor } => Self::CharDevice(major, minor),
            NfsSpecial::Block { major, minor } => Self::BlockDevice(major, minor),
            NfsSpecial::Fifo => Self::Fifo,
            NfsSpecial::Socket => Self::Socket,
        }
    }
}

impl Special {
    /// The reparse data; `None` of a symbolic link, which has a target besides.
    pub(crate) const fn nfs(self) -> Option<NfsSpecial<&'static str>> {
        Some(match self {
            Self::Symlink => return None,
            Self::CharDevice(major, minor) => NfsSpecial::Character { major, minor },
            Self::BlockDevice(major, minor) => NfsSpecial::Block { major, minor },
            Self::Fifo => NfsSpecial::Fifo,
            Self::Socket => NfsSpecial::Socket,
        })
    }
}
