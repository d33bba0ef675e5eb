//! Control codes by which Samba's smbtorture makes a server misbehave. They
//! work only in a server that was started with `--test-hooks`.

use std::time::Duration;

use frevo_wire::Status;
use frevo_wire::command::ioctl::{self, CtlCode};

use super::{Answer, NO_OUTPUT};
use crate::request::Request;

/// The transport of this connection acknowledges nothing any more, as far as
/// break notifications go. It comes without a session.
const FORCE_UNACKED_TIMEOUT: CtlCode = CtlCode(0x8384_8003);
/// Waits as many milliseconds as its one byte of input says.
const FSP_ASYNC_SLEEP: CtlCode = CtlCode(0x8384_8043);

/// Whether the code is one of these, and they work.
pub(super) fn is_one(rq: &Request<'_>, code: CtlCode) -> bool {
    rq.connection.settings.test_hooks && matches!(code, FORCE_UNACKED_TIMEOUT | FSP_ASYNC_SLEEP)
}

/// Does what the code says.
pub(super) async fn handle(rq: &Request<'_>, request: &ioctl::Request<'_>) -> Answer {
    match (request.ctl_code, request.input) {
        (FORCE_UNACKED_TIMEOUT, []) => rq.connection.plays_dead.set(true),
        (FSP_ASYNC_SLEEP, [milliseconds]) => {
            let open = rq.open()?;
            tokio::time::sleep(Duration::from_millis((*milliseconds).into())).await;
            if open.is_closed() {
                return Err(Status::FILE_CLOSED.into());
            }
        }
        _ => return Err(Status::INVALID_PARAMETER.into()),
    }
    NO_OUTPUT
}
