//! Base64 (RFC 4648, section 4), with padding, as protobuf's JSON has it.

use alloc::vec::Vec;

use super::Parsed;
use crate::types::Fault;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` as base64.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        for (to, from) in three.iter_mut().zip(chunk) {
            *to = *from;
        }
        let [a, b, c] = three;
        let sextets = [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63];
        // One byte is coded as two letters, two bytes as three, and three bytes as four.
        for (at, sextet) in sextets.into_iter().enumerate() {
            let letter = ALPHABET.get(usize::from(sextet)).filter(|_| at <= chunk.len());
            out.push(letter.copied().unwrap_or(b'='));
        }
    }
}

/// Returns the bytes that `text` stands for.
pub(super) fn decode(text: &[u8]) -> Parsed<Vec<u8>> {
    const FAULT: Fault = Fault::Malformed("bytes that are not base64");
    if !text.len().is_multiple_of(4) {
        return Err(FAULT);
    }
    let letters = match text {
        [rest @ .., b'=', b'='] | [rest @ .., b'='] => rest,
        all => all,
    };
    let mut out = Vec::with_capacity(text.len());
    for chunk in letters.chunks(4) {
        let mut four = [0_u8; 4];
        for (to, letter) in four.iter_mut().zip(chunk) {
            *to = sextet(*letter).ok_or(FAULT)?;
        }
        let [a, b, c, d] = four;
        let three = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        let count = match chunk.len() {
            4 => 3,
            3 if d == 0 && c & 3 == 0 => 2,
            2 if c == 0 && b & 15 == 0 => 1,
            _ => return Err(FAULT),
        };
        out.extend(three.into_iter().take(count));
    }
    Ok(out)
}

fn sextet(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => letter.checked_sub(b'A'),
        b'a'..=b'z' => letter.checked_sub(b'a' - 26),
        b'0'..=b'9' => letter.checked_add(52 - b'0'),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}
