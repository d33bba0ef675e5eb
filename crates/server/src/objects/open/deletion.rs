//! The deletion of files by the close of their last Open.

use std::cell::RefCell;
use std::sync::Arc;

use frevo_store::lease::Actor;
use frevo_store::vfs::VfsResult;
use frevo_store::{Departure, Fault, FileCell, FileTable, Link, Name, Vfs};
use frevo_wire::create_context::LeaseKey;
use frevo_wire::dtyp::AccessMask;

use super::{FileOpen, Open, OpenTarget};
use crate::base::host::{freeing, is_long_to_free, long_patience, short_patience};
use crate::base::limits::CLOSED_NAMES_PATIENCE;
use crate::base::panics;
use crate::base::pools::{blocking_pool, closer};
use crate::shares::storage;

/// The time that a search for a name may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as it needs, even on a core: nobody makes the call again.
    Long,
    /// The limit of a core: a search of a large directory gives up.
    Short,
}

/// Names of a file that are to be deleted: the close of its last Open has decided it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Deletion {
    cell: Arc<FileCell>,
    links: Vec<Link>,
    by: Option<Actor>,
    /// True if the storage of the share does not serve this server any more.
    has_lost_storage: bool,
}

impl Deletion {
    /// True if it is left because the storage of the share has gone.
    pub(crate) const fn has_lost_storage(&self) -> bool {
        self.has_lost_storage
    }
}

/// The reason for which a promised deletion is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The call takes longer than its patience, or the share is paused.
    ForLater,
    /// The storage has gone.
    WithStorage,
}

/// One name of a file, after the attempt to remove it.
struct Attempted {
    link: Link,
    removed: VfsResult<()>,
    /// The Vfs through which the name was removed.
    vfs: Arc<dyn Vfs>,
    /// Lease.ParentLeaseKey of the Open that deleted the name.
    parent: Option<LeaseKey>,
}

impl Open {
    /// Takes it out of a file, and deletes what goes with it; returns the part of the deletion
    /// that takes longer than `patience`.
    pub(super) fn leave(
        &self,
        file: &FileOpen,
        cell: &Arc<FileCell>,
        files: &FileTable,
        by: Option<Actor>,
        patience: Patience,
    ) -> Option<Deletion> {
        let links = match files.leave(cell, self.id(), &file.vfs) {
            Departure::Remove(links) => links,
            // The directory still has other Opens, and the last of them will delete it. But its
            // watches end now.
            _ if file.is_directory && cell.lock().is_delete_pending() => {
                files.watches.deleting(cell.key());
                return None;
            }
            _ => return None,
        };
        let deletion = Deletion { cell: Arc::clone(cell), links, by, has_lost_storage: false };
        self.delete(file, files, deletion, patience)
    }

    /// Ends a deletion that a close has left. Returns the part that a pause of the share, or the loss of
    /// its storage, leaves for later.
    pub(crate) fn finish(&self, files: &FileTable, deletion: Deletion) -> Option<Deletion> {
        let OpenTarget::File(file) = &self.target else { return None };
        let left = self.delete(file, files, deletion, Patience::Long);
        if left.is_none() {
            self.forget_record();
        }
        left
    }

    fn delete(
        &self,
        file: &FileOpen,
        files: &FileTable,
        deletion: Deletion,
        patience: Patience,
    ) -> Option<Deletion> {
        let Deletion { cell, links, by, .. } = deletion;
        let (mut freed, mut has_lost_storage) = (0_u64, false);
        let mut remove = |link: Link| {
            let (vfs, parent) = {
                let state = cell.lock();
                let vfs = state.remover(&link).unwrap_or_else(|| Arc::clone(&file.vfs));
                (vfs, state.parent_of_deletion(&link))
            };
            let life = &self.tree().share.life;
            let is_served = life.serves();
            let remove = || {
                if is_served {
                    file.remove(files, &cell, &link, &*vfs)
                } else {
                    // If another server owns the share, it will delete the file, so this server does
                    // not.
                    Err(Fault::NotServed)
                }
            };
            let remove = || self.unless_closes(remove);
            let ((removed, gave_up), bytes) = freeing(|| match patience {
                Patience::Long => (long_patience(remove), false),
                Patience::Short => short_patience(remove),
            });
            freed = freed.saturating_add(bytes);
            let left = match removed {
                Err(_) if gave_up => Some(Left::ForLater),
                Err(fault) => self.left_by(fault, &*vfs, patience),
                Ok(()) => None,
            };
            has_lost_storage |= left == Some(Left::WithStorage);
            if left.is_some() { Err(link) } else { Ok(Attempted { link, removed, vfs, parent }) }
        };
        let mut left = Vec::new();
        let mut done = Vec::new();
        {
            let ended = RefCell::new(links.clone());
            let _forgotten = panics::Always(|| files.unlinked(&cell, &ended.borrow()));
            for link in links {
                match remove(link) {
                    Ok(removed) => done.push(removed),
                    Err(link) => left.push(link),
                }
            }
            ended.borrow_mut().retain(|link| !left.contains(link));
        }
        if done.iter().any(|attempted| attempted.removed.is_ok()) {
            file.lost_a_link(&cell);
            // Others that have the file open may still write to it.
            if is_long_to_free(freed) || cell.lock().open_count() > 0 {
                cell.note_slow_close();
            }
        }
        for attempted in done {
            self.tell_of_removal(file, files, by, attempted);
        }
        (!left.is_empty()).then_some(Deletion { cell, links: left, by, has_lost_storage })
    }

    /// Returns the reason if a deletion that has failed with `fault` may be made later, since it was
    /// promised: a share that is only paused may be served again, and the next owner of a share can have
    /// storage that has gone here.
    fn left_by(&self, fault: Fault, vfs: &dyn Vfs, patience: Patience) -> Option<Left> {
        let share = &self.tree().share;
        match fault {
            Fault::NotServed => share.life.is_paused().then_some(Left::ForLater),
            fault if share.clustered && storage::may_have_gone(fault) => match patience {
                // A core does not look at storage that may be slow to answer: the caller with long
                // patience does.
                Patience::Short => Some(Left::ForLater),
                Patience::Long => storage::has_gone(vfs).then_some(Left::WithStorage),
            },
            _ => None,
        }
    }

    /// Removes a name, once more if the folder may have been empty but for files that are being closed:
    /// on network and FUSE file systems they have names (`.nfs*`, `.fuse_hidden*`) until then.
    fn unless_closes(&self, remove: impl Fn() -> VfsResult<()>) -> VfsResult<()> {
        let before = closer::ended();
        let removed = remove();
        let may_wait = removed == Err(Fault::NotEmpty)
            && blocking_pool::is_here()
            && self.tree().share.pool().is_some();
        let has_closed = || {
            closer::has_closed_blocking(self.closing_owner(), CLOSED_NAMES_PATIENCE)
                || closer::ended() != before
        };
        if may_wait && has_closed() {
            return remove();
        }
        removed
    }

    /// Tells watches, leases and the client what has become of a name.
    fn tell_of_removal(
        &self,
        file: &FileOpen,
        files: &FileTable,
        by: Option<Actor>,
        Attempted { link, removed, vfs, parent }: Attempted,
    ) {
        if let Err(fault) = removed {
            return self.not_removed(&link.name, fault);
        }
        self.record_removed(&link.name, file.is_directory);
        self.brake_removed(file, &link.name);
        if let Some(mut actor) = by {
            // The deletion breaks the leases on the parent directory. One lease is spared: the
            // parent lease of the Open that closed last, if the Open that requested the deletion
            // names the same one.
            actor.lease = actor.lease.filter(|lease| Some(lease.key) == parent);
            files.entry_changed(&*vfs, &link.name, actor);
        }
        file.report_removal(files, &link);
    }

    /// It was acknowledged that this would go, and it has not.
    fn not_removed(&self, name: &Name, fault: Fault) {
        tracing::debug!(%name, %fault, "a file was not deleted at its close");
        // With any other fault there is nothing more to delete, because the name is free or belongs
        // to another file, or the directory is no longer empty.
        let is_failure = matches!(
            fault,
            Fault::ReadOnly
                | Fault::Io(_)
                | Fault::DiskFull
                | Fault::QuotaExceeded
                | Fault::AccessDenied
                | Fault::NoMemory
                | Fault::TooManyOpen
        );
        // Only an Open with the right DELETE can have requested the deletion, so only it reports
        // the failure.
        if is_failure && self.granted_access.contains(AccessMask::DELETE) {
            let _ = self.removal_failure.set(fault.status());
        }
    }
}
