//! GlobalLeaseTableList, MS-SMB2 3.3.1.11: which file a client's lease is for.
//! A key means one file at a time.

use frevo_wire::Status;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::LeaseOwner;
use crate::limits::LEASES;
use crate::vfs::FileKey;

#[derive(Debug)]
struct Lease {
    file: FileKey,
    opens: usize,
}

/// The leases of all clients. Its lock is the last of all.
#[derive(Debug, Default)]
pub struct LeaseTable(Mutex<HashMap<LeaseOwner, Lease>>);

impl LeaseTable {
    /// The file that a lease is for.
    pub fn file(&self, owner: LeaseOwner) -> Option<FileKey> {
        self.0.lock().get(&owner).map(|lease| lease.file)
    }

    /// Counts an Open of the lease; INVALID_PARAMETER when it is for another
    /// file (MS-SMB2 3.3.5.9.8).
    pub(crate) fn enter(&self, owner: LeaseOwner, file: FileKey) -> Result<(), Status> {
        let mut leases = self.0.lock();
        if leases.len() >= LEASES && !leases.contains_key(&owner) {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let lease = leases.entry(owner).or_insert(Lease { file, opens: 0 });
        if lease.file != file {
            return Err(Status::INVALID_PARAMETER);
        }
        lease.opens = lease.opens.saturating_add(1);
        Ok(())
    }

    /// A stream with leases is another one by name now. Looks at every lease.
    pub(crate) fn rename(&self, from: FileKey, to: FileKey) {
        for lease in self.0.lock().values_mut().filter(|lease| lease.file == from) {
            lease.file = to;
        }
    }

    /// An Open of the lease has closed.
    pub(crate) fn leave(&self, owner: LeaseOwner) {
        let mut leases = self.0.lock();
        if let Some(lease) = leases.get_mut(&owner) {
            lease.opens = lease.opens.saturating_sub(1);
            if lease.opens == 0 {
                leases.remove(&owner);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
