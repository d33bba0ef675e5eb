//! Facts that earlier messages tell about later ones: names of files and shares, requests that wait for their
//! answers, leases and credits. All of it is bounded.

use alloc::collections::BTreeMap;
use alloc::string::String;

use frevo_wire::create_context::{LeaseKey, LeaseState};
use frevo_wire::{Command, FileId, Header, Status};

use super::line::Line;
use crate::limits::{NAMES, REQUESTS};

/// The facts that a decoder remembers.
#[derive(Debug, Default)]
pub(super) struct State {
    requests: BTreeMap<(u32, u64), Asked>,
    files: BTreeMap<(u64, FileId), String>,
    shares: BTreeMap<(u64, u32), String>,
    leases: BTreeMap<LeaseKey, Leased>,
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

    /// Remembers a request.
    pub(super) fn ask(&mut self, line: &Line, header: &Header, asked: Asked) {
        if self.requests.len() < REQUESTS {
            self.requests.insert((line.connection, header.message_id), asked);
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
        self.requests.remove(&key)
    }

    /// Returns the request that a CANCEL names.
    pub(super) fn cancelled(&self, line: &Line, header: &Header) -> Option<&Asked> {
        self.requests.get(&(line.connection, header.message_id))
    }

    pub(super) fn name_file(&mut self, session_id: u64, id: FileId, name: &str) {
        if self.files.len() < NAMES {
            self.files.insert((session_id, id), name.into());
        }
    }

    /// Returns the name of an open file: that of the message before it for a related request.
    pub(super) fn file(&self, session_id: u64, id: FileId) -> String {
        if id == FileId::ALL_ONES {
            return self.related.clone();
        }
        self.files.get(&(session_id, id)).cloned().unwrap_or_default()
    }

    pub(super) fn close_file(&mut self, session_id: u64, id: FileId) {
        self.files.remove(&(session_id, id));
    }

    pub(super) fn name_share(&mut self, session_id: u64, tree_id: u32, name: &str) {
        if self.shares.len() < NAMES {
            self.shares.insert((session_id, tree_id), name.into());
        }
    }

    pub(super) fn share(&self, session_id: u64, tree_id: u32) -> String {
        self.shares.get(&(session_id, tree_id)).cloned().unwrap_or_default()
    }

    /// Remembers the state of a lease. Returns the state before.
    pub(super) fn lease(&mut self, key: LeaseKey, state: LeaseState, name: &str) -> Option<Leased> {
        let before = self.leases.get(&key).cloned();
        if before.is_some() || self.leases.len() < NAMES {
            let known = before.as_ref().map_or(name, |before| &before.name);
            let name = if name.is_empty() { known } else { name };
            self.leases.insert(key, Leased { state, name: name.into() });
        }
        before
    }

    /// Returns a lease.
    pub(super) fn leased(&self, key: LeaseKey) -> Option<&Leased> {
        self.leases.get(&key)
    }

    /// Counts the credits of a request. Returns those that are left, if they are known.
    pub(super) fn spend(&mut self, connection: u32, header: &Header) -> Option<i64> {
        if header.command == Command::NEGOTIATE && self.credits.len() < NAMES {
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
