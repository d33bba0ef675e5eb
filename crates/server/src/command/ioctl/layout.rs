//! Facts that NTFS tells of a file: its valid regions, its clusters, its record in the change journal,
//! and its volume.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_store::Fault;
use frevo_store::vfs::{DiskExtent, DiskExtents, Space};
use frevo_wire::Status;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::fsctl::{FileRegion, FileRegionsHeader};
use frevo_wire::fscc::layout::{
    MarkHandle, NtfsVolumeData, ReadFileUsnData, RetrievalPointer, RetrievalPointersHeader,
    StartingVcn, UsnRecord, UsnReferences,
};
use frevo_wire::fscc::query::FileMode;

use super::call::{Answer, Call, NO_OUTPUT, output};
use crate::base::limits::EXTENTS_PER_ANSWER;
use crate::command::query_info::{volume_space, wide_id};
use crate::objects::open::FileOpen;

/// FILE_REGION_USAGE_VALID_CACHED_DATA, the usage that NTFS knows.
const VALID_CACHED_DATA: u32 = 1;
/// All bits of DesiredUsage, MS-FSCC 2.3.55.
const USAGES: u32 = 3;
/// Bytes of a logical sector, as in FileFsSizeInformation.
const SECTOR: u32 = 512;
/// BytesPerFileRecordSegment of NTFS.
const FILE_RECORD: u32 = 1_024;

/// FSCTL_QUERY_FILE_REGIONS, MS-FSA 2.1.5.10.24. The valid data of a file reach to its end.
pub(super) fn regions(call: &Call<'_>) -> Answer {
    let file = call.data_file()?;
    let asked = match call.input {
        [] => FileRegion { file_offset: 0, length: i64::MAX, usage: VALID_CACHED_DATA },
        input => FileRegion::parse(input).map_err(|_| Status::BUFFER_TOO_SMALL)?,
    };
    let offset = u64::try_from(asked.file_offset).map_err(|_| Status::INVALID_PARAMETER)?;
    let fits = asked.file_offset.checked_add(asked.length).is_some();
    let is_known = asked.usage & VALID_CACHED_DATA != 0 && asked.usage & !USAGES == 0;
    if asked.length <= 0 || !fits || !is_known {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if (call.max_output as usize) < FileRegionsHeader::SIZE + FileRegion::SIZE {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let end = file.stat()?.end_of_file;
    if offset > end || (offset == end && end > 0) {
        return NO_OUTPUT;
    }
    let left = i64::try_from(end - offset).unwrap_or(i64::MAX);
    // The only region of an empty file is not valid: it lies at the end of the valid data.
    let usage = if end == 0 { 0 } else { asked.usage };
    let region = FileRegion { length: left.min(asked.length), usage, ..asked };
    let header = FileRegionsHeader { flags: 0, total_regions: 1, regions: 1 };
    Ok((
        output(|w| {
            header.encode(w);
            region.encode(w);
        }),
        Status::SUCCESS,
    ))
}

/// FSCTL_GET_NTFS_VOLUME_DATA, MS-FSA 2.1.5.10.11. There is no master file table to tell of.
pub(super) async fn volume(call: &Call<'_>) -> Answer {
    let file = call.file()?;
    if (call.max_output as usize) < NtfsVolumeData::SIZE {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let Space { total, free, unit, .. } = Box::pin(volume_space(call.open()?)).await?;
    let data = NtfsVolumeData {
        volume_serial_number: file.vfs.volume().serial.into(),
        number_sectors: total.saturating_mul(unit.into()) / u64::from(SECTOR),
        total_clusters: total,
        // A quota limits all clusters; those that are free are counted for the whole volume.
        free_clusters: free.min(total),
        total_reserved: 0,
        bytes_per_sector: SECTOR,
        bytes_per_cluster: unit,
        bytes_per_file_record_segment: FILE_RECORD,
        clusters_per_file_record_segment: FILE_RECORD / unit.max(1),
        mft_valid_data_length: 0,
        mft_start_lcn: 0,
        mft2_start_lcn: 0,
        mft_zone_start: 0,
        mft_zone_end: 0,
    };
    Ok((output(|w| data.encode(w)), Status::SUCCESS))
}

/// FSCTL_GET_RETRIEVAL_POINTERS, MS-FSA 2.1.5.10.15. A cluster is the allocation unit of
/// FileFsSizeInformation.
pub(super) async fn retrieval_pointers(call: &Call<'_>) -> Answer {
    let file = call.file()?;
    let asked = StartingVcn::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    let room = (call.max_output as usize).checked_sub(RetrievalPointersHeader::SIZE);
    let room = room.map_or(0, |room| room / RetrievalPointer::SIZE);
    if room == 0 {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let start = u64::try_from(asked.starting_vcn).map_err(|_| Status::INVALID_PARAMETER)?;
    let stat = file.stat()?;
    let bytes = match file.base {
        // A named stream lies in attributes of its file. MS-FSCC 2.3.32 calls that resident.
        Some(_) => 0,
        None if stat.allocation == 0 => 0,
        // The clusters of a file are counted with those of its holes.
        None => stat.allocation.max(stat.end_of_file),
    };
    let unit = u64::from(Box::pin(volume_space(call.open()?)).await?.unit.max(1));
    let clusters = bytes.div_ceil(unit);
    if start >= clusters {
        return Err(Status::END_OF_FILE.into());
    }
    let (node, limit) = (Arc::clone(&file.node), room.min(EXTENTS_PER_ANSWER));
    let from = start.saturating_mul(unit);
    let found = call.rq.beside_core(move || node.extents_on_disk(from, limit)).await?;
    let found = found.map_err(|fault| match fault {
        Fault::NotSupported => Status::INVALID_DEVICE_REQUEST,
        fault => fault.status(),
    })?;
    let end = stat.end_of_file.div_ceil(unit);
    let pointers = Pointers::of(&found, Asked { start, end, unit, limit });
    if pointers.extents.is_empty() && !pointers.has_more {
        // The clusters from here on have no data of the file, but facts about it.
        return Err(Status::END_OF_FILE.into());
    }
    let status = if pointers.has_more { Status::BUFFER_OVERFLOW } else { Status::SUCCESS };
    Ok((pointers.encode(), status))
}

/// The clusters that a client asks for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    start: u64,
    /// The cluster at which the file ends.
    end: u64,
    /// Bytes in a cluster.
    unit: u64,
    /// Number of extents for which there is room.
    limit: usize,
}

/// Extents in clusters, with an extent for each hole.
struct Pointers {
    starting_vcn: u64,
    extents: Vec<RetrievalPointer>,
    has_more: bool,
}

impl Pointers {
    fn of(found: &DiskExtents, asked: Asked) -> Self {
        let Asked { start, end, unit, limit } = asked;
        let first = found.extents.first().map_or(start, |extent| (extent.first / unit).min(start));
        let mut pointers =
            Self { starting_vcn: first, extents: Vec::new(), has_more: found.has_more };
        let mut at = first;
        for DiskExtent { first, beyond, place } in &found.extents {
            let (first, next) = ((first / unit).max(at), beyond.div_ceil(unit));
            if next <= at {
                continue;
            }
            let hole = (first > at).then_some((first, None));
            for (next, place) in hole.into_iter().chain([(next, *place)]) {
                if !pointers.has_taken(next, place.map(|place| place / unit), limit) {
                    return pointers;
                }
                at = next;
            }
        }
        // A file may end in a hole.
        if !pointers.has_more && end > at {
            pointers.has_taken(end, None, limit);
        }
        pointers
    }

    /// Adds an extent up to the cluster `next`. False if there is no room for it.
    fn has_taken(&mut self, next: u64, place: Option<u64>, limit: usize) -> bool {
        if self.extents.len() == limit {
            self.has_more = true;
            return false;
        }
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let lcn = place.map_or(RetrievalPointer::UNALLOCATED, number);
        self.extents.push(RetrievalPointer { next_vcn: number(next), lcn });
        true
    }

    fn encode(&self) -> Vec<u8> {
        output(|w| {
            let extent_count = u32::try_from(self.extents.len()).unwrap_or(u32::MAX);
            let starting_vcn = i64::try_from(self.starting_vcn).unwrap_or(i64::MAX);
            RetrievalPointersHeader { extent_count, starting_vcn }.encode(w);
            self.extents.iter().for_each(|extent| extent.encode(w));
        })
    }
}

/// FSCTL_READ_FILE_USN_DATA, MS-FSA 2.1.5.10.27. There is no change journal, so no file has a record in
/// it: Usn is 0 (MS-FSCC 2.3.62.2).
pub(super) fn usn_data(call: &Call<'_>) -> Answer {
    let file = call.file()?;
    let is_wide = match ReadFileUsnData::parse(call.input) {
        // A shorter buffer counts as none.
        Err(_) => false,
        Ok(ReadFileUsnData { min_major_version: min, max_major_version: max }) => {
            if min > max || min > 3 || max < 2 {
                return Err(Status::INVALID_PARAMETER.into());
            }
            max >= 3
        }
    };
    let least = if is_wide { UsnReferences::V3([0; 16], [0; 16]) } else { UsnReferences::V2(0, 0) };
    if (call.max_output as usize) < least.min_size() {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let name = file.name().with_stream(None);
    let of_file = match file.base {
        // The open file itself: its name may be another one's by now.
        None => file.stat()?,
        Some(_) => file.vfs.stat(&name).map_err(Fault::status)?,
    };
    let of_parent = file.vfs.stat(&name.parent()).map_err(Fault::status)?;
    let id = |id: u64| if file.apple { 0 } else { id };
    let references = match is_wide {
        true if file.apple => least,
        true => UsnReferences::V3(wide_id(&of_file), wide_id(&of_parent)),
        false => UsnReferences::V2(id(of_file.id), id(of_parent.id)),
    };
    let attributes = match of_file.attributes {
        FileAttributes::EMPTY => FileAttributes::NORMAL,
        attributes => attributes,
    };
    // The root of a volume is its own directory, by the name of a period.
    let name = if name.is_root() { "." } else { name.last() };
    let record = UsnRecord { references, usn: 0, attributes, name };
    if record.record_length() > call.max_output as usize {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    Ok((output(|w| record.encode(w)), Status::SUCCESS))
}

/// FSCTL_MARK_HANDLE, MS-FSA 2.1.5.10.19. A volume has one copy of its data.
pub(super) fn mark_handle(call: &Call<'_>) -> Answer {
    let mark = MarkHandle::parse(call.input).map_err(|_| Status::BUFFER_TOO_SMALL)?;
    let file = call.file()?;
    if file.is_directory {
        return Err(Status::DIRECTORY_NOT_SUPPORTED.into());
    }
    let is_known = matches!(mark.handle_info, MarkHandle::READ_COPY | MarkHandle::NOT_READ_COPY);
    if !is_known || !is_unbuffered(file) || mark.copy_number > 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if mark.handle_info == MarkHandle::READ_COPY {
        return Err(Status::NOT_REDUNDANT_STORAGE.into());
    }
    NO_OUTPUT
}

fn is_unbuffered(file: &FileOpen) -> bool {
    let unbuffered = u64::from(FileMode::NO_INTERMEDIATE_BUFFERING.0);
    file.mode.load(Ordering::Relaxed) & unbuffered != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u64, beyond: u64, place: Option<u64>) -> DiskExtent {
        DiskExtent { first, beyond, place }
    }

    fn pairs(pointers: &Pointers) -> Vec<(i64, i64)> {
        pointers.extents.iter().map(|extent| (extent.next_vcn, extent.lcn)).collect()
    }

    #[test]
    fn extents_and_the_holes_between_them_are_counted_in_clusters() {
        let extents = vec![
            extent(4096, 12_288, Some(40_960)),
            extent(20_480, 24_576, None),
            extent(24_576, 25_000, Some(81_920)),
        ];
        let found = DiskExtents { extents, has_more: false };
        let asked = |start, end, limit| Asked { start, end, unit: 4096, limit };
        let whole = Pointers::of(&found, asked(0, 7, 10));
        assert_eq!((whole.starting_vcn, whole.has_more), (0, false));
        assert_eq!(pairs(&whole), [(1, -1), (3, 10), (5, -1), (6, -1), (7, 20)]);
        // An answer begins with the extent that the first cluster is in.
        let inside = Pointers::of(&found, asked(2, 7, 10));
        assert_eq!((inside.starting_vcn, pairs(&inside)[0]), (1, (3, 10)));
        let some = Pointers::of(&found, asked(0, 7, 2));
        assert_eq!((pairs(&some).len(), some.has_more), (2, true));
        assert_eq!(some.encode().len(), 16 + 2 * 16);
        // A hole at the end is an extent, too, for which there may be no room.
        let ends = Pointers::of(&found, asked(0, 9, 6));
        assert_eq!(pairs(&ends)[..5], pairs(&whole));
        assert_eq!((pairs(&ends)[5], ends.has_more), ((9, -1), false));
        let full = Pointers::of(&found, asked(0, 9, 5));
        assert_eq!((pairs(&full), full.has_more), (pairs(&whole), true));
        // An extent that is shorter than a cluster, behind one in the same cluster, adds nothing.
        let found = DiskExtents {
            extents: vec![extent(0, 100, Some(0)), extent(100, 4000, Some(512))],
            has_more: true,
        };
        let small = Pointers::of(&found, asked(0, 9, 10));
        assert_eq!((pairs(&small), small.has_more), (vec![(1, 0)], true));
        let hole = Pointers::of(&DiskExtents::default(), asked(5, 8, 10));
        assert_eq!((hole.starting_vcn, pairs(&hole)), (5, vec![(8, -1)]));
        let none = Pointers::of(&DiskExtents::default(), asked(5, 5, 10));
        assert_eq!((none.starting_vcn, pairs(&none).len(), none.encode().len()), (5, 0, 16));
    }
}
