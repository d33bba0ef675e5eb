//! One open file with all its Opens: MS-FSA 2.1.1.3 File, 2.1.1.5 Open.

use alloc::sync::Arc;
use alloc::vec::Vec;

use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;

use crate::byte_range::ByteRanges;
use crate::crowd::{Crowd, Keyed};
use crate::lease::{
    self, Actor, Break, Cause, Contention, Granted, LeaseKey, LeaseOwner, LeaseState, Oplocks,
    Room, Route, Wish,
};
use crate::limits::OPENS_PER_FILE;
use crate::name::{FolderId, Link, Name};
use crate::open_id::OpenId;
use crate::share_mode::{Claim, Claims, Sharing, Verdict};
use crate::vfs::{FileKey, Vfs};

/// A new Open's demands on its file.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    /// The number of the new Open.
    pub id: OpenId,
    /// The folder to which its name is relative.
    pub folder_id: FolderId,
    /// The access that share modes are compared with at the open: Open.GrantedAccess, and the
    /// access that the disposition needs in addition.
    pub access: AccessMask,
    /// Open.GrantedAccess, which later Opens are compared with.
    pub granted: AccessMask,
    /// Open.SharingMode
    pub sharing: Sharing,
    /// FILE_DELETE_ON_CLOSE is set.
    pub delete_on_close: bool,
    /// The lease that the Open will belong to.
    pub lease: Option<LeaseOwner>,
    /// The Open removes the file's content.
    pub overwrites: bool,
}

/// The facts of a file that decide on oplocks and leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// True for a directory.
    pub is_directory: bool,
    /// Stream.AllocationSize
    pub allocation: u64,
}

/// The state of an Open after [`File::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// The Open is one of its file's Opens.
    In,
    /// The Open has to wait until a client has given up a caching right: see
    /// [`Oplocks::would_wait`].
    Waits,
}

#[derive(Debug)]
struct Entry {
    id: OpenId,
    claim: Claim,
    lease: Option<LeaseOwner>,
    /// It has joined its lease. An Open whose lease was not granted has not.
    is_in_lease: bool,
    delete_on_close: bool,
    /// Open.Link, if it is not the file's first link.
    link: Option<Link>,
    /// A name that this Open deletes is removed when the Open closes, even if the file has other
    /// Opens.
    unlinks: bool,
}

impl Keyed for Entry {
    type Key = OpenId;

    fn key(&self) -> OpenId {
        self.id
    }
}

/// A name that goes with the last close (Link.IsDeleted).
#[derive(Debug)]
struct Doomed {
    link: Link,
    /// The Open that deleted the name, and, once it is closed, the Vfs that removes the name.
    by: OpenId,
    remover: Option<Arc<dyn Vfs>>,
    /// Lease.ParentLeaseKey of that Open.
    parent: Option<LeaseKey>,
}

/// The work that a close leaves to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departure {
    /// Other Opens remain; nothing is to be done.
    StillOpen,
    /// It was the last Open; the file stays.
    Closed,
    /// These names are to be removed: usually one, several for a file with several deleted links.
    /// Opens by other names of the file may remain. The caller removes the names while it still
    /// holds the node (so that the file's key cannot be used again), then calls
    /// `FileTable::unlinked`, whether or not the removal succeeded.
    Remove(Vec<Link>),
}

/// An Open of a named stream, in its file's cell.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    pub(crate) id: OpenId,
    /// Open.Link: the name of the file, without the stream.
    pub(crate) link: Link,
    /// True if it touches data and does not share deletion.
    pub(crate) holds: bool,
}

impl Keyed for Attached {
    type Key = OpenId;

    fn key(&self) -> OpenId {
        self.id
    }
}

/// The shared state of one open file.
#[derive(Debug)]
pub struct File {
    key: FileKey,
    first: Link,
    opens: Crowd<Entry>,
    /// The claims of `opens`.
    claims: Claims,
    /// Opens of the file's named streams, each of which also has a cell of its own.
    pub(crate) streams: Crowd<Attached>,
    doomed: Vec<Doomed>,
    retired: bool,
    /// The file's byte-range locks.
    pub ranges: ByteRanges,
    /// The file's oplocks and leases.
    pub oplocks: Oplocks,
}

impl File {
    pub(crate) const fn new(key: FileKey, first: Link) -> Self {
        Self {
            key,
            first,
            opens: Crowd::new(),
            claims: Claims::NONE,
            streams: Crowd::new(),
            doomed: Vec::new(),
            retired: false,
            ranges: ByteRanges::EMPTY,
            oplocks: Oplocks::EMPTY,
        }
    }

    /// Returns the file's identity.
    pub const fn key(&self) -> FileKey {
        self.key
    }

    /// True if `id` is the only Open of the file and of its streams, and the file is not about to
    /// go.
    pub fn is_alone(&self, id: OpenId) -> bool {
        self.opens.iter().all(|e| e.id == id) && self.streams.is_empty() && self.doomed.is_empty()
    }

    /// Returns the name by which `id` opened the file, kept up to date by renames. A file with
    /// several links is renamed and removed by this name (MS-FSA 2.1.1.5 Open.Link).
    pub fn name_of(&self, id: OpenId) -> &Name {
        &self.link_of(id).name
    }

    fn link_of(&self, id: OpenId) -> &Link {
        if let Some(entry) = self.opens.find(id) {
            return entry.link.as_ref().unwrap_or(&self.first);
        }
        self.streams.find(id).map_or(&self.first, |attached| &attached.link)
    }

    /// Returns every name of the file that is stored here.
    fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        let links = self.opens.iter_mut().filter_map(|e| e.link.as_mut());
        let attached = self.streams.iter_mut().map(|attached| &mut attached.link);
        let doomed = self.doomed.iter_mut().map(|doomed| &mut doomed.link);
        links.chain(attached).chain(doomed).chain(core::iter::once(&mut self.first))
    }

    fn is_one_link(&self, a: &Link, b: &Link) -> bool {
        is_one_link(self.key, a, b)
    }

    /// True if one of the Opens has opened the file by this link.
    fn is_opened_by(&self, link: &Link) -> bool {
        self.links().any(|own| self.is_one_link(own, link))
    }

    /// Records that the link `from` is now called `to`.
    pub fn rename(&mut self, folder_id: FolderId, from: &Name, to: &Name) {
        for link in self.links_mut().filter(|link| link.is(folder_id, from)) {
            link.name.clone_from(to);
        }
    }

    /// True if one of its Opens has a name below `directory`: MS-FSA 2.1.4.2 counts the Opens whose
    /// Open.Link is there, whatever their access, and not those by other links of the file.
    pub fn is_below(&self, folder_id: FolderId, directory: &Name) -> bool {
        let mut links = self.links();
        links.any(|link| link.is_below(folder_id, directory))
    }

    /// True if its Opens have names below `directory` alone, and one of them has a client that does
    /// not cache the handle: MS-FSA 2.1.4.2 finds that Open whatever the others are asked.
    pub fn stays_below(&self, folder_id: FolderId, directory: &Name) -> bool {
        self.oplocks.opens_with_cached_handles() < self.opens.len()
            && self.links().all(|link| link.is_below(folder_id, directory))
    }

    /// Returns the names by which its Opens and those of its streams have opened it.
    fn links(&self) -> impl Iterator<Item = &Link> {
        let opens = self.opens.iter().map(|e| e.link.as_ref().unwrap_or(&self.first));
        opens.chain(self.streams.iter().map(|attached| &attached.link))
    }

    /// Returns the number of Opens, including those of named streams.
    pub const fn open_count(&self) -> usize {
        self.opens.len().saturating_add(self.streams.len())
    }

    /// True if a link of the file goes with the last Open by it: Link.IsDeleted.
    pub const fn is_delete_pending(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Returns the number of links that go with the last Open by them. Those of one folder are
    /// counted: a name in another one may mean one of them again.
    pub fn deleted_links(&self) -> usize {
        let Some(first) = self.doomed.first() else { return 0 };
        let folder_id = first.link.folder_id;
        self.doomed.iter().filter(|doomed| doomed.link.folder_id == folder_id).count()
    }

    /// True if the link of the Open `id` goes with the last Open by it
    /// (FileStandardInformation.DeletePending).
    pub fn is_going(&self, id: OpenId) -> bool {
        self.is_link_going(self.link_of(id))
    }

    /// True if the name goes with the last Open by it. `links` is the number of names that the file
    /// has: the only one is this, however it is written.
    pub fn is_name_going(&self, folder_id: FolderId, name: &Name, links: u32) -> bool {
        let is_this = |doomed: &Doomed| {
            doomed.link.folder_id != folder_id || doomed.link.name == *name || links <= 1
        };
        self.doomed.iter().any(|doomed| self.key.stream != 0 || is_this(doomed))
    }

    pub(crate) fn is_link_going(&self, link: &Link) -> bool {
        self.doomed.iter().any(|doomed| self.is_one_link(&doomed.link, link))
    }

    /// Forgets links that were removed, or could not be.
    pub(crate) fn forget_deleted(&mut self, links: &[Link]) {
        self.doomed.retain(|doomed| !links.contains(&doomed.link));
    }

    pub(crate) const fn is_retired(&self) -> bool {
        self.retired
    }

    pub(crate) const fn retire(&mut self) {
        self.retired = true;
    }

    /// Admits an Open by `name`.
    ///
    /// Caching rights of other clients may have to be given up first; that can end a sharing
    /// violation too.
    ///
    /// # Errors
    /// DELETE_PENDING for a deleted link, whose file may have others (MS-FSA 2.1.5.1), or
    /// SHARING_VIOLATION (2.1.5.1.2.2).
    pub fn admit(&mut self, name: &Name, a: Admission) -> Result<(Admitted, Contention), Status> {
        let other = (!self.first.is(a.folder_id, name))
            .then(|| Link { folder_id: a.folder_id, name: name.clone() });
        if self.is_link_going(other.as_ref().unwrap_or(&self.first)) {
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
        if contention.waits() {
            return Ok((Admitted::Waits, contention));
        }
        if is_violation || self.is_held_by_stream(a.access) {
            return Err(Status::SHARING_VIOLATION);
        }
        if self.opens.len() >= OPENS_PER_FILE {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let Admission { id, delete_on_close, lease, .. } = a;
        let claim = Claim { access: a.granted, ..claim };
        self.claims.add(claim);
        let (is_in_lease, link, unlinks) = (false, other, false);
        self.opens.push(Entry { id, claim, lease, is_in_lease, delete_on_close, link, unlinks });
        Ok((Admitted::In, contention))
    }

    /// Grants the oplock or lease that an Open asks for, or the largest part of it that the other
    /// Opens allow.
    /// The rights `awaited`, which requests wait for, are granted to nobody.
    pub(crate) fn grant(
        &mut self,
        id: OpenId,
        shape: Shape,
        wish: Wish,
        route: Route,
        awaited: LeaseState,
    ) -> Granted {
        if wish == Wish::Nothing {
            return Granted::Nothing;
        }
        let Shape { is_directory, allocation } = shape;
        let owner = wish.owner();
        let others = self.opens.iter().filter(|e| e.id != id);
        let mut others = others.filter(|e| owner.is_none() || e.lease != owner);
        let counts = |e: &Entry| {
            !lease::is_stat(e.claim.access, false)
                || e.is_in_lease
                || (e.lease.is_none() && self.oplocks.has_oplock(e.id))
        };
        let room = Room {
            is_shared: others.any(counts),
            // MS-FSA 2.1.5.18: read caching is not granted if a byte range within the allocated
            // data is locked.
            is_locked: self.ranges.first_offset().is_some_and(|first| allocation > first),
            is_going: self.is_going(id),
            is_directory,
            awaited,
        };
        let granted = self.oplocks.request(id, route, wish, room);
        if matches!(granted, Granted::Lease { .. })
            && let Some(entry) = self.opens.find_mut(id)
        {
            entry.is_in_lease = true;
        }
        granted
    }

    /// Breaks the caching rights of others that conflict with `id`'s next action.
    pub fn contend(&mut self, id: OpenId, cause: Cause) -> Contention {
        if self.oplocks.is_empty() {
            return Contention::default();
        }
        self.oplocks.contend(self.actor(id), cause)
    }

    /// Returns an Open with its lease, as the cause of a break.
    pub fn actor(&self, id: OpenId) -> Actor {
        Actor { open: id, lease: self.lease_of(id) }
    }

    /// Returns the lease that an Open belongs to.
    pub fn lease_of(&self, id: OpenId) -> Option<LeaseOwner> {
        self.opens.find(id).and_then(|e| e.lease)
    }

    /// Returns the Opens that belong to a lease.
    pub fn opens_of(&self, lease: LeaseOwner) -> Vec<OpenId> {
        self.opens.iter().filter(|e| e.lease == Some(lease)).map(|e| e.id).collect()
    }

    /// True if one of the Opens of a lease has this name.
    pub fn is_leased_as(&self, lease: LeaseOwner, folder_id: FolderId, name: &Name) -> bool {
        let mut opens = self.opens.iter().filter(|e| e.lease == Some(lease));
        opens.any(|e| e.link.as_ref().unwrap_or(&self.first).is(folder_id, name))
    }

    /// Returns the caching rights that an Open has now.
    pub fn held(&self, id: OpenId) -> Granted {
        self.oplocks.held(id, self.lease_of(id))
    }

    /// Compares `claim` with the claims of all Opens except `except`.
    pub fn contender(&self, claim: Claim, except: Option<OpenId>) -> Verdict {
        self.claims.beside(claim, except.and_then(|id| self.claim_of(id)))
    }

    /// True if every Open but `id` that touches data shares deletion.
    pub fn others_share_delete(&self, id: OpenId) -> bool {
        self.opens.iter().all(|e| e.id == id || !e.claim.contends() || e.claim.sharing.delete)
    }

    /// True if an Open of the primary stream was granted DELETE.
    pub(crate) fn is_open_for_deletion(&self) -> bool {
        self.opens.iter().any(|e| e.claim.access.contains(AccessMask::DELETE))
    }

    /// Sets or clears delete pending (FileDispositionInformation). It does not change an Open with
    /// FILE_DELETE_ON_CLOSE: MS-FSA 2.1.5.5 reads the mode of the Open.
    pub fn set_delete_pending(&mut self, id: OpenId, pending: bool) {
        let link = self.link_of(id).clone();
        if pending {
            let parent = self.parent_lease(id);
            return self.doom(link, id, parent);
        }
        let key = self.key;
        self.doomed.retain(|doomed| !is_surely_one_link(key, &doomed.link, &link));
    }

    /// Returns the Vfs through which a deleted name is removed, whichever Open closes last: the one
    /// of the Open that deleted it, which knows the name and has the right.
    pub fn remover(&self, link: &Link) -> Option<Arc<dyn Vfs>> {
        let doomed = self.doomed.iter().find(|doomed| doomed.link == *link);
        doomed.and_then(|doomed| doomed.remover.clone())
    }

    /// Returns the lease on the directory that the Open knew which deleted the name.
    pub fn parent_of_deletion(&self, link: &Link) -> Option<LeaseKey> {
        self.doomed.iter().find(|doomed| doomed.link == *link).and_then(|doomed| doomed.parent)
    }

    /// Returns Lease.ParentLeaseKey of an Open.
    fn parent_lease(&self, id: OpenId) -> Option<LeaseKey> {
        match self.held(id) {
            Granted::Lease { v2: Some(v2), .. } => v2.parent,
            _ => None,
        }
    }

    /// Clears FILE_DELETE_ON_CLOSE of `id`.
    pub fn forget_delete_on_close(&mut self, id: OpenId) {
        if let Some(e) = self.opens.find_mut(id) {
            e.delete_on_close = false;
        }
    }

    /// Returns whether closing `id` deletes its link, and whether this may be the close that it goes
    /// with.
    pub fn deletion_of(&self, id: OpenId) -> (bool, bool) {
        let on_close = self.opens.find(id).is_some_and(|e| e.delete_on_close);
        (on_close, self.is_going(id))
    }

    /// Returns the access and sharing of `id` that share modes compare.
    pub fn claim_of(&self, id: OpenId) -> Option<Claim> {
        self.opens.find(id).map(|e| e.claim)
    }

    /// Makes names that `id` deletes go when `id` closes, not with the last close: for POSIX
    /// clients, and for FILE_DISPOSITION_POSIX_SEMANTICS.
    pub fn unlinks_at_close(&mut self, id: OpenId) {
        if let Some(e) = self.opens.find_mut(id) {
            e.unlinks = true;
        }
    }

    /// Updates links below a directory that was renamed.
    pub fn rename_below(&mut self, folder_id: FolderId, from: &Name, to: &Name) {
        for link in self.links_mut().filter(|link| link.folder_id == folder_id) {
            if let Some(moved) = link.name.moved(from, to) {
                link.name = moved;
            }
        }
    }

    /// Removes the Open `id`: removes its locks and its oplock, and turns delete-on-close into
    /// delete pending (MS-FSA 2.1.5.5). Names that it deletes are removed through `vfs`. Returns
    /// the lease that it belonged to, and the breaks that delete pending causes.
    pub(crate) fn leave(
        &mut self,
        id: OpenId,
        vfs: &Arc<dyn Vfs>,
    ) -> (Departure, Option<LeaseOwner>, Vec<Break>) {
        let (lease, parent) = (self.lease_of(id), self.parent_lease(id));
        let link = self.link_of(id).clone();
        let (mut deletes, mut unlinks) = (false, false);
        if let Some(entry) = self.opens.take(id) {
            self.claims.remove(entry.claim);
            (deletes, unlinks) = (entry.delete_on_close, entry.unlinks);
            if deletes {
                self.doom(link.clone(), id, parent);
            }
            for doomed in self.doomed.iter_mut().filter(|doomed| doomed.by == id) {
                doomed.remover = Some(Arc::clone(vfs));
            }
        }
        self.streams.take(id);
        self.ranges.release(id);
        self.oplocks.leave(id, lease);
        let removed = self.removed_by(&link, unlinks || self.is_left_to_posix(&link, id));
        let mut breaks = Vec::new();
        if deletes && !unlinks && !self.oplocks.is_empty() {
            // MS-FSA 2.1.5.5: the close marks the link for deletion as FileDispositionInformation
            // does, which breaks the handle caching of other Opens (2.1.4.12).
            breaks = self.oplocks.contend(Actor { open: id, lease }, Cause::Delete).breaks;
        }
        let departure = match (removed.is_empty(), self.open_count() == 0) {
            (false, _) => Departure::Remove(removed),
            (true, true) => Departure::Closed,
            (true, false) => Departure::StillOpen,
        };
        (departure, lease, breaks)
    }

    /// Returns the deleted links that go when an Open by `link` has left. MS-FSA 2.1.5.5: a link
    /// goes with the last Open by it; one deleted with POSIX semantics (`unlinks`) with the Open that
    /// deleted it.
    fn removed_by(&self, link: &Link, unlinks: bool) -> Vec<Link> {
        let is_last = self.open_count() == 0;
        let goes = |doomed: &&Doomed| {
            // The deleted link may be this same link. Through another shared folder it has another
            // path. Then its removal has waited until this Open closed.
            let has_waited = self.is_one_link(&doomed.link, link);
            is_last
                || unlinks && is_surely_one_link(self.key, &doomed.link, link)
                || has_waited && !self.is_opened_by(&doomed.link)
        };
        self.doomed.iter().filter(goes).map(|doomed| doomed.link.clone()).collect()
    }

    /// True when `id` has deleted the link and all other Opens are POSIX clients', which do not keep a
    /// deleted name.
    fn is_left_to_posix(&self, link: &Link, id: OpenId) -> bool {
        self.streams.is_empty()
            && self.opens.iter().all(|e| e.unlinks)
            && self.doomed.iter().any(|doomed| doomed.link == *link && doomed.by == id)
    }

    fn doom(&mut self, link: Link, by: OpenId, parent: Option<LeaseKey>) {
        // A name that may mean the same link as one in the list is added, too, because removing a
        // link twice does no harm.
        if !self.doomed.iter().any(|doomed| is_surely_one_link(self.key, &doomed.link, &link)) {
            self.doomed.push(Doomed { link, by, remover: None, parent });
        }
    }
}

/// True if two names of the file `key` may mean one link, which is enough to refuse or to wait. Names
/// in two folders may: one folder can be below the other. A named stream goes by itself, whichever link it was opened by (MS-FSA 2.1.1.5
/// Stream.IsDeleted).
fn is_one_link(key: FileKey, a: &Link, b: &Link) -> bool {
    key.stream != 0 || a.folder_id != b.folder_id || a == b
}

/// True if two names of the file `key` mean one link in any case: what is done to one is done to the
/// other.
fn is_surely_one_link(key: FileKey, a: &Link, b: &Link) -> bool {
    key.stream != 0 || a == b
}
