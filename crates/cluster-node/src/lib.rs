//! A node of a cluster: runs the machine of [`frevo_cluster`] between etcd, the server and the storage.
//!
//! ```text
//! let chair = Chair::new(settings, units, clock);      // before the server is made
//! let server = Server::builder()
//!     .state_store(chair.store())                      // records of persistent handles
//!     .cluster(..chair.limit()..chair.ids()..)
//!     ..
//! let node = chair.start(engine, server, hands);       // on a runtime of tokio
//! ```
//!
//! One task, the driver, gives the machine its inputs, in their order, and carries out its outputs. No
//! lock is held while a callback of the server or a call of an engine runs. The work of a unit - start,
//! serve, drain, stop - is a task of its own; an order to stop ends the one that runs. Time comes from the
//! clock that the caller gives and from timers of tokio, so a simulator repeats a run by its seed.
//!
//! A *unit* is what the machine calls a share: shares that have one owner together, and the addresses that
//! go with them.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

/// True where the simulator has planted this fault: never without the feature.
macro_rules! planted {
    ($fault:ident) => {{
        #[cfg(feature = "plant")]
        {
            crate::plant::is_planted(crate::plant::Plant::$fault)
        }
        #[cfg(not(feature = "plant"))]
        {
            false
        }
    }};
}

mod addresses;
mod chair;
mod driver;
mod hands;
mod happening;
mod ids;
mod inbox;
pub mod limits;
mod loads;
mod node;
mod notes;
mod owners;
#[cfg(feature = "plant")]
pub mod plant;
mod served;
mod shared;
mod store;
mod table;
mod telling;
mod unit;
mod work;

pub use chair::Chair;
pub use hands::{Call, Hands, NoHands};
pub use happening::{Happening, Noted, Observer};
pub use node::{Node, UnitStatus};
pub use served::{Apart, Served};
pub use shared::Clock;
pub use unit::Unit;
