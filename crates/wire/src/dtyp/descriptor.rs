//! Security descriptors in self-relative form, MS-DTYP 2.4.6.

use super::acl::read_named_sid;
use super::{AceType, Acl, Sid};
use crate::bit_set;
use crate::codec::{Malformed, Parsed, Reader, Writer};
use alloc::vec::Vec;
use core::fmt;

bit_set! {
    /// Control of a security descriptor, MS-DTYP 2.4.6.
    SdControl(u16) {
        /// OD
        OWNER_DEFAULTED = 0x0001,
        /// GD
        GROUP_DEFAULTED = 0x0002,
        /// DP
        DACL_PRESENT = 0x0004,
        /// DD
        DACL_DEFAULTED = 0x0008,
        /// SP
        SACL_PRESENT = 0x0010,
        /// SD
        SACL_DEFAULTED = 0x0020,
        /// DT
        DACL_TRUSTED = 0x0040,
        /// SS
        SERVER_SECURITY = 0x0080,
        /// DC
        DACL_COMPUTED_INHERITANCE_REQUIRED = 0x0100,
        /// SC
        SACL_COMPUTED_INHERITANCE_REQUIRED = 0x0200,
        /// DI
        DACL_AUTO_INHERITED = 0x0400,
        /// SI
        SACL_AUTO_INHERITED = 0x0800,
        /// PD
        DACL_PROTECTED = 0x1000,
        /// PS
        SACL_PROTECTED = 0x2000,
        /// RM
        RM_CONTROL_VALID = 0x4000,
        /// SR
        SELF_RELATIVE = 0x8000,
    }
}

bit_set! {
    /// The parts of a security descriptor that a request reads or sets, MS-DTYP 2.4.7.
    SecurityInformation(u32) {
        /// OWNER_SECURITY_INFORMATION
        OWNER = 0x0000_0001,
        /// GROUP_SECURITY_INFORMATION
        GROUP = 0x0000_0002,
        /// DACL_SECURITY_INFORMATION
        DACL = 0x0000_0004,
        /// SACL_SECURITY_INFORMATION
        SACL = 0x0000_0008,
        /// LABEL_SECURITY_INFORMATION
        LABEL = 0x0000_0010,
        /// ATTRIBUTE_SECURITY_INFORMATION
        ATTRIBUTE = 0x0000_0020,
        /// SCOPE_SECURITY_INFORMATION
        SCOPE = 0x0000_0040,
        /// BACKUP_SECURITY_INFORMATION
        BACKUP = 0x0001_0000,
        /// UNPROTECTED_SACL_SECURITY_INFORMATION
        UNPROTECTED_SACL = 0x1000_0000,
        /// UNPROTECTED_DACL_SECURITY_INFORMATION
        UNPROTECTED_DACL = 0x2000_0000,
        /// PROTECTED_SACL_SECURITY_INFORMATION
        PROTECTED_SACL = 0x4000_0000,
        /// PROTECTED_DACL_SECURITY_INFORMATION
        PROTECTED_DACL = 0x8000_0000,
    }
}

/// A list that does not fit the 16 bits of its length. The status is STATUS_BUFFER_TOO_SMALL or
/// STATUS_INVALID_ACL; lengths never wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("access control list longer than 65,535 bytes")
    }
}

impl core::error::Error for TooLarge {}

/// Bytes of the longest security descriptor: its header, two SIDs, and two lists of the largest
/// length.
pub const MAX_SECURITY_DESCRIPTOR: usize = HEADER + 2 * Sid::MAX_SIZE + 2 * 0xFFFF;

const HEADER: usize = 20;

/// A security descriptor.
///
/// A DACL may be absent (DACL_PRESENT clear), present and null (set, but
/// `dacl` is `None`: everyone has every right), or a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityDescriptor {
    /// Control. The encoder sets SELF_RELATIVE, and the PRESENT bit of each list.
    pub control: SdControl,
    /// Sbz1: bits of the resource manager, if RM_CONTROL_VALID is set.
    pub rm_control: u8,
    /// OwnerSid
    pub owner: Option<Sid>,
    /// GroupSid
    pub group: Option<Sid>,
    /// Sacl
    pub sacl: Option<Acl>,
    /// Dacl
    pub dacl: Option<Acl>,
}

/// An encoder of some parts of a descriptor.
type Encode = fn(&SecurityDescriptor, &mut Writer<'_>) -> Result<(), TooLarge>;

impl SecurityDescriptor {
    /// Parses a self-relative security descriptor. The status for an error is
    /// STATUS_INVALID_SECURITY_DESCR.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let what = "security descriptor";
        let mut r = Reader::new(bytes);
        if r.u8(what)? != 1 {
            return Err(Malformed::new("security descriptor revision"));
        }
        let rm_control = r.u8(what)?;
        let control = SdControl(r.u16(what)?);
        let (owner, group) = (r.u32(what)?, r.u32(what)?);
        let (sacl, dacl) = (r.u32(what)?, r.u32(what)?);
        let sid = |offset| at(bytes, offset, |b| read_named_sid(&mut Reader::new(b)));
        let list = |present, offset| {
            // If a control bit says that there is no list, its offset is ignored.
            if control.contains(present) { at(bytes, offset, Acl::parse) } else { Ok(None) }
        };
        // The two lists must not share bytes, because a small message could then describe large
        // lists.
        let lists = acl_size(bytes, sacl).saturating_add(acl_size(bytes, dacl));
        if lists.saturating_add(HEADER) > bytes.len() && control.contains(BOTH_LISTS) {
            return Err(Malformed::new("security descriptor lists overlap"));
        }
        Ok(Self {
            control,
            rm_control,
            owner: sid(owner)?,
            group: sid(group)?,
            sacl: list(SdControl::SACL_PRESENT, sacl)?,
            dacl: list(SdControl::DACL_PRESENT, dacl)?,
        })
    }

    /// True if the DACL is present and null: the object has no protection.
    pub fn has_null_dacl(&self) -> bool {
        self.control.contains(SdControl::DACL_PRESENT) && self.dacl.is_none()
    }

    /// Returns the length of the encoding in bytes.
    pub fn encoded_len(&self) -> usize {
        let sid = |sid: &Option<Sid>| sid.as_ref().map_or(0, Sid::encoded_len);
        let list = |acl: &Option<Acl>| acl.as_ref().map_or(0, Acl::encoded_len);
        [sid(&self.owner), sid(&self.group), list(&self.sacl), list(&self.dacl)]
            .into_iter()
            .fold(HEADER, usize::saturating_add)
    }

    /// Appends the descriptor in the order of files that Windows writes: SACL, DACL, owner, group.
    /// On error `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLarge> {
        self.encode_in(out, Self::encode_lists, Self::encode_sids)
    }

    /// Appends the descriptor in the order of Windows' answers: owner, group, SACL, DACL. On error
    /// `out` is unchanged.
    pub fn encode_answer(&self, out: &mut Vec<u8>) -> Result<(), TooLarge> {
        self.encode_in(out, Self::encode_sids, Self::encode_lists)
    }

    fn encode_in(&self, out: &mut Vec<u8>, first: Encode, second: Encode) -> Result<(), TooLarge> {
        let start = out.len();
        let w = &mut Writer::new(out);
        self.encode_head(w);
        let result = first(self, w).and_then(|()| second(self, w));
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn encode_head(&self, w: &mut Writer<'_>) {
        let mut control = self.control | SdControl::SELF_RELATIVE;
        if self.sacl.is_some() {
            control |= SdControl::SACL_PRESENT;
        }
        if self.dacl.is_some() {
            control |= SdControl::DACL_PRESENT;
        }
        w.u8(1).u8(self.rm_control).u16(control.0).zeros(16);
    }

    fn encode_lists(&self, w: &mut Writer<'_>) -> Result<(), TooLarge> {
        for (acl, field) in [(&self.sacl, 12), (&self.dacl, 16)] {
            if let Some(acl) = acl {
                w.patch_u32(field, offset(w)?);
                acl.encode(w)?;
            }
        }
        Ok(())
    }

    fn encode_sids(&self, w: &mut Writer<'_>) -> Result<(), TooLarge> {
        for (sid, field) in [(&self.owner, 4), (&self.group, 8)] {
            if let Some(sid) = sid {
                w.patch_u32(field, offset(w)?);
                sid.encode(w);
            }
        }
        Ok(())
    }

    /// Returns the parts that `information` names, as QUERY_INFO answers them. If the SACL is not
    /// asked for as a whole, its label, attributes or policy can be.
    pub fn select(&self, information: SecurityInformation) -> Self {
        let wants = |part| information.contains(part);
        let mut dropped = SdControl::EMPTY;
        if !wants(SecurityInformation::OWNER) {
            dropped |= SdControl::OWNER_DEFAULTED;
        }
        if !wants(SecurityInformation::GROUP) {
            dropped |= SdControl::GROUP_DEFAULTED;
        }
        if !wants(SecurityInformation::DACL) {
            dropped |= DACL_BITS;
        }
        let sacl = self.select_sacl(information);
        if sacl.is_none() && !wants(SecurityInformation::SACL) {
            dropped |= SACL_BITS;
        }
        Self {
            control: self.control.without(dropped),
            rm_control: self.rm_control,
            owner: self.owner.filter(|_| wants(SecurityInformation::OWNER)),
            group: self.group.filter(|_| wants(SecurityInformation::GROUP)),
            sacl,
            dacl: if wants(SecurityInformation::DACL) { self.dacl.clone() } else { None },
        }
    }

    fn select_sacl(&self, information: SecurityInformation) -> Option<Acl> {
        let sacl = self.sacl.as_ref()?;
        if information.contains(SecurityInformation::SACL) {
            return Some(sacl.clone());
        }
        let parts = [
            (SecurityInformation::LABEL, AceType::SYSTEM_MANDATORY_LABEL),
            (SecurityInformation::ATTRIBUTE, AceType::SYSTEM_RESOURCE_ATTRIBUTE),
            (SecurityInformation::SCOPE, AceType::SYSTEM_SCOPED_POLICY_ID),
        ];
        let wanted =
            |kind| parts.iter().any(|(part, of)| information.contains(*part) && *of == kind);
        let aces: Vec<_> = sacl.aces.iter().filter(|ace| wanted(ace.kind)).cloned().collect();
        if aces.is_empty() { None } else { Some(Acl::new(aces)) }
    }
}

const DACL_BITS: SdControl = SdControl(
    SdControl::DACL_PRESENT.0
        | SdControl::DACL_DEFAULTED.0
        | SdControl::DACL_TRUSTED.0
        | SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED.0
        | SdControl::DACL_AUTO_INHERITED.0
        | SdControl::DACL_PROTECTED.0,
);

const BOTH_LISTS: SdControl = SdControl(SdControl::SACL_PRESENT.0 | SdControl::DACL_PRESENT.0);

const SACL_BITS: SdControl = SdControl(
    SdControl::SACL_PRESENT.0
        | SdControl::SACL_DEFAULTED.0
        | SdControl::SACL_COMPUTED_INHERITANCE_REQUIRED.0
        | SdControl::SACL_AUTO_INHERITED.0
        | SdControl::SACL_PROTECTED.0,
);

/// Parses the structure at an offset; None for the offset 0.
fn at<T>(bytes: &[u8], offset: u32, parse: impl FnOnce(&[u8]) -> Parsed<T>) -> Parsed<Option<T>> {
    if offset == 0 {
        return Ok(None);
    }
    let malformed = Malformed::new("security descriptor offset");
    let offset = usize::try_from(offset).map_err(|_| malformed)?;
    if offset < HEADER {
        return Err(malformed);
    }
    parse(bytes.get(offset..).ok_or(malformed)?).map(Some)
}

/// Returns AclSize of the list at `offset`; 0 without a list.
fn acl_size(bytes: &[u8], offset: u32) -> usize {
    let list = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    match list {
        Some([_, _, low, high, ..]) if offset != 0 => {
            usize::from(u16::from_le_bytes([*low, *high]))
        }
        _ => 0,
    }
}

fn offset(w: &Writer<'_>) -> Result<u32, TooLarge> {
    u32::try_from(w.offset()).map_err(|_| TooLarge)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
