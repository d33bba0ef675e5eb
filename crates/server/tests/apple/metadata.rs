//! File information that macOS reads without opening files, sets with entries of an access
//! control list, and has copied on the server.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::copychunk::{CopyRequest, CopyResponse, ResumeKeyResponse};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::query_info;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, SecurityInformation,
};

use super::streams::record;
use super::*;
use crate::client::files::set_info_draft;

const DACL: u32 = SecurityInformation::DACL.0;

async fn fill(peer: &mut Peer, mount: &Mount, name: &str, data: &[u8]) {
    let file = peer.open_file(mount, &Want::file(name)).await;
    peer.write(mount, file, 0, data).await;
    peer.close(mount, file).await;
}

#[test]
fn entries_carry_rights_fork_finder_information_and_mode() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        fill(&mut peer, &mount, "f", b"data").await;
        let mut finder = *b"TYPECREAflagslocationextended012";
        finder[24..26].copy_from_slice(b"xf");
        fill(&mut peer, &mount, "f:AFP_AfpInfo", &record(&finder)).await;
        fill(&mut peer, &mount, "f:AFP_Resource", b"the fork").await;
        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(world.path("f"), mode).unwrap();
        peer.create(&mount, &asking(Want::directory(""), &QUERY)).await.ok();
        let entries = listing(&mut peer, &mount, 37).await;
        let entry = entries.iter().find(|entry| entry.0 == "f").unwrap();
        assert_eq!(entry.1, AccessMask::FILE_ALL.0);
        assert_eq!(entry.2[..8], 8u64.to_le_bytes());
        assert_eq!(&entry.2[8..20], b"TYPECREAflxf");
        let born = u32::from_be_bytes(entry.2[20..24].try_into().unwrap());
        let modified = std::fs::metadata(world.path("f")).unwrap().mtime() - 946_684_800;
        assert!((i64::from(born) - modified).abs() < 5, "{born} {modified}");
        assert_eq!(entry.3, 0o100_640);
        let root = entries.iter().find(|entry| entry.0 == ".").unwrap();
        assert_eq!(root.3 & 0o170_000, 0o040_000);
        // In other information classes the fields have their usual meaning, so macOS's values must
        // not be in them.
        let plain = listing(&mut peer, &mount, 3).await;
        let entry = plain.iter().find(|entry| entry.0 == "f").unwrap();
        assert_eq!((entry.1, entry.2, entry.3), (0, [0; 24], 0));
    });
}

type Entry = (String, u32, [u8; 24], u16);

/// Name, EaSize, ShortName and Reserved2.
async fn listing(peer: &mut Peer, mount: &Mount, class: u8) -> Vec<Entry> {
    let dir = peer.open_file(mount, &Want::directory("")).await;
    let draft = list_draft(dir, FileInfoClass(class), QueryDirectoryFlags::EMPTY, "*");
    let reply = peer.on(mount, draft).await;
    reply.ok();
    let data = query_directory::Response::parse(&reply.message).unwrap().output;
    let entries = DirectoryEntries::new(data, FileInfoClass(class)).unwrap().map(Result::unwrap);
    entries
        .map(|e| (e.name.decode().unwrap(), e.ea_size, *e.short_name.padded(), e.reserved2))
        .collect()
}

async fn fsctl(peer: &mut Peer, mount: &Mount, code: CtlCode, file: FileId, input: &[u8]) -> Reply {
    let request = ioctl::Request::fsctl(code, file, input, 32);
    let draft = Draft::new(Command::IOCTL).with(|w| request.encode(w));
    peer.on(mount, draft).await
}

#[test]
fn a_copy_without_chunks_copies_the_whole_file() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let data: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
        world.file("from", &data);
        fill(&mut peer, &mount, "from:AFP_AfpInfo", &record(b"TYPECREA")).await;
        fill(&mut peer, &mount, "from:note", b"more").await;
        world.file("into", vec![7; 4_000_000]);
        for is_apple in [false, true] {
            if is_apple {
                peer.create(&mount, &asking(Want::directory(""), &QUERY)).await.ok();
            }
            let from = peer.open_file(&mount, &Want::existing("from")).await;
            let into = peer.open_file(&mount, &Want::existing("into")).await;
            let reply = fsctl(&mut peer, &mount, CtlCode::SRV_REQUEST_RESUME_KEY, from, &[]).await;
            let output = ioctl::Response::parse(&reply.message).unwrap().output;
            let source_key = ResumeKeyResponse::parse(output).unwrap().resume_key;
            let mut input = Vec::new();
            CopyRequest { source_key, chunks: Vec::new() }.encode(&mut Writer::new(&mut input));
            let reply = fsctl(&mut peer, &mount, CtlCode::SRV_COPYCHUNK, into, &input).await;
            reply.ok();
            let output = ioctl::Response::parse(&reply.message).unwrap().output;
            let copied = CopyResponse::parse(output).unwrap();
            let bytes = if is_apple { 3_000_000 } else { 0 };
            assert_eq!((copied.chunks_written, copied.total_bytes_written), (0, bytes));
            peer.close(&mount, from).await;
            peer.close(&mount, into).await;
        }
        assert!(world.content("into") == data);
        let info = peer.open_file(&mount, &Want::existing("into:AFP_AfpInfo")).await;
        assert_eq!(peer.read(&mount, info, 0, 100).await, record(b"TYPECREA"));
        let note = peer.open_file(&mount, &Want::existing("into:note")).await;
        assert_eq!(peer.read(&mount, note, 0, 100).await, b"more");
    });
}

async fn dacl(peer: &mut Peer, mount: &Mount, file: FileId) -> Vec<String> {
    let draft = query_info_draft(file, query_info::InfoType::SECURITY, 0, DACL);
    let reply = peer.on(mount, draft).await;
    reply.ok();
    let output = query_info::Response::parse(&reply.message).unwrap().output;
    let descriptor = SecurityDescriptor::parse(output).unwrap();
    let sids = descriptor.dacl.unwrap().aces;
    sids.iter().filter_map(Ace::sid).map(ToString::to_string).collect()
}

async fn set_mode(peer: &mut Peer, mount: &Mount, file: FileId, mode: u32) {
    let sid = format!("S-1-5-88-3-{mode}").parse().unwrap();
    let ace = Ace::deny(AceFlags::EMPTY, AccessMask::EMPTY, sid);
    let descriptor = SecurityDescriptor {
        control: SdControl::DACL_PRESENT | SdControl::SELF_RELATIVE,
        dacl: Some(Acl::new(vec![ace])),
        ..SecurityDescriptor::default()
    };
    let mut buffer = Vec::new();
    descriptor.encode(&mut buffer).unwrap();
    let draft = set_info_draft(file, query_info::InfoType::SECURITY, 0, DACL, &buffer);
    peer.on(mount, draft).await.ok();
}

#[test]
fn the_mode_is_an_entry_of_the_list() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        world.file("f", b"");
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        let others = dacl(&mut peer, &mount, file).await;
        assert!(others.iter().all(|sid| !sid.starts_with("S-1-5-88")));
        peer.create(&mount, &asking(Want::directory(""), &QUERY)).await.ok();
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        let meta = std::fs::metadata(world.path("f")).unwrap();
        let numbers = |mode: u32| {
            let owner = format!("S-1-5-88-1-{}", meta.uid());
            [format!("S-1-5-88-3-{mode}"), owner, format!("S-1-5-88-2-{}", meta.gid())]
        };
        let list = dacl(&mut peer, &mount, file).await;
        assert_eq!(list[..others.len()], others);
        assert_eq!(list[others.len()..], numbers(meta.mode()));
        set_mode(&mut peer, &mount, file, 0o100_604).await;
        assert_eq!(std::fs::metadata(world.path("f")).unwrap().mode(), 0o100_604);
        let list = dacl(&mut peer, &mount, file).await;
        assert_eq!(list.iter().filter(|sid| sid.starts_with("S-1-5-88-3")).count(), 1);
        assert!(list.ends_with(&numbers(0o100_604)));
    });
}
