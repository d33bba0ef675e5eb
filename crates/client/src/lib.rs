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
//! # Copying a file
//!
//! ```
//! # #[path = "../tests/world/mod.rs"]
//! # mod world;
//! use frevo_client::{OpenOptions, Result, Share};
//!
//! async fn copy_file(share: &Share, from: &str, to: &str) -> Result<()> {
//!     let source = share.open(from).await?;
//!     let target = OpenOptions::new().write(true).create_new(true).open(share, to).await?;
//!     let len = source.metadata_at_open().len();
//!     // On the server, if it can do that; else through here, in pieces and in order.
//!     if source.copy_range_to(&target, 0, 0, len).await?.is_none() {
//!         let target = &target;
//!         source
//!             .fetch_all(|at, piece| async move { Ok(target.write_at(at, &piece).await?) })
//!             .await?;
//!     }
//!     // Tells whether that went well; a file that is dropped is closed too.
//!     target.close().await
//! }
//! # fn main() {
//! #     world::in_world(async |world| {
//! #         let share = world.share().await;
//! #         share.write("a", b"some data").await.unwrap();
//! #         copy_file(&share, "a", "b").await.unwrap();
//! #         assert_eq!(share.read("b").await.unwrap(), b"some data");
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
//!     let mut directories = vec![top.to_owned()];
//!     while let Some(directory) = directories.pop() {
//!         let mut entries = share.list(&directory).await?;
//!         while let Some(entry) = entries.next().await? {
//!             let path = format!("{directory}/{}", entry.name());
//!             // A link to a directory is none: there is no going round in circles.
//!             if entry.metadata().is_dir() {
//!                 directories.push(path);
//!             } else {
//!                 files.push(path);
//!             }
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
//! #     });
//! # }
//! ```
//!
//! # Watching a folder
//!
//! ```
//! # #[path = "../tests/world/mod.rs"]
//! # mod world;
//! use frevo_client::{Change, Result, Share};
//!
//! /// Waits until `name` is in `folder`.
//! async fn arrives(share: &Share, folder: &str, name: &str) -> Result<()> {
//!     let mut watch = share.watch(folder, false).await?;
//!     // What happens between two calls of `next` is kept by the server.
//!     loop {
//!         for change in watch.next().await? {
//!             match change {
//!                 Change::Added(new) | Change::Renamed { to: new, .. } if new == name => {
//!                     return Ok(());
//!                 }
//!                 // More than the server kept.
//!                 Change::Missed if is_there(share, folder, name).await? => return Ok(()),
//!                 _ => {}
//!             }
//!         }
//!     }
//! }
//!
//! async fn is_there(share: &Share, folder: &str, name: &str) -> Result<bool> {
//!     Ok(share.read_dir(folder).await?.iter().any(|entry| entry.name() == name))
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
//! #             share.rename("d/x", "d/y", false).await.unwrap();
//! #         });
//! #         arrived.expect("told in time").unwrap();
//! #     });
//! # }
//! ```
//!
//! The programs in `examples/` do the same, given a `smb://` URL.
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
//!
//! # When nobody waits any more
//!
//! Any call may be given up: the future is dropped, by `tokio::select!`, by
//! `tokio::time::timeout`. What was sent may still be done then, and an Open that is being
//! made or closed is made and closed, or closed again, behind the scenes. A lock that is
//! granted to nobody is unlocked. [`Dir::next`] and [`Watch::next`] miss nothing when they
//! are called again, [`File::store`] sends nothing more.
//!
//! # Namespaces (DFS)
//!
//! Paths are followed through the links of a DFS namespace to other servers. When the server
//! that a link leads to is lost, what is done by path goes on at the link's next target, if
//! it may safely be done there; of a rename or a removal that was under way nobody knows.
//! What is open is the lost server's: its calls wait for that one, and end with
//! [`Cause::Transport`] when it does not come back in time. Another target's file may be
//! another one; open it again by its path.
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

mod account;
pub mod ambient;
mod attributes;
mod connection;
mod copying;
mod create;
mod credentials;
mod cursor;
mod dfs;
pub mod dial;
mod dir;
mod error;
mod file;
mod fsctl;
mod identity;
mod info;
pub mod limits;
mod listings;
mod lookup;
mod metadata;
mod names;
mod open;
mod open_options;
mod ops;
pub mod options;
pub mod path;
#[cfg(feature = "plant")]
pub mod plant;
mod posix;
mod refusals;
mod replace;
mod rpc;
mod sequences;
mod session;
mod set_attributes;
mod share;
mod small_file_times;
mod special_files;
mod transfer;
mod undo;
mod watch;

pub use attributes::{LinkTarget, Stream};
pub use copying::CopyMethod;
pub use credentials::{Credentials, NtHash, Secret};
pub use cursor::Cursor;
pub use dial::{Dial, ServerName};
pub use dir::{Dir, DirEntry, KeptDir};
pub use error::{Cause, Error, Result};
pub use file::File;
pub use set_attributes::Basic;

pub use identity::Identity;
pub use lookup::Room;
pub use metadata::{FileType, Metadata, file_time, system_time};
pub use open_options::OpenOptions;
pub use options::Options;
pub use posix::{Kind as PosixKind, Posix};
pub use rpc::ListedShare;
pub use session::breaks::{LeaseHolder, Yield};
pub use session::lease::{Grant, Lease};
pub use session::{Client, Session, SessionFacts};
pub use share::Share;
pub use special_files::Special;
pub use transfer::{Progress, STORE_WINDOW};
pub use watch::{Change, Watch};
