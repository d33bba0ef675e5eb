//! P12: offsets and lengths of READ and WRITE.

use crate::client::files::{data, read_draft, write_draft};
use crate::client::*;

const EDGE: u64 = i64::MAX as u64;

#[test]
fn p12_data_offset_stays_in_the_message() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("p12")).await;
        let draft = write_draft(file, 0, &[b'x'; 300]);
        // DataOffset (at 66) points into the header, into the fixed part, beyond the message, or
        // beyond the limit of MS-SMB2 3.3.5.13.
        for offset in [0_u16, 1, 63, 64, 111, 0x100 + 1, 412, 0xFFFF] {
            let draft = draft.clone().patch(66, &offset.to_le_bytes());
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
        for length in [301_u32, 0x10000, 0x7FFF_FFFF, u32::MAX] {
            let draft = draft.clone().patch(68, &length.to_le_bytes());
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
        assert_eq!(world.content("p12"), b"", "nothing of the server's memory is in the file");
    });
}

#[test]
fn p12_offsets_past_the_largest_file_are_invalid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("p12")).await;
        peer.write(&mount, file, 0, b"content").await;
        // The offset, or the end of the data, exceeds the largest offset. The offset of all ones is
        // left out for WRITE, because it means the end of the file (MS-FSA 2.1.5.4).
        for offset in [EDGE, EDGE - 3, EDGE + 1, u64::MAX - 1] {
            let write = write_draft(file, offset, b"four");
            peer.on(&mount, write).await.expect(Status::INVALID_PARAMETER);
        }
        for offset in [EDGE - 3, EDGE, EDGE + 1, u64::MAX - 1, u64::MAX] {
            let read = read_draft(file, offset, 4);
            peer.on(&mount, read).await.expect(Status::INVALID_PARAMETER);
        }
        peer.on(&mount, read_draft(file, EDGE - 4, 4)).await.expect(Status::END_OF_FILE);
        assert_eq!(world.content("p12"), b"content");
    });
}

#[test]
fn p12_a_hole_reads_as_zeros() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // The heap is filled with bytes of 0xA5. They must not appear in a reply where the file has
        // a hole.
        let junk = peer.open_file(&mount, &Want::file("junk")).await;
        peer.write(&mount, junk, 0, &[0xA5; 200_000]).await;
        let file = peer.open_file(&mount, &Want::file("p12")).await;
        peer.write(&mount, file, 150_000, b"end").await;
        let mut expected = vec![0; 150_000];
        expected.extend_from_slice(b"end");
        assert_eq!(peer.read(&mount, file, 0, 200_000).await, expected);
        assert_eq!(world.content("p12"), expected);
        // The READ crosses the end of the file, so it returns only the bytes up to there.
        let reply = peer.on(&mount, read_draft(file, 100_000, 200_000)).await;
        assert_eq!(data(&reply.ok().clone()).len(), 50_003);
    });
}

#[test]
fn p12_more_than_was_negotiated_is_invalid() {
    let max = 128 * 1024;
    let settings = Settings { max_io: max, max_transact: max, ..settings() };
    in_world_with(settings, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("p12")).await;
        let bytes = vec![7; max as usize + 1];
        peer.write(&mount, file, 0, &bytes[..max as usize]).await;
        assert_eq!(peer.read(&mount, file, 0, max).await, bytes[..max as usize]);
        let write = write_draft(file, 0, &bytes);
        peer.on(&mount, write).await.expect(Status::INVALID_PARAMETER);
        for length in [max + 1, u32::MAX] {
            let read = read_draft(file, 0, 1).patch(68, &length.to_le_bytes()).charge(3);
            peer.on(&mount, read).await.expect(Status::INVALID_PARAMETER);
        }
    });
}

/// Without RDMA there is no other channel than the message itself.
#[test]
fn p12_channels_that_are_not_there_are_invalid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("p12")).await;
        peer.write(&mount, file, 0, b"content").await;
        for channel in [1_u32, 2, 3, 4, u32::MAX] {
            let read = read_draft(file, 0, 4).patch(100, &channel.to_le_bytes());
            peer.on(&mount, read).await.expect(Status::INVALID_PARAMETER);
            let write = write_draft(file, 0, b"four").patch(96, &channel.to_le_bytes());
            peer.on(&mount, write).await.expect(Status::INVALID_PARAMETER);
        }
        assert_eq!(world.content("p12"), b"content");
    });
}
