//! The headers of compressed messages, and the expansion of all that they hold.

use frevo_crypto::Sender;
use frevo_proto::protection::{
    Compression, Expanding, Guard, Outgoing, Received, ToCompress, Work, transform,
};
use frevo_wire::codec::Writer;
use frevo_wire::compression::{Compressed, Payload, encode_chained};

use crate::allocation;
use crate::judge::grown;

/// MaxReadSize and the others of the connection, bytes.
const MAX_PAYLOAD: u32 = 1 << 20;

/// Decodes a received message; encodes its compression chain again. Expands it, and sends what comes out
/// compressed to itself.
pub fn compression(data: &[u8]) {
    let Some(message) = grown(data) else { return };
    expanded(&message);
    let Ok(parsed) = Compressed::parse(&message) else { return };
    let _ = parsed.decompressed_len();
    match parsed {
        Compressed::Unchained { header, plain, compressed } => {
            let mut out = Vec::new();
            let mut w = Writer::new(&mut out);
            header.encode(&mut w);
            w.bytes(plain).bytes(compressed);
            let again = Compressed::parse(&out).expect("what we write we read");
            assert_eq!(again, Compressed::Unchained { header, plain, compressed });
        }
        Compressed::Chained { payloads, .. } => {
            let mut list: Vec<_> = payloads.collect();
            // MS-SMB2 3.1.5.3: at the end of a message bytes up to the length of a payload header
            // are ignored, and so is an empty payload. So an empty payload at the end is removed
            // before the comparison.
            while list.last() == Some(&Payload::Plain(&[])) {
                list.pop();
            }
            if list.is_empty() {
                return;
            }
            let mut out = Vec::new();
            encode_chained(&list, &mut Writer::new(&mut out));
            let Ok(Compressed::Chained { payloads, .. }) = Compressed::parse(&out) else {
                panic!("what we write we read");
            };
            assert!(payloads.eq(list));
        }
    }
}

/// Expands a message. No more memory is taken than its headers were allowed to say, and all of it is filled
/// by the message.
fn expanded(message: &[u8]) {
    let Ok(Some(found)) = Compression::ALL.look(message, MAX_PAYLOAD) else { return };
    assert!(found.frame_len() <= MAX_PAYLOAD as usize + 256 + 16 + 52);
    // The caller of the pipeline gives this memory, which it has charged.
    allocation::raise(found.frame_len().saturating_mul(5));
    let fill = |room: fn(usize) -> Vec<u8>| {
        let received = Received { frame: message.to_vec(), verdict: None };
        let work: Expanding<Vec<u8>> = Expanding::new(received, found, room, Sender::Client);
        work.run().map(|received| received.frame)
    };
    let once = fill(|len| vec![0; len]);
    assert_eq!(once, fill(|len| vec![0xA5; len]), "a byte was not filled");
    let Ok(whole) = once else { return };
    if transform::is_sealed(&whole) {
        return;
    }
    let buffer = [&[0; transform::HEADROOM], &*whole].concat();
    let room: fn(usize) -> Vec<u8> = |len| vec![0; len];
    let head = whole.len().min(80);
    let to_compress = ToCompress { compression: Compression::ALL, head, room, thrift: None };
    let guard: Guard = Guard::None;
    let work = Outgoing::new(buffer, guard, Sender::Client, Some(to_compress)).expect("headroom");
    let framed = work.run().expect("it is short enough");
    let frame = &framed.buffer[framed.range][4..];
    let Some(found) = Compression::ALL.look(frame, MAX_PAYLOAD).expect("what we write we read")
    else {
        assert!(frame == whole, "it is as it was");
        return;
    };
    let received = Received { frame: frame.to_vec(), verdict: None };
    let work: Expanding<Vec<u8>> = Expanding::new(received, found, room, Sender::Client);
    assert!(work.run().expect("what we compress expands").frame == whole);
}
