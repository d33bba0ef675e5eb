//! From the listeners to the cores, and the orderly end.
//!
//! A new connection goes to the core with the fewest. There its first frame is
//! read: a NEGOTIATE names the client, and the connection moves to the core
//! that has the fewest of that client's, so that the channels of one client
//! use many cores and not one.
//!
//! It may touch all rooms below; it hands each connection to `connection::run`.

mod giving_back;
pub(crate) mod idle;

use std::collections::HashMap;
use std::future::{Future, poll_fn, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_net::buffer::Buf;
use frevo_net::cores::{self, CoreHandle, Cores};
use frevo_net::frame_reader::{FrameReader, ReceiveError};
use frevo_net::quic::{self, Decision};
use frevo_net::transport::{Detached, Facts, Listener, Listening, Stream};
use frevo_proto::frame::Stage;
use frevo_wire::command::negotiate;
use frevo_wire::dtyp::Guid;
use futures_util::FutureExt;
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::base::limits::{ACCEPT_PAUSE, NEGOTIATE_DEADLINE, REFUSAL_LOG_INTERVAL, WITNESS_SWEEP};
use crate::base::panics;
use crate::base::surplus::return_surplus;
use crate::base::watchdog::Whose;
use crate::connection::{self, Accepted};
use crate::ipc::tcp::{self, Port};
use crate::objects::admission::{EVICTED, Ticket};
use crate::objects::audited;
use crate::objects::durable::handover;
use crate::objects::ledger::Window;
use crate::objects::server::ServerState;
use crate::shares::recycle;

/// Serves until `stop` completes. Then nothing more is accepted, requests under
/// way are carried out within the time that `stop` returned, every session ends, and with
/// it every Open, so that what was to be deleted on close is. Runs on the caller's
/// runtime, which must not be a core's.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    listeners: Listeners,
    cores: Cores,
    connections_max: usize,
    stop: impl Future<Output = Duration>,
) {
    let door = Arc::new(Door {
        server: Arc::clone(&server),
        cores: cores.handles().to_vec(),
        loads: Arc::new(Loads::new(cores.handles().len())),
        connections_max,
        refusals: Refusals::default(),
    });
    server.watchdog.runs_on(cores.handles().iter().map(|core| Arc::clone(core.polls())).collect());
    let _ = server.listening.set(listeners.smb.iter().map(Listening::of).collect());
    let Listeners { smb, rpc } = listeners;
    let mut accepted: Vec<_> = smb.into_iter().map(|listener| (listener, Served::Smb)).collect();
    if let Some(RpcListeners { interfaces, mapper, port }) = rpc {
        let _ = server.rpc_port.set(port);
        accepted.extend(interfaces.into_iter().map(|it| (it, Served::Rpc(Port::Interfaces))));
        accepted.extend(mapper.into_iter().map(|it| (it, Served::Rpc(Port::Mapper))));
    }
    server.start_scavenger();
    server.start_indexes();
    let mut accepting = JoinSet::new();
    accepting.spawn(idle::watch(Arc::clone(&server)));
    let (ambient, sharing) = (Arc::clone(&server.ambient), Arc::clone(&server));
    accepting.spawn(recycle::watch(ambient, move || sharing.shares().sorted()));
    for (listener, served) in accepted {
        accepting.spawn(accept(Arc::clone(&door), listener, served));
    }
    accepting.spawn(giving_back::give_back(Arc::clone(&server)));
    if server.cluster.seat().is_some() {
        accepting.spawn(sweep_witness(Arc::clone(&server)));
    }
    let drain = stop.await;
    accepting.shutdown().await;
    drop(door);
    // Joining the core threads blocks, so it runs on a blocking thread.
    let stopped = tokio::task::spawn_blocking(move || cores.stop(drain)).await;
    if stopped.is_err() {
        tracing::error!(target: "frevo::connection", "a core thread ended by a panic");
    }
    tracing::debug!(target: "frevo::watchdog", polls = %server.watchdog.polls(),
        "polls by the time that each held its core");
    // A connection closes its own sessions when it ends, so the sessions that are left have no
    // connection. They are closed here.
    for session in server.sessions() {
        panics::contained(|| server.close_session(&session, "the server stops"));
    }
    let deadline = Instant::now() + drain;
    // Closing a large session may run on the blocking pool, so its end is awaited.
    if !server.blocking_pool.settled(deadline).await {
        tracing::error!(target: "frevo::blocking_pool",
            "a long request did not end in time; it was cut off");
    }
    handover::leave(&server).await;
    server.close_waiting();
    for share in server.shares().sorted() {
        if let Some(blocking_pool) = &share.blocking_pool
            && !blocking_pool.settled(deadline).await
        {
            tracing::error!(target: "frevo::blocking_pool", share = %share.name,
                "the file system does not answer; its open files were not closed");
        }
    }
}

/// Ends registrations with the witness that nobody uses, MS-SWN 3.1.5.1.
async fn sweep_witness(server: Arc<ServerState>) {
    loop {
        sleep(WITNESS_SWEEP).await;
        server.witness.expire();
    }
}

/// The listeners of a server.
pub(crate) struct Listeners {
    /// Those of SMB.
    pub(crate) smb: Vec<Listener>,
    /// Those of RPC over TCP, if it is to be served.
    pub(crate) rpc: Option<RpcListeners>,
}

/// The listeners of RPC over TCP.
pub(crate) struct RpcListeners {
    /// Those of the interfaces, all on one port.
    pub(crate) interfaces: Vec<Listener>,
    /// Those of the endpoint mapper.
    pub(crate) mapper: Vec<Listener>,
    /// The port of the interfaces.
    pub(crate) port: u16,
}

/// Bytes of the task of a connection, beside the state machine that serves it, to which it points.
const CONNECTION_TASK_BYTES: usize = 440;

/// The protocol of the connections of a listener.
#[derive(Clone, Copy)]
enum Served {
    Smb,
    Rpc(Port),
}

/// The state that the accepting tasks share.
struct Door {
    server: Arc<ServerState>,
    cores: Vec<CoreHandle>,
    loads: Arc<Loads>,
    connections_max: usize,
    refusals: Refusals,
}

async fn accept(door: Arc<Door>, listener: Listener, served: Served) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // A panic in `admit` is caught, because it must not end the accept loop.
                panics::contained(|| door.admit(stream, peer, served));
            }
            Err(error) => {
                let facts = listener.transport().facts();
                door.refusals.note(|count| tell_unaccepted(&facts, &error, count));
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Tells that a listener cannot accept: where connections have descriptors, for want of those.
fn tell_unaccepted(facts: &Facts, error: &std::io::Error, count: usize) {
    if facts.has_descriptor {
        tracing::error!(target: "frevo::connection", %error, count,
            "cannot accept connections; raise LimitNOFILE or lower limits.connections");
    } else {
        let transport = facts.name;
        tracing::error!(target: "frevo::connection", %error, transport, count,
            "cannot accept connections");
    }
}

impl Door {
    /// Lets a connection in or closes it at once; nothing of it is kept then.
    fn admit(self: &Arc<Self>, mut stream: Detached, peer: SocketAddr, served: Served) {
        if stream.socket().is_some_and(|socket| !self.server.descriptors.admit_connection(socket)) {
            self.refusals.note(|count| {
                tracing::error!(target: "frevo::connection", %peer, count,
                    "refused: too few descriptors are left; raise LimitNOFILE");
            });
            return;
        }
        // A forged address must not put out the connections of its owner.
        if stream.is_unproven() && self.server.admission.is_full_for(peer.ip()) {
            stream.ask_for_proof();
            return;
        }
        let Some(ticket) = self.server.admit(peer.ip()) else {
            let is_full = !self.server.ledger.has_room_for_newcomers();
            let reason = if is_full { "memory" } else { "unauthenticated connections" };
            audited::limit(&self.server, peer, reason);
            self.refusals.note(|count| {
                if is_full {
                    tracing::warn!(target: "frevo::connection", %peer, count,
                        "refused: memory is full; raise limits.memory or find the clients that use most of it");
                    return;
                }
                tracing::warn!(target: "frevo::connection", %peer, count,
                    "refused: too many connections that have not logged on; wait for them or find \
                     out who makes them");
            });
            return;
        };
        if let Some(detached) = stream.quic()
            && !self.count_windows(detached, peer)
        {
            return;
        }
        let Some(place) = self.loads.enter(self.connections_max) else {
            audited::limit(&self.server, peer, "connections");
            self.refusals.note(|count| {
                tracing::warn!(target: "frevo::connection", %peer, count,
                    "refused: as many connections as limits.connections allows");
            });
            return;
        };
        let Some(core) = self.cores.get(place.core) else { return };
        let door = Arc::clone(self);
        match served {
            Served::Smb => core.spawn(move || door.greet(stream, peer, ticket, place)),
            Served::Rpc(port) => core.spawn(move || door.serve_rpc(stream, ticket, place, port)),
        };
    }

    /// Charges the network of a connection of QUIC for its windows. False if that may not have more.
    fn count_windows(&self, detached: &mut quic::Detached, peer: SocketAddr) -> bool {
        let network = self.server.ledger.network(peer.ip());
        let Ok(window) = Window::new(&network, quic::Detached::BYTES) else {
            audited::limit(&self.server, peer, "memory");
            self.refusals.note(|count| {
                tracing::warn!(target: "frevo::connection", %peer, count,
                    "refused: its network has as much memory as it may have; raise limits.memory");
            });
            return false;
        };
        detached.count_in(Arc::new(window));
        true
    }

    /// Serves a connection of RPC on the core that it was given.
    async fn serve_rpc(
        self: Arc<Self>,
        stream: Detached,
        ticket: Ticket,
        place: CoreSlot,
        port: Port,
    ) {
        let Ok(stream) = stream.attach() else { return };
        let server = Arc::clone(&self.server);
        drop(self);
        let Ok(peer) = stream.peer_addr() else { return };
        let watchdog = Arc::clone(&server.watchdog);
        // The future is pinned in a box, so that the function below can poll it as long as the
        // connection lasts.
        let mut served = Box::pin(tcp::serve(server, stream, ticket, port));
        poll_fn(|cx| watchdog.poll(Whose::Peer(peer), || served.as_mut().poll(cx))).await;
        drop(place);
    }

    /// Reads the first frame, and serves the connection on the core for it.
    ///
    /// Not an `async fn`: the state that only the first frame needs is in a box, which is freed before
    /// the connection is served.
    fn greet(
        self: Arc<Self>,
        stream: Detached,
        peer: SocketAddr,
        ticket: Ticket,
        place: CoreSlot,
    ) -> impl Future<Output = ()> {
        let greeted = Box::pin(self.accepted(stream, peer, ticket, place));
        bounded(async move {
            if let Some(served) = greeted.await {
                served.await;
            }
        })
    }

    /// Reads the first frame. Returns the work of serving the connection, unless it ends, or another
    /// core does that work.
    async fn accepted(
        self: Arc<Self>,
        stream: Detached,
        peer: SocketAddr,
        ticket: Ticket,
        mut place: CoreSlot,
    ) -> Option<impl Future<Output = ()>> {
        let facts = stream.transport().facts();
        let stream = match stream.attach() {
            Ok(stream) => stream,
            Err(error) if !facts.moves_data => {
                tracing::debug!(target: "frevo::connection", %peer, %error, "connection lost");
                return None;
            }
            Err(error) => {
                self.refusals.note(|count| {
                    tracing::error!(target: "frevo::connection", %peer, %error, count,
                        "cannot accept an RDMA connection; perhaps `ulimit -l` is too small");
                });
                return None;
            }
        };
        let limit = u32::try_from(Stage::New.frame_limit()).unwrap_or(u32::MAX);
        let mut reader = FrameReader::new(limit);
        reader.accept_session_request();
        let first = self.first_frame(&stream, &mut reader, &ticket, peer).await?;
        if let Some(decision) = stream.quic().and_then(|connection| connection.decision()) {
            audited::certificate(&self.server, peer, &decision);
        }
        let from = place.core;
        place.choose(client_guid(&first), facts.may_change_core);
        let accepted = Accepted { stream, reader, first: Some(first), ticket };
        if place.core == from {
            return Some(serve_one(Arc::clone(&self.server), accepted, peer, place));
        }
        self.hand_over(accepted, peer, place);
        None
    }

    fn hand_over(&self, accepted: Accepted, peer: SocketAddr, place: CoreSlot) {
        let Accepted { stream, reader, first, ticket } = accepted;
        let Some(core) = self.cores.get(place.core) else { return };
        let detached = match stream.detach() {
            Ok(detached) => detached,
            Err(error) => {
                tracing::debug!(target: "frevo::connection", %peer, %error, "connection lost");
                return;
            }
        };
        let server = Arc::clone(&self.server);
        core.spawn(move || {
            bounded(match detached.attach() {
                Ok(stream) => {
                    let accepted = Accepted { stream, reader, first, ticket };
                    Either::Left(serve_one(server, accepted, peer, place))
                }
                Err(error) => {
                    tracing::debug!(target: "frevo::connection", %peer, %error, "connection lost");
                    Either::Right(ready(()))
                }
            })
        });
    }

    async fn first_frame(
        &self,
        stream: &Stream,
        reader: &mut FrameReader,
        ticket: &Ticket,
        peer: SocketAddr,
    ) -> Option<Buf> {
        let frame = tokio::select! {
            frame = timeout(NEGOTIATE_DEADLINE, reader.next(stream)) => frame,
            () = ticket.evicted() => {
                audited::limit(&self.server, peer, EVICTED);
                self.tell_disconnected(peer, EVICTED);
                return None;
            }
            () = cores::stopping() => return None,
        };
        match frame {
            Ok(Ok(frame)) => frame,
            Ok(Err(ReceiveError::Io(error))) => {
                self.note_certificate(peer, &error);
                tracing::debug!(target: "frevo::connection", %peer, %error, "connection lost");
                None
            }
            Ok(Err(error)) => {
                self.server.lines.tell(peer.ip(), |left_out| {
                    tracing::warn!(target: "frevo::connection", %peer, %error, left_out, "disconnected");
                });
                None
            }
            Err(_elapsed) => {
                // The client sent nothing in time. It is probably a port scan, which is not worth a
                // warning.
                let why = "did not negotiate in time";
                tracing::debug!(target: "frevo::connection", %peer, why, "disconnected");
                None
            }
        }
    }

    /// Tells of a client whose certificate keeps it out.
    fn note_certificate(&self, peer: SocketAddr, error: &std::io::Error) {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Decision>());
        let Some(decision) = inner else { return };
        audited::certificate(&self.server, peer, decision);
        self.server.lines.tell(peer.ip(), |left_out| {
            tracing::warn!(target: "frevo::connection", %peer, left_out, "refused: {decision}");
        });
    }

    fn tell_disconnected(&self, peer: SocketAddr, why: &'static str) {
        self.server.lines.tell(peer.ip(), |left_out| {
            tracing::warn!(target: "frevo::connection", %peer, why, left_out, "disconnected");
        });
    }
}

/// Returns the task of a connection, whose state exists as long as the connection.
fn bounded<F: Future<Output = ()>>(task: F) -> F {
    let bytes = size_of_val(&task);
    debug_assert!(bytes <= CONNECTION_TASK_BYTES, "the task of a connection has {bytes} bytes");
    task
}

/// Serves a connection. Not an `async fn`, which would keep copies of `accepted` and of the future that
/// it awaits.
fn serve_one(
    server: Arc<ServerState>,
    accepted: Accepted,
    peer: SocketAddr,
    place: CoreSlot,
) -> impl Future<Output = ()> {
    connection::run(server, accepted).map(move |served| {
        if let Err(error) = served {
            tracing::debug!(target: "frevo::connection", %peer, %error, "connection lost");
        }
        drop(place);
    })
}

/// The ClientGuid of a NEGOTIATE; none before 2.1, and in an SMB1 NEGOTIATE.
fn client_guid(frame: &[u8]) -> Option<Guid> {
    let request = negotiate::Request::parse(frame).ok()?;
    (request.client_guid != Guid::default()).then_some(request.client_guid)
}

/// How many connections each core has, in all and of each client.
#[derive(Debug)]
struct Loads(Mutex<Vec<Load>>);

#[derive(Debug, Default)]
struct Load {
    connections: usize,
    of_client: HashMap<Guid, usize>,
}

/// One connection's place on a core; it is given back when dropped.
struct CoreSlot {
    loads: Arc<Loads>,
    core: usize,
    client: Option<Guid>,
}

impl Loads {
    fn new(cores: usize) -> Self {
        Self(Mutex::new((0..cores).map(|_| Load::default()).collect()))
    }

    /// A place on the core with the fewest connections; none when there are
    /// `most` already.
    fn enter(self: &Arc<Self>, most: usize) -> Option<CoreSlot> {
        let mut loads = self.0.lock();
        if loads.iter().map(|load| load.connections).sum::<usize>() >= most {
            return None;
        }
        let (core, load) = loads.iter_mut().enumerate().min_by_key(|(_, load)| load.connections)?;
        load.connections += 1;
        Some(CoreSlot { loads: Arc::clone(self), core, client: None })
    }
}

impl CoreSlot {
    /// Moves to the core with the fewest connections of `client`, of those to
    /// the one with the fewest in all, of those to the one it is on. A connection that may not
    /// move is counted for the client where it is.
    fn choose(&mut self, client: Option<Guid>, may_move: bool) {
        let mut loads = self.loads.0.lock();
        let Some(load) = loads.get_mut(self.core) else { return };
        load.connections -= 1;
        let of_client = |load: &Load| {
            client.and_then(|client| load.of_client.get(&client).copied()).unwrap_or(0)
        };
        let here = self.core;
        let best = loads
            .iter_mut()
            .enumerate()
            .filter(|(core, _)| may_move || *core == here)
            .min_by_key(|(core, load)| (of_client(load), load.connections, *core != here));
        let Some((core, load)) = best else { return };
        load.connections += 1;
        if let Some(client) = client {
            *load.of_client.entry(client).or_default() += 1;
        }
        self.core = core;
        self.client = client;
    }
}

impl Drop for CoreSlot {
    fn drop(&mut self) {
        let mut loads = self.loads.0.lock();
        let Some(load) = loads.get_mut(self.core) else { return };
        load.connections = load.connections.saturating_sub(1);
        let Some(client) = self.client else { return };
        if let Some(count) = load.of_client.get_mut(&client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                load.of_client.remove(&client);
                return_surplus(&mut load.of_client);
            }
        }
    }
}

/// A flood of refusals is one line a second, with their number.
#[derive(Debug, Default)]
struct Refusals(Mutex<(usize, Option<Instant>)>);

impl Refusals {
    fn note(&self, log: impl FnOnce(usize)) {
        let mut state = self.0.lock();
        let (count, last) = &mut *state;
        *count += 1;
        let now = Instant::now();
        if last.is_some_and(|last| now.duration_since(last) < REFUSAL_LOG_INTERVAL) {
            return;
        }
        *last = Some(now);
        let count = std::mem::take(count);
        drop(state);
        log(count);
    }
}

#[cfg(test)]
mod tests;
