//! Contexts of the request, MS-SMB2 2.2.13.2.

use super::{DurableReconnectV2, DurableRequestV2, Lease, LeaseV2, name};
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::command::ioctl::operation::OperationId;
use crate::dtyp::{FileTime, Guid};
use crate::file_id::FileId;

/// SMB2_CREATE_APP_INSTANCE_VERSION, 2.2.13.2.15. Compares as one number of two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppInstanceVersion {
    /// The more significant half.
    pub high: u64,
    /// The less significant half.
    pub low: u64,
}

/// One context of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateContext<'a> {
    /// ExtA: extended attributes, FILE_FULL_EA_INFORMATION entries.
    ExtendedAttributes(&'a [u8]),
    /// SecD: a security descriptor.
    SecurityDescriptor(&'a [u8]),
    /// DHnQ: asks for a durable Open.
    DurableRequest,
    /// DHnC: reconnects a durable Open.
    DurableReconnect(FileId),
    /// AlSi: bytes to reserve.
    AllocationSize(u64),
    /// MxAc: asks for the maximal access, unless the file is unchanged since this time.
    QueryMaximalAccess(Option<FileTime>),
    /// TWrp: opens the version of that time.
    Timewarp(FileTime),
    /// QFid: asks for the file's id on disk.
    QueryOnDiskId,
    /// RqLs of 32 bytes.
    Lease(Lease),
    /// RqLs of 52 bytes.
    LeaseV2(LeaseV2),
    /// DH2Q: asks for a durable Open, version 2.
    DurableRequestV2(DurableRequestV2),
    /// DH2C: reconnects a durable Open, version 2.
    DurableReconnectV2(DurableReconnectV2),
    /// AppInstanceId.
    AppInstanceId(Guid),
    /// AppInstanceVersion.
    AppInstanceVersion(AppInstanceVersion),
    /// A shared virtual disk, MS-RSVD; not parsed.
    Svhdx(&'a [u8]),
    /// POSIX extensions: the mode of a new file.
    Posix {
        /// The mode, as in `chmod`.
        mode: u32,
    },
    /// Frevo's own: the number of the operation that begins with this CREATE.
    Operation(OperationId),
    /// Apple's extensions; see [`super::AaplQuery::parse`].
    Aapl(&'a [u8]),
    /// Any other context, which is ignored.
    Unknown {
        /// The context's name.
        name: &'a [u8],
        /// The context's data, unparsed.
        data: &'a [u8],
    },
}

impl<'a> CreateContext<'a> {
    /// Parses the data of a context by its name. Data of a length other than the specification's is
    /// malformed.
    pub fn parse_typed(name: &'a [u8], data: &'a [u8]) -> Parsed<Self> {
        Ok(match name {
            name::EXTA => Self::ExtendedAttributes(data),
            name::SECD => Self::SecurityDescriptor(data),
            name::DHNQ => {
                // The context DHnQ has 16 reserved bytes, so only their number is checked.
                sized::<16>(data, "DHnQ length")?;
                Self::DurableRequest
            }
            name::DHNC => {
                let data = sized::<16>(data, "DHnC length")?;
                Self::DurableReconnect(FileId::read(&mut Reader::new(&data))?)
            }
            name::ALSI => Self::AllocationSize(u64::from_le_bytes(sized(data, "AlSi length")?)),
            name::MXAC if data.is_empty() => Self::QueryMaximalAccess(None),
            name::MXAC => {
                let time = u64::from_le_bytes(sized(data, "MxAc length")?);
                Self::QueryMaximalAccess(Some(FileTime(time)))
            }
            name::TWRP => Self::Timewarp(FileTime(u64::from_le_bytes(sized(data, "TWrp length")?))),
            name::QFID => Self::QueryOnDiskId,
            name::RQLS if data.len() == LeaseV2::LEN => Self::LeaseV2(LeaseV2::parse(data)?),
            name::RQLS => Self::Lease(Lease::parse(data)?),
            name::DH2Q => Self::DurableRequestV2(DurableRequestV2::parse(data)?),
            name::DH2C => Self::DurableReconnectV2(DurableReconnectV2::parse(data)?),
            name::APP_INSTANCE_ID => {
                let r = &mut Reader::new(data);
                structure_size(r, 20)?;
                let id = Guid(r.array("AppInstanceId")?);
                r.end("AppInstanceId length")?;
                Self::AppInstanceId(id)
            }
            name::APP_INSTANCE_VERSION => {
                let r = &mut Reader::new(data);
                structure_size(r, 24)?;
                r.skip(4, "AppInstanceVersion Padding")?;
                let high = r.u64("AppInstanceVersionHigh")?;
                let low = r.u64("AppInstanceVersionLow")?;
                r.end("AppInstanceVersion length")?;
                Self::AppInstanceVersion(AppInstanceVersion { high, low })
            }
            name::SVHDX => Self::Svhdx(data),
            name::POSIX => Self::Posix { mode: u32::from_le_bytes(sized(data, "POSIX length")?) },
            name::FREVO_OPERATION => Self::Operation(OperationId::parse(data)?),
            name::AAPL => Self::Aapl(data),
            name => Self::Unknown { name, data },
        })
    }

    /// Returns the name on the wire.
    pub const fn name(&self) -> &'a [u8] {
        match self {
            Self::ExtendedAttributes(_) => name::EXTA,
            Self::SecurityDescriptor(_) => name::SECD,
            Self::DurableRequest => name::DHNQ,
            Self::DurableReconnect(_) => name::DHNC,
            Self::AllocationSize(_) => name::ALSI,
            Self::QueryMaximalAccess(_) => name::MXAC,
            Self::Timewarp(_) => name::TWRP,
            Self::QueryOnDiskId => name::QFID,
            Self::Lease(_) | Self::LeaseV2(_) => name::RQLS,
            Self::DurableRequestV2(_) => name::DH2Q,
            Self::DurableReconnectV2(_) => name::DH2C,
            Self::AppInstanceId(_) => name::APP_INSTANCE_ID,
            Self::AppInstanceVersion(_) => name::APP_INSTANCE_VERSION,
            Self::Svhdx(_) => name::SVHDX,
            Self::Posix { .. } => name::POSIX,
            Self::Operation(_) => name::FREVO_OPERATION,
            Self::Aapl(_) => name::AAPL,
            Self::Unknown { name, .. } => name,
        }
    }

    /// Appends the context's data to `w`.
    pub fn encode_data(&self, w: &mut Writer<'_>) {
        match self {
            Self::ExtendedAttributes(data)
            | Self::SecurityDescriptor(data)
            | Self::Svhdx(data)
            | Self::Aapl(data)
            | Self::Unknown { data, .. } => _ = w.bytes(data),
            Self::DurableRequest => _ = w.zeros(16),
            Self::DurableReconnect(file_id) => file_id.encode(w),
            Self::AllocationSize(size) => _ = w.u64(*size),
            Self::QueryMaximalAccess(None) | Self::QueryOnDiskId => {}
            Self::QueryMaximalAccess(Some(time)) | Self::Timewarp(time) => _ = w.u64(time.0),
            Self::Lease(lease) => lease.encode(w),
            Self::LeaseV2(lease) => lease.encode(w),
            Self::DurableRequestV2(request) => request.encode(w),
            Self::DurableReconnectV2(reconnect) => reconnect.encode(w),
            Self::AppInstanceId(id) => _ = w.u16(20).u16(0).bytes(&id.0),
            Self::AppInstanceVersion(version) => {
                w.u16(24).u16(0).u32(0).u64(version.high).u64(version.low);
            }
            Self::Posix { mode } => _ = w.u32(*mode),
            Self::Operation(id) => id.encode(w),
        }
    }
}

fn sized<const N: usize>(data: &[u8], what: &'static str) -> Parsed<[u8; N]> {
    data.try_into().map_err(|_| Malformed::new(what))
}

fn structure_size(r: &mut Reader<'_>, size: u16) -> Parsed<()> {
    if r.u16("create context StructureSize")? != size {
        return Err(Malformed::new("create context StructureSize"));
    }
    r.skip(2, "create context Reserved")
}
