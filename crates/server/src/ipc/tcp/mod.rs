//! Remote procedure calls over TCP, ncacn_ip_tcp: MS-RPCE 2.1.1.1.
//!
//! A connection carries one association. Its client authenticates in the RPC binds with an account
//! of the server, and its calls are signed or sealed; the endpoint mapper alone answers everybody.
//! One task serves a connection on its core; calls run beside the core.

mod counts;
mod logon;
mod works;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use frevo_net::cores;
use frevo_net::transport::Stream;
use frevo_rpc::AuthLevel;
use tokio::time::{Instant, sleep_until, timeout};

use super::peer::Peer;
use super::services::{CallEnds, Caller};
use super::table::{self, Association};
use crate::base::limits::{
    ASSOCIATION_BYTES, ASSOCIATION_READ_BYTES, AUTHENTICATE_DEADLINE, RPC_ANSWER_DEADLINE,
    RPC_IDLE, RPC_MAPPER_IDLE, RPC_MESSAGE_DEADLINE, RPC_WAIT_LOOK,
};
use crate::objects::admission::{EVICTED, Ticket};
use crate::objects::audited;
use crate::objects::pipe::PipeEnd;
use crate::objects::rpc_connections::{Entered, RpcConnection};
use crate::objects::server::ServerState;
use crate::objects::session::Identity;
use crate::objects::settings::Encryption;
use counts::Counts;
use logon::User;
use works::Works;

/// The port that a client has connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The interfaces.
    Interfaces,
    /// The endpoint mapper.
    Mapper,
}

/// Bytes of answers that leave in one call.
const ANSWER_STEP_BYTES: usize = 64 * 1024;

/// The reason for the end of a connection, for the log; None for an end by the client.
type End = Option<&'static str>;

/// Serves a connection until it ends.
pub(crate) async fn serve(server: Arc<ServerState>, stream: Stream, ticket: Ticket, port: Port) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let network = server.ledger.network(peer.ip());
    let Ok(counts) = Counts::of_network(&network) else {
        audited::limit(&server, peer, "RPC connections");
        server.lines.tell(peer.ip(), |left_out| {
            tracing::warn!(target: "frevo::rpc", %peer, left_out,
                "refused: its network has as many RPC connections as it may have");
        });
        return;
    };
    let (id, since) = (server.new_connection_id(), server.ambient.now());
    let entry = RpcConnection::new(id, since, peer, local);
    let entered = Entered::new(&server.rpc_connections, entry);
    let mut connection = Connection {
        peer: Peer::over_tcp(Arc::clone(&server), peer, local),
        association: Some(Box::new(association_of(&server, local, port))),
        stream,
        port,
        ticket: Some(ticket),
        user: None,
        works: Works::default(),
        counts,
        entered,
        input: Vec::new(),
        since: Instant::now(),
        midway_since: None,
    };
    let own = Arc::clone(connection.entered.connection());
    let end = tokio::select! {
        biased;
        () = own.ended() => Some("an administrator ended it"),
        end = connection.run() => end,
    };
    if let Some(why) = end {
        server.lines.tell(peer.ip(), |left_out| {
            tracing::debug!(target: "frevo::rpc", %peer, why, left_out, "RPC connection ended");
        });
    }
    // Only the sending half is shut down, so that the client can still read the last answer.
    let _ = connection.stream.shutdown_write();
}

fn association_of(server: &ServerState, local: SocketAddr, port: Port) -> Association {
    // The client only sends this number back, so any value except zero is valid.
    let group = (server.ambient.random_u64() as u32).max(1);
    match port {
        Port::Mapper => Association::on_mapper(local.port(), group),
        Port::Interfaces => {
            // If clients must encrypt their SMB sessions, they must encrypt their calls on TCP,
            // too.
            let least = match server.settings().encryption {
                Encryption::Required => AuthLevel::PRIVACY,
                _ => AuthLevel::INTEGRITY,
            };
            let offered = table::on_tcp(server.cluster.seat().is_some());
            let has_keys = server.kerberos.service().is_some();
            Association::on_port(offered, local.port(), group, least, has_keys)
        }
    }
}

/// A connection with its association.
struct Connection {
    peer: Peer,
    stream: Stream,
    port: Port,
    /// Its place among the unauthenticated, until its client has logged on.
    ticket: Option<Ticket>,
    /// None while bytes are handled beside the core.
    association: Option<Box<Association>>,
    /// The user, once one has logged on.
    user: Option<User>,
    works: Works,
    /// The charges of the connection, and of the association with all that it holds.
    counts: Counts,
    /// Its place in the list for administrators.
    entered: Entered,
    /// Received bytes that were not handled.
    input: Vec<u8>,
    /// The time of the last PDU; before that, of the connection.
    since: Instant,
    /// The time at which an unfinished PDU or call began.
    midway_since: Option<Instant>,
}

impl Connection {
    async fn run(&mut self) -> End {
        let began = Instant::now();
        loop {
            if let Err(end) = self.turn(began).await {
                return end;
            }
        }
    }

    /// Waits for bytes or for the end of a call, and handles them.
    async fn turn(&mut self, began: Instant) -> Result<(), End> {
        let deadline = self.deadline(began);
        let until = sleep_until(deadline.at);
        tokio::select! {
            biased;
            () = cores::stopping() => return Err(Some("the server stops")),
            () = evicted(self.ticket.as_ref()) => return Err(Some(EVICTED)),
            (call_id, answer) = self.works.next() => {
                // The connection was not idle while the call waited.
                self.since = Instant::now();
                self.association()?.endpoint.complete(call_id, answer);
                self.settle()?;
                return self.flush().await;
            }
            readable = self.stream.readable() => readable.map_err(|_| None)?,
            () = until => return deadline.why.map_or_else(|| self.check_user(), |why| Err(Some(why))),
        }
        let mut bytes = [0; ASSOCIATION_READ_BYTES];
        match self.stream.try_read_vectored(&mut [IoSliceMut::new(&mut bytes)]) {
            Ok(0) => return Err(None),
            Ok(count) => self.input.extend_from_slice(bytes.get(..count).unwrap_or(&[])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(None),
        }
        self.handle_input().await
    }

    /// Handles the bytes that have come, one PDU after the other. The next is not looked at before
    /// the client has taken the answer to the one before.
    async fn handle_input(&mut self) -> Result<(), End> {
        while !self.input.is_empty() {
            let association = self.association.as_deref().ok_or(None)?;
            let count = association.endpoint.until_next(&self.input);
            let rest = self.input.split_off(count.min(self.input.len()));
            let pdu = std::mem::replace(&mut self.input, rest);
            self.write(pdu).await?;
            self.judge().await?;
            self.begin_works()?;
            self.settle()?;
            self.flush().await?;
            if self.association()?.endpoint.is_closed() {
                return Err(Some("the client broke the protocol, or was refused"));
            }
        }
        self.input = Vec::new();
        Ok(())
    }

    fn association(&mut self) -> Result<&mut Association, End> {
        self.association.as_deref_mut().ok_or(Some("the host did not answer in time"))
    }

    /// The ends of its calls.
    const fn ends(&self) -> CallEnds {
        CallEnds { client: self.peer.address, server: self.peer.local.ip(), is_sealed: false }
    }

    /// Gives bytes to the association. Only a user who is logged on can have a call answered that
    /// takes long; it is answered beside the core.
    async fn write(&mut self, bytes: Vec<u8>) -> Result<(), End> {
        self.since = Instant::now();
        let ends = self.ends();
        let user = match &self.user {
            Some(user) if self.port == Port::Interfaces => user,
            _ => {
                let nobody = Arc::new(Identity::nobody());
                let server = Arc::clone(&self.peer.server);
                let caller = Caller::new(&server, &nobody, ends);
                let written = self.association()?.write(&bytes, &caller);
                return written.map(|_| ()).map_err(|_| None);
            }
        };
        user.check(&self.peer)?;
        let mut association = self.association.take().ok_or(None)?;
        let (server, identity) = (Arc::clone(&self.peer.server), Arc::clone(&user.identity));
        let name = identity.user.clone();
        let written = self.peer.server.host_users.naming(&name, move || {
            let caller = Caller::new(&server, &identity, ends);
            let written = association.write(&bytes, &caller).map(|_| ());
            (association, written)
        });
        let (association, written) = tokio::select! {
            biased;
            () = cores::stopping() => return Err(Some("the server stops")),
            written = written => written.map_err(|_| Some("the host did not answer in time"))?,
        };
        self.association = Some(association);
        written.map_err(|_| None)
    }

    /// Ends the connection of a user who may call no longer, also while calls wait for their answers.
    fn check_user(&self) -> Result<(), End> {
        self.user.as_ref().map_or(Ok(()), |user| user.check(&self.peer))
    }

    /// Judges the token that the client has sent, if there is one.
    async fn judge(&mut self) -> Result<(), End> {
        let Some(token) = self.association()?.endpoint.token() else { return Ok(()) };
        let mut exchange = self.association()?.exchange.take();
        let mut ahead = Vec::new();
        let judged = tokio::select! {
            biased;
            () = cores::stopping() => return Err(Some("the server stops")),
            () = evicted(self.ticket.as_ref()) => return Err(Some(EVICTED)),
            judged = logon::judge(&self.peer, &token, &mut exchange) => judged,
            // The logon may take long: a ticket may need newer keys, and an NTLM proof a domain
            // controller. So the end of the connection is watched.
            () = gone(&self.stream, &mut ahead) => return Err(None),
        };
        self.input.extend(ahead);
        let verdict = match judged {
            logon::Judged::Verdict(verdict) => verdict,
            logon::Judged::LoggedOn(user, verdict) => {
                self.enter(*user)?;
                verdict
            }
        };
        let association = self.association()?;
        association.exchange = exchange;
        association.endpoint.judge(verdict);
        Ok(())
    }

    /// Charges the account that has logged on, and gives up the place among the unauthenticated.
    fn enter(&mut self, user: User) -> Result<(), End> {
        let holder = self.peer.server.ledger.account(&user.identity.user);
        if self.counts.move_to(&holder).is_err() {
            audited::limit(&self.peer.server, self.peer.address, "RPC connections");
            return Err(Some("its user has as many RPC connections as it may have"));
        }
        self.ticket = None;
        self.entered.connection().log_on(&user.identity.user);
        self.user = Some(user);
        Ok(())
    }

    /// Begins the work of calls that have asked for it, and ends that of calls which were cancelled.
    fn begin_works(&mut self) -> Result<(), End> {
        let association = self.association.as_deref_mut().ok_or(None)?;
        self.works.keep(|call_id| association.endpoint.pending().any(|id| id == call_id));
        let Some(user) = &self.user else { return Ok(()) };
        for unfinished in std::mem::take(&mut association.unfinished) {
            self.works.begin(unfinished, self.peer.clone(), Arc::clone(&user.identity));
        }
        Ok(())
    }

    /// Charges what the association holds now. One that holds more than its client may have is
    /// told so and ended.
    fn settle(&mut self) -> Result<(), End> {
        let (works, input) = (self.works.bytes(), self.input.capacity());
        let association = self.association.as_deref_mut().ok_or(None)?;
        let held = association.bytes() + works + input;
        if self.counts.resize(ASSOCIATION_BYTES.saturating_add(held)).is_err() {
            association.endpoint.run_out();
            audited::limit(&self.peer.server, self.peer.address, "memory");
        }
        let is_midway = association.endpoint.is_midway();
        self.midway_since = match (is_midway, self.midway_since) {
            (false, _) => None,
            (true, None) => Some(Instant::now()),
            (true, since) => since,
        };
        Ok(())
    }

    /// Sends all answers. The client has to take them in time.
    async fn flush(&mut self) -> Result<(), End> {
        loop {
            let endpoint = &mut self.association.as_deref_mut().ok_or(None)?.endpoint;
            let mut bytes = Vec::new();
            while bytes.len() < ANSWER_STEP_BYTES
                && let Some(read) = endpoint.read(usize::MAX)
            {
                bytes.extend(read.data);
            }
            if bytes.is_empty() {
                return self.settle();
            }
            let sent = timeout(RPC_ANSWER_DEADLINE, write_all(&self.stream, &bytes));
            tokio::select! {
                biased;
                sent = sent => match sent {
                    Ok(sent) => sent.map_err(|_| None)?,
                    Err(_elapsed) => {
                        let why = "the client did not take an answer in time";
                        audited::limit(&self.peer.server, self.peer.address, why);
                        return Err(Some(why));
                    }
                },
                () = cores::stopping() => return Err(Some("the server stops")),
            }
        }
    }

    /// The time at which the connection ends if its client sends nothing more.
    fn deadline(&self, began: Instant) -> Deadline {
        let midway = self.midway_since.map(|since| Deadline {
            at: since + RPC_MESSAGE_DEADLINE,
            why: Some("did not send the rest of a call in time"),
        });
        let idle = match (self.port, &self.user) {
            (Port::Interfaces, None) => {
                Deadline { at: began + AUTHENTICATE_DEADLINE, why: Some("did not log on in time") }
            }
            (Port::Mapper, _) => {
                Deadline { at: self.since + RPC_MAPPER_IDLE, why: Some("was idle") }
            }
            // While a call waits for its answer, the connection does not count as idle. The keep-alive
            // of TCP ends the connection of a client that has gone.
            (Port::Interfaces, Some(_)) if !self.works.is_empty() => {
                Deadline { at: Instant::now() + RPC_WAIT_LOOK, why: None }
            }
            (Port::Interfaces, Some(_)) => {
                Deadline { at: self.since + RPC_IDLE, why: Some("was idle") }
            }
        };
        match midway {
            Some(midway) if midway.at < idle.at => midway,
            _ => idle,
        }
    }
}

/// The time of the end of a connection, and the reason; without a reason, of a look at its user.
struct Deadline {
    at: Instant,
    why: Option<&'static str>,
}

async fn evicted(ticket: Option<&Ticket>) {
    match ticket {
        Some(ticket) => ticket.evicted().await,
        None => std::future::pending().await,
    }
}

/// Waits until the client has ended the connection. What it sends meanwhile is read once, into
/// `ahead`; after that its end is seen when more is read.
async fn gone(stream: &Stream, ahead: &mut Vec<u8>) {
    let mut bytes = vec![0; ASSOCIATION_READ_BYTES];
    while stream.readable().await.is_ok() {
        match stream.try_read_vectored(&mut [IoSliceMut::new(&mut bytes)]) {
            Ok(0) => return,
            Ok(count) => {
                ahead.extend_from_slice(bytes.get(..count).unwrap_or(&[]));
                return std::future::pending().await;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

async fn write_all(stream: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write_vectored(&[IoSlice::new(bytes)], false) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or(&[]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use frevo_net::memory;

    use super::*;

    /// A client that goes while its logon waits is seen; one that sends more is heard, and waited for.
    #[tokio::test]
    async fn the_end_of_a_client_is_seen_while_its_logon_waits() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (client, server) = memory::pair(4096, [address; 2]);
        let (client, server) = (Stream::from(client), Stream::from(server));
        let mut ahead = Vec::new();
        drop(client);
        gone(&server, &mut ahead).await;
        assert!(ahead.is_empty());
        let (client, server) = memory::pair(4096, [address; 2]);
        let (client, server) = (Stream::from(client), Stream::from(server));
        write_all(&client, b"more").await.unwrap();
        tokio::select! {
            biased;
            () = gone(&server, &mut ahead) => panic!("the client is there"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(ahead, b"more");
    }
}
