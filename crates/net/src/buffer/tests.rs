use super::*;
use crate::limits::{POOL_RETAINED_BYTES_MAX, POOLED_BLOCK_BYTES_MAX};

#[test]
fn payload_is_aligned_and_headroom_is_there() {
    for len in [1, 63, 64, 4096, 65536, 1 << 20, 8 << 20, 16 << 20] {
        for headroom in [0, 1, 64, HEADROOM, 4096] {
            let mut buf = Buf::with_headroom(headroom, len);
            assert!(buf.is_empty());
            assert!(buf.headroom() >= headroom);
            assert!(buf.spare_len() >= len);
            assert_eq!(buf.memory_mut().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
    let mut paged = Buf::with_headroom(4096, 1 << 20);
    assert_eq!(paged.memory_mut().as_ptr() as usize % 4096, 0);
}

#[test]
fn headers_go_in_front_in_place() {
    let mut buf = Buf::copy_of(b"payload");
    let before = buf.as_ptr();
    buf.push_front(b"head:");
    assert_eq!(&*buf, b"head:payload");
    assert_eq!(buf.as_ptr(), before.wrapping_sub(5));
    buf.advance(5);
    assert_eq!(&*buf, b"payload");
}

#[test]
fn front_growth_without_headroom_moves() {
    let mut buf = Buf::with_capacity(4);
    buf.extend_from_slice(b"abcd");
    buf.push_front(&[7; 300]);
    assert_eq!(buf.len(), 304);
    assert_eq!(&buf[..300], &[7; 300]);
    assert_eq!(&buf[300..], b"abcd");
}

#[test]
fn reserve_keeps_bytes_and_headroom() {
    let mut buf = Buf::copy_of(b"0123456789");
    buf.advance(3);
    let headroom = buf.headroom();
    buf.reserve(1 << 20);
    assert_eq!(&*buf, b"3456789");
    assert_eq!(buf.headroom(), headroom);
    assert!(buf.spare_len() >= 1 << 20);
}

#[test]
fn stale_bytes_never_show() {
    trim_pool();
    let mut secret = Buf::with_capacity(4096);
    secret.resize(4096, 0xee);
    let at = secret.as_ptr();
    drop(secret);
    let mut next = Buf::with_capacity(4096);
    next.extend_from_slice(b"x");
    assert_eq!(next.as_ptr(), at, "the block is reused, or this test shows nothing");
    next.resize(100, 0);
    assert!(next[1..].iter().all(|&b| b == 0));
    next.clear();
    assert!(next.append_zeroed(4000).iter().all(|&b| b == 0));
    next.advance(4000);
    assert!(next.grow_front(64).iter().all(|&b| b == 0));
}

#[test]
fn last_freed_is_first_reused() {
    trim_pool();
    let (mut a, mut b) = (Buf::with_capacity(64 << 10), Buf::with_capacity(64 << 10));
    a.resize(1, 0);
    b.resize(1, 0);
    let hot = b.as_ptr();
    drop(a);
    drop(b);
    let mut c = Buf::with_capacity(60 << 10);
    c.resize(1, 0);
    assert_eq!(c.as_ptr(), hot);
}

#[test]
fn retained_memory_is_bounded() {
    trim_pool();
    let block = POOLED_BLOCK_BYTES_MAX;
    let held: Vec<Buf> = (0..6).map(|_| Buf::with_capacity(block)).collect();
    let before = pool_stats();
    drop(held);
    let after = pool_stats();
    let kept = POOL_RETAINED_BYTES_MAX / block;
    assert_eq!(after.retained_bytes, kept * block);
    assert_eq!(after.released - before.released, 6 - kept as u64);
    trim_pool();
    assert_eq!(pool_stats().retained_bytes, 0);
}

#[test]
fn retained_limit_at_n_minus_1_n_and_n_plus_1() {
    trim_pool();
    let block = CLASSES[1];
    for (limit, kept) in [(2 * block - 1, 1), (2 * block, 2), (2 * block + 1, 2)] {
        set_pool_retained_max(limit);
        trim_pool();
        drop((Buf::with_capacity(4096), Buf::with_capacity(4096), Buf::with_capacity(4096)));
        assert_eq!(pool_stats().retained_bytes, kept * block, "limit {limit}");
    }
    set_pool_retained_max(usize::MAX);
}

/// The blocks that one kind of request has left do not keep those of the next kind from being kept.
#[test]
fn what_was_needed_lately_is_kept_whatever_its_length() {
    const LENGTHS: [usize; 3] = [POOLED_BLOCK_BYTES_MAX, 1 << 20, 64 << 10];
    for (before, after) in
        LENGTHS.into_iter().flat_map(|before| LENGTHS.map(|after| (before, after)))
    {
        // Pairs with equal lengths are skipped, and so are pairs in which freed small blocks cannot
        // make room for a large one (64 KiB and 8 MiB).
        if before == after || before < after / 9 {
            continue;
        }
        // A new thread has a pool of its own, without blocks of other tests.
        std::thread::spawn(move || {
            let many = |len: usize, count: usize| {
                drop((0..count).map(|_| Buf::with_capacity(len)).collect::<Vec<_>>());
            };
            many(before, POOL_RETAINED_BYTES_MAX / before);
            many(after, 2);
            let made = pool_stats().made;
            many(after, 2);
            assert_eq!(pool_stats().made, made, "{after} after {before}");
            assert!(pool_stats().retained_bytes <= POOL_RETAINED_BYTES_MAX);
        })
        .join()
        .unwrap();
    }
}

#[test]
fn beyond_the_largest_class_nothing_is_kept() {
    trim_pool();
    drop(Buf::with_capacity(POOLED_BLOCK_BYTES_MAX));
    assert_eq!(pool_stats().retained_bytes, POOLED_BLOCK_BYTES_MAX);
    trim_pool();
    drop(Buf::with_capacity(POOLED_BLOCK_BYTES_MAX + 1));
    assert_eq!(pool_stats().retained_bytes, 0);
}

#[test]
fn the_largest_buffer_and_one_more() {
    assert!(Buf::with_capacity(BUF_BYTES_MAX).spare_len() >= BUF_BYTES_MAX);
    let beyond = std::panic::catch_unwind(|| Buf::with_capacity(BUF_BYTES_MAX + 1));
    assert!(beyond.is_err());
}

#[test]
fn a_buffer_dropped_elsewhere_joins_that_pool() {
    trim_pool();
    let mut buf = Buf::with_capacity(1 << 20);
    buf.resize(1 << 20, 5);
    let there = std::thread::spawn(move || {
        assert!(buf.iter().all(|&b| b == 5));
        drop(buf);
        pool_stats().retained_bytes
    });
    assert_eq!(there.join().ok(), Some((1 << 20) + 4096));
    assert_eq!(pool_stats().retained_bytes, 0);
}

#[test]
fn shared_bytes_return_their_block() {
    trim_pool();
    let bytes = Buf::copy_of(&[9; 1000]).into_bytes();
    let part = bytes.slice(10..20);
    drop(bytes);
    assert_eq!(&*part, &[9; 10]);
    assert_eq!(pool_stats().retained_bytes, 0);
    drop(part);
    assert_eq!(pool_stats().retained_bytes, CLASSES[1]);
}

#[test]
fn debug_does_not_print_contents() {
    let text = format!("{:?}", Buf::copy_of(b"password"));
    assert!(!text.contains("112") && !text.contains("password"), "{text}");
}

#[test]
fn what_a_burst_left_is_given_back_and_what_is_used_is_kept() {
    trim_pool();
    drop((0..8).map(|_| Buf::with_capacity(1 << 20)).collect::<Vec<_>>());
    let block = (1 << 20) + 4096;
    release_unused();
    assert_eq!(pool_stats().retained_bytes, 8 * block, "nothing is known of their use yet");
    drop((Buf::with_capacity(1 << 20), Buf::with_capacity(1 << 20)));
    release_unused();
    assert_eq!(pool_stats().retained_bytes, 2 * block);
    for _ in 0..3 {
        drop(Buf::with_capacity(1 << 20));
        release_unused();
        assert_eq!(pool_stats().retained_bytes, block);
    }
    release_unused();
    assert_eq!(pool_stats().retained_bytes, 0);
}

#[test]
fn a_file_is_appended_without_what_was_there_before() {
    let mut file = tempfile();
    std::io::Write::write_all(&mut file, b"0123456789").unwrap();
    let mut buf = Buf::copy_of(b"ab");
    buf.append_from_file(&file, 3, 4).unwrap();
    assert_eq!(&*buf, b"ab3456");
    let error = buf.append_from_file(&file, 8, 3).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(&*buf, b"ab345689");
}

fn tempfile() -> std::fs::File {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    fd.into()
}

/// Tests that small blocks which pools free are counted. Other tests free blocks at the same time.
#[test]
fn small_blocks_that_pools_free_are_counted() {
    let held: Vec<Buf> = (0..100).map(|_| Buf::with_capacity(4 << 10)).collect();
    drop(held);
    let _ = take_released();
    trim_pool();
    let small = take_released();
    assert!(small >= 100 * (4 << 10), "{small}");
}
