//! The bare path of a row: a server that does the least for the frames of the load. It looks for
//! the file range, makes the copies and calls of a server, and answers with a header. No session, no
//! rights, no sharing, no cryptography.

use std::fs::{self, File, OpenOptions, ReadDir};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use frevo_crypto::{SigningAlgorithm, SigningKey};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, Status};
use rustix::net::{SendFlags, send};

use super::logon::LoggedOn;
use super::shape::Shape;
use crate::server::Target;
use crate::share;

const PREFIX_LEN: usize = 4;
const HEADER_LEN: usize = 64;
/// Header and fixed part of a READ or WRITE request.
const FIXED_LEN: usize = 112;
/// Header and body of a READ or WRITE response before its data.
const ANSWER_LEN: usize = 80;
/// Header and body of a QUERY_DIRECTORY response before its entries.
const LIST_HEAD_LEN: usize = 72;
/// Fixed part of a FileIdBothDirectoryInformation.
const ENTRY_LEN: usize = 104;
/// Data of this length and more goes from file to socket.
const SENDFILE_FROM: usize = 32 << 10;
/// Credits of each client: more than any row needs.
const CREDITS: u32 = 1 << 20;

/// Returns a connection that needs no logon.
pub(super) fn connect(row: &Shape, target: &Target) -> Result<LoggedOn> {
    let socket = TcpStream::connect(&target.addr)?;
    socket.set_nodelay(true)?;
    Ok(LoggedOn {
        socket,
        session_id: 1,
        tree_id: 1,
        // For a listing the row has a number of entries in `bytes`, which takes the place of the
        // file id.
        file_id: FileId { persistent: 0, volatile: row.bytes as u64 },
        next_message_id: 1,
        credits: CREDITS,
        key: SigningKey::new(SigningAlgorithm::AesGmac, &[0; 16]),
        sealing: None,
        number: 0,
    })
}

/// Serves until killed; prints its address on standard output.
pub(crate) fn serve(share: &Path) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let share: Arc<Path> = share.into();
    for stream in listener.incoming() {
        let (stream, share) = (stream?, Arc::clone(&share));
        stream.set_nodelay(true)?;
        let serve = move || Served::new(&share)?.run(&stream);
        // A client that disconnects ends only its own thread, so the error is ignored.
        std::thread::spawn(move || drop(serve()));
    }
    Ok(())
}

struct Served<'a> {
    share: &'a Path,
    read: File,
    write: File,
    listing: Option<ReadDir>,
    answer: Vec<u8>,
    block: Vec<u8>,
}

impl<'a> Served<'a> {
    fn new(share: &'a Path) -> Result<Self> {
        Ok(Self {
            share,
            read: File::open(share.join(share::READ_NAME))?,
            write: OpenOptions::new().write(true).open(share.join(share::WRITE_NAME))?,
            listing: None,
            answer: Vec::new(),
            block: Vec::new(),
        })
    }

    fn run(mut self, stream: &TcpStream) -> Result<()> {
        let mut reader = BufReader::with_capacity(16 << 10, stream);
        loop {
            if reader.fill_buf()?.is_empty() {
                return Ok(());
            }
            let mut prefix = [0; PREFIX_LEN];
            reader.read_exact(&mut prefix)?;
            let length = u32::from_be_bytes(prefix) as usize;
            let mut head = [0; FIXED_LEN];
            let message = head.get_mut(..length.min(FIXED_LEN)).context("a message")?;
            reader.read_exact(message)?;
            let (message, rest) = (&*message, length - message.len());
            self.answer.clear();
            self.answer.extend_from_slice(&[0; PREFIX_LEN]);
            self.answer.extend_from_slice(message.get(..HEADER_LEN).context("a header")?);
            match Command(u16::from_le_bytes(*field(message, 12)?)) {
                Command::READ => {
                    // StructureSize counts one byte of the buffer, although the buffer is empty.
                    // The message ends with this byte, which is skipped.
                    skip(&mut reader, rest)?;
                    self.read(message, stream)?;
                }
                Command::WRITE => self.write(message, rest, &mut reader, stream)?,
                Command::QUERY_DIRECTORY => {
                    skip(&mut reader, rest)?;
                    self.list(message, stream)?;
                }
                other => bail!("{other} has no bare path"),
            }
        }
    }

    fn read(&mut self, message: &[u8], stream: &TcpStream) -> Result<()> {
        let len = u32::from_le_bytes(*field(message, 68)?) as usize;
        let mut offset = u64::from_le_bytes(*field(message, 72)?);
        self.answer.resize(PREFIX_LEN + ANSWER_LEN, 0);
        if len < SENDFILE_FROM {
            self.answer.resize(PREFIX_LEN + ANSWER_LEN + len, 0);
            let room = self.answer.get_mut(PREFIX_LEN + ANSWER_LEN..).context("room")?;
            self.read.read_exact_at(room, offset)?;
            return self.send(ANSWER_LEN + len, stream, SendFlags::NOSIGNAL);
        }
        self.send(ANSWER_LEN + len, stream, SendFlags::NOSIGNAL | SendFlags::MORE)?;
        let mut left = len;
        while left > 0 {
            left -= rustix::fs::sendfile(stream, &self.read, Some(&mut offset), left)?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        message: &[u8],
        len: usize,
        reader: &mut BufReader<&TcpStream>,
        stream: &TcpStream,
    ) -> Result<()> {
        let offset = u64::from_le_bytes(*field(message, 72)?);
        self.block.resize(len, 0);
        reader.read_exact(&mut self.block)?;
        self.write.write_all_at(&self.block, offset)?;
        self.answer.resize(PREFIX_LEN + ANSWER_LEN, 0);
        self.send(ANSWER_LEN, stream, SendFlags::NOSIGNAL)
    }

    fn list(&mut self, message: &[u8], stream: &TcpStream) -> Result<()> {
        let [_, flags, ..] = *field::<4>(message, 66)?;
        let entries = u64::from_le_bytes(*field(message, 80)?);
        let room = u32::from_le_bytes(*field(message, 92)?) as usize;
        if flags & 1 != 0 {
            let folder = share::folder_name(usize::try_from(entries)?);
            self.listing = Some(fs::read_dir(self.share.join(folder))?);
            // The listing begins with "." and "..", as that of a server does.
            self.answer.resize(PREFIX_LEN + LIST_HEAD_LEN, 0);
            self.entry(b".", 0)?;
            self.entry(b"..", 0)?;
        }
        self.answer.resize(self.answer.len().max(PREFIX_LEN + LIST_HEAD_LEN), 0);
        let mut last = None;
        while self.answer.len() + ENTRY_LEN + 512 <= room {
            let Some(entry) = self.listing.as_mut().context("no listing")?.next() else { break };
            let entry = entry?;
            let bytes = entry.metadata()?.len();
            last = Some(self.entry(entry.file_name().as_bytes(), bytes)?);
        }
        match last {
            // In the last entry NextEntryOffset must be zero. Without any entry the status is
            // NO_MORE_FILES.
            Some(at) => self.answer.get_mut(at..at + 4).context("an entry")?.fill(0),
            None => {
                let status = Status::NO_MORE_FILES.0.to_le_bytes();
                self.answer
                    .get_mut(PREFIX_LEN + 8..PREFIX_LEN + 12)
                    .context("a header")?
                    .copy_from_slice(&status);
            }
        }
        let length = self.answer.len() - PREFIX_LEN;
        self.send(length, stream, SendFlags::NOSIGNAL)
    }

    /// Appends an entry; returns where it begins.
    fn entry(&mut self, name: &[u8], bytes: u64) -> Result<usize> {
        let at = self.answer.len();
        // In UTF-16 a name has two bytes for each character, and entries are aligned to 8 bytes.
        let len = (ENTRY_LEN + name.len() * 2).next_multiple_of(8);
        self.answer.extend_from_slice(&u32::try_from(len)?.to_le_bytes());
        self.answer.resize(at + 40, 0);
        self.answer.extend_from_slice(&bytes.to_le_bytes());
        self.answer.resize(at + ENTRY_LEN, 0);
        self.answer.extend(name.iter().flat_map(|byte| u16::from(*byte).to_le_bytes()));
        self.answer.resize(at + len, 0);
        Ok(at)
    }

    fn send(&mut self, length: usize, stream: &TcpStream, flags: SendFlags) -> Result<()> {
        let prefix = u32::try_from(length)?.to_be_bytes();
        self.answer.get_mut(..PREFIX_LEN).context("a prefix")?.copy_from_slice(&prefix);
        let mut rest = &self.answer[..];
        while !rest.is_empty() {
            let sent = send(stream, rest, flags)?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        Ok(())
    }
}

fn skip(reader: &mut impl Read, bytes: usize) -> Result<()> {
    std::io::copy(&mut reader.take(bytes as u64), &mut std::io::sink())?;
    Ok(())
}

fn field<const N: usize>(message: &[u8], at: usize) -> Result<&[u8; N]> {
    message.get(at..).and_then(|rest| rest.first_chunk()).context("a request that is cut off")
}
