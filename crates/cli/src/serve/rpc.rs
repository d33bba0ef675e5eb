//! Listening for remote procedure calls over TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use frevo_config::RpcSection;
use frevo_net::socket::Listener;
use frevo_server::Server;

use super::listen::{addresses_of, is_without_ipv6};
use super::plan::Plan;
use crate::exit::{Exit, Failure};

/// The sockets of RPC over TCP. They are made before the server is confined.
pub(super) struct RpcSockets {
    interfaces: Vec<Listener>,
    mapper: Vec<Listener>,
    /// The port of the interfaces; None if calls over TCP are not wanted.
    port: Option<u16>,
}

/// Attempts to find a port that is free on all addresses.
const ATTEMPTS: usize = 8;

impl RpcSockets {
    /// Listens where the configuration wants it, at the addresses of `[rpc]` or at those of SMB.
    pub(super) fn open(plan: &Plan, smb: &[SocketAddr]) -> Result<Self, Failure> {
        let section = &plan.config.rpc;
        if !section.is_on() {
            return Ok(Self { interfaces: Vec::new(), mapper: Vec::new(), port: None });
        }
        let addresses = wanted(section, smb)?;
        let mapper = section.mapper_port().map(|port| listen(&addresses, port)).transpose()?;
        let mut found = listen(&addresses, section.port());
        for _ in 1..ATTEMPTS {
            if section.port() != 0 || found.is_ok() {
                break;
            }
            // The port that the system chose for one address is in use on another address, so a new
            // port is tried.
            found = listen(&addresses, 0);
        }
        let interfaces = found?;
        let first = interfaces.first().map(Listener::local_addr);
        let port = first.and_then(Result::ok).map(|address| address.port());
        for listener in &interfaces {
            if let Ok(address) = listener.local_addr() {
                tracing::info!(target: "frevo::rpc", %address, "listening for remote procedure calls");
            }
        }
        for listener in mapper.iter().flatten() {
            if let Ok(address) = listener.local_addr() {
                tracing::info!(target: "frevo::rpc", %address, "listening for the endpoint mapper");
            }
        }
        Ok(Self { interfaces, mapper: mapper.unwrap_or_default(), port })
    }

    /// Lets the server answer at the sockets. Returns the port of the interfaces, if there are any.
    pub(super) fn serve(self, server: &Server) -> Result<Option<u16>, Failure> {
        let Self { interfaces, mapper, port } = self;
        if let Some(port) = port {
            let served = server.serve_rpc(port, interfaces, mapper);
            served.map_err(Failure::failed("cannot listen for remote procedure calls"))?;
        }
        Ok(port)
    }
}

/// The addresses to listen on, each once.
fn wanted(section: &RpcSection, smb: &[SocketAddr]) -> Result<Vec<IpAddr>, Failure> {
    let mut found = Vec::new();
    match &section.listen {
        None => found.extend(smb.iter().map(SocketAddr::ip)),
        Some(places) => {
            for place in places {
                let everywhere =
                    || vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
                found.extend(addresses_of(&place.on)?.unwrap_or_else(everywhere));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Listens at one port of all addresses; with port 0 at one that the system chooses.
fn listen(addresses: &[IpAddr], port: u16) -> Result<Vec<Listener>, Failure> {
    let mut port = port;
    let mut listeners: Vec<Listener> = Vec::new();
    for address in addresses {
        let address = SocketAddr::new(*address, port);
        let listener = match Listener::bind(address) {
            Ok(listener) => listener,
            Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
                continue;
            }
            Err(error) => return Err(failure(address, &error)),
        };
        port = listener.local_addr().map_or(port, |address| address.port());
        listeners.push(listener);
    }
    Ok(listeners)
}

fn failure(address: SocketAddr, error: &std::io::Error) -> Failure {
    let (port, ip) = (address.port(), address.ip());
    let text = match error.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "[rpc]: port {port} of {ip} is in use, perhaps by another RPC server (samba-dcerpcd, \
             rpcbind); stop it, or set port and endpoint_mapper_port"
        ),
        std::io::ErrorKind::PermissionDenied => format!(
            "[rpc]: this user is not permitted to use port {port}; set endpoint_mapper_port = 0 and \
             a port from 1024 on, or run: sudo sysctl -w net.ipv4.ip_unprivileged_port_start=135"
        ),
        _ => format!("[rpc]: cannot listen on {address}: {error}"),
    };
    Failure::new(Exit::Failed, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_addresses_have_one_port() {
        let addresses = ["127.0.0.1", "127.0.0.2"].map(|address| address.parse().unwrap());
        let listeners = listen(&addresses, 0).unwrap();
        let ports: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap().port()).collect();
        assert!(ports.len() == 2 && ports[0] == ports[1] && ports[0] != 0);
        let taken = listen(&addresses[..1], ports[0]).err().unwrap();
        assert!(taken.message.contains("is in use"), "{taken}");
    }

    #[test]
    fn the_addresses_of_smb_are_the_usual_ones() {
        let smb = ["127.0.0.1:445", "127.0.0.1:4450"].map(|address| address.parse().unwrap());
        let of = |listen: Option<&[&str]>| {
            let listen = listen.map(|all| all.iter().map(|one| one.parse().unwrap()).collect());
            wanted(&RpcSection { listen, ..RpcSection::default() }, &smb).unwrap()
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(of(None), [address("127.0.0.1")]);
        assert_eq!(of(Some(&["192.0.2.1"])), [address("192.0.2.1")]);
        assert_eq!(of(Some(&["*"])), [address("0.0.0.0"), address("::")]);
    }
}
