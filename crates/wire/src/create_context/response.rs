//! Contexts of the response, MS-SMB2 2.2.14.2.

use super::{DurableResponseV2, Lease, LeaseV2, name};
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::AccessMask;
use crate::status::Status;

/// MxAc, 2.2.14.2.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaximalAccess {
    /// The result of the query.
    pub query_status: Status,
    /// The maximal access of the user; valid on success.
    pub maximal_access: AccessMask,
}

/// QFid, 2.2.14.2.9: 32 bytes, the last 16 of them reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDiskId {
    /// The file's number in its volume.
    pub disk_file_id: u64,
    /// The number of the volume.
    pub volume_id: u64,
}

/// The answer to the POSIX create context. SIDs are not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixResponse<'a> {
    /// Number of hard links.
    pub nlink: u32,
    /// The reparse tag, or 0.
    pub reparse_tag: u32,
    /// Permission bits, as in `stat`.
    pub mode: u32,
    /// SID of the owner.
    pub owner_sid: &'a [u8],
    /// SID of the group.
    pub group_sid: &'a [u8],
}

/// One context of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseContext<'a> {
    /// DHnQ: the Open is durable.
    Durable,
    /// MxAc.
    MaximalAccess(MaximalAccess),
    /// QFid.
    OnDiskId(OnDiskId),
    /// RqLs of 32 bytes.
    Lease(Lease),
    /// RqLs of 52 bytes.
    LeaseV2(LeaseV2),
    /// DH2Q: the Open is durable or persistent.
    DurableV2(DurableResponseV2),
    /// A shared virtual disk, MS-RSVD; not parsed.
    Svhdx(&'a [u8]),
    /// POSIX extensions.
    Posix(PosixResponse<'a>),
    /// Apple's extensions; see [`super::AaplQueryResponse::parse`].
    Aapl(&'a [u8]),
    /// Any other context, which is ignored.
    Unknown {
        /// The context's name.
        name: &'a [u8],
        /// The context's data, unparsed.
        data: &'a [u8],
    },
}

impl<'a> ResponseContext<'a> {
    /// Parses the data of a context by its name.
    pub fn parse_typed(name: &'a [u8], data: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        Ok(match name {
            name::DHNQ => Self::Durable,
            name::MXAC => Self::MaximalAccess(MaximalAccess {
                query_status: Status(r.u32("MxAc QueryStatus")?),
                maximal_access: AccessMask(r.u32("MxAc MaximalAccess")?),
            }),
            name::QFID => {
                let disk_file_id = r.u64("QFid DiskFileId")?;
                let volume_id = r.u64("QFid VolumeId")?;
                r.skip(16, "QFid Reserved")?;
                Self::OnDiskId(OnDiskId { disk_file_id, volume_id })
            }
            name::RQLS if data.len() == LeaseV2::LEN => Self::LeaseV2(LeaseV2::parse(data)?),
            name::RQLS => Self::Lease(Lease::parse(data)?),
            name::DH2Q => Self::DurableV2(DurableResponseV2::parse(data)?),
            name::SVHDX => Self::Svhdx(data),
            name::POSIX => Self::Posix(PosixResponse {
                nlink: r.u32("POSIX nlink")?,
                reparse_tag: r.u32("POSIX reparse tag")?,
                mode: r.u32("POSIX mode")?,
                owner_sid: take_sid(r)?,
                group_sid: take_sid(r)?,
            }),
            name::AAPL => Self::Aapl(data),
            name => Self::Unknown { name, data },
        })
    }

    /// Returns the name on the wire.
    pub const fn name(&self) -> &'a [u8] {
        match self {
            Self::Durable => name::DHNQ,
            Self::MaximalAccess(_) => name::MXAC,
            Self::OnDiskId(_) => name::QFID,
            Self::Lease(_) | Self::LeaseV2(_) => name::RQLS,
            Self::DurableV2(_) => name::DH2Q,
            Self::Svhdx(_) => name::SVHDX,
            Self::Posix(_) => name::POSIX,
            Self::Aapl(_) => name::AAPL,
            Self::Unknown { name, .. } => name,
        }
    }

    /// Appends the context's data to `w`.
    pub fn encode_data(&self, w: &mut Writer<'_>) {
        match self {
            Self::Durable => _ = w.u64(0),
            Self::MaximalAccess(access) => {
                w.u32(access.query_status.0).u32(access.maximal_access.0);
            }
            Self::OnDiskId(id) => _ = w.u64(id.disk_file_id).u64(id.volume_id).zeros(16),
            Self::Lease(lease) => lease.encode(w),
            Self::LeaseV2(lease) => lease.encode(w),
            Self::DurableV2(durable) => durable.encode(w),
            Self::Posix(posix) => {
                w.u32(posix.nlink).u32(posix.reparse_tag).u32(posix.mode);
                w.bytes(posix.owner_sid).bytes(posix.group_sid);
            }
            Self::Svhdx(data) | Self::Aapl(data) | Self::Unknown { data, .. } => _ = w.bytes(data),
        }
    }
}

/// Reads a SID, MS-DTYP 2.4.2.2: revision, count, authority, sub-authorities.
fn take_sid<'a>(r: &mut Reader<'a>) -> Parsed<&'a [u8]> {
    let mut ahead = r.clone();
    ahead.skip(1, "SID Revision")?;
    let count = ahead.u8("SID SubAuthorityCount")?;
    if count > 15 {
        return Err(Malformed::new("SID SubAuthorityCount"));
    }
    let length = usize::from(count).saturating_mul(4).saturating_add(8);
    r.take(length, "SID")
}
