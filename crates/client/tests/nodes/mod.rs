//! Several servers of one process with one folder and one store of records, as the nodes of a cluster
//! have, and a network to them. Their share is at one of them at a time.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part")]
#![allow(clippy::disallowed_methods, reason = "tests")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frevo_client::internal::{Dial, Dialing, Resolving};
use frevo_client::{Client, Credentials, Options, ServerName, Session, Share};
use frevo_net::memory::{self, MemoryStream};
use frevo_net::transport::Stream;
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::settings::Encryption;
use frevo_server::share::Share as ServerShare;
use frevo_server::{Server, Settings, UserList};
use frevo_store::Vfs;
use frevo_store::state::MemoryState;
use frevo_wire::dtyp::Guid;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet};

/// The name of all nodes.
pub const CLUSTER: &str = "cluster";
/// An address that one node has at a time.
pub const MOVING: &str = "moving";
/// The shares that are at one node at a time. All show one folder.
pub const SHARES: [&str; 2] = ["lasting", "second"];

/// One node.
pub struct Node {
    pub embedded: Server,
    is_down: AtomicBool,
    /// Connections that were made to it.
    pub dialed: AtomicUsize,
    /// The tasks that serve its connections.
    tasks: Mutex<Vec<AbortHandle>>,
}

/// The nodes, and the network to them.
pub struct Nodes {
    pub all: Vec<Node>,
    pub dir: TempDir,
    /// The node that has the address [`MOVING`].
    pub moving: AtomicUsize,
    /// Operations of a test whose outcome was unknown.
    pub unknown: AtomicUsize,
    ends: mpsc::UnboundedSender<(usize, MemoryStream)>,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nodes")
    }
}

impl Dial for Nodes {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let number = server.host.strip_prefix("node").or(server.host.strip_prefix("192.0.2."));
            let number = match number {
                Some(number) => number.parse().map_err(|_| refused())?,
                None if server.host == MOVING => self.moving.load(Ordering::SeqCst),
                None => return Err(refused()),
            };
            let node = self.all.get(number).ok_or_else(refused)?;
            if node.is_down.load(Ordering::SeqCst) {
                return Err(refused());
            }
            node.dialed.fetch_add(1, Ordering::SeqCst);
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let (ours, theirs) = memory::pair(1 << 20, [at(50_000), at(445)]);
            self.ends.send((number, theirs)).map_err(|_| refused())?;
            Ok(Stream::Memory(ours))
        })
    }

    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        let all = match &*server.host {
            CLUSTER => (0..self.all.len()).map(address).collect(),
            _ => vec![server.clone()],
        };
        Box::pin(std::future::ready(Ok(all)))
    }
}

/// The address of a node.
pub fn address(number: usize) -> ServerName {
    ServerName::new(format!("node{number}"))
}

impl Nodes {
    fn new(
        count: usize,
        made: impl Fn(ServerShare) -> ServerShare,
    ) -> (Self, mpsc::UnboundedReceiver<(usize, MemoryStream)>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryState::default());
        let node = |number: usize| {
            let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
            let vfs: Arc<dyn Vfs> = Arc::new(vfs);
            let share = |name: &str| {
                let share = ServerShare::disk(name, Arc::clone(&vfs));
                made(share.continuous(true).begins_elsewhere(true))
            };
            let plain = ServerShare::disk("plain", Arc::clone(&vfs)).begins_elsewhere(true);
            let settings = Settings {
                encryption: Encryption::Offered,
                server_guid: Guid([number as u8 + 1; 16]),
                ..Settings::default()
            };
            let builder = Server::builder()
                .settings(settings)
                .shares(SHARES.map(share).into_iter().chain([plain]))
                .accounts(Arc::new(UserList::new().user("ann", "secret")))
                .state_store(Arc::clone(&store) as _);
            Node {
                embedded: builder.build().unwrap(),
                is_down: AtomicBool::new(false),
                dialed: AtomicUsize::new(0),
                tasks: Mutex::default(),
            }
        };
        let all = (0..count).map(node).collect();
        let (ends, heard) = mpsc::unbounded_channel();
        (Self { all, dir, moving: AtomicUsize::new(0), unknown: AtomicUsize::new(0), ends }, heard)
    }

    /// A node serves a share from now on.
    pub async fn take(&self, number: usize, share: &str) {
        self.all[number].embedded.take_shares(&[share]).await.unwrap();
    }

    /// An administrator moves a share.
    pub async fn hand_over(&self, share: &str, from: usize, to: usize) {
        self.hand_over_group(&[share], from, to).await;
    }

    /// An administrator moves shares that are owned together.
    pub async fn hand_over_group(&self, shares: &[&str], from: usize, to: usize) {
        let there = SocketAddr::from(([192, 0, 2, to as u8], 445));
        self.all[from].embedded.give_shares(shares, &[there]).await.unwrap();
        self.all[to].embedded.take_shares(shares).await.unwrap();
    }

    /// A node is gone, and another one takes its share over.
    pub async fn fail_over(&self, share: &str, from: usize, to: usize) {
        self.die(from);
        self.take(to, share).await;
    }

    /// Waits until a client has a session with a node.
    pub async fn until_reached(&self, number: usize, within: Duration) {
        let begun = Instant::now();
        while self.all[number].embedded.state().sessions().is_empty() {
            assert!(begun.elapsed() < within, "nobody came within {within:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A node is gone in the midst of its work.
    pub fn die(&self, number: usize) {
        let node = &self.all[number];
        node.is_down.store(true, Ordering::SeqCst);
        node.tasks.lock().drain(..).for_each(|task| task.abort());
        for share in SHARES.into_iter().chain(["plain"]) {
            node.embedded.lose_share(share).unwrap();
        }
    }

    /// A node that was gone accepts connections again. It serves nothing.
    pub fn revive(&self, number: usize) {
        self.all[number].is_down.store(false, Ordering::SeqCst);
    }

    pub fn client(self: &Arc<Self>, options: Options) -> Client {
        let options = options.recover_for(Duration::from_secs(20));
        Client::with_dialer(options, Arc::clone(self) as _)
    }

    pub async fn session(self: &Arc<Self>, options: Options, server: &str) -> Session {
        let user = Credentials::new("ann", "secret");
        self.client(options).connect(ServerName::new(server), user).await.unwrap()
    }

    pub async fn share(self: &Arc<Self>, name: &str) -> Share {
        self.session(Options::new(), CLUSTER).await.share(name).await.unwrap()
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub fn dialed(&self) -> Vec<usize> {
        self.all.iter().map(|node| node.dialed.load(Ordering::SeqCst)).collect()
    }
}

/// Runs a test with so many nodes, which serve nothing at first.
pub fn with_nodes(count: usize, test: impl AsyncFnOnce(&Arc<Nodes>)) {
    with_nodes_of(count, |share| share, test);
}

/// The same with shares that are `made` otherwise.
pub fn with_nodes_of(
    count: usize,
    made: impl Fn(ServerShare) -> ServerShare,
    test: impl AsyncFnOnce(&Arc<Nodes>),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (nodes, mut ends) = Nodes::new(count, made);
        let nodes = Arc::new(nodes);
        let serving = Arc::clone(&nodes);
        tokio::task::spawn_local(async move {
            while let Some((number, stream)) = ends.recv().await {
                let node = &serving.all[number];
                let Ok(served) = node.embedded.serve_connection(stream) else { continue };
                let task = tokio::task::spawn_local(served).abort_handle();
                let mut tasks = node.tasks.lock();
                tasks.retain(|task| !task.is_finished());
                tasks.push(task);
            }
        });
        test(&nodes).await;
    });
}
