//! CREATE: MS-SMB2 3.3.5.9, with the object store's part of MS-FSA 2.1.5.1.

mod access;
mod apple;
mod contexts;
mod creation;
mod durable;
mod finish;
mod host_lease;
mod lease;
mod node;
mod open;
mod replay;
mod scanned;
mod streams;
pub(super) mod symlink;
mod timewarp;
mod validate;
mod wanted;

use std::pin::pin;
use std::sync::Arc;

use frevo_store::lease::Granted;
use frevo_store::name::Rules;
use frevo_store::vfs::OpenHow;
use frevo_store::{Fault, Name, Shape, Vfs};
use frevo_wire::command::create::{self, CreateAction, CreateOptions};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::{HeaderFlags, Status};

use crate::command::request::Request;
use crate::command::response::Response;
use crate::command::spelling::{self, Spelling};
use crate::ipc;
use crate::objects::audited;
use crate::objects::lease::{self as breaks, delivery};
use crate::objects::open::Open;
use crate::objects::refusal::{Outcome, Refusal};
use crate::objects::session::Session;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::namespace::without_share;
use crate::shares::posix;
use crate::shares::quota;
use crate::shares::share::Target;
use crate::shares::visibility;
pub(super) use access::refused;
use creation::{Create, Made};
use replay::Entry;
use wanted::{DurableWanted, Wanted};

/// True if the user of a session may open files: a session that re-authenticated as anonymous keeps its
/// Opens, but must not open further files. A guest is connected to shares for guests alone.
fn opens_files(session: &Session) -> bool {
    session.identity().is_some_and(|identity| !identity.is_nobody() || identity.is_guest)
}

/// Returns the contexts about survival that count. Nothing of a guest outlives its connection, because
/// nobody could tell whether it is the same one who comes back.
fn lasting(rq: &Request<'_>, wanted: DurableWanted) -> Result<DurableWanted, Status> {
    match rq.session()?.identity() {
        Some(identity) if identity.is_guest && wanted.is_reconnect() => {
            Err(Status::OBJECT_NAME_NOT_FOUND)
        }
        Some(identity) if identity.is_guest => Ok(DurableWanted::default()),
        _ => Ok(wanted),
    }
}

/// Opens or makes a file, a directory or a pipe.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let mut request = create::Request::parse(rq.message)?;
    let checked = validate::parameters(&request);
    if checked.is_err() && !durable::is_reconnect(&request) {
        // MS-SMB2 3.3.5.9.7: a reconnect ignores errors in the rest of the request, but any other
        // CREATE reports them.
        checked?;
    }
    let tree = rq.tree()?;
    let live = match &tree.share.target {
        Target::Pipes => return ipc::create(rq, &request, out),
        Target::Disk(_) if !opens_files(rq.session()?) => {
            return Err(Status::ACCESS_DENIED.into());
        }
        Target::Disk(live) => live,
    };
    // Somebody else may have taken those Opens out of the list, and be closing them.
    if tree.share.clustered
        && (rq.server().cluster.has_late_opens() || tree.share.life.has_late_changes())
    {
        Box::pin(rq.server().late_opens_have_closed(&tree.share.life)).await;
        rq.still_served()?;
    }
    let mut wanted = contexts::parse(&request)?;
    wanted.durable = lasting(rq, wanted.durable.known_to(rq))?;
    if let Some(id) = wanted.operation {
        rq.session()?.operations.begin(id)?;
        out.set_operation(id);
    }
    if wanted.durable.is_reconnect() {
        let open = durable::reconnect(rq, &request, &wanted.durable).await?;
        return again(rq, &request, &wanted, &open, CreateAction::OPENED, out);
    }
    let chosen = choose(rq, &mut request, &wanted, tree, live);
    let chosen = chosen.inspect_err(|refusal| tell_name(rq, refusal))?;
    let Chosen { vfs, name, desired, posix } = chosen;
    let vfs = &vfs;
    let file_id = rq.server().new_file_id_in(&tree.share)?;
    let wish = lease::wish(rq, &request, wanted.lease)?;
    let wanted = &wanted;
    let create = Create { rq, request: &request, wanted, posix, name, desired, file_id, vfs, wish };
    let _creating = match create.enter()? {
        Entry::Same(open) => {
            let action = open.survival().map_or(CreateAction::OPENED, |s| s.action);
            // The request is a replay of a CREATE that succeeded, whose durable record may not be
            // stable yet. It must be stable before the answer.
            create.keep(&open).await?;
            return again(rq, &request, wanted, &open, action, out);
        }
        Entry::New(creating) => creating,
    };
    // MS-SMB2 3.3.5.9.13: an application instance first closes its own earlier Opens. Otherwise
    // `check_held` would refuse this CREATE because of them.
    create.take_over()?;
    if create.is_early() || create.check_held().is_err() {
        let free = create.await_holders().await;
        free.map_err(|refusal| create.discreet(refusal.into()))?;
    }
    let made = pin!(create.open()).await.map_err(|refusal| create.discreet(refusal))?;
    pin!(complete(&create, made, out)).await
}

/// The name of a CREATE, with the file system that it is looked up in.
struct Chosen {
    /// The share's, one of its snapshots, or the quota index.
    vfs: Arc<dyn Vfs>,
    name: Name,
    /// DesiredAccess with generic rights mapped.
    desired: AccessMask,
    /// The mode of a POSIX Open.
    posix: Option<u32>,
}

/// Checks name and rights, and chooses between the share's live files, a snapshot and the
/// quota index.
fn choose(
    rq: &Request<'_>,
    request: &mut create::Request<'_>,
    wanted: &Wanted,
    tree: &TreeConnect,
    live: &Arc<dyn Vfs>,
) -> Result<Chosen, Refusal> {
    let mut text = request.name.to_string().map_err(|_| Status::OBJECT_NAME_INVALID)?;
    // MS-SMB2 3.3.5.9: the path is normalised if it is one of DFS and the share is one (Share.IsDfs).
    let published = tree.share.namespace.as_ref();
    let published = published.filter(|_| rq.header.flags.contains(HeaderFlags::DFS_OPERATIONS));
    let posix = posix::mode_asked(request, rq.has_posix_extensions())?;
    text = Spelling::of(&tree.share, posix.is_some()).spell(text);
    if let Some(published) = published {
        let found = published.normalize(&text);
        let found = found.map_err(|status| discreet_link(tree, live, &text, status));
        text = found?.to_owned();
    }
    let places = &rq.session()?.holder().host_places;
    let (vfs, text) = timewarp::choose(live, &text, wanted.timewarp, places)?;
    let is_past = !Arc::ptr_eq(&vfs, live);
    let (vfs, text) = quota::choose(vfs, text);
    let rules = if posix.is_some() { Rules::Posix } else { Rules::Windows };
    let name = validate::name(&text, request.create_options, rules)?;
    if rules == Rules::Windows {
        if text.contains(':') && !vfs.volume().streams {
            // On a share without named streams each name with a colon is refused, as on Windows:
            // even "name::$DATA", which means the main data.
            return Err(Status::OBJECT_NAME_INVALID.into());
        }
        validate::stream_type(&text, &name, request)?;
    }
    if published.is_some_and(|published| published.has_samba_links()) && !is_past {
        check_covered(&*vfs, &name, request.create_options)?;
    }
    let mut desired = validate::access(request, tree)
        .inspect_err(|status| validate::tell_read_only(rq, tree, &name, *status))?;
    if !Arc::ptr_eq(&vfs, live) {
        let asked = desired;
        desired = timewarp::check_access(request, desired)?;
        // MS-FSCC 2.5.2: default quotas are set through the quota index file, so the client needs
        // the right to write it.
        if !is_past && quota::manages(&tree.token()).is_ok() {
            desired |= asked & AccessMask::WRITE_DATA;
        }
    }
    Ok(Chosen { vfs, name, desired, posix })
}

/// MS-SMB2 3.3.5.9: the status for a path of DFS that `status` refuses, where what cannot be read is hidden.
fn discreet_link(tree: &TreeConnect, live: &Arc<dyn Vfs>, path: &str, status: Status) -> Status {
    let Some(viewer) = tree.viewer() else { return status };
    match Name::parse(without_share(path), Rules::Windows) {
        Ok(name) => visibility::refusal(&**live, &name, &viewer, status),
        Err(invalid) => invalid,
    }
}

/// MS-DFSC 3.2.4.1: a path of DFS that is a link is not this server's, also for a request that would open the
/// link itself. Links of the namespace were found in the path alone, those of Samba's are the host's.
fn check_covered(vfs: &dyn Vfs, name: &Name, options: CreateOptions) -> Result<(), Status> {
    if !options.contains(CreateOptions::OPEN_REPARSE_POINT) {
        // The open itself finds the link.
        return Ok(());
    }
    match vfs.open(&name.with_stream(None), &OpenHow::LOOK) {
        Err(fault @ (Fault::NotCovered | Fault::DfsUnavailable)) => Err(fault.status()),
        _ => Ok(()),
    }
}

/// Tells of a name that is refused as it is spelled.
fn tell_name(rq: &Request<'_>, refusal: &Refusal) {
    let name = create::Request::parse(rq.message).ok().and_then(|r| r.name.to_string().ok());
    if let (Some(name), Some(status)) = (name, refusal.status()) {
        spelling::tell_refused(rq, &name, status);
    }
}

/// Makes the Open of a file that was found or made, and answers.
async fn complete(create: &Create<'_>, made: Made<'_>, out: &mut Response) -> Outcome {
    let (rq, tree) = (create.rq, create.rq.tree()?);
    let file_created = made.opened.file_created;
    if let Some(scanning) = create.scanning(&made) {
        let scanned = Box::pin(create.await_scan(scanning, &made)).await;
        scanned.map_err(|status| create.discreet(status.into()))?;
    }
    if made.is_long_to_overwrite() {
        Box::pin(create.shorten(&made)).await?;
    }
    let (fresh, action, stat) = create.finish(made)?;
    let open = &fresh.open;
    let file = open.file()?;
    create.write_through(open)?;
    // A new file is synced to the disk first, because its lease or oplock and its durable record,
    // both made below, would be useless without the file.
    create.make_stable(open, action).await?;
    let (id, route) = (file.id, create.route()?);
    let shape = Shape { is_directory: file.is_directory, allocation: stat.allocation };
    if !tree.share.level2_oplocks {
        file.cell.lock().oplocks.forbid_level_two();
    }
    let granted = rq.server().files.grant(&file.cell, id, shape, create.wish, route);
    if granted == Granted::Nothing {
        open.set_promise(None);
    }
    let (holder, peer) = (rq.session()?.holder(), rq.connection.peer.ip());
    breaks::host::watch(rq.server(), file, granted, holder, peer);
    create.grant_survival(open, action)?;
    create.keep(open).await?;
    create.report(file, action, file_created);
    audited::opened(tree, open, action);
    rq.session()?.attach_open(open)?;
    let open = fresh.kept();
    out.set_file_id(create.file_id);
    create.respond(&open, action, &stat, granted, out)?;
    if let (Some(shown), CreateAction::OPENED) = (rq.shown, action) {
        shown.note(open.file()?, &stat);
    }
    Ok(Status::SUCCESS)
}

/// Answers with an Open that is there already.
fn again(
    rq: &Request<'_>,
    request: &create::Request<'_>,
    wanted: &Wanted,
    open: &Open,
    action: CreateAction,
    out: &mut Response,
) -> Outcome {
    let file = open.file()?;
    let (name, file_id, desired) = (file.name(), open.file_id, open.granted_access);
    let (vfs, wish) = (&file.vfs, lease::wish_of(file));
    let posix = posix::mode_asked(request, rq.has_posix_extensions())?;
    let create = Create { rq, request, wanted, posix, name, desired, file_id, vfs, wish };
    // From this line on, oplock breaks for the Open are sent over the present connection.
    file.cell.lock().oplocks.reroute(file.id, create.route()?);
    let stat = file.stat()?;
    out.set_file_id(file_id);
    create.respond(open, action, &stat, create.told(file), out)?;
    delivery::tell_again(rq.server(), file);
    Ok(Status::SUCCESS)
}
