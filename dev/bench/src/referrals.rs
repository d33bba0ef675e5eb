//! A namespace of many links: the time and the memory that it takes to load, and the server's time for referrals
//! while other clients read.
//!
//! The server counts the time of each request of a session, from its arrival to its answer, in buckets of twice
//! the time each. One session asks for referrals and nothing else, so that its counts are those of referrals.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::dfs::ReferralRequest;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::{Client, Open, Protection};
use crate::common::Common;
use crate::server::{self, Kind, Peer};
use crate::{proc, share};

/// Requests of a reader at one time, and their length.
const DEPTH: u64 = 4;
const READ_LEN: u32 = 65_536;
/// The longest latency of the first bucket of the server, microseconds.
const FIRST_BUCKET_US: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(30);
/// The server looks each second whether it holds free memory, and gives it back when it has rested.
const GIVEN_BACK: Duration = Duration::from_secs(10);

/// `frevo-bench referrals`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Links of the namespace, with two targets each.
    #[arg(long, default_value_t = 100_000)]
    links: usize,
    /// Connections that read meanwhile.
    #[arg(long, default_value_t = 4)]
    readers: usize,
    /// Referrals that are asked for, one after the other.
    #[arg(long, default_value_t = 20_000)]
    referrals: usize,
}

pub(crate) async fn run(args: &Arguments) -> Result<String> {
    let scratch = args.common.scratch()?;
    let share = share::prepare(scratch.path(), false)?;
    let mut out = String::new();
    for line in proc::machine(scratch.path()) {
        writeln!(out, "{line}.")?;
    }
    writeln!(out, "\n| links | until ready | resident | most resident |\n|---|---|---|---|")?;
    let none = started(args, 0, scratch.path(), &share, &mut out)?;
    drop(none);
    let peer = started(args, args.links, scratch.path(), &share, &mut out)?;
    let socket = scratch.path().join(format!("state-{}/admin.sock", peer.label));
    writeln!(
        out,
        "\n| load | server's time of a referral: {CELLS} | at the client: median | 99 % |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    let idle = asked(&peer, args, &socket).await?;
    writeln!(out, "| none | {idle} |")?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut readers = JoinSet::new();
    for _ in 0..args.readers {
        let (target, stopped) = (peer.target.clone(), stopped.clone());
        readers.spawn(async move {
            let client = Client::connect(&target, Protection::Signed).await?;
            read(&client, &stopped).await
        });
    }
    // The readers have their sessions, and the files are in memory.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    let beside = asked(&peer, args, &socket).await?;
    stop.send_replace(true);
    let mut bytes = 0;
    while let Some(reader) = readers.join_next().await {
        bytes += reader??;
    }
    let rate = bytes as f64 / 1e6 / (began.elapsed().as_secs_f64() + 2.0);
    writeln!(out, "| {} readers, {rate:.0} MB/s | {beside} |", args.readers)?;
    Ok(out)
}

/// Starts a server of a namespace of `links` links, and writes the row of its start.
fn started(
    args: &Arguments,
    links: usize,
    scratch: &Path,
    share: &Path,
    out: &mut String,
) -> Result<Peer> {
    let file = scratch.join(format!("frevo-{links}.toml"));
    std::fs::write(&file, configuration(links, share))?;
    let mut programs = args.common.programs();
    let path = file.to_str().context("a path in UTF-8")?.to_owned();
    programs.frevo_args.extend([String::from("--config"), path]);
    programs.is_share_configured = true;
    let began = Instant::now();
    let peer = server::start(Kind::Frevo, &format!("l{links}"), share, scratch, &programs)?;
    let ready = began.elapsed();
    std::thread::sleep(GIVEN_BACK);
    let status = std::fs::read_to_string(format!("/proc/{}/status", peer.pid()))?;
    let of = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        number.unwrap_or_default() / 1024
    };
    let (now, most) = (of("VmRSS:"), of("VmHWM:"));
    writeln!(out, "| {links} | {:.2} s | {now} MiB | {most} MiB |", ready.as_secs_f64())?;
    Ok(peer)
}

fn path_of(number: usize) -> String {
    format!("division{}\\department{}\\project {number:06}", number % 16, number % 1_000)
}

fn configuration(links: usize, share: &Path) -> String {
    let mut text = format!(
        "[server]\ndiscovery = \"off\"\n[[share]]\nname = \"share\"\npath = {share:?}\n\
         [[namespace]]\nname = \"files\"\nordering = \"priority\"\n"
    );
    for number in 0..links {
        let target =
            |of: usize| format!("'\\\\server{}.example.com\\projects\\{number:06}'", number % of);
        let (one, two) = (target(40), target(37).replace("server", "other"));
        let path = path_of(number);
        text.push_str(&format!(
            "\n[[namespace.link]]\npath = '{path}'\ntargets = [{one}, {two}]\n"
        ));
    }
    text
}

/// Reads a file until told to stop, and returns the number of bytes.
async fn read(client: &Client, stopped: &tokio::sync::watch::Receiver<bool>) -> Result<u64> {
    let requests = client.requests();
    let file = requests.open(share::READ_NAME, Open::Read).await?;
    let done = std::sync::atomic::AtomicU64::new(0);
    futures_util::future::try_join_all((0..DEPTH).map(|at| {
        let (requests, done) = (&requests, &done);
        async move {
            let mut block = at;
            while !*stopped.borrow() {
                requests.read(file, (block % 64) * u64::from(READ_LEN), READ_LEN).await?;
                block += DEPTH;
                done.fetch_add(u64::from(READ_LEN), std::sync::atomic::Ordering::Relaxed);
            }
            Ok::<_, anyhow::Error>(())
        }
    }))
    .await?;
    Ok(done.into_inner())
}

/// The cells that are the server's own.
const CELLS: &str = "mean | 99 % within | above 128, 256 µs";

/// Asks for referrals one after the other. Returns the cells of a row.
async fn asked(peer: &Peer, args: &Arguments, socket: &Path) -> Result<String> {
    let client = Client::connect(&peer.target, Protection::Signed).await?;
    let requests = client.requests();
    let mut times = Vec::with_capacity(args.referrals);
    for turn in 0..args.referrals {
        let path = format!("\\server\\files\\{}\\below", path_of(turn * 7_919 % args.links.max(1)));
        let mut input = Vec::new();
        ReferralRequest { max_level: 4, path }.encode(&mut Writer::new(&mut input));
        let began = Instant::now();
        let output = requests.referral(input).await?;
        times.push(began.elapsed());
        ensure!(output > 0, "an empty referral");
    }
    let server = of_server(socket, args.referrals as u64)?;
    client.logoff().await?;
    times.sort_unstable();
    let micros = |part: f64| {
        let at = ((times.len().saturating_sub(1)) as f64 * part).round() as usize;
        times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    Ok(format!("{server} | {:.0} µs | {:.0} µs", micros(0.5), micros(0.99)))
}

/// The server's own time of the referrals of a session: the one with most requests of the class `other`.
fn of_server(socket: &Path, least: u64) -> Result<String> {
    let mut stream = UnixStream::connect(socket).context("the admin socket")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /status?parts=none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").context("an answer with a body")?.1;
    let body = body.get(body.find('{').context("JSON")?..=body.rfind('}').context("JSON")?);
    let status: Value = serde_json::from_str(body.context("JSON")?)?;
    let sessions = status["sessions"]["rows"].as_array().context("sessions")?;
    let classes = sessions.iter().flat_map(|session| session["activity"]["classes"].as_array());
    let others = classes.flatten().filter(|class| class["class"] == "other");
    let most = others.max_by_key(|class| class["count"].as_u64()).context("a session")?;
    let count = most["count"].as_u64().unwrap_or_default();
    ensure!(count >= least, "the session of the referrals has {count} requests");
    let sum = most["sum_us"].as_u64().unwrap_or_default();
    let buckets = most["buckets"].as_array().context("buckets")?;
    let (mut end, mut seen, mut within, mut above) = (FIRST_BUCKET_US, 0, None, [0, 0]);
    for bucket in buckets {
        let number = bucket.as_u64().unwrap_or_default();
        seen += number;
        if within.is_none() && seen * 100 >= count * 99 {
            within = Some(end);
        }
        for (above, limit) in above.iter_mut().zip([128, 256]) {
            *above += if end > limit { number } else { 0 };
        }
        end *= 2;
    }
    let within = within.context("a bucket")?;
    let [above, far_above] = above;
    let mean = sum as f64 / count as f64;
    Ok(format!("{mean:.0} µs | {within} µs | {above}, {far_above} of {count}"))
}
