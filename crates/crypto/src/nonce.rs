//! Nonces that one key never sees twice, MS-SMB2 2.2.41.

use crate::limits::SEALED_MESSAGES_MAX;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The key has sealed [`SEALED_MESSAGES_MAX`] messages and refuses more. The session has to
/// authenticate again, or the connection to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyExhausted;

impl fmt::Display for KeyExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sealing key has reached its limit of messages")
    }
}

impl core::error::Error for KeyExhausted {}

/// The Nonce field of a transform header: the cipher's part, then zeros. It cannot be copied or
/// cloned, and sealing takes it, so it is used once.
#[derive(Debug, PartialEq, Eq)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Returns the 16 bytes of the header field.
    pub const fn field(&self) -> &[u8; 16] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) const fn from_field(field: [u8; 16]) -> Self {
        Self(field)
    }
}

/// The nonces of one key: a counter that all channels of a session use. Every session has new keys,
/// so counting from zero repeats nothing.
#[derive(Debug)]
pub struct NonceSequence {
    next: AtomicU64,
}

impl Default for NonceSequence {
    fn default() -> Self {
        Self::new()
    }
}

impl NonceSequence {
    /// Makes a sequence at its first nonce.
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0) }
    }

    /// Returns a nonce that this sequence has not returned before.
    pub fn next_nonce(&self) -> Result<Nonce, KeyExhausted> {
        // At the limit the counter no longer changes. A plain addition would go on counting at each
        // refusal and repeat nonces after wrapping around.
        let counter = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                if n < SEALED_MESSAGES_MAX { n.checked_add(1) } else { None }
            })
            .map_err(|_| KeyExhausted)?;
        let mut field = [0; 16];
        if let Some(first) = field.first_chunk_mut() {
            *first = counter.to_le_bytes();
        }
        Ok(Nonce(field))
    }

    /// Returns the number of messages that may still be sealed, so that a session can authenticate
    /// again in time.
    pub fn remaining(&self) -> u64 {
        SEALED_MESSAGES_MAX.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) const fn starting_at(next: u64) -> Self {
        Self { next: AtomicU64::new(next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn refuses_after_the_limit() {
        let nonces = NonceSequence::starting_at(SEALED_MESSAGES_MAX - 2);
        assert_eq!(nonces.remaining(), 2);
        assert!(nonces.next_nonce().is_ok());
        assert!(nonces.next_nonce().is_ok());
        assert_eq!(nonces.remaining(), 0);
        assert_eq!(nonces.next_nonce(), Err(KeyExhausted));
        assert_eq!(nonces.next_nonce(), Err(KeyExhausted));
    }

    #[test]
    fn unique_across_threads() {
        let nonces = NonceSequence::new();
        let seen: Vec<Vec<[u8; 16]>> = std::thread::scope(|scope| {
            let take = || (0..1000).map(|_| nonces.next_nonce().unwrap().0).collect();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let distinct: BTreeSet<[u8; 16]> = seen.iter().flatten().copied().collect();
        assert_eq!(distinct.len(), 4000);
        // CCM uses only 11 of the 16 bytes of the nonce field; the other five stay zero.
        assert!(distinct.iter().all(|n| n[11..] == [0; 5]));
    }
}
