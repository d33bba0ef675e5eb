//! TCP: bytes move from one pair of memory streams to another.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_net::memory::MemoryStream;
use tokio::time::{Instant, sleep};

use super::{Link, Network, PIPE, State, pass, wait_until};
use crate::event;
use crate::nonces::Frames;

impl Network {
    /// Carries one direction until the end of the connection.
    pub(super) async fn carry(
        &self,
        link: &Link,
        direction: usize,
        from: &MemoryStream,
        to: &MemoryStream,
    ) {
        let mut buffer = vec![0; PIPE];
        let mut free_at = Instant::now();
        let mut frames = Frames::default();
        loop {
            if !pass(link, direction).await {
                break;
            }
            if link.state() == State::Late {
                self.carry_late(link, direction, from, to).await;
                break;
            }
            tokio::select! {
                biased;
                () = link.changed[direction].notified() => continue,
                _ = from.readable() => {}
            }
            let most = {
                let mut inner = self.inner.lock();
                if inner.dice.percent(10) { 1 + inner.dice.below(200) } else { PIPE as u64 }
            };
            let room = usize::try_from(most).unwrap_or(PIPE);
            let count = match from.try_read_vectored(&mut [IoSliceMut::new(&mut buffer[..room])]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                other => other.unwrap_or(0),
            };
            self.look_at(link, direction, &mut frames, &buffer[..count]);
            if matches!(link.state(), State::Vanishing(ways) if ways[direction]) {
                if count == 0 {
                    // The receiver must not see the end of the stream before the link has ended.
                    while link.state() != State::Ended {
                        link.changed[direction].notified().await;
                    }
                }
                continue;
            }
            // Each part arrives after the latency, but never before the part sent earlier.
            free_at = (Instant::now() + self.delay(link.latency)).max(free_at);
            wait_until(link, direction, free_at).await;
            if !pass(link, direction).await {
                break;
            }
            if matches!(link.state(), State::Vanishing(ways) if ways[direction]) {
                continue;
            }
            if is_reset(from) {
                // The sender has reset the connection, so this direction carries nothing more.
                break;
            }
            if count == 0 {
                self.close_way(link, direction, to).await;
                break;
            }
            event!(self.trace, "net link {} way {direction}: {count} bytes", link.id);
            if !put(link, direction, to, &buffer[..count]).await {
                self.change(link, State::Ended);
                break;
            }
            self.was_delivered(link, direction, frames.has_logged_on);
        }
        self.change(link, State::Ended);
        from.reset();
        to.reset();
    }

    /// Closes one direction; the other goes on until its end.
    async fn close_way(&self, link: &Link, direction: usize, to: &MemoryStream) {
        event!(self.trace, "net link {} way {direction}: closed", link.id);
        link.is_broken.store(true, Ordering::Relaxed);
        self.disturbed(link.client);
        to.shutdown_write();
        if link.closed.fetch_add(1, Ordering::Relaxed) == 1 {
            return;
        }
        while link.state() != State::Ended {
            link.changed[direction].notified().await;
        }
    }

    /// Ends a connection for the client at once, and delivers what it has sent much later.
    async fn carry_late(
        &self,
        link: &Link,
        direction: usize,
        from: &MemoryStream,
        to: &MemoryStream,
    ) {
        if direction == 1 {
            // The server's answers are dropped until the link has ended.
            while link.state() != State::Ended {
                tokio::select! {
                    biased;
                    () = link.changed[direction].notified() => {}
                    _ = from.readable() => {
                        let mut lost = vec![0; PIPE];
                        if !matches!(
                            from.try_read_vectored(&mut [IoSliceMut::new(&mut lost)]),
                            Ok(1..)
                        ) {
                            sleep(Duration::from_millis(10)).await;
                        }
                    }
                }
            }
            return;
        }
        let (hold, after) = {
            let dice = &mut self.inner.lock().dice;
            let after = *dice.pick(&[200, 1_000, 4_000, 20_000]);
            (dice.millis(1, 400), dice.millis(after / 10, after))
        };
        wait_until(link, direction, Instant::now() + hold).await;
        let mut late = vec![0; PIPE];
        let read = from.try_read_vectored(&mut [IoSliceMut::new(&mut late)]);
        late.truncate(read.unwrap_or(0));
        event!(self.trace, "net link {}: {} bytes will be late", link.id, late.len());
        from.reset();
        wait_until(link, direction, Instant::now() + after).await;
        if link.state() != State::Ended && !late.is_empty() {
            event!(self.trace, "net link {}: {} late bytes", link.id, late.len());
            let _ = put(link, direction, to, &late).await;
            wait_until(link, direction, Instant::now() + Duration::from_secs(1)).await;
        }
    }
}

/// Returns true if an end was reset.
fn is_reset(end: &MemoryStream) -> bool {
    end.try_read_vectored(&mut [])
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

async fn put(link: &Link, direction: usize, to: &MemoryStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match to.try_write_vectored(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::select! {
                    biased;
                    () = link.changed[direction].notified() => {
                        if link.state() == State::Ended { return false; }
                    }
                    _ = to.writable() => {}
                }
            }
            Err(_) => return false,
        }
    }
    true
}
