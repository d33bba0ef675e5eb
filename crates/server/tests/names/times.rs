//! Times as clients set, freeze and see them: MS-FSA 2.1.5.15.2 and 2.1.4.17.

use std::time::Duration;

use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::query_info;
use frevo_wire::dtyp::{FileAttributes, FileTime};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::query::FileBasicInformation;

use super::calls::*;
use crate::client::files::flush_draft;
use crate::client::*;

const LEAVE: FileTime = FileTime(0);
const FREEZE: FileTime = FileTime(u64::MAX);
const THAW: FileTime = FileTime(u64::MAX - 1);

async fn basic(peer: &mut Peer, mount: &Mount, file: FileId) -> FileBasicInformation {
    let reply = peer.on(mount, query_draft(FileInfoClass::BASIC, file)).await;
    reply.ok();
    let output = query_info::Response::parse(&reply.message).unwrap().output;
    FileBasicInformation::parse(output).unwrap()
}

/// LastWriteTime and ChangeTime.
async fn set(peer: &mut Peer, mount: &Mount, file: FileId, written: FileTime, changed: FileTime) {
    let mut bytes = vec![0; 16];
    bytes.extend_from_slice(&written.0.to_le_bytes());
    bytes.extend_from_slice(&changed.0.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    peer.on(mount, set_draft(FileInfoClass::BASIC, file, &bytes)).await.ok();
}

/// The clock moves far enough for any file system to note it.
fn a_moment() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn times_that_are_set_stay_through_their_open() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let (written, changed) = (FileTime::from_unix(-1, 0), FileTime::from_unix(1_000_000, 700));
        set(&mut peer, &mount, file, written, changed).await;
        let now = basic(&mut peer, &mount, file).await;
        assert_eq!((now.last_write_time, now.change_time), (written, changed));
        // The times were set through this Open, so its later changes do not move them.
        a_moment();
        peer.write(&mount, file, 0, b"data").await;
        let hidden = [&[0; 32][..], &FileAttributes::HIDDEN.0.to_le_bytes(), &[0; 4]].concat();
        peer.on(&mount, set_draft(FileInfoClass::BASIC, file, &hidden)).await.ok();
        let end = set_draft(FileInfoClass::END_OF_FILE, file, &2u64.to_le_bytes());
        peer.on(&mount, end).await.ok();
        let now = basic(&mut peer, &mount, file).await;
        assert_eq!((now.last_write_time, now.change_time), (written, changed));
        // MS-FSA 2.1.4.17: setting the file's end gives it the attribute ARCHIVE.
        assert_eq!(now.attributes, FileAttributes::HIDDEN | FileAttributes::ARCHIVE);
        peer.close(&mount, file).await;
        // The times stay as they were set, even after the close. A change through another Open
        // moves them.
        let other = peer.open_file(&mount, &Want::existing("f")).await;
        let now = basic(&mut peer, &mount, other).await;
        assert_eq!((now.last_write_time, now.change_time), (written, changed));
        a_moment();
        peer.write(&mount, other, 0, b"more").await;
        let now = basic(&mut peer, &mount, other).await;
        assert!(now.last_write_time > written && now.change_time > changed);
    });
}

#[test]
fn times_freeze_and_thaw() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let before = basic(&mut peer, &mount, file).await;
        set(&mut peer, &mount, file, FREEZE, FREEZE).await;
        a_moment();
        peer.write(&mount, file, 0, b"data").await;
        let frozen = basic(&mut peer, &mount, file).await;
        assert_eq!(frozen.last_write_time, before.last_write_time);
        assert_eq!(frozen.change_time, before.change_time);
        // 0 (no change) does not let the times move again, but -2 (THAW) does.
        set(&mut peer, &mount, file, LEAVE, LEAVE).await;
        set(&mut peer, &mount, file, THAW, LEAVE).await;
        a_moment();
        peer.write(&mount, file, 0, b"data").await;
        let now = basic(&mut peer, &mount, file).await;
        assert!(now.last_write_time > before.last_write_time);
        assert_eq!(now.change_time, before.change_time);
        set(&mut peer, &mount, file, LEAVE, THAW).await;
        a_moment();
        peer.write(&mount, file, 0, b"data").await;
        assert!(basic(&mut peer, &mount, file).await.change_time > before.change_time);
    });
}

/// MS-FSA 2.1.4.17: an operation of an Open that keeps times leaves them as they are, which another
/// Open may have moved since they were set.
#[test]
fn times_that_another_open_moves_stay_moved() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let set_time = FileTime::from_unix(1_000_000, 700);
        for (written, changed) in [(set_time, set_time), (FREEZE, FREEZE)] {
            let first = peer.open_file(&mount, &Want::file("f")).await;
            let other = peer.open_file(&mount, &Want::existing("f")).await;
            set(&mut peer, &mount, first, written, changed).await;
            let kept = basic(&mut peer, &mount, first).await;
            a_moment();
            peer.write(&mount, other, 0, b"data of the other").await;
            let moved = basic(&mut peer, &mount, other).await;
            assert!(moved.last_write_time > kept.last_write_time);
            assert!(moved.change_time > kept.change_time);
            a_moment();
            peer.write(&mount, first, 0, b"own").await;
            let end = set_draft(FileInfoClass::END_OF_FILE, first, &2u64.to_le_bytes());
            peer.on(&mount, end).await.ok();
            let now = basic(&mut peer, &mount, other).await;
            assert_eq!(now.last_write_time, moved.last_write_time);
            assert_eq!(now.change_time, moved.change_time);
            // The other Open did not set times, so its write moves them.
            a_moment();
            peer.write(&mount, other, 0, b"data").await;
            let later = basic(&mut peer, &mount, other).await;
            assert!(later.last_write_time > now.last_write_time);
            assert!(later.change_time > now.change_time);
            for id in [first, other] {
                peer.close(&mount, id).await;
            }
        }
    });
}

/// MS-FSA 2.1.5.15.1: space without data moves ChangeTime alone, a cut both times.
#[test]
fn allocation_moves_the_time_of_change() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, &[1; 10_000]).await;
        let mut before = basic(&mut peer, &mount, file).await;
        for (bytes, is_cut) in
            [(1_u64 << 20, false), (10_000, false), (9_000, false), (4_096, true)]
        {
            a_moment();
            let draft = set_draft(FileInfoClass::ALLOCATION, file, &bytes.to_le_bytes());
            peer.on(&mount, draft).await.ok();
            let now = basic(&mut peer, &mount, file).await;
            assert!(now.change_time > before.change_time, "{bytes}");
            assert_eq!(now.last_write_time > before.last_write_time, is_cut, "{bytes}");
            before = now;
        }
        // MS-FSA note 177: the allocation size exceeds the largest file on any Windows volume, so
        // it is refused.
        for bytes in [1_u64 << 60, (1 << 53) - (64 << 10) + 1] {
            let draft = set_draft(FileInfoClass::ALLOCATION, file, &bytes.to_le_bytes());
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
        assert_eq!(basic(&mut peer, &mount, file).await, before);
    });
}

/// MS-FSA 2.1.4.17: a file system may defer.
#[test]
fn late_write_times_move_late() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let mount = peer.mount(&logon, "late").await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let first = basic(&mut peer, &mount, file).await.last_write_time;
        a_moment();
        peer.write(&mount, file, 0, b"data").await;
        assert_eq!(basic(&mut peer, &mount, file).await.last_write_time, first);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let second = basic(&mut peer, &mount, file).await.last_write_time;
        assert!(second > first);
        // The time of a later write is not set by a timer, but by a flush or the close.
        a_moment();
        peer.write(&mount, file, 0, b"data").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(basic(&mut peer, &mount, file).await.last_write_time, second);
        peer.on(&mount, flush_draft(file)).await.ok();
        let third = basic(&mut peer, &mount, file).await.last_write_time;
        assert!(third > second);
        a_moment();
        peer.write(&mount, file, 0, b"data").await;
        let request = close::Request { flags: CloseFlags::POSTQUERY_ATTRIB, file_id: file };
        let reply = peer.on(&mount, Draft::new(Command::CLOSE).with(|w| request.encode(w))).await;
        reply.ok();
        let closed = close::Response::parse(&reply.message).unwrap();
        assert!(closed.last_write_time > third);
    });
}
