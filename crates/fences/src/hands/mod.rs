//! The hands of a node: a process with rights, which acts for a server that has none.
//!
//! The server starts it before it is confined ([`Started::begin`]), and shares nothing with it but a
//! socket. The process knows the endpoints of etcd, the units with their folders, and their addresses
//! from its beginning: a request for a connection, a look or an address names one of these. A request for a
//! fence names an identity of another node, which only etcd knows. So a server that an attacker has taken
//! over can have **any** client, connection or key of reservation refused whose kind is that of a configured
//! fence, also such as belong to no node: each FUSE file system of the host with `fuse`, each client of the
//! NFS server with `nfs`, each client of the CephFS with `ceph`, each key at the disks of its shares with
//! `scsi-pr`. The process refuses this node's own identities, and fences
//! [`FENCES_PER_MINUTE`](crate::limits::FENCES_PER_MINUTE) identities at most. When the server ends,
//! in whatever way, the process takes all addresses off the machine and ends.

mod dialer;
mod process;
mod server_end;
mod set_up;
mod slots;
mod wire;

pub use dialer::HandsDialer;
pub use process::{Clock, Process};
pub use server_end::{Hands, Started};
pub use set_up::{SetUp, UnitSetUp};
