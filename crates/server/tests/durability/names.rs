//! Names, sizes and streams: an Open with FILE_WRITE_THROUGH is answered when its change is stable,
//! and so is each Open of a continuously available share.

use frevo_store::Fault;
use frevo_store::memory::Operation;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::fscc::FileInfoClass;

use super::disk::*;
use crate::client::files::{close_draft, delete_draft, flush_draft, rename_draft};
use crate::client::*;

const THROUGH: CreateOptions = CreateOptions::WRITE_THROUGH;

fn through(want: Want) -> Want {
    let options = want.options | THROUGH;
    want.options(options)
}

/// The names that a crash leaves when it takes all that it may.
fn left(disk: &Disk) -> Vec<String> {
    contents(&disk.vfs.crash()).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_creation_is_stable_when_it_is_answered() {
    on_disk(async |disk, peer, mount| {
        let plain = peer.open_file(mount, &Want::file("plain")).await;
        assert!(left(disk).is_empty(), "nobody asked for more");
        let file = peer.open_file(mount, &through(Want::file("file"))).await;
        // The file system in memory keeps changes of names in order, as a journal does. So making
        // "file" stable also makes the earlier name "plain" stable.
        assert_eq!(left(disk), ["file", "plain"]);
        peer.close(mount, file).await;
        peer.close(mount, plain).await;
        let dir = peer.open_file(mount, &through(Want::directory("d"))).await;
        let inner = peer.open_file(mount, &through(Want::file("d\\inner"))).await;
        assert!(left(disk).contains(&"d\\inner".into()));
        peer.close(mount, inner).await;
        peer.close(mount, dir).await;
    });
}

#[test]
fn an_overwritten_file_is_empty_for_good() {
    on_disk(async |disk, peer, mount| {
        let file = peer.open_file(mount, &through(Want::file("a"))).await;
        peer.write(mount, file, 0, b"old").await;
        peer.close(mount, file).await;
        let want = Want::file("a").disposition(CreateDisposition::OVERWRITE);
        let file = peer.open_file(mount, &through(want)).await;
        assert_eq!(contents(&disk.vfs.crash()), [("a".into(), vec![])]);
        peer.close(mount, file).await;
    });
}

#[test]
fn a_rename_is_stable_when_it_is_answered() {
    on_disk(async |disk, peer, mount| {
        let dir = peer.open_file(mount, &through(Want::directory("d"))).await;
        peer.close(mount, dir).await;
        let file = peer.open_file(mount, &through(Want::file("a"))).await;
        let rename = rename_draft(FileInfoClass::RENAME, file, "d\\b", false);
        peer.on(mount, rename).await.ok();
        assert_eq!(left(disk), ["d\\b"]);
        peer.close(mount, file).await;
    });
}

#[test]
fn a_flush_makes_an_earlier_rename_stable() {
    on_disk(async |disk, peer, mount| {
        let file = peer.open_file(mount, &Want::file("a")).await;
        peer.write(mount, file, 0, b"x").await;
        peer.on(mount, flush_draft(file)).await.ok();
        peer.on(mount, rename_draft(FileInfoClass::RENAME, file, "b", false)).await.ok();
        assert_eq!(left(disk), ["a"]);
        peer.on(mount, flush_draft(file)).await.ok();
        assert_eq!(left(disk), ["b"]);
        peer.close(mount, file).await;
    });
}

/// A FLUSH through one Open makes stable the names that another one has given: the directory of the
/// file is synced beside the file, and once.
#[test]
fn a_flush_covers_the_names_that_other_opens_gave() {
    on_disk(async |disk, peer, mount| {
        let syncs = async |peer: &mut Peer, file| {
            let before = disk.faults().calls(Operation::Sync);
            peer.on(mount, flush_draft(file)).await.ok();
            disk.faults().calls(Operation::Sync) - before
        };
        let maker = peer.open_file(mount, &Want::file("a")).await;
        let other = peer.open_file(mount, &Want::existing("a")).await;
        assert_eq!(syncs(peer, other).await, 2, "the file was made");
        assert_eq!(left(disk), ["a"]);
        assert_eq!(syncs(peer, other).await, 1);
        let rename = rename_draft(FileInfoClass::RENAME, maker, "b", false);
        peer.on(mount, rename).await.ok();
        assert_eq!(syncs(peer, other).await, 2, "the file was renamed");
        assert_eq!(left(disk), ["b"]);
        assert_eq!(syncs(peer, other).await, 1);
        assert_eq!(syncs(peer, maker).await, 1, "the other Open has done it");
        // The Open that renamed the file is closed, but another Open's flush must still make the
        // new name stable.
        let rename = rename_draft(FileInfoClass::RENAME, maker, "c", false);
        peer.on(mount, rename).await.ok();
        peer.close(mount, maker).await;
        assert_eq!(syncs(peer, other).await, 2, "the file was renamed again");
        assert_eq!(left(disk), ["c"]);
        peer.close(mount, other).await;
    });
}

/// A FLUSH that fails leaves the change to the next one, through another Open.
#[test]
fn a_failed_flush_covers_no_name() {
    on_disk(async |disk, peer, mount| {
        let first = peer.open_file(mount, &Want::file("a")).await;
        peer.on(mount, flush_draft(first)).await.ok();
        let second = peer.open_file(mount, &Want::existing("a")).await;
        peer.on(mount, rename_draft(FileInfoClass::RENAME, first, "b", false)).await.ok();
        disk.faults().fail_next(Operation::Sync, Fault::Io(5));
        peer.on(mount, flush_draft(second)).await.expect(Status::UNEXPECTED_IO_ERROR);
        let before = disk.faults().calls(Operation::Sync);
        peer.on(mount, flush_draft(first)).await.ok();
        assert_eq!(disk.faults().calls(Operation::Sync) - before, 2);
        assert_eq!(left(disk), ["b"]);
        peer.close(mount, first).await;
        peer.close(mount, second).await;
    });
}

#[test]
fn a_size_is_stable_when_it_is_answered() {
    on_disk(async |disk, peer, mount| {
        let file = peer.open_file(mount, &through(Want::file("a"))).await;
        peer.on(mount, end_draft(file, 5)).await.ok();
        assert_eq!(contents(&disk.vfs.crash()), [("a".into(), vec![0; 5])]);
        peer.close(mount, file).await;
        // Without write-through, a new end of file is lost in a crash before the next FLUSH.
        let file = peer.open_file(mount, &Want::file("a")).await;
        peer.on(mount, end_draft(file, 9)).await.ok();
        assert_eq!(contents(&disk.vfs.crash()), [("a".into(), vec![0; 5])]);
        peer.on(mount, flush_draft(file)).await.ok();
        assert_eq!(contents(&disk.vfs.crash()), [("a".into(), vec![0; 9])]);
        peer.close(mount, file).await;
    });
}

#[test]
fn a_removal_is_stable_when_the_close_is_answered() {
    on_disk(async |disk, peer, mount| {
        for by_option in [false, true] {
            let options = if by_option { CreateOptions::DELETE_ON_CLOSE } else { THROUGH };
            let file = peer.open_file(mount, &through(Want::file("a").options(options))).await;
            if !by_option {
                peer.on(mount, delete_draft(file)).await.ok();
            }
            assert_eq!(left(disk), ["a"]);
            peer.on(mount, close_draft(file)).await.ok();
            assert!(left(disk).is_empty());
        }
        let file = peer.open_file(mount, &through(Want::file("a"))).await;
        peer.close(mount, file).await;
        // Without write-through, the removed name may come back after a crash.
        let file = peer.open_file(mount, &Want::existing("a")).await;
        peer.on(mount, delete_draft(file)).await.ok();
        peer.on(mount, close_draft(file)).await.ok();
        assert_eq!(left(disk), ["a"]);
    });
}

#[test]
fn a_failure_to_make_it_stable_is_told() {
    on_disk(async |disk, peer, mount| {
        let fail = || disk.faults().fail_next(Operation::Sync, Fault::Io(5));
        fail();
        let reply = peer.create(mount, &through(Want::file("a"))).await;
        reply.expect(Status::UNEXPECTED_IO_ERROR);
        let file = peer.open_file(mount, &through(Want::file("b"))).await;
        fail();
        peer.on(mount, end_draft(file, 5)).await.expect(Status::UNEXPECTED_IO_ERROR);
        peer.close(mount, file).await;
        let file = peer.open_file(mount, &through(Want::file("c"))).await;
        peer.on(mount, delete_draft(file)).await.ok();
        fail();
        peer.on(mount, close_draft(file)).await.expect(Status::UNEXPECTED_IO_ERROR);
        // The failed CLOSE still closed the FileId, so it is unknown now.
        peer.on(mount, flush_draft(file)).await.expect(Status::FILE_CLOSED);
    });
}

#[test]
fn control_codes_that_change_a_file_write_through() {
    on_disk(async |disk, peer, mount| {
        let file = peer.open_file(mount, &through(Want::file("a"))).await;
        let syncs = disk.faults();
        syncs.fail_next(Operation::Sync, Fault::Io(5));
        let sparse = Draft::new(Command::IOCTL).with(|w| {
            ioctl::Request::fsctl(CtlCode::SET_SPARSE, file, &[], 0).encode(w);
        });
        peer.on(mount, sparse).await.expect(Status::UNEXPECTED_IO_ERROR);
        peer.close(mount, file).await;
    });
}
