//! P10: transforms.

use crate::client::draft::{pack, seal};
use crate::client::negotiate::ALL_DIALECTS;
use crate::client::*;

/// A sealed ECHO of a session that is in order.
async fn sealed_echo(world: &World, offer: &Offer) -> (Peer, Mount, Vec<u8>) {
    let (mut peer, mount) = world.session("ann", offer).await;
    let mut draft = mount.put(Draft::echo());
    peer.stamp(&mut draft);
    let frame = pack(&[draft], Via::Sealed(&mount.logon));
    (peer, mount, frame)
}

#[test]
fn p10_the_right_seal_opens() {
    in_world(async |world| {
        for cipher in [1, 2, 3, 4] {
            let offer = Offer { ciphers: vec![cipher], ..Offer::only(Dialect::SMB_3_1_1) };
            let (mut peer, _, frame) = sealed_echo(world, &offer).await;
            peer.send_frame(&frame).await;
            let reply = peer.reply().await;
            reply.ok();
            assert!(reply.sealed);
        }
    });
}

#[test]
fn p10_headers_that_lie_disconnect() {
    in_world(async |world| {
        let offer = Offer::default();
        let (_, _, whole) = sealed_echo(world, &offer).await;
        for length in [4, 20, 43, 51, 52, 53, whole.len() - 1] {
            let (mut peer, _, frame) = sealed_echo(world, &offer).await;
            peer.send_frame(&frame[..length]).await;
            peer.expect_disconnect().await;
        }
        // The header's Flags (at 42), OriginalMessageSize and SessionId are changed, so the message
        // must be refused.
        let size = u32::try_from(whole.len() - 52).unwrap();
        let changes: [(usize, Vec<u8>); 9] = [
            (42, vec![0, 0]),
            (42, vec![2, 0]),
            (42, vec![1, 1]),
            (36, (size - 1).to_le_bytes().to_vec()),
            (36, (size + 1).to_le_bytes().to_vec()),
            (36, u32::MAX.to_le_bytes().to_vec()),
            (36, vec![0; 4]),
            (44, vec![0; 8]),
            (44, vec![0xFF; 8]),
        ];
        for (at, bytes) in changes {
            let (mut peer, _, mut frame) = sealed_echo(world, &offer).await;
            frame[at..at + bytes.len()].copy_from_slice(&bytes);
            peer.send_frame(&frame).await;
            peer.expect_disconnect().await;
        }
    });
}

/// Any changed byte of tag, nonce or message, and bytes added.
#[test]
fn p10_a_tag_that_does_not_fit_disconnects() {
    in_world(async |world| {
        for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
            let offer = Offer::only(dialect);
            for at in [4, 19, 20, 30, 52, 60, 100, 119] {
                let (mut peer, _, mut frame) = sealed_echo(world, &offer).await;
                frame[at] ^= 1;
                peer.send_frame(&frame).await;
                peer.expect_disconnect().await;
            }
            let (mut peer, _, mut frame) = sealed_echo(world, &offer).await;
            frame.push(0);
            peer.send_frame(&frame).await;
            peer.expect_disconnect().await;
        }
    });
}

/// A sealed frame must hold a message of its session: not sealed again, not compressed, not
/// SMB1, not of another session.
#[test]
fn p10_contents_that_do_not_belong_disconnect() {
    in_world(async |world| {
        let (mut peer, mount, nested) = sealed_echo(world, &Offer::default()).await;
        let other = peer.log_on("bob").await;
        let with_id = |id: u64| Draft::echo().session(id).bytes();
        let mut smb1 = with_id(mount.logon.id);
        smb1[0] = 0xFF;
        let mut compressed = with_id(mount.logon.id);
        compressed[0] = 0xFC;
        let related = Draft::echo().session(mount.logon.id).flags(HeaderFlags::RELATED_OPERATIONS);
        let mut next = with_id(mount.logon.id);
        next[20..24].copy_from_slice(&8_u32.to_le_bytes());
        let contents = [
            nested,
            smb1,
            compressed,
            vec![0],
            with_id(mount.logon.id)[..63].to_vec(),
            with_id(0),
            with_id(u64::MAX),
            with_id(other.id),
            related.bytes(),
            next,
        ];
        let id = mount.logon.id;
        peer.expect_alive().await;
        drop((peer, mount));
        for content in contents {
            let (mut peer, mount, _) = sealed_echo(world, &Offer::default()).await;
            // The recorded content has the id of an earlier session, which is replaced by the
            // present one.
            let mut content = content;
            let old = id.to_le_bytes();
            while let Some(at) = content.windows(8).position(|w| w == old) {
                content[at..at + 8].copy_from_slice(&mount.logon.id.to_le_bytes());
            }
            peer.send_frame(&seal(&content, &mount.logon, mount.logon.id)).await;
            peer.expect_disconnect().await;
        }
    });
}

/// A session seals for itself: with the key of one and the id of another,
/// nothing opens; and a session of another connection is none of this one's.
#[test]
fn p10_sessions_cannot_seal_for_each_other() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let other = peer.log_on("bob").await;
        let mut draft = Draft::echo().session(other.id);
        peer.stamp(&mut draft);
        peer.send_frame(&seal(&draft.bytes(), &mount.logon, other.id)).await;
        peer.expect_disconnect().await;

        let (_keep, mount) = world.session("ann", &Offer::default()).await;
        let mut stranger = world.connect();
        stranger.negotiate(&Offer::default()).await;
        let mut draft = mount.put(Draft::echo());
        stranger.stamp(&mut draft);
        stranger.send_frame(&pack(&[draft], Via::Sealed(&mount.logon))).await;
        stranger.expect_disconnect().await;
    });
}

/// A session that is being set up has no keys, and those of 2.x have none to
/// seal with.
#[test]
fn p10_without_keys_nothing_opens() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            let mut peer = world.connect();
            peer.negotiate(&Offer::only(dialect)).await;
            let mut exchange = logon::Exchange::new(&peer, Setup::of("ann"));
            let first = exchange.round(&mut peer).await;
            first.expect(Status::MORE_PROCESSING_REQUIRED);
            let (_other, mount) = world.session("ann", &Offer::default()).await;
            let draft = Draft::echo().session(exchange.session_id);
            peer.send_frame(&seal(&draft.bytes(), &mount.logon, exchange.session_id)).await;
            peer.expect_disconnect().await;
        }
        let (mut peer, mount) = world.session("ann", &Offer::only(Dialect::SMB_2_1)).await;
        let (_other, sealing) = world.session("ann", &Offer::default()).await;
        let draft = mount.put(Draft::echo());
        peer.send_frame(&seal(&draft.bytes(), &sealing.logon, mount.logon.id)).await;
        peer.expect_disconnect().await;
    });
}
