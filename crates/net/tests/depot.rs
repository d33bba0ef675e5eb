//! The depot of large free blocks, in a process of its own: it belongs to the whole process, and cores
//! of other tests free what is unused in it.

use std::sync::mpsc::sync_channel;

use frevo_net::buffer::{Buf, pool_stats, release_unused};

/// Tests that blocks which one thread makes and another drops come back, with few blocks in all.
#[test]
fn what_one_thread_makes_and_another_drops_comes_back() {
    const LEN: usize = 2 << 20;
    const BLOCK: usize = LEN + 4096;
    let (there, dropped) = sync_channel::<Buf>(0);
    let dropper = std::thread::spawn(move || {
        dropped.into_iter().for_each(drop);
        pool_stats().retained_bytes
    });
    let before = pool_stats();
    for _ in 0..100 {
        let mut buf = Buf::with_capacity(LEN);
        buf.resize(LEN, 1);
        assert!(there.send(buf).is_ok());
    }
    drop(there);
    let made = pool_stats().made - before.made;
    let kept = dropper.join().unwrap();
    assert_eq!(kept, 2 * BLOCK, "the freeing thread keeps two blocks");
    // The blocks that the freeing thread keeps, two in use, and the first one.
    assert!(made <= 2 + 3, "{made} made");
    // The first call keeps blocks used since the previous one.
    release_unused();
    release_unused();
    let before = pool_stats();
    drop(Buf::with_capacity(LEN));
    assert_eq!(pool_stats().made - before.made, 1, "the depot gave its blocks back");
}
