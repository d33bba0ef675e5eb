//! One file with everybody who has it open: MS-FSA 2.1.1.3 File, 2.1.1.5 Open.

use alloc::vec::Vec;

use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;

use crate::byte_range::ByteRanges;
use crate::limits::OPENS_PER_FILE;
use crate::name::Name;
use crate::share_mode::{Claim, Sharing, Verdict};
use crate::vfs::FileKey;

/// Names an Open within the server for as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub u64);

/// What a new Open asks of its file.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    /// The Open.
    pub id: OpenId,
    /// Open.GrantedAccess
    pub access: AccessMask,
    /// Open.SharingMode
    pub sharing: Sharing,
    /// FILE_DELETE_ON_CLOSE
    pub delete_on_close: bool,
}

#[derive(Debug)]
struct Entry {
    id: OpenId,
    claim: Claim,
    delete_on_close: bool,
    /// Open.Link, where it is another one than the file's first.
    link: Option<Name>,
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
    Remove(Vec<Name>),
}

/// The shared state of one open file.
#[derive(Debug)]
pub struct File {
    key: FileKey,
    name: Name,
    opens: Vec<Entry>,
    /// Link.IsDeleted: names that go with the last close.
    doomed: Vec<Name>,
    retired: bool,
    /// Byte-range locks.
    pub ranges: ByteRanges,
}

impl File {
    pub(crate) const fn new(key: FileKey, name: Name) -> Self {
        Self {
            key,
            name,
            opens: Vec::new(),
            doomed: Vec::new(),
            retired: false,
            ranges: ByteRanges::EMPTY,
        }
    }

    /// Which file.
    pub const fn key(&self) -> FileKey {
        self.key
    }

    /// The name under which it was opened first, kept up to date by renames.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The name under which `id` opened it, kept up to date by renames: a file
    /// with several links is renamed and removed under this one (MS-FSA 2.1.1.5
    /// Open.Link).
    pub fn name_of(&self, id: OpenId) -> &Name {
        let entry = self.opens.iter().find(|e| e.id == id);
        entry.and_then(|e| e.link.as_ref()).unwrap_or(&self.name)
    }

    /// Records that the link `from` has become `to`.
    pub fn rename(&mut self, from: &Name, to: &Name) {
        let links = self.opens.iter_mut().filter_map(|e| e.link.as_mut());
        links
            .chain(self.doomed.iter_mut())
            .chain(core::iter::once(&mut self.name))
            .filter(|name| **name == *from)
            .for_each(|name| name.clone_from(to));
    }

    /// Whether any of the names under which it is open lies below `directory`.
    pub fn is_below(&self, directory: &Name) -> bool {
        let mut links = self.opens.iter().filter_map(|e| e.link.as_ref());
        self.name.is_below(directory) || links.any(|link| link.is_below(directory))
    }

    /// How many Opens there are.
    pub const fn open_count(&self) -> usize {
        self.opens.len()
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

    /// Admits an Open by the name `link`, or says the status that refuses it: DELETE_PENDING,
    /// SHARING_VIOLATION (MS-FSA 2.1.5.1.2.1, 2.1.5.1.2.2).
    ///
    /// Deviation: whichever link is about to go, the file is opened by none.
    pub fn admit(&mut self, link: &Name, a: Admission) -> Result<(), Status> {
        if self.is_delete_pending() {
            return Err(Status::DELETE_PENDING);
        }
        let claim = Claim { access: a.access, sharing: a.sharing };
        if self.contender(claim, None) == Verdict::Violation {
            return Err(Status::SHARING_VIOLATION);
        }
        if self.opens.len() >= OPENS_PER_FILE {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let link = (*link != self.name).then(|| link.clone());
        self.opens.push(Entry { id: a.id, claim, delete_on_close: a.delete_on_close, link });
        Ok(())
    }

    /// Compares `claim` with every Open but `except`.
    pub fn contender(&self, claim: Claim, except: Option<OpenId>) -> Verdict {
        let clash = self
            .opens
            .iter()
            .any(|e| Some(e.id) != except && e.claim.beside(claim) == Verdict::Violation);
        if clash { Verdict::Violation } else { Verdict::Compatible }
    }

    /// Whether anybody but `id` has it open with access to data, for deleting
    /// or renaming: opens for attributes only do not stand in the way.
    pub fn is_contended(&self, id: OpenId) -> bool {
        self.opens.iter().any(|e| e.id != id && e.claim.contends())
    }

    /// Whether every Open but `id` that touches data shares deletion.
    pub fn others_share_delete(&self, id: OpenId) -> bool {
        self.opens.iter().all(|e| e.id == id || !e.claim.contends() || e.claim.sharing.delete)
    }

    /// Sets or clears delete pending (FileDispositionInformation); clearing
    /// also forgets that `id` was opened to delete on close.
    pub fn set_delete_pending(&mut self, id: OpenId, pending: bool) {
        let name = self.name_of(id).clone();
        if pending {
            return self.doom(name);
        }
        self.doomed.retain(|doomed| *doomed != name);
        if let Some(e) = self.opens.iter_mut().find(|e| e.id == id) {
            e.delete_on_close = false;
        }
    }

    /// Whether closing `id` deletes the file, and whether the name by which it
    /// opened the file is to go already: what of deletion is `id`'s own.
    pub fn deletion_of(&self, id: OpenId) -> (bool, bool) {
        let on_close = self.opens.iter().any(|e| e.id == id && e.delete_on_close);
        (on_close, self.doomed.contains(self.name_of(id)))
    }

    /// What share modes are compared with for `id`.
    pub fn claim_of(&self, id: OpenId) -> Option<Claim> {
        self.opens.iter().find(|e| e.id == id).map(|e| e.claim)
    }

    /// Takes `id` out: its locks go, delete-on-close becomes delete pending
    /// (MS-FSA 2.1.5.5).
    pub(crate) fn leave(&mut self, id: OpenId) -> Departure {
        if let Some(at) = self.opens.iter().position(|e| e.id == id) {
            let entry = self.opens.swap_remove(at);
            if entry.delete_on_close {
                self.doom(entry.link.unwrap_or_else(|| self.name.clone()));
            }
        }
        self.ranges.release(id);
        match (self.opens.is_empty(), self.is_delete_pending()) {
            (false, _) => Departure::StillOpen,
            (true, false) => Departure::Closed,
            (true, true) => Departure::Remove(self.doomed.clone()),
        }
    }

    fn doom(&mut self, name: Name) {
        if !self.doomed.contains(&name) {
            self.doomed.push(name);
        }
    }
}
