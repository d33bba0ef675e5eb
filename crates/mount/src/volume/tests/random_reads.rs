//! Random reads, which fetch only the requested bytes.

use std::os::unix::fs::FileExt;

use super::*;
use crate::limits::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const PAGES: u64 = 40;

/// The bytes at `at` of the file that [`with_file`] makes.
fn bytes(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|at| (at / 4096 * 7 + at) as u8).collect()
}

fn make_file(world: &World) {
    std::fs::write(world.path("f"), bytes(0, (PAGES * PAGE) as usize)).unwrap();
}

#[test]
fn who_jumps_about_fetches_what_he_asks_for_and_a_page_when_he_comes_back() {
    in_world(async |world| {
        make_file(world);
        let one = plain(world).await;
        let handle = one.take("f", libc::O_RDONLY).await;
        for page in (1..PAGES).rev() {
            let at = page * PAGE + 5;
            assert_eq!(*one.read(handle, at, 4096).await.unwrap(), *bytes(at, 4096), "{page}");
        }
        assert_eq!(one.budget.bytes(), 0, "nothing that was not asked for");
        for at in [7 * PAGE, 20 * PAGE + 100] {
            assert_eq!(*one.read(handle, at, 4096).await.unwrap(), *bytes(at, 4096));
        }
        assert_eq!(one.budget.bytes(), 2 * PAGE_BYTES);
        // These reads cross the end of a page and the end of the file.
        let at = 30 * PAGE - 10;
        assert_eq!(*one.read(handle, at, 20).await.unwrap(), *bytes(at, 20));
        let at = PAGES * PAGE - 10;
        assert_eq!(*one.read(handle, at, 4096).await.unwrap(), *bytes(at, 10));
        assert!(one.read(handle, PAGES * PAGE, 10).await.unwrap().is_empty());
        one.close(handle).await;
    });
}

#[test]
fn who_jumps_about_sees_what_was_written_here_and_is_not_sent() {
    in_world(async |world| {
        make_file(world);
        let one = plain(world).await;
        let handle = one.take("f", libc::O_RDWR).await;
        let there = std::fs::File::open(world.path("f")).unwrap();
        let mut first = [0; 3];
        one.write(handle, 5 * PAGE + 50, b"new").await.unwrap();
        one.write(handle, (PAGES + 20) * PAGE, b"end").await.unwrap();
        there.read_exact_at(&mut first, 5 * PAGE + 50).unwrap();
        assert_eq!(first[..], bytes(5 * PAGE + 50, 3), "it is gathered");
        // A read of another page must not make the mount send the unsent data.
        assert_eq!(*one.read(handle, 30 * PAGE, 100).await.unwrap(), *bytes(30 * PAGE, 100));
        there.read_exact_at(&mut first, 5 * PAGE + 50).unwrap();
        assert_eq!(first[..], bytes(5 * PAGE + 50, 3), "and still is");
        // The bytes between the server's end of the file and the unsent data are zeros.
        let mut wanted = bytes(PAGES * PAGE - 4, 4);
        wanted.resize(10, 0);
        assert_eq!(*one.read(handle, PAGES * PAGE - 4, 10).await.unwrap(), *wanted);
        let mut wanted = bytes(5 * PAGE + 48, 8);
        wanted[2..5].copy_from_slice(b"new");
        assert_eq!(*one.read(handle, 5 * PAGE + 48, 8).await.unwrap(), *wanted);
        let end = one.read(handle, (PAGES + 20) * PAGE - 2, 100).await.unwrap();
        assert_eq!(&*end, b"\0\0end");
        one.close(handle).await;
    });
}

#[test]
fn who_jumps_about_sees_what_others_write() {
    in_world(async |world| {
        make_file(world);
        let (one, two) = (plain(world).await, plain(world).await);
        let reader = one.take("f", libc::O_RDONLY).await;
        let at = |round: u64| (round * 17 % PAGES) * PAGE + 8192;
        for round in 0..PAGES {
            one.read(reader, at(round), 64).await.unwrap();
        }
        // The second round of reads leaves some pages in the cache.
        for round in 0..PAGES / 2 {
            one.read(reader, at(round), 64).await.unwrap();
        }
        assert!(one.budget.bytes() > 0);
        let writer = two.take("f", libc::O_RDWR).await;
        for round in 0..3 * PAGES {
            let text = format!("{round:08}");
            two.write(writer, at(round), text.as_bytes()).await.unwrap();
            if round % 2 == 0 {
                two.flush(writer, 0).await.unwrap();
            }
            // The break of a READ lease needs no acknowledgment, so for a moment reads may still
            // return old data.
            let mut tries = 0;
            while *one.read(reader, at(round), 8).await.unwrap() != *text.as_bytes() {
                tries += 1;
                assert!(tries < 100, "round {round}");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            assert!(round == 0 || tries == 0, "the lease is gone in round {round}");
        }
        assert_eq!(one.budget.bytes(), 0, "what was kept is forgotten");
        one.close(reader).await;
        two.close(writer).await;
    });
}

#[test]
fn what_is_written_at_once_is_what_is_written() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let (handle, len) = (one.make("f").await, 3 * PAGE_BYTES as u64 * 16);
        let mut wanted = Vec::new();
        // The writes overlap, are large and small, and exceed the limit of unsent data.
        for at in (0..len).step_by(700_000) {
            let data = bytes(at, 1 << 20);
            if one.write_now(handle, at, &data).is_none() {
                one.write(handle, at, &data).await.unwrap();
            }
            if one.write_now(handle, at + 3, b"small").is_none() {
                one.write(handle, at + 3, b"small").await.unwrap();
            }
            wanted.resize(at as usize, 0);
            wanted.extend_from_slice(&data);
            wanted[at as usize + 3..at as usize + 8].copy_from_slice(b"small");
        }
        assert!(*one.read(handle, 0, 1 << 20).await.unwrap() == wanted[..1 << 20]);
        // Another client has broken the lease, so `write_now` refuses and `write` goes to the
        // server.
        let reader = two.take("f", libc::O_RDONLY).await;
        two.read(reader, 0, 10).await.unwrap();
        assert_eq!(one.write_now(handle, 0, b"late"), None);
        one.write(handle, 0, b"late").await.unwrap();
        wanted[..4].copy_from_slice(b"late");
        assert_eq!(*two.read(reader, 0, 8).await.unwrap(), wanted[..8]);
        two.close(reader).await;
        one.close(handle).await;
        assert!(std::fs::read(world.path("f")).unwrap() == wanted);
        // `write_now` also refuses a handle that cannot write and a handle with O_DSYNC.
        let reader = one.take("f", libc::O_RDONLY).await;
        let syncs = one.take("f", libc::O_RDWR | libc::O_DSYNC).await;
        assert_eq!([reader, syncs].map(|of| one.write_now(of, 0, b"x")), [None, None]);
        one.close(reader).await;
        one.close(syncs).await;
    });
}
