//! Named streams, as a client meets them.

use frevo_wire::command::create::{CreateDisposition, CreateOptions, ShareAccess};
use frevo_wire::command::query_info;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::query::StreamEntries;

use super::calls::*;
use crate::client::*;

/// FileRenameInformation.
pub fn rename_to(name: &str, replace: bool) -> Vec<u8> {
    let name = files::utf16(name);
    let mut bytes = vec![u8::from(replace), 0, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&u32::try_from(name.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(&name);
    bytes.resize(bytes.len().max(24), 0);
    bytes
}

async fn set(peer: &mut Peer, mount: &Mount, file: FileId, class: u8, bytes: &[u8]) -> Reply {
    peer.on(mount, set_draft(FileInfoClass(class), file, bytes)).await
}

const RENAME: u8 = 10;
const DISPOSITION: u8 = 13;

/// FileStreamInformation: names and sizes.
async fn listed(peer: &mut Peer, mount: &Mount, file: FileId) -> Vec<(String, u64)> {
    let reply = peer.on(mount, query_draft(FileInfoClass::STREAM, file)).await;
    reply.ok();
    let data = query_info::Response::parse(&reply.message).unwrap().output.to_vec();
    let entry = |e: frevo_wire::codec::Parsed<frevo_wire::fscc::query::StreamEntry<_>>| {
        let e = e.unwrap();
        let name: frevo_wire::fscc::WireName<'_> = e.name;
        (name.decode().unwrap(), e.size)
    };
    StreamEntries::new(&data).map(entry).collect()
}

fn entries(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
}

#[test]
fn a_stream_has_its_own_data_and_its_files_attributes() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let stream = peer.open_file(&mount, &Want::file("f:Stream One")).await;
        peer.write(&mount, stream, 0, b"of the stream").await;
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        peer.write(&mount, file, 0, b"own").await;
        assert_eq!(peer.read(&mount, stream, 3, 100).await, b"the stream");
        assert_eq!(std::fs::read(world.dir.path().join("f")).unwrap(), b"own");
        let both = entries(&[("::$DATA", 3), (":Stream One:$DATA", 13)]);
        for handle in [file, stream] {
            assert_eq!(listed(&mut peer, &mount, handle).await, both);
        }
        // The stream is found in upper and lower case, with and without its type.
        for name in ["F:STREAM one", "f:Stream One:$DATA", "f:stream one:$data"] {
            let again = peer.open_file(&mount, &Want::existing(name)).await;
            assert_eq!(peer.read(&mount, again, 0, 100).await, b"of the stream");
            peer.close(&mount, again).await;
        }
        for name in ["f:Stream One:", "f:Stream One:$FOO", "f:"] {
            let reply = peer.create(&mount, &Want::existing(name)).await;
            reply.expect(Status::OBJECT_NAME_INVALID);
        }
        // MS-FSA 2.1.5.1 phase 7: a named stream cannot have the type $INDEX_ALLOCATION.
        let index = Want::existing("f:Stream One:$INDEX_ALLOCATION");
        peer.create(&mount, &index).await.expect(Status::INVALID_PARAMETER);
        peer.create(&mount, &Want::existing("f:two")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let directory = Want::existing("f:Stream One").options(CreateOptions::DIRECTORY_FILE);
        peer.create(&mount, &directory).await.expect(Status::NOT_A_DIRECTORY);
        // READONLY was set through the stream, but belongs to the file, so the stream cannot be
        // opened for writing either.
        let mut basic = [0; 40];
        basic[32] = u8::try_from(FileAttributes::READONLY.0).unwrap();
        set(&mut peer, &mount, stream, FileInfoClass::BASIC.0, &basic).await.ok();
        peer.create(&mount, &Want::existing("f:Stream One")).await.expect(Status::ACCESS_DENIED);
    });
}

#[test]
fn share_modes_and_locks_are_the_streams_own() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let alone = |name: &str| Want::file(name).sharing(ShareAccess::EMPTY);
        let one = peer.open_file(&mount, &alone("f:one")).await;
        let two = peer.open_file(&mount, &alone("f:two")).await;
        let write = AccessMask::WRITE_DATA;
        let file = peer.open_file(&mount, &alone("f").access(write)).await;
        for name in ["f:ONE", "f:two:$DATA"] {
            peer.create(&mount, &alone(name)).await.expect(Status::SHARING_VIOLATION);
        }
        // The Opens of the file and of its streams do not share DELETE, so the file cannot be
        // opened for DELETE.
        let delete = Want::existing("f").access(AccessMask::DELETE);
        peer.create(&mount, &delete).await.expect(Status::SHARING_VIOLATION);
        let exclusive = frevo_wire::command::lock::LockFlags::EXCLUSIVE_LOCK
            | frevo_wire::command::lock::LockFlags::FAIL_IMMEDIATELY;
        for handle in [one, two, file] {
            peer.on(&mount, files::lock_draft(handle, &[(0, 10, exclusive)])).await.ok();
        }
        for handle in [one, two, file] {
            peer.close(&mount, handle).await;
        }
        peer.open_file(&mount, &delete).await;
        assert!(world.dir.path().join("f").exists());
    });
}

#[test]
fn a_file_and_its_streams_are_deleted_together() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let stream = peer.open_file(&mount, &Want::file("f:s")).await;
        peer.write(&mount, stream, 0, b"still here").await;
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        set(&mut peer, &mount, file, DISPOSITION, &[1]).await.ok();
        peer.close(&mount, file).await;
        // The file is deleted, but an Open of its stream is left. Until it closes, the stream can
        // be read, and nothing of the file can be opened.
        assert_eq!(peer.read(&mount, stream, 0, 100).await, b"still here");
        for name in ["f", "f:s", "f:new"] {
            peer.create(&mount, &Want::file(name)).await.expect(Status::DELETE_PENDING);
        }
        peer.close(&mount, stream).await;
        assert!(!world.dir.path().join("f").exists());
        // DELETE_ON_CLOSE for a stream deletes the stream, not its file.
        let want = Want::file("g:s").options(CreateOptions::DELETE_ON_CLOSE);
        let stream = peer.open_file(&mount, &want).await;
        peer.close(&mount, stream).await;
        peer.create(&mount, &Want::existing("g:s")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        assert!(world.dir.path().join("g").exists());
    });
}

#[test]
fn overwriting_a_file_takes_its_streams() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for disposition in [
            CreateDisposition::OVERWRITE,
            CreateDisposition::OVERWRITE_IF,
            CreateDisposition::SUPERSEDE,
        ] {
            let stream = peer.open_file(&mount, &Want::file("f:s")).await;
            peer.write(&mount, stream, 0, &[7; 100_000]).await;
            peer.close(&mount, stream).await;
            let want = Want::existing("f:S").disposition(disposition);
            let stream = peer.open_file(&mount, &want).await;
            assert_eq!(listed(&mut peer, &mount, stream).await[1], (":s:$DATA".to_owned(), 0));
            peer.close(&mount, stream).await;
            let want = Want::existing("f").disposition(disposition);
            let file = peer.open_file(&mount, &want).await;
            assert_eq!(listed(&mut peer, &mount, file).await, entries(&[("::$DATA", 0)]));
            peer.close(&mount, file).await;
        }
    });
}

#[test]
fn streams_are_renamed_within_their_file() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let one = peer.open_file(&mount, &Want::file("f:one")).await;
        peer.write(&mount, one, 0, b"first").await;
        let empty = peer.open_file(&mount, &Want::file("f:empty")).await;
        let full = peer.open_file(&mount, &Want::file("f:full")).await;
        peer.write(&mount, full, 0, b"x").await;
        for (name, replace, status) in [
            (":", true, Status::INVALID_PARAMETER),
            (":a:", true, Status::INVALID_PARAMETER),
            (":a:$DATA:b", true, Status::INVALID_PARAMETER),
            (":a\\b", true, Status::INVALID_PARAMETER),
            (":a:$FOO", true, Status::OBJECT_TYPE_MISMATCH),
            (":empty", false, Status::OBJECT_NAME_COLLISION),
            (":empty", true, Status::INVALID_PARAMETER),
            (":full", true, Status::INVALID_PARAMETER),
            ("f:other", true, Status::SHARING_VIOLATION),
            ("g", true, Status::INVALID_PARAMETER),
            (":ONE", false, Status::SUCCESS),
        ] {
            let reply = set(&mut peer, &mount, one, RENAME, &rename_to(name, replace)).await;
            assert_eq!(reply.status(), status, "{name}");
        }
        peer.close(&mount, empty).await;
        set(&mut peer, &mount, one, RENAME, &rename_to(":Empty:$DATA", true)).await.ok();
        assert_eq!(peer.read(&mount, one, 0, 10).await, b"first");
        let listing = listed(&mut peer, &mount, full).await;
        assert_eq!(listing, entries(&[("::$DATA", 0), (":Empty:$DATA", 5), (":full:$DATA", 1)]));
        // The stream "one" was renamed to "empty" while it was open. So a CREATE that shares
        // nothing conflicts with the Open at the new name, and succeeds at the old one.
        let alone = Want::existing("f:empty").sharing(ShareAccess::EMPTY);
        peer.create(&mount, &alone).await.expect(Status::SHARING_VIOLATION);
        let old = peer.open_file(&mount, &Want::file("f:one").sharing(ShareAccess::EMPTY)).await;
        peer.close(&mount, old).await;
        // A stream of the file is open, so the file cannot be renamed.
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        let refused = set(&mut peer, &mount, file, RENAME, &rename_to("h", false)).await;
        refused.expect(Status::ACCESS_DENIED);
        peer.close(&mount, full).await;
        set(&mut peer, &mount, one, RENAME, &rename_to("::$DATA", true)).await.ok();
        peer.close(&mount, one).await;
        assert_eq!(std::fs::read(world.dir.path().join("f")).unwrap(), b"first");
    });
}

/// THREATS F4 and F5: a stream's name reaches nothing that is the server's.
#[test]
fn f4_f5_stream_names_reach_nothing_else() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for name in [
            "f:a/b",
            "f:..\\x",
            "f:a\\b",
            "f:a\0b",
            "f::",
            "f::$BAD",
            "f:::$DATA",
            ".frevo-streams",
            ".FREVO-STREAMS\\x",
            "d\\.frevo-streams",
        ] {
            let reply = peer.create(&mount, &Want::file(name)).await;
            reply.expect(Status::OBJECT_NAME_INVALID);
        }
        // These are names of the host's extended attributes, or strange ones. For clients they are
        // only names of streams.
        for name in ["f:user.DOSATTRIB", "f:..", "f:.", "f:security.NTACL", "f:\u{1}*?\"<>|"] {
            let stream = peer.open_file(&mount, &Want::file(name)).await;
            peer.write(&mount, stream, 0, b"x").await;
            peer.close(&mount, stream).await;
        }
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        assert_eq!(listed(&mut peer, &mount, file).await.len(), 6);
        // In UTF-8, 255 of these characters need more bytes than the host allows in a name.
        let wide = format!("f:{}", "\u{4E00}".repeat(255));
        peer.create(&mount, &Want::file(&wide)).await.expect(Status::OBJECT_NAME_INVALID);
        let wide = format!("f:{}", "\u{4E00}".repeat(256));
        peer.create(&mount, &Want::file(&wide)).await.expect(Status::OBJECT_NAME_INVALID);
    });
}
