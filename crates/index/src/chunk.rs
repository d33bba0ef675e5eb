//! Some entries of the index, with their names side by side.

use alloc::vec::Vec;

use crate::entry::{Entry, NONE};
use crate::limits::CHUNK;
use crate::needle::NameOf;

/// Names whose memory is not used any more, in bytes, before those of a chunk are moved together.
const SPARE_BYTES: usize = 2_048;

/// A part of the index. A search passes over all names of a chunk at once that lack a text.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) entries: Vec<Entry>,
    names: Vec<u8>,
    /// Bytes of `names` that no entry has.
    unused: usize,
    /// Number of entries that are not free.
    live: usize,
    /// The first free place.
    free: Option<u32>,
    /// True while the index knows that there is room.
    pub(crate) is_roomy: bool,
}

impl Chunk {
    /// An empty chunk, which the index knows to have room.
    pub(crate) fn with_room() -> Self {
        Self { is_roomy: true, ..Self::default() }
    }

    /// Bytes that it takes.
    pub(crate) const fn bytes(&self) -> usize {
        let entries = self.entries.capacity().saturating_mul(size_of::<Entry>());
        entries.saturating_add(self.names.capacity()).saturating_add(size_of::<Self>())
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.live >= CHUNK
    }

    /// All names, folded ones among them.
    pub(crate) fn names(&self) -> &[u8] {
        &self.names
    }

    pub(crate) fn get(&self, local: usize) -> Option<&Entry> {
        self.entries.get(local).filter(|entry| entry.is_live())
    }

    pub(crate) fn get_mut(&mut self, local: usize) -> Option<&mut Entry> {
        self.entries.get_mut(local).filter(|entry| entry.is_live())
    }

    /// The name of an entry of this chunk.
    pub(crate) fn name_of(&self, entry: &Entry) -> NameOf<'_> {
        let start = usize::try_from(entry.start).unwrap_or(usize::MAX);
        let names = self.names.get(start..).unwrap_or_default();
        let (folded, rest) = names.split_at_checked(entry.folded.into()).unwrap_or_default();
        let original = match entry.original {
            0 => folded,
            len => rest.get(..len.into()).unwrap_or_default(),
        };
        NameOf { folded, original: core::str::from_utf8(original).unwrap_or_default() }
    }

    /// Adds an entry, and returns its place in the chunk. None without room.
    pub(crate) fn add(&mut self, entry: Entry, name: &str, folded: &str) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let local = match self.free {
            Some(free) => {
                let local = usize::try_from(free).ok()?;
                let next = self.entries.get(local)?.next;
                self.free = Some(next).filter(|next| *next != NONE);
                local
            }
            None => {
                let (len, capacity) = (self.entries.len(), self.entries.capacity());
                if len == capacity {
                    let more = if capacity == 0 { CHUNK } else { len };
                    self.entries.reserve_exact(more.min(CHUNK.saturating_sub(len)));
                }
                self.entries.push(Entry::FREE);
                self.entries.len().checked_sub(1)?
            }
        };
        self.live = self.live.saturating_add(1);
        *self.entries.get_mut(local)? = entry;
        self.set_name(local, name, folded);
        Some(local)
    }

    /// Gives an entry its name. Its former one is forgotten.
    pub(crate) fn set_name(&mut self, local: usize, name: &str, folded: &str) {
        let Some(entry) = self.entries.get_mut(local) else { return };
        self.unused = self.unused.saturating_add(entry.name_bytes());
        [entry.folded, entry.original] = [0; 2];
        self.move_together();
        let original = if name == folded { "" } else { name };
        let more = folded.len().saturating_add(original.len());
        if self.names.capacity().saturating_sub(self.names.len()) < more {
            // Less than `reserve` takes: most of the index's bytes are names.
            self.names.reserve_exact(more.max(self.names.len() / 8));
        }
        let Some(entry) = self.entries.get_mut(local) else { return };
        let lengths = [self.names.len(), folded.len(), original.len()];
        let [Ok(start), Ok(folded_len), Ok(original_len)] = lengths.map(u32::try_from) else {
            return;
        };
        entry.start = start;
        entry.folded = u16::try_from(folded_len).unwrap_or(0);
        entry.original = u16::try_from(original_len).unwrap_or(0);
        self.names.extend_from_slice(folded.as_bytes());
        self.names.extend_from_slice(original.as_bytes());
    }

    /// Makes the place of an entry free.
    pub(crate) fn free(&mut self, local: usize) {
        let Some(entry) = self.entries.get_mut(local).filter(|entry| entry.is_live()) else {
            return;
        };
        self.unused = self.unused.saturating_add(entry.name_bytes());
        *entry = Entry::FREE;
        entry.next = self.free.unwrap_or(NONE);
        self.free = u32::try_from(local).ok();
        self.live = self.live.saturating_sub(1);
        if self.live == 0 {
            *self = Self { is_roomy: self.is_roomy, ..Self::default() };
            return;
        }
        self.move_together();
        self.cut_end();
    }

    /// Gives the memory of free places at the end back, once they are three quarters of it.
    fn cut_end(&mut self) {
        let few = self.entries.capacity() / 4;
        if self.live > few {
            return;
        }
        let last = self.entries.iter().rposition(Entry::is_live);
        let used = last.map_or(0, |last| last.saturating_add(1));
        if used > few {
            return;
        }
        self.entries.truncate(used);
        self.entries.shrink_to(used.saturating_mul(2));
        self.free = None;
        for (local, entry) in self.entries.iter_mut().enumerate().rev() {
            if !entry.is_live() {
                entry.next = self.free.unwrap_or(NONE);
                self.free = u32::try_from(local).ok();
            }
        }
    }

    /// Moves the names together if half of their memory is not used.
    fn move_together(&mut self) {
        let used = self.names.len().saturating_sub(self.unused);
        if self.unused < used.max(SPARE_BYTES) {
            return;
        }
        let mut names = Vec::with_capacity(used);
        for entry in &mut self.entries {
            let start = usize::try_from(entry.start).unwrap_or(usize::MAX);
            let own = self.names.get(start..).and_then(|rest| rest.get(..entry.name_bytes()));
            entry.start = u32::try_from(names.len()).unwrap_or(0);
            names.extend_from_slice(own.unwrap_or_default());
        }
        self.names = names;
        self.unused = 0;
    }

    /// Gives memory back that names had room for.
    pub(crate) fn fit(&mut self) {
        self.names.shrink_to_fit();
    }
}
