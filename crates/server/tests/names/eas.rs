//! FILE_NEED_EA and FILE_NO_EA_KNOWLEDGE: MS-SMB2 2.2.13, MS-FSA 2.1.5.1.2, MS-FSCC
//! 2.4.16.

use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::fscc::ea::{Ea, EaEntries, EaWriter};
use frevo_wire::fscc::{FileInfoClass, Pushed};

use super::calls::*;
use crate::client::world::in_memory;
use crate::client::*;

fn list(eas: &[(&str, &[u8], bool)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = EaWriter::new(&mut bytes, usize::MAX);
    for (name, value, need) in eas {
        let ea = Ea { need: *need, name: name.as_bytes(), value };
        assert_eq!(writer.push(&ea), Pushed::Fits);
    }
    bytes
}

fn ignorant(want: Want) -> Want {
    want.options(CreateOptions::NO_EA_KNOWLEDGE)
}

async fn set(peer: &mut Peer, mount: &Mount, file: FileId, eas: &[(&str, &[u8], bool)]) {
    peer.on(mount, set_draft(FileInfoClass::FULL_EA, file, &list(eas))).await.ok();
}

/// Names with whether they are needed, sorted.
async fn shown(peer: &mut Peer, mount: &Mount, want: &Want) -> Vec<(String, bool)> {
    let file = peer.open_file(mount, want).await;
    let reply = peer.on(mount, query_draft(FileInfoClass::FULL_EA, file)).await;
    peer.close(mount, file).await;
    let body = &reply.ok().message;
    let at = usize::from(u16::from_le_bytes([body[66], body[67]]));
    let len = u32::from_le_bytes(body[68..72].try_into().unwrap()) as usize;
    let mut found: Vec<_> = EaEntries::new(&body[at..at + len])
        .map(|ea| ea.map(|ea| (String::from_utf8_lossy(ea.name).into_owned(), ea.need)).unwrap())
        .collect();
    found.sort();
    found
}

async fn who_ignores_attributes_opens_nothing_that_needs_them(world: &World) {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    let directory = Want { options: CreateOptions::DIRECTORY_FILE, ..Want::file("d") };
    for want in [Want::file("f"), directory] {
        let existing = Want { disposition: CreateDisposition::OPEN, ..want.clone() };
        let file = peer.open_file(&mount, &want).await;
        set(&mut peer, &mount, file, &[("plain", b"1", false)]).await;
        let open = peer.open_file(&mount, &ignorant(existing.clone())).await;
        peer.close(&mount, open).await;
        set(&mut peer, &mount, file, &[("plain", b"1", true), ("more", b"2", false)]).await;
        let told = shown(&mut peer, &mount, &existing).await;
        assert_eq!(told, [("more".into(), false), ("plain".into(), true)]);
        let denied = peer.create(&mount, &ignorant(existing.clone())).await;
        denied.expect(Status::ACCESS_DENIED);
        let open = peer.open_file(&mount, &existing).await;
        peer.close(&mount, open).await;
        // The attribute is set again without NEED_EA, which clears its flag. So a client with
        // FILE_NO_EA_KNOWLEDGE can open the file.
        set(&mut peer, &mount, file, &[("PLAIN", b"3", false)]).await;
        let open = peer.open_file(&mount, &ignorant(existing)).await;
        peer.close(&mount, open).await;
        peer.close(&mount, file).await;
    }
}

#[test]
fn what_needs_attributes_is_not_opened_without_knowing_them() {
    in_world(async |world| who_ignores_attributes_opens_nothing_that_needs_them(world).await);
    in_memory(async |world| who_ignores_attributes_opens_nothing_that_needs_them(world).await);
}

#[test]
fn no_disposition_gets_round_a_needed_attribute_and_streams_do_not_ask() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let contexts =
            [CreateContext::ExtendedAttributes(&list(&[("a", b"1", true), ("b", b"2", false)]))]
                .map(|context| CreateContexts::from_requests(&[context]).as_bytes().to_vec());
        let with = Want { contexts: contexts[0].clone(), ..Want::file("f") };
        // A client with FILE_NO_EA_KNOWLEDGE must not set extended attributes, not even in the
        // CREATE of a new file.
        peer.create(&mount, &ignorant(with.clone())).await.expect(Status::ACCESS_DENIED);
        assert!(!world.path("f").exists());
        let file = peer.open_file(&mount, &with).await;
        let told = shown(&mut peer, &mount, &Want::existing("f")).await;
        assert_eq!(told, [("a".into(), true), ("b".into(), false)]);
        peer.write(&mount, file, 0, b"kept").await;
        for disposition in [
            CreateDisposition::OPEN,
            CreateDisposition::OPEN_IF,
            CreateDisposition::OVERWRITE,
            CreateDisposition::OVERWRITE_IF,
            CreateDisposition::SUPERSEDE,
        ] {
            let want = ignorant(Want::file("f")).disposition(disposition);
            peer.create(&mount, &want).await.expect(Status::ACCESS_DENIED);
        }
        assert_eq!(peer.read(&mount, file, 0, 10).await, b"kept");
        let stream = peer.open_file(&mount, &ignorant(Want::file("f:s"))).await;
        peer.close(&mount, stream).await;
        // Removing an attribute also removes its flag NEED_EA. Set again, the attribute does not
        // have it.
        set(&mut peer, &mount, file, &[("A", b"", false)]).await;
        set(&mut peer, &mount, file, &[("A", b"4", false)]).await;
        let told = shown(&mut peer, &mount, &Want::existing("f")).await;
        assert_eq!(told, [("A".into(), false), ("b".into(), false)]);
        let open = peer.open_file(&mount, &ignorant(Want::existing("f"))).await;
        peer.close(&mount, open).await;
    });
}
