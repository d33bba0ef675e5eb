//! IOCTL, the pipes of IPC$ and CHANGE_NOTIFY, as a client meets them.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "../client/mod.rs"]
mod client;

mod accounts;
mod brake;
mod calls;
mod copies;
mod dfs;
mod extents;
mod facts;
mod fsrvp;
mod full_disk;
mod layout;
mod leases;
mod manage;
mod naming;
mod negotiated;
mod notify;
mod object_ids;
mod offload;
mod pipes;
mod protected_pipes;
mod ranges;
mod rights;
mod samba_links;
mod snapshots;
mod spotlight;
mod storage_qos;
mod write_once;
