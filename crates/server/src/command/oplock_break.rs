//! OPLOCK_BREAK acknowledgments: MS-SMB2 3.3.5.22.

use std::sync::Arc;

use frevo_store::FileCell;
use frevo_store::lease::{Granted, LeaseKey, LeaseOwner, LeaseState, Owner};
use frevo_wire::Status;
use frevo_wire::command::oplock_break::{self, LeaseBreak, OplockBreak, OplockLevel};
use frevo_wire::dtyp::Guid;

use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::durable::record;
use crate::objects::refusal::Outcome;
use crate::objects::session::Session;

/// Takes back what a client gives back.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let response = match oplock_break::Request::parse(rq.message)? {
        oplock_break::Request::Oplock(request) => {
            let answer = oplock(rq, request);
            // The durable record is updated even if the acknowledgment was wrong, because it may
            // have changed the oplock or lease.
            if let Ok(file) = rq.session()?.open(request.file_id)?.file() {
                record::keep_file(rq.server(), &file.cell).await?;
            }
            oplock_break::Response::Oplock(answer?)
        }
        oplock_break::Request::Lease(request) => {
            oplock_break::Response::Lease(leased(rq, request).await?)
        }
    };
    response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// MS-SMB2 3.3.5.22.1.
fn oplock(rq: &Request<'_>, request: OplockBreak) -> Result<OplockBreak, Status> {
    let open = rq.session()?.open(request.file_id)?;
    if let Some(survival) = open.survival().filter(|_| rq.connection.is_smb3()) {
        // A client that sends this FileId has received the response to its CREATE.
        survival.set_replay_eligible(false);
    }
    let file = open.file().map_err(|_| Status::INVALID_DEVICE_STATE)?;
    let owner = Owner::Open(open.id());
    let mut state = file.cell.lock();
    let Some(held) = state.oplocks.is_oplock_breaking(open.id()) else {
        return Err(not_breaking(state.oplocks.held(open.id(), None), request.oplock_level));
    };
    let is_batch = held.contains(LeaseState::HANDLE);
    let (kept, refused) = match request.oplock_level {
        OplockLevel::II => (LeaseState::READ, None),
        OplockLevel::NONE => (LeaseState::EMPTY, None),
        OplockLevel::LEASE => (LeaseState::EMPTY, Some(Status::INVALID_PARAMETER)),
        OplockLevel::EXCLUSIVE if is_batch => (LeaseState::EMPTY, None),
        _ => (LeaseState::EMPTY, Some(Status::INVALID_OPLOCK_PROTOCOL)),
    };
    let acknowledged = match state.oplocks.acknowledge(owner, kept) {
        // The break allows no caching at all, so an acknowledgment with level II is taken as one
        // with level "none".
        Err(Status::REQUEST_NOT_ACCEPTED) => state.oplocks.acknowledge(owner, LeaseState::EMPTY)?,
        other => other?,
    };
    drop(state);
    rq.server().announce_breaks(&file.cell, acknowledged.next.into_iter().collect());
    if let Some(status) = refused {
        return Err(status);
    }
    let reads = acknowledged.state.contains(LeaseState::READ);
    let oplock_level = if reads { OplockLevel::II } else { OplockLevel::NONE };
    Ok(OplockBreak { oplock_level, file_id: open.file_id })
}

/// The status for an acknowledgment without a break.
///
/// Windows: the levels are checked first for an Open that holds a level II oplock, whose break
/// needs no acknowledgment, against the order of MS-SMB2 3.3.5.22.1.
fn not_breaking(held: Granted, level: OplockLevel) -> Status {
    match (held, level) {
        (Granted::Oplock(OplockLevel::II), OplockLevel::LEASE) => Status::INVALID_PARAMETER,
        (Granted::Oplock(OplockLevel::II), _) => Status::INVALID_OPLOCK_PROTOCOL,
        _ => Status::INVALID_DEVICE_STATE,
    }
}

/// The file of a lease that this client was told to give back, and the lease.
///
/// Deviation: MS-SMB2 3.3.5.22.2 asks for the ClientGuid and the key alone, and the
/// ClientGuid goes over the wire in the clear. Another account with both would give up
/// what the holder still caches. A machine that several users share has one connection
/// for them, and answers by the session of any of them: what was told to a session of
/// this connection may be acknowledged by another one.
fn find(rq: &Request<'_>, key: LeaseKey) -> Result<(Arc<FileCell>, LeaseOwner), Status> {
    let session = rq.session()?;
    let files = &rq.server().files;
    let look = |client: Guid| {
        let owner = LeaseOwner { client, key };
        let cell = files.leases.file(owner).and_then(|key| files.find(key))?;
        Some((cell, owner))
    };
    let is_breaking =
        |(cell, owner): &(Arc<FileCell>, LeaseOwner)| cell.lock().oplocks.is_lease_breaking(*owner);
    let own = look(session.lease_client());
    if own.as_ref().is_some_and(is_breaking) {
        return own.ok_or(Status::OBJECT_NAME_NOT_FOUND);
    }
    let connection = rq.connection.id;
    let is_beside = |other: &&Arc<Session>| {
        other.client_guid == session.client_guid
            && other.id != session.id
            && other.has_channel(connection)
    };
    let sessions = rq.server().sessions();
    let beside = sessions.iter().filter(is_beside);
    let found = beside.filter_map(|other| look(other.lease_client())).find(is_breaking);
    found.or(own).ok_or(Status::OBJECT_NAME_NOT_FOUND)
}

/// MS-SMB2 3.3.5.22.2.
///
/// Deviation: Open.IsReplayEligible of the lease's Opens stays. The response to the CREATE of one of
/// them may be lost; with the Open that its client cannot name the replay would get no Open, or a
/// second one.
async fn leased(rq: &Request<'_>, request: LeaseBreak) -> Result<LeaseBreak, Status> {
    let (cell, owner) = find(rq, request.lease_key)?;
    let acknowledged = cell.lock().oplocks.acknowledge(Owner::Lease(owner), request.lease_state)?;
    rq.server().announce_breaks(&cell, acknowledged.next.into_iter().collect());
    record::keep_file(rq.server(), &cell).await?;
    Ok(LeaseBreak { lease_key: request.lease_key, lease_state: acknowledged.state })
}
