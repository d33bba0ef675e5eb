//! The index of a share: all its files and folders, by folder and name, and by number.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::chunk::Chunk;
use crate::entry::{Entry, Facts, NONE, Slot};
use crate::fold::fold_all;
use crate::limits::{BYTES, CHUNK, DEPTH, ENTRIES, NAME_BYTES};
use crate::query::Kind;

/// The most that an index has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Files and folders.
    pub entries: usize,
    /// Bytes, all counted.
    pub bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { entries: ENTRIES, bytes: BYTES }
    }
}

/// The reason why a file is not in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The index has as many files, or takes as many bytes, as it may.
    Full,
    /// The folder has gone, or is no folder, or would be in itself.
    NoFolder,
    /// The name is empty or too long.
    Name,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the index is full",
            Self::NoFolder => "there is no such folder in the index",
            Self::Name => "a name is empty or too long for the index",
        })
    }
}

impl core::error::Error for Refused {}

/// The names, sizes and dates of the files of a share.
#[derive(Debug)]
pub struct Index {
    pub(crate) chunks: Vec<Chunk>,
    /// Places by folder and name.
    by_name: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Chunks with room.
    roomy: Vec<u32>,
    /// The tops of what was removed, until [`Self::tidy`] has freed it.
    removed: Vec<u32>,
    /// Entries, those that are to be freed among them.
    entries: usize,
    /// Bytes of the chunks.
    chunk_bytes: usize,
    room: Room,
    /// Memory for the folded spelling of one name.
    folded: String,
}

impl Default for Index {
    fn default() -> Self {
        Self::new(Room::default())
    }
}

impl Index {
    /// Returns an index of an empty folder.
    pub fn new(room: Room) -> Self {
        let mut index = Self {
            chunks: Vec::new(),
            by_name: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            roomy: Vec::new(),
            removed: Vec::new(),
            entries: 0,
            chunk_bytes: 0,
            room,
            folded: String::new(),
        };
        let root = Facts { id: 0, kind: Kind::Folder, size: 0, modified: 0, created: 0 };
        // The first place of a new index is that of the root.
        let _ = index.place(Entry::new(&root), "");
        index
    }

    /// Returns the number of files and folders, without the root.
    pub const fn len(&self) -> usize {
        self.entries.saturating_sub(1)
    }

    /// True without a file.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        let lists = self.chunks.capacity().saturating_sub(self.chunks.len());
        let lists = lists.saturating_mul(size_of::<Chunk>());
        [
            self.by_name.allocation_size(),
            lists,
            self.removed.capacity().saturating_mul(4),
            self.roomy.capacity().saturating_mul(4),
        ]
        .into_iter()
        .fold(self.chunk_bytes, usize::saturating_add)
    }

    /// Changes the most that the index may have. What it has stays.
    pub const fn set_room(&mut self, room: Room) {
        self.room = room;
    }

    /// Adds a file to a folder, or changes the facts of the file that has this name. A file that becomes a folder, or
    /// the other way round, is another one.
    ///
    /// # Errors
    /// See [`Refused`]. Facts of a known file can always be changed.
    pub fn put(&mut self, folder: Slot, name: &str, facts: &Facts) -> Result<Slot, Refused> {
        if let Some(known) = self.child(folder, name) {
            if self.entry(known.0).is_some_and(|entry| entry.kind() == facts.kind) {
                self.set_facts(known, facts);
                return Ok(known);
            }
            self.remove(known);
        }
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(Refused::Name);
        }
        if !self.is_folder(folder) {
            return Err(Refused::NoFolder);
        }
        if self.entries > self.room.entries || self.bytes() > self.room.bytes {
            return Err(Refused::Full);
        }
        let slot = self.place(Entry::new(facts), name).ok_or(Refused::Full)?;
        self.link(slot, folder.0, name);
        Ok(Slot(slot))
    }

    /// Changes the facts of a file, without its kind.
    pub fn set_facts(&mut self, slot: Slot, facts: &Facts) {
        let Some(entry) = self.entry_mut(slot.0) else { return };
        entry.set_facts(facts);
    }

    /// Returns the file of a name in a folder. Spelling counts.
    pub fn child(&self, folder: Slot, name: &str) -> Option<Slot> {
        let hash = self.name_hash(folder.0, name);
        let found = self.by_name.find(hash, |slot| self.is_called(*slot, folder.0, name));
        found.map(|slot| Slot(*slot))
    }

    /// Returns the file of a path, whose names have `\` between them. Spelling counts.
    pub fn find(&self, path: &str) -> Option<Slot> {
        let mut names = path.split('\\').filter(|name| !name.is_empty());
        names.try_fold(Slot::ROOT, |folder, name| self.child(folder, name))
    }

    /// Returns the facts of a file; None if it has gone.
    pub fn facts(&self, slot: Slot) -> Option<Facts> {
        self.entry(slot.0).map(Entry::facts)
    }

    /// Returns the path of a file, its names with `\` between them; None if it, or a folder that it is in, has gone.
    pub fn path(&self, slot: Slot) -> Option<String> {
        let mut names = Vec::new();
        let mut at = slot.0;
        while at != Slot::ROOT.0 {
            let entry = self.entry(at).filter(|_| names.len() < DEPTH)?;
            names.push(self.name(at)?);
            at = entry.parent;
        }
        names.reverse();
        let bytes = names.iter().map(|name| name.len().saturating_add(1)).sum();
        let mut path = String::with_capacity(bytes);
        for name in names {
            if !path.is_empty() {
                path.push('\\');
            }
            path.push_str(name);
        }
        Some(path)
    }

    /// Returns the name of a file, the last part of its path.
    pub fn name_of(&self, slot: Slot) -> Option<String> {
        self.name(slot.0).map(String::from)
    }

    /// True if a file is below a folder, or is the folder, and has not gone.
    pub fn is_within(&self, slot: Slot, folder: Slot) -> bool {
        let (mut at, mut is_passed) = (slot.0, false);
        for _ in 0..DEPTH {
            is_passed |= at == folder.0;
            if at == Slot::ROOT.0 {
                return is_passed;
            }
            let Some(entry) = self.entry(at) else { return false };
            at = entry.parent;
        }
        false
    }

    /// Removes a file, or a folder with everything in it. What is in a folder is not found any more, and its memory is
    /// freed by [`Self::tidy`]. The root stays.
    pub fn remove(&mut self, slot: Slot) {
        if slot == Slot::ROOT || self.entry(slot.0).is_none() {
            return;
        }
        self.unlink(slot.0);
        if self.entry(slot.0).is_some_and(|entry| entry.first_child() != NONE) {
            self.removed.push(slot.0);
        } else {
            self.free(slot.0);
        }
    }

    /// Frees memory of at most `budget` removed entries. True if there are more.
    pub fn tidy(&mut self, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(top) = self.removed.last().copied() else { break };
            let child = self.entry(top).map_or(NONE, Entry::first_child);
            if child == NONE {
                self.removed.pop();
                self.free(top);
                continue;
            }
            self.unlink(child);
            if self.entry(child).is_some_and(|entry| entry.first_child() != NONE) {
                self.removed.push(child);
            } else {
                self.free(child);
            }
        }
        if self.removed.is_empty() && self.removed.capacity() > CHUNK {
            self.removed = Vec::new();
        }
        !self.removed.is_empty()
    }

    /// Gives a file another folder, or another name, or both. A folder keeps everything in it. What has the new name
    /// is removed.
    ///
    /// # Errors
    /// [`Refused::NoFolder`] if the file or the new folder has gone, or if the new folder is in the moved one.
    pub fn rename(&mut self, slot: Slot, folder: Slot, name: &str) -> Result<(), Refused> {
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(Refused::Name);
        }
        let is_there = slot != Slot::ROOT && self.entry(slot.0).is_some();
        if !is_there || !self.is_folder(folder) || self.is_within(folder, slot) {
            return Err(Refused::NoFolder);
        }
        match self.child(folder, name) {
            Some(known) if known == slot => return Ok(()),
            Some(known) => self.remove(known),
            None => {}
        }
        self.unlink(slot.0);
        self.with_chunk(slot.0, |chunk, local, folded| {
            fold_all(name, folded);
            chunk.set_name(local, name, folded);
        });
        self.link(slot.0, folder.0, name);
        Ok(())
    }

    /// Marks a file as one that the listing of its folder has. [`Self::end_listing`] removes the others.
    pub fn set_listed(&mut self, slot: Slot) {
        if let Some(entry) = self.entry_mut(slot.0) {
            entry.set_listed(true);
        }
    }

    /// Ends the listing of a folder: removes the files in it that are not marked, and takes the marks away. Returns
    /// the number of files that were removed.
    pub fn end_listing(&mut self, folder: Slot) -> usize {
        let mut removed = 0_usize;
        let mut at = self.entry(folder.0).map_or(NONE, Entry::first_child);
        while let Some(entry) = self.entry_mut(at) {
            let (slot, next) = (Slot(at), entry.next);
            if entry.is_listed() {
                entry.set_listed(false);
            } else {
                self.remove(slot);
                removed = removed.saturating_add(1);
            }
            at = next;
        }
        removed
    }

    /// Ends a listing that was not read to its end: takes the marks away, and removes nothing.
    pub fn forget_listing(&mut self, folder: Slot) {
        let mut at = self.entry(folder.0).map_or(NONE, Entry::first_child);
        while let Some(entry) = self.entry_mut(at) {
            entry.set_listed(false);
            at = entry.next;
        }
    }

    /// Gives memory back that was taken for more than is there.
    pub fn fit(&mut self) {
        for at in 0..self.chunks.len() {
            self.counted(at, |chunk| chunk.fit());
        }
        self.shrink_tables(2);
    }
}

/// Places and tables.
impl Index {
    pub(crate) fn entry(&self, slot: u32) -> Option<&Entry> {
        let place = Position::of(slot);
        self.chunks.get(place.chunk)?.get(place.local)
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        let place = Position::of(slot);
        self.chunks.get_mut(place.chunk)?.get_mut(place.local)
    }

    fn name(&self, slot: u32) -> Option<&str> {
        let place = Position::of(slot);
        let chunk = self.chunks.get(place.chunk)?;
        Some(chunk.name_of(chunk.get(place.local)?).original)
    }

    fn is_folder(&self, slot: Slot) -> bool {
        self.entry(slot.0).is_some_and(Entry::is_folder)
    }

    fn is_called(&self, slot: u32, folder: u32, name: &str) -> bool {
        let is_in = self.entry(slot).is_some_and(|entry| entry.parent == folder);
        is_in && self.name(slot) == Some(name)
    }

    fn name_hash(&self, folder: u32, name: &str) -> u64 {
        self.hasher.hash_one((folder, name))
    }

    /// Changes a chunk, and counts its bytes.
    fn counted(&mut self, at: usize, change: impl FnOnce(&mut Chunk)) {
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let before = chunk.bytes();
        change(chunk);
        let after = chunk.bytes();
        self.chunk_bytes = self.chunk_bytes.saturating_sub(before).saturating_add(after);
    }

    fn with_chunk(&mut self, slot: u32, change: impl FnOnce(&mut Chunk, usize, &mut String)) {
        let place = Position::of(slot);
        let mut folded = core::mem::take(&mut self.folded);
        self.counted(place.chunk, |chunk| change(chunk, place.local, &mut folded));
        self.folded = folded;
    }

    /// Finds a place for an entry. None if there are as many as places have numbers.
    fn place(&mut self, entry: Entry, name: &str) -> Option<u32> {
        let at = self.chunk_with_room()?;
        let mut folded = core::mem::take(&mut self.folded);
        fold_all(name, &mut folded);
        let mut local = None;
        self.counted(at, |chunk| {
            local = chunk.add(entry, name, &folded);
            if chunk.is_full() {
                chunk.is_roomy = false;
                chunk.fit();
            }
        });
        if self.chunks.get(at).is_some_and(|chunk| !chunk.is_roomy) {
            self.roomy.pop();
        }
        self.folded = folded;
        self.entries = self.entries.saturating_add(1);
        u32::try_from(at.checked_mul(CHUNK)?.checked_add(local?)?).ok()
    }

    /// The chunk of the next entry, which is the last one of `roomy`.
    fn chunk_with_room(&mut self) -> Option<usize> {
        if let Some(at) = self.roomy.last() {
            return usize::try_from(*at).ok();
        }
        let at = self.chunks.len();
        self.roomy.push(u32::try_from(at).ok().filter(|at| *at < NONE / 512)?);
        let chunk = Chunk::with_room();
        self.chunk_bytes = self.chunk_bytes.saturating_add(chunk.bytes());
        self.chunks.push(chunk);
        Some(at)
    }

    /// Puts an entry into a folder and into the table of names.
    fn link(&mut self, slot: u32, folder: u32, name: &str) {
        let first = self.entry(folder).map_or(NONE, Entry::first_child);
        if let Some(entry) = self.entry_mut(slot) {
            [entry.parent, entry.next, entry.previous] = [folder, first, NONE];
        }
        if let Some(next) = self.entry_mut(first) {
            next.previous = slot;
        }
        if let Some(folder) = self.entry_mut(folder) {
            folder.set_first_child(slot);
        }
        let hash = self.name_hash(folder, name);
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        self.by_name.insert_unique(hash, slot, |other| {
            let place = Position::of(*other);
            let known = chunks.get(place.chunk).and_then(|chunk| {
                let entry = chunk.get(place.local)?;
                Some(hasher.hash_one((entry.parent, chunk.name_of(entry).original)))
            });
            known.unwrap_or_default()
        });
    }

    /// Takes an entry out of its folder and of the table of names.
    fn unlink(&mut self, slot: u32) {
        let Some(entry) = self.entry(slot).copied() else { return };
        let name = self.name(slot).unwrap_or_default();
        let hash = self.name_hash(entry.parent, name);
        if let Ok(found) = self.by_name.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        if let Some(next) = self.entry_mut(entry.next) {
            next.previous = entry.previous;
        }
        match self.entry_mut(entry.previous) {
            Some(previous) => previous.next = entry.next,
            None => {
                if let Some(folder) = self.entry_mut(entry.parent) {
                    folder.set_first_child(entry.next);
                }
            }
        }
        if let Some(entry) = self.entry_mut(slot) {
            [entry.parent, entry.next, entry.previous] = [NONE; 3];
        }
    }

    /// Makes the place of an entry free, which is in no folder any more.
    fn free(&mut self, slot: u32) {
        let place = Position::of(slot);
        self.counted(place.chunk, |chunk| chunk.free(place.local));
        self.entries = self.entries.saturating_sub(1);
        if let Some(chunk) = self.chunks.get_mut(place.chunk).filter(|chunk| !chunk.is_roomy) {
            chunk.is_roomy = true;
            self.roomy.extend(u32::try_from(place.chunk));
        }
        self.shrink_tables(8);
    }

    /// Shrinks a table that has `times` the room that it needs.
    fn shrink_tables(&mut self, times: usize) {
        let needed = self.entries.saturating_add(64);
        let is_large = |table: &HashTable<u32>| table.capacity() > needed.saturating_mul(times);
        if !is_large(&self.by_name) {
            return;
        }
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        let entry = |slot: u32| {
            let place = Position::of(slot);
            chunks.get(place.chunk).and_then(|chunk| Some((chunk, chunk.get(place.local)?)))
        };
        self.by_name.shrink_to(needed, |slot| {
            let name = |(chunk, entry): (&Chunk, &Entry)| {
                hasher.hash_one((entry.parent, chunk.name_of(entry).original))
            };
            entry(*slot).map(name).unwrap_or_default()
        });
    }

    /// True for an entry that a search in a folder tells: one below it.
    pub(crate) fn is_told(&self, slot: u32, scope: Slot) -> bool {
        slot != Slot::ROOT.0 && slot != scope.0 && self.is_within(Slot(slot), scope)
    }
}

/// A chunk, and a position in it.
#[derive(Clone, Copy, Debug)]
struct Position {
    chunk: usize,
    local: usize,
}

impl Position {
    fn of(slot: u32) -> Self {
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        Self { chunk: slot / CHUNK, local: slot % CHUNK }
    }
}
