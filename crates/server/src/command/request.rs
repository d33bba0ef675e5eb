//! One request on its way through a handler: MS-SMB2 3.3.1.13.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use frevo_net::buffer::Buf;
use frevo_net::file_io::{self, run_blocking};
use frevo_proto::Dialect;
use frevo_proto::credit::check_credit_charge;
use frevo_store::FileCell;
use frevo_store::lease::{Actor, Cause};
use frevo_wire::Header;
use frevo_wire::Status;

use crate::base::pools::blocking_pool::CallPermits;
use crate::base::pools::closer::{self, Ended};
use crate::base::rates::Pace;
use crate::base::under_way::UnderWay;
use crate::connection::Connection;
use crate::objects::cancellation::Cancellation;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::data::{self, MemoryWait};
use crate::objects::lease::{self, Contender};
use crate::objects::open::{FileOpen, Open};
use crate::objects::server::ServerState;
use crate::objects::session::Session;
use crate::objects::shown::Shown;
use crate::objects::tree_connect::TreeConnect;

/// A request whose session, tree connect and Open have been found, as far as
/// its row in the command table demands them.
pub(crate) struct Request<'a> {
    /// The facts of the connection that it came in on.
    pub connection: &'a Arc<ConnectionInfo>,
    /// The connection itself; none on another thread than its core's.
    pub owner: Option<&'a Connection>,
    /// Header of the request.
    pub header: Header,
    /// The whole message from the header to its end; body parsers take this.
    pub message: &'a [u8],
    /// The same message where it may go to a thread without a copy.
    pub whole: Option<&'a Arc<Buf>>,
    /// The session that the header names.
    pub session: Option<Arc<Session>>,
    /// The tree connect that the header names.
    pub tree: Option<Arc<TreeConnect>>,
    /// The Open that the FileId names.
    pub open: Option<Arc<Open>>,
    /// Request.IsEncrypted
    pub encrypted: bool,
    /// The data of a WRITE that came by RDMA, for its handler to take.
    pub fetched: Cell<Option<Buf>>,
    /// Not part of a compound: its payload may travel without a copy.
    pub alone: bool,
    /// Nothing but its response will be in a frame: data in it may be compressed.
    pub compressible: bool,
    /// The state of a file that earlier requests of its compound have shown.
    pub shown: Option<&'a Shown>,
    /// Bytes that the body of the response may take, so that the whole
    /// compound's response stays within what was negotiated.
    pub room: usize,
    /// The way in which it waits for memory.
    pub memory_wait: MemoryWait,
    /// The cancellation of the request.
    pub cancellation: Cancellation,
    /// Time that its core has worked on it.
    pub busy: Cell<Duration>,
    /// Its way through the limits of rate.
    pub(crate) pace: Pace,
}

impl Request<'_> {
    /// Fails when the share of the request is not served here any more: asked before each change of a
    /// file that follows a wait. The client gets no answer, and finds the owner of the share.
    pub(crate) fn still_served(&self) -> Result<(), Status> {
        let is_served = self.tree.as_ref().is_none_or(|tree| tree.is_served());
        if is_served { Ok(()) } else { Err(Status::SERVER_UNAVAILABLE) }
    }

    /// Waits until its session, tree connect or Open ends, for which no request is to wait then.
    pub(crate) async fn given_up(&self) {
        tokio::select! {
            () = given_up(self.session.as_ref().map(|session| &session.under_way)) => {}
            () = given_up(self.tree.as_ref().map(|tree| &tree.under_way)) => {}
            () = given_up(self.open.as_ref().map(|open| &open.under_way)) => {}
        }
    }

    /// Returns the server of the connection.
    pub(crate) fn server(&self) -> &Arc<ServerState> {
        &self.connection.server
    }

    /// Writes a log line about the client with `write`, unless there were too many of them.
    /// See [`Lines::tell`](crate::base::lines::Lines::tell).
    pub(crate) fn tell(&self, write: impl FnOnce(Option<u64>)) {
        self.connection.tell(write);
    }

    /// Connection.Dialect
    pub(crate) fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    /// True when client and server have agreed on the POSIX extensions, and the share has them.
    pub(crate) fn has_posix_extensions(&self) -> bool {
        self.connection.negotiated().is_ok_and(|negotiated| negotiated.posix)
            && self.tree().is_ok_and(|tree| tree.share.has_posix())
    }

    /// The connection, for the handlers that `command::row` keeps on its core.
    pub(crate) fn owner(&self) -> Result<&Connection, Status> {
        debug_assert!(self.owner.is_some(), "{} left its core", self.header.command);
        self.owner.ok_or(Status::INTERNAL_ERROR)
    }

    /// The session; its row says that there is one.
    pub(crate) fn session(&self) -> Result<&Arc<Session>, Status> {
        self.session.as_ref().ok_or(Status::USER_SESSION_DELETED)
    }

    /// The tree connect; its row says that there is one.
    pub(crate) fn tree(&self) -> Result<&Arc<TreeConnect>, Status> {
        self.tree.as_ref().ok_or(Status::NETWORK_NAME_DELETED)
    }

    /// The Open; its row says that there is one.
    pub(crate) fn open(&self) -> Result<&Arc<Open>, Status> {
        self.open.as_ref().ok_or(Status::FILE_CLOSED)
    }

    /// Runs a call that may take long on another thread. One user cannot have all of these threads.
    ///
    /// # Errors
    /// CANCELLED when the client cancels before the call has begun; a call that has begun is
    /// carried out.
    pub(crate) async fn beside_core<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        if file_io::stays() {
            // The request already runs on a thread of a blocking pool, so the call may block here.
            return Ok(call());
        }
        let permits = self.call_permits().await?;
        let done = run_blocking(move || {
            let _permits = permits;
            call()
        });
        done.await.map_err(|error| data::status(&error))
    }

    /// Waits for the permits of a call that may take long, for the user of the session.
    ///
    /// # Errors
    /// CANCELLED when the client cancels or has gone.
    pub(crate) async fn call_permits(&self) -> Result<CallPermits, Status> {
        let identity = self.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
        let permits = self.server().blocking_pool.call_permits(&identity.user);
        // The future is boxed, so that the requests that do not wait need no memory for its state.
        let permits = Box::pin(self.cancellation.unless_told(permits));
        let permits = permits.await.ok_or(Status::CANCELLED)??;
        self.still_served()?;
        Ok(permits)
    }

    /// Runs a lookup of the host's names on a thread that may wait, as
    /// [`HostUsers::naming`](crate::access::host_users::HostUsers::naming) does.
    ///
    /// # Errors
    /// IO_TIMEOUT when the host does not answer, CANCELLED when the client cancels or has gone; a lookup
    /// that has begun continues.
    pub(crate) async fn naming<T: Send + 'static>(
        &self,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let identity = self.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
        let named = self.server().host_users.naming(&identity.user, ask);
        // A client that has gone leaves its place in the line. The future is boxed, so that other
        // requests need no memory for its state.
        let named = Box::pin(self.cancellation.unless_told(named));
        named.await.ok_or(Status::CANCELLED)?
    }

    /// Waits for files that are being closed, after a call that found no space and was begun when closes
    /// `before` had ended. Returns true if the call may find some now; false also when the client cancels or
    /// has gone.
    ///
    /// The future is boxed, so that other requests need no memory for its state.
    pub(crate) fn has_freed(&self, before: Ended) -> Pin<Box<dyn Future<Output = bool> + '_>> {
        let freed = closer::has_freed(before);
        Box::pin(async move { self.cancellation.unless_told(freed).await == Some(true) })
    }

    /// Breaks what others cache of a file and `cause` is about to invalidate, and waits where
    /// MS-FSA 2.1.4.12 waits. CANCELLED when the client gives up.
    pub(crate) fn contend(
        &self,
        file: &FileOpen,
        cause: Cause,
    ) -> impl Future<Output = Result<(), Status>> {
        let contender = Contender { cell: Arc::clone(&file.cell), id: file.id, cause };
        lease::contend(self.server(), &self.cancellation, contender)
    }

    /// Waits until nobody is giving back anything. Then it is to be asked again.
    pub(crate) fn settled(
        &self,
        cell: &FileCell,
        actor: Actor,
    ) -> impl Future<Output = Result<(), Status>> {
        lease::settled(&self.cancellation, cell, actor)
    }

    /// True if nobody on the way can read the request: SMB or the transport has encrypted it.
    pub(crate) fn is_sealed(&self) -> bool {
        self.encrypted || self.connection.accepts_transport_security()
    }

    /// True for a response without signature and seal: its file data may go to the socket
    /// without entering user space.
    pub(crate) fn response_is_bare(&self) -> bool {
        self.alone
            && !self.encrypted
            && !self.header.flags.contains(frevo_wire::HeaderFlags::SIGNED)
    }

    /// MS-SMB2 3.3.5.2.5: fails unless the credits charged cover `bytes` of
    /// payload or of the largest response asked for.
    pub(crate) fn check_charge(&self, bytes: u32) -> Result<(), Status> {
        let multi_credit = self.connection.supports_multi_credit();
        check_credit_charge(multi_credit, self.header.credit_charge, bytes, 0)
    }
}

async fn given_up(under_way: Option<&Arc<UnderWay>>) {
    match under_way {
        Some(under_way) => under_way.given_up().await,
        None => std::future::pending().await,
    }
}
