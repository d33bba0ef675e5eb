//! Pooled, aligned buffers with headroom.
//!
//! A [`Buf`] is a window `[start, end)` into a block of memory. A payload is put behind headroom,
//! and headers are later written into that headroom, so that a reply leaves in one piece without a
//! copy.
//!
//! Blocks are not cleared for reuse, because nobody can read their old content: the window only
//! grows over bytes that the growing call itself wrote. Blocks are zeroed once, when they are made,
//! so that no byte is ever uninitialised in the language's sense.
//!
//! Each thread keeps free blocks, last in first out for each size class, because the block used
//! last is the one in the cache. A `Buf` freed on another thread goes to that thread's pool. If one
//! thread makes large buffers and another frees them, the second returns its surplus to the first
//! through the [`depot`].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

pub mod budget;
mod depot;

use crate::limits::{BUF_BYTES_MAX, POOL_RETAINED_BYTES_MAX, POOLED_BLOCK_BYTES_MAX};

/// Alignment of the payload in a new buffer.
pub const ALIGNMENT: usize = 64;

/// Headroom of frames, received and sent. It is enough for the headers of any reply: frame prefix
/// 4, transform header 52, message header 64, body 16, rounded up to [`ALIGNMENT`].
pub const HEADROOM: usize = 192;

/// Capacities of the pooled blocks: a power of two for payload, and room for headers.
const CLASSES: [usize; 10] = [
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
const MAPPED_BYTES_MIN: usize = 64 << 10;

/// An owned piece of memory, zeroed when it was made.
struct Block {
    ptr: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a Block owns its memory alone and has no tie to a thread; both
// malloc and mmap memory may be freed anywhere.
unsafe impl Send for Block {}
// SAFETY: a shared Block offers no access to its memory.
unsafe impl Sync for Block {}

impl Block {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("capacities are bounded")
    }

    /// Makes a zeroed block of exactly `capacity` bytes, which is not 0.
    fn allocate(capacity: usize) -> Self {
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
        if self.capacity < MAPPED_BYTES_MIN {
            // SAFETY: allocated in `allocate` with this very layout.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) };
        } else {
            // SAFETY: mapped in `allocate` with this very length, and nothing
            // refers to it any more.
            unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.capacity) };
        }
    }
}

/// Returns the smallest class that holds `bytes`.
fn class_for(bytes: usize) -> Option<usize> {
    CLASSES.iter().position(|&capacity| capacity >= bytes)
}

/// True if blocks of this class are mapped, which is expensive.
const fn is_mapped(class: usize) -> bool {
    CLASSES[class] >= MAPPED_BYTES_MIN
}

/// Blocks made by other threads that a thread keeps.
const SURPLUS_KEPT: i32 = 2;
/// Largest surplus that is counted, in blocks.
const SURPLUS_MAX: i32 = 64;

/// The free blocks of one thread.
struct Pool {
    free: [Vec<Block>; CLASSES.len()],
    /// The lowest number of free blocks of each class since the last trim: so many were not needed.
    unused: [usize; CLASSES.len()],
    /// Blocks freed here minus blocks taken here, for mapped classes.
    surplus: [i32; CLASSES.len()],
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
            stats: PoolStats { retained_bytes: 0, reused: 0, made: 0, released: 0 },
            retained_max: POOL_RETAINED_BYTES_MAX,
        }
    }

    fn take(&mut self, class: usize) -> Block {
        let capacity = CLASSES[class];
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

    /// Keeps the block, or returns it if it must be freed.
    fn put(&mut self, block: Block) -> Option<Block> {
        let class = class_for(block.capacity).filter(|&c| CLASSES[c] == block.capacity);
        let mut block = block;
        if let Some(class) = class.filter(|&c| is_mapped(c)) {
            self.surplus[class] = (self.surplus[class] + 1).min(SURPLUS_MAX);
            // Other threads make these blocks and should get them back.
            if self.surplus[class] > SURPLUS_KEPT {
                match depot::put(class, block, self.retained_max) {
                    None => return None,
                    Some(refused) => block = refused,
                }
            }
        }
        match class {
            Some(class) if self.stats.retained_bytes + block.capacity <= self.retained_max => {
                self.stats.retained_bytes += block.capacity;
                self.free[class].push(block);
                None
            }
            _ => {
                self.stats.released += 1;
                Some(block)
            }
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool::new()) };
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
    drop(freed);
}

/// Frees pooled blocks of this thread that were not used since the last call: the memory of a burst
/// is soon returned.
pub fn release_unused() {
    let freed: Vec<Block> = POOL.with_borrow_mut(|pool| {
        let mut freed = Vec::new();
        for (class, unused) in pool.unused.iter_mut().enumerate() {
            // The first blocks were freed longest ago.
            let count = std::mem::take(unused);
            pool.stats.retained_bytes -= count * CLASSES[class];
            freed.extend(pool.free[class].drain(..count));
            *unused = pool.free[class].len();
        }
        pool.stats.released += freed.len() as u64;
        freed
    });
    drop(freed);
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
    // SAFETY: it takes no pointer and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes with headroom before and spare room behind them. See the module's text.
pub struct Buf {
    block: ManuallyDrop<Block>,
    start: usize,
    end: usize,
}

impl Buf {
    /// Makes an empty buffer without memory.
    #[must_use]
    pub const fn new() -> Self {
        let block = Block { ptr: NonNull::dangling(), capacity: 0 };
        Self { block: ManuallyDrop::new(block), start: 0, end: 0 }
    }

    /// Makes an empty buffer with room for at least `len` bytes.
    ///
    /// # Panics
    /// If `len` is more than [`BUF_BYTES_MAX`]: callers first compare a peer's lengths with their
    /// own limits.
    #[must_use]
    pub fn with_capacity(len: usize) -> Self {
        Self::with_headroom(0, len)
    }

    /// Makes an empty buffer with room for at least `len` bytes behind at least `headroom` bytes.
    /// The first byte lies at a multiple of [`ALIGNMENT`]; with a `len` of 64 KiB or more and a
    /// headroom of 4096 it lies on a page.
    ///
    /// # Panics
    /// If more than [`BUF_BYTES_MAX`] is asked for.
    #[must_use]
    pub fn with_headroom(headroom: usize, len: usize) -> Self {
        assert!(headroom <= BUF_BYTES_MAX && len <= BUF_BYTES_MAX, "buffer beyond every limit");
        let start = headroom.next_multiple_of(ALIGNMENT);
        let bytes = start + len;
        assert!(bytes <= BUF_BYTES_MAX, "buffer beyond every limit");
        if bytes == 0 {
            return Self::new();
        }
        let block = match class_for(bytes) {
            // The pool is gone while its thread ends.
            Some(class) => POOL
                .try_with(|pool| pool.borrow_mut().take(class))
                .unwrap_or_else(|_| Block::allocate(CLASSES[class])),
            None => Block::allocate(bytes.next_multiple_of(4096)),
        };
        if block.capacity >= MAPPED_BYTES_MIN {
            budget::take(block.capacity);
        }
        Self { block: ManuallyDrop::new(block), start, end: start }
    }

    /// Makes a buffer with a copy of `bytes` behind [`HEADROOM`] bytes.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::with_headroom(HEADROOM, bytes.len());
        buf.extend_from_slice(bytes);
        buf
    }

    /// Makes a buffer of `len` zeros behind at least `headroom` bytes.
    #[must_use]
    pub fn zeroed(headroom: usize, len: usize) -> Self {
        let mut buf = Self::with_headroom(headroom, len);
        buf.resize(len, 0);
        buf
    }

    /// Returns the bytes of its block.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.capacity
    }

    /// Returns the bytes that can be added at the front without a copy.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Returns the bytes that can be appended without a copy.
    #[must_use]
    pub fn spare_len(&self) -> usize {
        self.block.capacity - self.end
    }

    /// Appends `bytes`, moving to a larger block if necessary.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.memory_mut()[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Makes room for `additional` more bytes behind the window, keeping the headroom.
    ///
    /// # Panics
    /// If more than [`BUF_BYTES_MAX`] would be needed.
    pub fn reserve(&mut self, additional: usize) {
        if additional <= self.spare_len() {
            return;
        }
        let mut larger = Self::with_headroom(self.start, self.len() + additional);
        // The headroom may have become no multiple of the alignment.
        larger.start = self.start;
        larger.end = self.start;
        let len = self.len();
        larger.memory_mut()[..len].copy_from_slice(self);
        larger.end += len;
        *self = larger;
    }

    /// Cuts or extends the window to `len` bytes; new bytes are `value`.
    pub fn resize(&mut self, len: usize, value: u8) {
        let Some(more) = len.checked_sub(self.len()) else { return self.truncate(len) };
        self.reserve(more);
        self.memory_mut()[..more].fill(value);
        self.end += more;
    }

    /// Cuts the window to its first `len` bytes; does nothing if it is shorter.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(len));
    }

    /// Removes all bytes; the headroom stays.
    pub fn clear(&mut self) {
        self.end = self.start;
    }

    /// Removes `count` bytes at the front, which become headroom.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advance beyond the end");
        self.start += count;
    }

    /// Extends the window by `count` zeroed bytes at the front and returns them, for a header. If
    /// the headroom is too small, the bytes move to a larger block.
    pub fn grow_front(&mut self, count: usize) -> &mut [u8] {
        if count > self.start {
            let mut roomier = Self::with_headroom(count.max(HEADROOM), self.len());
            roomier.extend_from_slice(self);
            *self = roomier;
        }
        self.start -= count;
        let front = &mut self[..count];
        front.fill(0);
        front
    }

    /// Adds `bytes` at the front of the window.
    pub fn push_front(&mut self, bytes: &[u8]) {
        self.grow_front(bytes.len()).copy_from_slice(bytes);
    }

    /// Converts the buffer to shared bytes; its block returns to a pool when the last of them is
    /// dropped.
    #[must_use]
    pub fn into_bytes(self) -> bytes::Bytes {
        bytes::Bytes::from_owner(self)
    }

    /// Returns the room behind the window, for a system call to write into. Its content is old and
    /// must not be read.
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        let spare = self.spare_len();
        // SAFETY: [end, capacity) lies inside the block, which we own alone
        // and which was zeroed when it was made, so every byte is initialised.
        // A block of capacity 0 gives a dangling but aligned empty slice.
        unsafe { std::slice::from_raw_parts_mut(self.block.ptr.as_ptr().add(self.end), spare) }
    }

    /// Extends the window over `count` bytes of the spare room that a system call has just written.
    ///
    /// # Panics
    /// If the spare room is smaller.
    pub(crate) fn set_filled(&mut self, count: usize) {
        assert!(count <= self.spare_len(), "more filled than there was room");
        self.end += count;
    }

    /// Appends `count` zeros and returns them, to be overwritten.
    pub fn append_zeroed(&mut self, count: usize) -> &mut [u8] {
        let len = self.len();
        self.resize(len + count, 0);
        &mut self[len..]
    }

    /// Appends `count` bytes of `file` from `offset` on, without clearing their room first.
    ///
    /// # Errors
    /// The system's error; `UnexpectedEof` if the file ends earlier. Bytes read until then have
    /// been appended.
    pub fn append_from_file(
        &mut self,
        file: &std::fs::File,
        offset: u64,
        count: usize,
    ) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        self.reserve(count);
        let mut done = 0;
        while done < count {
            match file.read_at(&mut self.memory_mut()[..count - done], offset + done as u64) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.set_filled(read);
                    done += read;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Default for Buf {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: the block is taken once, here, and never used again.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        if block.capacity == 0 {
            return;
        }
        if block.capacity >= MAPPED_BYTES_MIN {
            budget::give(block.capacity);
        }
        let mut block = Some(block);
        // Outside the borrow, because a block that the pool refuses, or that has no pool any more,
        // is freed here.
        let refused = POOL.try_with(|pool| match block.take() {
            Some(block) => pool.borrow_mut().put(block),
            None => None,
        });
        drop(refused);
        drop(block);
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: [start, end) lies inside the block, was zeroed when it was
        // made, and is borrowed as long as self is.
        unsafe {
            std::slice::from_raw_parts(
                self.block.ptr.as_ptr().add(self.start),
                self.end - self.start,
            )
        }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and self is borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.block.ptr.as_ptr().add(self.start),
                self.end - self.start,
            )
        }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_of(bytes)
    }
}

/// Prints the length, never the content: it is users' data.
impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len())
            .field("headroom", &self.headroom())
            .field("spare", &self.spare_len())
            .finish()
    }
}

#[cfg(test)]
mod tests;
