//! Logs on by the third-party client, then takes its socket, session and open file over.

use std::net::TcpStream as StdStream;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use frevo_crypto::{Cipher, SigningAlgorithm, SigningKey};
use frevo_wire::file_id::FileId;
use smb2::transport::{TransportReceive, TransportSend};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::sealing::Sealing;
use super::shape::{Listed, Shape, Verb};
use crate::client::{Client, Open, Protection};
use crate::server::Target;
use crate::share;
use crate::wire::Offer;

/// The state that a connection goes on with after the logon.
pub(super) struct LoggedOn {
    pub(super) socket: StdStream,
    pub(super) session_id: u64,
    pub(super) tree_id: u32,
    pub(super) file_id: FileId,
    pub(super) next_message_id: u64,
    pub(super) credits: u32,
    pub(super) key: SigningKey,
    /// The number of the client.
    pub(super) number: usize,
    /// Some if requests and replies are sealed.
    pub(super) sealing: Option<Sealing>,
}

/// Connects as the `n`th client, logs on, connects to the share and opens what the row uses.
pub(super) async fn log_on(row: &Shape, target: &Target, n: usize) -> Result<LoggedOn> {
    let cipher = if row.is_older { Cipher::Aes128Ccm } else { Cipher::Aes128Gcm };
    let (protection, offer) = match row.protection {
        Protection::Sealed => {
            (Protection::Sealed, Offer { cipher: Some(cipher.id()), ..Offer::default() })
        }
        _ => {
            let signing = row.is_older.then_some(SigningAlgorithm::AesCmac.id());
            (Protection::Signed, Offer { signing, ..Offer::default() })
        }
    };
    let Connected { client, socket } = Connected::open(target, protection, offer).await?;
    let (name, how) = match row.verb {
        Verb::Read => (share::READ_NAME.to_owned(), Open::Read),
        Verb::Write => (share::WRITE_NAME.to_owned(), Open::Write),
        Verb::List(Listed::Plain) => (share::folder_name(row.bytes), Open::Folder),
        Verb::List(Listed::Apple) => (share::folder_name(row.bytes), Open::AppleFolder),
        Verb::List(Listed::Readable) => (share::guarded_name(row.bytes), Open::Folder),
        Verb::Office => (share::office_name(n), Open::Folder),
    };
    let file = client.requests().open(&name, how).await?;
    let algorithm = algorithm_of(&client);
    let key = key_of(&client)?;
    let session_id = client.conn.session_id().0;
    let sealing = client.sealing_keys().map(|keys| Sealing::new(keys, session_id)).transpose()?;
    let is_asked = match &sealing {
        Some(sealing) => sealing.cipher() == cipher,
        None => !row.is_older || algorithm == SigningAlgorithm::AesCmac,
    };
    ensure!(is_asked, "the server has chosen another algorithm");
    let logged_on = LoggedOn {
        socket,
        session_id,
        tree_id: client.tree_id.0,
        file_id: FileId { persistent: file.persistent, volatile: file.volatile },
        next_message_id: client.conn.next_message_id(),
        credits: client.conn.credits().into(),
        key,
        sealing,
        number: n,
    };
    let_go(client).await;
    Ok(logged_on)
}

/// A client that is logged on, and its socket.
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// Keeps the connection open when the client is dropped, after which nobody else reads from it.
    pub(crate) socket: StdStream,
}

impl Connected {
    /// Connects, logs on, and connects to the share.
    pub(crate) async fn open(
        target: &Target,
        protection: Protection,
        offer: Offer,
    ) -> Result<Self> {
        let socket = TcpStream::connect(&target.addr).await?;
        socket.set_nodelay(true)?;
        let socket = socket.into_std()?;
        let own = Socket::new(socket.try_clone()?)?;
        let client = Client::connect_over(own, target, protection, offer).await?;
        Ok(Self { client, socket })
    }
}

/// Drops a client whose socket is used on.
pub(crate) async fn let_go(client: Client) {
    drop(client);
    // The client's tasks end when the runtime polls them, so this task yields several times.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

fn algorithm_of(client: &Client) -> SigningAlgorithm {
    match client.signing_algorithm() {
        smb2::crypto::signing::SigningAlgorithm::HmacSha256 => SigningAlgorithm::HmacSha256,
        smb2::crypto::signing::SigningAlgorithm::AesCmac => SigningAlgorithm::AesCmac,
        smb2::crypto::signing::SigningAlgorithm::AesGmac => SigningAlgorithm::AesGmac,
    }
}

/// The key that signs the requests of a client.
pub(crate) fn key_of(client: &Client) -> Result<SigningKey> {
    let key: [u8; 16] = client.signing_key().get(..16).context("a signing key")?.try_into()?;
    Ok(SigningKey::new(algorithm_of(client), &key))
}

/// A transport of the client library over a socket that is at hand. Its halves are two descriptors,
/// since a half of tokio's ends the connection when it is dropped.
struct Socket {
    reading: Mutex<TcpStream>,
    writing: Mutex<TcpStream>,
}

impl Socket {
    fn new(socket: StdStream) -> Result<Arc<Self>> {
        let writing = Mutex::new(TcpStream::from_std(socket.try_clone()?)?);
        Ok(Arc::new(Self { reading: Mutex::new(TcpStream::from_std(socket)?), writing }))
    }
}

#[async_trait]
impl TransportSend for Socket {
    async fn send(&self, data: &[u8]) -> smb2::Result<()> {
        let length = u32::try_from(data.len()).map_err(|_| smb2::Error::Disconnected)?;
        let mut frame = length.to_be_bytes().to_vec();
        frame.extend_from_slice(data);
        self.writing.lock().await.write_all(&frame).await.map_err(|_| smb2::Error::Disconnected)
    }
}

#[async_trait]
impl TransportReceive for Socket {
    async fn receive(&self) -> smb2::Result<Vec<u8>> {
        let mut reading = self.reading.lock().await;
        let length = reading.read_u32().await.map_err(|_| smb2::Error::Disconnected)?;
        let mut frame = vec![0; length as usize];
        reading.read_exact(&mut frame).await.map_err(|_| smb2::Error::Disconnected)?;
        Ok(frame)
    }
}
