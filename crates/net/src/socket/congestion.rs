//! Congestion control of connections within this machine.
//!
//! BBR sends no faster than its estimate of the path, which it takes from what it has seen.
//! Requests and answers have pauses; within one machine, where there is no queue to protect, the
//! only effect is that large reads wait for timers (a tenth of their rate). Connections from other
//! machines keep the system's setting.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

/// Algorithms without pacing, the best first. Every kernel has the last one.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// True if the algorithm of this name paces.
fn paces(name: &str) -> bool {
    name.starts_with("bbr")
}

/// The system's algorithm, if it paces and connections within the machine should not use it.
#[derive(Debug)]
pub(super) struct Paced(String);

impl Paced {
    /// Gives `socket`, which is not connected yet, an algorithm that does not pace, and returns the
    /// former one if that paces. A connection that was ever paced stays so, so this must come
    /// first.
    pub(super) fn replace(socket: impl AsFd) -> Option<Self> {
        let before = sockopt::tcp_congestion(&socket).ok().filter(|name| paces(name))?;
        // The kernel may lack an algorithm, or allow it only to privileged processes. Then the next
        // one is tried.
        let set = |name: &&str| sockopt::set_tcp_congestion(&socket, name).is_ok();
        UNPACED.iter().find(|name| set(name)).map(|_| Self(before))
    }

    /// Gives the former algorithm back to a connection from another machine. If that fails, it
    /// keeps the present one.
    pub(super) fn give_back(&self, socket: BorrowedFd<'_>, peer: IpAddr) {
        let local = || rustix::net::getsockname(socket).ok()?.try_into().ok();
        if !is_within(peer, || local().map(|local: std::net::SocketAddr| local.ip())) {
            let _ = sockopt::set_tcp_congestion(socket, &self.0);
        }
    }
}

/// True if both ends are on this machine.
fn is_within(peer: IpAddr, local: impl FnOnce() -> Option<IpAddr>) -> bool {
    peer.to_canonical().is_loopback() || local() == Some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType};

    fn socket() -> std::os::fd::OwnedFd {
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
    }

    #[test]
    fn what_does_not_pace_is_left_alone() {
        let socket = socket();
        sockopt::set_tcp_congestion(&socket, "reno").unwrap();
        assert!(Paced::replace(&socket).is_none());
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "reno");
    }

    #[test]
    fn what_paces_is_replaced_and_given_back_to_those_from_elsewhere() {
        let socket = socket();
        if sockopt::set_tcp_congestion(&socket, "bbr").is_err() {
            // The kernel lacks bbr, or does not allow it to this user. So the rest of the test is
            // skipped.
            return;
        }
        let paced = Paced::replace(&socket).unwrap();
        assert!(!paces(&sockopt::tcp_congestion(&socket).unwrap()));
        paced.give_back(socket.as_fd(), "127.0.0.9".parse().unwrap());
        assert!(!paces(&sockopt::tcp_congestion(&socket).unwrap()));
        paced.give_back(socket.as_fd(), "192.0.2.1".parse().unwrap());
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "bbr");
    }

    #[test]
    fn an_own_address_is_within_the_machine() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (peer, local, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("::1", "::1", true),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            assert_eq!(is_within(address(peer), || Some(address(local))), expected, "{peer}");
        }
        assert!(!is_within(address("192.0.2.1"), || None));
    }
}
