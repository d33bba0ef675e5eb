//! OPLOCK_BREAK acknowledgments: MS-SMB2 3.3.5.22.

use frevo_store::OpenId;
use frevo_store::lease::{LeaseOwner, LeaseState, Owner};
use frevo_wire::Status;
use frevo_wire::command::oplock_break::{self, LeaseBreak, OplockBreak, OplockLevel};

use crate::durable::record;
use crate::lease;
use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;
use crate::session::Session;

/// Takes back what a client gives back.
pub async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let response = match oplock_break::Request::parse(rq.message)? {
        oplock_break::Request::Oplock(request) => {
            let answer = oplock(rq, request);
            // What it caches now is kept, whether or not it was given back well.
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
    let file = open.file().map_err(|_| Status::INVALID_DEVICE_STATE)?;
    let owner = Owner::Open(open.id());
    let mut state = file.cell.lock();
    let held = state.oplocks.is_oplock_breaking(open.id()).ok_or(Status::INVALID_DEVICE_STATE)?;
    let is_batch = held.contains(LeaseState::HANDLE);
    let (kept, refused) = match request.oplock_level {
        OplockLevel::II => (LeaseState::READ, None),
        OplockLevel::NONE => (LeaseState::EMPTY, None),
        OplockLevel::LEASE => (LeaseState::EMPTY, Some(Status::INVALID_PARAMETER)),
        OplockLevel::EXCLUSIVE if is_batch => (LeaseState::EMPTY, None),
        _ => (LeaseState::EMPTY, Some(Status::INVALID_OPLOCK_PROTOCOL)),
    };
    let acknowledged = match state.oplocks.acknowledge(owner, kept) {
        // It was told to keep nothing.
        Err(Status::REQUEST_NOT_ACCEPTED) => state.oplocks.acknowledge(owner, LeaseState::EMPTY)?,
        other => other?,
    };
    drop(state);
    lease::announce(rq.server(), &file.cell, acknowledged.next.into_iter().collect());
    if let Some(status) = refused {
        return Err(status);
    }
    let reads = acknowledged.state.contains(LeaseState::READ);
    let oplock_level = if reads { OplockLevel::II } else { OplockLevel::NONE };
    Ok(OplockBreak { oplock_level, file_id: open.file_id })
}

/// Whether one of a lease's Opens is of this session, or of another of its user.
///
/// Deviation: MS-SMB2 3.3.5.22.2 asks for the ClientGuid and the key alone, and the
/// ClientGuid goes over the wire in the clear. Who has none of the Opens would give up
/// for others what they still cache.
fn is_own(rq: &Request<'_>, opens: &[OpenId]) -> Result<bool, Status> {
    let session = rq.session()?;
    if session.has_any(opens) {
        return Ok(true);
    }
    let own = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let is_same = |other: &Session| {
        let user = other.identity();
        other.client_guid == session.client_guid && user.is_some_and(|user| user.is_same_user(&own))
    };
    let sessions = rq.server().sessions();
    Ok(sessions.iter().any(|other| is_same(other) && other.has_any(opens)))
}

/// MS-SMB2 3.3.5.22.2.
async fn leased(rq: &Request<'_>, request: LeaseBreak) -> Result<LeaseBreak, Status> {
    let client = rq.connection.negotiated()?.client_guid;
    let owner = LeaseOwner { client, key: request.lease_key };
    let files = &rq.server().files;
    let cell = files.leases.file(owner).and_then(|key| files.find(key));
    let cell = cell.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    let opens = cell.lock().opens_of(owner);
    if !is_own(rq, &opens)? {
        return Err(Status::OBJECT_NAME_NOT_FOUND);
    }
    let acknowledged = cell.lock().oplocks.acknowledge(Owner::Lease(owner), request.lease_state)?;
    lease::announce(rq.server(), &cell, acknowledged.next.into_iter().collect());
    record::keep_file(rq.server(), &cell).await?;
    Ok(LeaseBreak { lease_key: request.lease_key, lease_state: acknowledged.state })
}
