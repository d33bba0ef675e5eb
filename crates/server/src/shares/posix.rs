//! The SMB 3.1.1 POSIX extensions: what a file is to a POSIX client.
//!
//! The extensions are not Microsoft's; Samba and the Linux kernel publish them
//! and agree on them. NEGOTIATE offers them, a CREATE with their context makes a
//! POSIX Open, and such an Open has level 100 of QUERY_INFO and QUERY_DIRECTORY,
//! names in which case counts and nothing but separators is reserved, and names
//! that go when they are unlinked.

use frevo_store::Stat;
use frevo_store::vfs::{BasicChange, Kind, Space};
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::create;
use frevo_wire::create_context::{PosixResponse, name};
use frevo_wire::dtyp::{SecurityDescriptor, SecurityInformation as Asked, Sid};
use frevo_wire::fscc::posix::{FsPosixInformation, PosixAttributes};
use frevo_wire::fscc::reparse::ReparseTag;
use frevo_wire::negotiate_context::{NegotiateContext, POSIX_GUID};

/// Where the file type stands in a mode: behind the permission bits, with
/// numbers that are not those of `stat`.
const TYPE_SHIFT: u32 = 12;

/// Authority and first sub-authority of S-1-5-88, in which Windows' NFS server
/// and macOS say owner (1), group (2) and mode (3).
const NFS_AUTHORITY: u64 = 5;
const NFS: u32 = 88;
/// Authority of S-1-22, in which Samba says owner (1) and group (2).
const UNIX_AUTHORITY: u64 = 22;

/// True when a client offers the extensions in a version that the server speaks.
///
/// # Errors
/// INVALID_PARAMETER where a context is no list of versions.
pub(crate) fn is_offered(contexts: &[NegotiateContext<'_>]) -> Result<bool, Status> {
    let mut is_offered = false;
    for context in contexts {
        let NegotiateContext::Posix(versions) = context else { continue };
        if versions.is_empty() || !versions.len().is_multiple_of(POSIX_GUID.len()) {
            return Err(Status::INVALID_PARAMETER);
        }
        is_offered |= versions.chunks_exact(POSIX_GUID.len()).any(|version| version == POSIX_GUID);
    }
    Ok(is_offered)
}

/// The mode of a CREATE that asks for a POSIX Open, if it gets one: `has_extensions`
/// says that they were negotiated and that the share has them. Else the context is one
/// that nobody knows, and ignored.
///
/// # Errors
/// INVALID_PARAMETER for a context of another length.
pub(crate) fn mode_asked(
    request: &create::Request<'_>,
    has_extensions: bool,
) -> Result<Option<u32>, Status> {
    let asked = request.contexts.find(name::POSIX).filter(|_| has_extensions);
    let Some(data) = asked else { return Ok(None) };
    let mode = data.try_into().map_err(|_| Status::INVALID_PARAMETER)?;
    Ok(Some(u32::from_le_bytes(mode) & 0o7777))
}

/// Type and permission bits as level 100 has them.
///
/// Deviation: a directory's type is left out. Linux up to 6.13 takes what is
/// here for `st_mode` and adds what the attributes say, which makes of the
/// extensions' directory and `stat`'s nothing that exists: it cannot mount. Later
/// ones know that older servers leave the type out.
const fn mode(stat: &Stat) -> u32 {
    let kind = match stat.kind {
        // A symbolic link that a client made may be stored as a file with a reparse point, so it
        // counts as a link.
        Kind::File if stat.reparse_tag == ReparseTag::SYMLINK.0 => 2,
        Kind::File | Kind::Directory => 0,
        Kind::Symlink => 2,
        Kind::CharDevice => 3,
        Kind::BlockDevice => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
    };
    kind << TYPE_SHIFT | stat.mode & 0o7777
}

/// Makes FilePosixInformation, level 100.
pub(crate) fn attributes(stat: &Stat) -> PosixAttributes {
    // The device number is packed as in the Linux kernel: 12 bits for the major number and 20 bits
    // for the minor number.
    let device = stat.key.device >> 32 << 20 | stat.key.device & 0xF_FFFF;
    PosixAttributes {
        creation_time: stat.created,
        last_access_time: stat.accessed,
        last_write_time: stat.written,
        change_time: stat.changed,
        end_of_file: stat.end_of_file,
        allocation_size: stat.allocation,
        attributes: stat.attributes,
        inode: stat.id,
        device: u32::try_from(device & u64::from(u32::MAX)).unwrap_or(0),
        links: stat.links,
        reparse_tag: stat.reparse_tag,
        mode: mode(stat),
        owner: Sid::unix_user(stat.uid),
        group: Sid::unix_group(stat.gid),
    }
}

/// Makes the entry of `..` in the root of a share: nothing above the share is told.
pub(crate) fn hidden_parent(stat: &Stat) -> PosixAttributes {
    let null = Sid::NULL;
    PosixAttributes { inode: 0, device: 0, owner: null, group: null, ..attributes(stat) }
}

/// Owner and group as they stand in the answer to the create context.
pub(crate) fn sids(stat: &Stat) -> [Vec<u8>; 2] {
    [Sid::unix_user(stat.uid), Sid::unix_group(stat.gid)].map(|sid| {
        let mut bytes = Vec::with_capacity(sid.encoded_len());
        sid.encode(&mut Writer::new(&mut bytes));
        bytes
    })
}

/// The answer to the create context.
pub(crate) fn create_answer<'a>(
    stat: &Stat,
    [owner, group]: &'a [Vec<u8>; 2],
) -> PosixResponse<'a> {
    // The type is set only for directories, because clients do not read other types from this
    // field.
    let kind = if matches!(stat.kind, Kind::Directory) { 1 << TYPE_SHIFT } else { 0 };
    PosixResponse {
        nlink: stat.links,
        reparse_tag: stat.reparse_tag,
        mode: mode(stat) | kind,
        owner_sid: owner,
        group_sid: group,
    }
}

/// The answer of `statvfs`.
pub(crate) fn file_system(space: &Space, serial: u32) -> FsPosixInformation {
    FsPosixInformation {
        optimal_transfer_size: 0,
        block_size: space.unit,
        total_blocks: space.total,
        free_blocks: space.free,
        available_blocks: space.available,
        total_inodes: space.files,
        free_inodes: space.free_files,
        file_system_id: u64::from(serial),
    }
}

/// The owner, group and mode in a security descriptor that a client sets, in SIDs that stand
/// for numbers: remote chown and chmod. Empty when it has none of them.
pub(crate) fn change(asked: Asked, descriptor: &SecurityDescriptor) -> BasicChange {
    let number = |sid: Option<Sid>, kind| sid.and_then(|sid| number(&sid, kind));
    let dacl = descriptor.dacl.as_ref().filter(|_| asked.contains(Asked::DACL));
    let owner = descriptor.owner.filter(|_| asked.contains(Asked::OWNER));
    let group = descriptor.group.filter(|_| asked.contains(Asked::GROUP));
    BasicChange {
        mode: dacl.and_then(|dacl| {
            let mode = dacl.aces.iter().find_map(|ace| nfs_number(ace.sid()?, 3));
            mode.map(|mode| mode & 0o7777)
        }),
        uid: number(owner, 1),
        gid: number(group, 2),
        ..BasicChange::default()
    }
}

/// The number in S-1-22-kind-number or S-1-5-88-kind-number.
fn number(sid: &Sid, kind: u32) -> Option<u32> {
    match (sid.authority(), sid.sub_authorities()) {
        (UNIX_AUTHORITY, [found, number]) if *found == kind => Some(*number),
        _ => nfs_number(sid, kind),
    }
}

fn nfs_number(sid: &Sid, kind: u32) -> Option<u32> {
    match (sid.authority(), sid.sub_authorities()) {
        (NFS_AUTHORITY, [NFS, found, number]) if *found == kind => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, SdControl};

    #[test]
    fn sids_that_stand_for_numbers() {
        let sid = |text: &str| Some(text.parse::<Sid>().unwrap());
        let mode = "S-1-5-88-3-33188".parse().unwrap();
        let descriptor = SecurityDescriptor {
            control: SdControl::SELF_RELATIVE | SdControl::DACL_PRESENT,
            rm_control: 0,
            owner: sid("S-1-5-88-1-1000"),
            group: sid("S-1-22-2-100"),
            sacl: None,
            dacl: Some(Acl::new(vec![
                Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, Sid::EVERYONE),
                Ace::deny(AceFlags::EMPTY, AccessMask::EMPTY, mode),
            ])),
        };
        let all = change(Asked::OWNER | Asked::GROUP | Asked::DACL, &descriptor);
        assert_eq!((all.mode, all.uid, all.gid), (Some(0o644), Some(1000), Some(100)));
        assert_eq!(change(Asked::SACL, &descriptor), BasicChange::default());
        let others = SecurityDescriptor {
            owner: sid("S-1-22-2-1000"),
            group: sid("S-1-5-32-544"),
            dacl: Some(Acl::new(Vec::new())),
            ..descriptor
        };
        let nothing = change(Asked::OWNER | Asked::GROUP | Asked::DACL, &others);
        assert_eq!(nothing, BasicChange::default());
    }

    #[test]
    fn a_kept_link_is_a_link() {
        let key = frevo_store::FileKey { device: 1, inode: 2, stream: 0 };
        let stat = Stat::new(key, Kind::File, frevo_wire::dtyp::FileTime::ZERO);
        assert_eq!(mode(&stat) >> TYPE_SHIFT, 0);
        let link = Stat { reparse_tag: ReparseTag::SYMLINK.0, ..stat };
        assert_eq!(mode(&link) >> TYPE_SHIFT, 2);
        let other = Stat { reparse_tag: 0x8000_0025, ..stat };
        assert_eq!(mode(&other) >> TYPE_SHIFT, 0);
    }

    #[test]
    fn versions_offered() {
        let offered = |data: &[u8]| is_offered(&[NegotiateContext::Posix(data)]);
        let two = [[0; 16], POSIX_GUID].concat();
        assert_eq!(
            [offered(&POSIX_GUID), offered(&two), offered(&[0; 16])],
            [Ok(true), Ok(true), Ok(false)]
        );
        for wrong in [&[][..], &POSIX_GUID[..15], &[&POSIX_GUID[..], &[0]].concat()] {
            assert_eq!(offered(wrong), Err(Status::INVALID_PARAMETER), "{}", wrong.len());
        }
        assert_eq!(is_offered(&[]), Ok(false));
    }
}
