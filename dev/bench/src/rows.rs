//! The rows of the table, and how each runs against a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use smb2::msg::write::WriteRequest;
use smb2::types::FileId;
use tokio::task::JoinSet;

use crate::client::{Client, Open, Protection, Requests, write_request};
use crate::proc;
use crate::raw::RawLoad;
use crate::server::{Kind, Peer};
use crate::share::{self, BLOCK_LEN, LISTED_FILES, READ_BLOCKS, SMALL_LEN, WRITE_BLOCKS};
use crate::wire::Frames;

/// Requests in flight in the sequential rows.
pub(crate) const DEPTH: usize = 4;
/// Connections of the open+read+close row, each with one request in flight.
pub(crate) const SMALL_CLIENTS: usize = 8;
/// Blocks of the read file that are compared before the measurement.
const PROVED_BLOCKS: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    Read(Protection),
    Write(Protection),
    Stat,
    CreateDelete,
    OpenReadClose,
    Connect,
    List,
    Memory,
}

/// The unit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes, shown as MB/s.
    Bytes,
    /// Operations or entries, shown as a rate.
    Ops,
    /// Operations or entries, shown as a rate.
    Entries,
    /// Not a rate: less is better.
    KibPerConnection,
}

impl Row {
    pub(crate) const ALL: [Self; 12] = [
        Self::Read(Protection::Unsigned),
        Self::Read(Protection::Signed),
        Self::Read(Protection::Sealed),
        Self::Write(Protection::Unsigned),
        Self::Write(Protection::Signed),
        Self::Write(Protection::Sealed),
        Self::Stat,
        Self::CreateDelete,
        Self::OpenReadClose,
        Self::Connect,
        Self::List,
        Self::Memory,
    ];

    /// Returns the row's name for the command line.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Read(p) => format!("read-{}", p.name()),
            Self::Write(p) => format!("write-{}", p.name()),
            Self::Stat => "stat".to_owned(),
            Self::CreateDelete => "create-delete".to_owned(),
            Self::OpenReadClose => "open-read-close".to_owned(),
            Self::Connect => "connect".to_owned(),
            Self::List => "list".to_owned(),
            Self::Memory => "memory".to_owned(),
        }
    }

    /// Returns the row's name for readers.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Read(p) => format!("read 1 MiB x {DEPTH}, {}", p.name()),
            Self::Write(p) => format!("write 1 MiB x {DEPTH}, {}", p.name()),
            Self::Stat => "stat".to_owned(),
            Self::CreateDelete => "create + delete".to_owned(),
            Self::OpenReadClose => format!("open + read 4 KiB + close, {SMALL_CLIENTS} clients"),
            Self::Connect => "connect to logoff".to_owned(),
            Self::List => format!("list {LISTED_FILES} entries"),
            Self::Memory => "idle connection".to_owned(),
        }
    }

    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::Read(_) | Self::Write(_) => Unit::Bytes,
            Self::Stat | Self::CreateDelete | Self::OpenReadClose | Self::Connect => Unit::Ops,
            Self::List => Unit::Entries,
            Self::Memory => Unit::KibPerConnection,
        }
    }

    /// Returns the promised ratio of Frevo's rate to smbd's.
    pub(crate) fn target(self) -> f64 {
        match self {
            Self::Read(_) | Self::Write(_) => 1.3,
            Self::Stat | Self::CreateDelete | Self::Connect | Self::List => 3.0,
            Self::OpenReadClose | Self::Memory => 1.0,
        }
    }

    /// Returns the rows whose name contains one of the comma-separated parts of `pattern`.
    pub(crate) fn matching(pattern: Option<&str>) -> Vec<Self> {
        let wanted = |row: &Self| {
            pattern.is_none_or(|p| p.split(',').any(|part| row.name().contains(part.trim())))
        };
        Self::ALL.into_iter().filter(wanted).collect()
    }
}

/// The amount of one round, in the row's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(u64);

impl Count {
    pub(crate) fn new(count: u64) -> Self {
        Self(count)
    }
}

/// The measurement of one round.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Round {
    /// Number of bytes, operations or entries.
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    pub(crate) server_cpu_seconds: f64,
    pub(crate) client_cpu_seconds: f64,
    /// CPU seconds of other work: other programs, interrupts, stolen time.
    pub(crate) others_cpu_seconds: f64,
}

/// CPU seconds so far, at one moment.
struct Cpu {
    server: f64,
    client: f64,
    machine: f64,
}

impl Cpu {
    fn now(server: u32) -> Self {
        Self {
            server: proc::cpu_seconds(server),
            client: proc::own_cpu_seconds(),
            machine: proc::machine_cpu_seconds(),
        }
    }
}

/// A row that is set up against one server, so that a round has no set-up cost.
pub(crate) struct Load {
    row: Row,
    pid: u32,
    label: String,
    share: PathBuf,
    work: Work,
}

enum Work {
    Limit(RawLoad),
    Smb(Box<SmbLoad>),
}

impl Load {
    pub(crate) async fn open(row: Row, peer: &Peer, share: &Path) -> Result<Self> {
        let work = match peer.kind {
            Kind::Limit => Work::Limit(RawLoad::open(row, &peer.target.addr)?),
            Kind::Bare => anyhow::bail!("the bare path of the load has no rows of the table"),
            Kind::Smbd | Kind::Frevo => Work::Smb(Box::new(SmbLoad::open(row, peer).await?)),
        };
        Ok(Self { row, pid: peer.pid(), label: peer.label.clone(), share: share.to_owned(), work })
    }

    pub(crate) async fn round(&mut self, peer: &Peer, time: Duration) -> Result<Round> {
        let before = Cpu::now(self.pid);
        let start = Instant::now();
        let count = match &mut self.work {
            Work::Limit(raw) => raw.run(start + time)?,
            Work::Smb(smb) => smb.run(self.row, peer, start + time).await?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let now = Cpu::now(self.pid);
        if matches!(self.row, Row::Write(_)) {
            share::check_written(&self.share, &self.label, self.work.written())?;
        }
        let (server, client) = (now.server - before.server, now.client - before.client);
        Ok(Round {
            count: count.0,
            seconds,
            server_cpu_seconds: server,
            client_cpu_seconds: client,
            others_cpu_seconds: (now.machine - before.machine - server - client).max(0.0),
        })
    }

    /// Returns the negotiated protection, and the frames since the load was opened.
    pub(crate) fn wire(&self) -> Option<(String, Frames)> {
        let Work::Smb(smb) = &self.work else { return None };
        let client = smb.clients.first()?;
        Some((client.description().to_owned(), client.tally().frames().since(smb.frames_before)))
    }

    /// Closes the open files.
    pub(crate) async fn finish(self) -> Result<()> {
        match self.work {
            Work::Limit(_) => Ok(()),
            Work::Smb(smb) => smb.finish().await,
        }
    }
}

impl Work {
    /// Returns the number of blocks written by the end of the last round.
    fn written(&self) -> u64 {
        match self {
            Self::Limit(raw) => raw.written(),
            Self::Smb(smb) => smb.block.load(Ordering::Relaxed),
        }
    }
}

struct SmbLoad {
    clients: Vec<Client>,
    frames_before: Frames,
    file: Option<FileId>,
    /// The next block of the sequential rows.
    block: Arc<AtomicU64>,
    serial: u64,
}

impl SmbLoad {
    async fn open(row: Row, peer: &Peer) -> Result<Self> {
        let protection = match row {
            Row::Read(p) | Row::Write(p) => p,
            _ => Protection::Signed,
        };
        let count = if row == Row::OpenReadClose { SMALL_CLIENTS } else { 1 };
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(Client::connect(&peer.target, protection).await?);
        }
        let client = clients.first().context("no client is connected")?;
        let frames_before = client.tally().frames();
        let requests = client.requests();
        let file = match row {
            Row::Read(_) => {
                let file = requests.open(share::READ_NAME, Open::Read).await?;
                prove_read(&requests, file).await?;
                Some(file)
            }
            Row::Write(_) => Some(requests.open(share::WRITE_NAME, Open::Write).await?),
            _ => None,
        };
        Ok(Self { clients, frames_before, file, block: Arc::default(), serial: 0 })
    }

    /// Reads or writes the large file with `DEPTH` requests at once; returns the blocks.
    async fn transfer(&self, row: Row, peer: &Peer, until: Instant) -> Result<u64> {
        let client = self.clients.first().context("no client is connected")?;
        let file = self.file.context("no file is open")?;
        let mut tasks = JoinSet::new();
        for _ in 0..DEPTH {
            let (requests, block) = (client.requests(), Arc::clone(&self.block));
            if matches!(row, Row::Read(_)) {
                tasks.spawn(read_blocks(requests, file, block, until));
            } else {
                let content = share::written_block(&peer.label);
                tasks.spawn(write_blocks(requests, write_request(file, content), block, until));
            }
        }
        sum(tasks).await
    }

    async fn run(&mut self, row: Row, peer: &Peer, until: Instant) -> Result<Count> {
        if matches!(row, Row::Read(_) | Row::Write(_)) {
            return Ok(Count(self.transfer(row, peer, until).await?));
        }
        let client = self.clients.first_mut().context("no client is connected")?;
        let done = match row {
            Row::Stat => {
                let mut done = 0;
                while Instant::now() < until {
                    let info = client.tree.stat(&mut client.conn, &share::small_name(done)).await?;
                    ensure!(info.size == SMALL_LEN as u64, "stat reports {} bytes", info.size);
                    done += 1;
                }
                done
            }
            Row::CreateDelete => {
                let requests = client.requests();
                let mut done = 0;
                while Instant::now() < until {
                    self.serial += 1;
                    let name = format!("new-{}-{}", peer.label, self.serial);
                    requests.close(requests.open(&name, Open::New).await?).await?;
                    client.tree.delete_file(&mut client.conn, &name).await?;
                    done += 1;
                }
                done
            }
            Row::OpenReadClose => {
                let mut tasks = JoinSet::new();
                for (client, n) in self.clients.iter().zip(0u64..) {
                    tasks.spawn(open_read_close(client.requests(), n, until));
                }
                sum(tasks).await?
            }
            Row::Connect => {
                let mut done = 0;
                while Instant::now() < until {
                    Client::connect(&peer.target, Protection::Signed).await?.logoff().await?;
                    done += 1;
                }
                done
            }
            Row::List => {
                let mut done = 0;
                loop {
                    let found = client
                        .tree
                        .list_directory(&mut client.conn, share::LIST_NAME)
                        .await?
                        .iter()
                        .filter(|e| e.name.starts_with("file-"))
                        .count();
                    ensure!(found == LISTED_FILES, "the listing has {found} entries");
                    done += found as u64;
                    if Instant::now() >= until {
                        break done;
                    }
                }
            }
            Row::Read(_) | Row::Write(_) | Row::Memory => bail!("{} has no timed loop", row.name()),
        };
        Ok(Count(done))
    }

    async fn finish(self) -> Result<()> {
        if let (Some(file), Some(client)) = (self.file, self.clients.first()) {
            client.requests().close(file).await?;
        }
        Ok(())
    }
}

async fn sum(mut tasks: JoinSet<Result<u64>>) -> Result<u64> {
    let mut total = 0;
    while let Some(done) = tasks.join_next().await {
        total += done??;
    }
    Ok(total)
}

async fn prove_read(requests: &Requests, file: FileId) -> Result<()> {
    for n in (0..READ_BLOCKS).step_by((READ_BLOCKS / PROVED_BLOCKS) as usize) {
        let frame = requests.read(file, n * BLOCK_LEN as u64, BLOCK_LEN as u32).await?;
        let expected = share::block(n, 0);
        ensure!(frame.body.get(16..16 + BLOCK_LEN) == Some(&expected), "block {n} has wrong bytes");
    }
    Ok(())
}

async fn read_blocks(
    requests: Requests,
    file: FileId,
    block: Arc<AtomicU64>,
    until: Instant,
) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < until {
        let n = block.fetch_add(1, Ordering::Relaxed) % READ_BLOCKS;
        requests.read(file, n * BLOCK_LEN as u64, BLOCK_LEN as u32).await?;
        done += BLOCK_LEN as u64;
    }
    Ok(done)
}

async fn write_blocks(
    requests: Requests,
    mut request: WriteRequest,
    block: Arc<AtomicU64>,
    until: Instant,
) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < until {
        request.offset = (block.fetch_add(1, Ordering::Relaxed) % WRITE_BLOCKS) * BLOCK_LEN as u64;
        requests.write(&request).await?;
        done += BLOCK_LEN as u64;
    }
    Ok(done)
}

async fn open_read_close(requests: Requests, first: u64, until: Instant) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < until {
        let file = requests.open(&share::small_name(first + done), Open::Read).await?;
        requests.read(file, 0, SMALL_LEN as u32).await?;
        requests.close(file).await?;
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_pick_rows_by_parts_of_their_names() {
        assert_eq!(Row::matching(None).len(), Row::ALL.len());
        assert_eq!(Row::matching(Some("sealed")).len(), 2);
        assert_eq!(Row::matching(Some("stat, list")), [Row::Stat, Row::List]);
        assert!(Row::matching(Some("nothing")).is_empty());
    }
}
