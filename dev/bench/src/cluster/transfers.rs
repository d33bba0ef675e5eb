//! Reads and writes of a share that is a cluster's, beside those of one that is not.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;

use super::link::Link;
use super::nodes::{Etcd, Site};
use super::options::{Arguments, GUID, PATIENCE, middle};
use crate::proc;
use crate::rows::{Row, Unit};
use crate::server::Peer;
use crate::share::BLOCK_LEN;
use crate::table::warmed;

/// The largest ratio of the processor time of an operation.
const MOST_TIMES: f64 = 1.02;
/// The time for which servers without clients are looked at.
const IDLE: Duration = Duration::from_secs(5);

/// Measures; returns a part of the page, and adds missed goals to `missed`.
pub(super) async fn measure(
    args: &Arguments,
    site: &Site<'_>,
    missed: &mut Vec<String>,
) -> Result<String> {
    let etcd = Etcd::start(&args.etcd, site.scratch)?;
    let alone = site.alone("plain")?;
    let node = site.node("shared", &etcd)?;
    let target = node.target.clone();
    tokio::task::spawn_blocking(move || Link::when_served(&target, GUID, PATIENCE)).await??;
    let mut page = format!(
        "## Reads and writes\n\n\
         `--parts transfers`: processor time of the server, all of its threads and processes, for an operation; \
         {} pairs of {} ms in turns.\n\n\
         | operation | without a cluster, µs | in a cluster, µs | ratio of pairs: middle | quarter, three quarters |\n\
         |---|---|---|---|---|\n",
        args.pairs, args.round_ms
    );
    for row in Row::matching(Some(&args.rows)) {
        let [mut without, mut within, mut ratios] = <[Vec<f64>; 3]>::default();
        for pair in 0..args.pairs {
            let [one, other] = if pair.is_multiple_of(2) {
                let first = cost(row, &alone, args).await?;
                [first, cost(row, &node, args).await?]
            } else {
                let first = cost(row, &node, args).await?;
                [cost(row, &alone, args).await?, first]
            };
            without.push(one);
            within.push(other);
            ratios.push(other / one);
        }
        let ratio = middle(&ratios);
        if ratio > MOST_TIMES {
            missed.push(format!("{} takes {ratio:.3} times the processor time", row.title()));
        }
        ratios.sort_by(f64::total_cmp);
        let at = |part: usize| ratios.get(ratios.len() * part / 4).copied().unwrap_or_default();
        writeln!(
            page,
            "| {} | {:.1} | {:.1} | {ratio:.3} | {:.3}, {:.3} |",
            row.title(),
            middle(&without),
            middle(&within),
            at(1),
            at(3)
        )?;
    }
    let [alone, node] = [idle(&alone).await, idle(&node).await];
    writeln!(
        page,
        "\nWithout clients, a server spends {alone:.2} ms of processor time in a second, and a node of a cluster \
         {node:.2} ms: it asks etcd each half second. The operations of the table have their part of that.\n"
    )?;
    Ok(page)
}

/// Milliseconds of the processor time of a second without clients.
async fn idle(peer: &Peer) -> f64 {
    let before = proc::thread_seconds(peer.pid());
    tokio::time::sleep(IDLE).await;
    (proc::thread_seconds(peer.pid()) - before) * 1e3 / IDLE.as_secs_f64()
}

/// Microseconds of the server's processor time for an operation.
async fn cost(row: Row, peer: &Peer, args: &Arguments) -> Result<f64> {
    let time = Duration::from_millis(args.round_ms);
    let mut load = warmed(row, peer, &peer.share, time.mul_f64(0.2)).await?;
    let before = proc::thread_seconds(peer.pid());
    let round = load.round(peer, time).await?;
    let spent = proc::thread_seconds(peer.pid()) - before;
    load.finish().await?;
    let operations = match row.unit() {
        Unit::Bytes => round.count as f64 / BLOCK_LEN as f64,
        _ => round.count as f64,
    };
    Ok(spent * 1e6 / operations)
}
