//! Faults of a cluster, and when they happen.

use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::interface::{Command, Request};
use frevo_cluster::keys::ControlKey;
use frevo_etcd::types::{Keys, Op, Txn};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};

use super::member::Member;
use super::way::Road;
use super::world::World;
use crate::ambient::Clock;
use crate::dice::Dice;
use crate::network::State;
use crate::{event, violation};

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// A process is killed.
    Kill,
    /// A process is stopped for a while, perhaps within a write.
    Stop,
    /// A node and etcd do not hear each other, or one does not hear the other.
    CutFromEtcd,
    /// The way between a node and etcd is slow.
    SlowEtcd,
    /// etcd has no majority.
    NoMajority,
    /// etcd forgets what is not present any more.
    Compaction,
    /// Clients do not reach a node, or do not hear it.
    CutFromClients,
    /// A node does not reach the files of a unit.
    CutFromStorage,
    /// The clock of a node jumps forward.
    ClockJump,
    /// The time of day is set at a node or a client.
    TimeOfDay,
    /// A unit is moved.
    Move,
    /// A node is drained, and may have units again.
    Drain,
    /// Nodes are started anew one after the other, each after it has given its units away.
    Restarts,
    /// The lease of a node is revoked by hand.
    RevokedLease,
    /// The key of an owner is deleted by hand.
    DeletedOwner,
    /// A connection is cut, held back, or half-open.
    Link,
}

impl Trouble {
    const ALL: [Self; 16] = [
        Self::Kill,
        Self::Stop,
        Self::CutFromEtcd,
        Self::SlowEtcd,
        Self::NoMajority,
        Self::Compaction,
        Self::CutFromClients,
        Self::CutFromStorage,
        Self::ClockJump,
        Self::TimeOfDay,
        Self::Move,
        Self::Drain,
        Self::Restarts,
        Self::RevokedLease,
        Self::DeletedOwner,
        Self::Link,
    ];

    /// Chooses the kinds of a run.
    fn kinds(dice: &mut Dice, is_without_fence: bool) -> Vec<Self> {
        let mut kinds: Vec<_> = Self::ALL.into_iter().filter(|_| dice.percent(35)).collect();
        let by_hand = [Self::RevokedLease, Self::DeletedOwner];
        // A clock that jumps shortens the time for which its node waits (docs/adr/0006).
        if is_without_fence || by_hand.iter().any(|kind| kinds.contains(kind)) {
            kinds.retain(|kind| *kind != Self::ClockJump);
        }
        kinds
    }
}

/// The faults of a run, with all that they touch.
struct Weather<'a> {
    world: &'a Arc<World>,
    members: &'a [Arc<Member>],
    clients: &'a [Clock],
    dice: Dice,
    /// Faults that have an end.
    under_way: Vec<JoinHandle<()>>,
}

/// Makes faults until the time is over, and clears them up.
pub(super) async fn make(
    world: &Arc<World>,
    members: &[Arc<Member>],
    clients: &[Clock],
    mut dice: Dice,
) {
    let Some(until) = world.units.first().map(|unit| unit.stage.until) else { return };
    let kinds = Trouble::kinds(&mut dice, world.is_without_fence);
    let pause = *dice.pick(&[1_000, 3_000, 10_000]);
    event!(world.trace, "trouble: {kinds:?}");
    let mut weather = Weather { world, members, clients, dice, under_way: Vec::new() };
    while Instant::now() < until && !world.trace.is_violated() {
        sleep(weather.dice.millis(1, pause)).await;
        if let Some(kind) = (!kinds.is_empty()).then(|| *weather.dice.pick(&kinds)) {
            event!(world.trace, "trouble: {kind:?}");
            weather.strike(kind);
        }
    }
    weather.clear_up().await;
}

impl Weather<'_> {
    fn member(&mut self) -> Arc<Member> {
        Arc::clone(self.dice.pick(self.members))
    }

    /// Begins a fault; `later` ends it after a while.
    fn strike(&mut self, kind: Trouble) {
        let member = self.member();
        let (world, node) = (Arc::clone(self.world), member.number);
        let unit = usize::try_from(self.dice.below(world.units.len() as u64)).unwrap_or(0);
        match kind {
            Trouble::Kill => {
                member.kill();
                self.later(5_000, async move { member.start() });
            }
            Trouble::Stop => {
                let in_write = !world.is_without_fence && self.dice.percent(60);
                let time = self.dice.millis(50, 10_000);
                self.begin(async move {
                    member.stop(in_write).await;
                    sleep(time).await;
                    member.go_on();
                });
            }
            Trouble::CutFromEtcd => {
                let (loses_requests, loses_answers) =
                    *self.dice.pick(&[(true, true), (true, false), (false, true)]);
                world.set_road(node, Road { loses_requests, loses_answers, is_slow: false });
                self.later(8_000, async move { world.set_road(node, Road::default()) });
            }
            Trouble::SlowEtcd => {
                world.set_road(node, Road { is_slow: true, ..Road::default() });
                self.later(8_000, async move { world.set_road(node, Road::default()) });
            }
            Trouble::NoMajority => {
                world.set_majority(false);
                self.later(12_000, async move { world.set_majority(true) });
            }
            Trouble::Compaction => world.etcd.change(|etcd| etcd.compact()),
            Trouble::CutFromClients => {
                world.network.isolate(node, true, &mut self.dice);
                let mut dice = Dice::new(self.dice.next(), 0);
                self.later(10_000, async move { world.network.isolate(node, false, &mut dice) });
            }
            Trouble::CutFromStorage => {
                world.units[unit].storage.cut(node, true);
                world.disturb(node);
                self.later(5_000, async move { world.units[unit].storage.cut(node, false) });
            }
            Trouble::ClockJump => member.clock.jump(self.dice.millis(1, 5_000)),
            Trouble::TimeOfDay => {
                let seconds = *self.dice.pick(&[-86_400, -3_600, -7, 5, 600, 90_000]);
                let client = usize::try_from(self.dice.below(4)).unwrap_or(0);
                self.clients.get(client).unwrap_or(&member.day).jump(seconds);
            }
            Trouble::Move => self.relocate(unit, &member),
            Trouble::Drain => self.drain(&member),
            Trouble::Restarts => self.restart_all(),
            Trouble::RevokedLease => {
                if let Some(lease) = member.process().and_then(|process| process.lease()) {
                    world.by_hand(&Request::Revoke(lease));
                }
            }
            Trouble::DeletedOwner => {
                let owner = ControlKey::Owner(world.units[unit].name.clone());
                let delete = Op::Delete(Keys::One(world.layout.control(&owner)));
                world.by_hand(&Request::Txn(Txn { success: vec![delete], ..Txn::default() }));
            }
            Trouble::Link => {
                let ways = *self.dice.pick(&[[true, true], [true, false], [false, true]]);
                let states = [State::Ended, State::Stalled, State::Vanishing(ways), State::Late];
                let to = *self.dice.pick(&states);
                world.network.disturb(&mut self.dice, to);
            }
        }
    }

    fn begin(&mut self, fault: impl Future<Output = ()> + 'static) {
        self.under_way.retain(|fault| !fault.is_finished());
        self.under_way.push(spawn_local(fault));
    }

    fn later(&mut self, longest: u64, end: impl Future<Output = ()> + 'static) {
        let time = self.dice.millis(10, longest);
        self.begin(async move {
            sleep(time).await;
            end.await;
        });
    }

    /// Carries out a command at a node.
    fn command(&mut self, at: Arc<Member>, command: Command) {
        let world = Arc::clone(self.world);
        // Commands have an end of their own, and nobody waits for it.
        spawn_local(async move {
            let what = format!("{command:?}");
            let end = at.command(command).await;
            event!(world.trace, "{}: {what}: {end:?}", at.name);
        });
    }

    fn relocate(&mut self, unit: usize, to: &Member) {
        let share = self.world.units[unit].name.clone();
        let at = self.member();
        self.command(at, Command::Move { share, to: to.name.clone() });
    }

    fn drain(&mut self, member: &Member) {
        let at = self.member();
        self.command(at, Command::Drain(member.name.clone()));
        let (at, name) = (self.member(), member.name.clone());
        self.later(10_000, async move { drop(at.command(Command::Undrain(name)).await) });
    }

    fn restart_all(&mut self) {
        let members = self.members.to_vec();
        let pause = self.dice.millis(1, 2_000);
        self.begin(async move {
            for member in members {
                member.leave().await;
                sleep(pause).await;
                member.start();
            }
        });
    }

    /// Ends all faults.
    async fn clear_up(mut self) {
        let (world, members) = (self.world, self.members);
        event!(world.trace, "trouble: clears up");
        world.set_majority(true);
        for member in members {
            world.set_road(member.number, Road::default());
            world.network.isolate(member.number, false, &mut self.dice);
            world.units.iter().for_each(|unit| unit.storage.cut(member.number, false));
        }
        world.network.heal();
        for fault in self.under_way.drain(..) {
            // A process that leaves may take as long as it gives its units away.
            if tokio::time::timeout(Duration::from_secs(600), fault).await.is_err() {
                violation!(world.trace, "trouble: a fault does not end");
            }
        }
        for member in members {
            member.go_on();
            member.start();
        }
        world.allow_all_nodes(members.iter().map(|member| member.name.clone()));
    }
}
