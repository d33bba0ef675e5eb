//! The access check: MS-DTYP 2.5.3.2.

use frevo_wire::dtyp::{AccessMask, Ace, AceBody, AceFlags, AceType, SecurityDescriptor, Sid};

use super::{Privileges, Token};

/// What the owner may do whatever the list says, unless it says what owners may.
const OWNER: AccessMask = AccessMask(AccessMask::READ_CONTROL.0 | AccessMask::WRITE_DAC.0);

/// Rights that are asked for and not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// ACCESS_SYSTEM_SECURITY was asked for without SeSecurityPrivilege: the
    /// peer is told PRIVILEGE_NOT_HELD rather than ACCESS_DENIED.
    pub lacks_privilege: bool,
    /// The rights that are missing.
    pub missing: AccessMask,
}

/// What is granted of `desired`, whose generic rights have been mapped: all of
/// it or nothing. With MAXIMUM_ALLOWED also whatever else there is to have.
///
/// # Errors
/// When any right that is named is not to be had.
pub fn check(
    descriptor: &SecurityDescriptor,
    token: &Token,
    desired: AccessMask,
) -> Result<AccessMask, Denied> {
    let named = desired.without(AccessMask::MAXIMUM_ALLOWED);
    let held = if desired.contains(AccessMask::MAXIMUM_ALLOWED) {
        maximal(descriptor, token)
    } else {
        AccessMask::EMPTY
    };
    let system = named & AccessMask::ACCESS_SYSTEM_SECURITY;
    if !system.is_empty() && !token.holds(Privileges::SECURITY) {
        return Err(Denied { lacks_privilege: true, missing: system });
    }
    let granted = rights(descriptor, token) | privileged(token) | system;
    let missing = named.without(granted);
    if missing.is_empty() {
        Ok(named | held)
    } else {
        Err(Denied { lacks_privilege: false, missing })
    }
}

/// Everything that `token` may do: what MAXIMUM_ALLOWED grants.
///
/// Windows: of an entry that denies what an earlier one allowed nothing is
/// taken away, in this mode as in the other.
pub fn maximal(descriptor: &SecurityDescriptor, token: &Token) -> AccessMask {
    rights(descriptor, token) | privileged(token)
}

/// Rights that privileges give without being asked for.
const fn privileged(token: &Token) -> AccessMask {
    if token.holds(Privileges::TAKE_OWNERSHIP) {
        AccessMask::WRITE_OWNER
    } else {
        AccessMask::EMPTY
    }
}

/// What the list gives, entry after entry: the first one that speaks of a right
/// decides about it.
fn rights(descriptor: &SecurityDescriptor, token: &Token) -> AccessMask {
    // No list is no protection; an empty one lets nobody in.
    let Some(dacl) = &descriptor.dacl else { return AccessMask::FILE_ALL };
    let owns = descriptor.owner.as_ref().is_some_and(|owner| token.contains(owner));
    let mut granted = AccessMask::EMPTY;
    let mut denied = AccessMask::EMPTY;
    if owns && !dacl.aces.iter().any(speaks_of_owners) {
        granted |= OWNER;
    }
    for ace in dacl.aces.iter().filter(|ace| !ace.flags.contains(AceFlags::INHERIT_ONLY)) {
        let Some((sid, mask, allows)) = effect(ace) else { continue };
        let applies = token.contains(sid) || (owns && *sid == Sid::OWNER_RIGHTS);
        if !applies {
            continue;
        }
        let mask = map_generic(mask);
        if allows {
            granted |= mask.without(denied);
        } else {
            denied |= mask.without(granted);
        }
    }
    granted & AccessMask::FILE_ALL
}

fn speaks_of_owners(ace: &Ace) -> bool {
    !ace.flags.contains(AceFlags::INHERIT_ONLY)
        && effect(ace).is_some_and(|(sid, ..)| *sid == Sid::OWNER_RIGHTS)
}

/// Whom an entry is about, which rights, and whether it allows them.
///
/// Files have no object types, so that entries for one of them never apply. No
/// condition is evaluated: one that cannot be is unknown, which grants nothing
/// and denies all (MS-DTYP 2.4.4.17.5).
const fn effect(ace: &Ace) -> Option<(&Sid, AccessMask, bool)> {
    let (sid, mask) = match &ace.body {
        AceBody::Plain { mask, sid, .. } => (sid, *mask),
        AceBody::Object { mask, object_type: None, sid, .. } => (sid, *mask),
        AceBody::Object { .. } | AceBody::Opaque(_) => return None,
    };
    match ace.kind {
        AceType::ACCESS_ALLOWED | AceType::ACCESS_ALLOWED_OBJECT => Some((sid, mask, true)),
        AceType::ACCESS_DENIED
        | AceType::ACCESS_DENIED_OBJECT
        | AceType::ACCESS_DENIED_CALLBACK
        | AceType::ACCESS_DENIED_CALLBACK_OBJECT => Some((sid, mask, false)),
        _ => None,
    }
}

/// MS-SMB2 2.2.13.1: what the generic rights mean for files.
pub fn map_generic(access: AccessMask) -> AccessMask {
    let pairs = [
        (AccessMask::GENERIC_ALL, AccessMask::FILE_ALL),
        (AccessMask::GENERIC_READ, AccessMask::FILE_GENERIC_READ),
        (AccessMask::GENERIC_WRITE, AccessMask::FILE_GENERIC_WRITE),
        (AccessMask::GENERIC_EXECUTE, AccessMask::FILE_GENERIC_EXECUTE),
    ];
    pairs.into_iter().fold(access, |mapped, (generic, meaning)| {
        if mapped.contains(generic) { mapped.without(generic) | meaning } else { mapped }
    })
}
