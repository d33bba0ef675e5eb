//! SMB Direct: MS-SMBD 3.1, both roles.
//!
//! A [`Machine`] turns messages of the upper layer into fragments and back, and manages credits and
//! timers. It posts nothing and owns no memory of messages: its owner posts as many receives as
//! [`Machine::receives_wanted`] says, gives it each received message, sends what
//! [`Machine::next_send`] returns, and calls [`Machine::on_time`] at [`Machine::deadline`]. Times
//! are counted from any fixed moment.

mod credits;
mod disconnect;
mod fragments;

use core::ops::Range;
use core::time::Duration;

use frevo_wire::Status;
use frevo_wire::smbd::{
    DATA_OFFSET, DATA_TRANSFER_LEN, DataTransfer, DataTransferFlags, NegotiateRequest,
    NegotiateResponse, SmbdVersion,
};

use crate::limits::{
    SMBD_FRAGMENTED_SIZE, SMBD_FRAGMENTED_SIZE_MIN, SMBD_IDLE_TIMEOUT, SMBD_KEEPALIVE_INTERVAL,
    SMBD_NEGOTIATE_TIMEOUT_ACTIVE, SMBD_NEGOTIATE_TIMEOUT_PASSIVE, SMBD_READ_WRITE_SIZE,
    SMBD_RECEIVE_CREDITS, SMBD_RECEIVE_SIZE, SMBD_RECEIVE_SIZE_MIN, SMBD_SEND_CREDITS,
    SMBD_SEND_SIZE,
};
use credits::{ReceiveCredits, SendCredits};
pub use disconnect::Disconnect;
use fragments::{Outgoing, Reassembly};

/// The values with which a connection begins, MS-SMBD 3.1.4.1 and 3.1.7.2. Peers may lower them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Connection.ReceiveCreditMax
    pub receive_credit_max: u16,
    /// Connection.SendCreditTarget
    pub send_credit_target: u16,
    /// Connection.MaxSendSize, bytes.
    pub max_send_size: u32,
    /// Connection.MaxReceiveSize, bytes.
    pub max_receive_size: u32,
    /// Connection.MaxFragmentedRecvSize, bytes.
    pub max_fragmented_recv_size: u32,
    /// Connection.MaxReadWriteSize, bytes.
    pub max_read_write_size: u32,
    /// Connection.KeepaliveInterval
    pub keepalive_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            receive_credit_max: SMBD_RECEIVE_CREDITS,
            send_credit_target: SMBD_SEND_CREDITS,
            max_send_size: SMBD_SEND_SIZE,
            max_receive_size: SMBD_RECEIVE_SIZE,
            max_fragmented_recv_size: SMBD_FRAGMENTED_SIZE,
            max_read_write_size: SMBD_READ_WRITE_SIZE,
            keepalive_interval: SMBD_KEEPALIVE_INTERVAL,
        }
    }
}

/// Connection.Role
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Active,
    Passive,
    Established,
    /// The negotiation was refused: the response is the last message.
    Refused,
}

/// A negotiation message that is to be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Request,
    Response(Status),
}

/// Connection.KeepaliveRequested
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keepalive {
    None,
    Pending,
    Sent,
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// The negotiation has succeeded. On the listening side the response is to be sent now.
    Established,
    /// The negotiation was refused; the response is to be sent, and then the connection ends.
    Refused,
    /// A message without data.
    Control,
    /// A part of a message of the upper layer.
    Data(Fragment),
}

/// A received part of a message of the upper layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The place of the data in the received message.
    pub data: Range<usize>,
    /// True for the first part: a buffer for `data` and `remaining` is needed.
    pub is_first: bool,
    /// Bytes that follow; 0 for the last part.
    pub remaining: u32,
    /// The token that the adapter has invalidated for this message; with the last part only.
    pub invalidated: Option<u32>,
}

/// Connection.MaxFragmentedSendSize is smaller than a message of the upper layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// A message to send: a header of the first `header_len` bytes, then `data` of the upper layer's
/// message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sending {
    header: [u8; 32],
    header_len: usize,
    /// The part of the upper layer's message; empty if the message has no data.
    pub data: Range<u32>,
    /// True if the upper layer's message ends here.
    pub ends_message: bool,
    /// The token to invalidate at the peer.
    pub invalidate: Option<u32>,
}

impl Sending {
    fn new(header: &[u8]) -> Self {
        let mut bytes = [0; 32];
        for (to, from) in bytes.iter_mut().zip(header) {
            *to = *from;
        }
        let header_len = header.len().min(bytes.len());
        Self { header: bytes, header_len, data: 0..0, ends_message: false, invalidate: None }
    }

    /// The bytes before the data.
    pub fn header(&self) -> &[u8] {
        self.header.get(..self.header_len).unwrap_or_default()
    }
}

/// Sizes of an established connection, MS-SMBD 3.1.4.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Bytes of the longest message that may be sent.
    pub max_send_size: u32,
    /// Bytes of the longest message that may be received, and of every posted receive.
    pub max_receive_size: u32,
    /// Bytes of the longest message of the upper layer that may be sent.
    pub max_fragmented_send_size: u32,
    /// Bytes that one request may move by RDMA.
    pub max_read_write_size: u32,
}

/// One connection. See the module's text.
#[derive(Debug)]
pub struct Machine {
    role: Role,
    settings: Settings,
    parameters: Parameters,
    greeting: Option<Greeting>,
    sends: SendCredits,
    receives: ReceiveCredits,
    outgoing: Option<Outgoing>,
    reassembly: Reassembly,
    keepalive: Keepalive,
    /// Connection.SendImmediate
    send_immediate: bool,
    /// The Negotiation Timer, or the Idle Connection Timer once established.
    timer: Duration,
}

impl Machine {
    /// Begins the connecting side, once the transport is connected: MS-SMBD 3.1.4.1.
    pub fn active(settings: Settings, now: Duration) -> Self {
        let timer = now.saturating_add(SMBD_NEGOTIATE_TIMEOUT_ACTIVE);
        Self::new(Role::Active, Some(Greeting::Request), settings, timer)
    }

    /// Begins the listening side, once the transport is connected: MS-SMBD 3.1.7.2.
    pub fn passive(settings: Settings, now: Duration) -> Self {
        let timer = now.saturating_add(SMBD_NEGOTIATE_TIMEOUT_PASSIVE);
        Self::new(Role::Passive, None, settings, timer)
    }

    fn new(role: Role, greeting: Option<Greeting>, settings: Settings, timer: Duration) -> Self {
        let parameters = Parameters {
            max_send_size: settings.max_send_size.max(SMBD_RECEIVE_SIZE_MIN),
            max_receive_size: settings.max_receive_size.max(SMBD_RECEIVE_SIZE_MIN),
            max_fragmented_send_size: 0,
            max_read_write_size: settings.max_read_write_size,
        };
        Self {
            role,
            settings,
            parameters,
            greeting,
            sends: SendCredits::default(),
            receives: ReceiveCredits::new(settings.receive_credit_max),
            outgoing: None,
            reassembly: Reassembly::new(settings.max_fragmented_recv_size),
            keepalive: Keepalive::None,
            send_immediate: false,
            timer,
        }
    }

    /// True once the negotiation has succeeded.
    pub fn is_established(&self) -> bool {
        self.role == Role::Established
    }

    /// True if a refused negotiation has been answered: the connection ends.
    pub fn is_over(&self) -> bool {
        self.role == Role::Refused && self.greeting.is_none()
    }

    /// The sizes of the connection; before it is established, those that this side offers.
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Changes Connection.ReceiveCreditMax. Receives that are posted stay posted.
    pub fn set_receive_credit_max(&mut self, max: u16) {
        self.receives.set_max(max);
    }

    /// Number of receives to post now. Before the connection is established it is one of at least
    /// 512 bytes, later they have [`Parameters::max_receive_size`].
    pub fn receives_wanted(&self) -> u16 {
        match self.role {
            Role::Active | Role::Passive => self.receives.wanted_first(),
            Role::Established => {
                let must_grant = self.outgoing.is_some() && self.sends.is_last();
                self.receives.wanted(must_grant)
            }
            Role::Refused => 0,
        }
    }

    /// Counts receives that have been posted.
    pub fn posted(&mut self, count: u16) {
        self.receives.posted(count, self.role == Role::Established);
    }

    /// Number of receives that are posted.
    pub fn receives_posted(&self) -> u16 {
        self.receives.posted_count()
    }

    /// Number of messages that may be sent now.
    pub fn send_credits(&self) -> u16 {
        self.sends.available()
    }

    /// True if the next message of the upper layer may begin.
    pub fn may_begin(&self) -> bool {
        self.role == Role::Established && self.outgoing.is_none()
    }

    /// Begins to send a message of `len` bytes; [`Self::next_send`] returns its fragments. With a
    /// `token` the peer's memory is invalidated by the last of them. Does nothing unless
    /// [`Self::may_begin`].
    ///
    /// # Errors
    /// MS-SMBD 3.1.5.4: [`TooLong`] for the peer. A message of no bytes is never sent.
    pub fn begin(&mut self, len: u32, token: Option<u32>) -> Result<(), TooLong> {
        if len > self.parameters.max_fragmented_send_size || len == 0 {
            return Err(TooLong);
        }
        if self.may_begin() {
            self.outgoing = Some(Outgoing::new(len, token));
        }
        Ok(())
    }

    /// The time at which [`Self::on_time`] is to be called.
    pub fn deadline(&self) -> Duration {
        self.reassembly.deadline().map_or(self.timer, |deadline| deadline.min(self.timer))
    }

    /// Expires timers, MS-SMBD 3.1.6. Afterwards a keep-alive may have to be sent.
    ///
    /// # Errors
    /// The peer has not negotiated, has not answered, or has not completed a message in time.
    pub fn on_time(&mut self, now: Duration) -> Result<(), Disconnect> {
        if self.reassembly.deadline().is_some_and(|deadline| now >= deadline) {
            return Err(Disconnect::Stalled);
        }
        if now < self.timer {
            return Ok(());
        }
        if self.role != Role::Established {
            return Err(Disconnect::NegotiationTimeout);
        }
        if self.keepalive != Keepalive::None {
            return Err(Disconnect::Silent);
        }
        self.keepalive = Keepalive::Pending;
        self.timer = now.saturating_add(SMBD_IDLE_TIMEOUT);
        Ok(())
    }

    /// Takes a received message, MS-SMBD 3.1.5.5. `invalidated` is the token that the adapter has
    /// invalidated with it.
    ///
    /// # Errors
    /// A violation by the peer: the connection must end.
    pub fn on_message(
        &mut self,
        message: &[u8],
        invalidated: Option<u32>,
        now: Duration,
    ) -> Result<Received, Disconnect> {
        match self.role {
            Role::Passive => self.on_request(message, now),
            Role::Active => self.on_response(message, now),
            Role::Established => self.on_data(message, invalidated, now),
            Role::Refused => Err(Disconnect::Version),
        }
    }

    /// MS-SMBD 3.1.5.6.
    fn on_request(&mut self, message: &[u8], now: Duration) -> Result<Received, Disconnect> {
        let request = NegotiateRequest::parse(message)?;
        let versions = request.min_version..=request.max_version;
        if !versions.contains(&SmbdVersion::V1) {
            self.role = Role::Refused;
            self.greeting = Some(Greeting::Response(Status::NOT_SUPPORTED));
            return Ok(Received::Refused);
        }
        check_offer(
            request.credits_requested,
            request.max_receive_size,
            request.max_fragmented_size,
        )?;
        self.agree(
            request.preferred_send_size,
            request.max_receive_size,
            request.max_fragmented_size,
        );
        self.receives.set_target(request.credits_requested);
        self.greeting = Some(Greeting::Response(Status::SUCCESS));
        self.establish(now);
        Ok(Received::Established)
    }

    /// MS-SMBD 3.1.5.7.
    fn on_response(&mut self, message: &[u8], now: Duration) -> Result<Received, Disconnect> {
        let response = NegotiateResponse::parse(message)?;
        if self.greeting.is_some() {
            return Err(Disconnect::Unexpected);
        }
        if response.status != Status::SUCCESS {
            return Err(Disconnect::Refused(response.status));
        }
        if response.negotiated_version != SmbdVersion::V1 {
            return Err(Disconnect::Version);
        }
        check_offer(
            response.credits_requested,
            response.max_receive_size,
            response.max_fragmented_size,
        )?;
        if response.credits_granted == 0 {
            return Err(Disconnect::Offer("CreditsGranted"));
        }
        if response.preferred_send_size > self.parameters.max_receive_size {
            return Err(Disconnect::Offer("PreferredSendSize"));
        }
        self.agree(
            response.preferred_send_size,
            response.max_receive_size,
            response.max_fragmented_size,
        );
        let own = self.parameters.max_read_write_size;
        self.parameters.max_read_write_size = response.max_read_write_size.min(own);
        self.receives.set_target(response.credits_requested);
        self.sends.add(response.credits_granted);
        self.establish(now);
        Ok(Received::Established)
    }

    /// Takes the peer's sizes over.
    fn agree(&mut self, preferred_send: u32, max_receive: u32, max_fragmented: u32) {
        let own = &mut self.parameters;
        own.max_receive_size = own.max_receive_size.min(preferred_send).max(SMBD_RECEIVE_SIZE_MIN);
        own.max_send_size = own.max_send_size.min(max_receive);
        own.max_fragmented_send_size = max_fragmented;
    }

    fn establish(&mut self, now: Duration) {
        self.role = Role::Established;
        self.timer = now.saturating_add(self.settings.keepalive_interval);
    }

    /// MS-SMBD 3.1.5.8.
    fn on_data(
        &mut self,
        message: &[u8],
        invalidated: Option<u32>,
        now: Duration,
    ) -> Result<Received, Disconnect> {
        let header = DataTransfer::parse(message)?;
        if header.credits_requested == 0 {
            return Err(Disconnect::Offer("CreditsRequested"));
        }
        let end = header.data_offset.checked_add(header.data_length);
        let fits = end.is_some_and(|end| usize::try_from(end).is_ok_and(|e| e <= message.len()));
        if !fits || !header.data_offset.is_multiple_of(8) {
            return Err(Disconnect::DataPlace);
        }
        header.data(message)?;
        self.receives.received()?;
        self.timer = now.saturating_add(self.settings.keepalive_interval);
        self.keepalive = Keepalive::None;
        self.receives.set_target(header.credits_requested);
        self.sends.add(header.credits_granted);
        if header.flags.contains(DataTransferFlags::RESPONSE_REQUESTED) {
            // Deviation: in MS-SMBD 3.1.5.8 KeepaliveRequested becomes PENDING at this point, so
            // that the response would ask for another response, and so on without end.
            self.send_immediate = true;
        }
        let start = usize::try_from(header.data_offset).unwrap_or(usize::MAX);
        let length = usize::try_from(header.data_length).unwrap_or(usize::MAX);
        let place = start..start.saturating_add(length);
        let fragment = self.reassembly.take(&header, place, invalidated, now)?;
        Ok(fragment.map_or(Received::Control, Received::Data))
    }

    /// The next message to send now, MS-SMBD 3.1.5.1; None if nothing is to be sent, or the peer
    /// has granted no credit for it.
    pub fn next_send(&mut self, now: Duration) -> Option<Sending> {
        match self.greeting.take() {
            Some(Greeting::Request) => return Some(self.request()),
            Some(Greeting::Response(status)) => return Some(self.response(status)),
            None => {}
        }
        let is_wanted = self.outgoing.is_some()
            || self.send_immediate
            || self.keepalive == Keepalive::Pending
            || self.receives.must_grant();
        if self.role != Role::Established || !is_wanted {
            return None;
        }
        // The last send credit is kept for a message that grants credits to the peer; otherwise
        // both sides could wait for ever.
        let credits_granted = self.receives.ungranted();
        if self.sends.available() == 0 || (self.sends.is_last() && credits_granted == 0) {
            return None;
        }
        self.sends.take();
        self.receives.grant();
        let mut header = DataTransfer {
            credits_requested: self.settings.send_credit_target,
            credits_granted,
            flags: DataTransferFlags::EMPTY,
            remaining_data_length: 0,
            data_offset: 0,
            data_length: 0,
        };
        if self.keepalive == Keepalive::Pending {
            header.flags |= DataTransferFlags::RESPONSE_REQUESTED;
            self.keepalive = Keepalive::Sent;
            self.timer = now.saturating_add(SMBD_IDLE_TIMEOUT);
        }
        self.send_immediate = false;
        let Some(outgoing) = &mut self.outgoing else {
            let bytes = header.to_bytes();
            return Some(Sending::new(bytes.get(..DATA_TRANSFER_LEN).unwrap_or_default()));
        };
        let room = self.parameters.max_send_size.saturating_sub(DATA_OFFSET_U32);
        let (data, remaining) = outgoing.next(room);
        header.remaining_data_length = remaining;
        header.data_offset = DATA_OFFSET_U32;
        header.data_length = data.end.saturating_sub(data.start);
        let mut sending = Sending::new(&header.to_bytes());
        sending.data = data;
        if remaining == 0 {
            sending.ends_message = true;
            sending.invalidate = outgoing.token();
            self.outgoing = None;
        }
        Some(sending)
    }

    /// MS-SMBD 3.1.5.2.
    fn request(&self) -> Sending {
        let request = NegotiateRequest {
            min_version: SmbdVersion::V1,
            max_version: SmbdVersion::V1,
            credits_requested: self.settings.send_credit_target.max(1),
            preferred_send_size: self.parameters.max_send_size,
            max_receive_size: self.parameters.max_receive_size,
            max_fragmented_size: self
                .settings
                .max_fragmented_recv_size
                .max(SMBD_FRAGMENTED_SIZE_MIN),
        };
        Sending::new(&request.to_bytes())
    }

    /// MS-SMBD 3.1.5.3.
    fn response(&mut self, status: Status) -> Sending {
        let credits_granted = self.receives.ungranted();
        let status = match status {
            // MS-SMBD 3.1.5.6: without a posted receive the peer gets no credits, so the
            // negotiation fails.
            Status::SUCCESS if credits_granted == 0 => {
                self.role = Role::Refused;
                Status::INSUFFICIENT_RESOURCES
            }
            status => status,
        };
        if status != Status::SUCCESS {
            return Sending::new(&NegotiateResponse::refusal(status).to_bytes());
        }
        self.receives.grant();
        let response = NegotiateResponse {
            negotiated_version: SmbdVersion::V1,
            credits_requested: self.settings.send_credit_target.max(1),
            credits_granted,
            max_read_write_size: self.parameters.max_read_write_size,
            preferred_send_size: self.parameters.max_send_size,
            max_receive_size: self.parameters.max_receive_size,
            max_fragmented_size: self
                .settings
                .max_fragmented_recv_size
                .max(SMBD_FRAGMENTED_SIZE_MIN),
            ..NegotiateResponse::refusal(Status::SUCCESS)
        };
        Sending::new(&response.to_bytes())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const DATA_OFFSET_U32: u32 = DATA_OFFSET as u32;

/// The conditions that both negotiation messages must meet.
fn check_offer(
    credits_requested: u16,
    max_receive_size: u32,
    max_fragmented_size: u32,
) -> Result<(), Disconnect> {
    if credits_requested == 0 {
        return Err(Disconnect::Offer("CreditsRequested"));
    }
    if max_receive_size < SMBD_RECEIVE_SIZE_MIN {
        return Err(Disconnect::Offer("MaxReceiveSize"));
    }
    if max_fragmented_size < SMBD_FRAGMENTED_SIZE_MIN {
        return Err(Disconnect::Offer("MaxFragmentedSize"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
