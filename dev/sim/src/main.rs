//! Runs seeds and says which of them found something.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use frevo_sim::{Kind, Outcome, Run, figures};
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
    /// Run clusters: nodes of one file system with a model of etcd.
    #[arg(long)]
    cluster: bool,
    /// Run clusters with this race.
    #[arg(long)]
    race: Option<Race>,
    /// Count what a large cluster asks of etcd, and print a table.
    #[arg(long)]
    figures: bool,
    /// With --figures: number of nodes.
    #[arg(long, default_value_t = 50)]
    nodes: usize,
    /// With --figures: number of shares.
    #[arg(long, default_value_t = 5_000)]
    shares: usize,
    /// With --figures: number of persistent handles.
    #[arg(long, default_value_t = 1_000_000)]
    handles: u64,
    /// With --figures: number of clients.
    #[arg(long, default_value_t = 100_000)]
    clients: u64,
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

/// A race that runs of clusters have on request.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Race {
    /// Nodes are upgraded one by one, and clients connect while the cluster's dialect is raised.
    Dialect,
}

impl Args {
    const fn kind(&self) -> Kind {
        match self.race {
            Some(Race::Dialect) => Kind::DialectRace,
            None if self.cluster => Kind::Cluster,
            None => Kind::Servers,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.figures {
        return count_requests(&args);
    }
    #[cfg(feature = "plant")]
    if let Some(name) = &args.plant {
        return planted(&args, name);
    }
    let (from, seeds) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let began = Instant::now();
    let kind = args.kind();
    let failed = search(&args, kind, from, seeds, &|| {});
    for outcome in &failed {
        report(kind, outcome);
    }
    let seconds = began.elapsed().as_secs_f64();
    // With --trace the list also contains runs without violations, which are not counted.
    let violated = failed.iter().filter(|outcome| !outcome.violations.is_empty()).count();
    println!("{seeds} seeds from {from}: {violated} with violations, {seconds:.1} s");
    if violated == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn count_requests(args: &Args) -> ExitCode {
    let &Args { nodes, shares, handles, clients, .. } = args;
    let began = Instant::now();
    match figures::run(figures::Size { nodes, shares, handles, clients }) {
        Ok(table) => {
            println!("{nodes} nodes, {shares} shares, {handles} handles, {clients} clients\n");
            println!("{table}\nmade in {:.1} s", began.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn report(kind: Kind, outcome: &Outcome) {
    for line in &outcome.lines {
        println!("{line}");
    }
    for violation in &outcome.violations {
        println!("seed {}: {violation}", outcome.seed);
    }
    if !outcome.violations.is_empty() {
        let (option, seed) = (kind.option(), outcome.seed);
        println!("to repeat: cargo run --release -p frevo-sim --{option} --seed {seed} --trace");
    }
}

/// Runs seeds on several threads; returns the runs with findings, by seed.
fn search(
    args: &Args,
    kind: Kind,
    from: u64,
    seeds: u64,
    prepare: &(dyn Fn() + Sync),
) -> Vec<Outcome> {
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
                    let outcome = Run { seed, trace: args.trace, kind }.run();
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

/// A fault that can be planted, and the runs that find it.
#[cfg(feature = "plant")]
struct Planting {
    fault: String,
    kind: Kind,
    plant: Box<dyn Fn() + Sync>,
}

#[cfg(feature = "plant")]
fn plantings() -> Vec<Planting> {
    use frevo_client::plant as client;
    use frevo_cluster::plant as machine;
    use frevo_cluster_node::plant as node;
    use frevo_server::plant as server;
    let planting =
        |fault: String, kind, plant: Box<dyn Fn() + Sync>| Planting { fault, kind, plant };
    let clients = client::Plant::ALL.into_iter().map(|fault| {
        let plant = Box::new(move || client::plant(Some(fault)));
        let kind = if fault.is_of_dialects() { Kind::DialectRace } else { Kind::Servers };
        planting(format!("{fault:?}"), kind, plant)
    });
    let servers = server::Plant::ALL.into_iter().map(|fault| {
        let kind = match fault {
            _ if fault.is_of_dialects() => Kind::DialectRace,
            _ if fault.is_of_cluster() => Kind::Cluster,
            _ => Kind::Servers,
        };
        planting(format!("{fault:?}"), kind, Box::new(move || server::plant(Some(fault))))
    });
    // Its own exploration finds the two others, which need more trouble with etcd than clusters have.
    let machines = [
        machine::Plant::ConfirmedByAnswer,
        machine::Plant::MarginLeftOut,
        machine::Plant::RecordWithoutComparison,
        machine::Plant::ServeBeforeFence,
        machine::Plant::WatchMissed,
    ];
    let machines = machines.into_iter().map(|fault| {
        let plant = Box::new(move || machine::plant(Some(fault)));
        planting(format!("{fault:?}"), Kind::Cluster, plant)
    });
    let nodes = node::Plant::ALL.into_iter().map(|fault| {
        let plant = Box::new(move || node::plant(Some(fault)));
        planting(format!("{fault:?}"), Kind::Cluster, plant)
    });
    clients.chain(servers).chain(machines).chain(nodes).collect()
}

#[cfg(feature = "plant")]
fn planted(args: &Args, name: &str) -> ExitCode {
    let is_chosen =
        |planting: &Planting| name == "all" || planting.fault.eq_ignore_ascii_case(name);
    let chosen: Vec<_> = plantings().into_iter().filter(is_chosen).collect();
    let mut all_found = !chosen.is_empty();
    for Planting { fault, kind, plant } in chosen {
        let known = known_seed(&fault).filter(|_| args.known);
        let mut found = known.map_or_else(Vec::new, |seed| search(args, kind, seed, 1, &*plant));
        found.retain(|outcome| !outcome.violations.is_empty());
        if found.is_empty() {
            found = search(args, kind, args.from, args.seeds, &*plant);
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
            found.iter().for_each(|outcome| report(kind, outcome));
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
