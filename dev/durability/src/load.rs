//! The load: clients that work while the server is killed. Every step must succeed, since the
//! library hides the loss.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_client::{File, LockKind, OpenOptions, Result};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::machine::PLAIN;
use crate::names::{self, Way};
use crate::random::Random;
use crate::world::{OPEN_LANES, PASSING, Peer, World, log_on};

/// Writes of one client that are under way at once, by file.
const OWN_LANES: usize = 3;
const COMMON_LANES: usize = 2;
/// Number of concurrent locks of one handle, whose lock sequences must not be confused.
const LOCK_LANES: u64 = 2;

/// The result of one step of a task; an error is a finding.
pub(crate) type Step = std::result::Result<(), String>;

/// Repeats steps until the end, or until one fails: later failures would only repeat the finding.
macro_rules! repeat {
    ($world:ident, $step:expr) => {
        while !$world.is_over() {
            let _pass = $world.gate.read().await;
            if let Err(what) = $step.await {
                $world.found(what);
                return;
            }
        }
    };
}

/// Starts all tasks of the load.
pub(crate) fn start(world: &Arc<World>, seed: u64) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let mut task = 0;
    let mut random = || {
        task += 1;
        Random::new(seed, task)
    };
    for peer in &world.peers {
        for lane in 0..OWN_LANES + COMMON_LANES {
            let (w, p, mut r) = (Arc::clone(world), Arc::clone(peer), random());
            tasks.spawn(async move { repeat!(w, write(&w, &p, lane, &mut r)) });
        }
        for lane in 0..LOCK_LANES {
            let (w, p, mut r) = (Arc::clone(world), Arc::clone(peer), random());
            tasks.spawn(async move { repeat!(w, lock(&w, &p, lane, &mut r)) });
        }
        for lane in 0..OPEN_LANES {
            let (w, p, mut r) = (Arc::clone(world), Arc::clone(peer), random());
            tasks.spawn(async move { repeat!(w, open(&w, &p, lane, &mut r)) });
        }
    }
    for way in [Way::Continuous, Way::Asked] {
        let (w, r) = (Arc::clone(world), random());
        tasks.spawn(async move { names::run(&w, w.address, way, r).await });
    }
    let (w, mut r) = (Arc::clone(world), random());
    tasks.spawn(async move { repeat!(w, probe(&w, &mut r)) });
    let (w, mut r) = (Arc::clone(world), random());
    tasks.spawn(async move {
        while !w.is_over() {
            // No rule promises that the results of these calls are stable, so their loss is no
            // failure.
            let _ = litter(&w, &mut r).await;
            sleep(Duration::from_millis(20)).await;
        }
    });
    tasks
}

/// Writes a slot of its own or the common file, so that it is stable.
async fn write(world: &World, peer: &Peer, lane: usize, random: &mut Random) -> Step {
    let is_own = lane < OWN_LANES;
    let own = peer.own.lock().file.clone();
    let (file, slots, lane, lanes) = if is_own {
        (&own, &peer.own_slots, lane, OWN_LANES)
    } else {
        (&peer.common, &peer.common_slots, lane - OWN_LANES, COMMON_LANES)
    };
    let slot = lane + lanes * random.below((slots.count() / lanes) as u64) as usize;
    let (number, data) = slots.issue(slot);
    let what = |error| format!("client {}, write {number} of slot {slot}: {error}", peer.number);
    file.write_all_at(&data, slots.offset(slot)).await.map_err(what)?;
    if !peer.writes_through() {
        file.sync_all().await.map_err(what)?;
    }
    slots.acknowledge(slot, number);
    world.counts.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
    world.counts.writes.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Locks a range and checks that it is locked; unlocks it and checks that it is free.
async fn lock(world: &World, peer: &Peer, lane: u64, random: &mut Random) -> Step {
    let offset = PASSING + u64::from(peer.number) * 65_536 + lane * 4096 + random.below(2048);
    let len = 1 + random.below(1024);
    let what = |doing: &str, error: &dyn std::fmt::Display| {
        format!("client {}, {doing} {len} at {offset}: {error}", peer.number)
    };
    let is_exclusive = random.one_in(2);
    let kind = if is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
    peer.common.try_lock(offset, len, kind).await.map_err(|e| what("locking", &e))?;
    is_refused(&world.prober.common, offset, len)
        .await
        .map_err(|e| what("what was locked is free,", &e))?;
    peer.common.unlock(offset, len).await.map_err(|e| what("unlocking", &e))?;
    world.counts.locks.fetch_add(1, Ordering::Relaxed);
    if random.one_in(4) {
        let other = &world.prober.common;
        other
            .try_lock(offset, len, LockKind::Exclusive)
            .await
            .map_err(|e| what("what was unlocked is not free,", &e))?;
        other.unlock(offset, len).await.map_err(|e| what("another one's unlocking", &e))?;
    }
    Ok(())
}

/// Checks that an exclusive lock of this range is refused.
pub(crate) async fn is_refused(file: &File, offset: u64, len: u64) -> Step {
    match file.try_lock(offset, len, LockKind::Exclusive).await {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(()) => Err("another one got it".into()),
    }
}

/// Opens a file, locks and writes a part of it, and closes it.
async fn open(world: &World, peer: &Peer, lane: usize, random: &mut Random) -> Step {
    let name = peer.passing_name(lane);
    let goes = random.one_in(2);
    let there = world.files.join(&name);
    let number = random.next();
    let content = Some(number.to_le_bytes().to_vec());
    let possible = &peer.passing[lane];
    let what = |error: String| format!("client {}, {name}: {error}", peer.number);
    let steps = async {
        let options = OpenOptions::new().write(true).create(true).write_through(true);
        possible.lock().begin(Some(Vec::new()));
        let file = options.delete_on_close(goes).open(&peer.share, &name).await?;
        possible.lock().exists();
        file.try_lock(0, 10, LockKind::Exclusive).await?;
        possible.lock().begin(content.clone());
        // An interrupted write may leave a hole, so eight zeros are a possible content, too.
        possible.lock().begin(Some(vec![0; 8]));
        file.write_all_at(&number.to_le_bytes(), 0).await?;
        possible.lock().settle(content.clone());
        let was_there = !world.shows_the_present || there.exists();
        if goes {
            possible.lock().begin(None);
        }
        file.close().await?;
        if goes {
            possible.lock().settle(None);
        }
        Result::Ok(was_there)
    };
    match steps.await {
        Ok(true) => {}
        Ok(false) => return Err(what("it went before it was closed".into())),
        Err(error) => return Err(what(error.to_string())),
    }
    world.counts.opens.fetch_add(1, Ordering::Relaxed);
    if world.shows_the_present {
        let left = possible.lock().judge(&std::fs::read(&there).ok());
        left.map_err(what)?;
    }
    Ok(())
}

/// Writes without a wish for stability, so that the disk has more than promises to lose.
async fn litter(world: &World, random: &mut Random) -> anyhow::Result<()> {
    let (_session, share) = log_on(world.address, PLAIN, false).await?;
    loop {
        let name = format!("litter-{}", random.below(8));
        let file = OpenOptions::new().write(true).create(true).truncate(random.one_in(4));
        let file = file.open(&share, &name).await?;
        let data = vec![random.next() as u8; 4096 << random.below(6)];
        file.write_all_at(&data, random.below(1 << 20)).await?;
        file.close().await?;
        if world.is_over() {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Tries to lock the ranges that clients hold during the whole run.
async fn probe(world: &World, random: &mut Random) -> Step {
    let peer = &world.peers[random.below(world.peers.len() as u64) as usize];
    let standing = peer.standing();
    let (offset, len) = standing[random.below(standing.len() as u64) as usize];
    let at = offset + random.below(len);
    is_refused(&world.prober.common, at, 1)
        .await
        .map_err(|error| format!("{at}, which client {} has locked: {error}", peer.number))
}
