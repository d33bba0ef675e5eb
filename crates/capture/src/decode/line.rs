//! A message in plain words.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use frevo_wire::{Command, Header, Status};

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The time at which its last byte was seen, nanoseconds since 1970. None if the file has no times.
    pub time_ns: Option<u64>,
    /// Number of its connection in the file, from 1 on.
    pub connection: u32,
    /// True if the server sent it.
    pub is_of_server: bool,
    /// True if it is an answer.
    pub is_answer: bool,
    /// Its command, or the form of a frame that cannot be read.
    pub command: String,
    /// The status of an answer.
    pub status: Option<Status>,
    /// Its MessageId.
    pub message_id: Option<u64>,
    /// Its session; 0 for none.
    pub session_id: u64,
    /// Its tree connect.
    pub tree_id: Option<u32>,
    /// Its AsyncId.
    pub async_id: Option<u64>,
    /// Time from the request to this answer, nanoseconds.
    pub latency_ns: Option<u64>,
    /// The file, the share or the server that it is about; empty for none.
    pub name: String,
    /// Bytes of the message.
    pub bytes: u64,
    /// Bytes of a file that it moves, or is to move.
    pub data_bytes: Option<u64>,
    /// Bytes of the message that are not in the file.
    pub cut_bytes: u64,
    /// Credits that a request costs.
    pub credit_charge: u16,
    /// Credits that a request asks for, or an answer grants.
    pub credits: u16,
    /// True for a request that is the replay of an earlier one.
    pub is_replay: bool,
    /// Its content.
    pub text: String,
    /// Explanations: of leases, credits, replays and of what is unusual.
    pub notes: Vec<String>,
}

impl Line {
    /// Says how much of the message is not in the file.
    pub(super) fn note_cut(&mut self, header: &Header) {
        if self.cut_bytes == 0 {
            return;
        }
        let has_data = matches!(header.command, Command::READ | Command::WRITE);
        let subject = if has_data { "data cut" } else { "cut" };
        let space = if self.text.is_empty() { "" } else { " " };
        self.text = format!("{}{space}({subject}: {} bytes)", self.text, self.cut_bytes);
    }
}
