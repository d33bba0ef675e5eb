//! A signing key for other threads.

use std::sync::Arc;

use frevo_crypto::SigningKey;

use crate::objects::session::Session;

/// A signing key, for any thread. It lives as long as somebody uses it, whatever becomes of the session.
#[derive(Clone)]
pub(super) enum SharedKey {
    /// Session.SigningKey
    Session(Arc<Session>),
    /// Channel.SigningKey
    Channel(Arc<SigningKey>),
}

impl SharedKey {
    pub(super) fn key(&self) -> Option<&SigningKey> {
        match self {
            Self::Session(session) => session.security().map(|security| &security.signing_key),
            Self::Channel(key) => Some(key),
        }
    }
}
