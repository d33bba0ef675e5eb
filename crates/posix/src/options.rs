//! The options of a share.

use std::path::PathBuf;

use frevo_wire::dtyp::FileAttributes;

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

/// DOS attributes that are stored as bits of a file's mode, as smbd stores them without DOSATTRIB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModeAttributes {
    /// ARCHIVE is the owner's right to execute.
    pub archive: bool,
    /// SYSTEM is the group's right to execute.
    pub system: bool,
    /// HIDDEN is the right of others to execute.
    pub hidden: bool,
    /// READONLY is a file that its owner may not write.
    pub read_only: bool,
}

impl ModeAttributes {
    /// The attributes in use, each with its bit.
    fn pairs(self) -> impl Iterator<Item = ModeBit> {
        let all = [
            (self.archive, FileAttributes::ARCHIVE, 0o100),
            (self.system, FileAttributes::SYSTEM, 0o010),
            (self.hidden, FileAttributes::HIDDEN, 0o001),
        ];
        let used = all.into_iter().filter(|(is_used, ..)| *is_used);
        used.map(|(_, attribute, bit)| ModeBit { attribute, bit })
    }

    /// True if no attribute is stored so.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the attributes of a file with the permission bits `mode`.
    pub(crate) fn of_mode(self, mode: u32) -> FileAttributes {
        let set = self.pairs().filter(|pair| mode & pair.bit != 0);
        let attributes = set.fold(FileAttributes::EMPTY, |all, pair| all | pair.attribute);
        let is_read_only = self.read_only && mode & OWNER_WRITES == 0;
        if is_read_only { attributes | FileAttributes::READONLY } else { attributes }
    }

    /// True for attributes with which nobody gets the right to write.
    fn forbids_writing(self, attributes: FileAttributes) -> bool {
        self.read_only && attributes.contains(FileAttributes::READONLY)
    }

    /// Returns the bits for these attributes.
    pub(crate) fn bits_of(self, attributes: FileAttributes) -> u32 {
        let set = self.pairs().filter(|pair| attributes.contains(pair.attribute));
        set.fold(0, |all, pair| all | pair.bit)
    }

    /// Returns all bits that store attributes.
    fn bits(self) -> u32 {
        self.pairs().fold(0, |all, pair| all | pair.bit)
    }
}

/// An attribute and the bit that stores it.
struct ModeBit {
    attribute: FileAttributes,
    bit: u32,
}

/// The parts of a directory that objects made in it inherit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Heritage {
    /// The directory's permission bits. None if they do not count.
    pub(crate) mode: Option<u32>,
    /// True if the directory has a default access list, and that counts.
    pub(crate) has_list: bool,
    /// The directory's owner, if new objects belong to it.
    pub(crate) owner: Option<u32>,
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
    /// Permission bits that each created file has, whatever the mask is; not set-user-ID and
    /// set-group-ID.
    pub forced_file_mode: u32,
    /// Permission bits that each created directory has, also set-group-ID.
    pub forced_directory_mode: u32,
    /// Created files have the bits for reading and writing of their directory, created directories all
    /// its bits, in place of the masks and the forced bits.
    pub inherit_modes: bool,
    /// Created files and directories belong to the owner of their directory.
    pub inherit_owner: bool,
    /// Where a directory has a default access list, the list alone decides on the rights of directories
    /// made in it, and the list and the mask on those of files.
    pub inherit_lists: bool,
    /// DOS attributes in the modes of files, for a share without `dos_attributes`.
    pub mode_attributes: ModeAttributes,
    /// Users who may write an object may change its permissions too, which the server does for them. For
    /// [`NtAcls::Posix`] alone: a stored list says itself who may change it.
    pub writers_set_modes: bool,
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
            forced_file_mode: 0,
            forced_directory_mode: 0,
            inherit_modes: false,
            inherit_owner: false,
            inherit_lists: false,
            mode_attributes: ModeAttributes::default(),
            writers_set_modes: false,
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
/// The right of the owner to write.
const OWNER_WRITES: u32 = 0o200;
/// The right of everybody to write.
const ALL_WRITE: u32 = 0o222;

impl PosixOptions {
    /// Returns the permission bits of a new file with these attributes for which a client asks for
    /// `mode`. set-user-ID and set-group-ID are never set for a client: the file would belong to the
    /// user that the server runs as.
    pub(crate) fn file_mode_of(
        &self,
        mode: Option<u32>,
        attributes: FileAttributes,
        from: Heritage,
    ) -> u32 {
        let mask = self.create_mask.unwrap_or(DEFAULT_MASK);
        let mapped = self.mode_attributes.bits_of(attributes);
        let writes = if self.mode_attributes.forbids_writing(attributes) { 0 } else { ALL_WRITE };
        let bits = match (mode, from) {
            (Some(mode), _) => mode & self.create_mask.unwrap_or(0o7777) | self.forced_file_mode,
            (None, Heritage { has_list: true, .. }) => (0o555 | writes) & mask,
            (None, Heritage { mode: Some(parent), .. }) => parent & (0o444 | writes) | mapped,
            (None, _) => (0o444 | writes | mapped) & mask | self.forced_file_mode,
        };
        bits & 0o1777
    }

    /// Returns the permission bits of a file with `mode` that gets these attributes. New files and old ones
    /// have the same bits for them.
    pub(crate) fn mode_with(&self, mode: u32, attributes: FileAttributes) -> u32 {
        let (used, mapped) =
            (self.mode_attributes.bits(), self.mode_attributes.bits_of(attributes));
        let bits = if self.inherit_modes {
            mapped
        } else {
            mapped & self.create_mask.unwrap_or(DEFAULT_MASK) | self.forced_file_mode & used
        };
        self.writing(mode & !used | bits, attributes)
    }

    /// Returns permission bits with the rights to write that go with attributes: none of a file that is
    /// READONLY, those of a new file where it was that before, else the bits' own.
    fn writing(&self, mode: u32, attributes: FileAttributes) -> u32 {
        let was_read_only = mode & OWNER_WRITES == 0;
        if self.mode_attributes.forbids_writing(attributes) {
            // A file keeps the rights that every file has.
            let kept = if self.inherit_modes { 0 } else { self.forced_file_mode & ALL_WRITE };
            mode & !ALL_WRITE | kept
        } else if self.mode_attributes.read_only && was_read_only {
            let (mask, forced) =
                (self.create_mask.unwrap_or(DEFAULT_MASK), self.forced_file_mode & ALL_WRITE);
            mode | if self.inherit_modes { OWNER_WRITES } else { ALL_WRITE & mask | forced }
        } else {
            mode
        }
    }

    /// Returns the permission bits of a new directory. It inherits set-group-ID from its parent, or has
    /// it from [`Self::group_bit`].
    pub(crate) fn directory_mode_of(&self, mode: Option<u32>, from: Heritage) -> u32 {
        let (mask, forced) =
            (self.directory_mask.unwrap_or(DEFAULT_MASK), self.forced_directory_mode);
        let bits = match (mode, from) {
            (Some(mode), _) => mode & self.directory_mask.unwrap_or(0o7777) | forced,
            (None, Heritage { has_list: true, .. }) => 0o777 & mask,
            // Its owner may always make files in it.
            (None, Heritage { mode: Some(parent), .. }) => parent | 0o200,
            (None, _) => 0o777 & mask | forced,
        };
        bits & 0o1777
    }

    /// Returns set-group-ID if each new directory gets it, else 0.
    pub(crate) fn group_bit(&self, from: Heritage) -> u32 {
        if from.mode.is_none() { self.forced_directory_mode & 0o2000 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: Heritage = Heritage { mode: Some(0o3750), has_list: false, owner: None };
    const LIST: Heritage = Heritage { mode: Some(0o700), has_list: true, owner: None };

    #[test]
    fn modes_are_masked_forced_or_inherited() {
        let options = PosixOptions {
            create_mask: Some(0o640),
            directory_mask: Some(0o750),
            forced_file_mode: 0o6011,
            forced_directory_mode: 0o6070,
            ..PosixOptions::default()
        };
        let file = |mode, from| options.file_mode_of(mode, FileAttributes::ARCHIVE, from);
        let directory = |mode, from| options.directory_mode_of(mode, from);
        assert_eq!(file(None, Heritage::default()), 0o651, "neither set-user-ID nor set-group-ID");
        assert_eq!(file(Some(0o777), Heritage::default()), 0o651);
        assert_eq!(file(None, PARENT), 0o640, "the bits for reading and writing");
        assert_eq!(file(None, LIST), 0o640, "the mask");
        assert_eq!(directory(None, Heritage::default()), 0o770);
        assert_eq!(directory(Some(0o700), Heritage::default()), 0o770);
        assert_eq!(directory(None, PARENT), 0o1750);
        assert_eq!(directory(None, Heritage { mode: Some(0o500), ..PARENT }), 0o700);
        assert_eq!(directory(None, LIST), 0o750);
        assert_eq!(options.group_bit(Heritage::default()), 0o2000);
        assert_eq!(options.group_bit(PARENT), 0, "the kernel hands it down");
        let list = Heritage { mode: None, ..LIST };
        assert_eq!(options.group_bit(list), 0o2000, "no list says it");
    }

    #[test]
    fn attributes_are_bits_of_the_mode() {
        let (archive, hidden) = (FileAttributes::ARCHIVE, FileAttributes::HIDDEN);
        let mode_attributes =
            ModeAttributes { archive: true, hidden: true, ..ModeAttributes::default() };
        let options = PosixOptions { mode_attributes, ..PosixOptions::default() };
        let made = |attributes, from| options.file_mode_of(None, attributes, from);
        assert_eq!(made(archive | FileAttributes::SYSTEM, Heritage::default()), 0o744);
        assert_eq!(made(archive | hidden, PARENT), 0o741);
        assert_eq!(mode_attributes.of_mode(0o751), archive | hidden);
        assert_eq!(mode_attributes.of_mode(0o650), FileAttributes::EMPTY);
        assert_eq!(options.mode_with(0o755, hidden), 0o655);
        assert_eq!(options.mode_with(0o640, archive), 0o740);
        assert_eq!(PosixOptions::default().mode_with(0o755, archive), 0o755);
        let (create_mask, forced_file_mode) = (Some(0o644), 0o001);
        let limited = PosixOptions { create_mask, forced_file_mode, ..options };
        assert_eq!(limited.mode_with(0o644, archive), 0o645, "the mask and the forced bits");
        let inherits = PosixOptions { inherit_modes: true, ..limited };
        assert_eq!(inherits.mode_with(0o644, archive), 0o744);
    }

    #[test]
    fn a_file_that_is_read_only_has_no_right_to_write() {
        let mode_attributes = ModeAttributes { read_only: true, ..ModeAttributes::default() };
        let (create_mask, forced_file_mode) = (Some(0o664), 0o020);
        let options = PosixOptions {
            mode_attributes,
            create_mask,
            forced_file_mode,
            ..PosixOptions::default()
        };
        let (read_only, none) = (FileAttributes::READONLY, FileAttributes::EMPTY);
        assert_eq!(options.file_mode_of(None, read_only, Heritage::default()), 0o464);
        assert_eq!(options.file_mode_of(None, none, Heritage::default()), 0o664);
        assert_eq!(options.file_mode_of(None, read_only, PARENT), 0o440);
        assert_eq!(options.mode_with(0o644, read_only), 0o464);
        assert_eq!(options.mode_with(0o444, none), 0o664);
        assert_eq!(options.mode_with(0o640, none), 0o640, "it was not read-only");
        assert_eq!(mode_attributes.of_mode(0o440), read_only);
        assert_eq!(mode_attributes.of_mode(0o640), none);
        let inherits = PosixOptions { inherit_modes: true, ..options };
        assert_eq!(inherits.mode_with(0o444, none), 0o644, "of the owner alone");
        assert_eq!(PosixOptions::default().mode_with(0o640, read_only), 0o640);
    }
}
