//! Writes and locks on a share of a cluster while its nodes fail, and judges what was acknowledged.
//!
//! Each writer is a client of its own, with a persistent handle of a file of its own, a range of it locked for
//! the whole run, and another one that is locked and unlocked all the time. One more client tries these
//! ranges. An error of any request is a finding: the library hides failovers. Each time before a
//! block is written again, and at the end, it must have the bytes of its last acknowledged write.
//!
//! Prints `ready` when all files are open, and goes on until standard input ends. `--log` gets a line
//! `WRITER BEGIN END` for each acknowledged write at once, in nanoseconds of CLOCK_MONOTONIC. `--news` gets a line
//! `WRITER MOMENT COUNT ADDRESS` whenever a writer's session has another witness, or has heeded one: the count of
//! what it has heeded, and the address of its witness, or `-`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::io::{ErrorKind, LineWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use frevo_client::{
    Client, Credentials, File, LeaseState, LockKind, OpenOptions, Options, ServerAddresses,
    ServerName, Session, Share,
};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Bytes of one write, and blocks of one file.
const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
/// The offset of ranges that stay locked, and of those that come and go.
const STANDING: u64 = 1 << 40;
const PASSING: u64 = 1 << 41;
/// Time between two looks at the witnesses of the sessions.
const LOOK: Duration = Duration::from_millis(2);
/// Findings that are printed; more say nothing new.
const SHOWN: usize = 20;

/// Writes and locks on a share of a cluster, and counts what was lost.
#[derive(Parser)]
struct Arguments {
    /// Address or name of the cluster.
    address: String,
    /// Name of the share.
    share: String,
    /// The folder of the share on this machine.
    folder: PathBuf,
    /// Number of writers.
    #[arg(long, default_value_t = 8)]
    writers: u64,
    /// Name of the user; FREVO_PASSWORD is the password.
    #[arg(long, default_value = "ann")]
    user: String,
    /// Seconds for which a client waits for a lost server.
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// An address of the cluster, in place of those of its name; repeatable.
    #[arg(long)]
    at: Vec<String>,
    /// Registers with no witness.
    #[arg(long)]
    no_witness: bool,
    /// Milliseconds that each writer rests after a write.
    #[arg(long, default_value_t = 0)]
    rest: u64,
    /// File of the acknowledged writes.
    #[arg(long)]
    log: PathBuf,
    /// File of the news of witnesses.
    #[arg(long)]
    news: Option<PathBuf>,
}

/// The parts that all clients share.
struct Run {
    rest: Duration,
    is_over: AtomicBool,
    findings: AtomicUsize,
    writes: AtomicU64,
    /// Blocks that were read and compared before they were written again.
    compared: AtomicU64,
    locks: AtomicU64,
    /// Locks of others that were tried and found held.
    held: AtomicU64,
    log: Mutex<LineWriter<std::fs::File>>,
}

/// A client with a file of its own.
struct Writer {
    number: u64,
    session: Session,
    share: Share,
    file: File,
    /// The number of the last acknowledged write of each block.
    acknowledged: Mutex<Vec<u64>>,
}

impl Run {
    fn found(&self, what: impl std::fmt::Display) {
        if self.findings.fetch_add(1, Ordering::AcqRel) < SHOWN {
            eprintln!("finding: {what}");
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The bytes of a write: each eight of them name the writer, the block and the write.
fn content(writer: u64, block: u64, write: u64) -> Vec<u8> {
    let word = (writer << 56) | (block << 40) | write;
    word.to_le_bytes().repeat(BLOCK / 8)
}

async fn log_on(arguments: &Arguments, password: &str) -> Result<Session> {
    let patience = Duration::from_secs(arguments.patience);
    let addresses: Vec<_> = arguments.at.iter().map(ServerName::new).collect();
    let named = ServerAddresses { host: arguments.address.clone(), addresses };
    let options = Options::new()
        .durable(true)
        .recover_for(patience)
        .witness(!arguments.no_witness)
        .addresses(if arguments.at.is_empty() { Vec::new() } else { vec![named] });
    let credentials = Credentials::new(&arguments.user, password);
    Ok(Client::new(options).connect(ServerName::new(&arguments.address), credentials).await?)
}

async fn open(share: &Share, number: u64) -> Result<File> {
    let options = OpenOptions::new().read(true).write(true).create(true).write_through(true);
    Ok(options.lease(LeaseState::EMPTY).open(share, &format!("load-{number}")).await?)
}

/// Tells how a block differs from its last acknowledged write. None if it does not.
fn difference(found: &[u8], writer: u64, block: u64, write: u64) -> Option<String> {
    if found == content(writer, block, write) {
        return None;
    }
    let words =
        found.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
    let wanted = (writer << 56) | (block << 40) | write;
    let first = words.clone().find(|word| *word != wanted);
    let first =
        first.map_or_else(|| format!("{} bytes", found.len()), |word| format!("{word:016x}"));
    Some(format!("writer {writer}: block {block} has {first}, not write {write}"))
}

/// Reads a block that is to be written again, and compares it: a write that was lost or came late would
/// not be found after the next one.
async fn compare(run: &Run, writer: &Writer, block: u64) -> std::io::Result<()> {
    let last = writer.acknowledged.lock().get(block as usize).copied().unwrap_or_default();
    if last == 0 {
        return Ok(());
    }
    let mut found = vec![0; BLOCK];
    writer.file.read_exact_at(&mut found, block * BLOCK as u64).await?;
    run.compared.fetch_add(1, Ordering::Relaxed);
    if let Some(what) = difference(&found, writer.number, block, last) {
        run.found(what);
    }
    Ok(())
}

/// Writes one block after the other, and locks and unlocks a range beside.
async fn write(run: &Run, writer: &Writer) -> Result<(), String> {
    let mut write = 0;
    while !run.is_over() {
        write += 1;
        let block = write % BLOCKS;
        let what = |error| format!("writer {}, write {write}: {error}", writer.number);
        compare(run, writer, block).await.map_err(|error| {
            format!("writer {}, the read before write {write}: {error}", writer.number)
        })?;
        let begin = now();
        let bytes = content(writer.number, block, write);
        writer.file.write_all_at(&bytes, block * BLOCK as u64).await.map_err(what)?;
        let end = now();
        if let Some(last) = writer.acknowledged.lock().get_mut(block as usize) {
            *last = write;
        }
        run.writes.fetch_add(1, Ordering::Relaxed);
        writeln!(run.log.lock(), "{} {begin} {end}", writer.number).map_err(|e| e.to_string())?;
        if write.is_multiple_of(4) {
            let (offset, lock) = (PASSING + write % 1024, LockKind::Exclusive);
            writer.file.try_lock(offset, 16, lock).await.map_err(what)?;
            writer.file.unlock(offset, 16).await.map_err(what)?;
            run.locks.fetch_add(1, Ordering::Relaxed);
        }
        if !run.rest.is_zero() {
            sleep(run.rest).await;
        }
    }
    Ok(())
}

/// Tries the ranges that writers hold, one after the other.
async fn probe(run: &Run, files: &[File]) -> Result<(), String> {
    while !run.is_over() {
        for (number, file) in files.iter().enumerate() {
            match file.try_lock(STANDING, 1, LockKind::Exclusive).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    run.held.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(format!("trying the lock of writer {number}: {error}")),
                Ok(()) => return Err(format!("the lock of writer {number} is free")),
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Writes down what the witnesses of the sessions have told.
async fn note_news(run: &Run, shares: &[Share], path: &Path) -> Result<(), String> {
    let file = std::fs::File::create(path).map_err(|error| format!("the news: {error}"))?;
    let mut lines = LineWriter::new(file);
    let mut known = vec![None; shares.len()];
    while !run.is_over() {
        for (number, (share, known)) in shares.iter().zip(&mut known).enumerate() {
            let Some(info) = share.witness() else { continue };
            let found = Some((info.heeded, info.address));
            if *known == found {
                continue;
            }
            // The moment of what was heeded is its own, that of a new witness is this one.
            let is_heeded = known.is_none_or(|(heeded, _)| heeded < info.heeded);
            let ago = info.last.filter(|_| is_heeded).map_or(Duration::ZERO, |last| last.ago);
            let moment = now().saturating_sub(ago.as_nanos().try_into().unwrap_or_default());
            let address = info.address.map_or_else(|| "-".into(), |address| address.to_string());
            *known = found;
            writeln!(lines, "{number} {moment} {} {address}", info.heeded)
                .map_err(|error| format!("the news: {error}"))?;
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Compares the blocks of a file with the last acknowledged writes.
fn judge(run: &Run, arguments: &Arguments, writer: &Writer) -> Result<()> {
    let path = arguments.folder.join(format!("load-{}", writer.number));
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    for (block, write) in (0..).zip(writer.acknowledged.lock().iter()) {
        let at = block as usize * BLOCK;
        let found = bytes.get(at..at + BLOCK).unwrap_or_default();
        if *write > 0
            && let Some(what) = difference(found, writer.number, block, *write)
        {
            run.found(format!("at the end: {what}"));
        }
    }
    Ok(())
}

async fn run(arguments: &Arguments) -> Result<usize> {
    let password = std::env::var("FREVO_PASSWORD").context("FREVO_PASSWORD is not set")?;
    let log = std::fs::File::create(&arguments.log).context("the log")?;
    let run = Arc::new(Run {
        rest: Duration::from_millis(arguments.rest),
        is_over: AtomicBool::new(false),
        findings: AtomicUsize::new(0),
        writes: AtomicU64::new(0),
        compared: AtomicU64::new(0),
        locks: AtomicU64::new(0),
        held: AtomicU64::new(0),
        log: Mutex::new(LineWriter::new(log)),
    });
    let mut writers = Vec::new();
    let prober = log_on(arguments, &password).await?.share(&arguments.share).await?;
    let mut probed = Vec::new();
    for number in 0..arguments.writers {
        let session = log_on(arguments, &password).await?;
        let share = session.share(&arguments.share).await?;
        let file = open(&share, number).await?;
        file.try_lock(STANDING, 4096, LockKind::Exclusive).await?;
        probed.push(open(&prober, number).await?);
        let acknowledged = Mutex::new(vec![0; BLOCKS as usize]);
        writers.push(Arc::new(Writer { number, session, share, file, acknowledged }));
    }
    let mut tasks = JoinSet::new();
    for writer in &writers {
        let (run, writer) = (Arc::clone(&run), Arc::clone(writer));
        tasks.spawn(async move { write(&run, &writer).await.map_err(|what| run.found(what)) });
    }
    let (probing, files) = (Arc::clone(&run), probed.clone());
    tasks.spawn(async move { probe(&probing, &files).await.map_err(|what| probing.found(what)) });
    if let Some(path) = arguments.news.clone() {
        let shares: Vec<_> = writers.iter().map(|writer| writer.share.clone()).collect();
        let noting = Arc::clone(&run);
        tasks.spawn(async move {
            note_news(&noting, &shares, &path).await.map_err(|what| noting.found(what))
        });
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await??;
    run.is_over.store(true, Ordering::Release);
    while let Some(ended) = tasks.join_next().await {
        ended.map(drop).or_else(|error| if error.is_panic() { Err(error) } else { Ok(()) })?;
    }
    for writer in &writers {
        judge(&run, arguments, writer)?;
        writer
            .file
            .clone()
            .close()
            .await
            .unwrap_or_else(|error| run.found(format!("closing: {error}")));
        writer.session.clone().log_off().await;
    }
    run.log.lock().flush()?;
    let (writes, locks) = (run.writes.load(Ordering::Relaxed), run.locks.load(Ordering::Relaxed));
    let (compared, held) = (run.compared.load(Ordering::Relaxed), run.held.load(Ordering::Relaxed));
    let findings = run.findings.load(Ordering::Acquire);
    println!(
        "{writes} writes, {compared} compared, {locks} locks, {held} held, {findings} findings"
    );
    Ok(findings)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("frevo-cluster-load: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_is_lost_or_torn_is_told() {
        let (before, last) = (content(3, 5, 69), content(3, 5, 133));
        assert_eq!(difference(&last, 3, 5, 133), None);
        let torn = [&last[..BLOCK / 2], &before[BLOCK / 2..]].concat();
        for found in [&before, &torn] {
            let told = difference(found, 3, 5, 133).unwrap();
            assert_eq!(told, "writer 3: block 5 has 0300050000000045, not write 133");
        }
        let told = difference(&last[..8], 3, 5, 133).unwrap();
        assert_eq!(told, "writer 3: block 5 has 8 bytes, not write 133");
    }
}
