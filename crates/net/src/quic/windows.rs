//! The bytes under way that a connection holds.

use std::time::Duration;

use crate::limits::{
    QUIC_RECEIVE_WINDOW, QUIC_RECEIVE_WINDOW_NEW, QUIC_SEND_WINDOW, QUIC_SEND_WINDOW_NEW,
    QUIC_WINDOW_MIN, QUIC_WINDOW_RATE,
};

/// Bytes that a connection may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    /// Those that the peer has under way.
    pub(super) receive: usize,
    /// Those that the peer has not acknowledged.
    pub(super) send: usize,
}

impl Windows {
    /// The windows of a client, which are not widened.
    pub(super) const WIDE: Self = Self { receive: QUIC_RECEIVE_WINDOW, send: QUIC_SEND_WINDOW };

    /// The first windows of the connection of a server.
    pub(super) const NEW: Self =
        Self { receive: QUIC_RECEIVE_WINDOW_NEW, send: QUIC_SEND_WINDOW_NEW };

    /// The bytes of both.
    pub(super) const fn bytes(self) -> usize {
        self.receive + self.send
    }

    /// The bytes that a path with this round trip takes.
    pub(super) fn of_path(round_trip: Duration) -> usize {
        let bytes = round_trip.as_nanos() * QUIC_WINDOW_RATE as u128 / 1_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX).max(QUIC_WINDOW_MIN)
    }
}
