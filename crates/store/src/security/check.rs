//! The access check: MS-DTYP 2.5.3.2.

use frevo_wire::dtyp::{AccessMask, Ace, AceBody, AceFlags, AceType, SecurityDescriptor, Sid};

use super::{Privileges, Token};

/// Rights of the owner whatever the list says, unless the list has an entry for OWNER RIGHTS.
const OWNER: AccessMask = AccessMask(AccessMask::READ_CONTROL.0 | AccessMask::WRITE_DAC.0);

/// Requested rights that are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// True if ACCESS_SYSTEM_SECURITY was requested without SeSecurityPrivilege: the status is
    /// PRIVILEGE_NOT_HELD instead of ACCESS_DENIED.
    pub lacks_privilege: bool,
    /// The rights that the user lacks.
    pub missing: AccessMask,
}

/// Returns the granted rights for `desired`, whose generic rights have been mapped: all of them, or
/// with MAXIMUM_ALLOWED also every other right that the token has.
///
/// # Errors
/// If any named right is refused.
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

/// Returns all rights of `token`, which MAXIMUM_ALLOWED grants.
///
/// Windows: an entry that denies a right takes nothing away that an earlier entry allowed, in this
/// mode too.
pub fn maximal(descriptor: &SecurityDescriptor, token: &Token) -> AccessMask {
    rights(descriptor, token) | privileged(token)
}

/// Returns the rights that privileges give without a request.
const fn privileged(token: &Token) -> AccessMask {
    if token.holds(Privileges::TAKE_OWNERSHIP) {
        AccessMask::WRITE_OWNER
    } else {
        AccessMask::EMPTY
    }
}

/// Returns the rights that the list gives. The first entry that names a right decides about it.
fn rights(descriptor: &SecurityDescriptor, token: &Token) -> AccessMask {
    // A descriptor without a DACL grants all rights; one with an empty DACL grants none.
    let Some(dacl) = &descriptor.dacl else { return AccessMask::FILE_ALL };
    let owns = descriptor.owner.as_ref().is_some_and(|owner| token.contains(owner));
    let mut decided = Decided::default();
    if owns && !dacl.aces.iter().any(speaks_of_owners) {
        decided.decide(OWNER, true);
    }
    for ace in dacl.aces.iter().filter(|ace| !ace.flags.contains(AceFlags::INHERIT_ONLY)) {
        let Some((sid, mask, allows)) = effect(ace) else { continue };
        if token.contains(sid) || (owns && *sid == Sid::OWNER_RIGHTS) {
            decided.decide(map_generic(mask), allows);
        }
    }
    decided.granted & AccessMask::FILE_ALL
}

/// Rights that the entries of a list have decided about so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Decided {
    pub(super) granted: AccessMask,
    pub(super) denied: AccessMask,
}

impl Decided {
    /// Takes an entry: it decides about the rights that no entry before it has named.
    pub(super) fn decide(&mut self, mask: AccessMask, allows: bool) {
        let undecided = mask.without(self.all());
        if allows {
            self.granted |= undecided;
        } else {
            self.denied |= undecided;
        }
    }

    /// Returns the rights that are decided, either way.
    pub(super) fn all(&self) -> AccessMask {
        self.granted | self.denied
    }
}

fn speaks_of_owners(ace: &Ace) -> bool {
    !ace.flags.contains(AceFlags::INHERIT_ONLY)
        && effect(ace).is_some_and(|(sid, ..)| *sid == Sid::OWNER_RIGHTS)
}

/// Returns an entry's SID, its rights, and true if it allows them.
///
/// Files have no object types, so entries for an object type never apply. Conditions are not
/// evaluated: an unknown condition grants nothing and denies everything (MS-DTYP 2.4.4.17.5).
pub(super) const fn effect(ace: &Ace) -> Option<(&Sid, AccessMask, bool)> {
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

/// Maps generic rights to rights of files. MS-SMB2 2.2.13.1.
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
