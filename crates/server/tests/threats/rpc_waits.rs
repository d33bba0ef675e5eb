//! Calls whose answers come when something happens, hours later or never, over TCP and on pipes.

use std::sync::Arc;
use std::time::Duration;

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash};
use frevo_rpc::limits::MAX_PENDING;
use frevo_rpc::pdu::{Header, PduFlags, PduKind, Request, parse_fault};
use frevo_rpc::{FaultStatus, SyntaxId};
use frevo_server::RpcPort;
use frevo_server::internal::limits::{RPC_IDLE, RPC_WAIT_LOOK, RPC_WAITS_PER_USER};
use frevo_server::internal::state::Kind;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::read;
use frevo_wire::dtyp::Guid;
use tokio::time::{sleep, timeout};

use super::rpc_peer::{RpcPeer, bind_of, header};
use crate::client::draft::pack;
use crate::client::files::{read_draft, write_draft};
use crate::client::peer::async_id;
use crate::client::world::password;
use crate::client::*;

/// The interface of tests whose calls wait.
const EVENTS: SyntaxId = SyntaxId { uuid: Guid(*b"frevo test event"), version: 1 };
const AWAIT: u16 = 0;
const RAISE: u16 = 1;

fn hooked() -> Settings {
    Settings { test_hooks: true, ..settings() }
}

fn fault(pdu: &[u8]) -> FaultStatus {
    assert_eq!(header(pdu).kind, PduKind::FAULT, "{pdu:02x?}");
    parse_fault(&pdu[16..]).unwrap()
}

async fn over_tcp(world: &World) -> RpcPeer {
    let mut peer = RpcPeer::connect(world, RpcPort::Interfaces);
    peer.log_on(EVENTS, "ann", &password("ann")).await;
    peer
}

/// Begins to wait for an event over TCP.
async fn wait(peer: &mut RpcPeer, call_id: u32, event: u32) {
    let request = peer.request(call_id, AWAIT, &event.to_le_bytes());
    peer.send(&request).await;
}

async fn raise(peer: &mut RpcPeer, call_id: u32, event: u32) -> Vec<u8> {
    let request = peer.request(call_id, RAISE, &event.to_le_bytes());
    let answer = peer.ask(&request).await;
    peer.opened(answer)
}

fn waiting(world: &World) -> usize {
    world.server.ledger.account("ann").count(Kind::RpcWait)
}

async fn until_waiting(world: &World, count: usize) {
    until_held(world, Kind::RpcWait, count).await;
}

/// Waits until ann holds so many of a kind.
async fn until_held(world: &World, kind: Kind, count: usize) {
    let held = || world.server.ledger.account("ann").count(kind);
    for _ in 0..500 {
        if held() == count {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{} of {kind:?} are held, not {count}", held());
}

#[test]
fn a_call_waits_for_hours_over_tcp() {
    in_frozen_world(hooked(), async |world| {
        let (mut waiter, mut other) = (over_tcp(world).await, over_tcp(world).await);
        wait(&mut waiter, 7, 101).await;
        until_waiting(world, 1).await;
        sleep(RPC_IDLE * 9).await;
        assert_eq!(waiting(world), 1, "the client has all the time it likes");
        drop(other);
        other = over_tcp(world).await;
        assert_eq!(raise(&mut other, 1, 102).await, 102_u32.to_le_bytes());
        // Later calls are answered before the call that waits.
        assert_eq!(raise(&mut waiter, 8, 101).await, 101_u32.to_le_bytes());
        let answer = waiter.next().await.unwrap();
        assert_eq!(header(&answer).call_id, 7);
        assert_eq!(waiter.opened(answer), 101_u32.to_le_bytes());
        until_waiting(world, 0).await;
        // The connection was not idle meanwhile.
        assert_eq!(raise(&mut waiter, 9, 103).await, 103_u32.to_le_bytes());
        wait(&mut waiter, 10, 104).await;
        until_waiting(world, 1).await;
        drop(waiter);
        until_waiting(world, 0).await;
    });
}

#[test]
fn a_waiting_call_is_cancelled_over_tcp() {
    in_frozen_world(hooked(), async |world| {
        let mut waiter = over_tcp(world).await;
        wait(&mut waiter, 7, 201).await;
        wait(&mut waiter, 8, 202).await;
        until_waiting(world, 2).await;
        let cancelled = waiter.ask(&control(PduKind::CO_CANCEL, 7)).await;
        assert_eq!((header(&cancelled).call_id, fault(&cancelled)), (7, FaultStatus::CANCEL));
        until_waiting(world, 1).await;
        waiter.send(&control(PduKind::ORPHANED, 8)).await;
        until_waiting(world, 0).await;
        assert_eq!(raise(&mut waiter, 9, 201).await, 201_u32.to_le_bytes());
    });
}

/// Gives the running server these accounts.
fn with_accounts(world: &World, names: &[&str]) {
    let mut file = AccountFile::default();
    for name in names {
        let hash = NtHash::from_password(&password(name));
        file.add(Entry::new(name, u32::MAX, hash, 0)).unwrap();
    }
    let settings = (*world.server.settings()).clone();
    let shares = world.server.shares().as_ref().clone();
    world.server.reload(settings, &shares, Arc::new(file));
}

#[test]
fn the_connection_of_a_removed_account_ends_while_its_call_waits() {
    in_frozen_world(hooked(), async |world| {
        // The accounts of other tests are in no file, so that a reload does not judge them.
        with_accounts(world, &["ann", "bob"]);
        let mut waiter = over_tcp(world).await;
        wait(&mut waiter, 7, 151).await;
        until_waiting(world, 1).await;
        with_accounts(world, &["ann", "bob"]);
        sleep(RPC_WAIT_LOOK * 2).await;
        assert_eq!(waiting(world), 1, "the account is as it was");
        with_accounts(world, &["bob"]);
        let ended = timeout(RPC_WAIT_LOOK + Duration::from_secs(1), waiter.end()).await;
        assert!(ended.expect("the end").is_empty(), "a fault");
        assert_eq!(waiting(world), 0);
    });
}

/// A PDU about a call.
fn control(kind: PduKind, call_id: u32) -> Vec<u8> {
    let request = Request { alloc_hint: 0, context_id: 0, opnum: 0, stub: &[] };
    let mut pdu = request.encode(PduFlags::WHOLE, call_id);
    pdu.truncate(Header::SIZE);
    pdu[2] = kind.0;
    pdu[8..10].copy_from_slice(&16_u16.to_le_bytes());
    pdu
}

#[test]
fn an_account_has_so_many_waiting_calls() {
    in_frozen_world(hooked(), async |world| {
        let mut one = over_tcp(world).await;
        for call_id in 0..=MAX_PENDING as u32 {
            wait(&mut one, call_id, 301).await;
        }
        let refused = one.next().await.unwrap();
        assert_eq!(fault(&refused), FaultStatus::SERVER_TOO_BUSY, "of one association");
        assert_eq!(header(&refused).call_id, MAX_PENDING as u32);
        until_waiting(world, MAX_PENDING).await;
        let mut others = Vec::new();
        while waiting(world) < RPC_WAITS_PER_USER {
            let before = waiting(world);
            let mut other = over_tcp(world).await;
            for call_id in 0..MAX_PENDING as u32 {
                wait(&mut other, call_id, 301).await;
            }
            until_waiting(world, before + MAX_PENDING).await;
            others.push(other);
        }
        let mut last = over_tcp(world).await;
        wait(&mut last, 1, 301).await;
        let refused = last.next().await.unwrap();
        assert_eq!(fault(&refused), FaultStatus::SERVER_TOO_BUSY, "of the account");
        let mut bob = RpcPeer::connect(world, RpcPort::Interfaces);
        bob.log_on(EVENTS, "bob", &password("bob")).await;
        wait(&mut bob, 1, 302).await;
        assert_eq!(raise(&mut bob, 2, 302).await, 302_u32.to_le_bytes());
        assert_eq!(header(&bob.next().await.unwrap()).call_id, 1, "others have their own");
        let some = others.pop();
        drop(some);
        until_waiting(world, RPC_WAITS_PER_USER - MAX_PENDING).await;
        wait(&mut last, 3, 301).await;
        until_waiting(world, RPC_WAITS_PER_USER - MAX_PENDING + 1).await;
    });
}

/// A pipe of the interface, bound without a logon of its own.
async fn on_pipe(peer: &mut Peer, mount: &Mount) -> FileId {
    let pipe = peer.open_file(mount, &Want::existing("frevo_test")).await;
    let bind = bind_of(EVENTS, 0).encode(PduKind::BIND, 1);
    peer.write(mount, pipe, 0, &bind).await;
    let ack = peer.read(mount, pipe, 0, 4280).await;
    assert_eq!(header(&ack).kind, PduKind::BIND_ACK);
    pipe
}

fn transceive_draft(pipe: FileId, input: &[u8]) -> Draft {
    let request = ioctl::Request::fsctl(CtlCode::PIPE_TRANSCEIVE, pipe, input, 4280);
    Draft::new(Command::IOCTL).with(|w| request.encode(w))
}

fn plain(call_id: u32, opnum: u16, event: u32) -> Vec<u8> {
    let stub = event.to_le_bytes();
    let request = Request { alloc_hint: 0, context_id: 0, opnum, stub: &stub };
    request.encode(PduFlags::WHOLE, call_id)
}

#[test]
fn a_call_waits_for_hours_on_a_pipe() {
    in_frozen_world(hooked(), async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let ipc = peer.mount(&logon, "IPC$").await;
        let (pipe, other) = (on_pipe(&mut peer, &ipc).await, on_pipe(&mut peer, &ipc).await);
        // The WRITE is answered at once, and a READ waits.
        peer.write(&ipc, pipe, 0, &plain(2, AWAIT, 401)).await;
        until_waiting(world, 1).await;
        let [read] = *peer.send(vec![ipc.put(read_draft(pipe, 0, 4280))], ipc.via()).await else {
            panic!("one request")
        };
        sleep(RPC_IDLE * 9).await;
        // Another call on the same pipe is answered before it.
        peer.send(vec![ipc.put(write_draft(other, 0, &plain(3, RAISE, 401)))], ipc.via()).await;
        let answer = loop {
            let reply = peer.reply().await;
            if reply.header.message_id == read && !reply.is_interim() {
                break read::Response::parse(&reply.message).unwrap().data.to_vec();
            }
        };
        assert_eq!((header(&answer).call_id, &answer[24..]), (2, &401_u32.to_le_bytes()[..]));
        until_waiting(world, 0).await;
        // FSCTL_PIPE_TRANSCEIVE waits as well.
        peer.read(&ipc, other, 0, 4280).await;
        let asked = ipc.put(transceive_draft(pipe, &plain(4, AWAIT, 402)));
        let [asked] = *peer.send(vec![asked], ipc.via()).await else { panic!("one request") };
        until_waiting(world, 1).await;
        sleep(RPC_IDLE * 2).await;
        peer.send(vec![ipc.put(write_draft(other, 0, &plain(5, RAISE, 402)))], ipc.via()).await;
        let reply = loop {
            let reply = peer.reply().await;
            if reply.header.message_id == asked && !reply.is_interim() {
                break reply;
            }
        };
        reply.ok();
        // A cancelled call is answered with a fault. Closing the pipe ends the waiting call.
        peer.write(&ipc, pipe, 0, &plain(6, AWAIT, 403)).await;
        peer.write(&ipc, pipe, 0, &plain(7, AWAIT, 403)).await;
        until_waiting(world, 2).await;
        peer.write(&ipc, pipe, 0, &control(PduKind::CO_CANCEL, 6)).await;
        let cancelled = peer.read(&ipc, pipe, 0, 4280).await;
        assert_eq!((header(&cancelled).call_id, fault(&cancelled)), (6, FaultStatus::CANCEL));
        until_waiting(world, 1).await;
        peer.close(&ipc, pipe).await;
        until_waiting(world, 0).await;
        // The end of the connection ends the waiting call, too.
        peer.write(&ipc, other, 0, &plain(8, AWAIT, 404)).await;
        until_waiting(world, 1).await;
        drop(peer);
        until_waiting(world, 0).await;
    });
}

/// Begins a transaction on a pipe that waits, and returns its interim response.
async fn transceive(peer: &mut Peer, mount: &Mount, pipe: FileId, event: u32) -> Reply {
    let draft = mount.put(transceive_draft(pipe, &plain(2, AWAIT, event)));
    peer.send(vec![draft], mount.via()).await;
    peer.interim().await
}

/// MS-SMB2 3.3.5.16: CANCEL ends the transaction, and leaves its call.
#[test]
fn a_transaction_that_waits_is_cancelled() {
    in_frozen_world(hooked(), async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let ipc = peer.mount(&logon, "IPC$").await;
        let (pipe, other) = (on_pipe(&mut peer, &ipc).await, on_pipe(&mut peer, &ipc).await);
        let interim = transceive(&mut peer, &ipc, pipe, 501).await;
        sleep(RPC_IDLE).await;
        assert_eq!(world.server.ledger.account("ann").count(Kind::Waiting), 1);
        let asked = interim.header.message_id;
        let cancel = Peer::cancel(asked, Some(async_id(&interim)), logon.id);
        peer.send_frame(&pack(&[cancel], ipc.via())).await;
        peer.final_reply(asked).await.expect(Status::CANCELLED);
        until_held(world, Kind::Waiting, 0).await;
        assert_eq!(waiting(world), 1);
        peer.write(&ipc, other, 0, &plain(3, RAISE, 501)).await;
        until_waiting(world, 0).await;
        let answer = peer.read(&ipc, pipe, 0, 4280).await;
        assert_eq!((header(&answer).call_id, &answer[24..]), (2, &501_u32.to_le_bytes()[..]));
    });
}

/// The end of a channel ends the transactions that wait on it, and leaves the session with its pipes.
#[test]
fn a_transaction_that_waits_ends_with_its_channel() {
    in_frozen_world(hooked(), async |world| {
        let mut first = world.connect();
        first.negotiate(&Offer::default()).await;
        let logon = first.log_on("ann").await;
        let ipc = first.mount(&logon, "IPC$").await;
        let (pipe, other) = (on_pipe(&mut first, &ipc).await, on_pipe(&mut first, &ipc).await);
        let mut second = world.connect();
        second.guid = first.guid;
        second.negotiate(&Offer::default()).await;
        let bound = second.try_log_on(Setup::binding("ann", &logon)).await.expect("bound");
        transceive(&mut second, &ipc.on(&bound), pipe, 601).await;
        assert_eq!(world.server.ledger.account("ann").count(Kind::Waiting), 1);
        drop(second);
        until_held(world, Kind::Waiting, 0).await;
        assert_eq!(waiting(world), 1);
        first.write(&ipc, other, 0, &plain(3, RAISE, 601)).await;
        until_waiting(world, 0).await;
        let answer = first.read(&ipc, pipe, 0, 4280).await;
        assert_eq!(header(&answer).call_id, 2);
    });
}
