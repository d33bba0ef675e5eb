//! Shares: what a tree connect shows, and how its files are reached.
//!
//! The share itself, the links of a namespace in it and the servers that they lead to, folders of the host, the user that files are used as (impersonation), rights by
//! security descriptors, the life of a share (which server owns it), the recycle bin, the brake on ransomware, Time Machine, access-based enumeration, quotas, and what
//! Apple's and POSIX clients expect of files.
//!
//! It may touch `audit`, `access` and `base`. `folders` names `frevo-posix`. It knows no Open, no
//! session and no request: callers give nodes, names and tokens.

pub(crate) mod apple;
pub(crate) mod brake;
pub(crate) mod exposed;
#[cfg(feature = "posix")]
pub mod folders;
#[cfg(not(feature = "posix"))]
pub(crate) mod folders;
pub(crate) mod guests;
pub(crate) mod impersonation;
pub(crate) mod index;
pub(crate) mod life;
pub(crate) mod namespace;
pub(crate) mod namespace_editor;
pub(crate) mod posix;
pub(crate) mod protection;
pub(crate) mod quota;
pub(crate) mod recycle;
pub(crate) mod scanning;
pub(crate) mod scope;
pub(crate) mod seat;
pub(crate) mod share;
pub(crate) mod share_editor;
pub(crate) mod storage;
pub(crate) mod target_servers;
pub(crate) mod time_machine;
pub(crate) mod user_folders;
pub(crate) mod visibility;
pub(crate) mod write_once;
