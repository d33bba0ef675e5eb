//! The pre-authentication integrity hash of SMB 3.1.1, MS-SMB2 3.3.5.4.

use aws_lc_rs::digest;

/// SHA-512 over the previous value and a message, beginning with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreauthHash([u8; 64]);

impl Default for PreauthHash {
    fn default() -> Self {
        Self::new()
    }
}

impl PreauthHash {
    /// Makes the value before the first message.
    pub const fn new() -> Self {
        Self([0; 64])
    }

    /// Adds one message, passed in parts: from its SMB2 header to its last byte on the wire,
    /// without the transport's length prefix.
    pub fn update(&mut self, message_parts: &[&[u8]]) {
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(&self.0);
        for part in message_parts {
            context.update(part);
        }
        self.0.copy_from_slice(context.finish().as_ref());
    }

    /// Returns the 64 bytes, which are the context of the 3.1.1 key derivation.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::*;

    #[test]
    fn parts_are_one_message_and_messages_are_not() {
        let mut whole = PreauthHash::new();
        whole.update(&[b"abcdef"]);
        let mut parts = PreauthHash::new();
        parts.update(&[b"abc", b"", b"def"]);
        assert_eq!(whole, parts);
        let mut two = PreauthHash::new();
        two.update(&[b"abc"]);
        two.update(&[b"def"]);
        assert_ne!(whole, two);
    }

    #[test]
    fn published_exchange() {
        let mut hash = PreauthHash::new();
        for (message, after) in [
            (NEGOTIATE_REQUEST, NEGOTIATE_REQUEST_HASH),
            (NEGOTIATE_RESPONSE, NEGOTIATE_RESPONSE_HASH),
            (SESSION_SETUP_REQUEST_1, SESSION_SETUP_REQUEST_1_HASH),
            (SESSION_SETUP_RESPONSE_1, SESSION_SETUP_RESPONSE_1_HASH),
            (SESSION_SETUP_REQUEST_2, SESSION_SETUP_REQUEST_2_HASH),
        ] {
            hash.update(&[&hex(message)]);
            assert_eq!(hash.as_bytes(), &hex_array(after));
        }
    }
}
