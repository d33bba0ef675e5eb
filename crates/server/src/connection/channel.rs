//! Channels: MS-SMB2 3.3.1.14.

use std::sync::Arc;

use frevo_crypto::{OpeningKey, SealingKey, SigningKey};
use frevo_net::buffer::Buf;
use frevo_proto::protection::transform::Sealing;

use super::ConnectionInfo;
use super::shared_key::SharedKey;
use crate::base::pools::crypto_threads::Algorithm;
use crate::objects::activity::Registered;
use crate::objects::refusal::Doom;
use crate::objects::session::Session;

const NO_KEY: Doom = Doom::Rule("the session has no key for sealing");
const EXHAUSTED: Doom = Doom::Rule("the session's sealing key has reached its limit of messages");

/// A session as one connection uses it.
#[derive(Debug)]
pub struct Channel {
    /// Session that the channel belongs to.
    pub session: Arc<Session>,
    /// Channel.SigningKey of a bound channel; the first channel uses the session's key.
    pub signing_key: Option<Arc<SigningKey>>,
    /// Place in the list of channels, with the channel's counts.
    pub(crate) registered: Registered,
}

impl Channel {
    /// A channel of `session` on `connection`.
    pub fn new(
        session: &Arc<Session>,
        signing_key: Option<SigningKey>,
        connection: &Arc<ConnectionInfo>,
    ) -> Self {
        let registered = connection.server.activity.enter(session.id, connection);
        Self { session: Arc::clone(session), signing_key: signing_key.map(Arc::new), registered }
    }

    /// Channel.SigningKey, for other threads.
    pub(super) fn shared_signing_key(&self) -> SharedKey {
        match &self.signing_key {
            Some(key) => SharedKey::Channel(Arc::clone(key)),
            None => SharedKey::Session(Arc::clone(&self.session)),
        }
    }

    /// Channel.SigningKey; none before authentication succeeded.
    pub fn signing_key(&self) -> Option<&SigningKey> {
        self.signing_key
            .as_deref()
            .or_else(|| self.session.security().map(|security| &security.signing_key))
    }

    /// Session.DecryptionKey; none before authentication succeeded, or if it is not to be used.
    pub fn opening_key(&self) -> Option<&OpeningKey> {
        self.session.security().and_then(|security| security.opening_key.as_ref())
    }

    /// Session.EncryptionKey; none like [`Self::opening_key`].
    pub fn sealing_key(&self) -> Option<&SealingKey> {
        self.session.security().and_then(|security| security.sealing_key.as_ref())
    }

    /// The algorithm that seals, if there is a key.
    pub(super) fn sealing_algorithm(&self) -> Option<Algorithm> {
        Some(Algorithm::Sealing(self.sealing_key()?.cipher()))
    }

    /// Seals a frame: MS-SMB2 3.1.4.3.
    ///
    /// # Errors
    /// The key has sealed as many messages as it may: the client must log on anew.
    pub fn seal_frame(&self, frame: &mut Buf) -> Result<(), Doom> {
        self.seal_frames(&mut [frame])
    }

    /// Begins to seal a frame, which then has room for its prefix too. See [`Sealing`].
    ///
    /// # Errors
    /// Like [`Self::seal_frame`].
    pub(super) fn begin_sealing(&self, frame: &mut Buf) -> Result<Sealing, Doom> {
        let key = self.sealing_key().ok_or(NO_KEY)?;
        frame.grow_front(frevo_proto::protection::transform::HEADROOM);
        Sealing::begin(frame, key, self.session.id).map_err(|_| EXHAUSTED)
    }

    /// Seals several frames; some ciphers are faster for several at once.
    ///
    /// # Errors
    /// Like [`Self::seal_frame`]; then none may be sent.
    pub fn seal_frames(&self, frames: &mut [&mut Buf]) -> Result<(), Doom> {
        let key = self.sealing_key().ok_or(NO_KEY)?;
        for frame in &mut *frames {
            frame.grow_front(frevo_proto::protection::transform::HEADROOM);
        }
        let sealed = match &mut *frames {
            [frame] => frevo_proto::protection::transform::seal_frame(frame, key, self.session.id),
            frames => {
                let mut all: Vec<&mut [u8]> =
                    frames.iter_mut().map(|frame| &mut ***frame).collect();
                frevo_proto::protection::transform::seal_frames(&mut all, key, self.session.id)
            }
        };
        sealed.map_err(|_| EXHAUSTED)?;
        // The queue writes the prefix.
        frames.iter_mut().for_each(|frame| frame.advance(frevo_proto::frame::PREFIX_LEN));
        Ok(())
    }
}
