//! FILE_NO_INTERMEDIATE_BUFFERING, SMB2_READFLAG_READ_UNBUFFERED, SMB2_WRITEFLAG_WRITE_UNBUFFERED: the
//! same data as by other Opens, aligned or not.

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::read::{self, ReadFlags};
use frevo_wire::command::write::{self, WriteFlags};
use frevo_wire::dtyp::AccessMask;

use crate::client::*;

const DATA: &[u8] = b"0123456789abcdef";

fn unbuffered(name: &str) -> Want {
    Want::file(name).options(CreateOptions::NO_INTERMEDIATE_BUFFERING)
}

#[test]
fn unbuffered_data_is_the_same_for_all() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let direct = peer.open_file(&mount, &unbuffered("f")).await;
        let other = peer.open_file(&mount, &Want::file("f")).await;
        let large = vec![7; 60_000];
        peer.write(&mount, direct, 0, &large).await;
        assert_eq!(peer.read(&mount, other, 0, 60_000).await, large);
        // Offset and length are not multiples of a sector, but must work even in an unbuffered
        // Open.
        peer.write(&mount, direct, 1_001, DATA).await;
        assert_eq!(peer.read(&mount, other, 1_001, 16).await, DATA);
        peer.write(&mount, other, 4_095, DATA).await;
        assert_eq!(peer.read(&mount, direct, 4_095, 16).await, DATA);
        // These READs cross the end of the file or begin after it, so they return fewer bytes.
        assert_eq!(peer.read(&mount, direct, 59_999, 4_096).await, [7]);
        assert_eq!(world.content("f").len(), 60_000);
        peer.close(&mount, direct).await;
        peer.close(&mount, other).await;
    });
}

#[test]
fn single_requests_can_be_unbuffered() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let write = Draft::new(Command::WRITE).with(|w| {
            let request = write::Request::new(file, 3, DATA);
            write::Request { flags: WriteFlags::WRITE_UNBUFFERED, ..request }.encode(w);
        });
        peer.on(&mount, write).await.ok();
        let read = Draft::new(Command::READ).with(|w| {
            let request = read::Request::new(file, 3, 16);
            read::Request { flags: ReadFlags::READ_UNBUFFERED, ..request }.encode(w);
        });
        let reply = peer.on(&mount, read).await;
        assert_eq!(files::data(reply.ok()), DATA);
        assert_eq!(peer.read(&mount, file, 0, 100).await[3..], *DATA);
        peer.close(&mount, file).await;
    });
}

/// MS-SMB2 3.3.5.9: FILE_APPEND_DATA is not granted to an unbuffered Open.
#[test]
fn an_unbuffered_open_cannot_append() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let access = AccessMask::APPEND_DATA | AccessMask::READ_DATA;
        let file = peer.open_file(&mount, &unbuffered("f").access(access)).await;
        let write = files::write_draft(file, 0, DATA);
        peer.on(&mount, write).await.expect(Status::ACCESS_DENIED);
        peer.close(&mount, file).await;
    });
}
