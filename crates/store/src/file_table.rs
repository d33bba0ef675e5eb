//! All open files of the server, by [`FileKey`].

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use frevo_wire::Status;
use hashbrown::HashMap;
use parking_lot::MutexGuard;

use crate::file::{Admission, Admitted, Departure, File, Shape};
use crate::file_cell::FileCell;
use crate::lease::queue::Queues;
use crate::lease::table::LeaseTable;
use crate::lease::{Actor, Cause, Contention, Granted, Route, Wish};
use crate::name::{FolderId, Link, Name};
use crate::name_locks::NameLocks;
use crate::open_id::OpenId;
use crate::order::{Guard, Ordered, rank};
use crate::surplus::return_surplus;
use crate::vfs::{FileKey, Vfs};
use crate::watch::Watches;

/// Shards of the table: many more than cores, so that two cores rarely wait for one.
const SHARDS: usize = 64;

type Cells = HashMap<FileKey, Arc<FileCell>>;
pub(crate) type Shard = Ordered<Cells, { rank::SHARD }>;

/// All open files. Lock order: names, shard, file.
#[derive(Debug)]
pub struct FileTable {
    shards: [Shard; SHARDS],
    /// Number of removed files; see [`FileTable::removals`].
    removals: AtomicU64,
    /// Watches of directories (CHANGE_NOTIFY).
    pub watches: Watches,
    /// Locks of names, held from looking a name up to acting on it.
    pub names: NameLocks,
    /// GlobalLeaseTableList
    pub leases: LeaseTable,
    /// The requests that wait for the holders of leases and oplocks.
    pub queues: Arc<Queues>,
}

/// The result of an attempt to open a file.
#[derive(Debug)]
pub struct Attempt {
    /// The file that is open, or was opened.
    pub cell: Arc<FileCell>,
    /// The state of the new Open.
    pub admitted: Admitted,
    /// The breaks that the new Open causes.
    pub contention: Contention,
}

impl Default for FileTable {
    fn default() -> Self {
        let shards = core::array::from_fn(|_| Ordered::new(HashMap::new()));
        let (watches, leases, names, queues) = Default::default();
        Self { shards, removals: AtomicU64::new(0), watches, leases, names, queues }
    }
}

impl FileTable {
    /// Admits an Open to the file `key` by its link `name`.
    ///
    /// # Errors
    /// The status of [`File::admit`], or INVALID_PARAMETER if its lease is for another file.
    pub fn admit(&self, key: FileKey, name: &Name, a: Admission) -> Result<Attempt, Status> {
        let mut shard = self.shard(key).lock();
        let there = shard.get(&key).filter(|cell| !cell.lock().is_retired()).cloned();
        let cell = there.unwrap_or_else(|| {
            let first = Link { folder_id: a.folder_id, name: name.clone() };
            Self::cell(key, File::new(key, first))
        });
        let mut file = cell.lock();
        if let Some(lease) = a.lease {
            self.leases.enter(lease, key)?;
        }
        let attempt = file.admit(name, a);
        drop(file);
        let stays_out = !matches!(attempt, Ok((Admitted::In, _)));
        if let Some(lease) = a.lease.filter(|_| stays_out) {
            self.leases.leave(lease);
        }
        let (admitted, contention) = attempt?;
        if admitted == Admitted::In && shard.get(&key).is_none_or(|old| !Arc::ptr_eq(old, &cell)) {
            shard.insert(key, Arc::clone(&cell));
        }
        Ok(Attempt { cell, admitted, contention })
    }

    pub(crate) fn cell(key: FileKey, file: File) -> Arc<FileCell> {
        Arc::new(FileCell::new(key, file))
    }

    /// Grants an Open of `cell` the oplock or lease that it asks for, or the largest part of it
    /// that the other Opens allow.
    pub fn grant(
        &self,
        cell: &FileCell,
        id: OpenId,
        shape: Shape,
        wish: Wish,
        route: Route,
    ) -> Granted {
        if let Some(owner) = wish.owner().filter(|_| shape.is_directory) {
            self.leases.mark_directory(owner);
        }
        let awaited = self.queues.awaited(cell.key());
        cell.lock().grant(id, shape, wish, route, awaited)
    }

    /// Breaks the leases on the directory of `name` after a change of its entries, except the lease
    /// of `actor`. MS-FSA 2.1.4.12 with PARENT_OBJECT. The caller does not wait for
    /// acknowledgments. No file may be locked.
    pub fn entry_changed(&self, vfs: &dyn Vfs, name: &Name, actor: Actor) {
        if !self.leases.has_directories() || name.is_root() {
            return;
        }
        let Ok(parent) = vfs.parent_key(name) else { return };
        if let Some(cell) = self.find(parent) {
            let contention = cell.lock().oplocks.contend(actor, Cause::Entry);
            self.leases.teller.tell(&cell, contention.breaks);
        }
    }

    /// Breaks all caching rights on `key` that `cause` conflicts with, for a change by another
    /// program of the host. The caller does not wait for acknowledgments.
    pub fn host_changed(&self, key: FileKey, cause: Cause) {
        if let Some(cell) = self.find(key) {
            let no_open = Actor { open: OpenId(0), lease: None };
            let contention = cell.lock().oplocks.contend(no_open, cause);
            self.leases.teller.tell(&cell, contention.breaks);
        }
    }

    /// Returns the file `key` if it is open.
    pub fn find(&self, key: FileKey) -> Option<Arc<FileCell>> {
        self.shard(key).lock().get(&key).cloned()
    }

    /// Takes an Open, opened through `vfs`, out of its file.
    pub fn leave(&self, cell: &Arc<FileCell>, id: OpenId, vfs: &Arc<dyn Vfs>) -> Departure {
        let (key, mut shard) = self.shard_of(cell);
        let mut file = cell.lock();
        let had_promises = !file.oplocks.is_empty();
        let (departure, lease, breaks) = file.leave(id, vfs);
        let is_let_alone = had_promises && file.oplocks.is_empty();
        if departure == Departure::Closed {
            file.retire();
            shard.remove(&key);
            return_surplus(&mut *shard);
        }
        if let Some(lease) = lease {
            self.leases.leave(lease);
        }
        drop((file, shard));
        if is_let_alone {
            cell.let_alone();
        }
        self.leases.teller.tell(cell, breaks);
        departure
    }

    /// Forgets links of a file after their removal, successful or not, and the file if nobody has
    /// it open: see [`Departure::Remove`].
    pub fn unlinked(&self, cell: &FileCell, links: &[Link]) {
        self.removals.fetch_add(1, Ordering::Release);
        let (key, mut shard) = self.shard_of(cell);
        let mut file = cell.lock();
        file.forget_deleted(links);
        // The file stays in the table if another Open has found it by another link meanwhile, or if
        // this removal is reported a second time.
        if file.open_count() == 0 && !file.is_delete_pending() && !file.is_retired() {
            file.retire();
            shard.remove(&key);
            return_surplus(&mut *shard);
        }
    }

    /// Locks the shard that a cell is in. The cell stays there until the guard is dropped.
    fn shard_of(
        &self,
        cell: &FileCell,
    ) -> (FileKey, Guard<MutexGuard<'_, Cells>, { rank::SHARD }>) {
        loop {
            let key = cell.key();
            let shard = self.shard(key).lock();
            if cell.key() == key {
                return (key, shard);
            }
        }
    }

    /// Moves a cell to another stream of its file, after a rename of the stream. Returns false and
    /// changes nothing if that stream is open.
    pub fn rename_stream(&self, cell: &Arc<FileCell>, stream: u64) -> bool {
        let (from, mut old) = self.shard_of(cell);
        let to = FileKey { stream, ..from };
        if core::ptr::eq(self.shard(from), self.shard(to)) {
            let is_moved = Self::move_cell(cell, from, &mut old, to, None);
            if is_moved {
                self.leases.rename(from, to);
            }
            return is_moved;
        }
        drop(old);
        // The shard with the lower number is locked first, so that two threads that rename cannot
        // deadlock.
        let (mut first, mut second) = if Self::number(from) < Self::number(to) {
            let first = self.shard(from).lock();
            (first, self.shard(to).lock())
        } else {
            let second = self.shard(to).lock();
            (self.shard(from).lock(), second)
        };
        let is_moved =
            cell.key() == from && Self::move_cell(cell, from, &mut first, to, Some(&mut second));
        if is_moved {
            self.leases.rename(from, to);
        }
        is_moved
    }

    fn move_cell(
        cell: &Arc<FileCell>,
        from: FileKey,
        old: &mut Cells,
        to: FileKey,
        new: Option<&mut Cells>,
    ) -> bool {
        let is_open = |shard: &Cells| shard.get(&to).is_some_and(|there| !Arc::ptr_eq(there, cell));
        if is_open(new.as_deref().unwrap_or(old)) {
            return false;
        }
        old.remove(&from);
        cell.set_stream(to.stream);
        new.unwrap_or(old).insert(to, Arc::clone(cell));
        true
    }

    /// Updates the names of all open files below a renamed directory. Takes time for every open
    /// file.
    pub fn rename_below(&self, folder_id: FolderId, from: &Name, to: &Name) {
        for shard in &self.shards {
            for cell in shard.lock().values() {
                cell.lock().rename_below(folder_id, from, to);
            }
        }
    }

    /// Returns the number of removals so far. An open that sees the number change between lookup
    /// and admission may have found a removed file.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Returns the number of files open below `directory`. Such a directory cannot be renamed
    /// (MS-FSA 2.1.5.15.11). Takes time for every open file.
    pub fn open_below(&self, folder_id: FolderId, directory: &Name) -> usize {
        let below = |cell: &Arc<FileCell>| cell.lock().is_below(folder_id, directory);
        self.shards
            .iter()
            .map(|shard| shard.lock().values().filter(|cell| below(cell)).count())
            .sum()
    }

    /// Returns the files open below `directory`; see [`Self::open_below`].
    pub fn below(&self, folder_id: FolderId, directory: &Name) -> Vec<Arc<FileCell>> {
        let below = |cell: &Arc<FileCell>| cell.lock().is_below(folder_id, directory);
        let of = |shard: &Shard| -> Vec<_> {
            shard.lock().values().filter(|cell| below(cell)).cloned().collect()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// Returns the number of open files.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// True if no file is open.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    pub(crate) fn shard(&self, key: FileKey) -> &Shard {
        self.shards.get(Self::number(key)).unwrap_or(&self.shards[0])
    }

    fn number(key: FileKey) -> usize {
        // Inode numbers are often consecutive, so their bits are mixed, which spreads them over the
        // shards.
        let mixed = (key.inode ^ key.device.rotate_left(32) ^ key.stream)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        usize::try_from(mixed >> 58).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryOptions, MemoryVfs};
    use crate::name::Rules;
    use crate::share_mode::Sharing;
    use alloc::vec;
    use frevo_wire::dtyp::{AccessMask, FileTime};

    const HERE: FolderId = FolderId(1);
    const KEY: FileKey = FileKey::of_file(1, 7);

    fn name(text: &str) -> Name {
        Name::parse(text, Rules::Windows).unwrap()
    }

    fn link(text: &str) -> Link {
        Link { folder_id: HERE, name: name(text) }
    }

    fn vfs() -> Arc<dyn Vfs> {
        Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(1))))
    }

    fn ask(id: u64, sharing: Sharing, delete_on_close: bool) -> Admission {
        let access = AccessMask::READ_DATA | AccessMask::DELETE;
        let (lease, overwrites) = (None, false);
        Admission {
            id: OpenId(id),
            folder_id: HERE,
            access,
            granted: access,
            sharing,
            delete_on_close,
            lease,
            overwrites,
        }
    }

    #[test]
    fn sharing_is_arbitrated_and_the_last_close_retires() {
        let table = FileTable::default();
        let cell = table.admit(KEY, &name("a"), ask(1, Sharing::ALL, false)).unwrap().cell;
        let refused = table.admit(KEY, &name("a"), ask(2, Sharing::NONE, false));
        assert_eq!(refused.unwrap_err(), Status::SHARING_VIOLATION);
        table.admit(KEY, &name("a"), ask(3, Sharing::ALL, false)).unwrap();
        assert_eq!(table.leave(&cell, OpenId(1), &vfs()), Departure::StillOpen);
        assert_eq!(table.leave(&cell, OpenId(3), &vfs()), Departure::Closed);
        assert!(table.is_empty());
    }

    /// The room of thousands of files is given back.
    #[test]
    fn a_crowd_of_files_leaves_no_room() {
        let table = FileTable::default();
        let key = |n| FileKey::of_file(1, n);
        let open = |n| table.admit(key(n), &name("a"), ask(n, Sharing::ALL, false)).unwrap().cell;
        let cells: Vec<_> = (1..20_000).map(open).collect();
        for (n, cell) in (1..).zip(&cells).skip(1) {
            assert_eq!(table.leave(cell, OpenId(n), &vfs()), Departure::Closed);
        }
        assert_eq!(table.len(), 1);
        let room: usize = table.shards.iter().map(|shard| shard.lock().capacity()).sum();
        assert!(room <= SHARDS * 64, "room for {room}");
    }

    #[test]
    fn delete_on_close_takes_effect_at_its_close_and_removes_at_the_last() {
        let table = FileTable::default();
        let cell = table.admit(KEY, &name("a"), ask(1, Sharing::ALL, true)).unwrap().cell;
        table.admit(KEY, &name("a"), ask(2, Sharing::ALL, false)).unwrap();
        assert!(!cell.lock().is_delete_pending());
        assert_eq!(table.leave(&cell, OpenId(1), &vfs()), Departure::StillOpen);
        let late = table.admit(KEY, &name("a"), ask(3, Sharing::ALL, false));
        assert_eq!(late.unwrap_err(), Status::DELETE_PENDING);
        cell.lock().rename(HERE, &name("a"), &name("b"));
        assert_eq!(table.leave(&cell, OpenId(2), &vfs()), Departure::Remove(vec![link("b")]));
        let between = table.admit(KEY, &name("b"), ask(4, Sharing::ALL, false));
        assert_eq!(between.unwrap_err(), Status::DELETE_PENDING, "until it is retired");
        table.unlinked(&cell, &[link("b")]);
        table.admit(KEY, &name("new"), ask(5, Sharing::ALL, false)).unwrap();
    }

    /// Tests that each Open of a file with two links means its own link.
    #[test]
    fn the_opened_link_is_the_one_removed() {
        let table = FileTable::default();
        let cell = table.admit(KEY, &name("a"), ask(1, Sharing::ALL, false)).unwrap().cell;
        table.admit(KEY, &name("d\\b"), ask(2, Sharing::ALL, true)).unwrap();
        table.admit(KEY, &name("d\\b"), ask(3, Sharing::ALL, false)).unwrap();
        assert_eq!(table.open_below(FolderId(1), &name("d")), 1);
        assert_eq!(*cell.lock().name_of(OpenId(2)), name("d\\b"));
        cell.lock().rename(HERE, &name("d\\b"), &name("c"));
        assert_eq!(table.open_below(FolderId(1), &name("d")), 0);
        let names = [1, 2, 3].map(|id| cell.lock().name_of(OpenId(id)).clone());
        assert_eq!(names, ["a", "c", "c"].map(name));
        cell.lock().set_delete_pending(OpenId(1), true);
        cell.lock().set_delete_pending(OpenId(1), false);
        assert_eq!(table.leave(&cell, OpenId(1), &vfs()), Departure::StillOpen);
        assert_eq!(table.leave(&cell, OpenId(2), &vfs()), Departure::StillOpen);
        assert_eq!(table.leave(&cell, OpenId(3), &vfs()), Departure::Remove(vec![link("c")]));
        table.unlinked(&cell, &[link("c")]);
        assert!(table.is_empty());
    }

    /// Tests that a deleted link goes with its own last Open and refuses only Opens by itself:
    /// MS-FSA 2.1.1.5 Link.IsDeleted, 2.1.5.5 phase 3.
    #[test]
    fn a_deleted_link_leaves_the_others_alone() {
        let table = FileTable::default();
        let cell = table.admit(KEY, &name("a"), ask(1, Sharing::ALL, false)).unwrap().cell;
        table.admit(KEY, &name("b"), ask(2, Sharing::ALL, false)).unwrap();
        cell.lock().set_delete_pending(OpenId(1), true);
        let going = [1, 2].map(|id| cell.lock().is_going(OpenId(id)));
        assert_eq!((going, cell.lock().deleted_links()), ([true, false], 1));
        let refused = table.admit(KEY, &name("a"), ask(3, Sharing::ALL, false));
        assert_eq!(refused.unwrap_err(), Status::DELETE_PENDING);
        table.admit(KEY, &name("b"), ask(3, Sharing::ALL, false)).unwrap();
        let (remover, mine) = (vfs(), vfs());
        assert_eq!(table.leave(&cell, OpenId(1), &remover), Departure::Remove(vec![link("a")]));
        assert!(Arc::ptr_eq(&cell.lock().remover(&link("a")).unwrap(), &remover));
        let between = table.admit(KEY, &name("a"), ask(4, Sharing::ALL, false));
        assert_eq!(between.unwrap_err(), Status::DELETE_PENDING, "until it is removed");
        table.unlinked(&cell, &[link("a")]);
        // The name has been removed, so a new file may have it.
        table.admit(KEY, &name("a"), ask(4, Sharing::ALL, true)).unwrap();
        for (id, departure) in [
            (2, Departure::StillOpen),
            (4, Departure::Remove(vec![link("a")])),
            (3, Departure::Remove(vec![link("a")])),
        ] {
            assert_eq!(table.leave(&cell, OpenId(id), &mine), departure, "{id}");
        }
        table.unlinked(&cell, &[link("a")]);
        assert!(table.is_empty());
        table.unlinked(&cell, &[link("a")]);
        // While the last link is being removed, a client opens the file by another link. The file
        // must stay in the table.
        let cell = table.admit(KEY, &name("a"), ask(5, Sharing::ALL, true)).unwrap().cell;
        assert_eq!(table.leave(&cell, OpenId(5), &mine), Departure::Remove(vec![link("a")]));
        let late = table.admit(KEY, &name("b"), ask(6, Sharing::ALL, false)).unwrap();
        assert!(Arc::ptr_eq(&late.cell, &cell));
        table.unlinked(&cell, &[link("a")]);
        assert!(Arc::ptr_eq(&table.find(KEY).unwrap(), &cell));
        assert_eq!(table.leave(&cell, OpenId(6), &mine), Departure::Closed);
    }

    #[test]
    fn clearing_the_disposition_saves_the_file_unless_it_was_opened_to_go() {
        let table = FileTable::default();
        for (on_close, forgotten, is_saved) in
            [(false, false, true), (true, false, false), (true, true, true)]
        {
            let cell = table.admit(KEY, &name("a"), ask(1, Sharing::ALL, on_close)).unwrap().cell;
            cell.lock().set_delete_pending(OpenId(1), true);
            cell.lock().set_delete_pending(OpenId(1), false);
            if forgotten {
                cell.lock().forget_delete_on_close(OpenId(1));
            }
            // MS-FSA 2.1.5.5: DELETE_ON_CLOSE belongs to the Open, so a disposition of "do not
            // delete" does not clear it.
            let left = table.leave(&cell, OpenId(1), &vfs());
            assert_eq!(left == Departure::Closed, is_saved, "{left:?}");
            table.unlinked(&cell, &[link("a")]);
        }
    }

    /// Tests that an Open for attributes counts beside an oplock once it belongs to a lease, and not
    /// where its lease was refused.
    #[test]
    fn an_open_whose_lease_was_refused_counts_beside_nobody() {
        use crate::lease::{LeaseKey, LeaseOwner, LeaseState, LeaseWish, V2};
        use frevo_wire::command::create::OplockLevel;
        use frevo_wire::dtyp::Guid;

        let table = FileTable::default();
        let owner = LeaseOwner { client: Guid([9; 16]), key: LeaseKey([1; 16]) };
        let open = |id, wish: Wish| {
            let (access, lease) = (AccessMask::READ_ATTRIBUTES, wish.owner());
            let ask = Admission { access, granted: access, lease, ..ask(id, Sharing::ALL, false) };
            let cell = table.admit(KEY, &name("d"), ask).unwrap().cell;
            let route = Route { session: 1, persistent: 2, sealed: false };
            // A lease of version 1 is refused for a directory.
            let shape = Shape { is_directory: lease.is_some(), allocation: 0 };
            (table.grant(&cell, OpenId(id), shape, wish, route), cell)
        };
        let leased = |v2| Wish::Lease(LeaseWish { owner, state: LeaseState::READ, v2 });
        let exclusive = Wish::Oplock(OplockLevel::EXCLUSIVE);
        let (refused, cell) = open(1, leased(None));
        assert_eq!(refused, Granted::Nothing);
        assert_eq!(open(2, exclusive).0, Granted::Oplock(OplockLevel::EXCLUSIVE));
        assert_eq!(table.leave(&cell, OpenId(2), &vfs()), Departure::StillOpen);
        let joined = open(3, leased(Some(V2 { epoch: 0, parent: None }))).0;
        assert!(matches!(joined, Granted::Lease { .. }), "{joined:?}");
        assert_eq!(open(4, exclusive).0, Granted::Oplock(OplockLevel::II));
    }

    /// Tests that a name of another share is another name, even for one file.
    #[test]
    fn names_of_another_share_are_others() {
        let table = FileTable::default();
        let there = FolderId(2);
        let cell = table.admit(KEY, &name("d\\f"), ask(1, Sharing::ALL, false)).unwrap().cell;
        let other = Admission { folder_id: there, ..ask(2, Sharing::ALL, false) };
        table.admit(KEY, &name("d\\f"), other).unwrap();
        assert_eq!(table.open_below(FolderId(3), &name("d")), 0);
        table.rename_below(there, &name("d"), &name("e"));
        cell.lock().rename(HERE, &name("d\\f"), &name("g"));
        cell.lock().rename(HERE, &name("e\\f"), &name("h"));
        let names = [1, 2].map(|id| cell.lock().name_of(OpenId(id)).clone());
        assert_eq!(names, ["g", "e\\f"].map(name));
        assert_eq!(
            (table.open_below(HERE, &name("e")), table.open_below(there, &name("e"))),
            (0, 1)
        );
        // The deleted name belongs to the other share, so that share's Vfs must remove it.
        cell.lock().set_delete_pending(OpenId(2), true);
        let (its, mine) = (vfs(), vfs());
        assert_eq!(table.leave(&cell, OpenId(2), &its), Departure::StillOpen);
        let link = Link { folder_id: there, name: name("e\\f") };
        assert_eq!(table.leave(&cell, OpenId(1), &mine), Departure::Remove(vec![link.clone()]));
        assert!(Arc::ptr_eq(&cell.lock().remover(&link).unwrap(), &its));
    }

    /// Tests that two names in two folders, which may be two links, are deleted each for itself.
    #[test]
    fn links_of_two_folders_are_deleted_each_for_itself() {
        let table = FileTable::default();
        let there = FolderId(2);
        let other = |id| Admission { folder_id: there, ..ask(id, Sharing::ALL, false) };
        let below = Link { folder_id: there, name: name("b") };
        let cell = table.admit(KEY, &name("sub\\a"), ask(1, Sharing::ALL, false)).unwrap().cell;
        table.admit(KEY, &name("b"), other(2)).unwrap();
        cell.lock().set_delete_pending(OpenId(1), true);
        cell.lock().set_delete_pending(OpenId(2), false);
        assert!(cell.lock().is_going(OpenId(1)), "only its own deletion is undone");
        cell.lock().set_delete_pending(OpenId(2), true);
        cell.lock().set_delete_pending(OpenId(2), true);
        assert_eq!(cell.lock().deleted_links(), 1, "they may be one");
        assert_eq!(table.leave(&cell, OpenId(1), &vfs()), Departure::StillOpen);
        let both = vec![link("sub\\a"), below.clone()];
        assert_eq!(table.leave(&cell, OpenId(2), &vfs()), Departure::Remove(both.clone()));
        table.unlinked(&cell, &both);
        assert!(table.is_empty());
        // With POSIX semantics a close removes only the name of its own Open.
        let cell = table.admit(KEY, &name("sub\\a"), ask(3, Sharing::ALL, false)).unwrap().cell;
        table.admit(KEY, &name("b"), other(4)).unwrap();
        cell.lock().set_delete_pending(OpenId(3), true);
        cell.lock().set_delete_pending(OpenId(4), true);
        table.admit(KEY, &name("c"), ask(5, Sharing::ALL, false)).unwrap_err();
        cell.lock().unlinks_at_close(OpenId(4));
        assert_eq!(table.leave(&cell, OpenId(4), &vfs()), Departure::Remove(vec![below]));
    }

    #[test]
    fn open_files_below_a_directory_are_seen() {
        let table = FileTable::default();
        let cell = table.admit(KEY, &name("d\\e\\f"), ask(1, Sharing::ALL, false)).unwrap().cell;
        assert_eq!(table.open_below(FolderId(1), &name("d")), 1);
        assert_eq!(table.open_below(FolderId(1), &name("d\\e\\f")), 0);
        assert_eq!(table.open_below(FolderId(2), &name("d")), 0);
        table.leave(&cell, OpenId(1), &vfs());
        assert_eq!(table.open_below(FolderId(1), &name("d")), 0);
    }
}
