//! One file with everybody who has it open: MS-FSA 2.1.1.3 File, 2.1.1.5 Open.

use alloc::sync::Arc;
use alloc::vec::Vec;

use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;

use crate::byte_range::ByteRanges;
use crate::lease::{
    self, Actor, Cause, Contention, Granted, LeaseOwner, Oplocks, Room, Route, Wish,
};
use crate::limits::OPENS_PER_FILE;
use crate::name::{FolderId, Link, Name};
use crate::share_mode::{Claim, Sharing, Verdict};
use crate::stream::Attached;
use crate::vfs::{FileKey, Vfs};

/// Names an Open within the server for as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub u64);

/// What a new Open asks of its file.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    /// The Open.
    pub id: OpenId,
    /// Where its name is one.
    pub place: FolderId,
    /// Open.GrantedAccess
    pub access: AccessMask,
    /// Open.SharingMode
    pub sharing: Sharing,
    /// FILE_DELETE_ON_CLOSE
    pub delete_on_close: bool,
    /// The lease that it will belong to.
    pub lease: Option<LeaseOwner>,
    /// What is in the file is to go.
    pub overwrites: bool,
}

/// Whether an Open is among those of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// It is.
    In,
    /// Not before somebody has given back what he caches: see
    /// [`Oplocks::would_wait`].
    Waits,
}

#[derive(Debug)]
struct Entry {
    id: OpenId,
    claim: Claim,
    lease: Option<LeaseOwner>,
    delete_on_close: bool,
    /// Open.Link, where it is another one than the file's first.
    link: Option<Link>,
    /// A name that it deletes goes with it, whoever else has the file open.
    unlinks: bool,
}

/// Link.IsDeleted: a name that goes with the last close.
#[derive(Debug)]
struct Doomed {
    link: Link,
    /// Whose doing it is, and once he has closed the file, through what it is removed.
    by: OpenId,
    remover: Option<Arc<dyn Vfs>>,
}

/// What the last close of a file leaves to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departure {
    /// Others still have it open.
    StillOpen,
    /// Nobody has it open any more; it stays.
    Closed,
    /// Nobody has it open any more and these of its names are to be removed:
    /// one, but for a file with several links. The caller removes them while it
    /// still holds the node (so that the file's key cannot be used again) and
    /// then calls `FileTable::retire`.
    Remove(Vec<Link>),
    /// Others still have it open, but this name of it is to be removed now
    /// (FILE_DISPOSITION_POSIX_SEMANTICS). The caller then calls
    /// `FileTable::unlinked`.
    Unlink(Link),
}

/// The shared state of one open file.
#[derive(Debug)]
pub struct File {
    key: FileKey,
    first: Link,
    opens: Vec<Entry>,
    /// Opens of its named streams, which have cells of their own.
    pub(crate) streams: Vec<Attached>,
    doomed: Vec<Doomed>,
    retired: bool,
    /// Byte-range locks.
    pub ranges: ByteRanges,
    /// Oplocks and leases.
    pub oplocks: Oplocks,
}

impl File {
    pub(crate) const fn new(key: FileKey, first: Link) -> Self {
        Self {
            key,
            first,
            opens: Vec::new(),
            streams: Vec::new(),
            doomed: Vec::new(),
            retired: false,
            ranges: ByteRanges::EMPTY,
            oplocks: Oplocks::EMPTY,
        }
    }

    /// Which file.
    pub const fn key(&self) -> FileKey {
        self.key
    }

    /// Whether `id` is the only Open of the file and of its streams, and it stays.
    pub fn is_alone(&self, id: OpenId) -> bool {
        self.opens.iter().all(|e| e.id == id) && self.streams.is_empty() && self.doomed.is_empty()
    }

    /// The name under which `id` opened it, kept up to date by renames: a file
    /// with several links is renamed and removed under this one (MS-FSA 2.1.1.5
    /// Open.Link).
    pub fn name_of(&self, id: OpenId) -> &Name {
        &self.link_of(id).name
    }

    fn link_of(&self, id: OpenId) -> &Link {
        let entry = self.opens.iter().find(|e| e.id == id);
        entry.and_then(|e| e.link.as_ref()).unwrap_or(&self.first)
    }

    /// All that is kept of its names.
    fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        let links = self.opens.iter_mut().filter_map(|e| e.link.as_mut());
        let doomed = self.doomed.iter_mut().map(|doomed| &mut doomed.link);
        links.chain(doomed).chain(core::iter::once(&mut self.first))
    }

    /// Records that the link `from` has become `to`.
    pub fn rename(&mut self, place: FolderId, from: &Name, to: &Name) {
        for link in self.links_mut().filter(|link| link.is(place, from)) {
            link.name.clone_from(to);
        }
    }

    /// Whether any of the names under which it is open lies below `directory`.
    pub fn is_below(&self, place: FolderId, directory: &Name) -> bool {
        let mut links = self.opens.iter().filter_map(|e| e.link.as_ref());
        self.first.is_below(place, directory) || links.any(|link| link.is_below(place, directory))
    }

    /// How many Opens there are, those of its named streams among them.
    pub const fn open_count(&self) -> usize {
        self.opens.len().saturating_add(self.streams.len())
    }

    /// Whether it goes when the last Open closes (FileStandardInformation).
    pub const fn is_delete_pending(&self) -> bool {
        !self.doomed.is_empty()
    }

    pub(crate) const fn is_retired(&self) -> bool {
        self.retired
    }

    pub(crate) const fn retire(&mut self) {
        self.retired = true;
    }

    /// Admits an Open by `name`, or says the status that refuses it: DELETE_PENDING,
    /// SHARING_VIOLATION (MS-FSA 2.1.5.1.2.1, 2.1.5.1.2.2). What others cache may
    /// have to be given back before; a violation too may end that way.
    ///
    /// Deviation: whichever link is about to go, the file is opened by none.
    pub fn admit(&mut self, name: &Name, a: Admission) -> Result<(Admitted, Contention), Status> {
        if self.is_delete_pending() {
            return Err(Status::DELETE_PENDING);
        }
        let claim = Claim { access: a.access, sharing: a.sharing };
        let is_violation = self.contender(claim, None) == Verdict::Violation;
        let cause = match (is_violation, a.overwrites) {
            (true, overwrites) => Cause::Violation { overwrites },
            (false, true) => Cause::Overwrite,
            (false, false) => Cause::Open(a.access),
        };
        let actor = Actor { open: a.id, lease: a.lease };
        let contention = self.oplocks.contend(actor, cause);
        if contention.waits {
            return Ok((Admitted::Waits, contention));
        }
        if is_violation || self.is_held_by_stream(a.access) {
            return Err(Status::SHARING_VIOLATION);
        }
        if self.opens.len() >= OPENS_PER_FILE {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let Admission { id, place, delete_on_close, lease, .. } = a;
        let link = (!self.first.is(place, name)).then(|| Link { place, name: name.clone() });
        self.opens.push(Entry { id, claim, lease, delete_on_close, link, unlinks: false });
        Ok((Admitted::In, contention))
    }

    /// Grants the oplock or lease that an Open wishes for, or as much of it as
    /// there is room for.
    pub(crate) fn grant(
        &mut self,
        id: OpenId,
        is_directory: bool,
        wish: Wish,
        route: Route,
    ) -> Granted {
        if wish == Wish::Nothing {
            return Granted::Nothing;
        }
        let owner = wish.owner();
        let others = self.opens.iter().filter(|e| e.id != id);
        let mut others = others.filter(|e| owner.is_none() || e.lease != owner);
        let counts =
            |e: &Entry| !lease::is_stat(e.claim.access, false) || self.oplocks.has_promise(e.id);
        let room = Room {
            is_shared: others.any(counts),
            is_locked: !self.ranges.is_empty(),
            is_going: self.is_delete_pending(),
            is_directory,
        };
        self.oplocks.request(id, route, wish, room)
    }

    /// Breaks what others cache and `id` is about to invalidate.
    pub fn contend(&mut self, id: OpenId, cause: Cause) -> Contention {
        if self.oplocks.is_empty() {
            return Contention::default();
        }
        self.oplocks.contend(self.actor(id), cause)
    }

    /// An Open as one that acts.
    pub fn actor(&self, id: OpenId) -> Actor {
        Actor { open: id, lease: self.lease_of(id) }
    }

    /// The lease that an Open belongs to.
    pub fn lease_of(&self, id: OpenId) -> Option<LeaseOwner> {
        self.opens.iter().find(|e| e.id == id).and_then(|e| e.lease)
    }

    /// Opens that belong to a lease.
    pub fn opens_of(&self, lease: LeaseOwner) -> Vec<OpenId> {
        self.opens.iter().filter(|e| e.lease == Some(lease)).map(|e| e.id).collect()
    }

    /// What an Open may cache now.
    pub fn held(&self, id: OpenId) -> Granted {
        self.oplocks.held(id, self.lease_of(id))
    }

    /// Compares `claim` with every Open but `except`.
    pub fn contender(&self, claim: Claim, except: Option<OpenId>) -> Verdict {
        let clash = self
            .opens
            .iter()
            .any(|e| Some(e.id) != except && e.claim.beside(claim) == Verdict::Violation);
        if clash { Verdict::Violation } else { Verdict::Compatible }
    }

    /// Whether every Open but `id` that touches data shares deletion.
    pub fn others_share_delete(&self, id: OpenId) -> bool {
        self.opens.iter().all(|e| e.id == id || !e.claim.contends() || e.claim.sharing.delete)
    }

    /// Sets or clears delete pending (FileDispositionInformation). What was opened
    /// to be deleted on close is so all the same: MS-FSA 2.1.5.5 asks the Open's
    /// mode, not what was set since.
    pub fn set_delete_pending(&mut self, id: OpenId, pending: bool) {
        let link = self.link_of(id).clone();
        if pending {
            return self.doom(link, id);
        }
        self.doomed.retain(|doomed| doomed.link != link);
    }

    /// Through what a name that goes is removed, whoever closes the file last: what
    /// whoever deletes it had it open through, which knows the name and whose right
    /// it was.
    pub fn remover(&self, link: &Link) -> Option<Arc<dyn Vfs>> {
        let doomed = self.doomed.iter().find(|doomed| doomed.link == *link);
        doomed.and_then(|doomed| doomed.remover.clone())
    }

    /// Closing `id` no longer deletes anything, although it was opened for that.
    pub fn forget_delete_on_close(&mut self, id: OpenId) {
        if let Some(e) = self.opens.iter_mut().find(|e| e.id == id) {
            e.delete_on_close = false;
        }
    }

    /// Whether closing `id` deletes the file, and whether the name by which it
    /// opened the file is to go already: what of deletion is `id`'s own.
    pub fn deletion_of(&self, id: OpenId) -> (bool, bool) {
        let on_close = self.opens.iter().any(|e| e.id == id && e.delete_on_close);
        (on_close, self.is_doomed(self.link_of(id)))
    }

    /// What share modes are compared with for `id`.
    pub fn claim_of(&self, id: OpenId) -> Option<Claim> {
        self.opens.iter().find(|e| e.id == id).map(|e| e.claim)
    }

    /// From now on a name that `id` deletes is removed when `id` closes, and not
    /// with the last close: POSIX clients, FILE_DISPOSITION_POSIX_SEMANTICS.
    pub fn unlinks_at_close(&mut self, id: OpenId) {
        if let Some(e) = self.opens.iter_mut().find(|e| e.id == id) {
            e.unlinks = true;
        }
    }

    /// A directory has another name: so have the links below it.
    pub fn rename_below(&mut self, place: FolderId, from: &Name, to: &Name) {
        for link in self.links_mut().filter(|link| link.place == place) {
            if let Some(moved) = link.name.moved(from, to) {
                link.name = moved;
            }
        }
    }

    /// Takes `id` out: its locks and its oplock go, delete-on-close becomes
    /// delete pending (MS-FSA 2.1.5.5). Had through `vfs`, what it deletes is removed
    /// through that. Says what lease it belonged to.
    pub(crate) fn leave(
        &mut self,
        id: OpenId,
        vfs: &Arc<dyn Vfs>,
    ) -> (Departure, Option<LeaseOwner>) {
        let lease = self.lease_of(id);
        let mut unlinked = None;
        if let Some(at) = self.opens.iter().position(|e| e.id == id) {
            let entry = self.opens.swap_remove(at);
            let link = entry.link.unwrap_or_else(|| self.first.clone());
            if entry.delete_on_close {
                self.doom(link.clone(), id);
            }
            if entry.unlinks && self.open_count() > 0 && self.is_doomed(&link) {
                self.doomed.retain(|doomed| doomed.link != link);
                unlinked = Some(link);
            }
            for doomed in self.doomed.iter_mut().filter(|doomed| doomed.by == id) {
                doomed.remover = Some(Arc::clone(vfs));
            }
        }
        self.streams.retain(|attached| attached.id != id);
        self.ranges.release(id);
        self.oplocks.leave(id);
        if let Some(link) = unlinked {
            return (Departure::Unlink(link), lease);
        }
        let departure = match (self.open_count() == 0, self.is_delete_pending()) {
            (false, _) => Departure::StillOpen,
            (true, false) => Departure::Closed,
            (true, true) => {
                Departure::Remove(self.doomed.iter().map(|doomed| doomed.link.clone()).collect())
            }
        };
        (departure, lease)
    }

    fn is_doomed(&self, link: &Link) -> bool {
        self.doomed.iter().any(|doomed| doomed.link == *link)
    }

    fn doom(&mut self, link: Link, by: OpenId) {
        if !self.is_doomed(&link) {
            self.doomed.push(Doomed { link, by, remover: None });
        }
    }
}
