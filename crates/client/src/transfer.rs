//! Whole files through the pipe: many requests under way, as many as the path
//! to the server holds, and no more.
//!
//! How many that is, is measured: the smallest time an answer took and the rate
//! at which data came give the bandwidth-delay product, and twice that is kept
//! under way. It begins with a few and doubles until the rate grows no more.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use frevo_net::buffer::Buf;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{Cause, Error, Result};
use crate::file::File;

/// Requests under way at first, and at least.
const DEPTH_MIN: usize = 4;
/// The same of reads: what a server has ready while this end is kept from running
/// must not be less than what the sockets of a bare stream hold, nor more than the
/// caches between the two.
const READS_MIN: usize = 6;
/// Reads are asked for by so many, which go to the server in one piece and wake it once.
const READS_AT_ONCE: usize = 3;
/// Requests under way at most.
const DEPTH_MAX: usize = 64;

/// A file that [`File::store`] was interrupted in is whole up to this many bytes
/// before its end: no piece is sent so far beyond one that is not acknowledged.
pub const STORE_WINDOW: u64 = 64 << 20;

/// The measured bandwidth-delay product.
#[derive(Debug)]
struct Pace {
    fastest: Duration,
    since: Instant,
    bytes: u64,
    rate: f64,
    least: usize,
    depth: usize,
}

impl Pace {
    fn new(least: usize) -> Self {
        Self {
            fastest: Duration::MAX,
            since: Instant::now(),
            bytes: 0,
            rate: 0.0,
            least,
            depth: least,
        }
    }

    /// An answer of `bytes` came after `took`.
    fn note(&mut self, bytes: u64, took: Duration) {
        self.fastest = self.fastest.min(took);
        self.bytes += bytes;
        let window = self.since.elapsed();
        // A window is at least two answers' time and holds several of them.
        if window < self.fastest * 2 || self.bytes < bytes * self.depth as u64 {
            return;
        }
        let rate = self.bytes as f64 / window.as_secs_f64().max(1e-9);
        self.rate = if rate > self.rate { rate } else { self.rate * 0.9 + rate * 0.1 };
        let product = self.rate * self.fastest.as_secs_f64();
        let wanted = (2.0 * product / bytes.max(1) as f64).ceil();
        // The cast saturates, and the number is clamped.
        self.depth = (wanted as usize).clamp(self.least, DEPTH_MAX);
        self.since = Instant::now();
        self.bytes = 0;
    }
}

/// Gives up when asked to, between two pieces.
pub trait Progress: Send {
    /// `bytes` more have arrived; false ends the transfer.
    fn advance(&mut self, bytes: u64) -> bool;
}

impl<F: FnMut(u64) -> bool + Send> Progress for F {
    fn advance(&mut self, bytes: u64) -> bool {
        self(bytes)
    }
}

impl File {
    /// Reads from `offset` to the end of the file, at most `len` bytes, and
    /// gives the pieces in order to `sink` with their offsets. Returns how many
    /// bytes there were.
    ///
    /// # Errors
    /// What the server says, or `sink`.
    pub async fn fetch<F>(
        &self,
        offset: u64,
        len: u64,
        mut sink: impl FnMut(u64, Buf) -> F + Send,
    ) -> Result<u64>
    where
        F: Future<Output = io::Result<()>> + Send,
    {
        let (most, _) = self.sizes().await?;
        let end = offset.saturating_add(len);
        let mut pace = Pace::new(READS_MIN);
        let mut under_way = FuturesOrdered::new();
        let mut next = offset;
        let mut done = offset;
        let mut ended = false;
        loop {
            let is_room = under_way.len() + READS_AT_ONCE <= pace.depth;
            while is_room && !ended && next < end && under_way.len() < pace.depth {
                let want = u32::try_from((end - next).min(most.into())).unwrap_or(most);
                under_way.push_back(self.timed_read(next, want));
                next += u64::from(want);
            }
            let Some(piece) = under_way.next().await else { break };
            let (at, want, buf, took) = piece?;
            if ended || at != done {
                continue;
            }
            pace.note(u64::from(want), took);
            // Less than was asked for is the end, or a server that reads less.
            if buf.is_empty() {
                ended = true;
                continue;
            }
            let count = buf.len() as u64;
            done += count;
            if count < u64::from(want) {
                // What is under way begins too far; it is asked for again.
                next = done;
                under_way = FuturesOrdered::new();
            }
            sink(at, buf).await.map_err(|error| self.local(error))?;
        }
        Ok(done - offset)
    }

    /// Reads the whole file, as [`Self::fetch`] does, with what is appended to it
    /// meanwhile. Its length is asked for, no READ goes beyond its end: ksmbd of
    /// Linux 6.12 signs what it answers to that over the wrong bytes.
    ///
    /// # Errors
    /// What the server says, or `sink`.
    pub async fn fetch_all<F>(&self, mut sink: impl FnMut(u64, Buf) -> F + Send) -> Result<u64>
    where
        F: Future<Output = io::Result<()>> + Send,
    {
        let mut end = self.metadata_at_open().len();
        let mut done = 0;
        loop {
            let count = if end > done { self.fetch(done, end - done, &mut sink).await? } else { 0 };
            done += count;
            end = self.metadata().await?.len();
            if count == 0 || end <= done {
                return Ok(done);
            }
        }
    }

    async fn timed_read(&self, at: u64, want: u32) -> Result<(u64, u32, Buf, Duration)> {
        let start = Instant::now();
        let buf = self.read_chunk(at, want).await?;
        Ok((at, want, buf, start.elapsed()))
    }

    /// Writes `len` bytes from `offset` on, each piece appended to its buffer by
    /// `fill(offset, count, buffer)`. Pieces are filled, sealed and sent on
    /// several cores; `progress` is told of what the server has taken.
    ///
    /// # Errors
    /// What the server says, or `fill`; `Interrupted` when `progress` ends it. Then nothing is
    /// under way any more.
    pub async fn store(
        &self,
        offset: u64,
        len: u64,
        fill: impl Fn(u64, usize, &mut Buf) -> io::Result<()> + Send + Sync + 'static,
        progress: impl Progress,
    ) -> Result<()> {
        // What is not sent yet when nobody waits any more is not sent at all.
        let mut under_way = JoinSet::new();
        let done = self.store_in(&mut under_way, offset, len, fill, progress).await;
        // Else it would be written behind the back of who does something else next.
        while done.is_err() && under_way.join_next().await.is_some() {}
        done
    }

    async fn store_in(
        &self,
        under_way: &mut JoinSet<Result<(u64, u32, Duration)>>,
        offset: u64,
        len: u64,
        fill: impl Fn(u64, usize, &mut Buf) -> io::Result<()> + Send + Sync + 'static,
        mut progress: impl Progress,
    ) -> Result<()> {
        let (_, most) = self.sizes().await?;
        let end = offset.saturating_add(len);
        let fill = Arc::new(fill);
        let mut pace = Pace::new(DEPTH_MIN);
        let mut unacknowledged = BTreeSet::new();
        let mut next = offset;
        loop {
            while next < end && under_way.len() < pace.depth {
                let oldest = unacknowledged.first().copied().unwrap_or(next);
                if next + u64::from(most) > oldest + STORE_WINDOW {
                    break;
                }
                let want = u32::try_from((end - next).min(most.into())).unwrap_or(most);
                let (file, fill, at) = (self.clone(), Arc::clone(&fill), next);
                under_way.spawn(async move {
                    let start = Instant::now();
                    file.write_with(at, want, |buf| fill(at, want as usize, buf)).await?;
                    Ok((at, want, start.elapsed()))
                });
                unacknowledged.insert(next);
                next += u64::from(want);
            }
            let Some(written) = under_way.join_next().await else { return Ok(()) };
            let (at, count, took) =
                written.map_err(|_| self.local(io::ErrorKind::Interrupted.into()))??;
            unacknowledged.remove(&at);
            pace.note(count.into(), took);
            if !progress.advance(count.into()) {
                return Err(self.local(io::ErrorKind::Interrupted.into()));
            }
        }
    }

    fn local(&self, error: io::Error) -> Error {
        Error::new(Cause::Local(Arc::new(error)), "copy", self.url())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn depth_follows_the_product() {
        let mut pace = Pace::new(DEPTH_MIN);
        // 100 MB/s with 10 ms: 1 MB, so that two pieces of 1 MB cover it twice.
        for _ in 0..200 {
            tokio::time::advance(Duration::from_millis(10)).await;
            pace.note(1_000_000, Duration::from_millis(10));
        }
        assert_eq!(pace.depth, DEPTH_MIN);
        // 1 GB/s with 20 ms: 20 MB.
        let mut pace = Pace::new(DEPTH_MIN);
        for _ in 0..2_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            pace.note(1_000_000, Duration::from_millis(20));
        }
        assert!((38..=42).contains(&pace.depth), "{}", pace.depth);
    }
}
