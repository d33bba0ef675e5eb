//! One run: from an empty disk to an empty server.

use std::cell::RefCell;
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

use crate::actor::Stage;
use crate::company::{Company, Destination, FAREWELL, await_end, furnish, leave};
use crate::dice::Dice;
use crate::flood::{self, Flood};
use crate::machine::{Machine, SHARES};
use crate::network::Network;
use crate::rates::Rates;
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::weather::Site;
use crate::{cluster, event, violation, weather};

/// The purpose of the random number that decides if shares compress.
const SQUEEZES: u64 = 900;

/// The purpose of the random number that decides if there is QUIC, and of those of its network.
const INTERNET: u64 = 1_000;

/// Time in which the tasks of listeners end.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The seed of all random choices.
    pub seed: u64,
    /// True to keep the events.
    pub trace: bool,
    /// The kind of the run.
    pub kind: Kind,
}

/// A kind of run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Servers that have nothing in common.
    #[default]
    Servers,
    /// The nodes of a cluster.
    Cluster,
    /// The nodes of a cluster that are upgraded one by one, and whose dialect is raised meanwhile.
    DialectRace,
}

impl Kind {
    /// The option of the program for runs of this kind.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Servers => "",
            Self::Cluster => " --cluster",
            Self::DialectRace => " --race dialect",
        }
    }
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
            match self.kind {
                Kind::Servers => play(self.seed, &trace).await,
                Kind::Cluster => cluster::play(self.seed, &trace, false).await,
                Kind::DialectRace => cluster::play(self.seed, &trace, true).await,
            }
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
    let mut scenario = scenario_of(seed, flood.is_some());
    // A flood has its own rules of time, and a process that others take shares from keeps its own limits.
    let mut rates = Rates::of(seed).filter(|_| flood.is_none() && !scenario.moves_shares());
    // The attacker of a flood and the client that is measured are two more clients.
    let guests =
        if flood.is_some() { flood::USERS.len() } else { rates.as_ref().map_or(0, Rates::clients) };
    let network = Network::new(clients + guests, servers, Dice::new(seed, 2), Arc::clone(trace));
    begin_quic(&network, &scenario, seed, trace);
    let until = Instant::now() + dice.millis(10_000, 40_000);
    if scenario.has_rdma() {
        event!(trace, "{scenario:?}");
    }
    let core = flood.as_ref().map(|flood| Arc::clone(&flood.core));
    let site = |number: usize| {
        let dice = Dice::new(seed, 3 + 20 * number as u64);
        let (network, trace, core) = (Arc::clone(&network), Arc::clone(trace), core.clone());
        let stage = Arc::new(Stage::new(&trace, &network, until));
        let machine = Machine::new(number, network, trace, dice, scenario.of_machine(), core);
        Site { stage, machine }
    };
    let sites: Vec<_> = (0..servers).map(site).collect();
    weather::begin(&sites).await;
    let mut company = Company::default();
    let places: Vec<_> =
        sites.iter().map(|site| Destination { stage: &site.stage, shares: SHARES }).collect();
    for number in 0..clients {
        if let Err(why) = company.join(number, &places, &mut dice, seed, &mut scenario).await {
            return violation!(trace, "c{number} cannot begin: {why}");
        }
    }
    let Company { clocks, sessions, actors, .. } = company;
    for (site, actors) in sites.iter().zip(&actors) {
        if let Err(why) = furnish(&site.stage, actors).await {
            return violation!(trace, "the files cannot be made: {why}");
        }
    }
    if let Some(site) = sites.first() {
        begin_guests(site, flood.as_deref_mut(), rates.as_mut(), clients);
    }
    let acting = actors.into_iter().flatten().map(|actor| spawn_local(actor.act())).collect();
    let devices = scenario.of_devices(Dice::new(seed, 6)).map(|scenario| {
        spawn_local(scenario.lose_devices(Arc::clone(&network), servers as u64, until))
    });
    let moves = scenario.moves_shares().then(|| Dice::new(seed, 8));
    let weather = weather::make(&sites, &clocks, Dice::new(seed, 4));
    tokio::join!(
        weather,
        weather::move_shares(&sites, moves),
        change_rates(rates.as_ref(), &sites)
    );
    if let Some(devices) = devices {
        devices.abort();
        network.heal();
    }
    await_end(acting, trace).await;
    if let Some(site) = sites.first() {
        await_guests(site, flood, rates).await;
    }
    leave(sessions, &mut dice, trace).await;
    sleep(FAREWELL).await;
    stop_accepting(&sites, &scenario).await;
    look_at_the_end(&sites, &network, trace);
}

/// The scenario of a run. A flood measures the server by the bytes of TCP.
fn scenario_of(seed: u64, has_flood: bool) -> Scenario {
    let squeezes = Dice::new(seed, SQUEEZES);
    let scenario = Scenario::new(Dice::new(seed, 5), Dice::new(seed, 7), squeezes);
    if has_flood { scenario } else { scenario.with_quic(Dice::new(seed, INTERNET)) }
}

/// Has QUIC in the network if the scenario wants it.
fn begin_quic(network: &Network, scenario: &Scenario, seed: u64, trace: &Trace) {
    if scenario.has_quic()
        && let Err(fault) = network.begin_quic(Dice::new(!seed, INTERNET))
    {
        violation!(trace, "{fault}");
    }
}

/// Begins the clients of a flood or of rules of rate, from the number `first` of the network on.
fn begin_guests(site: &Site, flood: Option<&mut Flood>, rates: Option<&mut Rates>, first: usize) {
    if let Some(flood) = flood {
        site.machine.furnish_flood();
        flood.begin(&site.stage.network, first, &site.stage.trace);
    }
    if let Some(rates) = rates {
        rates.begin(site, first);
    }
}

/// Waits for the end of these clients.
async fn await_guests(site: &Site, flood: Option<&mut Flood>, rates: Option<Rates>) {
    if let Some(flood) = flood {
        flood.await_end().await;
    }
    if let Some(mut rates) = rates {
        rates.await_end(site).await;
    }
}

/// Changes the rules of rate of the first server, if it has any.
async fn change_rates(rates: Option<&Rates>, sites: &[Site]) {
    if let (Some(rates), Some(site)) = (rates, sites.first()) {
        rates.change(site).await;
    }
}

/// Ends listeners of QUIC, which have tasks.
async fn stop_accepting(sites: &[Site], scenario: &Scenario) {
    if scenario.has_quic() {
        sites.iter().for_each(|site| site.machine.stop_accepting());
        sleep(CLOSED_WITHIN).await;
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
