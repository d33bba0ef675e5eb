//! TREE_CONNECT: MS-SMB2 3.3.5.7.

mod cluster;

use std::hint::black_box;
use std::sync::Arc;

use frevo_proto::Dialect;
use frevo_wire::command::tree_connect::{
    self, ShareCapabilities, ShareFlags, ShareType, TreeConnectFlags,
};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::{HeaderFlags, Status};

use crate::access::access_rules::{Caller, Verdict};
use crate::access::domain_names::DomainSids;
use crate::access::throttle::shortened;
use crate::audit::{Event, Kind};
use crate::base::limits::CLOSED_ON_CORE;
use crate::base::pools::blocking_pool::BlockingPool;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::command::{audited, braking};
use crate::objects::connection_info::Negotiated;
use crate::objects::refusal::{ANOTHER_SERVES, Doom, Outcome, Refusal};
use crate::objects::session::Identity;
use crate::objects::settings::Encryption;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::brake::Braked;
use crate::shares::share::{Compress, Share, Target, Use};

/// The blocking pool for a request to a share that opens a folder for the user: a file system that
/// does not answer would hold the core.
pub(crate) fn pool(rq: &Request<'_>) -> Option<Arc<BlockingPool>> {
    let path = tree_connect::Request::parse(rq.message).ok()?.path.to_string().ok()?;
    let identity = rq.session().ok()?.identity()?;
    let shares = rq.server().shares();
    let share = shares.find_for(unc(&path)?.share, &identity.user)?;
    share.user_folders.as_ref()?;
    share.blocking_pool.clone()
}

/// Connects a session to a share.
pub(crate) fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let signed = rq.header.flags.contains(HeaderFlags::SIGNED);
    let is_anonymous = rq.session().is_ok_and(|session| session.is_anonymous());
    if rq.dialect() == Dialect::SMB_3_1_1 && !signed && !rq.encrypted && !is_anonymous {
        return Err(Doom::Rule("TREE_CONNECT neither signed nor sealed").into());
    }
    let request = tree_connect::Request::parse(rq.message)?;
    let path = request.path.to_string()?;
    let Some(unc) = unc(&path) else {
        tell_no_share(rq, &path);
        return Err(Status::INVALID_PARAMETER.into());
    };
    let (name, flags) = (unc.share, cluster::flags(rq, &request));
    let session = rq.session()?;
    let identity = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let peer = rq.connection.peer;
    // An anonymous session gets ACCESS_DENIED for each name except IPC$, so that it cannot find out
    // which shares exist; that of a guest for each share that lets no guest in.
    let is_open = name.eq_ignore_ascii_case("IPC$") || lets_guest_in(rq, unc, &identity);
    if identity.is_nobody() && !is_open {
        audited::connect_refused(rq, name, Status::ACCESS_DENIED, "no account");
        return Err(Status::ACCESS_DENIED.into());
    }
    let (share, granted) = match admit(rq, unc, &identity) {
        Ok(admitted) => admitted,
        Err(why) => return Err(refused(rq, name, &identity, why).into()),
    };
    cluster::check_dialect(rq, &share, flags, &identity)?;
    check_encryption(rq, &share)?;
    // Uses are counted where the share is served, so a server that does not serve it knows none.
    cluster::check_owner(rq, &share, flags, &identity)?;
    check_served(rq, &share, flags, &identity)?;
    let braked = braked(rq, &share, &identity)?;
    let share_use = take_use(rq, &share, &identity)?;
    let maximal_access = share.maximal_access() & granted;
    let tree = session.add_tree(|id| {
        TreeConnect::new(id, Arc::clone(&share), maximal_access)
            .used_by(session.shared_identity())
            .connected_from(rq.source())
            .braked(braked)
            .counted(share_use)
    })?;
    // If the rules changed before the tree connect was added, the review of all tree connects
    // missed this one, so it is judged once more.
    let present = session.identity().unwrap_or_else(|| Arc::clone(&identity));
    if let Some(why) = rq.server().excess(&tree, &present) {
        rq.server().end_tree(session, &tree);
        return Err(refused(rq, name, &present, why).into());
    }
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::tree", %peer, user = %identity.user, share = %share.name,
            left_out, "tree connected");
    });
    rq.server().audit.emit(|| {
        Event::new(Kind::Connect)
            .from(rq.source())
            .by(Some(Arc::clone(&identity)))
            .with("share", &*share.name)
    });
    out.set_tree_id(tree.id);
    answer(rq, &share, flags, maximal_access).encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// The answer to a client that is connected.
fn answer(
    rq: &Request<'_>,
    share: &Share,
    flags: TreeConnectFlags,
    maximal_access: AccessMask,
) -> tree_connect::Response {
    tree_connect::Response {
        share_type: match share.target {
            Target::Disk(_) => ShareType::DISK,
            Target::Pipes => ShareType::PIPE,
        },
        share_flags: share_flags(rq, share),
        capabilities: share_capabilities(rq, share) | cluster::capabilities(rq, share, flags),
        maximal_access,
    }
}

/// Records a refusal by the rules of a share, and returns its status.
fn refused(rq: &Request<'_>, name: &str, identity: &Identity, why: &'static str) -> Status {
    rq.tell(|left_out| {
        tracing::warn!(target: "frevo::tree", peer = %rq.connection.peer, user = %identity.user,
            share = shortened(name), left_out, "refused: {why}");
    });
    audited::connect_refused(rq, name, Status::BAD_NETWORK_NAME, why);
    Status::BAD_NETWORK_NAME
}

/// The parts of `\\server\share`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unc<'a> {
    /// Anything but empty, for clients use addresses and aliases.
    server: &'a str,
    share: &'a str,
}

fn unc(path: &str) -> Option<Unc<'_>> {
    let (server, share) = path.strip_prefix("\\\\")?.split_once('\\')?;
    let is_good = !server.is_empty() && !share.is_empty() && !share.contains('\\');
    is_good.then_some(Unc { server, share })
}

/// Tells of a path that names no share.
fn tell_no_share(rq: &Request<'_>, path: &str) {
    rq.tell(|left_out| {
        tracing::warn!(target: "frevo::tree", peer = %rq.connection.peer, path = shortened(path),
            left_out,
            "refused: the path is not \\\\server\\share; connect to the share, and open folders below it \
             by their names (Linux: -o prefixpath=FOLDER), or make the folder a share of its own");
    });
}

/// True if the user is a guest, and the share of these names lets it in.
fn lets_guest_in(rq: &Request<'_>, unc: Unc<'_>, identity: &Identity) -> bool {
    let address = rq.connection.peer.ip();
    let shares = rq.server().shares();
    identity.is_guest
        && shares.find(unc.share).is_some_and(|share| share.as_guests_have_it(address).is_some())
}

/// Returns the share of these names with the rights that its access list grants to the caller, or the
/// reason of the refusal for the log.
///
/// Deviation: MS-SMB2 3.3.5.7 has ACCESS_DENIED for a share that refuses the caller. Here the
/// answer is that for a share that does not exist, so that nobody can find names by trying. The
/// rules are checked for a missing share too, so that both answers take the same time.
fn admit(
    rq: &Request<'_>,
    unc: Unc<'_>,
    identity: &Identity,
) -> Result<(Arc<Share>, AccessMask), &'static str> {
    let shares = rq.server().shares();
    let domain_sids = rq.server().domain_names.sids();
    let caller = caller(rq, identity, &domain_sids);
    // MS-SRVS 3.1.6.8: the name of the server decides which shares there are.
    let scope = rq.server().cluster.scope(unc.server);
    let found = shares.find_for(unc.share, &identity.user).filter(|share| scope.shows(share));
    let of_guests = found
        .filter(|share| identity.is_guest && !share.is_pipes())
        .and_then(|share| share.as_guests_have_it(caller.address));
    let found = of_guests.as_ref().or(found);
    let rules = found.map_or(shares.rules_of_none(), |share| &share.rules);
    let read_only = found.is_some_and(|share| share.read_only);
    // The rules are judged even if the share does not exist, so that the time of the answer does
    // not reveal which shares exist.
    let verdict = black_box(rules.judge(&caller, read_only));
    let share = found.map(Arc::clone).ok_or("there is no share of that name")?;
    let granted = share.rules.granted(&caller);
    let share = match verdict {
        Verdict::Refused(why) => return Err(why),
        Verdict::Reads => share.seen(true),
        Verdict::Writes => share.seen(false),
    };
    let users = &rq.server().host_users;
    let share = share.for_account(&identity.user).ok_or("the user has no folder in this share")?;
    let epoch = share.life.epoch();
    let share = share.acting_for(&identity.user, identity.host.user(), users, epoch).ok_or(
        "the share has `run_as = \"user\"`, but this host has no such user (root is not allowed)",
    )?;
    Ok((share, granted))
}

/// The user of a request, as rules judge it.
fn caller<'a>(rq: &Request<'_>, identity: &'a Identity, domain_sids: &'a DomainSids) -> Caller<'a> {
    Caller {
        user: &identity.user,
        groups: &identity.groups,
        groups_are_known: identity.host.is_known(),
        token: &identity.token,
        domain_sids,
        address: rq.connection.peer.ip(),
    }
}

/// Refuses a share that this server does not serve, or not yet: see
/// [`Life::refusal`](crate::shares::life::Life::refusal).
fn check_served(
    rq: &Request<'_>,
    share: &Share,
    flags: TreeConnectFlags,
    identity: &Identity,
) -> Result<(), Refusal> {
    if share.life.takes_new() {
        if share.clustered {
            // Opens that were to be closed during a pause are in the way of the client that had them.
            rq.server().close_late_opens(CLOSED_ON_CORE);
        }
        return Ok(());
    }
    let state = share.life.state();
    let is_stranded = cluster::is_stranded(share, flags);
    let Some(status) = share.life.refusal(is_stranded) else {
        return Err(Refusal::Disconnect(ANOTHER_SERVES));
    };
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::tree", peer = %rq.connection.peer, left_out,
            user = %identity.user, share = %share.name, state = state.name(),
            "refused: this server does not serve the share now");
    });
    audited::connect_refused(rq, &share.name, status, state.name());
    Err(status.into())
}

/// The user as the brake of the share has it. Refuses an account that the brake of any share keeps out.
fn braked(
    rq: &Request<'_>,
    share: &Share,
    identity: &Identity,
) -> Result<Option<Arc<Braked>>, Status> {
    if share.is_pipes() {
        return Ok(None);
    }
    let shares = rq.server().shares();
    let domain_sids = rq.server().domain_names.sids();
    let caller = caller(rq, identity, &domain_sids);
    let mut brakes = shares.all().filter_map(|share| share.brake.as_ref());
    if brakes.any(|brake| brake.refuses(&caller)) {
        audited::connect_refused(rq, &share.name, Status::ACCESS_DENIED, braking::CUT);
        return Err(Status::ACCESS_DENIED);
    }
    let Some(brake) = &share.brake else { return Ok(None) };
    Ok(brake.client(&caller).filter(|_| !share.read_only))
}

/// MS-SMB2 3.3.5.7: REQUEST_NOT_ACCEPTED when Share.CurrentUses has reached Share.MaxUses.
fn take_use(rq: &Request<'_>, share: &Share, identity: &Identity) -> Result<Use, Status> {
    let account = rq.session()?.holder().name().to_string();
    share.uses.take(share.max_connections, &account).ok_or_else(|| {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::tree", peer = %rq.connection.peer, left_out,
                user = %identity.user, share = %share.name,
                "refused: the share has as many connections as max_connections allows, or the \
                 user has more than a quarter of them and the others are kept for other users");
        });
        audited::connect_refused(rq, &share.name, Status::REQUEST_NOT_ACCEPTED, "max_connections");
        Status::REQUEST_NOT_ACCEPTED
    })
}

/// MS-SMB2 3.3.5.7: ACCESS_DENIED, which only a caller who may use the share is told.
fn check_encryption(rq: &Request<'_>, share: &Share) -> Result<(), Status> {
    let required = share.encrypt || rq.connection.settings.encryption == Encryption::Required;
    let seals = |n: &Negotiated| n.terms.cipher.is_some() || n.accepts_transport_security;
    let able = rq.connection.is_smb3() && rq.connection.negotiated().is_ok_and(seals);
    if required && !able {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::tree", peer = %rq.connection.peer, share = %share.name,
                left_out,
                "refused: the share demands encryption and the client offers none; mount with SMB 3 \
                 and encryption (Linux: vers=3.1.1,seal), or set encryption = \"offered\"");
        });
        audited::connect_refused(rq, &share.name, Status::ACCESS_DENIED, "no encryption");
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

fn share_flags(rq: &Request<'_>, share: &Share) -> ShareFlags {
    let mut flags = match share.target {
        // The empty flags mean SMB2_SHAREFLAG_MANUAL_CACHING: users choose which files are
        // available offline.
        Target::Disk(_) => ShareFlags::EMPTY,
        // As on Windows, the data of pipes must not be cached.
        Target::Pipes => ShareFlags::NO_CACHING,
    };
    // MS-SMB2 2.2.3.1.5: where the transport encrypts, SMB does not.
    let by_transport = rq.connection.accepts_transport_security();
    if share.encrypt && rq.connection.is_smb3() && !by_transport {
        flags |= ShareFlags::ENCRYPT_DATA;
    }
    // MS-SMB2 3.3.5.7: Share.CompressData
    if share.compress == Compress::All && rq.connection.compression().is_some() {
        flags |= ShareFlags::COMPRESS_DATA;
    }
    if share.hide_unreadable {
        flags |= ShareFlags::ACCESS_BASED_DIRECTORY_ENUM;
    }
    // MS-SMB2 3.3.5.7: Share.IsDfs
    if share.namespace.is_some() {
        flags |= ShareFlags::DFS | ShareFlags::DFS_ROOT;
    }
    flags
}

fn share_capabilities(rq: &Request<'_>, share: &Share) -> ShareCapabilities {
    let keeps_opens = rq.server().durables.store().is_some();
    let mut capabilities = ShareCapabilities::EMPTY;
    if share.continuous && keeps_opens && rq.connection.is_smb3() {
        capabilities |= ShareCapabilities::CONTINUOUS_AVAILABILITY;
    }
    // MS-SMB2 3.3.5.7: Share.IsDfs
    if share.namespace.is_some() {
        capabilities |= ShareCapabilities::DFS;
    }
    capabilities
}

#[cfg(test)]
mod tests {
    use super::unc;

    #[test]
    fn only_unc_paths_name_shares() {
        let names = |path| unc(path).map(|unc| (unc.server, unc.share));
        assert_eq!(names("\\\\host\\data"), Some(("host", "data")));
        assert_eq!(names("\\\\192.0.2.1\\IPC$"), Some(("192.0.2.1", "IPC$")));
        for bad in ["", "data", "\\data", "\\\\host", "\\\\host\\", "\\\\\\data", "\\\\h\\a\\b"] {
            assert_eq!(names(bad), None, "{bad}");
        }
    }
}
