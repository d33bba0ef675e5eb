//! An attacker between the client and a server.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_client::ServerName;
use frevo_client::internal::Dial;
use frevo_client::internal::Dialing;
use frevo_net::frame_reader::FrameReader;
use frevo_net::memory;
use frevo_net::transport::Stream;
use parking_lot::Mutex;

use super::frames::{framed, put};

/// The fate of a frame.
pub type Tamper = dyn Fn(Vec<u8>) -> Vec<Vec<u8>> + Send + Sync;

/// Carries what is dialled to `server`, and the frames of each direction as one likes.
pub struct Between {
    pub server: Arc<dyn Dial>,
    pub there: Arc<Tamper>,
    pub back: Arc<Tamper>,
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Between")
    }
}

impl Dial for Between {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let beyond = Arc::new(self.server.dial(server).await?);
            let (ours, theirs) = wire();
            let here = Arc::new(theirs);
            let (there, back) = (Arc::clone(&self.there), Arc::clone(&self.back));
            tokio::spawn(carry(Arc::clone(&here), Arc::clone(&beyond), there));
            tokio::spawn(carry(beyond, here, back));
            Ok(ours)
        })
    }
}

/// Frames from one to the other.
async fn carry(from: Arc<Stream>, to: Arc<Stream>, tamper: Arc<Tamper>) {
    let mut reader = FrameReader::new(frevo_net::limits::FRAME_BYTES_MAX);
    while let Ok(Some(frame)) = reader.next(&from).await {
        for frame in tamper(frame.to_vec()) {
            if put(&to, &framed(&frame)).await.is_err() {
                return from.abort();
            }
        }
    }
    to.abort();
}

/// A line to `server` that can be cut, and gives no new connections while it is down.
pub struct Line {
    server: Arc<dyn Dial>,
    ends: Mutex<Vec<Arc<Stream>>>,
    is_down: AtomicBool,
}

impl Line {
    pub fn to(server: Arc<dyn Dial>) -> Arc<Self> {
        Arc::new(Self { server, ends: Mutex::default(), is_down: AtomicBool::new(false) })
    }

    pub fn cut(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        self.ends.lock().drain(..).for_each(|end| end.abort());
    }

    pub fn mend(&self) {
        self.is_down.store(false, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Dial for Line {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            if self.is_down.load(Ordering::SeqCst) {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            let beyond = Arc::new(self.server.dial(server).await?);
            let (ours, theirs) = wire();
            let here = Arc::new(theirs);
            self.ends.lock().extend([Arc::clone(&here), Arc::clone(&beyond)]);
            let unchanged: Arc<Tamper> = Arc::new(|frame| vec![frame]);
            tokio::spawn(carry(Arc::clone(&here), Arc::clone(&beyond), Arc::clone(&unchanged)));
            tokio::spawn(carry(beyond, here, unchanged));
            Ok(ours)
        })
    }
}

/// Two ends of a connection.
pub fn wire() -> (Stream, Stream) {
    let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let (ours, theirs) = memory::pair(1 << 20, [at(50_000), at(445)]);
    (Stream::Memory(ours), Stream::Memory(theirs))
}
