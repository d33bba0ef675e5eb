//! A file or folder of the index in 48 bytes, beside its name.

use crate::query::Kind;

/// The place of a file or folder in the index. It is another one's once the file has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(crate) u32);

impl Slot {
    /// The folder that all names are below.
    pub const ROOT: Self = Self(0);
}

/// The facts of a file or folder that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The number that the server tells for the file. Hard links have one.
    pub id: u64,
    /// File or folder.
    pub kind: Kind,
    /// Bytes; zero for a folder.
    pub size: u64,
    /// The last change of the data, seconds since 1970-01-01 00:00 UTC.
    pub modified: i64,
    /// The creation, in the same unit.
    pub created: i64,
}

/// No other entry.
pub(crate) const NONE: u32 = u32::MAX;

/// Bits of [`Entry::flags`].
mod flag {
    pub(super) const FOLDER: u8 = 1;
    pub(super) const LISTED: u8 = 2;
    pub(super) const LIVE: u8 = 4;
}

/// A place of the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    id: [u32; 2],
    /// Bytes of a file; of a folder its first child.
    size: [u32; 2],
    modified: u32,
    created: u32,
    /// The folder that it is in. [`NONE`] for the root, and for the top of what was removed.
    pub(crate) parent: u32,
    /// The next one in the folder; of a free place the next free one of its chunk.
    pub(crate) next: u32,
    /// The one before it in the folder.
    pub(crate) previous: u32,
    /// Where its name begins in the names of its chunk: the folded spelling, and behind it its own one.
    pub(crate) start: u32,
    /// Bytes of the folded spelling.
    pub(crate) folded: u16,
    /// Bytes of its own spelling. Zero where both are one.
    pub(crate) original: u16,
    modified_high: i8,
    created_high: i8,
    flags: u8,
}

impl Entry {
    /// A free place.
    pub(crate) const FREE: Self = Self {
        id: [0; 2],
        size: [0; 2],
        modified: 0,
        created: 0,
        parent: NONE,
        next: NONE,
        previous: NONE,
        start: 0,
        folded: 0,
        original: 0,
        modified_high: 0,
        created_high: 0,
        flags: 0,
    };

    pub(crate) fn new(facts: &Facts) -> Self {
        let mut entry = Self::FREE;
        entry.flags = flag::LIVE;
        if facts.kind == Kind::Folder {
            entry.flags |= flag::FOLDER;
            entry.set_first_child(NONE);
        }
        entry.set_facts(facts);
        entry
    }

    /// Sets all facts but the kind.
    pub(crate) fn set_facts(&mut self, facts: &Facts) {
        self.id = halves(facts.id);
        if !self.is_folder() {
            self.size = halves(facts.size);
        }
        Self::set_time(&mut self.modified, &mut self.modified_high, facts.modified);
        Self::set_time(&mut self.created, &mut self.created_high, facts.created);
    }

    /// Times are kept in 40 bits: 17,000 years in each direction.
    fn set_time(low: &mut u32, high: &mut i8, seconds: i64) {
        const LAST: i64 = (1 << 39) - 1;
        let [a, b, c, d, e, ..] = seconds.clamp(-LAST, LAST).to_le_bytes();
        *low = u32::from_le_bytes([a, b, c, d]);
        *high = i8::from_le_bytes([e]);
    }

    fn time(low: u32, high: i8) -> i64 {
        (i64::from(high) << 32) | i64::from(low)
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts {
            id: whole(self.id),
            kind: self.kind(),
            size: self.size(),
            modified: self.modified(),
            created: self.created(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        if self.is_folder() { 0 } else { whole(self.size) }
    }

    pub(crate) fn modified(&self) -> i64 {
        Self::time(self.modified, self.modified_high)
    }

    pub(crate) fn created(&self) -> i64 {
        Self::time(self.created, self.created_high)
    }

    pub(crate) const fn kind(&self) -> Kind {
        if self.is_folder() { Kind::Folder } else { Kind::File }
    }

    pub(crate) const fn is_folder(&self) -> bool {
        self.flags & flag::FOLDER != 0
    }

    /// True for a place that is not free.
    pub(crate) const fn is_live(&self) -> bool {
        self.flags & flag::LIVE != 0
    }

    /// True if the listing of its folder that goes on has it.
    pub(crate) const fn is_listed(&self) -> bool {
        self.flags & flag::LISTED != 0
    }

    pub(crate) const fn set_listed(&mut self, is_listed: bool) {
        if is_listed {
            self.flags |= flag::LISTED;
        } else {
            self.flags &= !flag::LISTED;
        }
    }

    /// The first entry of a folder. [`NONE`] for an empty one, and for a file.
    pub(crate) const fn first_child(&self) -> u32 {
        if self.is_folder() { self.size[0] } else { NONE }
    }

    pub(crate) const fn set_first_child(&mut self, child: u32) {
        self.size = [child, 0];
    }

    /// Bytes of both spellings of its name.
    pub(crate) fn name_bytes(&self) -> usize {
        usize::from(self.folded).saturating_add(usize::from(self.original))
    }
}

fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

const _: () = assert!(size_of::<Entry>() == 48, "the bytes of an entry");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_back() {
        for (id, size, time) in [(0, 0, 0), (u64::MAX, u64::MAX, -1), (1 << 40, 1 << 41, 1 << 38)] {
            for kind in [Kind::File, Kind::Folder] {
                let size = if kind == Kind::Folder { 0 } else { size };
                let facts = Facts { id, kind, size, modified: time, created: -time };
                assert_eq!(Entry::new(&facts).facts(), facts);
            }
        }
        let far = Facts { id: 1, kind: Kind::File, size: 0, modified: i64::MAX, created: i64::MIN };
        let entry = Entry::new(&far);
        assert_eq!((entry.modified(), entry.created()), ((1 << 39) - 1, 1 - (1 << 39)));
    }
}
