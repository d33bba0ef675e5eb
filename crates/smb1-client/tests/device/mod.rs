//! A device that speaks SMB1, well or badly, as a test wants it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frevo_client::{Client, Credentials, Options, ServerName};
use frevo_smb1::{Command, Header};
use frevo_smb1_client::Settings;
use frevo_wire::codec::Writer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Capabilities of a device with Unicode, the commands of NT and large READs.
pub(crate) const NEW: u32 = 0x0000_C25C;
/// As [`NEW`], and numbers of files by a pass-through level.
pub(crate) const NUMBERED: u32 = NEW | 0x2000;
/// Capabilities of a device without any.
pub(crate) const OLD: u32 = 0x0000_0000;
/// SecurityMode: users, and challenges.
pub(crate) const CHALLENGE: u8 = 0x03;

/// Length of the only file.
pub(crate) const FILE_LEN: u64 = 3_000_001;

/// Changes an answer before it is sent; None sends none.
pub(crate) type Change = fn(Command, Vec<u8>) -> Option<Vec<u8>>;

/// A device.
pub(crate) struct Device {
    pub(crate) security_mode: u8,
    pub(crate) capabilities: u32,
    /// Users are guests.
    pub(crate) guest: bool,
    /// READs that are kept back until so many have come.
    pub(crate) reads_at_once: usize,
    pub(crate) change: Change,
    /// READs after which the connection ends, once.
    pub(crate) cut_after: usize,
    /// The number of the file; another one after the connection has ended if it is false that the file
    /// stays.
    pub(crate) file_stays: bool,
    pub(crate) file_len: u64,
    /// READs behind the end are answered by END_OF_FILE.
    pub(crate) tells_end: bool,
    /// The bytes of WRITEs.
    pub(crate) written: parking_lot::Mutex<Vec<u8>>,
    /// READs so far, and passwords.
    pub(crate) reads: AtomicUsize,
    pub(crate) passwords: parking_lot::Mutex<Vec<Vec<u8>>>,
    /// Names and the numbers of their files: two names may have one file.
    pub(crate) names: parking_lot::Mutex<BTreeMap<String, u32>>,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            security_mode: CHALLENGE,
            capabilities: NEW,
            guest: false,
            reads_at_once: 1,
            change: |_, answer| Some(answer),
            cut_after: 0,
            file_stays: true,
            file_len: FILE_LEN,
            tells_end: false,
            written: parking_lot::Mutex::default(),
            reads: AtomicUsize::new(0),
            passwords: parking_lot::Mutex::default(),
            names: parking_lot::Mutex::default(),
        }
    }
}

/// The byte of the file at a position.
pub(crate) fn byte_at(position: u64) -> u8 {
    (position % 251) as u8
}

/// A client of the device, and the server's name.
pub(crate) fn client(address: SocketAddr, settings: Settings) -> (Client, ServerName) {
    let options = Options::new().recover_for(std::time::Duration::from_secs(2));
    let user = Credentials::new("ann", "secret");
    let client = frevo_smb1_client::client(options, &user, settings).unwrap();
    (client, ServerName::new(address.ip().to_string()).at_port(address.port()))
}

/// The credentials that the client of SMB 2.1 uses towards the bridge.
pub(crate) fn user() -> Credentials {
    Credentials::new("ann", "secret")
}

impl Device {
    /// Starts the device.
    pub(crate) async fn start(self) -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let device = Arc::new(self);
        let serving = Arc::clone(&device);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let device = Arc::clone(&serving);
                tokio::spawn(async move { device.serve(stream).await });
            }
        });
        (device, address)
    }

    async fn serve(&self, stream: tokio::net::TcpStream) {
        let (mut reader, mut writer) = stream.into_split();
        let (answers, mut to_send) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(answer) = to_send.recv().await {
                let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
                if writer.write_all(&[&length[..], &answer].concat()).await.is_err() {
                    return;
                }
            }
        });
        let mut kept = Vec::new();
        loop {
            let mut prefix = [0; 4];
            if reader.read_exact(&mut prefix).await.is_err() {
                return;
            }
            let mut message = vec![0; usize::try_from(u32::from_be_bytes(prefix)).unwrap()];
            if reader.read_exact(&mut message).await.is_err() {
                return;
            }
            let header = Header::parse(&message).unwrap();
            let answer = self.answer(&header, &message);
            let Some(answer) = (self.change)(header.command, answer) else { continue };
            if header.command != Command::READ_ANDX {
                let _ = answers.send(answer);
                continue;
            }
            let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
            if reads == self.cut_after {
                return;
            }
            kept.push(answer);
            if kept.len() >= self.reads_at_once {
                // The last one first.
                for answer in kept.drain(..).rev() {
                    let _ = answers.send(answer);
                }
            }
        }
    }

    fn answer(&self, header: &Header, message: &[u8]) -> Vec<u8> {
        let words = &message[33..33 + 2 * usize::from(message[32])];
        let number = |at: usize| u16::from_le_bytes([words[at], words[at + 1]]);
        let long = |at: usize| u64::from(number(at)) | u64::from(number(at + 2)) << 16;
        match header.command {
            Command::NEGOTIATE => reply(header, &self.terms(), b"12345678"),
            Command::SESSION_SETUP_ANDX => {
                let lengths = usize::from(number(14)) + usize::from(number(16));
                let bytes = 33 + words.len() + 2;
                self.passwords.lock().push(message[bytes..bytes + lengths].to_vec());
                let header = Header { user: 9, ..*header };
                reply(&header, &and_x(|w| _ = w.u16(self.guest.into())), &[])
            }
            Command::TREE_CONNECT_ANDX => {
                let header = Header { tree: 5, ..*header };
                reply(&header, &and_x(|w| _ = w.u16(0)), b"A:\0")
            }
            Command::NT_CREATE_ANDX => reply(header, &opened(self.file_len), &[]),
            Command::OPEN_ANDX => {
                let len = u32::try_from(self.file_len).unwrap();
                let opened = and_x(|w| {
                    w.u16(7).u16(0x20).u32(1_000_000_000).u32(len).zeros(6).u16(1).zeros(6);
                });
                reply(header, &opened, &[])
            }
            Command::READ_ANDX => {
                let (offset, length) =
                    (long(6), u64::from(number(10)) | u64::from(number(14)) << 16);
                // STATUS_END_OF_FILE
                if self.tells_end && offset >= self.file_len {
                    return reply(&Header { status: 0xC000_0011, ..*header }, &[], &[]);
                }
                read(header, offset, length, self.file_len)
            }
            Command::TRANSACTION2 => {
                self.transaction(header, number(28), &message[33 + words.len()..])
            }
            Command::TRANSACTION if message.ends_with(b"WrLeh\0B13BWz\0\x01\0\xFF\x7F") => {
                listed(header)
            }
            Command::WRITE_ANDX => {
                let data = &message[usize::from(number(22))..];
                self.written.lock().extend_from_slice(data);
                let count = u16::try_from(data.len()).unwrap();
                reply(header, &and_x(|w| _ = w.u16(count).u16(0).u16(0).u16(0)), &[])
            }
            Command::DELETE | Command::RENAME => {
                let status = self.change_names(header.command, &message[33 + words.len() + 2..]);
                reply(&Header { status, ..*header }, &[], &[])
            }
            Command::CLOSE | Command::ECHO | Command::TREE_DISCONNECT | Command::LOGOFF_ANDX => {
                reply(header, &[], &[])
            }
            // STATUS_NOT_SUPPORTED
            _ => reply(&Header { status: 0xC000_00BB, ..*header }, &[], &[]),
        }
    }

    /// Renames or removes; returns the status.
    fn change_names(&self, command: Command, mut bytes: &[u8]) -> u32 {
        let mut paths = Vec::new();
        let mut at = 0;
        while !bytes.is_empty() {
            // BufferFormat, and a byte for the alignment of UTF-16.
            let skipped = if (at + 1) % 2 == 0 { 2 } else { 1 };
            let units = bytes[skipped..].chunks_exact(2);
            let units = units.map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            let path: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
            let used = skipped + 2 * path.len() + 2;
            paths.push(String::from_utf16(&path).unwrap());
            bytes = &bytes[used..];
            at += used;
        }
        let mut names = self.names.lock();
        // STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_NAME_COLLISION
        let Some(file) = names.get(&paths[0]).copied() else { return 0xC000_0034 };
        if command == Command::RENAME && names.contains_key(&paths[1]) {
            return 0xC000_0035;
        }
        names.retain(|_, other| *other != file);
        if command == Command::RENAME {
            names.insert(paths[1].clone(), file);
        }
        0
    }

    fn transaction(&self, header: &Header, subcommand: u16, rest: &[u8]) -> Vec<u8> {
        let is_later = self.reads.load(Ordering::Relaxed) >= self.cut_after && self.cut_after > 0;
        let data = match subcommand {
            // TRANS2_QUERY_FS_INFORMATION: SMB_QUERY_FS_VOLUME_INFO
            3 => vec![7; 18],
            // TRANS2_QUERY_FILE_INFORMATION: FileInternalInformation, behind ByteCount, Name and the FID
            7 if rest.windows(2).any(|level| level == (1_000u16 + 6).to_le_bytes()) => {
                let number: u64 = if is_later && !self.file_stays { 43 } else { 42 };
                number.to_le_bytes().to_vec()
            }
            // TRANS2_QUERY_PATH_INFORMATION: SMB_INFO_STANDARD
            5 => vec![0; 22],
            // STATUS_NOT_SUPPORTED
            _ => return reply(&Header { status: 0xC000_00BB, ..*header }, &[], &[]),
        };
        let count = u16::try_from(data.len()).unwrap();
        let mut words = Vec::new();
        let w = &mut Writer::new(&mut words);
        w.u16(0).u16(count).u16(0).u16(0).u16(56).u16(0).u16(count).u16(56).u16(0).u16(0);
        reply(header, &words, &[&[0][..], &data].concat())
    }

    fn terms(&self) -> Vec<u8> {
        let mut words = Vec::new();
        let w = &mut Writer::new(&mut words);
        w.u16(0).u8(self.security_mode).u16(50).u16(1).u32(16_644).u32(65_536).u32(0x1234);
        w.u32(self.capabilities).u64(7).u16(0).u8(8);
        words
    }
}

fn and_x(fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut words = Vec::new();
    let w = &mut Writer::new(&mut words);
    w.u8(0xFF).u8(0).u16(0);
    fill(w);
    words
}

fn opened(len: u64) -> Vec<u8> {
    let now = 0x01DA_0000_0000_0000;
    and_x(|w| {
        w.u8(0).u16(7).u32(1).u64(now).u64(now).u64(now).u64(now).u32(0x20);
        w.u64(len).u64(len).u16(0).u16(0).u8(0);
    })
}

fn read(header: &Header, offset: u64, length: u64, file_len: u64) -> Vec<u8> {
    let end = offset.saturating_add(length).min(file_len);
    let data: Vec<u8> = (offset..end.max(offset)).map(byte_at).collect();
    let count = u32::try_from(data.len()).unwrap().to_le_bytes();
    let words = and_x(|w| {
        w.u16(0xFFFF).u16(0).u16(0).bytes(&count[..2]).u16(60).bytes(&count[2..]).zeros(8);
    });
    reply(header, &words, &[&[0][..], &data].concat())
}

/// The shares `JOBS` and `C$`, by NetShareEnum of MS-RAP.
fn listed(header: &Header) -> Vec<u8> {
    let mut data = Vec::new();
    let w = &mut Writer::new(&mut data);
    // The comments are behind both entries; the converter is 0x1000.
    w.bytes(b"JOBS").zeros(10).u16(0).u16(0x1000 + 40).u16(0);
    w.bytes(b"C$").zeros(12).u16(0).u16(0x1000 + 45).u16(0);
    w.bytes(b"Lo\x94p\0\0");
    let count = u16::try_from(data.len()).unwrap();
    let mut words = Vec::new();
    let w = &mut Writer::new(&mut words);
    w.u16(8).u16(count).u16(0).u16(8).u16(56).u16(0).u16(count).u16(64).u16(0).u16(0);
    let parameters = [0u16, 0x1000, 2, 2].into_iter().flat_map(u16::to_le_bytes);
    let bytes: Vec<u8> = [0].into_iter().chain(parameters).chain(data).collect();
    reply(header, &words, &bytes)
}

/// An answer with these words and bytes.
pub(crate) fn reply(header: &Header, words: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let w = &mut Writer::new(&mut message);
    Header { is_reply: true, signature: [0; 8], ..*header }.encode(w);
    w.u8(u8::try_from(words.len() / 2).unwrap()).bytes(words);
    w.u16((bytes.len() & 0xFFFF) as u16).bytes(bytes);
    message
}
