//! The server's machine: a server process that can be killed, on a disk that can lose data that was
//! not synced. In some runs a second process takes the shares over from the first one: both use one
//! disk and one store, as two nodes of a cluster do.

use std::sync::Arc;

use frevo_net::socket::Reach;
use frevo_net::transport::{InterfaceKind, Listener, Listening};
use frevo_proto::Dialect;
use frevo_server::internal::state::ServerState;
use frevo_server::rate_rules::RateRule;
use frevo_server::settings::Encryption;
use frevo_server::share::{Compress, Share};
use frevo_server::{Reload, Server, Settings, UserList};
use frevo_store::Vfs;
use frevo_store::memory::{Faults, MemoryOptions, MemoryVfs};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use crate::ambient::{Clock, Simulated};
use crate::core::Core;
use crate::dice::Dice;
use crate::flood;
use crate::network::{Network, SERVER_ADDRESS};
use crate::rate_book::{self, RateBook};
use crate::scenario::Scenario;
use crate::store::{Stable, Store};
use crate::trace::Trace;
use crate::{event, violation};

/// The shares, which show the same files and so have one owner.
pub(crate) const SHARES: [&str; 2] = ["data", "lasting"];

/// A running server process.
struct Process {
    server: Server,
    /// The tasks that accept connections. None before the process owns the shares.
    accepting: Vec<JoinHandle<()>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Process {
    fn stop_accepting(&mut self) {
        for accepting in self.accepting.drain(..) {
            accepting.abort();
        }
    }

    fn end(mut self) {
        self.stop_accepting();
        for connection in self.connections.lock().drain(..) {
            connection.abort();
        }
    }
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
    /// The processor of the servers. None in a run without a flood, where work takes no time.
    core: Option<Arc<Core>>,
    vfs: Mutex<Arc<MemoryVfs>>,
    store: Mutex<Arc<Store>>,
    process: Mutex<Option<Process>>,
    /// The rules of rate, and what passes them.
    rates: Arc<Mutex<RateBook>>,
    /// Held while the process changes.
    changing: tokio::sync::Mutex<()>,
}

/// The way in which shares go from one process to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// The owner gives them away.
    Planned,
    /// The owner loses them: it could not say in time that it lives.
    Expired,
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
        core: Option<Arc<Core>>,
    ) -> Self {
        let clock = Clock::new(trace.start());
        let time = clock.clone();
        let vfs = MemoryVfs::new(MemoryOptions::default(), Arc::new(move || time.now()));
        let is_far = scenario.moves_shares();
        let store = Store::new(Stable::default(), is_far, Dice::new(dice.next(), 0));
        Self {
            number,
            clock,
            network,
            trace,
            dice: Mutex::new(dice),
            scenario: Mutex::new(scenario),
            core,
            vfs: Mutex::new(Arc::new(vfs)),
            store: Mutex::new(Arc::new(store)),
            process: Mutex::new(None),
            rates: Arc::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Starts a server process on the disk, which takes the shares.
    pub async fn start(&self) {
        let _changing = self.changing.lock().await;
        self.start_here().await;
    }

    async fn start_here(&self) {
        let Some(mut process) = self.new_process() else { return };
        if !self.take(&process.server).await {
            return process.end();
        }
        event!(
            self.trace,
            "machine {}: {} persistent Opens wait",
            self.number,
            process.server.metrics().waiting_opens
        );
        self.open_door(&mut process);
        event!(self.trace, "machine {}: server starts", self.number);
        *self.process.lock() = Some(process);
    }

    /// Has a process take the shares, where they have several owners in turn.
    async fn take(&self, server: &Server) -> bool {
        if !self.scenario.lock().moves_shares() {
            return true;
        }
        let taken = server.take_shares(&SHARES).await;
        if let Err(fault) = &taken {
            violation!(self.trace, "{fault}");
        }
        taken.is_ok()
    }

    /// Makes a server process on the disk. It accepts nobody yet.
    fn new_process(&self) -> Option<Process> {
        let mut seed = [0; 8];
        self.dice.lock().fill(&mut seed);
        let ambient = Simulated::new(self.clock.clone(), Dice::new(u64::from_le_bytes(seed), 0));
        // Both shares have the same files, but only handles of the share "lasting" survive a
        // restart of the server.
        let files: Arc<dyn Vfs> = Arc::clone(&self.vfs.lock()) as _;
        let begins_elsewhere = self.scenario.lock().moves_shares();
        let squeezes = self.scenario.lock().squeezes();
        let share = |name: &str| {
            let share = Share::disk(name, Arc::clone(&files)).begins_elsewhere(begins_elsewhere);
            if squeezes { share.compress(Compress::All) } else { share }
        };
        let (share, lasting) = (share("data"), share("lasting").continuous(true));
        let names = ["ann"].into_iter().chain(flood::USERS).chain(rate_book::USERS);
        let users = names.fold(UserList::new(), |users, user| users.user(user, "secret"));
        self.rates.lock().server_begins();
        let parts = Server::builder()
            .settings(self.settings())
            .shares([share, lasting])
            .accounts(Arc::new(users))
            .ambient(Arc::new(ambient))
            .state_store(Arc::clone(&self.store.lock()) as _);
        match parts.build() {
            Ok(server) => {
                Some(Process { server, accepting: Vec::new(), connections: Arc::default() })
            }
            Err(fault) => {
                violation!(self.trace, "{fault}");
                None
            }
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            min_dialect: Dialect::SMB_2_1,
            encryption: Encryption::Offered,
            signing: self.scenario.lock().signing(),
            rates: self.rates.lock().wanted().to_vec(),
            ..Settings::default()
        }
    }

    /// Puts other rules of rate in force, also for servers that start later.
    pub fn set_rates(&self, rules: &[RateRule]) {
        let process = self.process.lock();
        self.rates.lock().change(rules.to_vec(), process.is_some());
        if let Some(process) = &*process {
            process.server.reload(Reload::new().settings(self.settings()));
        }
    }

    /// Returns the rules of rate, with what has passed them.
    pub fn rates(&self) -> Arc<Mutex<RateBook>> {
        Arc::clone(&self.rates)
    }

    /// Has a process accept the connections that clients make to the machine.
    fn open_door(&self, process: &mut Process) {
        let has_rdma = self.scenario.lock().listens();
        if self.scenario.lock().has_rdma() {
            event!(self.trace, "machine {}: listens for RDMA: {has_rdma}", self.number);
        }
        if has_rdma {
            let reach = Some(vec![Reach::of(SERVER_ADDRESS.into())]);
            let rdma = Listening { interface: InterfaceKind::Rdma, reach };
            let _ = process.server.state().listening.set(vec![rdma]);
        }
        self.accept(process, self.network.listen(self.number, has_rdma).into());
        if self.scenario.lock().has_quic() {
            match self.network.listen_for_quic(self.number, follows_clients()) {
                Ok(listener) => self.accept(process, listener.into()),
                Err(fault) => violation!(self.trace, "{fault}"),
            }
        }
    }

    /// Has a process serve the connections of a listener.
    fn accept(&self, process: &mut Process, listener: Listener) {
        let (serving, all) = (process.server.clone(), Arc::clone(&process.connections));
        let core = self.core.clone();
        process.accepting.push(spawn_local(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // If the server refuses the connection, dropping the stream has closed it.
                let served = stream.attach().and_then(|stream| serving.serve_connection(stream));
                let Ok(served) = served else { continue };
                let core = core.clone();
                let connection = spawn_local(async move {
                    match core {
                        Some(core) => drop(core.serve(served).await),
                        None => drop(served.await),
                    }
                });
                let mut all = all.lock();
                all.retain(|connection| !connection.is_finished());
                all.push(connection);
            }
        }));
    }

    /// Has another process take the shares over from the present one, which goes on for a while.
    /// `judge` compares the disk at the moment when neither of them serves.
    pub async fn hand_over(&self, how: Move, judge: impl FnOnce(&[(String, Vec<u8>)])) {
        let _changing = self.changing.lock().await;
        let Some(mut old) = self.process.lock().take() else { return };
        event!(self.trace, "machine {}: the shares go to another process: {how:?}", self.number);
        self.network.close_door(self.number);
        self.network.will_end(self.number);
        old.stop_accepting();
        let is_given = match how {
            Move::Planned => {
                let given = old.server.give_shares(&SHARES, &[]).await;
                if let Err(fault) = &given {
                    event!(self.trace, "machine {}: {fault}", self.number);
                }
                given.is_ok()
            }
            Move::Expired => false,
        };
        // A process that cannot give its shares away serves on. Here the next one takes them over all the
        // same, as after the end of a lease.
        if !is_given {
            for share in SHARES {
                if let Err(fault) = old.server.lose_share(share) {
                    violation!(self.trace, "{fault}");
                }
            }
        }
        judge(&self.contents());
        let (pause, linger) = {
            let mut dice = self.dice.lock();
            let pause = *dice.pick(&[0, 50, 3_000]);
            (dice.millis(0, pause), dice.millis(0, 20_000))
        };
        sleep(pause).await;
        spawn_local(async move {
            sleep(linger).await;
            old.end();
        });
        self.start_here().await;
    }

    /// Returns the running server.
    pub fn server(&self) -> Option<Arc<ServerState>> {
        self.process.lock().as_ref().map(|process| Arc::clone(process.server.state()))
    }

    /// Makes the files that an attacker lists.
    pub fn furnish_flood(&self) {
        flood::Flood::furnish(&self.vfs.lock());
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
    pub async fn fall(&self, how: Fall) {
        let _changing = self.changing.lock().await;
        let Some(process) = self.process.lock().take() else { return };
        event!(self.trace, "machine {}: {how:?}", self.number);
        process.end();
        self.rates.lock().server_ends();
        self.network.server_is_down(self.number);
        let mut vfs = self.vfs.lock();
        let mut dice = self.dice.lock();
        let likely = *dice.pick(&[0, 50, 90]);
        let left = match how {
            Fall::Kill => vfs.crash_with(&mut || true),
            Fall::Crash => vfs.crash_with(&mut || dice.percent(likely)),
        };
        *vfs = Arc::new(left);
        // After a crash each change that the store had not confirmed is either stable or lost, by
        // chance.
        let mut store = self.store.lock();
        let records = store.after_fall(&mut || dice.percent(50));
        let is_far = self.scenario.lock().moves_shares();
        *store = Arc::new(Store::new(records, is_far, Dice::new(dice.next(), 0)));
    }

    /// Has the server accept nobody any more.
    pub fn stop_accepting(&self) {
        if let Some(process) = &mut *self.process.lock() {
            process.stop_accepting();
        }
        self.network.close_door(self.number);
    }

    /// Checks that nothing is left after all clients have gone.
    pub fn check_empty(&self) {
        let Some(server) = self.server() else { return };
        look_at_server(&server, &self.trace);
        let (records, changes) = self.store.lock().counts();
        if records + changes > 0 {
            violation!(self.trace, "left in the store: {records} records, {changes} changes");
        }
        let alive = self.process.lock().as_ref().map_or(0, |process| {
            process.connections.lock().iter().filter(|one| !one.is_finished()).count()
        });
        if alive > 0 {
            violation!(self.trace, "{alive} connections of the server have not ended");
        }
    }
}

/// True where the fault is planted that servers go on with clients whose address changes.
fn follows_clients() -> bool {
    #[cfg(feature = "plant")]
    {
        use frevo_server::plant::{Plant, is_planted};
        is_planted(Plant::ClientFollowed)
    }
    #[cfg(not(feature = "plant"))]
    {
        false
    }
}

/// Checks that nothing is left at a server after all clients have gone.
pub(crate) fn look_at_server(server: &ServerState, trace: &Trace) {
    if server.watchdog.held() > 0 {
        violation!(trace, "a poll held its core: see the log for the request");
    }
    let sessions = server.sessions().len();
    let (opens, waiting) = server.durables.counts();
    let files = server.files.len();
    if sessions + opens + waiting + files > 0 {
        violation!(
            trace,
            "left behind: {sessions} sessions, {opens} durable Opens ({waiting} waiting), {files} files"
        );
    }
}
