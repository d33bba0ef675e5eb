//! The transports, and the facts by which servers and clients treat a connection.
//!
//! Code above this crate asks for a fact, never for a transport: a further transport is a row here,
//! an arm of [`Stream`](super::Stream), [`Listener`](super::Listener) and [`Dialer`](super::Dialer),
//! and a line where servers make their listeners and clients choose their dialers.

/// A transport of SMB: MS-SMB2 2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Direct TCP.
    Tcp,
    /// SMB Direct: MS-SMBD.
    Rdma,
    /// SMB over QUIC.
    Quic,
    /// Memory, for tests and the simulator.
    Memory,
    /// Memory that stands for a transport which encrypts by itself, for tests.
    SecureMemory,
}

/// The facts of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The name in messages.
    pub name: &'static str,
    /// The port that servers listen on, and clients connect to, unless they are told another one:
    /// MS-SMB2 1.9. For SMB Direct the device decides:
    /// [`Provider::port`](crate::rdma::Provider::port).
    pub port: u16,
    /// True if every server has the transport. A client names any other one in its errors, and tries
    /// it for a short time only.
    pub is_everywhere: bool,
    /// True if each connection has a descriptor of this process.
    pub has_descriptor: bool,
    /// True if the transport encrypts by itself, so that both sides may agree to leave it to the
    /// transport (Connection.AcceptTransportSecurity, MS-SMB2 3.2.4.2.2.2 and 3.3.5.4). It must also
    /// have proved to the client which server it speaks to.
    pub is_secure: bool,
    /// True if a connection may move to another core after its first frame.
    pub may_change_core: bool,
    /// The way in which a server tells the addresses that it listens on.
    pub interface: InterfaceKind,
    /// True if the data of READ and WRITE may move beside the messages, by RDMA: MS-SMB2 3.3.5.12.
    pub moves_data: bool,
    /// True if Connection.SupportsMultiCredit is TRUE from SMB 2.1 on: MS-SMB2 3.3.5.4.
    pub has_multi_credit: bool,
    /// True if only SMB 3.1.1 is spoken: MS-SMB2 2.1.
    pub is_newest_only: bool,
    /// True if pipes are opened only where the server is told to allow it: MS-SMB2 3.3.5.9.
    pub guards_pipes: bool,
}

/// The way in which FSCTL_QUERY_NETWORK_INTERFACE_INFO tells the addresses of a listener: MS-SMB2
/// 3.3.5.15.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// Each address is an entry.
    Plain,
    /// The entries of these addresses are RDMA_CAPABLE.
    Rdma,
    /// The addresses are not told, and over a connection of the transport none are.
    Untold,
}

impl Transport {
    /// Returns the facts of the transport.
    #[must_use]
    pub const fn facts(self) -> Facts {
        let tcp = Facts {
            name: "TCP",
            port: 445,
            is_everywhere: true,
            has_descriptor: true,
            is_secure: false,
            may_change_core: true,
            interface: InterfaceKind::Plain,
            moves_data: false,
            has_multi_credit: true,
            is_newest_only: false,
            guards_pipes: false,
        };
        match self {
            Self::Tcp => tcp,
            Self::Rdma => Facts {
                name: "SMB Direct",
                is_everywhere: false,
                has_descriptor: false,
                interface: InterfaceKind::Rdma,
                moves_data: true,
                ..tcp
            },
            // MS-SMB2 1.9: UDP port 443, and QUIC encrypts. A client comes from another network, where the
            // addresses of this one mean nothing. MS-SMB2 3.3.5.4 grants several credits to TCP and SMB
            // Direct. Deviation: to QUIC as well, as Samba does; its clients need them.
            Self::Quic => Facts {
                name: "QUIC",
                port: 443,
                is_everywhere: false,
                has_descriptor: false,
                is_secure: true,
                may_change_core: false,
                interface: InterfaceKind::Untold,
                is_newest_only: true,
                guards_pipes: true,
                ..tcp
            },
            Self::Memory => Facts { name: "memory", has_descriptor: false, ..tcp },
            Self::SecureMemory => Facts {
                name: "secure memory",
                port: 443,
                is_everywhere: false,
                has_descriptor: false,
                is_secure: true,
                ..tcp
            },
        }
    }
}
