//! The public face of the crate: a server that another program starts, looks at, changes
//! and stops.
//!
//! [`ServerBuilder`] takes the parts and makes a [`Server`]. The command line, the tests
//! and the simulator make theirs in this way too.
//!
//! It may touch all rooms. Nothing in the server imports it but `serve`.

mod builder;
mod limits;
mod listeners;
mod metrics;
mod moves;
mod probe;
mod server;
pub(crate) mod snapshot;
mod status;
mod users;
pub mod vfs;

#[doc(hidden)]
pub use crate::ipc::tcp::Port as RpcPort;
pub use crate::objects::capture_stream::{CaptureStream, Captured, NotCaptured};
pub use crate::objects::captures::CaptureTarget;
pub use crate::objects::kick::{Kick, Kicked};
pub use crate::objects::own_password::{NotOwn, OwnPassword};
#[doc(hidden)]
pub use crate::objects::shadow_copies::Snapshotter;
#[doc(hidden)]
pub use crate::shares::namespace_editor::NotChanged;
#[doc(hidden)]
pub use crate::shares::scope::ClusterNames;
#[doc(hidden)]
pub use crate::shares::seat::Seat;
pub use crate::shares::share_editor::{NotEdited, ShareEdit, ShareEditor};
pub use crate::shares::target_servers::{Site, Sites, TargetHealth, TargetServer};
pub use builder::{Reload, ServerBuilder};
pub use frevo_capture::cut::CaptureData;
#[doc(hidden)]
pub use frevo_rpc::fsrvp::ShadowCopySets;
#[doc(hidden)]
pub use frevo_rpc::netdfs::{
    Change as NamespaceChange, EntryPath, Priority, PriorityClass as NamespacePriority,
    Settings as NamespaceSettings, StateChange, TargetName,
};
#[doc(hidden)]
pub use frevo_rpc::witness::{ClusterNode, ClusterState, ClusterUnit};
pub use limits::Limits;
pub use listeners::IntoListeners;
pub use metrics::Metrics;
pub use probe::ShareSpace;
pub use server::{Connection, Server};
pub use status::{
    ActivityStatus, BrakeStatus, BrakedStatus, ChannelStatus, ClassStatus, ErrorStatus, HeldStatus,
    LatencyBuckets, LeaseStatus, LockStatus, OpenStatus, RateStatus, Rows, RpcConnectionStatus,
    ServerStatus, SessionStatus, ShareStatus, Status, StatusQuery, TargetStatus, WitnessStatus,
};
pub use users::UserList;
