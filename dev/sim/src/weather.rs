//! Faults, and when they happen.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_store::Fault;
use frevo_store::memory::Operation;
use tokio::time::{Instant, sleep};

use crate::actor::Stage;
use crate::ambient::Clock;
use crate::dice::Dice;
use crate::event;
use crate::machine::{Fall, Machine, Move};
use crate::network::State;

/// The severity of the weather: the weight of each kind of fault.
#[derive(Debug, Clone, Copy)]
struct Climate {
    cut: u64,
    stall: u64,
    vanish: u64,
    cut_off: u64,
    kill: u64,
    crash: u64,
    disk: u64,
    late: u64,
    jump: u64,
    /// Longest time between two events, milliseconds.
    pause: u64,
}

impl Climate {
    /// Chooses the weather of a run; None for a calm run.
    fn new(dice: &mut Dice) -> Option<Self> {
        if dice.percent(5) {
            return None;
        }
        let mut often = |percent| if dice.percent(percent) { 1 + dice.below(5) } else { 0 };
        let climate = Self {
            cut: often(70),
            stall: often(40),
            vanish: often(40),
            cut_off: often(30),
            kill: often(25),
            crash: often(20),
            disk: often(25),
            late: often(35),
            jump: often(15),
            pause: 0,
        };
        Some(Self { pause: *dice.pick(&[300, 1_500, 6_000]), ..climate })
    }

    const fn sum(&self) -> u64 {
        let links = self.cut + self.stall + self.vanish + self.cut_off + self.late;
        links + self.kill + self.crash + self.disk + self.jump
    }
}

/// A server with all that happens at it.
pub struct Site {
    /// The parts that its actors share.
    pub stage: Arc<Stage>,
    /// Its machine.
    pub machine: Machine,
}

/// Starts all servers.
pub async fn begin(sites: &[Site]) {
    for site in sites {
        site.machine.start().await;
    }
}

/// Makes the weather until the time is over, and clears it up.
pub async fn make(sites: &[Site], clients: &[Clock], mut dice: Dice) {
    let Some(stage) = sites.first().map(|site| &site.stage) else { return };
    stage.network.roughen();
    if let Some(climate) = Climate::new(&mut dice).filter(|climate| climate.sum() > 0) {
        event!(stage.trace, "weather: {climate:?}");
        while Instant::now() < stage.until && !stage.trace.is_violated() {
            sleep(dice.millis(1, climate.pause)).await;
            let site = if sites.len() > 1 { dice.pick(sites) } else { &sites[0] };
            strike(site, clients, &climate, &mut dice).await;
        }
    }
    event!(stage.trace, "weather: clears up");
    for Site { machine, .. } in sites {
        machine.faults().heal();
        machine.store().heal();
    }
    stage.network.heal();
}

async fn strike(site: &Site, clients: &[Clock], climate: &Climate, dice: &mut Dice) {
    let Site { stage, machine } = site;
    let network = &stage.network;
    let mut what = dice.below(climate.sum());
    let mut is = |weight: u64| {
        let hit = what < weight;
        what = what.wrapping_sub(weight);
        hit
    };
    if is(climate.cut) {
        network.disturb(dice, State::Ended);
    } else if is(climate.stall) {
        network.disturb(dice, State::Stalled);
    } else if is(climate.vanish) {
        let ways = *dice.pick(&[[true, true], [true, false], [false, true]]);
        network.disturb(dice, State::Vanishing(ways));
    } else if is(climate.cut_off) {
        let client = usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0);
        let line = network.line(client, machine.number);
        network.cut_off(line, true);
        sleep(dice.millis(10, 15_000)).await;
        network.cut_off(line, false);
    } else if is(climate.late) {
        network.disturb(dice, State::Late);
    } else if is(climate.jump) {
        let seconds = *dice.pick(&[-86_400, -3_600, -7, 5, 600, 90_000]);
        let at = usize::try_from(dice.below(1 + clients.len() as u64)).unwrap_or(0);
        event!(stage.trace, "clock {at} at machine {}: {seconds} s", machine.number);
        clients.get(at).unwrap_or(&machine.clock).jump(seconds);
    } else if is(climate.kill) {
        fall(stage, machine, Fall::Kill, dice).await;
    } else if is(climate.crash) {
        fall(stage, machine, Fall::Crash, dice).await;
    } else {
        fail_disk(stage, machine, dice);
    }
}

async fn fall(stage: &Stage, machine: &Machine, how: Fall, dice: &mut Dice) {
    stage.has_fallen.store(true, Ordering::Relaxed);
    machine.fall(how).await;
    stage.judge.lock().on_fall(how, &machine.contents());
    sleep(dice.millis(5, 8_000)).await;
    machine.start().await;
}

/// Moves the shares of each server from one process to another, now and then. Without dice they stay.
pub async fn move_shares(sites: &[Site], dice: Option<Dice>) {
    let (Some(first), Some(mut dice)) = (sites.first(), dice) else { return };
    let pause = *dice.pick(&[500, 3_000, 12_000]);
    while Instant::now() < first.stage.until && !first.stage.trace.is_violated() {
        sleep(dice.millis(1, pause)).await;
        let Site { stage, machine } = if sites.len() > 1 { dice.pick(sites) } else { first };
        let how = if dice.percent(50) { Move::Planned } else { Move::Expired };
        let judged = |contents: &[(String, Vec<u8>)]| {
            stage.has_fallen.store(true, Ordering::Relaxed);
            stage.judge.lock().on_move(contents);
        };
        machine.hand_over(how, judged).await;
    }
}

/// Makes a few calls fail before they change anything.
fn fail_disk(stage: &Stage, machine: &Machine, dice: &mut Dice) {
    stage.is_disk_bad.store(true, Ordering::Relaxed);
    if dice.percent(20) {
        stage.is_store_bad.store(true, Ordering::Relaxed);
        let times = 1 + dice.below(3);
        event!(stage.trace, "store: the next {times} changes fail");
        return machine.store().fail(times);
    }
    let operation = *dice.pick(&[
        Operation::Write,
        Operation::Write,
        Operation::Read,
        Operation::Sync,
        Operation::Create,
        Operation::Rename,
    ]);
    let fault = *dice.pick(&[Fault::DiskFull, Fault::Io(5)]);
    let (after, times) = (dice.below(4), 1 + dice.below(2));
    event!(stage.trace, "disk: {operation:?} fails with {fault:?} after {after}, {times} times");
    machine.faults().fail(operation, after, times, fault);
}
