//! The protocols of services that scan files for viruses, as state machines without I/O: clamd's stream
//! protocol ([`clamd`]) and ICAP ([`icap`]).
//!
//! A caller sends what [`Machine::next_output`] returns, and gives what it receives to
//! [`Machine::handle_input`], which returns the verdict once it is there. All sizes of the service's
//! answers are bounded here, however it behaves; time is the caller's.

mod clamd;
mod icap;

use std::fmt;

pub(crate) use clamd::{ClamdScan, ClamdVersion};
pub(crate) use icap::{IcapOptions, IcapPlace, IcapScan, Offer};

/// Longest name of a virus, bytes.
const NAME_BYTES: usize = 128;

/// The verdict about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing was found.
    Clean,
    /// A virus of this name was found.
    Infected(String),
    /// The service lets the file not pass, and names no virus: it may have another reason.
    Blocked,
}

/// The reason for which a service gives no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It refuses this file, with these words.
    Refused(String),
    /// Its answer makes no sense, or is too long.
    Malformed(&'static str),
    /// It closed the connection before it answered.
    Closed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(words) => write!(f, "it answers: {words}"),
            Self::Malformed(what) => f.write_str(what),
            Self::Closed => f.write_str("it closed the connection"),
        }
    }
}

/// A part of an exchange that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The next bytes of the file, at most so many, as [`Machine::frame`] frames them.
    Data(usize),
    /// Nothing until more is received.
    Nothing,
}

/// One exchange with a service.
pub(crate) trait Machine {
    /// Its result.
    type Result;

    /// Returns the next part to send. Each call moves on, but for [`Output::Data`], which
    /// [`Self::frame`] answers.
    fn next_output(&mut self) -> Output;

    /// Frames the next bytes of the file, of which `is_last` are the last ones; `bytes` may be empty then.
    fn frame(&mut self, bytes: &[u8], is_last: bool) -> Vec<u8>;

    /// Takes received bytes. None while the answer is not complete.
    fn handle_input(&mut self, bytes: &[u8]) -> Result<Option<Self::Result>, Refusal>;

    /// Takes the end of the connection.
    fn handle_end(&mut self) -> Result<Self::Result, Refusal> {
        Err(Refusal::Closed)
    }
}

/// Text of a service without control characters, of bounded length.
fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = text.trim().chars().map(|c| if c.is_control() { '?' } else { c });
    let mut out = String::new();
    for c in plain {
        if out.len() + c.len_utf8() > NAME_BYTES {
            break;
        }
        out.push(c);
    }
    out
}
