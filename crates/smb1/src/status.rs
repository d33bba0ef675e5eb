//! SMBSTATUS codes as NTSTATUS, MS-CIFS 2.2.2.4.

use frevo_wire::Status;

use crate::Flags2;
use crate::Header;

/// ERRDOS, MS-CIFS 2.2.2.4.
const DOS: u32 = 1;
/// ERRSRV
const SERVER: u32 = 2;
/// ERRHRD
const HARDWARE: u32 = 3;

/// The upper half of an NTSTATUS that is an error.
const ERROR: u32 = 0xC000;

/// Returns the NTSTATUS of a response.
pub(crate) fn status(header: &Header) -> Status {
    if header.status == 0 || header.flags2.contains(Flags2::NT_STATUS) {
        return Status(header.status);
    }
    // MS-CIFS 2.2.1.5: ErrorClass, a reserved byte, ErrorCode.
    let (class, code) = (header.status & 0xFF, header.status >> 16);
    if class > HARDWARE && code >= ERROR {
        // Samba says MORE_PROCESSING_REQUIRED in this form whatever the others have. It is no class.
        return Status(header.status);
    }
    from_smb_status(class, code)
}

fn from_smb_status(class: u32, code: u32) -> Status {
    match (class, code) {
        (0, _) => Status::SUCCESS,
        (DOS, 0x0001) | (SERVER, 0x0040) => Status::NOT_IMPLEMENTED,
        (DOS, 0x0002) => Status::OBJECT_NAME_NOT_FOUND,
        (DOS, 0x0003) => Status::OBJECT_PATH_NOT_FOUND,
        (DOS, 0x0004) => Status::TOO_MANY_OPENED_FILES,
        (DOS, 0x0005 | 0x000C) | (SERVER, 0x0004 | 0x0045) => Status::ACCESS_DENIED,
        (DOS, 0x0006) => Status::INVALID_HANDLE,
        (DOS, 0x0008) => Status::INSUFF_SERVER_RESOURCES,
        (DOS, 0x0010) => Status::DIRECTORY_NOT_EMPTY,
        (DOS, 0x0011) => Status::NOT_SAME_DEVICE,
        (DOS, 0x0012) => Status::NO_MORE_FILES,
        (DOS | HARDWARE, 0x0020) => Status::SHARING_VIOLATION,
        (DOS | HARDWARE, 0x0021) => Status::FILE_LOCK_CONFLICT,
        (DOS, 0x0026) => Status::END_OF_FILE,
        (DOS, 0x0032) | (SERVER, 0xFFFF | 0x0016) => Status::NOT_SUPPORTED,
        // 0x70, 0x7B and 0xB7 are codes of OS/2 and of Windows 9x.
        (DOS, 0x0050 | 0x00B7) => Status::OBJECT_NAME_COLLISION,
        (DOS, 0x0057) => Status::INVALID_PARAMETER,
        (DOS, 0x0070) | (HARDWARE, 0x0027) => Status::DISK_FULL,
        (DOS, 0x007B) => Status::OBJECT_NAME_INVALID,
        (DOS, 0x007C) => Status::INVALID_INFO_CLASS,
        // MS-CIFS 2.2.4.35.2 has it in the other class.
        (DOS | SERVER, 0x00EA) => Status::BUFFER_OVERFLOW,
        (SERVER, 0x0002) => Status::LOGON_FAILURE,
        (SERVER, 0x0005) => Status::NETWORK_NAME_DELETED,
        (SERVER, 0x0006) => Status::BAD_NETWORK_NAME,
        (SERVER, 0x0007) => Status::BAD_DEVICE_TYPE,
        (SERVER, 0x0058) => Status::IO_TIMEOUT,
        (SERVER, 0x005A) => Status::TOO_MANY_SESSIONS,
        (SERVER, 0x005B) => Status::USER_SESSION_DELETED,
        (SERVER, 0x08BF) => Status::ACCOUNT_DISABLED,
        (SERVER, 0x08C0) => Status::INVALID_WORKSTATION,
        (SERVER, 0x08C1) => Status::INVALID_LOGON_HOURS,
        (SERVER, 0x08C2) => Status::PASSWORD_EXPIRED,
        (HARDWARE, 0x0013) => Status::MEDIA_WRITE_PROTECTED,
        (HARDWARE, 0x0015) => Status::NO_MEDIA_IN_DEVICE,
        (HARDWARE, 0x0017) => Status::DATA_ERROR,
        _ => Status::UNSUCCESSFUL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn old_codes_have_the_status_of_the_table() {
        let of = |status, flags2| {
            super::status(&Header {
                command: Command::ECHO,
                status,
                is_reply: true,
                flags2,
                signature: [0; 8],
                tree: 0,
                user: 0,
                mid: 0,
            })
        };
        assert_eq!(of(0x0002_0001, Flags2::EMPTY), Status::OBJECT_NAME_NOT_FOUND);
        assert_eq!(of(0x0002_0002, Flags2::EMPTY), Status::LOGON_FAILURE);
        assert_eq!(of(0x0027_0003, Flags2::EMPTY), Status::DISK_FULL);
        assert_eq!(of(0x00EA_0002, Flags2::EMPTY), Status::BUFFER_OVERFLOW);
        assert_eq!(of(0xC000_0016, Flags2::EMPTY), Status::MORE_PROCESSING_REQUIRED);
        assert_eq!(of(0x7777_0009, Flags2::EMPTY), Status::UNSUCCESSFUL);
        assert_eq!(of(0xC000_0034, Flags2::NT_STATUS), Status::OBJECT_NAME_NOT_FOUND);
        assert_eq!(of(0, Flags2::EMPTY), Status::SUCCESS);
    }
}
