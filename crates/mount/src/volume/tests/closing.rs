//! Operations during a close, which the kernel does not wait for.

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::volume::Changes;

/// A file of four bytes that a program has closed: its node, and the handle that the kernel has not
/// released yet.
async fn closing(volume: &Volume) -> (Arc<Node>, u64) {
    let (found, handle) = volume.create(ROOT, name("f"), libc::O_RDWR, 0o644).await.unwrap();
    volume.write(handle, 0, b"data").await.unwrap();
    volume.flush(handle, 0).await.unwrap();
    (volume.nodes.find(found.attr.ino.0).unwrap(), handle)
}

/// Closes the Open on the server; the node is not updated yet.
async fn close_half(volume: &Volume, node: &Node) {
    volume.writer(node).unwrap().close().await.unwrap();
}

#[test]
fn times_that_are_set_while_a_file_is_closed_are_set_afterwards() {
    in_world(async |world| {
        let one = plain(world).await;
        let (node, handle) = closing(&one).await;
        let wanted = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let changes = Changes { modified: Some(wanted), ..Changes::default() };
        let turn = node.opening.lock().await;
        close_half(&one, &node).await;
        let volume = Arc::clone(&one);
        let released = tokio::spawn(async move { volume.release(handle).await });
        tokio::task::yield_now().await;
        let (volume, id) = (Arc::clone(&one), node.id);
        let setting = tokio::spawn(async move { volume.setattr(id, changes).await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!setting.is_finished());
        drop(turn);
        let found = setting.await.unwrap();
        assert_eq!(found.map(|found| found.attr.mtime), Ok(wanted));
        released.await.unwrap();
        let there = std::fs::metadata(world.path("f")).unwrap().modified().unwrap();
        assert_eq!(there, wanted);
    });
}

#[test]
fn who_asks_about_a_file_that_is_being_closed_is_told() {
    in_world(async |world| {
        // With a validity of zero no attributes are cached, so `getattr` needs the file that is
        // just being closed.
        let settings = Settings { attr_timeout: Duration::ZERO, ..Settings::of(0, 0) };
        let one = volume(world, settings).await;
        let (node, handle) = closing(&one).await;
        close_half(&one, &node).await;
        let found = one.getattr(node.id).await;
        assert_eq!(found.map(|found| found.attr.size), Ok(4));
        one.release(handle).await;
    });
}

#[test]
fn a_file_that_is_opened_has_the_size_that_another_client_gave_it() {
    in_world(async |world| {
        // The attributes never expire in this test, so only the open can replace them by new ones.
        let settings = Settings { attr_timeout: Duration::from_hours(1), ..Settings::of(0, 0) };
        let one = volume(world, settings.clone()).await;
        std::fs::write(world.path("f"), b"four").unwrap();
        let id = one.lookup(ROOT, name("f")).await.unwrap().found().attr.ino.0;
        std::fs::write(world.path("f"), b"longer").unwrap();
        assert_eq!(one.getattr(id).await.map(|found| found.attr.size), Ok(4));
        let handle = one.open(id, libc::O_RDONLY).await.unwrap();
        assert_eq!(one.getattr(id).await.map(|found| found.attr.size), Ok(6));
        one.release(handle).await;
        // The second open uses the Open of the first one, which has no lease, so it must ask for
        // the attributes.
        let uncached = Settings { cache: false, ..settings };
        let two = volume(world, uncached).await;
        let handle = two.take("f", libc::O_RDONLY).await;
        std::fs::write(world.path("f"), b"longest").unwrap();
        let again = two.open(id, libc::O_RDONLY).await.unwrap();
        assert_eq!(two.getattr(id).await.map(|found| found.attr.size), Ok(7));
        two.release(again).await;
        two.release(handle).await;
    });
}
