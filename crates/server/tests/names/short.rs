//! Short names, and other ways to spell and to show a name.

use std::path::Path;
use std::sync::Arc;

use frevo_posix::{PosixOptions, PosixVfs, Streams};
use frevo_store::Vfs;
use frevo_store::short_name::short_name;
use frevo_wire::command::create::{self, CreateDisposition, CreateOptions};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime};
use frevo_wire::fscc::query::FileBasicInformation;
use frevo_wire::fscc::volume::{FsControlFlags, FsControlInformation};
use frevo_wire::fscc::{FileInfoClass, FsInfoClass};
use tempfile::TempDir;

use super::calls::*;
use crate::client::files::{rename_draft, utf16};
use crate::client::world::over;
use crate::client::*;

fn world_with(options: PosixOptions, test: impl AsyncFnOnce(&World, &Path)) {
    let dir: TempDir = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(PosixVfs::open_root(dir.path(), options).unwrap());
    over(&vfs, async |world| test(world, dir.path()).await);
}

async fn alternate(peer: &mut Peer, mount: &Mount, file: FileId) -> Result<String, Status> {
    let reply = peer.on(mount, query_draft(FileInfoClass::ALTERNATE_NAME, file)).await;
    if reply.status() != Status::SUCCESS {
        return Err(reply.status());
    }
    let output = query_info::Response::parse(&reply.message).unwrap().output;
    let units = output[4..].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Ok(char::decode_utf16(units).map(Result::unwrap).collect())
}

/// The bytes of a listing of the root.
async fn listing(peer: &mut Peer, mount: &Mount, pattern: &str) -> Result<Vec<u8>, Status> {
    let root = peer.open_file(mount, &Want::directory("")).await;
    let draft = list_draft(
        root,
        FileInfoClass::BOTH_DIRECTORY,
        QueryDirectoryFlags::RESTART_SCANS,
        pattern,
    );
    let reply = peer.on(mount, draft).await;
    peer.close(mount, root).await;
    match reply.status() {
        Status::SUCCESS => Ok(reply.message.clone()),
        status => Err(status),
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    let text = utf16(text);
    bytes.windows(text.len()).any(|window| window == text)
}

#[test]
fn files_are_found_by_their_short_names() {
    let options = PosixOptions { short_names: true, ..PosixOptions::default() };
    world_with(options, async |world, world_path| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (folder, long) = ("a long folder", "a long folder\\Some long name.html");
        let made = peer.open_file(&mount, &Want::directory(folder)).await;
        peer.close(&mount, made).await;
        let file = peer.open_file(&mount, &Want::file(long)).await;
        peer.write(&mount, file, 0, b"long").await;
        let short = alternate(&mut peer, &mount, file).await.unwrap();
        assert_eq!(Some(&short), short_name("Some long name.html").as_ref());
        peer.close(&mount, file).await;
        // Folder and file are found by their long and their short names, in upper and lower case.
        let short_folder = short_name(folder).unwrap();
        let by_short = format!("{}\\{}", short_folder.to_lowercase(), short);
        let file = peer.open_file(&mount, &Want::existing(&by_short)).await;
        assert_eq!(peer.read(&mount, file, 0, 10).await, b"long");
        peer.close(&mount, file).await;
        // A listing has the short name, and a pattern may match it instead of the long name.
        for pattern in ["*", &short_folder, "a*~*"] {
            let bytes = listing(&mut peer, &mount, pattern).await.unwrap();
            assert!(holds(&bytes, folder) && holds(&bytes, &short_folder), "{pattern}");
        }
        // A client deletes a file and creates it again by its short name. The new file gets the
        // long name of the old one.
        let gone = Want::existing(&by_short)
            .access(AccessMask::DELETE)
            .options(CreateOptions::DELETE_ON_CLOSE);
        let gone = peer.open_file(&mount, &gone).await;
        peer.close(&mount, gone).await;
        peer.create(&mount, &Want::existing(long)).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let made = peer.open_file(&mount, &Want::file(&by_short)).await;
        peer.close(&mount, made).await;
        let file = peer.open_file(&mount, &Want::existing(long)).await;
        peer.close(&mount, file).await;
        // Names that end in a dot or a space are not possible in Windows programs, which open them
        // by the short name.
        for odd in ["a.", "b ", "c..", "a long folder\\d."] {
            let file = peer.open_file(&mount, &Want::file(odd)).await;
            assert!(world_path.join(odd.replace('\\', "/")).exists(), "{odd}");
            let short = alternate(&mut peer, &mount, file).await.unwrap();
            peer.close(&mount, file).await;
            let short = odd.rfind('\\').map_or(short.clone(), |at| odd[..=at].to_owned() + &short);
            let file = peer.open_file(&mount, &Want::existing(&short)).await;
            peer.close(&mount, file).await;
        }
        // A name that is already short is its own alternate name.
        let file = peer.open_file(&mount, &Want::file("SHORT.TXT")).await;
        assert_eq!(alternate(&mut peer, &mount, file).await.unwrap(), "SHORT.TXT");
        peer.close(&mount, file).await;
    });
}

/// True if a pattern finds an entry of the root.
async fn finds(peer: &mut Peer, mount: &Mount, pattern: &str, name: &str) -> bool {
    listing(peer, mount, pattern).await.is_ok_and(|bytes| holds(&bytes, name))
}

/// CREATE, rename, link and patterns read a name alike.
#[test]
fn names_that_end_in_a_period_or_space_are_the_same_in_every_request() {
    let options = PosixOptions { short_names: true, ..PosixOptions::default() };
    world_with(options, async |world, world_path| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for (at, odd, shown) in
            [(0, "a.", "a\u{F029}"), (1, "b ", "b\u{F028}"), (2, "c..", "c.\u{F029}")]
        {
            let file = peer.open_file(&mount, &Want::file(odd)).await;
            peer.close(&mount, file).await;
            assert!(finds(&mut peer, &mount, odd, shown).await, "{odd}");
            assert!(finds(&mut peer, &mount, &format!("*{}", &odd[1..]), shown).await, "{odd}");
            let file = peer.open_file(&mount, &Want::file("plain")).await;
            for (class, count) in [
                (FileInfoClass::LINK, 1),
                (FileInfoClass::RENAME, 2),
                (FileInfoClass::RENAME_EX, 3),
            ] {
                let to = format!("{count}{odd}");
                peer.on(&mount, rename_draft(class, file, &to, false)).await.ok();
                assert!(world_path.join(&to).is_file(), "{class:?} {to}");
                let by_name = peer.open_file(&mount, &Want::existing(&to)).await;
                peer.close(&mount, by_name).await;
                // The name is taken now, so another file gets it only in its place.
                let other = peer.open_file(&mount, &Want::file("other")).await;
                let taken = peer.on(&mount, rename_draft(class, other, &to, false)).await;
                taken.expect(Status::OBJECT_NAME_COLLISION);
                peer.close(&mount, other).await;
            }
            let folder = format!("{at}folder{}", &odd[1..]);
            let made = peer.open_file(&mount, &Want::directory(&folder)).await;
            peer.close(&mount, made).await;
            let inside = format!("{folder}\\inside");
            peer.on(&mount, rename_draft(FileInfoClass::RENAME, file, &inside, false)).await.ok();
            assert!(world_path.join(&folder).join("inside").is_file());
            peer.close(&mount, file).await;
            // A stream of such a file is found by the same name.
            let stream = peer.open_file(&mount, &Want::file(&format!("{odd}:s"))).await;
            peer.write(&mount, stream, 0, b"stream").await;
            peer.close(&mount, stream).await;
            assert!(world_path.join(odd).is_file() && !world_path.join(&odd[..1]).exists());
        }
        // A rename over the short name of a file replaces that file.
        let file = peer.open_file(&mount, &Want::file("some long name.html")).await;
        peer.close(&mount, file).await;
        let short = short_name("some long name.html").unwrap();
        for (class, name) in [(FileInfoClass::RENAME, "new"), (FileInfoClass::LINK, "newer")] {
            let new = peer.open_file(&mount, &Want::file(name)).await;
            peer.write(&mount, new, 0, name.as_bytes()).await;
            let taken = peer.on(&mount, rename_draft(class, new, &short, false)).await;
            taken.expect(Status::OBJECT_NAME_COLLISION);
            peer.on(&mount, rename_draft(class, new, &short, true)).await.ok();
            peer.close(&mount, new).await;
            let there = peer.open_file(&mount, &Want::existing(&short)).await;
            assert_eq!(peer.read(&mount, there, 0, 10).await, name.as_bytes());
            peer.close(&mount, there).await;
            let names = std::fs::read_dir(world_path).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            let short_or_long =
                names.iter().filter(|name| *name == &*short || *name == "some long name.html");
            assert_eq!(short_or_long.count(), 1, "{names:?}");
        }
    });
}

#[test]
fn without_the_option_there_are_no_short_names() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("Some long name.html")).await;
        let none = alternate(&mut peer, &mount, file).await;
        assert_eq!(none, Err(Status::OBJECT_NAME_NOT_FOUND));
        let short = short_name("Some long name.html").unwrap();
        let missing = peer.create(&mount, &Want::existing(&short)).await;
        missing.expect(Status::OBJECT_NAME_NOT_FOUND);
        let bytes = listing(&mut peer, &mount, "*").await.unwrap();
        assert!(!holds(&bytes, &short));
    });
}

#[test]
fn slashes_separate_where_the_share_says_so() {
    in_world(async |world| {
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let late = peer.mount(&logon, "late").await;
        let folder = peer.open_file(&late, &Want::directory("d")).await;
        peer.close(&late, folder).await;
        let file = peer.open_file(&late, &Want::file("d/f")).await;
        peer.close(&late, file).await;
        let file = peer.open_file(&data, &Want::existing("d\\f")).await;
        peer.close(&data, file).await;
        peer.create(&data, &Want::existing("d/f")).await.expect(Status::OBJECT_NAME_INVALID);
        for (class, name) in [
            (FileInfoClass::LINK, "d/link"),
            (FileInfoClass::RENAME, "d/moved"),
            (FileInfoClass::RENAME_EX, "moved//d/../again"),
        ] {
            let folder = peer.open_file(&late, &Want::directory("moved")).await;
            peer.close(&late, folder).await;
            let file = peer.open_file(&late, &Want::file("from")).await;
            peer.on(&late, rename_draft(class, file, name, false)).await.ok();
            // A name that only ends with a separator names no file.
            let ends = rename_draft(class, file, "d/x/", false);
            peer.on(&late, ends).await.expect(Status::OBJECT_NAME_INVALID);
            peer.close(&late, file).await;
            let there = peer.open_file(&data, &Want::existing(&name.replace('/', "\\"))).await;
            let refused = peer.on(&data, rename_draft(class, there, "d/y", false)).await;
            refused.expect(Status::OBJECT_NAME_INVALID);
            peer.close(&data, there).await;
        }
        let folder = peer.open_file(&late, &Want::existing("d")).await;
        let restart = QueryDirectoryFlags::RESTART_SCANS;
        for (pattern, status) in [
            ("moved/", Status::SUCCESS),
            ("m*/", Status::OBJECT_NAME_INVALID),
            ("d/moved", Status::OBJECT_NAME_INVALID),
        ] {
            let ask = list_draft(folder, FileInfoClass::NAMES, restart, pattern);
            assert_eq!(peer.on(&late, ask).await.status(), status, "{pattern}");
        }
        peer.close(&late, folder).await;
    });
}

#[test]
fn hidden_names_are_overwritten_by_anybody() {
    let hide_files = vec!["*.tmp".to_owned(), "Desktop.ini".to_owned()];
    let options = PosixOptions { hide_files, ..PosixOptions::default() };
    world_with(options, async |world, _| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let hidden = [("a.tmp", true), ("DESKTOP.INI", true), (".dot", true), ("a.txt", false)];
        for (name, is_hidden) in hidden {
            let file = peer.open_file(&mount, &Want::file(name)).await;
            let reply = peer.on(&mount, query_draft(FileInfoClass::BASIC, file)).await;
            let output = query_info::Response::parse(&reply.message).unwrap().output;
            let basic = FileBasicInformation::parse(output).unwrap();
            assert_eq!(basic.attributes.contains(FileAttributes::HIDDEN), is_hidden, "{name}");
            peer.close(&mount, file).await;
            // MS-FSA 2.1.5.1.2: the client has hidden the file, so it can be overwritten only with
            // the HIDDEN attribute.
            let over = Want::file(name).disposition(CreateDisposition::OVERWRITE_IF);
            let file = peer.open_file(&mount, &over).await;
            let hide = [&[0; 32][..], &FileAttributes::HIDDEN.0.to_le_bytes(), &[0; 4]].concat();
            peer.on(&mount, set_draft(FileInfoClass::BASIC, file, &hide)).await.ok();
            peer.close(&mount, file).await;
            peer.create(&mount, &over).await.expect(Status::ACCESS_DENIED);
        }
    });
}

/// MS-FSCC 2.5.2: where clients ask for quotas. There are none.
#[test]
fn the_quota_index_is_there_to_be_asked() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let name = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";
        let read = Want::existing(name).access(AccessMask::FILE_GENERIC_READ);
        for name in [name, &name.to_uppercase()] {
            let reply = peer.create(&mount, &Want { name: utf16(name), ..read.clone() }).await;
            reply.ok();
            let opened = create::Response::parse(&reply.message).unwrap();
            let shown = FileAttributes::HIDDEN | FileAttributes::SYSTEM | FileAttributes::ARCHIVE;
            assert_eq!(opened.file_attributes, shown | FileAttributes::DIRECTORY);
            assert_eq!(opened.creation_time, FileTime::ZERO);
            let draft =
                query_info_draft(opened.file_id, InfoType::FILESYSTEM, FsInfoClass::CONTROL.0, 0);
            let reply = peer.on(&mount, draft).await;
            reply.ok();
            let output = query_info::Response::parse(&reply.message).unwrap().output;
            let control = FsControlInformation::parse(output).unwrap();
            assert_eq!(control.flags, FsControlFlags::EMPTY);
            assert_eq!(control.default_quota_limit, u64::MAX);
            peer.close(&mount, opened.file_id).await;
        }
        let write = Want::existing(name).access(AccessMask::FILE_GENERIC_WRITE);
        peer.create(&mount, &write).await.expect(Status::MEDIA_WRITE_PROTECTED);
        let make = Want::file(name).access(AccessMask::FILE_GENERIC_READ);
        let make = make.disposition(CreateDisposition::CREATE);
        peer.create(&mount, &make).await.expect(Status::MEDIA_WRITE_PROTECTED);
        let other = Want::existing("$Extend\\$Quota");
        peer.create(&mount, &other).await.expect(Status::OBJECT_PATH_NOT_FOUND);
    });
}

/// Windows: rights that do not exist come before attributes.
#[test]
fn what_nobody_can_is_refused_in_windows_order() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let volume = FileAttributes(8);
        for (access, attributes, status) in [
            (AccessMask(0x0400_0000), volume, Status::ACCESS_DENIED),
            (AccessMask(0x0400_0000), FileAttributes::ENCRYPTED, Status::ACCESS_DENIED),
            (AccessMask::READ_DATA, volume, Status::INVALID_PARAMETER),
            (AccessMask::READ_DATA, FileAttributes(0x1_0000), Status::INVALID_PARAMETER),
            (AccessMask::READ_DATA, FileAttributes(0x4_0000), Status::INVALID_PARAMETER),
        ] {
            let want = Want { attributes, ..Want::file("secret").access(access) };
            peer.create(&mount, &want).await.expect(status);
            assert!(!world.path("secret").exists());
        }
    });
}

/// MS-FSA 2.1.5.1.1 with notes 51 and 52: robocopy and backups give a copy all attributes of its
/// source, and a file system takes those that it does not have.
#[test]
fn attributes_that_the_disk_has_not_are_taken_and_not_kept() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let all = [0x4000, 0x8000, 0x8_0000, 0x10_0000, 0x2_0000, 0x40_0000].map(FileAttributes);
        for attributes in all {
            for (name, kind, kept) in [
                ("f", CreateOptions::EMPTY, FileAttributes::ARCHIVE),
                ("d", CreateOptions::DIRECTORY_FILE, FileAttributes::DIRECTORY),
            ] {
                let want = Want { attributes, ..Want::file(name).options(kind) };
                let reply = peer.create(&mount, &want).await;
                let made = create::Response::parse(&reply.ok().message).unwrap();
                assert_eq!(made.file_attributes, kept, "{attributes:?} {name}");
                peer.close(&mount, made.file_id).await;
                let gone = Want { attributes, ..Want::existing(name) };
                let gone = gone.options(kind | CreateOptions::DELETE_ON_CLOSE);
                let gone = peer.open_file(&mount, &gone).await;
                let reply = peer.on(&mount, query_draft(FileInfoClass::BASIC, gone)).await;
                let output = query_info::Response::parse(&reply.ok().message).unwrap().output;
                assert_eq!(FileBasicInformation::parse(output).unwrap().attributes, kept);
                peer.close(&mount, gone).await;
                assert!(!world.path(name).exists());
            }
            // An overwrite takes them, too.
            world.file("there", "content");
            let over = Want { attributes, ..Want::file("there") };
            let over = over.disposition(CreateDisposition::OVERWRITE_IF);
            let reply = peer.create(&mount, &over).await;
            let made = create::Response::parse(&reply.ok().message).unwrap();
            assert_eq!(made.file_attributes, FileAttributes::ARCHIVE, "{attributes:?}");
            peer.close(&mount, made.file_id).await;
        }
    });
}

#[test]
fn where_there_are_no_streams_no_name_has_a_colon() {
    let options = PosixOptions { streams: Streams::Off, ..PosixOptions::default() };
    world_with(options, async |world, _| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.close(&mount, file).await;
        for name in ["f::$DATA", "f:s", "f:s:$DATA", "f::$odd", "none::$DATA"] {
            let reply = peer.create(&mount, &Want::existing(name)).await;
            assert_eq!(reply.status(), Status::OBJECT_NAME_INVALID, "{name}");
        }
    });
}
