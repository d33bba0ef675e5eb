//! Runs seeds and says which of them found something.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use frevo_sim::{Outcome, Run};
use parking_lot::Mutex;

/// Runs the client against the server with faults chosen by a seed.
#[derive(Debug, Parser)]
#[command(name = "frevo-sim")]
struct Args {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Number of threads; each seed runs on one.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Continue after a violation.
    #[arg(long)]
    keep_going: bool,
    /// Plant this fault in client or server, or each in turn (`all`); fail unless it is found.
    #[cfg(feature = "plant")]
    #[arg(long)]
    plant: Option<String>,
    /// With --plant: try the seed that found the fault last (dev/sim/plants.tsv) before the others.
    #[cfg(feature = "plant")]
    #[arg(long)]
    known: bool,
    /// With --plant: print a row of dev/sim/plants.tsv for each fault.
    #[cfg(feature = "plant")]
    #[arg(long)]
    table: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    #[cfg(feature = "plant")]
    if let Some(name) = &args.plant {
        return planted(&args, name);
    }
    let (from, seeds) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let began = Instant::now();
    let failed = search(&args, from, seeds, &|| {});
    for outcome in &failed {
        report(outcome);
    }
    let seconds = began.elapsed().as_secs_f64();
    // With --trace the list also contains runs without violations, which are not counted.
    let violated = failed.iter().filter(|outcome| !outcome.violations.is_empty()).count();
    println!("{seeds} seeds from {from}: {violated} with violations, {seconds:.1} s");
    if violated == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(outcome: &Outcome) {
    for line in &outcome.lines {
        println!("{line}");
    }
    for violation in &outcome.violations {
        println!("seed {}: {violation}", outcome.seed);
    }
    if !outcome.violations.is_empty() {
        println!("to repeat: cargo run --release -p frevo-sim -- --seed {} --trace", outcome.seed);
    }
}

/// Runs seeds on several threads; returns the runs with findings, by seed.
fn search(args: &Args, from: u64, seeds: u64, prepare: &(dyn Fn() + Sync)) -> Vec<Outcome> {
    let next = AtomicU64::new(from);
    let stop = AtomicBool::new(false);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.clamp(1, 64) {
            scope.spawn(|| {
                prepare();
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    let outcome = Run { seed, trace: args.trace }.run();
                    let is_found = !outcome.violations.is_empty();
                    if is_found || (args.trace && seeds == 1) {
                        failed.lock().push(outcome);
                    }
                    if is_found && !args.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner();
    failed.sort_by_key(|outcome| outcome.seed);
    failed
}

#[cfg(feature = "plant")]
fn planted(args: &Args, name: &str) -> ExitCode {
    use frevo_client::plant as client;
    use frevo_server::plant as server;
    type Planting = Box<dyn Fn() + Sync>;
    let clients = client::Plant::ALL.into_iter().map(|fault| -> (String, Planting) {
        (format!("{fault:?}"), Box::new(move || client::plant(Some(fault))))
    });
    let servers = server::Plant::ALL.into_iter().map(|fault| -> (String, Planting) {
        (format!("{fault:?}"), Box::new(move || server::plant(Some(fault))))
    });
    let chosen: Vec<_> = clients
        .chain(servers)
        .filter(|(fault, _)| name == "all" || fault.eq_ignore_ascii_case(name))
        .collect();
    let mut all_found = !chosen.is_empty();
    for (fault, plant) in chosen {
        let known = known_seed(&fault).filter(|_| args.known);
        let mut found = known.map_or_else(Vec::new, |seed| search(args, seed, 1, &*plant));
        found.retain(|outcome| !outcome.violations.is_empty());
        if found.is_empty() {
            found = search(args, args.from, args.seeds, &*plant);
        }
        if let Some(outcome) = found.iter().find(|outcome| !outcome.violations.is_empty()) {
            let what = outcome.violations.first().map_or("", String::as_str);
            if args.table {
                println!("{fault}\t{}\t{what}", outcome.seed);
            } else {
                println!("{fault}: found with seed {}: {what}", outcome.seed);
            }
        } else {
            println!("{fault}: not found in {} seeds from {}", args.seeds, args.from);
            all_found = false;
        }
        if args.trace {
            found.iter().for_each(report);
        }
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first seed that found a planted fault.
#[cfg(feature = "plant")]
fn known_seed(fault: &str) -> Option<u64> {
    let rows = include_str!("../plants.tsv").lines().map(|row| row.split('\t'));
    let mut rows = rows.map(|mut cells| (cells.next(), cells.next()));
    rows.find(|(name, _)| *name == Some(fault)).and_then(|(_, seed)| seed?.parse().ok())
}
