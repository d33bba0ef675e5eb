//! Create contexts for durable handles and leases: MS-SMB2 3.2.4.3.

use frevo_wire::command::create::{CreateOptions, OplockLevel};
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::command::oplock_break::{LeaseKey, LeaseState};
use frevo_wire::command::tree_connect::{ShareCapabilities, ShareType};
use frevo_wire::create_context::{
    CreateContext, DurableHandleFlags, DurableRequestV2, Lease as WireLease, LeaseFlags, LeaseV2,
};
use frevo_wire::dtyp::Guid;

use crate::ambient::{Ambient, random};
use crate::error::Cause;
use crate::limits::DURABLE_TIMEOUT_MS;
use crate::open::create::Ask;
use crate::session::Live;
use crate::session::bound::Bound;
use crate::session::lease::Lease;

/// The lease context of the dialect; `None` before SMB 2.1.
pub(crate) fn lease_context(
    live: &Live,
    of: &Lease,
    state: LeaseState,
) -> Option<CreateContext<'static>> {
    if !live.capabilities.contains(GlobalCapabilities::LEASING) {
        return None;
    }
    let mut lease = WireLease { lease_key: of.key, lease_state: state, flags: LeaseFlags::EMPTY };
    Some(if live.terms.is_smb3() {
        let parent = of.parent();
        if parent.is_some() {
            lease.flags |= LeaseFlags::PARENT_LEASE_KEY_SET;
        }
        let parent_lease_key = parent.unwrap_or(LeaseKey([0; 16]));
        CreateContext::LeaseV2(LeaseV2 { lease, parent_lease_key, epoch: 0 })
    } else {
        CreateContext::Lease(lease)
    })
}

/// The context of a CREATE that caches nothing and only names the lease on its directory, which
/// changes through the Open then do not break (MS-SMB2 2.2.13.2.10, ParentLeaseKey). Such a lease
/// without rights is never broken, so that its key need not be known. None without leases on
/// directories.
///
/// # Errors
/// Fails if the system has no random numbers.
pub(crate) fn parent_context(
    live: &Live,
    parent_lease_key: LeaseKey,
    ambient: &dyn Ambient,
) -> Result<Option<CreateContext<'static>>, Cause> {
    let has_leases = live.capabilities.contains(GlobalCapabilities::DIRECTORY_LEASING);
    if !has_leases || !live.terms.is_smb3() {
        return Ok(None);
    }
    let lease = WireLease {
        lease_key: LeaseKey(random(ambient)?),
        lease_state: LeaseState::EMPTY,
        flags: LeaseFlags::PARENT_LEASE_KEY_SET,
    };
    Ok(Some(CreateContext::LeaseV2(LeaseV2 { lease, parent_lease_key, epoch: 0 })))
}

/// Returns true if the CREATE has a CreateGuid. In a session with several channels that is a CREATE
/// that asks for no durable handle too: the server recognises its replay by the CreateGuid (MS-SMB2
/// 3.3.5.9), and without a lease it does not make the handle durable (3.3.5.9.10).
pub(super) fn has_guid(ask: &Ask, live: &Live, bound: Bound) -> bool {
    let is_file =
        bound.kind == ShareType::DISK && !ask.options.contains(CreateOptions::DIRECTORY_FILE);
    let is_plain = is_file && ask.lease.is_empty();
    live.terms.is_smb3() && (ask.keep || (live.is_wide && is_plain))
}

/// The contexts of a CREATE that may ask for a lease and a durable handle.
pub(super) fn contexts_of(
    ask: &Ask,
    live: &Live,
    bound: Bound,
    create_guid: Guid,
    lease: &Lease,
) -> Vec<CreateContext<'static>> {
    let mut contexts = Vec::new();
    let is_directory = ask.options.contains(CreateOptions::DIRECTORY_FILE);
    let has_leases = live.capabilities.contains(GlobalCapabilities::DIRECTORY_LEASING);
    if !ask.lease.is_empty() && (!is_directory || has_leases) {
        contexts.extend(lease_context(live, lease, ask.lease));
    }
    if ask.keep {
        contexts.push(CreateContext::QueryOnDiskId);
    }
    if has_guid(ask, live, bound) {
        let persistent = ask.keep && has_persistent(live, bound);
        contexts.push(CreateContext::DurableRequestV2(DurableRequestV2 {
            timeout: DURABLE_TIMEOUT_MS,
            flags: if persistent {
                DurableHandleFlags::PERSISTENT
            } else {
                DurableHandleFlags::EMPTY
            },
            create_guid,
        }));
    } else if ask.keep {
        contexts.push(CreateContext::DurableRequest);
    }
    contexts
}

/// Returns true if the share has persistent handles.
pub(super) const fn has_persistent(live: &Live, bound: Bound) -> bool {
    live.terms.is_smb3()
        && bound.capabilities.contains(ShareCapabilities::CONTINUOUS_AVAILABILITY)
        && live.capabilities.contains(GlobalCapabilities::PERSISTENT_HANDLES)
}

/// The oplock level to ask for with these contexts.
pub(crate) fn oplock_of(contexts: &[CreateContext<'_>]) -> OplockLevel {
    let lease =
        |c: &CreateContext<'_>| matches!(c, CreateContext::Lease(_) | CreateContext::LeaseV2(_));
    if contexts.iter().any(lease) { OplockLevel::LEASE } else { OplockLevel::NONE }
}
