//! Information about volumes: MS-SMB2 3.3.5.20.2, MS-FSA 2.1.5.13.

use frevo_store::Fault;
use frevo_store::vfs::{Space, Volume};
use frevo_wire::Status;
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::FsInfoClass;
use frevo_wire::fscc::posix::FsPosixInformation;
use frevo_wire::fscc::volume::{
    DeviceCharacteristics, DeviceType, FsAttributeInformation, FsAttributes, FsControlInformation,
    FsDeviceInformation, FsFullSizeInformation, FsObjectIdInformation, FsSectorSizeInformation,
    FsSizeInformation, FsVolumeInformation, SectorSizeFlags,
};

use super::{Output, quota};
use crate::base::limits::FREE_SPACE_PATIENCE;
use crate::base::pools::closer::{self, Closes};
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::shares::impersonation;
use crate::shares::posix;
use crate::shares::share::Share;

/// Bytes of a logical sector: what clients compute sizes in.
const SECTOR: u32 = 512;
/// SSINFO_OFFSET_UNKNOWN, MS-FSCC 2.5.7.
const OFFSET_UNKNOWN: u32 = u32::MAX;

/// Smallest output buffer of a class, or the status that refuses it.
pub(super) const fn min_size(class: FsInfoClass) -> Result<usize, Status> {
    Ok(match class {
        FsInfoClass::VOLUME => 24,
        FsInfoClass::SIZE => FsSizeInformation::SIZE,
        FsInfoClass::DEVICE => FsDeviceInformation::SIZE,
        // The minimum length counts one character of the name and padding, as on Windows, but
        // unlike MS-FSA.
        FsInfoClass::ATTRIBUTE => 16,
        FsInfoClass::FULL_SIZE => FsFullSizeInformation::SIZE,
        FsInfoClass::OBJECT_ID => FsObjectIdInformation::SIZE,
        FsInfoClass::SECTOR_SIZE => FsSectorSizeInformation::SIZE,
        FsInfoClass::POSIX => FsPosixInformation::SIZE,
        FsInfoClass::CONTROL => FsControlInformation::SIZE,
        // Windows allows these classes only for local use, so they are refused over the network.
        FsInfoClass::LABEL | FsInfoClass::DRIVER_PATH | FsInfoClass::VOLUME_FLAGS => {
            return Err(Status::NOT_SUPPORTED);
        }
        _ => return Err(Status::INVALID_INFO_CLASS),
    })
}

/// The space of a volume may be told: what takes longer was found out.
#[derive(Debug)]
pub(super) struct Settled(());

/// Finds out what takes longer, off the core. None where nobody asks for space.
pub(super) async fn prepare(open: &Open, request: &query_info::Request<'_>) -> Option<Settled> {
    let class = FsInfoClass(request.file_info_class);
    let asks = request.info_type == InfoType::FILESYSTEM
        && matches!(class, FsInfoClass::SIZE | FsInfoClass::FULL_SIZE | FsInfoClass::POSIX);
    if asks { Some(Box::pin(settle(open)).await) } else { None }
}

#[cfg(test)]
impl Settled {
    pub(super) const fn in_a_test() -> Self {
        Self(())
    }
}

/// Waits for the deleted files of the account that are being closed, so that it sees their space, and
/// counts backups.
async fn settle(open: &Open) -> Settled {
    // A file system that hangs in a close of the account holds up no query of another one.
    let closes = if open.tree().share.pool().is_some() { Closes::All } else { Closes::OfCloser };
    closer::has_closed(open.closing_owner(), closes, FREE_SPACE_PATIENCE).await;
    count_backups(open).await;
    Settled(())
}

/// Counts what backups take of a share that limits them.
async fn count_backups(open: &Open) {
    let limit = open.tree().share.time_machine_limit.clone();
    if let (Some(limit), OpenTarget::File(file)) = (limit, &open.target) {
        limit.count(&impersonation::for_all(&file.vfs)).await;
    }
}

/// The space that a client has on the volume of an open file, with what takes longer to find out.
pub(in crate::command) async fn volume_space(open: &Open) -> Result<Space, Status> {
    let settled = settle(open).await;
    space(open.file()?, &open.tree().share, Some(&settled))
}

/// The space that a client has on the volume of the file (MS-FSA 2.1.5.13.3, 2.1.5.13.7:
/// Open.File.Volume), which another file system may be mounted for below the share's root.
fn space(file: &FileOpen, share: &Share, settled: Option<&Settled>) -> Result<Space, Status> {
    // `prepare` has settled it for all classes that ask.
    let Settled(()) = settled.ok_or(Status::INTERNAL_ERROR)?;
    let space = match quota::space_below(file)? {
        Some(space) => space,
        None => quota::space(file, file.vfs.space().map_err(Fault::status)?)?,
    };
    Ok(share.time_machine_limit.as_ref().map_or(space, |limit| limit.of(space)))
}

/// Answers a query of the volume that `open` is on.
pub(super) fn query(
    open: &Open,
    class: u8,
    settled: Option<&Settled>,
    output: &mut Output<'_>,
) -> Result<(), Status> {
    let class = FsInfoClass(class);
    if class == FsInfoClass::POSIX && !open.is_posix() {
        return Err(Status::INVALID_INFO_CLASS);
    }
    output.require(min_size(class)?)?;
    let file = match &open.target {
        OpenTarget::File(file) => file,
        OpenTarget::Pipe(_) if class == FsInfoClass::DEVICE => {
            let characteristics = DeviceCharacteristics::EMPTY;
            FsDeviceInformation { device_type: DeviceType::NAMED_PIPE, characteristics }
                .encode(&mut output.writer());
            return Ok(());
        }
        OpenTarget::Pipe(_) => return Err(Status::INVALID_DEVICE_REQUEST),
    };
    let volume = &*file.vfs.volume();
    let tree = open.tree();
    let share = &tree.share;
    let read_only = share.read_only || volume.read_only;
    let w = &mut output.writer();
    match class {
        FsInfoClass::VOLUME => FsVolumeInformation {
            creation_time: volume.created,
            serial_number: volume.serial,
            // Object IDs are announced if the volume has extended attributes, which store them
            // (MS-FSCC 2.5.9).
            supports_objects: volume.xattrs,
            label: share.name.as_str(),
        }
        .encode(w),
        FsInfoClass::SIZE => size(&space(file, share, settled)?).encode(w),
        FsInfoClass::FULL_SIZE => full_size(&space(file, share, settled)?).encode(w),
        FsInfoClass::DEVICE => device(read_only).encode(w),
        FsInfoClass::ATTRIBUTE => FsAttributeInformation {
            attributes: attributes(volume, read_only, has_exact_names(share))
                | quota::attribute(&*file.vfs),
            maximum_component_name_length: volume.max_component.min(255),
            file_system_name: volume.file_system.as_str(),
        }
        .encode(w),
        FsInfoClass::CONTROL => quota::control(&*file.vfs)?.encode(w),
        FsInfoClass::OBJECT_ID => object_id(volume).encode(w),
        FsInfoClass::SECTOR_SIZE => sectors(volume).encode(w),
        FsInfoClass::POSIX => {
            let space = space(file, share, settled)?;
            posix::file_system(&space, volume.serial).encode(w);
        }
        _ => return Err(Status::INVALID_INFO_CLASS),
    }
    Ok(())
}

/// True where some clients can tell names apart that differ in case only: POSIX clients can,
/// like programs of Windows that ask for it on NTFS.
fn has_exact_names(share: &Share) -> bool {
    share.is_case_sensitive || share.has_posix()
}

/// An allocation unit in sectors and bytes of a sector.
const fn unit(space: &Space) -> (u32, u32) {
    if space.unit >= SECTOR && space.unit.is_multiple_of(SECTOR) {
        (space.unit / SECTOR, SECTOR)
    } else {
        (1, space.unit)
    }
}

const fn size(space: &Space) -> FsSizeInformation {
    let (sectors_per_allocation_unit, bytes_per_sector) = unit(space);
    FsSizeInformation {
        total_allocation_units: space.total,
        available_allocation_units: space.available,
        sectors_per_allocation_unit,
        bytes_per_sector,
    }
}

const fn full_size(space: &Space) -> FsFullSizeInformation {
    let (sectors_per_allocation_unit, bytes_per_sector) = unit(space);
    FsFullSizeInformation {
        total_allocation_units: space.total,
        caller_available_allocation_units: space.available,
        actual_available_allocation_units: space.free,
        sectors_per_allocation_unit,
        bytes_per_sector,
    }
}

fn device(read_only: bool) -> FsDeviceInformation {
    let mut characteristics = DeviceCharacteristics::DEVICE_IS_MOUNTED;
    if read_only {
        characteristics |= DeviceCharacteristics::READ_ONLY_DEVICE;
    }
    FsDeviceInformation { device_type: DeviceType::DISK, characteristics }
}

/// The attributes of a volume, and no others. Windows shows a file's security page only where
/// access lists are kept, and its link tracking asks for object ids where there are some.
pub(super) fn attributes(volume: &Volume, read_only: bool, exact_names: bool) -> FsAttributes {
    let mut attributes = FsAttributes::CASE_PRESERVED_NAMES
        | FsAttributes::UNICODE_ON_DISK
        | FsAttributes::SUPPORTS_POSIX_UNLINK_RENAME;
    for (holds, attribute) in [
        (volume.sparse, FsAttributes::SUPPORTS_SPARSE_FILES),
        (volume.hard_links, FsAttributes::SUPPORTS_HARD_LINKS),
        (volume.xattrs, FsAttributes::SUPPORTS_EXTENDED_ATTRIBUTES),
        (volume.xattrs, FsAttributes::SUPPORTS_REPARSE_POINTS),
        (volume.xattrs, FsAttributes::SUPPORTS_OBJECT_IDS),
        (volume.descriptors, FsAttributes::PERSISTENT_ACLS),
        (volume.streams, FsAttributes::NAMED_STREAMS),
        (volume.shares_extents, FsAttributes::SUPPORTS_BLOCK_REFCOUNTING),
        (volume.compresses, FsAttributes::FILE_COMPRESSION),
        (read_only, FsAttributes::READ_ONLY_VOLUME),
        (exact_names, FsAttributes::CASE_SENSITIVE_SEARCH),
    ] {
        if holds {
            attributes |= attribute;
        }
    }
    attributes
}

/// A volume keeps its number and its birth, so they are its identifier.
fn object_id(volume: &Volume) -> FsObjectIdInformation {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&volume.serial.to_le_bytes());
    id[8..].copy_from_slice(&volume.created.0.to_le_bytes());
    FsObjectIdInformation { object_id: Guid(id), extended_info: [0; 48] }
}

/// MS-FSA 2.1.5.13.10. No request need be aligned, so that the logical sector is the least that
/// there is. A share may lie on several devices: the sector is that of its root.
const fn sectors(volume: &Volume) -> FsSectorSizeInformation {
    FsSectorSizeInformation {
        logical_bytes_per_sector: SECTOR,
        physical_bytes_per_sector_for_atomicity: volume.physical_sector,
        physical_bytes_per_sector_for_performance: volume.physical_sector,
        effective_physical_bytes_per_sector_for_atomicity: volume.physical_sector,
        // TRIM is announced if files can have holes, because FSCTL_FILE_LEVEL_TRIM frees space by
        // punching holes.
        flags: if volume.sparse { SectorSizeFlags::TRIM_ENABLED } else { SectorSizeFlags::EMPTY },
        byte_offset_for_sector_alignment: OFFSET_UNKNOWN,
        byte_offset_for_partition_alignment: 0,
    }
}
