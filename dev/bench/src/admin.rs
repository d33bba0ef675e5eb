//! The cost of the admin interface: the time of its answers while clients have many sessions and
//! Opens, and what scrapes take from the clients.
//!
//! Rounds with and without scrapes take turns. Between two rounds without scrapes lies the noise. One
//! scrape each second would be lost in it: there are many, and their effect is divided by their number.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use crate::client::{Client, Open, Protection, Requests};
use crate::common::Common;
use crate::server::{self, Kind, Peer};
use crate::{proc, share};

/// Sessions being made at a time.
const CONNECTING: usize = 8;
/// Requests of the load at a time, and their length.
const DEPTH: u64 = 8;
const READ_LEN: u32 = 4096;
/// Paths that are scraped during the load, and the scrapes per second.
const SCRAPES: [(&str, u32); 2] = [("/metrics", 20), ("/status", 5)];
/// Most time of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// `frevo-bench admin`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Sessions, each with a connection.
    #[arg(long, default_value_t = 1_000)]
    sessions: usize,
    /// Opens of each session.
    #[arg(long, default_value_t = 10)]
    opens: usize,
    /// Answers of each path that are timed.
    #[arg(long, default_value_t = 50)]
    answers: usize,
    /// Pairs of rounds of the load.
    #[arg(long, default_value_t = 15)]
    pairs: usize,
    /// Seconds of a round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// A round of the load.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Processor time of the server's threads but the admin interface's, microseconds an operation.
    cpu_us: f64,
    per_second: f64,
    /// Processor time of the interface's thread, part of a second.
    admin_part: f64,
}

pub(crate) async fn run(args: &Arguments) -> Result<String> {
    let scratch = args.common.scratch()?;
    let share = share::prepare(scratch.path(), false)?;
    let programs = args.common.programs();
    let peer = server::start(Kind::Frevo, "admin", &share, scratch.path(), &programs)?;
    let socket = scratch.path().join("state-admin/admin.sock");
    let held = hold(&peer, args).await?;
    let mut out = String::new();
    for line in proc::machine(scratch.path()) {
        writeln!(out, "{line}.")?;
    }
    writeln!(out, "{} sessions, {} Opens.\n", held.len(), held.len() * args.opens)?;
    writeln!(out, "| answer | size | median | 95 % | longest |\n|---|---|---|---|---|")?;
    for (title, path) in [
        ("`/status`, everything", "/status"),
        ("`/status`, as the page asks for clients", "/status?parts=none&latencies=no&limit=2000"),
        (
            "`/status`, as the page asks for open files",
            "/status?parts=opens&latencies=no&limit=500",
        ),
        ("`/metrics`", "/metrics"),
        ("`/history`, the whole hour", "/history"),
    ] {
        let mut size = 0;
        let times = timed(args.answers, || {
            size = ask(&socket, path)?;
            Ok(())
        })?;
        writeln!(out, "| {title} | {} kB | {times} |", size / 1000)?;
    }
    let times = timed(args.answers.div_ceil(2), || status_program(&programs.frevo, &socket))?;
    writeln!(out, "| the program `frevo status --json`, whole | | {times} |\n")?;
    for (path, scrapes) in SCRAPES {
        out.push_str(&load(&peer, args, &socket, path, scrapes).await?);
    }
    drop(held);
    Ok(out)
}

/// Makes the sessions with their Opens.
async fn hold(peer: &Peer, args: &Arguments) -> Result<Vec<Client>> {
    let mut held = Vec::with_capacity(args.sessions);
    while held.len() < args.sessions {
        let mut batch = JoinSet::new();
        for at in held.len()..args.sessions.min(held.len() + CONNECTING) {
            let (target, opens) = (peer.target.clone(), args.opens);
            batch.spawn(async move {
                let client = Client::connect(&target, Protection::Signed).await?;
                for open in 0..opens {
                    client.requests().open(&format!("held-{at}-{open}"), Open::Write).await?;
                }
                Ok::<_, anyhow::Error>(client)
            });
        }
        while let Some(client) = batch.join_next().await {
            held.push(client?.with_context(|| format!("session {}", held.len()))?);
        }
    }
    Ok(held)
}

/// Median, 95 % and maximum of `count` times, as cells of a table.
fn timed(count: usize, mut what: impl FnMut() -> Result<()>) -> Result<String> {
    what()?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count.max(1) {
        let began = Instant::now();
        what()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    Ok(format!("{:.1} ms | {:.1} ms | {:.1} ms", at(0.5), at(0.95), at(1.0)))
}

/// Asks for a path on the admin socket, and returns the size of the answer.
fn ask(socket: &Path, path: &str) -> Result<usize> {
    let mut stream = UnixStream::connect(socket).context("the admin socket")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", answer.escape_ascii());
    Ok(answer.len())
}

fn status_program(frevo: &Path, socket: &Path) -> Result<()> {
    let mut command = Command::new(frevo);
    command.args(["status", "--json", "--socket"]).arg(socket).stdout(Stdio::null());
    ensure!(command.status()?.success(), "frevo status failed");
    Ok(())
}

/// The effect of scrapes on the load, in words.
async fn load(
    peer: &Peer,
    args: &Arguments,
    socket: &Path,
    path: &'static str,
    scrapes: u32,
) -> Result<String> {
    let client = Client::connect(&peer.target, Protection::Signed).await?;
    let requests = client.requests();
    let file = requests.open(share::READ_NAME, Open::Read).await?;
    let round = async |scraped: bool| -> Result<Round> {
        let stop = Scraper::start(scraped.then(|| (socket.to_owned(), path, scrapes)));
        let (before, admin_before) = processor_time(peer.pid());
        let (done, seconds) = reads(&requests, file, Duration::from_secs(args.seconds)).await?;
        let (after, admin_after) = processor_time(peer.pid());
        stop.end()?;
        Ok(Round {
            cpu_us: (after - before) * 1e6 / done as f64,
            per_second: done as f64 / seconds,
            admin_part: (admin_after - admin_before) / seconds,
        })
    };
    round(false).await?;
    let (mut effects, mut noise, mut rates, mut parts) = (vec![], vec![], vec![], vec![]);
    for pair in 0..args.pairs.max(1) {
        // The order alternates (without, with, without; then the reverse), so that a drift of the
        // machine affects both kinds equally.
        let order = if pair % 2 == 0 { [false, true, false] } else { [true, false, true] };
        let mut rounds = Vec::new();
        for scraped in order {
            rounds.push(round(scraped).await?);
        }
        let [first, middle, last] = rounds[..] else { continue };
        let sign = if order[1] { 1.0 } else { -1.0 };
        let percent = |a: f64, b: f64| sign * (a / b - 1.0) * 100.0;
        let around = |of: fn(&Round) -> f64| f64::midpoint(of(&first), of(&last));
        effects.push(percent(middle.cpu_us, around(|round| round.cpu_us)));
        rates.push(percent(middle.per_second, around(|round| round.per_second)));
        noise.push((first.cpu_us / last.cpu_us - 1.0).abs() * 100.0);
        let scraped = rounds.iter().zip(order).filter(|(_, scraped)| *scraped);
        parts.extend(scraped.map(|(round, _)| round.admin_part * 100.0));
    }
    client.logoff().await?;
    let mut out = String::new();
    let cpu = median(&mut effects);
    writeln!(
        out,
        "With {scrapes} of `{path}` each second, median of {} pairs of {} s (reads of {READ_LEN} bytes): \
         processor time of an operation {cpu:+.2} % (the noise between equal rounds is {:.2} %), \
         operations per second {:+.2} %; the interface's own thread takes {:.2} % of a core. For one \
         each second that is {:+.3} % of an operation.",
        effects.len(),
        args.seconds,
        median(&mut noise),
        median(&mut rates),
        median(&mut parts),
        cpu / f64::from(scrapes),
    )?;
    Ok(out)
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// Reads from a file for a time, and returns the number of reads and the seconds.
async fn reads(
    requests: &Requests,
    file: smb2::types::FileId,
    time: Duration,
) -> Result<(u64, f64)> {
    let began = Instant::now();
    let done = Cell::new(0_u64);
    let count = &done;
    try_join_all((0..DEPTH).map(|at| async move {
        let mut block = at;
        while began.elapsed() < time {
            requests.read(file, (block % 4096) * u64::from(READ_LEN), READ_LEN).await?;
            block += DEPTH;
            count.set(count.get() + 1);
        }
        Ok::<_, anyhow::Error>(())
    }))
    .await?;
    Ok((done.get(), began.elapsed().as_secs_f64()))
}

/// A thread that asks for a path again and again.
struct Scraper(Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<Result<()>>)>);

impl Scraper {
    /// Starts the thread, which asks so many times each second.
    fn start(what: Option<(PathBuf, &'static str, u32)>) -> Self {
        Self(what.map(|(socket, path, scrapes)| {
            let every = Duration::from_secs(1) / scrapes;
            let (stop, stopped) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                loop {
                    let began = Instant::now();
                    ask(&socket, path)?;
                    match stopped.recv_timeout(every.saturating_sub(began.elapsed())) {
                        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                        _ => return Ok(()),
                    }
                }
            });
            (stop, thread)
        }))
    }

    fn end(self) -> Result<()> {
        let Some((stop, thread)) = self.0 else { return Ok(()) };
        drop(stop);
        thread.join().map_err(|_| anyhow::anyhow!("the scraper panicked"))?
    }
}

/// The processor time of a process in seconds: of all threads but the admin interface's, and of
/// that one.
fn processor_time(pid: u32) -> (f64, f64) {
    let (mut others, mut admin) = (0.0, 0.0);
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let nanos = read("schedstat");
        let nanos: f64 = nanos.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
        let sum = if read("comm").trim() == "frevo-admin" { &mut admin } else { &mut others };
        *sum += nanos / 1e9;
    }
    (others, admin)
}
