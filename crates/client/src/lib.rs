//! An SMB 3.1.1 client that keeps the pipe full and never loses its place:
//! MS-SMB2 3.2.
//!
//! ```no_run
//! use frevo_client::{Client, Credentials, ServerName};
//!
//! # async fn example() -> frevo_client::Result<()> {
//! let client = Client::default();
//! let user = Credentials::password("ann", "secret");
//! let session = client.log_on(ServerName::new("files.example"), user).await?;
//! let share = session.share("data").await?;
//! share.write("hello.txt", b"hello").await?;
//! for entry in share.read_dir("").await? {
//!     println!("{} {}", entry.name(), entry.metadata().len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # When the connection is lost
//!
//! A [`Session`] reconnects by itself, for as long as [`Options::recover_for`]
//! says; whoever called waits meanwhile. Files are taken up again: as durable
//! handles where the server kept them, else by name, when they are still the
//! same file and no byte-range lock was held. Requests whose answer was lost are
//! sent again when that is harmless: reads, writes at an offset, locks with
//! their sequence. What is not (the removal of a name, a rename, a place in a
//! listing) ends with [`Cause::Unknown`]: nothing is guessed.
#![forbid(unsafe_code)]
// The server may be anybody's.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

/// Whether a fault was planted here by the simulator: never without the feature.
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

pub mod ambient;
mod attributes;
mod connection;
mod credentials;
mod dfs;
pub mod dial;
mod dir;
mod error;
mod file;
mod fsctl;
mod info;
pub mod limits;
mod lookup;
mod metadata;
mod names;
mod open;
mod ops;
pub mod options;
pub mod path;
#[cfg(feature = "plant")]
pub mod plant;
mod rpc;
mod sequences;
mod session;
mod share;
mod transfer;
mod watch;

pub use attributes::{LinkTarget, Stream};
pub use credentials::{Credentials, NtHash, Secret};
pub use dial::{Dial, ServerName};
pub use dir::{Dir, DirEntry};
pub use error::{Cause, Error, Result};
pub use file::{File, OpenOptions};
pub use fsctl::CopyMethod;
pub use lookup::Room;
pub use metadata::{FileType, Metadata, file_time, system_time};
pub use options::Options;
pub use rpc::ListedShare;
pub use session::breaks::{LeaseHolder, Yield};
pub use session::lease::{Grant, Lease};
pub use session::{Client, Session, SessionFacts};
pub use share::Share;
pub use transfer::{Progress, STORE_WINDOW};
pub use watch::{Change, Watch};
