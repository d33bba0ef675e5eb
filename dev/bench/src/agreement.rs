//! Compares the figures of `frevo bench` with this program's own, server by server: both do the
//! same operations, by different clients. Rounds of both take turns.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::{Client, Open, Protection, write_request};
use crate::common::Common;
use crate::quota::Quota;
use crate::rows::{Load, Row};
use crate::server::{self, Kind, Peer, Target};
use crate::{proc, share};

/// `frevo-bench agreement`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A server that runs already, instead of smbd and Frevo: its address with the port. Its share
    /// is called `share`.
    #[arg(long, requires_all = ["label", "user"])]
    at: Option<String>,
    /// The name of that server.
    #[arg(long)]
    label: Option<String>,
    /// The account there. $FREVO_PASSWORD has the password.
    #[arg(long)]
    user: Option<String>,
    /// Limit each server that is started here to this part of a core, percent, so that it is slower
    /// than both clients (needs root).
    #[arg(long, conflicts_with = "at", value_parser = clap::value_parser!(u32).range(1..=100))]
    server_cpu: Option<u32>,
    /// Rows to measure: read, write, stat, open-read [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Pairs of rounds.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Seconds of a round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Exit with 1 if a pair of figures differs by more than a tenth.
    #[arg(long)]
    check: bool,
}

/// A row of this program, and the same test of `frevo bench`.
#[derive(Clone, Copy)]
struct Same {
    row: Row,
    test: &'static str,
    clients: &'static str,
    /// Size of the large file, as that of the row.
    size: &'static str,
}

const ROWS: [Same; 4] = [
    Same { row: Row::Read(Protection::Signed), test: "read", clients: "1", size: "256M" },
    Same { row: Row::Write(Protection::Signed), test: "write", clients: "1", size: "64M" },
    Same { row: Row::Stat, test: "stat", clients: "1", size: "64M" },
    Same { row: Row::OpenReadClose, test: "open-read", clients: "8", size: "64M" },
];

/// Files that are looked up. They are made before the test, by a server that may have little
/// processor time.
const FILES: &str = "200";

/// The part by which figures may differ.
const MOST: f64 = 0.10;

/// Prints the table; true if all figures agree.
pub(crate) async fn run(args: &Arguments) -> Result<bool> {
    let scratch = args.common.scratch()?;
    let files = share::prepare(scratch.path(), false)?;
    let programs = args.common.programs();
    let mut out = String::new();
    for line in proc::machine(scratch.path()) {
        writeln!(out, "{line}.")?;
    }
    let (pairs, seconds) = (args.pairs, args.seconds);
    writeln!(out, "{pairs} pairs of rounds of {seconds} s; medians, and the middle half.")?;
    if let Some(percent) = args.server_cpu {
        writeln!(out, "Each server has {percent} % of a core.")?;
    }
    out.push('\n');
    writeln!(
        out,
        "| server | row | `frevo-bench` | `frevo bench` | ratio |\n|---|---|---|---|---|"
    )?;
    let mut agree = true;
    if let Some(address) = &args.at {
        agree &= measure(args, &running(args, address).await?, &files, &mut out).await?;
    } else {
        for (kind, label) in [(Kind::Smbd, "smbd"), (Kind::Frevo, "Frevo")] {
            // The group goes after its processes. With all of them in it, `_quota` is dropped last.
            let _quota;
            let peer = server::start(kind, label, &files, scratch.path(), &programs)?;
            _quota = args.server_cpu.map(|percent| Quota::of(peer.pid(), percent)).transpose()?;
            agree &= measure(args, &peer, &files, &mut out).await?;
        }
    }
    println!("{out}");
    Ok(agree || !args.check)
}

/// Measures all rows of one server, and adds them to the table; true if the figures agree.
async fn measure(args: &Arguments, peer: &Peer, files: &Path, out: &mut String) -> Result<bool> {
    let mut agree = true;
    for same in ROWS {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == same.test) {
            continue;
        }
        let row = same.row;
        let mut load = Load::open(row, peer, files).await?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first pair warms up.
        for pair in 0..=args.pairs {
            let round = load.round(peer, Duration::from_secs_f64(args.seconds)).await?;
            let told = told(peer, same, args.seconds)?;
            if pair > 0 {
                ours.push(round.count as f64 / round.seconds);
                theirs.push(told);
            }
        }
        load.finish().await?;
        let (own, told) = (middle(&mut ours), middle(&mut theirs));
        let ratio = told.1 / own.1;
        agree &= (ratio - 1.0).abs() <= MOST;
        let (label, title) = (&peer.label, row.title());
        let (own, told) = (shown(row, own), shown(row, told));
        writeln!(out, "| {label} | {title} | {own} | {told} | {ratio:.2} |")?;
    }
    Ok(agree)
}

/// The server that runs already, with the files that the rows need.
async fn running(args: &Arguments, address: &str) -> Result<Peer> {
    let password = std::env::var("FREVO_PASSWORD").context("FREVO_PASSWORD")?;
    let user = args.user.clone().context("--user")?;
    let target = Target { addr: address.to_owned(), user, password };
    let label = args.label.clone().context("--label")?;
    let client = Client::connect(&target, Protection::Signed).await?;
    let requests = client.requests();
    let files = [(share::READ_NAME, share::READ_BLOCKS), (share::WRITE_NAME, share::WRITE_BLOCKS)];
    for (name, blocks) in files {
        let file = requests.open(name, Open::Write).await?;
        for n in 0..blocks {
            let mut request = write_request(file, share::block(n, 0));
            request.offset = n * share::BLOCK_LEN as u64;
            requests.write(&request).await?;
        }
        requests.close(file).await?;
    }
    for n in 0..share::SMALL_FILES {
        let file = requests.open(&share::small_name(n), Open::Write).await?;
        let content = share::block(n, 1).get(..share::SMALL_LEN).map(<[u8]>::to_vec);
        requests.write(&write_request(file, content.context("a block")?)).await?;
        requests.close(file).await?;
    }
    client.logoff().await?;
    Ok(server::running(&label, target, args.common.programs()))
}

/// The rate that `frevo bench` tells of one test: bytes or operations a second.
fn told(peer: &Peer, same: Same, seconds: f64) -> Result<f64> {
    let target = &peer.target;
    let url = format!("smb://{}@{}/share", target.user, target.addr);
    let done = Command::new(&peer.programs.frevo)
        .args(["bench", &url, "--json", "--only", same.test, "--clients", same.clients])
        .args(["--connections", "1", "--time", &seconds.to_string()])
        .args(["--size", same.size, "--files", FILES])
        .env("FREVO_PASSWORD", &target.password)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting frevo")?;
    ensure!(done.status.success(), "frevo bench: {}", done.status);
    let text = String::from_utf8(done.stdout)?;
    let rates =
        text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let rate = |object: serde_json::Value| {
        let rows = object["tests"].as_array().cloned().unwrap_or_else(|| vec![object]);
        rows.into_iter().find(|row| row["test"] == same.test)?["per_second"].as_f64()
    };
    rates.into_iter().find_map(rate).with_context(|| format!("no {} in {text}", same.test))
}

/// The first quarter, the median and the third quarter.
fn middle(figures: &mut [f64]) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().saturating_sub(1);
    let at = |quarters: usize| figures.get(last * quarters / 4).copied().unwrap_or(0.0);
    (at(1), at(2), at(3))
}

fn shown(row: Row, (low, median, high): (f64, f64, f64)) -> String {
    match row {
        Row::Read(_) | Row::Write(_) => {
            format!("{:.0} MB/s ({:.0} to {:.0})", median / 1e6, low / 1e6, high / 1e6)
        }
        _ => format!("{median:.0}/s ({low:.0} to {high:.0})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_figures() {
        assert_eq!(middle(&mut [5.0, 1.0, 4.0, 2.0, 3.0]), (2.0, 3.0, 4.0));
        assert_eq!(middle(&mut [7.0]), (7.0, 7.0, 7.0));
    }
}
