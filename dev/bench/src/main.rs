//! Compares Frevo and smbd over the same files, with one third-party client, in interleaved rounds,
//! next to the machine's bare data path.
//!
//! `frevo-bench table` prints the comparison, `profile` repeats one row for a profiler, `syscalls`
//! counts the server's system calls for an operation, `instructions` its instructions. `load` makes
//! the server the bottleneck, `cold` takes large files once through. `client` compares Frevo's client with smbclient and with a bare TCP
//! stream, `mount` compares a mounted folder with other mounts, `crypto` measures sealing and signing
//! alone, `admin` the admin interface, `referrals` a namespace of many links, `quic` SMB over QUIC beside sealed TCP, `cluster` shares of several nodes, `idle` memory, `channels` a session over several links, `rdma` Frevo beside
//! ksmbd over SMB Direct.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

mod admin;
mod cable;
mod channels;
mod client;
mod clients;
mod cluster;
mod cold;
mod common;
mod instructions;
mod links;
mod load;
mod memory;
mod mounts;
mod plot;
mod proc;
mod profile;
mod quic;
mod raw;
mod rdma;
mod referrals;
mod report;
mod rows;
mod server;
mod share;
mod table;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use crate::common::Common;
use crate::report::Report;
use crate::rows::Row;
use crate::server::{Kind, Programs};
use crate::table::{Bench, Pace};

/// The client allocates a buffer for every frame; this allocator keeps their pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Least part of an earlier program's rates that a later one must keep.
const KEPT: f64 = 0.97;

/// Descriptors for 1,000 connections, with a reserve.
const NOFILE: u64 = 65_536;

#[derive(Parser)]
#[command(about = "Frevo and smbd side by side, beside the machine's own limit")]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Compare and print a Markdown table.
    Table(TableArgs),
    /// Repeat one row; print the server's pids first.
    Profile(RowArgs),
    /// Count the server's system calls for an operation of a row (needs strace).
    Syscalls(RowArgs),
    /// Measure servers with a load that costs next to nothing (needs root for smbd).
    Load(load::Arguments),
    /// Count the instructions of the server for an operation (needs valgrind 3.24).
    Instructions(instructions::Arguments),
    /// Compare Frevo's client with smbclient and with a bare TCP stream.
    Client(clients::Arguments),
    /// Measure the answers of the admin interface and what they cost the clients.
    Admin(admin::Arguments),
    /// Measure a namespace of many links: its start, its memory, and referrals beside reads.
    Referrals(referrals::Arguments),
    /// Measure SMB over QUIC beside sealed TCP: rates, round trips, idle clients, lost packets (root for
    /// those).
    Quic(quic::Arguments),
    /// Measure memory while thousands of connections are idle, and after they have left.
    Idle(memory::Arguments),
    /// Measure one client with 1 to 8 channels over links of 1 Gbit/s each and over the loopback
    /// (needs root, ip and tc).
    Channels(channels::Arguments),
    /// Read over two links while one is cut, and plot the rates (needs root, ip and tc).
    Cable(cable::Arguments),
    /// Compare Frevo and ksmbd over SMB Direct in one guest (needs root and a kernel).
    Rdma(rdma::Arguments),
    /// Measure large files that are read, written or copied once through (needs root for smbd).
    Cold(cold::Arguments),
    /// Measure shares of a cluster: creates, reads and writes, and takeovers (needs etcd).
    Cluster(cluster::Arguments),
    /// Measure sealing and signing in memory, without a peer.
    Crypto(clients::CryptoArguments),
    /// Compare `frevo mount` with smbnetfs, bindfs and the folder itself.
    Mount(mounts::Arguments),
    /// Run a program and write down its resources.
    #[command(hide = true)]
    Usage {
        report: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<std::ffi::OsString>,
    },
    /// Serve the bare TCP stream.
    #[command(hide = true)]
    StreamServer,
    /// Transfer a file over the bare TCP stream.
    #[command(hide = true)]
    Stream { address: String, verb: String, there: PathBuf, here: PathBuf },
    /// Serve the bare data path.
    #[command(hide = true)]
    RawServer { share: PathBuf },
    /// Serve the bare data path for the frames of the load.
    #[command(hide = true)]
    BareServer { share: PathBuf },
}

#[derive(Args)]
struct TableArgs {
    #[command(flatten)]
    common: Common,
    /// Fewer and shorter rounds: about a minute.
    #[arg(long)]
    quick: bool,
    /// Parts of row names, separated by commas.
    #[arg(long)]
    rows: Option<String>,
    /// Write the Markdown here and the JSON beside it (.json).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Measure only this server.
    #[arg(long, value_enum, conflicts_with = "against")]
    only: Option<Kind>,
    /// Server in the place of Frevo; `smbd` compares smbd with itself, which shows the noise.
    #[arg(long, value_enum)]
    against: Option<Kind>,
    /// Compare with this earlier `frevo` instead of with smbd.
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["only", "against"])]
    before: Option<PathBuf>,
    /// A further argument for `serve` of the earlier `frevo` (repeatable).
    #[arg(long, allow_hyphen_values = true, requires = "before")]
    before_arg: Vec<String>,
    /// Rounds of each row and server.
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of a round in milliseconds.
    #[arg(long)]
    round_ms: Option<u64>,
    /// Connections of the memory row.
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    /// Exit with 1 unless every row keeps its promise.
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct RowArgs {
    #[command(flatten)]
    common: Common,
    /// The row's name, or a part of it that no other row has.
    row: String,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, value_enum, default_value = "frevo")]
    against: Kind,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(e) => {
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("frevo-bench: {e:#}\n"),
            );
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Cmd::RawServer { share } => raw::serve(&share).map(|()| ExitCode::SUCCESS),
        Cmd::BareServer { share } => load::bare::serve(&share).map(|()| ExitCode::SUCCESS),
        Cmd::StreamServer => clients::stream::serve().map(|()| ExitCode::SUCCESS),
        Cmd::Usage { report, program } => {
            clients::usage::watch(&report, &program).map(|()| ExitCode::SUCCESS)
        }
        Cmd::Stream { address, verb, there, here } => {
            clients::stream::transfer(&address, &verb, &there, &here)?;
            Ok(ExitCode::SUCCESS)
        }
        Cmd::Client(args) => {
            raise_open_files();
            let _priority = Priority::raise(args.common.nice);
            Ok(verdict(&clients::run(&args)?))
        }
        Cmd::Cluster(args) => measure_cluster(&args),
        Cmd::Rdma(args) => rdma::run(&args).map(|()| ExitCode::SUCCESS),
        Cmd::Channels(args) => {
            within_links(args.common.nice, || Ok(ExitCode::from(u8::from(!channels::run(&args)?))))
        }
        Cmd::Cable(args) => {
            within_links(args.common.nice, || cable::run(&args).map(|()| ExitCode::SUCCESS))
        }
        Cmd::Crypto(args) => {
            println!("{}", clients::crypto(&args)?);
            Ok(ExitCode::SUCCESS)
        }
        Cmd::Mount(args) => {
            raise_open_files();
            let _priority = Priority::raise(args.common.nice);
            mounts::run(&args)?;
            Ok(ExitCode::SUCCESS)
        }
        Cmd::Admin(args) => block_on(args.common.client_threads, async {
            raise_open_files();
            let _priority = Priority::raise(args.common.nice);
            println!("{}", admin::run(&args).await?);
            Ok(ExitCode::SUCCESS)
        }),
        Cmd::Referrals(args) => referrals(&args),
        Cmd::Quic(args) => over_quic(&args),
        Cmd::Idle(args) => block_on(args.common.client_threads, async {
            raise_open_files();
            println!("{}", memory::idle(&args).await?);
            Ok(ExitCode::SUCCESS)
        }),
        Cmd::Cold(args) => block_on(args.common.client_threads, async {
            raise_open_files();
            let _priority = Priority::raise(args.common.nice);
            println!("{}", cold::run(&args).await?);
            Ok(ExitCode::SUCCESS)
        }),
        Cmd::Load(args) => block_on(1, async {
            raise_open_files();
            let _priority = Priority::raise(args.common.nice);
            println!("{}", load::run(&args).await?);
            Ok(ExitCode::SUCCESS)
        }),
        Cmd::Instructions(args) => block_on(args.common.client_threads, async {
            raise_open_files();
            println!("{}", instructions::run(&args).await?);
            Ok(ExitCode::SUCCESS)
        }),
        Cmd::Table(args) => block_on(args.common.client_threads, table(&args)),
        Cmd::Profile(args) => block_on(args.common.client_threads, one_row(&args, Tool::Profile)),
        Cmd::Syscalls(args) => block_on(args.common.client_threads, one_row(&args, Tool::Syscalls)),
    }
}

fn measure_cluster(args: &cluster::Arguments) -> Result<ExitCode> {
    raise_open_files();
    let _priority = Priority::raise(args.common.nice);
    let verdict = verdict(&cluster::run(args)?);
    Ok(if args.check { verdict } else { ExitCode::SUCCESS })
}

/// Runs `work` in a network namespace of its own.
fn within_links(nice: i32, work: impl FnOnce() -> Result<ExitCode>) -> Result<ExitCode> {
    if let Some(status) = links::inside()? {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    raise_open_files();
    let _priority = Priority::raise(nice);
    work()
}

fn referrals(args: &referrals::Arguments) -> Result<ExitCode> {
    block_on(args.common.client_threads, async {
        raise_open_files();
        let _priority = Priority::raise(args.common.nice);
        println!("{}", referrals::run(args).await?);
        Ok(ExitCode::SUCCESS)
    })
}

/// Measures SMB over QUIC, as root in a network namespace of its own.
fn over_quic(args: &quic::Arguments) -> Result<ExitCode> {
    let is_root = rustix::process::geteuid().is_root();
    let work = || {
        block_on(args.common.client_threads, async {
            let is_met = quic::run(args, is_root).await?;
            Ok(ExitCode::from(u8::from(args.check && !is_met)))
        })
    };
    if is_root {
        return within_links(args.common.nice, work);
    }
    raise_open_files();
    let _priority = Priority::raise(args.common.nice);
    work()
}

/// Runs `work` until it ends or a signal comes; dropping it stops the servers and removes the
/// files.
fn block_on(threads: usize, work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = if threads > 1 {
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?
    } else {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    };
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}

/// Priority for us and the servers that inherit it; the scheduler weighs sessions before
/// processes, so the session gets it too, until this is dropped.
struct Priority {
    nice: i32,
    session_before: Option<String>,
}

const SESSION_NICE: &str = "/proc/self/autogroup";

impl Priority {
    fn raise(nice: i32) -> Self {
        use rustix::process::{getpriority_process, setpriority_process};
        let _ = setpriority_process(None, nice);
        // The file contains, for example, "/autogroup-117 nice 0", so its last word is the nice
        // value.
        let session_before = std::fs::read_to_string(SESSION_NICE)
            .ok()
            .and_then(|s| Some(s.split_ascii_whitespace().next_back()?.to_owned()))
            .filter(|_| std::fs::write(SESSION_NICE, nice.to_string()).is_ok());
        Self { nice: getpriority_process(None).unwrap_or(0), session_before }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = &self.session_before {
            let _ = std::fs::write(SESSION_NICE, before);
        }
    }
}

/// As many open files as allowed, for us and for the servers that inherit it.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    let most = hard.map_or(NOFILE, |h| h.max(NOFILE));
    let raised = Rlimit { current: Some(most.min(NOFILE)), maximum: hard.map(|_| most) };
    if setrlimit(Resource::Nofile, raised).is_err() {
        // Without the privilege to raise the hard limit the call fails, and the limits stay as they
        // are.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    }
}

async fn table(args: &TableArgs) -> Result<ExitCode> {
    raise_open_files();
    let priority = Priority::raise(args.common.nice);
    let rows = Row::matching(args.rows.as_deref());
    ensure!(!rows.is_empty(), "no row has that name; rows: {}", names());
    let pace = pace(args);
    let kinds: Vec<Kind> = match (args.only, args.against) {
        _ if args.before.is_some() => vec![Kind::Frevo, Kind::Frevo],
        (Some(only), _) => vec![only],
        (None, against) => vec![Kind::Smbd, against.unwrap_or(Kind::Frevo)],
    };
    let labels = match args.before {
        Some(_) => vec!["before".to_owned(), "after".to_owned()],
        None => labels(&kinds),
    };
    let programs = args.common.programs();
    let earlier = args.before.as_ref().map(|before| Programs {
        frevo: before.clone(),
        frevo_args: args.before_arg.clone(),
        ..programs.clone()
    });
    let scratch = args.common.scratch()?;
    let share = share::prepare(scratch.path(), rows.contains(&Row::List))?;
    let mut peers: Vec<server::Peer> = Vec::new();
    for (n, (kind, label)) in kinds.iter().zip(&labels).enumerate() {
        let programs = earlier.as_ref().filter(|_| n == 0).unwrap_or(&programs);
        // Clients may change files in the folder, so a second server of Frevo gets a folder of its
        // own.
        let is_taken = *kind == Kind::Frevo && peers.iter().any(|peer| peer.kind == Kind::Frevo);
        let own = scratch.path().join(label);
        let share = if is_taken {
            std::fs::create_dir(&own)?;
            share::prepare(&own, rows.contains(&Row::List))?
        } else {
            share.clone()
        };
        peers.push(server::start(*kind, label, &share, scratch.path(), programs)?);
    }
    peers.push(server::start(Kind::Limit, "limit", &share, scratch.path(), &programs)?);
    let load_before = proc::load();
    let machine = proc::machine(scratch.path());
    let bench = Bench { peers, scratch: scratch.path() };
    let mut results = Vec::new();
    for row in rows {
        results.push(bench.row(row, pace).await?);
        eprint_progress(row);
    }
    let report = Report {
        base: labels[0].clone(),
        subject: labels.get(1).cloned(),
        least_ratio: args.before.is_some().then_some(KEPT),
        machine,
        setting: setting(args, &kinds, pace, load_before, priority.nice),
        rows: results,
    };
    deliver(&report, args.out.as_deref())?;
    Ok(if args.check { verdict(&report.missed()) } else { ExitCode::SUCCESS })
}

/// Names the promises that were missed.
fn verdict(missed: &[String]) -> ExitCode {
    for line in missed {
        println!("missed: {line}");
    }
    ExitCode::from(u8::from(!missed.is_empty()))
}

fn eprint_progress(row: Row) {
    let _ =
        std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{} done\n", row.name()));
}

fn pace(args: &TableArgs) -> Pace {
    let (rounds, round_ms) = if args.quick { (5, 120) } else { (15, 400) };
    Pace {
        rounds: args.rounds.unwrap_or(rounds).max(1),
        round: Duration::from_millis(args.round_ms.unwrap_or(round_ms)),
        connections: args.connections,
    }
}

/// Returns names for the columns; a server that occurs twice gets two names.
fn labels(kinds: &[Kind]) -> Vec<String> {
    kinds
        .iter()
        .enumerate()
        .map(|(n, kind)| {
            let again = if kinds[..n].contains(kind) { "-again" } else { "" };
            format!("{}{again}", kind.name())
        })
        .collect()
}

fn setting(
    args: &TableArgs,
    kinds: &[Kind],
    pace: Pace,
    load_before: f64,
    nice: i32,
) -> Vec<String> {
    let common = &args.common;
    let mut lines = Vec::new();
    if kinds.contains(&Kind::Smbd) {
        let extra = common.smbd_conf.join(", ");
        let conf = if extra.is_empty() { "its defaults".to_owned() } else { extra };
        lines.push(format!("smbd {}, {conf}", server::version(&common.smbd)));
    }
    if let Some(before) = &args.before {
        let extra = args.before_arg.join(" ");
        lines.push(format!("before: {} {extra}", server::version(before)).trim_end().to_owned());
    }
    if kinds.contains(&Kind::Frevo) {
        let extra = common.frevo_arg.join(" ");
        lines.push(format!("{} {extra}", server::version(&common.frevo)).trim_end().to_owned());
    }
    lines.push(format!(
        "client: crate smb2 0.39.0, {} thread(s), no compression; small requests signed",
        common.client_threads
    ));
    lines.push(format!(
        "{} interleaved rounds of {} ms at nice {nice}; load average {load_before:.1} before, {:.1} after",
        pace.rounds,
        pace.round.as_millis(),
        proc::load()
    ));
    lines
}

fn deliver(report: &Report, out: Option<&Path>) -> Result<()> {
    let markdown = report.markdown();
    println!("{markdown}");
    if let Some(path) = out {
        std::fs::write(path, &markdown)?;
        let json = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(path.with_extension("json"), json + "\n")?;
    }
    Ok(())
}

fn names() -> String {
    Row::ALL.iter().map(|r| r.name()).collect::<Vec<_>>().join(", ")
}

#[derive(Clone, Copy)]
enum Tool {
    Profile,
    Syscalls,
}

async fn one_row(args: &RowArgs, tool: Tool) -> Result<ExitCode> {
    let rows = Row::matching(Some(&args.row));
    let exact = rows.iter().copied().find(|r| r.name() == args.row);
    let row = exact.or(if rows.len() == 1 { rows.first().copied() } else { None });
    let row = row.with_context(|| {
        format!("{} does not select exactly one row; rows: {}", args.row, names())
    })?;
    ensure!(row != Row::Memory, "memory is not a timed row");
    let _priority = Priority::raise(args.common.nice);
    let programs = args.common.programs();
    let scratch = args.common.scratch()?;
    let label = args.against.name();
    let share = share::prepare(scratch.path(), row == Row::List)?;
    let peer = server::start(args.against, label, &share, scratch.path(), &programs)?;
    let time = Duration::from_secs(args.seconds);
    match tool {
        Tool::Profile => profile::profile(row, &peer, &share, time).await?,
        Tool::Syscalls => profile::syscalls(row, &peer, &share, time).await?,
    }
    Ok(ExitCode::SUCCESS)
}
