//! Connections of SMB Direct: in memory, and at an RDMA device if there is one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use frevo_net::Stream;
use frevo_net::rdma::{self, Endpoint, Fabric, Listener};
use frevo_server::settings::Signing;

use super::{Settings, World, in_world_with, settings};

/// The place where connections are made.
pub enum Medium {
    Device(IpAddr),
    Memory(Arc<Fabric>),
}

/// Runs a test in memory, and at a device if there is one.
pub fn here(test: &impl AsyncFn(&World, &Medium)) {
    let fabric = Fabric::new(1 << 30);
    let medium = Medium::Memory(Arc::clone(&fabric));
    in_world_with(open_settings(), async |world| test(world, &medium).await);
    assert_eq!(fabric.registered_bytes(), 0, "registered memory is left");
    let Ok(text) = std::env::var("FREVO_RDMA_ADDRESS") else { return };
    let medium = Medium::Device(text.parse().unwrap());
    in_world_with(open_settings(), async |world| test(world, &medium).await);
}

impl Medium {
    /// Makes a connection: the server's end and the client's.
    pub async fn connect(&self) -> (Stream, Endpoint) {
        let address = match self {
            Self::Device(address) => *address,
            Self::Memory(fabric) => {
                let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
                let [connected, accepted] = fabric.pair([at(50_000), at(445)]).unwrap();
                return (Stream::Rdma(Arc::new(accepted)), connected);
            }
        };
        let listener = Listener::bind(&[SocketAddr::new(address, 0)]).map_err(|(_, e)| e);
        let listener = listener.unwrap();
        let accepting = async {
            let (detached, _) = listener.accept().await.unwrap();
            frevo_net::transport::Detached::Rdma(Box::new(detached)).attach().unwrap()
        };
        let (accepted, connected) = tokio::join!(accepting, rdma::connect(listener.addresses()[0]));
        // The listener is polled in a task, because it also receives the end of accepted
        // connections.
        tokio::task::spawn_local(async move { while listener.accept().await.is_ok() {} });
        (accepted, connected.unwrap())
    }
}

/// Sessions need not sign.
pub fn open_settings() -> Settings {
    Settings { signing: Signing::Offered, ..settings() }
}
