//! Runs a model many times, each time in another order.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_net::memory;
use frevo_net::transport::Stream;
use frevo_server::ambient::Ambient;
use frevo_server::internal::state::{Kind, ServerState};
use frevo_server::share::Share;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::name::Rules;
use frevo_store::order::model::{Scheduler, schedule};
use frevo_store::{Name, Vfs};
use frevo_wire::dtyp::{FileTime, Guid};
use shuttle::future::{JoinHandle, block_on, spawn_local};

use crate::client::world::{Users, serving};
use crate::client::*;

/// Orders of a model that the ordinary tests try.
const FEW: usize = 150;

/// Preemptions of the orders that PCT chooses.
const DEPTH: usize = 4;

/// Most steps of a run: more are a circle of waiting threads.
const STEPS_MAX: usize = 200_000;

/// The steps of the server's threads, chosen by shuttle.
struct Chosen {
    /// False while the scene is set: its order is of no interest.
    is_on: Cell<bool>,
    point: shuttle::sync::atomic::AtomicUsize,
}

/// [`Chosen`], which the test keeps too.
struct Steps(Rc<Chosen>);

impl Scheduler for Steps {
    fn thread(&self) -> usize {
        shuttle::current::me().into()
    }

    fn step(&self) {
        if self.0.is_on.get() && !std::thread::panicking() {
            self.0.point.load(Ordering::SeqCst);
        }
    }

    fn wait(&self) {
        shuttle::thread::yield_now();
    }
}

/// A clock that stands, and numbers that are the same in each run.
#[derive(Debug)]
struct Same(AtomicU64);

impl Ambient for Same {
    fn now(&self) -> FileTime {
        FileTime::from_unix(1_700_000_000, 0)
    }

    fn random(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            // The random bytes come from the generator splitmix64.
            let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            part.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..part.len()]);
        }
    }
}

/// A server with clients in one order of their steps.
pub struct Model {
    pub server: Arc<ServerState>,
    pub vfs: Arc<MemoryVfs>,
    embedded: frevo_server::Server,
    steps: Rc<Chosen>,
    connections: RefCell<Vec<JoinHandle<()>>>,
}

impl Model {
    fn new(steps: Rc<Chosen>) -> Self {
        let clock = || FileTime::from_unix(1_700_000_000, 0);
        let vfs = Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(clock)));
        let share = |name: &str| Share::disk(name, Arc::clone(&vfs) as Arc<dyn Vfs>);
        let (share, lasting) = (share("data"), share("lasting").continuous(true));
        let ambient = Arc::new(Same(AtomicU64::new(7)));
        let embedded = serving(settings(), [share, lasting], Arc::new(Users), ambient);
        let server = Arc::clone(embedded.state());
        Self { server, vfs, embedded, steps, connections: RefCell::default() }
    }

    /// From here on every step may be followed by one of another thread.
    pub fn begins(&self) {
        self.steps.is_on.set(true);
    }

    /// A connection with a core of its own, which has negotiated.
    pub async fn connect(&self, guid: Guid) -> Peer {
        let (client, server) = (
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 50_000),
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 445),
        );
        let (ours, theirs) = memory::pair(1 << 20, [client, server]);
        let serves = self.embedded.clone();
        self.connections.borrow_mut().push(spawn_local(async move {
            let served = serves.serve_connection(theirs).expect("admitted");
            let _ = served.await;
        }));
        let mut peer = Peer::new(Stream::Memory(ours), guid);
        peer.negotiate(&Offer::default()).await;
        peer
    }

    /// A first channel, and a share.
    pub async fn session(&self, guid: Guid, share: &str) -> (Peer, Mount) {
        let mut peer = self.connect(guid).await;
        let logon = peer.log_on("ann").await;
        let mount = peer.mount(&logon, share).await;
        (peer, mount)
    }

    /// A further channel of the session.
    pub async fn channel(&self, guid: Guid, mount: &Mount) -> (Peer, Mount) {
        let mut peer = self.connect(guid).await;
        let bound = peer.try_log_on(Setup::binding("ann", &mount.logon)).await.expect("bound");
        let mount = mount.on(&bound);
        (peer, mount)
    }

    /// The content of a file on the disk; none if there is no such file.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let all = self.vfs.contents();
        all.into_iter().find(|(found, _)| found.to_string() == name).map(|(_, bytes)| bytes)
    }

    /// Returns true if a file or folder has this name.
    pub fn has(&self, name: &str) -> bool {
        let name = Name::parse(name, Rules::Windows).expect("a name");
        self.vfs.stat(&name).is_ok()
    }

    /// The clients have gone. Waits for the connections to end; nothing may be left.
    async fn wind_up(self) {
        self.steps.is_on.set(false);
        for connection in self.connections.take() {
            connection.await.expect("the server does not panic");
        }
        self.server.close_waiting();
        assert_eq!(self.server.durables.counts(), (0, 0), "durable Opens are left");
        assert!(self.server.sessions().is_empty(), "sessions outlive their connections");
        assert!(self.server.files.is_empty(), "files stay open");
        for kind in Kind::ALL {
            assert_eq!(self.server.ledger.count(kind), 0, "{kind:?} stays charged");
        }
    }
}

/// Runs `model` in many orders: half of them random, half with few preemptions (PCT).
pub fn explore(model: impl AsyncFn(&Model) + Clone + Send + Sync + 'static) {
    // All cores run on this thread, so that the test, not real time, decides the order of steps.
    frevo_net::file_io::stay_on_this_thread();
    let run = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap();
        let entered = runtime.enter();
        let point = shuttle::sync::atomic::AtomicUsize::new(0);
        let steps = Rc::new(Chosen { is_on: Cell::new(false), point });
        schedule(Some(Rc::new(Steps(Rc::clone(&steps)))));
        block_on(async {
            let scene = Model::new(steps);
            model(&scene).await;
            scene.wind_up().await;
        });
        schedule(None);
        drop(entered);
        // The runtime is dropped here, because its timers of pending breaks must not outlive the
        // run.
        drop(runtime);
    };
    let mut config = shuttle::Config::new();
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    config.stack_size = 1 << 20;
    if let Ok(known) = std::env::var("FREVO_MODEL_SCHEDULE") {
        return shuttle::replay(run, &known);
    }
    let given = std::env::var("FREVO_MODEL_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs = given.unwrap_or(FEW);
    let random = shuttle::scheduler::RandomScheduler::new(runs / 2);
    shuttle::Runner::new(random, config.clone()).run(run.clone());
    let few = shuttle::scheduler::PctScheduler::new(DEPTH, runs - runs / 2);
    shuttle::Runner::new(few, config).run(run);
}

/// Starts a thread of the model.
pub fn thread<T: 'static>(work: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    spawn_local(work)
}
