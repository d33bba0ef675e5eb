//! CHANGE_NOTIFY: MS-SMB2 3.3.5.19. Changes made through this server are reported by it,
//! whichever user makes them. Changes by other programs on the host are reported by the file
//! system (`Vfs::observe`), which leaves out this process.

use std::sync::Arc;

use frevo_store::watch::{Change, Payer, Reported, Wanted, Watch};
use frevo_store::{Fault, HostChange, Observer};
use frevo_wire::Status;
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::Pushed;
use frevo_wire::fscc::notify::{NotifyEntry, NotifyWriter};
use parking_lot::Mutex;

use crate::base::limits::{FOLDERS_JUDGED, NAMES_JUDGED, NOTIFIES_PER_SESSION, WATCH_BYTES};
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::ledger::{Charge, Holder, Kind};
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::refusal::Outcome;
use crate::shares::impersonation;
use crate::shares::visibility;

/// Bytes of the response before its output.
const FIXED: usize = 8;

/// Waits for changes in a directory, until there are some, CANCEL, or the end
/// of the directory's Open.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = change_notify::Request::parse(rq.message)?;
    let max_output = request.output_buffer_length;
    if max_output > rq.connection.negotiated()?.terms.max_transact_size {
        return Err(Status::INVALID_PARAMETER.into());
    }
    rq.check_charge(max_output)?;
    let open = rq.open()?;
    let file = match &open.target {
        OpenTarget::File(file) if file.is_directory => file,
        _ => return Err(Status::INVALID_PARAMETER.into()),
    };
    // On a directory the bit READ_DATA means FILE_LIST_DIRECTORY. The client must have been granted
    // this right.
    open.require(AccessMask::READ_DATA)?;
    if !rq.tree()?.share.change_notify {
        // Deviation: MS-SMB2 3.3.5.19 returns NOT_SUPPORTED if the file system cannot notify. The
        // setting `change_notify = false` comes from Samba, so Samba's status is returned.
        return Err(Status::NOT_IMPLEMENTED.into());
    }
    let notifies = &rq.session()?.notifies;
    let _slot = notifies.take(NOTIFIES_PER_SESSION).ok_or(Status::INSUFFICIENT_RESOURCES)?;
    let watch = match watch(rq, open, file, &request) {
        Err(Status::NOTIFY_CLEANUP) => return Ok(cleaned_up(out)),
        begun => begun?,
    };
    let reported = tokio::select! {
        biased;
        () = open.closed() => return Ok(cleaned_up(out)),
        reported = watch.next() => reported,
    };
    let room = max_output.min(watch.wanted().room) as usize;
    let room = rq.room.saturating_sub(FIXED).min(room);
    let (output, status) = match reported {
        Reported::Deleted => return Err(Status::DELETE_PENDING.into()),
        Reported::TooMany => (Vec::new(), Status::NOTIFY_ENUM_DIR),
        // MS-SMB2 3.3.5.19: NOTIFY_ENUM_DIR reports a change without its name. The client then
        // lists the directory, which hides the entries that its user may not see.
        Reported::Changes(changes) if tells_of_unseen(open, file, &changes) => {
            (Vec::new(), Status::NOTIFY_ENUM_DIR)
        }
        Reported::Changes(changes) => encode(&changes, room),
    };
    change_notify::Response { output: &output }.encode(&mut out.writer());
    Ok(status)
}

/// MS-SMB2 3.3.4.17: an Open that is closed ends its requests with a CHANGE_NOTIFY response
/// (2.2.36) without changes, not with an error response.
fn cleaned_up(out: &mut Response) -> Status {
    change_notify::Response { output: &[] }.encode(&mut out.writer());
    Status::NOTIFY_CLEANUP
}

/// True when the changes name an entry that the share hides from the user, or one that has
/// gone, so that its rights cannot be checked any more. True also under impersonation, for
/// names in a folder that the host's user may not list.
fn tells_of_unseen(open: &Open, file: &FileOpen, changes: &[Change]) -> bool {
    let is_acting = impersonation::actor_of(&*file.node).is_some();
    let viewer = open.tree().viewer();
    if is_acting || viewer.is_some() {
        // To find out if the user may see a name, the server looks up the name and each folder
        // above it on the core thread. If too many look-ups are needed, no names are reported.
        let above = file.name().components().count();
        let ways = changes.iter().map(|change| above + change.name.split('\\').count());
        if changes.len() > NAMES_JUDGED || ways.sum::<usize>() > FOLDERS_JUDGED {
            return true;
        }
    }
    let names = changes.iter().map(|change| &*change.name);
    if tells_of_bins(open, file, names.clone()) {
        return true;
    }
    if is_acting
        && !visibility::are_listed(&*file.vfs, &file.name(), names.clone(), &open.tree().token())
    {
        return true;
    }
    viewer.is_some_and(|viewer| !visibility::are_visible(&*file.vfs, &file.name(), names, &viewer))
}

/// True when a name is in the recycle bin of another account.
fn tells_of_bins<'a>(
    open: &Open,
    file: &FileOpen,
    mut names: impl Iterator<Item = &'a str>,
) -> bool {
    let tree = open.tree();
    let Some(bin) = &tree.share.recycle else { return false };
    let user = tree.identity().map(|identity| identity.user.clone()).unwrap_or_default();
    let (directory, own) = (file.name(), bin.folder_of(&user));
    names.any(|name| bin.hides(&directory.child(name), &own))
}

/// The watch of the Open, which its first request begins.
fn watch(
    rq: &Request<'_>,
    open: &Open,
    file: &FileOpen,
    request: &change_notify::Request,
) -> Result<Arc<Watch>, Status> {
    let watches = &rq.server().files.watches;
    let wanted = Wanted {
        filter: request.completion_filter,
        is_tree: request.flags.contains(ChangeNotifyFlags::WATCH_TREE),
        room: request.output_buffer_length,
    };
    let holder = rq.session()?.holder();
    let payer = |path_bytes: usize| Purse::of(holder, path_bytes);
    let (watch, is_unobserved) =
        watches.begin(open.id(), file.folder_id(), &file.cell, wanted, payer)?;
    if is_unobserved {
        observe(rq, holder, file, &watch);
    }
    if file.cell.lock().is_delete_pending() {
        // MS-FSA 2.1.5.11: the deletion was reported to the watches that existed at that time. A
        // later watch would wait for ever, so it is refused.
        return Err(Status::DELETE_PENDING);
    }
    if open.is_closed() {
        // Another channel closed the Open before this watch was registered, so the watch is removed
        // again.
        watches.forget(open.id());
        return Err(Status::NOTIFY_CLEANUP);
    }
    Ok(watch)
}

/// The account of a watch's client.
#[derive(Debug)]
struct Purse {
    /// Bytes without those of the log.
    own: usize,
    charge: Mutex<Charge>,
}

impl Purse {
    fn of(holder: &Arc<Holder>, path_bytes: usize) -> Result<Box<dyn Payer>, Status> {
        let own = WATCH_BYTES.saturating_add(path_bytes.saturating_mul(2));
        let charge = Mutex::new(holder.charge(Kind::Watch, own)?);
        Ok(Box::new(Self { own, charge }))
    }
}

impl Payer for Purse {
    fn pay(&self, bytes: usize) -> bool {
        self.charge.lock().resize(self.own.saturating_add(bytes)).is_ok()
    }
}

/// Has the watches of a directory told of what other programs do. Where that cannot be
/// known, they tell of what is done through this server.
fn observe(rq: &Request<'_>, holder: &Holder, file: &FileOpen, watch: &Arc<Watch>) {
    let (weak, is_tree) = (Arc::downgrade(watch.directory()), watch.wanted().is_tree);
    let observer = Observer::new(&holder.host_places, move |change: &HostChange<'_>| {
        if let Some(directory) = weak.upgrade() {
            directory.add_host(is_tree, change);
        }
    });
    match file.vfs.observe(&*file.node, is_tree, observer) {
        Ok(observation) => watch.directory().observed(is_tree, observation),
        Err(Fault::NotSupported) => {}
        Err(fault) => rq.tell(|left_out| {
            tracing::warn!(target: "frevo::notify", account = %holder.name(), name = %file.name(),
                %fault, left_out,
                "cannot watch a folder; clients will not be notified of changes by other programs");
        }),
    }
}

/// All changes, or that there are more than fit.
fn encode(changes: &[Change], room: usize) -> (Vec<u8>, Status) {
    let mut output = Vec::new();
    let mut writer = NotifyWriter::new(&mut output, room);
    for Change { action, name } in changes {
        let entry = NotifyEntry { action: *action, name: name.as_str() };
        if writer.push(&entry) == Pushed::Full {
            return (Vec::new(), Status::NOTIFY_ENUM_DIR);
        }
    }
    (output, Status::SUCCESS)
}
