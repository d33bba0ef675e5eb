//! The facts of a connection that the room is told with each call.

use std::rc::Rc;

use frevo_net::cores;
use frevo_proto::protection::receive_policy::SignatureRule;
use frevo_wire::Command;

use crate::objects::channel::{Channel, Channels};
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::ledger::Tabs;

/// The keys that messages of a connection are checked with.
pub(crate) struct Keyring<'a> {
    pub(crate) info: &'a ConnectionInfo,
    pub(crate) channels: &'a Channels,
    /// True once a session has authenticated on the connection.
    pub(crate) is_authenticated: bool,
    /// The account that is charged for its memory.
    pub(crate) tabs: &'a Tabs,
    /// The rule for the signatures of a command's requests; none for what is no command.
    pub(crate) rule_of: fn(Command) -> Option<SignatureRule>,
}

impl Keyring<'_> {
    /// The channel of session `id`.
    pub(super) fn channel(&self, id: u64) -> Option<Rc<Channel>> {
        self.channels.of_session(id)
    }

    /// True if messages may be checked before their turn.
    pub(super) fn may_check_ahead(&self) -> bool {
        self.info.is_negotiated() && self.is_authenticated
    }
}

/// The further work of a connection beside the present message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Company {
    /// Other requests came with the last one, or are being received or carried out.
    pub(crate) has_requests: bool,
    /// A frame or a reply waits for another thread.
    pub(crate) is_elsewhere: bool,
}

impl Company {
    /// True if the core has nothing to do but the present message.
    pub(super) fn is_alone(self) -> bool {
        let is_shared = || cores::current().is_some_and(|core| core.tasks() > 1);
        !self.has_requests && !self.is_elsewhere && !is_shared()
    }
}
