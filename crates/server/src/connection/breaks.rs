//! Break notifications: messages that no request asked for, MS-SMB2 3.3.4.6
//! and 3.3.4.7. The peer's transport has to acknowledge them soon, or they go
//! to another channel.

use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::send_queue::OutFrame;
use frevo_net::transport::Stream;
use frevo_proto::protection::Protection;
use frevo_proto::protection::send_policy::{self, Answer};
use frevo_store::OpenId;
use frevo_wire::codec::Writer;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use tokio::time::Instant;

use super::Connection;
use super::sent_break::Sent;
use crate::base::limits::{BREAK_RTO_MAX, BREAK_RTO_MIN, BREAK_RTOS, BREAK_RTOS_BESIDE};
use crate::objects::lease::delivery::{could_go_elsewhere, deliver_all};
use crate::objects::lease::parcel::{Attempt, Parcel};
use crate::objects::refusal::{ANOTHER_SERVES, Doom};
use crate::objects::session::Session;
use crate::protection::ReplyGuard;

impl Connection {
    /// Queues a break notification. It is not signed; it is sealed where the session or
    /// the share of its Open demands that.
    pub(super) fn send_break(&self, parcel: Parcel, stream: &Stream) -> Attempt {
        let via = parcel.via().filter(|_| !self.is_doomed());
        let channel = via.and_then(|via| Some((via, self.members.channel(via.session)?)));
        let Some((via, channel)) = channel else { return Attempt::Failed(Box::new(parcel)) };
        if self.info.server.cluster.seat().is_some() && !is_told(&parcel, &channel.session) {
            // The client learns the state of its lease when it takes its Open up again.
            self.disconnect(ANOTHER_SERVES);
            return Attempt::Failed(Box::new(parcel));
        }
        let header = Header {
            credit_charge: 0,
            status: Status::SUCCESS,
            command: Command::OPLOCK_BREAK,
            credits: 0,
            flags: HeaderFlags::SERVER_TO_REDIR,
            next_command: 0,
            message_id: u64::MAX,
            route: Route::Sync { process_id: 0, tree_id: 0 },
            session_id: parcel.session_id(),
            signature: [0; 16],
        };
        let mut bytes = header.to_bytes().to_vec();
        parcel.notification().encode(&mut Writer::from(&mut bytes, 0));
        let mut frame = Buf::with_headroom(HEADROOM, bytes.len());
        frame.extend_from_slice(&bytes);
        let rule = send_policy::Response {
            answer: Answer::Notification(via.sealed),
            request: Protection::None,
            is_smb3: self.info.is_smb3(),
            session_seals: channel.session.security().is_some_and(|s| s.encrypt_data),
            session_signs: false,
            has_channel_key: channel.signing_key().is_some(),
            is_binding: false,
            is_unsigned: false,
            transport_seals: self.info.accepts_transport_security(),
        };
        self.capture_unasked(&frame, &channel.session, |share| {
            let opens = parcel.opens();
            let mut opens = opens.filter_map(|OpenId(id)| channel.session.open_by_volatile(id));
            opens.any(|open| share.is(&open.tree().share.name))
        });
        let guard = if rule.is_sealed() { ReplyGuard::Sealed(&channel) } else { ReplyGuard::None };
        let frame = match self.protect_now(frame, guard) {
            Ok(frame) => frame,
            Err(why) => {
                self.disconnect(why);
                return Attempt::Failed(Box::new(parcel));
            }
        };
        self.enqueue(OutFrame::new(frame));
        let rto = stream.facts().map_or(BREAK_RTO_MAX, |facts| facts.rto);
        let rto = rto.clamp(BREAK_RTO_MIN, BREAK_RTO_MAX);
        let now = Instant::now();
        self.outgoing.breaks.borrow_mut().push(Sent {
            parcel: Some(parcel),
            end: self.outgoing.queue().sent_bytes() + self.outgoing.replies.unsent_bytes() as u64,
            rto,
            arrived: self.arrived(stream),
            progress: now,
            next_look: now + rto,
        });
        Attempt::Queued
    }

    /// When to look whether notifications have arrived; none when all have.
    pub(super) fn next_break_look(&self) -> Option<Instant> {
        self.outgoing.breaks.borrow().iter().map(|sent| sent.next_look).min()
    }

    /// Returns the count of sent bytes that the peer's transport has acknowledged.
    fn arrived(&self, stream: &Stream) -> u64 {
        let on_its_way = stream.unacknowledged_bytes().unwrap_or(usize::MAX) as u64;
        let arrived = self.outgoing.queue().sent_bytes().saturating_sub(on_its_way);
        if hooked!(self.info, plays_dead) { 0 } else { arrived }
    }

    /// Forgets what has arrived. What the first channel does not acknowledge soon goes to another
    /// channel of the client too. A connection that acknowledges nothing for longer is dead without knowing, and
    /// ends. The only channel gets all the time that there is: its client has nowhere else to be
    /// told.
    pub(super) fn look_after_breaks(&self, stream: &Stream) {
        let now = Instant::now();
        let arrived = self.arrived(stream);
        let mut is_dead = false;
        let mut sent = self.outgoing.breaks.borrow_mut();
        let mut elsewhere = Vec::new();
        for mut one in std::mem::take(&mut *sent) {
            if one.end <= arrived {
                continue;
            }
            let stalled = one.stalled(arrived, now);
            let is_first = one.parcel.as_ref().is_some_and(Parcel::is_at_first_channel);
            let soon = if is_first { BREAK_RTOS_BESIDE } else { BREAK_RTOS };
            if stalled >= one.rto * soon {
                let server = &self.info.server;
                elsewhere.extend(one.parcel.take_if(|parcel| could_go_elsewhere(server, parcel)));
            }
            let patience = if one.parcel.is_none() {
                one.rto * BREAK_RTOS
            } else {
                BREAK_RTO_MAX * BREAK_RTOS
            };
            is_dead |= stalled >= patience;
            if now >= one.next_look {
                one.next_look = now + BREAK_RTO_MIN;
            }
            sent.push(one);
        }
        drop(sent);
        deliver_all(&self.info.server, elsewhere);
        if is_dead {
            self.disconnect(Doom::Rule("the transport does not acknowledge a break"));
        }
    }
}

/// False for the break of an Open whose share is not served here, or not now.
fn is_told(parcel: &Parcel, session: &Session) -> bool {
    let mut opens =
        parcel.opens().filter_map(|OpenId(volatile)| session.open_by_volatile(volatile));
    opens.all(|open| open.tree().share.life.serves())
}
