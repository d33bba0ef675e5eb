//! The services that scan: where they are, and how they are reached.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::base::limits::SCANNER_CONNECT;
use crate::base::scanners::IcapPlace;

/// The address of a service that scans files for viruses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanService {
    /// clamd at a Unix socket.
    ClamdSocket(PathBuf),
    /// clamd over TCP.
    Clamd {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A service of ICAP.
    Icap {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The path of the service, without its first slash.
        service: String,
    },
}

impl ScanService {
    /// The place of a service of ICAP. None for clamd.
    pub(super) fn icap(&self) -> Option<IcapPlace> {
        let Self::Icap { host, port, service } = self else { return None };
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Some(IcapPlace { authority, service: service.clone() })
    }
}

impl fmt::Display for ScanService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClamdSocket(path) => write!(f, "clamd at {}", path.display()),
            Self::Clamd { host, port } => write!(f, "clamd at {host} port {port}"),
            Self::Icap { host, port, service } => {
                write!(f, "the ICAP service {service} at {host} port {port}")
            }
        }
    }
}

/// Makes connections with services. A confined process has another one make them.
pub trait Connect: fmt::Debug + Send + Sync {
    /// Returns a stream socket that is connected, or connecting, with the service. It may wait a few seconds.
    ///
    /// # Errors
    /// When the service cannot be reached.
    fn connect(&self, service: &ScanService) -> io::Result<OwnedFd>;
}

/// The connector of the process; see [`connect_by`].
static CONNECTOR: OnceLock<Arc<dyn Connect>> = OnceLock::new();

/// Has `connector` make all connections with services that scan, for as long as the process runs. Without it
/// the process makes them itself.
pub fn connect_by(connector: Arc<dyn Connect>) {
    // The first one stays.
    let _ = CONNECTOR.set(connector);
}

/// A connection with a service.
pub(super) fn connect(service: &ScanService) -> io::Result<OwnedFd> {
    match CONNECTOR.get() {
        Some(connector) => connector.connect(service),
        None => Direct.connect(service),
    }
}

/// Connects with a Unix socket. One whose backlog is full is refused: to wait for it would take without end.
///
/// # Errors
/// When the service cannot be reached now.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Connects from this process.
#[derive(Debug, Clone, Copy)]
pub struct Direct;

impl Connect for Direct {
    fn connect(&self, service: &ScanService) -> io::Result<OwnedFd> {
        match service {
            ScanService::ClamdSocket(path) => connect_unix(path),
            ScanService::Clamd { host, port } | ScanService::Icap { host, port, .. } => {
                let mut last = io::ErrorKind::NotFound.into();
                for address in (&**host, *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, SCANNER_CONNECT) {
                        Ok(stream) => return Ok(stream.into()),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}
