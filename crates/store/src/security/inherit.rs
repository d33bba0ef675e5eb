//! The descriptor of a new object: MS-DTYP 2.5.3.4.

use alloc::vec;
use alloc::vec::Vec;

use frevo_wire::dtyp::{
    AccessMask, Ace, AceBody, AceFlags, AceType, Acl, SdControl, SecurityDescriptor, Sid,
};

use super::Token;
use super::set::{Refused, map_all, owner_allowed};

/// Returns the descriptor of a new object that `token` creates in a directory with the descriptor
/// `parent`. `creator` is the descriptor in the request.
///
/// # Errors
/// [`Refused::Owner`] if `creator` names an owner that `token` may not set.
pub fn new_object(
    parent: &SecurityDescriptor,
    creator: Option<&SecurityDescriptor>,
    token: &Token,
    is_directory: bool,
) -> Result<SecurityDescriptor, Refused> {
    let owner = creator.and_then(|creator| creator.owner).unwrap_or(*token.user());
    if !owner_allowed(&owner, token) {
        return Err(Refused::Owner);
    }
    let group = creator.and_then(|creator| creator.group).unwrap_or(*token.primary_group());
    let made = SecurityDescriptor {
        control: SdControl::SELF_RELATIVE,
        rm_control: creator.map_or(0, |creator| creator.rm_control),
        owner: Some(owner),
        group: Some(group),
        sacl: None,
        dacl: None,
    };
    let heirs = Heirs { owner, group, is_directory };
    Ok(with_sacl(with_dacl(made, parent, creator, &heirs), parent, creator, &heirs))
}

/// The SIDs that replace the creator entries, and the kind of the object that inherits.
struct Heirs {
    owner: Sid,
    group: Sid,
    is_directory: bool,
}

fn with_dacl(
    mut made: SecurityDescriptor,
    parent: &SecurityDescriptor,
    creator: Option<&SecurityDescriptor>,
    heirs: &Heirs,
) -> SecurityDescriptor {
    made.control |= SdControl::DACL_PRESENT;
    let is_automatic = parent.control.contains(SdControl::DACL_AUTO_INHERITED);
    let inherited = inherited(parent.dacl.as_ref(), is_automatic, heirs);
    let given = creator.filter(|creator| creator.control.contains(SdControl::DACL_PRESENT));
    if let Some(given) = given {
        let is_protected = given.control.contains(SdControl::DACL_PROTECTED);
        let asks = given.control.contains(SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED);
        made.control |= given.control & (SdControl::DACL_PROTECTED | SdControl::DACL_DEFAULTED);
        made.dacl.clone_from(&given.dacl);
        if let Some(dacl) = &mut made.dacl {
            map_all(dacl);
            if asks && !is_protected {
                dacl.aces.retain(|ace| !ace.flags.contains(AceFlags::INHERITED));
                dacl.aces.extend(inherited);
                made.control |= SdControl::DACL_AUTO_INHERITED;
            }
        }
        return made;
    }
    if inherited.is_empty() {
        made.dacl = Some(default_dacl(&heirs.owner));
        return made;
    }
    if is_automatic {
        made.control |= SdControl::DACL_AUTO_INHERITED;
    }
    made.dacl = Some(Acl::new(inherited));
    made
}

fn with_sacl(
    mut made: SecurityDescriptor,
    parent: &SecurityDescriptor,
    creator: Option<&SecurityDescriptor>,
    heirs: &Heirs,
) -> SecurityDescriptor {
    if let Some(given) = creator.filter(|c| c.control.contains(SdControl::SACL_PRESENT)) {
        made.control |= given.control & (SdControl::SACL_PRESENT | SdControl::SACL_PROTECTED);
        made.sacl.clone_from(&given.sacl);
        return made;
    }
    let is_automatic = parent.control.contains(SdControl::SACL_AUTO_INHERITED);
    let inherited = inherited(parent.sacl.as_ref(), is_automatic, heirs);
    if !inherited.is_empty() {
        made.control |= SdControl::SACL_PRESENT;
        if is_automatic {
            made.control |= SdControl::SACL_AUTO_INHERITED;
        }
        made.sacl = Some(Acl::new(inherited));
    }
    made
}

/// Returns SecurityContext.DefaultDACL as on Windows: full access for the user and for the system.
fn default_dacl(owner: &Sid) -> Acl {
    let full = |sid| Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, sid);
    Acl::new(vec![full(*owner), full(Sid::LOCAL_SYSTEM)])
}

/// ComputeInheritedACLfromParent, MS-DTYP 2.5.3.4.4. Entries are marked INHERITED if the parent
/// keeps its children up to date.
fn inherited(parent: Option<&Acl>, is_automatic: bool, heirs: &Heirs) -> Vec<Ace> {
    let mark = if is_automatic { AceFlags::INHERITED } else { AceFlags::EMPTY };
    let mut aces = Vec::new();
    for ace in parent.map_or(&[][..], |acl| &acl.aces) {
        let Some(flags) = passed_on(ace.flags, heirs.is_directory) else { continue };
        let creator = ace.sid().is_some_and(is_creator);
        let goes_on = flags.intersects(AceFlags::CONTAINER_INHERIT | AceFlags::OBJECT_INHERIT);
        let applies = !flags.contains(AceFlags::INHERIT_ONLY);
        if !creator {
            aces.push(again(ace, ace.sid().copied(), flags | mark));
            continue;
        }
        // For CREATOR OWNER and CREATOR GROUP two entries are made: one for the creator of this
        // object, and one that objects below it inherit.
        if applies {
            aces.push(again(ace, heir_of(ace, heirs), kept(ace.flags) | mark));
        }
        if goes_on {
            let flags = flags | AceFlags::INHERIT_ONLY | mark;
            aces.push(again(ace, ace.sid().copied(), flags));
        }
    }
    aces
}

/// Returns the flags of an entry in a child, without INHERITED; None if the entry does not apply to
/// children of this kind.
fn passed_on(flags: AceFlags, is_directory: bool) -> Option<AceFlags> {
    let to_objects = flags.contains(AceFlags::OBJECT_INHERIT);
    let to_containers = flags.contains(AceFlags::CONTAINER_INHERIT);
    let stops = flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
    let audit = kept(flags);
    if !is_directory {
        return to_objects.then_some(audit);
    }
    match (to_containers, to_objects, stops) {
        (true, _, true) => Some(audit),
        (true, _, false) => {
            let inherits = AceFlags::CONTAINER_INHERIT | AceFlags::OBJECT_INHERIT;
            Some(audit | (flags & inherits))
        }
        // The entry is inherited by files only, so a directory passes it on (INHERIT_ONLY), but it
        // has no effect there.
        (false, true, false) => Some(audit | AceFlags::OBJECT_INHERIT | AceFlags::INHERIT_ONLY),
        _ => None,
    }
}

/// Returns the flags that do not concern inheritance.
fn kept(flags: AceFlags) -> AceFlags {
    flags & (AceFlags::SUCCESSFUL_ACCESS | AceFlags::FAILED_ACCESS)
}

fn is_creator(sid: &Sid) -> bool {
    *sid == Sid::CREATOR_OWNER || *sid == Sid::CREATOR_GROUP
}

fn heir_of(ace: &Ace, heirs: &Heirs) -> Option<Sid> {
    let is_group = ace.sid() == Some(&Sid::CREATOR_GROUP);
    Some(if is_group { heirs.group } else { heirs.owner })
}

fn again(ace: &Ace, whose: Option<Sid>, flags: AceFlags) -> Ace {
    let mut new = ace.clone();
    new.flags = flags;
    match &mut new.body {
        AceBody::Plain { sid, mask, .. } | AceBody::Object { sid, mask, .. } => {
            *sid = whose.unwrap_or(*sid);
            if new.kind != AceType::SYSTEM_MANDATORY_LABEL {
                *mask = super::check::map_generic(*mask);
            }
        }
        AceBody::Opaque(_) => {}
    }
    new
}
