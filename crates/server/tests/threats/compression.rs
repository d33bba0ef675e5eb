//! P11: compressed messages that lie. A client's word on sizes and algorithms is checked before memory is
//! taken, and no byte is used that the message did not fill.

use std::sync::Arc;
use std::time::Duration;

use frevo_proto::protection::Codec;
use frevo_server::Share;
use frevo_server::internal::state::Kind;
use frevo_server::share::Compress;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_wire::codec::Writer;
use frevo_wire::compression::{CompressionAlgorithm, Payload, UnchainedHeader, encode_chained};

use crate::client::draft::{pack, seal};
use crate::client::files::write_draft;
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;

const LZ77: CompressionAlgorithm = CompressionAlgorithm::LZ77;
const MAX_IO: u32 = 1 << 20;

fn squeezing() -> World {
    use frevo_server::ambient::{Ambient, Host};
    let clock = Arc::new(|| Host.now());
    let vfs = Arc::new(MemoryVfs::new(MemoryOptions::default(), clock));
    let share = Share::disk("data", vfs).compress(Compress::Asked);
    let settings = Settings { max_io: MAX_IO, max_transact: MAX_IO, ..settings() };
    let dir = tempfile::tempdir().unwrap();
    World::of(serving(settings, [share], Arc::new(Users), Arc::new(Host)), dir)
}

fn offer(ids: &[u16], chained: bool) -> Offer {
    Offer { compression: ids.to_vec(), chained, ..Offer::default() }
}

fn unchained(head: &[u8], size: u32, offset: u32, algorithm: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let header = UnchainedHeader {
        original_compressed_segment_size: size,
        compression_algorithm: CompressionAlgorithm(algorithm),
        offset,
    };
    header.encode(&mut Writer::new(&mut frame));
    [&frame, head, data].concat()
}

fn chained(payloads: &[Payload<'_>]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_chained(payloads, &mut Writer::new(&mut frame));
    frame
}

fn lz77(data: &[u8]) -> Vec<u8> {
    let mut room = vec![0; data.len() * 2 + 100];
    let count = Codec::Lz77.compress_into(data, &mut room).unwrap();
    room.truncate(count);
    room
}

/// An ECHO, of a session if it is to be sealed, with bytes behind it to compress.
fn echo(peer: &mut Peer, session: Option<&Mount>) -> Vec<u8> {
    let mut draft = session.map_or_else(Draft::echo, |mount| mount.put(Draft::echo()));
    draft.body.resize(1000, 0);
    peer.stamp(&mut draft);
    draft.bytes()
}

/// Each frame that `attacks` makes of an ECHO ends its connection, also sealed.
async fn all_disconnect(
    world: &World,
    offer: &Offer,
    attacks: impl Fn(&[u8]) -> Vec<(&'static str, Vec<u8>)>,
) {
    let count = attacks(&[0; 1064]).len();
    for at in 0..count {
        for is_sealed in [false, true] {
            let (mut peer, mount) = world.session("ann", offer).await;
            let message = echo(&mut peer, is_sealed.then_some(&mount));
            let (name, frame) = attacks(&message).swap_remove(at);
            println!("{name}, sealed: {is_sealed}");
            let frame = match is_sealed {
                false => frame,
                true => seal(&frame, &mount.logon, mount.logon.id),
            };
            peer.send_frame(&frame).await;
            peer.expect_disconnect().await;
        }
    }
}

#[test]
fn p11_an_honest_message_is_expanded() {
    in_own_world(false, &squeezing(), async |world| {
        for (is_chained, is_sealed) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let (mut peer, mount) = world.session("ann", &offer(&[2], is_chained)).await;
            let message = echo(&mut peer, is_sealed.then_some(&mount));
            let (head, rest) = message.split_at(64);
            let frame = match is_chained {
                false => unchained(head, 1000, 64, 2, &lz77(rest)),
                true => chained(&[
                    Payload::Plain(head),
                    Payload::Compressed {
                        algorithm: LZ77,
                        original_payload_size: 1000,
                        data: &lz77(rest),
                    },
                ]),
            };
            let frame = match is_sealed {
                false => frame,
                true => seal(&frame, &mount.logon, mount.logon.id),
            };
            peer.send_frame(&frame).await;
            peer.reply().await.ok();
        }
    });
}

#[test]
fn p11_compressed_before_a_logon_disconnects() {
    in_own_world(false, &squeezing(), async |world| {
        // A NEGOTIATE, and a SESSION_SETUP, that would be answered without compression.
        let mut peer = world.connect();
        let request = pack(&[offer(&[2], true).draft(peer.guid)], Via::Plain);
        peer.send_frame(&chained(&[Payload::Plain(&request)])).await;
        peer.expect_disconnect().await;
        for is_chained in [false, true] {
            let mut peer = world.connect();
            peer.negotiate(&offer(&[2], is_chained)).await;
            let message = echo(&mut peer, None);
            let frame = match is_chained {
                false => unchained(&message[..64], 1000, 64, 2, &lz77(&message[64..])),
                true => chained(&[Payload::Plain(&message)]),
            };
            peer.send_frame(&frame).await;
            peer.expect_disconnect().await;
        }
    });
}

/// SMBGhost (CVE-2020-0796) added OriginalCompressedSegmentSize and Offset in 32 bits, and took memory for
/// what was left.
#[test]
fn p11_sizes_that_wrap_or_exceed_the_limit_disconnect() {
    in_own_world(false, &squeezing(), async |world| {
        let limit = MAX_IO + 256 + 16;
        all_disconnect(world, &offer(&[2, 4], true), |message| {
            let (head, rest) = message.split_at(64);
            let data = lz77(rest);
            let run = |repetitions| Payload::Pattern { pattern: 0, repetitions };
            vec![
                ("size -1", unchained(head, u32::MAX, 64, 2, &data)),
                ("size -64", unchained(head, u32::MAX - 63, 64, 2, &data)),
                ("offset -1", unchained(head, 1000, u32::MAX, 2, &data)),
                ("both wrap", unchained(head, u32::MAX, 1, 2, &data)),
                ("offset past the end", unchained(head, 1000, 1064, 2, &data)),
                ("one more than the limit", unchained(head, limit - 63, 64, 2, &data)),
                ("a run over the limit", chained(&[Payload::Plain(head), run(limit - 63)])),
                ("a run of -1", chained(&[Payload::Plain(head), run(u32::MAX)])),
                ("runs whose sum wraps", chained(&[Payload::Plain(head), run(u32::MAX), run(65)])),
            ]
        })
        .await;
    });
}

/// SMBleed (CVE-2020-1206) answered with memory that the data had not filled.
#[test]
fn p11_results_of_another_size_disconnect() {
    in_own_world(false, &squeezing(), async |world| {
        all_disconnect(world, &offer(&[2, 4], true), |message| {
            let (head, rest) = message.split_at(64);
            let data = lz77(rest);
            let payload = |size, data| Payload::Compressed {
                algorithm: LZ77,
                original_payload_size: size,
                data,
            };
            let mut sum = chained(&[Payload::Plain(head), payload(1000, &data)]);
            sum[4..8].copy_from_slice(&1065u32.to_le_bytes());
            vec![
                ("shorter", unchained(head, 1001, 64, 2, &data)),
                ("much shorter", unchained(head, MAX_IO, 64, 2, &data)),
                ("longer", unchained(head, 999, 64, 2, &data)),
                ("nothing", unchained(head, 1000, 64, 2, &[])),
                ("cut", unchained(head, 1000, 64, 2, &data[..data.len() - 1])),
                ("a payload is shorter", chained(&[Payload::Plain(head), payload(1001, &data)])),
                ("a payload is longer", chained(&[Payload::Plain(head), payload(999, &data)])),
                ("a sum that is not that of the payloads", sum),
            ]
        })
        .await;
    });
}

#[test]
fn p11_algorithms_that_were_not_negotiated_disconnect() {
    in_own_world(false, &squeezing(), async |world| {
        let run = Payload::Pattern { pattern: 0, repetitions: 1000 };
        all_disconnect(world, &offer(&[2], true), |message| {
            let (head, rest) = message.split_at(64);
            let data = lz77(rest);
            let other = |algorithm| Payload::Compressed {
                algorithm: CompressionAlgorithm(algorithm),
                original_payload_size: 1000,
                data: &data,
            };
            vec![
                ("NONE", unchained(head, 1000, 64, 0, rest)),
                ("LZNT1", unchained(head, 1000, 64, 1, &data)),
                ("Pattern_V1", unchained(head, 1000, 64, 4, &data)),
                ("an unknown one", unchained(head, 1000, 64, 9, &data)),
                ("Pattern_V1 in a chain", chained(&[Payload::Plain(head), run])),
                ("LZ4 in a chain", chained(&[Payload::Plain(head), other(5)])),
                ("an unknown one in a chain", chained(&[Payload::Plain(head), other(9)])),
            ]
        })
        .await;
        all_disconnect(world, &offer(&[2, 4], false), |message| {
            vec![("a chain", chained(&[Payload::Plain(&message[..64]), run]))]
        })
        .await;
        all_disconnect(world, &Offer::default(), |message| {
            vec![("none", unchained(&message[..64], 1000, 64, 2, &lz77(&message[64..])))]
        })
        .await;
    });
}

#[test]
fn p11_nothing_but_a_message_is_in_a_compressed_one() {
    in_own_world(false, &squeezing(), async |world| {
        all_disconnect(world, &offer(&[2, 4], true), |message| {
            let inner = chained(&[Payload::Plain(message)]);
            let mut smb1 = message.to_vec();
            smb1[0] = 0xFF;
            let mut transform = message.to_vec();
            transform[0] = 0xFD;
            vec![
                ("compressed twice", chained(&[Payload::Plain(&inner)])),
                ("SMB1", chained(&[Payload::Plain(&smb1)])),
                ("a transform header", chained(&[Payload::Plain(&transform)])),
                ("no payload", chained(&[])),
                ("a header and no more", b"\xFCSMB\0\0\0\0".to_vec()),
                ("a part of a header", chained(&[Payload::Plain(&message[..63])])),
            ]
        })
        .await;
        // A sealed message within a compressed one.
        let (mut peer, mount) = world.session("ann", &offer(&[2, 4], true)).await;
        let sealed = seal(&echo(&mut peer, Some(&mount)), &mount.logon, mount.logon.id);
        peer.send_frame(&chained(&[Payload::Plain(&sealed)])).await;
        peer.expect_disconnect().await;
    });
}

/// The memory for an expanded message is charged first. Without any it waits as a message does that is
/// not received yet, however long that takes; small ones need not wait.
#[test]
fn p11_expanded_bytes_are_charged_first() {
    in_own_world(true, &squeezing(), async |world| {
        let (mut peer, mount) = world.session("ann", &offer(&[2, 4], true)).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let data = vec![7; 1 << 20];
        let draft = mount.put(write_draft(file, 0, &data));
        let squeeze = |message: &[u8]| {
            let run = Payload::Pattern { pattern: 7, repetitions: 1 << 20 };
            chained(&[Payload::Plain(&message[..112]), run])
        };
        // Small frames that are large messages are all carried out, one after the other.
        for _ in 0..20 {
            let mut draft = draft.clone();
            peer.stamp(&mut draft);
            peer.send_frame(&seal(&squeeze(&draft.bytes()), &mount.logon, mount.logon.id)).await;
            peer.final_reply(draft.header.message_id).await.ok();
        }
        let (mut other, other_mount) = world.session("ann", &offer(&[2, 4], true)).await;
        // The account has more than its part of a memory of which little is left.
        let ledger = &world.server.ledger;
        ledger.set_limit(24 << 20);
        let held = ledger.account("ann").charge(Kind::Frame, 20 << 20).unwrap();
        let mut large = draft.clone();
        peer.stamp(&mut large);
        peer.send_frame(&seal(&squeeze(&large.bytes()), &mount.logon, mount.logon.id)).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        // Another connection of the account sends a small one.
        let id = other.next_id;
        let small = chained(&[Payload::Plain(&echo(&mut other, Some(&other_mount)))]);
        other.send_frame(&seal(&small, &other_mount.logon, other_mount.logon.id)).await;
        other.final_reply(id).await.ok();
        println!("the small one is answered");
        drop(held);
        peer.final_reply(large.header.message_id).await.ok();
        println!("the large one is answered");
        // One that waits when its connection ends is given up.
        let held = ledger.account("ann").charge(Kind::Frame, 20 << 20).unwrap();
        let mut lost = draft.clone();
        peer.stamp(&mut lost);
        peer.send_frame(&seal(&squeeze(&lost.bytes()), &mount.logon, mount.logon.id)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        ledger.set_limit(16 << 20);
        peer.expect_disconnect().await;
        drop(held);
        ledger.set_limit(usize::MAX);
    });
}
