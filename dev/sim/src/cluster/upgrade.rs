//! The race of a rolling upgrade: the nodes get a program with a newer dialect one by one, the dialect of the
//! cluster is raised when all of them have it, and clients come and go meanwhile. MS-SMB2 3.3.1.5.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_client::{
    Cause, Client, Credentials, Dialect, Error, Options, ServerName, Status as ClientStatus,
};
use frevo_cluster::ClusterDialect;
use frevo_cluster::interface::Command;
use frevo_server::Events;
use frevo_server::audit::{Event, Kind, Value};
use frevo_wire::Status;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use super::member::Member;
use super::process::Process;
use super::race::NEW;
use super::world::World;
use crate::actor::Actor;
use crate::ambient::{Clock, Simulated};
use crate::company;
use crate::dice::Dice;
use crate::judge::TreeConnect;
use crate::network;
use crate::scenario::Way;
use crate::{event, violation};

/// Time in which the dialect can be raised when nothing is wrong, and all nodes and servers know of it.
const RAISED_WITHIN: Duration = Duration::from_secs(40);

/// Time in which all nodes are upgraded when nothing is wrong: each may leave for long.
const UPGRADED_WITHIN: Duration = Duration::from_secs(1_500);

/// Time from an attempt at raising the dialect to the next one, milliseconds.
const RAISE_AGAIN: u64 = 2_000;

/// Moves of units after the raise, fewer than this.
const MOVES: u64 = 10;

/// Time from one look at the demand to the next one.
const LOOK: Duration = Duration::from_millis(20);

/// The numbers of the first actors that come and go are above those of all others.
const FIRST_VISITOR: u64 = 1_000;

/// The dialect as clients have it.
fn of_client(dialect: ClusterDialect) -> Dialect {
    frevo_proto::Dialect(dialect.0).into()
}

impl World {
    /// Returns the time after which a server is told of a demand: at once of its first one.
    pub(super) fn lateness(&self, process: &Process) -> Duration {
        match &self.race {
            Some(race) if race.lateness > 0 && process.told().is_some() => {
                self.dice.lock().millis(0, race.lateness)
            }
            _ => Duration::ZERO,
        }
    }

    /// True if a process tells its server the demand that it has heard of before it serves a further unit.
    pub(super) fn is_told_before_serving(&self) -> bool {
        self.race.as_ref().is_some_and(|race| race.is_told_before_serving)
    }

    /// Has the judges look at the clients that a process lets in or refuses, until its end.
    pub(super) async fn watch_clients(self: Arc<Self>, process: Arc<Process>, mut events: Events) {
        let mut dialects = BTreeMap::new();
        while let Some((_, event)) = events.next().await {
            let Some(session) = event.session_id() else { continue };
            match event.kind() {
                Kind::Logon => {
                    if let Some(dialect) = logged_on_by(&event) {
                        dialects.insert(session, dialect);
                    }
                }
                Kind::Connect => {
                    if let Some(dialect) = dialects.get(&session) {
                        self.judge_tree_connect(&process, &event, *dialect);
                    }
                }
                _ => {}
            }
        }
    }

    fn judge_tree_connect(&self, process: &Process, event: &Event, dialect: Dialect) {
        let Some(Value::Text(share)) = detail(event, "share") else { return };
        let Some(number) = self.units.iter().position(|unit| unit.has_share(share)) else { return };
        let Some(IpAddr::V4(address)) = event.client().map(|client| client.ip()) else { return };
        let line = self.network.line(network::client_at(address), number);
        let is_refused = event.outcome() == Status::SMB_BAD_CLUSTER_DIALECT;
        // A server that hears of a raise in this moment may have refused before.
        let told = if is_refused { process.told_before_now() } else { process.told() };
        let tree = TreeConnect {
            line,
            share: share.clone(),
            dialect,
            told: told.map(of_client),
            demanded: self.demanded().map(of_client),
            faults: self.network.faults(line),
        };
        event!(self.trace, "{process}: {tree:?} {:?}", event.outcome());
        let mut judge = self.units[number].stage.judge.lock();
        let node = process.to_string();
        if is_refused {
            judge.dialects.refused(&node, &tree);
        } else if event.outcome() == Status::SUCCESS {
            judge.dialects.let_in(&node, &tree);
        }
    }
}

fn detail<'a>(event: &'a Event, name: &str) -> Option<&'a Value> {
    event.details().iter().find(|(field, _)| *field == name).map(|(_, value)| value)
}

/// The dialect of a session that was logged on.
fn logged_on_by(event: &Event) -> Option<Dialect> {
    let Some(Value::Text(name)) = detail(event, "dialect") else { return None };
    let known = [
        frevo_proto::Dialect::SMB_2_1,
        frevo_proto::Dialect::SMB_3_0,
        frevo_proto::Dialect::SMB_3_0_2,
        frevo_proto::Dialect::SMB_3_1_1,
    ];
    let found = known.into_iter().find(|known| *name == format!("{known:?}"));
    found.filter(|_| event.outcome() == Status::SUCCESS).map(Dialect::from)
}

/// Has a cluster demand the dialect of the program before the upgrade.
pub(super) async fn begin(world: &World, members: &[Arc<Member>]) {
    let (Some(race), Some(member)) = (&world.race, members.first()) else { return };
    if let Err(fault) = member.command(Command::Raise(race.old)).await {
        violation!(world.trace, "the first dialect is not demanded: {fault}");
    }
}

/// The tasks of a race.
pub(super) struct Running {
    upgrade: JoinHandle<()>,
    visits: Vec<JoinHandle<()>>,
    last: Visitor,
}

/// Begins the race.
pub(super) fn start(
    world: &Arc<World>,
    members: &[Arc<Member>],
    seed: u64,
    clients: usize,
) -> Option<Running> {
    let race = world.race.as_ref()?;
    let upgrade = upgrade(Arc::clone(world), members.to_vec(), Dice::new(seed, 9));
    let visits = (0..race.visitors).map(|number| {
        let visitor = Visitor::new(world, seed, clients + number);
        spawn_local(visitor.visit())
    });
    let last = Visitor::new(world, seed, clients + race.visitors);
    Some(Running { visits: visits.collect(), upgrade: spawn_local(upgrade), last })
}

/// Upgrades the nodes one by one, and raises the dialect as soon as that can be done.
async fn upgrade(world: Arc<World>, mut members: Vec<Arc<Member>>, mut dice: Dice) {
    let raising =
        spawn_local(raise(Arc::clone(&world), members.clone(), Dice::new(dice.next(), 0)));
    let pause = *dice.pick(&[100, 1_000, 4_000]);
    while !members.is_empty() {
        let next = usize::try_from(dice.below(members.len() as u64)).unwrap_or(0);
        let member = members.swap_remove(next);
        sleep(dice.millis(0, pause)).await;
        if dice.percent(20) {
            // Its upgrade is taken back once.
            install(&member, NEW, &mut dice).await;
            install(&member, member.old_program(), &mut dice).await;
        }
        install(&member, NEW, &mut dice).await;
        event!(world.trace, "{} is upgraded", member.name);
    }
    let _ = raising.await;
}

/// Has a node give its units away, and go on with a program that speaks this dialect at the newest.
async fn install(member: &Arc<Member>, dialect: ClusterDialect, dice: &mut Dice) {
    loop {
        member.leave().await;
        member.set_program(dialect);
        sleep(dice.millis(0, 500)).await;
        member.start();
        // Somebody may have started it between the two.
        if member.process().is_some_and(|process| process.dialect == dialect) {
            return;
        }
    }
}

/// Raises the dialect at any node, until a node says that it is raised. Then units move, so that clients which were
/// let in come to nodes whose servers do not know of the raise yet.
async fn raise(world: Arc<World>, members: Vec<Arc<Member>>, mut dice: Dice) {
    loop {
        let member = Arc::clone(dice.pick(&members));
        let raised = member.command(Command::Raise(NEW)).await;
        event!(world.trace, "{}: raised: {raised:?}", member.name);
        if raised.is_ok() || world.trace.is_violated() {
            break;
        }
        sleep(dice.millis(1, RAISE_AGAIN)).await;
    }
    for _ in 0..dice.below(MOVES) {
        sleep(dice.millis(200, 2_000)).await;
        let unit = usize::try_from(dice.below(world.units.len() as u64)).unwrap_or(0);
        let (at, to) = (Arc::clone(dice.pick(&members)), dice.pick(&members).name.clone());
        let command = Command::Move { share: world.units[unit].name.clone(), to };
        // A move has an end of its own, and nobody waits for it.
        drop(spawn_local(async move { at.command(command).await }));
    }
}

impl Running {
    /// Waits until the race is over: all nodes are upgraded, the dialect is raised, and all servers know it.
    pub(super) async fn finish(self, world: &Arc<World>) {
        let is_late = timeout(UPGRADED_WITHIN, self.upgrade).await.is_err();
        let deadline = Instant::now() + RAISED_WITHIN;
        let knows = |process: &Arc<Process>| process.told() == Some(NEW);
        while !is_late && Instant::now() < deadline {
            if world.processes().iter().all(knows) {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        if world.trace.is_violated() {
            return;
        }
        if world.demanded() != Some(NEW) || !world.processes().iter().all(knows) {
            violation!(world.trace, "the dialect is not raised at the end");
        }
        for visit in self.visits {
            let _ = visit.await;
        }
        if !super::are_served(world).await {
            violation!(world.trace, "not all units are served after the race");
        }
        for unit in 0..world.units.len() {
            self.last.come_last(unit).await;
        }
    }
}

/// A client that comes and goes.
struct Visitor {
    world: Arc<World>,
    /// The number of the client.
    number: usize,
    dice: Dice,
    seed: u64,
}

impl Visitor {
    fn new(world: &Arc<World>, seed: u64, number: usize) -> Self {
        let dice = Dice::new(seed, 1_000 + number as u64);
        Self { world: Arc::clone(world), number, dice, seed }
    }

    /// Comes at any time, or just after the raise, does something, and goes.
    async fn visit(mut self) {
        // Where no actor is there are no files.
        let has_files =
            |unit: &usize| !self.world.units[*unit].stage.judge.lock().registers.is_empty();
        let units: Vec<_> = (0..self.world.units.len()).filter(has_files).collect();
        if units.is_empty() {
            return;
        }
        let unit = *self.dice.pick(&units);
        let until = self.world.units[unit].stage.until;
        if self.dice.percent(50) {
            // It comes just after the raise.
            while self.world.demanded() != Some(NEW) && Instant::now() < until {
                sleep(LOOK).await;
            }
            sleep(self.dice.millis(0, 2_000)).await;
        } else {
            let left = until.saturating_duration_since(Instant::now());
            let longest = u64::try_from(left.as_millis()).unwrap_or(0);
            sleep(self.dice.millis(0, longest)).await;
        }
        if self.world.trace.is_violated() {
            return;
        }
        let times = 1 + self.dice.below(4);
        let newest = *self.dice.pick(&[Dialect::Smb311, Dialect::Smb311, Dialect::Smb302]);
        let is_strict = newest == Dialect::Smb311 && self.dice.percent(40);
        let oldest = if is_strict { newest } else { Dialect::Smb300 };
        self.use_share(unit, [oldest, newest], times).await;
    }

    async fn use_share(&mut self, unit: usize, [oldest, newest]: [Dialect; 2], times: u64) {
        let world = Arc::clone(&self.world);
        let place = world.units[unit].place();
        let (number, trace) = (self.number, &world.trace);
        let line = world.network.line(number, unit);
        let clock = Clock::new(trace.start());
        let options = company::options(&mut self.dice, clock, self.seed, number);
        let options = options.newest(newest).oldest(oldest);
        let is_lasting = self.dice.percent(50);
        let name = place.shares[usize::from(is_lasting)];
        event!(trace, "c{number} comes for {name}: {oldest} to {newest}");
        place.stage.judge.lock().dialects.used(line, name);
        let is_raised = world.processes().iter().all(|process| process.told() == Some(NEW));
        let share = match self.connect(options, unit, name).await {
            Ok(share) => share,
            Err(error) => {
                event!(trace, "c{number} does not come in: {error}");
                if !may_fail(&error, oldest, is_raised) {
                    violation!(
                        trace,
                        "c{number} ({oldest} to {newest}) is refused {name}: {error}"
                    );
                }
                return;
            }
        };
        let session = share.session().clone();
        let (dice, stage) = (Dice::new(self.dice.next(), 0), Arc::clone(place.stage));
        let id = FIRST_VISITOR + number as u64;
        let (client, squeezes, sequence) = (line, false, 0);
        let mut actor = Actor { id, client, share, is_lasting, squeezes, dice, stage, sequence };
        actor.visit(times).await;
        drop(actor);
        if self.dice.percent(50) {
            session.log_off().await;
        }
        event!(trace, "c{number} goes");
    }

    /// Comes when the race is over, speaks the new dialect alone, and must be let in.
    async fn come_last(&self, unit: usize) {
        let World { trace, units, .. } = &*self.world;
        let options = Options::new()
            .oldest(Dialect::Smb311)
            .ambient(Arc::new(Simulated::new(Clock::new(trace.start()), self.dice.clone())));
        let name = units[unit].place().shares[0];
        let deadline = Instant::now() + RAISED_WITHIN;
        loop {
            match self.connect(options.clone(), unit, name).await {
                Ok(share) => return share.session().clone().log_off().await,
                // The unit may move still.
                Err(error)
                    if matches!(error.cause(), Cause::Transport(_))
                        && Instant::now() < deadline =>
                {
                    sleep(LOOK).await;
                }
                Err(error) => {
                    let number = self.number;
                    return violation!(trace, "c{number} is refused {name} at the end: {error}");
                }
            }
        }
    }

    async fn connect(
        &self,
        options: Options,
        unit: usize,
        share: &str,
    ) -> frevo_client::Result<frevo_client::Share> {
        let way = Way::Tcp.dialer(&self.world.network, self.number);
        let client = Client::with_dialer(options, way);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new(self.world.network.host(unit)), user).await?;
        session.share(share).await
    }
}

/// True if a client that speaks `oldest` or newer may fail so to begin. With `is_raised` all servers had heard of
/// the raise before.
fn may_fail(error: &Error, oldest: Dialect, is_raised: bool) -> bool {
    match error.cause() {
        Cause::ClusterDialect(named) => *named < oldest && !is_raised,
        // The node may have gone, or the share be on its way.
        Cause::Transport(_) | Cause::Unknown => true,
        Cause::Status(ClientStatus::SERVER_UNAVAILABLE | ClientStatus::BAD_NETWORK_NAME) => true,
        // The program of the node may be the old one.
        Cause::TooOld(_) | Cause::Status(ClientStatus::NOT_SUPPORTED) => {
            oldest == Dialect::Smb311 && !is_raised
        }
        _ => false,
    }
}
