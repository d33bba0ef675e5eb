//! FSCTL_DFS_GET_REFERRALS and FSCTL_DFS_GET_REFERRALS_EX: MS-SMB2 3.3.5.15.2, MS-DFSC 3.2.5.

use frevo_dfs::Asker;
use frevo_wire::Status;
use frevo_wire::command::ioctl::dfs::{ReferralRequest, ReferralRequestEx};

use super::call::{Answer, Call};
use crate::access::access_rules::{Caller, Verdict};

/// Answers FSCTL_DFS_GET_REFERRALS.
pub(super) fn referrals(call: &Call<'_>) -> Answer {
    is_capable(call)?;
    let request = ReferralRequest::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    answer(call, request.max_level, &request.path)
}

/// Answers FSCTL_DFS_GET_REFERRALS_EX. The site's name in the request is not used: this server knows the
/// sites of no domain.
pub(super) fn referrals_ex(call: &Call<'_>) -> Answer {
    is_capable(call)?;
    let request = ReferralRequestEx::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    answer(call, request.max_level, &request.path)
}

/// MS-SMB2 3.3.5.15.2: FS_DRIVER_REQUIRED if the server is not IsDfsCapable.
fn is_capable(call: &Call<'_>) -> Result<(), Status> {
    if call.rq.server().shares().namespaces.is_empty() {
        return Err(Status::FS_DRIVER_REQUIRED);
    }
    // Deviation: MS-DFSC has referrals for everybody. Here a caller without an account is told nothing
    // of other servers.
    match call.rq.session()?.identity() {
        Some(identity) if !identity.is_nobody() => Ok(()),
        _ => Err(Status::ACCESS_DENIED),
    }
}

fn answer(call: &Call<'_>, max_level: u16, path: &str) -> Answer {
    let server = call.rq.server();
    let mut number = [0; 8];
    server.ambient.random(&mut number);
    let settings = server.settings();
    let view = server.target_servers.for_client(call.rq.connection.peer.ip(), &settings.sites);
    let asker = Asker {
        number: u64::from_le_bytes(number),
        is_near: &|target| view.is_near(target),
        is_failing: &|server| view.is_failing(server),
    };
    // MS-DFSC 3.2.5.1: no version is at most 0.
    if max_level == 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if is_refused(call, path)? {
        return Err(Status::NOT_FOUND.into());
    }
    let response = server.shares().namespaces.referrals(path, &asker)?;
    let room = call.max_output as usize;
    // MS-DFSC 3.2.5.1: whole entries only, and none is BUFFER_OVERFLOW. MS-SMB2 3.3.4.4: that is no
    // error response; as on Windows (3.3.5.15.2 note 384) it has no data.
    Ok(match response.encode_within(max_level, room) {
        Some(output) => (output, Status::SUCCESS),
        None => (Vec::new(), Status::BUFFER_OVERFLOW),
    })
}

/// True if the rules of the namespace's root refuse the caller, for whom it is as absent as for TREE_CONNECT:
/// links and their targets are told to those who may connect.
fn is_refused(call: &Call<'_>, path: &str) -> Result<bool, Status> {
    let rq = call.rq;
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let Some(name) = path.trim_start_matches('\\').split('\\').nth(1) else { return Ok(false) };
    let (shares, domain_sids) = (rq.server().shares(), rq.server().domain_names.sids());
    let Some(root) = shares.find(name) else { return Ok(false) };
    let caller = Caller {
        user: &identity.user,
        groups: &identity.groups,
        groups_are_known: identity.host.is_known(),
        token: &identity.token,
        domain_sids: &domain_sids,
        address: rq.connection.peer.ip(),
    };
    Ok(matches!(root.rules.judge(&caller, root.read_only), Verdict::Refused(_)))
}
