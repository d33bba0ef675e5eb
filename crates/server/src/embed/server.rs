//! The handle to a server, for the program that embeds it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use frevo_index::{Cursor, Query};
use frevo_net::buffer::{self, budget};
use frevo_net::cores::{Cores, CoresConfig};
use frevo_net::file_io::{self, IoRoad};
use frevo_net::frame_reader::FrameReader;
use frevo_net::transport::Stream;
use frevo_rpc::fsrvp::ShadowCopySets;
use frevo_store::Name;
use frevo_store::name::Rules;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    CaptureData, CaptureStream, CaptureTarget, IntoListeners, Kick, Kicked, Limits, Metrics,
    NotCaptured, RateStatus, Reload, ServerBuilder, ServerStatus, ShareSpace, ShareStatus, Status,
    StatusQuery, probe, snapshot,
};
use crate::audit::{Audit, Operations, ShareAudit};
use crate::base::limits::{CHANGES_SHARE, DESCRIPTORS_WARN, DOMAIN_NAMES_AT_START};
use crate::connection::{self, Accepted};
use crate::ipc::tcp::{self, Port as RpcPort};
use crate::objects::braked;
use crate::objects::capture_stream::{self, Wanted};
use crate::objects::durable::{handover, owning};
use crate::objects::kick;
use crate::objects::own_password::{NotOwn, OwnPassword};
use crate::objects::review::Reviewed;
use crate::objects::server::ServerState;
use crate::objects::shadow_copies::{self, Snapshotter};
use crate::serve::{Listeners, RpcListeners, serve};
use crate::shares::index::{FoundPage, SearchError};
use crate::shares::share::{Share, Shares, Target};
use crate::shares::target_servers::TargetServer;

/// A server; its clones are handles to the same server.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use std::sync::Arc;
/// use frevo_server::{Server, UserList, vfs};
///
/// let server = Server::builder()
///     .share("data", vfs::memory(64 << 20))
///     .accounts(Arc::new(UserList::new().user("ann", "secret")))
///     .build()?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:4450").await?;
/// let serving = tokio::spawn({
///     let server = server.clone();
///     async move { server.serve(listener).await }
/// });
/// tokio::signal::ctrl_c().await?;
/// server.stop();
/// serving.await?
/// # }
/// ```
#[derive(Clone)]
pub struct Server(Arc<Inner>);

/// A connection that is being served. It stays on the thread that it was made on.
pub type Connection = Pin<Box<dyn Future<Output = io::Result<()>>>>;

struct Inner {
    state: Arc<ServerState>,
    /// The operations that are events on shares that do not say so themselves.
    audited: Operations,
    limits: Mutex<Limits>,
    cores_config: CoresConfig,
    /// The listeners of RPC over TCP, until the server serves them.
    rpc: Mutex<Option<RpcListeners>>,
    /// Started and not yet serving.
    cores: Mutex<Option<Cores>>,
    /// The part of the process's buffers that this server may take.
    buffers: budget::Part,
    /// The time to drain, once the server is to stop.
    stop: watch::Sender<Option<Duration>>,
}

impl Server {
    /// Returns a builder: default settings, no shares, no accounts.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    pub(super) fn new(
        builder: ServerBuilder,
        shares: Shares,
        audit: Option<Audit>,
    ) -> io::Result<Self> {
        let ServerBuilder {
            settings,
            accounts,
            kerberos,
            limits,
            ambient,
            audited,
            state_store,
            handover_store,
            share_editor,
            account_directory,
            domain_logons,
            domain_directory,
            key_source,
            cores,
            seat,
            storage_lost,
            cluster_names,
            ..
        } = builder;
        let state = ServerState::new(settings, shares, accounts, ambient);
        state.kerberos.set(kerberos);
        audit.into_iter().for_each(|audit| state.audit.set(audit));
        state.cluster.begin(seat, cluster_names, storage_lost);
        account_directory.into_iter().for_each(|one| _ = state.account_directory.set(one));
        domain_logons.into_iter().for_each(|way| state.domain_logons.set(way));
        key_source.into_iter().for_each(|source| state.kerberos.set_source(source));
        if let Some(directory) = domain_directory {
            state.domain_names.start(directory)?;
        }
        share_editor.into_iter().for_each(|editor| _ = state.share_editor.set(editor));
        if let Some(limit) = limits.descriptors {
            limit_descriptors(&state, limit);
        }
        let inner = Inner {
            buffers: budget::Part::new(limits.memory),
            state,
            audited,
            limits: Mutex::new(limits),
            cores_config: cores,
            rpc: Mutex::new(None),
            cores: Mutex::new(None),
            stop: watch::Sender::new(None),
        };
        let server = Self(Arc::new(inner));
        server.apply_limits();
        server.state().watch_lives();
        if let Some(store) = state_store {
            let count = owning::restore(server.state(), store).map_err(io::Error::other)?;
            if count > 0 {
                tracing::info!(target: "frevo::durable", count,
                    "restored persistent handles; their files stay open for the clients");
            }
            server.state().start_scavenger();
        }
        if let Some(store) = handover_store {
            let count = handover::take_up(server.state(), store).map_err(io::Error::other)?;
            if count > 0 {
                tracing::info!(target: "frevo::durable", count,
                    "took up durable handles that the stopped server left; their clients go on");
            }
            server.state().start_scavenger();
        }
        Ok(server)
    }

    fn apply_limits(&self) {
        let Inner { state, limits, buffers, .. } = &*self.0;
        let limits = limits.lock();
        limits.apply(&state.ledger);
        buffers.set(limits.memory);
        frevo_net::rdma::set_registered_max(limits.memory);
        state.files.watches.set_limit(limits.memory / CHANGES_SHARE);
    }

    /// Waits until names of domains in rules of shares have been asked for, but not longer than a
    /// few seconds. Returns the names that are not resolved: while they are not, rules that deny
    /// something to them refuse all users of domains.
    #[doc(hidden)]
    pub fn resolve_names(&self) -> Vec<String> {
        self.0.state.domain_names.wait(DOMAIN_NAMES_AT_START)
    }

    /// Tells the health and the addresses of servers that links of namespaces lead to, in place of all that was
    /// told before: referrals have targets whose servers fail last, and those in the client's site first. The
    /// server itself asks nobody.
    pub fn set_target_servers(&self, servers: impl IntoIterator<Item = TargetServer>) {
        self.0.state.target_servers.set(servers);
    }

    /// Serves the clients of `listeners` until [`Self::stop`] is called and what was begun
    /// has ended, or the drain time is over.
    ///
    /// The core threads that carry out requests are the server's own. The returned future
    /// accepts connections; any tokio runtime can run it. A server serves once.
    ///
    /// # Errors
    /// When a listener cannot be watched, the core threads cannot be started, or the server
    /// serves already (`AlreadyExists`). The failure of a client is no error.
    pub async fn serve(&self, listeners: impl IntoListeners) -> io::Result<()> {
        let listeners = listeners.into_listeners()?;
        self.start_cores()?;
        let cores = self.0.cores.lock().take();
        let Some(cores) = cores else {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the server serves already"));
        };
        let connections_max = self.0.limits.lock().connections;
        let mut asked = self.0.stop.subscribe();
        let stop = async move {
            let drain = asked.wait_for(Option::is_some).await.map(|drain| *drain);
            // `self` holds the sender, so `wait_for` cannot fail because of a closed channel.
            drain.ok().flatten().unwrap_or_default()
        };
        let listeners = Listeners { smb: listeners, rpc: self.0.rpc.lock().take() };
        let names = Arc::clone(&self.0.state).follow_names();
        let accounts = Arc::clone(&self.0.state).follow_directory();
        let serving = serve(Arc::clone(&self.0.state), listeners, cores, connections_max, stop);
        tokio::select! {
            () = serving => {}
            () = names => {}
            () = accounts => {}
        }
        Ok(())
    }

    /// Serves remote procedure calls over TCP, too, once [`Self::serve`] is called: the interfaces
    /// at `interfaces`, which all listen at `port`, and the endpoint mapper at `endpoint_mapper`.
    /// Clients log on with the accounts of the server and sign or encrypt their calls; the endpoint
    /// mapper answers everybody.
    ///
    /// # Errors
    /// When a listener cannot be watched.
    pub fn serve_rpc(
        &self,
        port: u16,
        interfaces: impl IntoListeners,
        endpoint_mapper: impl IntoListeners,
    ) -> io::Result<()> {
        let (interfaces, mapper) =
            (interfaces.into_listeners()?, endpoint_mapper.into_listeners()?);
        *self.0.rpc.lock() = Some(RpcListeners { interfaces, mapper, port });
        Ok(())
    }

    /// Starts the core threads, unless they run. [`Self::serve`] does so too; a program
    /// that gives up rights in between calls it before.
    ///
    /// # Errors
    /// When a thread cannot be made.
    pub fn start_cores(&self) -> io::Result<()> {
        let mut started = self.0.cores.lock();
        let has_served = self.0.state.watchdog.is_running();
        if started.is_some() || has_served {
            return Ok(());
        }
        let cores = Cores::start(&self.0.cores_config)?;
        let bytes = self.0.limits.lock().pool_of_each(cores.handles().len());
        for core in cores.handles() {
            core.spawn(move || async move { buffer::set_pool_retained_max(bytes) });
        }
        *started = Some(cores);
        drop(started);
        Ok(())
    }

    /// Returns how file data moves: `io_uring`, or `threads` and why not io_uring. It is
    /// known between [`Self::start_cores`] and [`Self::serve`].
    pub async fn file_io(&self) -> Option<String> {
        let core = self.0.cores.lock().as_ref()?.handles().first()?.clone();
        Some(match core.run(|| async { file_io::road() }).await? {
            (IoRoad::Ring, _) => String::from("io_uring"),
            (IoRoad::Threads, why) => format!("threads: {why}"),
        })
    }

    /// Serves one connection on the calling thread, for programs that accept connections
    /// themselves. The future ends with the connection; it belongs on a
    /// [`LocalSet`](tokio::task::LocalSet).
    ///
    /// The caller bounds the number of connections: `Limits::connections` counts those of
    /// [`Self::serve`].
    ///
    /// # Errors
    /// `ConnectionRefused` when too many clients have not logged on, or memory is full.
    pub fn serve_connection(&self, stream: impl Into<Stream>) -> io::Result<Connection> {
        let stream = stream.into();
        let ticket =
            self.0.state.admit(stream.peer_addr()?.ip()).ok_or(io::ErrorKind::ConnectionRefused)?;
        let mut reader = FrameReader::new(frevo_net::limits::FRAME_BYTES_MAX);
        reader.accept_session_request();
        let accepted = Accepted { stream, reader, first: None, ticket };
        Ok(Box::pin(connection::run(Arc::clone(&self.0.state), accepted)))
    }

    /// Serves one connection of RPC on the calling thread, as [`Self::serve_connection`] does.
    ///
    /// # Errors
    /// `ConnectionRefused` when too many clients have not logged on, or memory is full.
    #[doc(hidden)]
    pub fn serve_rpc_connection(
        &self,
        stream: impl Into<Stream>,
        port: RpcPort,
    ) -> io::Result<Connection> {
        let (stream, state) = (stream.into(), &self.0.state);
        let ticket =
            state.admit(stream.peer_addr()?.ip()).ok_or(io::ErrorKind::ConnectionRefused)?;
        if port == RpcPort::Interfaces {
            let _ = state.rpc_port.set(stream.local_addr()?.port());
        }
        let served = tcp::serve(Arc::clone(state), stream, ticket, port);
        Ok(Box::pin(async move {
            served.await;
            Ok(())
        }))
    }

    /// Tells [`Self::serve`] to stop: it accepts nothing more, requests under way end
    /// within `Limits::drain`, then every session ends and every file is closed. The call
    /// does not wait; the future of `serve` ends when all is done.
    pub fn stop(&self) {
        let drain = self.0.limits.lock().drain;
        self.stop_within(drain);
    }

    /// Stops as [`Self::stop`] does, with another time for requests under way.
    pub fn stop_within(&self, drain: Duration) {
        self.0.stop.send_replace(Some(drain));
    }

    /// Changes a running server. Sessions and uses of shares that the change no longer allows end;
    /// their numbers are returned.
    pub fn reload(&self, change: Reload) -> Reviewed {
        let Reload { settings, shares, accounts, kerberos, limits } = change;
        let state = &self.0.state;
        if let Some(new) = limits {
            let mut limits = self.0.limits.lock();
            let Limits { connections, drain, pool_per_core, descriptors, .. } = *limits;
            *limits = Limits { connections, drain, pool_per_core, descriptors, ..new };
            drop(limits);
            self.apply_limits();
        }
        if let Some(kerberos) = kerberos {
            state.kerberos.set(kerberos);
        }
        if settings.is_none() && shares.is_none() && accounts.is_none() {
            return Reviewed::default();
        }
        let settings = settings.unwrap_or_else(|| (*state.settings()).clone());
        let shares = match shares {
            Some(shares) => Shares::following(self.audited(shares), &state.shares()),
            None => Shares::clone(&state.shares()),
        };
        let accounts = accounts.unwrap_or_else(|| state.accounts());
        let reviewed = state.reload(settings, &shares, accounts);
        state.watch_lives();
        if let Err(fault) = owning::restore_new(state) {
            tracing::error!(target: "frevo::durable", %fault,
                "cannot read the persistent handles of a share that was made continuous");
        }
        reviewed
    }

    /// Serves shadow copies of shares over the network (MS-FSRVP), of which `hands` makes the snapshots. `sets`
    /// are those of an earlier run, whose shares are served again. It may block, and works once.
    ///
    /// # Errors
    /// There is no thread.
    #[doc(hidden)]
    pub fn serve_shadow_copies(
        &self,
        hands: Arc<dyn Snapshotter>,
        sets: ShadowCopySets,
    ) -> io::Result<()> {
        shadow_copies::agent::begin(&self.0.state, hands, sets)
    }

    /// The shares, those with the audit log that do not say what of them is recorded.
    fn audited(&self, mut shares: Vec<Share>) -> Vec<Share> {
        let Inner { state, audited, .. } = &*self.0;
        if let Some(audit) = state.audit.get() {
            for share in shares.iter_mut().filter(|share| share.audit.is_none()) {
                share.audit = Some(ShareAudit { audit: audit.clone(), operations: *audited });
            }
        }
        shares
    }

    /// Carries out a part of a search in the index of a share, as [`FoundPage`] tells, for an administrator of the
    /// host: no file is hidden. `folder` is a path in the share, with `\` between names. It may wait for the share's
    /// disk.
    ///
    /// # Errors
    /// There is no such share, folder or index, or the query has too many conditions.
    #[doc(hidden)]
    pub fn search(
        &self,
        share: &str,
        folder: &str,
        query: &Query,
        after: Option<Cursor>,
        most: usize,
    ) -> Result<FoundPage, SearchError> {
        let shares = self.0.state.shares();
        let share = shares.find(share).filter(|share| share.life.takes_new());
        let searcher = share.and_then(|share| share.administrators_searcher());
        let searcher = searcher.ok_or(SearchError::NoIndex)?;
        let folder = Name::parse(folder, Rules::Windows).map_err(|_| SearchError::NoFolder)?;
        searcher.search(&folder, query, after, most)
    }

    /// True from the time when [`Self::serve`] accepts connections until [`Self::stop`].
    pub fn is_serving(&self) -> bool {
        self.0.state.watchdog.is_running() && self.0.stop.borrow().is_none()
    }

    /// Returns numbers about the server as it is now.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.0.state)
    }

    /// Returns the state of sessions, shares, Opens, locks and leases. The data path goes on
    /// meanwhile.
    pub fn status(&self, query: &StatusQuery) -> Status {
        snapshot::collect(&self.0.state, query)
    }

    /// Returns the part of a status that is about the server itself. It looks at no session and at
    /// no Open, so that it may be asked for often.
    pub fn overview(&self) -> ServerStatus {
        snapshot::server_status(&self.0.state)
    }

    /// Returns the shares with the numbers of their uses.
    pub fn share_status(&self) -> Vec<ShareStatus> {
        snapshot::shares(&self.0.state)
    }

    /// Returns the limits of rate, with the requests that they hold back.
    pub fn rate_status(&self) -> Vec<RateStatus> {
        snapshot::rates(&self.0.state)
    }

    /// Returns the names of all shares with folders.
    pub fn disk_shares(&self) -> Vec<String> {
        let shares = self.0.state.shares().sorted();
        let disks = shares.iter().filter(|share| matches!(share.target, Target::Disk(_)));
        disks.map(|share| share.name.clone()).collect()
    }

    /// Looks at the folder of a share, and returns its space or the reason why it is not usable.
    /// None when there is no such share, or it has no folder. It waits as long as the file system
    /// does: not for a core.
    pub fn probe_share(&self, name: &str) -> Option<Result<ShareSpace, String>> {
        probe::share(&self.0.state, name)
    }

    /// Ends the sessions, Opens or uses of a share that `whom` names; `by` says in the logs on
    /// whose behalf. A client whose session ended may log on again.
    pub async fn kick(&self, whom: &Kick, by: &str) -> Kicked {
        kick::kick(&self.0.state, whom, kick::Administrator { name: by, ground: None }).await
    }

    /// Changes the password of a user who knows the present one, which may be too old for a logon. A wrong
    /// one counts as a failed logon, and is answered as late as one.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    #[doc(hidden)]
    pub async fn change_own_password(&self, wanted: OwnPassword) -> Result<(), NotOwn> {
        self.0.state.change_own_password(wanted).await
    }

    /// Lets go of clients that the brake of a share has hold of
    /// ([`Share::brake`](crate::Share::brake)): of a user, a session or a share. Returns their number; `by`
    /// says in the logs on whose behalf.
    pub fn release(&self, whom: &Kick, by: &str) -> usize {
        braked::release(&self.0.state, whom, by)
    }

    /// Captures the messages that `target` names, until the stream is dropped, or has ended; `by` says in the
    /// logs on whose behalf. The stream has the blocks of a pcapng file of at most `bytes`, with so much of the
    /// `data` of files, and without the secrets of logons unless `keeps_secrets` is set.
    ///
    /// # Errors
    /// When there is a capture already, or no memory for one.
    pub fn capture(
        &self,
        target: CaptureTarget,
        bytes: u64,
        data: CaptureData,
        keeps_secrets: bool,
        by: &str,
    ) -> Result<CaptureStream, NotCaptured> {
        capture_stream::begin(&self.0.state, target, &Wanted { bytes, data, keeps_secrets, by })
    }

    /// Ends the [capture](Self::capture) under way: its stream has the messages that wait, and its end. Returns false if
    /// there is none.
    pub fn end_capture(&self) -> bool {
        self.0.state.captures.end_any()
    }

    /// Returns the audit log, if there is one: to add events, to rotate its files, and to
    /// write what is queued at the end.
    pub fn audit(&self) -> Option<&Audit> {
        self.0.state.audit.get()
    }

    /// Returns the state that all connections share, for tests and the simulator.
    #[doc(hidden)]
    pub fn state(&self) -> &Arc<ServerState> {
        &self.0.state
    }
}

/// Sets the number of descriptors that the process may have.
fn limit_descriptors(state: &ServerState, limit: usize) {
    state.descriptors.set_limit(limit);
    let for_opens = state.descriptors.for_opens();
    if limit < DESCRIPTORS_WARN {
        tracing::warn!(target: "frevo::server", limit, for_opens,
            "only few files can be open at a time; raise the hard limit (LimitNOFILE, ulimit -Hn)");
    } else {
        tracing::info!(target: "frevo::server", limit, for_opens, "the process may have this many file descriptors");
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("state", &self.0.state).finish_non_exhaustive()
    }
}
