//! An SMB 3.1.1 client: it keeps many requests under way, reconnects after a lost connection,
//! and repeats what may be repeated. MS-SMB2 3.2.
//!
//! ```
//! # #[path = "../tests/world/mod.rs"]
//! # mod world;
//! use frevo_client::{Client, Credentials, OpenOptions};
//!
//! /// With `Client::default()` over TCP.
//! async fn example(client: &Client) -> frevo_client::Result<()> {
//!     let session = client.connect("files.example", Credentials::new("ann", "secret")).await?;
//!     let share = session.share("data").await?;
//!     share.write("hello.txt", "hello").await?;
//!     let mut entries = share.read_dir("").await?;
//!     while let Some(entry) = entries.next_entry().await? {
//!         println!("{} {}", entry.file_name(), entry.metadata().len());
//!     }
//!     let file = OpenOptions::new().read(true).write(true).open(&share, "hello.txt").await?;
//!     let mut buf = [0; 5];
//!     file.read_exact_at(&mut buf, 0).await?;
//!     file.write_all_at(b"HELLO", 0).await
//! }
//! # fn main() {
//! #     world::in_world(async |world| {
//! #         example(&world.client(Default::default())).await.unwrap();
//! #         assert_eq!(std::fs::read(world.path("hello.txt")).unwrap(), b"HELLO");
//! #     });
//! # }
//! ```
//!
//! - [`Client`] connects to servers; [`Options`] are its settings.
//! - [`Session`] is a logged-on user; [`Share`] has the operations of `tokio::fs`: `read`,
//!   `write`, `copy`, `read_dir`, `create_dir_all`, `remove_dir_all`, `rename`, `exists`, and
//!   more, with paths like `a/b`.
//! - [`File`] reads and writes at offsets, as `std::os::unix::fs::FileExt` does. A [`Cursor`]
//!   is a file as tokio's `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
//! - [`ReadDir`], [`Walk`] and [`Watch`] are streams.
//! - [`Error`] has a sentence for people, and [`Error::kind`] for programs.
//! - With the feature `object_store`, `SmbStore` makes a share an `object_store::ObjectStore`.
//!
//! All of them need a tokio runtime. The values are cheap to clone and can be used by many
//! tasks at once.
//!
//! # Copying a file
//!
//! [`Share::copy`] lets the server copy if it can. Between two shares:
//!
//! ```
//! # #[path = "../tests/world/mod.rs"]
//! # mod world;
//! use frevo_client::File;
//!
//! async fn copy_file(source: &File, target: File) -> std::io::Result<u64> {
//!     let len = source.metadata_at_open().len();
//!     // By the server if both shares are on one; else through this machine.
//!     if source.copy_range_to(&target, 0, 0, len).await?.is_none() {
//!         tokio::io::copy(&mut source.cursor(), &mut target.cursor()).await?;
//!     }
//!     // A file that is dropped is closed too; `close` reports errors.
//!     target.close().await?;
//!     Ok(len)
//! }
//! # fn main() {
//! #     world::in_world(async |world| {
//! #         let (from, to) = (world.share().await, world.share().await);
//! #         from.write("a", b"some data").await.unwrap();
//! #         assert_eq!(from.copy("a", "b").await.unwrap(), 9);
//! #         let (source, target) = (from.open("b").await.unwrap(), to.create("c").await.unwrap());
//! #         copy_file(&source, target).await.unwrap();
//! #         assert_eq!(to.read_to_string("c").await.unwrap(), "some data");
//! #     });
//! # }
//! ```
//!
//! # Walking a tree
//!
//! ```
//! # #[path = "../tests/world/mod.rs"]
//! # mod world;
//! use frevo_client::{Result, Share};
//!
//! async fn files_below(share: &Share, top: &str) -> Result<Vec<String>> {
//!     let mut files = Vec::new();
//!     let mut walk = share.walk(top);
//!     while let Some(entry) = walk.next_entry().await? {
//!         if entry.file_type().is_file() {
//!             files.push(entry.path().to_owned());
//!         }
//!     }
//!     Ok(files)
//! }
//! # fn main() {
//! #     world::in_world(async |world| {
//! #         let share = world.share().await;
//! #         share.create_dir_all("top/one/two").await.unwrap();
//! #         share.write("top/a", b"1").await.unwrap();
//! #         share.write("top/one/two/b", b"2").await.unwrap();
//! #         let mut files = files_below(&share, "top").await.unwrap();
//! #         files.sort();
//! #         assert_eq!(files, ["top/a", "top/one/two/b"]);
//! #         share.remove_dir_all("top").await.unwrap();
//! #         assert!(!share.exists("top").await.unwrap());
//! #     });
//! # }
//! ```
//!
//! # Watching a folder
//!
//! ```
//! # #[path = "../tests/world/mod.rs"]
//! # mod world;
//! use frevo_client::{Change, RecursiveMode, Result, Share};
//!
//! /// Waits until `folder` contains `name`.
//! async fn arrives(share: &Share, folder: &str, name: &str) -> Result<()> {
//!     let mut watch = share.watch(folder, RecursiveMode::NonRecursive).await?;
//!     loop {
//!         // The server keeps the changes between two calls.
//!         for change in watch.next_changes().await? {
//!             match change {
//!                 Change::Added(new) | Change::Renamed { to: new, .. } if new == name => {
//!                     return Ok(());
//!                 }
//!                 // More changes than the server kept.
//!                 Change::Missed if share.exists(&format!("{folder}/{name}")).await? => {
//!                     return Ok(());
//!                 }
//!                 _ => {}
//!             }
//!         }
//!     }
//! }
//! # fn main() {
//! #     world::in_world(async |world| {
//! #         let share = world.share().await;
//! #         share.create_dir("d").await.unwrap();
//! #         let most = std::time::Duration::from_secs(20);
//! #         let arrived = tokio::time::timeout(most, arrives(&share, "d", "y"));
//! #         let (arrived, ()) = tokio::join!(arrived, async {
//! #             tokio::time::sleep(std::time::Duration::from_millis(100)).await;
//! #             share.write("d/x", b"1").await.unwrap();
//! #             share.rename("d/x", "d/y").await.unwrap();
//! #         });
//! #         arrived.expect("told in time").unwrap();
//! #     });
//! # }
//! ```
//!
//! The programs in `examples/` do the same for a `smb://` URL.
//!
//! # When the connection is lost
//!
//! A [`Session`] reconnects by itself, for the time of [`Options::recover_for`]; calls wait
//! meanwhile. Files are reconnected: as durable handles if the server kept them, else by name,
//! if the file is still the same and no byte-range lock was held. Requests whose answer was
//! lost are repeated if that is harmless: reads, writes at an offset, locks with their
//! sequence. Others (removing a name, renaming, the position of a listing) end with
//! [`Cause::Unknown`].
//!
//! # Clusters
//!
//! A server's name may have the addresses of several nodes, of which one serves a share at a time;
//! [`Options::addresses`] gives them where DNS does not. The client finds the node, and goes on at
//! another one when the share moves: [`Share::node`] says where it is. Files of a continuously
//! available share stay open, with their locks and leases; others are as after a restart of a server.
//! Each share that is at another node than the others of its [`Session`] gets a session of its own,
//! which [`Share::session`] returns; so does one that may move without the others, and one for which the
//! cluster demands an older dialect than the options begin with.
//!
//! An application that fails over from one machine to another opens its files as an [`AppInstance`].
//!
//! # When a call is given up
//!
//! Any call may be given up: its future is dropped, for example by `tokio::select!` or
//! `tokio::time::timeout`. A request that was sent may still be carried out. Opening and
//! closing a file go on in the background: no handle is left behind. A lock that is granted
//! to a caller that gave up is unlocked. [`ReadDir::next_entry`] and [`Watch::next_changes`]
//! miss nothing when they are called again.
//!
//! # Namespaces (DFS)
//!
//! Paths are followed through the links of a DFS namespace to other servers. When the server
//! behind a link is lost, operations by path go on at the link's next target, if that is safe;
//! a rename or a removal that was under way ends with [`Cause::Unknown`]. Open files belong to
//! the lost server: their calls wait for it, and end with [`Cause::Transport`] when it does not
//! come back in time. Open such a file again by its path; another target may have another
//! version of it.
#![forbid(unsafe_code)]
// The server may be hostile, so no input of it may make this crate panic.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

/// True if the simulator has planted this fault. Always false without the feature `plant`.
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

mod account;
mod ambient;
mod connection;
mod credentials;
mod dfs;
mod dial;
mod dialers;
mod error;
mod file;
mod kerberos;
#[doc(hidden)]
pub mod limits;
mod listings;
mod metadata;
#[cfg(feature = "object_store")]
mod object_store;
mod open;
mod options;
#[doc(hidden)]
pub mod path;
#[cfg(feature = "plant")]
#[doc(hidden)]
pub mod plant;
mod quic;
mod redirect;
mod refusals;
mod rpc;
mod rpc_logon;
mod rpc_over_tcp;
mod sequences;
mod session;
mod share;
mod staggered;
mod types;
mod url;
mod witness;

/// Captures of the messages of connections, for [`Options::capture`].
pub mod capture {
    pub use frevo_capture::cut::CaptureData;
    pub use frevo_capture::limits::{CAPTURE_BYTES, CAPTURE_BYTES_MIN, DATA_BYTES, DATA_BYTES_MAX};
    pub use frevo_capture::live::{Capture, FileWriter, create};
    pub use frevo_capture::recorder::{Outcome, Settings};
}

pub use credentials::{Credentials, NtHash, ParseNtHashError};
pub use dial::{ServerAddresses, ServerName};
pub use error::{Cause, Error, LogonError, Result};
pub use file::File;
pub use file::copying::CopyMethod;
pub use file::cursor::Cursor;
pub use file::locks::LockKind;
pub use file::options::OpenOptions;
pub use kerberos::{Kerberos, KerberosError};
pub use metadata::posix::{PosixFileType, PosixMetadata};
pub use metadata::{FileType, Metadata};
#[cfg(feature = "object_store")]
pub use object_store::SmbStore;
pub use options::{Compression, Encryption, Options, Rdma, Referrals, Signing};
pub use quic::{BadCertificate, Certificates, Fingerprint, Identity, Quic, QuicTrust};
pub use session::shadow_copies::ShadowCopy;
pub use session::shares::ShareInfo;
pub use session::{ChannelInfo, Client, NodeInfo, Session, SessionInfo};
pub use share::Share;
pub use share::attributes::{LinkTarget, StreamInfo};
pub use share::dir::{DirEntry, ReadDir};
pub use share::lookup::DiskSpace;
pub use share::set_attributes::SetMetadata;
pub use share::tree::{Walk, WalkEntry};
pub use share::watch::{Change, RecursiveMode, Watch};
pub use types::*;
pub use url::{ParseUrlError, SmbUrl};
pub use witness::{WitnessInfo, WitnessNews};

/// Parts for this project's own programs: the mount, the command line, the simulator. They
/// are no part of the public interface and change in any release.
///
/// They are hidden rather than behind a cargo feature: cargo unites the features of a
/// workspace, so a feature would show them in every build here, and its name would be a
/// promise. Methods of this kind are marked `#[doc(hidden)]` where they stand.
#[doc(hidden)]
pub mod internal {
    pub use crate::ambient::{Ambient, Host};
    pub use crate::dial::{Dial, Dialing, Preferred, Preferring, Resolving};
    pub use crate::dialers::Dialers;
    pub use crate::file::transfer::{Progress, STORE_WINDOW};
    pub use crate::kerberos::{Getting, KdcSource, Kdcs, Tickets};
    pub use crate::listings::ListingCharge;
    pub use crate::metadata::posix::Special;
    pub use crate::metadata::{AtClose, file_time, system_time};
    pub use crate::open::{CarriedThrough, carried_through};
    pub use crate::session::breaks::{LeaseHolder, Yield};
    pub use crate::session::lease::{Grant, Lease};
    pub use crate::share::change::Change;
    pub use crate::share::dir::LeasedDir;
    pub use crate::share::identity::Identity;
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
