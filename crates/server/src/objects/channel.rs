//! Channels: MS-SMB2 3.3.1.14.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use frevo_crypto::{OpeningKey, SealingKey, SigningKey};

use crate::objects::activity::Registered;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::session::{Session, State};

/// A session as one connection uses it.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Place in the list of channels, with the channel's counts. It is dropped before the session, whose
    /// account it notes.
    pub(crate) registered: Registered,
    /// Session that the channel belongs to.
    pub session: Arc<Session>,
    /// Channel.SigningKey of a bound channel; the first channel uses the session's key.
    pub signing_key: Option<Arc<SigningKey>>,
}

impl Channel {
    /// A channel of `session` on `connection`.
    pub(crate) fn new(
        session: &Arc<Session>,
        signing_key: Option<SigningKey>,
        connection: &Arc<ConnectionInfo>,
    ) -> Self {
        let registered = connection.server.activity.enter(session, connection);
        Self { session: Arc::clone(session), signing_key: signing_key.map(Arc::new), registered }
    }

    /// Channel.SigningKey; none before authentication succeeded, and for a guest.
    pub(crate) fn signing_key(&self) -> Option<&Arc<SigningKey>> {
        let security = self.session.security().filter(|security| !security.is_guest);
        let of_session = || security.map(|security| &security.signing_key);
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

/// The channels of a connection: Connection.SessionTable, MS-SMB2 3.3.1.7.
#[derive(Debug, Default)]
pub(crate) struct Channels(RefCell<Vec<Rc<Channel>>>);

impl Channels {
    /// The first one, which has the counts of the connection.
    pub(crate) fn first(&self) -> Option<Rc<Channel>> {
        self.0.borrow().first().map(Rc::clone)
    }

    /// The channel of session `id`. A session that ended elsewhere is forgotten.
    pub(crate) fn of_session(&self, id: u64) -> Option<Rc<Channel>> {
        let mut channels = self.0.borrow_mut();
        let at = channels.iter().position(|channel| channel.session.id == id)?;
        let channel = channels.get(at).map(Rc::clone)?;
        if channel.session.state() == State::Closed {
            channels.swap_remove(at);
            return None;
        }
        Some(channel)
    }

    /// Adds a channel.
    pub(crate) fn add(&self, channel: Channel) {
        self.0.borrow_mut().push(Rc::new(channel));
    }

    /// Removes the channel of session `id`.
    pub(crate) fn remove(&self, id: u64) {
        self.0.borrow_mut().retain(|channel| channel.session.id != id);
    }

    /// Takes out the channel of session `id`, also of one that has ended.
    pub(crate) fn take(&self, id: u64) -> Option<Rc<Channel>> {
        let mut channels = self.0.borrow_mut();
        let at = channels.iter().position(|channel| channel.session.id == id)?;
        Some(channels.swap_remove(at))
    }

    /// Returns all channels.
    pub(crate) fn all(&self) -> Vec<Rc<Channel>> {
        self.0.borrow().clone()
    }

    /// Takes all channels out.
    pub(crate) fn take_all(&self) -> Vec<Rc<Channel>> {
        self.0.take()
    }

    /// The number of channels whose sessions have not ended.
    pub(crate) fn count(&self) -> usize {
        let has_ended = |channel: &&Rc<Channel>| channel.session.state() == State::Closed;
        self.0.borrow().iter().filter(|channel| !has_ended(channel)).count()
    }

    /// True while a session is Valid or Expired.
    pub(crate) fn has_session(&self) -> bool {
        let is_live = |channel: &Rc<Channel>| {
            matches!(channel.session.state(), State::Valid | State::Expired)
        };
        self.0.borrow().iter().any(is_live)
    }
}
