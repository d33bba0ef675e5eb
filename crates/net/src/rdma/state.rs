//! The machine of SMB Direct ([`frevo_proto::smbd`]) joined to a queue pair: the part of an
//! endpoint that waits for nothing.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::task::{Context, Poll};
use std::time::Duration;

use frevo_proto::limits::SMBD_RECEIVE_CREDITS;
use frevo_proto::smbd::{Disconnect, Machine, Received, Sending, Settings};
use tokio::time::Instant;

use super::driver::Driven;
use super::link::{Completion, Slot, TransferKey};
use super::queue_pair::QueuePair;
use super::values::PREFIX_INVALIDATES;
use crate::buffer::Buf;
use crate::limits::{
    FRAME_BYTES_MAX, RDMA_CREDITS_NEW, RDMA_FIRST_RECEIVE_BYTES, RDMA_POLLS_AT_ONCE,
    RDMA_RECEIVES_MAX, RDMA_SENDS_MAX, RDMA_SLOTS_AT_ONCE,
};
use crate::watchdog::{self, Moment};

/// Bytes before a frame: the frame's length, 24 bits.
const PREFIX_BYTES: usize = 4;

/// The reason why nothing more can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer, or this side, has ended the connection.
    Closed,
    /// The peer has violated the protocol.
    Peer(Disconnect),
    /// The device has failed a request, with `enum ibv_wc_status`.
    Device(i32),
    /// A call of rdma-core has failed.
    Call(Option<i32>),
}

impl From<End> for io::Error {
    fn from(end: End) -> Self {
        match end {
            End::Closed => io::ErrorKind::ConnectionReset.into(),
            End::Peer(why) => Self::new(io::ErrorKind::InvalidData, why),
            End::Device(status) => {
                Self::new(io::ErrorKind::ConnectionReset, format!("RDMA: work status {status}"))
            }
            End::Call(Some(errno)) => Self::from_raw_os_error(errno),
            End::Call(None) => io::ErrorKind::Other.into(),
        }
    }
}

/// A received part of a frame whose bytes have not all been read.
struct Arrived {
    slot: Slot,
    data: Range<usize>,
    /// The frame's prefix, for its first part.
    prefix: Range<usize>,
    prefix_bytes: [u8; PREFIX_BYTES],
}

/// A message that waits for the rest of its data.
struct Filling {
    slot: Slot,
    sending: Sending,
    filled: usize,
}

impl Filling {
    fn end(&self) -> usize {
        let data = &self.sending.data;
        self.sending.header().len() + data.end.saturating_sub(data.start) as usize
    }
}

/// See the module's text.
pub(super) struct State {
    pub(super) machine: Machine,
    pub(super) link: QueuePair,
    epoch: Instant,
    /// The same time by the clock of the watchdog.
    begun: Moment,
    /// The last look at the clock. Timers have seconds, and a request has many steps.
    now: Duration,
    /// Slots for receives, in all and free.
    receives: usize,
    receive_free: Vec<Slot>,
    /// Slots for sends, in all and free.
    sends: usize,
    send_free: Vec<Slot>,
    arrived: VecDeque<Arrived>,
    /// Frames that have arrived whole.
    frames: u64,
    /// Keys of this side that the peer has invalidated, each with the number of its frame. Each
    /// was lent, so that they are few.
    invalidated: VecDeque<(u64, u32)>,
    filling: Option<Filling>,
    /// The beginning of a prefix that is being written.
    prefix: Vec<u8>,
    /// The device tells of the next completion, or has told and that was not taken.
    is_armed: bool,
    /// There are more completions than were taken at a time.
    has_more: bool,
    end: Option<End>,
    pub(super) driven: Driven,
    /// The device has been given requests since [`Self::pump`] looked at it.
    has_rung: bool,
}

impl State {
    /// The listening side, with a receive posted for the negotiation.
    pub(super) fn passive(link: QueuePair) -> io::Result<Self> {
        let settings = Settings { receive_credit_max: RDMA_CREDITS_NEW, ..Settings::default() };
        Self::new(link, Machine::passive(settings, Duration::ZERO))
    }

    /// The connecting side.
    pub(super) fn active(link: QueuePair) -> io::Result<Self> {
        Self::new(link, Machine::active(Settings::default(), Duration::ZERO))
    }

    fn new(mut link: QueuePair, mut machine: Machine) -> io::Result<Self> {
        let slots = link.add_slots(2, RDMA_FIRST_RECEIVE_BYTES)?;
        let [first, send] = slots.as_slice() else { return Err(io::ErrorKind::Other.into()) };
        let (first, send) = (*first, *send);
        link.post_receive(first)?;
        machine.posted(machine.receives_wanted());
        Ok(Self {
            machine,
            link,
            epoch: Instant::now(),
            begun: Moment::now(),
            now: Duration::ZERO,
            receives: 1,
            receive_free: Vec::new(),
            sends: 1,
            send_free: vec![send],
            arrived: VecDeque::new(),
            frames: 0,
            invalidated: VecDeque::new(),
            filling: None,
            prefix: Vec::new(),
            is_armed: true,
            has_more: false,
            end: None,
            driven: Driven::default(),
            has_rung: false,
        })
    }

    /// The end of the connection; bytes that came before may still be read.
    pub(super) const fn end(&self) -> Option<End> {
        self.end
    }

    fn look_at_clock(&mut self) {
        self.now = match self.link {
            // The start of the present poll is exact enough, and reading it needs no system call.
            QueuePair::Device(_) => watchdog::mark().since(self.begun),
            QueuePair::Memory(_) => self.epoch.elapsed(),
        };
    }

    pub(super) fn deadline(&self) -> Instant {
        self.epoch + self.machine.deadline()
    }

    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// True if [`Self::write`] takes a byte.
    pub(super) fn takes_bytes(&self) -> bool {
        self.filling.is_some() || self.machine.may_begin()
    }

    pub(super) fn trust(&mut self) {
        self.machine.set_receive_credit_max(SMBD_RECEIVE_CREDITS);
        self.go_on();
        self.ring();
    }

    pub(super) fn abort(&mut self) {
        self.link.disconnect();
        self.end = self.end.or(Some(End::Closed));
    }

    pub(super) fn take_event(&mut self) {
        if self.link.take_event() {
            self.is_armed = false;
        }
    }

    /// True if the device may have done more than [`Self::pump`] has taken.
    pub(super) const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Takes what the device has done, up to a limit: a peer that sends without end must not keep
    /// the core. True if it has done anything.
    pub(super) fn pump(&mut self) -> bool {
        self.look_at_clock();
        let mut has_changed = false;
        let mut polls_left = RDMA_POLLS_AT_ONCE;
        self.has_more = false;
        loop {
            let completions = self.link.poll();
            if completions.is_empty() {
                if self.is_armed {
                    break;
                }
                // From here on a completion causes an event. Completions that came before are found
                // by polling once more.
                if let Err(error) = self.link.arm() {
                    self.fail(&error);
                }
                self.is_armed = true;
                continue;
            }
            has_changed = true;
            for completion in completions {
                self.take(completion);
            }
            self.go_on();
            polls_left = polls_left.saturating_sub(1);
            if polls_left == 0 {
                self.has_more = true;
                break;
            }
        }
        let was_over = self.end.is_some();
        if self.link.fate().is_over() {
            self.end = self.end.or(Some(End::Closed));
        }
        if self.end.is_none() {
            self.end_what_is_late();
        }
        self.ring();
        self.has_rung = false;
        self.wake_readers();
        has_changed || was_over != self.end.is_some()
    }

    /// Gives the device what was posted; true if there was something.
    pub(super) fn ring(&mut self) -> bool {
        let rung = self.link.ring();
        if let Err(error) = &rung {
            self.fail(error);
        }
        let rung = matches!(rung, Ok(true));
        self.has_rung |= rung;
        rung
    }

    /// True if the device was given requests since it was looked at. Some are done at once, and
    /// looking costs no system call.
    pub(super) const fn has_rung(&self) -> bool {
        self.has_rung
    }

    /// Returns the data of an RDMA read, or the failure of the connection. Without a driver it is
    /// None while the device has not completed the read; with one the task waits.
    pub(super) fn poll_read(
        &mut self,
        key: TransferKey,
        cx: &Context<'_>,
    ) -> Poll<Option<io::Result<Buf>>> {
        if let Some(data) = self.link.finish(key) {
            return Poll::Ready(Some(Ok(data)));
        }
        if let Some(end) = self.end {
            return Poll::Ready(Some(Err(end.into())));
        }
        if !self.driven.is_so() {
            return Poll::Ready(None);
        }
        self.driven.wait(key, cx.waker());
        Poll::Pending
    }

    /// Wakes those whose reads are done, or all where nothing will complete their reads.
    fn wake_readers(&mut self) {
        let (link, is_over) = (&self.link, self.end.is_some());
        self.driven.wake(|key| is_over || link.is_complete(key));
    }

    fn end_what_is_late(&mut self) {
        if self.now >= self.machine.deadline() {
            match self.machine.on_time(self.now) {
                Ok(()) => {
                    // The connection was idle until this deadline, so the link frees what only a
                    // busy connection needs.
                    self.link.rest();
                    self.go_on();
                }
                Err(why) => self.end = Some(End::Peer(why)),
            }
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.end = self.end.or(Some(End::Call(error.raw_os_error())));
    }

    fn take(&mut self, completion: Completion) {
        match completion {
            Completion::Received { slot, len, invalidated } => self.receive(slot, len, invalidated),
            // The slots used in the negotiation are too short for other messages, so they are not
            // free again.
            Completion::Sent(slot) if slot.is_early() => {}
            Completion::Sent(slot) => self.send_free.push(slot),
            Completion::Moved => {}
            // After the first failure all requests of the queue pair fail, so only the first status
            // is kept.
            Completion::Failed(status) => self.end = self.end.or(Some(End::Device(status))),
        }
    }

    fn receive(&mut self, slot: Slot, len: usize, invalidated: Option<u32>) {
        if invalidated.is_some_and(|key| !self.link.is_invalidated(key)) {
            self.end = self.end.or(Some(End::Peer(Disconnect::Token)));
            return;
        }
        let now = self.now;
        let message = self.link.slot(slot).and_then(|bytes| bytes.get(..len)).unwrap_or_default();
        let received = self.machine.on_message(message, invalidated, now);
        let fragment = match received {
            Ok(Received::Data(fragment)) => fragment,
            Ok(Received::Established) => return self.send_free.clear(),
            Ok(Received::Control | Received::Refused) => return self.receive_free.push(slot),
            Err(why) => {
                self.end = self.end.or(Some(End::Peer(why)));
                return;
            }
        };
        if let Some(key) = fragment.invalidated {
            self.invalidated.push_back((self.frames, key));
        }
        self.frames += u64::from(fragment.remaining == 0);
        let data = fragment.data.clone();
        let total = u32::try_from(data.len()).unwrap_or(0).saturating_add(fragment.remaining);
        let prefix = if fragment.is_first { 0..PREFIX_BYTES } else { 0..0 };
        let prefix_bytes = total.to_be_bytes();
        self.arrived.push_back(Arrived { slot, data, prefix, prefix_bytes });
    }

    /// The key of this side that the peer has invalidated with a frame.
    pub(super) fn invalidated_with(&mut self, frame: u64) -> Option<u32> {
        let is_its = self.invalidated.front().is_some_and(|(of, _)| *of <= frame);
        let (of, key) = if is_its { self.invalidated.pop_front() } else { None }?;
        (of == frame).then_some(key)
    }

    /// Posts receives and sends what can be sent now.
    pub(super) fn go_on(&mut self) {
        if self.end.is_some() {
            return;
        }
        if let Err(error) = self.top_up().and_then(|()| self.advance()) {
            self.fail(&error);
        }
        if self.machine.is_over() {
            self.end = self.end.or(Some(End::Closed));
        }
    }

    /// Posts as many receives as the machine wants.
    pub(super) fn top_up(&mut self) -> io::Result<()> {
        if !self.machine.is_established() {
            return Ok(());
        }
        for _ in 0..self.machine.receives_wanted() {
            if self.receive_free.is_empty() {
                let bytes = self.machine.parameters().max_receive_size as usize;
                let count = RDMA_SLOTS_AT_ONCE.min(RDMA_RECEIVES_MAX - self.receives);
                if count == 0 {
                    break;
                }
                self.receives += count;
                self.receive_free =
                    self.link.add_slots(u16::try_from(count).unwrap_or(1), bytes)?;
            }
            let Some(slot) = self.receive_free.pop() else { break };
            self.link.post_receive(slot)?;
            self.machine.posted(1);
        }
        Ok(())
    }

    fn send_slot(&mut self) -> io::Result<Option<Slot>> {
        if self.send_free.is_empty() && self.machine.is_established() {
            let bytes = self.machine.parameters().max_send_size as usize;
            let count = RDMA_SLOTS_AT_ONCE.min(RDMA_SENDS_MAX - self.sends);
            if count > 0 {
                self.sends += count;
                self.send_free = self.link.add_slots(u16::try_from(count).unwrap_or(1), bytes)?;
            }
        }
        Ok(self.send_free.last().copied())
    }

    /// Begins the messages that may be sent. One with data waits for it.
    fn advance(&mut self) -> io::Result<()> {
        while self.filling.is_none() {
            let Some(slot) = self.send_slot()? else { return Ok(()) };
            let Some(sending) = self.machine.next_send(self.now) else { return Ok(()) };
            self.send_free.pop();
            let header = sending.header();
            let room = self.link.slot_mut(slot).and_then(|room| room.get_mut(..header.len()));
            room.ok_or(io::ErrorKind::Other)?.copy_from_slice(header);
            if sending.data.is_empty() {
                self.link.post_send(slot, header.len(), None)?;
            } else {
                let filled = header.len();
                self.filling = Some(Filling { slot, sending, filled });
            }
        }
        Ok(())
    }

    /// Takes bytes of frames with their prefixes; returns their number.
    ///
    /// # Errors
    /// A frame is longer than the peer takes, or the device fails.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.look_at_clock();
        let taken = self.write_all(slices);
        self.ring();
        taken
    }

    fn write_all(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for slice in slices {
            let mut bytes: &[u8] = slice;
            while !bytes.is_empty() {
                let count = self.write_some(bytes)?;
                if count == 0 {
                    return Ok(taken);
                }
                taken += count;
                bytes = bytes.get(count..).unwrap_or_default();
            }
        }
        Ok(taken)
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(filling) = &mut self.filling {
            let end = filling.end();
            let count = bytes.len().min(end.saturating_sub(filling.filled));
            let room = self.link.slot_mut(filling.slot);
            let room = room.and_then(|room| room.get_mut(filling.filled..filling.filled + count));
            let bytes = bytes.get(..count).unwrap_or_default();
            room.ok_or(io::ErrorKind::Other)?.copy_from_slice(bytes);
            filling.filled += count;
            if filling.filled == end
                && let Some(Filling { slot, sending, .. }) = self.filling.take()
            {
                self.link.post_send(slot, end, sending.invalidate)?;
                self.go_on();
            }
            return Ok(count);
        }
        if !self.machine.may_begin() {
            return Ok(0);
        }
        let is_long = self.prefix.first().or(bytes.first()) == Some(&PREFIX_INVALIDATES);
        let len = if is_long { PREFIX_BYTES + 4 } else { PREFIX_BYTES };
        let count = bytes.len().min(len - self.prefix.len());
        self.prefix.extend_from_slice(bytes.get(..count).unwrap_or_default());
        if self.prefix.len() == len {
            self.begin()?;
        }
        Ok(count)
    }

    /// Begins the frame whose prefix is complete.
    fn begin(&mut self) -> io::Result<()> {
        let word = |at: usize| {
            let bytes = self.prefix.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes)
        };
        let len = word(0).unwrap_or(0) & FRAME_BYTES_MAX;
        let token = word(PREFIX_BYTES);
        self.prefix.clear();
        let begun = self.machine.begin(len, token);
        begun.map_err(|_too_long| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.go_on();
        Ok(())
    }

    /// Copies received bytes out; returns their number.
    pub(super) fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for slice in slices {
            let mut room: &mut [u8] = slice;
            while !room.is_empty()
                && let Some(front) = self.arrived.front_mut()
            {
                let (bytes, rest) = if front.prefix.is_empty() {
                    let bytes = self.link.slot(front.slot).ok_or(io::ErrorKind::Other)?;
                    (bytes, &mut front.data)
                } else {
                    (&front.prefix_bytes[..], &mut front.prefix)
                };
                let moved = rest.len().min(room.len());
                let bytes = bytes.get(rest.start..rest.start + moved).unwrap_or_default();
                let (to, behind) = room.split_at_mut(bytes.len());
                to.copy_from_slice(bytes);
                room = behind;
                rest.start += moved;
                count += moved;
                if front.prefix.is_empty() && front.data.is_empty() {
                    let slot = front.slot;
                    self.arrived.pop_front();
                    self.receive_free.push(slot);
                }
            }
        }
        if count > 0 {
            self.go_on();
            self.ring();
        }
        Ok(count)
    }
}
