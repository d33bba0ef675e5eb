//! P16: RPC over TCP, by clients that break the protocol, or hold what they begin.

use std::time::Duration;

use frevo_rpc::epm::{self, Address, EptLookup, EptMap, EptStatus, LookupReply, MapReply, Tower};
use frevo_rpc::limits::{MAX_CONTEXTS, MAX_FRAGMENTS, MAX_HANDLES};
use frevo_rpc::pdu::{
    BindAck, ContextResultCode, PduFlags, PduKind, RejectReason, parse_bind_nak, parse_fault,
};
use frevo_rpc::{AuthLevel, FaultStatus, SyntaxId};
use frevo_server::internal::limits::{
    AUTHENTICATE_DEADLINE, RPC_ANSWER_DEADLINE, RPC_IDLE, RPC_MAPPER_IDLE, RPC_MESSAGE_DEADLINE,
};
use frevo_server::internal::state::Kind;
use frevo_server::{Kick, Reload, RpcPort, StatusQuery, UserList};
use frevo_wire::ndr::ContextHandle;
use tokio::time::Instant;

use super::rpc_peer::{RpcPeer, bind_of, header};
use crate::client::world::{RPC_PORT, in_frozen_world, in_world, password};
use crate::client::*;

/// True if a connection that began at `began` ends after `limit` and not long after it.
fn ended_at(began: Instant, limit: Duration) -> bool {
    let took = began.elapsed();
    took >= limit && took < limit + Duration::from_secs(2)
}

#[test]
fn p16_half_a_bind_ends_in_time() {
    in_frozen_world(settings(), async |world| {
        let bind = bind_of(SyntaxId::SAMR, 0).encode(PduKind::BIND, 1);
        for sent in [0, 5, 20, bind.len()] {
            let began = Instant::now();
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            peer.send(&bind[..sent]).await;
            peer.end().await;
            assert!(ended_at(began, AUTHENTICATE_DEADLINE), "{sent} bytes");
        }
        let began = Instant::now();
        let mut peer = RpcPeer::connect(world, RpcPort::Mapper);
        peer.send(&bind[..20]).await;
        assert!(peer.end().await.is_empty());
        assert!(ended_at(began, RPC_MESSAGE_DEADLINE.min(RPC_MAPPER_IDLE)));
    });
}

/// A byte now and then does not keep a call half sent.
#[test]
fn p16_a_call_half_sent_ends_in_time() {
    in_frozen_world(settings(), async |world| {
        let mut peer = RpcPeer::mapper(world).await;
        let began = Instant::now();
        for number in 0.. {
            let flags = if number == 0 { PduFlags::FIRST_FRAG } else { PduFlags::EMPTY };
            let fragment = peer.fragment(flags, 2, epm::LOOKUP, &[0; 8]);
            peer.send(&fragment).await;
            let next = tokio::time::timeout(Duration::from_secs(5), peer.next()).await;
            if next.is_ok_and(|next| next.is_none()) {
                break;
            }
        }
        assert!(ended_at(began, RPC_MESSAGE_DEADLINE));
    });
}

#[test]
fn p16_endless_fragments_are_refused() {
    in_world(async |world| {
        let mut peer = RpcPeer::mapper(world).await;
        for number in 0..=MAX_FRAGMENTS {
            let flags = if number == 0 { PduFlags::FIRST_FRAG } else { PduFlags::EMPTY };
            let fragment = peer.fragment(flags, 2, epm::LOOKUP, &[]);
            peer.send(&fragment).await;
        }
        let before = peer.end().await;
        assert_eq!(parse_fault(&before[0][16..]), Ok(FaultStatus::ACCESS_DENIED));
    });
}

#[test]
fn p16_lengths_that_lie_are_refused() {
    in_world(async |world| {
        let bind = bind_of(SyntaxId::EPM, 0).encode(PduKind::BIND, 1);
        for length in [0_u16, 15, 40_000, u16::MAX] {
            let mut peer = RpcPeer::connect(world, RpcPort::Mapper);
            let mut pdu = bind.clone();
            pdu[8..10].copy_from_slice(&length.to_le_bytes());
            peer.send(&pdu).await;
            let before = peer.end().await;
            assert_eq!(parse_fault(&before[0][16..]), Ok(FaultStatus::PROTO_ERROR), "{length}");
        }
    });
}

/// The lengths of a verifier: more than the PDU has, more padding than the body, no token at all.
#[test]
fn p16_wrong_auth_trailers_are_refused() {
    in_world(async |world| {
        let bind = |peer: &RpcPeer| peer.carrying(PduKind::BIND, SyntaxId::SAMR, &[1; 16]);
        for (at, value) in [(10, 0xFF), (11, 0xFF), (10, 60)] {
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            let mut pdu = bind(&peer);
            pdu[at] = value;
            let answer = peer.ask(&pdu).await;
            assert_eq!(header(&answer).kind, PduKind::BIND_NAK, "byte {at}");
        }
        let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
        let mut pdu = bind(&peer);
        let padding = pdu.len() - 16 - 6;
        pdu[padding] = 0xFF;
        let answer = peer.ask(&pdu).await;
        let reason = parse_bind_nak(&answer[16..]);
        assert_eq!(reason, Ok(RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED));
        // The association has no authentication, so a request with a verifier breaks the protocol.
        let mut peer = RpcPeer::mapper(world).await;
        let mut pdu = peer.request(2, epm::LOOKUP, &[0; 64]);
        pdu[10] = 16;
        peer.send(&pdu).await;
        let before = peer.end().await;
        assert_eq!(parse_fault(&before[0][16..]), Ok(FaultStatus::PROTO_ERROR));
    });
}

#[test]
fn p16_a_flood_of_auth3_ends_the_association() {
    in_world(async |world| {
        for is_bound in [false, true] {
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            if is_bound {
                let bind = bind_of(SyntaxId::SAMR, 0).encode(PduKind::BIND, 1);
                peer.ask(&bind).await;
            }
            let auth3 = peer.carrying(PduKind::AUTH3, SyntaxId::SAMR, b"proof");
            for _ in 0..100 {
                peer.send(&auth3).await;
            }
            let before = peer.end().await;
            assert_eq!(before.len(), 1);
            assert_eq!(parse_fault(&before[0][16..]), Ok(FaultStatus::PROTO_ERROR));
        }
    });
}

#[test]
fn p16_a_flood_of_contexts_keeps_few() {
    in_world(async |world| {
        let mut peer = RpcPeer::mapper(world).await;
        let held = world.server.ledger.bytes();
        let mut accepted = 1;
        for id in 1..200 {
            let alter = bind_of(SyntaxId::EPM, id).encode(PduKind::ALTER_CONTEXT, u32::from(id));
            let answer = peer.ask(&alter).await;
            let ack = BindAck::parse(&answer[16..]).unwrap();
            accepted += usize::from(ack.results[0].code == ContextResultCode::ACCEPTANCE);
        }
        assert_eq!(accepted, MAX_CONTEXTS);
        assert!(world.server.ledger.bytes() < held + 16_384);
    });
}

/// Searches of the endpoint mapper that their client never ends: they are few, they are charged, and
/// they go with the connection.
#[test]
fn p16_searches_that_are_never_freed_are_few() {
    in_world(async |world| {
        let mut peer = RpcPeer::mapper(world).await;
        let lookup = EptLookup::all(ContextHandle::NULL, 1).encode();
        let mut handles = Vec::new();
        for number in 0..MAX_HANDLES + 10 {
            let request = peer.request(number as u32 + 2, epm::LOOKUP, &lookup);
            let answer = peer.ask(&request).await;
            let reply = LookupReply::parse(&peer.opened(answer)).unwrap();
            if number < MAX_HANDLES {
                assert_eq!((reply.status, reply.entries.len()), (EptStatus::OK, 1));
                handles.push(reply.handle);
            } else {
                assert_eq!(reply.status, EptStatus::CANT_PERFORM_OP);
                assert!(reply.handle == ContextHandle::NULL && reply.entries.is_empty());
            }
        }
        let free = peer.request(900, epm::LOOKUP_HANDLE_FREE, &epm::encode_free(&handles[7]));
        let answer = peer.ask(&free).await;
        assert_eq!(epm::parse_free_reply(&peer.opened(answer)), Ok(EptStatus::OK));
        let request = peer.request(901, epm::LOOKUP, &lookup);
        let answer = peer.ask(&request).await;
        assert_eq!(LookupReply::parse(&peer.opened(answer)).unwrap().status, EptStatus::OK);
        // One handle was freed, and the other was never returned to a client, so neither is valid.
        for handle in [handles[7], ContextHandle([9; 20])] {
            let stub = EptLookup::all(handle, 1).encode();
            let request = peer.request(902, epm::LOOKUP, &stub);
            let answer = peer.ask(&request).await;
            assert_eq!(parse_fault(&answer[16..]), Ok(FaultStatus::CONTEXT_MISMATCH));
        }
    });
}

/// Calls that wait for their answers are few: the others are told that the server is busy.
#[test]
fn p16_a_flood_of_pending_calls_is_refused() {
    use frevo_rpc::limits::MAX_PENDING;
    use frevo_rpc::samr::{CHANGE_PASSWORD2, ChangePassword};
    in_frozen_world(settings(), async |world| {
        // The user is in the server's own list of accounts, because only such a user can change its
        // password.
        let accounts = UserList::new().user("ann", &password("ann"));
        world.embedded.reload(Reload::new().accounts(std::sync::Arc::new(accounts)));
        let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
        peer.log_on(SyntaxId::SAMR, "ann", &password("ann")).await;
        let change =
            ChangePassword { user: "ann".into(), password: Box::new([7; 516]), proof: [7; 16] };
        let stub = change.encode("");
        for call_id in 2..2 + 3 * MAX_PENDING as u32 {
            let request = peer.request(call_id, CHANGE_PASSWORD2, &stub);
            peer.send(&request).await;
        }
        let mut busy = 0;
        for _ in 0..3 * MAX_PENDING {
            let answer = peer.next().await.expect("an answer");
            if header(&answer).kind == PduKind::FAULT {
                assert_eq!(parse_fault(&answer[16..]), Ok(FaultStatus::SERVER_TOO_BUSY));
                busy += 1;
            }
        }
        assert!(busy >= MAX_PENDING, "{busy} calls were refused");
        drop(peer);
        world.embedded.reload(Reload::new().accounts(std::sync::Arc::new(world::Users)));
    });
}

/// A client that does not take its answers loses the connection, and cannot make the server keep
/// more than one answer meanwhile.
#[test]
fn p16_answers_that_are_not_taken_end_the_connection() {
    in_frozen_world(settings(), async |world| {
        let mut peer = RpcPeer::mapper(world).await;
        let lookup = EptLookup::all(ContextHandle::NULL, 500).encode();
        let began = Instant::now();
        let request = peer.request(2, epm::LOOKUP, &lookup);
        let flood = request.repeat(4_000);
        let sent = tokio::time::timeout(RPC_ANSWER_DEADLINE * 2, peer.send(&flood)).await;
        assert!(sent.is_err() || began.elapsed() < RPC_ANSWER_DEADLINE * 2);
        assert!(world.server.ledger.bytes() < 1 << 20);
        tokio::time::sleep(RPC_ANSWER_DEADLINE + Duration::from_secs(1)).await;
        assert_eq!(world.server.ledger.count(Kind::Association), 0);
    });
}

/// Everybody may ask for endpoints, but nobody may change them.
#[test]
fn p16_the_endpoint_mapper_is_read_only() {
    in_world(async |world| {
        // The port is set up at the first connection to it, so one is made and dropped.
        drop(RpcPeer::connect(world, RpcPort::Interfaces));
        let mut peer = RpcPeer::mapper(world).await;
        let asked = |interface| Tower {
            interface,
            transfer: SyntaxId::NDR,
            address: Address::Tcp { port: 0, host: [0; 4] },
        };
        for (interface, is_there) in
            [(SyntaxId::SAMR, true), (SyntaxId::LSARPC, true), (SyntaxId::SRVSVC, false)]
        {
            let stub = EptMap::new(asked(interface), 4).encode();
            let request = peer.request(2, epm::MAP, &stub);
            let answer = peer.ask(&request).await;
            let reply = MapReply::parse(&peer.opened(answer)).unwrap();
            assert_eq!(reply.towers.len(), usize::from(is_there), "{interface:?}");
            if let [tower] = &reply.towers[..] {
                let host = [127, 0, 0, 1];
                assert_eq!(tower.address, Address::Tcp { port: RPC_PORT, host });
            } else {
                assert_eq!(reply.status, EptStatus::NOT_REGISTERED);
            }
        }
        for opnum in [epm::INSERT, epm::DELETE, epm::MGMT_DELETE] {
            let request = peer.request(3, opnum, &[0; 64]);
            let answer = peer.ask(&request).await;
            assert_eq!(peer.opened(answer), EptStatus::CANT_PERFORM_OP.0.to_le_bytes());
        }
        let request = peer.request(4, epm::INQ_OBJECT, &[0; 16]);
        let answer = peer.ask(&request).await;
        assert_eq!(parse_fault(&answer[16..]), Ok(FaultStatus::OP_RNG_ERROR));
    });
}

/// Administrators see the connections, and end those of a user, or one.
#[test]
fn connections_are_shown_and_ended() {
    in_world(async |world| {
        let shown = || {
            let rows = world.embedded.status(&StatusQuery::default()).rpc_connections.rows;
            rows.into_iter().map(|row| (row.id, row.user)).collect::<Vec<_>>()
        };
        let mut mapper = RpcPeer::mapper(world).await;
        let mut peers = Vec::new();
        for user in ["ann", "ann", "bob"] {
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            peer.level = AuthLevel::INTEGRITY;
            peer.log_on(SyntaxId::LSARPC, user, &password(user)).await;
            peers.push(peer);
        }
        let users: Vec<_> = shown().into_iter().map(|(_, user)| user).collect();
        let [ann, bob] = ["ann", "bob"].map(|user| Some(String::from(user)));
        assert_eq!(users, [None, ann.clone(), ann, bob.clone()]);
        let kicked = world.embedded.kick(&Kick::User(String::from("ANN")), "a test").await;
        assert_eq!((kicked.rpc_connections, kicked.sessions), (2, 0));
        for peer in &mut peers[..2] {
            assert!(peer.end().await.is_empty());
        }
        let left = shown();
        assert_eq!(left.iter().map(|(_, user)| user.clone()).collect::<Vec<_>>(), [None, bob]);
        let id = u64::from_str_radix(left[0].0.trim_start_matches("0x"), 16).unwrap();
        let kicked = world.embedded.kick(&Kick::Rpc(id), "a test").await;
        assert_eq!(kicked.rpc_connections, 1);
        assert!(mapper.end().await.is_empty());
        assert!(world.embedded.kick(&Kick::Rpc(id), "a test").await.is_nothing());
        assert_eq!(shown(), left[1..]);
    });
}

#[test]
fn p16_idle_associations_end() {
    in_frozen_world(settings(), async |world| {
        let mut mapper = RpcPeer::mapper(world).await;
        let began = Instant::now();
        assert!(mapper.end().await.is_empty());
        assert!(ended_at(began, RPC_MAPPER_IDLE));
        let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
        peer.level = AuthLevel::INTEGRITY;
        peer.log_on(SyntaxId::LSARPC, "ann", &password("ann")).await;
        let began = Instant::now();
        assert!(peer.end().await.is_empty());
        assert!(ended_at(began, RPC_IDLE));
    });
}
