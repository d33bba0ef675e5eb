//! GlobalLeaseTableList, MS-SMB2 3.3.1.11: the file of each client's lease. A key belongs to one
//! file at a time.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use frevo_wire::Status;
use hashbrown::HashMap;
use parking_lot::RwLock;

use super::{Break, LeaseOwner};
use crate::file_cell::FileCell;
use crate::limits::LEASES;
use crate::order::{Ordered, rank};
use crate::surplus::return_surplus;
use crate::vfs::FileKey;

#[derive(Debug)]
struct Lease {
    file: FileKey,
    opens: usize,
    is_directory: bool,
}

/// The leases of all clients. Its lock comes last in the lock order.
#[derive(Debug, Default)]
pub struct LeaseTable {
    leases: Ordered<HashMap<LeaseOwner, Lease>, { rank::LAST }>,
    directories: AtomicUsize,
    /// Sends the breaks that no request waits for.
    pub teller: Teller,
}

type Tell = Box<dyn Fn(&Arc<FileCell>, Vec<Break>) + Send + Sync>;

/// The callback that sends breaks to clients.
#[derive(Default)]
pub struct Teller(RwLock<Option<Tell>>);

impl Teller {
    /// Sets the callback, which replaces an earlier one.
    pub fn set(&self, tell: impl Fn(&Arc<FileCell>, Vec<Break>) + Send + Sync + 'static) {
        *self.0.write() = Some(Box::new(tell));
    }

    /// Sends breaks for one file, which must not be locked.
    pub fn tell(&self, cell: &Arc<FileCell>, breaks: Vec<Break>) {
        if !breaks.is_empty()
            && let Some(tell) = &*self.0.read()
        {
            tell(cell, breaks);
        }
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

impl LeaseTable {
    /// True if any directory is leased. Asked first before each change of a directory's entries.
    pub fn has_directories(&self) -> bool {
        self.directories.load(Ordering::Acquire) != 0
    }

    /// Marks the lease as one on a directory.
    pub(crate) fn mark_directory(&self, owner: LeaseOwner) {
        if let Some(lease) = self.leases.lock().get_mut(&owner).filter(|l| !l.is_directory) {
            lease.is_directory = true;
            self.directories.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the file that a lease is for.
    pub fn file(&self, owner: LeaseOwner) -> Option<FileKey> {
        self.leases.lock().get(&owner).map(|lease| lease.file)
    }

    /// Counts an Open of the lease. Fails with INVALID_PARAMETER if the lease is for another file
    /// (MS-SMB2 3.3.5.9.8).
    pub(crate) fn enter(&self, owner: LeaseOwner, file: FileKey) -> Result<(), Status> {
        let mut leases = self.leases.lock();
        if leases.len() >= LEASES && !leases.contains_key(&owner) {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let new = Lease { file, opens: 0, is_directory: false };
        let lease = leases.entry(owner).or_insert(new);
        if lease.file != file {
            return Err(Status::INVALID_PARAMETER);
        }
        lease.opens = lease.opens.saturating_add(1);
        Ok(())
    }

    /// Moves leases to the new key of a renamed stream. Takes time for every lease.
    pub(crate) fn rename(&self, from: FileKey, to: FileKey) {
        for lease in self.leases.lock().values_mut().filter(|lease| lease.file == from) {
            lease.file = to;
        }
    }

    /// Counts the close of an Open of the lease.
    pub(crate) fn leave(&self, owner: LeaseOwner) {
        let mut leases = self.leases.lock();
        if let Some(lease) = leases.get_mut(&owner) {
            lease.opens = lease.opens.saturating_sub(1);
            if lease.opens == 0 {
                if lease.is_directory {
                    self.directories.fetch_sub(1, Ordering::AcqRel);
                }
                leases.remove(&owner);
                return_surplus(&mut *leases);
            }
        }
    }

    /// Returns the number of leases.
    pub fn len(&self) -> usize {
        self.leases.lock().len()
    }

    /// True if there are no leases.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use frevo_wire::create_context::LeaseKey;
    use frevo_wire::dtyp::Guid;

    use super::*;

    /// The room of thousands of leases is given back.
    #[test]
    fn a_crowd_of_leases_leaves_no_room() {
        let table = LeaseTable::default();
        let owner = |n: u128| LeaseOwner { client: Guid([9; 16]), key: LeaseKey(n.to_le_bytes()) };
        let file = FileKey::of_file(1, 7);
        (0..4_000).for_each(|n| table.enter(owner(n), file).unwrap());
        (1..4_000).for_each(|n| table.leave(owner(n)));
        assert_eq!((table.len(), table.file(owner(0))), (1, Some(file)));
        let room = table.leases.lock().capacity();
        assert!(room <= 64, "room for {room}");
    }
}
