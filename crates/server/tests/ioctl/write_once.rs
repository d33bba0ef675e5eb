//! Shares whose files are written once: nothing that a client sends changes a committed file.

use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::ambient::{Ambient, Host};
use frevo_server::share::{Share, WriteOnce};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::set_info::InfoType;
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime, SecurityInformation};
use frevo_wire::fscc::FileInfoClass;
use parking_lot::Mutex;
use rustix::fs::IFlags;
use tokio::time::advance;

use super::calls::*;
use super::copies::{chunk, copy, key};
use crate::client::files::{
    close_draft, delete_draft, file_id, rename_draft, set_draft, set_info_draft, write_draft,
};
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;

const AFTER: Duration = Duration::from_secs(600);
const RETAIN: Duration = Duration::from_secs(86_400);

/// The host's clock, and how far it is ahead.
#[derive(Debug, Default)]
struct Ahead(Mutex<Duration>);

impl Ahead {
    fn pass(&self, time: Duration) {
        *self.0.lock() += time;
    }
}

impl Ambient for Ahead {
    fn now(&self) -> FileTime {
        let ticks = u64::try_from(self.0.lock().as_nanos() / 100).unwrap();
        FileTime(Host.now().0 + ticks)
    }

    fn random(&self, bytes: &mut [u8]) {
        Host.random(bytes);
    }
}

/// The shares `archive`, whose files are written once, and `data` of the same folder.
fn in_archive(test: impl AsyncFnOnce(&World, &Ahead)) {
    let clock = Arc::new(Ahead::default());
    let dir = tempfile::tempdir().unwrap();
    let rules = WriteOnce::by(AFTER, RETAIN, Arc::clone(&clock) as _);
    let share = |name: &str| {
        let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
        Share::disk(name, Arc::new(vfs))
    };
    let shares = [share("archive").write_once(rules), share("data")];
    let embedded = serving(settings(), shares, Arc::new(Users), Arc::new(Host));
    let world = World::of(embedded, dir);
    let _released = Released(world.path(""));
    in_own_world(true, &world, async |world: &World| test(world, &clock).await);
}

/// Makes the files of a folder mutable again, if the test could make them immutable, so that the folder can be
/// removed.
struct Released(PathBuf);

impl Drop for Released {
    fn drop(&mut self) {
        set_mutable(&self.0);
    }
}

fn set_mutable(path: &Path) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        entries.for_each(|entry| set_mutable(&entry.unwrap().path()));
    } else if let Ok(file) = std::fs::File::open(path)
        && let Ok(flags) = rustix::fs::ioctl_getflags(&file)
        && flags.contains(IFlags::IMMUTABLE)
    {
        rustix::fs::ioctl_setflags(&file, flags - IFlags::IMMUTABLE).unwrap();
    }
}

async fn session(world: &World) -> (Peer, Mount) {
    let mut peer = world.connect();
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on("ann").await;
    let mount = peer.mount(&logon, "archive").await;
    (peer, mount)
}

/// Everything about a file that a client could change.
fn facts(path: &Path) -> (Vec<u8>, i64, u32, u64, Vec<String>) {
    let metadata = std::fs::metadata(path).unwrap();
    let attributes = names_of(path);
    let (mtime, mode, links) = (metadata.st_mtime(), metadata.st_mode(), metadata.st_nlink());
    (std::fs::read(path).unwrap(), mtime, mode, links, attributes)
}

/// The names of the extended attributes, without that of the commitment.
fn names_of(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let count = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let names = names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    names.filter(|name| name != "user.frevo.committed").collect()
}

/// FileBasicInformation with a LastWriteTime and attributes.
fn basic(written: u64, attributes: u32) -> Vec<u8> {
    let times = [0, 0, written, 0].map(u64::to_le_bytes).concat();
    [&times[..], &attributes.to_le_bytes(), &[0; 4]].concat()
}

/// FileFullEaInformation with one attribute.
fn ea() -> Vec<u8> {
    [&[0; 4][..], &[0, 4, 5, 0], b"NOTE\0hello"].concat()
}

/// All requests that would change the file behind `file`, by name.
fn changes(file: FileId) -> Vec<(&'static str, Draft)> {
    let set = |class, buffer: &[u8]| set_draft(class, file, buffer);
    let zero = [0_u64.to_le_bytes(), 4_u64.to_le_bytes()].concat();
    let ioctl = |code, input: &[u8]| ioctl_draft(code, file, input, 64);
    let descriptor =
        [&[1, 0, 4, 0x80][..], &[0; 12], &20_u32.to_le_bytes(), &[2, 0, 8, 0, 0, 0, 0, 0]];
    let parts = SecurityInformation::DACL.0;
    vec![
        ("write", write_draft(file, 0, b"changed")),
        ("append", write_draft(file, 8, b"more")),
        ("end of file", set(FileInfoClass::END_OF_FILE, &0_u64.to_le_bytes())),
        ("allocation", set(FileInfoClass::ALLOCATION, &0_u64.to_le_bytes())),
        ("time", set(FileInfoClass::BASIC, &basic(132_000_000_000_000_000, 0))),
        ("attributes", set(FileInfoClass::BASIC, &basic(0, FileAttributes::HIDDEN.0))),
        ("not read-only", set(FileInfoClass::BASIC, &basic(0, FileAttributes::NORMAL.0))),
        ("ea", set(FileInfoClass::FULL_EA, &ea())),
        ("rename", rename_draft(FileInfoClass::RENAME, file, "elsewhere", false)),
        ("case", rename_draft(FileInfoClass::RENAME, file, "KEPT", false)),
        ("link", rename_draft(FileInfoClass::LINK, file, "link", false)),
        ("delete", delete_draft(file)),
        // FILE_DISPOSITION_DELETE, _POSIX_SEMANTICS and _IGNORE_READONLY_ATTRIBUTE
        ("delete at once", set(FileInfoClass::DISPOSITION_EX, &0x13_u32.to_le_bytes())),
        ("access list", set_info_draft(file, InfoType::SECURITY, 0, parts, &descriptor.concat())),
        ("zero", ioctl(CtlCode::SET_ZERO_DATA, &zero)),
        ("compression", ioctl(CtlCode::SET_COMPRESSION, &2_u16.to_le_bytes())),
        ("object id", ioctl(CtlCode::SET_OBJECT_ID, &[7; 64])),
        ("new object id", ioctl(CtlCode::CREATE_OR_GET_OBJECT_ID, &[])),
        ("sparse", ioctl(CtlCode::SET_SPARSE, &[1])),
    ]
}

/// An Open that may do everything was opened before the file was committed, and can do none of it after
/// that.
#[test]
fn an_open_from_before_the_commitment_changes_nothing_after_it() {
    in_archive(async |world, clock| {
        world.file("kept", b"original");
        world.file("other", b"other data");
        let (mut peer, mount) = session(world).await;
        let file = peer.open_file(&mount, &Want::existing("kept")).await;
        let stream = peer.open_file(&mount, &Want::file("kept:notes")).await;
        peer.write(&mount, stream, 0, b"a note").await;
        let other = peer.open_file(&mount, &Want::existing("other")).await;
        clock.pass(AFTER - Duration::from_secs(60));
        peer.write(&mount, file, 0, b"ORIGINAL").await;
        clock.pass(AFTER + Duration::from_secs(60));
        let before = facts(&world.path("kept"));
        for (what, draft) in changes(file) {
            let status = peer.on(&mount, draft).await.status();
            assert_ne!(status, Status::SUCCESS, "{what}");
            assert_eq!(facts(&world.path("kept")), before, "{what}: {status:?}");
        }
        peer.on(&mount, write_draft(stream, 0, b"X")).await.expect(Status::ACCESS_DENIED);
        let source = key(&mut peer, &mount, other).await;
        let (status, _) = copy(&mut peer, &mount, file, source, &[chunk(0, 0, 4)]).await;
        assert_ne!(status, Status::SUCCESS);
        assert_eq!(facts(&world.path("kept")), before);
        assert_eq!(before.0, b"ORIGINAL");
        for file in [file, stream, other] {
            peer.on(&mount, close_draft(file)).await.ok();
        }
        assert_eq!(facts(&world.path("kept")), before);
    });
}

#[test]
fn a_committed_file_is_opened_for_reading_only() {
    in_archive(async |world, clock| {
        std::fs::create_dir(world.path("folder")).unwrap();
        std::fs::create_dir(world.path("empty")).unwrap();
        world.file("folder/kept", b"original");
        clock.pass(AFTER + Duration::from_secs(60));
        let (mut peer, mount) = session(world).await;
        let name = "folder\\kept";
        let reading = Want::existing(name).access(AccessMask::FILE_GENERIC_READ);
        let file = peer.open_file(&mount, &reading).await;
        assert_eq!(peer.read(&mount, file, 0, 8).await, b"original");
        peer.on(&mount, close_draft(file)).await.ok();
        let before = facts(&world.path("folder/kept"));
        let overwriting = [
            CreateDisposition::SUPERSEDE,
            CreateDisposition::OVERWRITE,
            CreateDisposition::OVERWRITE_IF,
        ];
        for disposition in overwriting {
            let want = Want::file(name).disposition(disposition);
            peer.create(&mount, &want).await.expect(Status::ACCESS_DENIED);
        }
        for access in [AccessMask::WRITE_DATA, AccessMask::APPEND_DATA, AccessMask::FILE_ALL] {
            let want = Want::existing(name).access(access);
            peer.create(&mount, &want).await.expect(Status::ACCESS_DENIED);
        }
        let leaving =
            Want::existing(name).access(AccessMask::DELETE).options(CreateOptions::DELETE_ON_CLOSE);
        peer.create(&mount, &leaving).await.expect(Status::CANNOT_DELETE);
        let stream = Want::file("folder\\kept:new").access(AccessMask::FILE_GENERIC_READ);
        let status = peer.create(&mount, &stream).await.status();
        assert_ne!(status, Status::SUCCESS);
        // Rights on names and attributes alone do not change it either.
        let rights = AccessMask::DELETE | AccessMask::WRITE_ATTRIBUTES | AccessMask::WRITE_DAC;
        let file = peer.open_file(&mount, &Want::existing(name).access(rights)).await;
        for (what, draft) in changes(file) {
            let status = peer.on(&mount, draft).await.status();
            assert_ne!(status, Status::SUCCESS, "{what}");
            assert_eq!(facts(&world.path("folder/kept")), before, "{what}");
        }
        peer.on(&mount, close_draft(file)).await.ok();
        // No other file takes its name, and its folder stays where it is.
        let fresh = peer.open_file(&mount, &Want::file("fresh")).await;
        for class in [FileInfoClass::RENAME, FileInfoClass::LINK] {
            let draft = rename_draft(class, fresh, name, true);
            assert_ne!(peer.on(&mount, draft).await.status(), Status::SUCCESS);
        }
        let folder = peer.open_file(&mount, &Want::directory("folder")).await;
        let away = rename_draft(FileInfoClass::RENAME, folder, "away", false);
        peer.on(&mount, away).await.expect(Status::ACCESS_DENIED);
        let empty = peer.open_file(&mount, &Want::directory("empty")).await;
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, empty, "renamed", false)).await.ok();
        assert_eq!(facts(&world.path("folder/kept")), before);
    });
}

/// A client cannot put the commitment off by setting times, nor undo it by the attribute that stores it.
#[test]
fn the_hosts_record_of_the_last_change_counts() {
    in_archive(async |world, clock| {
        world.file("kept", b"original");
        let (mut peer, mount) = session(world).await;
        let file = peer.open_file(&mount, &Want::existing("kept")).await;
        let times = [0, 0, 0, 160_000_000_000_000_000_u64].map(u64::to_le_bytes).concat();
        let future = [&times[..], &[0; 8]].concat();
        peer.on(&mount, set_draft(FileInfoClass::BASIC, file, &future)).await.ok();
        clock.pass(AFTER + Duration::from_secs(60));
        let writing = Want::existing("kept").access(AccessMask::WRITE_DATA);
        peer.create(&mount, &writing).await.expect(Status::ACCESS_DENIED);
        // A program of the host changes the file, if it can: it was seen committed, and stays so.
        set_mutable(&world.path("kept"));
        std::fs::write(world.path("kept"), b"by the host").unwrap();
        *clock.0.lock() = Duration::ZERO;
        peer.create(&mount, &writing).await.expect(Status::ACCESS_DENIED);
    });
}

#[test]
fn a_file_can_be_deleted_and_not_changed_when_its_time_is_over() {
    in_archive(async |world, clock| {
        world.file("kept", b"original");
        clock.pass(AFTER + Duration::from_secs(60));
        let (mut peer, mount) = session(world).await;
        let reading = Want::existing("kept").access(AccessMask::FILE_GENERIC_READ);
        let file = peer.open_file(&mount, &reading).await;
        peer.on(&mount, close_draft(file)).await.ok();
        // The clock alone does not end it.
        clock.pass(RETAIN);
        let deleting = Want::existing("kept").access(AccessMask::DELETE);
        let removal = [0x13_u32.to_le_bytes()].concat();
        let file = peer.open_file(&mount, &deleting).await;
        let draft = set_draft(FileInfoClass::DISPOSITION_EX, file, &removal);
        assert_ne!(peer.on(&mount, draft).await.status(), Status::SUCCESS);
        peer.on(&mount, close_draft(file)).await.ok();
        advance(RETAIN + AFTER + Duration::from_secs(60)).await;
        let (mut peer, mount) = session(world).await;
        let writing = Want::existing("kept").access(AccessMask::WRITE_DATA);
        // The host refuses the Open itself if it could make the file immutable.
        let mut refused = peer.create(&mount, &writing).await;
        if refused.status() == Status::SUCCESS {
            let file = file_id(&refused);
            refused = peer.on(&mount, write_draft(file, 0, b"changed")).await;
            peer.on(&mount, close_draft(file)).await.ok();
        }
        refused.expect(Status::ACCESS_DENIED);
        let overwriting = writing.disposition(CreateDisposition::OVERWRITE_IF);
        peer.create(&mount, &overwriting).await.expect(Status::ACCESS_DENIED);
        assert_eq!(world.content("kept"), b"original");
        let file = peer.open_file(&mount, &deleting).await;
        peer.on(&mount, set_draft(FileInfoClass::DISPOSITION_EX, file, &removal)).await.ok();
        peer.on(&mount, close_draft(file)).await.ok();
        assert!(!world.path("kept").exists());
    });
}

/// A handle that deletes its file when it is closed lives longer than the file may be changed.
#[test]
fn a_deletion_that_comes_late_is_not_made() {
    in_archive(async |world, clock| {
        world.file("kept", b"original");
        let (mut peer, mount) = session(world).await;
        let file = peer.open_file(&mount, &Want::existing("kept")).await;
        peer.on(&mount, delete_draft(file)).await.ok();
        clock.pass(AFTER + Duration::from_secs(60));
        peer.on(&mount, close_draft(file)).await;
        assert_eq!(world.content("kept"), b"original");
    });
}
