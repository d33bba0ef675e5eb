//! Plain hashes, for other programs' formats that contain one.

use aws_lc_rs::digest::{SHA256, digest};

/// Returns SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(digest(&SHA256, bytes).as_ref()) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_of_fips_180() {
        let hash = super::sha256(b"abc");
        assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(hash[28..], [0xf2, 0x00, 0x15, 0xad]);
    }
}
