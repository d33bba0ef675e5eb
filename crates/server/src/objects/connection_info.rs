//! The facts of a connection, which any thread may read.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_net::transport::Transport;
use frevo_proto::protection::Compression;
use frevo_proto::{Dialect, Negotiated as Terms};
use frevo_wire::Status;
use frevo_wire::command::negotiate::{GlobalCapabilities as Capabilities, SecurityMode};
use frevo_wire::dtyp::Guid;

use super::notice::ConnectionHandle;
use crate::objects::ledger::Backlog;
use crate::objects::server::ServerState;
use crate::objects::settings::Settings;

/// The facts of a connection that handlers read, also on other threads.
///
/// The number, the server, the settings, both addresses and the handle hold from the
/// acceptance of the connection until its end. NEGOTIATE adds all of [`Negotiated`] at
/// once: before it [`Self::negotiated`] fails, and afterwards nothing changes. No lock is
/// needed to read any of them.
pub(crate) struct ConnectionInfo {
    /// The number of the connection in logs and in the channel lists of sessions.
    pub id: u64,
    /// Server that accepted the connection.
    pub server: Arc<ServerState>,
    /// The settings at the time of acceptance.
    pub settings: Arc<Settings>,
    /// Address and port of the client.
    pub peer: SocketAddr,
    /// Address and port of the server.
    pub local: SocketAddr,
    /// The transport, whose facts tell how the connection is treated.
    pub transport: Transport,
    /// Sends notices to the core that owns the connection.
    pub handle: ConnectionHandle,
    /// Its memory.
    pub(crate) backlog: Arc<Backlog>,
    is_left: AtomicBool,
    /// Switches that smbtorture sets; see `command::ioctl::test_hooks`.
    #[cfg(feature = "test-hooks")]
    pub test_hooks: TestHooks,
    negotiated: OnceLock<Negotiated>,
}

/// Facts that NEGOTIATE has set for the connection.
#[derive(Debug, Clone)]
pub(crate) struct Negotiated {
    /// Dialect, algorithms and sizes.
    pub terms: Terms,
    /// Connection.ClientGuid
    pub client_guid: Guid,
    /// Connection.ClientDialects
    pub client_dialects: Vec<Dialect>,
    /// Connection.ClientCapabilities
    pub client_capabilities: Capabilities,
    /// Connection.ClientSecurityMode
    pub client_security_mode: SecurityMode,
    /// Connection.ServerCapabilities as sent.
    pub server_capabilities: Capabilities,
    /// Connection.ServerSecurityMode
    pub server_security_mode: SecurityMode,
    /// True when client and server use the POSIX extensions.
    pub posix: bool,
    /// Connection.AcceptTransportSecurity: the transport encrypts, and SMB does not.
    pub accepts_transport_security: bool,
}

impl Negotiated {
    /// Connection.SupportsNotifications
    pub(crate) const fn supports_notifications(&self) -> bool {
        self.server_capabilities.contains(Capabilities::NOTIFICATIONS)
    }
}

/// Faults that a client may switch on when `Settings::test_hooks` is set.
#[cfg(feature = "test-hooks")]
#[derive(Debug, Default)]
pub(crate) struct TestHooks {
    /// Break notifications count as never acknowledged by the transport.
    pub plays_dead: AtomicBool,
    /// READ responses have 8 bytes of padding before their data.
    pub pads_reads: AtomicBool,
}

/// The two ends of a transport connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// Address and port of the client.
    pub peer: SocketAddr,
    /// Address and port of the server.
    pub local: SocketAddr,
    /// The transport between them.
    pub transport: Transport,
}

impl ConnectionInfo {
    /// Facts of a connection that has been accepted.
    pub(crate) fn new(
        id: u64,
        server: Arc<ServerState>,
        settings: Arc<Settings>,
        ends: Ends,
        handle: ConnectionHandle,
    ) -> Self {
        let Ends { peer, local, transport } = ends;
        Self {
            id,
            server,
            settings,
            peer,
            local,
            transport,
            handle,
            backlog: Arc::default(),
            is_left: AtomicBool::new(false),
            #[cfg(feature = "test-hooks")]
            test_hooks: TestHooks::default(),
            negotiated: OnceLock::new(),
        }
    }

    /// Notes that the client sends nothing more, or has gone.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// True once the client sends nothing more, or has gone. Long work whose answer nobody but the
    /// client needs looks at this before each turn, and ends.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }

    /// Results of NEGOTIATE. Fails before it; of the commands that come before NEGOTIATE
    /// none reaches a handler.
    pub(crate) fn negotiated(&self) -> Result<&Negotiated, Status> {
        self.negotiated.get().ok_or(Status::INVALID_PARAMETER)
    }

    /// True once NEGOTIATE has succeeded.
    pub(crate) fn is_negotiated(&self) -> bool {
        self.negotiated.get().is_some()
    }

    /// Adds the results of NEGOTIATE. A second call changes nothing: the connection
    /// refuses a second NEGOTIATE before (MS-SMB2 3.3.5.4).
    pub(crate) fn settle(&self, negotiated: Negotiated) {
        let settled = self.negotiated.set(negotiated);
        debug_assert!(settled.is_ok(), "NEGOTIATE succeeded twice");
    }

    /// True if the data of READ and WRITE may move beside the messages, by RDMA.
    pub(crate) const fn moves_data(&self) -> bool {
        self.transport.facts().moves_data
    }

    /// Connection.Dialect; SMB 2.0.2 before NEGOTIATE.
    pub(crate) fn dialect(&self) -> Dialect {
        self.negotiated.get().map_or(Dialect::SMB_2_0_2, |n| n.terms.dialect)
    }

    /// Connection.CompressionIds; None if nothing is compressed.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.negotiated.get().and_then(|n| n.terms.compression)
    }

    /// True for a dialect of the 3.x family.
    pub(crate) fn is_smb3(&self) -> bool {
        self.negotiated.get().is_some_and(|n| n.terms.is_smb3())
    }

    /// Connection.AcceptTransportSecurity: what must be encrypted or signed needs neither here.
    pub(crate) fn accepts_transport_security(&self) -> bool {
        self.negotiated.get().is_some_and(|n| n.accepts_transport_security)
    }

    /// Connection.SupportsMultiCredit
    pub(crate) fn supports_multi_credit(&self) -> bool {
        self.negotiated.get().is_some_and(|n| n.terms.is_multi_credit)
    }

    /// True when the client runs on the server's machine.
    pub(crate) fn is_same_host(&self) -> bool {
        let peer = self.peer.ip().to_canonical();
        peer.is_loopback() || peer == self.local.ip().to_canonical()
    }

    /// Writes a log line about the client with `write`, unless there were too many of them.
    /// See [`Lines::tell`](crate::base::lines::Lines::tell).
    pub(crate) fn tell(&self, write: impl FnOnce(Option<u64>)) {
        self.server.lines.tell(self.peer.ip(), write);
    }
}
