//! OPLOCK_BREAK acknowledgments: MS-SMB2 3.3.5.22.

use frevo_wire::Status;
use frevo_wire::codec::Reader;
use frevo_wire::file_id::FileId;

use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;

/// StructureSize of an oplock acknowledgment, MS-SMB2 2.2.24.1; that of a lease
/// is 36 (2.2.24.2).
const OPLOCK: u16 = 24;
const LEASE: u16 = 36;

/// This server grants neither oplocks nor leases, so there is nothing that an
/// acknowledgment could be for: a handle without an oplock that breaks is
/// INVALID_DEVICE_STATE (3.3.5.22.1), a lease nobody has OBJECT_NAME_NOT_FOUND
/// (3.3.5.22.2).
pub fn handle(rq: &Request<'_>, _out: &mut Response) -> Outcome {
    let body = rq.message.get(64..).unwrap_or(&[]);
    let size = body.first_chunk::<2>().map(|b| u16::from_le_bytes(*b));
    match size {
        Some(OPLOCK) => {
            let id = FileId::read(&mut Reader::new(body.get(8..).unwrap_or(&[])))?;
            rq.session()?.open(id)?;
            Err(Status::INVALID_DEVICE_STATE.into())
        }
        Some(LEASE) if body.len() >= usize::from(LEASE) => {
            Err(Status::OBJECT_NAME_NOT_FOUND.into())
        }
        _ => Err(Status::INVALID_PARAMETER.into()),
    }
}
