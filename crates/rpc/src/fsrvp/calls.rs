//! The arguments of the calls, and their replies.

use super::{
    ABORT_SHADOW_COPY_SET, ADD_TO_SHADOW_COPY_SET, COMMIT_SHADOW_COPY_SET, Context,
    DELETE_SHARE_MAPPING, EXPOSE_SHADOW_COPY_SET, GET_SHARE_MAPPING, GET_SUPPORTED_VERSION,
    HResult, IS_PATH_SHADOW_COPIED, IS_PATH_SUPPORTED, PREPARE_SHADOW_COPY_SET,
    RECOVERY_COMPLETE_SHADOW_COPY_SET, SET_CONTEXT, START_SHADOW_COPY_SET,
};
use crate::FaultStatus;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::{FileTime, Guid};
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// The arguments of a call, MS-FSRVP 3.1.4. GUIDs of zeros stand for NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// GetSupportedVersion
    GetSupportedVersion,
    /// SetContext
    SetContext(Context),
    /// StartShadowCopySet
    Start {
        /// ClientShadowCopySetId
        client_set: Guid,
    },
    /// AddToShadowCopySet
    Add {
        /// ClientShadowCopyId, which is ignored (MS-FSRVP 3.1.4.4 note 8).
        client_copy: Guid,
        /// ShadowCopySetId
        set: Guid,
        /// ShareName, in UNC format.
        share: String,
    },
    /// CommitShadowCopySet
    Commit {
        /// ShadowCopySetId
        set: Guid,
        /// TimeOutInMilliseconds
        timeout_ms: u32,
    },
    /// ExposeShadowCopySet
    Expose {
        /// ShadowCopySetId
        set: Guid,
        /// TimeOutInMilliseconds
        timeout_ms: u32,
    },
    /// RecoveryCompleteShadowCopySet
    RecoveryComplete {
        /// ShadowCopySetId
        set: Guid,
    },
    /// AbortShadowCopySet
    Abort {
        /// ShadowCopySetId
        set: Guid,
    },
    /// IsPathSupported
    IsPathSupported {
        /// ShareName, in UNC format.
        share: String,
    },
    /// IsPathShadowCopied
    IsPathShadowCopied {
        /// ShareName, in UNC format.
        share: String,
    },
    /// GetShareMapping
    GetShareMapping {
        /// ShadowCopyId
        copy: Guid,
        /// ShadowCopySetId
        set: Guid,
        /// ShareName, in UNC format.
        share: String,
        /// Level
        level: u32,
    },
    /// DeleteShareMapping
    DeleteShareMapping {
        /// ShadowCopySetId
        set: Guid,
        /// ShadowCopyId
        copy: Guid,
        /// ShareName, in UNC format.
        share: String,
    },
    /// PrepareShadowCopySet
    Prepare {
        /// ShadowCopySetId
        set: Guid,
        /// TimeOutInMilliseconds
        timeout_ms: u32,
    },
}

fn guid(r: &mut NdrReader<'_>, what: &'static str) -> Parsed<Guid> {
    r.align(4)?;
    r.fixed(what).map(Guid)
}

/// Reads the name of a share. Text that is no UTF-16 is the name of none.
fn share(r: &mut NdrReader<'_>) -> Parsed<String> {
    Ok(r.string("ShareName")?.to_string_lossy())
}

impl Request {
    /// Parses the stub data of a call. Bytes after the arguments are ignored: clients of
    /// GetSupportedVersion and IsPathSupported send some.
    ///
    /// # Errors
    /// OP_RNG_ERROR for a number without a call, NDR for malformed stub data.
    pub fn parse(opnum: u16, stub: &[u8]) -> Result<Self, FaultStatus> {
        let r = &mut NdrReader::new(stub);
        let set_id = "ShadowCopySetId";
        Ok(match opnum {
            GET_SUPPORTED_VERSION => Self::GetSupportedVersion,
            SET_CONTEXT => Self::SetContext(Context(r.u32("Context")?)),
            START_SHADOW_COPY_SET => Self::Start { client_set: guid(r, "ClientShadowCopySetId")? },
            ADD_TO_SHADOW_COPY_SET => Self::Add {
                client_copy: guid(r, "ClientShadowCopyId")?,
                set: guid(r, set_id)?,
                share: share(r)?,
            },
            COMMIT_SHADOW_COPY_SET | EXPOSE_SHADOW_COPY_SET | PREPARE_SHADOW_COPY_SET => {
                let (set, timeout_ms) = (guid(r, set_id)?, r.u32("TimeOutInMilliseconds")?);
                match opnum {
                    COMMIT_SHADOW_COPY_SET => Self::Commit { set, timeout_ms },
                    EXPOSE_SHADOW_COPY_SET => Self::Expose { set, timeout_ms },
                    _ => Self::Prepare { set, timeout_ms },
                }
            }
            RECOVERY_COMPLETE_SHADOW_COPY_SET => Self::RecoveryComplete { set: guid(r, set_id)? },
            ABORT_SHADOW_COPY_SET => Self::Abort { set: guid(r, set_id)? },
            IS_PATH_SUPPORTED => Self::IsPathSupported { share: share(r)? },
            IS_PATH_SHADOW_COPIED => Self::IsPathShadowCopied { share: share(r)? },
            GET_SHARE_MAPPING => Self::GetShareMapping {
                copy: guid(r, "ShadowCopyId")?,
                set: guid(r, set_id)?,
                share: share(r)?,
                level: r.u32("Level")?,
            },
            DELETE_SHARE_MAPPING => Self::DeleteShareMapping {
                set: guid(r, set_id)?,
                copy: guid(r, "ShadowCopyId")?,
                share: share(r)?,
            },
            _ => return Err(FaultStatus::OP_RNG_ERROR),
        })
    }

    /// Returns the number of the call.
    pub const fn opnum(&self) -> u16 {
        match self {
            Self::GetSupportedVersion => GET_SUPPORTED_VERSION,
            Self::SetContext(_) => SET_CONTEXT,
            Self::Start { .. } => START_SHADOW_COPY_SET,
            Self::Add { .. } => ADD_TO_SHADOW_COPY_SET,
            Self::Commit { .. } => COMMIT_SHADOW_COPY_SET,
            Self::Expose { .. } => EXPOSE_SHADOW_COPY_SET,
            Self::RecoveryComplete { .. } => RECOVERY_COMPLETE_SHADOW_COPY_SET,
            Self::Abort { .. } => ABORT_SHADOW_COPY_SET,
            Self::IsPathSupported { .. } => IS_PATH_SUPPORTED,
            Self::IsPathShadowCopied { .. } => IS_PATH_SHADOW_COPIED,
            Self::GetShareMapping { .. } => GET_SHARE_MAPPING,
            Self::DeleteShareMapping { .. } => DELETE_SHARE_MAPPING,
            Self::Prepare { .. } => PREPARE_SHADOW_COPY_SET,
        }
    }

    /// Stub data of a request.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        match self {
            Self::GetSupportedVersion => {}
            Self::SetContext(context) => _ = w.u32(context.0),
            Self::Start { client_set: id }
            | Self::RecoveryComplete { set: id }
            | Self::Abort { set: id } => _ = w.fixed(&id.0),
            Self::Add { client_copy, set, share } => {
                w.fixed(&client_copy.0).fixed(&set.0).string(share);
            }
            Self::Commit { set, timeout_ms }
            | Self::Expose { set, timeout_ms }
            | Self::Prepare { set, timeout_ms } => _ = w.fixed(&set.0).u32(*timeout_ms),
            Self::IsPathSupported { share } | Self::IsPathShadowCopied { share } => {
                w.string(share);
            }
            Self::GetShareMapping { copy, set, share, level } => {
                w.fixed(&copy.0).fixed(&set.0).string(share).u32(*level);
            }
            Self::DeleteShareMapping { set, copy, share } => {
                w.fixed(&set.0).fixed(&copy.0).string(share);
            }
        }
        w.into_stub()
    }
}

/// FSSAGENT_SHARE_MAPPING_1, MS-FSRVP 2.2.1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareMapping {
    /// ShadowCopySetId
    pub set: Guid,
    /// ShadowCopyId
    pub copy: Guid,
    /// ShareNameUNC
    pub share_unc: String,
    /// ShadowCopyShareName; None while the copy is not exposed. MS-FSRVP 3.1.4.6: the name of the share alone.
    pub shadow_copy_share: Option<String>,
    /// CreationTimestamp
    pub created: FileTime,
}

/// The reply to a call that succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// MinVersion and MaxVersion of GetSupportedVersion, which are the same.
    Version(u32),
    /// ZERO alone.
    Done,
    /// pShadowCopySetId or pShadowCopyId.
    Id(Guid),
    /// IsPathSupported: SupportedByThisProvider is true.
    Supported {
        /// OwnerMachineName
        owner: String,
    },
    /// IsPathShadowCopied
    ShadowCopied {
        /// ShadowCopyPresent
        is_present: bool,
        /// ShadowCopyCompatibility
        compatibility: u32,
    },
    /// GetShareMapping of level 1.
    Mapping(ShareMapping),
}

impl Reply {
    /// Stub data of the reply to `request`: a call that fails has NULL and zeros for what it returns.
    pub fn encode(request: &Request, reply: &Result<Self, HResult>) -> Vec<u8> {
        let mut w = NdrWriter::new();
        let known = reply.as_ref().ok();
        match request.opnum() {
            GET_SUPPORTED_VERSION => {
                let version = if let Some(Self::Version(version)) = known { *version } else { 0 };
                w.u32(version).u32(version);
            }
            START_SHADOW_COPY_SET | ADD_TO_SHADOW_COPY_SET => {
                let id = if let Some(Self::Id(id)) = known { *id } else { Guid::default() };
                w.fixed(&id.0);
            }
            IS_PATH_SUPPORTED => match known {
                Some(Self::Supported { owner }) => _ = w.u32(1).unique_string(Some(owner)),
                _ => _ = w.u32(0).unique_string(None),
            },
            IS_PATH_SHADOW_COPIED => match known {
                Some(Self::ShadowCopied { is_present, compatibility }) => {
                    w.u32(u32::from(*is_present)).u32(*compatibility);
                }
                _ => _ = w.u32(0).u32(0),
            },
            GET_SHARE_MAPPING => {
                let mapping = if let Some(Self::Mapping(of)) = known { Some(of) } else { None };
                let level =
                    if let Request::GetShareMapping { level, .. } = request { level } else { &1 };
                encode_mapping(&mut w, *level, mapping);
            }
            _ => {}
        }
        w.u32(reply.as_ref().err().unwrap_or(&HResult::ZERO).0);
        w.into_stub()
    }

    /// Parses the reply to `request`.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(request: &Request, stub: &[u8]) -> Parsed<Result<Self, HResult>> {
        let r = &mut NdrReader::new(stub);
        let reply = match request.opnum() {
            GET_SUPPORTED_VERSION => {
                r.u32("MinVersion")?;
                Some(Self::Version(r.u32("MaxVersion")?))
            }
            START_SHADOW_COPY_SET | ADD_TO_SHADOW_COPY_SET => {
                Some(Self::Id(guid(r, "pShadowCopyId")?))
            }
            IS_PATH_SUPPORTED => {
                r.u32("SupportedByThisProvider")?;
                let owner = r.unique_string("OwnerMachineName")?;
                owner.map(|owner| Self::Supported { owner: owner.to_string_lossy() })
            }
            IS_PATH_SHADOW_COPIED => {
                let is_present = r.u32("ShadowCopyPresent")? != 0;
                let compatibility = r.u32("ShadowCopyCompatibility")?;
                Some(Self::ShadowCopied { is_present, compatibility })
            }
            GET_SHARE_MAPPING => parse_mapping(r)?.map(Self::Mapping),
            _ => Some(Self::Done),
        };
        match (HResult(r.u32("return value")?), reply) {
            (HResult::ZERO, Some(reply)) => Ok(Ok(reply)),
            (HResult::ZERO, None) => Err(Malformed::new("FSRVP reply")),
            (status, _) => Ok(Err(status)),
        }
    }
}

/// Appends FSSAGENT_SHARE_MAPPING, MS-FSRVP 2.2.3.1: the level, and for level 1 a pointer.
fn encode_mapping(w: &mut NdrWriter, level: u32, mapping: Option<&ShareMapping>) {
    w.u32(level);
    if level != 1 {
        return;
    }
    w.pointer(mapping.is_some());
    let Some(mapping) = mapping else { return };
    w.align(8).fixed(&mapping.set.0).fixed(&mapping.copy.0);
    w.pointer(true).pointer(mapping.shadow_copy_share.is_some());
    w.align(8).fixed(&mapping.created.0.to_le_bytes());
    w.string(&mapping.share_unc);
    if let Some(name) = &mapping.shadow_copy_share {
        w.string(name);
    }
}

fn parse_mapping(r: &mut NdrReader<'_>) -> Parsed<Option<ShareMapping>> {
    let what = "FSSAGENT_SHARE_MAPPING";
    if r.u32(what)? != 1 || !r.pointer(what)? {
        return Ok(None);
    }
    r.align(8)?;
    let (set, copy) = (guid(r, what)?, guid(r, what)?);
    let (has_unc, has_name) = (r.pointer(what)?, r.pointer(what)?);
    let created = FileTime(r.u64(what)?);
    let text = |points: bool, r: &mut NdrReader<'_>| {
        points.then(|| r.string(what).map(|text| text.to_string_lossy())).transpose()
    };
    let share_unc = text(has_unc, r)?.unwrap_or_default();
    let shadow_copy_share = text(has_name, r)?;
    Ok(Some(ShareMapping { set, copy, share_unc, shadow_copy_share, created }))
}
