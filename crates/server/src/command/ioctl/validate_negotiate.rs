//! FSCTL_VALIDATE_NEGOTIATE_INFO, MS-SMB2 3.3.5.15.12: whether somebody
//! between client and server changed what they negotiated.

use frevo_proto::Dialect;
use frevo_wire::command::ioctl::validate_negotiate::{Request, Response};

use super::call::{Answer, Call, output};
use crate::objects::refusal::Doom;
use frevo_wire::Status;

/// Bytes of the output.
const RESPONSE_LEN: u32 = 24;

/// Says again what was negotiated, or ends the connection when the client
/// remembers it otherwise.
pub(super) fn handle(call: &Call<'_>) -> Answer {
    let connection = call.rq.connection;
    let negotiated = connection.negotiated()?;
    if negotiated.terms.dialect == Dialect::SMB_3_1_1 {
        return Err(Doom::Rule("VALIDATE_NEGOTIATE_INFO in 3.1.1").into());
    }
    let request = Request::parse(call.input)?;
    if call.max_output < RESPONSE_LEN {
        return Err(Doom::Rule("VALIDATE_NEGOTIATE_INFO without room for its output").into());
    }
    let same = request.dialects == negotiated.client_dialects
        && request.guid == negotiated.client_guid
        && request.security_mode == negotiated.client_security_mode
        && request.capabilities == negotiated.client_capabilities;
    if !same {
        connection.tell(|left_out| {
            tracing::warn!(target: "frevo::connection", peer = %connection.peer, left_out,
                "refused: the client's NEGOTIATE was changed on its way; somebody may be trying to \
                 weaken the connection");
        });
        return Err(Doom::Rule("VALIDATE_NEGOTIATE_INFO does not match NEGOTIATE").into());
    }
    let response = Response {
        capabilities: negotiated.server_capabilities,
        guid: connection.settings.server_guid,
        security_mode: negotiated.server_security_mode,
        dialect: negotiated.terms.dialect,
    };
    Ok((output(|w| response.encode(w)), Status::SUCCESS))
}
