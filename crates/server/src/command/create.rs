//! CREATE: MS-SMB2 3.3.5.9, with the object store's part of MS-FSA 2.1.5.1.

mod access;
mod apple;
mod contexts;
mod durable;
mod finish;
mod host_lease;
mod lease;
mod replay;
mod streams;
mod symlink;
mod timewarp;
mod validate;

use std::os::fd::AsFd as _;
use std::sync::Arc;

use frevo_store::file::Admission;
use frevo_store::lease::{Actor, Granted, Wish};
use frevo_store::name::Rules;
use frevo_store::security::Token;
use frevo_store::vfs::{Existence, Kind, KindWanted, OpenHow, Opened, Parent};
use frevo_store::{Admitted, Departure, Fault, FileCell, FileTable, Name, OpenId, Sharing, Vfs};
use frevo_wire::Status;
use frevo_wire::command::create::{
    self, CreateAction, CreateDisposition, CreateOptions, ShareAccess,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;

use crate::audit::told;
use crate::impersonation;
use crate::ipc;
use crate::lease as breaks;
use crate::ledger::{self, Charge};
use crate::limits::{BREAKS_AWAITED, LEASE_BYTES, OPEN_BYTES};
use crate::open::{Open, shared_fd};
use crate::panics;
use crate::posix;
use crate::quota;
use crate::refusal::{Outcome, Refusal};
use crate::request::Request;
use crate::response::Response;
use crate::share::Target;
use crate::visibility;
pub(super) use access::refused;
use contexts::Wanted;
use replay::Entry;

/// Attempts at an open that loses a race with a removal or a creation.
const ATTEMPTS: usize = 8;

/// CreateOptions that FileModeInformation shows, MS-FSCC 2.4.31.
const MODE: u32 = CreateOptions::WRITE_THROUGH.0
    | CreateOptions::SEQUENTIAL_ONLY.0
    | CreateOptions::NO_INTERMEDIATE_BUFFERING.0
    | CreateOptions::SYNCHRONOUS_IO_ALERT.0
    | CreateOptions::SYNCHRONOUS_IO_NONALERT.0
    | CreateOptions::DELETE_ON_CLOSE.0;

/// Opens or makes a file, a directory or a pipe.
pub async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let mut request = create::Request::parse(rq.message)?;
    let checked = validate::parameters(&request);
    if checked.is_err() && !durable::is_reconnect(&request) {
        // MS-SMB2 3.3.5.9.7: of a reconnect nothing else is looked at.
        checked?;
    }
    let tree = rq.tree()?;
    let live = match &tree.share.target {
        Target::Pipes => return ipc::create(rq, &request, out),
        // A session that has authenticated anew without an account keeps its Opens, and opens
        // nothing.
        Target::Disk(_) if rq.session()?.identity().is_none_or(|identity| identity.is_nobody()) => {
            return Err(Status::ACCESS_DENIED.into());
        }
        Target::Disk(live) => live,
    };
    let mut wanted = contexts::parse(&request)?;
    wanted.durable = wanted.durable.known_to(rq);
    if wanted.durable.is_reconnect() {
        let open = durable::reconnect(rq, &request, &wanted.durable).await?;
        return again(rq, &request, &wanted, (&open, CreateAction::OPENED), out);
    }
    let text = request.name.to_string().map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let posix = posix::mode_asked(rq, &request);
    let text = validate::spelling(text, &tree.share, posix.is_some());
    let (vfs, text) = timewarp::choose(live, &text, wanted.timewarp)?;
    let is_past = !Arc::ptr_eq(&vfs, live);
    let (vfs, text) = quota::choose(vfs, text);
    let vfs = &vfs;
    let rules = if posix.is_some() { Rules::Posix } else { Rules::Windows };
    let name = validate::name(&text, request.create_options, rules)?;
    if rules == Rules::Windows {
        if text.contains(':') && !vfs.volume().streams {
            // Windows: not even the file's own data can be meant so.
            return Err(Status::OBJECT_NAME_INVALID.into());
        }
        validate::stream_type(&text, &name, &mut request)?;
    }
    let mut desired = validate::access(&request, tree)?;
    if !Arc::ptr_eq(vfs, live) {
        let asked = desired;
        desired = timewarp::check_access(&request, desired)?;
        // MS-FSCC 2.5.2: the right to write the quota index is the right to set defaults.
        if !is_past && quota::manages(&tree.token()).is_ok() {
            desired |= asked & AccessMask::WRITE_DATA;
        }
    }
    let file_id = rq.server().new_file_id();
    let wish = lease::wish(rq, &request, wanted.lease)?;
    let wanted = &wanted;
    let create = Create { rq, request: &request, wanted, posix, name, desired, file_id, vfs, wish };
    let _creating = match create.enter()? {
        Entry::Same(open) => {
            let action = open.survival().map_or(CreateAction::OPENED, |s| s.action);
            // The first time may not have come so far.
            create.keep(&open).await?;
            return again(rq, &request, wanted, (&open, action), out);
        }
        Entry::New(creating) => creating,
    };
    // An application instance takes its place over before the name is held by
    // an Open that waits for its client (MS-SMB2 3.3.5.9.13).
    create.take_over()?;
    create.check_held().map_err(|refusal| create.discreet(refusal.into()))?;
    let made = create.open().await.map_err(|refusal| create.discreet(refusal))?;
    let file_created = made.opened.file_created;
    let (fresh, action, stat) = create.finish(made)?;
    let open = &fresh.open;
    let file = open.file()?;
    let (id, is_directory, route) = (file.id, file.is_directory, create.route()?);
    if !tree.share.level2_oplocks {
        file.cell.lock().oplocks.forbid_level_two();
    }
    let granted = rq.server().files.grant(&file.cell, id, is_directory, wish, route);
    if granted == Granted::Nothing {
        open.set_promise(None);
    }
    breaks::host::watch(rq.server(), file, granted);
    create.grant_survival(open, action)?;
    create.keep(open).await?;
    create.report(file, action, file_created);
    told::opened(tree, open, action);
    rq.session()?.add_open(open, &rq.server().files)?;
    let open = fresh.kept();
    out.set_file_id(file_id);
    create.respond(&open, action, &stat, granted, out)?;
    Ok(Status::SUCCESS)
}

/// Answers with an Open that is there already.
fn again(
    rq: &Request<'_>,
    request: &create::Request<'_>,
    wanted: &Wanted,
    (open, action): (&Open, CreateAction),
    out: &mut Response,
) -> Outcome {
    let file = open.file()?;
    let (name, file_id, desired) = (file.name(), open.file_id, open.granted_access);
    let (vfs, wish) = (&file.vfs, lease::wish_of(file));
    let posix = posix::mode_asked(rq, request);
    let create = Create { rq, request, wanted, posix, name, desired, file_id, vfs, wish };
    // Breaks are told where the client is now.
    file.cell.lock().oplocks.reroute(file.id, create.route()?);
    let stat = file.stat()?;
    out.set_file_id(file_id);
    create.respond(open, action, &stat, create.told(file), out)?;
    Ok(Status::SUCCESS)
}

/// One CREATE of a file, its parameters checked.
struct Create<'a> {
    rq: &'a Request<'a>,
    request: &'a create::Request<'a>,
    wanted: &'a Wanted,
    /// The mode of a POSIX Open; None: it is none.
    posix: Option<u32>,
    name: Name,
    /// DesiredAccess with generic rights mapped.
    desired: AccessMask,
    file_id: FileId,
    vfs: &'a Arc<dyn Vfs>,
    wish: Wish,
}

/// A file that is open in the file system and admitted by its other Opens.
struct Made<'a> {
    opened: Opened,
    entered: Entered<'a>,
    granted: AccessMask,
    action: CreateAction,
    charge: Charge,
    /// Of the oplock or lease that it asks for.
    promise: Option<Charge>,
}

/// A place among the Opens of a file. It is left again when this is dropped before the
/// Open is made: by an error, a panic, or the end of the core.
struct Entered<'a> {
    create: &'a Create<'a>,
    cell: Arc<FileCell>,
    /// Of the file that a named stream belongs to.
    base: Option<Arc<FileCell>>,
    /// False for a request that has to wait before it is admitted.
    leaves: bool,
    stays: bool,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let Create { rq, vfs, .. } = self.create;
        let (files, id) = (&rq.server().files, self.create.id());
        if self.leaves && matches!(files.leave(&self.cell, id, vfs), Departure::Remove(_)) {
            // It has gone by itself; its key must not stay delete pending.
            files.retire(&self.cell);
        }
        panics::contained(|| streams::detach(files, vfs, self.base.as_ref(), id));
    }
}

/// An Open that its session does not have yet. It is closed when this is dropped before
/// [`Self::kept`].
struct Fresh<'a> {
    open: Arc<Open>,
    files: &'a FileTable,
    is_kept: bool,
}

impl Fresh<'_> {
    fn kept(mut self) -> Arc<Open> {
        self.is_kept = true;
        Arc::clone(&self.open)
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            panics::contained(|| self.open.close(self.files));
        }
    }
}

impl Create<'_> {
    const fn id(&self) -> OpenId {
        OpenId(self.file_id.volatile)
    }

    /// Finds or makes the file and takes a place among its Opens. What was
    /// opened may have been removed meanwhile: then the name is looked up again.
    async fn open(&self) -> Result<Made<'_>, Refusal> {
        let files = &self.rq.server().files;
        if self.is_undeletable() && self.request.create_disposition == CreateDisposition::CREATE {
            let there = self.vfs.stat(&self.name).is_ok();
            let status = if there { Status::OBJECT_NAME_COLLISION } else { Status::CANNOT_DELETE };
            return Err(status.into());
        }
        self.check_lease()?;
        // Before anything is made that would have to be undone.
        let (charge, promise) = self.charges()?;
        let mut nursery = access::nursery(self)?;
        let (mut attempts, mut awaited) = (0, 0);
        let mut host = host_lease::Patience::new();
        while attempts < ATTEMPTS {
            attempts += 1;
            let removals = files.removals();
            // Nobody renames or removes it from here to its admission.
            let held = files.names.hold(self.vfs.folder_id(), &self.name);
            // Another attempt may have waited meanwhile, and walks anew.
            let parent = nursery.parent.take();
            let opened = match apple::open_node(self, nursery.may_add, parent.as_ref()) {
                Err(Fault::Stale) => continue,
                Err(Fault::Leased) => {
                    drop(held);
                    host.pause(self.rq).await?;
                    attempts = 0;
                    continue;
                }
                Err(Fault::Symlink) => return Err(symlink::stopped(&**self.vfs, &self.name)),
                Err(Fault::NotFound) if !nursery.may_add => {
                    return Err(Status::ACCESS_DENIED.into());
                }
                other => other.map_err(|fault| self.open_failed(fault))?,
            };
            if !self.has(CreateOptions::OPEN_REPARSE_POINT) {
                symlink::check(&opened)?;
            }
            contexts::check_knowledge(self, &opened)?;
            let action = self.action(&opened)?;
            let granted = access::grant(self, &opened, action);
            let granted = granted.and_then(|granted| {
                if self.has(CreateOptions::DELETE_ON_CLOSE) {
                    // MS-FSA 2.1.5.1.2.1.
                    opened.node.takes_changes().map_err(|_| Status::CANNOT_DELETE)?;
                    impersonation::check_removal(&**self.vfs, &*opened.node, &opened.name)?;
                }
                access::protect(self, &opened, &nursery)?;
                self.check_descriptors(&opened, &charge)?;
                Ok(granted)
            });
            let granted = granted.inspect_err(|_| self.unmake(&opened))?;
            let admission = Admission {
                id: self.id(),
                folder_id: self.vfs.folder_id(),
                access: claimed(granted, action),
                sharing: sharing(self.request.share_access),
                delete_on_close: self.has(CreateOptions::DELETE_ON_CLOSE),
                lease: self.wish.owner(),
                overwrites: !matches!(action, CreateAction::CREATED | CreateAction::OPENED),
            };
            let key = opened.node.key();
            let base = streams::attach(files, key, &opened.name, admission);
            let base = base.inspect_err(|_| self.unmake(&opened))?;
            let detach = || streams::detach(files, self.vfs, base.as_ref(), self.id());
            let attempt = files.admit(key, &opened.name, admission);
            let attempt = attempt.inspect_err(|_| {
                detach();
                self.unmake(&opened);
            })?;
            let waits = attempt.admitted == Admitted::Waits;
            let cell = Arc::clone(&attempt.cell);
            let entered =
                Entered { create: self, cell: attempt.cell, base, leaves: !waits, stays: false };
            drop(held);
            breaks::announce(self.rq.server(), &cell, attempt.contention.breaks);
            if waits {
                // Others may rename or remove it meanwhile: all begins anew.
                drop((entered, opened));
                awaited += 1;
                if awaited > BREAKS_AWAITED {
                    return Err(Status::SHARING_VIOLATION.into());
                }
                attempts = 0;
                let actor = Actor { open: self.id(), lease: self.wish.owner() };
                breaks::settled(self.rq, &cell, actor).await?;
                continue;
            }
            let is_gone = files.removals() != removals
                && opened.node.stat_without_eas().map_or(true, |stat| stat.links == 0);
            if is_gone {
                continue;
            }
            return Ok(Made { opened, entered, granted, action, charge, promise });
        }
        Err(Status::DELETE_PENDING.into())
    }

    /// Charges the Open, and the oplock or lease that it asks for.
    fn charges(&self) -> Result<(Charge, Option<Charge>), Status> {
        let holder = self.rq.session()?.holder();
        let charge = holder.charge(ledger::Kind::Open, OPEN_BYTES)?;
        // MS-SMB2 3.3.5.9.8: a lease that has no room fails the request.
        let wishes = self.wish != Wish::Nothing;
        let promise =
            wishes.then(|| holder.charge(ledger::Kind::Lease, LEASE_BYTES)).transpose()?;
        Ok((charge, promise))
    }

    /// Refuses what would take the descriptors that others need.
    fn check_descriptors(&self, opened: &Opened, charge: &Charge) -> Result<(), Status> {
        let Some(descriptor) = shared_fd(&*opened.node) else { return Ok(()) };
        let (server, own) = (self.rq.server(), charge.holder().count(ledger::Kind::Open));
        if server.descriptors.admit_open(descriptor.as_fd(), own) {
            return Ok(());
        }
        self.rq.tell(|left_out| {
            tracing::warn!(target: "frevo::server", peer = %self.rq.connection.peer, left_out,
                opens = own, holder = ?charge.holder().name(),
                "refused to open a file: too few descriptors are left; raise LimitNOFILE");
        });
        Err(Status::TOO_MANY_OPENED_FILES)
    }

    /// MS-FSA 2.1.5.1.1 refuses before anything is made.
    fn unmake(&self, opened: &Opened) {
        streams::unmake(&**self.vfs, opened);
    }

    /// `is_absent`: what is there counts for nothing.
    fn open_node(
        &self,
        may_add: bool,
        is_absent: bool,
        parent: Option<&Opened>,
    ) -> Result<Opened, Fault> {
        let open = |how: &OpenHow| match parent {
            Some(Opened { node, name, .. }) => {
                self.vfs.open_in(Parent { node: &**node, name }, &self.name, how)
            }
            None => self.vfs.open(&self.name, how),
        };
        let disposition = self.request.create_disposition;
        let existence = match disposition {
            CreateDisposition::OPEN | CreateDisposition::OVERWRITE => Existence::MustExist,
            CreateDisposition::CREATE if !may_add => {
                let exists = self.vfs.stat(&self.name).is_ok();
                return Err(if exists { Fault::Exists } else { Fault::NotFound });
            }
            CreateDisposition::CREATE if is_absent => Existence::Either,
            CreateDisposition::CREATE => Existence::MustNotExist,
            _ if !may_add || self.read_only() || self.is_undeletable() => Existence::MustExist,
            _ => Existence::Either,
        };
        // Windows: who cannot encrypt says so, lest a secret be stored in the clear.
        let is_secret = self.request.file_attributes.contains(FileAttributes::ENCRYPTED);
        if is_secret && existence != Existence::MustExist && self.vfs.stat(&self.name).is_err() {
            return Err(Fault::AccessDenied);
        }
        let kind = if self.has(CreateOptions::DIRECTORY_FILE) {
            KindWanted::Directory
        } else if self.has(CreateOptions::NON_DIRECTORY_FILE) {
            KindWanted::NotDirectory
        } else {
            KindWanted::Any
        };
        let reads = AccessMask::READ_DATA | AccessMask::EXECUTE;
        let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        let mut attributes = self.request.file_attributes.without(FileAttributes::SPARSE_FILE);
        if kind != KindWanted::Directory {
            // MS-FSA 2.1.5.1.1: a new file is to be archived.
            attributes |= FileAttributes::ARCHIVE;
        }
        let how = OpenHow {
            existence,
            kind,
            read: self.desired.intersects(reads),
            write: self.desired.intersects(writes) || overwrites(disposition),
            open_link: self.has(CreateOptions::OPEN_REPARSE_POINT),
            attributes,
            mode: self.posix,
            case_sensitive: self.posix.is_some(),
        };
        let how = crate::apple::how(&self.name, how);
        if !self.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            return open(&how);
        }
        // As much as the host allows.
        let best = OpenHow { read: true, write: !self.read_only(), ..how };
        match open(&best) {
            Err(Fault::AccessDenied | Fault::IsADirectory | Fault::ReadOnly) => {}
            other => return other,
        }
        match open(&OpenHow { read: true, ..how }) {
            Err(Fault::AccessDenied) => open(&how),
            other => other,
        }
    }

    /// What to answer when the file system does not open it. A name that is
    /// about to go is DELETE_PENDING rather than a collision.
    fn open_failed(&self, fault: Fault) -> Status {
        match fault {
            Fault::NotFound if self.read_only() && creates(self.request.create_disposition) => {
                Status::ACCESS_DENIED
            }
            Fault::NotFound
                if self.is_undeletable() && creates(self.request.create_disposition) =>
            {
                Status::CANNOT_DELETE
            }
            Fault::Exists | Fault::IsADirectory | Fault::NotADirectory => {
                let found = self.vfs.stat(&self.name).ok();
                let files = &self.rq.server().files;
                let pending = |key| {
                    files.is_file_delete_pending(key)
                        || files.find(key).is_some_and(|cell| cell.lock().is_delete_pending())
                };
                if found.is_some_and(|stat| pending(stat.key)) {
                    Status::DELETE_PENDING
                } else {
                    fault.status()
                }
            }
            _ => fault.status(),
        }
    }

    /// MS-FSA 2.1.5.1.2: what becomes of what was found.
    fn action(&self, opened: &Opened) -> Result<CreateAction, Status> {
        if opened.created {
            return Ok(CreateAction::CREATED);
        }
        let disposition = self.request.create_disposition;
        if !overwrites(disposition) {
            return Ok(CreateAction::OPENED);
        }
        if opened.stat.kind == Kind::Directory {
            // Directories are not overwritten.
            return Err(if self.name.is_root() {
                Status::ACCESS_DENIED
            } else {
                Status::OBJECT_NAME_COLLISION
            });
        }
        // A hidden or system file is overwritten only by one that is so too.
        let mut guard = FileAttributes::HIDDEN | FileAttributes::SYSTEM;
        if opened.node.is_hidden_by_name() {
            // The new one will be so too, whoever makes it.
            guard = FileAttributes::SYSTEM;
        }
        let guarded = !self.request.file_attributes.contains(opened.stat.attributes & guard);
        if guarded && self.posix.is_none() {
            return Err(Status::ACCESS_DENIED);
        }
        Ok(if disposition == CreateDisposition::SUPERSEDE {
            CreateAction::SUPERSEDED
        } else {
            CreateAction::OVERWRITTEN
        })
    }

    /// MS-SMB2 3.3.5.9: where what cannot be read is hidden, no refusal tells of it.
    fn discreet(&self, refusal: Refusal) -> Refusal {
        let viewer = self.rq.tree().ok().and_then(|tree| visibility::viewer(tree));
        let (Some(viewer), Some(status)) = (viewer, refusal.status()) else { return refusal };
        if matches!(refusal, Refusal::Data(..)) {
            return refusal;
        }
        if creates(self.request.create_disposition) {
            let may_add = !self.read_only() && access::may_add(self, &viewer);
            let answer = (status, may_add);
            return visibility::refusal_to_make(&**self.vfs, &self.name, &viewer, answer).into();
        }
        visibility::refusal(&**self.vfs, &self.name, &viewer, status).into()
    }

    /// What access checks go by.
    fn token(&self) -> Arc<Token> {
        self.rq.tree().map_or_else(|_| Token::nobody().into(), |tree| tree.token())
    }

    const fn has(&self, option: CreateOptions) -> bool {
        self.request.create_options.contains(option)
    }

    /// MS-FSA 2.1.5.1.1: a new file that must not be deleted cannot be one that
    /// goes when it is closed.
    const fn is_undeletable(&self) -> bool {
        self.has(CreateOptions::DELETE_ON_CLOSE)
            && self.request.file_attributes.contains(FileAttributes::READONLY)
    }

    fn read_only(&self) -> bool {
        self.rq.tree().is_ok_and(|tree| tree.share.read_only)
    }
}

/// Whether what exists is emptied.
const fn overwrites(disposition: CreateDisposition) -> bool {
    matches!(
        disposition,
        CreateDisposition::SUPERSEDE
            | CreateDisposition::OVERWRITE
            | CreateDisposition::OVERWRITE_IF
    )
}

/// Whether what does not exist is made.
const fn creates(disposition: CreateDisposition) -> bool {
    !matches!(disposition, CreateDisposition::OPEN | CreateDisposition::OVERWRITE)
}

/// What share modes are compared with: overwriting needs more than the Open
/// keeps (MS-FSA 2.1.5.1.2).
fn claimed(granted: AccessMask, action: CreateAction) -> AccessMask {
    match action {
        CreateAction::OVERWRITTEN => granted | AccessMask::WRITE_DATA,
        CreateAction::SUPERSEDED => granted | AccessMask::DELETE,
        _ => granted,
    }
}

const fn sharing(access: ShareAccess) -> Sharing {
    Sharing {
        read: access.contains(ShareAccess::READ),
        write: access.contains(ShareAccess::WRITE),
        delete: access.contains(ShareAccess::DELETE),
    }
}
