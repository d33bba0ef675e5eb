//! Shares: tree connects, which are made again in each new session. MS-SMB2 3.2.4.2.4.

mod attempts;
pub(crate) mod attributes;
pub(crate) mod change;
mod cluster_dialect;
pub(crate) mod compound;
pub(crate) mod dir;
pub(crate) mod identity;
mod leases;
pub(crate) mod lookup;
mod namespace;
mod owner;
mod posix;
mod read_only;
mod replace;
pub(crate) mod set_attributes;
mod small_file_times;
mod snapshot;
mod special_files;
pub(crate) mod tree;
mod tree_connect;
mod undo;
pub(crate) mod watch;
mod whole_file;

pub(crate) use attempts::{Attempts, CHANGES, Replay};

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use frevo_wire::Command;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::oplock_break::LeaseKey;
use frevo_wire::command::tree_connect::ShareType;
use frevo_wire::command::tree_disconnect;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use parking_lot::Mutex;

use crate::Status;
use crate::connection::{Call, Message};
use crate::dfs::{Others, Way};
use crate::error::{Cause, Error, Result};
use crate::metadata::Metadata;
use crate::open::create::{Ask, WireName};
use crate::open::kept::Kept;
use crate::options::Compression;
use crate::path::posix_path;
use crate::refusals::Refusals;
use crate::session::bound::Bound;
use crate::session::link::Transfer;
use crate::session::{Failure, Session};
use crate::share::small_file_times::Dates;
use crate::share::snapshot::Snapshot;

/// A share of a server. Cloning is cheap and gives the same share.
#[derive(Clone)]
pub struct Share {
    pub(crate) inner: Arc<Inner>,
    /// The way to follow DFS links; `None` for a share without.
    pub(crate) way: Option<Arc<Way>>,
    /// The other targets, if [`Client::resolve`](crate::Client::resolve) found the share behind a
    /// DFS link.
    pub(crate) reached: Option<Arc<Others>>,
    /// Mixed into the numbers of its files, if it was found behind a DFS link.
    pub(crate) salt: u64,
    /// The lease on the directory whose names compounds change; they do not break it. Other requests
    /// name no directory.
    pub(crate) directory: Option<LeaseKey>,
    /// The snapshot that all names are looked up in; `None` for the present.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
}

pub(crate) struct Inner {
    /// The session in which it was connected.
    first: Session,
    /// The session that it has alone, after it left the first one for another node of a cluster.
    own: OnceLock<Session>,
    /// True after it was connected: its session knows it.
    is_counted: AtomicBool,
    /// True if it outlives its node, as far as the last connection showed.
    is_continuous: AtomicBool,
    name: String,
    bound: Mutex<Option<Bound>>,
    /// True if Opens in it are POSIX Opens.
    pub(crate) posix: AtomicBool,
    binding: tokio::sync::Mutex<()>,
    /// The order of data and timestamps of small files.
    pub(crate) dates: Dates,
    /// The ways to copy that its file system refused.
    pub(crate) refusals: Refusals,
    /// Its persistent Opens.
    kept: Arc<Kept>,
    /// Each of its Opens has a reference to this.
    pub(crate) opens: Arc<()>,
}

impl Inner {
    /// Returns the session that the share is in.
    pub(crate) fn session(&self) -> &Session {
        self.own.get().unwrap_or(&self.first)
    }
}

impl Drop for Inner {
    /// MS-SMB2 3.2.4.22: disconnects in the background.
    fn drop(&mut self) {
        let Some(bound) = *self.bound.lock() else { return };
        let live = self.session().inner.current();
        let Some(live) = live.filter(|live| live.generation == bound.generation) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // The task holds a copy of the session, which keeps it alive until the request is sent.
        let session = self.session().clone();
        runtime.spawn(async move {
            let call = Call::new(Command::TREE_DISCONNECT, |w| tree_disconnect::Request.encode(w));
            let call = Call { tree_id: bound.tree_id, ..call };
            let _ = live.ask(call, bound.seal, &[]).await;
            drop(session);
        });
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share({})", self.url(""))
    }
}

impl Share {
    /// Connects to a share. Its DFS links are not followed.
    pub(crate) async fn connect(session: Session, name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > 80 || name.contains(['/', '\\', '\0']) {
            let cause = Cause::Usage("this is not a valid name of a share");
            return Err(Error::new(cause, "connect to", name));
        }
        let inner = Inner {
            first: session,
            own: OnceLock::new(),
            is_counted: AtomicBool::new(false),
            is_continuous: AtomicBool::new(false),
            name: name.into(),
            bound: Mutex::new(None),
            posix: AtomicBool::new(false),
            binding: tokio::sync::Mutex::new(()),
            dates: Dates::default(),
            refusals: Refusals::default(),
            kept: Arc::default(),
            opens: Arc::default(),
        };
        let share = Self::over(Arc::new(inner));
        let path = share.url("");
        share.attempts(Replay::Idempotent, "connect to", &path).next().await?;
        Ok(share)
    }

    const fn over(inner: Arc<Inner>) -> Self {
        Self { inner, way: None, reached: None, salt: 0, directory: None, snapshot: None }
    }

    /// Follows DFS links from now on, if the share is part of a namespace.
    pub(crate) fn following(self) -> Self {
        let way = if self.is_dfs() { Way::from(self.session()) } else { None };
        Self { way, ..self }
    }

    /// Returns the number of a file, mixed so that files of other shares behind DFS links have
    /// other numbers.
    pub(crate) fn file_id(&self, id: u64) -> u64 {
        // MS-FSCC 2.1.9: 0 and all ones mean that there is no unique number, so they are not
        // salted.
        if matches!(id, 0 | u64::MAX) { id } else { id ^ self.salt }
    }

    /// Completes the metadata of a file found in this share, perhaps a DFS link, which has
    /// no number of its own: its target may change.
    pub(crate) fn found(&self, metadata: Metadata, is_junction: bool) -> Metadata {
        let file_id = if is_junction { 0 } else { self.file_id(metadata.file_id) };
        Metadata { file_id, is_junction, ..metadata }
    }

    /// Returns its persistent Opens.
    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.inner.kept
    }

    /// Returns the name of the share.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the session that the share belongs to.
    pub fn session(&self) -> &Session {
        self.inner.session()
    }

    /// Returns the URL of a path in the share, for messages.
    pub fn url(&self, path: &str) -> String {
        let path = path.trim_start_matches('/');
        let slash = if path.is_empty() { "" } else { "/" };
        let (before, token) = self.snapshot().map_or(("", ""), |token| ("/", token));
        let session = self.session();
        let (scheme, server, name) =
            (session.options().scheme(), session.server(), &self.inner.name);
        format!("{scheme}{server}/{name}{before}{token}{slash}{path}")
    }

    /// Returns the share as it was in a snapshot: all files that are opened in it are those of that
    /// time, and nothing can be changed. `token` is one of those that [`Self::snapshots`] returns,
    /// such as `@GMT-2024.05.17-10.00.00`. `None` if it is no token. Nothing is sent: a snapshot that
    /// the server does not have is an error of the first operation.
    #[must_use]
    pub fn in_snapshot(&self, token: &str) -> Option<Self> {
        let snapshot = Snapshot::of_token(token)?;
        Some(Self { snapshot: Some(Arc::new(snapshot)), ..self.clone() })
    }

    /// Returns the token of the snapshot that the share is seen in, `None` for the present.
    pub fn snapshot(&self) -> Option<&str> {
        self.snapshot.as_deref().map(Snapshot::token)
    }

    /// The parameters of a CREATE in the snapshot that the share is seen in.
    pub(crate) fn at_its_time(&self, ask: Ask, operation: &str) -> std::result::Result<Ask, Cause> {
        match &self.snapshot {
            Some(snapshot) => snapshot.open(ask, CHANGES.contains(&operation)),
            None => Ok(ask),
        }
    }

    /// Returns the rights that the user has at most in the share.
    pub fn maximal_access(&self) -> crate::AccessMask {
        let bound = *self.inner.bound.lock();
        bound.map_or(AccessMask::EMPTY, |bound| bound.maximal_access).into()
    }

    /// Returns true for a share of a DFS namespace: some of its directories may be links to
    /// other shares and servers, which are followed.
    pub fn is_dfs(&self) -> bool {
        self.inner.bound.lock().is_some_and(|bound| bound.is_dfs)
    }

    /// Returns true for a share of files, false for a printer or IPC$.
    pub fn is_disk(&self) -> bool {
        self.inner.bound.lock().is_some_and(|bound| bound.kind == ShareType::DISK)
    }

    /// Returns true if all requests for the share are encrypted.
    pub(crate) fn is_sealed(&self) -> bool {
        self.inner.bound.lock().is_some_and(|bound| bound.seal)
    }

    /// Returns true if the data of its files is to be compressed where a connection does that.
    pub(crate) fn compresses(&self) -> bool {
        match self.session().options().compression {
            Compression::Off => false,
            Compression::On => true,
            // MS-SMB2 3.2.4.6 and 3.2.4.7: TreeConnect.CompressData
            Compression::Auto => {
                self.inner.bound.lock().is_some_and(|bound| bound.compress)
                    || self.session().inner.link.is_slow()
            }
        }
    }

    /// Begins to measure the way to the server with data that moves as it is; None if nobody needs the
    /// result.
    pub(crate) fn measured(&self) -> Option<Transfer<'_>> {
        if self.session().options().compression != Compression::Auto {
            return None;
        }
        let inner = &self.session().inner;
        let codec = inner.current()?.terms.compression?.codec()?;
        Some(inner.link.begin(codec))
    }

    /// Sends the requests that were held back to leave with the next one.
    #[doc(hidden)]
    pub fn hurry(&self) {
        if let Some(live) = self.session().inner.current() {
            live.hurry();
        }
    }

    /// Ends the session, and the sessions with servers behind DFS links. Open files are closed;
    /// no server keeps them as durable handles.
    pub async fn log_off(self) {
        let mut sessions = self.way.as_ref().map_or_else(Vec::new, |way| way.sessions());
        if !sessions.iter().any(|session| session.is_same(self.session())) {
            sessions.push(self.session().clone());
        }
        if self.inner.own.get().is_some() {
            sessions.push(self.inner.first.clone());
        }
        futures_util::future::join_all(sessions.into_iter().map(Session::log_off)).await;
    }

    /// Begins attempts at an operation. Each gets the present session and tree connect.
    pub(crate) const fn attempts<'a>(
        &'a self,
        replay: Replay,
        operation: &'static str,
        path: &'a str,
    ) -> Attempts<'a> {
        Attempts::new(self, replay, operation, path)
    }

    fn unbind(&self, old: Bound) {
        let mut bound = self.inner.bound.lock();
        if bound.is_some_and(|now| now.tree_id == old.tree_id) {
            *bound = None;
        }
    }

    /// The name in a CREATE: MS-SMB2 3.2.4.3.
    pub(crate) fn named(&self, path: &str, bound: Bound, is_posix: bool) -> WireName {
        if is_posix {
            // A share of a DFS namespace has no POSIX extensions, so the path needs no server and
            // share.
            return WireName { path: posix_path(path), is_dfs: false };
        }
        if !bound.is_dfs {
            return WireName { path: path.to_owned(), is_dfs: false };
        }
        let slash = if path.is_empty() { "" } else { "\\" };
        let host = &self.session().server().host;
        let path = format!("{host}\\{}{slash}{path}", self.inner.name);
        WireName { path, is_dfs: true }
    }
}

/// An FSCTL with its credit cost.
pub(crate) fn fsctl(code: CtlCode, file: FileId, input: &[u8], max_output: u32) -> Call<'static> {
    let cost = max_output.max(u32::try_from(input.len()).unwrap_or(u32::MAX));
    let request = ioctl::Request::fsctl(code, file, input, max_output);
    Call::new(Command::IOCTL, |w| request.encode(w)).cost(cost)
}

/// Returns the message if its status is SUCCESS or one of `also`.
pub(crate) fn good(message: Message, also: &[Status]) -> std::result::Result<Message, Failure> {
    let status = message.status();
    if status == Status::SUCCESS || also.contains(&status) {
        return Ok(message);
    }
    Err(Failure::Final(status.into()))
}
