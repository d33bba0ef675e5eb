//! The operations against the real server in the same process, without a kernel
//! in between.

#[path = "../../../client/tests/world/mod.rs"]
mod world;

use std::ffi::OsStr;
use std::sync::Arc;

use fuser::Errno;
use world::{World, in_world};

use super::{Range, Volume};
use crate::node::ROOT;
use crate::settings::Settings;

/// A mount of its own, as another machine has it.
async fn volume(world: &World, settings: Settings) -> Arc<Volume> {
    Volume::new(world.share().await, "", settings)
}

async fn plain(world: &World) -> Arc<Volume> {
    volume(world, Settings::of(0, 0)).await
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

impl Volume {
    async fn make(&self, file: &str) -> u64 {
        self.create(ROOT, name(file), libc::O_RDWR).await.unwrap().1
    }

    async fn take(&self, file: &str, flags: i32) -> u64 {
        let told = self.lookup(ROOT, name(file)).await.unwrap();
        self.open(told.attr.ino.0, flags).await.unwrap()
    }

    async fn close(&self, handle: u64) {
        self.flush(handle, 0).await.unwrap();
        self.release(handle).await;
    }
}

#[test]
fn what_is_written_is_gathered_until_somebody_wants_it() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let writer = one.make("f").await;
        for at in 0..100 {
            one.write(writer, at * 10, &[b'a' + (at % 26) as u8; 10]).await.unwrap();
        }
        // Nothing is on the server yet, and it reads as it was written.
        assert_eq!(std::fs::metadata(world.path("f")).unwrap().len(), 0);
        assert_eq!(&*one.read(writer, 15, 10).await.unwrap(), b"bbbbbccccc");
        // Whoever opens it makes the server take the lease away first.
        let reader = two.take("f", libc::O_RDONLY).await;
        assert_eq!(&*two.read(reader, 985, 100).await.unwrap(), b"uuuuuvvvvvvvvvv");
        // Now every write goes to the server, and the reader keeps nothing.
        one.write(writer, 0, b"new").await.unwrap();
        assert_eq!(&std::fs::read(world.path("f")).unwrap()[..3], b"new");
        assert_eq!(&*two.read(reader, 0, 3).await.unwrap(), b"new");
        two.close(reader).await;
        one.close(writer).await;
    });
}

#[test]
fn close_and_attributes_see_what_was_gathered() {
    in_world(async |world| {
        let one = plain(world).await;
        let (told, handle) = one.create(ROOT, name("f"), libc::O_RDWR).await.unwrap();
        one.write(handle, 70_000, b"end").await.unwrap();
        let now = one.getattr(told.attr.ino.0).await.unwrap();
        assert_eq!(now.attr.size, 70_003);
        one.write(handle, 0, b"begin").await.unwrap();
        // By its name, and in a listing.
        one.write(handle, 80_000, b"!").await.unwrap();
        assert_eq!(one.lookup(ROOT, name("f")).await.unwrap().attr.size, 80_001);
        one.write(handle, 90_000, b"!").await.unwrap();
        let listing = one.opendir(ROOT).unwrap();
        let (parent, entries) = one.entries(listing, 2).await.unwrap();
        let [(_, super::Entry::Named(listed))] = &*entries else { panic!("one entry") };
        let told = one.tell_entry(&parent, listed.name(), *listed.metadata());
        assert_eq!(told.attr.size, 90_001);
        one.truncate(&one.nodes.find(told.attr.ino.0).unwrap(), 70_003).await.unwrap();
        one.flush(handle, 0).await.unwrap();
        let there = std::fs::read(world.path("f")).unwrap();
        assert_eq!(
            (there.len(), &there[..5], &there[70_000..]),
            (70_003, &b"begin"[..], &b"end"[..])
        );
        one.release(handle).await;
    });
}

#[test]
fn appends_go_to_the_end_of_what_was_gathered() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let flags = libc::O_RDWR | libc::O_APPEND;
        let (_, a) = one.create(ROOT, name("log"), flags).await.unwrap();
        for _ in 0..3 {
            one.write(a, 0, b"one ").await.unwrap();
        }
        let b = two.take("log", flags).await;
        two.write(b, 0, b"two ").await.unwrap();
        one.write(a, 0, b"one ").await.unwrap();
        one.close(a).await;
        two.close(b).await;
        assert_eq!(std::fs::read(world.path("log")).unwrap(), b"one one one two one ");
    });
}

#[test]
fn a_lost_connection_is_a_pause() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        for round in 0..12_u64 {
            one.write(handle, round * 4, b"data").await.unwrap();
            if round % 3 == 2 {
                for session in world.server.sessions() {
                    world.server.close_session(&session);
                }
            }
            let all = one.read(handle, 0, 100).await.unwrap();
            assert_eq!(all.len() as u64, (round + 1) * 4);
        }
        one.close(handle).await;
        assert_eq!(std::fs::read(world.path("f")).unwrap(), b"data".repeat(12));
    });
}

#[test]
fn what_was_read_is_not_believed_after_the_session_was_lost() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        std::fs::write(world.path("f"), b"old").unwrap();
        let reader = one.take("f", libc::O_RDONLY).await;
        assert_eq!(&*one.read(reader, 0, 10).await.unwrap(), b"old");
        for session in world.server.sessions() {
            world.server.close_session(&session);
        }
        let writer = two.take("f", libc::O_RDWR).await;
        two.write(writer, 0, b"new and longer").await.unwrap();
        two.close(writer).await;
        // With this one learns that its session is gone.
        one.statfs().await.unwrap();
        assert_eq!(&*one.read(reader, 0, 20).await.unwrap(), b"new and longer");
        one.close(reader).await;
    });
}

#[test]
fn a_removed_file_goes_on_until_it_is_closed() {
    in_world(async |world| {
        let one = plain(world).await;
        for plain in [false, true] {
            one.plain.store(plain, std::sync::atomic::Ordering::Relaxed);
            let handle = one.make("f").await;
            one.write(handle, 0, b"before").await.unwrap();
            one.unlink(ROOT, name("f")).await.unwrap();
            assert!(!world.path("f").exists());
            assert!(one.lookup(ROOT, name("f")).await.is_err());
            one.write(handle, 6, b" after").await.unwrap();
            assert_eq!(&*one.read(handle, 0, 100).await.unwrap(), b"before after");
            let listing = one.opendir(ROOT).unwrap();
            assert_eq!(one.entries(listing, 0).await.unwrap().1.len(), 2, "only . and ..");
            one.releasedir(listing);
            one.close(handle).await;
            assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0, "{plain}");
        }
    });
}

#[test]
fn an_open_file_is_replaced() {
    in_world(async |world| {
        let one = plain(world).await;
        for plain in [false, true] {
            one.plain.store(plain, std::sync::atomic::Ordering::Relaxed);
            for file in ["old", "new"] {
                let handle = one.make(file).await;
                one.write(handle, 0, file.as_bytes()).await.unwrap();
                one.close(handle).await;
            }
            let old = one.take("old", libc::O_RDONLY).await;
            one.rename((ROOT, name("new")), (ROOT, name("old")), 0).await.unwrap();
            assert_eq!(&*one.read(old, 0, 10).await.unwrap(), b"old", "{plain}");
            one.close(old).await;
            assert_eq!(std::fs::read(world.path("old")).unwrap(), b"new");
            assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 1);
            one.unlink(ROOT, name("old")).await.unwrap();
        }
    });
}

#[test]
fn names_are_found_by_directory_and_name() {
    in_world(async |world| {
        let one = plain(world).await;
        let known = |file| {
            let found = one.nodes.seen_as(ROOT, file);
            found.iter().map(|node| (node.id, node.path().unwrap())).collect::<Vec<_>>()
        };
        std::fs::write(world.path("a"), b"a").unwrap();
        let id = one.lookup(ROOT, name("a")).await.unwrap().attr.ino.0;
        one.link(id, ROOT, name("b")).await.unwrap();
        assert_eq!((known("a"), known("b")), (vec![(id, "b".into())], vec![(id, "b".into())]));
        // The other link stays, and its path with it.
        one.unlink(ROOT, name("b")).await.unwrap();
        assert_eq!((known("a"), known("b")), (vec![(id, "a".into())], vec![]));
        // What is in the way of a rename is known by that name no more.
        std::fs::write(world.path("c"), b"c").unwrap();
        let other = one.lookup(ROOT, name("c")).await.unwrap().attr.ino.0;
        one.rename((ROOT, name("a")), (ROOT, name("c")), 0).await.unwrap();
        assert_eq!((known("a"), known("c")), (vec![], vec![(id, "c".into())]));
        assert!(one.nodes.find(other).unwrap().path().is_err());
        // What somebody else put in its place is known beside it.
        std::fs::write(world.path("new"), b"new").unwrap();
        std::fs::rename(world.path("new"), world.path("c")).unwrap();
        let new = one.lookup(ROOT, name("c")).await.unwrap().attr.ino.0;
        assert_eq!(known("c"), [(id, "c".into()), (new, "c".into())]);
        // The kernel was told of the first by a look, by the link.
        assert!(one.nodes.forget(id, 2).is_some());
        assert_eq!(known("c"), [(new, "c".into())]);
        one.unlink(ROOT, name("c")).await.unwrap();
        assert_eq!(known("c"), []);
    });
}

#[test]
fn locks_are_processes_here_and_opens_there() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let (a, b) = (one.make("f").await, two.take("f", libc::O_RDWR).await);
        let lock = |owner, start, last| Range { owner, pid: 7, start, last, exclusive: true };
        one.setlk(a, lock(1, 10, 19), false).await.unwrap();
        // The same owner may again, another one here may not, nor one elsewhere.
        one.setlk(a, lock(1, 15, 30), false).await.unwrap();
        assert_eq!(one.setlk(a, lock(2, 12, 12), false).await, Err(Errno::EAGAIN));
        assert_eq!(two.setlk(b, lock(1, 30, 30), false).await, Err(Errno::EAGAIN));
        assert_eq!(one.getlk(a, lock(2, 0, 99)).await.unwrap().unwrap().pid, 7);
        assert!(two.getlk(b, lock(9, 12, 12)).await.unwrap().is_some());
        assert!(two.getlk(b, lock(9, 31, 40)).await.unwrap().is_none());
        one.unlock(a, lock(1, 15, 16)).await.unwrap();
        two.setlk(b, lock(1, 15, 16), false).await.unwrap();
        assert_eq!(two.setlk(b, lock(1, 17, 17), false).await, Err(Errno::EAGAIN));
        // Who waits gets it when the owner closes.
        let (waited, ()) = tokio::join!(two.setlk(b, lock(1, 17, 17), true), async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            one.flush(a, 1).await.unwrap();
        });
        waited.unwrap();
        two.flush(b, 1).await.unwrap();
        one.setlk(a, lock(1, 0, 99), false).await.unwrap();
        one.close(a).await;
        two.close(b).await;
    });
}

#[test]
fn nothing_is_changed_on_a_mount_for_reading() {
    in_world(async |world| {
        std::fs::write(world.path("f"), b"x").unwrap();
        let settings = Settings { read_only: true, ..Settings::of(0, 0) };
        let one = volume(world, settings).await;
        let told = one.lookup(ROOT, name("f")).await.unwrap();
        assert_eq!(told.attr.perm & 0o222, 0);
        let id = told.attr.ino.0;
        assert_eq!(one.open(id, libc::O_RDWR).await, Err(Errno::EROFS));
        assert_eq!(one.unlink(ROOT, name("f")).await, Err(Errno::EROFS));
        assert!(one.mkdir(ROOT, name("d")).await.is_err());
        assert!(one.create(ROOT, name("g"), libc::O_RDWR).await.is_err());
        let changes =
            super::Changes { modified: Some(std::time::UNIX_EPOCH), ..Default::default() };
        assert!(one.setattr(id, changes).await.is_err());
        assert!(one.setxattr(id, name("user.a"), b"b", 0).await.is_err());
    });
}

#[test]
fn what_is_kept_of_many_files_is_bounded() {
    in_world(async |world| {
        let limit = 8 * crate::limits::PAGE_BYTES;
        let settings = Settings { cache_bytes: limit, ..Settings::of(0, 0) };
        let one = volume(world, settings).await;
        let data = vec![7; 4 * crate::limits::PAGE_BYTES];
        let mut handles = Vec::new();
        for at in 0..6 {
            let file = format!("f{at}");
            std::fs::write(world.path(&file), &data).unwrap();
            let handle = one.take(&file, libc::O_RDONLY).await;
            assert_eq!(*one.read(handle, 0, data.len() as u32).await.unwrap(), *data);
            handles.push(handle);
            assert!(one.keeper.bytes() <= limit, "{at}");
        }
        for handle in handles {
            one.close(handle).await;
        }
        one.settle().await;
        assert_eq!(one.keeper.bytes(), 0);
    });
}
