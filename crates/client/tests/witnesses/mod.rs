//! A cluster of scripted nodes, each with an address, a server of SMB, an endpoint mapper and a witness.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part")]

use std::collections::HashSet;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frevo_auth::acceptor::Step;
use frevo_auth::{Acceptor, AcceptorConfig, Account, AccountRules, Accounts, NtHash};
use frevo_client::internal::{Dial, Dialing, Resolving};
use frevo_client::{Client, Credentials, Error, Options, ServerName, Share};
use frevo_net::memory;
use frevo_net::transport::Stream;
use frevo_rpc::epm::{self, Address, Epm, Mapper, Registration};
use frevo_rpc::witness::{
    self, HandleReply, InterfaceInfo, InterfaceListReply, InterfaceState, Notification,
    NotifyReply, StatusReply,
};
use frevo_rpc::{Call, Calls, Endpoint, FaultStatus, Outcome, Terms, Verdict, WinError};
use frevo_wire::Command;
use frevo_wire::Status as WireStatus;
use frevo_wire::command::tree_connect::ShareCapabilities;
use frevo_wire::ndr::ContextHandle;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::evil::{Act, Asked, Evil, Manners, Overheard, pending, put};

/// The port of each witness.
const PORT: u16 = 49_152;

/// The time on the clocks of the scripted servers.
const NOW: u64 = 1 << 57;

/// The reaction of a witness to a call.
pub enum Said {
    Answer(Vec<u8>),
    Fault(FaultStatus),
    Later(BoxFuture<'static, Vec<u8>>),
    /// The end of the connection.
    Close,
    Silence,
}

/// A call that a witness got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub node: usize,
    pub opnum: u16,
    pub level: u8,
    pub stub: Vec<u8>,
}

type Behaviour = dyn Fn(&Cluster, &Heard) -> Option<Said> + Send + Sync;

/// The nodes, and the network to them.
pub struct Cluster {
    pub count: usize,
    /// Nodes that DNS knows.
    pub named: usize,
    /// The node that has the share.
    pub owner: AtomicUsize,
    pub capabilities: ShareCapabilities,
    /// True if sessions are encrypted.
    pub seal: bool,
    /// Nodes that take bytes and answer nothing.
    pub silent: Mutex<HashSet<usize>>,
    /// Nodes that answer a READ with an interim response, and fall silent then.
    pub slow: Mutex<HashSet<usize>>,
    /// Lies of the witnesses; None for the reaction of a good one.
    pub behaviour: Box<Behaviour>,
    pub heard: Mutex<Vec<Heard>>,
    /// Connections for RPC, by node and port.
    pub rpc_dials: Mutex<Vec<(usize, u16)>>,
    /// Connections for SMB.
    pub dials: Mutex<Vec<usize>>,
    /// True if no node has RPC.
    pub has_no_rpc: bool,
    /// The password that the witnesses know.
    pub password: Mutex<&'static str>,
    /// Nodes without a witness, though they are told to have one.
    pub bare: HashSet<usize>,
    /// Notifications of each node that nobody has fetched.
    news: Mutex<Vec<(usize, Vec<u8>)>>,
    has_news: Arc<Notify>,
    itself: std::sync::Weak<Self>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

/// The address of a node.
pub fn ip(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, node as u8 + 1))
}

fn node_of(ip: IpAddr) -> Option<usize> {
    match ip {
        IpAddr::V4(ip) if ip.octets()[..3] == [192, 0, 2] => {
            usize::from(ip.octets()[3]).checked_sub(1)
        }
        _ => None,
    }
}

fn pair(node: usize, port: u16) -> (Stream, Stream) {
    let here = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 200).into(), 50_000);
    let there = SocketAddr::new(ip(node), port);
    let (ours, theirs) = memory::pair(1 << 20, [here, there]);
    (Stream::Memory(ours), Stream::Memory(theirs))
}

impl Dial for Cluster {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        let node = server.host.parse().ok().and_then(node_of).filter(|node| *node < self.count);
        let Some(node) = node else {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        };
        self.dials.lock().push(node);
        let cluster = self.itself.upgrade().unwrap();
        Box::pin(async move {
            let (ours, theirs) = pair(node, 445);
            let evil = Evil {
                manners: Arc::new(Manners { seal: cluster.seal, ..Manners::default() }),
                script: Arc::new(move |asked: &Asked<'_>| cluster.answer(node, asked)),
                overheard: Overheard::default(),
                connection: node,
            };
            tokio::spawn(evil.serve(theirs));
            Ok(ours)
        })
    }

    fn addresses<'a>(&'a self, _: &'a ServerName) -> Resolving<'a> {
        let all = (0..self.named).map(|node| ServerName::new(ip(node).to_string()));
        Box::pin(std::future::ready(Ok(all.collect())))
    }

    fn dial_rpc(&self, address: SocketAddr) -> Dialing<'_> {
        let node = node_of(address.ip()).unwrap_or(usize::MAX);
        self.rpc_dials.lock().push((node, address.port()));
        let is_there = node < self.count && !self.has_no_rpc && !self.silent.lock().contains(&node);
        let cluster = self.itself.upgrade().unwrap();
        Box::pin(async move {
            if !is_there {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = pair(node, address.port());
            tokio::spawn(async move {
                let _ = cluster.serve(node, address.port(), theirs).await;
            });
            Ok(ours)
        })
    }
}

impl Cluster {
    pub fn new(count: usize) -> Arc<Self> {
        Self::changed(count, |_| {})
    }

    pub fn changed(count: usize, change: impl FnOnce(&mut Self)) -> Arc<Self> {
        Arc::new_cyclic(|itself| {
            let mut cluster = Self {
                count,
                named: count,
                owner: AtomicUsize::new(0),
                capabilities: ShareCapabilities::CLUSTER
                    | ShareCapabilities::CONTINUOUS_AVAILABILITY
                    | ShareCapabilities::SCALEOUT
                    | ShareCapabilities::ASYMMETRIC,
                seal: false,
                silent: Mutex::default(),
                slow: Mutex::default(),
                behaviour: Box::new(|_, _| None),
                heard: Mutex::default(),
                rpc_dials: Mutex::default(),
                dials: Mutex::default(),
                has_no_rpc: false,
                password: Mutex::new("secret"),
                bare: HashSet::new(),
                news: Mutex::default(),
                has_news: Arc::default(),
                itself: itself.clone(),
            };
            change(&mut cluster);
            cluster
        })
    }

    /// Connects to the share.
    pub async fn share(self: &Arc<Self>, options: Options) -> Result<Share, Error> {
        let options = options.channels(1).recover_for(Duration::from_secs(20));
        let client = Client::with_dialer(options, Arc::clone(self) as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        client.connect("cluster", user).await?.share("data").await
    }

    fn answer(&self, node: usize, asked: &Asked<'_>) -> Act {
        if self.silent.lock().contains(&node) {
            return Act::Silence;
        }
        if asked.header.command == Command::READ && self.slow.lock().contains(&node) {
            self.silent.lock().insert(node);
            return Act::Again(Duration::from_secs(3_600), pending(&asked.header));
        }
        let is_owner = self.owner.load(Ordering::SeqCst) == node;
        let capabilities = self.capabilities.0;
        match asked.header.command {
            Command::NEGOTIATE => Act::Changed(Box::new(move |message| {
                // MS-SMB2 2.2.4: the ServerGuid begins at byte 8 of the body.
                message[72..88].fill(node as u8 + 1);
            })),
            Command::TREE_CONNECT if !is_owner => Act::Refused(WireStatus::BAD_NETWORK_NAME),
            Command::TREE_CONNECT => Act::Changed(Box::new(move |message| {
                // MS-SMB2 2.2.10: Capabilities begin at byte 8 of the body.
                message[72..76].copy_from_slice(&capabilities.to_le_bytes());
            })),
            _ => Act::Honest,
        }
    }

    /// A node tells the client that is registered there, now or later.
    pub fn tell(&self, node: usize, notification: Notification) {
        let status = WinError::SUCCESS;
        let reply = NotifyReply { notification: Some(notification), status };
        self.news.lock().push((node, reply.encode()));
        self.has_news.notify_waiters();
    }

    /// Waits until a witness is registered with, and returns the node; not one that was `before`.
    pub async fn until_registered(&self, before: usize) -> usize {
        loop {
            let waiting = |heard: &Heard| heard.opnum == witness::ASYNC_NOTIFY;
            let found = self.heard.lock().iter().skip(before).find(|heard| waiting(heard)).cloned();
            if let Some(found) = found {
                return found.node;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The calls of this operation so far.
    pub fn heard(&self, opnum: u16) -> Vec<Heard> {
        self.heard.lock().iter().filter(|heard| heard.opnum == opnum).cloned().collect()
    }

    /// The interfaces as a node tells them.
    pub fn interfaces(&self, node: usize) -> Vec<InterfaceInfo> {
        let all = (0..self.count).map(|other| {
            let (name, is_witness) = (format!("NODE{other}"), other != node);
            InterfaceInfo::of(&name, InterfaceState::AVAILABLE, ip(other), is_witness)
        });
        all.collect()
    }

    fn said(&self, heard: &Heard) -> Said {
        if let Some(said) = (self.behaviour)(self, heard) {
            return said;
        }
        let status = WinError::SUCCESS;
        match heard.opnum {
            witness::GET_INTERFACE_LIST => {
                let interfaces = self.interfaces(heard.node);
                Said::Answer(InterfaceListReply { interfaces, status }.encode())
            }
            witness::REGISTER | witness::REGISTER_EX => {
                let handle = ContextHandle([heard.node as u8 + 1; 20]);
                Said::Answer(HandleReply { handle, status }.encode())
            }
            witness::UN_REGISTER => Said::Answer(StatusReply { status }.encode()),
            witness::ASYNC_NOTIFY => Said::Later(self.next_news(heard.node)),
            _ => Said::Fault(FaultStatus::OP_RNG_ERROR),
        }
    }

    fn next_news(&self, node: usize) -> BoxFuture<'static, Vec<u8>> {
        let cluster = self.itself.upgrade().unwrap();
        Box::pin(async move {
            loop {
                let more = cluster.has_news.notified();
                {
                    let mut news = cluster.news.lock();
                    if let Some(at) = news.iter().position(|(of, _)| *of == node) {
                        return news.remove(at).1;
                    }
                }
                more.await;
            }
        })
    }

    async fn serve(&self, node: usize, port: u16, stream: Stream) -> io::Result<()> {
        let is_mapper = port != PORT;
        let is_bare = is_mapper || self.bare.contains(&node);
        let interface = if is_bare { &epm::INTERFACE } else { &witness::INTERFACE };
        let mut endpoint = Endpoint::new(Terms::of_port(vec![interface], port, 7));
        let config = Arc::new(AcceptorConfig::standalone("cluster"));
        let mut acceptor = Acceptor::new(config, [9; 8]);
        let mut calls =
            Served { cluster: self, node, epm: Epm::default(), ends: false, later: vec![] };
        let mut later = FuturesUnordered::new();
        loop {
            let mut piece = [0; 4096];
            tokio::select! {
                biased;
                Some((id, answer)) = later.next() => endpoint.complete(id, Ok(answer)),
                readable = stream.readable() => {
                    readable?;
                    let count = match stream.try_read_vectored(&mut [IoSliceMut::new(&mut piece)]) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        count => count?,
                    };
                    if count == 0 {
                        return Ok(());
                    }
                    let mut bytes = &piece[..count];
                    while !bytes.is_empty() {
                        bytes = endpoint.write(bytes, &mut calls).unwrap_or_default();
                        if let Some(token) = endpoint.token() {
                            endpoint.judge(self.judge(&mut acceptor, &token.token));
                        }
                    }
                }
            }
            for (id, answer) in calls.later.drain(..) {
                later.push(async move { (id, answer.await) });
            }
            while let Some(read) = endpoint.read(usize::MAX) {
                put(&stream, &read.data).await?;
            }
            if calls.ends || endpoint.is_closed() {
                return Ok(());
            }
        }
    }

    fn judge(&self, acceptor: &mut Acceptor, token: &[u8]) -> Verdict {
        match acceptor.step(token, NOW, self) {
            Ok(Step::Continue(answer)) => Verdict::Continue(answer),
            Ok(Step::Done(done)) => {
                let protection = done.protection([3; 16]).map(Box::new);
                Verdict::Done(done.token, protection)
            }
            _ => Verdict::Refused,
        }
    }
}

impl Accounts for Cluster {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        Some(Account {
            nt_hash: NtHash::from_password(&self.password.lock()),
            rules: AccountRules::default(),
            name: user.to_lowercase(),
        })
    }
}

/// One association at a node.
struct Served<'a> {
    cluster: &'a Cluster,
    node: usize,
    epm: Epm,
    ends: bool,
    later: Vec<(u32, BoxFuture<'static, Vec<u8>>)>,
}

impl Mapper for Served<'_> {
    fn random(&self) -> [u8; 16] {
        [5; 16]
    }

    fn registrations(&self) -> Vec<Registration> {
        let address = Address::Tcp { port: PORT, host: [203, 0, 113, 9] };
        vec![Registration { interface: &witness::INTERFACE, address }]
    }
}

impl Calls for Served<'_> {
    fn begin(&mut self, call: &Call) -> Outcome {
        if call.interface == &epm::INTERFACE {
            let mut epm = std::mem::take(&mut self.epm);
            let answer = epm.call(call.opnum, &call.stub, &*self);
            self.epm = epm;
            return answer.into();
        }
        let (node, opnum) = (self.node, call.opnum);
        let heard = Heard { node, opnum, level: call.level.0, stub: call.stub.clone() };
        self.cluster.heard.lock().push(heard.clone());
        match self.cluster.said(&heard) {
            Said::Answer(answer) => Outcome::Ended(Ok(answer)),
            Said::Fault(status) => Outcome::Ended(Err(status)),
            Said::Later(answer) => {
                self.later.push((call.id, answer));
                Outcome::Pending
            }
            Said::Close => {
                self.ends = true;
                Outcome::Pending
            }
            Said::Silence => Outcome::Pending,
        }
    }

    fn cancel(&mut self, _: u32) {}
}
