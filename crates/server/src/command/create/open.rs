//! The file of a CREATE: found or made, and admitted by its other Opens. MS-FSA 2.1.5.1.

use std::sync::Arc;

use frevo_store::file::Admission;
use frevo_store::lease::queue::Queued;
use frevo_store::lease::{Actor, Contention, Wish};
use frevo_store::name_locks::NamesLocked;
use frevo_store::security::check;
use frevo_store::vfs::{Kind, Opened};
use frevo_store::{Admitted, Fault, FileCell, Sharing, Stat};
use frevo_wire::Status;
use frevo_wire::command::create::{CreateAction, CreateDisposition, CreateOptions, ShareAccess};
use frevo_wire::dtyp::{AccessMask, FileAttributes};

use super::access::{self, Nursery};
use super::creation::{Create, Entered, Made, creates, overwrites};
use super::symlink::{self, Separator};
use super::{apple, contexts, host_lease, streams, validate};
use crate::base::host;
use crate::base::limits::{BREAKS_AWAITED, LEASE_BYTES, OPEN_BYTES};
use crate::command::host_lists::are_needed;
use crate::objects::archive;
use crate::objects::ledger::{self, Charge};
use crate::objects::name_holds;
use crate::objects::refusal::Refusal;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::impersonation;
use crate::shares::protection;
use crate::shares::visibility;

/// Attempts at an open that loses a race with a removal or a creation.
const ATTEMPTS: usize = 8;

/// The waits of a CREATE for others.
#[derive(Default)]
struct Waits {
    count: usize,
    /// Keeps others from being granted what this request waits for, until it is admitted.
    queued: Option<Queued>,
}

impl Create<'_> {
    /// Holds the name while this server serves the share: an attempt may have waited for others.
    fn hold_name(&self) -> Result<NamesLocked<'_>, Status> {
        self.rq.still_served()?;
        let files = &self.rq.server().files;
        name_holds::hold(files, self.vfs.folder_id(), &self.name).map_err(Fault::status)
    }

    /// Finds or makes the file and takes a place among its Opens. What was
    /// opened may have been removed meanwhile: then the name is looked up again.
    pub(super) async fn open(&self) -> Result<Made<'_>, Refusal> {
        let files = &self.rq.server().files;
        if self.is_undeletable() && self.request.create_disposition == CreateDisposition::CREATE {
            if self.finds_link() {
                return Err(self.stopped());
            }
            let there = self.vfs.stat(&self.name).is_ok();
            let status = if there { Status::OBJECT_NAME_COLLISION } else { Status::CANNOT_DELETE };
            return Err(status.into());
        }
        self.check_lease()?;
        // The memory is charged first (see `ledger`), because at this point a refusal has nothing
        // to undo.
        let (charge, promise) = self.charges()?;
        let mut nursery = access::nursery(self)?;
        nursery.identify(self).await?;
        let mut attempts = 0;
        let mut waits_before = Waits::default();
        let mut lease_patience = host_lease::Patience::new();
        while attempts < ATTEMPTS {
            attempts += 1;
            let removals = files.removals();
            // `held` keeps the name from being renamed or removed until the Open is admitted.
            let held = self.hold_name()?;
            // The parent that is already open serves only the first attempt. After `Stale` the path
            // has changed, so later attempts resolve it again.
            let parent = nursery.parent.take();
            let opened = match self.find(nursery.may_add, parent.as_ref()) {
                Err(Fault::Stale) => continue,
                // The look-up takes too long for a core thread, so the request is repeated on a
                // blocking thread.
                Err(Fault::Leased) if host::has_given_up() => {
                    return Err(Fault::Leased.status().into());
                }
                Err(Fault::Leased) => {
                    drop(held);
                    lease_patience.pause(self.rq).await?;
                    attempts = 0;
                    continue;
                }
                Err(Fault::Symlink) => return Err(self.stopped()),
                Err(Fault::NotFound) if !nursery.may_add => {
                    host::denials::forget();
                    return Err(Status::ACCESS_DENIED.into());
                }
                other => other.map_err(|fault| self.open_failed(fault))?,
            };
            let (granted, action) = self.grant(&opened, &nursery, &charge)?;
            let (entered, contention) = self.enter_file(&opened, granted, action)?;
            let (cell, waits) = (Arc::clone(&entered.cell), !entered.leaves);
            drop(held);
            if waits {
                // During the wait for a break, the file may be renamed or removed, so the attempt
                // starts again from the name.
                drop((entered, opened));
                attempts = 0;
                Box::pin(self.wait(&cell, contention, &mut waits_before)).await?;
                continue;
            }
            self.rq.server().announce_breaks(&cell, contention.breaks);
            if files.removals() != removals && is_gone(&opened) {
                continue;
            }
            if !opened.created {
                self.check_free(opened.node.key())?;
            }
            return Ok(Made { opened, entered, granted, action, charge, promise });
        }
        Err(Status::DELETE_PENDING.into())
    }

    /// Waits until the others have given up what the Open takes.
    async fn wait(
        &self,
        cell: &Arc<FileCell>,
        contention: Contention,
        before: &mut Waits,
    ) -> Result<(), Status> {
        let server = self.rq.server();
        before.count += 1;
        before.queued = Some(server.files.queues.enter(cell.key(), contention.awaited));
        server.announce_breaks(cell, contention.breaks);
        if before.count > BREAKS_AWAITED {
            return Err(Status::SHARING_VIOLATION);
        }
        let actor = Actor { open: self.id(), lease: self.wish.owner() };
        self.rq.settled(cell, actor).await?;
        self.check_held()
    }

    const fn separator(&self) -> Separator {
        Separator::of(self.posix.is_some())
    }

    /// Finds or makes the file, in its directory if that was opened just now. A link or another reparse
    /// point that stands in the way is [`Fault::Symlink`].
    fn find(&self, may_add: bool, parent: Option<&Opened>) -> Result<Opened, Fault> {
        match apple::open_node(self, may_add, parent) {
            Err(Fault::Exists | Fault::IsADirectory | Fault::NotADirectory)
                if self.finds_link() =>
            {
                Err(Fault::Symlink)
            }
            found => found,
        }
    }

    /// The answer for a name that a link or another reparse point stands in the way of.
    fn stopped(&self) -> Refusal {
        let text = self.request.name.to_string().unwrap_or_default();
        symlink::stopped(&**self.vfs, &self.name, &text, self.separator())
    }

    /// True when the name is a link's or another reparse point's, which ends the request whatever its
    /// disposition is and whichever kind of file it wants (MS-FSA 2.1.5.1.2). For a POSIX client the
    /// name of a link is taken, as for open(2) with O_EXCL.
    fn finds_link(&self) -> bool {
        if self.has(CreateOptions::OPEN_REPARSE_POINT) || self.posix.is_some() {
            return false;
        }
        let there = self.vfs.open(&self.name, &protection::LOOK);
        there.is_ok_and(|there| there.stat.kind == Kind::Symlink || there.stat.reparse_tag != 0)
    }

    /// Charges the Open, and the oplock or lease that it asks for.
    fn charges(&self) -> Result<(Charge, Option<Charge>), Status> {
        let holder = self.rq.session()?.holder();
        let charge = holder.charge(ledger::Kind::Open, OPEN_BYTES)?;
        // MS-SMB2 3.3.5.9.8: the request fails if its lease exceeds a limit, so the lease is
        // charged first.
        let wishes = self.wish != Wish::Nothing;
        let promise =
            wishes.then(|| holder.charge(ledger::Kind::Lease, LEASE_BYTES)).transpose()?;
        Ok((charge, promise))
    }

    /// Checks the rights on a file that was opened. On failure it is removed again where
    /// this CREATE has made it.
    fn grant(
        &self,
        opened: &Opened,
        nursery: &Nursery<'_>,
        charge: &Charge,
    ) -> Result<(AccessMask, CreateAction), Refusal> {
        if !self.has(CreateOptions::OPEN_REPARSE_POINT) {
            symlink::check(opened, self.separator())?;
        }
        contexts::check_knowledge(self, opened)?;
        let action = self.action(opened)?;
        let granted = access::grant(self, opened, action);
        let granted = granted.inspect_err(|_| host::denials::forget());
        let granted = granted.and_then(|granted| {
            if self.has(CreateOptions::DELETE_ON_CLOSE) {
                // MS-FSA 2.1.5.1.2.1: with DELETE_ON_CLOSE the file must be deletable, so the
                // CREATE checks it now.
                opened.node.takes_changes().map_err(|_| Status::CANNOT_DELETE)?;
                impersonation::check_removal(&**self.vfs, &*opened.node, &opened.name)?;
            }
            access::protect(self, opened, nursery)?;
            self.check_descriptors(charge)?;
            Ok(granted)
        });
        let granted = granted.inspect_err(|_| self.unmake(opened))?;
        Ok((granted, action))
    }

    /// Takes a place among the Opens of a file, or one among the requests that wait for its
    /// caches. Returns the breaks that others are to be notified of, and what they have to give up.
    fn enter_file(
        &self,
        opened: &Opened,
        granted: AccessMask,
        action: CreateAction,
    ) -> Result<(Entered<'_>, Contention), Refusal> {
        let files = &self.rq.server().files;
        let admission = Admission {
            id: self.id(),
            folder_id: self.vfs.folder_id(),
            access: claimed(granted, action),
            granted,
            sharing: sharing(self.request.share_access),
            delete_on_close: self.has(CreateOptions::DELETE_ON_CLOSE),
            lease: self.wish.owner(),
            overwrites: !matches!(action, CreateAction::CREATED | CreateAction::OPENED),
        };
        let key = opened.node.key();
        let base = streams::attach(files, key, &opened.name, admission);
        let base = base.inspect_err(|_| self.unmake(opened))?;
        let detach = || streams::detach(files, self.vfs, base.as_ref(), self.id());
        let attempt = files.admit(key, &opened.name, admission);
        let attempt = attempt.inspect_err(|_| {
            detach();
            self.unmake(opened);
        })?;
        archive::note_opened(base.as_ref().unwrap_or(&attempt.cell), opened);
        let waits = attempt.admitted == Admitted::Waits;
        let entered =
            Entered { create: self, cell: attempt.cell, base, leaves: !waits, stays: false };
        Ok((entered, attempt.contention))
    }

    /// Refuses what would take the descriptors that others need, of whatever kind it is.
    fn check_descriptors(&self, charge: &Charge) -> Result<(), Status> {
        let (server, own) = (self.rq.server(), charge.holder().with_descriptors());
        if server.descriptors.admit_open(own, server.ledger.with_descriptors()) {
            return Ok(());
        }
        self.rq.tell(|left_out| {
            tracing::warn!(target: "frevo::server", peer = %self.rq.connection.peer, left_out,
                account = %charge.holder().name(), opens_and_connections = own, file = ?self.name.path(),
                "refused to open a file or folder: too few descriptors are left for its account; \
                 close some of its files, or raise LimitNOFILE");
        });
        Err(Status::TOO_MANY_OPENED_FILES)
    }

    /// MS-FSA 2.1.5.1.1 refuses before anything is made.
    fn unmake(&self, opened: &Opened) {
        streams::unmake(&**self.vfs, opened);
    }

    /// The status for a file that the file system does not open. A name that is about to be
    /// deleted is DELETE_PENDING rather than a collision.
    fn open_failed(&self, fault: Fault) -> Status {
        match fault {
            // MS-FSA 2.1.5.1 phase 7: a name with a separator at its end is no data stream's.
            Fault::NotADirectory if self.names_directory() => Status::OBJECT_NAME_INVALID,
            Fault::NotFound
                if self.names_directory() && creates(self.request.create_disposition) =>
            {
                Status::OBJECT_NAME_INVALID
            }
            Fault::NotFound if self.read_only() && creates(self.request.create_disposition) => {
                if let Ok(tree) = self.rq.tree() {
                    validate::tell_read_only(self.rq, tree, &self.name, Status::ACCESS_DENIED);
                }
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
                let folder_id = self.vfs.folder_id();
                let pending = |stat: Stat| {
                    let is_going = |cell: Arc<FileCell>| {
                        cell.lock().is_name_going(folder_id, &self.name, stat.links)
                    };
                    files.is_file_going(stat.key, folder_id, &self.name, stat.links)
                        || files.find(stat.key).is_some_and(is_going)
                };
                if found.is_some_and(pending) { Status::DELETE_PENDING } else { fault.status() }
            }
            Fault::AccessDenied => {
                if self.list_refuses() {
                    host::denials::forget();
                }
                fault.status()
            }
            _ => fault.status(),
        }
    }

    /// True when the file's own list refuses the access, for the audit log. On a share that acts as its
    /// users the kernel is asked first, which has the nearest list.
    fn list_refuses(&self) -> bool {
        let is_recorded = |tree: &Arc<TreeConnect>| tree.share.audit.is_some() && are_needed(tree);
        if !self.rq.tree().is_ok_and(is_recorded) {
            return false;
        }
        let Ok(there) = self.vfs.open(&self.name, &protection::LOOK) else { return false };
        let Ok(Some(descriptor)) = protection::stored_of(&there) else { return false };
        let asked = self.desired.without(AccessMask::MAXIMUM_ALLOWED);
        check(&descriptor, &self.token(), asked).is_err()
    }

    /// MS-FSA 2.1.5.1.2: what becomes of what was found.
    fn action(&self, opened: &Opened) -> Result<CreateAction, Status> {
        if opened.created {
            return Ok(CreateAction::CREATED);
        }
        let disposition = self.request.create_disposition;
        if disposition == CreateDisposition::CREATE && self.names_directory() {
            return Err(Status::OBJECT_NAME_COLLISION);
        }
        if !overwrites(disposition) {
            return Ok(CreateAction::OPENED);
        }
        if opened.stat.kind == Kind::Directory {
            // A directory cannot be overwritten. For the root of the share the status is
            // ACCESS_DENIED.
            return Err(if self.name.is_root() {
                Status::ACCESS_DENIED
            } else {
                Status::OBJECT_NAME_COLLISION
            });
        }
        // MS-FSA 2.1.5.1.2: a hidden file is overwritten only if the request has HIDDEN, and a
        // system file only if it has SYSTEM.
        let mut guard = FileAttributes::HIDDEN | FileAttributes::SYSTEM;
        if opened.node.is_hidden_by_name() {
            // The name itself hides the file (as `.name` does), and the new file keeps the name, so
            // the request need not have HIDDEN.
            guard = FileAttributes::SYSTEM;
        }
        let guarded = !self.request.file_attributes.contains(opened.stat.attributes & guard);
        if guarded && self.posix.is_none() {
            return Err(Status::ACCESS_DENIED);
        }
        // Asked before the file is emptied, because nothing may have changed when a request is repeated
        // on another thread.
        let reserved = self.wanted.allocation.unwrap_or(0);
        if host::gives_up_freeing(opened.stat.allocation) || host::gives_up_reserving(reserved) {
            return Err(Fault::Leased.status());
        }
        Ok(if disposition == CreateDisposition::SUPERSEDE {
            CreateAction::SUPERSEDED
        } else {
            CreateAction::OVERWRITTEN
        })
    }

    /// MS-SMB2 3.3.5.9: where what cannot be read is hidden, no refusal tells of it.
    pub(super) fn discreet(&self, refusal: Refusal) -> Refusal {
        let viewer = self.rq.tree().ok().and_then(|tree| tree.viewer());
        let (Some(viewer), Some(status)) = (viewer, refusal.status()) else { return refusal };
        if matches!(refusal, Refusal::Data(..)) {
            return refusal;
        }
        if creates(self.request.create_disposition) {
            let may_add = !self.read_only() && access::may_add(self, &viewer);
            let (vfs, name) = (&**self.vfs, &self.name);
            return visibility::refusal_to_make(vfs, name, &viewer, status, may_add).into();
        }
        visibility::refusal(&**self.vfs, &self.name, &viewer, status).into()
    }
}

/// True for a file without a name.
fn is_gone(opened: &Opened) -> bool {
    opened.node.stat_without_eas().map_or(true, |stat| stat.links == 0)
}

/// The access that share modes are compared with: overwriting needs more than the Open keeps
/// (MS-FSA 2.1.5.1.2).
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
