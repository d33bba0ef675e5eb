//! Channels: MS-SMB2 3.3.1.14.

use std::sync::Arc;

use frevo_crypto::{OpeningKey, SealingKey, SigningKey};

use crate::objects::activity::Registered;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::session::Session;

/// A session as one connection uses it.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Session that the channel belongs to.
    pub session: Arc<Session>,
    /// Channel.SigningKey of a bound channel; the first channel uses the session's key.
    pub signing_key: Option<Arc<SigningKey>>,
    /// Place in the list of channels, with the channel's counts.
    pub(crate) registered: Registered,
}

impl Channel {
    /// A channel of `session` on `connection`.
    pub(crate) fn new(
        session: &Arc<Session>,
        signing_key: Option<SigningKey>,
        connection: &Arc<ConnectionInfo>,
    ) -> Self {
        let registered = connection.server.activity.enter(session.id, connection);
        Self { session: Arc::clone(session), signing_key: signing_key.map(Arc::new), registered }
    }

    /// Channel.SigningKey; none before authentication succeeded.
    pub(crate) fn signing_key(&self) -> Option<&Arc<SigningKey>> {
        let of_session = || self.session.security().map(|security| &security.signing_key);
        self.signing_key.as_ref().or_else(of_session)
    }

    /// Session.DecryptionKey; none before authentication succeeded, or if it is not to be used.
    pub(crate) fn opening_key(&self) -> Option<&Arc<OpeningKey>> {
        self.session.security().and_then(|security| security.opening_key.as_ref())
    }

    /// Session.EncryptionKey; none like [`Self::opening_key`].
    pub(crate) fn sealing_key(&self) -> Option<&Arc<SealingKey>> {
        self.session.security().and_then(|security| security.sealing_key.as_ref())
    }
}
