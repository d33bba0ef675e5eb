//! The headers of compressed messages.

use frevo_wire::codec::Writer;
use frevo_wire::compression::{Compressed, Payload, encode_chained};

use crate::judge::grown;

/// Decodes a received message; encodes its compression chain again.
pub fn compression(data: &[u8]) {
    let Some(message) = grown(data) else { return };
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
