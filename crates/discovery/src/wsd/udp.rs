//! Datagrams: greetings are sent to everybody, requests are read and answered.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

use super::answers;
use super::request::{Action, Request};
use super::shared::{Shared, UDP_PORT, random_delay};
use crate::interfaces::Interface;
use crate::limits::{DATAGRAM_BYTES, DELAY_MAX, PENDING_ANSWERS, RECEIVE_PAUSE};

const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0xC);

/// The sockets of both families; that of IPv6 is missing where the machine has none.
#[derive(Clone)]
pub(super) struct Sockets {
    v4: Arc<UdpSocket>,
    v6: Option<Arc<UdpSocket>>,
}

impl Sockets {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { v4: Arc::new(open(Domain::IPV4)?), v6: open(Domain::IPV6).ok().map(Arc::new) })
    }

    pub(super) fn all(&self) -> Vec<Arc<UdpSocket>> {
        [Some(&self.v4), self.v6.as_ref()].into_iter().flatten().cloned().collect()
    }

    /// Joins the groups on `interfaces`. One that is joined already stays so.
    pub(super) fn join(&self, interfaces: &[Interface]) {
        for one in interfaces {
            let joined = match (one.address, &self.v6) {
                (IpAddr::V4(_), _) => SockRef::from(&*self.v4)
                    .join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(one.index)),
                (IpAddr::V6(_), Some(v6)) => {
                    SockRef::from(&**v6).join_multicast_v6(&GROUP_V6, one.index)
                }
                (IpAddr::V6(_), None) => Ok(()),
            };
            if let Err(error) = joined.or_else(is_joined) {
                tracing::debug!(%error, interface = %one.name, "cannot join the group");
            }
        }
    }

    /// Sends a greeting on each of `interfaces`.
    pub(super) async fn tell(
        &self,
        shared: &Shared,
        interfaces: &[Interface],
        greeting: impl Fn(&Shared, &Interface) -> String,
    ) {
        for one in interfaces {
            let text = greeting(shared, one);
            let sent = match (one.address, &self.v6) {
                (IpAddr::V4(address), _) => {
                    let chosen = SockRef::from(&*self.v4).set_multicast_if_v4(&address);
                    let group = SocketAddr::new(GROUP_V4.into(), UDP_PORT);
                    match chosen {
                        Ok(()) => self.v4.send_to(text.as_bytes(), group).await.map(drop),
                        failed => failed,
                    }
                }
                (IpAddr::V6(_), Some(v6)) => {
                    let group = SocketAddrV6::new(GROUP_V6, UDP_PORT, 0, one.index);
                    v6.send_to(text.as_bytes(), group).await.map(drop)
                }
                (IpAddr::V6(_), None) => Ok(()),
            };
            if let Err(error) = sent {
                tracing::debug!(%error, interface = %one.name, "cannot greet the network");
            }
        }
    }
}

/// Success when a group was joined before.
fn is_joined(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AddrInUse { Ok(()) } else { Err(error) }
}

fn open(family: Domain) -> io::Result<UdpSocket> {
    let socket = Socket::new(family, Type::DGRAM, Some(Protocol::UDP))?;
    // Other programs on this machine use the same port, so the address must be shared.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    let address: SocketAddr = if family == Domain::IPV4 {
        socket.set_multicast_ttl_v4(1)?;
        // Without this option the socket would also receive from groups that other sockets have
        // joined.
        socket.set_multicast_all_v4(false)?;
        (Ipv4Addr::UNSPECIFIED, UDP_PORT).into()
    } else {
        socket.set_only_v6(true)?;
        socket.set_multicast_hops_v6(1)?;
        socket.set_multicast_all_v6(false)?;
        (Ipv6Addr::UNSPECIFIED, UDP_PORT).into()
    };
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Answers the requests that come to `socket`.
pub(super) async fn answer(socket: Arc<UdpSocket>, shared: Arc<Shared>) {
    let pending = Arc::new(Semaphore::new(PENDING_ANSWERS));
    // The buffer has one byte more than the limit, so a longer datagram is noticed by its length.
    let mut buffer = vec![0; DATAGRAM_BYTES + 1];
    loop {
        let Ok((count, peer)) = socket.recv_from(&mut buffer).await else {
            // The error may concern an earlier answer, and further datagrams may arrive, so the
            // loop continues.
            tokio::time::sleep(RECEIVE_PAUSE).await;
            continue;
        };
        let Some(message) = buffer.get(..count).filter(|_| count <= DATAGRAM_BYTES) else {
            continue;
        };
        let Some((text, delay)) = reply(&shared, &peer, message) else { continue };
        let Ok(place) = Arc::clone(&pending).try_acquire_owned() else { continue };
        let socket = Arc::clone(&socket);
        tokio::spawn(async move {
            let _place = place;
            tokio::time::sleep(delay).await;
            if let Err(error) = socket.send_to(text.as_bytes(), peer).await {
                tracing::debug!(%error, "cannot answer a probe");
            }
        });
    }
}

/// The answer to a message of `peer`, and its delay. None for what gets none.
pub(super) fn reply(
    shared: &Shared,
    peer: &SocketAddr,
    message: &[u8],
) -> Option<(String, std::time::Duration)> {
    let on = shared.interface_of(peer)?;
    let request = Request::read(message).filter(|request| request.is_for(&shared.id))?;
    let id = &request.message_id;
    if shared.is_answered(id) {
        return None;
    }
    let (text, delay) = match request.action {
        Action::Probe => (answers::probe_matches(shared, &on, id), random_delay(DELAY_MAX)),
        Action::Resolve => (answers::resolve_matches(shared, &on, id), std::time::Duration::ZERO),
        Action::Get => return None,
    };
    shared.may_answer(peer.ip(), text.len()).then_some((text, delay))
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::message;
    use super::*;

    #[test]
    fn strangers_get_no_answer_and_floods_few() {
        let shared = Shared::new(crate::announcement::example());
        let address = "192.0.2.10".parse().unwrap();
        let on = Interface { name: String::from("eth0"), index: 2, address, prefix: 24 };
        shared.replace_interfaces(vec![on]);
        let action = "http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe";
        let probe = message(action, "urn:x", "<wsd:Probe/>");
        let ask = |peer: &str, id: usize| {
            let probe = probe.replace("0a-1", &format!("0a-{id}"));
            reply(&shared, &peer.parse().unwrap(), probe.as_bytes())
        };
        assert_eq!(ask("198.51.100.1:3702", 1), None, "not a neighbour");
        let (text, delay) = ask("192.0.2.20:50000", 1).unwrap();
        assert!(text.contains("http://192.0.2.10:5357/") && delay <= DELAY_MAX);
        assert_eq!(ask("192.0.2.20:50000", 1), None, "repeated");
        let answered = (2..1_000).filter(|id| ask("192.0.2.20:50000", *id).is_some()).count();
        // The limit applies to each second, of which a new one may begin once during the loop.
        assert!(answered < 50, "{answered}");
        let wrong = message("http://schemas.xmlsoap.org/ws/2004/09/transfer/Get", "urn:x", "");
        let peer = "192.0.2.21:1".parse().unwrap();
        assert_eq!(reply(&shared, &peer, wrong.as_bytes()), None);
    }

    /// A responder on this machine alone, and a socket that asks it.
    async fn here() -> (Arc<Shared>, Arc<UdpSocket>, UdpSocket) {
        let shared = Arc::new(Shared::new(crate::announcement::example()));
        let address = "127.0.0.1".parse().unwrap();
        let on = Interface { name: String::from("lo"), index: 1, address, prefix: 8 };
        shared.replace_interfaces(vec![on]);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(socket.local_addr().unwrap()).await.unwrap();
        (shared, Arc::new(socket), client)
    }

    #[tokio::test]
    async fn longer_datagrams_are_not_read() {
        let (shared, socket, client) = here().await;
        let resolve = "http://schemas.xmlsoap.org/ws/2005/04/discovery/Resolve";
        let body = format!(
            "<wsd:Resolve><wsa:EndpointReference><wsa:Address>{}</wsa:Address>\
             </wsa:EndpointReference></wsd:Resolve>",
            shared.id
        );
        let text = message(resolve, "urn:x", &body);
        let answering = tokio::spawn(answer(socket, Arc::clone(&shared)));
        for (id, length) in
            [("0a-2", DATAGRAM_BYTES + 1), ("0a-3", DATAGRAM_BYTES), ("0a-4", DATAGRAM_BYTES - 1)]
        {
            let text = text.replace("0a-1", id);
            let long = text.clone() + &" ".repeat(length - text.len());
            assert_eq!(client.send(long.as_bytes()).await.unwrap(), length);
        }
        let mut buffer = vec![0; 65_536];
        for id in ["0a-3", "0a-4"] {
            let count = client.recv(&mut buffer).await.unwrap();
            let answer = std::str::from_utf8(&buffer[..count]).unwrap();
            assert!(answer.contains(&format!("<wsa:RelatesTo>urn:uuid:{id}<")), "{answer}");
        }
        answering.abort();
    }

    /// Counts how often a future wants to be polled.
    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_stays_takes_no_core() {
        // A pipe without a writer is always readable, and it is no socket, so each recv_from fails.
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        drop(writer);
        let socket = std::net::UdpSocket::from(reader);
        let socket = Arc::new(UdpSocket::from_std(socket).unwrap());
        assert!(socket.recv_from(&mut [0; 16]).await.is_err());
        let shared = Arc::new(Shared::new(crate::announcement::example()));
        let mut answering = std::pin::pin!(answer(Arc::clone(&socket), shared));
        let woken = Arc::new(Woken::default());
        let waker = std::task::Waker::from(Arc::clone(&woken));
        for _ in 0..1_000 {
            let polled = answering.as_mut().poll(&mut std::task::Context::from_waker(&waker));
            assert!(polled.is_pending());
            // The paused clock advances only when no task can run, so a loop without pauses would
            // stop it.
            tokio::task::yield_now().await;
        }
        let times = woken.0.load(std::sync::atomic::Ordering::Relaxed);
        assert!(times < 10, "{times} times at one moment");
    }
}
