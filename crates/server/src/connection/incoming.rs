//! Incoming frames: the sequence window, frames that wait for their turn, and results that are known
//! before it.

use std::cell::{Cell, RefCell};

use frevo_net::buffer::Buf;
use frevo_net::frame_reader::ReceiveError;
use frevo_proto::limits::WINDOW_MAX;
use frevo_proto::window::CommandSequenceWindow;

use super::end_reason::End;
use super::stalls::Stalled;
use crate::base::limits::{
    HELD_BACK_BYTES, HELD_BACK_CREDITS, HELD_BACK_PER_CONNECTION, SMALL_REQUESTS_PER_CONNECTION,
};
use crate::base::rates::HeldRequests;
use crate::protection::Arrivals;

/// Frames of a connection on their way to its handlers.
pub(crate) struct Incoming {
    /// Connection.CommandSequenceWindow
    pub(super) window: RefCell<CommandSequenceWindow>,
    /// Frames that are checked before their turn.
    pub(super) arrivals: Arrivals,
    /// True once the kernel has room for large requests.
    pub(super) is_widened: Cell<bool>,
    /// Bytes of frames whose messages are being answered.
    pub(super) served_bytes: Cell<usize>,
    /// Bytes of the state of one request that was not answered at once.
    pub(super) request_bytes: Cell<usize>,
    /// True if other requests came with the last one, or are being received or carried out.
    pub(super) has_company: Cell<bool>,
    /// True while what was counted before the event loop waits holds for the first read: no request
    /// goes on.
    pub(super) is_counted: Cell<bool>,
    /// Small requests that were received without memory for others, since the client last had taken all
    /// answers.
    pub(super) small: Cell<usize>,
    /// True while there is no memory for long requests.
    is_narrow: Cell<bool>,
    /// Requests under way when there last was memory for all.
    in_flight_with_room: Cell<usize>,
    /// Requests that wait for limits of rate.
    pub(super) held_back: HeldRequests,
    /// The client has no credits.
    pub(super) without_credits: Stalled,
    /// The end of the frames, while some before it have not begun.
    end: Cell<Option<Box<Result<(), End>>>>,
    /// True once there is such an end.
    is_ending: Cell<bool>,
}

impl Incoming {
    /// Nothing has come yet.
    pub(super) fn new() -> Self {
        Self {
            window: RefCell::new(CommandSequenceWindow::new(WINDOW_MAX)),
            arrivals: Arrivals::default(),
            is_widened: Cell::new(false),
            served_bytes: Cell::new(0),
            request_bytes: Cell::new(0),
            has_company: Cell::new(false),
            is_counted: Cell::new(false),
            small: Cell::new(0),
            is_narrow: Cell::new(false),
            in_flight_with_room: Cell::new(0),
            held_back: HeldRequests::default(),
            without_credits: Stalled::default(),
            end: Cell::default(),
            is_ending: Cell::new(false),
        }
    }

    /// Notes if there is memory for all requests, and how many are under way.
    pub(super) fn note_room(&self, is_for_all: bool, in_flight: usize) {
        self.is_narrow.set(!is_for_all);
        if is_for_all {
            self.in_flight_with_room.set(in_flight);
        }
    }

    /// Counts a request that was received while there is no memory for long ones.
    pub(super) fn count_small(&self) {
        self.small.set(self.small.get().saturating_add(usize::from(self.is_narrow.get())));
    }

    /// True if a further small request may be received while there is no memory for long ones, and so many
    /// requests are under way.
    pub(super) fn takes_small(&self, in_flight: usize) -> bool {
        let more = in_flight.saturating_sub(self.in_flight_with_room.get());
        more.max(self.small.get()) < SMALL_REQUESTS_PER_CONNECTION
    }

    /// True while so many requests wait for limits of rate that no further one is read.
    pub(super) const fn is_held_back(&self) -> bool {
        self.held_back.requests() >= HELD_BACK_PER_CONNECTION
            || self.held_back.bytes() >= HELD_BACK_BYTES
    }

    /// True while nothing is read for that reason, and no end is known.
    pub(super) const fn is_paused(&self) -> bool {
        self.is_held_back() && !self.is_ending()
    }

    /// The credits of those `wanted` by a request of this charge that its client gets: few while requests wait
    /// for limits of rate, so that it sends no more than is read.
    pub(super) fn sparing(&self, wanted: u16, charge: u16) -> u16 {
        let held = self.held_back.requests();
        if held == 0 {
            return wanted;
        }
        let window = self.window.borrow();
        let others = window.in_flight().saturating_sub(charge);
        let has = usize::from(window.available().saturating_add(others)).saturating_add(held);
        let left = usize::from(HELD_BACK_CREDITS).saturating_sub(has);
        wanted.min(u16::try_from(left).unwrap_or(HELD_BACK_CREDITS))
    }

    /// No frame comes behind those in the row.
    pub(super) fn end_behind(&self, end: Result<Option<Buf>, ReceiveError>) {
        self.is_ending.set(true);
        self.end.set(Some(Box::new(end.map(drop).map_err(End::Receive))));
    }

    /// True once no frame comes behind those in the row.
    pub(super) const fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// The end of the frames, once all that have come have begun.
    pub(super) fn take_end(&self) -> Option<Result<(), End>> {
        let is_reached = self.is_ending.get() && self.arrivals.is_empty();
        if is_reached { self.end.take().map(|end| *end) } else { None }
    }
}
