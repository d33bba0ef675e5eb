//! The sessions on a connection: Connection.SessionTable of MS-SMB2 3.3.1.7, the authentications
//! under way, and what the connection is charged to.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::Authentications;
use crate::objects::admission::Ticket;
use crate::objects::channel::{Channel, Channels};
use crate::objects::ledger::{Charge, Holder, Name};

/// Sessions on a connection.
pub(crate) struct Members {
    pub(super) channels: Channels,
    /// Authentications under way, by session.
    pub authentications: RefCell<Authentications>,
    /// Counted as unauthenticated until this is taken.
    pub ticket: RefCell<Option<Ticket>>,
    /// Its charges: to its network, then to the first account too.
    pub charges: RefCell<Vec<Charge>>,
}

impl Members {
    /// No sessions yet.
    pub(super) fn new(ticket: Ticket) -> Self {
        Self {
            channels: Channels::default(),
            authentications: RefCell::default(),
            ticket: RefCell::new(Some(ticket)),
            charges: RefCell::default(),
        }
    }

    /// The first session, which has the counts of the connection.
    pub(super) fn first(&self) -> Option<Rc<Channel>> {
        self.channels.first()
    }

    /// Takes all sessions out.
    pub(super) fn take_channels(&self) -> Vec<Rc<Channel>> {
        self.channels.take_all()
    }

    /// The channel of session `id` on this connection. A session that ended
    /// elsewhere is forgotten.
    pub(crate) fn channel(&self, id: u64) -> Option<Rc<Channel>> {
        self.channels.of_session(id)
    }

    /// Puts a session into Connection.SessionTable.
    pub(crate) fn add_channel(&self, channel: Channel) {
        self.channels.add(channel);
    }

    /// Takes out a session that has ended, with its keys. None if it was forgotten already.
    pub(super) fn take_ended(&self, id: u64) -> Option<Rc<Channel>> {
        self.authentications.borrow_mut().remove(id);
        self.channels.take(id)
    }

    /// Sessions on this connection.
    pub(super) fn channels(&self) -> Vec<Rc<Channel>> {
        self.channels.all()
    }

    /// Takes a session out of Connection.SessionTable.
    pub(crate) fn remove_channel(&self, id: u64) {
        self.channels.remove(id);
        self.authentications.borrow_mut().remove(id);
    }

    /// Number of sessions on this connection that have not ended.
    pub(crate) fn channel_count(&self) -> usize {
        self.channels.count()
    }

    /// The account that the connection is charged to, once one has logged on.
    pub(crate) fn account(&self) -> Option<Arc<Holder>> {
        let charges = self.charges.borrow();
        let mut holders = charges.iter().map(Charge::holder);
        holders.find(|holder| matches!(holder.name(), Name::Account(_))).cloned()
    }

    /// True while a session on the connection is Valid or Expired.
    pub(crate) fn has_session(&self) -> bool {
        self.channels.has_session()
    }

    /// True once a session has authenticated on the connection.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.ticket.borrow().is_none()
    }
}
