//! Failures, and the handles that report them.

use super::*;
use crate::volume::opens::WRITING;

/// Makes the server lose its Opens: every request about them fails.
async fn lose_opens(volume: &Volume, file: &str) {
    let node = volume.node_of(file);
    volume.writer(&node).unwrap().close().await.unwrap();
}

#[test]
fn a_write_that_failed_is_not_read() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        std::fs::write(world.path("f"), b"there").unwrap();
        let reader = one.take("f", libc::O_RDONLY).await;
        let writer = one.take("f", libc::O_WRONLY).await;
        // Another mount has the file open, so this mount may cache reads but must send writes at
        // once.
        let other = two.take("f", libc::O_RDWR).await;
        for _ in 0..2 {
            assert_eq!(&*one.read(reader, 0, 10).await.unwrap(), b"there");
        }
        lose_opens(&one, "f").await;
        assert!(one.write(writer, 0, b"never stored").await.is_err());
        if let Ok(found) = one.read(reader, 0, 20).await {
            assert_eq!(&*found, b"there");
        }
        two.close(other).await;
    });
}

#[test]
fn whoever_flushes_learns_of_what_another_could_not_send() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let node = one.node_of("f");
        let content = node.content().unwrap();
        one.write(handle, 0, b"lost").await.unwrap();
        lose_opens(&one, "f").await;
        // The earlier send has failed, so the flush finds no unsent data, but it must still report
        // the error.
        assert!(content.send().await.is_err());
        assert!(one.flush(handle, 0).await.is_err());
        one.release(handle).await;
    });
}

#[test]
fn who_only_looks_or_reads_is_not_told_in_the_place_of_who_wrote() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let node = one.node_of("f");
        let (reader, other) =
            (one.take("f", libc::O_RDONLY).await, one.take("f", libc::O_RDWR).await);
        one.write(handle, 0, b"lost").await.unwrap();
        lose_opens(&one, "f").await;
        // `getattr` sends the data first to learn the size; the sending fails, and the writer's
        // handle reports that later.
        assert_eq!(one.getattr(node.id).await.unwrap().attr.size, 0);
        one.flush(reader, 0).await.unwrap();
        assert!(one.write(handle, 0, b"more").await.is_err(), "a write says it too");
        assert!(one.flush(handle, 0).await.is_ok(), "and once");
        assert!(one.fsync(other).await.is_err());
        assert!(one.flush(other, 0).await.is_ok());
        for handle in [handle, reader, other] {
            one.release(handle).await;
        }
    });
}

#[test]
fn what_is_lost_when_all_is_over_is_counted() {
    in_world(async |world| {
        let one = plain(world).await;
        let (kept, lost) = (one.make("kept").await, one.make("lost").await);
        one.write(kept, 0, b"stored").await.unwrap();
        one.write(lost, 0, b"lost").await.unwrap();
        assert_eq!(one.unsent_and_lost(), (10, 0));
        lose_opens(&one, "lost").await;
        one.settle().await;
        assert_eq!(one.unsent_and_lost(), (0, 4));
        assert_eq!(std::fs::read(world.path("kept")).unwrap(), b"stored");
    });
}

#[test]
fn what_of_a_file_got_there_is_not_counted_as_lost() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let lease = one.node_of("f").content().unwrap().lease.clone();
        // The second Open has the same lease key, so its lock does not break the mount's lease, but
        // makes the write at 100 fail.
        let options = one.options(WRITING).read(true).write(true).shared_lease(&lease);
        let other = options.open(&one.share, "f").await.unwrap();
        other.try_lock(100, 10, frevo_client::LockKind::Exclusive).await.unwrap();
        one.write(handle, 0, b"stored").await.unwrap();
        one.write(handle, 100, b"lost").await.unwrap();
        assert_eq!(one.unsent_and_lost(), (10, 0));
        assert!(one.flush(handle, 0).await.is_err());
        assert_eq!(one.unsent_and_lost(), (0, 4));
        assert_eq!(std::fs::read(world.path("f")).unwrap(), b"stored");
        other.close().await.unwrap();
        one.release(handle).await;
    });
}

#[test]
fn who_syncs_without_writing_has_all_synced_that_was_written() {
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("f"), b"data").unwrap();
        let reader = one.take("f", libc::O_RDONLY).await;
        let node = one.node_of("f");
        assert!(one.writer(&node).is_none());
        one.fsync(reader).await.unwrap();
        assert!(one.writer(&node).is_some(), "a FLUSH needs one that writes");
        one.close(reader).await;
        assert!(!node.is_open());
    });
}

/// The program that wrote was killed, and the kernel forgot the file while its data was being sent.
#[test]
fn what_of_a_forgotten_file_is_unsent_is_waited_for_and_told() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let id = one.node_of("f").id;
        one.write(handle, 0, b"late").await.unwrap();
        // The server does not come back for a while, so the data stays unsent.
        world.wire.down.store(true, std::sync::atomic::Ordering::SeqCst);
        end_sessions(world);
        let closing = Arc::clone(&one);
        let released = tokio::task::spawn_local(async move { closing.release(handle).await });
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        one.forget_one(id);
        assert_eq!(one.nodes.find(id).err(), Some(Errno::from_i32(libc::ESTALE)));
        let settled = tokio::time::timeout(std::time::Duration::from_millis(100), one.settle());
        assert!(settled.await.is_err(), "the end waits for the data");
        assert_eq!(one.not_saved(0), 4);
        world.wire.down.store(false, std::sync::atomic::Ordering::SeqCst);
        one.settle().await;
        assert_eq!(std::fs::read(world.path("f")).unwrap(), b"late");
        assert_eq!(one.not_saved(0), 0);
        released.await.unwrap();
        assert!(one.forgotten.lock().is_empty(), "nothing keeps a closed file");
    });
}

/// Data whose sending failed is neither unsent nor on the server: whoever does not wait for the end is
/// told of it, too.
#[test]
fn what_was_lost_during_the_end_counts_as_not_saved() {
    in_world(async |world| {
        let one = plain(world).await;
        let (told, lost) = (one.make("told").await, one.make("lost").await);
        one.write(told, 0, b"told of").await.unwrap();
        lose_opens(&one, "told").await;
        assert!(one.flush(told, 0).await.is_err(), "the program is told");
        let before = one.unsent_and_lost().1;
        one.write(lost, 0, b"lost").await.unwrap();
        assert_eq!(one.not_saved(before), 4, "it is unsent");
        lose_opens(&one, "lost").await;
        one.settle().await;
        assert_eq!((one.unsent_and_lost(), one.not_saved(before)), ((0, 11), 4));
    });
}
