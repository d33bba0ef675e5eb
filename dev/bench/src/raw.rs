//! The machine's own limit: the least work that any server does for a row, without SMB.
//!
//! A blocking TCP server with a thread for each connection, and a blocking client. They make the
//! same copies (page cache to socket, socket to page cache), the same file-system calls and the
//! same number of round trips. No cryptography.

use std::fs::{self, File, OpenOptions, ReadDir};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::client::Protection;
use crate::rows::{Count, DEPTH, Row, SMALL_CLIENTS};
use crate::share::{self, BLOCK_LEN, LISTED_FILES, PART_LEN, READ_BLOCKS, SMALL_LEN, WRITE_BLOCKS};

/// Bytes of a request's header and body, as in SMB2.
const REQUEST_LEN: usize = 120;
const ANSWER_LEN: usize = 88;
/// Answer buffer of a listing, bytes, as the SMB client requests it.
const LIST_LEN: usize = 65536;
/// Fixed part of a listed entry, bytes (104 in MS-FSCC 2.4.18).
const ENTRY_LEN: usize = 104;
/// Round trips of NEGOTIATE, two SESSION_SETUP, TREE_CONNECT and LOGOFF.
const CONNECT_ROUND_TRIPS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Op {
    Ping,
    ReadBlock,
    ReadPart,
    WriteBlock,
    Stat,
    Create,
    Unlink,
    Open,
    ReadSmall,
    Close,
    ListFirst,
    ListNext,
}

impl Op {
    fn from_byte(byte: u8) -> Option<Self> {
        use Op::{
            Close, Create, ListFirst, ListNext, Open, Ping, ReadBlock, ReadPart, ReadSmall, Stat,
            Unlink, WriteBlock,
        };
        [
            Ping, ReadBlock, ReadPart, WriteBlock, Stat, Create, Unlink, Open, ReadSmall, Close,
            ListFirst, ListNext,
        ]
        .into_iter()
        .find(|op| *op as u8 == byte)
    }
}

/// Serves until killed; prints its address on standard output.
pub(crate) fn serve(share: &Path) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let files = Arc::new((
        share.to_owned(),
        File::open(share.join(share::READ_NAME))?,
        OpenOptions::new().write(true).open(share.join(share::WRITE_NAME))?,
    ));
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        let files = Arc::clone(&files);
        std::thread::spawn(move || {
            // A client that disconnects ends only its own thread, so the error is ignored.
            let _ = Served::new(&files.0, &files.1, &files.2).run(stream);
        });
    }
    Ok(())
}

struct Served<'a> {
    share: &'a PathBuf,
    read: &'a File,
    write: &'a File,
    opened: Option<File>,
    listing: Option<ReadDir>,
    answer: Vec<u8>,
    block: Vec<u8>,
}

impl<'a> Served<'a> {
    fn new(share: &'a PathBuf, read: &'a File, write: &'a File) -> Self {
        Self { share, read, write, opened: None, listing: None, answer: vec![], block: vec![] }
    }

    fn run(mut self, mut stream: TcpStream) -> Result<()> {
        let mut request = [0u8; REQUEST_LEN];
        loop {
            stream.read_exact(&mut request)?;
            let op = Op::from_byte(request[0]).context("unknown request")?;
            let number = u64::from_le_bytes(request[8..16].try_into()?);
            let data_len = self.perform(op, number, &mut stream)?;
            self.answer[..4].copy_from_slice(&u32::try_from(data_len)?.to_le_bytes());
            stream.write_all(&self.answer[..ANSWER_LEN + data_len])?;
        }
    }

    /// Appends data to the answer's header; returns its length.
    fn perform(&mut self, op: Op, number: u64, stream: &mut TcpStream) -> Result<usize> {
        if self.answer.is_empty() {
            self.answer.resize(ANSWER_LEN, 0);
        }
        if matches!(op, Op::ReadBlock | Op::ReadPart) && self.answer.len() < ANSWER_LEN + BLOCK_LEN
        {
            self.answer.resize(ANSWER_LEN + BLOCK_LEN, 0);
        }
        if matches!(op, Op::ListNext | Op::ReadSmall) && self.answer.len() < ANSWER_LEN + LIST_LEN {
            self.answer.resize(ANSWER_LEN + LIST_LEN, 0);
        }
        let new = || self.share.join(format!("new-limit-{number}"));
        match op {
            Op::Ping => {}
            Op::ReadBlock | Op::ReadPart => {
                let len = if op == Op::ReadBlock { BLOCK_LEN } else { PART_LEN };
                let buffer = &mut self.answer[ANSWER_LEN..ANSWER_LEN + len];
                self.read.read_exact_at(buffer, number * len as u64)?;
                return Ok(len);
            }
            Op::WriteBlock => {
                self.block.resize(BLOCK_LEN, 0);
                stream.read_exact(&mut self.block)?;
                self.write.write_all_at(&self.block, number * BLOCK_LEN as u64)?;
            }
            Op::Stat => {
                fs::metadata(self.share.join(share::small_name(number)))?;
            }
            Op::Create => self.opened = Some(File::create_new(new())?),
            Op::Unlink => fs::remove_file(new())?,
            Op::Open => self.opened = Some(File::open(self.share.join(share::small_name(number)))?),
            Op::ReadSmall => {
                let file = self.opened.as_ref().context("no file is open")?;
                file.read_exact_at(&mut self.answer[ANSWER_LEN..ANSWER_LEN + SMALL_LEN], 0)?;
                return Ok(SMALL_LEN);
            }
            Op::Close => self.opened = None,
            Op::ListFirst => self.listing = Some(fs::read_dir(self.share.join(share::LIST_NAME))?),
            Op::ListNext => return self.list(),
        }
        Ok(0)
    }

    fn list(&mut self) -> Result<usize> {
        let listing = self.listing.as_mut().context("no listing is open")?;
        let mut used = 0;
        while used + ENTRY_LEN + 512 <= LIST_LEN {
            let Some(entry) = listing.next() else { break };
            let entry = entry?;
            let len = entry.metadata()?.len();
            let name = entry.file_name();
            // In UTF-16 a name has two bytes for each character, and entries are aligned to 8
            // bytes.
            let entry_len = (ENTRY_LEN + name.len() * 2).next_multiple_of(8);
            let at = &mut self.answer[ANSWER_LEN + used..ANSWER_LEN + used + entry_len];
            at[..4].copy_from_slice(&u32::try_from(entry_len)?.to_le_bytes());
            at[8..16].copy_from_slice(&len.to_le_bytes());
            for (to, from) in at[ENTRY_LEN..].chunks_exact_mut(2).zip(name.as_bytes()) {
                to.copy_from_slice(&u16::from(*from).to_le_bytes());
            }
            used += entry_len;
        }
        Ok(used)
    }
}

/// The client of a row on the bare data path.
pub(crate) struct RawLoad {
    row: Row,
    addr: String,
    clients: Vec<RawClient>,
    written: u64,
}

impl RawLoad {
    pub(crate) fn open(row: Row, addr: &str) -> Result<Self> {
        let count = if row == Row::OpenReadClose { SMALL_CLIENTS } else { 1 };
        let clients = (0..count).map(|_| RawClient::connect(addr)).collect::<Result<_>>()?;
        Ok(Self { row, addr: addr.to_owned(), clients, written: 0 })
    }

    /// Returns a client without a row, for [`Self::read_through`] and [`Self::write_through`].
    pub(crate) fn to(addr: &str) -> Result<Self> {
        Self::open(Row::Read(Protection::Unsigned), addr)
    }

    /// Reads so many parts of the file, each once; returns the bytes. `len` is [`BLOCK_LEN`] or
    /// [`PART_LEN`].
    pub(crate) fn read_through(&mut self, parts: u64, len: usize, depth: usize) -> Result<u64> {
        let op = if len == BLOCK_LEN { Op::ReadBlock } else { Op::ReadPart };
        let client = self.clients.first_mut().context("no client is connected")?;
        Ok(client.blocks(op, parts, depth, &|sent| sent < parts)? * len as u64)
    }

    /// Writes so many blocks of the file, each once; returns the bytes.
    pub(crate) fn write_through(&mut self, blocks: u64, depth: usize) -> Result<u64> {
        let client = self.clients.first_mut().context("no client is connected")?;
        let done = client.blocks(Op::WriteBlock, blocks, depth, &|sent| sent < blocks)?;
        Ok(done * BLOCK_LEN as u64)
    }

    /// Returns the number of blocks written in the last round.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn run(&mut self, until: Instant) -> Result<Count> {
        let row = self.row;
        if row == Row::OpenReadClose {
            let done = std::thread::scope(|scope| {
                let threads: Vec<_> = self
                    .clients
                    .iter_mut()
                    .zip(0u64..)
                    .map(|(c, n)| scope.spawn(move || c.open_read_close(n, until)))
                    .collect();
                threads
                    .into_iter()
                    .map(|t| t.join().map_err(|_| anyhow::anyhow!("a client thread panicked"))?)
                    .sum::<Result<u64>>()
            })?;
            return Ok(Count::new(done));
        }
        let client = self.clients.first_mut().context("no client is connected")?;
        Ok(Count::new(match row {
            Row::Read(_) => {
                client.blocks(Op::ReadBlock, READ_BLOCKS, DEPTH, &|_| Instant::now() < until)?
                    * BLOCK_LEN as u64
            }
            Row::Write(_) => {
                self.written = client
                    .blocks(Op::WriteBlock, WRITE_BLOCKS, DEPTH, &|_| Instant::now() < until)?;
                self.written * BLOCK_LEN as u64
            }
            Row::Stat => client.repeat(&[Op::Stat], until)?,
            Row::CreateDelete => client.repeat(&[Op::Create, Op::Close, Op::Unlink], until)?,
            Row::List => client.list(until)?,
            Row::Connect => {
                let mut done = 0;
                while Instant::now() < until {
                    let mut fresh = RawClient::connect(&self.addr)?;
                    for _ in 0..CONNECT_ROUND_TRIPS {
                        fresh.ask(Op::Ping, 0)?;
                    }
                    done += 1;
                }
                done
            }
            Row::OpenReadClose | Row::Memory => bail!("{} has no raw limit", row.name()),
        }))
    }
}

struct RawClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl RawClient {
    fn connect(addr: &str) -> Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![] })
    }

    fn send(&mut self, op: Op, number: u64) -> Result<()> {
        let mut request = [0u8; REQUEST_LEN];
        request[0] = op as u8;
        request[8..16].copy_from_slice(&number.to_le_bytes());
        Ok(self.stream.write_all(&request)?)
    }

    /// Receives data into the buffer; returns its length.
    fn receive(&mut self) -> Result<usize> {
        let mut answer = [0u8; ANSWER_LEN];
        self.stream.read_exact(&mut answer)?;
        let len = u32::from_le_bytes(answer[..4].try_into()?) as usize;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        self.stream.read_exact(&mut self.buffer[..len])?;
        Ok(len)
    }

    fn ask(&mut self, op: Op, number: u64) -> Result<usize> {
        self.send(op, number)?;
        self.receive()
    }

    /// Keeps `depth` requests in flight while `goes_on` says so of those that were sent; returns
    /// their number.
    fn blocks(
        &mut self,
        op: Op,
        file_blocks: u64,
        depth: usize,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<u64> {
        let data = if op == Op::WriteBlock { share::written_block("limit") } else { vec![] };
        let (mut sent, mut done) = (0u64, 0u64);
        loop {
            while sent - done < depth as u64 && goes_on(sent) {
                self.send(op, sent % file_blocks)?;
                self.stream.write_all(&data)?;
                sent += 1;
            }
            if sent == done {
                return Ok(done);
            }
            let len = self.receive()?;
            let expected = match op {
                Op::ReadBlock => BLOCK_LEN,
                Op::ReadPart => PART_LEN,
                _ => 0,
            };
            ensure!(len == expected, "the answer has {len} bytes");
            done += 1;
        }
    }

    fn repeat(&mut self, ops: &[Op], until: Instant) -> Result<u64> {
        let mut done = 0;
        while Instant::now() < until {
            for op in ops {
                self.ask(*op, done)?;
            }
            done += 1;
        }
        Ok(done)
    }

    fn open_read_close(&mut self, first: u64, until: Instant) -> Result<u64> {
        let mut done = 0;
        while Instant::now() < until {
            self.ask(Op::Open, first + done)?;
            ensure!(self.ask(Op::ReadSmall, 0)? == SMALL_LEN, "the small file is too short");
            self.ask(Op::Close, 0)?;
            done += 1;
        }
        Ok(done)
    }

    fn list(&mut self, until: Instant) -> Result<u64> {
        let mut done = 0;
        loop {
            self.ask(Op::ListFirst, 0)?;
            let mut entries = 0;
            loop {
                let len = self.ask(Op::ListNext, 0)?;
                if len == 0 {
                    break;
                }
                let mut at = 0;
                while at < len {
                    let step = self.buffer.get(at..at + 4).context("a listed entry is cut off")?;
                    at += u32::from_le_bytes(step.try_into()?) as usize;
                    entries += 1;
                }
            }
            ensure!(entries == LISTED_FILES, "the listing has {entries} entries");
            done += entries as u64;
            if Instant::now() >= until {
                return Ok(done);
            }
        }
    }
}
