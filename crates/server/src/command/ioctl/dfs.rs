//! FSCTL_DFS_GET_REFERRALS and FSCTL_DFS_GET_REFERRALS_EX: MS-SMB2 3.3.5.15.2, MS-DFSC 3.2.5.

use std::sync::Arc;

use frevo_dfs::{Asker, Link};
use frevo_store::Name;
use frevo_store::name::Rules;
use frevo_wire::Status;
use frevo_wire::command::ioctl::dfs::{ReferralRequest, ReferralRequestEx};

use super::call::{Answer, Call};
use crate::access::access_rules::{Caller, Verdict};
use crate::command::spelling::Spelling;
use crate::shares::namespace::samba;
use crate::shares::share::Share;

/// Answers FSCTL_DFS_GET_REFERRALS.
pub(super) async fn referrals(call: &Call<'_>) -> Answer {
    is_capable(call)?;
    let request = ReferralRequest::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    answer(call, request.max_level, &request.path).await
}

/// Answers FSCTL_DFS_GET_REFERRALS_EX. The site's name in the request is not used: this server knows the
/// sites of no domain.
pub(super) async fn referrals_ex(call: &Call<'_>) -> Answer {
    is_capable(call)?;
    let request = ReferralRequestEx::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    answer(call, request.max_level, &request.path).await
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

async fn answer(call: &Call<'_>, max_level: u16, path: &str) -> Answer {
    // MS-DFSC 3.2.5.1: no version is at most 0.
    if max_level == 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if is_refused(call, path)? {
        return Err(Status::NOT_FOUND.into());
    }
    let link = samba_link(call, path).await?;
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
    let shares = server.shares();
    let response = match &link {
        Some(link) => shares.namespaces.referrals_of(path, link, &asker)?,
        None => shares.namespaces.referrals(path, &asker)?,
    };
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

/// Returns the link of Samba's (`samba_links`) at a path, or on the way to it, as far as the caller reaches it with
/// the rights that its files would be used with. It is looked up on a thread that may wait.
async fn samba_link(call: &Call<'_>, path: &str) -> Result<Option<Link>, Status> {
    let rq = call.rq;
    let mut parts = path.trim_start_matches('\\').splitn(3, '\\').skip(1);
    let (Some(name), Some(rest)) = (parts.next(), parts.next()) else { return Ok(None) };
    let shares = rq.server().shares();
    let has_links = |share: &&Arc<Share>| {
        share.life.takes_new() && share.namespace.as_ref().is_some_and(|own| own.has_samba_links())
    };
    let Some(share) = shares.find(name).filter(has_links) else { return Ok(None) };
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let (host, users, epoch) = (identity.host.user(), &rq.server().host_users, share.life.epoch());
    let text = Spelling::of(share, false).spell(rest.to_owned());
    let acting = Arc::clone(share).acting_for(&identity.user, host, users, epoch);
    let vfs = acting.and_then(|share| share.vfs().map(Arc::clone));
    let (Some(vfs), Ok(name)) = (vfs, Name::parse(&text, Rules::Windows)) else { return Ok(None) };
    rq.beside_core(move || samba::find(&*vfs, &name)).await
}
