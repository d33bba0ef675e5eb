//! One row for each control code: what it is about, what its Open must have
//! been granted, whether it changes anything, and what happens then. A code
//! without a row reaches nothing.

use frevo_wire::Status;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;

use crate::audit::Recorded;
use crate::audit::Recorded::{Attributes, Data};

pub(crate) use super::object_id::Asked;

/// The object that a control code is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// No Open: FileId is all ones.
    Nothing,
    /// An Open of any kind.
    Anything,
    /// A file or a directory; INVALID_DEVICE_REQUEST on a pipe.
    File,
    /// A pipe; INVALID_DEVICE_REQUEST on a file.
    Pipe,
}

/// The handler of a control code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Answers with this status.
    Refuse(Status),
    /// Answers with success, and no output.
    Nothing,
    /// MS-SMB2 3.3.5.15.2, with the request of MS-DFSC 2.2.2
    Referrals,
    /// MS-SMB2 3.3.5.15.2, with the request of MS-DFSC 2.2.3
    ReferralsEx,
    /// MS-SMB2 3.3.5.15.12
    ValidateNegotiate,
    /// MS-SMB2 3.3.5.15.11
    NetworkInterfaces,
    /// FSCTL_FREVO_QUERY_OPERATION
    Operation,
    /// MS-SMB2 3.3.5.15.10
    PipeWait,
    /// MS-SMB2 3.3.5.15.3
    PipeTransceive,
    /// MS-SMB2 3.3.5.15.4
    PipePeek,
    /// MS-SMB2 3.3.5.15.5
    ResumeKey,
    /// MS-SMB2 3.3.5.15.6
    CopyChunk,
    /// MS-SMB2 3.3.5.15.1
    Snapshots,
    /// MS-SMB2 3.3.5.15.9
    Resiliency,
    /// MS-FSA 2.1.5.10.38
    SetSparse,
    /// MS-FSA 2.1.5.10.39
    SetZeroData,
    /// MS-FSA 2.1.5.10.22
    AllocatedRanges,
    /// MS-FSA 2.1.5.10.1, .2, .13, .35 and .36
    ObjectId(Asked),
    /// MS-FSA 2.1.5.10.14
    GetReparsePoint,
    /// MS-FSA 2.1.5.10.37
    SetReparsePoint,
    /// MS-FSA 2.1.5.10.3
    DeleteReparsePoint,
    /// MS-FSA 2.1.5.10.9
    GetCompression,
    /// MS-FSA 2.1.5.10.30
    SetCompression,
    /// MS-FSA 2.1.5.10.4
    DuplicateExtents,
    /// MS-FSA 2.1.5.10.5
    DuplicateExtentsEx,
    /// MS-FSA 2.1.5.10.6
    Trim,
    /// MS-FSA 2.1.5.10.11
    VolumeData,
    /// MS-FSA 2.1.5.10.15
    RetrievalPointers,
    /// MS-FSA 2.1.5.10.19
    MarkHandle,
    /// MS-FSA 2.1.5.10.24
    FileRegions,
    /// MS-FSA 2.1.5.10.27
    UsnData,
    /// MS-FSA 2.1.5.10.10
    GetIntegrity,
    /// MS-FSA 2.1.5.10.33
    SetIntegrity,
    /// MS-FSA 2.1.5.10.20
    OffloadRead,
    /// MS-FSA 2.1.5.10.21
    OffloadWrite,
    /// MS-SQOS 3.2.5.1
    StorageQos,
}

/// The conditions that must hold before a handler runs.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The control code that the row is for.
    pub code: CtlCode,
    /// The object that it is about.
    pub on: On,
    /// Rights of which the Open needs every one, else ACCESS_DENIED.
    pub all: AccessMask,
    /// Rights of which the Open needs at least one, else ACCESS_DENIED; empty:
    /// none.
    pub any: AccessMask,
    /// It changes the file: MEDIA_WRITE_PROTECTED on a read-only share.
    pub changes: bool,
    /// The event of the audit log that it causes.
    pub recorded: Recorded,
    /// The handler, or the answer without one.
    pub act: Act,
}

/// The row of a code; none for codes that MS-SMB2 2.2.31 and MS-FSCC 2.3 do
/// not have.
pub(crate) fn row(code: CtlCode) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.code == code)
}

const NONE: AccessMask = AccessMask::EMPTY;
const NOTHING: Recorded = Recorded::Nothing;
const WRITE: AccessMask = AccessMask::WRITE_DATA;
const APPEND: AccessMask = AccessMask::APPEND_DATA;
const WRITE_ATTRIBUTES: AccessMask = AccessMask::WRITE_ATTRIBUTES;

/// Makes the row of a code that needs no Open.
const fn global(code: CtlCode, act: Act) -> Row {
    Row { code, on: On::Nothing, all: NONE, any: NONE, changes: false, recorded: NOTHING, act }
}

/// Makes the row of a code for pipes.
const fn pipe(code: CtlCode, act: Act) -> Row {
    Row { code, on: On::Pipe, all: NONE, any: NONE, changes: false, recorded: NOTHING, act }
}

/// Reads something of a file that its name's readers may know anyway.
const fn shows(code: CtlCode, act: Act) -> Row {
    Row { code, on: On::File, all: NONE, any: NONE, changes: false, recorded: NOTHING, act }
}

/// Reads data of a file.
const fn reads(code: CtlCode, act: Act) -> Row {
    Row {
        code,
        on: On::File,
        all: AccessMask::READ_DATA,
        any: NONE,
        changes: false,
        recorded: NOTHING,
        act,
    }
}

/// Changes a file's data for those who have any of `any`.
const fn writes(code: CtlCode, any: AccessMask, act: Act) -> Row {
    let recorded = Data;
    Row { code, on: On::File, all: NONE, any, changes: true, recorded, act }
}

/// Changes something beside a file's data, which the audit log calls `part`, for those who have any
/// of `any`.
const fn changes(code: CtlCode, any: AccessMask, part: &'static str, act: Act) -> Row {
    let recorded = Attributes(part);
    Row { code, on: On::File, all: NONE, any, changes: true, recorded, act }
}

/// Copies into a file what is in another.
const fn copies(code: CtlCode) -> Row {
    Row { on: On::Anything, ..writes(code, COPIES, Act::CopyChunk) }
}

/// Makes the row of a code that is known and not supported: INVALID_DEVICE_REQUEST, as MS-FSA
/// 2.1.5.10.n has for what an object store does not implement.
const fn absent(code: CtlCode) -> Row {
    let act = Act::Refuse(Status::INVALID_DEVICE_REQUEST);
    Row { code, on: On::Anything, all: NONE, any: NONE, changes: false, recorded: NOTHING, act }
}

/// Makes the row of a code that would change something, and is known and not supported. `recorded`
/// names the change in the audit log.
const fn absent_change(code: CtlCode, recorded: Recorded) -> Row {
    Row { recorded, ..absent(code) }
}

/// Makes the row of a code that clients may not use: MS-SMB2 3.3.5.15.8.
const fn blocked(code: CtlCode) -> Row {
    let act = Act::Refuse(Status::NOT_SUPPORTED);
    Row { code, on: On::Anything, all: NONE, any: NONE, changes: false, recorded: NOTHING, act }
}

/// Any of the rights that change a file's data or what is known of it.
const CHANGES_FILE: AccessMask = AccessMask(WRITE.0 | WRITE_ATTRIBUTES.0);

/// The rows of all known codes.
pub static TABLE: &[Row] = &[
    global(CtlCode::DFS_GET_REFERRALS, Act::Referrals),
    global(CtlCode::DFS_GET_REFERRALS_EX, Act::ReferralsEx),
    global(CtlCode::VALIDATE_NEGOTIATE_INFO, Act::ValidateNegotiate),
    global(CtlCode::QUERY_NETWORK_INTERFACE_INFO, Act::NetworkInterfaces),
    global(CtlCode::FREVO_QUERY_OPERATION, Act::Operation),
    global(CtlCode::PIPE_WAIT, Act::PipeWait),
    // These two rows demand no rights, because the handlers check them: PIPE_TRANSCEIVE needs the
    // rights to write and to read, and PIPE_PEEK the right to read.
    pipe(CtlCode::PIPE_TRANSCEIVE, Act::PipeTransceive),
    pipe(CtlCode::PIPE_PEEK, Act::PipePeek),
    // MS-SMB2 3.3.5.15.6: SRV_COPYCHUNK also needs the right to read the target,
    // SRV_COPYCHUNK_WRITE does not. On a pipe, either code returns the limits.
    Row { all: AccessMask::READ_DATA, ..copies(CtlCode::SRV_COPYCHUNK) },
    copies(CtlCode::SRV_COPYCHUNK_WRITE),
    // The resume key needs no right, because the rights are checked when it is used for a copy.
    shows(CtlCode::SRV_REQUEST_RESUME_KEY, Act::ResumeKey),
    shows(CtlCode::SRV_ENUMERATE_SNAPSHOTS, Act::Snapshots),
    // MS-SMB2 3.3.5.15.7: only branch caches use hashes, and this server does not support them.
    blocked(CtlCode::SRV_READ_HASH),
    shows(CtlCode::LMR_REQUEST_RESILIENCY, Act::Resiliency),
    Row {
        recorded: Attributes("link_tracking"),
        ..blocked(CtlCode::LMR_SET_LINK_TRACKING_INFORMATION)
    },
    // MS-FSCC 2.3: no right is needed, although the call may create the object ID.
    Row {
        recorded: Attributes("object_id"),
        ..shows(CtlCode::CREATE_OR_GET_OBJECT_ID, Act::ObjectId(Asked::CreateOrGet))
    },
    shows(CtlCode::GET_OBJECT_ID, Act::ObjectId(Asked::Get)),
    changes(CtlCode::SET_OBJECT_ID, CHANGES_FILE, "object_id", Act::ObjectId(Asked::Set)),
    changes(
        CtlCode::SET_OBJECT_ID_EXTENDED,
        CHANGES_FILE,
        "object_id",
        Act::ObjectId(Asked::SetExtended),
    ),
    // MS-FSCC 2.3.4: deleting an object ID needs the right to write data or attributes.
    changes(CtlCode::DELETE_OBJECT_ID, CHANGES_FILE, "object_id", Act::ObjectId(Asked::Delete)),
    shows(CtlCode::GET_REPARSE_POINT, Act::GetReparsePoint),
    changes(CtlCode::SET_REPARSE_POINT, CHANGES_FILE, "reparse_point", Act::SetReparsePoint),
    changes(CtlCode::DELETE_REPARSE_POINT, CHANGES_FILE, "reparse_point", Act::DeleteReparsePoint),
    writes(CtlCode::DUPLICATE_EXTENTS_TO_FILE, WRITE, Act::DuplicateExtents),
    writes(CtlCode::DUPLICATE_EXTENTS_TO_FILE_EX, WRITE, Act::DuplicateExtentsEx),
    writes(CtlCode::FILE_LEVEL_TRIM, WRITE, Act::Trim),
    absent(CtlCode::FIND_FILES_BY_SID),
    shows(CtlCode::GET_COMPRESSION, Act::GetCompression),
    changes(CtlCode::SET_COMPRESSION, WRITE, "compression", Act::SetCompression),
    shows(CtlCode::GET_INTEGRITY_INFORMATION, Act::GetIntegrity),
    changes(CtlCode::SET_INTEGRITY_INFORMATION, CHANGES_FILE, "integrity", Act::SetIntegrity),
    absent_change(CtlCode::SET_INTEGRITY_INFORMATION_EX, Attributes("integrity")),
    shows(CtlCode::GET_NTFS_VOLUME_DATA, Act::VolumeData),
    absent(CtlCode::GET_REFS_VOLUME_DATA),
    shows(CtlCode::GET_RETRIEVAL_POINTERS, Act::RetrievalPointers),
    absent(CtlCode::GET_RETRIEVAL_POINTER_COUNT),
    absent(CtlCode::GET_RETRIEVAL_POINTERS_AND_REFCOUNT),
    // MS-FSA 2.1.5.10.18: each name counts as valid, so the request always succeeds.
    shows(CtlCode::IS_PATHNAME_VALID, Act::Nothing),
    absent(CtlCode::FILESYSTEM_GET_STATISTICS),
    shows(CtlCode::MARK_HANDLE, Act::MarkHandle),
    reads(CtlCode::OFFLOAD_READ, Act::OffloadRead),
    writes(CtlCode::OFFLOAD_WRITE, WRITE, Act::OffloadWrite),
    reads(CtlCode::QUERY_ALLOCATED_RANGES, Act::AllocatedRanges),
    shows(CtlCode::QUERY_FILE_REGIONS, Act::FileRegions),
    absent(CtlCode::QUERY_FAT_BPB),
    absent(CtlCode::QUERY_ON_DISK_VOLUME_INFO),
    absent(CtlCode::QUERY_SPARING_INFO),
    shows(CtlCode::READ_FILE_USN_DATA, Act::UsnData),
    shows(CtlCode::STORAGE_QOS_CONTROL, Act::StorageQos),
    absent_change(CtlCode::WRITE_USN_CLOSE_RECORD, Attributes("usn_record")),
    absent_change(CtlCode::RECALL_FILE, Attributes("recall")),
    absent_change(CtlCode::REFS_STREAM_SNAPSHOT_MANAGEMENT, Attributes("stream_snapshots")),
    absent_change(CtlCode::SET_DEFECT_MANAGEMENT, Attributes("defect_management")),
    absent_change(CtlCode::SET_ENCRYPTION, Attributes("encryption")),
    // As in Samba, an Open with only the right to append may make its file sparse.
    changes(CtlCode::SET_SPARSE, AccessMask(CHANGES_FILE.0 | APPEND.0), "sparse", Act::SetSparse),
    writes(CtlCode::SET_ZERO_DATA, WRITE, Act::SetZeroData),
    absent_change(CtlCode::SET_ZERO_ON_DEALLOCATION, Attributes("zero_on_deallocation")),
    absent_change(CtlCode::SIS_COPYFILE, Data),
    // MS-SMB2 3.3.5.15: the server does not support shared virtual disks (IsSharedVHDSupported is
    // FALSE).
    absent(CtlCode::QUERY_SHARED_VIRTUAL_DISK_SUPPORT),
    absent_change(CtlCode::SVHDX_SYNC_TUNNEL_REQUEST, Data),
    absent_change(CtlCode::SVHDX_ASYNC_TUNNEL_REQUEST, Data),
];

/// The target of a copy needs one of these rights.
const COPIES: AccessMask = AccessMask(WRITE.0 | APPEND.0);

#[cfg(test)]
mod tests {
    use super::*;

    /// Beyond every code there is: device type, function, method.
    const ALL_CODES: std::ops::Range<u32> = 0..0x0020_0000;

    #[test]
    fn every_known_code_has_exactly_one_row() {
        let named: Vec<_> = ALL_CODES.map(CtlCode).filter(|code| code.name().is_some()).collect();
        assert!(named.len() > 50, "the names are there");
        for code in &named {
            let rows = TABLE.iter().filter(|row| row.code == *code).count();
            assert_eq!(rows, 1, "{code:?}");
        }
        assert_eq!(TABLE.len(), named.len());
        assert!(row(CtlCode(0x0009_0000)).is_none());
    }

    /// Codes that would change something if they were supported.
    const ABSENT_CHANGES: [CtlCode; 11] = [
        CtlCode::LMR_SET_LINK_TRACKING_INFORMATION,
        CtlCode::SET_INTEGRITY_INFORMATION_EX,
        CtlCode::WRITE_USN_CLOSE_RECORD,
        CtlCode::RECALL_FILE,
        CtlCode::REFS_STREAM_SNAPSHOT_MANAGEMENT,
        CtlCode::SET_DEFECT_MANAGEMENT,
        CtlCode::SET_ENCRYPTION,
        CtlCode::SET_ZERO_ON_DEALLOCATION,
        CtlCode::SIS_COPYFILE,
        CtlCode::SVHDX_SYNC_TUNNEL_REQUEST,
        CtlCode::SVHDX_ASYNC_TUNNEL_REQUEST,
    ];

    /// Each code that changes a file, or would if it were supported, leaves a line in the audit log.
    /// The one code that changes something on a read-only Open makes an object ID where there is none.
    #[test]
    fn what_changes_a_file_is_recorded() {
        for row in TABLE {
            let may_make = row.code == CtlCode::CREATE_OR_GET_OBJECT_ID;
            let would = ABSENT_CHANGES.contains(&row.code);
            let is_recorded = row.recorded != Recorded::Nothing;
            assert_eq!(is_recorded, row.changes || may_make || would, "{:?}", row.code);
            assert!(!would || matches!(row.act, Act::Refuse(_)), "{:?}", row.code);
            let is_of_codes = matches!(row.recorded, Recorded::Nothing | Attributes(_) | Data);
            assert!(is_of_codes, "{:?}", row.code);
        }
        // A further code that is not supported needs a decision. These read, or are about the handle
        // alone.
        let absent = TABLE.iter().filter(|row| matches!(row.act, Act::Refuse(_)));
        let changes_nothing = absent.filter(|row| row.recorded == Recorded::Nothing);
        assert_eq!(changes_nothing.count(), 10);
    }

    #[test]
    fn what_changes_a_file_needs_a_right_that_read_only_shares_do_not_give() {
        let reader =
            AccessMask(AccessMask::FILE_GENERIC_READ.0 | AccessMask::FILE_GENERIC_EXECUTE.0);
        for row in TABLE.iter().filter(|row| row.changes) {
            assert!(!row.any.is_empty(), "{:?}", row.code);
            assert!(!row.any.intersects(reader), "{:?}", row.code);
        }
        // Bits 14 and 15 of a control code name the access. If it includes write access (0x8000),
        // the row must be marked as changing.
        let writers = TABLE.iter().filter(|row| row.code.0 & 0x8000 != 0 && row.on == On::File);
        for row in writers {
            assert!(row.changes, "{:?}", row.code);
        }
    }
}
