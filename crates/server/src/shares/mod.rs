//! Shares: what a tree connect shows, and how its files are reached.
//!
//! The share itself, folders of the host, the user that files are used as (impersonation), rights by
//! security descriptors, the recycle bin, Time Machine, access-based enumeration, quotas, and what
//! Apple's and POSIX clients expect of files.
//!
//! It may touch `access` and `base`. `host` alone names `frevo-posix`.

pub(crate) mod apple;
pub(crate) mod data;
pub(crate) mod host;
pub(crate) mod impersonation;
pub(crate) mod posix;
pub(crate) mod protection;
pub(crate) mod quota;
pub(crate) mod recycle;
pub mod share;
pub(crate) mod time_machine;
pub(crate) mod user_folders;
pub(crate) mod visibility;
