//! The transport under every measured connection.
//!
//! It passes frames to the client library's own TCP transport and counts their kinds (plain,
//! signed, sealed), so that the table states what was on the wire instead of what was requested.
//!
//! It sets the encryption bit in the client's capabilities, as real clients do; smbd requires it
//! before it answers with a cipher, and the library leaves it out. [`First::negotiation`] returns
//! the bytes for the preauthentication hash.
//!
//! It also makes an *unsigned* session possible. The library signs every request of an
//! authenticated session. Real clients sign the session setup and the tree connect (MS-SMB2 3.3.5.7
//! requires it on 3.1.1) and then, without a requirement, nothing. [`Second`] is a fresh library
//! connection without keys that takes over the socket at that point: its NEGOTIATE is answered from
//! the recorded one, and an ECHO answered here moves its MessageId to where the first connection
//! stopped.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use smb2::transport::{ReceiveProgress, Transport, TransportReceive, TransportSend};
use tokio::sync::mpsc;

/// `Flags` bit of the SMB2 header (MS-SMB2 2.2.1.2).
const FLAGS_SIGNED: u8 = 0x08;
const HEADER_LEN: usize = 64;
const FLAGS_AT: usize = 16;
const CREDITS_AT: usize = 14;
const COMMAND_ECHO: u16 = 0x000d;
/// Offset of the low byte of `Capabilities` in the NEGOTIATE request (MS-SMB2 2.2.3).
const CAPABILITIES_AT: usize = HEADER_LEN + 8;
const CAP_ENCRYPTION: u8 = 0x40;
const CAP_PERSISTENT_HANDLES: u8 = 0x10;
/// Offset of `ClientGuid` in the NEGOTIATE request.
const CLIENT_GUID_AT: usize = HEADER_LEN + 12;
/// Offset of `NegotiateContextOffset` in the NEGOTIATE request.
const CONTEXTS_AT: usize = HEADER_LEN + 28;
/// ContextType, DataLength and Reserved (MS-SMB2 2.2.3.1).
const CONTEXT_HEAD_LEN: usize = 8;
/// ContextType of the ciphers, and of the signing algorithms.
const CIPHER_CONTEXT: u16 = 2;
const SIGNING_CONTEXT: u16 = 8;

/// Counts of the frames of each kind on a connection, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    plain: AtomicU64,
    signed: AtomicU64,
    sealed: AtomicU64,
}

/// The counts of a [`Tally`] at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Frames {
    /// Frames that are neither signed nor encrypted.
    pub(crate) plain: u64,
    /// Frames with the signed flag in the SMB2 header.
    pub(crate) signed: u64,
    /// Frames in a transform header.
    pub(crate) sealed: u64,
}

impl Tally {
    fn count(&self, frame: &[u8]) {
        let kind = match frame.first() {
            Some(0xfd) => &self.sealed,
            Some(0xfe) if frame.get(FLAGS_AT).is_some_and(|f| f & FLAGS_SIGNED != 0) => {
                &self.signed
            }
            _ => &self.plain,
        };
        kind.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn frames(&self) -> Frames {
        Frames {
            plain: self.plain.load(Ordering::Relaxed),
            signed: self.signed.load(Ordering::Relaxed),
            sealed: self.sealed.load(Ordering::Relaxed),
        }
    }
}

impl Frames {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            plain: self.plain + other.plain,
            signed: self.signed + other.signed,
            sealed: self.sealed + other.sealed,
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            plain: self.plain.saturating_sub(before.plain),
            signed: self.signed.saturating_sub(before.signed),
            sealed: self.sealed.saturating_sub(before.sealed),
        }
    }
}

/// The parts of NEGOTIATE that are not the library's own; None leaves a part as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Number of the only signing algorithm, MS-SMB2 2.2.3.1.7.
    pub(crate) signing: Option<u16>,
    /// Number of the only cipher, MS-SMB2 2.2.3.1.2.
    pub(crate) cipher: Option<u16>,
    /// The client's GUID, with which persistent handles are asked for.
    pub(crate) lasting: Option<[u8; 16]>,
}

/// The socket's frames as the library's own connection sees them.
#[derive(Clone)]
pub(crate) struct First {
    socket: Arc<dyn Transport>,
    tally: Arc<Tally>,
    /// The first frame of each direction: NEGOTIATE and its response.
    asked: Arc<OnceLock<Vec<u8>>>,
    answered: Arc<OnceLock<Vec<u8>>>,
    offer: Offer,
}

impl First {
    pub(crate) fn new(socket: Arc<dyn Transport>, offer: Offer) -> Self {
        Self {
            socket,
            tally: Arc::default(),
            asked: Arc::default(),
            answered: Arc::default(),
            offer,
        }
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Returns NEGOTIATE's request and response as sent.
    pub(crate) fn negotiation(&self) -> Option<(&[u8], &[u8])> {
        Some((self.asked.get()?, self.answered.get()?))
    }

    /// Returns the takeover of this socket by a connection that starts at MessageId 0;
    /// `next_message_id` is the first unused one, and `credits` the remaining credits.
    pub(crate) fn second(&self, next_message_id: u64, credits: u16) -> Option<Second> {
        let mut negotiate = self.answered.get()?.clone();
        let skip = u16::try_from(next_message_id.checked_sub(1)?).ok()?;
        negotiate.get_mut(CREDITS_AT..CREDITS_AT + 2)?.copy_from_slice(&skip.to_le_bytes());
        let (answers, queue) = mpsc::unbounded_channel();
        Some(Second {
            first: self.clone(),
            canned: Arc::new(Canned {
                frames: [negotiate, echo_response(credits)],
                sent: AtomicUsize::new(0),
                received: AtomicUsize::new(0),
                answers,
                queue: tokio::sync::Mutex::new(queue),
            }),
        })
    }
}

#[async_trait]
impl TransportSend for First {
    async fn send(&self, data: &[u8]) -> smb2::Result<()> {
        self.tally.count(data);
        if self.asked.get().is_none() {
            let mut negotiate = data.to_vec();
            if let Some(capabilities) = negotiate.get_mut(CAPABILITIES_AT) {
                *capabilities |= CAP_ENCRYPTION;
            }
            let Offer { signing, cipher, lasting } = self.offer;
            if let Some(client) = lasting {
                keep_handles(&mut negotiate, client).ok_or(smb2::Error::Disconnected)?;
            }
            for (context, only) in [(SIGNING_CONTEXT, signing), (CIPHER_CONTEXT, cipher)] {
                if let Some(only) = only {
                    offer_only(&mut negotiate, context, only).ok_or(smb2::Error::Disconnected)?;
                }
            }
            return self.socket.send(self.asked.get_or_init(|| negotiate)).await;
        }
        self.socket.send(data).await
    }
}

#[async_trait]
impl TransportReceive for First {
    async fn receive(&self) -> smb2::Result<Vec<u8>> {
        let frame = self.socket.receive().await?;
        self.tally.count(&frame);
        if self.answered.get().is_none() {
            self.answered.get_or_init(|| frame.clone());
        }
        Ok(frame)
    }

    fn receive_progress(&self) -> Option<Arc<ReceiveProgress>> {
        self.socket.receive_progress()
    }
}

/// Announces persistent handles, and names the client.
fn keep_handles(negotiate: &mut [u8], client: [u8; 16]) -> Option<()> {
    *negotiate.get_mut(CAPABILITIES_AT)? |= CAP_PERSISTENT_HANDLES;
    negotiate.get_mut(CLIENT_GUID_AT..CLIENT_GUID_AT + 16)?.copy_from_slice(&client);
    Some(())
}

/// Replaces all algorithms of a negotiate context by one. None if the request has no such context.
fn offer_only(negotiate: &mut [u8], context: u16, only: u16) -> Option<()> {
    let offset = negotiate.get(CONTEXTS_AT..CONTEXTS_AT + 4)?.try_into().ok()?;
    let mut at = usize::try_from(u32::from_le_bytes(offset)).ok()?;
    loop {
        let head: [u8; CONTEXT_HEAD_LEN] =
            negotiate.get(at..at + CONTEXT_HEAD_LEN)?.try_into().ok()?;
        let [kind, len] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_le_bytes);
        let data = at + CONTEXT_HEAD_LEN..at + CONTEXT_HEAD_LEN + usize::from(len);
        at = data.end.next_multiple_of(8);
        if kind == context {
            // After the count come the ids of the algorithms, which are all replaced by `only`.
            let (ids, _) = negotiate.get_mut(data)?.get_mut(2..)?.as_chunks_mut();
            ids.fill(only.to_le_bytes());
            return Some(());
        }
    }
}

/// A connection that takes over the socket; see the module's description. The caller sends
/// NEGOTIATE and one ECHO with the CreditCharge `next_message_id - 1`; both are answered here.
#[derive(Clone)]
pub(crate) struct Second {
    first: First,
    canned: Arc<Canned>,
}

struct Canned {
    frames: [Vec<u8>; 2],
    sent: AtomicUsize,
    received: AtomicUsize,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    queue: tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<u8>>>,
}

#[async_trait]
impl TransportSend for Second {
    async fn send(&self, data: &[u8]) -> smb2::Result<()> {
        if self.canned.sent.load(Ordering::Relaxed) < self.canned.frames.len() {
            let nth = self.canned.sent.fetch_add(1, Ordering::Relaxed);
            if let Some(answer) = self.canned.frames.get(nth) {
                let _ = self.canned.answers.send(answer.clone());
            }
            return Ok(());
        }
        self.first.send(data).await
    }
}

#[async_trait]
impl TransportReceive for Second {
    async fn receive(&self) -> smb2::Result<Vec<u8>> {
        if self.canned.received.load(Ordering::Relaxed) < self.canned.frames.len() {
            let answer = self.canned.queue.lock().await.recv().await;
            self.canned.received.fetch_add(1, Ordering::Relaxed);
            return answer.ok_or(smb2::Error::Disconnected);
        }
        self.first.receive().await
    }

    fn receive_progress(&self) -> Option<Arc<ReceiveProgress>> {
        self.first.receive_progress()
    }
}

/// Returns a library connection over `transport`.
pub(crate) fn connection<T>(transport: T, server_name: &str) -> smb2::client::Connection
where
    T: Transport + Clone + 'static,
{
    smb2::client::Connection::from_transport(
        Box::new(transport.clone()),
        Box::new(transport),
        server_name,
    )
}

/// Returns an ECHO response (MS-SMB2 2.2.29) to MessageId 1 that grants `credits`.
fn echo_response(credits: u16) -> Vec<u8> {
    let mut frame = vec![0u8; HEADER_LEN + 4];
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xfe, b'S', b'M', b'B']);
    put(4, &64u16.to_le_bytes());
    put(12, &COMMAND_ECHO.to_le_bytes());
    put(CREDITS_AT, &credits.to_le_bytes());
    put(FLAGS_AT, &1u32.to_le_bytes());
    put(24, &1u64.to_le_bytes());
    put(HEADER_LEN, &4u16.to_le_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_plain_signed_and_sealed_frames() {
        let tally = Tally::default();
        let mut plain = echo_response(1);
        tally.count(&plain);
        plain[FLAGS_AT] |= FLAGS_SIGNED;
        tally.count(&plain);
        plain[0] = 0xfd;
        tally.count(&plain);
        tally.count(&plain);
        let now = tally.frames();
        assert_eq!((now.plain, now.signed, now.sealed), (1, 1, 2));
        assert_eq!(now.since(now), Frames::default());
    }

    #[test]
    fn the_echo_answer_parses_as_the_library_reads_it() {
        use smb2::pack::Unpack;
        let frame = echo_response(77);
        let mut cursor = smb2::pack::ReadCursor::new(&frame);
        let header = smb2::msg::header::Header::unpack(&mut cursor).unwrap();
        assert!(header.is_response());
        assert_eq!(header.credits, 77);
        assert_eq!(header.message_id.0, 1);
    }
}
