//! Messages of the upper layer in parts: MS-SMBD 3.1.5.4 and 3.1.5.8.

use core::ops::Range;
use core::time::Duration;

use frevo_wire::smbd::DataTransfer;

use super::{Disconnect, Fragment};
use crate::limits::{SMBD_FRAGMENTED_SIZE_MIN, SMBD_MESSAGE_RATE_MIN, SMBD_MESSAGE_TIMEOUT};

/// A message that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    sent: u32,
    len: u32,
    token: Option<u32>,
}

impl Outgoing {
    pub(super) fn new(len: u32, token: Option<u32>) -> Self {
        Self { sent: 0, len, token }
    }

    pub(super) fn token(&self) -> Option<u32> {
        self.token
    }

    /// Takes the next `room` bytes: their place, and the number that remains.
    pub(super) fn next(&mut self, room: u32) -> (Range<u32>, u32) {
        let start = self.sent;
        self.sent = start.saturating_add(room).min(self.len);
        (start..self.sent, self.len.saturating_sub(self.sent))
    }
}

/// Connection.FragmentReassemblyRemaining, and what belongs to it.
#[derive(Debug)]
pub(super) struct Reassembly {
    /// Connection.MaxFragmentedRecvSize
    max: u32,
    remaining: u32,
    /// Connection.InvalidatedToken
    invalidated: Option<u32>,
    /// The time by which the message must be complete; None outside a message.
    deadline: Option<Duration>,
}

impl Reassembly {
    pub(super) fn new(max: u32) -> Self {
        let max = max.max(SMBD_FRAGMENTED_SIZE_MIN);
        Self { max, remaining: 0, invalidated: None, deadline: None }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Takes a received message whose data lies at `place`. None for a message without data.
    pub(super) fn take(
        &mut self,
        header: &DataTransfer,
        place: Range<usize>,
        invalidated: Option<u32>,
        now: Duration,
    ) -> Result<Option<Fragment>, Disconnect> {
        // Deviation: in MS-SMBD 3.1.5.8 a second token replaces the first one, whose request would
        // never complete. MS-SMBD 3.1.5.4 allows one token for each message, so a second token is
        // an error here.
        if let Some(token) = invalidated
            && self.invalidated.replace(token).is_some()
        {
            return Err(Disconnect::Token);
        }
        if header.data_length == 0 {
            // A message without data only grants credits. It may arrive between fragments without
            // changing them.
            return Ok(None);
        }
        let is_first = self.deadline.is_none();
        let remaining = header.remaining_data_length;
        let total = header.data_length.checked_add(remaining);
        let is_expected = match total {
            Some(total) if is_first => total <= self.max,
            Some(total) => total == self.remaining,
            None => false,
        };
        if !is_expected {
            return Err(Disconnect::Fragments);
        }
        self.remaining = remaining;
        if remaining == 0 {
            self.deadline = None;
            let invalidated = self.invalidated.take();
            return Ok(Some(Fragment { data: place, is_first, remaining, invalidated }));
        }
        if is_first {
            let arrival = u64::from(remaining.checked_div(SMBD_MESSAGE_RATE_MIN).unwrap_or(0));
            let time = SMBD_MESSAGE_TIMEOUT.saturating_add(Duration::from_secs(arrival));
            self.deadline = Some(now.saturating_add(time));
        }
        Ok(Some(Fragment { data: place, is_first, remaining, invalidated: None }))
    }
}
