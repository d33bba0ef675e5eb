//! Numbers of the information classes, MS-FSCC 2.4 and 2.5.

use crate::open_enum;

open_enum! {
    /// Information classes of files, for QUERY_INFO, SET_INFO and QUERY_DIRECTORY, MS-FSCC 2.4.
    FileInfoClass(u8) {
        /// FileDirectoryInformation
        DIRECTORY = 1,
        /// FileFullDirectoryInformation
        FULL_DIRECTORY = 2,
        /// FileBothDirectoryInformation
        BOTH_DIRECTORY = 3,
        /// FileBasicInformation
        BASIC = 4,
        /// FileStandardInformation
        STANDARD = 5,
        /// FileInternalInformation
        INTERNAL = 6,
        /// FileEaInformation
        EA = 7,
        /// FileAccessInformation
        ACCESS = 8,
        /// FileNameInformation, local only.
        NAME = 9,
        /// FileRenameInformation
        RENAME = 10,
        /// FileLinkInformation
        LINK = 11,
        /// FileNamesInformation
        NAMES = 12,
        /// FileDispositionInformation
        DISPOSITION = 13,
        /// FilePositionInformation
        POSITION = 14,
        /// FileFullEaInformation
        FULL_EA = 15,
        /// FileModeInformation
        MODE = 16,
        /// FileAlignmentInformation
        ALIGNMENT = 17,
        /// FileAllInformation
        ALL = 18,
        /// FileAllocationInformation
        ALLOCATION = 19,
        /// FileEndOfFileInformation
        END_OF_FILE = 20,
        /// FileAlternateNameInformation
        ALTERNATE_NAME = 21,
        /// FileStreamInformation
        STREAM = 22,
        /// FilePipeInformation
        PIPE = 23,
        /// FilePipeLocalInformation
        PIPE_LOCAL = 24,
        /// FilePipeRemoteInformation
        PIPE_REMOTE = 25,
        /// FileMailslotQueryInformation, local only.
        MAILSLOT_QUERY = 26,
        /// FileMailslotSetInformation, local only.
        MAILSLOT_SET = 27,
        /// FileCompressionInformation
        COMPRESSION = 28,
        /// FileObjectIdInformation, local only.
        OBJECT_ID = 29,
        /// FileQuotaInformation
        QUOTA = 32,
        /// FileReparsePointInformation, local only.
        REPARSE_POINT = 33,
        /// FileNetworkOpenInformation
        NETWORK_OPEN = 34,
        /// FileAttributeTagInformation
        ATTRIBUTE_TAG = 35,
        /// FileTrackingInformation, local only.
        TRACKING = 36,
        /// FileIdBothDirectoryInformation
        ID_BOTH_DIRECTORY = 37,
        /// FileIdFullDirectoryInformation
        ID_FULL_DIRECTORY = 38,
        /// FileValidDataLengthInformation
        VALID_DATA_LENGTH = 39,
        /// FileShortNameInformation
        SHORT_NAME = 40,
        /// FileSfioReserveInformation, local only.
        SFIO_RESERVE = 44,
        /// FileHardLinkInformation, local only.
        HARD_LINK = 46,
        /// FileNormalizedNameInformation
        NORMALIZED_NAME = 48,
        /// FileIdGlobalTxDirectoryInformation, local only.
        ID_GLOBAL_TX_DIRECTORY = 50,
        /// FileStandardLinkInformation, local only.
        STANDARD_LINK = 54,
        /// FileIdInformation
        ID = 59,
        /// FileIdExtdDirectoryInformation
        ID_EXTD_DIRECTORY = 60,
        /// FileDispositionInformationEx
        DISPOSITION_EX = 64,
        /// FileRenameInformationEx
        RENAME_EX = 65,
        /// FileId64ExtdDirectoryInformation
        ID64_EXTD_DIRECTORY = 78,
        /// FileId64ExtdBothDirectoryInformation
        ID64_EXTD_BOTH_DIRECTORY = 79,
        /// FileIdAllExtdDirectoryInformation
        ID_ALL_EXTD_DIRECTORY = 80,
        /// FileIdAllExtdBothDirectoryInformation
        ID_ALL_EXTD_BOTH_DIRECTORY = 81,
        /// POSIX extensions: the fields of `stat`, also as directory entries.
        POSIX = 100,
    }
}

impl FileInfoClass {
    /// True if QUERY_DIRECTORY can list entries of this class.
    pub const fn is_directory(self) -> bool {
        matches!(self.0, 1..=3 | 12 | 37 | 38 | 60 | 78..=81 | 100)
    }

    /// True if QUERY_INFO can read the class (else STATUS_INVALID_INFO_CLASS, MS-FSCC 2.4).
    pub const fn may_query(self) -> bool {
        matches!(self.0, 4..=8 | 14..=18 | 21..=25 | 28 | 32 | 34 | 35 | 48 | 59 | 100)
    }

    /// True if SET_INFO can set the class.
    pub const fn may_set(self) -> bool {
        matches!(self.0, 4 | 10 | 11 | 13..=16 | 19 | 20 | 23 | 32 | 39 | 40 | 64 | 65)
    }
}

open_enum! {
    /// Information classes of file systems, for QUERY_INFO and SET_INFO, MS-FSCC 2.5.
    FsInfoClass(u8) {
        /// FileFsVolumeInformation
        VOLUME = 1,
        /// FileFsLabelInformation, local only.
        LABEL = 2,
        /// FileFsSizeInformation
        SIZE = 3,
        /// FileFsDeviceInformation
        DEVICE = 4,
        /// FileFsAttributeInformation
        ATTRIBUTE = 5,
        /// FileFsControlInformation
        CONTROL = 6,
        /// FileFsFullSizeInformation
        FULL_SIZE = 7,
        /// FileFsObjectIdInformation
        OBJECT_ID = 8,
        /// FileFsDriverPathInformation, local only.
        DRIVER_PATH = 9,
        /// FileFsVolumeFlagsInformation, local only.
        VOLUME_FLAGS = 10,
        /// FileFsSectorSizeInformation
        SECTOR_SIZE = 11,
        /// POSIX extensions: the fields of `statvfs`.
        POSIX = 100,
    }
}

impl FsInfoClass {
    /// True if QUERY_INFO can read the class.
    pub const fn may_query(self) -> bool {
        matches!(self.0, 1 | 3..=8 | 11 | 100)
    }

    /// True if SET_INFO can set the class.
    pub const fn may_set(self) -> bool {
        matches!(self.0, 6 | 8)
    }
}
