//! Effects of Opens of named streams on Opens of their file, and the reverse: MS-FSA 2.1.5.1.2.2
//! and 2.1.5.5.
//!
//! Share modes, locks and caching rights belong to a stream, in a cell of its own. Deletion belongs
//! to the file: a stream that does not share deletion and a file that is open for deletion keep each
//! other from being opened (2.1.5.1.2.1), a file that is about to go refuses further Opens of its streams, and it goes with the
//! last Open of any of them. So each Open of a stream is listed in its file's cell as well.

use alloc::sync::Arc;

use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;

use crate::file::{Admission, Attached, File};
use crate::file_cell::FileCell;
use crate::file_table::FileTable;
use crate::limits::OPENS_PER_FILE;
use crate::name::{FolderId, Link, Name};
use crate::share_mode::Claim;
use crate::vfs::FileKey;

impl File {
    /// True if an Open of one of the file's streams forbids opening the file with `access`.
    ///
    /// MS-FSA 2.1.5.1.2.1: deleting the primary stream deletes the others, too.
    pub(crate) fn is_held_by_stream(&self, access: AccessMask) -> bool {
        access.contains(AccessMask::DELETE) && self.streams.iter().any(|s| s.holds)
    }

    /// True if a named stream is open. Such a file cannot be renamed.
    pub fn has_open_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    fn attach(&mut self, name: &Name, a: Admission) -> Result<(), Status> {
        let link = Link { folder_id: a.folder_id, name: name.with_stream(None) };
        if self.is_link_going(&link) {
            return Err(Status::DELETE_PENDING);
        }
        if self.open_count() >= OPENS_PER_FILE {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let claim = Claim { access: a.access, sharing: a.sharing };
        let holds = claim.contends() && !a.sharing.delete;
        if holds && self.is_open_for_deletion() {
            return Err(Status::SHARING_VIOLATION);
        }
        self.streams.push(Attached { id: a.id, link, holds });
        Ok(())
    }
}

impl FileTable {
    /// Lists an Open of a stream with its file. `key` and `name` are the file's. [`Self::leave`]
    /// removes it like any other Open.
    pub fn attach(&self, key: FileKey, name: &Name, a: Admission) -> Result<Arc<FileCell>, Status> {
        let key = key.file();
        let mut shard = self.shard(key).lock();
        if let Some(cell) = shard.get(&key) {
            let mut file = cell.lock();
            if !file.is_retired() {
                file.attach(name, a)?;
                drop(file);
                return Ok(Arc::clone(cell));
            }
        }
        let first = Link { folder_id: a.folder_id, name: name.with_stream(None) };
        let mut file = File::new(key, first);
        file.attach(name, a)?;
        let cell = Self::cell(key, file);
        shard.insert(key, Arc::clone(&cell));
        Ok(cell)
    }

    /// True if the name of the file is about to go, and the streams with it. `links` is the number of
    /// names that the file has.
    pub fn is_file_going(
        &self,
        key: FileKey,
        folder_id: FolderId,
        name: &Name,
        links: u32,
    ) -> bool {
        let name = name.with_stream(None);
        let is_going = |cell: Arc<FileCell>| cell.lock().is_name_going(folder_id, &name, links);
        self.find(key.file()).is_some_and(is_going)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Departure;
    use crate::lease::LeaseOwner;
    use crate::memory::{MemoryOptions, MemoryVfs};
    use crate::name::{FolderId, Rules};
    use crate::open_id::OpenId;
    use crate::share_mode::Sharing;
    use crate::vfs::Vfs;
    use alloc::vec;
    use frevo_wire::create_context::LeaseKey;
    use frevo_wire::dtyp::{FileTime, Guid};

    const FILE: FileKey = FileKey::of_file(1, 7);

    fn name(text: &str) -> Name {
        Name::parse(text, Rules::Windows).unwrap()
    }

    fn vfs() -> Arc<dyn Vfs> {
        Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(1))))
    }

    fn key(text: &str) -> FileKey {
        FileKey { stream: name(text).stream_id(), ..FILE }
    }

    fn ask(id: u64, access: AccessMask, sharing: Sharing) -> Admission {
        let (lease, overwrites) = (None, false);
        Admission {
            id: OpenId(id),
            folder_id: FolderId(1),
            access,
            granted: access,
            sharing,
            delete_on_close: false,
            lease,
            overwrites,
        }
    }

    const UNSHARED_DELETE: Sharing = Sharing { read: true, write: true, delete: false };

    #[test]
    fn a_stream_keeps_its_file_from_being_deleted() {
        let table = FileTable::default();
        let held = ask(1, AccessMask::READ_DATA, UNSHARED_DELETE);
        let file = table.attach(FILE, &name("f"), held).unwrap();
        let delete = ask(2, AccessMask::DELETE, Sharing::ALL);
        let refused = table.admit(FILE, &name("f"), delete);
        assert_eq!(refused.unwrap_err(), Status::SHARING_VIOLATION);
        // Open 3 of the file's main data shares nothing, but that does not restrict its streams.
        table.admit(FILE, &name("f"), ask(3, AccessMask::WRITE_DATA, Sharing::NONE)).unwrap();
        assert_eq!(table.leave(&file, OpenId(1), &vfs()), Departure::StillOpen);
        table.admit(FILE, &name("f"), ask(4, AccessMask::READ_ATTRIBUTES, Sharing::ALL)).unwrap();
        assert_eq!(table.leave(&file, OpenId(3), &vfs()), Departure::StillOpen);
        table.admit(FILE, &name("f"), delete).unwrap();
        // The file is open for DELETE, so an Open of a stream must share DELETE, unless it asks
        // only for attributes.
        for access in [AccessMask::READ_DATA, AccessMask::APPEND_DATA, AccessMask::DELETE] {
            let refused = table.attach(FILE, &name("f"), ask(5, access, UNSHARED_DELETE));
            assert_eq!(refused.unwrap_err(), Status::SHARING_VIOLATION, "{access:?}");
        }
        let attributes = ask(5, AccessMask::READ_ATTRIBUTES, Sharing::NONE);
        table.attach(FILE, &name("f"), attributes).unwrap();
        // This Open of a stream shares only DELETE. That is enough, because only DELETE counts
        // between a file and its streams.
        let deletes = Sharing { delete: true, ..Sharing::NONE };
        table.attach(FILE, &name("f"), ask(6, AccessMask::DELETE, deletes)).unwrap();
    }

    #[test]
    fn a_file_is_removed_with_the_last_open_of_its_streams() {
        let table = FileTable::default();
        let stream = ask(1, AccessMask::READ_DATA, Sharing::ALL);
        let file = table.attach(FILE, &name("f"), stream).unwrap();
        let whole = table.admit(FILE, &name("f"), ask(2, AccessMask::DELETE, Sharing::ALL));
        assert!(Arc::ptr_eq(&file, &whole.unwrap().cell));
        file.lock().set_delete_pending(OpenId(2), true);
        assert!(table.is_file_going(key("f:s"), FolderId(1), &name("f:s"), 1));
        assert_eq!(table.leave(&file, OpenId(2), &vfs()), Departure::StillOpen);
        let late = table.attach(FILE, &name("f"), ask(3, AccessMask::READ_DATA, Sharing::ALL));
        assert_eq!(late.unwrap_err(), Status::DELETE_PENDING);
        assert_eq!(
            table.leave(&file, OpenId(1), &vfs()),
            Departure::Remove(vec![Link { folder_id: FolderId(1), name: name("f") }])
        );
    }

    #[test]
    fn a_lease_stays_with_its_stream() {
        let table = FileTable::default();
        let owner = LeaseOwner { client: Guid([1; 16]), key: LeaseKey([2; 16]) };
        let all = ask(1, AccessMask::READ_DATA, Sharing::ALL);
        let cell = table.admit(key("f:a"), &name("f:a"), Admission { lease: Some(owner), ..all });
        let cell = cell.unwrap().cell;
        for n in 0..100 {
            let new = key(&std::format!("f:{n}"));
            assert!(table.rename_stream(&cell, new.stream));
            assert_eq!(table.leases.file(owner), Some(new));
        }
        assert_eq!(table.leave(&cell, OpenId(1), &vfs()), Departure::Closed);
        assert!(table.leases.is_empty());
    }

    #[test]
    fn a_renamed_stream_is_found_under_its_new_name() {
        let table = FileTable::default();
        let all = ask(1, AccessMask::READ_DATA, Sharing::ALL);
        // With 200 names, each combination of the two shards is likely, also the same shard twice.
        for n in 0..200 {
            let (old, new) = (std::format!("f:a{n}"), std::format!("f:b{n}"));
            let cell = table.admit(key(&old), &name(&old), all).unwrap().cell;
            let other = table.admit(key("f:taken"), &name("f:taken"), all).unwrap().cell;
            assert!(!table.rename_stream(&cell, key("f:taken").stream));
            assert!(table.rename_stream(&cell, key(&new).stream));
            assert!(table.rename_stream(&cell, key(&new).stream), "to itself");
            assert_eq!(cell.key(), key(&new));
            assert!(table.find(key(&old)).is_none());
            assert!(Arc::ptr_eq(&table.find(key(&new)).unwrap(), &cell));
            assert_eq!(table.leave(&cell, OpenId(1), &vfs()), Departure::Closed);
            assert_eq!(table.leave(&other, OpenId(1), &vfs()), Departure::Closed);
        }
        assert!(table.is_empty());
    }
}
