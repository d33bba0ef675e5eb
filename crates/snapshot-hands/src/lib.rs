//! The acts that make and remove snapshots of shares, in a process that has the rights for them.
//!
//! A server that is confined can make no snapshot. A process of its own does that, which is started before
//! ([`Started::begin`]) and knows from its beginning the places of the shares for which it may act. A request
//! names one of them and a second, nothing else: the name of a snapshot follows from its second
//! ([`frevo_snapshots::Second::to_name`]), so only the server's own snapshots can be removed.
//!
//! A [`SnapshotPlace`] says how snapshots of a share's folder are made:
//!
//! - [`SnapshotPlace::Btrfs`]: the folder is a subvolume of btrfs.
//! - [`SnapshotPlace::Zfs`]: the folder is in a dataset of ZFS; `zfs` makes the snapshots.
//! - [`SnapshotPlace::Lvm`]: the folder is in a file system on a thin volume of LVM; `lvcreate` makes the snapshots,
//!   which are mounted read-only.
//!
//! Each of them has the snapshot contain all that was written before it is made: so a server's answers to
//! WRITE and FLUSH that were sent before hold in the snapshot too.
#![forbid(unsafe_code)]

mod btrfs;
mod fault;
pub mod limits;
mod lvm;
mod mounts;
mod place;
mod process;
mod program;
mod server_end;
mod set_up;
mod socket;
mod zfs;

pub use fault::SnapshotFault;
pub use place::{Kind, NotAKind, SnapshotPlace};
pub use process::Process;
pub use server_end::{Hands, Started};
pub use set_up::{SetUp, ShareSetUp};
