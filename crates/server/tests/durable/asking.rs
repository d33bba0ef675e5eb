//! The contexts and calls of these tests.

use std::time::{Duration, Instant};

use crate::client::*;
use frevo_wire::command::create::{self, OplockLevel};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::create_context::{
    AppInstanceVersion, CreateContext, CreateContexts, DurableHandleFlags, DurableReconnectV2,
    DurableRequestV2, Lease, LeaseFlags, LeaseKey, LeaseState, LeaseV2, ResponseContext,
};
use frevo_wire::dtyp::Guid;

/// How long a test waits for the server to notice a lost connection.
const LOST_WITHIN: Duration = Duration::from_secs(20);

pub const fn guid(byte: u8) -> Guid {
    Guid([byte; 16])
}

/// The CREATE with these contexts.
pub fn with(want: Want, contexts: &[CreateContext<'_>]) -> Want {
    Want { contexts: CreateContexts::from_requests(contexts).as_bytes().to_vec(), ..want }
}

pub const fn dh2q(create_guid: Guid, persistent: bool) -> CreateContext<'static> {
    let flags = if persistent { DurableHandleFlags::PERSISTENT } else { DurableHandleFlags::EMPTY };
    CreateContext::DurableRequestV2(DurableRequestV2 { timeout: 0, flags, create_guid })
}

pub const fn dh2c(file_id: FileId, create_guid: Guid, persistent: bool) -> CreateContext<'static> {
    let flags = if persistent { DurableHandleFlags::PERSISTENT } else { DurableHandleFlags::EMPTY };
    CreateContext::DurableReconnectV2(DurableReconnectV2 { file_id, create_guid, flags })
}

pub const fn dhnc(file_id: FileId) -> CreateContext<'static> {
    CreateContext::DurableReconnect(file_id)
}

pub fn app(id: u8, version: Option<(u64, u64)>) -> Vec<CreateContext<'static>> {
    let version = version
        .map(|(high, low)| CreateContext::AppInstanceVersion(AppInstanceVersion { high, low }));
    [CreateContext::AppInstanceId(guid(id))].into_iter().chain(version).collect()
}

/// FSCTL_LMR_REQUEST_RESILIENCY.
pub async fn make_resilient(peer: &mut Peer, mount: &Mount, file: FileId, ms: u32) -> Status {
    let mut input = ms.to_le_bytes().to_vec();
    input.extend_from_slice(&[0; 4]);
    let code = CtlCode::LMR_REQUEST_RESILIENCY;
    let draft =
        Draft::new(Command::IOCTL).with(|w| ioctl::Request::fsctl(code, file, &input, 0).encode(w));
    peer.on(mount, draft).await.status()
}

/// Waits until the server has noticed that connections are lost: that many
/// Opens wait for their clients.
pub async fn lost(world: &World, waiting: usize) {
    // The wait is in real time, because a thread of the blocking pool may have to end first.
    let until = Instant::now() + LOST_WITHIN;
    while Instant::now() < until {
        if world.server.durables.counts().1 == waiting {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{:?} where {waiting} Opens should wait", world.server.durables);
}

/// The same client once more: a new connection and session.
pub async fn back(world: &World, guid: Guid, user: &str, share: &str) -> (Peer, Mount) {
    let mut peer = world.connect();
    peer.guid = guid;
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    let mount = peer.mount(&logon, share).await;
    (peer, mount)
}

/// With a lease of version 2 beside other contexts.
pub fn leased(want: Want, key: u8, state: u32, contexts: &[CreateContext<'_>]) -> Want {
    let lease = Lease {
        lease_key: LeaseKey([key; 16]),
        lease_state: LeaseState(state),
        flags: LeaseFlags::EMPTY,
    };
    let (parent_lease_key, epoch) = (LeaseKey::default(), 0);
    let lease = CreateContext::LeaseV2(LeaseV2 { lease, parent_lease_key, epoch });
    let contexts: Vec<_> = contexts.iter().copied().chain([lease]).collect();
    Want { oplock: OplockLevel::LEASE, ..with(want, &contexts) }
}

/// With a batch oplock.
pub fn batch(want: Want, contexts: &[CreateContext<'_>]) -> Want {
    Want { oplock: OplockLevel::BATCH, ..with(want, contexts) }
}

/// DHnQ of a response.
pub fn is_durable(reply: &Reply) -> bool {
    let response = create::Response::parse(&reply.message).unwrap();
    response.contexts.responses().any(|context| context == Ok(ResponseContext::Durable))
}

/// DH2Q of a response: timeout, and whether it is persistent.
pub fn durable_v2(reply: &Reply) -> Option<(Duration, bool)> {
    let response = create::Response::parse(&reply.message).unwrap();
    response.contexts.responses().find_map(|context| match context.unwrap() {
        ResponseContext::DurableV2(durable) => Some((
            Duration::from_millis(u64::from(durable.timeout)),
            durable.flags.contains(DurableHandleFlags::PERSISTENT),
        )),
        _ => None,
    })
}

/// OplockLevel of a response, and LeaseState with Epoch if there is a lease.
pub fn caches(reply: &Reply) -> (OplockLevel, Option<(u32, u16)>) {
    let response = create::Response::parse(&reply.message).unwrap();
    let lease = response.contexts.responses().find_map(|context| match context.unwrap() {
        ResponseContext::LeaseV2(lease) => Some((lease.lease.lease_state.0, lease.epoch)),
        ResponseContext::Lease(lease) => Some((lease.lease_state.0, 0)),
        _ => None,
    });
    (response.oplock_level, lease)
}
