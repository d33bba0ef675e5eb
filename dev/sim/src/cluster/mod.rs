//! A run of a cluster: two to five nodes with the shipped server, the shipped node and its machine, a
//! model of etcd, one file system that refuses nodes, and the shipped client.
//!
//! [`member`] is a node, [`process`] its process, which [`gate`] stops and ends; [`way`] leads to etcd,
//! [`hands`] to storage ([`storage`]) and addresses; [`world`] has the rules for all nodes together,
//! [`trouble`] the faults, and [`upgrade`] a rolling upgrade with its clients, whose choices [`race`] has.

mod clock;
mod gate;
mod hands;
mod member;
mod process;
mod race;
mod storage;
mod trouble;
mod upgrade;
mod way;
mod witness;
mod world;

use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::names::ShareName;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use crate::actor::Stage;
use crate::ambient::Clock;
use crate::company::{Company, FAREWELL, Used, await_end, furnish, leave};
use crate::dice::Dice;
use crate::network::Network;
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::{event, violation};
use member::Member;
use race::Race;
use storage::Storage;
use world::{Unit, World};

/// Time in which every unit is served, by one node with its address, when nothing is wrong.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Time after which nothing of a process that has ended is under way.
const AFTERMATH: Duration = Duration::from_secs(20);

/// Plays a run of a cluster.
pub(crate) async fn play(seed: u64, trace: &Arc<Trace>, has_race: bool) {
    let mut dice = Dice::new(seed, 1);
    let clients = usize::try_from(1 + dice.below(3)).unwrap_or(1);
    let nodes = *dice.pick(&[2, 2, 3, 3, 3, 4, 5]);
    let units = *dice.pick(&[1, 1, 1, 2, 2, 3]);
    let race = has_race.then(|| Race::new(Dice::new(seed, 8)));
    let visitors = race.as_ref().map_or(0, Race::clients);
    let network = Network::new(clients + visitors, units, Dice::new(seed, 2), Arc::clone(trace));
    network.begin_cluster(nodes);
    let longer = if has_race { race::LONGER } else { Duration::ZERO };
    let until = Instant::now() + dice.millis(10_000, 30_000) + longer;
    let units = (0..units).map(|number| unit(number, trace, &network, until)).collect();
    let world = World::new(nodes, units, network, Arc::clone(trace), Dice::new(seed, 3), race);
    let members: Vec<_> = (0..nodes)
        .map(|number| Member::new(number, &world, Dice::new(seed, 20 + number as u64)))
        .collect();
    event!(trace, "{nodes} nodes, without a fence: {}", world.is_without_fence);
    let etcd = spawn_local(Arc::clone(&world).run_etcd());
    for member in &members {
        sleep(dice.millis(0, 500)).await;
        member.start();
    }
    play_with(seed, &world, &members, &mut dice, clients).await;
    for member in &members {
        member.kill();
    }
    etcd.abort();
    sleep(AFTERMATH).await;
}

/// A unit without files.
#[allow(clippy::expect_used, reason = "the name is a good one")]
fn unit(number: usize, trace: &Arc<Trace>, network: &Arc<Network>, until: Instant) -> Unit {
    let time = Clock::new(trace.start());
    let serial = 0x4672_6500 + u32::try_from(number).unwrap_or(0);
    let options = MemoryOptions { serial, ..MemoryOptions::default() };
    let files = MemoryVfs::new(options, Arc::new(move || time.now()));
    Unit {
        name: ShareName::new(&format!("unit{number}")).expect("a name without control characters"),
        shares: ["data", "lasting"].map(|share| format!("{share}{number}")),
        storage: Storage::new(files),
        stage: Arc::new(Stage::new(trace, network, until)),
    }
}

async fn play_with(
    seed: u64,
    world: &Arc<World>,
    members: &[Arc<Member>],
    dice: &mut Dice,
    clients: usize,
) {
    let trace = &world.trace;
    if !are_served(world).await {
        return violation!(trace, "not all units are served at the beginning");
    }
    upgrade::begin(world, members).await;
    let mut company = Company::default();
    let mut scenario = Scenario::over_tcp(Dice::new(seed, 5));
    let places: Vec<_> = world.units.iter().map(Unit::place).collect();
    for number in 0..clients {
        if let Err(why) = company.join(number, &places, dice, seed, &mut scenario).await {
            return violation!(trace, "c{number} cannot begin: {why}");
        }
    }
    let Company { clocks, sessions, actors, .. } = company;
    for (unit, actors) in world.units.iter().zip(&actors) {
        if let Err(why) = furnish(&unit.stage, actors).await {
            return violation!(trace, "the files cannot be made: {why}");
        }
    }
    let all = clients + world.race.as_ref().map_or(0, Race::clients);
    world.set_used(actors.iter().flatten().map(|actor| Used::of(actor, all)).collect());
    let race = upgrade::start(world, members, seed, clients);
    let acting = actors.into_iter().flatten().map(|actor| spawn_local(actor.act())).collect();
    trouble::make(world, members, &clocks, Dice::new(seed, 4)).await;
    if let Some(race) = race {
        race.finish(world).await;
    }
    await_end(acting, trace).await;
    world.set_used(Vec::new());
    leave(sessions, dice, trace).await;
    sleep(FAREWELL).await;
    look_at_the_end(world, members).await;
}

/// Waits until each unit is served by its owner, whose machine alone has the address.
async fn are_served(world: &World) -> bool {
    let deadline = Instant::now() + SERVED_WITHIN;
    let is_served = |unit: usize| {
        let Some(owner) = world.owner(unit) else { return false };
        let serving: Vec<_> =
            world.processes().into_iter().filter(|process| process.is_served(unit)).collect();
        let [process] = &serving[..] else { return false };
        let is_its = owner.node == process.name && process.may_serve();
        is_its && world.network.holders(unit) == [process.node]
    };
    while !(0..world.units.len()).all(is_served) {
        if Instant::now() >= deadline {
            for unit in 0..world.units.len() {
                let owner = world.owner(unit);
                event!(world.trace, "{unit}: {owner:?}, at {:?}", world.network.holders(unit));
            }
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}

/// Checks that each unit is served by one node, and that nothing is left of the run but its files.
async fn look_at_the_end(world: &World, members: &[Arc<Member>]) {
    let trace = &world.trace;
    if !are_served(world).await {
        violation!(trace, "not all units are served at the end");
    }
    for member in members {
        member.check_empty();
    }
    if world.network.count() > 0 {
        violation!(trace, "{} connections have not ended", world.network.count());
    }
    let records = world.records();
    if records > 0 {
        violation!(trace, "left in etcd: {records} records");
    }
    for unit in &world.units {
        unit.stage.judge.lock().at_the_end(&unit.storage.contents());
    }
}
