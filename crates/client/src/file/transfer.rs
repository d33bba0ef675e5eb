//! Whole files: as many requests under way as the path to the server holds.
//!
//! The number is measured: the shortest time of an answer times the rate at which data
//! comes is the bandwidth-delay product; twice that is kept under way.

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

/// Fewest requests under way.
const DEPTH_MIN: usize = 4;
/// Fewest reads under way: enough that a server has as much data ready as the sockets of a
/// plain stream hold, and no more than the processors' caches hold.
const READS_MIN: usize = 6;
/// Reads that are sent together, so that they wake the server once.
const READS_AT_ONCE: usize = 3;
/// Most requests under way.
const DEPTH_MAX: usize = 64;

/// Bytes before the end of a file that may be missing after [`File::store`] was interrupted:
/// no piece is sent further than this beyond one that is not acknowledged.
pub const STORE_WINDOW: u64 = 64 << 20;

/// The pacing of requests by the measured bandwidth-delay product.
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

    /// Notes an answer of `bytes` that came after `took`.
    fn note(&mut self, bytes: u64, took: Duration) {
        self.fastest = self.fastest.min(took);
        self.bytes += bytes;
        let window = self.since.elapsed();
        // The rate is measured over a window that lasts at least twice the fastest answer and
        // contains `depth` pieces.
        if window < self.fastest * 2 || self.bytes < bytes * self.depth as u64 {
            return;
        }
        let rate = self.bytes as f64 / window.as_secs_f64().max(1e-9);
        self.rate = if rate > self.rate { rate } else { self.rate * 0.9 + rate * 0.1 };
        let product = self.rate * self.fastest.as_secs_f64();
        let wanted = (2.0 * product / bytes.max(1) as f64).ceil();
        // A float that is too large becomes usize::MAX here, and is then clamped.
        self.depth = (wanted as usize).clamp(self.least, DEPTH_MAX);
        self.since = Instant::now();
        self.bytes = 0;
    }
}

/// Watches a transfer, and may end it between two pieces.
pub trait Progress: Send {
    /// Notes that `bytes` more have arrived. Returns false to end the transfer.
    fn advance(&mut self, bytes: u64) -> bool;
}

impl<F: FnMut(u64) -> bool + Send> Progress for F {
    fn advance(&mut self, bytes: u64) -> bool {
        self(bytes)
    }
}

impl File {
    /// Reads up to `len` bytes from `offset` on, and passes the pieces in order to `sink` with
    /// their offsets. Returns the count of bytes.
    ///
    /// # Errors
    /// Fails if the server does, or with the error of `sink`.
    #[doc(hidden)]
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
            // An empty piece is the end of the file. A short piece is the end, too, or the server
            // has returned less than it could: the next read shows which of the two.
            if buf.is_empty() {
                ended = true;
                continue;
            }
            let count = buf.len() as u64;
            done += count;
            if count < u64::from(want) {
                // The piece was shorter than requested, but the reads in progress were sent for the
                // offsets after a full piece. They are dropped and sent again.
                next = done;
                under_way = FuturesOrdered::new();
            }
            sink(at, buf).await.map_err(|error| self.local(error))?;
        }
        Ok(done - offset)
    }

    /// Reads the whole file as [`Self::fetch`] does, with data that is appended meanwhile. No
    /// READ goes beyond the end of the file: ksmbd of Linux 6.12 signs the answer wrongly.
    ///
    /// # Errors
    /// Fails as [`Self::fetch`] does.
    #[doc(hidden)]
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

    /// Writes `len` bytes from `offset` on. `fill(offset, count, buffer)` appends each piece to
    /// its buffer. Pieces are filled, encrypted and sent on several cores; `progress` is told
    /// of each piece that the server has taken.
    ///
    /// # Errors
    /// Fails if the server does, with the error of `fill`, or with `Interrupted` if
    /// `progress` ends it. No request is under way any more then.
    #[doc(hidden)]
    pub async fn store(
        &self,
        offset: u64,
        len: u64,
        fill: impl Fn(u64, usize, &mut Buf) -> io::Result<()> + Send + Sync + 'static,
        progress: impl Progress,
    ) -> Result<()> {
        // If the caller drops this future, the set is dropped, too, and all writes that are not
        // sent yet are cancelled.
        let mut under_way = JoinSet::new();
        let done = self.store_in(&mut under_way, offset, len, fill, progress).await;
        // Waits for the writes in progress, so that no late write follows the next request of the
        // caller.
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
        // 100 MB/s and a latency of 10 ms make 1 MB in flight. Twice that is two pieces of 1 MB, so
        // the depth is at its minimum.
        for _ in 0..200 {
            tokio::time::advance(Duration::from_millis(10)).await;
            pace.note(1_000_000, Duration::from_millis(10));
        }
        assert_eq!(pace.depth, DEPTH_MIN);
        // 1 GB/s and a latency of 20 ms make 20 MB in flight, so the depth must grow.
        let mut pace = Pace::new(DEPTH_MIN);
        for _ in 0..2_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            pace.note(1_000_000, Duration::from_millis(20));
        }
        assert!((38..=42).contains(&pace.depth), "{}", pace.depth);
    }
}
