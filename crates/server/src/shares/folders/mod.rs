//! Folders of the host as file systems of shares, by `frevo-posix`.

#[cfg(feature = "posix")]
mod folder_lock;
#[cfg(feature = "posix")]
mod share_folder;

#[cfg(feature = "posix")]
pub(crate) use share_folder::probe_folder;
#[cfg(feature = "posix")]
pub use share_folder::{Look, ShareFolder, accept_folder, claim_folder, look_at_folder};

/// Looks at the folder of a share; there are none.
#[cfg(not(feature = "posix"))]
pub(crate) fn probe_folder(
    _vfs: &dyn frevo_store::Vfs,
) -> Option<Result<frevo_store::vfs::Space, String>> {
    None
}

/// A folder of the host, for tests.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use frevo_posix::{NtAcls, PosixOptions, PosixVfs};
}
