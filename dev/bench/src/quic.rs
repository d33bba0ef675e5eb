//! `frevo-bench quic`: SMB over QUIC beside the same over TCP that SMB seals, in one run: rates and the server's
//! processor time, round trips of a logon, memory of idle clients, and rates over a link that loses packets.

mod page;
mod relay;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use frevo_client::{Client, Credentials, Fingerprint, Options, Quic, QuicTrust, ServerName, Share};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::common::Common;
use crate::links::Links;
use crate::server::{self, Kind, Peer};
use crate::{proc, share};

/// Clients being connected at a time.
const CONNECTING: usize = 32;
/// Time between the last tree connect and the look at the memory.
const SETTLE: Duration = Duration::from_secs(3);
/// One direction of the link on which round trips are counted.
const SLOW: Duration = Duration::from_millis(50);
/// One direction of the link that loses packets.
const DELAY: Duration = Duration::from_millis(5);
/// Packets of a million that the lossy link loses in each direction.
const LOSSES: [u32; 2] = [1_000, 10_000];
/// Descriptors beside those of the idle clients.
const OTHERS: usize = 500;

/// `frevo-bench quic`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Rounds; TCP and QUIC take turns in each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of a test in a round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Requests of the client at the same time, 1 MiB each.
    #[arg(long, default_value_t = 8)]
    depth: u16,
    /// Idle clients; 0 leaves them out.
    #[arg(long, default_value_t = 10_000)]
    clients: usize,
    /// Rate of the link that loses packets, in the words of tc.
    #[arg(long, default_value = "1gbit")]
    rate: String,
    /// Write the Markdown here.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Exit with 1 unless all goals are met.
    #[arg(long)]
    pub(crate) check: bool,
}

/// The transport of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Tcp,
    Quic,
}

impl Over {
    const ALL: [Self; 2] = [Self::Tcp, Self::Quic];

    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP, sealed",
            Self::Quic => "QUIC",
        }
    }
}

/// The tests of `frevo bench`.
const TESTS: [&str; 2] = ["read", "write"];

/// Figures of all rounds.
#[derive(Debug, Default)]
struct Figures {
    /// Bytes per second.
    rates: Vec<f64>,
    /// The server's processor seconds for a GB.
    cpu: Vec<f64>,
}

/// The figures of one test over both transports.
#[derive(Debug)]
struct Row {
    test: &'static str,
    tcp: Figures,
    quic: Figures,
}

/// One link that loses packets.
#[derive(Debug)]
struct Lossy {
    lost_of_million: u32,
    rows: Vec<Row>,
}

/// Round trips of a logon, and with the connection to a share.
#[derive(Debug, Clone, Copy)]
struct Trips {
    logon: f64,
    share: f64,
}

/// Memory of idle clients.
#[derive(Debug, Clone, Copy)]
struct Idle {
    clients: usize,
    before_kib: u64,
    during_kib: u64,
}

/// All results.
#[derive(Debug)]
struct Results {
    head: Vec<String>,
    local: Vec<Row>,
    trips: Trips,
    idle: Option<Idle>,
    /// The rows of the lossy links, or the reason why there are none.
    lossy: Result<Vec<Lossy>, String>,
    /// Rates of QUIC over relays of this process, where no link loses packets. None of these are of TCP.
    relayed: Vec<Lossy>,
    program_bytes: u64,
}

/// A server over both transports.
struct Far {
    peer: Peer,
    port: u16,
    pin: Fingerprint,
}

/// Measures, prints the page, and writes it. True if all goals are met.
pub(crate) async fn run(args: &Arguments, is_inside: bool) -> Result<bool> {
    ensure!(args.rounds > 0, "there is nothing to measure");
    let scratch = args.common.scratch()?;
    let far = started(args, scratch.path())?;
    let head = head(args, scratch.path(), &far);
    let trips = round_trips(&far).await?;
    let local = rows(args, &far, None, &Over::ALL)?;
    let lossy = lossy(args, &far, is_inside);
    let relayed = if lossy.is_err() { relayed(args, &far)? } else { Vec::new() };
    let idle = idle(args, &far).await?;
    let program_bytes = stripped_bytes(&args.common.frevo, scratch.path())?;
    let results = Results { head, local, trips, idle, lossy, relayed, program_bytes };
    let (text, is_met) = page::page(&results)?;
    println!("{text}");
    if let Some(path) = &args.out {
        std::fs::write(path, &text)?;
    }
    Ok(is_met)
}

/// Makes a certificate, and starts a server that has room for all clients.
fn started(args: &Arguments, scratch: &Path) -> Result<Far> {
    let folder = scratch.join("certificates");
    std::fs::create_dir(&folder)?;
    let made = Command::new(&args.common.frevo)
        .args(["quic", "127.0.0.1", "198.18.0.1", "-o"])
        .arg(&folder)
        .output()
        .context("starting frevo quic")?;
    ensure!(made.status.success(), "frevo quic: {}", String::from_utf8_lossy(&made.stderr));
    let said = String::from_utf8(made.stdout)?;
    let pin = said.lines().find_map(|line| line.strip_prefix("fingerprint")).context("no pin")?;
    let pin = pin.trim().parse::<Fingerprint>().map_err(|error| anyhow::anyhow!("{error}"))?;
    let files = share::prepare(scratch, false)?;
    let port = server::free_port()?;
    let all = 4 * args.clients.max(10_000);
    let configuration = format!(
        "[server]\ndiscovery = \"off\"\n\
         [limits]\nconnections = {all}\nconnections_per_user = {all}\nconnections_per_address = {all}\n\
         sessions_per_user = {all}\n\
         [quic]\nlisten = [\"0.0.0.0:{port}\"]\ncertificate = {:?}\nkey = {:?}\n\
         [[share]]\nname = \"share\"\npath = {files:?}\n",
        folder.join("quic.crt"),
        folder.join("quic.key"),
    );
    let file = scratch.join("frevo.toml");
    std::fs::write(&file, configuration)?;
    let mut programs = args.common.programs();
    let path = file.to_str().context("a path in UTF-8")?.to_owned();
    programs.frevo_args.extend([String::from("--config"), path]);
    programs.is_share_configured = true;
    let peer = server::start_at("0.0.0.0", Kind::Frevo, "quic", &files, scratch, &programs)?;
    Ok(Far { peer, port, pin })
}

fn head(args: &Arguments, scratch: &Path, far: &Far) -> Vec<String> {
    let mut head = proc::machine(scratch);
    head.push(format!(
        "{}; {} rounds of {} s in turns, {} requests of 1 MiB at a time; medians, load average {:.1} before",
        server::version(&far.peer.programs.frevo),
        args.rounds,
        args.seconds,
        args.depth,
        proc::load()
    ));
    head
}

/// Measures both tests over some transports, on the loopback or over links.
fn rows(args: &Arguments, far: &Far, links: Option<&Links>, over: &[Over]) -> Result<Vec<Row>> {
    let port = far.port;
    rows_at(args, far, &Way { links, port }, over)
}

/// The way of a client to the server.
struct Way<'a> {
    links: Option<&'a Links>,
    /// The port of QUIC, perhaps that of a relay.
    port: u16,
}

fn rows_at(args: &Arguments, far: &Far, way: &Way<'_>, over: &[Over]) -> Result<Vec<Row>> {
    let empty = |test| Row { test, tcp: Figures::default(), quic: Figures::default() };
    let mut rows = TESTS.map(empty);
    for _ in 0..args.rounds {
        for row in &mut rows {
            for over in over {
                let figures = match over {
                    Over::Tcp => &mut row.tcp,
                    Over::Quic => &mut row.quic,
                };
                once(args, far, way, *over, row.test, figures)?;
            }
        }
    }
    Ok(rows.into_iter().collect())
}

/// Runs `frevo bench` once.
fn once(
    args: &Arguments,
    far: &Far,
    way: &Way<'_>,
    over: Over,
    test: &str,
    figures: &mut Figures,
) -> Result<()> {
    let target = &far.peer.target;
    let frevo = &far.peer.programs.frevo;
    let (mut command, host) = match way.links {
        Some(links) => (links.command(frevo), links.address()?),
        None => (Command::new(frevo), "127.0.0.1"),
    };
    let port = target.addr.rsplit(':').next().context("a port")?;
    let url = match over {
        Over::Tcp => format!("smb://{}@{host}:{port}/share", target.user),
        Over::Quic => format!("smb+quic://{}@{host}:{}/share", target.user, way.port),
    };
    match over {
        Over::Tcp => command.arg("bench").arg(url).arg("--encrypt"),
        Over::Quic => command.arg("bench").arg(url).args(["--quic-pin", &far.pin.to_string()]),
    };
    let before = proc::cpu_seconds(far.peer.pid());
    let done = command
        .args(["--json", "--only", test, "--size", "64M", "--channels", "1"])
        .args(["--time", &args.seconds.to_string(), "--depth", &args.depth.to_string()])
        .env("FREVO_PASSWORD", &target.password)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting frevo bench")?;
    ensure!(done.status.success(), "frevo bench over {}: {}", over.name(), done.status);
    let cpu = proc::cpu_seconds(far.peer.pid()) - before;
    let text = String::from_utf8(done.stdout)?;
    let object = result(&text, test).with_context(|| format!("no {test} in {text}"))?;
    let number = |key: &str| object[key].as_f64().with_context(|| format!("no {key} in {text}"));
    figures.rates.push(number("per_second")?);
    figures.cpu.push(cpu * 1e9 / number("bytes")?.max(1.0));
    Ok(())
}

/// Returns the object of a test in the output of `frevo bench`.
fn result(text: &str, test: &str) -> Option<Value> {
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut flat = all.flat_map(|object| match object["tests"].as_array() {
        Some(tests) => tests.clone(),
        None => vec![object],
    });
    flat.find(|object| object["test"] == test)
}

/// Rates over a link with a delay that loses packets. The error is the reason why there is none.
fn lossy(args: &Arguments, far: &Far, is_inside: bool) -> Result<Vec<Lossy>, String> {
    if !is_inside {
        return Err(String::from("a link that loses packets needs root, for a network namespace"));
    }
    let mut all = Vec::new();
    for lost_of_million in LOSSES {
        let links = Links::new(&[&args.rate]).map_err(|error| format!("{error:#}"))?;
        let loss = format!("{}%", f64::from(lost_of_million) / 1e4);
        let delay = format!("{}ms", DELAY.as_millis());
        let lossy = links.lose(0, &args.rate, &delay, &loss);
        lossy.map_err(|error| format!("this kernel has no link that loses packets: {error:#}"))?;
        let rows =
            rows(args, far, Some(&links), &Over::ALL).map_err(|error| format!("{error:#}"))?;
        all.push(Lossy { lost_of_million, rows });
    }
    Ok(all)
}

/// Rates of QUIC over relays of this process, which lose datagrams.
fn relayed(args: &Arguments, far: &Far) -> Result<Vec<Lossy>> {
    let mut all = Vec::new();
    for lost_of_million in LOSSES {
        let terms = relay::Terms { delay: DELAY, lost_of_million };
        let port = relay::start(SocketAddr::from(([127, 0, 0, 1], far.port)), terms)?.port();
        let rows = rows_at(args, far, &Way { links: None, port }, &[Over::Quic])?;
        all.push(Lossy { lost_of_million, rows });
    }
    Ok(all)
}

fn client(far: &Far) -> Client {
    let trust = QuicTrust::Pinned(vec![far.pin]);
    Client::new(Options::new().quic(Quic::Required).quic_trust(trust).connect_timeout(PATIENCE))
}

/// The time for a connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// Logs on and connects to the share.
async fn connected(far: &Far, port: u16) -> Result<(Client, Share, [Duration; 2])> {
    let (client, began) = (client(far), Instant::now());
    let credentials = Credentials::new(&far.peer.target.user, far.peer.target.password.clone());
    let server = ServerName::new("127.0.0.1").at_port(port);
    let session = client.connect(server, credentials).await?;
    let logon = began.elapsed();
    let share = session.share("share").await?;
    Ok((client, share, [logon, began.elapsed()]))
}

/// Counts the round trips over a link that is so slow that nothing else counts.
async fn round_trips(far: &Far) -> Result<Trips> {
    let terms = relay::Terms { delay: SLOW, lost_of_million: 0 };
    let port = relay::start(SocketAddr::from(([127, 0, 0, 1], far.port)), terms)?.port();
    let (_client, _share, times) = connected(far, port).await?;
    let trips = times.map(|time| time.as_secs_f64() / (2.0 * SLOW.as_secs_f64()));
    Ok(Trips { logon: trips[0], share: trips[1] })
}

/// Measures the server's memory while clients are idle. None without any.
async fn idle(args: &Arguments, far: &Far) -> Result<Option<Idle>> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let clients = args.clients.min(most.saturating_sub(OTHERS));
    if clients == 0 {
        return Ok(None);
    }
    // The server has served one before.
    drop(connected(far, far.port).await?);
    tokio::time::sleep(SETTLE).await;
    let before_kib = proc::resident(far.peer.pid()).pss_kib;
    let mut held = Vec::with_capacity(clients);
    while held.len() < clients {
        let mut batch = JoinSet::new();
        for _ in 0..CONNECTING.min(clients - held.len()) {
            let (pin, target, port) = (far.pin, far.peer.target.clone(), far.port);
            batch.spawn(async move { one_idle(pin, &target, port).await });
        }
        while let Some(one) = batch.join_next().await {
            held.push(one?.with_context(|| format!("client {}", held.len()))?);
        }
    }
    tokio::time::sleep(SETTLE).await;
    let during_kib = proc::resident(far.peer.pid()).pss_kib;
    Ok(Some(Idle { clients: held.len(), before_kib, during_kib }))
}

async fn one_idle(pin: Fingerprint, target: &server::Target, port: u16) -> Result<(Client, Share)> {
    let options = Options::new().quic(Quic::Required).quic_trust(QuicTrust::Pinned(vec![pin]));
    let client = Client::new(options.connect_timeout(PATIENCE));
    let credentials = Credentials::new(&target.user, target.password.clone());
    let server = ServerName::new("127.0.0.1").at_port(port);
    let share = client.connect(server, credentials).await?.share("share").await?;
    Ok((client, share))
}

/// The size of the program without symbols.
fn stripped_bytes(program: &Path, scratch: &Path) -> Result<u64> {
    let copy = scratch.join("stripped");
    let done = Command::new("strip").arg("-o").arg(&copy).arg(program).output();
    ensure!(done.context("starting strip")?.status.success(), "strip has failed");
    Ok(std::fs::metadata(&copy)?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_test_is_found() {
        let flat = "{\"channels\":1}\n{\"test\":\"read\",\"bytes\":7}\n";
        let inner = "{\"channels\":1,\"tests\":[{\"test\":\"read\",\"bytes\":7}]}\n";
        for text in [flat, inner] {
            assert_eq!(result(text, "read").unwrap()["bytes"], 7);
            assert!(result(text, "write").is_none());
        }
    }
}
