//! Single requests of the third-party client (`smb2`).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use frevo_wire::codec::Writer;
use frevo_wire::create_context::{
    AaplQuery, AaplQueryResponse, AaplRequested, AaplServerCapabilities,
};
use smb2::client::{Connection, Session, Tree};
use smb2::crypto::encryption::Cipher;
use smb2::crypto::kdf::PreauthHasher;
use smb2::crypto::signing::SigningAlgorithm;
use smb2::msg::close::CloseRequest;
use smb2::msg::create::{
    CreateDisposition, CreateRequest, CreateResponse, ImpersonationLevel, ShareAccess,
};
use smb2::msg::create_context::{CreateContext, pack_contexts, parse_contexts};
use smb2::msg::echo::EchoRequest;
use smb2::msg::ioctl::{
    FSCTL_DFS_GET_REFERRALS, IoctlRequest, IoctlResponse, SMB2_0_IOCTL_IS_FSCTL,
};
use smb2::msg::logoff::LogoffRequest;
use smb2::msg::read::ReadRequest;
use smb2::msg::write::WriteRequest;
use smb2::pack::{Pack, ReadCursor, Unpack};
use smb2::transport::{TcpTransport, Transport};
use smb2::types::flags::FileAccessMask;
use smb2::types::status::NtStatus;
use smb2::types::{Command, CreditCharge, FileId, OplockLevel, TreeId};

use crate::server::Target;
use crate::wire::{self, First, Offer, Tally};

/// The protection of requests after the tree connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Session setup and tree connect are signed, the rest is plain.
    Unsigned,
    /// Every request and answer is signed.
    Signed,
    /// Every request and answer is encrypted.
    Sealed,
}

impl Protection {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Signed => "signed",
            Self::Sealed => "sealed",
        }
    }
}

/// One authenticated connection with its tree.
pub(crate) struct Client {
    pub(crate) conn: Connection,
    /// Usable on `conn` unless the protection is [`Protection::Unsigned`].
    pub(crate) tree: Tree,
    pub(crate) tree_id: TreeId,
    tally: Arc<Tally>,
    description: String,
    signing: (Vec<u8>, SigningAlgorithm),
    sealing: Option<SealingKeys>,
}

/// The cipher of a session and its keys, for messages to the server and from it.
#[derive(Clone)]
pub(crate) struct SealingKeys {
    pub(crate) cipher: Cipher,
    pub(crate) to_server: Vec<u8>,
    pub(crate) from_server: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(target: &Target, protection: Protection) -> Result<Self> {
        let socket = TcpTransport::connect(&target.addr, Duration::from_secs(10)).await?;
        Self::connect_over(Arc::new(socket), target, protection, Offer::default()).await
    }

    /// Logs on over a transport that is connected.
    pub(crate) async fn connect_over(
        socket: Arc<dyn Transport>,
        target: &Target,
        protection: Protection,
        offer: Offer,
    ) -> Result<Self> {
        let first = First::new(socket, offer);
        let tally = first.tally();
        let mut conn = wire::connection(first.clone(), "127.0.0.1");
        conn.set_compression_requested(false);
        conn.set_keepalive(None);
        conn.negotiate().await.context("NEGOTIATE")?;
        let (asked, answered) = first.negotiation().context("no NEGOTIATE was recorded")?;
        conn.with_preauth_hasher_mut(|hash| {
            *hash = PreauthHasher::new();
            hash.update(asked);
            hash.update(answered);
        });
        let session = Session::setup(&mut conn, &target.user, &target.password, "")
            .await
            .context("SESSION_SETUP")?;
        let tree = Tree::connect(&mut conn, "share").await.context("TREE_CONNECT")?;
        let description = describe(&conn, &session, protection)?;
        let mut sealing = None;
        match protection {
            Protection::Signed => {
                ensure!(
                    !conn.should_encrypt(),
                    "the server demands encryption; signed-only cannot be measured"
                );
            }
            Protection::Sealed => {
                let cipher =
                    conn.params().and_then(|p| p.cipher).context("no cipher was negotiated")?;
                let (Some(enc), Some(dec)) =
                    (session.encryption_key.clone(), session.decryption_key.clone())
                else {
                    bail!("no encryption keys on this dialect");
                };
                conn.activate_encryption(enc.clone(), dec.clone(), cipher);
                sealing = Some(SealingKeys { cipher, to_server: enc, from_server: dec });
            }
            Protection::Unsigned => {
                ensure!(
                    !conn.should_encrypt(),
                    "the server demands encryption; unsigned cannot be measured"
                );
                conn = without_keys(conn, &first).await?;
            }
        }
        let tree_id = tree.tree_id;
        let signing = (session.signing_key.clone(), session.signing_algorithm);
        Ok(Self { conn, tree, tree_id, tally, description, signing, sealing })
    }

    /// Returns the dialect, the protection with its algorithm, and the server's sizes.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    pub(crate) fn signing_key(&self) -> &[u8] {
        &self.signing.0
    }

    pub(crate) const fn signing_algorithm(&self) -> SigningAlgorithm {
        self.signing.1
    }

    /// Returns the keys of a session with [`Protection::Sealed`].
    pub(crate) const fn sealing_keys(&self) -> Option<&SealingKeys> {
        self.sealing.as_ref()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn requests(&self) -> Requests {
        Requests { conn: self.conn.clone(), tree_id: self.tree_id }
    }

    /// Sends a LOGOFF; the socket closes with the last clone of the connection.
    pub(crate) async fn logoff(self) -> Result<()> {
        let frame = self.conn.execute(Command::Logoff, &LogoffRequest, None).await?;
        ensure!(frame.header.status == NtStatus::SUCCESS, "LOGOFF: {:?}", frame.header.status);
        Ok(())
    }
}

fn describe(conn: &Connection, session: &Session, protection: Protection) -> Result<String> {
    let params = conn.params().context("the connection has not negotiated")?;
    let how = match protection {
        Protection::Unsigned => "unsigned".to_owned(),
        Protection::Signed => format!("signed {:?}", session.signing_algorithm),
        Protection::Sealed => format!("sealed {:?}", params.cipher.context("no cipher")?),
    };
    Ok(format!(
        "{}, {how}, max read/write/transact {}/{}/{} KiB",
        params.dialect,
        params.max_read_size >> 10,
        params.max_write_size >> 10,
        params.max_transact_size >> 10
    ))
}

/// Continues the session on its socket with a library connection that has no keys; see
/// [`wire::Second`].
async fn without_keys(old: Connection, first: &First) -> Result<Connection> {
    let next = old.next_message_id();
    let session_id = old.session_id();
    let second =
        first.second(next, old.credits()).context("the first connection cannot be taken over")?;
    // The receiver task of the dropped connection closes its socket. No answer is outstanding, so
    // none gets lost.
    drop(old);
    let mut conn = wire::connection(second, "127.0.0.1");
    conn.set_compression_requested(false);
    conn.set_keepalive(None);
    conn.negotiate().await?;
    let skip = u16::try_from(next.saturating_sub(1))?;
    conn.execute_with_credits(Command::Echo, &EchoRequest, None, CreditCharge(skip)).await?;
    ensure!(
        conn.next_message_id() == next,
        "the next MessageId is {}, expected {next}",
        conn.next_message_id()
    );
    conn.set_session_id(session_id);
    Ok(conn)
}

/// Single requests on a tree; clones share the connection.
#[derive(Clone)]
pub(crate) struct Requests {
    conn: Connection,
    tree_id: TreeId,
}

/// The purpose of a CREATE.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Open {
    /// An existing file for reading.
    Read,
    /// A file for writing, made if absent, not truncated.
    Write,
    /// A new file; fails if it exists.
    New,
    /// An existing folder.
    Folder,
    /// An existing folder, opened by a client that says that it is macOS.
    AppleFolder,
}

impl Requests {
    async fn execute(
        &self,
        command: Command,
        body: &dyn Pack,
        bytes: usize,
    ) -> Result<smb2::Frame> {
        let charge = u16::try_from(bytes.div_ceil(65536).max(1))?;
        let frame = self
            .conn
            .execute_with_credits(command, body, Some(self.tree_id), CreditCharge(charge))
            .await?;
        if frame.header.status != NtStatus::SUCCESS {
            bail!("{command:?}: {:?}", frame.header.status);
        }
        Ok(frame)
    }

    pub(crate) async fn open(&self, name: &str, how: Open) -> Result<FileId> {
        let (access, disposition) = match how {
            Open::Read => (FileAccessMask::FILE_READ_DATA, CreateDisposition::FileOpen),
            Open::Write => (FileAccessMask::FILE_WRITE_DATA, CreateDisposition::FileOpenIf),
            Open::New => (FileAccessMask::FILE_WRITE_DATA, CreateDisposition::FileCreate),
            // On a folder the bit of FILE_READ_DATA is FILE_LIST_DIRECTORY.
            Open::Folder | Open::AppleFolder => {
                (FileAccessMask::FILE_READ_DATA, CreateDisposition::FileOpen)
            }
        };
        let body = CreateRequest {
            requested_oplock_level: OplockLevel::None,
            impersonation_level: ImpersonationLevel::Impersonation,
            desired_access: FileAccessMask::new(
                access | FileAccessMask::FILE_READ_ATTRIBUTES | FileAccessMask::SYNCHRONIZE,
            ),
            file_attributes: 0,
            share_access: ShareAccess(
                ShareAccess::FILE_SHARE_READ
                    | ShareAccess::FILE_SHARE_WRITE
                    | ShareAccess::FILE_SHARE_DELETE,
            ),
            create_disposition: disposition,
            // MS-SMB2 2.2.13: 0x01 is FILE_DIRECTORY_FILE, and 0x40 is FILE_NON_DIRECTORY_FILE.
            create_options: match how {
                Open::Folder | Open::AppleFolder => 0x01,
                _ => 0x40,
            },
            name: name.to_owned(),
            create_contexts: match how {
                Open::AppleFolder => pack_contexts(&[apple_query()]),
                _ => vec![],
            },
        };
        let frame = self.execute(Command::Create, &body, 1).await?;
        let response = CreateResponse::unpack(&mut ReadCursor::new(&frame.body))?;
        if matches!(how, Open::AppleFolder) {
            let contexts = parse_contexts(&response.create_contexts)?;
            let answer = contexts.iter().find(|context| context.name == APPLE);
            let answer = answer.context("the server does not answer as macOS expects")?;
            let answer = AaplQueryResponse::parse(&answer.data)?.context("the AAPL answer")?;
            let entries = AaplServerCapabilities::SUPPORTS_READ_DIR_ATTR;
            let is_agreed = answer.server_capabilities.is_some_and(|can| can.contains(entries));
            ensure!(is_agreed, "the server does not list entries as macOS wants them");
        }
        Ok(response.file_id)
    }

    /// Asks for a referral of DFS, and returns the bytes of the answer.
    pub(crate) async fn referral(&self, input_data: Vec<u8>) -> Result<usize> {
        let body = IoctlRequest {
            ctl_code: FSCTL_DFS_GET_REFERRALS,
            file_id: FileId { persistent: u64::MAX, volatile: u64::MAX },
            max_input_response: 0,
            max_output_response: 4096,
            flags: SMB2_0_IOCTL_IS_FSCTL,
            input_data,
        };
        let frame = self.execute(Command::Ioctl, &body, 1).await?;
        Ok(IoctlResponse::unpack(&mut ReadCursor::new(&frame.body))?.output_data.len())
    }

    pub(crate) async fn close(&self, file_id: FileId) -> Result<()> {
        self.execute(Command::Close, &CloseRequest { flags: 0, file_id }, 1).await?;
        Ok(())
    }

    /// Reads exactly `length` bytes; the answer's body holds them from its 16th byte.
    pub(crate) async fn read(
        &self,
        file_id: FileId,
        offset: u64,
        length: u32,
    ) -> Result<smb2::Frame> {
        let body = ReadRequest {
            padding: 0x50,
            flags: 0,
            length,
            offset,
            file_id,
            minimum_count: length,
            channel: 0,
            remaining_bytes: 0,
            read_channel_info: vec![],
        };
        let frame = self.execute(Command::Read, &body, length as usize).await?;
        ensure!(frame.body.len() >= 16 + length as usize, "READ returned too few bytes");
        Ok(frame)
    }

    /// Sends `request` unchanged.
    pub(crate) async fn write(&self, request: &WriteRequest) -> Result<()> {
        let frame = self.execute(Command::Write, request, request.data.len()).await?;
        let count = frame.body.get(4..8).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        ensure!(
            count.is_some_and(|c| c as usize == request.data.len()),
            "WRITE took {count:?} of {} bytes",
            request.data.len()
        );
        Ok(())
    }
}

/// The name of Apple's create context.
const APPLE: &[u8] = b"AAPL";

/// Returns the query by which macOS agrees on the form of directory entries.
fn apple_query() -> CreateContext {
    let entries = AaplServerCapabilities::SUPPORTS_READ_DIR_ATTR;
    let query = AaplQuery {
        requested: AaplRequested::SERVER_CAPABILITIES
            | AaplRequested::VOLUME_CAPABILITIES
            | AaplRequested::MODEL_INFO,
        client_capabilities: entries | AaplServerCapabilities::UNIX_BASED,
    };
    let mut data = Vec::new();
    query.encode(&mut Writer::from(&mut data, 0));
    CreateContext::new(APPLE, data)
}

/// Returns a WRITE of `data` that can be sent at changing offsets.
pub(crate) fn write_request(file_id: FileId, data: Vec<u8>) -> WriteRequest {
    WriteRequest {
        data_offset: 0x70,
        offset: 0,
        file_id,
        channel: 0,
        remaining_bytes: 0,
        write_channel_info_offset: 0,
        write_channel_info_length: 0,
        flags: 0,
        data,
    }
}
