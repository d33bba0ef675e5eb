//! The public face of the crate: a server that another program starts, looks at, changes
//! and stops.
//!
//! [`ServerBuilder`] takes the parts and makes a [`Server`]. The command line, the tests
//! and the simulator make theirs in this way too.

mod builder;
pub(crate) mod kick;
mod limits;
mod listeners;
mod metrics;
mod probe;
pub(crate) mod review;
mod server;
mod share_editor;
pub(crate) mod snapshot;
mod status;
mod users;
pub mod vfs;

pub use builder::{Reload, ServerBuilder};
pub use kick::{Kick, Kicked};
pub use limits::Limits;
pub use listeners::IntoListeners;
pub use metrics::Metrics;
pub use probe::ShareSpace;
pub use server::{Connection, Server};
pub use share_editor::{NotEdited, ShareEdit, ShareEditor};
pub use status::{
    ActivityStatus, ChannelStatus, ClassStatus, ErrorStatus, LatencyBuckets, LeaseStatus,
    LockStatus, OpenStatus, Rows, ServerStatus, SessionStatus, ShareStatus, Status, StatusQuery,
};
pub use users::UserList;
