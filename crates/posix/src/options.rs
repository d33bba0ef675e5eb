//! The options of a share.

use std::path::PathBuf;

use crate::fold::without_tail;
use crate::snapshot_folders::SnapshotFolders;

/// The comparison of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// As in Windows: an exact match wins, else the first name that differs in case only.
    Insensitive,
    /// Names are compared byte for byte.
    Sensitive,
}

/// The storage of clients' security descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NtAcls {
    /// An extended attribute in Samba's layout: `security.NTACL`, or `user.NTACL` if the process
    /// may not set that.
    Xattr,
    /// Mode, owner and group; other parts of the descriptor are lost.
    Posix,
    /// No storage: clients cannot set descriptors.
    Off,
}

/// The storage of named streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Extended attributes of the file, as Samba's `streams_xattr`; streams too large for
    /// attributes go to the side folder.
    Xattr,
    /// The side folder, `.frevo-streams` in the share's root.
    Folder,
    /// Files have no named streams.
    Off,
}

/// The side folder, which clients cannot see or reach.
pub const SIDE_FOLDER: &str = ".frevo-streams";

/// The folder of the server's own snapshots, in a share's root, and in snapshots of that. Clients cannot see
/// or reach it in any share, so that none makes it before the server does, or by another mount of the
/// same files.
const SNAPSHOT_FOLDER: &str = ".frevo-snapshots";

/// True if an entry is a folder of the server's own, in any case, on any file system.
pub fn is_side(entry: &[u8]) -> bool {
    let entry = without_tail(entry);
    [SIDE_FOLDER, SNAPSHOT_FOLDER].iter().any(|own| entry.eq_ignore_ascii_case(own.as_bytes()))
}

/// Options of a [`crate::PosixVfs`].
#[derive(Debug, Clone)]
pub struct PosixOptions {
    /// Refuses to create, change and remove anything.
    pub read_only: bool,
    /// Permission bits that a created file may have; None: 0755, or the client's mode if it sends
    /// one. The process's umask removes further bits; a server sets it to 0.
    pub create_mask: Option<u32>,
    /// Permission bits that a created directory may have; None as in `create_mask`.
    pub directory_mask: Option<u32>,
    /// The comparison of names.
    pub case: Case,
    /// Stores DOS attributes and creation times in `user.DOSATTRIB`.
    pub dos_attributes: bool,
    /// The storage of security descriptors.
    pub nt_acls: NtAcls,
    /// Counts extended attributes in listings, which costs a system call or two for each entry.
    /// Without it listings tell 0; the state of an open file always has the count.
    pub list_ea_sizes: bool,
    /// Shows names that begin with a period as HIDDEN, as smbd does by default.
    pub hide_dot_files: bool,
    /// Shows names that match these patterns as HIDDEN too: `*` and `?`, without regard to case.
    pub hide_files: Vec<String>,
    /// Names that clients neither see nor reach: `*` and `?`, without regard to case.
    pub veto: Vec<String>,
    /// Gives files short names (8.3), by which they can be opened.
    pub short_names: bool,
    /// Follows symbolic links inside the share. Links out of the share are never followed.
    pub follow_symlinks_inside: bool,
    /// Reports changes by other programs in observed directories.
    pub host_changes: bool,
    /// Shows clients' byte-range locks to other programs, and obeys theirs.
    pub posix_locks: bool,
    /// The storage of named streams.
    pub streams: Streams,
    /// The name of the file system for clients.
    pub file_system_name: String,
    /// The location of the share's snapshots, if there are any. Clients neither see nor reach the
    /// folder itself.
    pub snapshots: Option<SnapshotFolders>,
    /// The snapshots of all shares of the server, each with the folder of its share: they may be inside this
    /// one.
    pub guarded: Vec<(SnapshotFolders, PathBuf)>,
    /// The folder of the share's own recycle bin, in its root: no link leads there. Whom it is
    /// shown to is for the caller.
    pub recycle: Option<String>,
    /// The recycle bins of all shares of the server, each with the folder of its share. Those that
    /// are not this share's own are out of reach.
    pub bins: Vec<(String, PathBuf)>,
    /// Other servers serve the folder before and after this one: what the kernel has cached of a file
    /// may be older than their changes.
    pub shared_storage: bool,
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
            veto: Vec::new(),
            short_names: false,
            follow_symlinks_inside: false,
            host_changes: true,
            posix_locks: false,
            streams: Streams::Xattr,
            file_system_name: String::from("NTFS"),
            snapshots: None,
            guarded: Vec::new(),
            recycle: None,
            bins: Vec::new(),
            shared_storage: false,
        }
    }
}

/// Permission bits if neither client nor configuration sets them.
const DEFAULT_MASK: u32 = 0o755;

impl PosixOptions {
    /// Returns the permission bits of a new file for which a client asks for `mode`. set-user-ID
    /// and set-group-ID are never set for a client: the file would belong to the user that the
    /// server runs as.
    pub(crate) fn file_mode_of(&self, mode: Option<u32>) -> u32 {
        let bits = match mode {
            Some(mode) => mode & self.create_mask.unwrap_or(0o7777),
            None => 0o666 & self.create_mask.unwrap_or(DEFAULT_MASK),
        };
        bits & 0o1777
    }

    /// Returns the permission bits of a new directory. It inherits set-group-ID from its parent.
    pub(crate) fn directory_mode_of(&self, mode: Option<u32>) -> u32 {
        let bits = match mode {
            Some(mode) => mode & self.directory_mask.unwrap_or(0o7777),
            None => 0o777 & self.directory_mask.unwrap_or(DEFAULT_MASK),
        };
        bits & 0o1777
    }
}
