"""The values that the requests draw from, and the names of statuses."""

STATUS = {
    0: "OK",
    0xC0000002: "NOT_IMPLEMENTED",
    0xC0000003: "INVALID_INFO_CLASS",
    0xC0000004: "INFO_LENGTH_MISMATCH",
    0xC0000008: "INVALID_HANDLE",
    0xC000000D: "INVALID_PARAMETER",
    0xC000000F: "NO_SUCH_FILE",
    0xC0000010: "INVALID_DEVICE_REQUEST",
    0xC0000011: "END_OF_FILE",
    0xC0000022: "ACCESS_DENIED",
    0xC0000023: "BUFFER_TOO_SMALL",
    0xC0000033: "OBJECT_NAME_INVALID",
    0xC0000034: "OBJECT_NAME_NOT_FOUND",
    0xC0000035: "OBJECT_NAME_COLLISION",
    0xC000003A: "OBJECT_PATH_NOT_FOUND",
    0xC0000043: "SHARING_VIOLATION",
    0xC0000054: "FILE_LOCK_CONFLICT",
    0xC0000055: "LOCK_NOT_GRANTED",
    0xC0000056: "DELETE_PENDING",
    0xC000007E: "RANGE_NOT_LOCKED",
    0xC00000BA: "FILE_IS_A_DIRECTORY",
    0xC00000BB: "NOT_SUPPORTED",
    0xC0000101: "DIRECTORY_NOT_EMPTY",
    0xC0000103: "NOT_A_DIRECTORY",
    0xC0000121: "CANNOT_DELETE",
    0xC0000128: "FILE_CLOSED",
    0xC00000A5: "BAD_IMPERSONATION_LEVEL",
    0x80000005: "BUFFER_OVERFLOW",
    0x80000006: "NO_MORE_FILES",
    0x8000001A: "NO_MORE_ENTRIES",
    0xC000004F: "EAS_NOT_SUPPORTED",
    0xC0000052: "NO_EAS_ON_FILE",
    0x80000013: "INVALID_EA_NAME",
    0xC0000061: "PRIVILEGE_NOT_HELD",
    0xC0000275: "NOT_A_REPARSE_POINT",
    0xC00000D4: "NOT_SAME_DEVICE",
    0xC000007F: "DISK_FULL",
    0xC000003B: "OBJECT_PATH_SYNTAX_BAD",
    0x103: "PENDING",
    0xC0000016: "MORE_PROCESSING",
    0xC000000E: "NO_SUCH_DEVICE",
    0x10B: "NOTIFY_CLEANUP",
    0x10C: "NOTIFY_ENUM_DIR",
    0xC00001A1: "INVALID_LOCK_RANGE",
    0xC00000A2: "MEDIA_WRITE_PROTECTED",
    0xC0000024: "OBJECT_TYPE_MISMATCH",
    0xC0000077: "INVALID_ACL",
    0xC0000059: "UNKNOWN_REVISION",
    0xC0000079: "INVALID_SECURITY_DESCR",
    0xC0000904: "FILE_NOT_AVAILABLE",
    0xC0000106: "NAME_TOO_LONG",
}


def said(status):
    return STATUS.get(status, f"{status:#010x}")


NAMES = {  # kind of name: name
    "file": "a",
    "folder": "d",
    "missing": "new",
    "missing-parent": "none\\x",
    "through-file": "a\\x",
    "in-folder": "d\\1",
    "other-case": "A",
    "wild": "a*",
    "slash": "d/1",
    "stream-data": "a::$DATA",
    "leading-backslash": "\\a",
    "trailing-backslash": "d\\",
    "double-backslash": "d\\\\1",
    "dot": ".",
    "dots": "d\\..\\a",
    "quote": 'a"',
    "pipe": "a|b",
    "control": "a\x01",
    "long": "n" * 256,
    "longest": "m" * 255,
    "trailing-space": "s ",
    "trailing-dot": "t.",
    "bad-type": "a::$BAD",
    "empty-stream": "a:",
    "index": "d::$INDEX_ALLOCATION",
    "stream": "a:s",
    "new-stream": "a:other",
    "folder-stream": "d:s",
    "surrogate": b"\x00\xd8x\x00",
}


# fmt: off
ACCESSES = [
    0, 1, 2, 4, 0x20, 0x80, 0x100, 0x10000, 0x20000, 0x40000, 0x80000, 0x100000, 0x1F01FF, 0x120089, 0x12019F,
    0x80000000, 0x40000000, 0x20000000, 0x10000000, 0x02000000, 0x02000080, 0x01000000, 0x00200000, 0x04000000,
    0x110080, 0x120196,
]
# fmt: on


# fmt: off
OPTIONS = [
    0, 0, 0, 1, 0x40, 0x1000, 0x1001, 0x1040, 0x41, 2, 4, 8, 0x10, 0x20, 0x30, 0x80, 0x100, 0x200, 0x400, 0x800,
    0x2000, 0x4000, 0x8000, 0x10000, 0x100000, 0x200000, 0x400000, 0x800000, 0x1000000, 0x80000000,
]
# fmt: on


ATTRIBUTES = [0, 0, 1, 2, 4, 0x10, 0x20, 0x80, 0x100, 0x200, 0x1000, 0x4000, 0x37, 0x8, 0x40, 0x10000, 0x80000000]


LENGTHS = [0, 1, 2, 3, 4, 7, 8, 12, 16, 23, 24, 25, 32, 40, 41, 56, 64, 100, 104, 1000, 65536]


OFFSETS = [0, 1, 4999, 5000, 5001, 4096, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, (1 << 63) - 10]


# FSCTLs whose answer does not depend on the disk.
FSCTLS = {
    0x90064: "SET_COMPRESSION?",
    0x9003C: "GET_COMPRESSION",
    0x900C0: "CREATE_OR_GET_OBJECT_ID",
    0x900A8: "GET_REPARSE_POINT",
    0x900AC: "DELETE_REPARSE_POINT",
    0x900C4: "SET_SPARSE",
    0x980C8: "SET_ZERO_DATA",
    0x940CF: "QUERY_ALLOCATED_RANGES",
    0x140078: "SRV_REQUEST_RESUME_KEY",
    0x1440F2: "SRV_COPYCHUNK",
    0x144064: "SRV_ENUMERATE_SNAPSHOTS",
    0x60194: "DFS_GET_REFERRALS",
    0x11400C: "PIPE_PEEK",
    0x110018: "PIPE_WAIT",
    0x11C017: "PIPE_TRANSCEIVE",
    0x1401D4: "LMR_REQUEST_RESILIENCY",
    0x90300: "UNKNOWN",
    0x98344: "DUPLICATE_EXTENTS",
    0x9027C: "GET_INTEGRITY",
    0x1401FC: "QUERY_NETWORK?",
}
