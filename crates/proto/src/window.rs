//! Valid MessageIds: the server's sequence window (MS-SMB2 3.3.1.1, 3.3.1.2 and 3.3.5.2.3) and the
//! client's credits (3.2.4.1.2 to 3.2.4.1.6).

mod client;
mod server;

pub use client::{CreditPool, Taken};
pub use server::CommandSequenceWindow;
