//! The table of facts: those of so many files, in one place of this process.

use frevo_wire::dtyp::FileTime;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Time, Version};
use crate::dosattrib::DosAttrib;
use crate::limits::KNOWN_FILES;

/// The part of DOSATTRIB that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredAttributes {
    attributes: u32,
    created: Option<FileTime>,
}

impl StoredAttributes {
    pub(super) const fn of(dos: DosAttrib) -> Self {
        Self { attributes: dos.attributes, created: dos.created }
    }

    pub(super) fn dos_attrib(self) -> DosAttrib {
        let Self { attributes, created } = self;
        DosAttrib { attributes, created, ..DosAttrib::default() }
    }
}

/// The facts of one file, in little room: a listing of a large folder reads all of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    inode: u64,
    changed: PackedTime,
    /// CreationTime in DOSATTRIB; 0 for none.
    created: u64,
    device: u32,
    /// Flags, and above them the attributes in DOSATTRIB.
    bits: u32,
}

/// Bits of attributes that are known to be absent: both for descriptors, and all that clients may
/// see.
pub(super) const PRIVILEGED: u32 = 1;
pub(super) const UNPRIVILEGED: u32 = 2;
pub(super) const EAS: u32 = 4;
/// DOSATTRIB is known.
const DOS: u32 = 8;
/// DOSATTRIB exists.
const HAS_DOS: u32 = 16;
/// These are facts of a file that was just made. They were not read.
const NEW: u32 = 32;
/// All attributes that restrict access to the file or store its streams.
pub(super) const PROTECTION: u32 = 64;

/// The place of the attributes, and the most that they can be.
const ATTRIBUTES: u32 = 8;
const ATTRIBUTES_MAX: u32 = u32::MAX >> ATTRIBUTES;

/// Nanoseconds since 1970. The times of a medium are between 1677 and 2262.
type PackedTime = i64;

/// None for a time of no file.
fn packed(time: Time) -> Option<PackedTime> {
    let Time { seconds, nanoseconds } = time;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds.into())
}

/// The number of a device as the kernel has it: 12 bits and 20 bits. None for no device.
fn packed_device(device: u64) -> Option<u32> {
    let (major, minor) = (device >> 32, device & u64::from(u32::MAX));
    let is_right = major < 1 << 12 && minor < 1 << 20;
    is_right.then(|| u32::try_from(major << 20 | minor).ok())?
}

impl Known {
    fn nothing(version: Version) -> Option<Self> {
        let Version { key, changed, .. } = version;
        let (device, inode) = (packed_device(key.device)?, key.inode);
        Some(Self { inode, changed: packed(changed)?, created: 0, device, bits: 0 })
    }

    const fn is_of(&self, inode: u64, device: u32) -> bool {
        self.inode == inode && self.device == device
    }

    /// Returns DOSATTRIB, once it was read.
    pub(super) fn dos(&self) -> Option<Option<StoredAttributes>> {
        let created = (self.created != 0).then_some(FileTime(self.created));
        let stored = StoredAttributes { attributes: self.bits >> ATTRIBUTES, created };
        (self.bits & DOS != 0).then(|| (self.bits & HAS_DOS != 0).then_some(stored))
    }

    /// Sets DOSATTRIB. Attributes without a meaning, which may not have room, are not remembered.
    pub(super) fn set_dos(&mut self, dos: Option<StoredAttributes>) {
        self.bits &= !(HAS_DOS | DOS | ATTRIBUTES_MAX << ATTRIBUTES);
        match dos {
            None => self.bits |= DOS,
            Some(StoredAttributes { attributes, created }) if attributes <= ATTRIBUTES_MAX => {
                self.bits |= DOS | HAS_DOS | attributes << ATTRIBUTES;
                self.created = created.unwrap_or_default().0;
            }
            Some(_) => {}
        }
    }

    /// True if the attributes with these bits are known to be absent.
    pub(super) const fn lacks(&self, bits: u32) -> bool {
        self.bits & bits == bits
    }

    pub(super) const fn set_lack(&mut self, bits: u32) {
        self.bits |= bits;
    }

    /// Marks these as facts of a file that was just made, which lacks what others may have.
    pub(super) const fn set_new(&mut self) {
        self.bits |= NEW | PRIVILEGED | UNPRIVILEGED | EAS;
    }

    const fn is_new(&self) -> bool {
        self.bits & NEW != 0
    }
}

/// Parts of the table with a lock of their own.
pub(super) const SHARDS: usize = 64;

/// Files of one part.
pub(super) const PER_SHARD: usize = KNOWN_FILES / SHARDS;

/// Files with numbers in one block are neighbours in the table, because a listing asks for the files
/// of a folder one after the other, and they were often made so.
const BLOCK: u64 = 64;

fn spread(inode: u64, device: u32) -> u64 {
    let block = (inode / BLOCK) ^ u64::from(device).rotate_left(32);
    let spread = block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    spread ^ (spread >> 32)
}

/// The lower bits choose the place in the table, and the uppermost seven tell its neighbours apart.
fn hash_of(inode: u64, device: u32) -> u64 {
    let place = spread(inode, device) & (u64::MAX >> 7) & !(BLOCK - 1);
    (inode << 57) | place | (inode % BLOCK)
}

/// Forgets one file to make room for another with `hash`: the one in its place, or the next behind it.
fn make_room(shard: &mut HashTable<Known>, hash: u64) {
    let places = shard.num_buckets();
    let from = hash as usize;
    let mut behind = (0..places).map(|n| from.wrapping_add(n) % places);
    if let Some(place) = behind.find(|place| shard.get_bucket(*place).is_some())
        && let Ok(known) = shard.get_bucket_entry(place)
    {
        known.remove();
    }
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

    fn shard(&self, inode: u64, device: u32) -> &Mutex<HashTable<Known>> {
        &self.shards[(spread(inode, device) >> 58) as usize % SHARDS]
    }

    pub(super) fn of(&self, version: Version) -> Option<Known> {
        let (inode, device) = (version.key.inode, packed_device(version.key.device)?);
        let shard = self.shard(inode, device).lock();
        let known = *shard.find(hash_of(inode, device), |known| known.is_of(inode, device))?;
        drop(shard);
        let is_same = packed(version.changed) == Some(known.changed);
        (is_same && !(known.is_new() && version.is_old())).then_some(known)
    }

    pub(super) fn note(&self, version: Version, fact: impl FnOnce(&mut Known)) {
        let Some(mut new) = Known::nothing(version) else { return };
        let (inode, device) = (new.inode, new.device);
        let hash = hash_of(inode, device);
        let mut shard = self.shard(inode, device).lock();
        if let Some(known) = shard.find_mut(hash, |known| known.is_of(inode, device)) {
            if known.changed != new.changed || known.is_new() {
                *known = new;
            }
            return fact(known);
        }
        if shard.len() >= PER_SHARD {
            make_room(&mut shard, hash);
        }
        let before = shard.allocation_size();
        fact(&mut new);
        shard.insert_unique(hash, new, |known| hash_of(known.inode, known.device));
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
    use frevo_store::FileKey;

    use super::*;
    use crate::limits::TICK_MS;

    fn version(inode: u64, (seconds, nanoseconds): (i64, u32)) -> Version {
        let changed = Time { seconds, nanoseconds };
        Version { key: FileKey::of_file(7, inode), changed, is_exact: false }
    }

    const ABSENT: fn(&mut Known) = |known| known.set_lack(PRIVILEGED);

    /// At n - 1, n and n + 1 files for each shard, and at many more.
    #[test]
    fn facts_are_bounded() {
        let facts = Facts::new();
        let first = version(1, (1, 1));
        let shard = |version: &Version| facts.shard(version.key.inode, 7);
        let same: Vec<Version> = (1..)
            .map(|inode| version(inode, (1, 1)))
            .filter(|other| std::ptr::eq(shard(other), shard(&first)))
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
        // The table must need little more memory than its entries do.
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
            let stored = StoredAttributes { attributes: inode as u32 & ATTRIBUTES_MAX, created };
            let noted = (inode % 2 == 0).then_some(stored);
            let version = version(inode, (inode.cast_signed(), 1));
            facts.note(version, |known| known.set_dos(noted));
            assert_eq!(facts.of(version).unwrap().dos(), Some(noted), "{inode}");
            facts.note(version, |known| known.set_lack(EAS));
            let known = facts.of(version).unwrap();
            assert!(known.lacks(EAS) && !known.lacks(EAS | UNPRIVILEGED));
            assert_eq!(known.dos(), Some(noted));
        }
    }

    /// At the greatest attributes that have room, and one more.
    #[test]
    fn attributes_without_room_are_not_remembered() {
        let facts = Facts::new();
        let of = |attributes| {
            let stored = StoredAttributes { attributes, created: None };
            facts.note(version(1, (1, 1)), |known| known.set_dos(Some(stored)));
            facts.of(version(1, (1, 1))).unwrap().dos()
        };
        for attributes in [0, 1, ATTRIBUTES_MAX] {
            assert_eq!(of(attributes), Some(Some(StoredAttributes { attributes, created: None })));
        }
        assert_eq!(of(ATTRIBUTES_MAX + 1), None);
    }

    #[test]
    fn times_and_devices_without_room_have_no_facts() {
        let facts = Facts::new();
        let of_device = |device| Version { key: FileKey::of_file(device, 1), ..version(1, (1, 1)) };
        let versions = [
            version(1, (i64::MAX, 1)),
            version(1, (i64::MIN, 1)),
            of_device(1 << 20),
            of_device(1 << (32 + 12)),
        ];
        for version in versions {
            facts.note(version, ABSENT);
            assert!(facts.of(version).is_none() && facts.len() == 0, "{version:?}");
        }
        for device in [0, (1 << 20) - 1, 1 << 32, ((1 << 12) - 1) << 32] {
            facts.note(of_device(device), ABSENT);
            assert!(facts.of(of_device(device)).is_some(), "{device:x}");
        }
        assert_eq!(facts.len(), 4);
    }

    /// Facts of a new file end with the tick in which it was made, and with the first that is read.
    #[test]
    fn a_new_file_is_believed_for_a_tick() {
        let facts = Facts::new();
        let all = PRIVILEGED | UNPRIVILEGED | EAS;
        // Other programs may have the processor for longer than a tick.
        let files = std::iter::repeat_with(|| {
            let began = std::time::Instant::now();
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let now = (now.tv_sec, u32::try_from(now.tv_nsec).unwrap().max(1));
            let made = Version { is_exact: true, ..version(1, now) };
            facts.note(made, Known::set_new);
            let known = facts.of(made);
            let is_new = known.is_some_and(|known| known.lacks(all) && known.dos().is_none());
            (began.elapsed().as_millis() < u128::from(TICK_MS / 2)).then_some((made, is_new))
        });
        let (made, is_new) = files.flatten().next().unwrap();
        assert!(is_new);
        std::thread::sleep(std::time::Duration::from_millis(3 * TICK_MS));
        assert!(facts.of(made).is_none());
        facts.note(made, Known::set_new);
        facts.note(made, |known| known.set_dos(None));
        let known = facts.of(made).unwrap();
        assert_eq!((known.lacks(EAS), known.dos()), (false, Some(None)));
    }
}
