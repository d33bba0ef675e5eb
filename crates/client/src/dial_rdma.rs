//! Connections of SMB Direct, and TCP where that is allowed.

use std::io;
use std::sync::Arc;

use frevo_net::transport::Stream;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
#[cfg(feature = "rdma")]
use {
    frevo_net::limits::RDMA_LOCKED_BYTES_MIN,
    frevo_net::rdma::{self, Endpoint, Provider},
    std::net::SocketAddr,
};

use crate::dial::{Dial, Dialing, ServerName, Tcp};
use crate::limits::{RDMA_AGAIN_AFTER, RDMA_DIAL};
use crate::options::Rdma;

/// The port of SMB Direct over iWARP, whose ports are those of TCP: MS-SMBD 2.1.
#[cfg(feature = "rdma")]
const IWARP_PORT: u16 = 5445;

/// SMB Direct, with TCP as a second choice unless it is required.
#[derive(Debug)]
pub struct SmbDirect {
    is_required: bool,
    direct: Arc<dyn Dial>,
    tcp: Arc<dyn Dial>,
    /// Servers that only TCP reached, and when that was.
    vain: Mutex<Vec<(ServerName, Instant)>>,
}

/// Returns what makes the connections of a client with this choice.
pub(crate) fn dialer(rdma: Rdma) -> Arc<dyn Dial> {
    match rdma {
        Rdma::Off => Arc::new(Tcp),
        Rdma::Auto => Arc::new(SmbDirect::new(false, Arc::new(Device), Arc::new(Tcp))),
        Rdma::Required => Arc::new(SmbDirect::new(true, Arc::new(Device), Arc::new(Tcp))),
    }
}

impl Dial for SmbDirect {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            match self.directly(server).await {
                Ok(stream) => Ok(stream),
                Err(error) if self.is_required => Err(unreached(&error)),
                Err(_) => self.tcp.dial(server).await,
            }
        })
    }

    fn dial_further<'a>(&'a self, server: &'a ServerName, is_rdma: bool) -> Dialing<'a> {
        if !is_rdma {
            return self.tcp.dial(server);
        }
        // An address that is not reached says nothing about the session's server.
        Box::pin(async move { self.reach(server).await.map_err(|error| unreached(&error)) })
    }

    fn knows_addresses(&self) -> bool {
        self.tcp.knows_addresses()
    }
}

fn unreached(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("SMB Direct does not reach it: {error}"))
}

impl SmbDirect {
    /// Returns what connects by `direct`, and by `tcp` unless SMB Direct is required.
    pub fn new(is_required: bool, direct: Arc<dyn Dial>, tcp: Arc<dyn Dial>) -> Self {
        Self { is_required, direct, tcp, vain: Mutex::default() }
    }

    /// Connects by SMB Direct, and notes a server that cannot be reached so.
    async fn directly(&self, server: &ServerName) -> io::Result<Stream> {
        if !self.is_required && self.is_vain(server) {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        }
        let dialed = self.reach(server).await;
        if let Err(error) = &dialed
            && !self.is_required
        {
            tracing::warn!(%server, %error, "SMB Direct does not reach the server; TCP is used");
            let mut vain = self.vain.lock();
            vain.retain(|(other, at)| other != server && at.elapsed() < RDMA_AGAIN_AFTER);
            vain.push((server.clone(), Instant::now()));
        }
        dialed
    }

    fn is_vain(&self, server: &ServerName) -> bool {
        let vain = self.vain.lock();
        vain.iter().any(|(other, at)| other == server && at.elapsed() < RDMA_AGAIN_AFTER)
    }

    /// Connects by SMB Direct, with a time limit.
    async fn reach(&self, server: &ServerName) -> io::Result<Stream> {
        match timeout(RDMA_DIAL, self.direct.dial(server)).await {
            Ok(dialed) => dialed,
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// The RDMA devices of this host.
#[derive(Debug)]
struct Device;

impl Dial for Device {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(dial(server))
    }
}

#[cfg(not(feature = "rdma"))]
async fn dial(_: &ServerName) -> io::Result<Stream> {
    let text = "this program was built without it (feature rdma)";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

#[cfg(feature = "rdma")]
async fn dial(server: &ServerName) -> io::Result<Stream> {
    rdma::is_here().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why.to_string()))?;
    if rdma::lockable_bytes().is_some_and(|bytes| bytes < RDMA_LOCKED_BYTES_MIN) {
        let least = RDMA_LOCKED_BYTES_MIN >> 20;
        let text = format!("`ulimit -l` must allow at least {least} MiB of pinned memory");
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in tokio::net::lookup_host((&*server.host, server.port)).await? {
        match connect(address).await {
            Ok(endpoint) => return Ok(Stream::Rdma(Arc::new(endpoint))),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to an address, and waits until both sides have negotiated SMB Direct.
#[cfg(feature = "rdma")]
async fn connect(mut address: SocketAddr) -> io::Result<Endpoint> {
    if address.port() == ServerName::PORT
        && rdma::provider_towards(address).await? == Provider::Iwarp
    {
        address.set_port(IWARP_PORT);
    }
    let endpoint = rdma::connect(address).await?;
    endpoint.established().await?;
    Ok(endpoint)
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
            let stream = dialer(rdma).dial(&server).await.unwrap();
            assert!(!stream.is_rdma());
        }
        let error = dialer(Rdma::Required).dial(&server).await.err().unwrap();
        assert!(error.to_string().starts_with("SMB Direct does not reach it"), "{error}");
    }

    /// Counts its dials, which fail or hang while it is told so.
    #[derive(Debug, Default)]
    struct Counting {
        dials: AtomicUsize,
        fails: AtomicBool,
        hangs: AtomicBool,
    }

    impl Counting {
        fn dials(&self) -> usize {
            self.dials.load(Ordering::Relaxed)
        }
    }

    impl Dial for Counting {
        fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
            self.dials.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                if self.hangs.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                if self.fails.load(Ordering::Relaxed) {
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
        let auto = SmbDirect::new(false, Arc::clone(&direct) as _, Arc::clone(&tcp) as _);
        let (one, other) = (ServerName::new("one"), ServerName::new("other"));
        let counts = || (direct.dials(), tcp.dials());
        auto.dial(&one).await.unwrap();
        assert_eq!(counts(), (1, 0));
        direct.hangs.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        auto.dial(&one).await.unwrap();
        assert_eq!((counts(), begun.elapsed()), ((2, 1), RDMA_DIAL));
        direct.hangs.store(false, Ordering::Relaxed);
        auto.dial(&one).await.unwrap();
        assert_eq!(counts(), (2, 2), "it was in vain a moment ago");
        auto.dial_further(&one, true).await.unwrap();
        auto.dial(&other).await.unwrap();
        assert_eq!(counts(), (4, 2));
        tokio::time::sleep(RDMA_AGAIN_AFTER).await;
        auto.dial(&one).await.unwrap();
        assert_eq!(counts(), (5, 2));
        direct.fails.store(true, Ordering::Relaxed);
        assert!(auto.dial_further(&one, true).await.is_err(), "no channel of another kind");
        auto.dial_further(&one, false).await.unwrap();
        assert_eq!(counts(), (6, 3));
        let required = SmbDirect::new(true, Arc::clone(&direct) as _, Arc::clone(&tcp) as _);
        assert!(required.dial(&one).await.is_err());
        direct.fails.store(false, Ordering::Relaxed);
        required.dial(&one).await.unwrap();
        assert_eq!(counts(), (8, 3));
    }

    /// A session has no channels of both kinds.
    #[tokio::test]
    async fn further_channels_are_like_the_first() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ServerName::new("127.0.0.1").at_port(listener.local_addr().unwrap().port());
        let auto = dialer(Rdma::Auto);
        let error = auto.dial_further(&server, true).await.err().unwrap();
        assert!(error.to_string().starts_with("SMB Direct does not reach it"), "{error}");
        assert!(!auto.dial_further(&server, false).await.unwrap().is_rdma());
    }
}
