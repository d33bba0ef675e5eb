//! Large free blocks on their way from threads that free more than they make to threads that make
//! more than they free.
//!
//! A client's reader receives into buffers that other threads free. Without a way back each of them
//! would be mapped, faulted in page by page, and unmapped.

use std::sync::Mutex;

use super::pool::{Block, CLASSES, release};

struct Depot {
    free: [Vec<Block>; CLASSES.len()],
    /// The lowest number of blocks since the last trim.
    unused: [usize; CLASSES.len()],
    bytes: usize,
}

static DEPOT: Mutex<Depot> = Mutex::new(Depot {
    free: [const { Vec::new() }; CLASSES.len()],
    unused: [0; CLASSES.len()],
    bytes: 0,
});

/// Takes the newest block of this class.
pub(super) fn take(class: usize) -> Option<Block> {
    // No code panics while it holds this lock. If some code did, `None` would make the caller
    // allocate a new block.
    let mut depot = DEPOT.lock().ok()?;
    let block = depot.free[class].pop()?;
    depot.bytes -= block.capacity;
    depot.unused[class] = depot.unused[class].min(depot.free[class].len());
    Some(block)
}

/// Keeps the block, or returns it if the depot holds `bytes_max` already.
pub(super) fn put(class: usize, block: Block, bytes_max: usize) -> Option<Block> {
    let Ok(mut depot) = DEPOT.lock() else { return Some(block) };
    if depot.bytes + block.capacity > bytes_max {
        return Some(block);
    }
    depot.bytes += block.capacity;
    depot.free[class].push(block);
    None
}

/// Frees blocks that no thread took since the last call.
pub(super) fn release_unused() {
    let mut freed = Vec::new();
    if let Ok(mut depot) = DEPOT.try_lock() {
        let Depot { free, unused, bytes } = &mut *depot;
        for (free, unused) in free.iter_mut().zip(unused) {
            freed.extend(free.drain(..*unused));
            *unused = free.len();
        }
        *bytes -= freed.iter().map(|block| block.capacity).sum::<usize>();
    }
    release(freed);
}
