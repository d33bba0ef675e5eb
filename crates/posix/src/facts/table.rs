//! The table of facts: those of so many files, in one place of this process.

use frevo_store::FileKey;
use frevo_wire::dtyp::FileTime;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Time, Version};
use crate::dosattrib::DosAttrib;
use crate::limits::KNOWN_FILES;

/// The part of DOSATTRIB that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    attributes: u32,
    created: Option<FileTime>,
}

impl Kept {
    pub(super) const fn of(dos: DosAttrib) -> Self {
        Self { attributes: dos.attributes, created: dos.created }
    }

    pub(super) fn dos_attrib(self) -> DosAttrib {
        let Self { attributes, created } = self;
        DosAttrib { attributes, created, ..DosAttrib::default() }
    }
}

/// The facts of one file, in little room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    device: u64,
    inode: u64,
    changed: Time,
    /// CreationTime in DOSATTRIB; 0 for none.
    created: u64,
    attributes: u32,
    flags: u8,
}

/// Bits of attributes that are known to be absent: both for descriptors, and all that clients may
/// see.
pub(super) const PRIVILEGED: u8 = 1;
pub(super) const UNPRIVILEGED: u8 = 2;
pub(super) const EAS: u8 = 4;
/// DOSATTRIB is known.
const DOS: u8 = 8;
/// DOSATTRIB exists.
const HAS_DOS: u8 = 16;
/// These are facts of a file that was just made. They were not read.
const NEW: u8 = 32;

impl Known {
    const fn nothing(version: Version) -> Self {
        let Version { key, changed, .. } = version;
        let (device, inode) = (key.device, key.inode);
        Self { device, inode, changed, created: 0, attributes: 0, flags: 0 }
    }

    const fn is_of(&self, key: FileKey) -> bool {
        self.inode == key.inode && self.device == key.device
    }

    /// Returns DOSATTRIB, once it was read.
    pub(super) fn dos(&self) -> Option<Option<Kept>> {
        let created = (self.created != 0).then_some(FileTime(self.created));
        let kept = Kept { attributes: self.attributes, created };
        (self.flags & DOS != 0).then(|| (self.flags & HAS_DOS != 0).then_some(kept))
    }

    pub(super) fn set_dos(&mut self, dos: Option<Kept>) {
        self.flags = self.flags & !HAS_DOS | DOS;
        if let Some(Kept { attributes, created }) = dos {
            self.flags |= HAS_DOS;
            self.attributes = attributes;
            self.created = created.unwrap_or_default().0;
        }
    }

    /// True if the attributes with these bits are known to be absent.
    pub(super) const fn lacks(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    pub(super) const fn set_lack(&mut self, bits: u8) {
        self.flags |= bits;
    }

    /// Marks these as facts of a file that was just made, which lacks what others may have.
    pub(super) const fn set_new(&mut self) {
        self.flags |= NEW | PRIVILEGED | UNPRIVILEGED | EAS;
    }

    const fn is_new(&self) -> bool {
        self.flags & NEW != 0
    }
}

/// Parts of the table with a lock of their own.
pub(super) const SHARDS: usize = 64;

/// Files of one part.
pub(super) const PER_SHARD: usize = KNOWN_FILES / SHARDS;

/// Files with numbers in one block are neighbours in the table, because a listing asks for the files
/// of a folder one after the other, and they were often made so.
const BLOCK: u64 = 64;

fn spread(key: FileKey) -> u64 {
    let block = (key.inode / BLOCK) ^ key.device.rotate_left(32);
    let spread = block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    spread ^ (spread >> 32)
}

/// The lower bits choose the place in the table, and the uppermost seven tell its neighbours apart.
fn hash_of(device: u64, inode: u64) -> u64 {
    let place = spread(FileKey::of_file(device, inode)) & (u64::MAX >> 7) & !(BLOCK - 1);
    (inode << 57) | place | (inode % BLOCK)
}

/// The facts of all files of this process.
pub(super) struct Facts {
    shards: [Mutex<HashTable<Known>>; SHARDS],
    bytes: AtomicUsize,
}

impl Facts {
    pub(super) const fn new() -> Self {
        let shards = [const { Mutex::new(HashTable::new()) }; SHARDS];
        Self { shards, bytes: AtomicUsize::new(0) }
    }

    pub(super) fn shard(&self, key: FileKey) -> &Mutex<HashTable<Known>> {
        &self.shards[(spread(key) >> 58) as usize % SHARDS]
    }

    pub(super) fn of(&self, version: Version) -> Option<Known> {
        let key = version.key;
        let shard = self.shard(key).lock();
        let known = *shard.find(hash_of(key.device, key.inode), |known| known.is_of(key))?;
        drop(shard);
        let holds = known.changed == version.changed && !(known.is_new() && version.is_old());
        holds.then_some(known)
    }

    pub(super) fn note(&self, version: Version, fact: impl FnOnce(&mut Known)) {
        let key = version.key;
        let hash = hash_of(key.device, key.inode);
        let mut shard = self.shard(key).lock();
        if let Some(known) = shard.find_mut(hash, |known| known.is_of(key)) {
            if known.changed != version.changed || known.is_new() {
                *known = Known::nothing(version);
            }
            return fact(known);
        }
        if shard.len() >= PER_SHARD {
            // Any of them: what is asked for again is read again.
            let some = shard.iter().next().map(|some| hash_of(some.device, some.inode));
            if let Some(Ok(some)) = some.map(|hash| shard.find_entry(hash, |_| true)) {
                some.remove();
            }
        }
        let before = shard.allocation_size();
        let mut known = Known::nothing(version);
        fact(&mut known);
        shard.insert_unique(hash, known, |known| hash_of(known.device, known.inode));
        self.bytes.fetch_add(shard.allocation_size().saturating_sub(before), Ordering::Relaxed);
    }

    /// Returns the bytes of the table.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let old = std::mem::take(&mut *shard.lock());
            self.bytes.fetch_sub(old.allocation_size(), Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TICK_MS;

    fn version(inode: u64, changed: Time) -> Version {
        Version { key: FileKey::of_file(7, inode), changed, is_exact: false }
    }

    const ABSENT: fn(&mut Known) = |known| known.set_lack(PRIVILEGED);

    /// At n - 1, n and n + 1 files for each shard, and at many more.
    #[test]
    fn facts_are_bounded() {
        let facts = Facts::new();
        let first = version(1, (1, 1));
        let same: Vec<Version> = (1..)
            .map(|inode| version(inode, (1, 1)))
            .filter(|other| std::ptr::eq(facts.shard(other.key), facts.shard(first.key)))
            .take(PER_SHARD + 1)
            .collect();
        for (at, version) in same.iter().enumerate() {
            facts.note(*version, ABSENT);
            assert_eq!(facts.len(), PER_SHARD.min(at + 1));
            assert!(facts.of(*version).is_some_and(|known| known.lacks(PRIVILEGED)));
        }
        (0..100_000).for_each(|inode| facts.note(version(inode, (1, 1)), ABSENT));
        assert!(facts.len() <= KNOWN_FILES, "{}", facts.len());
        let bytes: usize = facts.shards.iter().map(|shard| shard.lock().allocation_size()).sum();
        assert_eq!(facts.bytes(), bytes);
        // Not much more than the files take.
        let shard = 2 * PER_SHARD.next_power_of_two() * (size_of::<Known>() + 1) + 64;
        assert!(bytes <= SHARDS * shard, "{bytes}");
        facts.clear();
        assert_eq!((facts.bytes(), facts.len()), (0, 0));
    }

    #[test]
    fn another_version_has_no_facts_of_the_last() {
        let facts = Facts::new();
        let (old, new) = (version(1, (1, 1)), version(1, (1, 2)));
        facts.note(old, ABSENT);
        assert!(facts.of(old).is_some() && facts.of(new).is_none());
        facts.note(new, |known| known.set_dos(None));
        let known = facts.of(new).unwrap();
        assert_eq!((known.lacks(PRIVILEGED), known.dos()), (false, Some(None)));
        assert!(facts.of(old).is_none());
    }

    #[test]
    fn facts_are_as_they_were_noted() {
        let facts = Facts::new();
        for inode in 0..KNOWN_FILES as u64 / 4 {
            let created = (inode % 3 != 0).then_some(FileTime(inode));
            let kept = Kept { attributes: inode as u32, created };
            let noted = (inode % 2 == 0).then_some(kept);
            let version = version(inode, (inode.cast_signed(), 1));
            facts.note(version, |known| known.set_dos(noted));
            assert_eq!(facts.of(version).unwrap().dos(), Some(noted), "{inode}");
            facts.note(version, |known| known.set_lack(EAS));
            let known = facts.of(version).unwrap();
            assert!(known.lacks(EAS) && !known.lacks(EAS | UNPRIVILEGED));
            assert_eq!(known.dos(), Some(noted));
        }
    }

    /// Facts of a new file end with the tick in which it was made, and with the first that is read.
    #[test]
    fn a_new_file_is_believed_for_a_tick() {
        let facts = Facts::new();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = (now.tv_sec, u32::try_from(now.tv_nsec).unwrap().max(1));
        let made = Version { is_exact: true, ..version(1, now) };
        facts.note(made, Known::set_new);
        let all = PRIVILEGED | UNPRIVILEGED | EAS;
        assert!(facts.of(made).is_some_and(|known| known.lacks(all) && known.dos().is_none()));
        std::thread::sleep(std::time::Duration::from_millis(3 * TICK_MS));
        assert!(facts.of(made).is_none());
        facts.note(made, Known::set_new);
        facts.note(made, |known| known.set_dos(None));
        let known = facts.of(made).unwrap();
        assert_eq!((known.lacks(EAS), known.dos()), (false, Some(None)));
    }
}
