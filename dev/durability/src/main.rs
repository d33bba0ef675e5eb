//! Makes the server fail under load, many times, and checks its promises after each restart.
//!
//! A continuously available share promises that acknowledged changes survive a crash, and
//! that persistent handles keep their locks, leases and dispositions. Eight clients use the library
//! and do not see the crashes. Two more make, rename, write and remove files, on a continuously
//! available share, and on another one with FLUSH and FILE_WRITE_THROUGH.
//!
//! Without `--power` this program kills `frevo serve` with SIGKILL, restarts it at once with the
//! remaining state, and compares: the page cache keeps the writes of a killed process, synced or
//! not. With `--power` the server runs in a guest kernel, on a disk with a volatile cache that this
//! program serves over NBD. A power cut ends the guest, and takes a random part of the writes that
//! the disk had not been told to flush. The guest boots, mounts the disk and starts the server.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod forgetful;
mod guest;
mod judge;
mod load;
mod machine;
mod model;
mod names;
mod nbd;
mod possible;
mod random;
mod server;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use forgetful::Flushes;
use guest::{FileSystem, Guest};
use machine::Machine;
use random::Random;
use server::Server;
use world::World;

/// Makes the server fail under load and counts the losses of its clients.
#[derive(Parser)]
struct Arguments {
    /// Path of the program `frevo` to test.
    #[arg(long, default_value = "target/debug/frevo")]
    server: PathBuf,
    /// Number of failures.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seed of all choices: what clients do, and when it fails and what the disk loses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of clients.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Cut the power of a guest kernel instead, whose disk has this file system. Needs
    /// dev/interop/with-netns.
    #[arg(long, value_name = "FILE_SYSTEM")]
    power: Option<FileSystem>,
    /// The guest's kernel; default: Debian's.
    #[arg(long, requires = "power")]
    kernel: Option<PathBuf>,
    /// Let the disk ignore FLUSH and FUA: the run must find losses, and succeeds if it does.
    #[arg(long, requires = "power")]
    faulty_disk: bool,
}

impl Arguments {
    fn machine(&self, dir: &Path) -> Result<Machine> {
        let Some(fs) = self.power else {
            return Ok(Machine::Process(Server::new(&self.server, dir)?));
        };
        let flushes = if self.faulty_disk { Flushes::Ignored } else { Flushes::Honoured };
        let guest = Guest::new(&self.server, self.kernel.clone(), dir, fs, flushes)?;
        Ok(Machine::Guest(Box::new(guest)))
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let dir = tempfile::Builder::new().prefix("frevo-durability.").tempdir()?;
    let mut machine = arguments.machine(dir.path())?;
    let findings = match run(&arguments, &mut machine).await {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("finding: {error:#}");
            1
        }
    };
    drop(machine);
    if arguments.faulty_disk {
        println!("{findings} found on a disk that ignores FLUSH");
        return Ok(if findings > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if findings == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{findings} found; files, state and log are in {}", dir.keep().display());
    Ok(ExitCode::FAILURE)
}

async fn run(arguments: &Arguments, machine: &mut Machine) -> Result<usize> {
    block_in_place(|| machine.start())?;
    let world = Arc::new(World::new(machine, arguments.clients).await?);
    let mut random = Random::new(arguments.seed, 0);
    let mut tasks = load::start(&world, arguments.seed);
    let began = Instant::now();
    for number in 1..=arguments.rounds {
        round(number, &world, machine, &mut random).await?;
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
        block_in_place(|| machine.fail(&mut random).and_then(|_| machine.start()))?;
        judge::nothing_is_left(&world).await?;
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &world.counts;
    println!(
        "seed {}: {} writes of {} bytes acknowledged, {} locks, {} opens, {} names in {:.1} s",
        arguments.seed,
        count(&counts.writes),
        count(&counts.bytes),
        count(&counts.locks),
        count(&counts.opens),
        count(&counts.names),
        began.elapsed().as_secs_f64(),
    );
    Ok(world.findings())
}

/// Runs one round: load, failure, restart, recovery, checks.
async fn round(
    number: u32,
    world: &Arc<World>,
    machine: &mut Machine,
    random: &mut Random,
) -> Result<()> {
    let bytes = world.counts.bytes.load(Ordering::Relaxed);
    // A guest is slow, so it gets more time before its next failure.
    let least = if world.shows_the_present { 100 } else { 500 };
    sleep(Duration::from_millis(least + random.below(9 * least))).await;
    world.begin_period();
    let what = block_in_place(|| machine.fail(random))?;
    let failed = Instant::now();
    let promised = judge::promised(world);
    let before = judge::progress(world);
    if world.shows_the_present {
        judge::disk(world, &promised, "killed");
    }
    block_in_place(|| machine.start())?;
    world.begin_period();
    let started = failed.elapsed();
    if !world.shows_the_present {
        judge::disk(world, &promised, "after the power cut");
        if world.findings() > 0 {
            println!("round {number}: {what}");
            return Ok(());
        }
    }
    let stranger = judge::intrude(world);
    let (stranger, recovered) = tokio::join!(stranger, judge::recovered(world, &before));
    let back = failed.elapsed();
    stranger.context("another client after the restart")?;
    if let Err(what) = recovered {
        world.found(what);
    }
    let rest = timeout(Duration::from_secs(90), world.gate.write());
    let peace = rest.await.context("a step of the load did not end")?;
    judge::at_rest(world, random).await?;
    drop(peace);
    println!(
        "round {number}: {} bytes acknowledged; {what}; up after {} ms, all back after {} ms",
        world.counts.bytes.load(Ordering::Relaxed) - bytes,
        started.as_millis(),
        back.as_millis(),
    );
    Ok(())
}
