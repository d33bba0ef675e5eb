//! Connections between a client and a server whose next message meets a fault.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part")]
#![allow(clippy::disallowed_methods, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use frevo_client::internal::{Dial, Dialing};
use frevo_client::{Client, Credentials, Options, ServerName, Session};
use frevo_net::transport::Stream;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::world::World;

/// A fault of the connection that carries the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The next answer is lost, and the connection ends.
    Answer,
    /// The next request is lost, and the connection ends.
    Request,
    /// The connection ends for the client, and the next request arrives much later.
    Late,
    /// The next request arrives, and the connection ends for the client. The server does not know.
    Deaf,
    /// The next request arrives when the test [releases](Shared::release) it. Nothing is lost.
    Held,
}

pub const FAULTS: [Fault; 3] = [Fault::Answer, Fault::Request, Fault::Late];

/// Connections to the server that have faults.
#[derive(Debug)]
struct Relay {
    server: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
pub struct Shared {
    pub fault: Mutex<Option<Fault>>,
    /// Messages that pass before it.
    pub skip: Mutex<usize>,
    /// The server's ends of connections whose request is late.
    late: Mutex<Vec<(TcpStream, Vec<u8>)>>,
    /// Lets a held request arrive.
    pub release: Notify,
}

impl Shared {
    /// Takes the fault if it is one of `which`.
    fn strikes(&self, which: &[Fault]) -> Option<Fault> {
        let mut fault = self.fault.lock();
        if !fault.is_some_and(|fault| which.contains(&fault)) {
            return None;
        }
        let mut skip = self.skip.lock();
        if *skip > 0 {
            *skip -= 1;
            return None;
        }
        fault.take()
    }

    /// Lets late requests arrive, and waits until the server has answered them.
    pub async fn deliver_late(&self) {
        let late = std::mem::take(&mut *self.late.lock());
        for (mut to, bytes) in late {
            to.write_all(&bytes).await.unwrap();
            to.shutdown().await.unwrap();
            let _ = to.read_to_end(&mut Vec::new()).await;
        }
    }
}

impl Dial for Relay {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        Box::pin(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let ours = TcpStream::connect(listener.local_addr()?).await?;
            let (near, _) = listener.accept().await?;
            let far = TcpStream::connect(self.server).await?;
            tokio::spawn(relay(near, far, Arc::clone(&self.shared)));
            Ok(Stream::Tcp(ours))
        })
    }
}

async fn relay(mut near: TcpStream, mut far: TcpStream, shared: Arc<Shared>) {
    let (mut up, mut down) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        tokio::select! {
            count = near.read(&mut up) => {
                let Ok(count @ 1..) = count else { return };
                match shared.strikes(&[Fault::Request, Fault::Late, Fault::Deaf, Fault::Held]) {
                    Some(Fault::Late) => {
                        shared.late.lock().push((far, up[..count].to_vec()));
                        return;
                    }
                    Some(Fault::Deaf) => {
                        far.write_all(&up[..count]).await.unwrap();
                        shared.late.lock().push((far, Vec::new()));
                        return;
                    }
                    Some(Fault::Held) => {
                        shared.release.notified().await;
                        far.write_all(&up[..count]).await.unwrap();
                    }
                    Some(_) => return,
                    None => far.write_all(&up[..count]).await.unwrap(),
                }
            }
            count = far.read(&mut down) => {
                let Ok(count @ 1..) = count else { return };
                if shared.strikes(&[Fault::Answer]).is_some() {
                    return;
                }
                if near.write_all(&down[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Serves `world` over TCP and logs on with this many channels.
pub async fn session(world: &World, channels: usize) -> (Session, Arc<Shared>) {
    session_with(world, Options::new().channels(channels)).await
}

/// Serves `world` over TCP and logs on with these options.
pub async fn session_with(world: &World, options: Options) -> (Session, Arc<Shared>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let shared = Arc::<Shared>::default();
    let relay = Relay { server: listener.local_addr().unwrap(), shared: Arc::clone(&shared) };
    let server = world.embedded.clone();
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(server.serve_connection(Stream::Tcp(stream)).unwrap());
        }
    });
    let options = options.recover_for(Duration::from_secs(20));
    let client = Client::with_dialer(options, Arc::new(relay));
    let user = Credentials::new("ann", "secret");
    (client.connect(ServerName::new("frevo"), user).await.unwrap(), shared)
}

/// Waits until the session has this many channels.
pub async fn until(session: &Session, channels: usize) {
    for _ in 0..2_000 {
        if session.info().is_some_and(|info| info.channels == channels) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", session.info());
}
