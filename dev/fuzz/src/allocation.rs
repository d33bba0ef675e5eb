//! The bytes that an input makes a target allocate, counted and bounded.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// Bytes allocated and not freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);
/// Most that [`LIVE`] may be.
static MOST: AtomicIsize = AtomicIsize::new(isize::MAX);

/// The system's allocator; it ends the process when a target takes too much.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: isize) {
    let live = LIVE.fetch_add(change, Relaxed).saturating_add(change);
    if change > 0 && live > MOST.load(Relaxed) && !std::thread::panicking() {
        MOST.store(isize::MAX, Relaxed);
        let mut text = [0; 160];
        let mut rest = &mut text[..];
        let beyond = "bytes were allocated by one request; the target's limit is exceeded";
        let _ = writeln!(rest, "\nfuzz: {live} bytes are live, {change} {beyond}");
        let left = rest.len();
        let _ = std::io::stderr().write_all(&text[..text.len() - left]);
        panic!("too much memory for one input");
    }
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: each call is passed on to the system's allocator with its arguments.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps the contract of `GlobalAlloc`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's guarantees are those that the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc`.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's guarantees are those that the system's allocator requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc`.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller's guarantees are those that the system's allocator requires.
        unsafe { System.dealloc(memory, layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc`.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: the caller's guarantees are those that the system's allocator requires.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Sets the limit to `bytes` more than are live now.
pub(crate) fn limit(bytes: usize) {
    MOST.store(LIVE.load(Relaxed).saturating_add(signed(bytes)), Relaxed);
}

/// Raises the limit: the target made its input longer by `bytes`.
pub(crate) fn raise(bytes: usize) {
    MOST.fetch_add(signed(bytes), Relaxed);
}

/// Removes the limit on allocations.
pub(crate) fn no_limit() {
    MOST.store(isize::MAX, Relaxed);
}
