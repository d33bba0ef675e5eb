//! Large files once through: their data is in the page cache, and too much for the processor's caches,
//! as that of a file which a client copies. Beside them a copy on the server, and reads over a longer
//! way.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

mod page;

use crate::client::{Client, Open, Protection, Requests, write_request};
use crate::clients::relay::Relay;
use crate::common::Common;
use crate::load::TUNED;
use crate::proc;
use crate::raw::RawLoad;
use crate::rows::DEPTH;
use crate::server::{self, Kind, Peer, Target};
use crate::share::{BLOCK_LEN, PART_LEN, READ_NAME, WRITE_NAME, block, written_block};
use page::Page;

/// Round trip of the rows over a longer way, beside that of the loopback.
const FAR: Duration = Duration::from_micros(200);
/// Requests of a row over a longer way.
const FAR_PARTS: u64 = 4096;
/// The name of the copy on the share.
const COPY_NAME: &str = "copy.bin";
/// Blocks that are compared after a write or a copy.
const PROVED_BLOCKS: u64 = 16;

/// `frevo-bench cold`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Size of the file, MiB. Twice as much is needed where `--dir` is.
    #[arg(long, default_value_t = 2048)]
    mib: u64,
    /// Interleaved rounds of each row and server.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Parts of row names, separated by commas [default: all rows].
    #[arg(long)]
    rows: Option<String>,
    /// Write the Markdown here.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A row of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// Reads the file once in blocks of 1 MiB.
    Read(Protection),
    /// Writes a new file once in blocks of 1 MiB.
    Write(Protection),
    /// Copies the file on the server (FSCTL_SRV_COPYCHUNK).
    Copy,
    /// Reads 64 KiB at a time, with so many requests in flight, over a longer way.
    Far(usize),
}

impl Row {
    const ALL: [Self; 9] = [
        Self::Read(Protection::Unsigned),
        Self::Read(Protection::Signed),
        Self::Read(Protection::Sealed),
        Self::Write(Protection::Unsigned),
        Self::Write(Protection::Signed),
        Self::Write(Protection::Sealed),
        Self::Copy,
        Self::Far(1),
        Self::Far(32),
    ];

    fn name(self) -> String {
        match self {
            Self::Read(protection) => format!("read-cold-{}", protection.name()),
            Self::Write(protection) => format!("write-cold-{}", protection.name()),
            Self::Copy => "copy-on-server".to_owned(),
            Self::Far(depth) => format!("read-far-{depth}"),
        }
    }

    fn matching(pattern: Option<&str>) -> Vec<Self> {
        let is_wanted = |row: &Self| {
            pattern.is_none_or(|p| p.split(',').any(|part| row.name().contains(part.trim())))
        };
        Self::ALL.into_iter().filter(is_wanted).collect()
    }

    const fn protection(self) -> Protection {
        match self {
            Self::Read(protection) | Self::Write(protection) => protection,
            Self::Copy => Protection::Signed,
            Self::Far(_) => Protection::Unsigned,
        }
    }
}

/// One pass of one server.
#[derive(Debug, Clone, Copy)]
struct Pass {
    bytes: u64,
    seconds: f64,
    server_cpu: f64,
    others_cpu: f64,
}

/// The passes of one server in a row.
struct Outcome {
    label: String,
    passes: Vec<Pass>,
}

/// Runs the rows and returns the page.
pub(crate) async fn run(args: &Arguments) -> Result<String> {
    let rows = Row::matching(args.rows.as_deref());
    let names = || Row::ALL.map(Row::name).join(", ");
    ensure!(!rows.is_empty(), "no row has that name; rows: {}", names());
    let scratch = args.common.scratch()?;
    let share = prepare(scratch.path(), args.mib)?;
    let programs = args.common.programs();
    let mut tuned = programs.clone();
    tuned.smbd_conf.extend(TUNED.iter().map(|line| (*line).to_owned()));
    let mut peers = Vec::new();
    for (kind, label, programs) in [
        (Kind::Limit, "bare", &programs),
        (Kind::Smbd, "smbd", &programs),
        (Kind::Smbd, "tuned", &tuned),
        (Kind::Frevo, "Frevo", &programs),
    ] {
        peers.push(server::start(kind, label, &share, scratch.path(), programs)?);
    }
    let mut page = Page::new(&peers, setting(args, scratch.path()));
    for row in rows {
        let mut outcomes: Vec<Outcome> = peers
            .iter()
            .map(|peer| Outcome { label: peer.label.clone(), passes: Vec::new() })
            .collect();
        for round in 0..args.rounds {
            let mut order: Vec<_> = peers.iter().zip(&mut outcomes).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for (peer, outcome) in order {
                let pass = pass(row, peer, &share, args.mib).await;
                let pass = pass.with_context(|| format!("{} on {}", row.name(), peer.label))?;
                outcome.passes.push(pass);
            }
        }
        page.add(&row.name(), &outcomes);
    }
    let text = page.text();
    if let Some(path) = &args.out {
        fs::write(path, &text)?;
    }
    Ok(text)
}

fn setting(args: &Arguments, scratch: &Path) -> Vec<String> {
    let mut lines = proc::machine(scratch);
    lines.push(format!("smbd {}", server::version(&args.common.smbd)));
    lines.push(format!("tuned: smbd with {}", TUNED.join(", ")));
    lines.push(server::version(&args.common.frevo));
    lines.push(format!("{} interleaved rounds, {} MiB in each", args.rounds, args.mib));
    lines
}

/// Makes a folder that any account may write to, with the file.
fn prepare(scratch: &Path, mib: u64) -> Result<PathBuf> {
    let share = scratch.join("share");
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777));
    fs::create_dir(&share)?;
    open(&share)?;
    let mut file = File::create(share.join(READ_NAME))?;
    for n in 0..mib {
        file.write_all(&block(n, 0)).context("writing the file; --mib makes it smaller")?;
    }
    file.sync_all()?;
    open(&share.join(READ_NAME))?;
    File::create(share.join(WRITE_NAME))?;
    open(&share.join(WRITE_NAME))?;
    Ok(share)
}

/// Measures one pass over a connection of its own.
async fn pass(row: Row, peer: &Peer, share: &Path, mib: u64) -> Result<Pass> {
    tidy(share)?;
    let target = match row {
        Row::Far(_) => {
            let relay = Relay::start(peer.target.addr.clone(), FAR)?;
            Target { addr: format!("127.0.0.1:{}", relay.port), ..peer.target.clone() }
        }
        _ => peer.target.clone(),
    };
    let mut work = match peer.kind {
        Kind::Limit => Work::Bare(RawLoad::to(&target.addr)?),
        _ => Work::Smb(Box::new(Client::connect(&target, row.protection()).await?)),
    };
    let before = (proc::cpu_seconds(peer.pid()), proc::own_cpu_seconds());
    let (start, machine) = (Instant::now(), proc::machine_cpu_seconds());
    let bytes = match &mut work {
        Work::Bare(raw) => bare(raw, row, share, mib)?,
        Work::Smb(client) => smb(client, row, &peer.label, mib).await?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let machine = proc::machine_cpu_seconds() - machine;
    // The CPU time of a process group may shrink by some milliseconds when a process ends, so a
    // negative difference becomes 0.
    let server = (proc::cpu_seconds(peer.pid()) - before.0).max(0.0);
    let own = proc::own_cpu_seconds() - before.1;
    prove(row, share, &peer.label, mib)?;
    // In the row "bare copy" this process itself makes the copy, so its own CPU time is that of the
    // server.
    let is_own = row == Row::Copy && peer.kind == Kind::Limit;
    Ok(Pass {
        bytes,
        seconds,
        server_cpu: if is_own { own } else { server },
        others_cpu: (machine - server - own).max(0.0),
    })
}

enum Work {
    Bare(RawLoad),
    Smb(Box<Client>),
}

/// Removes the data of the pass before.
fn tidy(share: &Path) -> Result<()> {
    File::options().write(true).open(share.join(WRITE_NAME))?.set_len(0)?;
    match fs::remove_file(share.join(COPY_NAME)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn bare(raw: &mut RawLoad, row: Row, share: &Path, mib: u64) -> Result<u64> {
    match row {
        Row::Read(_) => raw.read_through(mib, BLOCK_LEN, DEPTH),
        Row::Write(_) => raw.write_through(mib, DEPTH),
        Row::Copy => Ok(fs::copy(share.join(READ_NAME), share.join(COPY_NAME))?),
        Row::Far(depth) => raw.read_through(FAR_PARTS.min(mib * 16), PART_LEN, depth),
    }
}

async fn smb(client: &mut Client, row: Row, label: &str, mib: u64) -> Result<u64> {
    let requests = client.requests();
    match row {
        Row::Read(_) => read_through(&requests, mib, BLOCK_LEN, DEPTH).await,
        Row::Far(depth) => read_through(&requests, FAR_PARTS.min(mib * 16), PART_LEN, depth).await,
        Row::Write(_) => write_through(&requests, mib, label).await,
        Row::Copy => {
            let Client { tree, conn, .. } = client;
            Ok(tree.server_side_copy_file(conn, READ_NAME, COPY_NAME).await?)
        }
    }
}

/// Reads so many parts of the file, each once.
async fn read_through(requests: &Requests, parts: u64, len: usize, depth: usize) -> Result<u64> {
    let file = requests.open(READ_NAME, Open::Read).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..depth {
        let (requests, next) = (requests.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            let length = u32::try_from(len)?;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= parts {
                    return anyhow::Ok(());
                }
                requests.read(file, n * len as u64, length).await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    requests.close(file).await?;
    Ok(parts * len as u64)
}

/// Writes so many blocks to the file, each once.
async fn write_through(requests: &Requests, blocks: u64, label: &str) -> Result<u64> {
    let file = requests.open(WRITE_NAME, Open::Write).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..DEPTH {
        let (requests, next) = (requests.clone(), Arc::clone(&next));
        let mut request = write_request(file, written_block(label));
        tasks.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= blocks {
                    return anyhow::Ok(());
                }
                request.offset = n * BLOCK_LEN as u64;
                requests.write(&request).await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    requests.close(file).await?;
    Ok(blocks * BLOCK_LEN as u64)
}

/// Checks what a pass has written or copied, at some places and by its length.
fn prove(row: Row, share: &Path, label: &str, mib: u64) -> Result<()> {
    let name = match row {
        Row::Write(_) => WRITE_NAME,
        Row::Copy => COPY_NAME,
        Row::Read(_) | Row::Far(_) => return Ok(()),
    };
    let file = File::open(share.join(name))?;
    let length = file.metadata()?.len();
    ensure!(length == mib * BLOCK_LEN as u64, "{name} has {length} bytes after the pass");
    let written = written_block(if label == "bare" { "limit" } else { label });
    let mut found = vec![0; BLOCK_LEN];
    let step = usize::try_from((mib / PROVED_BLOCKS).max(1))?;
    for n in (0..mib).step_by(step) {
        file.read_exact_at(&mut found, n * BLOCK_LEN as u64)?;
        let expected = if row == Row::Copy { block(n, 0) } else { written.clone() };
        ensure!(found == expected, "block {n} of {name} is wrong after the pass of {label}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_parts_of_their_names() {
        assert_eq!(Row::matching(None).len(), Row::ALL.len());
        assert_eq!(Row::matching(Some("cold-sealed")).len(), 2);
        assert_eq!(Row::matching(Some("copy, far-32")), [Row::Copy, Row::Far(32)]);
        assert!(Row::matching(Some("nothing")).is_empty());
    }

    #[test]
    fn a_pass_that_wrote_too_little_or_something_else_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let share = prepare(dir.path(), 2).unwrap();
        let row = Row::Write(Protection::Unsigned);
        assert!(prove(row, &share, "Frevo", 2).is_err(), "nothing was written");
        fs::write(share.join(WRITE_NAME), written_block("Frevo").repeat(2)).unwrap();
        prove(row, &share, "Frevo", 2).unwrap();
        assert!(prove(row, &share, "smbd", 2).is_err());
        fs::copy(share.join(READ_NAME), share.join(COPY_NAME)).unwrap();
        prove(Row::Copy, &share, "Frevo", 2).unwrap();
        tidy(&share).unwrap();
        assert!(prove(row, &share, "Frevo", 2).is_err());
        assert!(prove(Row::Copy, &share, "Frevo", 2).is_err());
    }
}
