//! The host that the server runs on: its users, whom files are used as, its folders.
//!
//! This folder alone names `frevo_posix`. There are two hosts: `posix` (the feature of that
//! name, on by default) and `nothing`, for a program that shares file systems of its own.
//! Names of users are looked up through a trait, because a simulation must not ask the host
//! of the build with `posix` either. Credentials are put on in every call of a file system:
//! there the choice is made when the server is compiled, and costs nothing.

#[cfg(feature = "posix")]
mod folder_lock;
#[cfg(feature = "posix")]
mod folders;
mod names;
#[cfg(not(feature = "posix"))]
mod nothing;
#[cfg(feature = "posix")]
mod posix;
#[cfg(feature = "posix")]
mod share_folder;

#[cfg(feature = "posix")]
pub use folders::FolderFault;
pub use names::{HostNames, NoNames, Said};
#[cfg(not(feature = "posix"))]
pub use nothing::*;
#[cfg(feature = "posix")]
pub use posix::*;
#[cfg(feature = "posix")]
pub(crate) use share_folder::probe_folder;
#[cfg(feature = "posix")]
pub use share_folder::{Look, accept_folder, claim_folder, look_at_folder};

/// A folder of the host, for tests.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use frevo_posix::{NtAcls, PosixOptions, PosixVfs};
}
