//! Object ids: FSCTL_SET, DELETE, GET and CREATE_OR_GET_OBJECT_ID, MS-FSA 2.1.5.10.
//!
//! They are kept with the file. Where nothing can be kept there are none: an id made
//! of what names the file on its volume would be the next file's too.
//!
//! Deviation: nothing lists the ids of a volume. That one is given to two files is
//! not noticed (DUPLICATE_NAME), and no file can be opened by it.
//!
//! Deviation: `$Extend\$ObjId` is no directory here, so nobody is told of changes in it.

use frevo_store::Fault;
use frevo_store::security::Privileges;
use frevo_store::vfs::{ObjectId, ObjectIdChange};
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fsctl::ObjectIdBuffer;

use super::call::{Answer, Call, NO_OUTPUT, output};
use crate::objects::audited;

/// A request about an object id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// MS-FSA 2.1.5.10.1
    CreateOrGet,
    /// MS-FSA 2.1.5.10.2
    Delete,
    /// MS-FSA 2.1.5.10.13
    Get,
    /// MS-FSA 2.1.5.10.35
    Set,
    /// MS-FSA 2.1.5.10.36
    SetExtended,
}

/// Reads, sets or removes an object id.
pub(super) fn handle(call: &Call<'_>, asked: Asked) -> Answer {
    match asked {
        Asked::CreateOrGet => create_or_get(call),
        Asked::Get => get(call),
        Asked::Delete => change(call, ObjectIdChange::Forget),
        Asked::Set => set(call),
        Asked::SetExtended => {
            let extended = call.input.try_into().map_err(|_| Status::INVALID_PARAMETER)?;
            change(call, ObjectIdChange::Extended(extended))
        }
    }
}

fn get(call: &Call<'_>) -> Answer {
    match kept(call)? {
        Some(id) => Ok((id.to_vec(), Status::SUCCESS)),
        None => Err(Status::OBJECTID_NOT_FOUND.into()),
    }
}

/// MS-FSA 2.1.5.10.1 looks at no right of the Open, though the id is made, and the
/// control code says FILE_ANY_ACCESS: who has the file open may know it again. It
/// wants a volume that can be written, and the share too has to be one.
fn create_or_get(call: &Call<'_>) -> Answer {
    let file = call.file()?;
    let kept = kept(call)?;
    if let Some(id) = kept.filter(|id| !is_unborn(id)) {
        return Ok((id.to_vec(), Status::SUCCESS));
    }
    if file.vfs.volume().read_only || call.rq.tree()?.share.read_only {
        return Err(Status::MEDIA_WRITE_PROTECTED.into());
    }
    if let Some(id) = kept.and_then(|id| id.first_chunk().copied()) {
        let id = whole(Guid(id), file.vfs.volume().serial)?;
        if let Some(extended) = id.last_chunk() {
            change(call, ObjectIdChange::Extended(*extended))?;
            audited::attributes(call.open()?, "object_id", Ok(()));
        }
        return Ok((id.to_vec(), Status::SUCCESS));
    }
    let mut object_id = [0; 16];
    call.rq.server().ambient.random(&mut object_id);
    let id = whole(Guid(object_id), file.vfs.volume().serial)?;
    match file.node.change_object_id(&ObjectIdChange::New(id)) {
        Ok(()) => {
            audited::attributes(call.open()?, "object_id", Ok(()));
            Ok((id.to_vec(), Status::SUCCESS))
        }
        // A concurrent request has just given the file an object ID, so that ID is returned.
        Err(Fault::Exists) => get(call),
        Err(fault) => Err(status(fault).into()),
    }
}

fn set(call: &Call<'_>) -> Answer {
    let id = call.input.try_into().map_err(|_| Status::INVALID_PARAMETER)?;
    // MS-FSA: only a user with the restore privilege (Open.HasRestoreAccess) may choose an object
    // ID.
    if !call.rq.tree()?.token().holds(Privileges::RESTORE) {
        return Err(Status::ACCESS_DENIED.into());
    }
    change(call, ObjectIdChange::New(id))
}

fn change(call: &Call<'_>, change: ObjectIdChange) -> Answer {
    call.file()?.node.change_object_id(&change).map_err(status)?;
    NO_OUTPUT
}

/// [`Fault::Exists`] is OBJECT_NAME_COLLISION as it is.
const fn status(fault: Fault) -> Status {
    match fault {
        // MS-FSA: a volume without object IDs (IsObjectIDsSupported is FALSE) returns this status.
        Fault::NotSupported => Status::VOLUME_NOT_UPGRADED,
        Fault::NotFound => Status::OBJECTID_NOT_FOUND,
        other => other.status(),
    }
}

/// The object id of the file. Fails when the output has no room for one.
fn kept(call: &Call<'_>) -> Result<Option<ObjectId>, Status> {
    let id = call.file()?.node.object_id().map_err(status)?;
    let fits = call.max_output as usize >= ObjectIdBuffer::SIZE;
    if fits { Ok(id) } else { Err(Status::INVALID_PARAMETER) }
}

/// True when neither BirthVolumeId nor BirthObjectId is known.
fn is_unborn(id: &ObjectId) -> bool {
    id.get(16..48).is_some_and(|birth| birth.iter().all(|byte| *byte == 0))
}

/// An id with what it has from birth: this volume, itself and no domain.
fn whole(object_id: Guid, serial: u32) -> Result<ObjectId, Status> {
    let id = ObjectIdBuffer {
        object_id,
        birth_volume_id: volume_id(serial),
        birth_object_id: object_id,
        domain_id: Guid::default(),
    };
    output(|w| id.encode(w)).try_into().map_err(|_| Status::INTERNAL_ERROR)
}

fn volume_id(serial: u32) -> Guid {
    let mut bytes = [0; 16];
    bytes[8..12].copy_from_slice(&serial.to_le_bytes());
    Guid(bytes)
}
