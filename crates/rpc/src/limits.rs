//! Limits of the RPC state machines on what a peer may send.

use core::time::Duration;

/// Largest fragment sent or accepted, in bytes: that of Windows on pipes.
pub const MAX_FRAG: u16 = 4280;

/// The smallest fragment size that a peer may ask for (C706 12.6.3.1).
pub const MIN_FRAG: u16 = 1432;

/// Largest bind, alter_context and auth3 accepted, in bytes: tickets of Kerberos are long, and these
/// PDUs are not fragmented.
pub const MAX_TOKEN_PDU: u16 = 32 * 1024;

/// Presentation contexts that one association may negotiate.
pub const MAX_CONTEXTS: usize = 16;

/// Stub bytes of one request, all fragments together. The calls that are
/// answered here take a few names.
pub const MAX_REQUEST_STUB: usize = 64 * 1024;

/// Fragments of one request: ten times as many as its stub data needs at the smallest size.
pub const MAX_FRAGMENTS: usize = 512;

/// Calls of one association whose answers come later.
pub const MAX_PENDING: usize = 16;

/// Stub bytes of one response, all fragments together.
pub const MAX_RESPONSE_STUB: usize = 4 * 1024 * 1024;

/// Bytes waiting to be read from a pipe beyond which nothing more may be
/// written to it.
pub const MAX_UNREAD: usize = 64 * 1024;

/// Bytes of a security descriptor in a reply that a client takes.
pub const MAX_DESCRIPTOR: u32 = 0x1_0000;

/// Shares in one reply that a client takes.
pub const MAX_SHARES: usize = 65_536;

/// Context handles that one pipe may have open: Explorer and rpcclient need
/// four at a time.
pub const MAX_HANDLES: usize = 64;

/// Accounts that one enumeration tells; the client asks for more.
pub const MAX_ENUMERATED: usize = 1000;

/// Bytes of sessions, files or connections that one enumeration tells; the client asks for more.
pub const MAX_USAGE_BYTES: usize = 1024 * 1024;

/// Bytes of roots and links that one enumeration of namespaces tells; the client asks for more.
pub const MAX_NAMESPACE_BYTES: usize = 2 * 1024 * 1024;

/// Roots and links in one reply that a client takes.
pub const MAX_NAMESPACE_ENTRIES: usize = 65_536;

/// Roots and links that one enumeration makes at a time, before it adds up their bytes.
pub const NAMESPACE_ENTRIES_AT_ONCE: usize = 256;

/// Names or SIDs of one lookup: MS-LSAT 3.1.4.6 has it for names, and we hold
/// SIDs to it too.
pub const MAX_LOOKUPS: usize = 1000;

/// Bytes that the authentication of an association counts for, with the messages that it keeps.
pub const SECURITY_BYTES: usize = 4096;

/// Bytes of the octets of a tower, MS-RPCE 2.2.1.2.2.
pub const MAX_TOWER: usize = 2000;

/// Floors of a tower, MS-RPCE 3.1.3.5.3.
pub const MAX_FLOORS: usize = 6;

/// Elements that one answer of the endpoint mapper may have, MS-RPCE 2.2.1.2.4.
pub const MAX_ELEMENTS: u32 = 500;

/// Bytes of a sealed password that are taken: the structure of MS-SAMR 2.2.6.32 has 528.
pub const MAX_SEALED_PASSWORD: u32 = 1024;

/// Interfaces in one reply of the witness that a client takes: 64 nodes with 32 addresses.
pub const MAX_WITNESS_INTERFACES: usize = 2_048;

/// Messages, or addresses, of one notification of the witness that a client takes.
pub const MAX_WITNESS_MESSAGES: usize = 1_024;

/// Bytes of the messages of one notification of the witness that a client takes.
pub const MAX_WITNESS_BUFFER: u32 = 256 * 1024;

/// Registrations with the witness, of all clients.
pub const MAX_WITNESS_REGISTRATIONS: usize = 16_384;

/// Changes of resources, and changes of addresses, that wait for one registered client. The oldest
/// makes room.
pub const MAX_WITNESS_QUEUED: usize = 32;

/// Calls of WitnessrAsyncNotify of one registration that wait.
pub const WITNESS_NOTIFIES_PER_REGISTRATION: usize = 1;

/// Bytes of the name by which a client registers with the witness.
pub const MAX_WITNESS_NAME: usize = 512;

/// Nodes that the witness remembers, those that have gone included.
pub const MAX_WITNESS_NODES: usize = 128;

/// Addresses of a node or a unit, and addresses to which a client is moved.
pub const MAX_WITNESS_ADDRESSES: usize = 64;

/// Time for which a registration stays without a call of WitnessrAsyncNotify, MS-SWN 3.1.5.1 note 7.
pub const WITNESS_UNUSED: Duration = Duration::from_secs(30);

/// Sets of shadow copies of MS-FSRVP, of all accounts, those that are recovered included.
pub const MAX_FSRVP_SETS: usize = 64;

/// Sets of shadow copies of MS-FSRVP that one account may have.
pub const FSRVP_SETS_PER_ACCOUNT: usize = 32;

/// Shadow copies of one set of MS-FSRVP.
pub const MAX_FSRVP_COPIES: usize = 64;

/// Shadow copies of one share that one account has left behind, and that stay where no schedule thins them.
pub const FSRVP_LEFT_PER_ACCOUNT: usize = 16;

/// Shadow copies that all accounts have left behind, and that stay where no schedule thins them.
pub const MAX_FSRVP_LEFT: usize = 512;

/// Bytes of the name of a share in UNC format that MS-FSRVP takes.
pub const MAX_SHADOW_COPY_NAME: usize = 1_024;

/// Times that a client of MS-FSRVP may begin again without an end, MS-FSRVP 3.1.4.2 note 5.
pub const FSRVP_RETRIES: u32 = 5;

/// The Message Sequence Timer of MS-FSRVP between most calls: a set whose client is silent for so long ends.
pub const FSRVP_SHORT_TIMER: Duration = Duration::from_secs(180);

/// The Message Sequence Timer after AddToShadowCopySet, PrepareShadowCopySet and GetShareMapping.
pub const FSRVP_LONG_TIMER: Duration = Duration::from_secs(1_800);

/// Messages of Spotlight that are within each other, and arrays and dictionaries in them.
pub const MAX_SPOTLIGHT_DEPTH: usize = 16;

/// Values of a message of Spotlight.
pub const MAX_SPOTLIGHT_VALUES: usize = 4_096;

/// Bytes of a path of Spotlight with its NUL, and of the name of a share.
pub const MAX_SPOTLIGHT_PATH: usize = 1_025;

/// Bytes of a query of Spotlight.
pub const MAX_SPOTLIGHT_QUERY: usize = 16 * 1024;

/// Conditions of a query of Spotlight: those that the index compares.
pub const MAX_SPOTLIGHT_CONDITIONS: usize = 256;

/// Conditions of a query of Spotlight that are within each other.
pub const MAX_SPOTLIGHT_QUERY_DEPTH: usize = 32;

/// Shares that one pipe of Spotlight has open.
pub const MAX_SPOTLIGHT_VOLUMES: usize = 16;

/// Queries of Spotlight that one pipe has open.
pub const MAX_SPOTLIGHT_QUERIES: usize = 32;

/// Attributes that a query of Spotlight tells of each file.
pub const MAX_SPOTLIGHT_ATTRIBUTES: usize = 64;

/// Folders that a query of Spotlight is made in.
pub const MAX_SPOTLIGHT_SCOPES: usize = 16;

/// Files that one answer of Spotlight tells.
pub const SPOTLIGHT_RESULTS_AT_ONCE: usize = 100;

/// Bytes of the attributes in one answer of Spotlight: more files wait for the next answer.
pub const SPOTLIGHT_ANSWER_BYTES: usize = 48 * 1024;

/// The smallest part of an answer of Spotlight that a client may ask for, in bytes.
pub const SPOTLIGHT_LEAST_FRAGMENT: u32 = 1_024;

/// Files of a share that Spotlight has told last, whose attributes a client may ask for.
pub const MAX_SPOTLIGHT_TOLD: usize = 1_024;

/// Bytes of the files of a share that Spotlight has told last.
pub const MAX_SPOTLIGHT_TOLD_BYTES: usize = 256 * 1024;
