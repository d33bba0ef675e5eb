//! Listening, and the port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use frevo_net::socket::{self, Listener};
use frevo_server::config::Listen;

use crate::exit::{Exit, Failure};

/// Where SMB listens.
pub(super) const SMB_PORT: u16 = 445;

/// Where Frevo listens when it may not listen there.
const PORT_WITHOUT_PRIVILEGE: u16 = 4450;

/// Open doors.
pub(super) struct Doors {
    pub(super) listeners: Vec<Listener>,
    pub(super) addresses: Vec<SocketAddr>,
    /// Port 445 was wanted and is not permitted.
    pub(super) is_second_choice: bool,
}

impl Doors {
    /// Listens on all of `wanted`, or on every address. Where no port is named
    /// it is 445 or, if that is not permitted, 4450.
    pub(super) fn open(wanted: &[Listen]) -> Result<Self, Failure> {
        let wanted = if wanted.is_empty() { &[Listen::EVERYWHERE] } else { wanted };
        let mut doors = Self::new();
        match doors.open_all(wanted, SMB_PORT) {
            Err((address, error))
                if error.kind() == io::ErrorKind::PermissionDenied
                    && address.port() == SMB_PORT
                    && wanted.iter().all(|listen| listen.port.is_none()) =>
            {
                doors = Self::new();
                doors.is_second_choice = true;
                doors.open_all(wanted, PORT_WITHOUT_PRIVILEGE).map_err(failure)?;
            }
            outcome => outcome.map_err(failure)?,
        }
        Ok(doors)
    }

    const fn new() -> Self {
        Self { listeners: Vec::new(), addresses: Vec::new(), is_second_choice: false }
    }

    fn open_all(&mut self, wanted: &[Listen], port: u16) -> Result<(), (SocketAddr, io::Error)> {
        for listen in wanted {
            let port = listen.port.unwrap_or(port);
            match listen.address {
                Some(address) => self.open_one(SocketAddr::new(address, port))?,
                None => self.open_everywhere(port)?,
            }
        }
        Ok(())
    }

    fn open_one(&mut self, address: SocketAddr) -> Result<(), (SocketAddr, io::Error)> {
        let opened = Listener::bind(address).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, address) = opened.map_err(|error| (address, error))?;
        self.listeners.push(listener);
        self.addresses.push(address);
        Ok(())
    }

    fn open_everywhere(&mut self, port: u16) -> Result<(), (SocketAddr, io::Error)> {
        self.open_one(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))?;
        // When any port will do, both families have the same.
        let port = self.addresses.last().map_or(port, SocketAddr::port);
        match self.open_one(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
            Err((_, error)) if is_without_ipv6(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// The address that clients are best told.
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

/// The address that this machine is reached by.
fn own_address(family: IpAddr) -> IpAddr {
    // Where a packet to a stranger would leave; none is sent. The addresses are
    // those of the documentation's networks (RFC 5737, RFC 3849).
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

fn is_without_ipv6(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(errno, Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL))
}

fn failure((address, error): (SocketAddr, io::Error)) -> Failure {
    let port = address.port();
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} of {} is in use, perhaps by another SMB server (smbd, ksmbd); stop that, \
             or take another port: --listen {}",
            address.ip(),
            SocketAddr::new(address.ip(), PORT_WITHOUT_PRIVILEGE)
        ),
        io::ErrorKind::PermissionDenied => format!(
            "port {port} needs a privilege that this user lacks; {}, or take a port from 1024 on: \
             --listen {}",
            HOW_TO_GET_IT,
            SocketAddr::new(address.ip(), PORT_WITHOUT_PRIVILEGE)
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{} is not an address of this machine (see: ip address)", address.ip())
        }
        _ => format!("cannot listen on {address}: {error}"),
    };
    Failure::new(Exit::Failed, text)
}

/// How an unprivileged user gets port 445.
pub(super) const HOW_TO_GET_IT: &str =
    "to get it run: sudo sysctl -w net.ipv4.ip_unprivileged_port_start=445";

#[cfg(test)]
mod tests {
    use super::*;

    fn doors(addresses: &[&str]) -> Doors {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Doors { listeners: Vec::new(), addresses, is_second_choice: false }
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

    #[tokio::test]
    async fn a_port_that_is_taken_is_told() {
        let any = Listen { address: Some(Ipv4Addr::LOCALHOST.into()), port: Some(0) };
        let first = Doors::open(&[any]).unwrap();
        let port = first.addresses[0].port();
        let failure = Doors::open(&[Listen { port: Some(port), ..any }]).err().unwrap();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.message.contains(&format!("port {port} of 127.0.0.1 is in use")));
        let not_ours = Listen { address: Some("192.0.2.1".parse().unwrap()), port: Some(0) };
        let failure = Doors::open(&[not_ours]).err().unwrap();
        assert!(failure.message.contains("not an address of this machine"), "{failure}");
    }

    #[tokio::test]
    async fn every_address_is_one_port() {
        let doors = Doors::open(&[Listen { address: None, port: Some(0) }]).unwrap();
        assert!(doors.addresses.iter().all(|address| address.port() == doors.addresses[0].port()));
    }
}
