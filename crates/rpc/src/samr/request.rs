//! Arguments of the calls.

use super::super::limits::MAX_LOOKUPS;
use super::{CONNECT, CONNECT2, CONNECT4, CONNECT5, ENUMERATE_DOMAINS, ENUMERATE_USERS};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::{AccessMask, Sid};
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::NdrReader;

/// Arguments of SamrConnect and its successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// DesiredAccess
    pub desired: AccessMask,
    /// True if InVersion is the only existing version; only SamrConnect5 has the field.
    pub is_known_version: bool,
}

impl Connect {
    /// Parses the stub data of one of the four.
    pub fn parse(stub: &[u8], opnum: u16) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        if opnum == CONNECT {
            if r.pointer("SamrConnect ServerName")? {
                r.u16("SamrConnect ServerName")?;
            }
        } else {
            r.unique_string("SamrConnect ServerName")?;
        }
        debug_assert!(matches!(opnum, CONNECT | CONNECT2 | CONNECT4 | CONNECT5));
        if opnum == CONNECT4 {
            // MS-SAMR 3.1.5.1.2: ClientRevision is ignored, so it is only skipped.
            r.u32("SamrConnect4 ClientRevision")?;
        }
        let desired = AccessMask(r.u32("SamrConnect DesiredAccess")?);
        let mut is_known_version = true;
        if opnum == CONNECT5 {
            let version = r.u32("SamrConnect5 InVersion")?;
            is_known_version = version == 1;
            if r.u32("SamrConnect5 InRevisionInfo")? != version {
                return Err(Malformed::new("SamrConnect5 InRevisionInfo"));
            }
            if is_known_version {
                r.u32("SAMPR_REVISION_INFO_V1 Revision")?;
                r.u32("SAMPR_REVISION_INFO_V1 SupportedFeatures")?;
            }
        }
        Ok(Self { desired, is_known_version })
    }
}

/// A handle, and a number if the call takes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnHandle {
    /// The handle of the object.
    pub handle: ContextHandle,
    /// An information class, a RID or which parts of a descriptor.
    pub number: u32,
}

impl OnHandle {
    /// Of a call with nothing but a handle.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        Ok(Self { handle: NdrReader::new(stub).handle("SAMPR_HANDLE")?, number: 0 })
    }

    /// Of a call with an information class, which is an enumeration.
    pub fn parse_class(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SAMPR_HANDLE")?;
        Ok(Self { handle, number: r.u16("SAMR information class")?.into() })
    }

    /// Of a call with an unsigned long.
    pub fn parse_number(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SAMPR_HANDLE")?;
        Ok(Self { handle, number: r.u32("SAMR number")? })
    }
}

/// Arguments of SamrLookupDomainInSamServer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupDomain {
    /// ServerHandle
    pub handle: ContextHandle,
    /// Name; none when it is no UTF-16.
    pub name: Option<String>,
}

impl LookupDomain {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "SamrLookupDomainInSamServer Name";
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrLookupDomainInSamServer ServerHandle")?;
        let head = r.unicode_head(WHAT)?;
        Ok(Self { handle, name: r.unicode(head, WHAT)?.decode().ok() })
    }
}

/// Arguments of SamrOpenDomain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenDomain {
    /// ServerHandle
    pub handle: ContextHandle,
    /// DesiredAccess
    pub desired: AccessMask,
    /// DomainId
    pub domain: Sid,
}

impl OpenDomain {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrOpenDomain ServerHandle")?;
        let desired = AccessMask(r.u32("SamrOpenDomain DesiredAccess")?);
        Ok(Self { handle, desired, domain: r.sid("SamrOpenDomain DomainId")? })
    }
}

/// Arguments of SamrOpenUser, SamrOpenGroup and SamrOpenAlias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAccount {
    /// DomainHandle
    pub handle: ContextHandle,
    /// DesiredAccess
    pub desired: AccessMask,
    /// UserId, GroupId or AliasId
    pub rid: u32,
}

impl OpenAccount {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrOpen DomainHandle")?;
        let desired = AccessMask(r.u32("SamrOpen DesiredAccess")?);
        Ok(Self { handle, desired, rid: r.u32("SamrOpen RID")? })
    }
}

/// Arguments of the calls that enumerate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumerate {
    /// ServerHandle or DomainHandle
    pub handle: ContextHandle,
    /// EnumerationContext: how many were told before.
    pub context: u32,
    /// UserAccountControl: users that have none of these bits are left out.
    pub filter: u32,
    /// PreferedMaximumLength
    pub max_len: u32,
}

impl Enumerate {
    /// Parses the stub data.
    pub fn parse(stub: &[u8], opnum: u16) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrEnumerate handle")?;
        let context = r.u32("SamrEnumerate EnumerationContext")?;
        debug_assert!(opnum >= ENUMERATE_DOMAINS);
        let filter = if opnum == ENUMERATE_USERS {
            r.u32("SamrEnumerateUsersInDomain UserAccountControl")?
        } else {
            0
        };
        Ok(Self { handle, context, filter, max_len: r.u32("SamrEnumerate PreferedMaximumLength")? })
    }
}

/// Arguments of SamrLookupNamesInDomain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupNames {
    /// DomainHandle
    pub handle: ContextHandle,
    /// Names; none where one is no UTF-16.
    pub names: Vec<Option<String>>,
}

impl LookupNames {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "SamrLookupNamesInDomain Names";
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrLookupNamesInDomain DomainHandle")?;
        let count = counted(&mut r, 8, WHAT)?;
        let heads = (0..count).map(|_| r.unicode_head(WHAT)).collect::<Parsed<Vec<_>>>()?;
        let name = |head| r.unicode(head, WHAT).map(|name| name.decode().ok());
        Ok(Self { handle, names: heads.into_iter().map(name).collect::<Parsed<Vec<_>>>()? })
    }
}

/// Arguments of SamrLookupIdsInDomain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupIds {
    /// DomainHandle
    pub handle: ContextHandle,
    /// RelativeIds
    pub rids: Vec<u32>,
}

impl LookupIds {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "SamrLookupIdsInDomain RelativeIds";
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrLookupIdsInDomain DomainHandle")?;
        let count = counted(&mut r, 4, WHAT)?;
        Ok(Self { handle, rids: (0..count).map(|_| r.u32(WHAT)).collect::<Parsed<Vec<_>>>()? })
    }
}

/// Reads a count and a conformant varying array of that many entries, at most the numbers of
/// MS-SAMR 3.1.5.11.2 and 3.1.5.11.3.
fn counted(r: &mut NdrReader<'_>, min_size: usize, what: &'static str) -> Parsed<usize> {
    let count = r.u32(what)?;
    let count = r.varying(count, min_size, what)?;
    if count > MAX_LOOKUPS { Err(Malformed::new(what)) } else { Ok(count) }
}

/// Arguments of SamrGetAliasMembership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetAliasMembership {
    /// DomainHandle
    pub handle: ContextHandle,
    /// SidArray
    pub sids: Vec<Sid>,
}

impl GetAliasMembership {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "SAMPR_PSID_ARRAY";
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrGetAliasMembership DomainHandle")?;
        let count = r.u32(WHAT)?;
        let mut sids = Vec::new();
        if !r.pointer(WHAT)? {
            return if count == 0 { Ok(Self { handle, sids }) } else { Err(Malformed::new(WHAT)) };
        }
        // MS-SAMR 2.2.7.5 allows 1,024 entries, none of them null. Each takes at least 16 bytes
        // (pointer, count and the shortest SID).
        let count = r.array(count, 16, WHAT)?;
        if count > MAX_SIDS {
            return Err(Malformed::new(WHAT));
        }
        for _ in 0..count {
            if !r.pointer(WHAT)? {
                return Err(Malformed::new(WHAT));
            }
        }
        for _ in 0..count {
            sids.push(r.sid(WHAT)?);
        }
        Ok(Self { handle, sids })
    }
}

/// range(0, 1024) of SAMPR_PSID_ARRAY's Count.
const MAX_SIDS: usize = 1024;
