//! The service witness protocol: clients of other nodes register, and are told what happens to these.

use std::net::Ipv4Addr;
use std::time::Duration;

use frevo_rpc::epm::{self, Address, EptLookup, LookupReply};
use frevo_rpc::handles::encode_handle;
use frevo_rpc::limits::WITNESS_UNUSED;
use frevo_rpc::pdu::{BindAck, ContextResultCode, Header, PduFlags, PduKind, Request, parse_fault};
use frevo_rpc::witness::{
    self, HandleReply, InterfaceFlags, InterfaceListReply, Notification, NotifyReply, Register,
    RegisterEx, RegisterFlags, ResourceState, StatusReply, Version,
};
use frevo_rpc::{AuthLevel, FaultStatus, SyntaxId, WinError};
use frevo_server::internal::limits::{WITNESS_REGISTRATIONS_PER_USER, WITNESS_SWEEP};
use frevo_server::internal::state::Kind;
use frevo_server::{
    ClusterNode, ClusterState, ClusterUnit, Metrics, RpcPort, StatusQuery, WitnessStatus,
};
use frevo_wire::ndr::ContextHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::client::world::{in_world, password};
use crate::client::*;
use crate::nodes::{Node, cluster};
use crate::rpc_peer::{RpcPeer, bind_of, header};

/// Time from the moment when the cluster knows until a registered client has its answer.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The cluster `nas` as `n2` knows it: `n1` has the share `lasting`, and `n3` nothing.
fn office() -> ClusterState {
    let node = |number: u8| ClusterNode {
        name: format!("n{number}"),
        addresses: vec![Ipv4Addr::new(192, 0, 2, number).into()],
        is_leaving: false,
    };
    let unit = ClusterUnit {
        name: "lasting".to_owned(),
        shares: vec!["lasting".into()],
        owner: Some("n1".to_owned()),
        addresses: Vec::new(),
    };
    let (name, node_name) = ("nas".to_owned(), "n2".to_owned());
    ClusterState { name, node: node_name, nodes: (1..=3).map(node).collect(), units: vec![unit] }
}

fn register() -> Register {
    Register {
        version: Version::V1,
        net_name: Some("nas".to_owned()),
        ip_address: Some("192.0.2.1".to_owned()),
        client_name: Some("client".to_owned()),
    }
}

fn register_ex() -> RegisterEx {
    let Register { net_name, ip_address, client_name, .. } = register();
    RegisterEx {
        version: Version::V2,
        net_name,
        share_name: Some("lasting".to_owned()),
        ip_address,
        client_name,
        flags: RegisterFlags::EMPTY,
        keep_alive_seconds: 120,
    }
}

/// A client of the witness of a node.
struct Client {
    peer: RpcPeer,
    last: u32,
}

impl Client {
    async fn of(node: &Node, user: &str) -> Self {
        let mut peer = RpcPeer::connect(node, RpcPort::Interfaces);
        peer.log_on(SyntaxId::WITNESS, user, &password(user)).await;
        Self { peer, last: 0 }
    }

    /// Sends a call, and returns its number.
    async fn begin(&mut self, opnum: u16, stub: &[u8]) -> u32 {
        self.last += 1;
        let request = self.peer.request(self.last, opnum, stub);
        self.peer.send(&request).await;
        self.last
    }

    async fn call(&mut self, opnum: u16, stub: &[u8]) -> Vec<u8> {
        self.begin(opnum, stub).await;
        let answer = self.peer.next().await.expect("an answer");
        self.peer.opened(answer)
    }

    async fn register(&mut self, call: &Register) -> HandleReply {
        let reply = self.call(witness::REGISTER, &call.encode()).await;
        HandleReply::parse(&reply).unwrap()
    }

    async fn register_ex(&mut self, call: &RegisterEx) -> HandleReply {
        let reply = self.call(witness::REGISTER_EX, &call.encode()).await;
        HandleReply::parse(&reply).unwrap()
    }

    async fn notify(&mut self, handle: &ContextHandle) -> u32 {
        self.begin(witness::ASYNC_NOTIFY, &encode_handle(handle)).await
    }

    /// The answer to the call of this number, which is the next.
    async fn notified(&mut self, call_id: u32) -> NotifyReply {
        let answer = self.peer.next().await.expect("an answer");
        assert_eq!(header(&answer).call_id, call_id);
        NotifyReply::parse(&self.peer.opened(answer)).unwrap()
    }

    async fn unregister(&mut self, handle: &ContextHandle) -> WinError {
        let reply = self.call(witness::UN_REGISTER, &encode_handle(handle)).await;
        StatusReply::parse(&reply).unwrap().status
    }
}

/// A node that knows the cluster, and a client of it.
async fn of_node(node: &Node) -> Client {
    node.embedded.set_cluster_state(&office());
    Client::of(node, "ann").await
}

fn held(node: &Node, kind: Kind) -> usize {
    node.server.ledger.account("ann").count(kind)
}

async fn until_held(node: &Node, kind: Kind, count: usize) {
    for _ in 0..500 {
        if held(node, kind) == count {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{} of {kind:?} are held, not {count}", held(node, kind));
}

fn told(reply: &NotifyReply) -> &Notification {
    assert_eq!(reply.status, WinError::SUCCESS);
    reply.notification.as_ref().expect("a notification")
}

/// The verdict on a bind to the witness.
async fn bound(peer: &mut RpcPeer) -> ContextResultCode {
    let ack = peer.ask(&bind_of(SyntaxId::WITNESS, 0).encode(PduKind::BIND, 1)).await;
    BindAck::parse(&ack[16..]).unwrap().results[0].code
}

/// The ports that the endpoint mapper tells of the witness.
async fn mapped(world: &World) -> Vec<u16> {
    let mut mapper = RpcPeer::mapper(world).await;
    let request =
        mapper.request(2, epm::LOOKUP, &EptLookup::all(ContextHandle::NULL, 100).encode());
    let answer = mapper.ask(&request).await;
    let reply = LookupReply::parse(&mapper.opened(answer)).unwrap();
    let towers = reply.entries.into_iter().map(|entry| entry.tower);
    let of_witness = towers.filter(|tower| tower.interface == SyntaxId::WITNESS);
    let port = |address| match address {
        Address::Tcp { port, .. } => port,
        _ => panic!("it has no pipe"),
    };
    of_witness.map(|tower| port(tower.address)).collect()
}

#[test]
fn only_nodes_of_a_cluster_offer_the_witness() {
    in_world(async |world| {
        let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
        assert_eq!(bound(&mut peer).await, ContextResultCode::PROVIDER_REJECTION);
        assert!(mapped(world).await.is_empty());
    });
    cluster(async |cluster| {
        let node = cluster.node();
        let mut peer = RpcPeer::connect(&node, RpcPort::Interfaces);
        assert_eq!(bound(&mut peer).await, ContextResultCode::ACCEPTANCE);
        assert_eq!(mapped(&node).await.len(), 1);
    });
}

/// MS-SWN 3.1.4: calls that are neither signed nor sealed get ERROR_ACCESS_DENIED.
#[test]
fn calls_have_to_be_signed() {
    cluster(async |cluster| {
        let node = cluster.node();
        node.embedded.set_cluster_state(&office());
        let mut plain = RpcPeer::connect(&node, RpcPort::Interfaces);
        assert_eq!(bound(&mut plain).await, ContextResultCode::ACCEPTANCE);
        let request = plain.request(2, witness::GET_INTERFACE_LIST, &[]);
        let fault = plain.ask(&request).await;
        assert_eq!(parse_fault(&fault[16..]), Ok(FaultStatus::ACCESS_DENIED));
        let mut signed = RpcPeer::connect(&node, RpcPort::Interfaces);
        signed.level = AuthLevel::INTEGRITY;
        signed.log_on(SyntaxId::WITNESS, "ann", &password("ann")).await;
        let mut client = Client { peer: signed, last: 0 };
        let reply = client.call(witness::GET_INTERFACE_LIST, &[]).await;
        assert_eq!(InterfaceListReply::parse(&reply).unwrap().status, WinError::SUCCESS);
    });
}

#[test]
fn the_interfaces_of_other_nodes_are_witnesses() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = Client::of(&node, "ann").await;
        let none = client.call(witness::GET_INTERFACE_LIST, &[]).await;
        let none = InterfaceListReply::parse(&none).unwrap();
        assert_eq!(none.status, WinError::NO_MORE_ITEMS, "the node knows no cluster yet");
        node.embedded.set_cluster_state(&office());
        let reply = client.call(witness::GET_INTERFACE_LIST, &[]).await;
        let reply = InterfaceListReply::parse(&reply).unwrap();
        let witnesses = reply
            .interfaces
            .iter()
            .map(|one| (one.group_name.as_str(), one.flags.contains(InterfaceFlags::WITNESS)));
        assert_eq!(witnesses.collect::<Vec<_>>(), [("n1", true), ("n2", false), ("n3", true)]);
        // While no node is up the call waits.
        let mut state = office();
        state.nodes.clear();
        node.embedded.set_cluster_state(&state);
        let waiting = client.begin(witness::GET_INTERFACE_LIST, &[]).await;
        until_held(&node, Kind::RpcWait, 1).await;
        sleep(Duration::from_secs(3_600)).await;
        node.embedded.set_cluster_state(&office());
        let answer = client.peer.next().await.expect("an answer");
        assert_eq!(header(&answer).call_id, waiting);
        let reply = InterfaceListReply::parse(&client.peer.opened(answer)).unwrap();
        assert_eq!(reply.status, WinError::SUCCESS);
    });
}

#[test]
fn a_client_is_told_of_a_dead_node_and_of_a_move_at_once() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        let by_address = client.register(&register()).await;
        let by_share = client.register_ex(&register_ex()).await;
        assert_eq!((by_address.status, by_share.status), (WinError::SUCCESS, WinError::SUCCESS));
        let first = client.notify(&by_address.handle).await;
        until_held(&node, Kind::RpcWait, 1).await;
        sleep(Duration::from_secs(3 * 3_600)).await;
        let mut state = office();
        state.nodes.remove(0);
        let known = Instant::now();
        node.embedded.set_cluster_state(&state);
        let reply = timeout(AT_ONCE, client.notified(first)).await.expect("in time");
        assert!(known.elapsed() < AT_ONCE);
        let Notification::ResourceChange(changes) = told(&reply) else { panic!("{reply:?}") };
        assert_eq!((&*changes[0].name, changes[0].state), ("n1", ResourceState::UNAVAILABLE));
        // The other registration was not used for hours, and has ended; so the client registers anew.
        let by_share = client.register_ex(&register_ex()).await;
        let second = client.notify(&by_share.handle).await;
        let reply = client.notified(second).await;
        assert!(matches!(told(&reply), Notification::ResourceChange(_)), "what has just happened");
        let third = client.notify(&by_share.handle).await;
        until_held(&node, Kind::RpcWait, 1).await;
        state.units[0].owner = Some("n3".to_owned());
        let known = Instant::now();
        node.embedded.set_cluster_state(&state);
        let reply = timeout(AT_ONCE, client.notified(third)).await.expect("in time");
        assert!(known.elapsed() < AT_ONCE);
        let Notification::ShareMove(addresses) = told(&reply) else { panic!("{reply:?}") };
        let to: Vec<_> = addresses.iter().filter_map(|one| one.address()).collect();
        assert_eq!(to, [Ipv4Addr::new(192, 0, 2, 3)]);
        let Metrics { witness_registrations, witness_notifications, .. } = node.embedded.metrics();
        assert_eq!((witness_registrations, witness_notifications), (2, 3));
    });
}

#[test]
fn a_wait_of_version_2_ends_with_its_time() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        for seconds in [0, 1, 10, 120] {
            let call = RegisterEx { keep_alive_seconds: seconds, ..register_ex() };
            let handle = client.register_ex(&call).await.handle;
            let began = Instant::now();
            let call_id = client.notify(&handle).await;
            let reply = client.notified(call_id).await;
            assert_eq!((reply.status, reply.notification), (WinError::TIMEOUT, None));
            let took = began.elapsed();
            let wanted = Duration::from_secs(u64::from(seconds));
            assert!(took >= wanted && took < wanted + AT_ONCE, "{took:?} of {wanted:?}");
            assert_eq!(client.unregister(&handle).await, WinError::SUCCESS);
        }
    });
}

#[test]
fn a_registration_ends_with_its_client() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        let handle = client.register(&register()).await.handle;
        let other = client.register_ex(&register_ex()).await.handle;
        let waiting = client.notify(&handle).await;
        until_held(&node, Kind::RpcWait, 1).await;
        // The call that waits ends with its registration.
        let end = client.begin(witness::UN_REGISTER, &encode_handle(&handle)).await;
        for _ in 0..2 {
            let answer = client.peer.next().await.expect("an answer");
            let call_id = header(&answer).call_id;
            let stub = client.peer.opened(answer);
            if call_id == end {
                assert_eq!(StatusReply::parse(&stub).unwrap().status, WinError::SUCCESS);
            } else {
                assert_eq!(call_id, waiting);
                let reply = NotifyReply::parse(&stub).unwrap();
                assert_eq!((reply.status, reply.notification), (WinError::NOT_FOUND, None));
            }
        }
        assert_eq!(client.unregister(&handle).await, WinError::INVALID_PARAMETER);
        assert_eq!(held(&node, Kind::Registration), 1);
        // MS-SWN 3.1.4.6
        let reply = client.call(witness::UN_REGISTER_EX, &encode_handle(&other)).await;
        let reply = HandleReply::parse(&reply).unwrap();
        assert_eq!((reply.handle, reply.status), (ContextHandle::NULL, WinError::SUCCESS));
        let reply = client.call(witness::UN_REGISTER_EX, &encode_handle(&other)).await;
        let reply = HandleReply::parse(&reply).unwrap();
        assert_eq!((reply.handle, reply.status), (other, WinError::INVALID_PARAMETER));
        assert_eq!(held(&node, Kind::Registration), 0);
        client.register(&register()).await;
        assert_eq!(held(&node, Kind::Registration), 1);
        drop(client);
        until_held(&node, Kind::Registration, 0).await;
        assert_eq!(node.embedded.metrics().witness_registrations, 0);
    });
}

#[test]
fn a_registration_that_nobody_uses_ends() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        let unused = client.register_ex(&register_ex()).await.handle;
        let used = client.register(&register()).await.handle;
        client.notify(&used).await;
        until_held(&node, Kind::RpcWait, 1).await;
        sleep(WITNESS_UNUSED + WITNESS_SWEEP).await;
        let mut other = Client::of(&node, "bob").await;
        other.register(&register()).await;
        assert_eq!(held(&node, Kind::Registration), 1);
        assert_eq!(client.unregister(&unused).await, WinError::INVALID_PARAMETER);
    });
}

#[test]
fn the_status_shows_registrations() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        client.register_ex(&register_ex()).await;
        let rows = |query: &StatusQuery| node.embedded.status(query).witness.rows;
        let shown = rows(&StatusQuery::default());
        let [WitnessStatus { client: name, user, share, version, waiting, .. }] = &*shown else {
            panic!("{shown:?}")
        };
        assert_eq!((&**name, &**user, share.as_deref()), ("client", "ann", Some("lasting")));
        assert_eq!((*version, *waiting, &*shown[0].server_address), (2, false, "192.0.2.1"));
        let mut query = StatusQuery::default();
        query.user = Some("bob".to_owned());
        assert_eq!(rows(&query).len(), 0);
        query.user = Some("Ann".to_owned());
        assert_eq!(rows(&query).len(), 1);
        query.share = Some("plain".to_owned());
        assert_eq!(rows(&query).len(), 0);
    });
}

#[test]
fn an_administrator_has_a_client_move() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        let handle = client.register(&register()).await.handle;
        let waiting = client.notify(&handle).await;
        until_held(&node, Kind::RpcWait, 1).await;
        assert!(node.embedded.move_client("client", "n9").is_err());
        assert!(node.embedded.move_client("nobody", "n3").is_err());
        assert_eq!(node.embedded.move_client("client", "n3"), Ok(1));
        let reply = client.notified(waiting).await;
        let Notification::ClientMove(addresses) = told(&reply) else { panic!("{reply:?}") };
        assert_eq!(addresses[0].address(), Some(Ipv4Addr::new(192, 0, 2, 3).into()));
    });
}

/// Ten thousand registrations of one account: it has its limit, and others have theirs.
#[test]
fn an_account_has_so_many_registrations() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        let mut first = None;
        for number in 0..10_000 {
            let reply = client.register(&register()).await;
            let is_there = number < WITNESS_REGISTRATIONS_PER_USER;
            let wanted = if is_there { WinError::SUCCESS } else { WinError::NO_SYSTEM_RESOURCES };
            assert_eq!(reply.status, wanted, "{number}");
            first = first.or(Some(reply.handle));
        }
        assert_eq!(held(&node, Kind::Registration), WITNESS_REGISTRATIONS_PER_USER);
        let mut bob = Client::of(&node, "bob").await;
        let handle = bob.register(&register()).await.handle;
        let waiting = bob.notify(&handle).await;
        assert_eq!(client.unregister(&first.unwrap()).await, WinError::SUCCESS);
        assert_eq!(client.register(&register()).await.status, WinError::SUCCESS);
        let mut state = office();
        state.nodes.remove(0);
        node.embedded.set_cluster_state(&state);
        let reply = timeout(AT_ONCE, bob.notified(waiting)).await.expect("in time");
        told(&reply);
        drop(client);
        until_held(&node, Kind::Registration, 0).await;
    });
}

/// A PDU that cancels a call.
fn cancel(call_id: u32) -> Vec<u8> {
    let request = Request { alloc_hint: 0, context_id: 0, opnum: 0, stub: &[] };
    let mut pdu = request.encode(PduFlags::WHOLE, call_id);
    pdu.truncate(Header::SIZE);
    pdu[2] = PduKind::CO_CANCEL.0;
    pdu[8..10].copy_from_slice(&16_u16.to_le_bytes());
    pdu
}

/// A registration has one call that waits, however often its client asks, and none after a cancel.
#[test]
fn notifications_that_never_end_are_bounded() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut client = of_node(&node).await;
        let handle = client.register(&register()).await.handle;
        let waiting = client.notify(&handle).await;
        until_held(&node, Kind::RpcWait, 1).await;
        for _ in 0..1_000 {
            let call_id = client.notify(&handle).await;
            let reply = client.notified(call_id).await;
            assert_eq!(reply.status, WinError::NO_SYSTEM_RESOURCES);
        }
        assert_eq!(held(&node, Kind::RpcWait), 1);
        let fault = client.peer.ask(&cancel(waiting)).await;
        assert_eq!(parse_fault(&fault[16..]), Ok(FaultStatus::CANCEL));
        until_held(&node, Kind::RpcWait, 0).await;
        let again = client.notify(&handle).await;
        until_held(&node, Kind::RpcWait, 1).await;
        node.embedded.move_client("client", "n3").unwrap();
        told(&client.notified(again).await);
    });
}

/// Handles of other clients and of no registration, addresses of no node, names of no share.
#[test]
fn forged_names_and_handles_mean_nothing() {
    cluster(async |cluster| {
        let node = cluster.node();
        let mut ann = of_node(&node).await;
        let handle = ann.register(&register()).await.handle;
        let mut bob = Client::of(&node, "bob").await;
        let mut own = Client::of(&node, "ann").await;
        bob.register(&register()).await;
        for other in [&mut bob, &mut own] {
            let forged = [handle, ContextHandle([0xFF; 20]), ContextHandle::NULL];
            for handle in forged {
                let call_id = other.notify(&handle).await;
                assert_eq!(other.notified(call_id).await.status, WinError::NOT_FOUND);
                assert_eq!(other.unregister(&handle).await, WinError::INVALID_PARAMETER);
            }
        }
        for address in ["192.0.2.99", "127.0.0.1", "::", "255.255.255.255"] {
            let call = Register { ip_address: Some(address.to_owned()), ..register() };
            assert_eq!(ann.register(&call).await.status, WinError::INVALID_STATE, "{address}");
        }
        for name in ["n1", "frevo", "nas\\x", "*", "n".repeat(1_000).as_str()] {
            let call = Register { net_name: Some(name.to_owned()), ..register() };
            assert_eq!(ann.register(&call).await.status, WinError::INVALID_PARAMETER);
        }
        let share = Some("IPC$".to_owned());
        let call = RegisterEx { share_name: share, ..register_ex() };
        assert_eq!(ann.register_ex(&call).await.status, WinError::INVALID_STATE);
        assert_eq!(held(&node, Kind::Registration), 1);
        let waiting = ann.notify(&handle).await;
        node.embedded.move_client("client", "n3").unwrap();
        told(&ann.notified(waiting).await);
        // Stub data that is too short ends the association, and the registrations with it.
        let call_id = ann.begin(witness::REGISTER, &[1, 0]).await;
        let before = ann.peer.end().await;
        assert_eq!(header(&before[0]).call_id, call_id);
        assert_eq!(parse_fault(&before[0][16..]), Ok(FaultStatus::NDR));
        until_held(&node, Kind::Registration, 0).await;
    });
}
