//! Requests of macOS, in the bytes of Apple's client.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "client/mod.rs"]
mod client;
#[path = "apple/metadata.rs"]
mod metadata;
#[path = "apple/streams.rs"]
mod streams;

use client::files::{delete_draft, rename_draft};
use client::*;
use frevo_wire::command::create;
use frevo_wire::command::flush;
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::create_context::CreateContexts;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};

/// Server query; all three bits; the client's capabilities.
const QUERY: [u8; 24] = [1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];

fn asking(want: Want, data: &[u8]) -> Want {
    let contexts = CreateContexts::build(&[(b"AAPL", data)]).as_bytes().to_vec();
    Want { contexts, ..want }
}

fn answer(reply: &Reply) -> Option<Vec<u8>> {
    let response = create::Response::parse(&reply.message).unwrap();
    response.contexts.find(b"AAPL").map(<[u8]>::to_vec)
}

#[test]
fn the_server_query_is_answered_in_apples_layout() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let reply = peer.create(&mount, &asking(Want::directory(""), &QUERY)).await;
        reply.ok();
        let mut golden = vec![1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        golden.extend_from_slice(&[0x0F, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend_from_slice(&[0; 8]);
        golden.extend_from_slice(&[0, 0, 0, 0, 14, 0, 0, 0]);
        golden.extend("RackMac".encode_utf16().flat_map(u16::to_le_bytes));
        assert_eq!(answer(&reply), Some(golden));

        // The query asks for one part only, so the reply must not contain the other parts.
        let mut query = QUERY;
        query[8] = 2;
        let reply = peer.create(&mount, &asking(Want::directory(""), &query)).await;
        let golden = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(answer(&reply).as_deref(), Some(&golden[..]));

        // An unknown AAPL command is ignored, but a query that is too short is refused as
        // malformed.
        query[0] = 2;
        let reply = peer.create(&mount, &asking(Want::directory(""), &query)).await;
        reply.ok();
        assert_eq!(answer(&reply), None);
        for len in [0, 3, 7, 23] {
            let short = asking(Want::directory(""), &QUERY[..len]);
            peer.create(&mount, &short).await.expect(Status::INVALID_PARAMETER);
        }
    });
}

#[test]
fn a_time_machine_share_promises_full_sync() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let mount = peer.mount(&logon, "backups").await;
        let mut query = QUERY;
        query[8] = 2;
        let reply = peer.create(&mount, &asking(Want::directory(""), &query)).await;
        assert_eq!(answer(&reply).unwrap()[16..], [4, 0, 0, 0, 0, 0, 0, 0]);
        // macOS sends F_FULLFSYNC as a FLUSH with a Reserved1 of 0xFFFF, which must succeed.
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let draft = Draft::new(Command::FLUSH)
            .with(|w| flush::Request { reserved1: 0xFFFF, file_id: file }.encode(w));
        peer.on(&mount, draft).await.ok();
    });
}

/// macOS takes file ids for HFS+'s catalogue node ids, which are never used
/// again; inode numbers are, so it gets none to trust.
#[test]
fn file_ids_are_zero_once_macos_has_said_who_it_is() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        world.file("f", b"");
        let ids = async |peer: &mut Peer| -> Vec<u64> {
            let dir = peer.open_file(&mount, &Want::directory("")).await;
            let draft = list_draft(dir, FileInfoClass(37), QueryDirectoryFlags::EMPTY, "*");
            let reply = peer.on(&mount, draft).await;
            reply.ok();
            let data = query_directory::Response::parse(&reply.message).unwrap().output;
            let entries = DirectoryEntries::new(data, FileInfoClass(37)).unwrap();
            entries.map(|entry| entry.unwrap().file_id).collect()
        };
        assert!(ids(&mut peer).await.iter().all(|id| *id != 0));
        peer.create(&mount, &asking(Want::directory(""), &QUERY)).await.ok();
        assert!(ids(&mut peer).await.iter().all(|id| *id == 0));
    });
}

/// Finder renames folders although files are open below; those go by their new names.
#[test]
fn files_below_a_renamed_folder_go_by_their_new_names() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        std::fs::create_dir(world.path("d")).unwrap();
        world.file("d/f", b"below");
        let root = peer.open_file(&mount, &asking(Want::directory(""), &QUERY)).await;
        peer.close(&mount, root).await;
        let file = peer.open_file(&mount, &Want::existing("d\\f")).await;
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, folder, "e", false)).await.ok();
        peer.close(&mount, folder).await;
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, file, "e\\g", false)).await.ok();
        assert_eq!(world.content("e/g"), b"below");
        peer.on(&mount, delete_draft(file)).await.ok();
        peer.close(&mount, file).await;
        assert!(!world.path("e/g").exists());
    });
}
