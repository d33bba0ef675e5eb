//! The use of SMB Direct, of QUIC and of compression in a run, and the owners of its shares.

use std::net::SocketAddr;
use std::sync::Arc;

use frevo_client::internal::{Dial, Dialers, Dialing, Preferring, Resolving};
use frevo_client::{Dialect, Options, ServerName, Signing};
use frevo_net::transport::{Dialer, Transport};
use frevo_proto::protection::Compression;
use frevo_server::settings;
use frevo_wire::negotiate_context::{CompressionAlgorithm, CompressionCapabilityFlags};
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::network::{Network, Road};

/// The runs with SMB Direct, percent.
const SHARE: u64 = 25;

/// The runs in which shares change their owners, percent.
const MOVING: u64 = 25;

/// The runs with QUIC, percent of those whose shares stay where they are.
const INTERNET: u64 = 14;

/// The runs with compression, percent.
const SQUEEZED: u64 = 30;

/// The use of SMB Direct in a run: which servers listen for RDMA, and which clients dial so. And of QUIC, and
/// shares that change their owners, and whose data is compressed.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// None for a run over TCP alone.
    direct: Option<Direct>,
    /// True if the shares of each server go from one process to another.
    moves_shares: bool,
    /// True if the shares compress.
    squeezes: bool,
    /// True if servers listen for QUIC.
    has_quic: bool,
    dice: Dice,
}

#[derive(Debug, Clone, Copy)]
struct Direct {
    /// Payload from which data moves by RDMA, bytes.
    from: u32,
    /// True if sessions need not sign: data moves without a transform then.
    is_open: bool,
    /// True if each server listens for RDMA each time that it starts.
    is_constant: bool,
}

/// The way in which a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// TCP alone.
    Tcp,
    /// SMB Direct where it reaches the server, else TCP.
    Auto,
    /// SMB Direct alone.
    Required,
    /// QUIC alone.
    Quic,
    /// TCP where it reaches the server, else QUIC. The client's provider blocks TCP now and then.
    TcpThenQuic,
}

impl Scenario {
    /// Chooses the use of SMB Direct with random numbers of its own: runs over TCP alone do not
    /// depend on them.
    /// `moves` decides if shares change their owners, `squeezes` if they compress.
    pub fn new(mut dice: Dice, mut moves: Dice, mut squeezes: Dice) -> Self {
        let moves_shares = moves.percent(MOVING);
        let direct = dice.percent(SHARE).then(|| Direct {
            from: *dice.pick(&[1, 1, 256, 4_096]),
            is_open: dice.percent(50),
            is_constant: dice.percent(50),
        });
        let squeezes = squeezes.percent(SQUEEZED);
        Self { direct, moves_shares, squeezes, has_quic: false, dice }
    }

    /// Decides if servers listen for QUIC as well. Processes that share a machine have one UDP port, so shares
    /// that go from one to another stay without.
    #[must_use]
    pub fn with_quic(self, mut dice: Dice) -> Self {
        let has_quic = dice.percent(INTERNET) && !self.moves_shares;
        Self { has_quic, ..self }
    }

    /// Returns true if servers listen for QUIC.
    pub const fn has_quic(&self) -> bool {
        self.has_quic
    }

    /// Returns a run over TCP alone, whose shares stay where they are as far as the scenario knows.
    pub const fn over_tcp(dice: Dice) -> Self {
        Self { direct: None, moves_shares: false, squeezes: false, has_quic: false, dice }
    }

    /// Returns true if the shares of each server go from one process to another.
    pub const fn moves_shares(&self) -> bool {
        self.moves_shares
    }

    /// Returns true if the shares compress.
    pub const fn squeezes(&self) -> bool {
        self.squeezes
    }

    /// Chooses the compression that a client offers; None for one that wants none.
    pub fn compression(&self, mut dice: Dice) -> Option<Compression> {
        let is_wanted = self.squeezes && dice.percent(80);
        let mut ids: Vec<_> = Compression::ALL.ids().filter(|_| dice.percent(50)).collect();
        if ids.is_empty() {
            ids.push(*dice.pick(&[CompressionAlgorithm::LZ77, CompressionAlgorithm::PATTERN_V1]));
        }
        let flags = match dice.percent(50) {
            true => CompressionCapabilityFlags::CHAINED,
            false => CompressionCapabilityFlags::EMPTY,
        };
        Compression::common(flags, &ids).filter(|_| is_wanted)
    }

    /// Returns the scenario of a machine, with random numbers of its own.
    pub const fn of_machine(&mut self) -> Self {
        Self { dice: Dice::new(self.dice.next(), 0), ..*self }
    }

    /// Returns true if a server that starts now listens for RDMA.
    pub fn listens(&mut self) -> bool {
        match self.direct {
            Some(direct) => direct.is_constant || self.dice.percent(75),
            None => false,
        }
    }

    /// Returns true if there is RDMA in this run.
    pub const fn has_rdma(&self) -> bool {
        self.direct.is_some()
    }

    /// Returns the scenario of devices that come and go, if they do.
    pub fn of_devices(&self, mut dice: Dice) -> Option<Self> {
        let is_so = self.has_rdma() && dice.percent(40);
        is_so.then_some(Self { dice, ..*self })
    }

    /// Returns the signing that a server asks for.
    pub fn signing(&self) -> settings::Signing {
        let is_open = self.direct.is_some_and(|direct| direct.is_open);
        if is_open { settings::Signing::Offered } else { settings::Signing::Required }
    }

    /// Chooses the way in which a client connects. The dice are those of QUIC.
    pub fn way(&mut self, mut quic: Dice) -> Way {
        let way = match self.direct {
            None => Way::Tcp,
            Some(direct) => match self.dice.below(10) {
                0..2 => Way::Tcp,
                2..4 if direct.is_constant => Way::Required,
                _ => Way::Auto,
            },
        };
        match quic.below(10) {
            0..5 if self.has_quic => Way::Quic,
            5..7 if self.has_quic => Way::TcpThenQuic,
            _ => way,
        }
    }

    /// Takes RDMA devices of servers away for a while, until the weather clears up.
    pub async fn lose_devices(mut self, network: Arc<Network>, servers: u64, until: Instant) {
        while Instant::now() < until {
            sleep(self.dice.millis(100, 15_000)).await;
            let server = usize::try_from(self.dice.below(servers)).unwrap_or(0);
            network.set_device(server, false);
            sleep(self.dice.millis(5, 8_000)).await;
            network.set_device(server, true);
        }
    }

    /// Changes the options of a client for the run.
    pub fn adapt(&mut self, options: Options) -> Options {
        let Some(direct) = self.direct else { return options };
        let options = options.rdma_from(direct.from);
        if direct.is_open && self.dice.percent(70) {
            options.sign(Signing::WhenAsked).require_signing(false)
        } else {
            options
        }
    }
}

impl Way {
    /// Changes the options of a client that connects so: QUIC has the newest dialect alone.
    pub fn adapt(self, options: Options) -> Options {
        match self {
            Self::Quic | Self::TcpThenQuic => options.newest(Dialect::Smb311),
            Self::Tcp | Self::Auto | Self::Required => options,
        }
    }

    /// Returns what connects a client so, by the rules of the shipped program.
    pub fn dialer(self, network: &Arc<Network>, client: usize) -> Arc<dyn Dial> {
        let order: &[Transport] = match self {
            Self::Tcp => &[Transport::Memory],
            Self::Auto => &[Transport::Rdma, Transport::Memory],
            Self::Required => &[Transport::Rdma],
            Self::Quic => &[Transport::Quic],
            Self::TcpThenQuic => &[Transport::Memory, Transport::Quic],
        };
        let is_blocked = self == Self::TcpThenQuic;
        let road = |transport: &Transport| {
            let (network, transport) = (Arc::clone(network), *transport);
            let road = Road { network, client, transport, is_blocked };
            (transport, Arc::new(Dialer::Memory(Arc::new(road))) as _)
        };
        let dialers = Dialers::new(order.iter().map(road));
        Arc::new(WithCalls { dialers, network: Arc::clone(network), client })
    }
}

/// The dialers of a client, and its way to remote procedure calls.
#[derive(Debug)]
struct WithCalls {
    dialers: Dialers,
    network: Arc<Network>,
    client: usize,
}

impl Dial for WithCalls {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        self.dialers.dial(server)
    }

    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        self.dialers.addresses(server)
    }

    fn prefer<'a>(&'a self, servers: &'a [ServerName]) -> Preferring<'a> {
        self.dialers.prefer(servers)
    }

    fn dial_further<'a>(&'a self, server: &'a ServerName, transport: Transport) -> Dialing<'a> {
        self.dialers.dial_further(server, transport)
    }

    fn dial_rpc(&self, address: SocketAddr) -> Dialing<'_> {
        Box::pin(self.network.connect_for_rpc(self.client, address))
    }

    fn knows_addresses(&self) -> bool {
        self.dialers.knows_addresses()
    }
}
