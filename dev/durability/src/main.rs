//! Kills the server under load, many times, and checks its promises after each restart.
//!
//! A continuously available share promises that acknowledged stable writes survive a crash, and
//! that persistent handles keep their locks, leases and dispositions. Eight clients use the library
//! and do not see the crashes; this program kills `frevo serve` with SIGKILL, restarts it at once
//! with the remaining state, and compares.
//!
//! A power failure is not tested: the page cache keeps the writes of a killed process, synced or
//! not.
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

/// Kills the server under load and counts the losses of its clients.
#[derive(Parser)]
struct Arguments {
    /// Path of the program `frevo` to test.
    #[arg(long, default_value = "target/debug/frevo")]
    server: PathBuf,
    /// Number of kills.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seed of all choices: what clients do, and when the server is killed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of clients.
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
            eprintln!("finding: {error:#}");
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

/// Runs one round: load, SIGKILL, restart, recovery, checks.
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
    stranger.context("another client after the restart")?;
    if let Err(what) = recovered {
        world.found(what);
    }
    let rest = timeout(Duration::from_secs(90), world.gate.write());
    let peace = rest.await.context("a step of the load did not end")?;
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
