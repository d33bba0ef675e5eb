//! From the messages of a frame to their responses, in the order of a compound.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use frevo_net::buffer::Buf;
use frevo_net::watchdog::yield_if_due;
use frevo_proto::compound::{Chain, FileOutcome, MixedStyles, Verdict, verdicts};
use frevo_proto::replay::Counted;
#[cfg(feature = "traces")]
use frevo_wire::Command;
use frevo_wire::Header;
use frevo_wire::Status;
use frevo_wire::command::write;
use frevo_wire::file_id::FileId;
use smallvec::SmallVec;

use super::Connection;
use super::assemble::{Answer, Assembly};
use super::captured::InCapture;
use super::look_up::{Target, ended, named};
use super::receive::{Element, Opened};
#[cfg(feature = "traces")]
use super::traces;
use crate::base::limits::FRAME_KEPT_BYTES;
use crate::base::panics;
use crate::base::rates::Pace;
use crate::command;
use crate::command::blocking_requests::moves_whole;
use crate::command::client_memory;
use crate::command::paced::{self, Paid};
use crate::command::request::Request;
use crate::command::response::Response;
use crate::command::{Handler, OffCore};
use crate::objects::cancellation::Cancellation;
use crate::objects::channel::Channel;
use crate::objects::operations::Running;
use crate::objects::refusal::{ANOTHER_SERVES, Doom, ENDS_WITH_OTHERS, Outcome, Refusal};
use crate::objects::shown::Shown;
use crate::objects::storage;
use crate::protection::{Claim, check_length, verify};

impl Connection {
    /// Answers all messages of one frame. A panic ends the connection alone.
    pub(super) async fn answer_frame(self: Rc<Self>, frame: Buf) {
        // The future is pinned before it is awaited, so that its state is not copied.
        let answering = pin!(self.answer_messages(frame));
        match panics::outlived(answering).await {
            Some(Ok(()) | Err(ENDS_WITH_OTHERS)) => {}
            Some(Err(why)) => self.disconnect(why),
            // None means a panic. The connection ends as soon as its other running requests have
            // ended (see `event_loop`).
            None => self.disconnect(Doom::Rule("a bug in the server; see the log")),
        }
    }

    async fn answer_messages(&self, frame: Buf) -> Result<(), Doom> {
        if frame.starts_with(&[0xFF, b'S', b'M', b'B']) {
            return command::negotiate::multi_protocol(self, &frame);
        }
        let opened = self.open_frame(frame)?;
        let bytes = FrameBytes::new(self, opened.frame.capacity());
        let elements = self.split(&opened)?;
        let flags = elements.iter().map(|e| (e.header.command, e.header.flags));
        let verdicts: SmallVec<[Verdict; 4]> = verdicts(flags, MixedStyles::NewChain).collect();
        let mut assembly = Assembly::new(opened.sealed.clone());
        assembly.in_capture = self.capture_received(&opened);
        let mut frame = Frame { opened, bytes, chain: Chain::new(), operation: None, assembly };
        let last = elements.len().saturating_sub(1);
        // `shown` is boxed, because only compounds need it and most frames have one request.
        let shown = (last > 0).then(Box::<Shown>::default);
        for (at, (element, verdict)) in elements.iter().zip(verdicts).enumerate() {
            // Between the elements of a long compound other requests may run. Before the first
            // element they may not, because requests must begin in their order of arrival.
            if at > 0 {
                yield_if_due().await;
            }
            if element.row.handler == Handler::Connection {
                self.cancel(element, &mut frame.opened);
                continue;
            }
            let shown = shown.as_deref();
            let number = u8::try_from(at).unwrap_or(u8::MAX);
            let (alone, last) = (last == 0, at == last);
            let place = CompoundPosition { number, alone, last, verdict, shown };
            let before = frame.operation.take_if(|_: &mut Running| verdict == Verdict::Begin);
            before.into_iter().for_each(Running::end);
            pin!(self.answer_message(element, &place, &mut frame)).await?;
        }
        frame.operation.into_iter().for_each(Running::end);
        self.check_limit(frame.assembly.is_limited)?;
        frame.assembly.send(self);
        Ok(())
    }

    /// Ends a frame that has a message of a clustered share, if the limit has passed since that was
    /// carried out.
    fn check_limit(&self, is_limited: bool) -> Result<(), Doom> {
        let has_passed = is_limited && !self.info.server.cluster.allows();
        if has_passed { Err(ANOTHER_SERVES) } else { Ok(()) }
    }

    /// Checks one message, finds its state, runs its handler and assembles its response.
    async fn answer_message(
        &self,
        element: &Element,
        place: &CompoundPosition<'_>,
        frame: &mut Frame<'_>,
    ) -> Result<(), Doom> {
        let (mut header, row) = (element.header, element.row);
        let mut out = Response::reusing(self.outgoing.take_bytes());
        let sealed = frame.opened.sealed.is_some();
        if let Some(channel) = &frame.opened.sealed {
            // In an encrypted message the SessionId of a related element is ignored, because the
            // session that encrypted the message counts.
            header.session_id = channel.session.id;
        }
        let message = frame.opened.frame.get_mut(element.range.clone()).unwrap_or_default();
        let inherited = self.inherit(&mut header, message, row, place.verdict, &mut frame.chain);
        let file = inherited.as_ref().map_or(FileOutcome::None, |inherited| {
            let id = named(message, row, *inherited).ok().flatten();
            id.map_or(FileOutcome::None, FileOutcome::Some)
        });
        let again = inherited.as_ref().ok().copied().flatten();
        let mut found = inherited.and_then(|inherited| {
            let claim = Claim {
                message: &mut *message,
                header: &header,
                rule: row.signing,
                is_sealed: sealed,
                checked: frame.opened.verified.as_deref(),
                at: place.number,
            };
            verify(&self.keyring(), claim)?;
            check_length(&self.info, message.len(), &header, row.carries_payload)?;
            self.look_up(message, &header, row, sealed, inherited)
        });
        if matches!(found, Err(Refusal::Status(Status::FILE_CLOSED)))
            && let FileOutcome::Some(id) = file
            && Box::pin(self.is_taken_up(id, header.session_id)).await
        {
            let message = frame.opened.frame.get(element.range.clone()).unwrap_or_default();
            found = self.look_up(message, &header, row, sealed, again);
        }
        let kept = match &found {
            Ok(found) if place.last => frame.keep(element, found),
            _ => Kept::Frame,
        };
        let (message, whole) = kept.message(&frame.opened.frame, element);
        let mut answer = match found {
            Err(refusal) => Answer::refused(refusal, self.members.channel(header.session_id)),
            Ok(found) => {
                let message = Message { element, header, message, whole, place, sealed };
                pin!(self.answer_found(message, found, &frame.bytes, &mut out, &mut frame.assembly))
                    .await
            }
        };
        answer.received = element.range.len();
        if let (Some(id), Some(channel)) = (out.operation(), &answer.channel) {
            frame.operation = Some(Running::new(Arc::clone(&channel.session), id));
        }
        if let Err(Refusal::Disconnect(why)) = &answer.outcome {
            return Err(*why);
        }
        frame.operation.iter_mut().for_each(|operation| operation.take(&answer.outcome));
        self.check_stop(&answer.outcome)?;
        frame.chain.end(ended(&header, row, &answer.outcome, &out, file));
        let related = place.verdict == Verdict::Continue;
        frame.assembly.push(self, &header, element, related, answer, out);
        Ok(())
    }

    /// Disconnects in place of answering an error while the server stops. The stop itself may have
    /// caused the error, such as CANCELLED for a lock that waited; the client repeats the request
    /// to the next run of the server.
    fn check_stop<T>(&self, outcome: &Result<T, Refusal>) -> Result<(), Doom> {
        let is_withheld = self.stops.get() && outcome.is_err();
        if is_withheld { Err(Doom::Late("the server stops")) } else { Ok(()) }
    }

    /// Runs the handler of a message whose state was found.
    async fn answer_found(
        &self,
        asked: Message<'_>,
        found: Target,
        frame_bytes: &FrameBytes<'_>,
        out: &mut Response,
        assembly: &mut Assembly,
    ) -> Answer {
        let Message { element, header, message, whole, place, sealed } = asked;
        assembly.is_limited |= !place.alone && found.is_limited();
        let _operations = found.operations;
        place.shown.into_iter().for_each(|shown| shown.begin(header.command));
        let rq = Request {
            connection: &self.info,
            owner: Some(self),
            header,
            message,
            whole,
            session: found.channel.as_ref().map(|c| Arc::clone(&c.session)),
            tree: found.tree,
            open: found.open,
            encrypted: sealed,
            fetched: Cell::default(),
            alone: place.alone && assembly.in_capture != InCapture::All,
            compressible: place.alone,
            shown: place.shown,
            room: assembly.room(self),
            memory_wait: assembly.memory_wait(place.last),
            cancellation: Cancellation::default(),
            busy: Cell::default(),
            pace: Pace::default(),
        };
        if rq.connection.moves_data()
            && let Err(refusal) =
                Box::pin(self.fetch_data(&rq, found.channel.as_deref(), frame_bytes, out)).await
        {
            assembly.note_key(out);
            finish(&rq, found.counted);
            return Answer::refused(refusal, found.channel);
        }
        #[cfg(not(feature = "traces"))]
        let (outcome, async_id, spent) =
            pin!(self.run(&rq, element.row, place.last, frame_bytes, out, assembly)).await;
        #[cfg(feature = "traces")]
        let (outcome, async_id, spent) = {
            let span = span_of(&rq);
            let running = self.run(&rq, element.row, place.last, frame_bytes, out, assembly);
            traces::traced(span, &self.span, running).await
        };
        let outcome = match out.take_remote_data() {
            Some(data) => {
                Box::pin(self.deliver(&rq, data, found.channel.as_deref(), outcome, out)).await
            }
            None => outcome,
        };
        assembly.note_key(out);
        finish(&rq, found.counted);
        if !place.last {
            // Its data waits for the rest of the compound.
            frame_bytes.change(frame_bytes.held().saturating_add(out.payload_bytes()));
        }
        if out.is_long() {
            yield_if_due().await; // Reading it took long, and so does sealing it.
        }
        if let Some(look) = storage::look_after(rq.server(), rq.tree.as_deref(), &outcome) {
            look.await;
        }
        let outcome = if_served(&rq, outcome);
        Answer { outcome, async_id, channel: found.channel, spent, received: 0 }
    }
}

impl Connection {
    /// Fetches the data of a request that comes by RDMA, for its handler.
    async fn fetch_data(
        &self,
        rq: &Request<'_>,
        channel: Option<&Channel>,
        frame_bytes: &FrameBytes<'_>,
        out: &mut Response,
    ) -> Result<(), Refusal> {
        let row = command::row(rq.header.command).filter(|row| row.off_core == OffCore::Writes);
        if let Some(row) = row.filter(|_| rq.server().rates.are_on() && names_memory(rq)) {
            // A WRITE waits before its data is fetched. One with its data in the message waits like others.
            tokio::select! {
                biased;
                admitted = paced::admit(rq, row) => admitted?.into_iter().for_each(Paid::keep),
                () = self.ended() => return Err(Status::CANCELLED.into()),
            }
        }
        let fetched = self.fetch(rq, channel, out).await?;
        let bytes = fetched.as_ref().map_or(0, |buf| buf.capacity());
        frame_bytes.change(frame_bytes.held().saturating_add(bytes));
        rq.fetched.set(fetched);
        Ok(())
    }
}

/// True for a WRITE whose data comes by RDMA.
fn names_memory(rq: &Request<'_>) -> bool {
    let request = write::Request::parse(rq.message);
    request.is_ok_and(|request| matches!(client_memory::of_write(rq, &request), Ok(Some(_))))
}

/// The outcome of a request to a share that is still served here. Where another server owns the share,
/// that server may have answered others by now: nothing is acknowledged here any more. The client
/// connects again, and finds the owner of the share.
fn if_served(rq: &Request<'_>, outcome: Outcome) -> Outcome {
    let Some(tree) = &rq.tree else { return outcome };
    // If the share moves to another server, the error may be a result of the move, such as
    // CANCELLED for a waiting lock. Then no response is sent, and the client asks the new owner.
    // A change that was withheld at the limit is not told either, if the limit was moved since then.
    let status = match &outcome {
        // The status of a response with a body, as of a copy that was ended.
        Ok(status) | Err(Refusal::Status(status)) => Some(*status),
        Err(_) => None,
    };
    let is_withheld = tree.share.clustered && status == Some(Status::SERVER_UNAVAILABLE);
    let is_told = tree.is_served() && !is_withheld && (outcome.is_ok() || tree.takes_requests());
    if is_told { outcome } else { Err(tree.end_of_requests().into()) }
}

/// MS-SMB2 3.3.4.1: a request that has its answer is not outstanding any more.
fn finish(rq: &Request<'_>, counted: Option<Counted>) {
    if let (Some(open), Some(counted)) = (&rq.open, counted) {
        open.channel_sequence.lock().finish(counted);
    }
}

/// The span of a request, with its facts if somebody wants spans.
#[cfg(feature = "traces")]
fn span_of(rq: &Request<'_>) -> tracing::Span {
    use crate::access::throttle::shortened;

    let span = traces::of_request();
    if span.is_disabled() {
        return span;
    }
    let identity = rq.session.as_ref().and_then(|session| session.identity());
    let is_of_file = rq.open.is_some() || rq.header.command == Command::CREATE;
    let file = is_of_file.then(|| command::handled::file(rq));
    traces::tell(
        &span,
        &traces::Facts {
            peer: rq.connection.peer.ip(),
            connection_id: rq.connection.id,
            session_id: rq.header.session_id,
            message_id: rq.header.message_id,
            command: rq.header.command,
            user: identity.as_ref().map(|identity| identity.user.as_str()),
            share: rq.tree.as_ref().map(|tree| tree.share.name.as_str()),
            file: file.as_deref().map(shortened),
            bytes: rq.message.len(),
        },
    );
    span
}

/// A frame whose messages are being answered.
struct Frame<'a> {
    opened: Opened,
    bytes: FrameBytes<'a>,
    /// The objects that related messages inherit.
    chain: Chain<FileId>,
    /// The numbered operation that its messages are parts of.
    operation: Option<Running>,
    assembly: Assembly,
}

/// The part of a frame that its last request keeps while it is carried out.
enum Kept {
    /// The frame.
    Frame,
    /// The bytes that the request still needs, without the frame.
    Needed(Vec<u8>),
    /// The message, in the memory of the frame.
    Whole(Arc<Buf>),
}

impl Kept {
    /// The message, and what holds it if it was kept whole.
    fn message<'a>(
        &'a self,
        frame: &'a Buf,
        element: &Element,
    ) -> (&'a [u8], Option<&'a Arc<Buf>>) {
        match self {
            Self::Frame => (frame.get(element.range.clone()).unwrap_or_default(), None),
            Self::Needed(needed) => (needed.as_slice(), None),
            Self::Whole(message) => (&***message, Some(message)),
        }
    }
}

impl Frame<'_> {
    /// Gives up what its last request does not need. A request that may wait for long keeps few bytes, and one
    /// that goes to a thread takes its message there without a copy.
    fn keep(&mut self, element: &Element, found: &Target) -> Kept {
        let (frame, row) = (&mut self.opened.frame, element.row);
        let message = frame.get(element.range.clone()).unwrap_or_default();
        if let Some(needed) = row.kept(message)
            && frame.capacity() > needed.len() + FRAME_KEPT_BYTES
        {
            let kept = needed.to_vec();
            *frame = Buf::new();
            self.bytes.change(kept.len());
            return Kept::Needed(kept);
        }
        if !moves_whole(row, found.tree.as_deref(), found.open.as_deref(), message.len()) {
            return Kept::Frame;
        }
        let mut whole = std::mem::take(frame);
        whole.truncate(element.range.end);
        whole.advance(element.range.start);
        Kept::Whole(Arc::new(whole))
    }
}

/// A message whose state was found.
struct Message<'a> {
    element: &'a Element,
    /// The header, with what it has inherited.
    header: Header,
    message: &'a [u8],
    /// See [`Request::whole`].
    whole: Option<&'a Arc<Buf>>,
    place: &'a CompoundPosition<'a>,
    sealed: bool,
}

/// The bytes of a frame whose messages are being answered, counted on its connection.
pub(super) struct FrameBytes<'a> {
    connection: &'a Connection,
    bytes: Cell<usize>,
}

impl<'a> FrameBytes<'a> {
    fn new(connection: &'a Connection, bytes: usize) -> Self {
        let counted = Self { connection, bytes: Cell::new(0) };
        counted.change(bytes);
        counted
    }

    /// Bytes that are held now.
    pub(super) const fn held(&self) -> usize {
        self.bytes.get()
    }

    /// Changes the number of bytes that are held.
    pub(super) fn change(&self, bytes: usize) {
        let all = &self.connection.incoming.served_bytes;
        all.set(all.get().saturating_sub(self.bytes.replace(bytes)).saturating_add(bytes));
    }
}

impl Drop for FrameBytes<'_> {
    fn drop(&mut self) {
        self.change(0);
    }
}

/// Where a message stands in its compound.
#[derive(Debug)]
struct CompoundPosition<'a> {
    /// Number of messages before it.
    number: u8,
    alone: bool,
    last: bool,
    verdict: Verdict,
    /// The state of a file that earlier messages have shown; none if it is alone.
    shown: Option<&'a Shown>,
}
