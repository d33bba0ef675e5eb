//! `frevo-bench channels`: one client of Frevo, a session with 1 to 8 channels, plain, signed and
//! sealed, over links of 1 Gbit/s each and over the loopback without a limit.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::common::Common;
use crate::links::Links;
use crate::server::{self, Kind, Peer};
use crate::{proc, share};

/// Least part of four times the rate of one link that four links give.
const FOUR_LINKS: f64 = 3.6;
/// Least part of one channel's rate that four channels keep without a limit; less than 1 for noise.
const FOUR_LOCAL: f64 = 0.97;

/// `frevo-bench channels`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Counts of channels, separated by commas; each has as many links, at most --links.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    counts: Vec<usize>,
    /// Most links.
    #[arg(long, default_value_t = 4)]
    links: usize,
    /// Rate of each link, in the words of tc.
    #[arg(long, default_value = "1gbit")]
    rate: String,
    /// Settings: links, loopback.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Setting::Links, Setting::Loopback])]
    over: Vec<Setting>,
    /// Protections: plain, signed, sealed.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Guard::Plain, Guard::Signed, Guard::Sealed])]
    protections: Vec<Guard>,
    /// Rounds; the counts of channels take turns in each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a test in a round.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Requests of the client at the same time, 1 MiB each.
    #[arg(long, default_value_t = 16)]
    depth: u16,
    /// Write the Markdown here.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Exit with 1 unless four links give 3.6 times the rate of one, and four channels on the
    /// loopback as much as one.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Setting {
    /// A link for each channel, each with its rate.
    Links,
    /// The loopback, without a limit.
    Loopback,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Guard {
    Plain,
    Signed,
    Sealed,
}

impl Guard {
    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["--sign-when-asked"],
            Self::Signed => &[],
            Self::Sealed => &["--encrypt"],
        }
    }
}

/// The two tests of `frevo bench`.
const TESTS: [&str; 2] = ["read", "write"];

/// The figures of one count of channels.
#[derive(Debug, Default)]
struct Cell {
    /// Rates of reads and writes, bytes per second, a figure of each round.
    rates: [Vec<f64>; 2],
    /// Cores that were busy, of the whole machine.
    busy: Vec<f64>,
}

impl Cell {
    fn rate(&self, test: usize) -> f64 {
        middle(&self.rates[test])
    }
}

/// Measures and prints the tables; true if both promises are kept.
pub(crate) fn run(args: &Arguments) -> Result<bool> {
    ensure!((1..=16).contains(&args.links), "--links takes 1 to 16");
    ensure!(args.rounds > 0 && !args.counts.is_empty(), "there is nothing to measure");
    let scratch = args.common.scratch()?;
    let files = share::prepare(scratch.path(), false)?;
    let programs = args.common.programs();
    let peer =
        server::start_at("0.0.0.0", Kind::Frevo, "Frevo", &files, scratch.path(), &programs)?;
    let mut out = String::new();
    for line in proc::machine(scratch.path()) {
        writeln!(out, "- {line}")?;
    }
    writeln!(
        out,
        "- {}; {} rounds of {} s, {} requests of 1 MiB at a time; medians, load average {:.1} before\n",
        server::version(&programs.frevo),
        args.rounds,
        args.seconds,
        args.depth,
        proc::load()
    )?;
    let mut is_met = true;
    for setting in &args.over {
        heading(&mut out, args, *setting)?;
        for guard in &args.protections {
            let cells = measure(args, &peer, *setting, *guard)?;
            is_met &= rows(&mut out, *setting, *guard, &cells)?;
        }
        writeln!(out)?;
    }
    println!("{out}");
    if let Some(path) = &args.out {
        std::fs::write(path, &out)?;
    }
    Ok(is_met || !args.check)
}

fn heading(out: &mut String, args: &Arguments, setting: Setting) -> Result<()> {
    match setting {
        Setting::Links => {
            writeln!(out, "### Links of {} each, at most {}\n", args.rate, args.links)?;
        }
        Setting::Loopback => writeln!(out, "### Loopback without a limit\n")?,
    }
    writeln!(
        out,
        "| protection | channels | read MB/s | of one | write MB/s | of one | cores busy |"
    )?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|")?;
    Ok(())
}

/// Runs the rounds of one protection. Returns a cell for each count of channels.
fn measure(
    args: &Arguments,
    peer: &Peer,
    setting: Setting,
    guard: Guard,
) -> Result<Vec<(usize, Cell)>> {
    let mut cells: Vec<_> = args.counts.iter().map(|count| (*count, Cell::default())).collect();
    for _ in 0..args.rounds {
        for (count, cell) in &mut cells {
            // The client uses every link, so in this setting there are as many links as channels.
            let links = match setting {
                Setting::Links => Some(Links::new(&vec![&args.rate; (*count).min(args.links)])?),
                Setting::Loopback => None,
            };
            once(args, peer, links.as_ref(), guard, *count, cell)?;
        }
    }
    Ok(cells)
}

fn once(
    args: &Arguments,
    peer: &Peer,
    links: Option<&Links>,
    guard: Guard,
    count: usize,
    cell: &mut Cell,
) -> Result<()> {
    let frevo = &peer.programs.frevo;
    let (mut command, host) = match links {
        Some(links) => (links.command(frevo), links.address()?),
        None => (Command::new(frevo), "127.0.0.1"),
    };
    let port = peer.target.addr.rsplit(':').next().context("a port")?;
    let url = format!("smb://{}@{host}:{port}/share", peer.target.user);
    let (busy, began) = (proc::machine_cpu_seconds(), std::time::Instant::now());
    let done = command
        .args(["bench", &url, "--json", "--only", &TESTS.join(","), "--size", "64M"])
        .args(["--time", &args.seconds.to_string(), "--depth", &args.depth.to_string()])
        .args(["--channels", &count.to_string()])
        .args(guard.flags())
        .env("FREVO_PASSWORD", &peer.target.password)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting frevo bench")?;
    ensure!(done.status.success(), "frevo bench: {}", done.status);
    cell.busy.push((proc::machine_cpu_seconds() - busy) / began.elapsed().as_secs_f64());
    let text = String::from_utf8(done.stdout)?;
    let objects = objects(&text);
    let channels = objects.iter().find_map(|object| object["channels"].as_u64());
    ensure!(channels == u64::try_from(count).ok(), "{channels:?} channels, not {count}: {text}");
    for (test, rates) in TESTS.iter().zip(&mut cell.rates) {
        let row = objects.iter().find(|object| object["test"] == **test);
        let rate = row.and_then(|row| row["per_second"].as_f64());
        rates.push(rate.with_context(|| format!("no {test} in {text}"))?);
    }
    Ok(())
}

/// The objects of the output: one a line, some of which have a list of further ones.
fn objects(text: &str) -> Vec<Value> {
    let mut all: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let inner: Vec<Value> =
        all.iter().filter_map(|object| object["tests"].as_array()).flatten().cloned().collect();
    all.extend(inner);
    all
}

/// Writes the rows of one protection. Returns true if four channels keep their promise.
fn rows(out: &mut String, setting: Setting, guard: Guard, cells: &[(usize, Cell)]) -> Result<bool> {
    let one = cells.iter().find(|(count, _)| *count == 1).map(|(_, cell)| cell);
    let least = match setting {
        Setting::Links => FOUR_LINKS,
        Setting::Loopback => FOUR_LOCAL,
    };
    let mut is_met = true;
    for (count, cell) in cells {
        let name = format!("{guard:?}").to_lowercase();
        write!(out, "| {name} | {count} |")?;
        for test in 0..TESTS.len() {
            let ratio = one.map(|one| cell.rate(test) / one.rate(test));
            let ratio_text = ratio.map_or_else(|| String::from("-"), |ratio| format!("{ratio:.2}"));
            write!(out, " {:.0} | {ratio_text} |", cell.rate(test) / 1e6)?;
            is_met &= *count != 4 || ratio.is_none_or(|ratio| ratio >= least);
        }
        writeln!(out, " {:.1} |", middle(&cell.busy))?;
    }
    Ok(is_met)
}

fn middle(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(read: f64, write: f64) -> Cell {
        Cell { rates: [vec![read], vec![write]], busy: vec![1.0] }
    }

    #[test]
    fn four_links_must_give_more_than_three_and_a_half_times_one() {
        let judge = |setting, read| {
            let cells = [(1, cell(100.0, 100.0)), (4, cell(read, 400.0))];
            rows(&mut String::new(), setting, Guard::Plain, &cells).unwrap()
        };
        assert!(judge(Setting::Links, 361.0) && !judge(Setting::Links, 359.0));
        assert!(judge(Setting::Loopback, 98.0) && !judge(Setting::Loopback, 90.0));
    }

    #[test]
    fn results_are_found_beside_the_head_and_inside_it() {
        let text = "{\"channels\":2}\n{\"test\":\"read\",\"per_second\":5.0}\n";
        assert_eq!(objects(text)[1]["per_second"].as_f64(), Some(5.0));
        let text = "{\"channels\":2,\"tests\":[{\"test\":\"read\",\"per_second\":5.0}]}\n";
        assert_eq!(objects(text)[1]["test"], "read");
    }
}
