//! The operations against the real server in one process, without a kernel.

#[path = "../../../client/tests/nodes/mod.rs"]
mod nodes;
#[path = "../../../client/tests/world/mod.rs"]
mod world;

mod close_to_open;
mod closing;
mod directories;
mod failures;
mod filling;
mod killed;
mod locks;
mod moved;
mod posix;
mod random_reads;
mod ranges;
mod read_only;
mod refusals;
mod removing;
mod replaced;
mod round_trips;

use std::ffi::OsStr;
use std::sync::Arc;

use fuser::Errno;
use world::{World, in_world};

use super::{Changes, EntryReply, NameLookup, Volume};
use crate::node::{Node, ROOT};
use crate::settings::Settings;

/// Returns a mount of its own, as on another machine.
async fn volume(world: &World, settings: Settings) -> Arc<Volume> {
    Volume::new(world.share().await, "", settings)
}

async fn plain(world: &World) -> Arc<Volume> {
    volume(world, Settings::of(0, 0)).await
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

impl NameLookup {
    fn found(self) -> EntryReply {
        match self {
            Self::Found(found, _) => found,
            Self::Absent(_) => panic!("it is not there"),
        }
    }
}

impl Volume {
    async fn make(&self, file: &str) -> u64 {
        self.create(ROOT, name(file), libc::O_RDWR, 0o644).await.unwrap().1
    }

    /// Opens a file by its name. As the kernel does, it looks the name up again after ESTALE.
    async fn take(&self, file: &str, flags: i32) -> u64 {
        let look = async || self.lookup(ROOT, name(file)).await.unwrap().found().attr.ino.0;
        match self.open(look().await, flags).await {
            Err(error) if error == Errno::from_i32(libc::ESTALE) => {
                self.open(look().await, flags).await.unwrap()
            }
            opened => opened.unwrap(),
        }
    }

    async fn close(&self, handle: u64) {
        self.flush(handle, 0).await.unwrap();
        self.release(handle).await;
    }

    /// Returns the only node with this name.
    fn node_of(&self, file: &str) -> Arc<Node> {
        let [node] = &*self.nodes.seen_as(ROOT, file) else { panic!("{file}") };
        Arc::clone(node)
    }
}

/// Ends all sessions of the server without a message.
fn end_sessions(world: &World) {
    for session in world.server.sessions() {
        world.server.close_session(&session, "a test");
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
        // No data has been sent to the server yet, but this mount's reads return the unsent data.
        assert_eq!(std::fs::metadata(world.path("f")).unwrap().len(), 0);
        assert_eq!(&*one.read(writer, 15, 10).await.unwrap(), b"bbbbbccccc");
        // When another client opens the file, the server breaks the lease, and the mount sends its
        // data before the other client reads.
        let reader = two.take("f", libc::O_RDONLY).await;
        assert_eq!(&*two.read(reader, 985, 100).await.unwrap(), b"uuuuuvvvvvvvvvv");
        // The other client still has the file open, so each write goes to the server at once, and
        // reads are not cached.
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
        let (found, handle) = one.create(ROOT, name("f"), libc::O_RDWR, 0o644).await.unwrap();
        one.write(handle, 70_000, b"end").await.unwrap();
        let now = one.getattr(found.attr.ino.0).await.unwrap();
        assert_eq!(now.attr.size, 70_003);
        one.write(handle, 0, b"begin").await.unwrap();
        // While data is unsent, a look-up and a listing must report the size that includes it.
        one.write(handle, 80_000, b"!").await.unwrap();
        assert_eq!(one.lookup(ROOT, name("f")).await.unwrap().found().attr.size, 80_001);
        one.write(handle, 90_000, b"!").await.unwrap();
        let listing = one.opendir(ROOT).unwrap();
        let listed = one.entries(listing, 2, false).await.unwrap();
        let entries: Vec<_> = listed.entries().collect();
        let [(3, super::Entry::Named(entry))] = *entries else { panic!("one entry") };
        let found = one.reply_listed(&listed, entry);
        assert_eq!(found.attr.size, 90_001);
        one.truncate(&one.nodes.find(found.attr.ino.0).unwrap(), 70_003).await.unwrap();
        one.flush(handle, 0).await.unwrap();
        let there = std::fs::read(world.path("f")).unwrap();
        assert_eq!(
            (there.len(), &there[..5], &there[70_000..]),
            (70_003, &b"begin"[..], &b"end"[..])
        );
        one.release(handle).await;
    });
}

/// A change of the mode keeps the attribute ARCHIVE of data that was gathered before it.
#[test]
fn a_mode_keeps_the_mark_for_the_next_backup() {
    in_world(async |world| {
        std::fs::write(world.path("f"), b"of the host").unwrap();
        let one = plain(world).await;
        let handle = one.take("f", libc::O_RDWR).await;
        one.write(handle, 0, b"data").await.unwrap();
        let found = one.lookup(ROOT, name("f")).await.unwrap().found();
        let changes = Changes { mode: Some(0o100_444), ..Default::default() };
        one.setattr(found.attr.ino.0, changes).await.unwrap();
        one.close(handle).await;
        // In user.DOSATTRIB (version 5) the bytes 12 to 16 are the FILE_ATTRIBUTE_* bits, as seen
        // on the server's disk.
        let mut value = [0; 64];
        rustix::fs::getxattr(world.path("f"), "user.DOSATTRIB", &mut value).unwrap();
        assert_eq!(value[12], 0x21, "READONLY and ARCHIVE");
    });
}

#[test]
fn appends_go_to_the_end_of_what_was_gathered() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let flags = libc::O_RDWR | libc::O_APPEND;
        let (_, a) = one.create(ROOT, name("log"), flags, 0o644).await.unwrap();
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
                end_sessions(world);
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
        end_sessions(world);
        let writer = two.take("f", libc::O_RDWR).await;
        two.write(writer, 0, b"new and longer").await.unwrap();
        two.close(writer).await;
        // The session has ended on the server. This request notices that, and a new session is set
        // up.
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
            assert!(!matches!(one.lookup(ROOT, name("f")).await, Ok(NameLookup::Found(..))));
            one.write(handle, 6, b" after").await.unwrap();
            assert_eq!(&*one.read(handle, 0, 100).await.unwrap(), b"before after");
            let listing = one.opendir(ROOT).unwrap();
            assert_eq!(
                one.entries(listing, 0, false).await.unwrap().entries().count(),
                2,
                "only . and .."
            );
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
        let id = one.lookup(ROOT, name("a")).await.unwrap().found().attr.ino.0;
        one.link(id, ROOT, name("b")).await.unwrap();
        assert_eq!((known("a"), known("b")), (vec![(id, "b".into())], vec![(id, "b".into())]));
        // The file has two links. After `b` was removed, it keeps the name `a`.
        one.unlink(ROOT, name("b")).await.unwrap();
        assert_eq!((known("a"), known("b")), (vec![(id, "a".into())], vec![]));
        // The replaced file loses its name `c`, which the renamed file gets.
        std::fs::write(world.path("c"), b"c").unwrap();
        let other = one.lookup(ROOT, name("c")).await.unwrap().found().attr.ino.0;
        one.rename((ROOT, name("a")), (ROOT, name("c")), 0).await.unwrap();
        assert_eq!((known("a"), known("c")), (vec![], vec![(id, "c".into())]));
        assert!(one.nodes.find(other).unwrap().path().is_err());
        // Another client puts a new file at the name `c`, so two nodes have this name.
        std::fs::write(world.path("new"), b"new").unwrap();
        std::fs::rename(world.path("new"), world.path("c")).unwrap();
        let new = one.lookup(ROOT, name("c")).await.unwrap().found().attr.ino.0;
        assert_eq!(known("c"), [(id, "c".into()), (new, "c".into())]);
        // The kernel has looked up the first node twice (by name and by the link), so the node is
        // removed when the kernel forgets two look-ups.
        assert!(one.nodes.forget(id, 2).is_some());
        assert_eq!(known("c"), [(new, "c".into())]);
        one.unlink(ROOT, name("c")).await.unwrap();
        assert_eq!(known("c"), []);
    });
}

#[test]
fn nothing_is_changed_on_a_mount_for_reading() {
    in_world(async |world| {
        std::fs::write(world.path("f"), b"x").unwrap();
        let settings = Settings { read_only: true, ..Settings::of(0, 0) };
        let one = volume(world, settings).await;
        let found = one.lookup(ROOT, name("f")).await.unwrap().found();
        assert_eq!(found.attr.perm & 0o222, 0);
        let id = found.attr.ino.0;
        assert_eq!(one.open(id, libc::O_RDWR).await, Err(Errno::EROFS));
        assert_eq!(one.unlink(ROOT, name("f")).await, Err(Errno::EROFS));
        assert!(one.mkdir(ROOT, name("d"), 0o755).await.is_err());
        assert!(one.create(ROOT, name("g"), libc::O_RDWR, 0o644).await.is_err());
        let changes = Changes { modified: Some(std::time::UNIX_EPOCH), ..Default::default() };
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
            assert!(one.budget.bytes() <= limit, "{at}");
        }
        for handle in handles {
            one.close(handle).await;
        }
        one.settle().await;
        assert_eq!(one.budget.bytes(), 0);
    });
}

#[test]
fn what_is_mapped_goes_to_its_place_through_a_handle_that_appends() {
    in_world(async |world| {
        for cache in [true, false] {
            let one = volume(world, Settings { cache, ..Settings::of(0, 0) }).await;
            std::fs::write(world.path("f"), b"0123456789").unwrap();
            let handle = one.take("f", libc::O_RDWR | libc::O_APPEND).await;
            one.write_back(handle, 2, b"map").await.unwrap();
            one.write(handle, 0, b"end").await.unwrap();
            one.close(handle).await;
            assert_eq!(std::fs::read(world.path("f")).unwrap(), b"01map56789end");
        }
    });
}

#[test]
fn notes_of_pages_do_not_outgrow_the_pages() {
    use crate::limits::EVICTED_QUEUE_MAX;
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("f"), b"data").unwrap();
        let handle = one.take("f", libc::O_RDWR).await;
        let node = one.node_of("f");
        let content = node.content().unwrap();
        for _ in 0..3 * EVICTED_QUEUE_MAX / 2 {
            content.forget();
            assert_eq!(one.read(handle, 0, 10).await.unwrap().len(), 4);
        }
        assert_eq!(one.budget.bytes(), crate::limits::PAGE_BYTES);
        assert!(one.budget.notes() <= EVICTED_QUEUE_MAX + 2, "{}", one.budget.notes());
        one.close(handle).await;
    });
}

#[test]
fn what_was_written_makes_room_once_it_is_sent() {
    use crate::limits::PAGE_BYTES;
    in_world(async |world| {
        let limit = 4 * PAGE_BYTES;
        let one = volume(world, Settings { cache_bytes: limit, ..Settings::of(0, 0) }).await;
        let handle = one.make("f").await;
        let page = vec![1; PAGE_BYTES];
        // More data than the limit for one request is written, and all of it is still unsent.
        for at in 0..12 {
            one.write(handle, (at * PAGE_BYTES) as u64, &page).await.unwrap();
        }
        assert_eq!(one.budget.unsent(), 12 * PAGE_BYTES as u64);
        one.fsync(handle).await.unwrap();
        assert_eq!(one.budget.unsent(), 0);
        one.write(handle, 12 * PAGE_BYTES as u64, &page).await.unwrap();
        assert!(one.budget.bytes() <= limit, "{}", one.budget.bytes() / PAGE_BYTES);
        // Although a send was cancelled, the close leaves no unsent bytes behind.
        one.close(handle).await;
        assert_eq!((one.budget.bytes(), one.budget.unsent()), (0, 0));
    });
}

#[test]
fn many_small_writes_are_sent_before_their_second_is_over() {
    use crate::limits::{WRITE_BACK_EXTENTS, WRITE_BACK_FACTOR};
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let node = one.node_of("f");
        let most = WRITE_BACK_FACTOR * WRITE_BACK_EXTENTS;
        for at in 0..=most as u64 {
            one.write(handle, at * 2, b"x").await.unwrap();
            assert!(node.content().unwrap().unsent_extents() <= most);
        }
        assert!(one.budget.unsent() < most as u64);
        one.close(handle).await;
    });
}

#[test]
fn what_the_kernel_forgets_is_closed() {
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("f"), b"data").unwrap();
        let handle = one.take("f", libc::O_RDONLY).await;
        assert_eq!(one.read(handle, 0, 4).await.unwrap().len(), 4);
        one.close(handle).await;
        let node = one.node_of("f");
        let (id, file) = (node.id, one.reader(&node).expect("kept open for a while"));
        let lease = node.content().unwrap().lease.clone();
        let works = crate::poll_inline::Works::on(tokio::runtime::Handle::current());
        let bridge = crate::bridge::Bridge { volume: Arc::clone(&one), works };
        // The call comes from a thread outside of the runtime, as the calls of fuser do.
        std::thread::spawn(move || bridge.forgotten(id, u64::MAX)).join().unwrap();
        assert!(one.nodes.find(id).is_err());
        for _ in 0..200 {
            if lease.state().is_empty() && one.kept.lock().is_empty() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(file.metadata().await.is_err(), "closed on the server");
        assert!(one.kept.lock().is_empty());
    });
}

#[test]
fn what_was_kept_open_does_not_stay_so_after_an_open_that_failed() {
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("f"), b"data").unwrap();
        let handle = one.take("f", libc::O_RDONLY).await;
        one.read(handle, 0, 4).await.unwrap();
        one.close(handle).await;
        let node = one.node_of("f");
        assert!(node.is_open() && one.kept.lock().len() == 1);
        std::fs::remove_file(world.path("f")).unwrap();
        assert!(one.open(node.id, libc::O_RDWR).await.is_err());
        assert!(!node.is_open() && one.kept.lock().is_empty());
    });
}

#[test]
fn what_the_server_said_before_a_write_is_not_believed_after_it() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let node = one.node_of("f");
        let asked = std::time::Instant::now();
        let old = one.share.lookup("f").await.unwrap();
        one.write(handle, 0, b"written meanwhile").await.unwrap();
        // The attributes are older than the write. They are wrong while the written data is still
        // unsent and also after it was sent, so they are never used.
        node.set_metadata(old, asked);
        assert!(node.known().is_none());
        one.flush(handle, 0).await.unwrap();
        node.set_metadata(old, asked);
        assert_eq!(one.getattr(node.id).await.unwrap().attr.size, 17);
        // The listing began before the write and ends after it, so the attributes that it has for
        // `g` are outdated.
        std::fs::write(world.path("g"), b"").unwrap();
        let listing = one.opendir(ROOT).unwrap();
        let listed = one.entries(listing, 0, false).await.unwrap();
        let other = one.take("g", libc::O_RDWR).await;
        one.write(other, 0, b"more").await.unwrap();
        one.close(other).await;
        for (_, entry) in listed.entries() {
            let super::Entry::Named(entry) = entry else { continue };
            let found = one.reply_listed(&listed, entry);
            let size = one.getattr(found.attr.ino.0).await.unwrap().attr.size;
            assert!(found.attr.size == size || found.ttl.is_zero(), "{}", entry.file_name());
        }
        one.close(handle).await;
    });
}

#[test]
fn made_up_numbers_go_with_their_files() {
    in_world(async |world| {
        let one = plain(world).await;
        let (root, now) = (one.nodes.root().clone(), std::time::Instant::now());
        // The server reports no file numbers (0), so numbers are made up from names and must stay
        // with a renamed file.
        let metadata = frevo_client::Metadata::default();
        let found = |file| one.nodes.found(&root, file, metadata, now).id;
        let a = found("a");
        assert_eq!(found("a"), a);
        one.nodes.renamed((ROOT, "a"), (&root, "b"));
        assert_eq!(found("b"), a, "it is the same");
        let new = found("a");
        assert_ne!(new, a, "another one took its old name");
        one.nodes.removed(ROOT, "a");
        assert!(![a, new].contains(&found("a")));
    });
}

#[test]
fn a_file_of_two_links_goes_with_both() {
    in_world(async |world| {
        let one = plain(world).await;
        one.plain.store(true, std::sync::atomic::Ordering::Relaxed);
        let handle = one.make("a").await;
        let node = one.node_of("a");
        one.link(node.id, ROOT, name("b")).await.unwrap();
        one.unlink(ROOT, name("a")).await.unwrap();
        one.unlink(ROOT, name("b")).await.unwrap();
        one.write(handle, 0, b"on").await.unwrap();
        one.close(handle).await;
        assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
    });
}

#[test]
fn a_hard_link_is_opened_beside_the_file() {
    in_world(async |world| {
        let one = plain(world).await;
        let reader = {
            std::fs::write(world.path("a"), b"data").unwrap();
            std::fs::hard_link(world.path("a"), world.path("b")).unwrap();
            one.take("a", libc::O_RDONLY).await
        };
        assert_eq!(&*one.read(reader, 0, 9).await.unwrap(), b"data");
        let writer = one.take("b", libc::O_RDWR).await;
        one.write(writer, 0, b"new!").await.unwrap();
        assert_eq!(&*one.read(reader, 0, 9).await.unwrap(), b"new!");
        one.close(writer).await;
        one.close(reader).await;
        assert_eq!(std::fs::read(world.path("a")).unwrap(), b"new!");
    });
}
