//! Access control entries and lists, MS-DTYP 2.4.4 and 2.4.5.

use super::descriptor::TooLarge;
use super::{AccessMask, Guid, Sid};
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::{bit_set, open_enum};
use alloc::vec::Vec;

open_enum! {
    /// AceType: the effect of an entry, MS-DTYP 2.4.4.1.
    AceType(u8) {
        /// ACCESS_ALLOWED_ACE_TYPE
        ACCESS_ALLOWED = 0x00,
        /// ACCESS_DENIED_ACE_TYPE
        ACCESS_DENIED = 0x01,
        /// SYSTEM_AUDIT_ACE_TYPE
        SYSTEM_AUDIT = 0x02,
        /// SYSTEM_ALARM_ACE_TYPE
        SYSTEM_ALARM = 0x03,
        /// ACCESS_ALLOWED_COMPOUND_ACE_TYPE
        ACCESS_ALLOWED_COMPOUND = 0x04,
        /// ACCESS_ALLOWED_OBJECT_ACE_TYPE
        ACCESS_ALLOWED_OBJECT = 0x05,
        /// ACCESS_DENIED_OBJECT_ACE_TYPE
        ACCESS_DENIED_OBJECT = 0x06,
        /// SYSTEM_AUDIT_OBJECT_ACE_TYPE
        SYSTEM_AUDIT_OBJECT = 0x07,
        /// SYSTEM_ALARM_OBJECT_ACE_TYPE
        SYSTEM_ALARM_OBJECT = 0x08,
        /// ACCESS_ALLOWED_CALLBACK_ACE_TYPE
        ACCESS_ALLOWED_CALLBACK = 0x09,
        /// ACCESS_DENIED_CALLBACK_ACE_TYPE
        ACCESS_DENIED_CALLBACK = 0x0A,
        /// ACCESS_ALLOWED_CALLBACK_OBJECT_ACE_TYPE
        ACCESS_ALLOWED_CALLBACK_OBJECT = 0x0B,
        /// ACCESS_DENIED_CALLBACK_OBJECT_ACE_TYPE
        ACCESS_DENIED_CALLBACK_OBJECT = 0x0C,
        /// SYSTEM_AUDIT_CALLBACK_ACE_TYPE
        SYSTEM_AUDIT_CALLBACK = 0x0D,
        /// SYSTEM_ALARM_CALLBACK_ACE_TYPE
        SYSTEM_ALARM_CALLBACK = 0x0E,
        /// SYSTEM_AUDIT_CALLBACK_OBJECT_ACE_TYPE
        SYSTEM_AUDIT_CALLBACK_OBJECT = 0x0F,
        /// SYSTEM_ALARM_CALLBACK_OBJECT_ACE_TYPE
        SYSTEM_ALARM_CALLBACK_OBJECT = 0x10,
        /// SYSTEM_MANDATORY_LABEL_ACE_TYPE
        SYSTEM_MANDATORY_LABEL = 0x11,
        /// SYSTEM_RESOURCE_ATTRIBUTE_ACE_TYPE
        SYSTEM_RESOURCE_ATTRIBUTE = 0x12,
        /// SYSTEM_SCOPED_POLICY_ID_ACE_TYPE
        SYSTEM_SCOPED_POLICY_ID = 0x13,
    }
}

impl AceType {
    /// True if an entry of this type has GUIDs between its mask and its SID.
    const fn is_object(self) -> bool {
        matches!(self.0, 0x05..=0x08 | 0x0B | 0x0C | 0x0F | 0x10)
    }

    /// True if an entry of this type consists of a mask, a SID and data of the type.
    const fn is_plain(self) -> bool {
        matches!(self.0, 0x00..=0x03 | 0x09 | 0x0A | 0x0D | 0x0E | 0x11..=0x13)
    }
}

bit_set! {
    /// Inheritance and audit flags of an entry, MS-DTYP 2.4.4.1.
    AceFlags(u8) {
        /// OBJECT_INHERIT_ACE
        OBJECT_INHERIT = 0x01,
        /// CONTAINER_INHERIT_ACE
        CONTAINER_INHERIT = 0x02,
        /// NO_PROPAGATE_INHERIT_ACE
        NO_PROPAGATE_INHERIT = 0x04,
        /// INHERIT_ONLY_ACE
        INHERIT_ONLY = 0x08,
        /// INHERITED_ACE
        INHERITED = 0x10,
        /// SUCCESSFUL_ACCESS_ACE_FLAG
        SUCCESSFUL_ACCESS = 0x40,
        /// FAILED_ACCESS_ACE_FLAG
        FAILED_ACCESS = 0x80,
    }
}

/// An access control entry. Encoding a parsed entry gives its original bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ace {
    /// AceType
    pub kind: AceType,
    /// AceFlags
    pub flags: AceFlags,
    /// The part behind the header.
    pub body: AceBody,
}

/// The part of an entry after its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AceBody {
    /// Most types: MS-DTYP 2.4.4.2, .4, .6, .7, .10, .12, .13, .15, .16.
    Plain {
        /// Mask
        mask: AccessMask,
        /// Sid
        sid: Sid,
        /// The condition or attribute of types that have one, else empty.
        data: Vec<u8>,
    },
    /// The object types: MS-DTYP 2.4.4.3, .5, .8, .9, .11, .14.
    Object {
        /// Mask
        mask: AccessMask,
        /// ObjectType
        object_type: Option<Guid>,
        /// InheritedObjectType
        inherited_object_type: Option<Guid>,
        /// Sid
        sid: Sid,
        /// The condition of the callback types, else empty.
        data: Vec<u8>,
    },
    /// The bytes of an unknown type.
    Opaque(Vec<u8>),
}

const HEADER: usize = 4;
/// The shortest entry with a mask, which all types have.
const MIN_ACE: usize = 8;
const OBJECT_TYPE_PRESENT: u32 = 1;
const INHERITED_OBJECT_TYPE_PRESENT: u32 = 2;

impl Ace {
    /// Makes an entry that allows `mask` to `sid`.
    pub const fn allow(flags: AceFlags, mask: AccessMask, sid: Sid) -> Self {
        let body = AceBody::Plain { mask, sid, data: Vec::new() };
        Self { kind: AceType::ACCESS_ALLOWED, flags, body }
    }

    /// Makes an entry that denies `mask` to `sid`.
    pub const fn deny(flags: AceFlags, mask: AccessMask, sid: Sid) -> Self {
        let body = AceBody::Plain { mask, sid, data: Vec::new() };
        Self { kind: AceType::ACCESS_DENIED, flags, body }
    }

    /// Returns the entry's SID; None for an unknown type.
    pub const fn sid(&self) -> Option<&Sid> {
        match &self.body {
            AceBody::Plain { sid, .. } | AceBody::Object { sid, .. } => Some(sid),
            AceBody::Opaque(_) => None,
        }
    }

    /// Returns the entry's rights; None for an unknown type.
    pub const fn mask(&self) -> Option<AccessMask> {
        match &self.body {
            AceBody::Plain { mask, .. } | AceBody::Object { mask, .. } => Some(*mask),
            AceBody::Opaque(_) => None,
        }
    }

    /// Returns the length of the encoding in bytes, a multiple of four.
    pub fn encoded_len(&self) -> usize {
        let body = match &self.body {
            AceBody::Plain { sid, data, .. } => sum([4, sid.encoded_len(), data.len()]),
            AceBody::Object { object_type, inherited_object_type, sid, data, .. } => {
                let guid = |guid: &Option<Guid>| if guid.is_some() { 16 } else { 0 };
                sum([
                    8,
                    guid(object_type),
                    guid(inherited_object_type),
                    sid.encoded_len(),
                    data.len(),
                ])
            }
            AceBody::Opaque(data) => data.len(),
        };
        body.max(MIN_ACE - HEADER)
            .saturating_add(HEADER)
            .checked_next_multiple_of(4)
            .unwrap_or(usize::MAX)
    }

    fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        let what = "ACE";
        let kind = AceType(r.u8(what)?);
        let flags = AceFlags(r.u8(what)?);
        let size = usize::from(r.u16(what)?);
        if size < MIN_ACE || !size.is_multiple_of(4) {
            return Err(Malformed::new("AceSize"));
        }
        let body = r.take(size.saturating_sub(HEADER), "AceSize")?;
        Ok(Self { kind, flags, body: read_body(kind, body)? })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), TooLarge> {
        let size = self.encoded_len();
        let start = w.offset();
        w.u8(self.kind.0).u8(self.flags.0).u16(u16::try_from(size).map_err(|_| TooLarge)?);
        match &self.body {
            AceBody::Plain { mask, sid, data } => {
                w.u32(mask.0);
                sid.encode(w);
                w.bytes(data);
            }
            AceBody::Object { mask, object_type, inherited_object_type, sid, data } => {
                let present = |guid: &Option<Guid>, bit| if guid.is_some() { bit } else { 0 };
                w.u32(mask.0).u32(
                    present(object_type, OBJECT_TYPE_PRESENT)
                        | present(inherited_object_type, INHERITED_OBJECT_TYPE_PRESENT),
                );
                for guid in [object_type, inherited_object_type].into_iter().flatten() {
                    w.bytes(&guid.0);
                }
                sid.encode(w);
                w.bytes(data);
            }
            AceBody::Opaque(data) => {
                w.bytes(data);
            }
        }
        w.zeros(start.saturating_add(size).saturating_sub(w.offset()));
        Ok(())
    }
}

fn sum<const N: usize>(parts: [usize; N]) -> usize {
    parts.into_iter().fold(0, usize::saturating_add)
}

fn read_body(kind: AceType, body: &[u8]) -> Parsed<AceBody> {
    let what = "ACE";
    let mut r = Reader::new(body);
    if kind.is_plain() {
        let mask = AccessMask(r.u32(what)?);
        return Ok(AceBody::Plain { mask, sid: read_named_sid(&mut r)?, data: r.rest().to_vec() });
    }
    if !kind.is_object() {
        return Ok(AceBody::Opaque(body.to_vec()));
    }
    let mask = AccessMask(r.u32(what)?);
    let present = r.u32(what)?;
    let mut guid =
        |bit| if present & bit == 0 { Ok(None) } else { r.array(what).map(Guid).map(Some) };
    let object_type = guid(OBJECT_TYPE_PRESENT)?;
    let inherited_object_type = guid(INHERITED_OBJECT_TYPE_PRESENT)?;
    let sid = read_named_sid(&mut r)?;
    Ok(AceBody::Object { mask, object_type, inherited_object_type, sid, data: r.rest().to_vec() })
}

/// Reads a SID with sub-authorities. A SID without them means nobody and is refused in a security
/// descriptor.
pub(super) fn read_named_sid(r: &mut Reader<'_>) -> Parsed<Sid> {
    let sid = Sid::read(r)?;
    if sid.sub_authorities().is_empty() {
        return Err(Malformed::new("SID sub-authority count"));
    }
    Ok(sid)
}

/// An access control list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// The entries, in the order of evaluation.
    pub aces: Vec<Ace>,
}

const ACL_HEADER: usize = 8;
const ACL_REVISION: u8 = 2;
const ACL_REVISION_DS: u8 = 4;

impl Acl {
    /// Makes a list of these entries.
    pub const fn new(aces: Vec<Ace>) -> Self {
        Self { aces }
    }

    /// Returns the length of the encoding in bytes; more than 65,535 cannot be encoded.
    pub fn encoded_len(&self) -> usize {
        self.aces.iter().map(Ace::encoded_len).fold(ACL_HEADER, usize::saturating_add)
    }

    /// Parses the list at the start of `bytes`. All entries lie within AclSize, and AclSize within
    /// `bytes`; room behind the last entry is allowed.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let what = "ACL";
        let mut r = Reader::new(bytes);
        if !(ACL_REVISION..=ACL_REVISION_DS).contains(&r.u8("AclRevision")?) {
            return Err(Malformed::new("AclRevision"));
        }
        r.skip(1, what)?;
        let size = usize::from(r.u16(what)?);
        let count = usize::from(r.u16(what)?);
        r.skip(2, what)?;
        let body = size.checked_sub(ACL_HEADER).ok_or(Malformed::new("AclSize"))?;
        let mut entries = Reader::new(r.take(body, "AclSize")?);
        if count > body / MIN_ACE {
            return Err(Malformed::new("AceCount"));
        }
        let mut aces = Vec::with_capacity(count);
        for _ in 0..count {
            aces.push(Ace::read(&mut entries)?);
        }
        Ok(Self { aces })
    }

    /// Appends the list. AclSize and AceCount never wrap: a list that does not fit 16 bits is
    /// refused, after part of it was appended.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), TooLarge> {
        let size = u16::try_from(self.encoded_len()).map_err(|_| TooLarge)?;
        let count = u16::try_from(self.aces.len()).map_err(|_| TooLarge)?;
        let has_object = self.aces.iter().any(|ace| ace.kind.is_object());
        w.u8(if has_object { ACL_REVISION_DS } else { ACL_REVISION }).u8(0);
        w.u16(size).u16(count).u16(0);
        self.aces.iter().try_for_each(|ace| ace.encode(w))
    }
}
