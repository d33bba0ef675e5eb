//! A load that costs next to nothing: requests are encoded once, the data of replies is dropped by
//! the kernel, and some replies are kept and verified after the round. So the server, not the
//! client, limits the rate.

mod connection;
mod engine;
mod logon;
mod page;
mod requests;
mod shape;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::common::Common;
use crate::proc;
use crate::server::{self, Kind, Peer, Programs};
use crate::share;
use engine::{Engine, Measured};
use page::{Outcome, Page};
use shape::Shape;

/// Settings by which administrators make smbd faster for large files: data goes from file to socket
/// without a copy, and reads and writes are not handed to threads.
const TUNED: [&str; 5] = [
    "use sendfile = yes",
    "min receivefile size = 16384",
    "strict locking = no",
    "aio read size = 0",
    "aio write size = 0",
];

/// `frevo-bench load`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Parts of row names, separated by commas [default: all rows].
    #[arg(long)]
    rows: Option<String>,
    /// Interleaved rounds of each row and server.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a round in milliseconds.
    #[arg(long, default_value_t = 500)]
    round_ms: u64,
    /// Servers to measure: frevo, smbd, tuned (smbd with settings for speed).
    #[arg(long, value_delimiter = ',', default_value = "smbd,tuned,frevo")]
    only: Vec<String>,
}

/// Measures every row on every server in turns; returns the page.
pub(crate) async fn run(args: &Arguments) -> Result<String> {
    let rows = Shape::matching(args.rows.as_deref());
    ensure!(!rows.is_empty(), "no row has that name");
    let scratch = args.common.scratch()?;
    let share = share::prepare(scratch.path(), false)?;
    let peers = start(args, &share, scratch.path())?;
    let labels: Vec<String> = peers.iter().map(|peer| peer.label.clone()).collect();
    let mut page = Page::new(labels, setting(args, scratch.path()));
    let round = Duration::from_millis(args.round_ms);
    for row in rows {
        let outcomes = measure(&row, &peers, &share, (args.rounds, round)).await?;
        eprintln!("{} done", row.name());
        page.row(&row, &outcomes);
    }
    Ok(page.markdown())
}

fn start(args: &Arguments, share: &Path, scratch: &Path) -> Result<Vec<Peer>> {
    let programs = args.common.programs();
    let tuned = Programs {
        smbd_conf: TUNED.iter().map(|line| (*line).to_owned()).collect(),
        ..programs.clone()
    };
    args.only
        .iter()
        .map(|name| match name.as_str() {
            "frevo" => server::start(Kind::Frevo, "Frevo", share, scratch, &programs),
            "smbd" => server::start(Kind::Smbd, "smbd", share, scratch, &programs),
            "tuned" => server::start(Kind::Smbd, "tuned", share, scratch, &tuned),
            other => anyhow::bail!("{other} is no server; servers: frevo, smbd, tuned"),
        })
        .collect()
}

fn setting(args: &Arguments, scratch: &Path) -> Vec<String> {
    let mut lines = proc::machine(scratch);
    lines.push(format!("smbd {}", server::version(&args.common.smbd)));
    lines.push(format!("tuned: smbd with {}", TUNED.join(", ")));
    lines.push(server::version(&args.common.frevo));
    lines.push(format!("{} interleaved rounds of {} ms", args.rounds, args.round_ms));
    lines
}

/// Rounds of one row; the order of the servers reverses each time.
async fn measure(
    row: &Shape,
    peers: &[Peer],
    share: &Path,
    (rounds, round): (usize, Duration),
) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = peers.iter().map(|_| Outcome::default()).collect();
    for n in 0..rounds {
        let mut order: Vec<(&Peer, &mut Outcome)> = peers.iter().zip(&mut outcomes).collect();
        if n % 2 == 1 {
            order.reverse();
        }
        for (peer, outcome) in order {
            let measured = one_round(row, peer, share, round).await;
            let measured = measured.with_context(|| format!("{} on {}", row.name(), peer.label));
            outcome.add(&measured?)?;
        }
    }
    Ok(outcomes)
}

async fn one_round(row: &Shape, peer: &Peer, share: &Path, round: Duration) -> Result<Measured> {
    let mut engine = Engine::open(row, peer).await?;
    engine.run(peer.pid(), round / 4)?;
    let measured = engine.run(peer.pid(), round)?;
    engine.verify(share)?;
    Ok(measured)
}
