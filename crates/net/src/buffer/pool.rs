//! Blocks of memory, and the free blocks that each thread keeps.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
#[cfg(feature = "rdma")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::{ALIGNMENT, depot};
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use crate::limits::{FREE_BYTES_PER_ARENA, MALLOC_MAPPED_BYTES_MIN};
use crate::limits::{POOL_RETAINED_BYTES_MAX, POOLED_BLOCK_BYTES_MAX};

/// Capacities of the pooled blocks: a power of two for payload, and room for headers.
pub(super) const CLASSES: [usize; 10] = [
    512 + 256,
    (4 << 10) + 512,
    (16 << 10) + 512,
    (64 << 10) + 4096,
    (256 << 10) + 4096,
    (512 << 10) + 4096,
    (1 << 20) + 4096,
    (2 << 20) + 4096,
    (4 << 20) + 4096,
    POOLED_BLOCK_BYTES_MAX,
];

/// Blocks of at least this capacity are mapped from the kernel: page-aligned, and an unwritten page
/// costs nothing.
pub(super) const MAPPED_BYTES_MIN: usize = 64 << 10;

/// An owned piece of memory, zeroed when it was made.
pub(super) struct Block {
    pub(super) ptr: NonNull<u8>,
    pub(super) capacity: usize,
}

/// Numbers of blocks that were freed, each for the places with one hash: a block is the one that was
/// at its place before if no such block was freed since.
#[cfg(feature = "rdma")]
static FREED: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Returns the counter for blocks at `ptr`.
#[cfg(feature = "rdma")]
pub(super) fn freed_at(ptr: NonNull<u8>) -> &'static AtomicU64 {
    let place = ptr.addr().get() / ALIGNMENT;
    &FREED[(place ^ (place >> 8) ^ (place >> 16)) % FREED.len()]
}

// SAFETY: a Block owns its memory alone and has no tie to a thread. Any thread may free memory of
// malloc and of mmap.
unsafe impl Send for Block {}
// SAFETY: a shared Block offers no access to its memory.
unsafe impl Sync for Block {}

impl Block {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("capacities are bounded")
    }

    /// Makes a zeroed block of exactly `capacity` bytes, which is not 0.
    pub(super) fn allocate(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        if capacity < MAPPED_BYTES_MIN {
            // SAFETY: capacity is not 0.
            let raw = unsafe { alloc_zeroed(layout) };
            let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
            return Self { ptr, capacity };
        }
        // SAFETY: a fresh private anonymous mapping touches no memory of ours.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                capacity,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(raw.cast::<u8>()) {
            Some(ptr) if raw != libc::MAP_FAILED => Self { ptr, capacity },
            _ => handle_alloc_error(layout),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        #[cfg(feature = "rdma")]
        freed_at(self.ptr).fetch_add(1, Ordering::SeqCst);
        if self.capacity < MAPPED_BYTES_MIN {
            // SAFETY: the block was allocated in `allocate` with this layout.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) };
        } else {
            // SAFETY: the block was mapped in `allocate` with this length, and nothing refers to it
            // any more.
            unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.capacity) };
        }
    }
}

/// Returns the smallest class that holds `bytes`.
pub(super) fn class_for(bytes: usize) -> Option<usize> {
    CLASSES.iter().position(|&capacity| capacity >= bytes)
}

/// True if blocks of this class are mapped, which is expensive.
const fn is_mapped(class: usize) -> bool {
    CLASSES[class] >= MAPPED_BYTES_MIN
}

/// Blocks made by other threads that a thread keeps.
pub(super) const SURPLUS_KEPT: i32 = 2;
/// Blocks that make room for one that is kept.
const EVICTED_MAX: usize = 8;
/// Largest surplus that is counted, in blocks.
const SURPLUS_MAX: i32 = 64;

/// Blocks that are to be freed; without memory of its own for one.
pub(super) type Freed = SmallVec<[Block; 1]>;

/// The free blocks of one thread.
pub(super) struct Pool {
    free: [Vec<Block>; CLASSES.len()],
    /// The lowest number of free blocks of each class since the last trim: so many were not needed.
    unused: [usize; CLASSES.len()],
    /// Blocks freed here minus blocks taken here, for mapped classes.
    surplus: [i32; CLASSES.len()],
    /// The number of the last buffer of each class.
    taken: [u64; CLASSES.len()],
    /// Number of buffers.
    count: u64,
    stats: PoolStats,
    retained_max: usize,
}

/// The state and the counters of a thread's pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of free blocks kept for reuse.
    pub retained_bytes: usize,
    /// Number of buffers that reused a block.
    pub reused: u64,
    /// Number of buffers that needed new memory.
    pub made: u64,
    /// Number of blocks returned to the system because the pool was full or the block too large to
    /// keep.
    pub released: u64,
}

impl Pool {
    const fn new() -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES.len()],
            unused: [0; CLASSES.len()],
            surplus: [0; CLASSES.len()],
            taken: [0; CLASSES.len()],
            count: 0,
            stats: PoolStats { retained_bytes: 0, reused: 0, made: 0, released: 0 },
            retained_max: POOL_RETAINED_BYTES_MAX,
        }
    }

    pub(super) fn take(&mut self, class: usize) -> Block {
        let capacity = CLASSES[class];
        self.count += 1;
        self.taken[class] = self.count;
        if is_mapped(class) {
            self.surplus[class] = (self.surplus[class] - 1).max(-SURPLUS_MAX);
        }
        if let Some(block) = self.free[class].pop() {
            self.unused[class] = self.unused[class].min(self.free[class].len());
            self.stats.retained_bytes -= capacity;
            self.stats.reused += 1;
            return block;
        }
        if is_mapped(class)
            && let Some(block) = depot::take(class)
        {
            self.stats.reused += 1;
            return block;
        }
        self.stats.made += 1;
        Block::allocate(capacity)
    }

    /// Keeps the block. Returns what must be freed: the block itself, or others that were needed less
    /// lately; or both, if these were too few to make room.
    pub(super) fn put(&mut self, block: Block) -> Freed {
        let class = class_for(block.capacity).filter(|&c| CLASSES[c] == block.capacity);
        let mut block = block;
        if let Some(class) = class.filter(|&c| is_mapped(c)) {
            self.surplus[class] = (self.surplus[class] + 1).min(SURPLUS_MAX);
            // More blocks come back to this thread than it allocates, so other threads need them.
            // They go to the depot, which all threads share.
            if self.surplus[class] > SURPLUS_KEPT {
                match depot::put(class, block, self.retained_max) {
                    None => return Freed::new(),
                    Some(refused) => block = refused,
                }
            }
        }
        let Some(class) = class.filter(|_| block.capacity <= self.retained_max) else {
            return self.refuse(block);
        };
        let mut freed = Freed::new();
        while self.stats.retained_bytes + block.capacity > self.retained_max {
            let least_needed = if freed.len() < EVICTED_MAX {
                self.least_needed(class, block.capacity / EVICTED_MAX)
            } else {
                None
            };
            let Some(evicted) = least_needed.and_then(|other| self.evict(other)) else {
                freed.extend(self.refuse(block));
                return freed;
            };
            freed.push(evicted);
        }
        self.stats.retained_bytes += block.capacity;
        self.free[class].push(block);
        freed
    }

    fn refuse(&mut self, block: Block) -> Freed {
        self.stats.released += 1;
        Freed::from_iter([block])
    }

    /// Returns the class of free blocks of at least `bytes` whose last buffer was made longest ago, if
    /// `class` was used later.
    fn least_needed(&self, class: usize, bytes: usize) -> Option<usize> {
        let others = (0..CLASSES.len()).filter(|&other| {
            !self.free[other].is_empty()
                && CLASSES[other] >= bytes
                && self.taken[other] < self.taken[class]
        });
        others.min_by_key(|&other| self.taken[other])
    }

    /// Takes out a free block of this class.
    fn evict(&mut self, class: usize) -> Option<Block> {
        let block = self.free[class].pop()?;
        self.unused[class] = self.unused[class].min(self.free[class].len());
        self.stats.retained_bytes -= block.capacity;
        self.stats.released += 1;
        Some(block)
    }
}

/// Bytes of blocks that pools gave to the allocator because nobody used them, and of other short-lived
/// memory; see [`take_released`].
static RELEASED: AtomicUsize = AtomicUsize::new(0);

/// Frees blocks that nobody used, and counts them.
pub(super) fn release(blocks: Vec<Block>) {
    let small = blocks.iter().map(|block| block.capacity).filter(|&bytes| bytes < MAPPED_BYTES_MIN);
    RELEASED.fetch_add(small.sum(), Ordering::Relaxed);
    drop(blocks);
}

/// Counts bytes that something else than a pool frees now, or soon: short-lived memory that no client
/// is charged for.
pub fn note_released(bytes: usize) {
    RELEASED.fetch_add(bytes, Ordering::Relaxed);
}

/// Returns the bytes that pools have given to the allocator since the last call: the allocator keeps
/// them, unlike those of large blocks, which are mapped. [`release_free_memory`] gives them to the system.
#[must_use]
pub fn take_released() -> usize {
    RELEASED.swap(0, Ordering::Relaxed)
}

thread_local! {
    pub(super) static POOL: RefCell<Pool> = const { RefCell::new(Pool::new()) };
}

/// Returns the state of this thread's pool.
#[must_use]
pub fn pool_stats() -> PoolStats {
    POOL.with_borrow(|pool| pool.stats)
}

/// Frees all pooled blocks of this thread.
pub fn trim_pool() {
    let freed = POOL.with_borrow_mut(|pool| {
        pool.stats.retained_bytes = 0;
        pool.unused = [0; CLASSES.len()];
        std::mem::replace(&mut pool.free, [const { Vec::new() }; CLASSES.len()])
    });
    freed.into_iter().for_each(release);
}

/// Frees pooled blocks of this thread that were not used since the last call: the memory of a burst
/// is soon returned.
pub fn release_unused() {
    let freed: Vec<Block> = POOL.with_borrow_mut(|pool| {
        let mut freed = Vec::new();
        for (class, unused) in pool.unused.iter_mut().enumerate() {
            // The blocks are sorted by time, and the first `count` of them were not used since the
            // last call.
            let count = std::mem::take(unused);
            pool.stats.retained_bytes -= count * CLASSES[class];
            freed.extend(pool.free[class].drain(..count));
            *unused = pool.free[class].len();
        }
        pool.stats.released += freed.len() as u64;
        freed
    });
    release(freed);
    depot::release_unused();
}

/// Sets the bytes of free blocks that this thread may keep (a memory budget may allow fewer than
/// [`POOL_RETAINED_BYTES_MAX`], which is the maximum).
pub fn set_pool_retained_max(bytes: usize) {
    POOL.with_borrow_mut(|pool| pool.retained_max = bytes.min(POOL_RETAINED_BYTES_MAX));
    if pool_stats().retained_bytes > bytes {
        trim_pool();
    }
}

/// Returns free memory of the allocator to the system. This may take many milliseconds and must not
/// run on a core.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim takes no pointer and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bounds the free memory that the allocator keeps at the end of each of its arenas, for a process that
/// serves others.
///
/// glibc raises its thresholds with each large block that is freed, up to 64 MiB for each arena, of which
/// there are eight for each processor, and [`release_free_memory`] reaches the end of the first one
/// alone. So the thresholds are fixed. Larger blocks are mapped by themselves, and grow without a copy.
pub fn bound_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, bytes) in [
        (libc::M_MMAP_THRESHOLD, MALLOC_MAPPED_BYTES_MIN),
        (libc::M_TRIM_THRESHOLD, FREE_BYTES_PER_ARENA),
    ] {
        // SAFETY: mallopt takes no pointer and may be called at any time from any thread.
        unsafe {
            libc::mallopt(parameter, bytes);
        }
    }
}
