//! May this request take up that Open? MS-SMB2 3.3.5.9.7 and 3.3.5.9.12, in
//! their order and with their statuses.

use frevo_wire::Status;
use frevo_wire::create_context::LeaseKey;
use frevo_wire::dtyp::Guid;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::upcase;

use super::{Caching, Survival};

/// RqLs beside a reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedLease {
    /// LeaseKey
    pub key: LeaseKey,
    /// 1 or 2, by the length of the context.
    pub version: u8,
}

/// The context that asks for the reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// DHnC
    One,
    /// DH2C
    Two {
        /// CreateGuid
        create_guid: Guid,
        /// SMB2_DHANDLE_FLAG_PERSISTENT
        persistent: bool,
        /// The share is continuously available and the connection has
        /// persistent handles: then the Open may be looked up by its CreateGuid.
        continuous: bool,
    },
}

/// A CREATE with DHnC or DH2C.
#[derive(Debug, Clone, Copy)]
pub struct Reconnect<'a> {
    /// FileId of the context; only the persistent half counts.
    pub file_id: FileId,
    /// The context that asks for it.
    pub version: Version,
    /// RqLs
    pub lease: Option<AskedLease>,
    /// ClientGuid of the connection.
    pub client_guid: Guid,
    /// The user who is logged on.
    pub user: &'a str,
    /// The name in the request.
    pub file_name: &'a str,
    /// The share it is asked of.
    pub share: &'a str,
    /// SMB2_FLAGS_REPLAY_OPERATION: the answer to the same may have been lost with a channel.
    pub is_replay: bool,
}

/// An Open that somebody asks for, as it is now.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) survival: &'a Survival,
    pub(super) caching: Caching,
    /// Open.Session is not NULL.
    pub(super) is_attached: bool,
    /// Name of the share it was opened in.
    pub(super) share: &'a str,
}

/// True when only Open.Session refuses it: the client has been faster than the end of its old
/// connection, and the request is worth a short wait.
pub(super) fn is_early(kept: Kept<'_>, asked: &Reconnect<'_>) -> bool {
    let detached = Kept { is_attached: false, ..kept };
    // If the reconnect would be refused even without the old session, waiting for its end is
    // useless.
    let is_other = [Status::OBJECT_NAME_NOT_FOUND, Status::ACCESS_DENIED].map(Err);
    kept.is_attached && !is_other.contains(&verdict(detached, asked))
}

/// The status that refuses it, if any.
pub(super) fn verdict(kept: Kept<'_>, asked: &Reconnect<'_>) -> Result<(), Status> {
    match asked.version {
        Version::One => first(kept, asked),
        Version::Two { create_guid, persistent, .. } => {
            second(kept, asked, create_guid, persistent)
        }
    }?;
    // MS-SMB2 does not compare the share. Without this check a client could reconnect through
    // another share, which grants other rights.
    if !is_same_name(kept.share, asked.share) {
        return Err(Status::OBJECT_NAME_NOT_FOUND);
    }
    if kept.survival.is_owned_by(asked.user) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
}

/// MS-SMB2 3.3.5.9.7.
fn first(kept: Kept<'_>, asked: &Reconnect<'_>) -> Result<(), Status> {
    if is_other_clients_lease(kept, asked) {
        return Err(Status::OBJECT_NAME_NOT_FOUND);
    }
    // As on Windows, the name is compared last, like in a reconnect of version 2.
    check_state(kept, asked)?;
    check_name(kept, asked)
}

/// MS-SMB2 3.3.5.9.12.
fn second(
    kept: Kept<'_>,
    asked: &Reconnect<'_>,
    create_guid: Guid,
    persistent: bool,
) -> Result<(), Status> {
    let is_persistent = kept.survival.is_persistent();
    if is_other_clients_lease(kept, asked)
        || (is_persistent && !persistent)
        // An Open made by DHnQ has no CreateGuid, which counts as the GUID of zeros. As on Windows,
        // a DH2C with the GUID of zeros can reconnect to it (smbtorture's reopen2-lease).
        || kept.survival.create_guid.unwrap_or_default() != create_guid
    {
        return Err(Status::OBJECT_NAME_NOT_FOUND);
    }
    check_state(kept, asked)?;
    check_name(kept, asked)?;
    if persistent && !is_persistent { Err(Status::INVALID_PARAMETER) } else { Ok(()) }
}

/// Open.Lease is not NULL and Open.ClientGuid is not the connection's.
fn is_other_clients_lease(kept: Kept<'_>, asked: &Reconnect<'_>) -> bool {
    matches!(kept.caching, Caching::Lease { .. }) && kept.survival.client_guid != asked.client_guid
}

/// Open.Lease is not NULL, Open.Lease.FileDeleteOnClose is FALSE, and the name
/// is another one.
fn check_name(kept: Kept<'_>, asked: &Reconnect<'_>) -> Result<(), Status> {
    let Caching::Lease { deletes: false, .. } = kept.caching else { return Ok(()) };
    let is_same = is_same_name(&kept.survival.asked.file_name, asked.file_name);
    if is_same { Ok(()) } else { Err(Status::INVALID_PARAMETER) }
}

/// Checks the conditions that both lists have in common.
///
/// Windows: Lease.Version is not compared with that of the context.
fn check_state(kept: Kept<'_>, asked: &Reconnect<'_>) -> Result<(), Status> {
    let survival = kept.survival;
    let is_durable = survival.is_durable();
    // MS-SMB2 3.3.7.1: a persistent Open survives even without a lease or an oplock, so it needs no
    // handle caching.
    let needs_handle = is_durable && !survival.is_persistent();
    let fits = match (kept.caching, asked.lease) {
        (Caching::Lease { .. }, None) | (Caching::Nothing | Caching::Oplock { .. }, Some(_)) => {
            false
        }
        (Caching::Lease { key, handle, .. }, Some(lease)) => {
            (handle || !needs_handle) && key == lease.key
        }
        (caching, None) => caching.keeps_handle() || !needs_handle,
    };
    if fits && (is_durable || survival.is_resilient()) && !kept.is_attached {
        Ok(())
    } else {
        Err(Status::OBJECT_NAME_NOT_FOUND)
    }
}

/// Names of files and shares are compared without case.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    a.chars().map(upcase).eq(b.chars().map(upcase))
}

#[cfg(test)]
mod tests;
