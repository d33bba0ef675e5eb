//! The parameters of connections.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn_proto::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

use super::congestion::Forgiving;
use crate::limits::{
    QUIC_IDLE_TIMEOUT, QUIC_KEEP_ALIVE, QUIC_LOCAL_DATAGRAM, QUIC_RECEIVE_WINDOW,
    QUIC_RECEIVE_WINDOW_NEW, QUIC_SEND_WINDOW, QUIC_SEND_WINDOW_NEW,
};

/// The ALPN protocol of SMB: MS-SMB2 1.9.
pub(super) const ALPN: &[u8] = b"smb";

/// Returns the parameters of a server's connections with this machine, or with others.
pub(super) fn of_server(is_local: bool) -> Arc<TransportConfig> {
    let mut transport = common(is_local);
    // Both windows begin small. [`super::Connection::widen_receiving`] and `widen_sending` widen them.
    transport.receive_window(bytes(QUIC_RECEIVE_WINDOW_NEW));
    transport.send_window(QUIC_SEND_WINDOW_NEW as u64);
    // MS-SMB2 2.1, note 2: one stream, which the client opens.
    transport.max_concurrent_bidi_streams(VarInt::from_u32(1));
    Arc::new(transport)
}

/// Returns the parameters of a client's connections with this machine, or with others.
pub(super) fn of_client(is_local: bool) -> Arc<TransportConfig> {
    let mut transport = common(is_local);
    transport.receive_window(bytes(QUIC_RECEIVE_WINDOW));
    transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
    Arc::new(transport)
}

/// Returns the parameters of a socket.
pub(super) fn of_endpoint() -> EndpointConfig {
    let mut endpoint = EndpointConfig::default();
    // The number is one that quinn-proto takes.
    let _ = endpoint.max_udp_payload_size(QUIC_LOCAL_DATAGRAM);
    endpoint
}

/// True for an address of this machine alone, whose packets may be long.
pub(super) fn is_local(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

fn common(is_local: bool) -> TransportConfig {
    let mut transport = TransportConfig::default();
    if is_local {
        let mut mtu = MtuDiscoveryConfig::default();
        // Each step of the search is a packet of that length. A relay on this machine may have the packets of
        // Ethernet.
        mtu.upper_bound(QUIC_LOCAL_DATAGRAM).minimum_change(QUIC_LOCAL_DATAGRAM / 256);
        transport.mtu_discovery_config(Some(mtu));
    }
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(bytes(QUIC_RECEIVE_WINDOW))
        .send_window(QUIC_SEND_WINDOW as u64)
        .congestion_controller_factory(Arc::new(Forgiving::new(is_local)))
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
