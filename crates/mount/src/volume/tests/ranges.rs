//! Allocated space.

use super::*;

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

#[test]
fn room_in_a_file_with_holes_is_not_had_by_cutting_it() {
    in_world(async |world| {
        let one = plain(world).await;
        let file = std::fs::File::create(world.path("f")).unwrap();
        file.set_len(1 << 30).unwrap();
        let len = || std::fs::metadata(world.path("f")).unwrap().len();
        let handle = one.take("f", libc::O_RDWR).await;
        for mode in [0, libc::FALLOC_FL_KEEP_SIZE] {
            for (at, count) in [(0, 4096), (1 << 29, 4096), (0, (1 << 30) + 1)] {
                let reserved = one.fallocate(handle, at, count, mode).await;
                assert_eq!((reserved, len()), (Err(Errno::EOPNOTSUPP), 1 << 30), "{at} {mode}");
            }
        }
        // These ranges have data already, so fallocate(2) needs no new space there; a range with a
        // hole is refused.
        one.write(handle, 0, &[1; 1 << 20]).await.unwrap();
        one.fallocate(handle, 4096, 4096, PUNCH).await.unwrap();
        one.fallocate(handle, 8192, 1 << 19, 0).await.unwrap();
        assert_eq!(one.fallocate(handle, 0, 8192, 0).await, Err(Errno::EOPNOTSUPP));
        assert_eq!(len(), 1 << 30);
        one.close(handle).await;
    });
}

#[test]
fn room_behind_a_file_without_holes_is_reserved() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let there = || std::fs::metadata(world.path("f")).unwrap();
        one.write(handle, 0, &[1; 100_000]).await.unwrap();
        one.fallocate(handle, 0, 50_000, 0).await.unwrap();
        assert_eq!(there().len(), 100_000);
        one.fallocate(handle, 0, 1 << 20, libc::FALLOC_FL_KEEP_SIZE).await.unwrap();
        assert_eq!(there().len(), 100_000);
        one.fallocate(handle, 0, 200_000, 0).await.unwrap();
        assert_eq!(there().len(), 200_000);
        let read = one.read(handle, 99_999, 3).await.unwrap();
        assert_eq!(*read, [1, 0, 0]);
        one.close(handle).await;
    });
}
