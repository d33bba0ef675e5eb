//! FSCTL_LMR_REQUEST_RESILIENCY: MS-SMB2 3.3.5.15.9.

use std::time::Duration;

use frevo_proto::Dialect;
use frevo_wire::Status;
use frevo_wire::command::create::{CreateAction, CreateOptions, ShareAccess};
use frevo_wire::command::ioctl::resiliency;

use super::call::{Answer, Call, NO_OUTPUT};
use crate::base::limits::{RESILIENCY_TIMEOUT, RESILIENCY_TIMEOUT_MAX, RESILIENCY_TIMEOUT_MIN};
use crate::objects::durable::{Asked, Survival};

/// Makes an Open resilient: it is kept for its client after a disconnect,
/// whatever others want of the file.
pub(super) fn handle(call: &Call<'_>) -> Answer {
    let rq = call.rq;
    if rq.dialect() == Dialect::SMB_2_0_2 {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    let request = resiliency::Request::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    // MS-SMB2 compares the timeout in whole seconds, so a fraction of a second above the limit is
    // allowed.
    let timeout = Duration::from_millis(u64::from(request.timeout));
    if timeout.as_secs() > RESILIENCY_TIMEOUT_MAX.as_secs() {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let timeout = if timeout.is_zero() { RESILIENCY_TIMEOUT } else { timeout };
    let timeout = timeout.max(RESILIENCY_TIMEOUT_MIN);
    call.data_file()?;
    let (open, session) = (call.open()?, rq.session()?);
    let identity = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
    if identity.is_guest {
        // Nothing of a guest outlives its connection.
        return Err(Status::ACCESS_DENIED.into());
    }
    let is_new = open.survival().is_none();
    let survival = open.survival_or(&rq.server().durables, || {
        let asked = Asked {
            file_name: call.file().map(|file| file.name().to_string()).unwrap_or_default(),
            desired_access: open.granted_access,
            share_access: ShareAccess::EMPTY,
            create_options: CreateOptions::EMPTY,
        };
        Survival::new(&identity.user, session.client_guid, None, None, asked, CreateAction::OPENED)
    });
    if is_new {
        rq.server().durables.add(open, session.id)?;
    }
    survival.set_resilient(timeout);
    NO_OUTPUT
}
