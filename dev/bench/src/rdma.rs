//! `frevo-bench rdma`: Frevo beside ksmbd over SMB Direct, in one guest with a soft RDMA device.
//!
//! A guest has one processor, which server, client and the kernel's driver share. So a rate shows
//! what all of them cost together; the client is the same for both servers.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{proc, server};

/// Scripts of dev/interop.
const INTEROP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../interop");
/// Ticks of the guest's processor times in a second.
const TICKS: f64 = 100.0;

/// `frevo-bench rdma`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program, with the feature rdma.
    #[arg(long)]
    frevo: PathBuf,
    /// A kernel with ksmbd and soft RDMA, as dev/interop/kernel/build makes it.
    #[arg(long)]
    kernel: PathBuf,
    /// The directory of ksmbd-tools beside that kernel.
    #[arg(long)]
    tools: PathBuf,
    /// The soft RDMA device.
    #[arg(long, value_enum, default_value = "rxe")]
    transport: Transport,
    /// Rounds; the servers take turns in each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a test in a round.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Most minutes for all of it.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Write the Markdown here.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Transport {
    /// RoCE.
    Rxe,
    /// iWARP.
    Siw,
}

/// The server, and how its client lends memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Ksmbd,
    Frevo,
    /// Frevo, whose client lends its memory through windows.
    Windows,
    /// Frevo with `run_as = "user"`.
    User,
}

/// One test of a round.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    who: Who,
    test: String,
    block: String,
    depth: u32,
    seconds: f64,
    operations: f64,
    /// Median latency, seconds.
    latency: f64,
    /// Processor time, seconds: the client's, nobody's, and Frevo's own.
    client: f64,
    idle: f64,
    own: f64,
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let [who, test, block, depth, seconds, operations, latency, client, idle, own] =
            *line.split_whitespace().collect::<Vec<_>>()
        else {
            return None;
        };
        let number = |text: &str| text.parse::<f64>().ok();
        Some(Self {
            who: match who {
                "frevo" => Who::Frevo,
                "windows" => Who::Windows,
                "user" => Who::User,
                "ksmbd" => Who::Ksmbd,
                // Lines of other programs, such as those of the run under strace, do not count.
                _ => return None,
            },
            test: test.to_owned(),
            block: block.to_owned(),
            depth: depth.parse().ok()?,
            seconds: number(seconds)?,
            operations: number(operations)?,
            latency: number(latency)? / 1e9,
            client: number(client)?,
            idle: number(idle)? / TICKS,
            own: number(own)? / TICKS,
        })
    }

    fn is_of(&self, key: &Key<'_>) -> bool {
        (self.test.as_str(), self.block.as_str(), self.depth) == *key
    }

    fn rate(&self) -> f64 {
        self.operations / self.seconds.max(1e-9)
    }

    /// Processor time of all but the client for one operation, seconds.
    fn rest(&self) -> f64 {
        (self.seconds - self.idle - self.client).max(0.0) / self.operations.max(1.0)
    }
}

/// Test, size of a request and requests at the same time.
type Key<'a> = (&'a str, &'a str, u32);

/// Runs the guest and prints the page.
pub(crate) fn run(args: &Arguments) -> Result<()> {
    // The guest has a /dev/shm of its own, so this folder, which the guest must see, must not be
    // there.
    let room = tempfile::Builder::new().prefix("frevo-bench-rdma-").tempdir()?;
    let report = room.path().join("report");
    let transport = format!("{:?}", args.transport).to_lowercase();
    let absolute = |path: &Path| {
        std::fs::canonicalize(path).with_context(|| format!("finding {}", path.display()))
    };
    let frevo = absolute(&args.frevo)?;
    let done = Command::new(format!("{INTEROP}/with-netns"))
        .args([&format!("{INTEROP}/linux-client"), "-M", "-k"])
        .arg(absolute(&args.kernel)?)
        .args(["-m", "2048M", "-t", &(args.minutes * 60).to_string(), "--"])
        .args([&format!("{INTEROP}/guest-rdma-bench"), &transport])
        .args([&report, &frevo, &absolute(&args.tools)?])
        .args([args.rounds.to_string(), args.seconds.to_string()])
        .status()
        .context("starting a guest")?;
    let errors = std::fs::read_to_string(room.path().join("report.errors")).unwrap_or_default();
    ensure!(done.success(), "the guest: {done}\n{errors}");
    let text = std::fs::read_to_string(&report).context("the guest has measured nothing")?;
    let mut out = String::new();
    for line in proc::machine(room.path()) {
        writeln!(out, "- {line}")?;
    }
    writeln!(
        out,
        "- {}; a guest with one processor and {}, {transport}; {} rounds of {} s; load average {:.1} after",
        server::version(&frevo),
        args.kernel.file_name().unwrap_or_default().display(),
        args.rounds,
        args.seconds,
        proc::load()
    )?;
    page(&mut out, &text)?;
    if !errors.trim().is_empty() {
        writeln!(out, "\nErrors:\n\n```\n{}\n```", errors.trim())?;
    }
    println!("{out}");
    if let Some(path) = &args.out {
        std::fs::write(path, &out)?;
    }
    Ok(())
}

fn page(out: &mut String, text: &str) -> Result<()> {
    let samples: Vec<Sample> = text.lines().filter_map(Sample::parse).collect();
    ensure!(!samples.is_empty(), "the guest has measured nothing");
    writeln!(
        out,
        "\n| test | bytes | depth | Frevo/s | ksmbd/s | ratio (each round) | p50 ms F | p50 ms k | rest us F | rest us k | ratio | own us F | client us F | windows/F (each round) | user/F (each round) |"
    )?;
    writeln!(out, "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---|---|")?;
    let mut keys: Vec<Key<'_>> = Vec::new();
    for sample in &samples {
        let key = (sample.test.as_str(), sample.block.as_str(), sample.depth);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.sort_by_key(|(test, ..)| *test);
    keys.iter().try_for_each(|key| row(out, key, &samples))?;
    calls(out, text)
}

fn row(out: &mut String, key: &Key<'_>, samples: &[Sample]) -> Result<()> {
    let of = |who| samples.iter().filter(move |sample| sample.is_of(key) && sample.who == who);
    let figure = |who, figure: fn(&Sample) -> f64| middle(of(who).map(figure).collect());
    let ratios = |one, other| {
        let pairs = of(one).zip(of(other));
        let ratio = |(one, other): (&Sample, &Sample)| format!("{:.2}", one.rate() / other.rate());
        pairs.map(ratio).collect::<Vec<_>>().join(" ")
    };
    let rest = figure(Who::Frevo, Sample::rest);
    let their_rest = figure(Who::Ksmbd, Sample::rest);
    let each = |part: fn(&Sample) -> f64| figure(Who::Frevo, part) * 1e6;
    writeln!(
        out,
        "| {} | {} | {} | {:.0} | {:.0} | {} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} | {} | {} |",
        key.0,
        key.1,
        key.2,
        figure(Who::Frevo, Sample::rate),
        figure(Who::Ksmbd, Sample::rate),
        ratios(Who::Frevo, Who::Ksmbd),
        figure(Who::Frevo, |one| one.latency * 1e3),
        figure(Who::Ksmbd, |one| one.latency * 1e3),
        rest * 1e6,
        their_rest * 1e6,
        rest / their_rest.max(1e-9),
        each(|one| one.own / one.operations.max(1.0)),
        each(|one| one.client / one.operations.max(1.0)),
        ratios(Who::Windows, Who::Frevo),
        ratios(Who::User, Who::Frevo),
    )?;
    Ok(())
}

/// System calls of Frevo for an operation: one row for each test, and the calls as columns.
fn calls(out: &mut String, text: &str) -> Result<()> {
    let mut tests: Vec<(String, HashMap<&str, f64>)> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines() {
        let ["calls", who, test, block, operations, name, count] =
            *line.split_whitespace().collect::<Vec<_>>()
        else {
            continue;
        };
        let (operations, count): (f64, f64) = (operations.parse()?, count.parse()?);
        let each = count / operations;
        let test = format!("{who} | {test} of {block}");
        if tests.last().is_none_or(|(last, _)| *last != test) {
            tests.push((test, HashMap::new()));
        }
        if let Some((_, of)) = tests.last_mut() {
            of.insert(name, each);
        }
        if each >= 0.1 && !names.contains(&name) {
            names.push(name);
        }
    }
    if tests.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nSystem calls for one request, depth 16; those of fewer than one in ten are left out:\n"
    )?;
    writeln!(out, "| server | test | {} |", names.join(" | "))?;
    writeln!(out, "|---|---|{}", "---:|".repeat(names.len()))?;
    for (test, of) in &tests {
        let row = names.iter().map(|name| format!("{:.2}", of.get(name).unwrap_or(&0.0)));
        writeln!(out, "| {test} | {} |", row.collect::<Vec<_>>().join(" | "))?;
    }
    Ok(())
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_are_in_one_row() {
        let text = "ksmbd read 8k 16 2.0 1000 500000 0.5 0 0\n\
                    frevo read 8k 16 2.0 2000 250000 0.5 20 30\n\
                    windows read 8k 16 2.0 2500 250000 0.5 20 30\n\
                    user read 8k 16 2.0 1800 250000 0.5 20 30\n\
                    traced read 8k 16 2.0 200 900000 0.5 20 30\n\
                    calls frevo read 8k 2000 ioctl 4000\ncalls frevo read 8k 2000 brk 1\n\
                    calls user read 8k 1000 write 500\ncalls user read 8k 1000 ioctl 1000\n";
        let mut out = String::new();
        page(&mut out, text).unwrap();
        let row = out.lines().find(|line| line.starts_with("| read")).unwrap();
        // The microseconds for each request are 1500 for ksmbd (2 s minus the client's 0.5 s, for
        // 1,000 requests) and 650 for Frevo (2 s minus 0.2 s and 0.5 s, for 2,000).
        assert!(
            row.contains(
                "| 1000 | 500 | 2.00 | 0.25 | 0.50 | 650 | 1500 | 0.43 | 150 | 250 | 1.25 | 0.90 |"
            ),
            "{row}"
        );
        assert!(out.contains("| server | test | ioctl | write |") && !out.contains("brk"), "{out}");
        assert!(out.contains("| frevo | read of 8k | 2.00 | 0.00 |"), "{out}");
        assert!(out.contains("| user | read of 8k | 1.00 | 0.50 |"), "{out}");
        assert!(page(&mut String::new(), "").is_err());
    }
}
