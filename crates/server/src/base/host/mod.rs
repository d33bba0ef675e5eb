//! The host that the server runs on: its users, the credentials that threads take, its errors.
//!
//! There are two hosts: `posix` (the feature of that name, on by default) and `nothing`, for a
//! program that shares file systems of its own. Names of users are looked up through a trait,
//! because a simulation must not ask the host of the build with `posix` either. Credentials are put
//! on in every call of a file system: there the choice is made when the server is compiled, and
//! costs nothing.

pub(crate) mod host_user;
mod names;
#[cfg(not(feature = "posix"))]
mod nothing;
#[cfg(feature = "posix")]
mod posix;

pub use host_user::HostUser;
pub use names::{HostNames, NoNames, Said};
#[cfg(not(feature = "posix"))]
pub use nothing::*;
#[cfg(feature = "posix")]
pub use posix::*;
