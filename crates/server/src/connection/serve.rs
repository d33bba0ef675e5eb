//! From the messages of a frame to their replies: MS-SMB2 3.3.5.2.4 to
//! 3.3.5.2.11, and the order of a compound.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use frevo_crypto::Sender;
use frevo_net::buffer::Buf;
use frevo_net::watchdog::yield_if_due;
use frevo_proto::Dialect;
use frevo_proto::compound::{
    Chain, FileOutcome, MixedStyles, Needs, Outcome as Ended, Verdict, verdicts,
};
use frevo_proto::limits::{BYTES_PER_CREDIT, MESSAGE_WITHOUT_PAYLOAD};
use frevo_proto::replay::Counted;
use frevo_wire::codec::Reader;
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use smallvec::SmallVec;
use tokio::time::sleep;

use super::assemble::Assembly;
use super::receive::{Element, Opened};
use super::waiting::Cancel;
use super::{Channel, Connection};
use crate::audit::{self, Event};
use crate::blocking_requests;
use crate::command::{self, FileIdAt, Row, Waits};
use crate::ledger::Kind;
use crate::limits::{FRAME_KEPT_BYTES, INTERIM_AFTER, WAITING_BYTES};
use crate::open::Open;
use crate::panics;
use crate::refusal::{Doom, Outcome, Refusal};
use crate::request::{Cancellation, Request};
use crate::response::Response;
use crate::session::{Session, State};
use crate::tree_connect::TreeConnect;
use crate::under_way::{Operation, UnderWay};
use crate::watchdog;

/// The state that a message is about.
struct Target {
    channel: Option<Rc<Channel>>,
    tree: Option<Arc<TreeConnect>>,
    open: Option<Arc<Open>>,
    counted: Option<Counted>,
    /// For session, tree connect and Open; lasts until the handler has ended.
    operations: [Option<Operation>; 3],
}

impl Target {
    const fn of(channel: Option<Rc<Channel>>) -> Self {
        Self { channel, tree: None, open: None, counted: None, operations: [None, None, None] }
    }
}

async fn given_up(under_way: Option<&Arc<UnderWay>>) {
    match under_way {
        Some(under_way) => under_way.given_up().await,
        None => std::future::pending().await,
    }
}

/// What a message led to.
pub(super) struct Answer {
    /// What the handler said.
    pub(super) outcome: Outcome,
    /// Of the interim response, if there was one.
    pub(super) async_id: Option<u64>,
    /// The channel that signs or seals.
    pub(super) channel: Option<Rc<Channel>>,
}

impl Connection {
    /// Serves one frame to its end.
    pub(super) async fn serve(self: Rc<Self>, frame: Buf) {
        match panics::outlived(self.serve_frame(frame)).await {
            Some(Ok(())) => {}
            Some(Err(why)) => self.disconnect(why),
            // Others that are under way here are carried out: see `accept`.
            None => self.disconnect(Doom::Rule("a bug in the server; see the log")),
        }
    }

    async fn serve_frame(self: &Rc<Self>, frame: Buf) -> Result<(), Doom> {
        if frame.starts_with(&[0xFF, b'S', b'M', b'B']) {
            return command::negotiate::multi_protocol(self, &frame);
        }
        let mut opened = self.open_frame(frame)?;
        let served = self.serving(opened.frame.capacity());
        let elements = self.split(&opened)?;
        let flags = elements.iter().map(|e| (e.header.command, e.header.flags));
        let verdicts: SmallVec<[Verdict; 4]> = verdicts(flags, MixedStyles::NewChain).collect();
        let mut assembly = Assembly::new(opened.sealed.clone());
        let mut chain = Chain::new();
        let last = elements.len().saturating_sub(1);
        for (at, (element, verdict)) in elements.iter().zip(verdicts).enumerate() {
            // A long compound of slow requests gives others their turn. Its first request
            // begins at once: requests begin in the order in which they came.
            if at > 0 {
                yield_if_due().await;
            }
            if element.header.command == Command::CANCEL {
                self.cancel(element, &mut opened);
                continue;
            }
            let place = CompoundPosition { alone: last == 0, last: at == last, verdict };
            let parts = (&mut opened, &served);
            self.serve_element(element, place, parts, &mut chain, &mut assembly).await?;
        }
        assembly.send(self);
        Ok(())
    }

    /// One message: found, checked, handled, its response assembled.
    async fn serve_element(
        self: &Rc<Self>,
        element: &Element,
        place: CompoundPosition,
        (opened, served): (&mut Opened, &Served<'_>),
        chain: &mut Chain<FileId>,
        assembly: &mut Assembly,
    ) -> Result<(), Doom> {
        let mut header = element.header;
        let mut out = Response::reusing(self.take_bytes());
        let sealed = opened.sealed.is_some();
        if let Some(channel) = &opened.sealed {
            // A related element may bear another, which means nothing under seal.
            header.session_id = channel.session.id;
        }
        let frame_bytes = opened.frame.capacity();
        let message = opened.frame.get_mut(element.range.clone()).unwrap_or_default();
        let mut answer = Answer { outcome: Ok(Status::SUCCESS), async_id: None, channel: None };
        let inherited = self.inherit(&mut header, message, element.row, place, chain);
        let file = inherited.as_ref().map_or(FileOutcome::None, |inherited| {
            let id = named(message, element.row, *inherited).ok().flatten();
            id.map_or(FileOutcome::None, FileOutcome::Some)
        });
        let found = inherited.and_then(|inherited| {
            self.verify(message, &header, sealed)?;
            self.check_length(message, &header, element.row)?;
            self.find(message, &header, element.row, sealed, inherited)
        });
        let mut message: &[u8] = message;
        let kept;
        if place.last
            && found.is_ok()
            && let Some(needed) = element.row.kept(message)
            && frame_bytes > needed.len() + FRAME_KEPT_BYTES
        {
            // It may wait for long, and needs no more than this.
            kept = needed.to_vec();
            message = &kept;
            opened.frame = Buf::new();
            served.change(kept.len());
        }
        match found {
            Err(refusal) => {
                answer.channel = self.channel(header.session_id);
                answer.outcome = Err(refusal);
            }
            Ok(found) => {
                let _operations = found.operations;
                let rq = Request {
                    connection: self,
                    header,
                    message,
                    session: found.channel.as_ref().map(|c| Arc::clone(&c.session)),
                    tree: found.tree,
                    open: found.open,
                    encrypted: sealed,
                    alone: place.alone,
                    room: assembly.room(self),
                    cancellation: Cancellation::default(),
                };
                (answer.outcome, answer.async_id) =
                    self.run(&rq, element.row, place, served, &mut out, assembly).await;
                if let (Some(open), Some(counted)) = (&rq.open, found.counted) {
                    open.channel_sequence.lock().finish(counted);
                }
                answer.channel = found.channel;
            }
        }
        if let Err(Refusal::Disconnect(why)) = &answer.outcome {
            return Err(*why);
        }
        chain.end(ended(&header, element.row, &answer.outcome, &out, file));
        let related = place.verdict == Verdict::Continue;
        assembly.push(self, &header, element.charge, related, answer, out);
        Ok(())
    }

    /// MS-SMB2 3.3.5.2.5, for the message itself: what was paid for with credits, and
    /// what its command may need.
    fn check_length(&self, message: &[u8], header: &Header, row: Row) -> Result<(), Refusal> {
        if self.negotiated.get().is_none() {
            return Ok(());
        }
        let paid = if self.supports_multi_credit() { header.credit_charge.max(1) } else { 1 };
        let paid = usize::from(paid - 1) * BYTES_PER_CREDIT as usize;
        let most = if row.carries_payload {
            paid + MESSAGE_WITHOUT_PAYLOAD
        } else {
            MESSAGE_WITHOUT_PAYLOAD
        };
        if message.len() > most { Err(Status::INVALID_PARAMETER.into()) } else { Ok(()) }
    }

    /// Counts a frame of so many bytes as being served.
    fn serving(&self, bytes: usize) -> Served<'_> {
        let served = Served { connection: self, bytes: Cell::new(0) };
        served.change(bytes);
        served
    }

    /// MS-SMB2 3.3.5.2.4. Sealed messages were verified by being unsealed.
    fn verify(&self, message: &mut [u8], header: &Header, sealed: bool) -> Result<(), Refusal> {
        let signed = header.flags.contains(HeaderFlags::SIGNED);
        if sealed {
            return Ok(());
        }
        if !signed {
            let located = self.channel(header.session_id).is_some();
            if header.command == Command::TREE_CONNECT
                && self.dialect() == Dialect::SMB_3_1_1
                && located
            {
                // MS-SMB2 3.3.5.7: once there is a session, before all other answers.
                return Err(Doom::Rule("TREE_CONNECT neither signed nor sealed").into());
            }
            return self.check_unsigned(header);
        }
        if header.command == Command::NEGOTIATE {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if header.command == Command::SESSION_SETUP && self.channel(header.session_id).is_none() {
            // Binding: the handler verifies with the session's own key.
            return Ok(());
        }
        let channel = self.channel(header.session_id).ok_or(Status::USER_SESSION_DELETED)?;
        let Some(key) = channel.signing_key() else {
            // Nothing to verify with before authentication has ended.
            return if header.command == Command::SESSION_SETUP {
                Ok(())
            } else {
                Err(Status::NOT_SUPPORTED.into())
            };
        };
        if frevo_proto::signature::verify(message, key, Sender::Client) {
            Ok(())
        } else {
            self.tell(|left_out| {
                tracing::warn!(target: "frevo::connection", peer = %self.peer,
                    command = %header.command, left_out,
                    "a signature does not match: the message was changed on its way, or the client \
                     is broken");
            });
            let peer = self.peer;
            self.server.audit.emit_limited(peer.ip(), || {
                let event =
                    Event::new(audit::Kind::Violation).status(Status::ACCESS_DENIED).peer(peer);
                event.with("reason", "a signature does not match")
            });
            Err(Status::ACCESS_DENIED.into())
        }
    }

    /// An unsigned message where one must be signed is refused.
    ///
    /// Windows: MS-SMB2 3.3.5.2.4 looks for the session among all; there the
    /// connection's own count, and any other is not there (3.3.5.2.9).
    fn check_unsigned(&self, header: &Header) -> Result<(), Refusal> {
        let channel = self.channel(header.session_id);
        let security = channel.as_ref().and_then(|c| c.session.security());
        if security.is_some_and(|s| s.signing_required) {
            return Err(Status::ACCESS_DENIED.into());
        }
        Ok(())
    }

    /// Puts the ids that a related message goes on with in the place of its own,
    /// before anything looks at them: the signature too is that of the session
    /// it runs in, whatever SessionId it bears. Returns the FileId.
    fn inherit(
        &self,
        header: &mut Header,
        message: &[u8],
        row: Row,
        place: CompoundPosition,
        chain: &mut Chain<FileId>,
    ) -> Result<Option<FileId>, Refusal> {
        match place.verdict {
            Verdict::Fail(status) => Err(status.into()),
            Verdict::Begin => {
                chain.begin();
                Ok(None)
            }
            Verdict::Continue => {
                let file = match row.file_id {
                    FileIdAt::Needed(_) => true,
                    FileIdAt::Optional(_) => command::ioctl::is_about_an_open(message),
                    FileIdAt::Nowhere => false,
                };
                let needs = Needs { session: row.session, tree: row.tree, file };
                // Its refusal too is signed or sealed in the session.
                header.session_id = chain.session_id().unwrap_or(header.session_id);
                let inherited = chain.inherit(needs)?;
                header.session_id = inherited.session_id.unwrap_or(header.session_id);
                if let Some(tree_id) = inherited.tree_id {
                    header.route = Route::Sync { process_id: 0, tree_id };
                }
                Ok(inherited.file)
            }
        }
    }

    /// Finds what the row demands: session, tree connect, Open.
    fn find(
        &self,
        message: &[u8],
        header: &Header,
        row: Row,
        sealed: bool,
        inherited: Option<FileId>,
    ) -> Result<Target, Refusal> {
        let mut found = Target::of(self.channel(header.session_id));
        if !row.session {
            return Ok(found);
        }
        if self.settings.test_hooks && header.command == Command::IOCTL && header.session_id == 0 {
            // The handler refuses all but the hooks that come without a session.
            return Ok(found);
        }
        let channel = found.channel.as_ref().ok_or(Status::USER_SESSION_DELETED)?;
        let session = Arc::clone(&channel.session);
        self.check_session(&session, row, sealed)?;
        session.use_now();
        // LOGOFF waits for all others.
        if header.command != Command::LOGOFF {
            let operation = session.under_way.begin().ok_or(Status::USER_SESSION_DELETED)?;
            found.operations[0] = Some(operation);
        }
        if !row.tree {
            return Ok(found);
        }
        // What is not there because the session ends meanwhile, on another
        // channel, is said to be so: nothing could be signed for it any more.
        let ended = |status: Status| match session.state() {
            State::Closed => Status::USER_SESSION_DELETED,
            _ => status,
        };
        let tree = session.tree(header.tree_id().unwrap_or(0)).map_err(ended)?;
        if tree.share.encrypt && !sealed {
            return Err(Status::ACCESS_DENIED.into());
        }
        // And TREE_DISCONNECT for all others in its tree connect.
        if header.command != Command::TREE_DISCONNECT {
            let operation = tree.under_way.begin();
            let operation = operation.ok_or_else(|| ended(Status::NETWORK_NAME_DELETED))?;
            found.operations[1] = Some(operation);
        }
        let tree_id = tree.id;
        found.tree = Some(tree);
        let Some(id) = file_id(message, row, inherited)? else { return Ok(found) };
        let open = match session.open(id) {
            // Which codes of IOCTL are about no Open, its handler knows.
            Err(_) if matches!(row.file_id, FileIdAt::Optional(_)) => return Ok(found),
            open => open.map_err(ended)?,
        };
        if open.tree().id != tree_id {
            return Err(Status::FILE_CLOSED.into());
        }
        // And CLOSE for all others of its Open.
        if header.command != Command::CLOSE {
            let operation = open.under_way.begin();
            let operation = operation.ok_or_else(|| ended(Status::FILE_CLOSED))?;
            found.operations[2] = Some(operation);
        }
        if self.is_smb3() {
            let replay = header.flags.contains(HeaderFlags::REPLAY_OPERATION);
            let mut sequence = open.channel_sequence.lock();
            let counted = sequence.start(header.command, header.channel_sequence(), replay)?;
            found.counted = Some(counted);
        }
        if let Some(survival) = open.survival() {
            // The client has the answer to its CREATE (MS-SMB2 3.3.5.10 and on).
            survival.set_replay_eligible(false);
        }
        found.open = Some(open);
        Ok(found)
    }

    /// MS-SMB2 3.3.5.2.9.
    fn check_session(&self, session: &Session, row: Row, sealed: bool) -> Result<(), Refusal> {
        match session.state() {
            State::Valid => {}
            State::Expired if row.when_expired => {}
            State::Expired => return Err(Status::NETWORK_SESSION_EXPIRED.into()),
            State::InProgress | State::Closed => return Err(Status::USER_SESSION_DELETED.into()),
        }
        let encrypt = session.security().is_some_and(|s| s.encrypt_data);
        if encrypt && !sealed && self.is_smb3() {
            return Err(Status::ACCESS_DENIED.into());
        }
        Ok(())
    }

    /// Runs a handler; one that takes long is announced by an interim response,
    /// one that waits by nature can be cancelled.
    async fn run(
        self: &Rc<Self>,
        rq: &Request<'_>,
        row: Row,
        place: CompoundPosition,
        served: &Served<'_>,
        out: &mut Response,
        assembly: &mut Assembly,
    ) -> (Outcome, Option<u64>) {
        let mut handler = pin!(watchdog::handled(rq, blocking_requests::dispatch(rq, out)));
        if row.waits == Waits::Never {
            return (handler.await, None);
        }
        if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(handler.as_mut().poll(cx))).await {
            return (outcome, None);
        }
        if !place.last {
            // Windows: what waits in the middle of a compound fails.
            return match row.waits {
                Waits::Cancellable => (Err(Status::INTERNAL_ERROR.into()), None),
                _ => (handler.await, None),
            };
        }
        let holder = match &rq.session {
            Some(session) => Arc::clone(session.holder()),
            None => self.tabs.holder(),
        };
        let bytes = self.request_bytes.get() + WAITING_BYTES + served.bytes.get();
        let charge = holder.charge(Kind::Waiting, bytes).ok();
        let entered = charge.as_ref().and_then(|_| self.waiting.borrow_mut().enter(&rq.header));
        let Some((async_id, cancel)) = entered else {
            return match row.waits {
                // What has begun is carried out, if unannounced.
                Waits::Slow => (handler.await, None),
                _ => (Err(Status::INSUFFICIENT_RESOURCES.into()), None),
            };
        };
        // From here on the charge is for the frame too.
        served.change(0);
        let answered = self.wait(rq, row, async_id, &cancel, handler, assembly).await;
        self.waiting.borrow_mut().leave(async_id);
        answered
    }

    async fn wait(
        self: &Rc<Self>,
        rq: &Request<'_>,
        row: Row,
        async_id: u64,
        cancel: &Cancel,
        mut handler: Pin<&mut impl Future<Output = Outcome>>,
        assembly: &mut Assembly,
    ) -> (Outcome, Option<u64>) {
        let cancellable = row.waits != Waits::Slow;
        // Who waits on something that outlives the session must not hold up its end.
        let mut over = pin!(async {
            tokio::select! {
                () = given_up(rq.session.as_ref().map(|session| &session.under_way)) => {}
                () = given_up(rq.tree.as_ref().map(|tree| &tree.under_way)) => {}
                () = given_up(rq.open.as_ref().map(|open| &open.under_way)) => {}
            }
        });
        if row.waits != Waits::Cancellable {
            tokio::select! {
                biased;
                outcome = handler.as_mut() => return (outcome, None),
                status = cancel.told(), if cancellable => {
                    return (Err(status.into()), None);
                }
                () = &mut over, if cancellable => {
                    return (Err(Status::CANCELLED.into()), None);
                }
                () = rq.cancellation.awaited() => {}
                () = sleep(INTERIM_AFTER) => {}
            }
        }
        // What came before it in its compound does not wait with it.
        assembly.flush(self);
        super::assemble::send_interim(self, rq, async_id, assembly.request_seal());
        let outcome = tokio::select! {
            biased;
            outcome = handler.as_mut() => outcome,
            status = cancel.told() => {
                if cancellable {
                    Err(status.into())
                } else {
                    // Where it waits for others it ends, elsewhere it goes on.
                    rq.cancellation.tell();
                    handler.await
                }
            }
            () = &mut over => {
                if cancellable {
                    Err(Status::CANCELLED.into())
                } else {
                    rq.cancellation.tell();
                    handler.await
                }
            }
        };
        (outcome, Some(async_id))
    }

    /// MS-SMB2 3.3.5.16: no answer, whatever happens. It must come from the
    /// session of what it cancels, protected as that session demands.
    fn cancel(&self, element: &Element, opened: &mut Opened) {
        let header = &element.header;
        let sealed = opened.sealed.is_some();
        let message = opened.frame.get_mut(element.range.clone()).unwrap_or_default();
        let Some(channel) = self.channel(header.session_id) else { return };
        if opened.sealed.as_ref().is_some_and(|seal| seal.session.id != channel.session.id) {
            // Its SessionId may differ where it claims to be related, and then
            // the seal proves nothing about that session.
            return;
        }
        let row = Row { when_expired: true, ..element.row };
        if self.verify(message, header, sealed).is_ok()
            && self.check_session(&channel.session, row, sealed).is_ok()
        {
            self.waiting.borrow().cancel(header);
        }
    }

    /// A buffer for a body, used before if there is one.
    pub(super) fn take_bytes(&self) -> Vec<u8> {
        self.spare_bytes.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next body, unless it is large: an idle connection
    /// holds little.
    pub(super) fn give_bytes(&self, bytes: Vec<u8>) {
        let mut spare = self.spare_bytes.borrow_mut();
        if bytes.capacity() <= 4096 && spare.len() < 2 {
            spare.push(bytes);
        }
    }
}

/// Bytes of a frame that is being served.
struct Served<'a> {
    connection: &'a Connection,
    bytes: Cell<usize>,
}

impl Served<'_> {
    fn change(&self, bytes: usize) {
        let all = &self.connection.served_bytes;
        all.set(all.get().saturating_sub(self.bytes.replace(bytes)).saturating_add(bytes));
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.change(0);
    }
}

/// Where a message stands in its compound.
#[derive(Debug, Clone, Copy)]
struct CompoundPosition {
    alone: bool,
    last: bool,
    verdict: Verdict,
}

/// The FileId that a message is about: what it inherits, else what it says.
fn file_id(message: &[u8], row: Row, inherited: Option<FileId>) -> Result<Option<FileId>, Refusal> {
    let id = named(message, row, inherited)?;
    let optional = matches!(row.file_id, FileIdAt::Optional(_));
    Ok(id.filter(|id| !optional || *id != FileId::ALL_ONES))
}

/// The same, whether or not it can be that of an Open.
fn named(message: &[u8], row: Row, inherited: Option<FileId>) -> Result<Option<FileId>, Refusal> {
    let (FileIdAt::Needed(at) | FileIdAt::Optional(at)) = row.file_id else { return Ok(None) };
    if inherited.is_some() {
        return Ok(inherited);
    }
    Ok(Some(FileId::read(&mut Reader::new(message.get(at..).unwrap_or(&[])))?))
}

/// What a message leaves to a related one after it.
fn ended(
    header: &Header,
    row: Row,
    outcome: &Outcome,
    out: &Response,
    file: FileOutcome<FileId>,
) -> Ended<FileId> {
    let said = match outcome {
        Ok(status) => *status,
        Err(refusal) => refusal.status().unwrap_or(Status::INTERNAL_ERROR),
    };
    let (file, status) = match header.command {
        Command::CREATE => (out.file_id().map_or(FileOutcome::NotMade, FileOutcome::Some), said),
        // Windows: a failed QUERY_INFO does not keep the CLOSE after it from
        // running; only what has no handle at all fails with what came before.
        // A FileId of nothing open goes on too, and each meets that itself.
        _ if matches!(file, FileOutcome::Some(_)) => (file, Status::SUCCESS),
        _ => (file, said),
    };
    let tree_id = if row.tree { header.tree_id() } else { None };
    // A session that is not there is none to go on with.
    let has_session = row.session && said != Status::USER_SESSION_DELETED;
    Ended {
        session_id: has_session.then_some(header.session_id),
        tree_id: out.tree_id().or(tree_id),
        file,
        status,
    }
}
