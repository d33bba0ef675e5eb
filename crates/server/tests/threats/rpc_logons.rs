//! A10: logons over RPC on TCP: levels, guesses, accounts that go, and how many one client may have.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use frevo_rpc::lsarpc;
use frevo_rpc::pdu::{PduKind, RejectReason, parse_bind_nak, parse_fault};
use frevo_rpc::samr;
use frevo_rpc::{AuthLevel, AuthType, FaultStatus, SyntaxId, handles};
use frevo_server::internal::limits::ASSOCIATIONS_PER_USER;
use frevo_server::internal::state::Kind;
use frevo_server::settings::Encryption;
use frevo_server::{Reload, RpcPort, Settings, UserList};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::ndr::NdrWriter;
use tokio::time::Instant;

use super::rpc_peer::{RpcPeer, bind_of, header};
use crate::client::logon::initiator;
use crate::client::world::{in_frozen_world, in_world, in_world_with, password};
use crate::client::*;

async fn logged_on(world: &World, interface: SyntaxId, level: AuthLevel) -> RpcPeer {
    let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
    peer.level = level;
    peer.log_on(interface, "ann", &password("ann")).await;
    assert!(peer.is_logged_on());
    peer
}

/// Asks for a handle of the interface: the fault, or the status.
async fn called(peer: &mut RpcPeer, interface: SyntaxId) -> Result<Status, FaultStatus> {
    let access = AccessMask::MAXIMUM_ALLOWED;
    let (opnum, stub) = match interface {
        SyntaxId::LSARPC => (lsarpc::OPEN_POLICY2, lsarpc::OpenPolicy::encode(access, "box")),
        _ => {
            let mut w = NdrWriter::new();
            w.unique_string(Some("box")).u32(access.0);
            (samr::CONNECT2, w.into_stub())
        }
    };
    let request = peer.request(7, opnum, &stub);
    let answer = peer.ask(&request).await;
    if header(&answer).kind == PduKind::FAULT {
        return Err(parse_fault(&answer[16..]).unwrap());
    }
    Ok(handles::parse_handle_reply(&peer.opened(answer)).unwrap().1)
}

#[test]
fn a10_each_interface_demands_its_level() {
    in_world(async |world| {
        let (signed, sealed) = (AuthLevel::INTEGRITY, AuthLevel::PRIVACY);
        for (interface, level, is_enough) in [
            (SyntaxId::LSARPC, signed, true),
            (SyntaxId::LSARPC, sealed, true),
            (SyntaxId::SAMR, signed, false),
            (SyntaxId::SAMR, sealed, true),
        ] {
            let mut peer = logged_on(world, interface, level).await;
            let expected =
                if is_enough { Ok(Status::SUCCESS) } else { Err(FaultStatus::ACCESS_DENIED) };
            assert_eq!(called(&mut peer, interface).await, expected, "{interface:?} {level}");
        }
    });
    // The server requires encryption, so calls with a level below PRIVACY are refused.
    let settings = Settings { encryption: Encryption::Required, ..settings() };
    in_world_with(settings, async |world| {
        let mut peer = logged_on(world, SyntaxId::LSARPC, AuthLevel::INTEGRITY).await;
        let denied = Err(FaultStatus::ACCESS_DENIED);
        assert_eq!(called(&mut peer, SyntaxId::LSARPC).await, denied);
        let mut peer = logged_on(world, SyntaxId::LSARPC, AuthLevel::PRIVACY).await;
        assert_eq!(called(&mut peer, SyntaxId::LSARPC).await, Ok(Status::SUCCESS));
    });
}

#[test]
fn a10_nobody_calls_without_a_logon() {
    in_world(async |world| {
        for interface in [SyntaxId::LSARPC, SyntaxId::SAMR] {
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            let ack = peer.ask(&bind_of(interface, 0).encode(PduKind::BIND, 1)).await;
            assert_eq!(header(&ack).kind, PduKind::BIND_ACK);
            let denied = Err(FaultStatus::ACCESS_DENIED);
            assert_eq!(called(&mut peer, interface).await, denied);
        }
        // The first two levels do not protect the data, and the server has no keys for tickets, so
        // each bind is refused.
        for (kind, level) in [
            (AuthType::NTLM, AuthLevel::CONNECT),
            (AuthType::NTLM, AuthLevel::PACKET),
            (AuthType::KERBEROS, AuthLevel::PRIVACY),
        ] {
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            (peer.kind, peer.level) = (kind, level);
            let bind = peer.carrying(PduKind::BIND, SyntaxId::SAMR, b"token");
            let answer = peer.ask(&bind).await;
            let reason = parse_bind_nak(&answer[16..]);
            assert_eq!(reason, Ok(RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED));
        }
        // Three logons are refused: an anonymous one, one of a disabled account, and one of an
        // unknown account.
        for user in ["", "carol", "nobody"] {
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            peer.log_on(SyntaxId::SAMR, user, &password("carol")).await;
            assert!(!peer.is_logged_on(), "{user}");
        }
    });
}

/// A server that takes tickets only has no second door for passwords.
#[test]
fn a10_ntlm_that_is_off_is_off_over_rpc() {
    in_world(async |world| {
        let settings = Settings { ntlm: false, ..(*world.server.settings()).clone() };
        world.embedded.reload(Reload::new().settings(settings));
        let negotiate = [b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2".as_slice(), &[0; 24]].concat();
        let in_spnego = initiator("ann", &password("ann")).initial_token(&[], 0).unwrap();
        for (kind, token) in [(AuthType::NTLM, negotiate), (AuthType::NEGOTIATE, in_spnego)] {
            let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
            peer.kind = kind;
            let answer = peer.ask(&peer.carrying(PduKind::BIND, SyntaxId::SAMR, &token)).await;
            let reason = parse_bind_nak(&answer[16..]);
            assert_eq!(reason, Ok(RejectReason::NOT_SPECIFIED), "{kind:?}");
        }
    });
}

/// Guesses over RPC wait in the line of those over SMB.
#[test]
fn a10_guesses_are_slowed() {
    in_frozen_world(settings(), async |world| {
        let began = Instant::now();
        for number in 0..5 {
            let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, number + 1));
            let port = RpcPort::Interfaces;
            let mut peer = RpcPeer::connect_from(world, address, port).expect("admitted");
            peer.log_on(SyntaxId::SAMR, "ann", "a guess").await;
            assert!(!peer.is_logged_on());
        }
        assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    });
}

/// The account of an association is removed: its next call ends it.
#[test]
fn a10_a_removed_account_calls_no_more() {
    in_world(async |world| {
        let without = || UserList::new().user("bob", &password("bob"));
        let accounts = std::sync::Arc::new(without().user("ann", &password("ann")));
        world.embedded.reload(Reload::new().accounts(accounts));
        let mut peer = logged_on(world, SyntaxId::SAMR, AuthLevel::PRIVACY).await;
        assert_eq!(called(&mut peer, SyntaxId::SAMR).await, Ok(Status::SUCCESS));
        let accounts = std::sync::Arc::new(without());
        world.embedded.reload(Reload::new().accounts(accounts));
        let request = peer.request(8, samr::CONNECT2, &[0; 32]);
        peer.send(&request).await;
        assert!(peer.end().await.is_empty());
        let accounts = std::sync::Arc::new(world::Users);
        world.embedded.reload(Reload::new().accounts(accounts));
    });
}

#[test]
fn a10_a_user_has_so_many_associations() {
    in_frozen_world(settings(), async |world| {
        let mut peers = Vec::new();
        for _ in 0..ASSOCIATIONS_PER_USER {
            peers.push(logged_on(world, SyntaxId::SAMR, AuthLevel::PRIVACY).await);
        }
        let holder = world.server.ledger.account("ann");
        assert_eq!(holder.count(Kind::Association), ASSOCIATIONS_PER_USER);
        let mut further = RpcPeer::connect(world, RpcPort::Interfaces);
        further.log_on(SyntaxId::SAMR, "ann", &password("ann")).await;
        assert!(!further.is_logged_on() && further.end().await.is_empty());
        // The user has as many associations as allowed. When one ends, another one is accepted.
        peers.pop();
        while holder.count(Kind::Association) == ASSOCIATIONS_PER_USER {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        peers.push(logged_on(world, SyntaxId::SAMR, AuthLevel::PRIVACY).await);
        drop(peers);
    });
}

#[test]
fn a10_an_address_has_so_many_associations() {
    use frevo_server::internal::limits::ASSOCIATIONS_PER_ADDRESS;
    in_world(async |world| {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
        let network = world.server.ledger.network(address);
        let charges: Vec<_> = (0..ASSOCIATIONS_PER_ADDRESS)
            .map(|_| network.charge(Kind::Association, 0).unwrap())
            .collect();
        let mut peer = RpcPeer::connect_from(world, address, RpcPort::Mapper).expect("admitted");
        assert!(peer.end().await.is_empty());
        drop(charges);
        let mut peer = RpcPeer::connect_from(world, address, RpcPort::Mapper).expect("admitted");
        let bind = bind_of(SyntaxId::EPM, 0).encode(PduKind::BIND, 1);
        assert_eq!(header(&peer.ask(&bind).await).kind, PduKind::BIND_ACK);
    });
}
