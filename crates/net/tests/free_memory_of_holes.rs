//! The allocator's free memory between blocks in use, in a process of its own, whose memory no other test
//! changes.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use frevo_net::buffer::release_free_memory;

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// Tests that the allocator's free memory below a block in use is returned too.
#[test]
fn free_memory_goes_back_to_the_system() {
    const BLOCK: usize = 100 << 10;
    let mut blocks: Vec<Vec<u8>> = (0..640).map(|n| vec![n as u8; BLOCK]).collect();
    let full = resident();
    // One block in eight stays, so that no large part of the heap becomes free as a whole.
    blocks = blocks.into_iter().enumerate().filter(|(n, _)| n % 8 == 0).map(|(_, b)| b).collect();
    release_free_memory();
    let freed = full.saturating_sub(resident());
    assert!(freed > 40 << 20, "{freed} bytes of {}", 560 * BLOCK);
    assert!(blocks.iter().all(|block| block.len() == BLOCK));
}
