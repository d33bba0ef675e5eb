//! The server as the bridge knows it: its tree connects and its open files.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frevo_auth::Zeroizing;
use frevo_net::buffer::Buf;
use frevo_smb1::find::{Entry, SearchId};
use frevo_smb1::info::{DosZone, LargeIo};
use frevo_smb1::negotiate::Capabilities;
use frevo_smb1::open::Fid;
use frevo_smb1::tree::Service;
use frevo_smb1::{Charset, Request, Unmappable, session};
use frevo_wire::Status;
use frevo_wire::codec::Malformed;
use frevo_wire::file_id::FileId;
use parking_lot::Mutex;

use super::shares::ListPipe;
use crate::connection::{Answer, Gone};
use crate::logon::{Logon, Reached};

/// A request that was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// The answer is this status.
    Status(Status),
    /// The server is gone, or breaks the protocol.
    Gone,
}

impl From<Gone> for Failed {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Malformed> for Failed {
    fn from(malformed: Malformed) -> Self {
        tracing::debug!(%malformed, "the server broke the protocol");
        Self::Gone
    }
}

impl From<Unmappable> for Failed {
    fn from(why: Unmappable) -> Self {
        tracing::debug!(%why, "a name cannot be sent");
        Self::Status(Status::OBJECT_NAME_INVALID)
    }
}

/// A tree connect.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) number: u16,
    pub(super) service: Service,
    /// The large requests of Samba's Unix extensions that the server agreed on.
    pub(super) large: LargeIo,
    /// The serial number of its volume; None where files have no numbers.
    pub(super) volume: Option<u32>,
}

/// An open file, directory or pipe.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) tree: Arc<Tree>,
    /// The server's Open; None for one that the server need not know, and after the file was closed there.
    pub(super) fid: Mutex<Option<Fid>>,
    /// The path below the share, that begins with `\`.
    pub(super) path: Mutex<String>,
    pub(super) is_directory: bool,
    /// The length as far as it is known.
    pub(super) len: AtomicU64,
    /// True if the file is to be removed when it is closed, and the server does not do that.
    pub(super) removes: AtomicBool,
    /// A pipe that the server does not have, at which the bridge answers.
    pub(super) pipe: Option<ListPipe>,
    pub(super) search: tokio::sync::Mutex<Listing>,
}

/// The state of a listing.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) begun: bool,
    /// The server's search; None at the end.
    pub(super) id: Option<SearchId>,
    /// The last name that the server has sent.
    pub(super) last: String,
    pub(super) waiting: VecDeque<Entry>,
}

impl Open {
    pub(super) fn fid(&self) -> Result<Fid, Failed> {
        self.fid.lock().ok_or(Failed::Status(Status::FILE_CLOSED))
    }

    pub(super) fn path(&self) -> String {
        self.path.lock().clone()
    }

    /// Notes that the file has at least this length.
    pub(super) fn note_len(&self, len: u64) {
        self.len.fetch_max(len, Ordering::Relaxed);
    }
}

/// A server that is reached.
pub(super) struct Server {
    pub(super) reached: Reached,
    pub(super) logon: Arc<Logon>,
    pub(super) host: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The password for shares that have one.
    password: Zeroizing<Vec<u8>>,
    trees: HashMap<u32, Arc<Tree>>,
    opens: HashMap<u64, Arc<Open>>,
    numbers: u64,
}

impl Server {
    pub(super) fn new(reached: Reached, logon: Arc<Logon>, host: String) -> Self {
        Self { reached, logon, host, state: Mutex::default() }
    }

    /// Waits until the server is gone.
    pub(super) async fn ended(&self) {
        self.reached.connection.ended().await;
    }

    pub(super) fn charset(&self) -> Charset {
        self.reached.connection.terms().charset
    }

    pub(super) fn has(&self, capability: Capabilities) -> bool {
        self.reached.has(capability)
    }

    pub(super) const fn zone(&self) -> DosZone {
        DosZone { minutes: self.reached.negotiated.time_zone }
    }

    /// Makes a request, and returns the answer with SUCCESS or the status `also`.
    pub(super) async fn ask_also(
        &self,
        tree: u16,
        request: &Request<'_>,
        also: Status,
    ) -> Result<Answer, Failed> {
        let most = usize::try_from(self.reached.negotiated.max_buffer).unwrap_or(usize::MAX);
        if request.payload.is_empty() && request.message_len() > most {
            // MS-CIFS 2.2.4.52.2: no server takes a message over its MaxBufferSize.
            return Err(Failed::Status(Status::OBJECT_NAME_INVALID));
        }
        good(self.reached.connection.call(tree, request).await?, also)
    }

    /// Makes a request whose payload is part of `frame`, and returns the answer with SUCCESS.
    pub(super) async fn ask_from(
        &self,
        frame: &Arc<Buf>,
        tree: u16,
        request: &Request<'_>,
    ) -> Result<Answer, Failed> {
        let answer = self.reached.connection.call_from(Some(frame), tree, request).await?;
        good(answer, Status::SUCCESS)
    }

    /// Makes a request, and returns the answer with SUCCESS.
    pub(super) async fn ask(&self, tree: u16, request: &Request<'_>) -> Result<Answer, Failed> {
        self.ask_also(tree, request, Status::SUCCESS).await
    }

    pub(super) async fn echo(&self) -> Result<(), Failed> {
        // Whatever the answer says, the server is there.
        self.reached.connection.call(0, &session::echo()).await?;
        Ok(())
    }

    pub(super) fn set_password(&self, password: Zeroizing<Vec<u8>>) {
        self.state.lock().password = password;
    }

    pub(super) fn password(&self) -> Zeroizing<Vec<u8>> {
        self.state.lock().password.clone()
    }

    pub(super) fn add_tree(&self, tree: Tree) -> u32 {
        let number = u32::from(tree.number) + 1;
        self.state.lock().trees.insert(number, Arc::new(tree));
        number
    }

    pub(super) fn tree(&self, number: u32) -> Result<Arc<Tree>, Failed> {
        let found = self.state.lock().trees.get(&number).cloned();
        found.ok_or(Failed::Status(Status::NETWORK_NAME_DELETED))
    }

    pub(super) fn take_tree(&self, number: u32) -> Option<Arc<Tree>> {
        self.state.lock().trees.remove(&number)
    }

    pub(super) fn add_open(&self, open: Open) -> FileId {
        let mut state = self.state.lock();
        state.numbers += 1;
        let number = state.numbers;
        state.opens.insert(number, Arc::new(open));
        FileId { persistent: number, volatile: number }
    }

    pub(super) fn open(&self, id: FileId) -> Result<Arc<Open>, Failed> {
        let found = self.state.lock().opens.get(&id.volatile).cloned();
        found.ok_or(Failed::Status(Status::FILE_CLOSED))
    }

    pub(super) fn take_open(&self, id: FileId) -> Result<Arc<Open>, Failed> {
        let found = self.state.lock().opens.remove(&id.volatile);
        found.ok_or(Failed::Status(Status::FILE_CLOSED))
    }
}

/// Returns an answer with SUCCESS or the status `also`.
fn good(answer: Answer, also: Status) -> Result<Answer, Failed> {
    match answer.status() {
        Status::SUCCESS => Ok(answer),
        status if status == also => Ok(answer),
        status => Err(Failed::Status(status)),
    }
}

/// Returns the Open that a request names, or that of the request before it.
pub(super) fn named(id: FileId, related: Option<FileId>) -> FileId {
    match related {
        Some(file) if id == FileId::ALL_ONES => file,
        _ => id,
    }
}
