//! Session-closed notifications: MS-SMB2 3.2.5.20.
//!
//! Without one the client learns by its next request that the server has ended the session. That request may
//! be one that must not be sent twice.

use std::sync::Arc;

use frevo_proto::protection::receive_policy::{SessionClosed, Trust};

use super::Inner;
use super::channel::{Channel, Live};
use crate::connection::Message;

impl Inner {
    /// Ends the present logon if the server says so, over the connection numbered `connection`. Requests that
    /// were sent still get their answers; later ones go to a new session. A client with open files comes back
    /// at once, before a program asks: to the node that serves each share then. It does so a few times.
    pub(super) fn on_session_closed(self: &Arc<Self>, connection: u64, message: Message) {
        let present = self.live.read().clone();
        // A notification may come after the client has logged on again.
        let Some(live) = present.filter(|live| live.session_id == message.header.session_id) else {
            return;
        };
        let channel = {
            let channels = live.channels.read();
            channels.iter().find(|channel| channel.connection.number == connection).cloned()
        };
        let Some(channel) = channel else { return };
        let server = &self.connector.server;
        if !live.is_closed_by(&channel, message) {
            tracing::warn!(%server, "a message that the session has ended may be forged and is ignored");
            return;
        }
        tracing::debug!(%server, "the server has ended the session");
        live.abandon();
        if self.is_closed() {
            return;
        }
        let mut shares = self.connected_shares();
        shares.retain(|share| share.has_opens());
        if shares.is_empty() {
            return;
        }
        let mut coming_back = self.coming_back.lock();
        if !coming_back.recent.has_room() {
            tracing::warn!(%server, "the server ends sessions without end; a request comes back");
            coming_back.tasks.abort_all();
            return;
        }
        coming_back.recent.note();
        while coming_back.tasks.try_join_next().is_some() {}
        for share in shares {
            coming_back.tasks.spawn(async move {
                if let Err(error) = share.come_back().await {
                    tracing::debug!(%error, "the share was not connected again");
                }
            });
        }
    }
}

impl Live {
    /// Returns true if the server has said that this session has ended.
    fn is_closed_by(&self, channel: &Channel, mut message: Message) -> bool {
        let news = SessionClosed {
            protection: message.protection(self.session_id),
            session_seals: self.security.seal,
            session_signs: self.security.signing_required,
            has_signing_key: channel.signing.is_some(),
            transport_seals: channel.connection.agreed().accepts_transport_security,
        };
        match news.trust() {
            Trust::Given => true,
            Trust::BySignature => {
                channel.signing.as_ref().is_some_and(|key| message.is_signed_with(key))
            }
            Trust::Refused => false,
        }
    }
}
