//! The objects of MS-SMB2 3.3.1: Server, Client, Session, TreeConnect, Open, Lease and their tables.
//!
//! Also durable and persistent handles, numbered operations, the ledger of all that clients make the
//! server keep, the admission of connections, and the activity of channels. Objects are shared by all
//! cores; the order of their locks is in the types of the store crate.
//!
//! It may touch `shares`, `access`, `audit` and `base`. It knows no request and no
//! connection: `connection_info` has the facts of a connection, and [`notice::ConnectionHandle`] sends
//! a [`notice::Notice`] to the core that owns it.

pub(crate) mod activity;
pub(crate) mod admission;
pub(crate) mod archive;
pub(crate) mod audited;
pub(crate) mod braked;
pub(crate) mod cancellation;
pub(crate) mod capture_stream;
pub(crate) mod captures;
pub(crate) mod changes;
pub(crate) mod channel;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod connection_info;
pub(crate) mod data;
pub(crate) mod directory;
pub(crate) mod durable;
pub(crate) mod enumeration;
pub(crate) mod farewell;
#[cfg(test)]
pub(crate) mod full_tables;
pub(crate) mod host_locks;
pub(crate) mod kick;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod logon;
pub(crate) mod name_holds;
pub(crate) mod notice;
pub(crate) mod offload;
pub(crate) mod open;
pub(crate) mod operations;
pub(crate) mod own_password;
pub(crate) mod pipe;
pub(crate) mod rates;
pub(crate) mod refusal;
pub(crate) mod review;
pub(crate) mod rpc_connections;
pub(crate) mod scan;
pub(crate) mod server;
pub(crate) mod session;
pub mod settings;
pub(crate) mod shadow_copies;
pub(crate) mod shortening;
pub(crate) mod shown;
pub(crate) mod stable;
pub(crate) mod storage;
pub(crate) mod syncs;
pub(crate) mod times;
pub(crate) mod tree_connect;
pub(crate) mod witness;
