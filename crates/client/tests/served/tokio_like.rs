//! The operations that the library shares with `tokio::fs`, against a server of this process.
#![allow(missing_docs, reason = "tests")]

use crate::world;

use std::io::ErrorKind;

use frevo_client::{FileType, LockKind, OpenOptions};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::AsyncWriteExt as _;
use world::in_world;

#[test]
fn whole_files_are_written_read_copied_and_looked_for() {
    in_world(async |world| {
        let share = world.share().await;
        share.write("text", "grüße").await.unwrap();
        assert_eq!(share.read_to_string("text").await.unwrap(), "grüße");
        share.write("bytes", [0xFF, 0xFE]).await.unwrap();
        let refused = share.read_to_string("bytes").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        for len in [0, 100, 3_000_000] {
            let data = vec![7; len];
            share.write("from", &data).await.unwrap();
            assert_eq!(share.copy("from", "to").await.unwrap(), len as u64);
            assert!(share.read("to").await.unwrap() == data, "{len}");
        }
        assert!(share.exists("to").await.unwrap());
        assert!(!share.exists("nowhere").await.unwrap());
        assert!(!share.exists("nowhere/at all").await.unwrap());
        let missing = share.copy("nowhere", "to").await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn reads_and_writes_take_the_arguments_of_the_standard_library() {
    in_world(async |world| {
        let share = world.share().await;
        let options = OpenOptions::new().read(true).write(true).create_new(true);
        let file = options.open(&share, "f").await.unwrap();
        assert_eq!(file.write_at(b"abcdef", 2).await.unwrap(), 6);
        let mut buf = [1; 4];
        assert_eq!(file.read_at(&mut buf, 0).await.unwrap(), 4);
        assert_eq!(&buf, b"\0\0ab");
        file.read_exact_at(&mut buf, 4).await.unwrap();
        assert_eq!(&buf, b"cdef");
        let short = file.read_exact_at(&mut buf, 5).await.unwrap_err();
        assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(file.read_at(&mut buf, 5).await.unwrap(), 3);
        file.close().await.unwrap();
    });
}

#[test]
fn an_appending_cursor_begins_at_the_end() {
    in_world(async |world| {
        let share = world.share().await;
        for line in ["one\n", "two\n"] {
            let options = OpenOptions::new().append(true).create(true);
            let mut end = options.open(&share, "log").await.unwrap().cursor();
            end.write_all(line.as_bytes()).await.unwrap();
            end.flush().await.unwrap();
        }
        assert_eq!(share.read_to_string("log").await.unwrap(), "one\ntwo\n");
    });
}

#[test]
fn trees_are_walked_and_removed_without_following_links() {
    in_world(async |world| {
        let share = world.share().await;
        share.create_dir_all("top/one/two").await.unwrap();
        share.create_dir("beside").await.unwrap();
        for path in ["top/a", "top/one/b", "top/one/two/c", "beside/kept"] {
            share.write(path, "x").await.unwrap();
        }
        share.symlink_dir("../beside", "top/link").await.unwrap();
        let mut found: Vec<_> = share
            .walk("top")
            .map_ok(|entry| (entry.path().to_owned(), entry.file_type()))
            .try_collect()
            .await
            .unwrap();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let paths: Vec<_> = found.iter().map(|(path, _)| &**path).collect();
        let all = ["top/a", "top/link", "top/one", "top/one/b", "top/one/two", "top/one/two/c"];
        assert_eq!(paths, all);
        assert_eq!(found[0].1, FileType::File);
        assert!(found[1].1.is_symlink() && found[2].1.is_dir(), "{found:?}");
        share.remove_dir_all("top").await.unwrap();
        assert!(!share.exists("top").await.unwrap());
        assert!(share.exists("beside/kept").await.unwrap(), "behind the link");
        let missing = share.remove_dir_all("top").await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        // The walk returns an error, because the directory `top` cannot be listed.
        assert!(share.walk("top").next().await.unwrap().is_err());
    });
}

#[test]
fn renames_replace_unless_they_must_not() {
    in_world(async |world| {
        let share = world.share().await;
        share.write("a", "1").await.unwrap();
        share.write("b", "2").await.unwrap();
        let refused = share.rename_if_not_exists("a", "b").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        share.rename("a", "b").await.unwrap();
        assert_eq!(share.read_to_string("b").await.unwrap(), "1");
        share.rename_if_not_exists("b", "c").await.unwrap();
        assert!(!share.exists("b").await.unwrap());
    });
}

#[test]
fn a_lock_that_is_tried_does_not_wait() {
    in_world(async |world| {
        let share = world.share().await;
        share.write("f", "0123456789").await.unwrap();
        let options = OpenOptions::new().read(true).write(true);
        let one = options.open(&share, "f").await.unwrap();
        let other = options.open(&share, "f").await.unwrap();
        one.lock(0, 5, LockKind::Exclusive).await.unwrap();
        other.try_lock(5, 5, LockKind::Exclusive).await.unwrap();
        let refused = other.try_lock(4, 1, LockKind::Shared).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        one.unlock(0, 5).await.unwrap();
        other.lock(4, 1, LockKind::Shared).await.unwrap();
    });
}
