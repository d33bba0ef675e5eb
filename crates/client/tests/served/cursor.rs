//! Files as tokio's streams of bytes, directories and changes as streams.
#![allow(missing_docs, reason = "tests")]

use crate::world;

use std::io::{ErrorKind, SeekFrom};
use std::time::Duration;

use frevo_client::{Change, File, OpenOptions, RecursiveMode};
use futures_util::stream::{StreamExt, TryStreamExt};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use world::in_world;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn bytes_stream_there_and_back() {
    in_world(async |world| {
        let share = world.share().await;
        for len in [0, 1, 262_144, 1_048_576, 9_000_001] {
            let data = bytes(len);
            let mut to = File::create(&share, "x").await.unwrap().cursor();
            let count = tokio::io::copy(&mut &*data, &mut to).await.unwrap();
            assert_eq!(count, len as u64);
            to.shutdown().await.unwrap();
            assert!(std::fs::read(world.path("x")).unwrap() == data, "{len}");
            let mut from = share.open("x").await.unwrap().cursor();
            let mut back = Vec::new();
            from.read_to_end(&mut back).await.unwrap();
            assert!(back == data, "{len}");
            assert_eq!(from.position(), len as u64);
        }
    });
}

#[test]
fn seeks_and_reads_see_what_was_written() {
    in_world(async |world| {
        let share = world.share().await;
        let mut data = bytes(3_000_000);
        share.write("x", &data).await.unwrap();
        let options = OpenOptions::new().read(true).write(true);
        let mut cursor = options.open(&share, "x").await.unwrap().cursor();
        let mut some = [0; 1000];
        cursor.read_exact(&mut some).await.unwrap();
        assert_eq!(some, data[..1000]);
        // The cursor has read this data ahead; after the write it must not return the old data.
        cursor.write_all(b"written").await.unwrap();
        data[1000..1007].copy_from_slice(b"written");
        cursor.read_exact(&mut some).await.unwrap();
        assert_eq!(some, data[1007..2007]);
        assert_eq!(cursor.seek(SeekFrom::Current(-1010)).await.unwrap(), 997);
        cursor.read_exact(&mut some).await.unwrap();
        assert_eq!(some, data[997..1997]);
        assert_eq!(cursor.seek(SeekFrom::End(-5)).await.unwrap(), 2_999_995);
        cursor.write_all(b"0123456789").await.unwrap();
        assert_eq!(cursor.seek(SeekFrom::End(0)).await.unwrap(), 3_000_005);
        data.truncate(2_999_995);
        data.extend_from_slice(b"0123456789");
        let wrong = cursor.seek(SeekFrom::Current(-4_000_000)).await.unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
        assert_eq!(cursor.seek(SeekFrom::Start(4_000_000)).await.unwrap(), 4_000_000);
        assert_eq!(cursor.read(&mut some).await.unwrap(), 0, "beyond the end");
        cursor.rewind().await.unwrap();
        let mut whole = Vec::new();
        cursor.read_to_end(&mut whole).await.unwrap();
        assert!(whole == data);
        // Another client appends to the file and later truncates it; the cursor must notice both.
        let other = OpenOptions::new().write(true).open(&share, "x").await.unwrap();
        other.write_all_at(b"more", data.len() as u64).await.unwrap();
        whole.clear();
        cursor.read_to_end(&mut whole).await.unwrap();
        assert_eq!(whole, b"more");
        cursor.rewind().await.unwrap();
        cursor.read_exact(&mut some).await.unwrap();
        other.set_len(1_000_000).await.unwrap();
        whole.clear();
        cursor.read_to_end(&mut whole).await.unwrap();
        assert!(whole.len() <= 1_300_000 && whole[..990_000] == data[1000..991_000]);
    });
}

#[test]
fn a_write_that_fails_is_told_at_the_flush() {
    in_world(async |world| {
        let share = world.share().await;
        share.write("x", b"data").await.unwrap();
        let mut cursor = share.open("x").await.unwrap().cursor();
        cursor.write_all(b"not allowed").await.unwrap();
        let error = cursor.flush().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(std::fs::read(world.path("x")).unwrap(), b"data");
    });
}

#[test]
fn directories_and_changes_are_streams() {
    in_world(async |world| {
        let share = world.share().await;
        for at in 0..300 {
            std::fs::write(world.path(&format!("file-{at}")), b"").unwrap();
        }
        let entries = share.read_dir("").await.unwrap();
        let names: Vec<_> =
            entries.map_ok(|entry| entry.file_name().to_owned()).try_collect().await.unwrap();
        assert_eq!(names.iter().filter(|name| name.starts_with("file-")).count(), 300);
        let mut changes = share.watch("", RecursiveMode::NonRecursive).await.unwrap();
        let (change, ()) =
            tokio::join!(tokio::time::timeout(Duration::from_secs(20), changes.next()), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                share.write("new", b"").await.unwrap();
            });
        assert_eq!(change.unwrap().unwrap().unwrap(), Change::Added("new".into()));
    });
}
