//! Listening, connecting, and the kernel's facts about a connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpSocket;

use crate::limits::{
    KEEPALIVE_COUNT, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, LISTEN_BACKLOG,
    SEND_UNACKNOWLEDGED_TIMEOUT,
};
use crate::transport::{Detached, Stream};

mod congestion;
mod interfaces;
mod packets;
mod routes;

use congestion::Paced;

pub use interfaces::{Interface, interfaces};
pub use packets::ArpSocket;
pub use routes::keep_socket as keep_routes_socket;

/// A listening TCP socket, watched by the runtime in which it was made.
pub struct Listener {
    socket: AsyncFd<OwnedFd>,
    /// The algorithm for connections from other machines.
    paced: Option<Paced>,
}

impl Listener {
    /// Listens on `address`. An IPv6 address means only IPv6, so that `0.0.0.0` and `::` can both
    /// be listened on.
    ///
    /// # Errors
    /// The system's error: the address is in use, not on this machine, or forbidden.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // With SO_REUSEADDR a restarted server can bind while old connections time out.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, LISTEN_BACKLOG)?;
        Self::from_owned(socket)
    }

    /// Takes a socket that listens already, as from systemd.
    ///
    /// # Errors
    /// If the runtime cannot watch it.
    pub fn from_owned(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let paced = Paced::replace(&socket);
        // SAFETY: the OwnedFd names one open descriptor until its drop closes it, and the AsyncFd
        // deregisters the descriptor before that.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { socket, paced })
    }

    /// Accepts the next connection, sets its options, and returns it for any core. Dropping the
    /// future loses none.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOBUFS` or `ENOMEM` if the system lacks something: wait a little and
    /// continue. A connection that died in the backlog is no error.
    pub async fn accept(&self) -> io::Result<(Detached, SocketAddr)> {
        loop {
            let mut ready = self.socket.readable().await?;
            let accepted = ready.try_io(|socket| Ok(self.accept_one(socket.as_fd())?));
            let Ok(accepted) = accepted else { continue };
            match accepted {
                Ok(connection) => return Ok(connection),
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn accept_one(&self, socket: BorrowedFd<'_>) -> rustix::io::Result<(Detached, SocketAddr)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (stream, peer) = rustix::net::acceptfrom_with(socket, flags)?;
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        // There is no peer address, because the peer has closed the connection already.
        let peer = peer.ok_or(rustix::io::Errno::CONNABORTED)?;
        prepare(stream.as_fd())?;
        // A client that does not receive must not occupy kernel buffers for ever.
        let patience = u32::try_from(SEND_UNACKNOWLEDGED_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&stream, patience)?;
        if let Some(paced) = &self.paced {
            paced.give_back(stream.as_fd(), peer.ip());
        }
        Ok((Detached::Tcp(stream.into()), peer))
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(&self.socket)?;
        SocketAddr::try_from(address).map_err(io::Error::from)
    }

    /// Returns the addresses of the host on which it answers.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn reach(&self) -> io::Result<Reach> {
        let address = self.local_addr()?.ip();
        // An IPv6 socket passed by another process may accept IPv4, too.
        let both = address.is_ipv6() && !sockopt::ipv6_v6only(&self.socket)?;
        Ok(Reach { address: address.to_canonical(), both })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The addresses that a listener answers on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    address: IpAddr,
    /// True for an IPv6 socket that accepts IPv4 connections as well.
    both: bool,
}

impl Reach {
    /// The reach of a listener on one address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        Self { address: address.to_canonical(), both: false }
    }

    /// True if a connection to `address` arrives at this listener.
    pub fn includes(&self, address: IpAddr) -> bool {
        if !self.address.is_unspecified() {
            return self.address == address.to_canonical();
        }
        self.both || self.address.is_ipv4() == address.is_ipv4()
    }
}

/// True for errors of one connection rather than of the listener, accept(2).
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EINVAL
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
        )
    )
}

/// Sets the options of every connection: replies leave at once, and a vanished peer is noticed.
fn prepare(socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Connects to `address`, from `local` if given: each channel of a client uses its own interface.
///
/// # Errors
/// The system's error.
pub async fn connect(address: SocketAddr, local: Option<IpAddr>) -> io::Result<Stream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(local) = local {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    // Before connecting, only a loopback address is known to be this machine's. If the server has
    // another address of this machine, only the server's side turns pacing off.
    if address.ip().to_canonical().is_loopback() {
        Paced::replace(&socket);
    }
    let stream = socket.connect(address).await?;
    prepare(stream.as_fd())?;
    Ok(Stream::Tcp(stream))
}

/// The kernel's measurements of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
    /// Time after which an unacknowledged segment is sent again.
    pub rto: Duration,
    /// Bytes given to the kernel that the peer has not acknowledged, sent or not.
    pub unacknowledged_bytes: usize,
    /// Number of times that the oldest unacknowledged segment was sent again.
    pub retransmits: u8,
    /// Number of segments sent again since the connection began.
    pub total_retransmits: u32,
    /// Time since the last data from the peer.
    pub since_received: Duration,
    /// Time since the peer's last acknowledgment.
    pub since_acknowledged: Duration,
}

/// The part of the kernel's `struct tcp_info` that every version has.
#[repr(C)]
#[derive(Default)]
struct TcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    window_scales: u8,
    flags: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
}

const _: () = assert!(size_of::<TcpInfo>() == 104);

impl Stream {
    /// Returns the kernel's measurements. In memory nothing is in flight, but bytes that the peer
    /// has not read count as unacknowledged.
    ///
    /// # Errors
    /// If the socket is gone.
    pub fn facts(&self) -> io::Result<Facts> {
        let unacknowledged_bytes = self.unacknowledged_bytes()?;
        let info = match self.socket() {
            Some(socket) => tcp_info(socket)?,
            None => {
                let rtt = self.quic().map_or(0, |connection| connection.round_trip().as_micros());
                let rtt = u32::try_from(rtt).unwrap_or(u32::MAX);
                let rto = rtt.saturating_mul(3).max(200_000);
                TcpInfo { rto, rtt, ..TcpInfo::default() }
            }
        };
        let micros = |value: u32| Duration::from_micros(value.into());
        let millis = |value: u32| Duration::from_millis(value.into());
        Ok(Facts {
            rtt: micros(info.rtt),
            rtt_deviation: micros(info.rttvar),
            rto: micros(info.rto),
            unacknowledged_bytes,
            retransmits: info.retransmits,
            total_retransmits: info.total_retrans,
            since_received: millis(info.last_data_recv),
            since_acknowledged: millis(info.last_ack_recv),
        })
    }

    /// Has the kernel keep up to `bytes` of unread data. Its own measurement of the peer's rate may
    /// choose more later, but no less. For a connection of QUIC see
    /// [`widen_receiving`](crate::quic::Connection::widen_receiving).
    ///
    /// # Errors
    /// If the socket is gone.
    pub fn widen_receive_window(&self, bytes: usize) -> io::Result<()> {
        let Self::Tcp(stream) = self else { return Ok(()) };
        // Setting a low-water mark enlarges the receive buffer (since Linux 4.18), and resetting
        // the mark leaves it enlarged. SO_RCVBUF would turn off autotuning and allows only 208 KiB
        // on most hosts.
        set_low_water_mark(stream.as_fd(), bytes)?;
        set_low_water_mark(stream.as_fd(), 1)
    }

    /// Sets the bytes that must be there before the stream is readable. If they are there, it is now.
    /// A stream that ends is readable whatever is there. The kernel makes room for them, and the room
    /// stays.
    ///
    /// # Errors
    /// If the socket is gone.
    pub(crate) fn set_low_water_mark(&self, bytes: usize) -> io::Result<()> {
        let Self::Tcp(stream) = self else { return Ok(()) };
        set_low_water_mark(stream.as_fd(), bytes)
    }

    /// Returns the bytes that have arrived and were not read yet; 0 where it is unknown.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        let bytes = match self {
            Self::Tcp(stream) => rustix::io::ioctl_fionread(stream).unwrap_or(0),
            Self::Memory(stream) => stream.unread() as u64,
            // SMB Direct messages are small, because large data moves by RDMA, so their bytes do
            // not count as unread.
            Self::Rdma(_) => 0,
            // QUIC does not tell.
            Self::Quic(_) => 0,
        };
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Returns the bytes given to the kernel that the peer has not acknowledged.
    ///
    /// # Errors
    /// If the socket is gone.
    pub fn unacknowledged_bytes(&self) -> io::Result<usize> {
        let socket = match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Memory(stream) => return Ok(stream.unread_by_peer()),
            // SMB Direct sends only as many messages as the peer has granted credits for, so no
            // sent data waits for the peer.
            Self::Rdma(_) => return Ok(0),
            Self::Quic(connection) => return Ok(connection.unacknowledged_bytes()),
        };
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one int, which stays valid until the call returns.
        let outcome = unsafe {
            libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, std::ptr::from_mut(&mut bytes))
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(usize::try_from(bytes).unwrap_or(0))
    }
}

/// Sets the bytes that must be there before a socket is readable.
fn set_low_water_mark(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads one int, which stays valid until the call returns.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            std::ptr::from_ref(&bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut info = TcpInfo::default();
    let mut len = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the structure's
    // size; any bits are good values of its integers.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut len,
        )
    };
    if outcome == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// Returns the IPv4 address in an IPv4-mapped IPv6 one, else the address itself.
#[must_use]
pub fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// True if a peer could connect to this address: it is neither unspecified nor multicast.
#[must_use]
pub fn is_reachable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => {
            four != Ipv4Addr::UNSPECIFIED && four != Ipv4Addr::BROADCAST && !four.is_multicast()
        }
        IpAddr::V6(six) => six != Ipv6Addr::UNSPECIFIED && !six.is_multicast(),
    }
}

#[cfg(test)]
mod tests;
