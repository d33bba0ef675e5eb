//! The measured rate of the way to a server, compared with that of a core that compresses.

use std::sync::OnceLock;
use std::time::Duration;

use frevo_proto::protection::Codec;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{LINK_BYTES_MIN, LINK_MEASURED_FOR, LINK_MEASURED_IN, LINK_PART};

/// The way to a server, as the data of files shows it.
#[derive(Debug, Default)]
pub(crate) struct Link(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    /// The time since when the way was busy.
    since: Option<Instant>,
    /// Time for which it was busy before.
    busy: Duration,
    /// Bytes that were moved in that time.
    bytes: u64,
    judged: Option<Judgement>,
}

/// The last result.
#[derive(Debug, Clone, Copy)]
struct Judgement {
    at: Instant,
    is_slow: bool,
}

/// Data that moves. Dropping it ends the measurement.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    link: &'a Link,
    bytes: u64,
}

impl Link {
    /// Returns true while the way is known to be slower than compression. The result is forgotten after
    /// some time, and data is sent as it is until there is another one.
    pub(crate) fn is_slow(&self) -> bool {
        let judged = self.0.lock().judged;
        judged.is_some_and(|judged| judged.is_slow && judged.at.elapsed() < LINK_MEASURED_FOR)
    }

    /// Begins to measure data that moves uncompressed.
    pub(crate) fn begin(&self) -> Transfer<'_> {
        let mut state = self.0.lock();
        if state.under_way == 0 {
            state.since = Some(Instant::now());
        }
        state.under_way = state.under_way.saturating_add(1);
        Transfer { link: self, bytes: 0 }
    }
}

impl Transfer<'_> {
    /// Counts the bytes that have moved.
    pub(crate) fn end(mut self, bytes: usize) {
        self.bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.link.0.lock();
        let begun = state.since.replace(now).unwrap_or(now);
        state.busy += now.saturating_duration_since(begun);
        state.bytes = state.bytes.saturating_add(self.bytes);
        state.under_way = state.under_way.saturating_sub(1);
        if state.under_way == 0 {
            state.since = None;
        }
        if state.busy >= LINK_MEASURED_IN && state.bytes >= LINK_BYTES_MIN {
            let is_slow = is_slow(state.bytes, state.busy, compressed_in_a_second());
            state.judged = Some(Judgement { at: now, is_slow });
            (state.busy, state.bytes) = (Duration::ZERO, 0);
        }
    }
}

/// Returns true if a way that moves `bytes` in `time` is so much slower than a core that the core helps.
fn is_slow(bytes: u64, time: Duration, of_core: u64) -> bool {
    let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1_000_000) / time < of_core / LINK_PART
}

/// Returns the bytes that a core compresses in a second, as measured once.
fn compressed_in_a_second() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let text: Vec<u8> = (0u32..1 << 14).flat_map(|at| (at * at / 64).to_le_bytes()).collect();
        let mut room = vec![0; text.len()];
        let begun = Instant::now();
        let _ = Codec::Lz77.compress_into(&text, &mut room);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_mul(1_000_000) / micros
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_link_is_measured_while_it_is_busy() {
        let link = Link::default();
        let moved = async |bytes: usize, time: Duration| {
            let transfer = link.begin();
            tokio::time::advance(time).await;
            transfer.end(bytes);
        };
        // 100 KB in 100 ms are too little to tell.
        moved(100_000, LINK_MEASURED_IN).await;
        assert!(!link.is_slow());
        tokio::time::advance(Duration::from_secs(60)).await;
        moved(1 << 20, LINK_MEASURED_IN).await;
        assert!(link.is_slow());
        tokio::time::advance(LINK_MEASURED_FOR).await;
        assert!(!link.is_slow(), "it is measured again");
        assert_eq!(link.0.lock().under_way, 0);
    }

    #[test]
    fn a_link_is_slow_below_half_of_the_core() {
        let second = Duration::from_secs(1);
        assert!(is_slow(199, second, 400));
        assert!(!is_slow(200, second, 400));
        assert!(is_slow(1, Duration::from_micros(20_000), 400));
    }
}
