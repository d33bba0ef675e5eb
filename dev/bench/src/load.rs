//! A load that costs next to nothing: requests are encoded once, the data of replies is dropped by
//! the kernel, and some replies are kept and verified after the round. So the server, not the
//! client, limits the rate.

pub(crate) mod bare;
mod connection;
mod engine;
mod listing;
pub(crate) mod logon;
mod office;
mod page;
mod plot;
mod requests;
mod script;
mod sealing;
mod shape;
mod talk;
mod turn;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::common::Common;
use crate::proc;
use crate::server::{self, Kind, Peer};
use crate::share;
use engine::{Engine, Measured};
use page::{Outcome, Page};
use shape::{Listed, Shape, Verb};

/// Settings by which administrators make smbd faster for large files: data goes from file to socket
/// without a copy, and reads and writes are not handed to threads.
pub(crate) const TUNED: [&str; 5] = [
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
    /// Servers to measure: frevo, smbd, tuned (smbd with settings for speed), bare (no SMB).
    #[arg(long, value_delimiter = ',', default_value = "bare,smbd,tuned,frevo")]
    only: Vec<String>,
    /// The client copies the data of replies out of the kernel, as clients do, and costs more.
    #[arg(long)]
    copy: bool,
    /// Write the page here and a picture beside it (.svg).
    #[arg(long, value_name = "FILE.md")]
    out: Option<PathBuf>,
}

/// Measures every row on every server in turns; returns the page.
pub(crate) async fn run(args: &Arguments) -> Result<String> {
    let rows = Shape::matching(args.rows.as_deref());
    ensure!(!rows.is_empty(), "no row has that name");
    let scratch = args.common.scratch()?;
    let share = share::prepare(scratch.path(), false)?;
    for row in &rows {
        match row.verb {
            Verb::List(Listed::Readable) => share::make_guarded(&share, row.bytes)?,
            Verb::List(_) if share.join(share::folder_name(row.bytes)).exists() => {}
            Verb::List(_) => share::make_listed(&share, row.bytes)?,
            Verb::Office => share::make_offices(&share, row.connections)?,
            Verb::Read | Verb::Write => {}
        }
    }
    let labels = args.only.iter().map(|name| label(name).map(str::to_owned));
    let mut page = Page::new(labels.collect::<Result<_>>()?, setting(args, scratch.path()));
    // Consecutive rows with the same options use the same servers.
    let mut running: Option<(Listed, Vec<Peer>)> = None;
    for row in rows {
        let how = row.listed();
        let peers = match running.take() {
            Some((options, peers)) if options == how => peers,
            others => {
                drop(others);
                start(args, how, &share, scratch.path())?
            }
        };
        let (_, peers) = running.insert((how, peers));
        let outcomes = measure(&row, peers, &share, args).await?;
        eprintln!("{} done", row.name());
        page.row(&row, &outcomes);
    }
    if let Some(out) = &args.out {
        std::fs::write(out, page.markdown())?;
        std::fs::write(out.with_extension("svg"), page.picture())?;
    }
    Ok(page.markdown())
}

/// Returns the heading of a server.
fn label(name: &str) -> Result<&'static str> {
    match name {
        "frevo" => Ok("Frevo"),
        "smbd" => Ok("smbd"),
        "bare" => Ok("bare"),
        "tuned" => Ok("tuned"),
        other => anyhow::bail!("{other} is no server; servers: frevo, smbd, tuned, bare"),
    }
}

/// Starts the servers with the options for this way of listing.
fn start(args: &Arguments, how: Listed, share: &Path, scratch: &Path) -> Result<Vec<Peer>> {
    let mut programs = args.common.programs();
    programs.smbd_conf.extend(how.smbd_conf());
    if !how.share_keys().is_empty() {
        let path = scratch.join(format!("{}.toml", how.name()));
        let folder = share.display();
        let section = format!("[[share]]\nname = \"share\"\npath = \"{folder}\"\n");
        std::fs::write(&path, section + how.share_keys())?;
        programs.frevo_args.extend(["--config".to_owned(), path.display().to_string()]);
        programs.is_share_configured = true;
    }
    let mut tuned = programs.clone();
    tuned.smbd_conf = how.smbd_conf();
    tuned.smbd_conf.extend(TUNED.iter().map(|line| (*line).to_owned()));
    args.only
        .iter()
        .map(|name| {
            let (kind, programs) = match name.as_str() {
                "frevo" => (Kind::Frevo, &programs),
                "smbd" => (Kind::Smbd, &programs),
                "bare" => (Kind::Bare, &programs),
                _ => (Kind::Smbd, &tuned),
            };
            server::start(kind, label(name)?, share, scratch, programs)
        })
        .collect()
}

fn setting(args: &Arguments, scratch: &Path) -> Vec<String> {
    let mut lines = proc::machine(scratch);
    lines.push(format!("smbd {}", server::version(&args.common.smbd)));
    lines.push(format!("tuned: smbd with {}", TUNED.join(", ")));
    lines.push(server::version(&args.common.frevo));
    lines.push(format!("{} interleaved rounds of {} ms", args.rounds, args.round_ms));
    if args.copy {
        lines.push("the client copies the data of replies".to_owned());
    }
    lines
}

/// Rounds of one row; the order of the servers reverses each time.
async fn measure(
    row: &Shape,
    peers: &[Peer],
    share: &Path,
    args: &Arguments,
) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = peers.iter().map(|_| Outcome::default()).collect();
    let is_asked = |peer: &Peer| peer.kind != Kind::Bare || row.has_bare_path();
    for n in 0..args.rounds {
        let all = peers.iter().zip(&mut outcomes);
        let mut order: Vec<_> = all.filter(|(peer, _)| is_asked(peer)).collect();
        if n % 2 == 1 {
            order.reverse();
        }
        for (peer, outcome) in order {
            let measured = one_round(row, peer, share, args).await;
            let measured = measured.with_context(|| format!("{} on {}", row.name(), peer.label));
            outcome.add(&measured?)?;
        }
    }
    Ok(outcomes)
}

async fn one_round(row: &Shape, peer: &Peer, share: &Path, args: &Arguments) -> Result<Measured> {
    let round = Duration::from_millis(args.round_ms);
    if row.verb == Verb::Office {
        share::tidy_offices(share, row.connections)?;
    }
    let mut engine = Engine::open(row, peer, args.copy).await?;
    engine.run(peer.pid(), round / 4)?;
    let measured = engine.run(peer.pid(), round)?;
    engine.verify(share)?;
    Ok(measured)
}
