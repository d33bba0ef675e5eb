//! Setting a descriptor over an existing one: MS-FSA 2.1.5.17.

use alloc::vec::Vec;

use frevo_wire::dtyp::{
    Ace, AceBody, AceType, Acl, SdControl, SecurityDescriptor, SecurityInformation, Sid,
};

use super::check::map_generic;
use super::{Privileges, Token};

/// The reason for which a descriptor is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// INVALID_OWNER: no owner, or one that the token may not set.
    Owner,
    /// INVALID_PRIMARY_GROUP: no group, or one that the token may not set.
    Group,
    /// INVALID_ACL: the list would be too long.
    List,
}

/// True if `token` may make `owner` the owner of an object (MS-FSA 2.1.5.17, "in an
/// implementation-specific manner"): itself, one of its groups, or with SeRestorePrivilege any SID.
///
/// Windows: only groups marked SE_GROUP_OWNER. A group as owner gives its members no more than the
/// list could give them.
pub fn owner_allowed(owner: &Sid, token: &Token) -> bool {
    token.contains(owner) || token.holds(Privileges::RESTORE)
}

/// Returns `old` with the parts of `new` that `parts` names.
///
/// # Errors
/// If the owner or group is missing, or `token` may not set it.
pub fn merge(
    old: &SecurityDescriptor,
    new: &SecurityDescriptor,
    parts: SecurityInformation,
    token: &Token,
) -> Result<SecurityDescriptor, Refused> {
    let mut merged = old.clone();
    merged.control |= SdControl::SELF_RELATIVE;
    if parts.contains(SecurityInformation::OWNER) {
        let owner = new.owner.ok_or(Refused::Owner)?;
        if old.owner != Some(owner) && !owner_allowed(&owner, token) {
            return Err(Refused::Owner);
        }
        merged.owner = Some(owner);
        take(&mut merged, new, SdControl::OWNER_DEFAULTED);
    }
    if parts.contains(SecurityInformation::GROUP) {
        merged.group = Some(new.group.ok_or(Refused::Group)?);
        take(&mut merged, new, SdControl::GROUP_DEFAULTED);
    }
    if parts.contains(SecurityInformation::DACL) {
        set_dacl(&mut merged, new, parts);
    }
    if parts.contains(SecurityInformation::SACL) {
        set_sacl(&mut merged, new, parts);
    }
    for (part, kind) in [
        (SecurityInformation::LABEL, AceType::SYSTEM_MANDATORY_LABEL),
        (SecurityInformation::ATTRIBUTE, AceType::SYSTEM_RESOURCE_ATTRIBUTE),
        (SecurityInformation::SCOPE, AceType::SYSTEM_SCOPED_POLICY_ID),
    ] {
        if parts.contains(part) && !parts.contains(SecurityInformation::SACL) {
            set_kind(&mut merged, new, kind);
        }
    }
    Ok(merged)
}

fn take(merged: &mut SecurityDescriptor, new: &SecurityDescriptor, bits: SdControl) {
    merged.control = merged.control.without(bits) | (new.control & bits);
}

/// MS-DTYP 2.4.6: a list counts as inherited automatically if the request sets both the flag and
/// the request bit for it. The request bit is not stored.
fn set_dacl(merged: &mut SecurityDescriptor, new: &SecurityDescriptor, parts: SecurityInformation) {
    let bits = SdControl::DACL_DEFAULTED | SdControl::DACL_PROTECTED;
    take(merged, new, bits | SdControl::DACL_AUTO_INHERITED);
    let asked = SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED;
    if !new.control.contains(asked) {
        merged.control = merged.control.without(SdControl::DACL_AUTO_INHERITED);
    }
    merged.control = merged.control.without(asked) | SdControl::DACL_PRESENT;
    if parts.contains(SecurityInformation::PROTECTED_DACL) {
        merged.control |= SdControl::DACL_PROTECTED;
    } else if parts.contains(SecurityInformation::UNPROTECTED_DACL) {
        merged.control = merged.control.without(SdControl::DACL_PROTECTED);
    }
    merged.dacl.clone_from(&new.dacl);
    if let Some(dacl) = &mut merged.dacl {
        map_all(dacl);
    }
}

fn set_sacl(merged: &mut SecurityDescriptor, new: &SecurityDescriptor, parts: SecurityInformation) {
    let bits = SdControl::SACL_DEFAULTED | SdControl::SACL_PROTECTED;
    take(merged, new, bits | SdControl::SACL_AUTO_INHERITED | SdControl::SACL_PRESENT);
    let asked = SdControl::SACL_COMPUTED_INHERITANCE_REQUIRED;
    if !new.control.contains(asked) {
        merged.control = merged.control.without(SdControl::SACL_AUTO_INHERITED);
    }
    merged.control = merged.control.without(asked);
    if parts.contains(SecurityInformation::PROTECTED_SACL) {
        merged.control |= SdControl::SACL_PROTECTED;
    } else if parts.contains(SecurityInformation::UNPROTECTED_SACL) {
        merged.control = merged.control.without(SdControl::SACL_PROTECTED);
    }
    merged.sacl.clone_from(&new.sacl);
}

/// Replaces the present entries of one type.
fn set_kind(merged: &mut SecurityDescriptor, new: &SecurityDescriptor, kind: AceType) {
    let of = |acl: &Option<Acl>, is: bool| -> Vec<Ace> {
        let aces = acl.as_ref().map_or(&[][..], |acl| &acl.aces);
        aces.iter().filter(|ace| (ace.kind == kind) == is).cloned().collect()
    };
    let mut aces = of(&merged.sacl, false);
    aces.extend(of(&new.sacl, true));
    if aces.is_empty() {
        merged.sacl = None;
        merged.control = merged.control.without(SdControl::SACL_PRESENT);
    } else {
        merged.sacl = Some(Acl::new(aces));
        merged.control |= SdControl::SACL_PRESENT;
    }
}

/// Maps generic rights, which mean the same for files and directories, in all entries, also those
/// for children.
pub(super) fn map_all(acl: &mut Acl) {
    for ace in &mut acl.aces {
        match &mut ace.body {
            AceBody::Plain { mask, .. } | AceBody::Object { mask, .. } => {
                *mask = map_generic(*mask);
            }
            AceBody::Opaque(_) => {}
        }
    }
}

/// True if a list is in canonical order: explicit entries before inherited ones, and denying
/// entries first among the explicit ones. Lists in another order are stored and evaluated as they
/// are; Windows tools report them as damaged.
pub fn is_canonical(acl: &Acl) -> bool {
    use frevo_wire::dtyp::AceFlags;
    let rank = |ace: &Ace| match (ace.flags.contains(AceFlags::INHERITED), ace.kind) {
        (true, _) => 2,
        (false, AceType::ACCESS_DENIED | AceType::ACCESS_DENIED_OBJECT) => 0,
        (false, _) => 1,
    };
    acl.aces.iter().map(rank).is_sorted()
}
