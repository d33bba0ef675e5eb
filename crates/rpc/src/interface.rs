//! Interfaces as a server registers them, and the calls that reach them.

use crate::security::AuthLevel;
use crate::{FaultStatus, SyntaxId};
use alloc::vec::Vec;
use frevo_wire::fscc::eq_ignore_case;

/// An interface: a row of the table of those that a server offers.
#[derive(Debug)]
pub struct Interface {
    /// The UUID and the version.
    pub syntax: SyntaxId,
    /// The name, for people; the endpoint mapper tells it as the annotation.
    pub name: &'static str,
    /// The names of the pipes on which it is spoken, without a path. Empty for one of TCP only.
    pub pipes: &'static [&'static str],
    /// sec_addr of bind_ack on a pipe.
    pub secondary_address: &'static str,
    /// The least level at which a call on a pipe is answered. A pipe has the protection of SMB, too.
    pub least_level: AuthLevel,
    /// The least level at which a call over TCP is answered. None for an interface of pipes only.
    pub level_on_tcp: Option<AuthLevel>,
}

/// The transport of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// ncacn_np: SMB has authenticated the client.
    Pipe,
    /// ncacn_ip_tcp
    Tcp,
}

impl Interface {
    /// Returns the least level at which a call is answered; None if this carrier does not have the
    /// interface.
    pub const fn level_on(&self, carrier: Carrier) -> Option<AuthLevel> {
        match carrier {
            Carrier::Pipe if self.pipes.is_empty() => None,
            Carrier::Pipe => Some(self.least_level),
            Carrier::Tcp => self.level_on_tcp,
        }
    }
}

impl PartialEq for Interface {
    fn eq(&self, other: &Self) -> bool {
        self.syntax == other.syntax
    }
}

impl Eq for Interface {}

/// Returns the interface of `table` that is spoken on the pipe of this name, as a CREATE on IPC$
/// gives it. A client's name is never used to look anything else up.
pub fn of_pipe(table: &[&'static Interface], name: &str) -> Option<&'static Interface> {
    let has_name = |row: &&&Interface| row.pipes.iter().any(|pipe| eq_ignore_case(pipe, name));
    table.iter().find(has_name).copied()
}

/// A call whose stub data has come whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// call_id; no other call of the association that waits for its answer has it.
    pub id: u32,
    /// The interface that is called.
    pub interface: &'static Interface,
    /// The number of the operation.
    pub opnum: u16,
    /// The level at which the call was protected; NONE without an authentication over RPC.
    pub level: AuthLevel,
    /// The arguments.
    pub stub: Vec<u8>,
}

/// The stub data of an answer, or the fault that is sent instead.
pub type Answer = Result<Vec<u8>, FaultStatus>;

/// The outcome of the start of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The call has ended.
    Ended(Answer),
    /// The answer comes later, by [`Endpoint::complete`](crate::Endpoint::complete).
    Pending,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self::Ended(answer)
    }
}

/// The server behind an endpoint.
pub trait Calls {
    /// Starts a call.
    fn begin(&mut self, call: &Call) -> Outcome;
    /// Ends a pending call whose client no longer wants the answer.
    fn cancel(&mut self, call_id: u32);
}
