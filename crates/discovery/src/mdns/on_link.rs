//! Keeps answers on the link.
//!
//! The responder answers a query whose port is not 5353 by a datagram to its sender, whatever
//! address that is, and tells of no limit. A query with a false sender from outside would so send
//! answers, longer than itself, to a victim outside (RFC 6762 11 wants such queries ignored). The
//! sockets are the responder's own, so they are found among the descriptors of this process: what
//! they send to one host lives for one hop, and no router passes it on. Multicast has a time to
//! live of its own.

use std::io;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::{SockRef, Type};

use crate::limits::DESCRIPTORS;

/// Hops that a datagram to one host may take.
const HOPS: u32 = 1;

/// Confines the datagrams of all sockets at `port` to the link. Returns the number of sockets.
pub(super) fn confine(port: u16) -> io::Result<usize> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut confined = 0;
    for number in 0..DESCRIPTORS {
        let found = pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
        let Ok(descriptor) = found else { continue };
        let socket = SockRef::from(&descriptor);
        // For a descriptor that is no socket the call fails, so it is skipped.
        if !socket.r#type().is_ok_and(|kind| kind == Type::DGRAM) {
            continue;
        }
        let Some(address) = socket.local_addr().ok().and_then(|one| one.as_socket()) else {
            continue;
        };
        if address.port() != port {
            continue;
        }
        if address.is_ipv4() {
            socket.set_ttl_v4(HOPS)?;
        } else {
            socket.set_unicast_hops_v6(HOPS)?;
        }
        confined += 1;
    }
    Ok(confined)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn answers_to_one_host_pass_no_router() {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = one.local_addr().unwrap().port();
        let before = UdpSocket::bind("127.0.0.1:0").unwrap();
        let six = UdpSocket::bind(("::1", port)).ok();
        assert_eq!(confine(port).unwrap(), 1 + six.iter().count());
        assert_eq!(one.ttl().unwrap(), HOPS);
        assert!(before.ttl().unwrap() > HOPS, "another's");
        if let Some(six) = six {
            assert_eq!(SockRef::from(&six).unicast_hops_v6().unwrap(), HOPS);
        }
    }

    /// The responder has its sockets as soon as it answers, and no others later.
    #[test]
    fn the_responders_sockets_are_confined() {
        let Ok(daemon) = mdns_sd::ServiceDaemon::new() else { return };
        super::super::own::await_start(&daemon);
        assert!(confine(super::super::own::PORT).unwrap() > 0);
        let _ = daemon.shutdown();
    }
}
