//! Questions to the kernel about interfaces and their addresses: rtnetlink(7).
//!
//! The C library makes a socket for each question, which a confined process may not.
//! [`keep_socket`] makes one before.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};

/// An interface of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// IFF_ flags of netdevice(7).
    pub(super) flags: libc::c_uint,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) index: u32,
    pub(super) address: IpAddr,
}

/// A socket to the kernel, and the number of the last question.
struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

/// The socket of a process that may make no other.
static KEPT: OnceLock<Mutex<Socket>> = OnceLock::new();

/// Time for an answer. The kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Room for one message of a dump: the kernel sends at most 32 KiB at a time.
const ROOM: usize = 64 << 10;

/// Bytes of struct nlmsghdr, which precedes each message.
const HEADER: usize = 16;
/// Bytes of struct ifinfomsg and of struct ifaddrmsg.
const LINK: usize = 16;
const ADDRESS: usize = 8;

/// Makes the socket for all further questions of this process.
///
/// # Errors
/// The system's error.
pub fn keep_socket() -> io::Result<()> {
    let socket = Socket::new()?;
    // If `KEPT` has a socket already, that socket stays in use.
    let _ = KEPT.set(Mutex::new(socket));
    Ok(())
}

/// Returns the interfaces and the addresses of this network namespace.
pub(super) fn links_and_addresses() -> io::Result<(Vec<Link>, Vec<Address>)> {
    let ask = |socket: &mut Socket| {
        let (mut links, mut addresses) = (Vec::new(), Vec::new());
        let (ask_links, ask_addresses) = (libc::RTM_GETLINK, libc::RTM_GETADDR);
        socket.dump(ask_links, LINK, |kind, body| {
            links.extend(link(body).filter(|_| kind == libc::RTM_NEWLINK));
        })?;
        socket.dump(ask_addresses, ADDRESS, |kind, body| {
            addresses.extend(address(body).filter(|_| kind == libc::RTM_NEWADDR));
        })?;
        Ok((links, addresses))
    };
    match KEPT.get() {
        Some(kept) => ask(&mut kept.lock()),
        None => ask(&mut Socket::new()?),
    }
}

impl Socket {
    fn new() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // `None` means the protocol number 0, which is NETLINK_ROUTE.
        let fd = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Asks for all objects of a kind, and passes the type and the body of each message to `each`.
    fn dump(&mut self, kind: u16, room: usize, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        // The flags ask for a list; a body of zeros means all address families.
        let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or_default();
        let length = u32::try_from(HEADER + room).unwrap_or_default();
        let mut question = Vec::with_capacity(HEADER + room);
        question.extend_from_slice(&length.to_ne_bytes());
        question.extend_from_slice(&kind.to_ne_bytes());
        question.extend_from_slice(&flags.to_ne_bytes());
        question.extend_from_slice(&self.sequence.to_ne_bytes());
        question.resize(HEADER + room, 0);
        // A netlink message without a destination address goes to the kernel.
        send(&self.fd, &question, SendFlags::empty())?;
        let mut buffer = vec![0; ROOM];
        loop {
            let flags = RecvFlags::empty();
            let (count, _) = rustix::io::retry_on_intr(|| recv(&self.fd, &mut buffer[..], flags))?;
            let received = buffer.get(..count).unwrap_or_default();
            if self.is_last(received, &mut each)? {
                return Ok(());
            }
        }
    }

    /// Passes on the messages of the last question; true if no more follow.
    fn is_last(&self, received: &[u8], each: &mut impl FnMut(u16, &[u8])) -> io::Result<bool> {
        for message in (Parts { left: received, width: 4 }) {
            let (kind, sequence) = (half(message, 4), word(message, 8));
            let (Some(kind), Some(body)) = (kind, message.get(HEADER..)) else { continue };
            // Answers to an earlier request, whose caller has given up, may still arrive and are
            // skipped.
            if sequence != Some(self.sequence) {
                continue;
            }
            match libc::c_int::from(kind) {
                libc::NLMSG_DONE => return Ok(true),
                libc::NLMSG_ERROR => {
                    let errno = word(body, 0).map_or(libc::EIO, |code| -code.cast_signed());
                    return Err(io::Error::from_raw_os_error(errno));
                }
                _ => each(kind, body),
            }
        }
        Ok(false)
    }
}

/// Parts that begin with their length, of two or four bytes, and are aligned to four bytes.
struct Parts<'a> {
    left: &'a [u8],
    width: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = match self.width {
            2 => half(self.left, 0)?.into(),
            _ => usize::try_from(word(self.left, 0)?).ok()?,
        };
        let part = self.left.get(..length).filter(|_| length >= 4)?;
        self.left = self.left.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    }
}

/// Returns the value of an attribute (struct rtattr).
fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = Parts { left: attributes, width: 2 };
    all.find(|part| half(part, 2) == Some(kind)).and_then(|part| part.get(4..))
}

/// Reads struct ifinfomsg and the name behind it.
fn link(body: &[u8]) -> Option<Link> {
    let name = attribute(body.get(LINK..)?, libc::IFLA_IFNAME)?;
    let name = std::str::from_utf8(name.strip_suffix(&[0]).unwrap_or(name)).ok()?;
    Some(Link { index: word(body, 4)?, name: name.to_owned(), flags: word(body, 8)? })
}

/// Reads struct ifaddrmsg and the address behind it. Of a line between two hosts, IFA_ADDRESS is the
/// other one.
fn address(body: &[u8]) -> Option<Address> {
    let attributes = body.get(ADDRESS..)?;
    let bytes = attribute(attributes, libc::IFA_LOCAL);
    let bytes = bytes.or_else(|| attribute(attributes, libc::IFA_ADDRESS))?;
    let address = match libc::c_int::from(*body.first()?) {
        libc::AF_INET => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        libc::AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(Address { index: word(body, 4)?, address })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_ne_bytes(*two))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_ne_bytes(*four))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_kernel_tells_the_loopback() {
        let mut socket = Socket::new().unwrap();
        for _ in 0..3 {
            let mut found = Vec::new();
            socket.dump(libc::RTM_GETLINK, LINK, |_, body| found.extend(link(body))).unwrap();
            let loopback = found.iter().find(|link| link.name == "lo").unwrap();
            assert!(loopback.flags & libc::IFF_LOOPBACK as libc::c_uint != 0);
            let mut addresses = Vec::new();
            let asked = socket.dump(libc::RTM_GETADDR, ADDRESS, |_, body| {
                addresses.extend(address(body));
            });
            asked.unwrap();
            let local = Address { index: loopback.index, address: Ipv4Addr::LOCALHOST.into() };
            assert!(addresses.contains(&local), "{addresses:?}");
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let mut socket = Socket::new().unwrap();
        // 0xFFF0 is a message type that the kernel does not know, so it returns an error.
        let error = socket.dump(0xFFF0, LINK, |_, _| ()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn lengths_that_lie_end_the_list() {
        let parts = |bytes: &[u8]| Parts { left: bytes, width: 2 }.count();
        assert_eq!(parts(&[4, 0, 1, 0, 5, 0, 1, 0, 9, 0, 0, 0, 4, 0, 0, 0]), 3);
        for bytes in [&[][..], &[4], &[0, 0, 1, 0], &[3, 0, 1, 0], &[9, 0, 1, 0, 1, 2, 3, 4]] {
            assert_eq!(parts(bytes), 0, "{bytes:?}");
        }
        for length in 0..40 {
            assert!(link(&vec![0xFF; length]).is_none() && address(&vec![0xFF; length]).is_none());
        }
    }
}
