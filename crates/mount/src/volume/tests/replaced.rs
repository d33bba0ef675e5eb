//! Names that lead to another file than the kernel has cached, and renamed files.

use super::*;

/// Puts another file in the place of `f`, as programs do that save.
fn replace(world: &World, text: &str) {
    std::fs::write(world.path("new"), text).unwrap();
    std::fs::rename(world.path("new"), world.path("f")).unwrap();
}

#[test]
fn what_is_not_the_file_any_more_is_not_opened_in_its_place() {
    in_world(async |world| {
        let one = plain(world).await;
        for listed in [false, true] {
            replace(world, "old");
            let old = one.lookup(ROOT, name("f")).await.unwrap().found().attr.ino.0;
            if listed {
                let listing = one.opendir(ROOT).unwrap();
                one.entries(listing, 0, false).await.unwrap();
                one.releasedir(listing);
            }
            replace(world, "other");
            for flags in [libc::O_RDONLY, libc::O_RDWR] {
                assert_eq!(one.open(old, flags).await, Err(Errno::from_i32(libc::ESTALE)));
            }
            // After ESTALE the kernel looks the name up again and opens the new file.
            let new = one.take("f", libc::O_RDONLY).await;
            assert_eq!(&*one.read(new, 0, 10).await.unwrap(), b"other");
            one.close(new).await;
        }
    });
}

#[test]
fn the_lease_of_a_file_is_not_asked_for_on_the_one_in_its_place() {
    in_world(async |world| {
        let one = plain(world).await;
        replace(world, "old");
        let old = one.take("f", libc::O_RDONLY).await;
        let node = one.node_of("f");
        one.read(old, 0, 10).await.unwrap();
        replace(world, "other");
        // `old` can only read, so opening for writing needs a new Open, which finds the new file.
        assert_eq!(one.open(node.id, libc::O_RDWR).await, Err(Errno::from_i32(libc::ESTALE)));
        let new = one.take("f", libc::O_RDWR).await;
        assert_eq!(&*one.read(new, 0, 10).await.unwrap(), b"other");
        assert_eq!(&*one.read(old, 0, 10).await.unwrap(), b"old");
        one.close(new).await;
        one.close(old).await;
    });
}

#[test]
fn what_is_to_be_made_and_is_there_is_emptied_if_that_was_wanted() {
    in_world(async |world| {
        let one = plain(world).await;
        for (flags, left) in [(libc::O_RDWR, "long"), (libc::O_WRONLY | libc::O_TRUNC, "")] {
            std::fs::write(world.path("f"), "long").unwrap();
            let (found, handle) = one.create(ROOT, name("f"), flags, 0o644).await.unwrap();
            assert_eq!(found.attr.size, left.len() as u64);
            one.close(handle).await;
            assert_eq!(std::fs::read_to_string(world.path("f")).unwrap(), left);
        }
    });
}

#[test]
fn a_file_whose_handle_was_lost_can_be_opened_again() {
    in_world(async |world| {
        // Without a lease the Open is not durable, so the server drops it with the session.
        let one = volume(world, Settings { cache: false, ..Settings::of(0, 0) }).await;
        std::fs::write(world.path("f"), "data").unwrap();
        let lost = one.take("f", libc::O_RDONLY).await;
        assert_eq!(one.read(lost, 0, 10).await.unwrap().len(), 4);
        // The file was renamed while the client had no session, so reopening it by its name fails.
        end_sessions(world);
        std::fs::rename(world.path("f"), world.path("g")).unwrap();
        one.statfs().await.unwrap();
        let stale = Err(Errno::from_i32(libc::ESTALE));
        assert_eq!(one.read(lost, 0, 10).await.map(drop), stale);
        let found = one.lookup(ROOT, name("g")).await.unwrap().found();
        assert_eq!(one.getattr(found.attr.ino.0).await.unwrap().attr.size, 4);
        let again = one.take("g", libc::O_RDONLY).await;
        assert_eq!(&*one.read(again, 0, 10).await.unwrap(), b"data");
        one.close(again).await;
        one.close(lost).await;
    });
}
