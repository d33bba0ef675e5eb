//! Servers of a cluster, with one folder, one store, and a clock that the test moves.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::access_rules::Rules;
use frevo_server::ambient::Host;
use frevo_server::internal::state::{self, Life, LifeState};
use frevo_server::{ClusterNames, Seat, Server, ServerBuilder, Share};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::state::{MemoryState, OpenRecord, ServeLimit, StateStore};
use frevo_store::{IdSource, Vfs};
use frevo_wire::command::create::ShareAccess;
use frevo_wire::dtyp::Guid;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::LocalSet;

use crate::asking::*;
use crate::client::world::{EXCLUSIVE, Users};
use crate::client::*;
use files::{lock_draft, utf16};
use frevo_wire::Utf16;
use frevo_wire::command::tree_connect::{self, TreeConnectFlags};
use frevo_wire::header::HEADER_LEN;

/// The client of these tests.
pub const CLIENT: Guid = guid(0x31);
pub const ALONE: ShareAccess = ShareAccess::EMPTY;
pub const RWH: u32 = 7;
/// The shares of the cluster. `lasting` is continuous, `plain` is not.
pub const LASTING: [&str; 1] = ["lasting"];
pub const BOTH: [&str; 2] = ["lasting", "plain"];
/// The shares of the cluster nas.
pub const NAS: [&str; 6] = ["lasting", "plain", "moving", "anns", "sealed", "single"];
/// The dialects, the largest first.
pub const DIALECTS: [Dialect; 5] = [
    Dialect::SMB_3_1_1,
    Dialect::SMB_3_0_2,
    Dialect::SMB_3_0,
    Dialect::SMB_2_1,
    Dialect::SMB_2_0_2,
];

/// A client that asks for a share.
#[derive(Clone)]
pub struct Asking {
    pub user: &'static str,
    pub offer: Offer,
    pub path: String,
    pub flags: TreeConnectFlags,
}

impl Asking {
    /// As ann by one dialect, for a share of the server at an address.
    pub fn of(dialect: Dialect, share: &str, flags: TreeConnectFlags) -> Self {
        let offer = Offer { dialects: vec![dialect], ..Offer::default() };
        Self { user: "ann", offer, path: format!("\\\\192.0.2.1\\{share}"), flags }
    }

    /// The answer. None if the connection ends instead.
    pub async fn at(&self, node: &Node) -> Option<Reply> {
        let mut peer = node.connect();
        peer.negotiate(&self.offer).await;
        let logon = peer.log_on(self.user).await;
        peer.ask_or_lose(self.draft().session(logon.id), logon.via()).await
    }

    /// The request.
    pub fn draft(&self) -> Draft {
        let path = utf16(&self.path);
        let request = tree_connect::Request {
            flags: self.flags,
            ..tree_connect::Request::new(Utf16::new(&path).unwrap())
        };
        Draft::new(Command::TREE_CONNECT).with(|w| request.encode(w))
    }

    /// The status and the body of the answer.
    pub async fn answer(&self, node: &Node) -> (Status, Vec<u8>) {
        let reply = self.at(node).await.expect("an answer");
        (reply.status(), reply.message[HEADER_LEN..].to_vec())
    }

    pub async fn status(&self, node: &Node) -> Status {
        self.answer(node).await.0
    }
}

/// The body of an error without data.
pub const NO_DATA: [u8; 9] = [9, 0, 0, 0, 0, 0, 0, 0, 0];

/// A request of a kind to a file.
pub struct Kind {
    pub name: &'static str,
    pub draft: fn(FileId) -> Draft,
}

/// Numbers of one start of a node.
#[derive(Debug)]
pub struct Numbers {
    generation: u32,
    next: AtomicU32,
    is_empty: std::sync::atomic::AtomicBool,
}

impl Numbers {
    /// Gives no more numbers, or again.
    pub fn set_empty(&self, is_empty: bool) {
        self.is_empty.store(is_empty, Ordering::Relaxed);
    }
}

impl IdSource for Numbers {
    fn take(&self) -> Option<u64> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let number = u64::from(self.generation) << 32 | u64::from(next);
        (!self.is_empty.load(Ordering::Relaxed)).then_some(number)
    }
}

/// A clock that the test moves, and which counts the looks at it.
#[derive(Debug)]
pub struct Clock {
    now: AtomicU64,
    looks: AtomicU64,
}

impl Clock {
    pub fn now(&self) -> Duration {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    pub fn jump(&self, by: Duration) {
        self.now.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }
}

/// A folder, or a file system in memory, with a store.
pub struct Cluster {
    folder: Rc<TempDir>,
    /// None for the folder.
    memory: Option<Arc<MemoryVfs>>,
    pub store: Arc<MemoryState>,
    pub clock: Arc<Clock>,
    generation: Cell<u32>,
    /// True if requests to the shares run on threads of their pools.
    is_off_core: bool,
}

/// A server of the cluster.
pub struct Node {
    world: World,
    pub limit: Arc<ServeLimit>,
    pub numbers: Arc<Numbers>,
    /// The shares whose storage was lost.
    pub lost: Arc<Mutex<Vec<String>>>,
}

impl Deref for Node {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

/// Runs a test on tokio's paused clock, over a folder.
pub fn cluster(test: impl AsyncFnOnce(&Cluster)) {
    run(None, false, test);
}

/// Runs a test in real time, over a folder, with shares whose requests run on threads of their pools.
pub fn off_core(test: impl AsyncFnOnce(&Cluster)) {
    run(None, true, test);
}

/// Runs a test on tokio's paused clock, over a file system in memory.
pub fn in_memory(test: impl AsyncFnOnce(&Cluster)) {
    run(Some(memory()), false, test);
}

/// Runs a test in real time, over a file system in memory, with shares whose requests run on threads of
/// their pools.
pub fn in_memory_off_core(test: impl AsyncFnOnce(&Cluster)) {
    run(Some(memory()), true, test);
}

fn memory() -> Arc<MemoryVfs> {
    let clock = Arc::new(|| frevo_server::ambient::Ambient::now(&Host));
    Arc::new(MemoryVfs::new(MemoryOptions::default(), clock))
}

fn run(memory: Option<Arc<MemoryVfs>>, is_off_core: bool, test: impl AsyncFnOnce(&Cluster)) {
    world::without_ring();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(!is_off_core)
        .build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let cluster = Cluster {
            folder: Rc::new(tempfile::tempdir().unwrap()),
            memory,
            store: Arc::new(MemoryState::default()),
            clock: Arc::new(Clock { now: AtomicU64::new(1 << 40), looks: AtomicU64::new(0) }),
            generation: Cell::new(0),
            is_off_core,
        };
        test(&cluster).await;
    });
}

impl Cluster {
    /// The file system in memory.
    pub fn memory(&self) -> &MemoryVfs {
        self.memory.as_ref().unwrap()
    }

    /// The folder.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// A server of the cluster, whose limit is an hour away.
    pub fn node(&self) -> Node {
        self.node_with(Arc::clone(&self.store) as _)
    }

    /// A server of the cluster with another way to the store.
    pub fn node_with(&self, store: Arc<dyn StateStore>) -> Node {
        let shares = |share: &dyn Fn(&str) -> Share| {
            vec![
                share("lasting").continuous(true).clustered(true),
                share("plain").clustered(true),
                share("own"),
            ]
        };
        self.node_of(store, shares, |parts| parts)
    }

    /// The node n1 of the cluster nas, with shares of each kind. It serves none of the cluster's.
    pub fn n1(&self) -> Node {
        let anns = || Rules::for_users(&["ann"]);
        let shares = |share: &dyn Fn(&str) -> Share| {
            vec![
                share("lasting").continuous(true).clustered(true),
                share("plain").clustered(true),
                share("moving").continuous(true).clustered(true).moving_addresses(true),
                share("anns").clustered(true).rules(anns()),
                share("sealed").clustered(true).encrypt(true),
                share("single").clustered(true).max_connections(1),
                share("own").continuous(true),
            ]
        };
        let names = ClusterNames { cluster: "nas".into(), node: "n1".into() };
        self.node_of(Arc::clone(&self.store) as _, shares, |parts| parts.cluster_names(names))
    }

    /// The node n1, which serves all shares of the cluster.
    pub async fn n1_serving(&self) -> Node {
        let node = self.n1();
        node.embedded.start_shares(&NAS).await.unwrap();
        node.embedded.serve_shares(&NAS, None).await.unwrap();
        node
    }

    /// A server of the cluster with these shares, and more parts.
    pub fn node_of(
        &self,
        store: Arc<dyn StateStore>,
        shares: impl FnOnce(&dyn Fn(&str) -> Share) -> Vec<Share>,
        more: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Node {
        self.generation.set(self.generation.get() + 1);
        let vfs: Arc<dyn Vfs> = match &self.memory {
            Some(memory) => Arc::clone(memory) as _,
            None => {
                Arc::new(PosixVfs::open_root(self.folder.path(), PosixOptions::default()).unwrap())
            }
        };
        let share = |name: &str| match (self.is_off_core, Share::disk(name, Arc::clone(&vfs))) {
            (true, share) => share.off_core(),
            (false, share) => share,
        };
        let generation = self.generation.get();
        let is_empty = std::sync::atomic::AtomicBool::new(false);
        let numbers = Arc::new(Numbers { generation, next: AtomicU32::new(1), is_empty });
        let (limit, clock) = (Arc::new(ServeLimit::new()), Arc::clone(&self.clock));
        let seat = Seat {
            limit: Arc::clone(&limit),
            clock: Arc::new(move || clock.now()),
            ids: Arc::clone(&numbers) as _,
        };
        let lost = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&lost);
        let embedded = more(Server::builder())
            .settings(settings())
            .shares(shares(&share))
            .accounts(Arc::new(Users))
            .state_store(store)
            .cluster(seat)
            .storage_lost(Arc::new(move |share| told.lock().push(share.to_owned())))
            .build()
            .unwrap();
        let node =
            Node { world: World::of(embedded, tempfile::tempdir().unwrap()), limit, numbers, lost };
        self.allow(&node);
        node
    }

    /// Moves the limit of a node an hour away.
    pub fn allow(&self, node: &Node) {
        node.limit.set(self.clock.now() + Duration::from_secs(3_600));
    }

    /// Lets the limit of a node pass.
    pub fn pause(&self) {
        self.clock.jump(Duration::from_secs(7_200));
    }

    /// A server that has taken both shares.
    pub async fn owner(&self) -> Node {
        let node = self.node();
        node.embedded.start_shares(&BOTH).await.unwrap();
        node.embedded.serve_shares(&BOTH, None).await.unwrap();
        node
    }

    pub fn records(&self) -> Vec<OpenRecord> {
        let parse = |(_, bytes): (_, Vec<u8>)| OpenRecord::from_bytes(&bytes).unwrap();
        self.store.records().into_iter().map(parse).collect()
    }

    /// The content of a file. None if there is none.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        match &self.memory {
            Some(memory) => memory
                .contents()
                .into_iter()
                .find_map(|(named, bytes)| (named.to_string() == name).then_some(bytes)),
            None => std::fs::read(self.folder.path().join(name)).ok(),
        }
    }
}

impl Node {
    pub fn life(&self, share: &str) -> Arc<Life> {
        state::life_of(self.server.shares().find(share).unwrap())
    }

    pub fn state(&self, share: &str) -> LifeState {
        self.life(share).state()
    }

    /// A new connection that is logged on.
    pub async fn logged_on(&self, user: &str) -> (Peer, Rc<Logon>) {
        let mut peer = self.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on(user).await;
        (peer, logon)
    }

    /// The status of a TREE_CONNECT; None when the connection ends in place of an answer.
    pub async fn mount_status(&self, share: &str) -> Option<Status> {
        let (mut peer, logon) = self.logged_on("ann").await;
        let draft = files::tree_connect_draft(&format!("\\\\frevo\\{share}")).session(logon.id);
        peer.ask_or_lose(draft, logon.via()).await.map(|reply| reply.status())
    }

    /// Waits until all sessions have ended.
    pub async fn is_left(&self) {
        while !self.server.sessions().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Returns true if something comes true soon that a thread does, for which tokio's clock does not wait.
pub async fn comes(is_true: impl Fn() -> bool) -> bool {
    for _ in 0..10_000 {
        if is_true() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// A persistent Open of a file, with a lease and a lock.
pub async fn opened(node: &Node) -> (Peer, Mount, FileId) {
    let (mut peer, mount) = back(node, CLIENT, "ann", "lasting").await;
    let want = leased(Want::file("f").sharing(ALONE), 1, RWH, &[dh2q(guid(3), true)]);
    let file = peer.open_file(&mount, &want).await;
    peer.write(&mount, file, 0, b"acknowledged").await;
    peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
    (peer, mount, file)
}

/// The client takes its Open up at a server, which has its lease, its lock and its data.
pub async fn taken_up(node: &Node, file: FileId) -> (Peer, Mount, FileId) {
    let (mut peer, mount) = back(node, CLIENT, "ann", "lasting").await;
    let reply = peer.create(&mount, &reconnect(file)).await;
    assert_eq!(caches(reply.ok()).1.map(|(state, _)| state), Some(RWH));
    let file = files::file_id(&reply);
    assert_eq!(peer.read(&mount, file, 0, 100).await, b"acknowledged");
    let again = lock_draft(file, &[(0, 4, EXCLUSIVE)]);
    peer.on(&mount, again).await.expect(Status::LOCK_NOT_GRANTED);
    (peer, mount, file)
}

/// The CREATE that takes the Open of [`opened`] up.
pub fn reconnect(file: FileId) -> Want {
    leased(Want::existing("f"), 1, RWH, &[dh2c(file, guid(3), true)])
}
