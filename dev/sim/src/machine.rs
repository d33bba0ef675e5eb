//! The server's machine: a server process that can be killed, on a disk that can lose data that was
//! not synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use frevo_net::socket::Reach;
use frevo_net::transport::{InterfaceKind, Listener, Listening};
use frevo_proto::Dialect;
use frevo_server::internal::server::ServerState;
use frevo_server::settings::Encryption;
use frevo_server::share::{Share, Target};
use frevo_server::{Server, Settings, UserList};
use frevo_store::memory::{Faults, MemoryOptions, MemoryVfs};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_local};

use crate::ambient::{Clock, Simulated};
use crate::dice::Dice;
use crate::network::{Network, SERVER_ADDRESS};
use crate::scenario::Scenario;
use crate::store::Store;
use crate::trace::Trace;
use crate::{event, violation};

/// A running server process.
struct Process {
    server: Server,
    accepting: JoinHandle<()>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// The server's machine: its disk, its store and the current process.
pub struct Machine {
    /// The number of the server, from 0.
    pub number: usize,
    /// The time of day there.
    pub clock: Clock,
    network: Arc<Network>,
    trace: Arc<Trace>,
    dice: Mutex<Dice>,
    scenario: Mutex<Scenario>,
    vfs: Mutex<Arc<MemoryVfs>>,
    store: Mutex<Arc<Store>>,
    process: Mutex<Option<Process>>,
}

/// The way in which a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fall {
    /// The process is killed: its writes stay.
    Kill,
    /// The machine stops: data that was not synced may be lost.
    Crash,
}

impl Machine {
    /// Returns a stopped machine with an empty disk.
    pub fn new(
        number: usize,
        network: Arc<Network>,
        trace: Arc<Trace>,
        mut dice: Dice,
        scenario: Scenario,
    ) -> Self {
        let clock = Clock::new(trace.start());
        let time = clock.clone();
        let vfs = MemoryVfs::new(MemoryOptions::default(), Arc::new(move || time.now()));
        let store = Store::new(BTreeMap::new(), Dice::new(dice.next(), 0));
        Self {
            number,
            clock,
            network,
            trace,
            dice: Mutex::new(dice),
            scenario: Mutex::new(scenario),
            vfs: Mutex::new(Arc::new(vfs)),
            store: Mutex::new(Arc::new(store)),
            process: Mutex::new(None),
        }
    }

    /// Starts a server process on the disk.
    pub fn start(&self) {
        let mut seed = [0; 8];
        self.dice.lock().fill(&mut seed);
        let ambient = Simulated::new(self.clock.clone(), Dice::new(u64::from_le_bytes(seed), 0));
        // Both shares have the same files; handles of the second share survive the server.
        let share = Share::new("data", Target::Disk(Arc::clone(&self.vfs.lock()) as _));
        let lasting = Share { name: "lasting".into(), continuous: true, ..share.clone() };
        let settings = Settings {
            min_dialect: Dialect::SMB_2_1,
            encryption: Encryption::Offered,
            signing: self.scenario.lock().signing(),
            ..Settings::default()
        };
        let parts = Server::builder()
            .settings(settings)
            .shares([share, lasting])
            .accounts(Arc::new(UserList::new().user("ann", "secret")))
            .ambient(Arc::new(ambient))
            .state_store(Arc::clone(&self.store.lock()) as _);
        let server = match parts.build() {
            Ok(server) => server,
            Err(fault) => {
                violation!(self.trace, "{fault}");
                return;
            }
        };
        event!(
            self.trace,
            "machine {}: {} persistent Opens wait",
            self.number,
            server.metrics().waiting_opens
        );
        let connections: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let has_rdma = self.scenario.lock().listens();
        if self.scenario.lock().has_rdma() {
            event!(self.trace, "machine {}: listens for RDMA: {has_rdma}", self.number);
        }
        if has_rdma {
            let reach = Some(vec![Reach::of(SERVER_ADDRESS.into())]);
            let rdma = Listening { interface: InterfaceKind::Rdma, reach };
            let _ = server.state().listening.set(vec![rdma]);
        }
        let listener = Listener::from(self.network.listen(self.number, has_rdma));
        let (serving, all) = (server.clone(), Arc::clone(&connections));
        let accepting = spawn_local(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // A refused stream is closed by the drop.
                let served = stream.attach().and_then(|stream| serving.serve_connection(stream));
                let Ok(served) = served else { continue };
                let connection = spawn_local(async move { drop(served.await) });
                let mut all = all.lock();
                all.retain(|connection| !connection.is_finished());
                all.push(connection);
            }
        });
        event!(self.trace, "machine {}: server starts", self.number);
        *self.process.lock() = Some(Process { server, accepting, connections });
    }

    /// Returns the running server.
    pub fn server(&self) -> Option<Arc<ServerState>> {
        self.process.lock().as_ref().map(|process| Arc::clone(process.server.state()))
    }

    /// Returns the switch for disk failures.
    pub fn faults(&self) -> Faults {
        self.vfs.lock().faults().clone()
    }

    /// Returns the store of persistent Opens.
    pub fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store.lock())
    }

    /// Returns the files on the disk, as the server sees them.
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let all = self.vfs.lock().contents();
        all.into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect()
    }

    /// Ends the server without a message to clients. Its unfinished work stays as it is; the old
    /// process continues in a world of its own that is not observed.
    pub fn fall(&self, how: Fall) {
        let Some(process) = self.process.lock().take() else { return };
        event!(self.trace, "machine {}: {how:?}", self.number);
        process.accepting.abort();
        for connection in process.connections.lock().drain(..) {
            connection.abort();
        }
        self.network.server_is_down(self.number);
        let mut vfs = self.vfs.lock();
        let mut dice = self.dice.lock();
        let likely = *dice.pick(&[0, 50, 90]);
        let left = match how {
            Fall::Kill => vfs.crash_with(&mut || true),
            Fall::Crash => vfs.crash_with(&mut || dice.percent(likely)),
        };
        *vfs = Arc::new(left);
        // Changes that the store had not confirmed may be stable or lost.
        let mut store = self.store.lock();
        let records = store.after_fall(&mut || dice.percent(50));
        *store = Arc::new(Store::new(records, Dice::new(dice.next(), 0)));
    }

    /// Checks that nothing is left after all clients have gone.
    pub fn check_empty(&self) {
        let Some(server) = self.server() else { return };
        if server.watchdog.held() > 0 {
            violation!(self.trace, "a poll held its core: see the log for the request");
        }
        let sessions = server.sessions().len();
        let (opens, waiting) = server.durables.counts();
        let files = server.files.len();
        let (records, changes) = self.store.lock().counts();
        if records + changes > 0 {
            violation!(self.trace, "left in the store: {records} records, {changes} changes");
        }
        if sessions + opens + waiting + files > 0 {
            violation!(
                self.trace,
                "left behind: {sessions} sessions, {opens} durable Opens ({waiting} waiting), {files} files"
            );
        }
        let alive = self.process.lock().as_ref().map_or(0, |process| {
            process.connections.lock().iter().filter(|one| !one.is_finished()).count()
        });
        if alive > 0 {
            violation!(self.trace, "{alive} connections of the server have not ended");
        }
    }
}
