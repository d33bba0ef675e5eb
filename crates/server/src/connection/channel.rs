//! Channels: MS-SMB2 3.3.1.14.

use std::sync::Arc;

use frevo_crypto::SigningKey;
use frevo_net::buffer::Buf;

use super::ConnectionInfo;
use crate::activity::Registered;
use crate::refusal::Doom;
use crate::session::Session;

/// A session as one connection uses it.
#[derive(Debug)]
pub struct Channel {
    /// Session that the channel belongs to.
    pub session: Arc<Session>,
    /// Channel.SigningKey of a bound channel; the first channel uses the session's key.
    pub signing_key: Option<SigningKey>,
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
        Self { session: Arc::clone(session), signing_key, registered }
    }

    /// Channel.SigningKey; none before authentication succeeded.
    pub fn signing_key(&self) -> Option<&SigningKey> {
        self.signing_key
            .as_ref()
            .or_else(|| self.session.security().map(|security| &security.signing_key))
    }

    /// Seals a frame: MS-SMB2 3.1.4.3.
    ///
    /// # Errors
    /// The key has sealed as many messages as it may: the client must log on anew.
    pub fn seal_frame(&self, frame: &mut Buf) -> Result<(), Doom> {
        let key = self
            .session
            .security()
            .and_then(|s| s.sealing_key.as_ref())
            .ok_or(Doom::Rule("the session has no key for sealing"))?;
        frame.grow_front(frevo_proto::transform::HEADROOM);
        frevo_proto::transform::seal_frame(frame, key, self.session.id).map_err(|_| {
            Doom::Rule("the session's sealing key has reached its limit of messages")
        })?;
        // The queue writes the prefix.
        frame.advance(frevo_proto::frame::PREFIX_LEN);
        Ok(())
    }
}
