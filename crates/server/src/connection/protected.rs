//! The protection of this connection's messages: what room `protection` is told, and what follows from
//! its answers.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use frevo_net::buffer::Buf;
use frevo_net::send_queue::OutFrame;
use frevo_proto::protection::ToCompress;

use super::Connection;
use crate::command;
use crate::objects::refusal::Doom;
use crate::protection::{Company, Keyring, Reply, ReplyGuard, Taken, protect_here};

impl Connection {
    /// The keys that its messages are checked with.
    pub(super) fn keyring(&self) -> Keyring<'_> {
        Keyring {
            info: &self.info,
            channels: &self.members.channels,
            is_authenticated: self.members.is_authenticated(),
            tabs: &self.tabs,
            rule_of: |command| command::row(command).map(|row| row.signing),
        }
    }

    /// Its further work beside the present message.
    fn company(&self) -> Company {
        let has_requests = self.incoming.has_company.get();
        Company { has_requests, is_elsewhere: self.is_elsewhere() }
    }

    /// Returns true if a frame that has come begins now; else it has joined the row of those that are
    /// checked or expanded before.
    pub(super) fn begins_now(&self, frame: &mut Buf) -> bool {
        self.incoming.arrivals.begins_now(&self.keyring(), self.company(), frame)
    }

    /// Protects the replies that wait for each other, and queues them.
    pub(super) fn settle(&self) {
        self.end_by(self.outgoing.replies.settle());
    }

    /// Queues a frame that is ready, behind those that wait.
    pub(super) fn enqueue(&self, frame: OutFrame) {
        self.end_by(self.outgoing.replies.enqueue(frame));
    }

    /// Protects a short frame now.
    pub(super) fn protect_now(&self, frame: Buf, guard: ReplyGuard<'_>) -> Result<Buf, Doom> {
        protect_here(&self.info.server, frame.into(), guard)
    }

    /// Protects a reply and returns it; None if it is protected later or elsewhere, or the connection
    /// ends. `is_whole` is true for a reply of which nothing but its bytes is needed; `finish` makes
    /// it a frame of the queue.
    pub(super) fn protect(
        &self,
        frame: Buf,
        to_compress: Option<ToCompress<Buf>>,
        guard: ReplyGuard<'_>,
        is_whole: bool,
        finish: impl FnOnce(Buf) -> OutFrame + 'static,
    ) -> Option<Buf> {
        let server = &self.info.server;
        let taken = if is_whole {
            let reply = Reply { frame, to_compress };
            self.outgoing.replies.protect(server, self.company(), reply, guard, finish)
        } else {
            protect_here(server, frame.into(), guard).map(Taken::Protected)
        };
        match taken {
            Ok(Taken::Protected(frame)) => return Some(frame),
            Ok(Taken::Gathered) => {}
            // The request may still be running, so the event loop is woken to send the reply.
            Ok(Taken::Elsewhere) => self.attention.call(),
            Err(why) => self.disconnect(why),
        }
        None
    }

    /// Queues the replies whose turn has come, and takes the frame whose turn has come; then its result
    /// is used next. Ready if there was a reply or a frame.
    pub(super) fn poll_elsewhere(&self, cx: &mut Context<'_>) -> Poll<Option<Buf>> {
        if let Poll::Ready(left) = self.outgoing.replies.poll_leaving(cx) {
            self.end_by(left);
            return Poll::Ready(None);
        }
        let next = ready!(self.incoming.arrivals.poll_next(cx));
        Poll::Ready(next.map_err(|why| self.disconnect(why)).ok())
    }

    /// True while a further frame may join the row.
    pub(super) fn may_line_up(&self) -> bool {
        let most = || self.info.server.crypto_threads().lined_up_max();
        let has_place = self.incoming.arrivals.has_place(most);
        has_place && !self.incoming.is_ending() && !self.info.backlog.has_compressed()
    }

    /// True while a frame or a reply waits for another thread.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.outgoing.replies.are_elsewhere() || !self.incoming.arrivals.is_empty()
    }

    /// Waits for what other threads do for the connection, which has ended: until then its memory
    /// counts.
    pub(super) async fn settle_elsewhere(&self) {
        while self.is_elsewhere() {
            poll_fn(|cx| self.poll_elsewhere(cx)).await;
        }
        self.incoming.arrivals.forget_checked();
    }

    /// Disconnects after an error.
    fn end_by(&self, result: Result<(), Doom>) {
        if let Err(why) = result {
            self.disconnect(why);
        }
    }
}
