//! A server whose compressed answers lie: MS-SMB2 3.2.5.1.1.2 and 3.2.5.2. The client takes no memory for
//! what it says, uses no byte that was not sent, and ends the connection.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;
use std::time::Duration;

use dialed::{ToEvil, on_paused_clock};
use evil::{Act, Asked, CONTENT, Manners};
use frevo_client::internal::Dial;
use frevo_client::{Cause, Client, Compression, Credentials, Error, Options, ServerName};
use frevo_crypto::Cipher;
use frevo_proto::protection::Codec;
use frevo_wire::Command;
use frevo_wire::codec::Writer;
use frevo_wire::compression::{CompressionAlgorithm, Payload, UnchainedHeader, encode_chained};
use frevo_wire::negotiate_context::{CompressionCapabilityFlags, NegotiateContext};

const LZ77: CompressionAlgorithm = CompressionAlgorithm::LZ77;

fn compressing(ids: &[u16], is_chained: bool) -> NegotiateContext<'static> {
    NegotiateContext::Compression {
        flags: CompressionCapabilityFlags(u32::from(is_chained)),
        algorithms: ids.iter().map(|id| CompressionAlgorithm(*id)).collect(),
    }
}

fn manners(ids: &[u16], is_chained: bool) -> Manners {
    let mut contexts = evil::usual(None);
    contexts.push(compressing(ids, is_chained));
    Manners { contexts: Some(contexts), ..Manners::default() }
}

/// Reads a file of such a server.
fn read(
    manners: Manners,
    compression: Compression,
    script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
) -> Result<Vec<u8>, Error> {
    on_paused_clock(async {
        let dial = ToEvil::new(manners, script);
        let options = Options::new().compression(compression).recover_for(Duration::from_secs(5));
        let client = Client::with_dialer(options, dial as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await?;
        let file = session.share("data").await?.open("known").await?;
        let mut into = vec![0; CONTENT.len()];
        let count = file.read_at(&mut into, 0).await?;
        into.truncate(count);
        Ok(into)
    })
}

/// Makes a compressed frame of a frame.
type Squeeze = fn(&[u8]) -> Vec<u8>;

/// Reads while the answers to `command` are the frames that `squeeze` makes of honest ones.
fn squeezed(
    command: Command,
    ids: &[u16],
    squeeze: impl Fn(&[u8]) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> Result<Vec<u8>, Error> {
    read(manners(ids, true), Compression::On, move |asked| {
        if asked.header.command != command {
            return Act::Honest;
        }
        let squeeze = squeeze.clone();
        Act::Squeezed(Box::new(move |frame| squeeze(frame)))
    })
}

fn chained(payloads: &[Payload<'_>]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_chained(payloads, &mut Writer::new(&mut frame));
    frame
}

fn unchained(message: &[u8], size: u32, offset: u32, algorithm: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let header = UnchainedHeader {
        original_compressed_segment_size: size,
        compression_algorithm: CompressionAlgorithm(algorithm),
        offset,
    };
    header.encode(&mut Writer::new(&mut frame));
    [&frame, &message[..64], data].concat()
}

fn lz77(data: &[u8]) -> Vec<u8> {
    let mut room = vec![0; data.len() * 2 + 100];
    let count = Codec::Lz77.compress_into(data, &mut room).unwrap();
    room.truncate(count);
    room
}

fn len(rest: &[u8]) -> u32 {
    u32::try_from(rest.len()).unwrap()
}

#[track_caller]
fn assert_refused(read: Result<Vec<u8>, Error>, what: &str) {
    let error = read.expect_err(what);
    assert!(matches!(error.cause(), Cause::Protocol(_)), "{what}: {error}");
}

/// The connection ends with the lie, and with it the Open, which this server does not keep.
#[track_caller]
fn assert_lost(read: Result<Vec<u8>, Error>, what: &str) {
    let error = read.expect_err(what);
    assert!(error.to_string().contains("the connection was lost"), "{what}: {error}");
}

#[test]
fn honest_compressed_answers_are_read() {
    let chain = |frame: &[u8]| {
        let (head, rest) = frame.split_at(64);
        let data = lz77(rest);
        let rest =
            Payload::Compressed { algorithm: LZ77, original_payload_size: len(rest), data: &data };
        chained(&[Payload::Plain(head), rest])
    };
    assert_eq!(squeezed(Command::READ, &[2], chain).unwrap(), CONTENT);
    let alone = |frame: &[u8]| unchained(frame, len(&frame[64..]), 64, 2, &lz77(&frame[64..]));
    assert_eq!(squeezed(Command::READ, &[2], alone).unwrap(), CONTENT);
    let plain = |frame: &[u8]| frame.to_vec();
    assert_eq!(squeezed(Command::READ, &[2], plain).unwrap(), CONTENT);
    // A server that compresses nothing says so.
    assert_eq!(read(manners(&[0], false), Compression::On, |_| Act::Honest).unwrap(), CONTENT);
}

#[test]
fn answers_that_lie_about_their_sizes_are_refused() {
    type Lie = fn(&[u8]) -> Vec<u8>;
    let lies: [(&str, Lie); 8] = [
        ("longer than any", |frame| unchained(frame, u32::MAX, 64, 2, &lz77(&frame[64..]))),
        ("a sum that wraps", |frame| unchained(frame, u32::MAX - 63, 64, 2, &lz77(&frame[64..]))),
        ("offset", |frame| unchained(frame, len(&frame[64..]), 5000, 2, &lz77(&frame[64..]))),
        ("shorter", |frame| unchained(frame, len(&frame[64..]) + 1, 64, 2, &lz77(&frame[64..]))),
        ("longer", |frame| unchained(frame, len(&frame[64..]) - 1, 64, 2, &lz77(&frame[64..]))),
        ("a run", |frame| {
            let run = Payload::Pattern { pattern: 1, repetitions: 0x4000_0000 };
            chained(&[Payload::Plain(frame), run])
        }),
        ("twice", |frame| chained(&[Payload::Plain(&chained(&[Payload::Plain(frame)]))])),
        ("no message", |_| chained(&[Payload::Plain(&[0; 200])])),
    ];
    for (what, lie) in lies {
        assert_lost(squeezed(Command::READ, &[2, 4], lie), what);
    }
}

/// A server may say that it takes and sends 4 GiB: the client asks for less, and takes no more.
#[test]
fn no_answer_is_larger_than_this_client_asks_for() {
    let read = read(manners(&[2, 4], true), Compression::On, |asked| match asked.header.command {
        Command::NEGOTIATE => Act::Changed(Box::new(|message| {
            for at in [92, 96, 100] {
                message[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            }
        })),
        Command::READ => Act::Squeezed(Box::new(|frame| {
            let run = Payload::Pattern { pattern: 1, repetitions: 9 << 20 };
            chained(&[Payload::Plain(frame), run])
        })),
        _ => Act::Honest,
    });
    assert_lost(read, "9 MiB");
}

#[test]
fn algorithms_that_were_not_agreed_on_are_refused() {
    type Lie = fn(&[u8]) -> Vec<u8>;
    let lies: [(&str, Lie); 3] = [
        ("LZNT1", |frame| unchained(frame, len(&frame[64..]), 64, 1, &lz77(&frame[64..]))),
        ("Pattern_V1", |frame| {
            chained(&[Payload::Plain(frame), Payload::Pattern { pattern: 1, repetitions: 1 }])
        }),
        ("NONE", |frame| unchained(frame, len(&frame[64..]), 64, 0, &frame[64..])),
    ];
    for (what, lie) in lies {
        assert_lost(squeezed(Command::READ, &[2], lie), what);
    }
    for (ids, what) in [
        (&[][..], "none"),
        (&[6], "unknown"),
        (&[40], "too large"),
        (&[2, 2], "twice"),
        (&[0, 2], "none and one"),
    ] {
        assert_refused(read(manners(ids, true), Compression::On, |_| Act::Honest), what);
    }
    let not_offered = read(manners(&[2], true), Compression::Off, |_| Act::Honest);
    assert_refused(not_offered, "not offered");
}

/// Nothing is compressed before the client asks for it: neither the logon nor what follows.
#[test]
fn compressed_answers_that_nobody_asked_for_are_refused() {
    for command in [Command::SESSION_SETUP, Command::TREE_CONNECT, Command::CREATE] {
        let whole = |frame: &[u8]| chained(&[Payload::Plain(frame)]);
        let read = squeezed(command, &[2], whole);
        assert_refused(read, "nobody asked");
    }
}

/// MS-SMB2 3.2.5.1.3: the message in a compressed one is verified as any other.
#[test]
fn a_compressed_answer_proves_its_sender() {
    let whole = |message: &[u8]| chained(&[Payload::Plain(message)]);
    assert_eq!(squeezed(Command::READ, &[2], whole).unwrap(), CONTENT);
    // A bit of the data, a bit of the Signature, and no signature at all.
    let lies: [fn(&mut [u8]); 3] = [
        |message| *message.last_mut().unwrap() ^= 1,
        |message| message[50] ^= 1,
        |message| {
            message[16] &= !8;
            message[48..64].fill(0);
        },
    ];
    for lie in lies {
        for is_chained in [false, true] {
            let read = squeezed(Command::READ, &[2], move |frame| {
                let mut message = frame.to_vec();
                lie(&mut message);
                match is_chained {
                    true => chained(&[Payload::Plain(&message)]),
                    false => {
                        let rest = &message[64..];
                        unchained(&message, len(rest), 64, 2, &lz77(rest))
                    }
                }
            });
            read.expect_err("a lie");
        }
    }
    // A sealed answer is as it was, and is not within a compressed one.
    let sealed = |squeeze: Option<Squeeze>| {
        let mut contexts = evil::usual(Some(Cipher::Aes128Gcm));
        contexts.push(compressing(&[2], true));
        let manners = Manners { seal: true, contexts: Some(contexts), ..Manners::default() };
        read(manners, Compression::On, move |asked| match (asked.header.command, squeeze) {
            (Command::READ, Some(squeeze)) => Act::Squeezed(Box::new(squeeze)),
            _ => Act::Honest,
        })
    };
    assert_eq!(sealed(None).unwrap(), CONTENT);
    let changed = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        frame[60] ^= 1;
        frame
    };
    sealed(Some(changed)).expect_err("a changed seal");
    sealed(Some(|frame| chained(&[Payload::Plain(frame)]))).expect_err("a seal within");
}
