//! The dialers of a client, in the order in which they are tried.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_net::transport::{Dialer, Stream, Transport};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::dial::{Dial, Dialing, Preferred, Preferring, Resolving, ServerName};
use crate::limits::{DIAL_AGAIN_AFTER, NEXT_ADDRESS_AFTER, PREFERRED_DIAL};
use crate::options::{Options, Rdma};
use crate::quic::{Quic, QuicDialer};
use crate::staggered::Staggered;

/// Dialers of several transports, the preferred one first. The next one is tried where one does not
/// reach a server. Which did not is remembered for a while.
#[derive(Debug)]
pub struct Dialers {
    order: Vec<Choice>,
    /// Time limit of an attempt over the last transport, if not every server has it.
    alone: Duration,
    in_vain: Mutex<Vec<InVain>>,
}

/// The dialer of one transport.
#[derive(Debug)]
struct Choice {
    transport: Transport,
    dial: Arc<dyn Dial>,
}

/// A server that a transport did not reach.
#[derive(Debug)]
struct InVain {
    server: ServerName,
    transport: Transport,
    at: Instant,
}

/// Returns the dialers of a client with these options.
pub(crate) fn dialers(options: &Options) -> Arc<dyn Dial> {
    let order: &[Dialer] = match (options.quic, options.rdma) {
        (Quic::Required, _) => &[],
        (_, Rdma::Off) => &[Dialer::Tcp],
        (_, Rdma::Auto) => &[Dialer::Rdma, Dialer::Tcp],
        (_, Rdma::Required) => &[Dialer::Rdma],
    };
    let choice = |dialer: &Dialer| (dialer.transport(), Arc::new(dialer.clone()) as _);
    let quic = (options.quic != Quic::Off)
        .then(|| (Transport::Quic, Arc::new(QuicDialer::new(options)) as Arc<dyn Dial>));
    let mut dialers = Dialers::new(order.iter().map(choice).chain(quic));
    // A name may have several addresses, of which the first ones do not answer. The rest of the time is
    // for the sentence that tells the transport.
    dialers.alone = options.connect_timeout * 9 / 10;
    Arc::new(dialers)
}

impl Dial for Dialers {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let mut choices = self.order.iter().peekable();
            while let Some(choice) = choices.next() {
                let Some(next) = choices.peek() else {
                    return choice.dial(server, self.alone).await;
                };
                if self.is_in_vain(choice.transport, server) {
                    continue;
                }
                match choice.reach_within(server, PREFERRED_DIAL).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => {
                        warn(choice, next, server, &error);
                        self.remember(choice.transport, server);
                    }
                }
            }
            Err(io::ErrorKind::Unsupported.into())
        })
    }

    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        match self.order.first() {
            // Over QUIC a server proves to be the host that a user names, not an address.
            Some(choice) if !self.has(Transport::Quic) => choice.dial.addresses(server),
            _ => Box::pin(std::future::ready(Ok(vec![server.clone()]))),
        }
    }

    fn prefer<'a>(&'a self, servers: &'a [ServerName]) -> Preferring<'a> {
        Box::pin(async move {
            let mut choices = self.order.iter();
            let (choice, next) = (choices.next()?, choices.next()?);
            let is_hoped_for = |server: &&ServerName| !self.is_in_vain(choice.transport, server);
            let hoped_for: Vec<_> = servers.iter().filter(is_hoped_for).cloned().collect();
            let mut left = hoped_for.clone();
            let mut why = io::Error::from(io::ErrorKind::TimedOut);
            let mut dialing = Staggered::new(
                hoped_for.clone(),
                NEXT_ADDRESS_AFTER,
                |server: ServerName| async move {
                    let dialed = choice.reach(&server, PREFERRED_DIAL).await;
                    (server, dialed)
                },
            );
            let until = Instant::now() + PREFERRED_DIAL;
            while let Ok(Some((server, dialed))) = timeout_at(until, dialing.next()).await {
                match dialed {
                    Ok(stream) => return Some(Preferred { server, stream }),
                    Err(error) => why = error,
                }
                left.retain(|one| *one != server);
                self.remember(choice.transport, &server);
            }
            left.iter().for_each(|late| self.remember(choice.transport, late));
            warn(choice, next, hoped_for.first()?, &why);
            None
        })
    }

    fn dial_further<'a>(&'a self, server: &'a ServerName, transport: Transport) -> Dialing<'a> {
        Box::pin(async move {
            // A failure to reach this one address says nothing about the session's server, so it is
            // not noted for the server.
            match self.order.iter().find(|choice| choice.transport == transport) {
                Some(choice) => choice.dial(server, PREFERRED_DIAL).await,
                None => Err(io::ErrorKind::Unsupported.into()),
            }
        })
    }

    fn dial_rpc(&self, address: SocketAddr) -> Dialing<'_> {
        let is_everywhere = |choice: &&Choice| choice.transport.facts().is_everywhere;
        match self.order.iter().rfind(is_everywhere).or(self.order.last()) {
            Some(choice) => choice.dial.dial_rpc(address),
            None => Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into()))),
        }
    }

    fn knows_addresses(&self) -> bool {
        self.order.iter().all(|choice| choice.dial.knows_addresses())
    }
}

impl Dialers {
    /// Returns these dialers, the preferred one first.
    pub fn new(order: impl IntoIterator<Item = (Transport, Arc<dyn Dial>)>) -> Self {
        let choice = |(transport, dial)| Choice { transport, dial };
        let order = order.into_iter().map(choice).collect();
        Self { order, alone: PREFERRED_DIAL, in_vain: Mutex::default() }
    }

    /// True if a transport is one of them.
    fn has(&self, transport: Transport) -> bool {
        self.order.iter().any(|choice| choice.transport == transport)
    }

    /// Remembers that a transport does not reach a server: it is not tried there for a while.
    fn remember(&self, transport: Transport, server: &ServerName) {
        let mut in_vain = self.in_vain.lock();
        in_vain.retain(|old| {
            (old.transport != transport || old.server != *server)
                && old.at.elapsed() < DIAL_AGAIN_AFTER
        });
        in_vain.push(InVain { server: server.clone(), transport, at: Instant::now() });
    }

    fn is_in_vain(&self, transport: Transport, server: &ServerName) -> bool {
        self.in_vain.lock().iter().any(|old| {
            old.transport == transport
                && old.server == *server
                && old.at.elapsed() < DIAL_AGAIN_AFTER
        })
    }
}

/// Tells that a transport does not reach a server, and the next one is tried.
fn warn(choice: &Choice, next: &Choice, server: &ServerName, error: &io::Error) {
    let [name, next] = [choice, next].map(|one| one.transport.facts().name);
    tracing::warn!(%server, %error, "{name} does not reach the server; {next} is used");
}

impl Choice {
    /// Connects, with the name of the transport in the error where not every server has it.
    async fn dial(&self, server: &ServerName, limit: Duration) -> io::Result<Stream> {
        let facts = self.transport.facts();
        self.reach(server, limit).await.map_err(|error| match facts.is_everywhere {
            true => error,
            // The server was reached, and the handshake failed for the reason that the text tells.
            false
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData
                ) =>
            {
                io::Error::new(error.kind(), format!("{}: {error}", facts.name))
            }
            false => {
                io::Error::new(error.kind(), format!("{} does not reach it: {error}", facts.name))
            }
        })
    }

    /// Connects. An attempt over a transport that not every server has gets a time limit of its own.
    async fn reach(&self, server: &ServerName, limit: Duration) -> io::Result<Stream> {
        if self.transport.facts().is_everywhere {
            return self.dial.dial(server).await;
        }
        self.reach_within(server, limit).await
    }

    /// Connects within a time limit.
    async fn reach_within(&self, server: &ServerName, limit: Duration) -> io::Result<Stream> {
        match timeout(limit, self.dial.dial(server)).await {
            Ok(dialed) => dialed,
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// The loopback device has no RDMA.
    #[tokio::test]
    async fn tcp_takes_over_where_that_is_allowed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ServerName::new("127.0.0.1").at_port(listener.local_addr().unwrap().port());
        for rdma in [Rdma::Off, Rdma::Auto] {
            let stream = dialers(&Options::new().rdma(rdma)).dial(&server).await.unwrap();
            assert_eq!(stream.transport(), Transport::Tcp);
        }
        let error =
            dialers(&Options::new().rdma(Rdma::Required)).dial(&server).await.err().unwrap();
        assert!(error.to_string().starts_with("SMB Direct does not reach it"), "{error}");
    }

    /// Counts its dials, which fail or hang while it is told so.
    #[derive(Debug, Default)]
    struct Counting {
        dials: AtomicUsize,
        /// A server that it does not reach.
        refuses: Option<ServerName>,
        fails: AtomicBool,
        hangs: AtomicBool,
    }

    impl Counting {
        fn dials(&self) -> usize {
            self.dials.load(Ordering::Relaxed)
        }
    }

    impl Dial for Counting {
        fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
            let is_refused = self.refuses.as_ref() == Some(server);
            self.dials.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                if self.hangs.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                if is_refused || self.fails.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let nowhere = (std::net::Ipv4Addr::LOCALHOST, 445).into();
                Ok(Stream::Memory(frevo_net::memory::pair(1, [nowhere; 2]).0))
            })
        }
    }

    /// A server that only TCP reaches is not tried again for a while, but for the channels of a
    /// session that has SMB Direct.
    #[tokio::test(start_paused = true)]
    async fn smb_direct_is_tried_again_after_a_while() {
        let (direct, tcp) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
        let choices = || {
            [(Transport::Rdma, Arc::clone(&direct)), (Transport::Tcp, Arc::clone(&tcp))]
                .map(|(transport, dial)| (transport, dial as Arc<dyn Dial>))
        };
        let auto = Dialers::new(choices());
        let (one, other) = (ServerName::new("one"), ServerName::new("other"));
        let counts = || (direct.dials(), tcp.dials());
        auto.dial(&one).await.unwrap();
        assert_eq!(counts(), (1, 0));
        direct.hangs.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        auto.dial(&one).await.unwrap();
        assert_eq!((counts(), begun.elapsed()), ((2, 1), PREFERRED_DIAL));
        direct.hangs.store(false, Ordering::Relaxed);
        auto.dial(&one).await.unwrap();
        assert_eq!(counts(), (2, 2), "it was in vain a moment ago");
        auto.dial_further(&one, Transport::Rdma).await.unwrap();
        auto.dial(&other).await.unwrap();
        assert_eq!(counts(), (4, 2));
        tokio::time::sleep(DIAL_AGAIN_AFTER).await;
        auto.dial(&one).await.unwrap();
        assert_eq!(counts(), (5, 2));
        direct.fails.store(true, Ordering::Relaxed);
        assert!(
            auto.dial_further(&one, Transport::Rdma).await.is_err(),
            "no channel of another kind"
        );
        auto.dial_further(&one, Transport::Tcp).await.unwrap();
        assert_eq!(counts(), (6, 3));
        let required = Dialers::new(choices().into_iter().take(1));
        assert!(required.dial(&one).await.is_err());
        direct.fails.store(false, Ordering::Relaxed);
        required.dial(&one).await.unwrap();
        assert_eq!(counts(), (8, 3));
    }

    /// A server with several addresses has SMB Direct at one of them.
    #[tokio::test(start_paused = true)]
    async fn smb_direct_is_tried_at_all_addresses_before_tcp() {
        let all = ["one", "other"].map(ServerName::new);
        let refuses = Some(all[0].clone());
        let direct = Arc::new(Counting { refuses, ..Counting::default() });
        let tcp = Arc::new(Counting::default());
        let choices = [(Transport::Rdma, Arc::clone(&direct)), (Transport::Tcp, Arc::clone(&tcp))]
            .map(|(transport, dial)| (transport, dial as Arc<dyn Dial>));
        let auto = Dialers::new(choices.clone());
        assert_eq!(auto.prefer(&all).await.unwrap().server, all[1]);
        assert_eq!((direct.dials(), tcp.dials()), (2, 0));
        direct.hangs.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        assert!(auto.prefer(&all).await.is_none());
        assert_eq!((direct.dials(), begun.elapsed()), (3, PREFERRED_DIAL));
        // TCP is next, at each of them, without another attempt.
        for server in &all {
            auto.dial(server).await.unwrap();
        }
        assert!(auto.prefer(&all).await.is_none());
        assert_eq!((direct.dials(), tcp.dials(), begun.elapsed()), (3, 2, PREFERRED_DIAL));
        // Many addresses have the time of one.
        let many: Vec<_> = (0..64).map(|at| ServerName::new(format!("node{at}"))).collect();
        let begun = Instant::now();
        assert!(auto.prefer(&many).await.is_none());
        auto.dial(&many[63]).await.unwrap();
        assert_eq!((tcp.dials(), begun.elapsed()), (3, PREFERRED_DIAL));
        let required = Dialers::new(choices.into_iter().take(1));
        assert!(required.prefer(&all).await.is_none(), "there is no other to prefer it to");
    }

    /// A session has no channels of both kinds.
    #[tokio::test]
    async fn further_channels_are_like_the_first() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ServerName::new("127.0.0.1").at_port(listener.local_addr().unwrap().port());
        let auto = dialers(&Options::new().rdma(Rdma::Auto));
        let error = auto.dial_further(&server, Transport::Rdma).await.err().unwrap();
        assert!(error.to_string().starts_with("SMB Direct does not reach it"), "{error}");
        let further = auto.dial_further(&server, Transport::Tcp).await.unwrap();
        assert_eq!(further.transport(), Transport::Tcp);
    }
}
