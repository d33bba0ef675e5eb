//! Listening for SMB Direct.

use std::io;
use std::net::{IpAddr, SocketAddr};

use frevo_config::Listen;
use frevo_net::limits::RDMA_LOCKED_BYTES_MIN;
use frevo_net::rdma::{self, Listener};
use frevo_net::socket;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::listen::addresses_of;
use super::plan::Plan;
use crate::arguments::Serve;
use crate::exit::{Done, Exit, Failure};

/// Loads the code of RDMA, which a confined process cannot, if the configuration wants RDMA. The
/// devices are opened later, by threads that are confined.
pub(super) fn prepare(plan: &Plan) -> Done {
    if plan.config.server.rdma != Some(true) {
        return Ok(());
    }
    rdma::is_here().map_err(|why| Failure::new(Exit::Failed, why.to_string()))?;
    raise_lock_limit()
}

/// Listens for SMB Direct where the configuration wants it: on the addresses that flags name, or on
/// those of all RDMA devices at which the server listens on TCP, `tcp`.
pub(super) fn listen(
    plan: &Plan,
    arguments: &Serve,
    tcp: &[SocketAddr],
) -> Result<Option<Listener>, Failure> {
    if plan.config.server.rdma != Some(true) {
        return Ok(None);
    }
    let addresses = wanted(&arguments.rdma, tcp)?;
    let listener =
        Listener::bind(&addresses).map_err(|(address, error)| failure(address, &error))?;
    for address in listener.addresses() {
        tracing::info!(target: "frevo::server", %address, "listening for RDMA");
    }
    Ok(Some(listener))
}

fn wanted(flags: &[Listen], tcp: &[SocketAddr]) -> Result<Vec<SocketAddr>, Failure> {
    let mut found = Vec::new();
    for Listen { on, port } in flags {
        let addresses = match addresses_of(on)? {
            Some(addresses) => addresses,
            None => own_addresses()?,
        };
        found.extend(addresses.into_iter().filter_map(|address| with_port(address, *port)));
    }
    if flags.is_empty() {
        let is_served = |address: &IpAddr| {
            tcp.iter().any(|tcp| {
                tcp.ip() == *address
                    || (tcp.ip().is_unspecified() && tcp.is_ipv4() == address.is_ipv4())
            })
        };
        let own = own_addresses()?.into_iter().filter(is_served);
        found.extend(own.filter_map(|address| with_port(address, None)));
    }
    if found.is_empty() {
        return Err(Failure::new(
            Exit::Failed,
            "RDMA is wanted, but no address to listen on has an RDMA device (see: rdma link)",
        ));
    }
    Ok(found)
}

/// The address with its port; none if it has no RDMA device.
fn with_port(address: IpAddr, port: Option<u16>) -> Option<SocketAddr> {
    let provider = rdma::provider_of(address)?;
    Some(SocketAddr::new(address, port.unwrap_or(provider.port())))
}

/// The addresses of this machine that mean something without their link.
fn own_addresses() -> Result<Vec<IpAddr>, Failure> {
    let all =
        socket::interfaces().map_err(Failure::failed("cannot list the network interfaces"))?;
    let all = all.into_iter().flat_map(|interface| interface.addresses);
    let is_link_local =
        |address: &IpAddr| matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
    Ok(all.filter(|address| !is_link_local(address)).collect())
}

/// Permits as much pinned memory as this process may, which for root is all.
fn raise_lock_limit() -> Done {
    let limit = getrlimit(Resource::Memlock);
    if setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
        let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, ..limit });
    }
    match rdma::lockable_bytes() {
        Some(bytes) if bytes < RDMA_LOCKED_BYTES_MIN => Err(Failure::new(
            Exit::Failed,
            format!(
                "RDMA needs pinned memory, and this process may pin only {} KiB (ulimit -l); at \
                 least {} MiB are needed: set LimitMEMLOCK=infinity in the unit",
                bytes / 1024,
                RDMA_LOCKED_BYTES_MIN >> 20
            ),
        )),
        _ => Ok(()),
    }
}

fn failure(address: Option<SocketAddr>, error: &io::Error) -> Failure {
    let Some(address) = address else {
        return Failure::new(Exit::Failed, format!("cannot use RDMA: {error}"));
    };
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {} of {} is in use for RDMA, perhaps by another SMB server (ksmbd)",
            address.port(),
            address.ip()
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{} has no RDMA device (see: rdma link)", address.ip())
        }
        _ => format!("cannot listen for RDMA on {address}: {error}"),
    };
    Failure::new(Exit::Failed, text)
}
