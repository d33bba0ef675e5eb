//! The oplock or lease that a CREATE asks for and gets: MS-SMB2 3.3.5.9,
//! 3.3.5.9.8, 3.3.5.9.11.

use frevo_proto::Dialect;
use frevo_store::lease::{Granted, LeaseOwner, LeaseWish, Route, V2, Wish};
use frevo_wire::Status;
use frevo_wire::command::create::{self, OplockLevel};
use frevo_wire::create_context::{Lease, LeaseFlags, LeaseKey, LeaseV2, ResponseContext};

use super::creation::Create;
use super::wanted::LeaseWanted;
use crate::command::request::Request;
use crate::objects::open::FileOpen;

/// The oplock or lease that is asked for. A lease needs its context, and a dialect that has
/// leases.
pub(super) fn wish(
    rq: &Request<'_>,
    request: &create::Request<'_>,
    wanted: Option<LeaseWanted>,
) -> Result<Wish, Status> {
    match request.requested_oplock_level {
        level @ (OplockLevel::II | OplockLevel::EXCLUSIVE | OplockLevel::BATCH) => {
            Ok(Wish::Oplock(level))
        }
        OplockLevel::LEASE => {
            let Some(LeaseWanted { lease, v2 }) = wanted else { return Ok(Wish::Nothing) };
            let dialect = rq.dialect();
            let known = if v2.is_some() { Dialect::SMB_3_0 } else { Dialect::SMB_2_1 };
            if dialect < known || lease.lease_key == LeaseKey::default() {
                return Ok(Wish::Nothing);
            }
            let client = rq.session()?.lease_client();
            let owner = LeaseOwner { client, key: lease.lease_key };
            Ok(Wish::Lease(LeaseWish { owner, state: lease.lease_state, v2 }))
        }
        _ => Ok(Wish::Nothing),
    }
}

/// The lease of an existing Open, as if it were asked for.
pub(super) fn wish_of(file: &FileOpen) -> Wish {
    let state = file.cell.lock();
    match (state.held(file.id), state.lease_of(file.id)) {
        (Granted::Lease { state, v2, .. }, Some(owner)) => {
            Wish::Lease(LeaseWish { owner, state, v2 })
        }
        _ => Wish::Nothing,
    }
}

impl Create<'_> {
    /// MS-SMB2 3.3.5.9.8: a lease is for one file. Told before anything is made.
    ///
    /// Deviation: a further link of the same file may have the lease too, since clients (cifs.ko up
    /// to 6.8) open it under the same key and know no other. A request that wants no caching is
    /// held to the name: cifs.ko removes and renames so, and once refused goes on without the
    /// lease, which makes it give up a handle that it keeps of the other link.
    pub(super) fn check_lease(&self) -> Result<(), Status> {
        let Wish::Lease(LeaseWish { owner, state, .. }) = self.wish else { return Ok(()) };
        let files = &self.rq.server().files;
        let Some(file) = files.leases.file(owner) else { return Ok(()) };
        match self.vfs.stat(&self.name) {
            Ok(stat) if stat.key == file => {}
            _ => return Err(Status::INVALID_PARAMETER),
        }
        let Some(cell) = files.find(file).filter(|_| state.is_empty()) else { return Ok(()) };
        let is_its_name = cell.lock().is_leased_as(owner, self.vfs.folder_id(), &self.name);
        if is_its_name { Ok(()) } else { Err(Status::INVALID_PARAMETER) }
    }

    /// Where breaks are told.
    pub(super) fn route(&self) -> Result<Route, Status> {
        let sealed = self.rq.encrypted || self.rq.tree()?.share.encrypt;
        let session = self.rq.session()?.id;
        Ok(Route { session, persistent: self.file_id.persistent, sealed })
    }
}

/// OplockLevel of the response.
pub(super) const fn level(granted: Granted) -> OplockLevel {
    match granted {
        Granted::Nothing => OplockLevel::NONE,
        Granted::Oplock(level) => level,
        Granted::Lease { .. } => OplockLevel::LEASE,
    }
}

/// RqLs of the response, in the version that the lease was first asked for in.
pub(super) fn answer(wish: Wish, granted: Granted) -> Option<ResponseContext<'static>> {
    let (Wish::Lease(wish), Granted::Lease { state, is_breaking, v2 }) = (wish, granted) else {
        return None;
    };
    let flags = if is_breaking { LeaseFlags::BREAK_IN_PROGRESS } else { LeaseFlags::EMPTY };
    let mut lease = Lease { lease_key: wish.owner.key, lease_state: state, flags };
    let Some(V2 { epoch, parent }) = v2 else { return Some(ResponseContext::Lease(lease)) };
    if parent.is_some() {
        lease.flags |= LeaseFlags::PARENT_LEASE_KEY_SET;
    }
    let parent_lease_key = parent.unwrap_or_default();
    Some(ResponseContext::LeaseV2(LeaseV2 { lease, parent_lease_key, epoch }))
}
