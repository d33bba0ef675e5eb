//! A node: a machine with a clock and mounts, and the process of the server that runs there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::interface::{Command, CommandFault};
use frevo_cluster::names::NodeName;
use frevo_cluster::settings::Timing;
use frevo_cluster::values::RecordForm;
use frevo_cluster::{ClusterDialect, Settings};
use frevo_cluster_node::{Chair, Unit};
use frevo_etcd::engine::Moment;
use frevo_etcd::types::LeaseId;
use frevo_net::transport::{Listener, MemoryListener, Stream};
use frevo_proto::Dialect;
use frevo_server::internal::state::ServerState;
use frevo_server::settings::Encryption;
use frevo_server::share::Share;
use frevo_server::{Connection, RpcPort, Seat, Server, UserList};
use frevo_store::Vfs;
use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{sleep, timeout};

use super::clock::BootClock;
use super::gate::Gate;
use super::hands::{Ordered, SimulatedHands};
use super::process::{Numbers, Process};
use super::storage::View;
use super::way::Way;
use super::world::{World, cluster_name};
use crate::ambient::{Clock, Simulated};
use crate::dice::Dice;
use crate::machine::look_at_server;
use crate::network::{RPC_PORT, node_address, unit_address};
use crate::{event, violation};

/// Time for which a node that is to end gives its units away.
const LEAVING: Duration = Duration::from_secs(90);

/// Time from the beginning of a stop to the write within which the process is stopped, at most.
const WRITE_AWAITED: Duration = Duration::from_millis(300);

/// Events of a server that wait for the one who looks at them, at most.
const EVENTS: usize = 1_024;

/// A node.
pub(super) struct Member {
    pub(super) number: usize,
    pub(super) name: NodeName,
    world: Arc<World>,
    /// The time since the start of the machine.
    pub(super) clock: Arc<BootClock>,
    /// The time of day.
    pub(super) day: Clock,
    dice: Mutex<Dice>,
    /// The largest dialect of the program that is installed.
    program: Mutex<ClusterDialect>,
    /// The lease of the process before, if it is known that that one has ended.
    predecessor: Mutex<Option<LeaseId>>,
    running: Mutex<Option<Running>>,
}

/// The process that runs.
struct Running {
    process: Arc<Process>,
    server: Server,
    views: Vec<Arc<View>>,
    /// The tasks that accept connections: of SMB, and for remote procedure calls.
    accepting: [JoinHandle<()>; 2],
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Member {
    /// A node that does not run.
    #[allow(clippy::expect_used, reason = "the name is a good one")]
    pub(super) fn new(number: usize, world: &Arc<World>, mut dice: Dice) -> Arc<Self> {
        let start = world.trace.start();
        Arc::new(Self {
            number,
            name: NodeName::new(&format!("n{number}")).expect("a name without other characters"),
            world: Arc::clone(world),
            clock: Arc::new(BootClock::new(start, &mut dice)),
            day: Clock::new(start),
            dice: Mutex::new(dice),
            program: Mutex::new(old_program(world)),
            predecessor: Mutex::default(),
            running: Mutex::default(),
        })
    }

    /// Returns the process, if one runs.
    pub(super) fn process(&self) -> Option<Arc<Process>> {
        self.running.lock().as_ref().map(|running| Arc::clone(&running.process))
    }

    /// Returns the server, if one runs.
    pub(super) fn server(&self) -> Option<Arc<ServerState>> {
        self.running.lock().as_ref().map(|running| Arc::clone(running.server.state()))
    }

    /// Installs the program that speaks this dialect at the newest: the next process has it.
    pub(super) fn set_program(&self, dialect: ClusterDialect) {
        *self.program.lock() = dialect;
    }

    /// The largest dialect of the program that is installed at the beginning.
    pub(super) fn old_program(&self) -> ClusterDialect {
        old_program(&self.world)
    }

    fn chair(&self) -> Chair {
        let clock = Arc::clone(&self.clock);
        let mut dice = self.dice.lock();
        let knows = dice.percent(50);
        let settings = Settings {
            cluster: cluster_name(),
            node: self.name.clone(),
            timing: Timing::default(),
            addresses: vec![SocketAddr::new(node_address(self.number).into(), 445)],
            weight: 1,
            software: String::from("simulated"),
            dialect: *self.program.lock(),
            shares: Vec::new(),
            predecessor: self.predecessor.lock().take().filter(|_| knows),
            grace: Duration::from_secs(*dice.pick(&[1, 5, 15])),
            records: RecordForm::TOLD_BY_NONE,
        };
        let unit = |(number, unit): (usize, &super::world::Unit)| Unit {
            name: unit.name.clone(),
            shares: unit.shares.iter().map(|share| Arc::from(share.as_str())).collect(),
            addresses: vec![unit_address(number).into()],
            weight: 1,
        };
        let units = self.world.units.iter().enumerate().map(unit).collect();
        let secret = (dice.next() >> 32) as u32;
        Chair::new(settings, units, Arc::new(move || Moment(clock.seen()))).with_secret(secret)
    }

    /// Starts a process.
    pub(super) fn start(self: &Arc<Self>) {
        if self.running.lock().is_some() {
            return;
        }
        let chair = self.chair();
        let dialect = *self.program.lock();
        let id = self.world.new_process();
        let (name, clock) = (self.name.clone(), Arc::clone(&self.clock));
        let process = Arc::new(Process::new(id, self.number, name, clock, chair.limit(), dialect));
        let views: Vec<_> =
            (0..self.world.units.len()).map(|unit| self.view(unit, &process)).collect();
        let Some(server) = self.new_server(&chair, &process, &views) else { return };
        event!(self.world.trace, "{process} starts");
        self.world.set_process(&process);
        let hands = SimulatedHands {
            world: Arc::clone(&self.world),
            process: Arc::clone(&process),
            views: views.clone(),
        };
        let ordered = Ordered {
            world: Arc::clone(&self.world),
            process: Arc::clone(&process),
            server: server.clone(),
        };
        let way = Way::new(&self.world, &process);
        process.set_running(Some(chair.start(Arc::new(way), Arc::new(ordered), Arc::new(hands))));
        let connections = Arc::default();
        let accepting = [
            self.open_door(&process, &server, &connections),
            self.open_rpc_door(&process, &server, &connections),
        ];
        *self.running.lock() = Some(Running { process, server, views, accepting, connections });
    }

    /// The files of a unit, as a process sees them.
    fn view(&self, unit: usize, process: &Arc<Process>) -> Arc<View> {
        let (world, process) = (Arc::downgrade(&self.world), Arc::clone(process));
        let at_call = Arc::new(move |operation, view: &_| {
            if let Some(world) = world.upgrade() {
                world.calls(unit, &process, operation, view);
            }
        });
        View::new(&self.world.units[unit].storage, self.number, at_call)
    }

    fn new_server(
        &self,
        chair: &Chair,
        process: &Arc<Process>,
        views: &[Arc<View>],
    ) -> Option<Server> {
        let seed = self.dice.lock().next();
        let ambient = Simulated::new(self.day.clone(), Dice::new(seed, 0));
        let shares = self.world.units.iter().zip(views).flat_map(|(unit, view)| {
            let files: Arc<dyn Vfs> = Arc::clone(view) as _;
            let share = |name: &String| Share::disk(name, Arc::clone(&files)).clustered(true);
            let [data, lasting] = &unit.shares;
            [share(data), share(lasting).continuous(true)]
        });
        let settings = frevo_server::Settings {
            min_dialect: Dialect::SMB_2_1,
            max_dialect: Dialect(process.dialect.0),
            encryption: Encryption::Offered,
            ..frevo_server::Settings::default()
        };
        let clock = Arc::clone(&self.clock);
        let numbers = Numbers {
            world: Arc::clone(&self.world),
            process: Arc::clone(process),
            source: chair.ids(),
        };
        let seat = Seat {
            limit: chair.limit(),
            clock: Arc::new(move || clock.now()),
            ids: Arc::new(numbers),
        };
        let mut parts = Server::builder()
            .settings(settings)
            .shares(shares.collect::<Vec<_>>())
            .accounts(Arc::new(UserList::new().user("ann", "secret")))
            .ambient(Arc::new(ambient))
            .state_store(chair.store())
            .storage_lost(chair.storage_lost())
            .cluster(seat);
        if self.world.race.is_some() {
            let (with_events, events) = parts.events(EVENTS);
            parts = with_events;
            let watching = Arc::clone(&self.world).watch_clients(Arc::clone(process), events);
            spawn_local(watching);
        }
        parts.build().map_err(|fault| violation!(self.world.trace, "{fault}")).ok()
    }

    fn open_door(
        &self,
        process: &Arc<Process>,
        server: &Server,
        connections: &Arc<Mutex<Vec<JoinHandle<()>>>>,
    ) -> JoinHandle<()> {
        let listener = self.world.network.listen(self.number, false);
        let serving = server.clone();
        let serve = move |stream: Stream| serving.serve_connection(stream);
        spawn_local(accept(listener, serve, Arc::clone(&process.gate), Arc::clone(connections)))
    }

    /// Has a process accept connections for remote procedure calls.
    fn open_rpc_door(
        &self,
        process: &Arc<Process>,
        server: &Server,
        connections: &Arc<Mutex<Vec<JoinHandle<()>>>>,
    ) -> JoinHandle<()> {
        let listener = self.world.network.listen_for_rpc(self.number);
        let at = SocketAddr::new(node_address(self.number).into(), RPC_PORT);
        let (_, first) = frevo_net::memory::pair(1, [at, at]);
        // The endpoint mapper knows the port of the interfaces by their first connection.
        drop(server.serve_rpc_connection(Stream::Memory(first), RpcPort::Interfaces));
        let serving = server.clone();
        let serve = move |stream: Stream| {
            let port = match stream.local_addr()?.port() {
                RPC_PORT => RpcPort::Interfaces,
                _ => RpcPort::Mapper,
            };
            serving.serve_rpc_connection(stream, port)
        };
        spawn_local(accept(listener, serve, Arc::clone(&process.gate), Arc::clone(connections)))
    }

    /// Ends the process without a word to anybody.
    pub(super) fn kill(&self) {
        let Some(running) = self.running.lock().take() else { return };
        event!(self.world.trace, "{} is killed", running.process);
        *self.predecessor.lock() = running.process.lease();
        self.end(&running);
    }

    fn end(&self, running: &Running) {
        let Running { process, server, views, accepting, connections } = running;
        process.gate.end();
        views.iter().for_each(|view| view.end());
        accepting.iter().for_each(JoinHandle::abort);
        for connection in connections.lock().drain(..) {
            connection.abort();
        }
        process.set_running(None);
        let (server, world) = (server.clone(), Arc::clone(&self.world));
        // The rest of the server goes on where nobody sees it, and must have an end.
        spawn_local(async move {
            let shares: Vec<_> = world
                .units
                .iter()
                .flat_map(|unit| unit.shares.iter().map(|name| &**name))
                .collect();
            let _ = server.stop_shares(&shares).await;
        });
        process.begun.lock().clear();
        process.clock.stop(false);
        self.world.network.server_is_down(self.number);
        self.world.network.stop(self.number, false);
    }

    /// Has the process give its units away, and ends it.
    pub(super) async fn leave(&self) {
        let Some(process) = self.process() else { return };
        let Some(node) = process.running() else { return };
        event!(self.world.trace, "{process} leaves");
        let is_running = process.gate.is_open();
        let before = self.world.disturbances(self.number).filter(|_| is_running);
        let left = timeout(LEAVING, node.leave()).await;
        drop(node);
        event!(self.world.trace, "{process} leaves: {left:?}");
        let is_it = self.process().is_some_and(|present| present.id == process.id);
        let is_undisturbed = before.is_some() && before == self.world.disturbances(self.number);
        let has_no_end = matches!(left, Err(_) | Ok(Err(CommandFault::TimedOut)));
        if has_no_end && is_it && is_undisturbed {
            violation!(self.world.trace, "{process} does not leave: {left:?}");
        }
        if is_it && let Some(running) = self.running.lock().take() {
            self.end(&running);
        }
    }

    /// Stops the process as SIGSTOP does: within its next write to a unit if `in_write` and if there is
    /// one soon.
    pub(super) async fn stop(&self, in_write: bool) {
        let (process, views) = match &*self.running.lock() {
            Some(running) => (Arc::clone(&running.process), running.views.clone()),
            None => return,
        };
        if !in_write {
            return stop(&self.world, &process);
        }
        for view in &views {
            let (world, process) = (Arc::clone(&self.world), Arc::clone(&process));
            view.stop_in_write(Some(Box::new(move |write| {
                event!(world.trace, "{process} is within a write");
                process.begun.lock().push(write);
                stop(&world, &process);
            })));
        }
        sleep(WRITE_AWAITED).await;
        views.iter().for_each(|view| view.stop_in_write(None));
        if process.gate.is_open() {
            stop(&self.world, &process);
        }
    }

    /// Has a stopped process go on.
    pub(super) fn go_on(&self) {
        let (process, views) = match &*self.running.lock() {
            Some(running) => (Arc::clone(&running.process), running.views.clone()),
            None => return,
        };
        if process.gate.is_open() || process.gate.is_ended() {
            return;
        }
        event!(self.world.trace, "{process} goes on");
        // Another stop may wait for a write: not for one that was begun before.
        views.iter().for_each(|view| view.stop_in_write(None));
        let begun = std::mem::take(&mut *process.begun.lock());
        let mut is_refused = false;
        for write in begun {
            is_refused |= write.finish().is_err();
        }
        if is_refused {
            // The process has made an answer that it would not have made: its write has failed.
            event!(self.world.trace, "{process}: its write is refused");
            self.world.network.end_links(self.number);
        }
        process.clock.stop(false);
        self.world.network.stop(self.number, false);
        process.gate.stop(false);
    }

    /// Carries out a command of the administrator at this node.
    pub(super) async fn command(&self, command: Command) -> Result<(), CommandFault> {
        let node = self.process().and_then(|process| process.running());
        let Some(node) = node else { return Err(CommandFault::NotConnected) };
        let end = node.command(command);
        drop(node);
        end.await
    }

    /// Checks that nothing is left at the server after all clients have gone.
    pub(super) fn check_empty(&self) {
        let Some(server) = self.server() else { return };
        look_at_server(&server, &self.world.trace);
        let registered = self
            .running
            .lock()
            .as_ref()
            .map_or(0, |running| running.server.metrics().witness_registrations);
        if registered > 0 {
            violation!(self.world.trace, "left behind: {registered} registrations with a witness");
        }
        let alive = self.running.lock().as_ref().map_or(0, |running| {
            running.connections.lock().iter().filter(|one| !one.is_finished()).count()
        });
        if alive > 0 {
            violation!(self.world.trace, "{alive} connections of {} have not ended", self.name);
        }
    }
}

/// Accepts connections of a process until its end, and serves them.
async fn accept(
    listener: MemoryListener,
    serve: impl Fn(Stream) -> io::Result<Connection>,
    gate: Arc<Gate>,
    all: Arc<Mutex<Vec<JoinHandle<()>>>>,
) {
    let listener = Listener::from(listener);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if !gate.opened().await {
            return;
        }
        let Ok(served) = stream.attach().and_then(&serve) else { continue };
        let gate = Arc::clone(&gate);
        let connection = spawn_local(async move { drop(gate.serve(served).await) });
        let mut all = all.lock();
        all.retain(|connection| !connection.is_finished());
        all.push(connection);
    }
}

/// The largest dialect of the program with which nodes begin.
fn old_program(world: &World) -> ClusterDialect {
    world.race.as_ref().map_or(ClusterDialect::LARGEST, |race| race.old)
}

fn stop(world: &World, process: &Process) {
    event!(world.trace, "{process} is stopped");
    world.disturb(process.node);
    process.clock.stop(true);
    process.gate.stop(true);
    world.network.stop(process.node, true);
}
