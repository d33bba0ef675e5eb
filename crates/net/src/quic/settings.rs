//! The parameters of connections.

use std::sync::Arc;

use quinn::{IdleTimeout, TransportConfig, VarInt};

use crate::limits::{
    QUIC_IDLE_TIMEOUT, QUIC_KEEP_ALIVE, QUIC_RECEIVE_WINDOW, QUIC_RECEIVE_WINDOW_NEW,
    QUIC_SEND_WINDOW,
};

/// The ALPN protocol of SMB: MS-SMB2 1.9.
pub(super) const ALPN: &[u8] = b"smb";

/// Returns the parameters of the connections of a server.
pub(super) fn of_server() -> Arc<TransportConfig> {
    let mut transport = common();
    // A new client may have little under way. [`super::Connection::widen`] lets it have more.
    transport.receive_window(bytes(QUIC_RECEIVE_WINDOW_NEW));
    // MS-SMB2 2.1, note 2: one stream, which the client opens.
    transport.max_concurrent_bidi_streams(VarInt::from_u32(1));
    Arc::new(transport)
}

/// Returns the parameters of the connections of a client.
pub(super) fn of_client() -> Arc<TransportConfig> {
    let mut transport = common();
    transport.receive_window(bytes(QUIC_RECEIVE_WINDOW));
    transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
    Arc::new(transport)
}

fn common() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(bytes(QUIC_RECEIVE_WINDOW))
        .send_window(QUIC_SEND_WINDOW as u64)
        .max_idle_timeout(IdleTimeout::try_from(QUIC_IDLE_TIMEOUT).ok())
        .keep_alive_interval(Some(QUIC_KEEP_ALIVE))
        // Nobody on the way is to measure round trips.
        .allow_spin(false);
    transport
}

/// A count of bytes as QUIC has it.
pub(super) fn bytes(count: usize) -> VarInt {
    u32::try_from(count).map_or(VarInt::MAX, VarInt::from_u32)
}
