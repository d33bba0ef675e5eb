//! One owner for each share of several servers. No I/O.
//!
//! The servers ("nodes") of a cluster have one file system in common, and an etcd. A share is served by
//! one node at a time, its owner. The [`Machine`] of a node decides what the node may serve and until
//! when, and which shares it takes, gives away and loses. It does no I/O and reads no clock: its caller
//! brings in moments of CLOCK_BOOTTIME, answers of etcd, commands of the administrator and statements
//! of the server, and carries out what the machine returns. One input has one result, so a simulator
//! can run several machines against a model of etcd.
//!
//! # Using it
//!
//! ```text
//! let mut machine = Machine::new(settings, now);
//! loop {
//!     machine.handle(now, input);                     // a thing that happened
//!     while let Some(output) = machine.poll() { .. }  // a thing to do, in this order
//!     // sleep until an input comes, or until machine.timer()
//! }
//! ```
//!
//! - [`Output::Request`] goes to etcd; its end comes back as [`Input::Answer`] with the same number.
//!   [`Request::Watch`] has any number of ends, [`Input::Watched`].
//! - [`Output::Order`] goes to the server, which makes statements ([`Input::Statement`]). Each order of
//!   [`Order`] names the statement that ends it.
//! - The server looks at the limit of the last [`Order::ServeUntil`] before it answers a request and
//!   before it issues a change to the file system, with the clock CLOCK_BOOTTIME: after the limit it does
//!   neither. It does not wait for the machine to say so.
//! - [`Input::Record`] keeps and removes records of persistent handles; [`Input::Load`] reads them.
//!
//! # What holds
//!
//! - An owner has a key in etcd ([`keys`]), which lives as long as the lease of its node. The revision
//!   that made the key is the [`Epoch`] of the ownership: a later owner has a larger one.
//! - Records are written in transactions that compare that revision: a former owner cannot write any.
//! - A node serves until the last confirmed moment plus the lease's time less a margin
//!   ([`settings::Timing`]); its lease cannot end before. "Confirmed" is the moment before the requests
//!   were sent, not the moment of their answers.
//! - A share whose owner has gone without giving it away is taken after its storage refuses that owner
//!   ([`fence`]), or where there is no fence after the lease's time plus the margin. An owner that is up and
//!   whose key was deleted says when it has stopped the share; else both apply.
//! - docs/adr/0006 has the reasons and what a cluster asks of etcd.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

extern crate alloc;
// Planted faults belong to a thread, and the model's engines share their etcd.
#[cfg(any(test, feature = "plant", feature = "model"))]
extern crate std;

/// True where the exploration has planted this fault: never without the feature.
macro_rules! planted {
    ($fault:ident) => {{
        #[cfg(any(test, feature = "plant"))]
        {
            crate::plant::is_planted(crate::plant::Plant::$fault)
        }
        #[cfg(not(any(test, feature = "plant")))]
        {
            false
        }
    }};
}

pub mod dialect;
pub mod fence;
pub mod ids;
pub mod interface;
pub mod keys;
pub mod limits;
pub mod machine;
pub mod names;
pub mod placement;
#[cfg(any(test, feature = "plant"))]
pub mod plant;
pub mod records;
pub mod settings;
pub mod text;
pub mod time;
pub mod values;
pub mod view;

#[cfg(any(test, feature = "model"))]
pub mod model;

#[cfg(test)]
mod exploration;

pub use dialect::ClusterDialect;
pub use interface::{Input, Order, Output, Request, Statement};
pub use machine::Machine;
pub use settings::Settings;

use core::fmt;

/// The number of an ownership of a share: the revision of etcd that made the owner's key. A later
/// owner has a larger one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a record: Open.DurableFileId (MS-SMB2 3.3.1.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub u64);
