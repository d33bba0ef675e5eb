//! A scripted server: it negotiates, logs on and protects its answers as a good
//! one does, and answers enough to be believed; a script says where it lies.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part")]
#![allow(clippy::disallowed_methods, reason = "tests")]

pub mod between;
pub mod frames;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use frevo_auth::acceptor::Step;
use frevo_auth::{Acceptor, AcceptorConfig, Account, AccountRules, Accounts, NtHash};
use frevo_crypto::{Cipher, OpeningKey, SealingKey, Sender, SigningAlgorithm, SigningKey};
use frevo_net::frame_reader::FrameReader;
use frevo_net::transport::Stream;
use frevo_proto::preauth::{ConnectionPreauth, SessionPreauth};
use frevo_proto::protection::transform::{HEADROOM, is_sealed, seal_frame, unseal_frame};
use frevo_proto::rdma_transform::RdmaTransforms;
use frevo_proto::{Dialect, Negotiated};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{
    CreateAction, CreateDisposition, CreateFlags, CreateOptions, OplockLevel,
};
use frevo_wire::command::ioctl::{CtlCode, validate_negotiate};
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::command::session_setup::SessionFlags;
use frevo_wire::command::tree_connect::{ShareCapabilities, ShareFlags, ShareType};
use frevo_wire::command::{close, create, ioctl, negotiate, session_setup, tree_connect};
use frevo_wire::compound::Compound;
use frevo_wire::create_context::{
    CreateContext, CreateContexts, DurableHandleFlags, DurableResponseV2, LeaseV2, OnDiskId,
    ResponseContext,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime, Guid};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::{DirectoryEntry, DirectoryWriter, FileInfoClass};
use frevo_wire::header::HEADER_LEN;
use frevo_wire::negotiate_context::{self as context, HashAlgorithm, NegotiateContext};
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use parking_lot::Mutex;

pub use frames::{framed, put};

/// The data of every file.
pub const CONTENT: &[u8] = b"what an evil server says a file holds";
pub const SESSION: u64 = 0x51;
const CAPABILITIES: GlobalCapabilities = GlobalCapabilities::LARGE_MTU
    .union(GlobalCapabilities::LEASING)
    .union(GlobalCapabilities::ENCRYPTION);

/// A request, as a script sees it.
pub struct Asked<'a> {
    pub header: Header,
    pub message: &'a [u8],
    /// Which one of its command on its connection, from 0.
    pub nth: usize,
    /// Which connection, from 0.
    pub connection: usize,
}

/// The server's reaction to a message.
pub type Change = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// A frame in the place of another one.
pub type Squeeze = Box<dyn FnOnce(&[u8]) -> Vec<u8> + Send>;

/// The answer to a message.
pub enum Act {
    /// The answer of a good server.
    Honest,
    /// The same, changed before it is protected; header and all.
    Changed(Change),
    /// The honest answer as it is sent, without its prefix, as the frame that this makes of it.
    Squeezed(Squeeze),
    /// The honest answer neither signed nor sealed.
    Bare,
    /// The honest answer signed, where it should be sealed.
    Signed,
    /// A status, without more.
    Refused(Status),
    /// A body in the place of the honest one.
    Body(Vec<u8>),
    /// Messages, protected one by one, then the honest answer.
    First(Vec<Vec<u8>>),
    /// A frame as it is, then the honest answer.
    Behind(Vec<u8>),
    /// Bytes as they are, then nothing more.
    Bytes(Vec<u8>),
    /// Nothing; the honest answer is put there, for a later one.
    Kept(Arc<Mutex<Vec<Vec<u8>>>>),
    /// Nothing.
    Silence,
    /// The end.
    Close,
    /// The honest answer, a byte each such time.
    Drip(Duration),
    /// This message for ever, protected, one each such time.
    Again(Duration, Vec<u8>),
}

pub type Script = dyn Fn(&Asked<'_>) -> Act + Send + Sync;

/// How the server is, lies apart.
pub struct Manners {
    pub cipher: Option<Cipher>,
    /// The session is encrypted.
    pub seal: bool,
    /// NEGOTIATE contexts, if not the usual ones.
    pub contexts: Option<Vec<NegotiateContext<'static>>>,
    pub dialect: Dialect,
    /// It chooses the newest dialect that is offered, up to that one, and proves the negotiation.
    pub chooses: bool,
    /// Each byte of its ServerGuid.
    pub guid: u8,
    pub flags: SessionFlags,
    /// Sessions are a guest's from this connection on.
    pub guest_from: usize,
    /// Opens are kept when the connection is lost.
    pub keeps: bool,
    /// Leases are granted as they are asked for, each with epoch 1.
    pub leases: bool,
    /// The server says that it sends notifications.
    pub notifies: bool,
    /// The server demands signatures.
    pub signs: bool,
    /// A file that is created is new, empty, and has a number on the disk.
    pub tells: bool,
    /// Most credits that one answer grants.
    pub credits: u16,
    /// The entries of the root: names, and true for directories.
    pub root: Vec<(String, bool)>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            cipher: Some(Cipher::Aes128Gcm),
            seal: false,
            contexts: None,
            dialect: Dialect::SMB_3_1_1,
            chooses: false,
            guid: 9,
            flags: SessionFlags::EMPTY,
            guest_from: usize::MAX,
            keeps: false,
            leases: false,
            notifies: false,
            signs: false,
            tells: false,
            credits: u16::MAX,
            root: vec![("known".into(), false), ("dir".into(), true)],
        }
    }
}

#[derive(Debug)]
struct Users;

impl Accounts for Users {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        Some(Account {
            nt_hash: NtHash::from_password("secret"),
            rules: AccountRules::default(),
            name: user.to_lowercase(),
        })
    }
}

/// Messages in the clear after the logon.
pub type Overheard = Arc<Mutex<Vec<u8>>>;

/// One connection's server.
pub struct Evil {
    pub manners: Arc<Manners>,
    pub script: Arc<Script>,
    pub overheard: Overheard,
    pub connection: usize,
}

struct Keys {
    signing: SigningKey,
    sealing: Option<SealingKey>,
    opening: Option<Arc<OpeningKey>>,
}

struct Peer {
    evil: Evil,
    stream: Arc<Stream>,
    terms: Negotiated,
    preauth: ConnectionPreauth,
    setup: Option<SessionPreauth>,
    acceptor: Acceptor,
    keys: Option<Keys>,
    counts: std::collections::HashMap<u16, usize>,
    /// Listings that have been given their names.
    listed: bool,
}

impl Evil {
    /// Serves until the client or the script ends it.
    pub async fn serve(self, stream: Stream) {
        let terms = Negotiated {
            dialect: self.manners.dialect,
            cipher: self.manners.cipher,
            signing_algorithm: SigningAlgorithm::AesCmac,
            is_multi_credit: true,
            max_transact_size: 1 << 20,
            max_read_size: 1 << 20,
            max_write_size: 1 << 20,
            rdma_transforms: RdmaTransforms::default(),
            compression: None,
        };
        let config = Arc::new(AcceptorConfig::standalone("evil"));
        let mut peer = Peer {
            evil: self,
            stream: Arc::new(stream),
            terms,
            preauth: ConnectionPreauth::new(),
            setup: None,
            acceptor: Acceptor::new(config, [7; 8]),
            keys: None,
            counts: std::collections::HashMap::new(),
            listed: false,
        };
        let _ = peer.run().await;
        peer.stream.abort();
    }
}

impl Peer {
    async fn run(&mut self) -> io::Result<()> {
        let mut reader = FrameReader::new(frevo_net::limits::FRAME_BYTES_MAX);
        loop {
            let stream = Arc::clone(&self.stream);
            let Ok(Some(mut frame)) = reader.next(&stream).await else { return Ok(()) };
            if is_sealed(&frame) {
                let opening = self.keys.as_ref().and_then(|keys| keys.opening.clone());
                let found = unseal_frame(&mut frame, Sender::Client, |_| opening);
                let Ok(found) = found else { return Ok(()) };
                frame.truncate(found.message.end);
                frame.advance(found.message.start);
            } else if self.keys.is_some()
                && Header::parse(&frame).is_ok_and(|header| header.command != Command::ECHO)
            {
                // An ECHO belongs to no session and contains nothing secret, so it does not count
                // as overheard.
                self.evil.overheard.lock().extend_from_slice(&frame);
            }
            let parts: Vec<_> =
                Compound::new(&frame).map(|part| part.map(|p| p.1.to_vec())).collect();
            for part in parts.into_iter().flatten() {
                self.answer(&part).await?;
            }
        }
    }

    async fn answer(&mut self, message: &[u8]) -> io::Result<()> {
        let Ok(header) = Header::parse(message) else { return Ok(()) };
        let nth = *self.counts.entry(header.command.0).and_modify(|n| *n += 1).or_insert(0);
        let asked = Asked { header, message, nth, connection: self.evil.connection };
        let act = (self.evil.script)(&asked);
        let (status, body) = self.honest(&header, message);
        let mut honest = self.capped(said(&header, status, &body));
        if header.command == Command::CANCEL {
            return Ok(());
        }
        let frame = match act {
            Act::Honest => self.protected(honest),
            Act::Changed(change) => {
                change(&mut honest);
                self.protected(honest)
            }
            Act::Squeezed(squeeze) => framed(&squeeze(&self.protected(honest)[4..])),
            Act::Bare => framed(&honest),
            Act::Signed => self.signed(honest),
            Act::Refused(status) => {
                self.protected(said(&header, status, &[9, 0, 0, 0, 0, 0, 0, 0, 0]))
            }
            Act::Body(body) => self.protected(said(&header, status, &body)),
            Act::First(messages) => {
                let mut all = Vec::new();
                for message in messages {
                    all.extend(self.protected(message));
                }
                all.extend(self.protected(honest));
                all
            }
            Act::Behind(mut frame) => {
                frame.extend(self.protected(honest));
                frame
            }
            Act::Bytes(bytes) => bytes,
            Act::Kept(place) => {
                place.lock().push(honest);
                return Ok(());
            }
            Act::Silence => return Ok(()),
            Act::Close => return Err(io::ErrorKind::ConnectionAborted.into()),
            Act::Drip(pause) => {
                for byte in self.protected(honest) {
                    put(&self.stream, &[byte]).await?;
                    tokio::time::sleep(pause).await;
                }
                return Ok(());
            }
            Act::Again(pause, message) => loop {
                let frame = self.protected(message.clone());
                put(&self.stream, &frame).await?;
                tokio::time::sleep(pause).await;
            },
        };
        put(&self.stream, &frame).await
    }

    fn capped(&self, mut message: Vec<u8>) -> Vec<u8> {
        let granted = u16::from_le_bytes([message[14], message[15]]);
        let granted = granted.min(self.evil.manners.credits);
        message[14..16].copy_from_slice(&granted.to_le_bytes());
        message
    }

    /// Returns the frame that is sent for `message`.
    fn protected(&mut self, message: Vec<u8>) -> Vec<u8> {
        let header = Header::parse(&message).ok();
        let command = header.map(|header| header.command);
        if command == Some(Command::NEGOTIATE) {
            self.preauth.on_negotiate(&[&message]);
            return framed(&message);
        }
        let is_last_setup = command == Some(Command::SESSION_SETUP);
        if let Some(sealing) = self.keys.as_ref().and_then(|keys| keys.sealing.as_ref())
            && self.evil.manners.seal
            && !is_last_setup
        {
            let mut buf = vec![0; HEADROOM];
            buf.extend_from_slice(&message);
            seal_frame(&mut buf, sealing, SESSION).unwrap();
            return buf;
        }
        self.signed(message)
    }

    fn signed(&self, mut message: Vec<u8>) -> Vec<u8> {
        let is_signable = Header::parse(&message)
            .is_ok_and(|header| frevo_proto::protection::signature::is_signable(&header));
        if let Some(keys) = &self.keys
            && is_signable
        {
            let _ = frevo_proto::protection::signature::sign(
                &mut message,
                &keys.signing,
                Sender::Server,
            );
        }
        framed(&message)
    }

    fn honest(&mut self, header: &Header, message: &[u8]) -> (Status, Vec<u8>) {
        let mut body = Vec::new();
        let status = match header.command {
            Command::NEGOTIATE => self.negotiate(message, &mut body),
            Command::SESSION_SETUP => self.session_setup(message, &mut body),
            Command::TREE_CONNECT => {
                let ipc = message.ends_with(b"I\0P\0C\0$\0");
                encode(&mut body, |w| {
                    tree_connect::Response {
                        share_type: if ipc { ShareType::PIPE } else { ShareType::DISK },
                        share_flags: ShareFlags::EMPTY,
                        capabilities: ShareCapabilities::EMPTY,
                        maximal_access: AccessMask(0x1F_01FF),
                    }
                    .encode(w);
                });
                Status::SUCCESS
            }
            Command::CREATE => {
                let request = create::Request::parse(message).unwrap();
                let name = request.name.to_string_lossy();
                // With DFS_OPERATIONS the path in the request begins with server and share, which
                // are cut off.
                let is_whole = header.flags.contains(HeaderFlags::DFS_OPERATIONS);
                let name = match is_whole {
                    true => name.splitn(3, '\\').nth(2).unwrap_or_default(),
                    false => &*name,
                };
                let is_dir = name.is_empty()
                    || name.rsplit('\\').next().is_some_and(|last| last.starts_with("dir"))
                    || request.create_options.contains(CreateOptions::DIRECTORY_FILE);
                self.listed = false;
                let is_made = request.create_disposition != CreateDisposition::OPEN;
                created(is_dir, &self.evil.manners, is_made, &request, &mut body);
                Status::SUCCESS
            }
            Command::QUERY_DIRECTORY if self.listed => {
                body = vec![9, 0, 0, 0, 0, 0, 0, 0];
                Status::NO_MORE_FILES
            }
            Command::QUERY_DIRECTORY => {
                self.listed = true;
                body = buffer(&entries(&self.evil.manners.root));
                Status::SUCCESS
            }
            Command::READ => {
                let request = frevo_wire::command::read::Request::parse(message).unwrap();
                let at = usize::try_from(request.offset).unwrap_or(usize::MAX).min(CONTENT.len());
                if at == CONTENT.len() {
                    body = vec![9, 0, 0, 0, 0, 0, 0, 0];
                    Status::END_OF_FILE
                } else {
                    let end = CONTENT.len().min(at + request.length as usize);
                    encode(&mut body, |w| {
                        frevo_wire::command::read::Response::new(&CONTENT[at..end]).encode(w)
                    });
                    Status::SUCCESS
                }
            }
            Command::WRITE => {
                let request = frevo_wire::command::write::Request::parse(message).unwrap();
                let count = u32::try_from(request.data.len()).unwrap();
                encode(&mut body, |w| frevo_wire::command::write::Response { count }.encode(w));
                Status::SUCCESS
            }
            Command::CLOSE => {
                encode(&mut body, |w| closed().encode(w));
                Status::SUCCESS
            }
            Command::LOCK
            | Command::FLUSH
            | Command::ECHO
            | Command::LOGOFF
            | Command::TREE_DISCONNECT
            | Command::SET_INFO => {
                body =
                    if header.command == Command::SET_INFO { vec![2, 0] } else { vec![4, 0, 0, 0] };
                Status::SUCCESS
            }
            Command::IOCTL => {
                let request = ioctl::Request::parse(message).unwrap();
                let output = match request.ctl_code {
                    CtlCode::VALIDATE_NEGOTIATE_INFO if self.evil.manners.chooses => {
                        self.negotiated()
                    }
                    _ => vec![0; 32],
                };
                encode(&mut body, |w| {
                    ioctl::Response {
                        ctl_code: request.ctl_code,
                        file_id: request.file_id,
                        input: &[],
                        output: &output,
                    }
                    .encode(w);
                });
                Status::SUCCESS
            }
            _ => {
                body = vec![9, 0, 0, 0, 0, 0, 0, 0];
                Status::NOT_SUPPORTED
            }
        };
        (status, body)
    }

    fn negotiate(&mut self, message: &[u8], body: &mut Vec<u8>) -> Status {
        self.preauth.on_negotiate(&[message]);
        let manners = Arc::clone(&self.evil.manners);
        let request = negotiate::Request::parse(message).unwrap();
        let known = |dialect: &&Dialect| dialect.0 <= manners.dialect.0;
        let newest = request.dialects.iter().filter(known).max_by_key(|dialect| dialect.0);
        if let Some(newest) = newest.filter(|_| manners.chooses) {
            self.terms.dialect = *newest;
            if *newest != Dialect::SMB_3_1_1 {
                self.terms.signing_algorithm = Negotiated::default_signing_algorithm(*newest);
                let encrypts = newest.0 >= Dialect::SMB_3_0.0;
                self.terms.cipher = manners.cipher.filter(|_| encrypts).map(|_| Cipher::Aes128Ccm);
            }
        }
        let contexts = match self.terms.dialect {
            _ if manners.contexts.is_some() => manners.contexts.clone().unwrap(),
            Dialect::SMB_3_1_1 => usual(manners.cipher),
            _ if manners.chooses => Vec::new(),
            _ => usual(manners.cipher),
        };
        let mut capabilities = CAPABILITIES;
        if manners.notifies {
            capabilities |= GlobalCapabilities::NOTIFICATIONS;
        }
        let signs =
            if manners.signs { SecurityMode::SIGNING_REQUIRED } else { SecurityMode::EMPTY };
        encode(body, |w| {
            negotiate::Response {
                security_mode: SecurityMode::SIGNING_ENABLED | signs,
                dialect_revision: self.terms.dialect,
                server_guid: Guid([manners.guid; 16]),
                capabilities,
                max_transact_size: 1 << 20,
                max_read_size: 1 << 20,
                max_write_size: 1 << 20,
                system_time: FileTime(1),
                server_start_time: FileTime(0),
                security_buffer: &Acceptor::initial_token(false, true),
                negotiate_contexts: contexts,
            }
            .encode(w);
        });
        Status::SUCCESS
    }

    /// The answer to VALIDATE_NEGOTIATE_INFO.
    fn negotiated(&self) -> Vec<u8> {
        let mut output = Vec::new();
        let response = validate_negotiate::Response {
            capabilities: CAPABILITIES,
            guid: Guid([self.evil.manners.guid; 16]),
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialect: self.terms.dialect,
        };
        response.encode(&mut Writer::new(&mut output));
        output
    }

    fn session_setup(&mut self, message: &[u8], body: &mut Vec<u8>) -> Status {
        let request = session_setup::Request::parse(message).unwrap();
        let setup = self.setup.get_or_insert_with(|| self.preauth.session_setup());
        setup.on_request(&[message]);
        let now = 133_000_000_000_000_000;
        let (status, token, flags) = match self.acceptor.step(request.security_buffer, now, &Users)
        {
            Ok(Step::Continue(token) | Step::Retry(token, _)) => {
                (Status::MORE_PROCESSING_REQUIRED, token, SessionFlags::EMPTY)
            }
            Ok(Step::Done(done)) => {
                let keys = self.terms.session_keys(&done.session_key, setup.hash()).unwrap();
                self.keys = Some(Keys {
                    signing: self.terms.signing_key(&keys),
                    sealing: keys.sealing_key(Sender::Server),
                    opening: keys.opening_key(Sender::Server).map(Arc::new),
                });
                let seal = self.evil.manners.seal;
                let flags = if seal { SessionFlags::ENCRYPT_DATA } else { SessionFlags::EMPTY };
                let is_guest = self.evil.connection >= self.evil.manners.guest_from;
                let guest = if is_guest { SessionFlags::IS_GUEST } else { SessionFlags::EMPTY };
                (Status::SUCCESS, done.token, flags | self.evil.manners.flags | guest)
            }
            Ok(Step::Ask(_)) | Err(_) => (Status::LOGON_FAILURE, Vec::new(), SessionFlags::EMPTY),
        };
        encode(body, |w| {
            session_setup::Response { session_flags: flags, security_buffer: &token }.encode(w);
        });
        if status == Status::MORE_PROCESSING_REQUIRED
            && let (Some(setup), Ok(header)) = (&mut self.setup, Header::parse(message))
        {
            let mut answer = said(&header, status, body);
            let granted = header.credits.max(1).min(self.evil.manners.credits);
            answer[14..16].copy_from_slice(&granted.to_le_bytes());
            setup.on_response(status, &[&answer]);
        }
        status
    }
}

/// The contexts of a good answer.
pub fn usual(cipher: Option<Cipher>) -> Vec<NegotiateContext<'static>> {
    let mut all = vec![
        NegotiateContext::PreauthIntegrity {
            hash_algorithms: vec![HashAlgorithm::SHA_512],
            salt: &[3; 32],
        },
        NegotiateContext::Signing(vec![context::SigningAlgorithm(SigningAlgorithm::AesCmac.id())]),
    ];
    if let Some(cipher) = cipher {
        all.push(NegotiateContext::Encryption(vec![context::Cipher(cipher.id())]));
    }
    all
}

/// A response to `request`.
pub fn said(request: &Header, status: Status, body: &[u8]) -> Vec<u8> {
    let session_id = if request.command == Command::NEGOTIATE { 0 } else { SESSION };
    let tree_id =
        if request.command == Command::TREE_CONNECT { 5 } else { request.tree_id().unwrap_or(0) };
    let header = Header {
        status,
        credits: request.credits.max(1),
        flags: HeaderFlags::SERVER_TO_REDIR,
        next_command: 0,
        route: Route::Sync { process_id: 0xFEFF, tree_id },
        session_id,
        signature: [0; 16],
        ..*request
    };
    let mut message = header.to_bytes().to_vec();
    message.extend_from_slice(body);
    message
}

/// An interim response to `request`.
pub fn pending(request: &Header) -> Vec<u8> {
    let mut message = said(request, Status::PENDING, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
    message[16..20].copy_from_slice(
        &(HeaderFlags::SERVER_TO_REDIR | HeaderFlags::ASYNC_COMMAND).0.to_le_bytes(),
    );
    message[32..40].copy_from_slice(&77_u64.to_le_bytes());
    message
}

/// IO_REPARSE_TAG_DFS, which a name that begins so has in listings.
pub const LINK: &str = "link";

/// A listing's entries.
pub fn entries(names: &[(String, bool)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list =
        DirectoryWriter::new(&mut out, FileInfoClass::ID_BOTH_DIRECTORY, 1 << 20).unwrap();
    for (name, is_dir) in names {
        let is_link = name.starts_with(LINK);
        let attributes = match (is_link, *is_dir) {
            (true, _) => FileAttributes::REPARSE_POINT,
            (_, true) => FileAttributes::DIRECTORY,
            _ => FileAttributes::ARCHIVE,
        };
        let end_of_file = if *is_dir || is_link { 0 } else { CONTENT.len() as u64 };
        let _ = list.push(&DirectoryEntry {
            name: &**name,
            attributes,
            end_of_file,
            reparse_tag: if is_link { 0x8000_000A } else { 0 },
            ..DirectoryEntry::default()
        });
    }
    out
}

/// A body of StructureSize, offset and length, and a buffer.
pub fn buffer(data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let offset = (HEADER_LEN + 8) as u16;
    Writer::new(&mut body).u16(9).u16(offset).u32(data.len() as u32).bytes(data);
    body
}

fn created(
    is_dir: bool,
    manners: &Manners,
    is_made: bool,
    request: &create::Request<'_>,
    body: &mut Vec<u8>,
) {
    let durable = DurableResponseV2 { timeout: 60_000, flags: DurableHandleFlags::EMPTY };
    let mut contexts = Vec::new();
    if manners.keeps {
        contexts.push(ResponseContext::DurableV2(durable));
    }
    if manners.tells {
        let id = OnDiskId { disk_file_id: 11, volume_id: 12 };
        contexts.push(ResponseContext::OnDiskId(id));
    }
    let mut oplock_level = OplockLevel::NONE;
    for asked in request.contexts.requests() {
        if let (true, Ok(CreateContext::LeaseV2(lease))) = (manners.leases, asked) {
            contexts.push(ResponseContext::LeaseV2(LeaseV2 { epoch: 1, ..lease }));
            oplock_level = OplockLevel::LEASE;
        }
    }
    let is_empty = is_dir || manners.tells;
    let is_new = is_made && manners.tells;
    let attributes = if is_dir { FileAttributes::DIRECTORY } else { FileAttributes::ARCHIVE };
    encode(body, |w| {
        create::Response {
            oplock_level,
            flags: CreateFlags::EMPTY,
            create_action: if is_new { CreateAction::CREATED } else { CreateAction::OPENED },
            creation_time: FileTime(1),
            last_access_time: FileTime(1),
            last_write_time: FileTime(1),
            change_time: FileTime(1),
            allocation_size: 4096,
            end_of_file: if is_empty { 0 } else { CONTENT.len() as u64 },
            file_attributes: attributes,
            file_id: FileId { persistent: 1, volatile: 2 },
            contexts: CreateContexts::from_responses(&contexts),
        }
        .encode(w);
    });
}

fn closed() -> close::Response {
    close::Response {
        flags: close::CloseFlags::EMPTY,
        creation_time: FileTime(0),
        last_access_time: FileTime(0),
        last_write_time: FileTime(0),
        change_time: FileTime(0),
        allocation_size: 0,
        end_of_file: 0,
        file_attributes: FileAttributes::EMPTY,
    }
}

fn encode(body: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
    let mut message = vec![0; HEADER_LEN];
    write(&mut Writer::from(&mut message, 0));
    body.extend_from_slice(&message[HEADER_LEN..]);
}
