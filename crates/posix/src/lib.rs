//! The Linux file system as a [`frevo_store::Vfs`].
//!
//! A share is one directory descriptor. Every walk begins there with `openat2(RESOLVE_BENEATH |
//! RESOLVE_NO_MAGICLINKS)`, so no name, link or race leads out of the share. Attributes, creation
//! times and extended attributes have Samba's layout: smbd and Frevo show the same for one tree.
//!
//! Calls run with the credentials of the calling thread (see [`credentials`]). The process needs
//! `/proc`: extended attributes of files that it may not read are reached through `/proc/self/fd`.
//!
//! Data descriptors have `O_NONBLOCK`, so that opening never waits for a lease of a local process;
//! it has no effect on reads and writes of regular files.
// Clippy warns of a temporary value in the head of a `for` or `match`, such as the guard of a lock,
// because it exists until the end of the block.
#![warn(clippy::significant_drop_in_scrutinee)]

mod abilities;
mod cache;
mod case_rename;
mod casing;
mod compression;
pub mod credentials;
pub mod denials;
mod dir;
mod directory;
pub mod dosattrib;
pub mod environment;
mod errno;
mod extents;
mod facts;
mod fold;
mod homes;
mod host;
pub mod inherited;
mod kept_folders;
pub mod limits;
mod locks;
mod memory;
mod mounts;
pub mod name_service;
mod names;
mod node;
mod ntacl;
mod options;
pub mod patience;
pub mod quota;
pub mod refused_calls;
mod remembered;
mod renamed;
mod reparse_tag;
mod scsi;
mod security;
mod share;
mod snapshot_folders;
mod snapshots;
mod stat;
pub mod subvolumes;
mod sys;
mod tunnels;
mod unix;
mod vfs;
mod volume;
mod writable;
mod xattr;

pub use errno::fault_of;
#[doc(hidden)]
pub use homes::{HomeOwner, NewHome, make_home};
pub use host::attempt_watch;
pub use mounts::{is_automounted, keep_list as keep_mount_list, kind_at as mount_kind};
pub use options::{
    Case, ModeAttributes, NtAcls, PosixOptions, SIDE_FOLDER, Streams, is_side as is_own_folder,
};
pub use remembered::{
    forget_remembered, forget_unused_names, remembered_bytes, remembers_names, watched_bytes,
};
pub use scsi::{ScsiData, ScsiEnd, send_scsi};
pub use security::may_write_security_attributes;
pub use share::guard::guard_alike;
pub use share::streams::layout::{attribute as stream_attribute, stream_of as stream_of_attribute};
pub use share::streams::side::{MARK as STREAMS_MARK, is_mark_of as is_streams_mark_of};
pub use snapshot_folders::{SnapshotFault, SnapshotFolders};
pub use unix::{Said, UnixUser, group_id, group_name, user, user_name};
pub use vfs::{PosixVfs, Reach};
pub use volume::space as space_of;
