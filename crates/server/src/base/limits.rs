//! Named limits of the server.

mod clients;
mod indexes;
mod logs;
mod memory;
mod names;
mod opens;
mod requests;
mod rpc;
mod scans;
mod shares;
mod threads;

pub use clients::*;
pub use indexes::*;
pub use logs::*;
pub use memory::*;
pub use names::*;
pub use opens::*;
pub use requests::*;
pub use rpc::*;
pub use scans::*;
pub use shares::*;
pub use threads::*;
