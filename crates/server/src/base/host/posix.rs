//! A POSIX host, by `frevo_posix`.

use super::names::{HostNames, Said};

pub use frevo_posix::UnixUser;
pub use frevo_posix::credentials::begin_thread;
pub(crate) use frevo_posix::credentials::{Assumed, Credentials, Scope, as_server, server_ids};
pub(crate) use frevo_posix::denials;
pub(crate) use frevo_posix::fault_of;
pub(crate) use frevo_posix::name_service::log_socket;
pub(crate) use frevo_posix::patience::{
    freeing, gives_up, gives_up_freeing, has_given_up, is_long_to_free, long as long_patience,
    short as short_patience,
};

pub(crate) use frevo_posix::{
    forget_remembered, forget_unused_names, remembered_bytes, remembers_names, watched_bytes,
};

/// Gives up a call that reserves so many bytes for a file and has changed nothing, if calls must not take
/// long. Returns true if it gave up.
pub(crate) fn gives_up_reserving(bytes: u64) -> bool {
    bytes > frevo_posix::limits::RESERVED_ON_CORE && gives_up(usize::MAX)
}

/// The users of this host, as its name service knows them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PosixNames;

impl HostNames for PosixNames {
    fn user(&self, name: &str) -> Said<UnixUser> {
        frevo_posix::user(name)
    }

    fn user_name(&self, uid: u32) -> Said<String> {
        frevo_posix::user_name(uid)
    }

    fn group_name(&self, gid: u32) -> Said<String> {
        frevo_posix::group_name(gid)
    }

    fn group_id(&self, name: &str) -> Said<u32> {
        frevo_posix::group_id(name)
    }
}

/// Returns the users of the host that the server was compiled for.
pub(crate) fn names() -> &'static dyn HostNames {
    &PosixNames
}

/// Opens a folder with the options of a share that says nothing.
///
/// # Errors
/// When it does not exist, is not a folder, or must not be read.
pub(crate) fn open_folder(
    path: &std::path::Path,
) -> std::io::Result<std::sync::Arc<dyn frevo_store::Vfs>> {
    use frevo_posix::{PosixOptions, PosixVfs};
    Ok(std::sync::Arc::new(PosixVfs::open_root(path, PosixOptions::default())?))
}
