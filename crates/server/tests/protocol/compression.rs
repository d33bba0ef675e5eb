//! Compression: MS-SMB2 2.2.3.1.3, 3.3.4.1.5, 3.3.5.4, 3.3.5.7 and 3.3.5.12.

use std::sync::Arc;
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_proto::Negotiated as Terms;
use frevo_proto::protection::{Codec, Compression};
use frevo_server::Share;
use frevo_server::ambient::{Ambient, CryptoPlace};
use frevo_server::share::Compress;
use frevo_store::Vfs;
use frevo_wire::codec::Writer;
use frevo_wire::command::negotiate;
use frevo_wire::command::read::{self, ReadFlags};
use frevo_wire::command::tree_connect::{self, ShareFlags};
use frevo_wire::compression::{Payload, UnchainedHeader, encode_chained};
use frevo_wire::negotiate_context::{
    CompressionAlgorithm, CompressionCapabilityFlags, NegotiateContext,
};

use crate::client::draft::{pack, seal, sign_anything};
use crate::client::files::{data, read_draft, tree_connect_draft, write_draft};
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;
use crate::elsewhere::Placing;

const ALL: [u16; 5] = [4, 2, 3, 1, 5];

/// A server whose shares `off`, `asked` and `all` compress as they are called.
pub(crate) fn squeezing() -> World {
    squeezing_by(Arc::new(frevo_server::ambient::Host))
}

fn squeezing_by(ambient: Arc<dyn Ambient>) -> World {
    let dir = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn Vfs> =
        Arc::new(PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap());
    let share = |name: &str| Share::disk(name, Arc::clone(&vfs));
    let shares = [
        share("data"),
        share("asked").compress(Compress::Asked),
        share("all").compress(Compress::All),
        share("sealed").compress(Compress::Asked).encrypt(true),
        // Their requests run on threads of the pool: of one always, of the other while it is on trial.
        share("away").compress(Compress::Asked).off_core(),
        share("trial").compress(Compress::Asked).off_core_while_waiting(),
    ];
    World::of(serving(settings(), shares, Arc::new(Users), ambient), dir)
}

fn offer(ids: &[u16], chained: bool) -> Offer {
    Offer { compression: ids.to_vec(), chained, ..Offer::default() }
}

/// Text of which much repeats.
fn text(len: usize) -> Vec<u8> {
    let words = (0u32..).flat_map(|at| format!("{} times {}, ", at % 97, at / 7).into_bytes());
    words.take(len).collect()
}

/// Bytes that do not shrink.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn asking(file: FileId, offset: u64, len: u32) -> Draft {
    read_draft(file, offset, len).patch(read::FLAGS_AT, &[ReadFlags::REQUEST_COMPRESSED.0])
}

/// Logs on and mounts `share` of the server.
async fn session(world: &World, share: &str, offer: &Offer) -> (Peer, Mount) {
    let mut peer = world.connect();
    peer.negotiate(offer).await;
    let logon = peer.log_on("ann").await;
    let mount = peer.mount(&logon, share).await;
    (peer, if share == "sealed" { mount.sealed() } else { mount })
}

/// Compresses a message as a client may: with a head of `plain` bytes, and the rest by the codec.
pub(crate) fn squeezed(message: &[u8], plain: usize, codec: Codec, chained: bool) -> Vec<u8> {
    let rest = &message[plain..];
    let mut room = vec![0; rest.len() * 2 + 1000];
    let count = codec.compress_into(rest, &mut room).unwrap();
    let (size, compressed) = (u32::try_from(rest.len()).unwrap(), &room[..count]);
    let mut frame = Vec::new();
    if chained {
        let payload = Payload::Compressed {
            algorithm: codec.id(),
            original_payload_size: size,
            data: compressed,
        };
        encode_chained(&[Payload::Plain(&message[..plain]), payload], &mut Writer::new(&mut frame));
        return frame;
    }
    let header = UnchainedHeader {
        original_compressed_segment_size: size,
        compression_algorithm: codec.id(),
        offset: u32::try_from(plain).unwrap(),
    };
    header.encode(&mut Writer::new(&mut frame));
    frame.extend_from_slice(&message[..plain]);
    frame.extend_from_slice(compressed);
    frame
}

/// Sends a draft compressed, signed or sealed as the mount demands, and returns its reply.
async fn ask_squeezed(
    peer: &mut Peer,
    mount: &Mount,
    draft: Draft,
    squeeze: impl FnOnce(&[u8]) -> Vec<u8>,
) -> Reply {
    let mut draft = mount.put(draft);
    peer.stamp(&mut draft);
    let id = draft.header.message_id;
    let frame = match mount.via() {
        Via::Sealed(logon) => seal(&squeeze(&pack(&[draft], Via::Plain)), logon, logon.id),
        Via::Signed(logon) => {
            let mut message = draft.bytes();
            sign_anything(&mut message, logon);
            squeeze(&message)
        }
        Via::Plain => squeeze(&draft.bytes()),
    };
    peer.send_frame(&frame).await;
    peer.final_reply(id).await
}

fn contexts_of(reply: &Reply) -> Option<(CompressionCapabilityFlags, Vec<u16>)> {
    let response = negotiate::Response::parse(&reply.message).unwrap();
    response.negotiate_contexts.into_iter().find_map(|context| match context {
        NegotiateContext::Compression { flags, algorithms } => {
            Some((flags, algorithms.iter().map(|id| id.0).collect()))
        }
        _ => None,
    })
}

#[test]
fn compression_is_negotiated_where_a_share_has_it() {
    in_own_world(false, &squeezing(), async |world| {
        let chained = CompressionCapabilityFlags::CHAINED;
        for (ids, flags, common) in [
            (&ALL[..], chained, vec![4, 2, 3, 1, 5]),
            (&[99, 5, 5, 0, 2], CompressionCapabilityFlags::EMPTY, vec![5, 2]),
            (&[99, 6], chained, vec![0]),
            (&[0], CompressionCapabilityFlags::EMPTY, vec![0]),
        ] {
            let mut peer = world.connect();
            let reply = peer.try_negotiate(&offer(ids, flags == chained)).await;
            assert_eq!(contexts_of(&reply), Some((flags, common)), "{ids:?}");
        }
        let mut peer = world.connect();
        assert_eq!(contexts_of(&peer.try_negotiate(&Offer::default()).await), None);
        // MS-SMB2 3.3.5.4: no algorithm at all, and a second context.
        let context = |ids: &[u16]| NegotiateContext::Compression {
            flags: CompressionCapabilityFlags::EMPTY,
            algorithms: ids.iter().map(|id| CompressionAlgorithm(*id)).collect(),
        };
        for bad in [vec![context(&[])], vec![context(&[2]), context(&[2])]] {
            let mut peer = world.connect();
            let hashes = NegotiateContext::PreauthIntegrity {
                hash_algorithms: vec![frevo_wire::negotiate_context::HashAlgorithm::SHA_512],
                salt: &[1; 32],
            };
            let contexts = std::iter::once(hashes).chain(bad).collect();
            let draft = Offer::default().draft_with(peer.guid, contexts);
            peer.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
        }
    });
    in_world(async |world| {
        let mut peer = world.connect();
        let reply = peer.try_negotiate(&offer(&ALL, true)).await;
        assert_eq!(contexts_of(&reply), None, "no share compresses");
    });
}

#[test]
fn a_share_that_compresses_all_says_so() {
    in_own_world(false, &squeezing(), async |world| {
        for (share, ids, expected) in [
            ("all", &ALL[..], true),
            ("asked", &ALL, false),
            ("data", &ALL, false),
            ("IPC$", &ALL, false),
            ("all", &[], false),
        ] {
            let mut peer = world.connect();
            peer.negotiate(&offer(ids, true)).await;
            let logon = peer.log_on("ann").await;
            let draft = tree_connect_draft(&format!("\\\\frevo\\{share}")).session(logon.id);
            let reply = peer.ask(draft, logon.via()).await;
            let flags = tree_connect::Response::parse(&reply.message).unwrap().share_flags;
            assert_eq!(flags.contains(ShareFlags::COMPRESS_DATA), expected, "{share} {ids:?}");
        }
    });
}

#[test]
fn reads_are_answered_compressed_where_they_ask() {
    in_own_world(false, &squeezing(), async |world| {
        let content = text(300_000);
        world.file("text", &content);
        world.file("noise", noise(100_000));
        for share in ["asked", "all", "sealed", "away", "trial"] {
            for (ids, chained) in
                [(&ALL[..], true), (&ALL, false), (&[2], true), (&[3], false), (&[1], true)]
            {
                let (mut peer, mount) = session(world, share, &offer(ids, chained)).await;
                let file = peer.open_file(&mount, &Want::existing("text")).await;
                for len in [300_000, 65_536, 5000, 1024] {
                    let reply = peer.on(&mount, asking(file, 0, len)).await;
                    assert_eq!(data(&reply), &content[..len as usize]);
                    let is_compressed =
                        peer.last_compressed.is_some_and(|bytes| bytes < len as usize);
                    assert_eq!(is_compressed, len > 1024, "{share} {ids:?} {len}");
                }
                assert_eq!(peer.read(&mount, file, 0, 65_536).await, content[..65_536]);
                assert_eq!(peer.last_compressed, None, "it was not asked for");
                let noise = peer.open_file(&mount, &Want::existing("noise")).await;
                peer.on(&mount, asking(noise, 0, 100_000)).await.ok();
                assert_eq!(peer.last_compressed, None, "noise");
            }
        }
    });
}

/// Administrators see how much shorter compression has made what was sent and received.
#[test]
fn what_compression_saves_is_counted() {
    in_own_world(false, &squeezing(), async |world| {
        world.file("text", text(300_000));
        let counts = || {
            let shares = world.embedded.share_status();
            let asked = shares.iter().find(|share| share.name == "asked").unwrap().saved;
            let metrics = world.embedded.metrics();
            assert_eq!(metrics.saved_in_answers, asked, "no other share has sent anything");
            (asked, metrics.saved_in_requests)
        };
        let (mut peer, mount) = session(world, "asked", &offer(&ALL, true)).await;
        let file = peer.open_file(&mount, &Want::existing("text")).await;
        peer.read(&mount, file, 0, 65_536).await;
        assert_eq!(counts(), (0, 0));
        peer.on(&mount, asking(file, 0, 65_536)).await.ok();
        let (sent, _) = counts();
        let shorter = 65_536 - peer.last_compressed.unwrap() as u64;
        assert!((shorter..shorter + 200).contains(&sent), "{sent} and {shorter}");
        let written = peer.open_file(&mount, &Want::file("written")).await;
        let squeeze = |message: &[u8]| squeezed(message, 112, Codec::Lz77, true);
        ask_squeezed(&mut peer, &mount, write_draft(written, 0, &text(200_000)), squeeze)
            .await
            .ok();
        let (same, received) = counts();
        assert!(same == sent && (50_000..200_200).contains(&received), "{received}");
    });
}

#[test]
fn nothing_else_is_answered_compressed() {
    in_own_world(false, &squeezing(), async |world| {
        world.file("text", text(100_000));
        let (mut peer, mount) = session(world, "data", &offer(&ALL, true)).await;
        let file = peer.open_file(&mount, &Want::existing("text")).await;
        peer.on(&mount, asking(file, 0, 65_536)).await.ok();
        assert_eq!(peer.last_compressed, None, "the share does not compress");
        let (mut peer, mount) = session(world, "asked", &offer(&ALL, true)).await;
        // A compound has a name in it.
        let drafts = vec![
            mount.put(Want::existing("text").draft()),
            asking(files::PREVIOUS, 0, 65_536).related(),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        assert_eq!(data(&replies[1]).len(), 65_536);
        assert_eq!(peer.last_compressed, None, "a compound");
        let (mut peer, mount) = session(world, "asked", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::existing("text")).await;
        peer.on(&mount, asking(file, 0, 65_536)).await.ok();
        assert_eq!(peer.last_compressed, None, "it was not negotiated");
    });
}

#[test]
fn compressed_requests_have_the_effect_of_plain_ones() {
    in_own_world(false, &squeezing(), async |world| {
        let content = [text(200_000), vec![0; 3000], noise(9000)].concat();
        for share in ["asked", "sealed", "data"] {
            let (mut peer, mount) = session(world, share, &offer(&ALL, true)).await;
            let file = peer.open_file(&mount, &Want::file("written")).await;
            for codec in Codec::ALL {
                for (plain, chained) in [(112, false), (112, true), (64, true), (0, false)] {
                    peer.write(&mount, file, 0, &[7; 100]).await;
                    let draft = write_draft(file, 0, &content);
                    let squeeze = |message: &[u8]| squeezed(message, plain, codec, chained);
                    ask_squeezed(&mut peer, &mount, draft, squeeze).await.ok();
                    assert!(world.content("written") == content, "{share} {codec:?} {plain}");
                }
            }
            // Also requests that are no WRITEs, and those behind one that takes long.
            let squeeze = |message: &[u8]| squeezed(message, 0, Codec::Lz77, true);
            ask_squeezed(&mut peer, &mount, Draft::echo(), squeeze).await.ok();
        }
    });
}

/// MS-SMB2 3.3.5.2.4 and 3.3.5.2.11 hold for the message that is in a compressed one, whichever thread
/// expands it.
#[test]
fn a_message_in_a_compressed_one_proves_its_sender() {
    let thread = |bytes| if bytes < 10_000 { CryptoPlace::Core } else { CryptoPlace::Thread };
    let places: [fn(usize) -> CryptoPlace; 2] = [|_| CryptoPlace::Core, thread];
    for place in places {
        in_own_world(false, &squeezing_by(Arc::new(Placing(place))), async |world| {
            let (mut peer, mount) = session(world, "asked", &offer(&ALL, true)).await;
            let second = peer.log_on("ann").await;
            let second = peer.mount(&second, "asked").await;
            let sealed = peer.mount(&mount.logon, "sealed").await.sealed();
            let mut statuses = Vec::new();
            for (of, key, wrong_at) in [
                (&mount, Some(&mount), None),
                (&second, Some(&second), None),
                // One bit of the data, and one of the Signature.
                (&mount, Some(&mount), Some(5000)),
                (&second, Some(&second), Some(5000)),
                (&mount, Some(&mount), Some(50)),
                (&mount, None, None),
                (&mount, Some(&second), None),
                (&second, Some(&mount), None),
                // A signature is no seal.
                (&sealed, Some(&mount), None),
            ] {
                let file = peer.open_file(of, &Want::file("f")).await;
                for (plain, chained) in [(112, false), (0, true)] {
                    peer.write(of, file, 0, b"before").await;
                    let mut draft = of.put(write_draft(file, 0, &text(50_000)));
                    peer.stamp(&mut draft);
                    let mut message = draft.bytes();
                    if let Some(key) = key {
                        sign_anything(&mut message, &key.logon);
                    }
                    if let Some(at) = wrong_at {
                        message[at] ^= 1;
                    }
                    peer.send_frame(&squeezed(&message, plain, Codec::Lz77, chained)).await;
                    let status = peer.final_reply(draft.header.message_id).await.status();
                    let is_before = world.content("f").starts_with(b"before");
                    assert_eq!(is_before, status != Status::SUCCESS);
                    statuses.push(status);
                }
                peer.close(of, file).await;
            }
            let (right, wrong) = statuses.split_at(4);
            assert_eq!(right, [Status::SUCCESS; 4]);
            assert_eq!(wrong, [Status::ACCESS_DENIED; 14]);
        });
    }
}

/// Messages that are compressed and expanded by other threads keep their order.
#[test]
fn large_messages_keep_their_order() {
    let place = |bytes| if bytes < 100_000 { CryptoPlace::Core } else { CryptoPlace::Thread };
    in_own_world(false, &squeezing_by(Arc::new(Placing(place))), async |world| {
        let content = text(4 << 20);
        for share in ["asked", "sealed"] {
            let (mut peer, mount) = session(world, share, &offer(&[2, 4], true)).await;
            let file = peer.open_file(&mount, &Want::file("large")).await;
            for _ in 0..3 {
                let before = world.server.messages_elsewhere();
                let squeeze = |message: &[u8]| squeezed(message, 112, Codec::Lz77, true);
                let large = write_draft(file, 0, &content);
                let mut first = mount.put(large);
                peer.stamp(&mut first);
                let ids = [first.header.message_id, peer.next_id];
                let frame = match mount.via() {
                    Via::Sealed(logon) => seal(&squeeze(&first.bytes()), logon, logon.id),
                    Via::Signed(logon) => {
                        let mut message = first.bytes();
                        sign_anything(&mut message, logon);
                        squeeze(&message)
                    }
                    Via::Plain => squeeze(&first.bytes()),
                };
                peer.send_frame(&frame).await;
                // The small one behind it changes what it has written.
                peer.send(vec![mount.put(write_draft(file, 0, b"behind"))], mount.via()).await;
                for reply in peer.collect(&ids).await {
                    reply.ok();
                }
                let reply = peer.on(&mount, asking(file, 0, 4 << 20)).await;
                let (head, rest) = data(&reply).split_at(6);
                assert!(head == b"behind" && rest == &content[6..]);
                assert!(peer.last_compressed.is_some());
                assert!(world.server.messages_elsewhere() >= before + 2, "{share}");
            }
        }
    });
}

/// A reply that is compressed elsewhere is charged with the buffer that it is compressed into.
#[test]
fn both_buffers_of_a_compressed_reply_are_charged() {
    const LEN: u32 = 4 << 20;
    let place = |bytes| match bytes {
        100_000.. => CryptoPlace::After(Duration::from_secs(2)),
        _ => CryptoPlace::Core,
    };
    in_own_world(true, &squeezing_by(Arc::new(Placing(place))), async |world| {
        world.file("text", text(LEN as usize));
        let (mut peer, mount) = session(world, "asked", &offer(&ALL, true)).await;
        let file = peer.open_file(&mount, &Want::existing("text")).await;
        let charged = || world.server.ledger.account("ann").bytes();
        for (draft, is_compressed) in
            [(read_draft(file, 0, LEN), false), (asking(file, 0, LEN), true)]
        {
            let before = charged();
            let ids = peer.send(vec![mount.put(draft)], mount.via()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let bytes = charged() - before;
            assert!(bytes >= LEN as usize, "{bytes}");
            assert_eq!(bytes >= 2 * LEN as usize, is_compressed, "{bytes}");
            peer.collect(&ids).await.pop().unwrap().ok();
            assert_eq!(peer.last_compressed.is_some(), is_compressed);
        }
    });
}

/// The result of compression counts: data that a look takes for text, and that does not shrink, is
/// left out from then on.
#[test]
fn data_that_did_not_shrink_is_left_out() {
    in_own_world(false, &squeezing(), async |world| {
        // Each of the READs is too short for a look.
        let content = [noise(3000), text(40_000)].concat();
        world.file("mixed", &content);
        let (mut peer, mount) = session(world, "asked", &offer(&ALL, true)).await;
        let file = peer.open_file(&mount, &Want::existing("mixed")).await;
        let mut compressed = Vec::new();
        for offset in [3000, 0, 3000, 6000, 0, 3000, 3000, 3000] {
            let reply = peer.on(&mount, asking(file, offset, 3000)).await;
            assert_eq!(data(&reply), &content[offset as usize..][..3000]);
            compressed.push(peer.last_compressed.is_some());
        }
        // After the first failure one is left out; the next one shrinks, and forgives it.
        assert_eq!(compressed, [true, false, false, true, false, false, true, true]);
    });
}

/// The terms of a connection that compresses.
#[test]
fn the_fastest_common_codec_compresses() {
    in_own_world(false, &squeezing(), async |world| {
        let mut peer = world.connect();
        let Terms { compression, .. } = peer.negotiate(&offer(&[3, 2], false)).await;
        assert_eq!(compression.as_ref().and_then(Compression::codec), Some(Codec::Lz77));
        assert!(compression.is_some_and(|compression| !compression.is_chained()));
    });
}
