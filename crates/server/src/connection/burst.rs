//! Large requests: room for them in the kernel, and replies that leave together.
//!
//! The kernel's receive buffer begins with room for one request of 64 KiB and grows as it measures
//! the client's rate. It may stop long before it has room for what the client keeps in flight. The
//! rest then leaves the client in small pieces, each with the acknowledgement of the one before, and
//! a WRITE takes this core twice as long. So room is made when a large request has come and another is
//! behind it.
//!
//! A frame of 8 KiB and more comes with a receive of its own. Its reply would leave with a send of
//! its own, which wakes the client and brings an acknowledgement. So the replies of a burst wait for
//! each other while further requests are received, at most until half of what had arrived is
//! answered. The client makes its next requests while the other half is carried out.

use frevo_net::buffer::budget::Fullness;
use frevo_net::frame_reader::FrameReader;
use frevo_net::limits::QUIC_WINDOW_SCARCE;
use frevo_net::quic;
use frevo_net::transport::Stream;
use frevo_net::watchdog::has_lasted;

use super::Connection;
use crate::base::limits::{
    BURST_BYTES_MAX, BURST_REQUESTS_MAX, BURST_TIME_MAX, LARGE_REQUEST_BYTES, RECEIVE_WINDOW_BYTES,
};

/// The requests that have begun since replies were last sent.
pub(super) struct Burst {
    requests: usize,
    bytes: usize,
    /// Bytes of requests after which the replies leave. None until it is needed.
    bytes_max: Option<usize>,
}

impl Burst {
    /// Begins with a request of `bytes`.
    pub(super) const fn of(bytes: usize) -> Self {
        Self { requests: 1, bytes, bytes_max: None }
    }

    /// Adds a request of `bytes`.
    pub(super) const fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes;
    }

    /// True if a further request should be received from `stream` before the replies leave.
    pub(super) fn goes_on(&mut self, stream: &Stream) -> bool {
        if self.requests >= BURST_REQUESTS_MAX
            || self.bytes < LARGE_REQUEST_BYTES
            || has_lasted(BURST_TIME_MAX)
        {
            return false;
        }
        let bytes = self.bytes;
        let half = || (bytes.saturating_add(stream.unread_bytes()) / 2).min(BURST_BYTES_MAX);
        bytes < *self.bytes_max.get_or_insert_with(half)
    }
}

impl Connection {
    /// Has a connection of QUIC keep more bytes until they are acknowledged, if its client has not taken all
    /// answers: TCP does that by itself.
    pub(super) fn widen_sending(&self, stream: &Stream) {
        if let Some(quic) = stream.quic().filter(|_| !self.outgoing.queue().is_empty())
            && self.members.is_authenticated()
            && let Some(most) = self.window_most()
        {
            quic.widen_sending(most);
        }
    }

    /// The most bytes of a window of QUIC. None while memory is too scarce for a wider one.
    fn window_most(&self) -> Option<usize> {
        match self.info.server.ledger.fullness() {
            Fullness::Ample => Some(usize::MAX),
            Fullness::Scarce => Some(QUIC_WINDOW_SCARCE),
            Fullness::Dire | Fullness::Full => None,
        }
    }

    /// Lets the client of a connection of QUIC have more under way. Its windows begin with less than one large
    /// request.
    fn widen_receiving(&self, quic: &quic::Connection) {
        if let Some(most) = self.window_most() {
            let is_wide = quic.widen_receiving(most) && most == usize::MAX;
            self.incoming.is_widened.set(is_wide);
        }
    }

    /// Has the kernel make room if the request that `reader` returned last, of `bytes`, is large and
    /// another is behind it, unless memory is scarce.
    pub(super) fn widen(&self, stream: &Stream, reader: &FrameReader, bytes: usize) {
        if self.incoming.is_widened.get()
            || bytes < LARGE_REQUEST_BYTES
            || !self.members.is_authenticated()
        {
            return;
        }
        if let Some(quic) = stream.quic() {
            self.widen_receiving(quic);
            return;
        }
        if !(reader.is_inside_frame() || reader.has_more())
            || self.info.server.ledger.fullness() != Fullness::Ample
        {
            return;
        }
        self.incoming.is_widened.set(true);
        // Widening fails only if the socket is closed, and then the next receive reports it.
        drop(stream.widen_receive_window(RECEIVE_WINDOW_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::SocketAddr;

    use frevo_net::frame_reader::Enough;
    use frevo_net::memory;

    use super::*;

    /// Requests of `len` bytes that are answered together, burst by burst, when `count` have come.
    async fn bursts(len: usize, count: usize) -> Vec<usize> {
        let address = SocketAddr::from(([127, 0, 0, 1], 445));
        let (client, server) = memory::pair(64 << 20, [address; 2]);
        let (client, server) = (Stream::from(client), Stream::from(server));
        let (prefix, body) = (u32::try_from(len).unwrap().to_be_bytes(), vec![0; len]);
        for _ in 0..count {
            let parts = [IoSlice::new(&prefix), IoSlice::new(&body)];
            assert_eq!(client.try_write_vectored(&parts, false).unwrap(), 4 + len);
        }
        let mut reader = FrameReader::new(16 << 20);
        let (mut bursts, mut left) = (Vec::new(), count);
        while left > 0 {
            let first = reader.next(&server).await.unwrap().unwrap();
            let (mut burst, mut requests) = (Burst::of(first.len()), 1);
            loop {
                if !reader.has_more() && burst.goes_on(&server) {
                    reader.gather(&server, Enough { frames: 1, bytes: usize::MAX }, |_, _| true);
                }
                let Some(frame) = reader.try_next() else { break };
                burst.add(frame.len());
                requests += 1;
            }
            bursts.push(requests);
            left -= requests;
        }
        bursts
    }

    #[tokio::test]
    async fn replies_wait_for_half_of_the_requests_that_have_come() {
        assert_eq!(bursts(65_536, 1).await, [1]);
        assert_eq!(bursts(65_536, 2).await, [1, 1]);
        assert_eq!(bursts(65_536, 4).await, [2, 1, 1]);
        assert_eq!(bursts(65_536, 10).await, [5, 3, 1, 1]);
    }

    #[tokio::test]
    async fn a_burst_has_limits() {
        let requests = bursts(40_000, 100).await;
        assert_eq!(requests.first(), Some(&BURST_REQUESTS_MAX), "so many requests");
        let requests = bursts(100_000, 100).await;
        assert_eq!(requests.first(), Some(&BURST_BYTES_MAX.div_ceil(100_000)), "so many bytes");
        assert_eq!(bursts(1 << 20, 3).await, [1, 1, 1]);
    }

    /// Several of them come with one receive, and are together anyway.
    #[tokio::test]
    async fn replies_to_small_requests_do_not_wait() {
        let per_receive = frevo_net::limits::RECEIVE_SCRATCH_BYTES / (4 + 600);
        let longest = bursts(600, 200).await.into_iter().max();
        assert!(longest <= Some(per_receive + 1), "{longest:?}");
    }
}
