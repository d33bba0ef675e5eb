//! A team's folder with `run_as = "user"`: each may write the others' files. Granted
//! FILE_WRITE_ATTRIBUTES is enough to set times and attributes, MS-FSA 2.1.5.15.2.

use std::os::unix::fs::{MetadataExt, chown};
use std::time::Duration;

use frevo_wire::command::query_info;
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::query::FileBasicInformation;

use crate::calls::set_draft;
use crate::client::{FileId, Mount, Peer, Status, Want, World, query_draft};
use crate::impersonation::{acting, folder, session, set_mode, uid};

/// A second of 2019, and one of 2016.
const WRITTEN: FileTime = FileTime(132_000_000_000_000_000);
const CREATED: FileTime = FileTime(131_000_000_000_000_000);
const WRITTEN_SECONDS: i64 = 1_555_526_400;
const FREEZE: FileTime = FileTime(u64::MAX);

async fn basic(peer: &mut Peer, mount: &Mount, file: FileId) -> FileBasicInformation {
    let reply = peer.on(mount, query_draft(FileInfoClass::BASIC, file)).await;
    reply.ok();
    let output = query_info::Response::parse(&reply.message).unwrap().output;
    FileBasicInformation::parse(output).unwrap()
}

/// Sets CreationTime, LastWriteTime and attributes; zero leaves one alone.
async fn set(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    (created, written): (FileTime, FileTime),
    attributes: FileAttributes,
) -> Status {
    let times = [created, FileTime(0), written, FileTime(0)].map(|time| time.0.to_le_bytes());
    let bytes = [&times.concat()[..], &attributes.0.to_le_bytes(), &[0; 4]].concat();
    peer.on(mount, set_draft(FileInfoClass::BASIC, file, &bytes)).await.status()
}

/// Makes a file of ann's with this mode.
fn anns_file(world: &World, name: &str, mode: u32) {
    std::fs::write(world.path(name), "hers").unwrap();
    chown(world.path(name), Some(uid("ann")), Some(uid("ann"))).unwrap();
    set_mode(&world.path(name), mode);
}

fn may(name: &str) -> Want {
    let access = AccessMask::WRITE_ATTRIBUTES | AccessMask::READ_ATTRIBUTES;
    Want::existing(name).access(access)
}

const NONE: FileTime = FileTime(0);

#[test]
fn who_may_write_a_colleagues_file_sets_its_times() {
    acting("who_may_write_a_colleagues_file_sets_its_times", false, async |world| {
        anns_file(world, "file", 0o666);
        anns_file(world, "blind", 0o622);
        folder(world, "folder", "ann", 0o777);
        folder(world, "sticky", "ann", 0o1777);
        let (mut bob, bobs) = session(world, "bob").await;
        for name in ["file", "blind", "folder", "sticky"] {
            let file = bob.open_file(&bobs, &may(name)).await;
            let hidden = FileAttributes::HIDDEN;
            let both = (CREATED, WRITTEN);
            let done = set(&mut bob, &bobs, file, both, hidden).await;
            assert_eq!(done, Status::SUCCESS, "{name}");
            assert_eq!(basic(&mut bob, &bobs, file).await.last_write_time, WRITTEN, "{name}");
            bob.close(&bobs, file).await;
            let host = std::fs::metadata(world.path(name)).unwrap();
            assert_eq!((host.mtime(), host.uid()), (WRITTEN_SECONDS, uid("ann")), "{name}");
        }
        let (mut ann, anns) = session(world, "ann").await;
        for name in ["file", "blind", "folder", "sticky"] {
            let file = ann.open_file(&anns, &may(name)).await;
            let seen = basic(&mut ann, &anns, file).await;
            assert_eq!((seen.creation_time, seen.last_write_time), (CREATED, WRITTEN), "{name}");
            assert!(seen.attributes.contains(FileAttributes::HIDDEN), "{name}");
        }
    });
}

#[test]
fn who_may_not_write_a_colleagues_file_sets_no_time() {
    acting("who_may_not_write_a_colleagues_file_sets_no_time", false, async |world| {
        anns_file(world, "shown", 0o644);
        folder(world, "closed", "ann", 0o755);
        let (mut bob, bobs) = session(world, "bob").await;
        for name in ["shown", "closed"] {
            let before = std::fs::metadata(world.path(name)).unwrap();
            let look = Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
            // Bob's permissions on the host decide on each attribute and each time that is set.
            for want in [look, may(name)] {
                let file = bob.open_file(&bobs, &want).await;
                for (times, attributes) in [
                    ((NONE, WRITTEN), FileAttributes(0)),
                    ((CREATED, NONE), FileAttributes(0)),
                    ((NONE, NONE), FileAttributes::HIDDEN),
                ] {
                    let refused = set(&mut bob, &bobs, file, times, attributes).await;
                    assert_eq!(refused, Status::ACCESS_DENIED, "{name}");
                }
            }
            let after = std::fs::metadata(world.path(name)).unwrap();
            assert_eq!((after.mtime(), after.ctime()), (before.mtime(), before.ctime()), "{name}");
        }
    });
}

/// Office and backup programs freeze the write time of a file that they write.
#[test]
fn a_colleagues_write_time_freezes() {
    acting("a_colleagues_write_time_freezes", false, async |world| {
        anns_file(world, "file", 0o666);
        let (mut bob, bobs) = session(world, "bob").await;
        let file = bob.open_file(&bobs, &may("file")).await;
        let first = (NONE, WRITTEN);
        assert_eq!(set(&mut bob, &bobs, file, first, FileAttributes(0)).await, Status::SUCCESS);
        bob.close(&bobs, file).await;
        let access = AccessMask::WRITE_DATA | AccessMask::WRITE_ATTRIBUTES;
        let file = bob.open_file(&bobs, &Want::existing("file").access(access)).await;
        let freeze = (NONE, FREEZE);
        assert_eq!(set(&mut bob, &bobs, file, freeze, FileAttributes(0)).await, Status::SUCCESS);
        std::thread::sleep(Duration::from_millis(30));
        bob.write(&bobs, file, 0, b"his").await;
        bob.close(&bobs, file).await;
        assert_eq!(world.content("file"), b"hiss");
        assert_eq!(std::fs::metadata(world.path("file")).unwrap().mtime(), WRITTEN_SECONDS);
    });
}
