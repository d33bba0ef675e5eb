//! Facts that earlier messages tell about later ones: names of files and shares, requests that wait for their
//! answers, leases and credits. All of it is bounded.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use frevo_wire::create_context::{LeaseKey, LeaseState};
use frevo_wire::{Command, FileId, Header, Status};

use super::line::Line;
use crate::limits::{FLOWS, NAMES_BYTES};

/// The address of a server.
type Server = Option<SocketAddr>;

/// Bytes that an entry costs beside its name.
const ENTRY_BYTES: usize = 160;

/// The facts that a decoder remembers.
#[derive(Debug, Default)]
pub(super) struct State {
    requests: BTreeMap<(u32, u64), Asked>,
    /// Names by server, session and FileId.
    files: BTreeMap<(Server, u64, FileId), String>,
    /// Names by server, session and TreeId.
    shares: BTreeMap<(Server, u64, u32), String>,
    leases: BTreeMap<(Server, LeaseKey), Leased>,
    /// Bytes of all names, and of the entries that have them.
    bytes: usize,
    /// The server of the frame that is looked at.
    pub(super) server: Server,
    /// Credits that the client of a connection has, as far as its first message was seen.
    credits: BTreeMap<u32, i64>,
    /// The file that the message before it in the frame is about.
    pub(super) related: String,
}

/// A request that waits for its answer.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) time_ns: Option<u64>,
    pub(super) command: Command,
    pub(super) name: String,
    pub(super) file_id: Option<FileId>,
    pub(super) lease_key: Option<LeaseKey>,
    pub(super) is_replay: bool,
    /// True once the server has said that it will answer later.
    pub(super) is_put_off: bool,
}

/// A lease.
#[derive(Debug, Clone)]
pub(super) struct Leased {
    pub(super) state: LeaseState,
    pub(super) name: String,
}

impl State {
    /// A connection begins: the credits of one before it with its number are void.
    pub(super) fn begin(&mut self, connection: u32) {
        self.credits.remove(&connection);
    }

    /// A part of a connection is missing: its credits are not known any more.
    pub(super) fn lose(&mut self, connection: u32) {
        self.credits.remove(&connection);
    }

    pub(super) fn begin_frame(&mut self) {
        self.related.clear();
    }

    /// A connection has ended: its requests get no answers.
    pub(super) fn end(&mut self, connection: u32) {
        self.credits.remove(&connection);
        let of_connection = (connection, 0)..=(connection, u64::MAX);
        let ended: Vec<_> = self.requests.range(of_connection).map(|(key, _)| *key).collect();
        for key in ended {
            let asked = self.requests.remove(&key);
            self.refund(asked.as_ref().map(|asked| &asked.name));
        }
    }

    /// Takes the bytes of an entry from the budget. Returns false if they are not there.
    fn pay(&mut self, name: &str) -> bool {
        let bytes = self.bytes.saturating_add(cost(name));
        let is_there = bytes <= NAMES_BYTES;
        if is_there {
            self.bytes = bytes;
        }
        is_there
    }

    /// Gives the bytes of an entry back.
    fn refund(&mut self, name: Option<&String>) {
        self.bytes = self.bytes.saturating_sub(name.map_or(0, |name| cost(name)));
    }

    /// Remembers a request.
    pub(super) fn ask(&mut self, line: &Line, header: &Header, asked: Asked) {
        if self.pay(&asked.name) {
            let before = self.requests.insert((line.connection, header.message_id), asked);
            self.refund(before.as_ref().map(|before| &before.name));
        }
    }

    /// Returns the request of an answer; `is_final` forgets it.
    pub(super) fn asked(&mut self, line: &Line, header: &Header) -> Option<Asked> {
        let key = (line.connection, header.message_id);
        if header.status == Status::PENDING && line.async_id.is_some() {
            let asked = self.requests.get_mut(&key)?;
            let before = asked.clone();
            asked.is_put_off = true;
            return Some(before);
        }
        let asked = self.requests.remove(&key);
        self.refund(asked.as_ref().map(|asked| &asked.name));
        asked
    }

    /// Returns the request that a CANCEL names.
    pub(super) fn cancelled(&self, line: &Line, header: &Header) -> Option<&Asked> {
        self.requests.get(&(line.connection, header.message_id))
    }

    pub(super) fn name_file(&mut self, session_id: u64, id: FileId, name: &str) {
        if self.pay(name) {
            let before = self.files.insert((self.server, session_id, id), name.into());
            self.refund(before.as_ref());
        }
    }

    /// Returns the name of an open file: that of the message before it for a related request.
    pub(super) fn file(&self, session_id: u64, id: FileId) -> String {
        if id == FileId::ALL_ONES {
            return self.related.clone();
        }
        self.files.get(&(self.server, session_id, id)).cloned().unwrap_or_default()
    }

    pub(super) fn close_file(&mut self, session_id: u64, id: FileId) {
        let name = self.files.remove(&(self.server, session_id, id));
        self.refund(name.as_ref());
    }

    pub(super) fn name_share(&mut self, session_id: u64, tree_id: u32, name: &str) {
        if self.pay(name) {
            let before = self.shares.insert((self.server, session_id, tree_id), name.into());
            self.refund(before.as_ref());
        }
    }

    pub(super) fn share(&self, session_id: u64, tree_id: u32) -> String {
        self.shares.get(&(self.server, session_id, tree_id)).cloned().unwrap_or_default()
    }

    /// Remembers the state of a lease. Returns the state before.
    pub(super) fn lease(&mut self, key: LeaseKey, state: LeaseState, name: &str) -> Option<Leased> {
        let key = (self.server, key);
        let before = self.leases.get(&key).cloned();
        let known = before.as_ref().map_or(name, |before| &before.name);
        let name = String::from(if name.is_empty() { known } else { name });
        if self.pay(&name) {
            self.leases.insert(key, Leased { state, name });
            self.refund(before.as_ref().map(|before| &before.name));
        }
        before
    }

    /// Returns a lease.
    pub(super) fn leased(&self, key: LeaseKey) -> Option<&Leased> {
        self.leases.get(&(self.server, key))
    }

    /// Counts the credits of a request. Returns those that are left, if they are known.
    pub(super) fn spend(&mut self, connection: u32, header: &Header) -> Option<i64> {
        if header.command == Command::NEGOTIATE && self.credits.len() < FLOWS {
            // MS-SMB2 3.2.4.1.6: a client begins with one credit.
            self.credits.insert(connection, 1);
        }
        let credits = self.credits.get_mut(&connection)?;
        if header.command != Command::CANCEL {
            *credits = credits.saturating_sub(i64::from(header.credit_charge.max(1)));
        }
        Some(*credits)
    }

    /// Counts the credits of an answer. Returns those that there are now, if they are known.
    pub(super) fn grant(&mut self, connection: u32, header: &Header) -> Option<i64> {
        let credits = self.credits.get_mut(&connection)?;
        *credits = credits.saturating_add(i64::from(header.credits));
        Some(*credits)
    }
}

/// Bytes that an entry with a name costs.
fn cost(name: &str) -> usize {
    name.len().saturating_add(ENTRY_BYTES)
}
