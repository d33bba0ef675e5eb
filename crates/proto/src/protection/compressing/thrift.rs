//! The messages of one file that are worth compressing.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use frevo_compress::{pattern, sample};

use crate::limits::COMPRESSED_BYTES_MIN;

/// The most that [`State::misses`] becomes.
const MISSES_MAX: u8 = 6;

/// Data of one file, one message after the other: after messages that did not shrink fewer are tried.
///
/// Messages side by side may forget each other's results, which changes speed alone.
#[derive(Debug, Default)]
pub struct Thrift {
    state: AtomicU16,
    /// Gets the bytes that were saved; None if nobody counts them.
    saved: Option<Arc<AtomicU64>>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// Binary logarithm of the messages that are left out next.
    misses: u8,
    /// Messages that are still left out.
    left_out: u8,
}

impl Thrift {
    /// Returns one that adds the bytes that are saved to a count.
    #[must_use]
    pub fn counting_in(saved: Arc<AtomicU64>) -> Self {
        Self { saved: Some(saved), ..Self::default() }
    }

    /// Counts a message of `bytes`, and returns true if it is left out, whatever its data is: it is too
    /// short, or others before it did not shrink.
    pub fn leaves_out(&self, bytes: usize) -> bool {
        if bytes <= COMPRESSED_BYTES_MIN {
            return true;
        }
        let State { misses, left_out } = self.state();
        let Some(left_out) = left_out.checked_sub(1) else { return false };
        self.set(State { misses, left_out });
        true
    }

    /// Returns true if `data` of a message that is not [left out](Self::leaves_out) is worth compressing.
    pub fn tries(&self, data: &[u8]) -> bool {
        let is_worth = data.len() > COMPRESSED_BYTES_MIN && is_worth(data);
        if !is_worth {
            self.note(None);
        }
        is_worth
    }

    /// Notes the bytes by which a message that was tried has shrunk; None if it has not.
    pub fn note(&self, shrunk: Option<usize>) {
        if let (Some(saved), Some(bytes)) = (&self.saved, shrunk) {
            saved.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        let State { misses, .. } = self.state();
        self.set(match shrunk {
            Some(_) => State { misses: 0, left_out: 0 },
            None => State {
                misses: misses.saturating_add(1).min(MISSES_MAX),
                left_out: 1u8.checked_shl(misses.into()).unwrap_or(0),
            },
        });
    }

    fn state(&self) -> State {
        let [misses, left_out] = self.state.load(Ordering::Relaxed).to_le_bytes();
        State { misses, left_out }
    }

    fn set(&self, State { misses, left_out }: State) {
        self.state.store(u16::from_le_bytes([misses, left_out]), Ordering::Relaxed);
    }
}

/// Looks at a few pieces of data. Runs of one byte need no look.
fn is_worth(data: &[u8]) -> bool {
    let has_run = || pattern::at_front(data).or_else(|| pattern::at_back(data)).is_some();
    sample::Sampler::default().is_worth(data) || has_run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        core::iter::repeat_with(next).take(len).collect()
    }

    /// Returns true if a message is tried that then shrinks if it `shrinks`.
    fn tried(thrift: &Thrift, data: &[u8], shrinks: bool) -> bool {
        let is_tried = !thrift.leaves_out(data.len()) && thrift.tries(data);
        if is_tried {
            thrift.note(shrinks.then_some(1));
        }
        is_tried
    }

    #[test]
    fn data_that_does_not_shrink_is_tried_less_and_less() {
        let text = b"words and words ".repeat(4096);
        for noise in [noise(64 << 10), noise(4 << 10)] {
            let thrift = Thrift::default();
            assert!(tried(&thrift, &text, true) && tried(&thrift, &text, true));
            assert!(!tried(&thrift, &noise, false));
            // One message is left out, then two, up to 64.
            for left_out in [1, 2, 4, 8, 16, 32, 64, 64] {
                for _ in 0..left_out {
                    assert!(thrift.leaves_out(text.len()));
                }
                assert!(!thrift.leaves_out(noise.len()) && !thrift.tries(&noise));
            }
            for _ in 0..64 {
                assert!(thrift.leaves_out(text.len()));
            }
            assert!(tried(&thrift, &text, true) && tried(&thrift, &text, true));
        }
        let thrift = Thrift::default();
        assert!(thrift.leaves_out(1024), "no data of 1,024 bytes");
        assert!(!thrift.leaves_out(1025) && thrift.tries(&text[..1025]));
    }

    /// Data that is too short for a look, or that deceives it.
    #[test]
    fn the_result_counts() {
        let short = noise(4095);
        let thrift = Thrift::default();
        for left_out in [1, 2, 4, 8] {
            assert!(tried(&thrift, &short, false), "it is tried as a whole");
            for _ in 0..left_out {
                assert!(thrift.leaves_out(short.len()));
            }
        }
        assert!(tried(&thrift, &short, true), "this one has shrunk");
        assert!(tried(&thrift, &short, false));
        assert!(thrift.leaves_out(short.len()) && !thrift.leaves_out(short.len()));
    }
}
