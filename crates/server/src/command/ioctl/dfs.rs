//! FSCTL_DFS_GET_REFERRALS and FSCTL_DFS_GET_REFERRALS_EX: MS-SMB2 3.3.5.15.2, MS-DFSC 3.2.5.

use std::sync::Arc;

use frevo_dfs::{Asker, Link, Resolution};
use frevo_store::name::Rules;
use frevo_store::{Name, Vfs};
use frevo_wire::Status;
use frevo_wire::command::ioctl::dfs::{ReferralRequest, ReferralRequestEx};

use super::call::{Answer, Call};
use crate::access::access_rules::{Caller, Verdict};
use crate::command::spelling::Spelling;
use crate::shares::namespace::{samba, without_share};
use crate::shares::share::Share;
use crate::shares::visibility;

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
    let root = root_of(call, path);
    if let Some(root) = &root
        && is_refused(call, root)?
    {
        return Err(Status::NOT_FOUND.into());
    }
    // The path as the root's clients mean it. It has as many characters as before, each component at its
    // place, so that PathConsumed counts the client's own.
    let path = match &root {
        Some(root) => &*Spelling::of(root, false).spell(path.to_owned()),
        None => path,
    };
    let link = match &root {
        Some(root) => samba_link(call, root, path).await?,
        None => None,
    };
    let (path, link) = match &root {
        // A link that is hidden from the caller is as one that does not exist.
        Some(root) if is_hidden(call, root, path, link.as_ref()).await? => (above(path), None),
        _ => (path, link),
    };
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

/// Returns the share that is the root of a path's namespace.
fn root_of(call: &Call<'_>, path: &str) -> Option<Arc<Share>> {
    let name = path.trim_start_matches('\\').split(['\\', '/']).nth(1)?;
    call.rq.server().shares().find(name).cloned()
}

/// Returns server and share of a path.
fn above(path: &str) -> &str {
    let begin = path.len().saturating_sub(path.trim_start_matches('\\').len());
    let mut ends = path.match_indices('\\').map(|(at, _)| at).filter(|at| *at >= begin);
    ends.nth(1).and_then(|end| path.get(..end)).unwrap_or(path)
}

/// True if the rules of the namespace's root refuse the caller, for whom it is as absent as for TREE_CONNECT:
/// links and their targets are told to those who may connect.
fn is_refused(call: &Call<'_>, root: &Share) -> Result<bool, Status> {
    let rq = call.rq;
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let domain_sids = rq.server().domain_names.sids();
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

/// Returns the files of a share as the caller's rights reach them. None while it takes no new users.
fn files_of(call: &Call<'_>, share: &Arc<Share>) -> Result<Option<Arc<dyn Vfs>>, Status> {
    if !share.life.takes_new() {
        return Ok(None);
    }
    let rq = call.rq;
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let (host, users, epoch) = (identity.host.user(), &rq.server().host_users, share.life.epoch());
    let acting = Arc::clone(share).acting_for(&identity.user, host, users, epoch);
    Ok(acting.and_then(|share| share.vfs().map(Arc::clone)))
}

/// Returns the link of Samba's (`samba_links`) at a path, or on the way to it, as far as the caller reaches it with
/// the rights that its files would be used with. It is looked up on a thread that may wait.
async fn samba_link(
    call: &Call<'_>,
    root: &Arc<Share>,
    path: &str,
) -> Result<Option<Link>, Status> {
    let has_links = root.namespace.as_ref().is_some_and(|own| own.has_samba_links());
    let rest = without_share(path);
    if !has_links || rest.is_empty() {
        return Ok(None);
    }
    // A name without these parts has fewer components than the path, of which some are consumed.
    if rest.split('\\').any(|part| matches!(part, "." | "..")) {
        return Ok(None);
    }
    let files = files_of(call, root)?;
    let (Some(vfs), Ok(name)) = (files, Name::parse(rest, Rules::Windows)) else { return Ok(None) };
    call.rq.beside_core(move || samba::find(&*vfs, &name)).await
}

/// True if the root hides what cannot be read, and so the link at a path or on the way to it: MS-SMB2 3.3.5.18.
async fn is_hidden(
    call: &Call<'_>,
    root: &Arc<Share>,
    path: &str,
    of_share: Option<&Link>,
) -> Result<bool, Status> {
    let (true, Some(published)) = (root.hide_unreadable, &root.namespace) else { return Ok(false) };
    let namespace = published.namespace();
    let link = match namespace.resolve(without_share(path)) {
        Resolution::Link { link, .. } => link,
        Resolution::Folder | Resolution::Nothing => match of_share {
            Some(link) => link,
            None => return Ok(false),
        },
    };
    let identity = call.rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let (Some(vfs), Ok(name)) = (files_of(call, root)?, Name::parse(link.path(), Rules::Windows))
    else {
        return Ok(true);
    };
    let viewer = Arc::clone(&identity.token);
    call.rq.beside_core(move || !visibility::is_link_visible(&*vfs, &name, &viewer)).await
}
