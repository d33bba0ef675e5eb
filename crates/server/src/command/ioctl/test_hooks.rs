//! Control codes by which Samba's smbtorture makes a server misbehave. They are only in builds
//! with the feature `test-hooks`, and work only in a server that was started with
//! `--test-hooks`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_wire::Status;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::file_id::FileId;

use super::call::respond;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::refusal::Outcome;

/// The transport of this connection acknowledges nothing any more, as far as
/// break notifications go. It comes without a session.
const FORCE_UNACKED_TIMEOUT: CtlCode = CtlCode(0x8384_8003);
/// Waits as many milliseconds as its one byte of input says.
const FSP_ASYNC_SLEEP: CtlCode = CtlCode(0x8384_8043);

/// The next bytes behind this response's fixed part are eight that mean nothing.
const IOCTL_RESPONSE_BODY_PADDING8: CtlCode = CtlCode(0x8384_8013);
/// From now on that is so in each READ response of this connection.
const GLOBAL_READ_RESPONSE_BODY_PADDING8: CtlCode = CtlCode(0x8384_8023);

/// Where the fixed part of an IOCTL response ends: MS-SMB2 2.2.32.
const BODY_END: u32 = 64 + 48;

/// True for a code of these, where `Settings::test_hooks` is set.
pub(super) fn is_one(rq: &Request<'_>, code: CtlCode) -> bool {
    let is_one = matches!(
        code,
        FORCE_UNACKED_TIMEOUT
            | FSP_ASYNC_SLEEP
            | IOCTL_RESPONSE_BODY_PADDING8
            | GLOBAL_READ_RESPONSE_BODY_PADDING8
    );
    rq.connection.settings.test_hooks && is_one
}

/// Does what the code says.
pub(super) async fn handle(
    rq: &Request<'_>,
    request: &ioctl::Request<'_>,
    out: &mut Response,
) -> Outcome {
    if request.ctl_code == IOCTL_RESPONSE_BODY_PADDING8 {
        return pad(request, out);
    }
    match (request.ctl_code, request.input) {
        (FORCE_UNACKED_TIMEOUT, []) => {
            rq.connection.test_hooks.plays_dead.store(true, Ordering::Relaxed)
        }
        (FSP_ASYNC_SLEEP, [milliseconds]) => {
            rq.open()?;
            // The pause keeps this request running, so that a test can check that a CLOSE waits for
            // it.
            tokio::time::sleep(Duration::from_millis((*milliseconds).into())).await;
        }
        (GLOBAL_READ_RESPONSE_BODY_PADDING8, []) => {
            rq.connection.test_hooks.pads_reads.store(true, Ordering::Relaxed)
        }
        _ => return Err(Status::INVALID_PARAMETER.into()),
    }
    respond(rq, request, &[], Status::SUCCESS, out)
}

/// One byte of output, 8, behind as many that mean nothing.
fn pad(request: &ioctl::Request<'_>, out: &mut Response) -> Outcome {
    let mut w = out.writer();
    w.u16(49).u16(0).u32(request.ctl_code.0);
    FileId::ALL_ONES.encode(&mut w);
    w.u32(BODY_END).u32(0).u32(BODY_END + 8).u32(1).u64(0).bytes(&[0; 8]).u8(8);
    Ok(Status::SUCCESS)
}
