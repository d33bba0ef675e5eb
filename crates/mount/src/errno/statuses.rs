//! The errno of each status. docs/mount.md compares them with those of the kernel's client.

use frevo_wire::Status;

/// The statuses that have an errno other than EIO.
const STATUSES: &[(i32, &[Status])] = &[
    (libc::ETIMEDOUT, &[Status::TIMEOUT, Status::IO_TIMEOUT, Status::LINK_TIMEOUT]),
    (
        libc::EROFS,
        &[Status::RESOURCEMANAGER_READ_ONLY, Status::MEDIA_WRITE_PROTECTED, Status::WMI_READ_ONLY],
    ),
    (
        libc::EOPNOTSUPP,
        &[
            Status::CARDBUS_NOT_SUPPORTED,
            Status::NOT_IMPLEMENTED,
            Status::INVALID_INFO_CLASS,
            Status::INVALID_DEVICE_REQUEST,
            Status::EAS_NOT_SUPPORTED,
            Status::CTL_FILE_NOT_SUPPORTED,
            Status::NOT_SUPPORTED,
            Status::INVALID_LEVEL,
            Status::FS_DRIVER_REQUIRED,
            Status::IO_REPARSE_TAG_NOT_HANDLED,
            Status::WMI_NOT_SUPPORTED,
            Status::NOT_SUPPORTED_ON_SBS,
            Status::DEVICE_FEATURE_NOT_SUPPORTED,
            Status::OFFLOAD_READ_FILE_NOT_SUPPORTED,
            Status::OFFLOAD_WRITE_FILE_NOT_SUPPORTED,
        ],
    ),
    (libc::E2BIG, &[Status::BUFFER_OVERFLOW, Status::EA_TOO_LARGE]),
    (
        libc::ENODATA,
        &[
            Status::NO_MORE_FILES,
            Status::NO_MORE_EAS,
            Status::END_OF_FILE,
            Status::NONEXISTENT_EA_ENTRY,
            Status::NO_EAS_ON_FILE,
            Status::OBJECTID_NOT_FOUND,
        ],
    ),
    (
        libc::EBUSY,
        &[
            Status::DEVICE_BUSY,
            Status::SHARING_VIOLATION,
            Status::PIPE_BUSY,
            Status::NETWORK_BUSY,
            Status::FILES_OPEN,
            Status::SHARED_IRQ_BUSY,
            Status::USER_MAPPED_FILE,
            Status::DS_BUSY,
            Status::FILE_NOT_AVAILABLE,
        ],
    ),
    (
        libc::EINVAL,
        &[
            Status::INVALID_EA_NAME,
            Status::INVALID_EA_FLAG,
            Status::INVALID_PARAMETER,
            Status::INVALID_PARAMETER_MIX,
            Status::OBJECT_NAME_INVALID,
            Status::OBJECT_PATH_SYNTAX_BAD,
            Status::ILL_FORMED_PASSWORD,
            Status::BAD_NETWORK_PATH,
            Status::INVALID_PARAMETER_1,
            Status::INVALID_PARAMETER_2,
            Status::INVALID_PARAMETER_3,
            Status::INVALID_PARAMETER_4,
            Status::INVALID_PARAMETER_5,
            Status::INVALID_PARAMETER_6,
            Status::INVALID_PARAMETER_7,
            Status::INVALID_PARAMETER_8,
            Status::INVALID_PARAMETER_9,
            Status::INVALID_PARAMETER_10,
            Status::INVALID_PARAMETER_11,
            Status::INVALID_PARAMETER_12,
            Status::NOT_A_REPARSE_POINT,
        ],
    ),
    (libc::ELOOP, &[Status::STOPPED_ON_SYMLINK]),
    (
        libc::EACCES,
        &[
            Status::ACCESS_VIOLATION,
            Status::ACCESS_DENIED,
            Status::NO_SUCH_USER,
            Status::WRONG_PASSWORD,
            Status::PASSWORD_RESTRICTION,
            Status::LOGON_FAILURE,
            Status::ACCOUNT_RESTRICTION,
            Status::INVALID_LOGON_HOURS,
            Status::INVALID_WORKSTATION,
            Status::NETWORK_ACCESS_DENIED,
            Status::NO_SUCH_DOMAIN,
            Status::LOGON_NOT_GRANTED,
            Status::LOGON_TYPE_NOT_GRANTED,
            Status::ACCOUNT_LOCKED_OUT,
            Status::LOGIN_TIME_RESTRICTION,
            Status::LOGIN_WKSTA_RESTRICTION,
            Status::LICENSE_QUOTA_EXCEEDED,
        ],
    ),
    (
        libc::EDQUOT,
        &[
            Status::PAGEFILE_QUOTA,
            Status::QUOTA_EXCEEDED,
            Status::PAGEFILE_QUOTA_EXCEEDED,
            Status::DS_MACHINE_ACCOUNT_QUOTA_EXCEEDED,
        ],
    ),
    (libc::EBADF, &[Status::INVALID_HANDLE, Status::FILE_CLOSED]),
    (libc::ENODEV, &[Status::NO_SUCH_DEVICE, Status::DEVICE_DOES_NOT_EXIST]),
    (
        libc::ENOENT,
        &[
            Status::NO_SUCH_FILE,
            Status::OBJECT_NAME_NOT_FOUND,
            Status::OBJECT_PATH_NOT_FOUND,
            Status::DELETE_PENDING,
            Status::BAD_NETWORK_NAME,
            Status::FILE_DELETED,
            Status::NOT_FOUND,
        ],
    ),
    (
        libc::ENOMEM,
        &[Status::NO_MEMORY, Status::INSUFFICIENT_RESOURCES, Status::INSUFF_SERVER_RESOURCES],
    ),
    (libc::EADDRINUSE, &[Status::CONFLICTING_ADDRESSES, Status::ADDRESS_ALREADY_EXISTS]),
    (libc::EEXIST, &[Status::OBJECT_NAME_COLLISION]),
    (libc::ENOTDIR, &[Status::OBJECT_PATH_INVALID, Status::NOT_A_DIRECTORY]),
    (libc::EAGAIN, &[Status::FILE_LOCK_CONFLICT, Status::LOCK_NOT_GRANTED, Status::RETRY]),
    (
        libc::EPERM,
        &[
            Status::INVALID_OWNER,
            Status::INVALID_PRIMARY_GROUP,
            Status::PRIVILEGE_NOT_HELD,
            Status::CANNOT_DELETE,
        ],
    ),
    (
        libc::EKEYEXPIRED,
        &[Status::PASSWORD_EXPIRED, Status::ACCOUNT_EXPIRED, Status::PASSWORD_MUST_CHANGE],
    ),
    (libc::EKEYREVOKED, &[Status::ACCOUNT_DISABLED]),
    (libc::ENOSPC, &[Status::DISK_FULL]),
    (libc::EPIPE, &[Status::PIPE_DISCONNECTED, Status::PIPE_BROKEN]),
    (libc::EISDIR, &[Status::FILE_IS_A_DIRECTORY]),
    (libc::EHOSTDOWN, &[Status::REMOTE_NOT_LISTENING, Status::HOST_UNREACHABLE]),
    (libc::ENOTUNIQ, &[Status::DUPLICATE_NAME]),
    (libc::EREMCHG, &[Status::NETWORK_NAME_DELETED]),
    (libc::EXDEV, &[Status::NOT_SAME_DEVICE, Status::LINK_FAILED]),
    (libc::ENOTEMPTY, &[Status::DIRECTORY_NOT_EMPTY]),
    (libc::ENAMETOOLONG, &[Status::NAME_TOO_LONG]),
    (libc::EMFILE, &[Status::TOO_MANY_OPENED_FILES]),
    (libc::EINTR, &[Status::CANCELLED]),
    (libc::ESHUTDOWN, &[Status::REMOTE_DISCONNECT]),
    (libc::EDEADLK, &[Status::POSSIBLE_DEADLOCK]),
    (libc::ECONNABORTED, &[Status::CONNECTION_DISCONNECTED, Status::CONNECTION_ABORTED]),
    (libc::ENETRESET, &[Status::CONNECTION_RESET]),
    (libc::ENETUNREACH, &[Status::NETWORK_UNREACHABLE, Status::PROTOCOL_UNREACHABLE]),
    (libc::EREMOTE, &[Status::PATH_NOT_COVERED]),
    (libc::EMLINK, &[Status::TOO_MANY_LINKS]),
    (libc::EFBIG, &[Status::FILE_TOO_LARGE]),
];

/// Returns the errno of a status; None stands for EIO.
pub(super) fn of(status: Status) -> Option<i32> {
    STATUSES.iter().find(|(_, all)| all.contains(&status)).map(|(errno, _)| *errno)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Returns the cells of a table's row.
    fn cells(row: &str) -> Vec<&str> {
        row.trim_matches('|').split('|').map(str::trim).collect()
    }

    /// Walks the statuses that this project knows, which are those of MS-ERREF 2.3.1.
    #[test]
    fn each_status_has_the_errno_of_the_table() {
        let page = include_str!("../../../../docs/mount.md");
        let mut listed: HashMap<&str, Vec<&str>> = HashMap::new();
        for row in page.lines().filter(|line| line.contains("| 0x")) {
            let cells = cells(row);
            assert!(listed.insert(cells[0], cells).is_none(), "two rows: {row}");
        }
        let numbers: HashMap<&str, i32> = NAMES.iter().copied().collect();
        let mut seen = 0;
        for line in include_str!("../../../wire/src/status.rs").lines() {
            let Some((name, number)) = line.trim().trim_end_matches(',').split_once(" = 0x") else {
                continue;
            };
            seen += 1;
            let status = Status(u32::from_str_radix(number, 16).unwrap());
            assert_eq!(status.name(), Some(name));
            let Some(row) = listed.remove(name) else {
                assert_eq!(of(status), None, "{name} has no row");
                continue;
            };
            let &[_, code, ours, kernels, reason] = &row[..] else { panic!("{row:?}") };
            assert_eq!(code, format!("0x{:08X}", status.0), "{name}");
            assert_eq!(of(status).unwrap_or(libc::EIO), numbers[ours], "{name}");
            assert_eq!(ours == kernels, reason.is_empty(), "{name}: each difference has a reason");
            assert!(numbers.contains_key(kernels), "{name}: {kernels}");
        }
        assert!(seen > 650, "{seen}");
        assert!(listed.is_empty(), "no such status: {listed:?}");
    }

    #[test]
    fn no_status_has_two_numbers() {
        let all: Vec<Status> = STATUSES.iter().flat_map(|(_, all)| *all).copied().collect();
        let unique: std::collections::HashSet<Status> = all.iter().copied().collect();
        assert_eq!(all.len(), unique.len());
        // After ENOSYS the kernel never sends this kind of request again, so no server status may
        // become ENOSYS.
        assert!(STATUSES.iter().all(|(errno, _)| *errno != libc::ENOSYS));
    }

    const NAMES: &[(&str, i32)] = &[
        ("E2BIG", libc::E2BIG),
        ("EACCES", libc::EACCES),
        ("EADDRINUSE", libc::EADDRINUSE),
        ("EAGAIN", libc::EAGAIN),
        ("EBADF", libc::EBADF),
        ("EBUSY", libc::EBUSY),
        ("ECONNABORTED", libc::ECONNABORTED),
        ("EDEADLK", libc::EDEADLK),
        ("EDQUOT", libc::EDQUOT),
        ("EEXIST", libc::EEXIST),
        ("EFAULT", libc::EFAULT),
        ("EFBIG", libc::EFBIG),
        ("EHOSTDOWN", libc::EHOSTDOWN),
        ("EINTR", libc::EINTR),
        ("EINVAL", libc::EINVAL),
        ("EIO", libc::EIO),
        ("EISDIR", libc::EISDIR),
        ("EKEYEXPIRED", libc::EKEYEXPIRED),
        ("EKEYREVOKED", libc::EKEYREVOKED),
        ("ELOOP", libc::ELOOP),
        ("EMFILE", libc::EMFILE),
        ("EMLINK", libc::EMLINK),
        ("ENAMETOOLONG", libc::ENAMETOOLONG),
        ("ENETRESET", libc::ENETRESET),
        ("ENETUNREACH", libc::ENETUNREACH),
        ("ENODATA", libc::ENODATA),
        ("ENODEV", libc::ENODEV),
        ("ENOENT", libc::ENOENT),
        ("ENOMEM", libc::ENOMEM),
        ("ENOSPC", libc::ENOSPC),
        ("ENOSYS", libc::ENOSYS),
        ("ENOTDIR", libc::ENOTDIR),
        ("ENOTEMPTY", libc::ENOTEMPTY),
        ("ENOTUNIQ", libc::ENOTUNIQ),
        ("EOPNOTSUPP", libc::EOPNOTSUPP),
        ("EPERM", libc::EPERM),
        ("EPIPE", libc::EPIPE),
        ("EREMCHG", libc::EREMCHG),
        ("EREMOTE", libc::EREMOTE),
        ("EREMOTEIO", libc::EREMOTEIO),
        ("EROFS", libc::EROFS),
        ("ESHUTDOWN", libc::ESHUTDOWN),
        ("ETIMEDOUT", libc::ETIMEDOUT),
        ("EXDEV", libc::EXDEV),
    ];
}
