//! Finder information, resource forks and other streams by the rules of macOS.

use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::query_info;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::query::StreamEntries;

use super::*;
use crate::client::files::set_draft;

const INFO: &str = "f:AFP_AfpInfo";
const FORK: &str = "f:AFP_Resource";

/// A record with a type and a creator.
pub fn record(finder: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[..8].copy_from_slice(b"AFP\0\0\x01\0\0");
    bytes[12] = 0x80;
    bytes[16..16 + finder.len()].copy_from_slice(finder);
    bytes
}

/// Names and sizes of FileStreamInformation.
async fn streams(peer: &mut Peer, mount: &Mount, file: FileId) -> Vec<(String, u64)> {
    let draft = query_draft(FileInfoClass::STREAM, file);
    let reply = peer.on(mount, draft).await;
    reply.ok();
    let data = query_info::Response::parse(&reply.message).unwrap().output;
    let entries = StreamEntries::new(data).map(Result::unwrap);
    entries.map(|entry| (entry.name.decode().unwrap(), entry.size)).collect()
}

async fn set_end(peer: &mut Peer, mount: &Mount, file: FileId, end: u64) -> Reply {
    peer.on(mount, set_draft(FileInfoClass::END_OF_FILE, file, &end.to_le_bytes())).await
}

fn own() -> (String, u64) {
    ("::$DATA".into(), 0)
}

#[test]
fn finder_information_is_a_record_and_nothing_else() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.create(&mount, &Want::existing(INFO)).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let reply = peer.create(&mount, &Want::file(INFO)).await;
        reply.ok();
        assert_eq!(create::Response::parse(&reply.message).unwrap().end_of_file, 60);
        let info = files::file_id(&reply);
        // The new stream can be read through its own Open, but other Opens do not find it until it
        // has content.
        assert_eq!(peer.read(&mount, info, 0, 100).await, record(b""));
        peer.create(&mount, &Want::existing(INFO)).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let new = Want::file(INFO).disposition(CreateDisposition::CREATE);
        let other = peer.open_file(&mount, &new).await;
        peer.close(&mount, other).await;
        assert_eq!(streams(&mut peer, &mount, file).await, [own()]);

        for (offset, data) in [(0, &b"AF"[..]), (0, &[0; 60]), (1, &record(b"TYPE")[..59])] {
            let reply = peer.on(&mount, files::write_draft(info, offset, data)).await;
            reply.expect(Status::INVALID_PARAMETER);
        }
        peer.write(&mount, info, 0, &record(b"TYPECREA")).await;
        assert_eq!(
            streams(&mut peer, &mount, file).await,
            [own(), (":AFP_AfpInfo:$DATA".into(), 60)]
        );
        let all = [&record(b"TYPECREA")[..8], b"\0\0\0\0"].concat();
        assert_eq!(peer.read(&mount, info, 60, 12).await[..8], all[..8]);
        peer.on(&mount, files::read_draft(info, 61, 1)).await.expect(Status::END_OF_FILE);
        set_end(&mut peer, &mount, info, 61).await.expect(Status::ALLOTTED_SPACE_EXCEEDED);
        set_end(&mut peer, &mount, info, 0).await.ok();
        assert_eq!(peer.read(&mount, info, 0, 100).await, record(b"TYPECREA"));
        new_is_refused(&mut peer, &mount, &new).await;

        // Finder information without content is not stored, so the stream disappears.
        peer.write(&mount, info, 0, &record(b"")).await;
        assert_eq!(streams(&mut peer, &mount, file).await, [own()]);
        peer.close(&mount, info).await;
        peer.create(&mount, &Want::existing(INFO)).await.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}

async fn new_is_refused(peer: &mut Peer, mount: &Mount, new: &Want) {
    peer.create(mount, new).await.expect(Status::OBJECT_NAME_COLLISION);
}

#[test]
fn a_resource_fork_goes_by_being_emptied() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let fork = peer.open_file(&mount, &Want::file(FORK)).await;
        peer.create(&mount, &Want::existing(FORK)).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        peer.write(&mount, fork, 0, b"fork").await;
        peer.close(&mount, fork).await;
        let there = [own(), (":AFP_Resource:$DATA".to_owned(), 4)];
        assert_eq!(streams(&mut peer, &mount, file).await, there);
        // A resource fork with content is not removed by DELETE_ON_CLOSE.
        let deleting = Want::existing(FORK).options(CreateOptions::DELETE_ON_CLOSE);
        let fork = peer.open_file(&mount, &deleting).await;
        peer.close(&mount, fork).await;
        assert_eq!(streams(&mut peer, &mount, file).await, there);

        let fork = peer.open_file(&mount, &Want::existing(FORK)).await;
        set_end(&mut peer, &mount, fork, 0).await.ok();
        assert_eq!(streams(&mut peer, &mount, file).await, [own()]);
        // The first Open has emptied the fork, but another Open has written to it meanwhile, so the
        // fork must stay.
        let other = peer.open_file(&mount, &Want::file(FORK)).await;
        peer.write(&mount, other, 0, b"foo").await;
        peer.close(&mount, other).await;
        peer.close(&mount, fork).await;
        let fork = peer.open_file(&mount, &Want::existing(FORK)).await;
        assert_eq!(peer.read(&mount, fork, 0, 10).await, b"foo");
        set_end(&mut peer, &mount, fork, 0).await.ok();
        peer.close(&mount, fork).await;
        assert_eq!(streams(&mut peer, &mount, file).await, [own()]);
    });
}

/// An extended attribute of macOS exists from its first byte on; for Windows an
/// empty stream is a stream.
#[test]
fn other_empty_streams_are_hidden_from_macos_alone() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let stream = peer.open_file(&mount, &Want::file("f:s")).await;
        peer.close(&mount, stream).await;
        assert_eq!(streams(&mut peer, &mount, file).await.len(), 2);
        peer.create(&mount, &asking(Want::directory(""), &QUERY)).await.ok();
        let mac = peer.open_file(&mount, &Want::existing("f")).await;
        assert_eq!(streams(&mut peer, &mount, mac).await, [own()]);
        peer.create(&mount, &Want::existing("f:s")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let stream = peer.open_file(&mount, &Want::file("f:s")).await;
        peer.write(&mount, stream, 0, b"x").await;
        assert_eq!(streams(&mut peer, &mount, mac).await.len(), 2);
        set_end(&mut peer, &mount, stream, 0).await.ok();
        peer.close(&mount, stream).await;
        assert_eq!(streams(&mut peer, &mount, file).await, [own()]);
    });
}
