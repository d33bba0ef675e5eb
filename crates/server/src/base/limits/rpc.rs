//! Pipes, RPC over TCP, and the witness of a cluster.

use std::time::Duration;

/// Bytes that a pipe is charged with, its context handles included. Parts of requests
/// and answers that were not read are charged beside it.
pub const PIPE_BYTES: usize = 4_096;

/// Associations of RPC over TCP that one account may have.
pub const ASSOCIATIONS_PER_USER: usize = 64;

/// Associations of RPC over TCP from one client network, before and after logon.
pub const ASSOCIATIONS_PER_ADDRESS: usize = 256;

/// Bytes that an association of RPC over TCP is charged with, its context handles included. Parts
/// of requests and answers that were not taken are charged beside it.
pub const ASSOCIATION_BYTES: usize = 16_384;

/// Bytes of one look at what a client of RPC over TCP has sent.
pub const ASSOCIATION_READ_BYTES: usize = 8_192;

/// Calls of RPC that wait for an event, of one account, over all its pipes and connections.
/// `MAX_PENDING` of `frevo-rpc` bounds those of one association.
pub const RPC_WAITS_PER_USER: usize = 256;

/// Bytes that a call of RPC is charged with while it waits for an event.
pub const RPC_WAIT_BYTES: usize = 2_048;

/// Registrations with the witness of a cluster that one account may have. `MAX_WITNESS_REGISTRATIONS` of
/// `frevo-rpc` bounds those of all.
pub const WITNESS_REGISTRATIONS_PER_USER: usize = 256;

/// Bytes that a registration with the witness is charged with, and the news that wait for its client.
pub const WITNESS_REGISTRATION_BYTES: usize = 4_096;

/// Time between looks for registrations with the witness that nobody uses.
pub const WITNESS_SWEEP: Duration = Duration::from_secs(10);

/// Time between looks at the user of a connection whose calls wait for events: the account may have
/// changed, and the ticket may have ended.
pub const RPC_WAIT_LOOK: Duration = Duration::from_secs(30);

/// A PDU of RPC over TCP, and a call in fragments, must have come whole within this time.
pub const RPC_MESSAGE_DEADLINE: Duration = Duration::from_secs(30);

/// A client of RPC over TCP must have taken an answer, or the next part of it, within this time.
pub const RPC_ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Time after which a connection to the endpoint mapper ends that asks nothing.
pub const RPC_MAPPER_IDLE: Duration = Duration::from_secs(30);

/// Time after which an association of RPC over TCP ends that has no call under way: as long as a
/// session of Windows.
pub const RPC_IDLE: Duration = Duration::from_secs(15 * 60);

/// Pipes that one session may have open. Each may hold a whole answer.
pub const PIPES_PER_SESSION: usize = 1_040;

/// Calls of MS-FSRVP that wait for the thread of the shadow copies.
pub const SHADOW_COPY_CALLS: usize = 64;
