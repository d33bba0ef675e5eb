//! CREATE, MS-SMB2 2.2.13 and 2.2.14.

use super::{field_u16, field_u32};
use crate::codec::{Parsed, Writer, pointed};
use crate::create_context::CreateContexts;
use crate::dtyp::{AccessMask, FileAttributes, FileTime};
use crate::file_id::FileId;
use crate::utf16::Utf16;
use crate::{bit_set, open_enum};

open_enum! {
    /// Oplock levels, in requests, responses and breaks.
    OplockLevel(u8) {
        /// None.
        NONE = 0x00,
        /// Level II: read caching.
        II = 0x01,
        /// Exclusive: read and write caching.
        EXCLUSIVE = 0x08,
        /// Batch: read, write and handle caching.
        BATCH = 0x09,
        /// A lease instead; the details are in a create context.
        LEASE = 0xFF,
    }
}

open_enum! {
    /// ImpersonationLevel of the request.
    ImpersonationLevel(u32) {
        /// Anonymous
        ANONYMOUS = 0,
        /// Identification
        IDENTIFICATION = 1,
        /// Impersonation
        IMPERSONATION = 2,
        /// Delegate
        DELEGATE = 3,
    }
}

bit_set! {
    /// ShareAccess: the uses that other Opens are allowed.
    ShareAccess(u32) {
        /// Read.
        READ = 0x0000_0001,
        /// Write.
        WRITE = 0x0000_0002,
        /// Other Opens may delete and rename the file.
        DELETE = 0x0000_0004,
    }
}

open_enum! {
    /// CreateDisposition: the action for an existing and for a missing file.
    CreateDisposition(u32) {
        /// Replaces an existing file, or creates it.
        SUPERSEDE = 0,
        /// Opens an existing file, or fails.
        OPEN = 1,
        /// Creates a file, or fails if it exists.
        CREATE = 2,
        /// Opens an existing file, or creates it.
        OPEN_IF = 3,
        /// Truncates an existing file, or fails.
        OVERWRITE = 4,
        /// Truncates an existing file, or creates it.
        OVERWRITE_IF = 5,
    }
}

bit_set! {
    /// CreateOptions.
    CreateOptions(u32) {
        /// FILE_DIRECTORY_FILE
        DIRECTORY_FILE = 0x0000_0001,
        /// FILE_WRITE_THROUGH
        WRITE_THROUGH = 0x0000_0002,
        /// FILE_SEQUENTIAL_ONLY
        SEQUENTIAL_ONLY = 0x0000_0004,
        /// FILE_NO_INTERMEDIATE_BUFFERING
        NO_INTERMEDIATE_BUFFERING = 0x0000_0008,
        /// FILE_SYNCHRONOUS_IO_ALERT; ignored.
        SYNCHRONOUS_IO_ALERT = 0x0000_0010,
        /// FILE_SYNCHRONOUS_IO_NONALERT; ignored.
        SYNCHRONOUS_IO_NONALERT = 0x0000_0020,
        /// FILE_NON_DIRECTORY_FILE
        NON_DIRECTORY_FILE = 0x0000_0040,
        /// FILE_COMPLETE_IF_OPLOCKED; ignored.
        COMPLETE_IF_OPLOCKED = 0x0000_0100,
        /// FILE_NO_EA_KNOWLEDGE
        NO_EA_KNOWLEDGE = 0x0000_0200,
        /// FILE_OPEN_REMOTE_INSTANCE; ignored.
        OPEN_REMOTE_INSTANCE = 0x0000_0400,
        /// FILE_RANDOM_ACCESS
        RANDOM_ACCESS = 0x0000_0800,
        /// FILE_DELETE_ON_CLOSE
        DELETE_ON_CLOSE = 0x0000_1000,
        /// FILE_OPEN_BY_FILE_ID; refused.
        OPEN_BY_FILE_ID = 0x0000_2000,
        /// FILE_OPEN_FOR_BACKUP_INTENT
        OPEN_FOR_BACKUP_INTENT = 0x0000_4000,
        /// FILE_NO_COMPRESSION
        NO_COMPRESSION = 0x0000_8000,
        /// FILE_OPEN_REQUIRING_OPLOCK; ignored.
        OPEN_REQUIRING_OPLOCK = 0x0001_0000,
        /// FILE_DISALLOW_EXCLUSIVE; ignored.
        DISALLOW_EXCLUSIVE = 0x0002_0000,
        /// FILE_RESERVE_OPFILTER; refused.
        RESERVE_OPFILTER = 0x0010_0000,
        /// FILE_OPEN_REPARSE_POINT
        OPEN_REPARSE_POINT = 0x0020_0000,
        /// FILE_OPEN_NO_RECALL
        OPEN_NO_RECALL = 0x0040_0000,
        /// FILE_OPEN_FOR_FREE_SPACE_QUERY; ignored.
        OPEN_FOR_FREE_SPACE_QUERY = 0x0080_0000,
    }
}

open_enum! {
    /// CreateAction of the response: the action taken.
    CreateAction(u32) {
        /// The file was replaced.
        SUPERSEDED = 0,
        /// The file was opened.
        OPENED = 1,
        /// The file was created.
        CREATED = 2,
        /// The file was truncated.
        OVERWRITTEN = 3,
    }
}

bit_set! {
    /// Flags of the response (3.x).
    CreateFlags(u8) {
        /// The last component is a reparse point.
        REPARSEPOINT = 0x01,
    }
}

/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 120;
/// Where the variable part of the response starts.
const RESPONSE_FIXED: usize = 152;

/// MS-SMB2 2.2.13.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The requested oplock level.
    pub requested_oplock_level: OplockLevel,
    /// The requested impersonation level.
    pub impersonation_level: ImpersonationLevel,
    /// The access that the client asks for.
    pub desired_access: AccessMask,
    /// Attributes of a new file.
    pub file_attributes: FileAttributes,
    /// The uses that other Opens are allowed.
    pub share_access: ShareAccess,
    /// The action for an existing and for a missing file.
    pub create_disposition: CreateDisposition,
    /// CreateOptions.
    pub create_options: CreateOptions,
    /// Path below the share, or the name of a pipe.
    pub name: Utf16<'a>,
    /// Create contexts.
    pub contexts: CreateContexts<'a>,
}

impl<'a> Request<'a> {
    /// Parses a whole message. SecurityFlags and SmbCreateFlags are reserved.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 57, "CREATE request StructureSize")?;
        r.skip(1, "SecurityFlags")?;
        let requested_oplock_level = OplockLevel(r.u8("RequestedOplockLevel")?);
        let impersonation_level = ImpersonationLevel(r.u32("ImpersonationLevel")?);
        r.skip(16, "SmbCreateFlags and Reserved")?;
        let desired_access = AccessMask(r.u32("DesiredAccess")?);
        let file_attributes = FileAttributes(r.u32("FileAttributes")?);
        let share_access = ShareAccess(r.u32("ShareAccess")?);
        let create_disposition = CreateDisposition(r.u32("CreateDisposition")?);
        let create_options = CreateOptions(r.u32("CreateOptions")?);
        let name_offset = r.u16("NameOffset")?;
        let name_length = r.u16("NameLength")?;
        let contexts_offset = r.u32("CreateContextsOffset")?;
        let contexts_length = r.u32("CreateContextsLength")?;
        let name = pointed(message, name_offset.into(), name_length.into(), REQUEST_FIXED, "Name")?;
        let contexts =
            pointed(message, contexts_offset, contexts_length, REQUEST_FIXED, "CreateContexts")?;
        Ok(Self {
            requested_oplock_level,
            impersonation_level,
            desired_access,
            file_attributes,
            share_access,
            create_disposition,
            create_options,
            name: Utf16::new(name)?,
            contexts: CreateContexts::parse(contexts)?,
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let name = self.name.as_bytes();
        let contexts = self.contexts.as_bytes();
        w.u16(57).u8(0).u8(self.requested_oplock_level.0).u32(self.impersonation_level.0);
        w.u64(0).u64(0).u32(self.desired_access.0).u32(self.file_attributes.0);
        w.u32(self.share_access.0).u32(self.create_disposition.0).u32(self.create_options.0);
        w.u16(field_u16(REQUEST_FIXED)).u16(field_u16(name.len()));
        let contexts_at = w.offset();
        w.u32(0).u32(field_u32(contexts.len())).bytes(name);
        if !contexts.is_empty() {
            w.align(8);
            w.patch_u32(contexts_at, field_u32(w.offset()));
            w.bytes(contexts);
        } else if name.is_empty() {
            // MS-SMB2 2.2.13: the buffer must not be empty, so without name and contexts it has one
            // byte.
            w.u8(0);
        }
    }
}

/// MS-SMB2 2.2.14.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// The granted oplock level.
    pub oplock_level: OplockLevel,
    /// Flags (3.x only).
    pub flags: CreateFlags,
    /// The action that CREATE took: opened, created, overwritten or superseded.
    pub create_action: CreateAction,
    /// Time of creation.
    pub creation_time: FileTime,
    /// Time of the last read.
    pub last_access_time: FileTime,
    /// Time of the last write.
    pub last_write_time: FileTime,
    /// Time of the last change of data or metadata.
    pub change_time: FileTime,
    /// Bytes allocated on disk.
    pub allocation_size: u64,
    /// Size in bytes.
    pub end_of_file: u64,
    /// Attributes.
    pub file_attributes: FileAttributes,
    /// FileId of the Open.
    pub file_id: FileId,
    /// Create contexts of the response.
    pub contexts: CreateContexts<'a>,
}

impl<'a> Response<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 89, "CREATE response StructureSize")?;
        let oplock_level = OplockLevel(r.u8("OplockLevel")?);
        let flags = CreateFlags(r.u8("Flags")?);
        let create_action = CreateAction(r.u32("CreateAction")?);
        let creation_time = FileTime(r.u64("CreationTime")?);
        let last_access_time = FileTime(r.u64("LastAccessTime")?);
        let last_write_time = FileTime(r.u64("LastWriteTime")?);
        let change_time = FileTime(r.u64("ChangeTime")?);
        let allocation_size = r.u64("AllocationSize")?;
        let end_of_file = r.u64("EndofFile")?;
        let file_attributes = FileAttributes(r.u32("FileAttributes")?);
        r.skip(4, "Reserved2")?;
        let file_id = FileId::read(r)?;
        let contexts_offset = r.u32("CreateContextsOffset")?;
        let contexts_length = r.u32("CreateContextsLength")?;
        let contexts =
            pointed(message, contexts_offset, contexts_length, RESPONSE_FIXED, "CreateContexts")?;
        Ok(Self {
            oplock_level,
            flags,
            create_action,
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            allocation_size,
            end_of_file,
            file_attributes,
            file_id,
            contexts: CreateContexts::parse(contexts)?,
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let contexts = self.contexts.as_bytes();
        w.u16(89).u8(self.oplock_level.0).u8(self.flags.0).u32(self.create_action.0);
        w.u64(self.creation_time.0).u64(self.last_access_time.0);
        w.u64(self.last_write_time.0).u64(self.change_time.0);
        w.u64(self.allocation_size).u64(self.end_of_file);
        w.u32(self.file_attributes.0).u32(0);
        self.file_id.encode(w);
        let offset = if contexts.is_empty() { 0 } else { RESPONSE_FIXED };
        w.u32(field_u32(offset)).u32(field_u32(contexts.len())).bytes(contexts);
    }
}
