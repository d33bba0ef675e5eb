//! The allocator's free memory, in a process of its own: its thresholds and its memory are those of the
//! process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use frevo_net::buffer::{bound_free_memory, release_free_memory};

/// Returns the resident memory of this process in bytes. It allocates nothing, which could be the end of
/// the arena.
fn resident(statm: &File) -> usize {
    let mut text = [0; 128];
    let count = statm.read_at(&mut text, 0).unwrap();
    let text = std::str::from_utf8(&text[..count]).unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// Tests that a thread with an arena of its own leaves little at its end, also after a large block was
/// freed, by which glibc would raise its thresholds.
#[test]
fn the_end_of_an_arena_goes_back_to_the_system() {
    const PIECE: usize = 60 << 10;
    const PIECES: usize = 400;
    bound_free_memory();
    let in_arena = || {
        let statm = File::open("/proc/self/statm").unwrap();
        drop(std::hint::black_box(vec![1_u8; 16 << 20]));
        let before = resident(&statm);
        let pieces: Vec<Vec<u8>> = (0..PIECES).map(|n| vec![n as u8; PIECE]).collect();
        let full = resident(&statm) - before;
        drop(std::hint::black_box(pieces));
        release_free_memory();
        (full, resident(&statm).saturating_sub(before))
    };
    let (full, kept) = std::thread::spawn(in_arena).join().unwrap();
    assert!(full > PIECES * PIECE / 2, "{full} bytes: the pieces are not counted");
    assert!(kept < 1 << 20, "{kept} bytes of {full} stay");
}
