//! Refusals of shadow copies: the return values of MS-FSRVP 2.2.4.

use std::fmt;
use std::io::ErrorKind;

use frevo_rpc::fsrvp::HResult;

/// The reason why a server does not make or delete a shadow copy. Its text says more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowCopyError {
    status: HResult,
    /// The machine to which the server says that the share belongs, if that is another one.
    owner: Option<Box<str>>,
}

impl ShadowCopyError {
    pub(crate) const fn of(status: HResult, owner: Option<Box<str>>) -> Self {
        Self { status, owner }
    }

    /// Returns the return value of the call, an HRESULT.
    pub const fn code(&self) -> u32 {
        self.status.0
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self.status {
            HResult::ACCESS_DENIED => ErrorKind::PermissionDenied,
            HResult::NOT_SUPPORTED | HResult::UNSUPPORTED_CONTEXT => ErrorKind::Unsupported,
            HResult::OBJECT_NOT_FOUND | HResult::SHADOWCOPYSET_ID_MISMATCH => ErrorKind::NotFound,
            HResult::SHADOW_COPY_SET_IN_PROGRESS => ErrorKind::ResourceBusy,
            HResult::OUT_OF_MEMORY => ErrorKind::QuotaExceeded,
            HResult::COMMIT_TIMEOUT | HResult::WAIT_TIMEOUT => ErrorKind::TimedOut,
            HResult::INVALID_ARGUMENT => ErrorKind::InvalidInput,
            _ => ErrorKind::Other,
        }
    }
}

impl fmt::Display for ShadowCopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.status {
            HResult::ACCESS_DENIED => {
                "the user may not make copies; Administrators and Backup Operators may"
            }
            HResult::NOT_SUPPORTED => "the server makes no snapshots of this share",
            HResult::OBJECT_NOT_FOUND => "the server has no such share or copy",
            HResult::SHADOWCOPYSET_ID_MISMATCH => "the server has no such copy",
            HResult::INVALID_ARGUMENT => "the server has no such copy, or makes none of this kind",
            HResult::SHADOW_COPY_SET_IN_PROGRESS => {
                "the server makes copies for another client; try again later"
            }
            HResult::OUT_OF_MEMORY => "the user has too many copies; delete older ones",
            HResult::COMMIT_TIMEOUT | HResult::WAIT_TIMEOUT => {
                "the server's storage takes too long"
            }
            HResult::WAIT_FAILED => "the server could not make the snapshot; its log says why",
            _ => "the server refuses",
        };
        write!(f, "{text} ({:#010x})", self.status.0)?;
        match &self.owner {
            Some(owner) => write!(f, "; it says that the share belongs to {owner}: ask that one"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_helps() {
        let refused = |status| ShadowCopyError::of(status, None).to_string();
        assert!(refused(HResult::ACCESS_DENIED).ends_with("Backup Operators may (0x80070005)"));
        assert!(refused(HResult::SHADOW_COPY_SET_IN_PROGRESS).contains("try again later"));
        assert_eq!(refused(HResult::BAD_STATE), "the server refuses (0x80042301)");
        let missing = ShadowCopyError::of(HResult::OBJECT_NOT_FOUND, Some("NODE2".into()));
        assert_eq!((missing.kind(), missing.code()), (ErrorKind::NotFound, 0x8004_2308));
        assert!(missing.to_string().ends_with("belongs to NODE2: ask that one"), "{missing}");
        assert_eq!(ShadowCopyError::of(HResult::BAD_STATE, None).kind(), ErrorKind::Other);
    }
}
