//! The errno of what the server refuses.

use super::*;
use crate::limits::PATH_BYTES;

#[test]
fn a_directory_with_an_open_file_is_busy() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let id = one.mkdir(ROOT, name("d"), 0o755).await.unwrap().attr.ino.0;
        let (_, handle) = one.create(id, name("f"), libc::O_RDWR, 0o644).await.unwrap();
        for flags in [0, libc::RENAME_NOREPLACE] {
            let refused = one.rename((ROOT, name("d")), (ROOT, name("e")), flags).await;
            assert_eq!(refused, Err(Errno::EBUSY), "{flags}");
            // This mount does not know which files below `d` another client has open, so it returns
            // the server's refusal.
            two.lookup(ROOT, name("d")).await.unwrap();
            let refused = two.rename((ROOT, name("d")), (ROOT, name("e")), flags).await;
            assert_eq!(refused, Err(Errno::EACCES), "{flags}");
        }
        one.close(handle).await;
        one.rename((ROOT, name("d")), (ROOT, name("e")), 0).await.unwrap();
        assert!(world.path("e/f").exists());
    });
}

#[test]
fn a_path_that_is_too_long_is_refused_by_its_name() {
    in_world(async |world| {
        let one = plain(world).await;
        let part = "d".repeat(250);
        let mut at = Arc::clone(one.nodes.root());
        let now = std::time::Instant::now();
        let directory = one.share.lookup("").await.unwrap();
        let mut depth = 0;
        while at.below(&part).is_ok() {
            depth += 1;
            at = one.nodes.found(&at, &part, directory.with_file_id(1_000 + depth), now);
        }
        assert_eq!(depth, PATH_BYTES as u64 / 251);
        let long = Some(Errno::ENAMETOOLONG);
        assert_eq!(one.lookup(at.id, name(&part)).await.err(), long);
        assert_eq!(one.mkdir(at.id, name(&part), 0o755).await.err(), long);
        let exclusive = libc::O_RDWR | libc::O_EXCL;
        assert_eq!(one.create(at.id, name(&part), exclusive, 0o644).await.err(), long);
        assert_eq!(one.unlink(at.id, name(&part)).await.err(), long);
        assert_eq!(one.symlink(at.id, name(&part), "x".as_ref()).await.err(), long);
        assert_eq!(one.lookup(ROOT, name(&"x".repeat(256))).await.err(), long);
    });
}
