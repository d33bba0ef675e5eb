//! The value of `security.NTACL`, Samba's `xattr_NTACL`, and the host's access control lists.
//!
//! An NDR structure around a self-relative security descriptor, version 4 as smbd 4 writes it. It
//! contains a hash of the host's permissions (owner, group, mode and POSIX lists, as Samba's
//! `smb_acl_wrapper`): when another program changes them, the hash differs and the descriptor is no
//! longer in force. Versions 1 and 2 have no such hash and are always in force.
//!
//! Deviation: version 3 has a hash of smbd's own mapping of the mode to a descriptor. smbd has not
//! written it since 4.0; it counts as in force.

use frevo_crypto::sha256;
use frevo_store::security::{HostAcl, HostEntry, Whose};
use frevo_wire::dtyp::FileTime;

/// The attribute in which Samba and Frevo store the descriptor; setting it needs CAP_SYS_ADMIN.
pub(crate) const PRIVILEGED: &std::ffi::CStr = c"security.NTACL";
/// The attribute of a server without that capability. smbd reads it with
/// `acl_xattr:security_acl_name = user.NTACL`.
pub(crate) const UNPRIVILEGED: &std::ffi::CStr = c"user.NTACL";

/// The attribute in which Linux stores POSIX access control lists.
pub(crate) const ACCESS: &std::ffi::CStr = c"system.posix_acl_access";
pub(crate) const DEFAULT: &std::ffi::CStr = c"system.posix_acl_default";

/// XATTR_SD_HASH_TYPE_NONE
const NO_HASH: u16 = 0;
/// XATTR_SD_HASH_TYPE_SHA256
const SHA256: u16 = 1;
/// Bytes of the hash field.
const HASH: usize = 64;
/// smbd's description of the second hash.
const DESCRIPTION: &[u8] = b"posix_acl\0";
/// Bytes before the descriptor in values of this program.
const HEAD: usize = 160;
/// Entries of the largest POSIX list that is read: one attribute.
const ENTRIES_MAX: usize = 8_192;

/// The permissions that the hash covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permissions<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Mode with the file type.
    pub(crate) mode: u32,
    /// True for a directory, which can have a default list.
    pub(crate) is_directory: bool,
    pub(crate) acl: &'a HostAcl,
}

/// Returns the descriptor in a value, if it is in force. A value that cannot be read is in force as
/// a descriptor without bytes, which gives nobody any right.
pub(crate) fn decode(value: &[u8], permissions: &Permissions<'_>) -> Option<Vec<u8>> {
    match parse(value, permissions) {
        Some(Stored::InForce(descriptor)) => Some(descriptor),
        Some(Stored::Outdated) => None,
        None => Some(Vec::new()),
    }
}

/// A value that was understood.
enum Stored {
    InForce(Vec<u8>),
    /// Another program has changed the host's permissions since.
    Outdated,
}

fn parse(value: &[u8], permissions: &Permissions<'_>) -> Option<Stored> {
    let version = u16_at(value, 0)?;
    if u16_at(value, 2)? != version {
        return None;
    }
    // `at` is the position of the descriptor. After the version (4 bytes) come pointers of 4 bytes:
    // one in version 1, and two in later versions (to the structure, and to the descriptor in it).
    let at = match version {
        1 => 8,
        // Version 2 has a hash of 16 bytes before the descriptor.
        2 => 12 + 16,
        3 => (14 + HASH).next_multiple_of(4),
        4 => {
            let text = 14 + HASH;
            let end = value.get(text..)?.iter().position(|byte| *byte == 0)? + text + 1;
            let time = end.next_multiple_of(4);
            let hash = value.get(time + 8..)?.get(..HASH)?;
            match u16_at(value, 12)? {
                NO_HASH => {}
                SHA256 if *hash == host_hash(permissions) => {}
                SHA256 => return Some(Stored::Outdated),
                _ => return None,
            }
            time + 8 + HASH
        }
        _ => return None,
    };
    descriptor(value, at).map(Stored::InForce)
}

/// Returns the value that stores the self-relative `descriptor` for these permissions of the host;
/// None for bytes too short to be a descriptor.
pub(crate) fn encode(
    descriptor: &[u8],
    permissions: &Permissions<'_>,
    now: FileTime,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(HEAD + descriptor.len());
    out.extend_from_slice(&4u16.to_le_bytes());
    out.extend_from_slice(&4u16.to_le_bytes());
    out.extend_from_slice(&0x0002_0000u32.to_le_bytes());
    out.extend_from_slice(&0x0002_0004u32.to_le_bytes());
    out.extend_from_slice(&SHA256.to_le_bytes());
    // The first hash is for the access list that smbd derives from the mode; smbd uses it only if
    // the second hash does not match. Zeros never match.
    out.resize(14 + HASH, 0);
    out.extend_from_slice(DESCRIPTION);
    out.extend_from_slice(&now.0.to_le_bytes());
    out.extend_from_slice(&host_hash(permissions));
    debug_assert_eq!(out.len(), HEAD);
    out.extend_from_slice(descriptor);
    shift_offsets(out.get_mut(HEAD..)?, u32::try_from(HEAD).ok()?, u32::wrapping_add)?;
    Some(out)
}

/// Reads a descriptor, whose offsets Samba's NDR counts from the start of the value.
fn descriptor(value: &[u8], at: usize) -> Option<Vec<u8>> {
    let mut descriptor = value.get(at..)?.to_vec();
    shift_offsets(&mut descriptor, u32::try_from(at).ok()?, u32::wrapping_sub)?;
    Some(descriptor)
}

/// Moves the four offsets, except those that are zero.
fn shift_offsets(descriptor: &mut [u8], by: u32, shift: fn(u32, u32) -> u32) -> Option<()> {
    let offsets = descriptor.get_mut(4..20)?;
    for field in offsets.chunks_exact_mut(4) {
        let old = u32::from_le_bytes(field.try_into().ok()?);
        if old != 0 {
            field.copy_from_slice(&shift(old, by).to_le_bytes());
        }
    }
    Some(())
}

fn u16_at(value: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(value.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the SHA-256 hash of the permissions as smbd packs them, in 64 bytes.
fn host_hash(permissions: &Permissions<'_>) -> [u8; HASH] {
    let mut hash = [0; HASH];
    hash[..32].copy_from_slice(&sha256(&pack(permissions)));
    hash
}

/// Encodes `smb_acl_wrapper` in NDR: two pointers to lists, owner, group, mode, and the lists.
fn pack(permissions: &Permissions<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let second: u32 = if permissions.is_directory { 0x0002_0004 } else { 0 };
    out.extend_from_slice(&0x0002_0000u32.to_le_bytes());
    out.extend_from_slice(&second.to_le_bytes());
    out.extend_from_slice(&u64::from(permissions.uid).to_le_bytes());
    out.extend_from_slice(&u64::from(permissions.gid).to_le_bytes());
    out.extend_from_slice(&permissions.mode.to_le_bytes());
    let acl = permissions.acl;
    if acl.access.is_empty() {
        pack_list(&of_mode(permissions.mode), &mut out);
    } else {
        pack_list(&acl.access, &mut out);
    }
    if permissions.is_directory {
        pack_list(&acl.default, &mut out);
    }
    out
}

/// Returns the list that the mode of a file without one means.
pub(crate) fn of_mode(mode: u32) -> [HostEntry; 3] {
    let entry = |whose, shift: u32| HostEntry { whose, bits: (mode >> shift & 7) as u8 };
    [entry(Whose::Owner, 6), entry(Whose::OwningGroup, 3), entry(Whose::Other, 0)]
}

/// Returns the rights of the owning group in a list, as far as its mask lets them.
pub(crate) fn of_owning_group(list: &[HostEntry]) -> Option<u8> {
    let bits = |whose| list.iter().find(|entry| entry.whose == whose).map(|entry| entry.bits);
    bits(Whose::OwningGroup).map(|group| group & bits(Whose::Mask).unwrap_or(7))
}

fn pack_list(list: &[HostEntry], out: &mut Vec<u8>) {
    let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
    let align = |out: &mut Vec<u8>, to: usize| out.resize(out.len().next_multiple_of(to), 0);
    // The count of entries comes first, then the array with its own count, aligned like its
    // elements.
    align(out, 4);
    out.extend_from_slice(&count.to_le_bytes());
    align(out, 8);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    for entry in list {
        align(out, 8);
        let (tag, id): (u16, _) = match entry.whose {
            Whose::User(uid) => (1, Some(uid)),
            Whose::Owner => (2, None),
            Whose::Group(gid) => (3, Some(gid)),
            Whose::OwningGroup => (4, None),
            Whose::Other => (5, None),
            Whose::Mask => (6, None),
        };
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&tag.to_le_bytes());
        if let Some(id) = id {
            align(out, 8);
            out.extend_from_slice(&u64::from(id).to_le_bytes());
        }
        out.extend_from_slice(&u32::from(entry.bits).to_le_bytes());
    }
}

/// Parses a POSIX list from an attribute of Linux (linux/posix_acl_xattr.h): version 2, then tag,
/// permissions and id of each entry.
pub(crate) fn parse_list(value: &[u8]) -> Option<Vec<HostEntry>> {
    let (version, entries) = value.split_at_checked(4)?;
    if version != [2, 0, 0, 0] || !entries.len().is_multiple_of(8) {
        return None;
    }
    let entries = entries.chunks_exact(8).take(ENTRIES_MAX);
    entries
        .map(|entry| {
            let id = u32::from_le_bytes(entry.get(4..8)?.try_into().ok()?);
            let whose = match u16_at(entry, 0)? {
                0x01 => Whose::Owner,
                0x02 => Whose::User(id),
                0x04 => Whose::OwningGroup,
                0x08 => Whose::Group(id),
                0x10 => Whose::Mask,
                0x20 => Whose::Other,
                _ => return None,
            };
            Some(HostEntry { whose, bits: (u16_at(entry, 2)? & 7) as u8 })
        })
        .collect()
}

/// Encodes a POSIX list as [`parse_list`] reads it. Its entries are in the order of the kernel.
pub(crate) fn encode_list(list: &[HostEntry]) -> Vec<u8> {
    /// ACL_UNDEFINED_ID
    const NO_ID: u32 = u32::MAX;
    let mut value = vec![2, 0, 0, 0];
    for entry in list {
        let (tag, id): (u16, u32) = match entry.whose {
            Whose::Owner => (0x01, NO_ID),
            Whose::User(uid) => (0x02, uid),
            Whose::OwningGroup => (0x04, NO_ID),
            Whose::Group(gid) => (0x08, gid),
            Whose::Mask => (0x10, NO_ID),
            Whose::Other => (0x20, NO_ID),
        };
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&u16::from(entry.bits).to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, Sid};

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    /// Written by smbd 4.17.12: a file with an entry of Everyone for reading.
    const FILE: &str = concat!(
        "04000400000002000400020001007da750681d6973e0be3084078f438b3445054e33433a72382a7ea815a3",
        "0c01000000000000000000000000000000000000000000000000000000000000000000706f7369785f6163",
        "6c00e66ec41c1b7add019ad2cc640533350d14afb019dc21361e18cc82d7a23aa727a06a396f6f0aa99800",
        "00000000000000000000000000000000000000000000000000000000000000010004",
        "80b4000000d000000000000000ec000000010500000000000515000000fd0b5db7b86589eafa1cef83e903",
        "0000010500000000000515000000fd0b5db7b86589eafa1cef830102000002007800040000000000140",
        "0a900120001010000000000010000000000001400ff011f0001010000000000010000000000002400ff011f",
        "00010500000000000515000000fd0b5db7b86589eafa1cef830102000000002400ff011f00010500000000",
        "000515000000fd0b5db7b86589eafa1cef83e9030000"
    );
    /// The POSIX list that the file and, as both lists, the directory had.
    const LIST: &str = concat!(
        "0200000001000700ffffffff0200070051c3000004000700ffffffff0800070051c3000010000700",
        "ffffffff20000700ffffffff"
    );
    /// smbd's hash of the permissions of a directory.
    const DIRECTORY_HASH: &str = "fa3d75009effc512597f7bf61545ce51a9608bd50fdc8d7564b7c61d6fbb981a";

    fn permissions(acl: &HostAcl, mode: u32, is_directory: bool) -> Permissions<'_> {
        Permissions { uid: 50_001, gid: 50_001, mode, is_directory, acl }
    }

    #[test]
    fn descriptors_of_smbd_are_valid_until_the_permissions_change() {
        let acl = HostAcl { access: parse_list(&bytes(LIST)).unwrap(), default: Vec::new() };
        let value = bytes(FILE);
        let read = decode(&value, &permissions(&acl, 0o100_777, false)).unwrap();
        let read = SecurityDescriptor::parse(&read).unwrap();
        let owner: Sid = "S-1-5-21-3076328445-3934873016-2213485818-1001".parse().unwrap();
        assert_eq!(read.owner, Some(owner));
        let aces = &read.dacl.as_ref().unwrap().aces;
        assert_eq!((aces.len(), aces[0].sid()), (4, Some(&Sid::EVERYONE)));
        assert_eq!(aces[0].mask(), Some(AccessMask::FILE_GENERIC_READ | AccessMask::EXECUTE));
        assert_eq!(decode(&value, &permissions(&acl, 0o100_775, false)), None);
        assert_eq!(decode(&value, &permissions(&HostAcl::default(), 0o100_777, false)), None);
        let other = Permissions { uid: 1, ..permissions(&acl, 0o100_777, false) };
        assert_eq!(decode(&value, &other), None);
    }

    #[test]
    fn both_lists_of_a_directory_are_hashed_as_smbd_does() {
        let list = parse_list(&bytes(LIST)).unwrap();
        let acl = HostAcl { access: list.clone(), default: list };
        let hash = host_hash(&permissions(&acl, 0o40_777, true));
        assert_eq!(hash[..32], bytes(DIRECTORY_HASH));
    }

    #[test]
    fn lists_are_written_as_they_are_read() {
        let list = bytes(LIST);
        assert_eq!(encode_list(&parse_list(&list).unwrap()), list);
    }

    #[test]
    fn a_stored_descriptor_is_valid_until_the_mode_changes() {
        let mut descriptor = Vec::new();
        let whole = SecurityDescriptor {
            owner: Some(Sid::unix_user(7)),
            group: Some(Sid::USERS),
            dacl: Some(frevo_wire::dtyp::Acl::new(Vec::new())),
            ..SecurityDescriptor::default()
        };
        whole.encode(&mut descriptor).unwrap();
        let acl = HostAcl::default();
        let then = permissions(&acl, 0o100_600, false);
        let value = encode(&descriptor, &then, FileTime(5)).unwrap();
        assert_eq!(decode(&value, &then).unwrap(), descriptor);
        assert_eq!(decode(&value, &permissions(&acl, 0o100_644, false)), None);
    }

    #[test]
    fn versions_without_a_hash() {
        let acl = HostAcl::default();
        let mut value = bytes("0100010000000200");
        let mut descriptor = vec![0; 20];
        descriptor[0] = 1;
        value.extend_from_slice(&descriptor);
        assert_eq!(decode(&value, &permissions(&acl, 0, false)), Some(descriptor));
    }

    #[test]
    fn a_damaged_value_grants_no_rights() {
        let acl = HostAcl { access: parse_list(&bytes(LIST)).unwrap(), default: Vec::new() };
        let permissions = permissions(&acl, 0o100_777, false);
        let whole = bytes(FILE);
        for len in [0, 1, 3, 4, 14, 80, 100, 160, 175] {
            assert_eq!(decode(&whole[..len], &permissions), Some(Vec::new()), "{len} bytes");
        }
        for (at, byte) in [(0, 5), (2, 3), (12, 9)] {
            let mut value = whole.clone();
            value[at] = byte;
            assert_eq!(decode(&value, &permissions), Some(Vec::new()), "{byte} at {at}");
        }
        // A descriptor without a hash applies to any permissions of the host.
        let mut value = whole;
        value[12] = 0;
        assert!(!decode(&value, &Permissions { uid: 1, ..permissions }).unwrap().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_survived(value in proptest::collection::vec(0u8.., 0..400), version in 0u8..6) {
            let acl = HostAcl::default();
            let mut value = value;
            let _ = decode(&value, &permissions(&acl, 0, true));
            if value.len() > 4 {
                value[..4].copy_from_slice(&[version, 0, version, 0]);
            }
            let _ = decode(&value, &permissions(&acl, 0, true));
            let _ = parse_list(&value);
            let _ = encode(&value, &permissions(&acl, 0, true), FileTime(0));
        }
    }
}
