//! Packets of ARP: an address of this machine is told to its network (RFC 826, RFC 5227).

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// ETH_P_ARP of linux/if_ether.h.
const ARP: u16 = 0x0806;

/// A socket that sends packets of ARP and receives none.
#[derive(Debug)]
pub struct ArpSocket(OwnedFd);

impl ArpSocket {
    /// Makes the socket. Sending takes no privilege any more.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        // Without a protocol the socket receives nothing.
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        Ok(Self(socket_with(family, kind, SocketFlags::CLOEXEC, None)?))
    }

    /// Sends a frame of Ethernet on an interface.
    ///
    /// # Errors
    /// ENXIO if there is no such interface, ENETDOWN if it is down.
    pub fn send(&self, interface: u32, frame: &[u8]) -> io::Result<()> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let to = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).map_err(invalid)?,
            sll_protocol: ARP.to_be(),
            sll_ifindex: i32::try_from(interface).map_err(invalid)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
        };
        let length = libc::socklen_t::try_from(size_of_val(&to)).map_err(invalid)?;
        // SAFETY: the frame and the address are borrowed for the call, with their lengths, and the kernel
        // only reads them.
        let sent = unsafe {
            let (data, to) = (frame.as_ptr().cast(), (&raw const to).cast());
            libc::sendto(self.0.as_raw_fd(), data, frame.len(), libc::MSG_NOSIGNAL, to, length)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames on the loopback interface reach nobody, and there is no interface with the last number.
    #[test]
    fn frames_are_sent_on_interfaces_that_exist() {
        let socket = match ArpSocket::open() {
            Ok(socket) => socket,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
                return;
            }
        };
        let loopback = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        assert!(socket.send(loopback.trim().parse().unwrap(), &[0xFF; 42]).is_ok());
        let error = socket.send(i32::MAX.unsigned_abs(), &[0xFF; 42]).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)), "{error}");
    }
}
