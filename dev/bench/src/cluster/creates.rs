//! Creates of persistent handles: records in the embedded store and in etcd, in turns.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::bare::{self, Gateway};
use super::handles;
use super::link::Link;
use super::nodes::{Etcd, Site};
use super::options::{Arguments, GUID, PATIENCE, middle, milliseconds, percentile};
use crate::server::Peer;

/// Requests in flight in the second part.
const DEPTH: usize = 64;
/// Largest ratio of the times with one request in flight.
const MOST_TIMES: f64 = 2.0;
/// Least creates a second with [`DEPTH`] in flight.
const LEAST_RATE: f64 = 5_000.0;

/// The rounds of a row.
#[derive(Default)]
struct Samples {
    /// Times with one request in flight.
    times: Vec<Duration>,
    /// The rates of the rounds with many in flight.
    rates: Vec<f64>,
}

impl Samples {
    fn measure(&mut self, peer: &Peer, args: &Arguments) -> Result<()> {
        let mut link = Link::when_served(&peer.target, GUID, PATIENCE)?;
        // The first opens of a connection fill caches.
        let warm = handles::open(&mut link, DEPTH, DEPTH)?;
        handles::close(&mut link, &warm.ids, DEPTH)?;
        let one = handles::open(&mut link, args.single, 1)?;
        handles::close(&mut link, &one.ids, DEPTH)?;
        self.times.extend(&one.times);
        let many = handles::open(&mut link, args.creates, DEPTH)?;
        self.rates.push(args.creates as f64 / many.whole.as_secs_f64());
        handles::close(&mut link, &many.ids, DEPTH)
    }

    fn line(&mut self, what: &str) -> String {
        self.times.sort_unstable();
        let times = [50, 99].map(|percent| milliseconds(percentile(&self.times, percent)));
        let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        format!(
            "| {what} | {} | {} | {:.0} ({least:.0} to {most:.0}) |\n",
            times[0],
            times[1],
            middle(&self.rates)
        )
    }
}

/// Measures; returns a part of the page, and adds missed goals to `missed`.
pub(super) fn measure(
    args: &Arguments,
    site: &Site<'_>,
    missed: &mut Vec<String>,
) -> Result<String> {
    ensure!(args.creates >= args.single.max(DEPTH), "--creates is too small");
    handles::make_files(site.folder, args.creates)?;
    let etcd = Etcd::start(&args.etcd, site.scratch)?;
    let alone = site.alone("alone")?;
    let node = site.node("one", &etcd)?;
    let [mut embedded, mut clustered, mut bare] = <[Samples; 3]>::default();
    let mut ratios = Vec::new();
    let mut synced = Vec::new();
    for round in 0..args.rounds {
        let (had, has) = (embedded.times.len(), clustered.times.len());
        if round.is_multiple_of(2) {
            embedded.measure(&alone, args)?;
            clustered.measure(&node, args)?;
        } else {
            clustered.measure(&node, args)?;
            embedded.measure(&alone, args)?;
        }
        let sum = |samples: &Samples, from: usize| {
            samples.times.iter().skip(from).map(Duration::as_secs_f64).sum::<f64>()
        };
        ratios.push(sum(&clustered, has) / sum(&embedded, had));
        let mut gateway = Gateway::connect(&etcd.address)?;
        bare.times.extend(gateway.commit(args.single, 1)?);
        let rounds = args.creates.div_ceil(DEPTH);
        let whole: Duration = gateway.commit(rounds, DEPTH)?.iter().sum();
        bare.rates.push((rounds * DEPTH) as f64 / whole.as_secs_f64());
        synced.extend(bare::syncs(site.scratch, args.single)?);
    }
    let (ratio, rate) = (middle(&ratios), middle(&clustered.rates));
    if ratio > MOST_TIMES {
        missed.push(format!("a create with etcd takes {ratio:.2} times that of the store"));
    }
    if rate < LEAST_RATE {
        missed.push(format!("{rate:.0} creates a second with etcd, {DEPTH} in flight"));
    }
    synced.sort_unstable();
    let mut page = format!(
        "## Creates of persistent handles\n\n\
         `--parts creates`: {} rounds of {} creates one at a time and {} with {DEPTH} in flight, each of a file \
         of its own with a lease, by one client.\n\n\
         | records | one at a time, p50 ms | p99 ms | {DEPTH} in flight, creates/s |\n|---|---|---|---|\n",
        args.rounds, args.single, args.creates
    );
    page.push_str(&embedded.line("embedded store"));
    page.push_str(&clustered.line("etcd"));
    page.push_str(&bare.line(&format!("etcd, bare: 1 and {DEPTH} records a transaction")));
    writeln!(
        page,
        "\nOne at a time, a create with etcd takes {ratio:.2} times that with the store ({}). \
         A write of 4 KiB and fdatasync: p50 {} ms, p99 {} ms.\n",
        ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", "),
        milliseconds(percentile(&synced, 50)),
        milliseconds(percentile(&synced, 99)),
    )?;
    Ok(page)
}
