//! Shadow copies of shares, MS-FSRVP, for one caller.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_rpc::Call;
use frevo_rpc::fsrvp::{HResult, LEAST_LEVEL, Reply, Request, VERSION_1};
use frevo_wire::Status;

use super::waits::Started;
use crate::audit::{Event, Kind};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::objects::server::ServerState;
use crate::objects::shadow_copies::Requester;

/// The caller of the interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct BackupCaller<'a> {
    pub(super) server: &'a Arc<ServerState>,
    pub(super) user: &'a str,
    pub(super) address: IpAddr,
    /// True for members of Administrators and of Backup Operators, MS-FSRVP 3.1.4 note 4.
    pub(super) may_back_up: bool,
}

/// The interface on one association, which keeps nothing.
#[derive(Debug)]
pub(super) struct ShadowCopyCalls;

impl ShadowCopyCalls {
    /// Starts a call. Its answer comes from the thread of the shadow copies.
    pub(super) fn start(&self, call: &Call, caller: BackupCaller<'_>) -> Started {
        let request = match Request::parse(call.opnum, &call.stub) {
            Ok(request) => request,
            Err(fault) => return Started::Ended(Err(fault)),
        };
        let refusal = if call.level < LEAST_LEVEL {
            // MS-FSRVP 3.1.4: the protection of SMB does not count.
            Some(HResult::ACCESS_DENIED)
        } else if caller.may_back_up {
            None
        } else {
            tell_refused(&request, caller);
            Some(HResult::ACCESS_DENIED)
        };
        let ended = |result| Started::Ended(Ok(Reply::encode(&request, &result)));
        if let Some(status) = refusal {
            return ended(Err(status));
        }
        if request == Request::GetSupportedVersion {
            return ended(Ok(Reply::Version(VERSION_1)));
        }
        let Some(copies) = caller.server.shadow_copies.get() else {
            return ended(Err(HResult::NOT_SUPPORTED));
        };
        let requester = Requester { user: caller.user.to_owned(), address: caller.address };
        let answer = copies.call(request.clone(), requester);
        Started::Waits(Box::pin(async move { Ok(Reply::encode(&request, &answer.await)) }))
    }
}

/// Writes an attempt of another caller to make or to remove a shadow copy into the audit log.
fn tell_refused(request: &Request, caller: BackupCaller<'_>) {
    let change = match request {
        Request::SetContext(_)
        | Request::Start { .. }
        | Request::Add { .. }
        | Request::Commit { .. }
        | Request::Expose { .. } => "create",
        Request::Abort { .. } | Request::DeleteShareMapping { .. } => "remove",
        _ => return,
    };
    caller.server.audit.emit_limited(caller.address, || {
        Event::new(Kind::Snapshot)
            .status(Status::ACCESS_DENIED)
            .with("change", change)
            .with("by", cut(caller.user, AUDIT_VALUE_BYTES).to_owned())
            .with("peer", caller.address.to_string())
            .with("reason", "the caller is in neither Administrators nor Backup Operators")
    });
}
