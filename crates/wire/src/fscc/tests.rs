//! Golden bytes, round trips, and "never panics" for all of this folder.

mod directory;
mod ea;
mod golden;
mod structures;
mod wildcard;

use alloc::vec::Vec;

/// Bytes from hexadecimal with spaces.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
