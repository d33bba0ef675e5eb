//! The hands of a node: a process with rights, which acts for a server that has none.
//!
//! The server starts it before it is confined ([`Started::begin`]), and shares nothing with it but a
//! socket. The process knows the endpoints of etcd, the units with their folders, and their addresses
//! from its beginning. A request names one of these; nothing else can be asked for. When the server ends,
//! in whatever way, the process takes all addresses off the machine and ends.

mod dialer;
mod process;
mod server_end;
mod set_up;
mod wire;

pub use dialer::HandsDialer;
pub use process::{Clock, Process};
pub use server_end::{Hands, Started};
pub use set_up::{SetUp, UnitSetUp};
