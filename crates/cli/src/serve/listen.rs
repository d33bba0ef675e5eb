//! Listening sockets of TCP: addresses, interfaces, the port.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use frevo_config::{Listen, ListenOn, nearest};
use frevo_net::IpNetwork;
use frevo_net::socket::{self, Interface, Listener};
use frevo_net::transport::Transport;

use super::service_manager;
use crate::exit::{Exit, Failure};

/// The port of SMB over TCP.
pub(super) const SMB_PORT: u16 = Transport::Tcp.facts().port;

/// The port for users who are not permitted to use [`SMB_PORT`].
const PORT_WITHOUT_PRIVILEGE: u16 = 4450;

/// The listening sockets, with their addresses.
pub(super) struct ListeningSockets {
    pub(super) listeners: Vec<Listener>,
    pub(super) addresses: Vec<SocketAddr>,
    /// True when port 445 was not permitted and another port is used.
    pub(super) is_second_choice: bool,
    /// Sockets of an earlier server, which are used where they listen at the right address.
    kept: Vec<(SocketAddr, OwnedFd)>,
    /// True when the service manager made the sockets.
    is_handed_over: bool,
}

/// The name of the sockets that the service manager keeps over a restart.
const STORED: &str = "frevo-listen";

impl ListeningSockets {
    /// Listens on all of `wanted`, or on every address. Where no port is named
    /// it is 445 or, if that is not permitted, 4450. Sockets that systemd made
    /// stand for all of that. Sockets of a server before this one, from systemd's store or
    /// `replaced`, are used where their address is wanted: clients that connect meanwhile wait.
    pub(super) fn open(wanted: &[Listen], replaced: Vec<OwnedFd>) -> Result<Self, Failure> {
        let mut doors = Self::handed_over()?;
        if doors.is_handed_over {
            return Ok(doors);
        }
        for socket in replaced {
            doors.keep(socket).map_err(Failure::failed("cannot use a socket of the old server"))?;
        }
        let wanted = if wanted.is_empty() { &[Listen::EVERYWHERE] } else { wanted };
        let places = places(wanted)?;
        match doors.open_all(&places, SMB_PORT) {
            Err((address, error))
                if error.kind() == ErrorKind::PermissionDenied
                    && address.port() == SMB_PORT
                    && wanted.iter().all(|listen| listen.port.is_none()) =>
            {
                doors.listeners.clear();
                doors.addresses.clear();
                doors.is_second_choice = true;
                doors
                    .open_all(&places, PORT_WITHOUT_PRIVILEGE)
                    .map_err(|(address, error)| failure(address, &error))?;
            }
            outcome => outcome.map_err(|(address, error)| failure(address, &error))?,
        }
        doors.store();
        Ok(doors)
    }

    /// Sockets that listen already, see [`passed_descriptors`].
    fn handed_over() -> Result<Self, Failure> {
        let mut doors = Self::new();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = listenfd::ListenFd::from_env();
        for index in 0..sockets.len() {
            let is_stored = names.next() == Some(STORED);
            let taken = sockets.take_tcp_listener(index).and_then(|socket| {
                let socket = OwnedFd::from(socket.ok_or(ErrorKind::NotFound)?);
                if is_stored {
                    return doors.keep(socket);
                }
                doors.is_handed_over = true;
                doors.take(Listener::from_owned(socket)?)
            });
            taken.map_err(Failure::failed("cannot use a socket from systemd"))?;
        }
        Ok(doors)
    }

    const fn new() -> Self {
        Self {
            listeners: Vec::new(),
            addresses: Vec::new(),
            is_second_choice: false,
            kept: Vec::new(),
            is_handed_over: false,
        }
    }

    fn take(&mut self, listener: Listener) -> io::Result<()> {
        self.addresses.push(listener.local_addr()?);
        self.listeners.push(listener);
        Ok(())
    }

    /// Keeps a socket of an earlier server for when its address is wanted.
    fn keep(&mut self, socket: OwnedFd) -> io::Result<()> {
        let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        // A socket inherited from the earlier server may still have a congestion control for
        // clients on other hosts, so the system's usual one is set again.
        if let Ok(usual) = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control") {
            let _ = rustix::net::sockopt::set_tcp_congestion(&socket, usual.trim_end());
        }
        self.kept.push((address, socket));
        Ok(())
    }

    /// The kept socket that listens at `address`, where port 0 is any.
    fn kept_at(&mut self, address: SocketAddr) -> Option<OwnedFd> {
        let is_it = |kept: &SocketAddr| {
            kept.ip() == address.ip() && (kept.port() == address.port() || address.port() == 0)
        };
        let at = self.kept.iter().position(|(kept, _)| is_it(kept))?;
        Some(self.kept.swap_remove(at).1)
    }

    /// Gives the sockets to the service manager, which keeps them over a restart, and takes those
    /// back that are not wanted any more: sd_notify(3), FDSTORE.
    fn store(&mut self) {
        let unwanted = std::mem::take(&mut self.kept);
        let sockets: Vec<_> = self.listeners.iter().map(AsFd::as_fd).collect();
        let stored = match unwanted.is_empty() {
            true => Ok(()),
            false => service_manager::tell(&format!("FDSTOREREMOVE=1\nFDNAME={STORED}\n"), &[]),
        };
        let message = format!("FDSTORE=1\nFDNAME={STORED}\nFDPOLL=0\n");
        let stored = stored.and_then(|()| service_manager::tell(&message, &sockets));
        if let Err(error) = stored {
            tracing::debug!(target: "frevo::server", %error,
                "the service manager does not keep the listening sockets over a restart");
        }
    }

    fn open_all(
        &mut self,
        places: &[ListenTarget],
        port: u16,
    ) -> Result<(), (SocketAddr, io::Error)> {
        for place in places {
            let port = place.port.unwrap_or(port);
            match place.address {
                Some(address) => self.open_one(SocketAddr::new(address, port))?,
                None => self.open_everywhere(port)?,
            }
        }
        Ok(())
    }

    fn open_one(&mut self, address: SocketAddr) -> Result<(), (SocketAddr, io::Error)> {
        let opened = match self.kept_at(address) {
            Some(socket) => Listener::from_owned(socket),
            None => Listener::bind(address),
        };
        opened.and_then(|listener| self.take(listener)).map_err(|error| (address, error))
    }

    fn open_everywhere(&mut self, port: u16) -> Result<(), (SocketAddr, io::Error)> {
        self.open_one(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))?;
        // If the system has chosen the port for IPv4, IPv6 uses the same port.
        let port = self.addresses.last().map_or(port, SocketAddr::port);
        match self.open_one(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
            Err((_, error)) if is_without_ipv6(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// The address that clients are most likely to reach.
    pub(super) fn best_address(&self) -> SocketAddr {
        let real = |address: &&SocketAddr| {
            !address.ip().is_loopback() && socket::is_reachable(address.ip())
        };
        if let Some(address) = self.addresses.iter().find(real) {
            return *address;
        }
        match self.addresses.iter().find(|address| address.ip().is_unspecified()) {
            Some(everywhere) => SocketAddr::new(own_address(everywhere.ip()), everywhere.port()),
            None => self
                .addresses
                .first()
                .copied()
                .unwrap_or_else(|| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), SMB_PORT)),
        }
    }
}

/// The numbers of the descriptors that the service manager passed: sd_listen_fds(3).
pub(super) fn passed_descriptors() -> std::ops::Range<i32> {
    /// SD_LISTEN_FDS_START of sd_listen_fds(3).
    const FIRST: i32 = 3;
    let number = |name: &str| std::env::var(name).ok()?.parse::<i32>().ok();
    let is_ours = number("LISTEN_PID") == i32::try_from(std::process::id()).ok();
    let count = number("LISTEN_FDS").filter(|count| is_ours && *count > 0).unwrap_or_default();
    FIRST..FIRST.saturating_add(count)
}

/// A place to listen, its interface looked up: no address means every one.
#[derive(PartialEq, Eq)]
struct ListenTarget {
    address: Option<IpAddr>,
    port: Option<u16>,
}

fn places(wanted: &[Listen]) -> Result<Vec<ListenTarget>, Failure> {
    let mut places: Vec<ListenTarget> = Vec::new();
    for Listen { on, port } in wanted {
        let port = *port;
        match addresses_of(on)? {
            None => places.push(ListenTarget { address: None, port }),
            Some(addresses) => {
                // The configuration may list an interface and also its network. So each address is
                // taken once.
                let place = |address| ListenTarget { address: Some(address), port };
                let new = addresses.into_iter().map(place).filter(|new| !places.contains(new));
                let new: Vec<ListenTarget> = new.collect();
                places.extend(new);
            }
        }
    }
    Ok(places)
}

/// The addresses to listen on; None for every address.
///
/// # Errors
/// When this machine has no such interface, or no address in such a network.
pub(crate) fn addresses_of(on: &ListenOn) -> Result<Option<Vec<IpAddr>>, Failure> {
    match on {
        ListenOn::Everywhere => Ok(None),
        ListenOn::Address(address) => Ok(Some(vec![*address])),
        ListenOn::Interface(name) => of_interface(name).map(Some),
        ListenOn::Network(network) => of_network(network).map(Some),
    }
}

fn interfaces() -> Result<Vec<Interface>, Failure> {
    socket::interfaces().map_err(Failure::failed("cannot list the network interfaces"))
}

/// The addresses of this machine in a network.
fn of_network(network: &IpNetwork) -> Result<Vec<IpAddr>, Failure> {
    let all = interfaces()?;
    let all = || all.iter().flat_map(|interface| interface.addresses.iter().copied());
    let within: Vec<IpAddr> = all().filter(|address| network.contains(*address)).collect();
    if within.is_empty() {
        let all: Vec<String> = all().map(|address| address.to_string()).collect();
        let text = format!(
            "this machine has no address in the network {network}; its addresses are {}",
            all.join(", ")
        );
        return Err(Failure::new(Exit::Failed, text));
    }
    Ok(within)
}

/// The addresses of an interface, without link-local ones.
fn of_interface(name: &str) -> Result<Vec<IpAddr>, Failure> {
    let interfaces = interfaces()?;
    let Some(interface) = interfaces.iter().find(|interface| interface.name == name) else {
        let names: Vec<&str> = interfaces.iter().map(|interface| &*interface.name).collect();
        let near = nearest(name, names.iter().copied());
        let hint = near.map_or_else(
            || format!("the interfaces are {}", names.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        let text = format!("no interface {name} has an address; {hint}");
        return Err(Failure::new(Exit::Failed, text));
    };
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    Ok(interface.addresses.iter().copied().filter(|address| !is_link_local(address)).collect())
}

/// The address at which other machines reach this one.
fn own_address(family: IpAddr) -> IpAddr {
    // Connecting a UDP socket sends no packet, but shows from which address packets to the Internet
    // would be sent. The targets are documentation addresses (RFC 5737, RFC 3849).
    let (from, to) = match family {
        IpAddr::V4(_) => (SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), "192.0.2.1:9"),
        IpAddr::V6(_) => (SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), "[2001:db8::1]:9"),
    };
    let routed = UdpSocket::bind(from).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    let is_real = |address: &IpAddr| !address.is_loopback() && socket::is_reachable(*address);
    if let Some(address) = routed.ok().map(|address| address.ip()).filter(is_real) {
        return address;
    }
    let interfaces = socket::interfaces().unwrap_or_default();
    let up = interfaces.iter().filter(|interface| interface.running && !interface.loopback);
    let mut addresses = up.flat_map(|interface| interface.addresses.iter().copied());
    let loopback = match family {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let same_family = |address: &IpAddr| address.is_ipv4() == family.is_ipv4();
    addresses.find(|address| same_family(address) && is_real(address)).unwrap_or(loopback)
}

/// Every address of IPv4, and every one of IPv6.
pub(super) fn everywhere() -> Vec<IpAddr> {
    vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
}

pub(super) fn is_without_ipv6(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(errno, Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL))
}

fn failure(address: SocketAddr, error: &io::Error) -> Failure {
    let port = address.port();
    let text = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "port {port} of {} is in use, perhaps by another SMB server (smbd, ksmbd); stop it, \
             or use another port: --listen {}",
            address.ip(),
            SocketAddr::new(address.ip(), PORT_WITHOUT_PRIVILEGE)
        ),
        ErrorKind::PermissionDenied => format!(
            "this user is not permitted to use port {port}; {}, or use a port from 1024 on: \
             --listen {}",
            HOW_TO_GET_IT,
            SocketAddr::new(address.ip(), PORT_WITHOUT_PRIVILEGE)
        ),
        ErrorKind::AddrNotAvailable => {
            format!("{} is not an address of this machine (see: ip address)", address.ip())
        }
        _ => format!("cannot listen on {address}: {error}"),
    };
    Failure::new(Exit::Failed, text)
}

/// Advice on how to permit users to use port 445.
pub(super) const HOW_TO_GET_IT: &str =
    "to permit it, run: sudo sysctl -w net.ipv4.ip_unprivileged_port_start=445";

#[cfg(test)]
mod tests {
    use super::*;

    fn doors(addresses: &[&str]) -> ListeningSockets {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        ListeningSockets { addresses, ..ListeningSockets::new() }
    }

    #[test]
    fn clients_are_told_a_real_address() {
        let best = |addresses: &[&str]| doors(addresses).best_address().to_string();
        assert_eq!(best(&["127.0.0.1:445", "192.0.2.7:4450"]), "192.0.2.7:4450");
        assert_eq!(best(&["127.0.0.1:4450"]), "127.0.0.1:4450");
        assert_eq!(best(&["[::1]:445"]), "[::1]:445");
        let everywhere = doors(&["0.0.0.0:4450", "[::]:4450"]).best_address();
        assert!(!everywhere.ip().is_unspecified() && everywhere.port() == 4450);
    }

    fn on(address: &str, port: u16) -> Listen {
        Listen { on: ListenOn::Address(address.parse().unwrap()), port: Some(port) }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_told() {
        let first = ListeningSockets::open(&[on("127.0.0.1", 0)], Vec::new()).unwrap();
        let port = first.addresses[0].port();
        let failure = ListeningSockets::open(&[on("127.0.0.1", port)], Vec::new()).err().unwrap();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.message.contains(&format!("port {port} of 127.0.0.1 is in use")));
        let failure = ListeningSockets::open(&[on("192.0.2.1", 0)], Vec::new()).err().unwrap();
        assert!(failure.message.contains("not an address of this machine"), "{failure}");
    }

    #[tokio::test]
    async fn sockets_of_an_earlier_server_are_used_where_their_address_is_wanted() {
        let listening = |port: u16| {
            let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
            (socket.local_addr().unwrap(), OwnedFd::from(socket))
        };
        let ((one, first), (_, second)) = (listening(0), listening(0));
        let sockets = vec![second, first];
        let doors = ListeningSockets::open(&[on("127.0.0.1", one.port())], sockets).unwrap();
        assert_eq!(doors.addresses, [one]);
        let (_, third) = listening(0);
        let doors = ListeningSockets::open(&[on("127.0.0.2", 0)], vec![third]).unwrap();
        assert_eq!(doors.addresses[0].ip().to_string(), "127.0.0.2");
    }

    #[tokio::test]
    async fn an_interface_is_its_addresses() {
        let loopback = socket::interfaces().unwrap().into_iter().find(|i| i.loopback).unwrap();
        let on = |name: &str| Listen { on: ListenOn::Interface(name.to_owned()), port: Some(0) };
        let doors = ListeningSockets::open(&[on(&loopback.name)], Vec::new()).unwrap();
        assert!(doors.addresses.iter().any(|address| address.ip() == Ipv4Addr::LOCALHOST));
        assert!(doors.addresses.iter().all(|address| address.ip().is_loopback()));
        let failure = ListeningSockets::open(&[on(&format!("{}x", loopback.name))], Vec::new())
            .err()
            .unwrap();
        assert!(failure.message.contains(&format!("did you mean {}?", loopback.name)), "{failure}");
    }

    #[tokio::test]
    async fn a_network_is_the_addresses_in_it() {
        let on = |network: &str| network.parse::<Listen>().unwrap();
        let all = [on("127.0.0.0/8:0"), on("127.0.0.1:0")];
        let doors = ListeningSockets::open(&all, Vec::new()).unwrap();
        assert!(doors.addresses.iter().any(|address| address.ip() == Ipv4Addr::LOCALHOST));
        let loopback = |address: &SocketAddr| address.ip().is_loopback();
        assert!(doors.addresses.iter().all(loopback) && doors.addresses.len() == 1);
        let failure = ListeningSockets::open(&[on("203.0.113.0/24:0")], Vec::new()).err().unwrap();
        let words = "no address in the network 203.0.113.0/24; its addresses are ";
        assert!(failure.message.contains(words), "{failure}");
    }

    #[tokio::test]
    async fn every_address_is_one_port() {
        let doors = ListeningSockets::open(
            &[Listen { on: ListenOn::Everywhere, port: Some(0) }],
            Vec::new(),
        )
        .unwrap();
        assert!(doors.addresses.iter().all(|address| address.port() == doors.addresses[0].port()));
    }
}
