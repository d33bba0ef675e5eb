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

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
#[cfg(feature = "rdma")]
use std::sync::atomic::Ordering;

pub mod budget;
mod depot;
mod pool;
mod resident;

use crate::limits::BUF_BYTES_MAX;
use pool::{Block, CLASSES, Freed, MAPPED_BYTES_MIN, POOL, class_for};
pub use pool::{
    PoolStats, bound_free_memory, note_released, pool_stats, release_free_memory, release_unused,
    set_pool_retained_max, take_released, trim_pool,
};
pub use resident::{keep_resident_file, resident_bytes};

/// Alignment of the payload in a new buffer.
pub const ALIGNMENT: usize = 64;

/// Headroom of frames, received and sent. It is enough for the headers of any reply: frame prefix
/// 4, transform header 52, message header 64, body 16, rounded up to [`ALIGNMENT`].
pub const HEADROOM: usize = 192;

/// A block of memory, to be recognised.
#[cfg(feature = "rdma")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Its first byte.
    pub(crate) base: NonNull<u8>,
    /// Length in bytes.
    pub(crate) len: usize,
    /// Blocks that were freed at places like this, so that the next block here is another one.
    freed: u64,
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
            // While a thread ends, its pool may be dropped already. Then a new block is allocated.
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

    /// Returns its whole block of memory.
    #[cfg(feature = "rdma")]
    pub(crate) fn memory(&self) -> Memory {
        let freed = pool::freed_at(self.block.ptr).load(Ordering::SeqCst);
        Memory { base: self.block.ptr, len: self.block.capacity, freed }
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
        // The copy keeps the headroom, which need not be a multiple of the alignment.
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
        // A block that the pool refuses, or that has no pool because its thread ends, is freed
        // here, after the borrow of the pool has ended.
        let refused = POOL.try_with(|pool| match block.take() {
            Some(block) => pool.borrow_mut().put(block),
            None => Freed::new(),
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
        // SAFETY: [start, end) lies inside the block, whose bytes are all initialised, and self is
        // borrowed mutably.
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
