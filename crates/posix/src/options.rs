//! How one share shows its directory.

use crate::snapshots::SnapshotFolders;

/// How names are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// As Windows does: an exact match wins, else the first that folds alike.
    Insensitive,
    /// Byte for byte.
    Sensitive,
}

/// Where security descriptors of clients go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NtAcls {
    /// Into an extended attribute, in Samba's layout: `security.NTACL`, or
    /// `user.NTACL` where the process may not set that.
    Xattr,
    /// Into mode, owner and group; what they cannot say is lost.
    Posix,
    /// Nowhere: they cannot be set.
    Off,
}

/// Where named streams are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// In extended attributes of their file, as Samba's `streams_xattr` has them;
    /// those that are too large for the file system's attributes in the side folder.
    Xattr,
    /// All in the side folder, `.frevo-streams` in the share's root.
    Folder,
    /// There are none.
    Off,
}

/// The side folder: clients neither see nor reach it.
pub(crate) const SIDE_FOLDER: &str = ".frevo-streams";

/// Options of a [`crate::PosixVfs`].
#[derive(Debug, Clone)]
pub struct PosixOptions {
    /// Nothing is created, changed or removed.
    pub read_only: bool,
    /// Permission bits that a created file may have; None: 0755, and what it
    /// wants for a client that says a mode. The process's umask takes away more:
    /// a server sets it to 0.
    pub create_mask: Option<u32>,
    /// The same for a created directory.
    pub directory_mask: Option<u32>,
    /// How names are compared.
    pub case: Case,
    /// Keep DOS attributes and creation times in `user.DOSATTRIB`.
    pub dos_attributes: bool,
    /// Where security descriptors go.
    pub nt_acls: NtAcls,
    /// Count extended attributes while listing directories, which costs a system
    /// call or two for each entry. Without, listings say 0 for all; what is
    /// asked of an open file is always counted.
    pub list_ea_sizes: bool,
    /// Show names that begin with a period as HIDDEN, as smbd does by default.
    pub hide_dot_files: bool,
    /// Show these names as HIDDEN too: expressions with `*` and `?`, compared
    /// without case.
    pub hide_files: Vec<String>,
    /// Files have short names (8.3) beside their own, by which they are found.
    pub short_names: bool,
    /// Resolve symbolic links that stay inside the share. Links never lead out
    /// of it, whatever this says.
    pub follow_symlinks_inside: bool,
    /// Tell of what other programs do in a directory that is observed.
    pub host_changes: bool,
    /// Show the byte-range locks of clients to other programs, and heed theirs.
    pub posix_locks: bool,
    /// Where named streams are kept.
    pub streams: Streams,
    /// Name of the file system that clients are told.
    pub file_system_name: String,
    /// Where snapshots of the share are, if anywhere.
    pub snapshots: Option<SnapshotFolders>,
}

impl Default for PosixOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            create_mask: None,
            directory_mask: None,
            case: Case::Insensitive,
            dos_attributes: true,
            nt_acls: NtAcls::Xattr,
            list_ea_sizes: false,
            hide_dot_files: true,
            hide_files: Vec::new(),
            short_names: false,
            follow_symlinks_inside: false,
            host_changes: true,
            posix_locks: false,
            streams: Streams::Xattr,
            file_system_name: String::from("NTFS"),
            snapshots: None,
        }
    }
}

/// Permission bits where neither client nor configuration says any.
const DEFAULT_MASK: u32 = 0o755;

impl PosixOptions {
    /// Permission bits of a new file for which a client wants `mode`. None gets
    /// set-user-ID or set-group-ID from afar: the file would belong to the user
    /// that the server runs as.
    pub(crate) fn file_mode_of(&self, mode: Option<u32>) -> u32 {
        let bits = match mode {
            Some(mode) => mode & self.create_mask.unwrap_or(0o7777),
            None => 0o666 & self.create_mask.unwrap_or(DEFAULT_MASK),
        };
        bits & 0o1777
    }

    /// The same for a new directory. Set-group-ID it has of the one it is in.
    pub(crate) fn directory_mode_of(&self, mode: Option<u32>) -> u32 {
        let bits = match mode {
            Some(mode) => mode & self.directory_mask.unwrap_or(0o7777),
            None => 0o777 & self.directory_mask.unwrap_or(DEFAULT_MASK),
        };
        bits & 0o1777
    }
}
