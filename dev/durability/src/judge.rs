//! Checks after each kill of the server.

use std::time::Duration;

use anyhow::{Result, bail};
use frevo_client::{LeaseState, OpenOptions, ShareMode, Status};
use tokio::time::{Instant, sleep, timeout};

use crate::load::is_refused;
use crate::machine::KEPT;
use crate::model::{Acknowledged, SPACING};
use crate::possible::Possible;
use crate::random::Random;
use crate::world::{ALL, COMMON, OPEN_LANES, Peer, SLOTS, World, log_on};

/// How long clients may take to reconnect and complete a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// The offset in a client's own file, after its slots, that other clients write to break the lease.
const NOBODYS: u64 = SLOTS as u64 * SPACING;

/// The changes that were acknowledged to a client until some moment.
pub(crate) struct Promised {
    own: Acknowledged,
    common: Acknowledged,
    passing: [Possible; OPEN_LANES],
}

/// Returns what has been acknowledged to each client.
pub(crate) fn promised(world: &World) -> Vec<Promised> {
    let of = |peer: &Peer| Promised {
        own: peer.own_slots.acknowledged(),
        common: peer.common_slots.acknowledged(),
        passing: peer.passing.each_ref().map(|possible| possible.lock().clone()),
    };
    world.peers.iter().map(|peer| of(peer)).collect()
}

/// Checks that the disk holds everything that was promised. What was promised must be taken before
/// the files are read or copied.
pub(crate) fn disk(world: &World, promised: &[Promised], when: &str) {
    let read = |name: &str| std::fs::read(world.files.join(name)).ok();
    let common = read(COMMON).unwrap_or_default();
    for (peer, Promised { own, common: in_common, passing }) in world.peers.iter().zip(promised) {
        for (lane, possible) in passing.iter().enumerate() {
            let name = peer.passing_name(lane);
            if let Err(what) = possible.judge(&read(&name)) {
                world.found(format!("{when}: {name}: {what}"));
            }
        }
        let name = peer.own_name();
        for what in peer.own_slots.judge(&read(&name).unwrap_or_default(), own) {
            world.found(format!("{when}: {name}: {what}"));
        }
        for what in peer.common_slots.judge(&common, in_common) {
            world.found(format!("{when}: {COMMON}: {what}"));
        }
        let doomed = peer.doomed_name();
        if peer.has_doomed() && !world.files.join(&doomed).exists() {
            world.found(format!("{when}: {doomed} went before it was closed"));
        }
    }
}

/// Tries to take handles as another client, right after the restart: the server must refuse it
/// everything that is kept for a client.
pub(crate) async fn intrude(world: &World) -> Result<()> {
    let (session, share) = log_on(world.address, KEPT, false).await?;
    let until = Instant::now() + PATIENCE;
    let options = OpenOptions::new().read(true).write(true);
    let file = loop {
        match options.open(&share, COMMON).await {
            Ok(file) => break file,
            Err(error) if error.status() == Some(Status::FILE_NOT_AVAILABLE) => {}
            Err(error) => bail!("{error}"),
        }
        if Instant::now() > until {
            bail!("{COMMON} is still in use");
        }
        sleep(Duration::from_millis(2)).await;
    };
    for peer in &world.peers {
        for (offset, len) in peer.standing() {
            if let Err(what) = is_refused(&file, offset, len).await {
                world.found(format!("a stranger, {offset} of client {}: {what}", peer.number));
            }
        }
    }
    file.close().await?;
    session.log_off().await;
    Ok(())
}

/// Checks locks, leases and delete-on-close while the load pauses.
pub(crate) async fn at_rest(world: &World, random: &mut Random) -> Result<()> {
    if world.shows_the_present {
        disk(world, &promised(world), "at rest");
    }
    for peer in &world.peers {
        locks(world, peer).await;
        lease(world, peer, random).await?;
        doomed(world, peer, random).await?;
    }
    Ok(())
}

async fn locks(world: &World, peer: &Peer) {
    let prober = &world.prober.common;
    for (offset, len) in peer.standing() {
        if let Err(what) = is_refused(prober, offset, len).await {
            world.found(format!("{offset} of client {}: {what}", peer.number));
        }
        match prober.write_all_at(b"!", offset).await {
            Err(error) if error.status() == Some(Status::FILE_LOCK_CONFLICT) => {}
            other => world.found(format!("a write where client {} locked: {other:?}", peer.number)),
        }
    }
}

/// Checks that the lease is unchanged. Then another client breaks a part of it; after the last part
/// the file is opened again.
async fn lease(world: &World, peer: &Peer, random: &mut Random) -> Result<()> {
    let own = peer.own.lock().clone();
    let name = peer.own_name();
    own.file.confirm().await?;
    if own.file.lease() != own.lease {
        world.found(format!("{name}: the lease is {:?}, was {:?}", own.file.lease(), own.lease));
    }
    if !random.one_in(2) {
        return Ok(());
    }
    if !own.lease.contains(LeaseState::READ) {
        own.file.close().await?;
        let own = peer.open_own().await?;
        if own.lease != ALL {
            world.found(format!("{name}: opened anew it has the lease {:?}", own.lease));
        }
        *peer.own.lock() = own;
        return Ok(());
    }
    let mut other = OpenOptions::new().read(true).lease(LeaseState::EMPTY);
    let takes_all = !own.lease.contains(LeaseState::WRITE);
    if takes_all {
        other = other.write(true);
    }
    let other = other.open(&world.prober.share, &name).await?;
    if takes_all {
        other.write_all_at(b"?", NOBODYS).await?;
    }
    other.close().await?;
    let taken = if takes_all { LeaseState::READ } else { LeaseState::WRITE };
    let broken = async {
        while own.file.lease().intersects(taken) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    if timeout(PATIENCE, broken).await.is_err() {
        world.found(format!("{name}: {taken:?} was not taken from {:?}", own.lease));
    }
    peer.own.lock().lease = own.file.lease();
    Ok(())
}

async fn doomed(world: &World, peer: &Peer, random: &mut Random) -> Result<()> {
    if !peer.has_doomed() || !random.one_in(2) {
        return Ok(());
    }
    let name = peer.doomed_name();
    let file = peer.doomed.lock().take();
    if let Some(file) = file {
        file.close().await?;
    }
    if peer.share.exists(&name).await? {
        world.found(format!("{name} is there after it was closed"));
    }
    let file = peer.open_doomed().await?;
    *peer.doomed.lock() = Some(file);
    Ok(())
}

/// Checks, after all clients have closed their files and the server was killed again, that nothing
/// is kept.
pub(crate) async fn nothing_is_left(world: &World) -> Result<()> {
    let (session, share) = log_on(world.address, KEPT, false).await?;
    let alone = OpenOptions::new().read(true).write(true).share_mode(ShareMode::EMPTY);
    for entry in share.list_dir("").await? {
        let name = entry.file_name().to_owned();
        if name.starts_with("doomed") {
            world.found(format!("{name} is there after it was closed"));
        }
        match alone.open(&share, &name).await {
            Ok(file) => file.close().await?,
            Err(error) => world.found(format!("at the end, somebody has {name} open: {error}")),
        }
    }
    session.log_off().await;
    Ok(())
}

/// Waits until each client has completed a request since `before`.
pub(crate) async fn recovered(world: &World, before: &[u64]) -> std::result::Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let now = progress(world);
        let stuck: Vec<_> =
            now.iter().zip(before).enumerate().filter(|(_, (now, before))| now <= before).collect();
        if stuck.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            let clients: Vec<_> = stuck.iter().map(|(at, _)| at).collect();
            return Err(format!("clients {clients:?} did not come back"));
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the acknowledged writes of each client.
pub(crate) fn progress(world: &World) -> Vec<u64> {
    let sum = |peer: &Peer| {
        let (own, common) = (peer.own_slots.acknowledged(), peer.common_slots.acknowledged());
        own.iter().chain(&common).sum()
    };
    world.peers.iter().map(|peer| sum(peer)).collect()
}
