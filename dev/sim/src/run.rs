//! One run: from an empty disk to an empty server.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::Duration;

use frevo_client::{
    Cipher, Client, Credentials, Dialect, Encryption, Options, ServerName, Session,
};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{Actor, Stage};
use crate::ambient::{Clock, Simulated};
use crate::dice::Dice;
use crate::flood::{self, Flood};
use crate::judge::{Judge, Names, Registers, SLOT, SLOTS};
use crate::machine::Machine;
use crate::network::{Network, SERVER};
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::weather::Site;
use crate::{actor, event, violation, weather};

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The seed of all random choices.
    pub seed: u64,
    /// True to keep the events.
    pub trace: bool,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed of the run.
    pub seed: u64,
    /// The events, if they are kept.
    pub lines: Vec<String>,
    /// A digest of all events.
    pub digest: u64,
    /// The violations that the judge found.
    pub violations: Vec<String>,
}

/// Longest duration of a run without faults.
const END_MAX: Duration = Duration::from_secs(3_000);
/// Time after which every wait for a lost client has ended.
const FAREWELL: Duration = Duration::from_secs(400);

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Counts all panics, also those that a task catches.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
        }));
    });
}

impl Run {
    /// Runs it, on this thread.
    ///
    /// # Panics
    /// When there can be no runtime.
    #[must_use]
    #[allow(clippy::expect_used, reason = "without a runtime there is no simulation")]
    pub fn run(self) -> Outcome {
        watch_panics();
        frevo_net::file_io::stay_on_this_thread();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime can be made");
        let trace = LocalSet::new().block_on(&runtime, async {
            let trace = Arc::new(Trace::new(Instant::now(), self.trace));
            play(self.seed, &trace).await;
            trace
        });
        let alive = runtime.metrics().num_alive_tasks();
        if alive > 0 {
            violation!(trace, "{alive} tasks have not ended");
        }
        drop(runtime);
        for panic in PANICS.take() {
            violation!(trace, "panic: {panic}");
        }
        let (lines, digest, violations) = trace.take();
        Outcome { seed: self.seed, lines, digest, violations }
    }
}

async fn play(seed: u64, trace: &Arc<Trace>) {
    let mut flood = Flood::of(seed);
    play_with(seed, trace, flood.as_mut()).await;
    if let Some(flood) = flood {
        flood.stop().await;
    }
}

async fn play_with(seed: u64, trace: &Arc<Trace>, mut flood: Option<&mut Flood>) {
    let mut dice = Dice::new(seed, 1);
    let clients = usize::try_from(1 + dice.below(4)).unwrap_or(1);
    let servers = *dice.pick(&[1, 1, 1, 1, 1, 1, 2, 3]);
    // The attacker and the client that is measured are two more clients.
    let of_flood = if flood.is_some() { flood::USERS.len() } else { 0 };
    let network = Network::new(clients + of_flood, servers, Dice::new(seed, 2), Arc::clone(trace));
    let until = Instant::now() + dice.millis(10_000, 40_000);
    let mut scenario = Scenario::new(Dice::new(seed, 5), Dice::new(seed, 7));
    if scenario.has_rdma() {
        event!(trace, "{scenario:?}");
    }
    let sites: Vec<_> = (0..servers)
        .map(|number| {
            let dice = Dice::new(seed, 3 + 20 * number as u64);
            let machine = Machine::new(
                number,
                Arc::clone(&network),
                Arc::clone(trace),
                dice,
                scenario.of_machine(),
                flood.as_ref().map(|flood| Arc::clone(&flood.core)),
            );
            let stage = Stage {
                trace: Arc::clone(trace),
                judge: Mutex::new(Judge::new(Arc::clone(trace))),
                network: Arc::clone(&network),
                is_disk_bad: AtomicBool::new(false),
                is_store_bad: AtomicBool::new(false),
                has_fallen: AtomicBool::new(false),
                until,
            };
            Site { stage: Arc::new(stage), machine }
        })
        .collect();
    weather::begin(&sites).await;
    let mut company = Company::default();
    for number in 0..clients {
        if let Err(why) = company.join(number, &sites, &mut dice, seed, &mut scenario).await {
            return violation!(trace, "c{number} cannot begin: {why}");
        }
    }
    let Company { clocks, sessions, actors, .. } = company;
    for (site, actors) in sites.iter().zip(&actors) {
        if let Err(why) = furnish(&site.stage, actors).await {
            return violation!(trace, "the files cannot be made: {why}");
        }
    }
    if let (Some(flood), Some(site)) = (&mut flood, sites.first()) {
        site.machine.furnish_flood();
        flood.begin(&network, clients, trace);
    }
    let acting = actors.into_iter().flatten().map(|actor| spawn_local(actor.act())).collect();
    let devices = scenario.of_devices(Dice::new(seed, 6)).map(|scenario| {
        spawn_local(scenario.lose_devices(Arc::clone(&network), servers as u64, until))
    });
    let moves = scenario.moves_shares().then(|| Dice::new(seed, 8));
    let weather = weather::make(&sites, &clocks, Dice::new(seed, 4));
    tokio::join!(weather, weather::move_shares(&sites, moves));
    if let Some(devices) = devices {
        devices.abort();
        network.heal();
    }
    await_end(acting, flood, trace).await;
    leave(sessions, &mut dice, trace).await;
    sleep(FAREWELL).await;
    look_at_the_end(&sites, &network, trace);
}

/// Waits for the end of all actors, and of the flood.
async fn await_end(acting: Vec<JoinHandle<()>>, flood: Option<&mut Flood>, trace: &Trace) {
    for acting in acting {
        match timeout(END_MAX, acting).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => violation!(trace, "an actor has failed"),
            Err(_) => violation!(trace, "an actor does not end"),
        }
    }
    if let Some(flood) = flood {
        flood.await_end().await;
    }
}

/// Checks that nothing is left of the run but its files.
fn look_at_the_end(sites: &[Site], network: &Network, trace: &Trace) {
    for Site { machine, .. } in sites {
        machine.check_empty();
    }
    if network.count() > 0 {
        violation!(trace, "{} connections have not ended", network.count());
    }
    if network.registered_bytes() > 0 {
        violation!(trace, "{} bytes are still registered for RDMA", network.registered_bytes());
    }
    for Site { stage, machine } in sites {
        stage.judge.lock().at_the_end(&machine.contents());
    }
}

/// All clients, with their sessions and actors.
#[derive(Default)]
struct Company {
    clocks: Vec<Clock>,
    sessions: Vec<Session>,
    /// The actors at each server.
    actors: Vec<Vec<Actor>>,
    count: u64,
}

impl Company {
    /// Adds a client, which logs on to one or more of the servers.
    async fn join(
        &mut self,
        number: usize,
        sites: &[Site],
        dice: &mut Dice,
        seed: u64,
        scenario: &mut Scenario,
    ) -> frevo_client::Result<()> {
        let Some(Site { stage, .. }) = sites.first() else { return Ok(()) };
        let (trace, network) = (&stage.trace, &stage.network);
        self.actors.resize_with(sites.len(), Vec::new);
        let clock = Clock::new(trace.start());
        let options = scenario.adapt(options(dice, clock.clone(), seed, number));
        self.clocks.push(clock);
        let Options { newest, credits, channels, durable, encryption, .. } = &options;
        event!(
            trace,
            "c{number}: {newest:?} {encryption:?}, {credits} credits, {channels} channels, durable {durable}"
        );
        let way = scenario.way();
        if scenario.has_rdma() {
            event!(trace, "c{number}: {way:?}, {:?}", options.sign);
        }
        let client = Client::with_dialer(options, way.dialer(network, number));
        let home = usize::try_from(dice.below(sites.len() as u64)).unwrap_or(0);
        for (server, site) in sites.iter().enumerate() {
            if server != home && dice.percent(50) {
                continue;
            }
            let user = Credentials::new("ann", "secret");
            let name = ServerName::new(format!("{SERVER}{server}"));
            let session = client.connect(name, user).await?;
            for _ in 0..=dice.below(2) {
                let is_lasting = dice.percent(50);
                let share = session.share(if is_lasting { "lasting" } else { "data" }).await?;
                self.count += 1;
                let (id, line) = (self.count, network.line(number, server));
                let (dice, stage) = (Dice::new(seed, 100 + id), Arc::clone(&site.stage));
                let actor = Actor { id, client: line, share, is_lasting, dice, stage, sequence: 0 };
                self.actors[server].push(actor);
            }
            self.sessions.push(session);
        }
        Ok(())
    }
}

/// Chooses the options of a client.
fn options(dice: &mut Dice, clock: Clock, seed: u64, client: usize) -> Options {
    let newest = *dice.pick(&[Dialect::Smb311, Dialect::Smb311, Dialect::Smb311, Dialect::Smb302]);
    Options::new()
        .newest(newest)
        .oldest(Dialect::Smb300)
        .ciphers(vec![
            *dice.pick(&[Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Aes128Ccm]),
            Cipher::Aes128Ccm,
        ])
        .encryption(if dice.percent(30) { Encryption::Required } else { Encryption::AsServerAsks })
        .credits(*dice.pick(&[4, 32, 512]))
        .channels(if dice.percent(4) {
            *dice.pick(&[8, 16, 32])
        } else {
            *dice.pick(&[1, 2, 2, 3, 4])
        })
        .durable(dice.percent(80))
        .ambient(Arc::new(Simulated::new(clock, Dice::new(seed, 10 + client as u64))))
}

/// Makes the files, on the medium for good.
async fn furnish(stage: &Stage, actors: &[Actor]) -> frevo_client::Result<()> {
    let Some(first) = actors.first() else { return Ok(()) };
    let share = &first.share;
    let make = frevo_client::OpenOptions::new().read(true).write(true).create(true);
    for name in actor::FILES {
        let file = make.clone().open(share, name).await?;
        file.write_all_at(&[0; SLOT * SLOTS], 0).await?;
        file.sync_all().await?;
        file.close().await?;
    }
    let source = make.clone().open(share, actor::SOURCE).await?;
    source.write_all_at(&actor::source(), 0).await?;
    source.sync_all().await?;
    source.close().await?;
    for actor in actors {
        share.create_dir(&actor.folder()).await?;
        share.create_dir(&actor.watched()).await?;
    }
    for name in ["log", "counter"] {
        let file = make.clone().open(share, name).await?;
        if name == "counter" {
            file.write_all_at(&[0; 8], 0).await?;
        }
        file.sync_all().await?;
        file.close().await?;
    }
    let mut judge = stage.judge.lock();
    let now = judge.moment();
    for name in actor::FILES {
        judge.registers.insert(name.into(), Registers::new(now));
    }
    for actor in actors {
        judge.names.insert(actor.folder(), Names::default());
    }
    Ok(())
}

/// Ends all sessions, with or without a LOGOFF.
async fn leave(sessions: Vec<Session>, dice: &mut Dice, trace: &Trace) {
    for session in sessions {
        if dice.percent(50) {
            event!(trace, "a session logs off");
            session.log_off().await;
        }
    }
}
