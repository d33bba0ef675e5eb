//! Resident memory of an idle authenticated connection.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::client::{Client, Protection};
use crate::common::Common;
use crate::proc::{self, Resident};
use crate::server::{self, Kind, Peer};
use crate::share;

/// Connections being made at a time.
const CONNECTING: usize = 8;
/// Between the last tree connect and the reading.
const SETTLE: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Memory {
    pub(crate) connections: u64,
    pub(crate) before: Resident,
    pub(crate) after: Resident,
    pub(crate) wire: String,
}

impl Memory {
    fn per_connection(&self, before: u64, after: u64) -> f64 {
        (after as f64 - before as f64) / self.connections.max(1) as f64
    }

    /// Growth of what the machine really spends, KiB a connection.
    pub(crate) fn pss_kib(&self) -> f64 {
        self.per_connection(self.before.pss_kib, self.after.pss_kib)
    }

    /// Growth of the processes' resident pages, KiB a connection.
    pub(crate) fn rss_kib(&self) -> f64 {
        self.per_connection(self.before.rss_kib, self.after.rss_kib)
    }
}

/// `frevo-bench idle`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Connections that come, and leave; 4,096 are one account's by default.
    #[arg(long, default_value_t = 4_000)]
    connections: usize,
    /// Times that they come.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Seconds after the connections have left at which memory is looked at.
const LOOKS: [u64; 4] = [1, 2, 5, 10];

/// Measures Frevo's resident memory while connections are idle, and after they have left; returns the
/// page.
pub(crate) async fn idle(args: &Arguments) -> Result<String> {
    let scratch = args.common.scratch()?;
    let share = share::prepare(scratch.path(), false)?;
    let programs = args.common.programs();
    let peer = server::start(Kind::Frevo, "idle", &share, scratch.path(), &programs)?;
    let mut page = String::from("# Memory of idle connections, and after they have left\n\n");
    for line in proc::machine(scratch.path()) {
        writeln!(page, "- {line}")?;
    }
    writeln!(
        page,
        "- {}, {} connections\n",
        server::version(&args.common.frevo),
        args.connections
    )?;
    let heads = LOOKS.map(|seconds| format!("after {seconds} s"));
    writeln!(page, "| time | before, KiB | KiB each | {} | of before |", heads.join(" | "))?;
    writeln!(page, "|---|---|---|{}---|", "---|".repeat(LOOKS.len()))?;
    for round in 1..=args.rounds {
        let before = settled(&peer).await?;
        let held = hold(&peer, args.connections).await?;
        tokio::time::sleep(SETTLE).await;
        let during = proc::resident(peer.pid());
        let each = (during.pss_kib as f64 - before.pss_kib as f64) / args.connections as f64;
        drop(held);
        let left = Instant::now();
        write!(page, "| {round} | {} | {each:.1} |", before.pss_kib)?;
        let mut last = before.pss_kib;
        for seconds in LOOKS {
            tokio::time::sleep_until((left + Duration::from_secs(seconds)).into()).await;
            last = proc::resident(peer.pid()).pss_kib;
            write!(page, " {last} |")?;
        }
        writeln!(page, " {:.2} |", last as f64 / before.pss_kib as f64)?;
    }
    page.push_str(
        "\nProportional set size. A server that has served one connection before is looked at; \
         the connections have a session and a tree connect each, and end without a LOGOFF.\n",
    );
    Ok(page)
}

/// The memory of a server that has served one connection.
async fn settled(peer: &Peer) -> Result<Resident> {
    Client::connect(&peer.target, Protection::Signed).await?.logoff().await?;
    tokio::time::sleep(SETTLE).await;
    Ok(proc::resident(peer.pid()))
}

/// Holds `count` connections (negotiated, logged on, tree connected) on a server that
/// has served one before, and sees what it grew by.
pub(crate) async fn measure(peer: &Peer, count: usize) -> Result<Memory> {
    let warm = Client::connect(&peer.target, Protection::Signed).await?;
    let wire = warm.description().to_owned();
    warm.logoff().await?;
    tokio::time::sleep(SETTLE).await;
    let before = proc::resident(peer.pid());
    let held = hold(peer, count).await?;
    tokio::time::sleep(SETTLE).await;
    let after = proc::resident(peer.pid());
    Ok(Memory { connections: held.len() as u64, before, after, wire })
}

async fn hold(peer: &Peer, count: usize) -> Result<Vec<Client>> {
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let mut batch = JoinSet::new();
        for _ in 0..CONNECTING.min(count - held.len()) {
            let target = peer.target.clone();
            batch.spawn(async move { Client::connect(&target, Protection::Signed).await });
        }
        while let Some(client) = batch.join_next().await {
            held.push(client?.with_context(|| format!("connection {}", held.len()))?);
        }
    }
    Ok(held)
}
