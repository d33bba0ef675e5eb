//! Kills the server under load, again and again: does what it promised hold?
//!
//! A share that is continuous promises that writes which are acknowledged as
//! stable are there after a crash, and that persistent handles go on with their
//! locks, leases and deletions. Eight clients use the library and do not know of
//! the crashes; this program kills `frevo serve` with SIGKILL, starts it again at
//! once with the state it left, and compares.
//!
//! What is not shown: a loss of power. What a process wrote outlives its end in
//! the page cache, synced or not.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod judge;
mod load;
mod model;
mod random;
mod server;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use random::Random;
use server::Server;
use world::World;

/// Kills the server under load and counts what its clients lost.
#[derive(Parser)]
struct Arguments {
    /// The program `frevo`.
    #[arg(long, default_value = "target/debug/frevo")]
    server: PathBuf,
    /// How often it is killed.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Decides what is done and when it is killed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let dir = tempfile::Builder::new().prefix("frevo-durability.").tempdir()?;
    let mut server = Server::new(&arguments.server, dir.path())?;
    let findings = match run(&arguments, &mut server).await {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("FOUND {error:#}");
            1
        }
    };
    if findings == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    drop(server);
    println!("{findings} found; files, state and log are in {}", dir.keep().display());
    Ok(ExitCode::FAILURE)
}

async fn run(arguments: &Arguments, server: &mut Server) -> Result<usize> {
    server.start()?;
    let world = Arc::new(World::new(server, arguments.clients).await?);
    let mut random = Random::new(arguments.seed, 0);
    let mut tasks = load::start(&world, arguments.seed);
    let began = Instant::now();
    for number in 1..=arguments.rounds {
        round(number, &world, server, &mut random).await?;
        if world.findings() > 0 {
            break;
        }
    }
    world.is_over.store(true, Ordering::Release);
    while let Some(task) = tasks.join_next().await {
        if let Err(error) = task {
            world.found(error.to_string());
        }
    }
    if world.findings() == 0 {
        world.leave().await?;
        block_in_place(|| server.kill().and_then(|()| server.start()))?;
        judge::nothing_is_left(&world, server.port).await?;
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &world.counts;
    println!(
        "seed {}: {} writes of {} bytes acknowledged, {} locks, {} opens in {:.1} s",
        arguments.seed,
        count(&counts.writes),
        count(&counts.bytes),
        count(&counts.locks),
        count(&counts.opens),
        began.elapsed().as_secs_f64(),
    );
    Ok(world.findings())
}

/// Load, SIGKILL, restart, recovery, and a look at everything.
async fn round(
    number: u32,
    world: &Arc<World>,
    server: &mut Server,
    random: &mut Random,
) -> Result<()> {
    let bytes = world.counts.bytes.load(Ordering::Relaxed);
    sleep(Duration::from_millis(100 + random.below(900))).await;
    block_in_place(|| server.kill())?;
    let killed = Instant::now();
    judge::disk(world, "killed");
    let before = judge::progress(world);
    block_in_place(|| server.start())?;
    let started = killed.elapsed();
    let stranger = judge::intrude(world, server.port);
    let (stranger, recovered) = tokio::join!(stranger, judge::recovered(world, &before));
    let back = killed.elapsed();
    stranger.context("a stranger")?;
    if let Err(what) = recovered {
        world.found(what);
    }
    let rest = timeout(Duration::from_secs(90), world.gate.write());
    let peace = rest.await.context("a step of the load does not end")?;
    judge::at_rest(world, random).await?;
    drop(peace);
    println!(
        "round {number}: {} bytes acknowledged, up after {} ms, all back after {} ms",
        world.counts.bytes.load(Ordering::Relaxed) - bytes,
        started.as_millis(),
        back.as_millis(),
    );
    Ok(())
}
