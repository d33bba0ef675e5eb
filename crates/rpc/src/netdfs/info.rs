//! DFS_INFO_STRUCT and its parts, MS-DFSNM 2.2.2 to 2.2.5.

use super::levels::{self, Field};
use crate::WinError;
use crate::limits::MAX_DESCRIPTOR;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::name::utf16_len;
use frevo_wire::ndr::{NdrReader, NdrWriter};
use frevo_wire::{bit_set, open_enum};

open_enum! {
    /// The state of a root or a link, MS-DFSNM 2.2.2.13 and 2.2.4.1.
    VolumeState(u32) {
        /// No change (DFS_INFO_105).
        UNCHANGED = 0,
        /// DFS_VOLUME_STATE_OK
        OK = 1,
        /// DFS_VOLUME_STATE_OFFLINE
        OFFLINE = 3,
        /// DFS_VOLUME_STATE_ONLINE
        ONLINE = 4,
        /// DFS_VOLUME_STATE_RESYNCHRONIZE
        RESYNCHRONIZE = 0x10,
        /// DFS_VOLUME_STATE_STANDBY
        STANDBY = 0x20,
        /// DFS_VOLUME_STATE_FORCE_SYNC
        FORCE_SYNC = 0x40,
    }
}

impl VolumeState {
    /// DFS_VOLUME_FLAVOR_STANDALONE, which the state of a root has as well.
    pub const FLAVOR_STANDALONE: u32 = 0x100;
}

open_enum! {
    /// The state of a target, MS-DFSNM 2.2.4.6.
    StorageState(u32) {
        /// DFS_STORAGE_STATE_OFFLINE
        OFFLINE = 1,
        /// DFS_STORAGE_STATE_ONLINE
        ONLINE = 2,
    }
}

open_enum! {
    /// DFS_TARGET_PRIORITY_CLASS, MS-DFSNM 2.2.2.8.
    PriorityClass(u32) {
        /// DfsSiteCostNormalPriorityClass
        SITE_COST_NORMAL = 0,
        /// DfsGlobalHighPriorityClass
        GLOBAL_HIGH = 1,
        /// DfsSiteCostHighPriorityClass
        SITE_COST_HIGH = 2,
        /// DfsSiteCostLowPriorityClass
        SITE_COST_LOW = 3,
        /// DfsGlobalLowPriorityClass
        GLOBAL_LOW = 4,
    }
}

bit_set! {
    /// PropertyFlags, MS-DFSNM 2.2.3.5.
    Properties(u32) {
        /// DFS_PROPERTY_FLAG_INSITE_REFERRALS
        INSITE_REFERRALS = 0x01,
        /// DFS_PROPERTY_FLAG_ROOT_SCALABILITY
        ROOT_SCALABILITY = 0x02,
        /// DFS_PROPERTY_FLAG_SITE_COSTING
        SITE_COSTING = 0x04,
        /// DFS_PROPERTY_FLAG_TARGET_FAILBACK
        TARGET_FAILBACK = 0x08,
        /// DFS_PROPERTY_FLAG_CLUSTER_ENABLED
        CLUSTER_ENABLED = 0x10,
        /// DFS_PROPERTY_FLAG_ABDE
        ABDE = 0x20,
    }
}

/// DFS_TARGET_PRIORITY, MS-DFSNM 2.2.2.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// TargetPriorityClass
    pub class: PriorityClass,
    /// TargetPriorityRank, 0 first.
    pub rank: u16,
}

impl Default for Priority {
    fn default() -> Self {
        Self { class: PriorityClass::SITE_COST_NORMAL, rank: 0 }
    }
}

impl Priority {
    /// The lowest rank, MS-DFSNM 2.2.2.7.
    pub const LAST_RANK: u16 = 0x1F;

    pub(super) fn encode(self, w: &mut NdrWriter) -> &mut NdrWriter {
        w.u32(self.class.0).u16(self.rank).u16(0)
    }

    pub(super) fn read(r: &mut NdrReader<'_>) -> Parsed<Self> {
        let what = "DFS_TARGET_PRIORITY";
        let priority = Self { class: PriorityClass(r.u32(what)?), rank: r.u16(what)? };
        r.u16(what)?;
        Ok(priority)
    }
}

/// A target: DFS_STORAGE_INFO or DFS_STORAGE_INFO_1, MS-DFSNM 2.2.2.5 and 2.2.2.6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// State
    pub state: StorageState,
    /// ServerName
    pub server: String,
    /// ShareName, with a path in the share if there is one.
    pub share: String,
    /// TargetPriority, which DFS_STORAGE_INFO does not have.
    pub priority: Priority,
}

/// The members of all levels of DFS_INFO_STRUCT. A level has some of them; the others are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DfsInfo {
    /// EntryPath, FtDfsName or DfsName.
    pub path: String,
    /// Comment; None for a null pointer.
    pub comment: Option<String>,
    /// State, of an entry or of a target, with the flavor of a root.
    pub state: u32,
    /// Timeout, in seconds.
    pub timeout: u32,
    /// Guid
    pub guid: Guid,
    /// GenerationGuid
    pub generation: Guid,
    /// PropertyFlagMask
    pub property_mask: Properties,
    /// PropertyFlags
    pub properties: Properties,
    /// MetadataSize, in bytes.
    pub metadata_size: u32,
    /// pSecurityDescriptor, self-relative; None for a null pointer.
    pub security_descriptor: Option<Vec<u8>>,
    /// NumberOfStorages
    pub storage_count: u32,
    /// Storage
    pub storages: Vec<Storage>,
    /// TargetPriority of DFS_INFO_104 and 106.
    pub priority: Priority,
    /// NamespaceMajorVersion
    pub major_version: u32,
    /// NamespaceMinorVersion
    pub minor_version: u32,
    /// NamespaceCapabilities
    pub capabilities: u64,
}

impl Default for DfsInfo {
    fn default() -> Self {
        Self {
            path: String::new(),
            comment: None,
            state: 0,
            timeout: 0,
            guid: Guid([0; 16]),
            generation: Guid([0; 16]),
            property_mask: Properties(0),
            properties: Properties(0),
            metadata_size: 0,
            security_descriptor: None,
            storage_count: 0,
            storages: Vec::new(),
            priority: Priority::default(),
            major_version: 0,
            minor_version: 0,
            capabilities: 0,
        }
    }
}

impl DfsInfo {
    fn number(&self, field: Field) -> u32 {
        match field {
            Field::State | Field::Flags => self.state,
            Field::Timeout => self.timeout,
            Field::PropertyMask => self.property_mask.0,
            Field::Properties => self.properties.0,
            Field::MetadataSize => self.metadata_size,
            Field::DescriptorLength => {
                let length = self.security_descriptor.as_ref().map_or(0, Vec::len);
                u32::try_from(length).unwrap_or(u32::MAX)
            }
            Field::StorageCount => self.storage_count,
            Field::MajorVersion => self.major_version,
            Field::MinorVersion => self.minor_version,
            _ => 0,
        }
    }

    pub(super) fn encode_fixed(&self, w: &mut NdrWriter, fields: &[Field]) {
        for field in fields {
            match field {
                Field::Path => w.pointer(true),
                Field::Comment => w.pointer(self.comment.is_some()),
                Field::Guid => w.align(4).fixed(&self.guid.0),
                Field::Generation => w.align(4).fixed(&self.generation.0),
                Field::Descriptor => w.pointer(self.security_descriptor.is_some()),
                Field::Storages | Field::RankedStorages => w.pointer(!self.storages.is_empty()),
                Field::Priority => self.priority.encode(w),
                Field::Capabilities => w.align(8).fixed(&self.capabilities.to_le_bytes()),
                number => w.u32(self.number(*number)),
            };
        }
    }

    pub(super) fn encode_deferred(&self, w: &mut NdrWriter, fields: &[Field]) {
        for field in fields {
            match field {
                Field::Path => {
                    w.string(&self.path);
                }
                Field::Comment => {
                    if let Some(comment) = &self.comment {
                        w.string(comment);
                    }
                }
                Field::Descriptor => {
                    if let Some(descriptor) = &self.security_descriptor {
                        w.bytes(descriptor);
                    }
                }
                Field::Storages if !self.storages.is_empty() => self.encode_storages(w, false),
                Field::RankedStorages if !self.storages.is_empty() => self.encode_storages(w, true),
                _ => {}
            }
        }
    }

    fn encode_storages(&self, w: &mut NdrWriter, has_priority: bool) {
        w.u32(u32::try_from(self.storages.len()).unwrap_or(u32::MAX));
        for storage in &self.storages {
            w.u32(storage.state.0).pointer(true).pointer(true);
            if has_priority {
                storage.priority.encode(w);
            }
        }
        for storage in &self.storages {
            w.string(&storage.server).string(&storage.share);
        }
    }

    /// Returns an upper bound of the bytes that the entry takes in an answer.
    pub(super) fn size_at(&self, fields: &[Field]) -> usize {
        // A string has three counts, a NUL and what aligns the next field.
        let text = |text: &str| utf16_len(text).saturating_add(20);
        fields.iter().fold(0_usize, |size, field| {
            let more = match field {
                Field::Path => text(&self.path).saturating_add(4),
                Field::Comment => self.comment.as_deref().map_or(4, text).saturating_add(4),
                Field::Guid | Field::Generation => 16,
                Field::Descriptor => {
                    self.security_descriptor.as_ref().map_or(4, Vec::len).saturating_add(12)
                }
                Field::Storages | Field::RankedStorages => {
                    self.storages.iter().fold(8, |size: usize, storage| {
                        let names = text(&storage.server).saturating_add(text(&storage.share));
                        size.saturating_add(20).saturating_add(names)
                    })
                }
                _ => 8,
            };
            size.saturating_add(more)
        })
    }
}

/// An entry of which the fixed part has been read.
#[derive(Debug, Default)]
pub(super) struct Half {
    info: DfsInfo,
    /// Bit of each field whose pointer points.
    points: u32,
    descriptor_length: u32,
}

pub(super) fn read_fixed(r: &mut NdrReader<'_>, fields: &[Field]) -> Parsed<Half> {
    let what = "DFS_INFO";
    let mut half = Half::default();
    for (index, field) in fields.iter().enumerate() {
        let info = &mut half.info;
        match field {
            Field::Guid | Field::Generation => {
                r.align(4)?;
                let guid = Guid(r.fixed(what)?);
                *(if *field == Field::Guid { &mut info.guid } else { &mut info.generation }) = guid;
            }
            Field::Priority => info.priority = Priority::read(r)?,
            Field::Capabilities => info.capabilities = r.u64(what)?,
            Field::State | Field::Flags => info.state = r.u32(what)?,
            Field::Timeout => info.timeout = r.u32(what)?,
            Field::PropertyMask => info.property_mask = Properties(r.u32(what)?),
            Field::Properties => info.properties = Properties(r.u32(what)?),
            Field::MetadataSize => info.metadata_size = r.u32(what)?,
            Field::StorageCount => info.storage_count = r.u32(what)?,
            Field::MajorVersion => info.major_version = r.u32(what)?,
            Field::MinorVersion => info.minor_version = r.u32(what)?,
            Field::DescriptorLength => half.descriptor_length = r.u32(what)?,
            Field::Path
            | Field::Comment
            | Field::Descriptor
            | Field::Storages
            | Field::RankedStorages => {
                if r.pointer(what)? {
                    half.points |= 1 << index;
                }
            }
        }
    }
    Ok(half)
}

pub(super) fn read_deferred(
    r: &mut NdrReader<'_>,
    fields: &[Field],
    half: Half,
) -> Parsed<DfsInfo> {
    let what = "DFS_INFO";
    let mut info = half.info;
    for (index, field) in fields.iter().enumerate() {
        let points = half.points & (1 << index) != 0;
        match field {
            // A pointer without a length, and a length without a pointer, are no descriptor.
            Field::Descriptor if !points && half.descriptor_length > 0 => {
                return Err(Malformed::new(what));
            }
            Field::Storages | Field::RankedStorages if !points && info.storage_count > 0 => {
                return Err(Malformed::new(what));
            }
            _ if !points => {}
            Field::Path => info.path = r.string(what)?.decode()?,
            Field::Comment => info.comment = Some(r.string(what)?.to_string_lossy()),
            Field::Descriptor if half.descriptor_length > MAX_DESCRIPTOR => {
                return Err(Malformed::new(what));
            }
            Field::Descriptor => {
                let descriptor = r.bytes(half.descriptor_length, what)?;
                info.security_descriptor = Some(descriptor.to_vec());
            }
            Field::Storages => info.storages = read_storages(r, info.storage_count, false)?,
            Field::RankedStorages => info.storages = read_storages(r, info.storage_count, true)?,
            _ => {}
        }
    }
    Ok(info)
}

fn read_storages(r: &mut NdrReader<'_>, count: u32, has_priority: bool) -> Parsed<Vec<Storage>> {
    let what = "DFS_STORAGE_INFO";
    let count = r.array(count, if has_priority { 20 } else { 12 }, what)?;
    let mut halves = Vec::with_capacity(count);
    for _ in 0..count {
        let state = StorageState(r.u32(what)?);
        let (has_server, has_share) = (r.pointer(what)?, r.pointer(what)?);
        let priority = if has_priority { Priority::read(r)? } else { Priority::default() };
        halves.push((
            has_server,
            has_share,
            Storage { state, server: String::new(), share: String::new(), priority },
        ));
    }
    let whole = |(has_server, has_share, mut storage): (bool, bool, Storage)| {
        if has_server {
            storage.server = r.string(what)?.decode()?;
        }
        if has_share {
            storage.share = r.string(what)?.decode()?;
        }
        Ok(storage)
    };
    halves.into_iter().map(whole).collect()
}

/// Appends DFS_INFO_STRUCT: the level, a pointer and what it points to; for a level that the union does
/// not have, the level alone.
pub(super) fn write_union(w: &mut NdrWriter, level: u32, info: Option<&DfsInfo>) {
    w.u32(level);
    let Some(fields) = levels::of_entry(level) else { return };
    w.pointer(info.is_some());
    if let Some(info) = info {
        w.align(levels::alignment(level));
        info.encode_fixed(w, fields);
        info.encode_deferred(w, fields);
    }
}

/// Reads DFS_INFO_STRUCT of a level. None for a null pointer, and for a level that the union does not
/// have.
pub(super) fn read_union(r: &mut NdrReader<'_>, level: u32) -> Parsed<Option<DfsInfo>> {
    let what = "DFS_INFO_STRUCT";
    if r.u32(what)? != level {
        return Err(Malformed::new(what));
    }
    let Some(fields) = levels::of_entry(level) else { return Ok(None) };
    if !r.pointer(what)? {
        return Ok(None);
    }
    r.align(levels::alignment(level))?;
    let half = read_fixed(r, fields)?;
    read_deferred(r, fields, half).map(Some)
}

/// Stub data of a reply to NetrDfsGetInfo: the entry, or the reason why there is none.
pub fn encode_info(level: u32, info: Result<&DfsInfo, WinError>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    write_union(&mut w, level, info.ok());
    w.u32(info.err().unwrap_or(WinError::SUCCESS).0);
    w.into_stub()
}

/// Parses a reply to NetrDfsGetInfo of `level`.
pub fn parse_info(stub: &[u8], level: u32) -> Parsed<Result<DfsInfo, WinError>> {
    let mut r = NdrReader::new(stub);
    let info = read_union(&mut r, level)?;
    match (WinError(r.u32("return value")?), info) {
        (WinError::SUCCESS, Some(info)) => Ok(Ok(info)),
        (WinError::SUCCESS, None) => Err(Malformed::new("DFS_INFO_STRUCT")),
        (status, _) => Ok(Err(status)),
    }
}
