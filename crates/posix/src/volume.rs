//! Facts about the file system of a share.

use std::os::fd::BorrowedFd;

use frevo_store::vfs::{Space, Volume, VolumeIdentity};
use rustix::fs::{StatVfs, StatVfsMountFlags};
use rustix::io::Errno;

use crate::names::Spelling;
use crate::options::{NtAcls, PosixOptions, Streams};
use crate::{abilities, compression, extents, stat, sys};

/// FUSE, by statfs' f_type: a program that may do anything, or nothing.
pub(crate) const FUSE: u64 = 0x6573_5546;

/// File systems that ignore case or forbid characters, by statfs' f_type.
const WITHOUT_POSIX_NAMES: [u64; 8] = [
    0x4d44,      // vfat
    0x2011_BAB0, // exfat
    0x5346_544e, // ntfs
    0x7366_746e, // ntfs3
    0x4244,      // hfs
    0x482b,      // hfsplus
    0xFF53_4D42, // cifs
    0xFE53_4D42, // smb2
];

/// File systems of Windows, by statfs' f_type: names are UTF-16.
const OF_WINDOWS: [u64; 4] = [
    0x4d44,      // vfat
    0x2011_BAB0, // exfat
    0x5346_544e, // ntfs
    0x7366_746e, // ntfs3
];

/// Returns the spelling of names on a file system.
pub(crate) fn spelling(root: BorrowedFd<'_>) -> Spelling {
    let kind = rustix::fs::fstatfs(root).map_or(0, |fs| fs.f_type as u64);
    let is_of_windows = OF_WINDOWS.contains(&(kind & 0xFFFF_FFFF))
        || kind == FUSE && (is_ntfs_3g(root) || is_fat_on_fuse(root));
    if is_of_windows { Spelling::Windows } else { Spelling::Bytes }
}

/// True for a device whose file system is a program without extended attributes: exfat-fuse or
/// another of the family of FAT. Other programs' mounts have no device, or such attributes.
pub(crate) fn is_fat_on_fuse(root: BorrowedFd<'_>) -> bool {
    sys::stat_fd(root).is_ok_and(|stx| stx.stx_dev_major != 0) && !has_xattrs(root)
}

/// False on a file system without extended attributes.
fn has_xattrs(root: BorrowedFd<'_>) -> bool {
    let path = sys::ProcPath::of(root);
    !matches!(
        rustix::fs::getxattr(path.as_c_str(), crate::xattr::DOSATTRIB, &mut [0; 64]),
        Err(Errno::OPNOTSUPP | Errno::NOSYS)
    )
}

/// True for ntfs-3g, which takes all names of Linux, but for its option windows_names.
fn is_ntfs_3g(root: BorrowedFd<'_>) -> bool {
    let path = sys::ProcPath::of(root);
    rustix::fs::getxattr(path.as_c_str(), c"system.ntfs_attrib", &mut [0; 8]).is_ok()
}

/// True if a directory may find a file by a short name that it does not list. Programs behind FUSE may,
/// as ntfs-3g.
pub(crate) fn makes_aliases(dir: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstatfs(dir).map_or(FUSE, |fs| fs.f_type as u64);
    OF_WINDOWS.contains(&(kind & 0xFFFF_FFFF)) || kind == FUSE
}

/// True if an object is on FUSE.
pub(crate) fn is_fuse(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type as u64 == FUSE)
}

pub(crate) fn probe(root: BorrowedFd<'_>, options: &PosixOptions) -> Result<Volume, Errno> {
    let vfs = rustix::fs::fstatvfs(root)?;
    let kind = rustix::fs::fstatfs(root)?.f_type as u64;
    let stx = sys::stat_fd(root)?;
    let read_only = options.read_only || vfs.f_flag.contains(StatVfsMountFlags::RDONLY);
    let abilities = abilities::of(root, kind, read_only);
    let xattrs = has_xattrs(root);
    let id = sys::fs_id(root);
    let identity = identity(id, stx.stx_dev_major, stx.stx_dev_minor, || sys::fs_uuid(root));
    Ok(Volume {
        serial: serial(identity, id),
        identity,
        created: stat::stat_of(&stx, &stat::Extra::default()).created,
        file_system: options.file_system_name.clone(),
        max_component: u32::try_from(vfs.f_namemax).unwrap_or(u32::MAX),
        sparse: abilities.holes,
        hard_links: abilities.hard_links,
        xattrs,
        short_names: options.short_names,
        descriptors: xattrs && options.nt_acls == NtAcls::Xattr,
        posix_names: !(WITHOUT_POSIX_NAMES.contains(&(kind & 0xFFFF_FFFF))
            || kind == FUSE && is_fat_on_fuse(root)),
        // Streams need extended attributes, because even a stream that is stored in the side folder
        // is found through an attribute.
        streams: xattrs && options.streams != Streams::Off,
        read_only,
        shares_extents: extents::can_share(root),
        compresses: compression::is_kept(root),
        cluster: space(&vfs).unit,
        physical_sector: physical_sector(stx.stx_dev_major, stx.stx_dev_minor),
    })
}

/// Returns the identity of a file system with the f_fsid `id` on a device.
///
/// ext4, btrfs, OCFS2, GFS2 and CephFS make f_fsid of the UUID, btrfs of the subvolume too. XFS and FAT
/// make it of the device number, which is another one on another machine; FUSE has none.
fn identity(
    id: u64,
    major: u32,
    minor: u32,
    uuid: impl FnOnce() -> Option<[u8; 16]>,
) -> VolumeIdentity {
    // XFS and FAT use the device number as f_fsid, encoded as by huge_encode_dev of linux/kdev_t.h.
    // Such an f_fsid is no lasting identity, so it is not used.
    let device = u64::from(minor & 0xFF) | u64::from(major) << 8 | u64::from(minor & !0xFF) << 12;
    if id != 0 && id != device {
        let mut identity = VolumeIdentity::UNKNOWN;
        identity.0[..8].copy_from_slice(&id.to_le_bytes());
        return identity;
    }
    uuid().map_or(VolumeIdentity::UNKNOWN, VolumeIdentity)
}

/// Returns the serial number of a volume: the same on each machine that knows the file system by its
/// identity, otherwise of its f_fsid `id`, which is equal after each restart.
fn serial(identity: VolumeIdentity, id: u64) -> u32 {
    if identity == VolumeIdentity::UNKNOWN {
        return (id ^ (id >> 32)) as u32;
    }
    identity
        .0
        .iter()
        .enumerate()
        .fold(0, |folded, (at, byte)| folded ^ u32::from(*byte) << (at % 4 * 8))
}

/// Returns the physical sector of a device, as the kernel has it from the disk. File systems without
/// a device of their own, such as btrfs and overlayfs, have none.
fn physical_sector(major: u32, minor: u32) -> u32 {
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition has no folder `queue` of its own; the one of its disk is used.
    let queue_size = ["queue", "../queue"].iter().find_map(|queue| {
        std::fs::read_to_string(format!("{device}/{queue}/physical_block_size")).ok()
    });
    let bytes = queue_size.and_then(|text| text.trim().parse().ok()).unwrap_or(SECTOR_MIN);
    sector_of(bytes)
}

/// The least and the largest sector that MS-FSA 2.1.1.1 allows: the latter is a page.
const SECTOR_MIN: u32 = 512;
const SECTOR_MAX: u32 = 4096;

/// Returns a size of a sector that MS-FSA 2.1.1.1 allows.
fn sector_of(bytes: u32) -> u32 {
    if bytes.is_power_of_two() { bytes.clamp(SECTOR_MIN, SECTOR_MAX) } else { SECTOR_MIN }
}

/// Returns the space of a file system as clients are told it.
pub fn space(vfs: &StatVfs) -> Space {
    let unit = if vfs.f_frsize == 0 { vfs.f_bsize } else { vfs.f_frsize };
    Space {
        unit: u32::try_from(unit).unwrap_or(u32::MAX),
        total: vfs.f_blocks,
        available: vfs.f_bavail,
        free: vfs.f_bfree,
        files: vfs.f_files,
        free_files: vfs.f_ffree,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a file system has the same identity on machines that give its device other numbers.
    #[test]
    fn an_identity_is_not_made_of_device_numbers() {
        let uuid = VolumeIdentity([7; 16]);
        let of_xfs = |major: u32, minor: u32| {
            let id = u64::from(minor & 0xFF | major << 8 | (minor & !0xFF) << 12);
            identity(id, major, minor, || Some(uuid.0))
        };
        assert_eq!((of_xfs(8, 1), of_xfs(253, 0x1234)), (uuid, uuid));
        let of_ext4 = |minor| identity(0x0123_4567_89AB_CDEF, 8, minor, || None);
        assert_eq!(of_ext4(1), of_ext4(17));
        assert_ne!(of_ext4(1), VolumeIdentity::UNKNOWN);
        assert_eq!(identity(0, 0, 44, || None), VolumeIdentity::UNKNOWN, "FUSE");
        assert_eq!(identity(0x0801, 8, 1, || None), VolumeIdentity::UNKNOWN, "an older kernel");
    }

    /// Tests that clients see the same serial number after the disk moved to another machine.
    #[test]
    fn a_serial_number_follows_the_identity() {
        let uuid = VolumeIdentity(std::array::from_fn(|at| at as u8 * 3 + 1));
        assert_eq!(serial(uuid, 0x0801), serial(uuid, 0xFD00));
        assert_ne!(serial(uuid, 0), serial(VolumeIdentity([7; 16]), 0));
        // On ext4 the identity is the f_fsid, from which the serial number is made.
        let id = 0x0123_4567_89AB_CDEF_u64;
        let of_ext4 = identity(id, 8, 1, || None);
        assert_eq!(serial(of_ext4, id), 0x89AB_CDEF ^ 0x0123_4567);
        assert_eq!(serial(VolumeIdentity::UNKNOWN, id), 0x89AB_CDEF ^ 0x0123_4567);
    }

    /// Tests that the kernel's answer is understood, where it gives one.
    #[test]
    fn the_uuid_of_a_file_system_is_read() {
        use std::os::fd::AsFd;
        let folder = tempfile::tempdir().unwrap();
        let open = || std::fs::File::open(folder.path()).unwrap();
        let first = sys::fs_uuid(open().as_fd());
        assert_eq!(first, sys::fs_uuid(open().as_fd()));
        assert_ne!(first, Some([0; 16]));
        let nothing = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(sys::fs_uuid(nothing.as_fd()), None, "procfs has none");
    }

    #[test]
    fn sectors_are_powers_of_two_within_a_page() {
        for (told, sector) in [
            (512, 512),
            (4096, 4096),
            (0, 512),
            (1, 512),
            (520, 512),
            (16_384, 4096),
            (1 << 31, 4096),
        ] {
            assert_eq!(sector_of(told), sector, "{told}");
        }
        assert_eq!(physical_sector(u32::MAX, u32::MAX), SECTOR_MIN, "there is no such device");
    }
}
