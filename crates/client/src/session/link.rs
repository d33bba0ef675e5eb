//! The measured rate of the way to a server, compared with that of a core that compresses.

use std::sync::OnceLock;
use std::time::Duration;

use frevo_proto::protection::Codec;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{LINK_BYTES_MIN, LINK_MEASURED_FOR, LINK_MEASURED_IN, LINK_PART};

/// The way to a server, as the data of files shows it.
#[derive(Debug)]
pub(crate) struct Link {
    state: Mutex<State>,
    /// Returns the bytes that a core compresses in a second.
    rate: fn(Codec) -> u64,
}

impl Default for Link {
    fn default() -> Self {
        Self { state: Mutex::default(), rate: compressed_in_a_second }
    }
}

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
    /// The codec that would compress it.
    codec: Codec,
    bytes: u64,
}

impl Link {
    /// Returns true while the way is known to be slower than compression. The result is forgotten after
    /// some time, and data is sent as it is until there is another one.
    pub(crate) fn is_slow(&self) -> bool {
        let judged = self.state.lock().judged;
        judged.is_some_and(|judged| judged.is_slow && judged.at.elapsed() < LINK_MEASURED_FOR)
    }

    /// Begins to measure data that moves uncompressed where `codec` was negotiated.
    pub(crate) fn begin(&self, codec: Codec) -> Transfer<'_> {
        let mut state = self.state.lock();
        if state.under_way == 0 {
            state.since = Some(Instant::now());
        }
        state.under_way = state.under_way.saturating_add(1);
        Transfer { link: self, codec, bytes: 0 }
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
        let mut state = self.link.state.lock();
        let begun = state.since.replace(now).unwrap_or(now);
        state.busy += now.saturating_duration_since(begun);
        state.bytes = state.bytes.saturating_add(self.bytes);
        state.under_way = state.under_way.saturating_sub(1);
        if state.under_way == 0 {
            state.since = None;
        }
        if state.busy >= LINK_MEASURED_IN && state.bytes >= LINK_BYTES_MIN {
            let is_slow = is_slow(state.bytes, state.busy, (self.link.rate)(self.codec));
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

/// Bytes of the text that is compressed to measure a core.
const TEXT_BYTES: usize = 64 << 10;

/// Returns the bytes that a core compresses in a second, as measured once. 0 for data that does not
/// shrink, of which no rate is known.
fn compressed_in_a_second(codec: Codec) -> u64 {
    static RATES: [OnceLock<u64>; Codec::ALL.len()] = [const { OnceLock::new() }; Codec::ALL.len()];
    let place = Codec::ALL.iter().zip(&RATES).find(|(of, _)| **of == codec);
    let rate = || {
        let text = text();
        // As much as LZ4 wants for data that does not shrink.
        let mut room = vec![0; text.len() * 2];
        let begun = Instant::now();
        let shrunk = codec.compress_into(&text, &mut room);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        if shrunk.is_none_or(|count| count >= text.len()) {
            return 0;
        }
        u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_mul(1_000_000) / micros
    };
    place.map_or(0, |(_, known)| *known.get_or_init(rate))
}

/// Makes text that shrinks as text does.
fn text() -> Vec<u8> {
    let words = (0u32..).flat_map(|at| format!("{} times {}, ", at % 97, at / 7).into_bytes());
    words.take(TEXT_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_link_is_measured_while_it_is_busy() {
        let link = Link { rate: |_| 80 << 20, ..Link::default() };
        let moved = async |bytes: usize, time: Duration| {
            let transfer = link.begin(Codec::Lz4);
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
        moved(1 << 20, LINK_MEASURED_IN).await;
        assert!(link.is_slow());
        moved(5 << 20, LINK_MEASURED_IN).await;
        assert!(!link.is_slow(), "50 MiB in a second");
        assert_eq!(link.state.lock().under_way, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_of_the_negotiated_codec_counts() {
        let rate = |codec: Codec| if codec == Codec::Lz4 { 80 << 20 } else { 8 << 20 };
        for (codec, is_slow) in [(Codec::Lz4, true), (Codec::Lz77, false)] {
            let link = Link { rate, ..Link::default() };
            let transfer = link.begin(codec);
            tokio::time::advance(LINK_MEASURED_IN).await;
            transfer.end(1 << 20);
            assert_eq!(link.is_slow(), is_slow, "{codec:?}");
        }
    }

    #[test]
    fn the_text_shrinks_with_every_codec() {
        let text = text();
        for codec in Codec::ALL {
            let mut room = vec![0; text.len() * 2];
            let count = codec.compress_into(&text, &mut room).unwrap();
            assert!(count < text.len() * 3 / 4, "{codec:?}: {count}");
            assert!(compressed_in_a_second(codec) > 0);
        }
    }

    #[test]
    fn a_link_is_slow_below_half_of_the_core() {
        let second = Duration::from_secs(1);
        assert!(is_slow(199, second, 400));
        assert!(!is_slow(200, second, 400));
        assert!(is_slow(1, Duration::from_micros(20_000), 400));
    }
}
