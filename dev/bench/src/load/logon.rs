//! Logs on by the third-party client, then takes its socket, session and open file over.

use std::net::TcpStream as StdStream;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use frevo_crypto::{SigningAlgorithm, SigningKey};
use smb2::transport::{TransportReceive, TransportSend};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::shape::{Shape, Verb};
use crate::client::{Client, Open, Protection};
use crate::server::Target;
use crate::share;

/// The state that a connection goes on with after the logon.
pub(super) struct LoggedOn {
    pub(super) socket: StdStream,
    pub(super) session_id: u64,
    pub(super) tree_id: u32,
    /// Persistent and volatile part.
    pub(super) file_id: (u64, u64),
    pub(super) next_message_id: u64,
    pub(super) credits: u32,
    pub(super) key: SigningKey,
}

/// Connects, logs on, connects to the share and opens the file of the row.
pub(super) async fn log_on(row: &Shape, target: &Target) -> Result<LoggedOn> {
    let socket = TcpStream::connect(&target.addr).await?;
    socket.set_nodelay(true)?;
    let socket = socket.into_std()?;
    // Further descriptors of the same socket; nobody reads by them once the client is dropped.
    let kept = socket.try_clone()?;
    let socket = Socket::new(socket)?;
    let signing = row.is_cmac.then_some(SigningAlgorithm::AesCmac.id());
    let client = Client::connect_over(socket, target, Protection::Signed, signing).await?;
    let (name, how) = match row.verb {
        Verb::Read => (share::READ_NAME, Open::Read),
        Verb::Write => (share::WRITE_NAME, Open::Write),
    };
    let file = client.requests().open(name, how).await?;
    let key: [u8; 16] = client.signing_key().get(..16).context("a signing key")?.try_into()?;
    let algorithm = match client.signing_algorithm() {
        smb2::crypto::signing::SigningAlgorithm::HmacSha256 => SigningAlgorithm::HmacSha256,
        smb2::crypto::signing::SigningAlgorithm::AesCmac => SigningAlgorithm::AesCmac,
        smb2::crypto::signing::SigningAlgorithm::AesGmac => SigningAlgorithm::AesGmac,
    };
    ensure!(
        !row.is_cmac || algorithm == SigningAlgorithm::AesCmac,
        "the server has chosen {algorithm:?}"
    );
    let logged_on = LoggedOn {
        socket: kept,
        session_id: client.conn.session_id().0,
        tree_id: client.tree_id.0,
        file_id: (file.persistent, file.volatile),
        next_message_id: client.conn.next_message_id(),
        credits: client.conn.credits().into(),
        key: SigningKey::new(algorithm, &key),
    };
    drop(client);
    // The client's tasks end when they run next.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    Ok(logged_on)
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
