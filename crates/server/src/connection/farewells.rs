//! Session-closed notifications: SERVER_TO_CLIENT_NOTIFICATION, MS-SMB2 2.2.44 and 4.11.

use std::rc::Rc;

use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::send_queue::OutFrame;
use frevo_net::transport::Stream;
use frevo_proto::protection::Protection;
use frevo_proto::protection::send_policy::{self, Answer};
use frevo_wire::codec::Writer;
use frevo_wire::command::server_to_client_notification::{Notification, NotificationType};
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};

use super::Connection;
use crate::objects::channel::Channel;
use crate::objects::farewell::Farewell;
use crate::objects::refusal::Doom;
use crate::objects::session::State;
use crate::protection::{Part, ReplyGuard, Signer};

impl Connection {
    /// Tells the client that a session has ended. If this connection cannot, another channel does.
    pub(super) fn bid_farewell(&self, farewell: Box<Farewell>, stream: &Stream) {
        let channel = self.members.take_ended(farewell.session());
        if channel.is_some_and(|channel| self.tell_closed(&channel)) {
            self.flush_now(stream);
            farewell.end();
        } else {
            farewell.deliver();
        }
    }

    /// Tells the client of the end of all sessions of this connection, which is about to end; those with other
    /// channels go on. Replies that wait to be sent stay unsent: another server may serve their share by now.
    pub(super) fn tell_all(&self, stream: &Stream) {
        if self.outgoing.replies.memory() > 0 {
            return;
        }
        let channels = self.members.channels();
        let live = channels.iter().filter(|channel| {
            let session = &channel.session;
            session.state() != State::Closed && !session.has_channel_besides(self.info.id)
        });
        let told = live.filter(|channel| self.tell_closed(channel)).count();
        if told > 0 {
            self.flush_now(stream);
        }
    }

    /// Prepares the news that the session of `channel` ends with this connection: it leaves behind the
    /// last replies.
    pub(super) fn prepare_farewell(&self, channel: &Rc<Channel>) {
        let session = &channel.session;
        if session.state() == State::Closed || !session.supports_notifications() {
            return;
        }
        // A session whose keys can protect nothing more ends without the news.
        if let Ok(frame) = self.session_closed(channel) {
            self.outgoing.farewells.borrow_mut().push(frame);
        }
    }

    /// Queues the news that were prepared.
    pub(super) fn send_farewells(&self) {
        for frame in self.outgoing.farewells.take() {
            self.enqueue(OutFrame::new(frame));
        }
    }

    /// Queues the news that the session of `channel` has ended. Returns false if this connection cannot
    /// tell it.
    fn tell_closed(&self, channel: &Rc<Channel>) -> bool {
        if self.is_doomed() || !channel.session.supports_notifications() {
            return false;
        }
        match self.session_closed(channel) {
            Ok(frame) => self.enqueue(OutFrame::new(frame)),
            Err(why) => {
                self.disconnect(why);
                return false;
            }
        }
        true
    }

    /// Sends what the transport takes at once: the connection may be about to end. The event loop sees an
    /// error of the transport, too.
    fn flush_now(&self, stream: &Stream) {
        let _ = self.outgoing.queue().try_flush(stream);
        let _ = stream.ring();
    }

    /// Returns the protected notification that the session of `channel` has ended.
    fn session_closed(&self, channel: &Rc<Channel>) -> Result<Buf, Doom> {
        let security = channel.session.security();
        let rule = send_policy::Response {
            answer: Answer::SessionClosed,
            request: Protection::None,
            is_smb3: self.info.is_smb3(),
            // MS-SMB2 4.11.1; a client that seals of its own will takes no news in the clear.
            session_seals: channel.session.seals(),
            session_signs: security.is_some_and(|security| security.signing_required),
            has_channel_key: channel.signing_key().is_some(),
            is_binding: false,
            is_unsigned: false,
            transport_seals: self.info.accepts_transport_security(),
        };
        let is_signed = rule.signer().is_some();
        let header = Header {
            credit_charge: 0,
            status: Status::SUCCESS,
            command: Command::SERVER_TO_CLIENT_NOTIFICATION,
            credits: 0,
            flags: HeaderFlags::SERVER_TO_REDIR,
            next_command: 0,
            message_id: if is_signed { self.unused_message_id() } else { u64::MAX },
            route: Route::Sync { process_id: 0, tree_id: 0 },
            session_id: channel.session.id,
            signature: [0; 16],
        };
        let mut bytes = header.to_bytes().to_vec();
        let notification = Notification { notification_type: NotificationType::SESSION_CLOSED };
        notification.encode(&mut Writer::from(&mut bytes, 0));
        let mut frame = Buf::with_headroom(HEADROOM, bytes.len());
        frame.extend_from_slice(&bytes);
        self.capture_unasked(&frame, &channel.session, |_| false);
        if rule.is_sealed() {
            return self.protect_now(frame, ReplyGuard::Sealed(channel));
        }
        let signer = is_signed.then(|| Signer::Channel(Rc::clone(channel)));
        self.protect_now(frame, ReplyGuard::Signed(&[Part { start: 0, signer }]))
    }

    /// Returns a random MessageId that no request has: AES-GMAC makes its nonce from the MessageId, MS-SMB2
    /// 4.11.1.
    fn unused_message_id(&self) -> u64 {
        // The ids of requests grow from zero. The largest one belongs to unsigned notifications.
        (self.info.server.ambient.random_u64() | 1 << 63).min(u64::MAX - 1)
    }
}
